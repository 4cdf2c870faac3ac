# SPDX-License-Identifier: Apache-2.0
"""The files of a card for XDP: program, networks by slot, and the tables that it reads."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from n3ic.errors import CardError, ExportError
from n3ic.exporters.xdp.network.source import network_source
from n3ic.exporters.xdp.network.structure import structure_of
from n3ic.exporters.xdp.network.sums import Structure
from n3ic.exporters.xdp.network.values import value_bytes
from n3ic.exporters.xdp.resident import SLOTS
from n3ic.exporters.xdp.source import PACKET
from n3ic.systems.card.compile import SoftwareCard, SoftwareGraph, SoftwareRule
from n3ic.targets.identifiers import comment
from n3ic.util.json_text import json_text
from n3ic.util.templates import render

PROGRAM, TABLES = "card.c", "card.json"
RULES = 8  # maximum rules of a graph's policy
PORTS = 256  # one more than the largest port of a policy
TEMPLATES = Path(__file__).resolve().parent / "templates"
_LONGEST = 1023  # maximum bytes of an input
_CLASSES = 64  # classes in a rule's bit mask
_NO_BOUND = 0xFFFFFFFF
_JOINS = ("both", "vote", "most-certain")
_ACTIONS = ("forward", "drop", "mark")
_RULE = struct.Struct("=6IQ")  # struct rule
_SECOND = 10**9
_TENANT = struct.Struct("=II5Q")  # struct tenant
_CARRIED = {
    "header": "bytes 18-19 behind EtherType 0x2323",
    "vlan": "the VLAN identifier of a tag before EtherType 0x2323",
    "udp-port": "its UDP destination port",
}


@dataclass(frozen=True, eq=False)
class XdpCardImage:
    """A card for XDP.

    Attributes:
        card: the card.
        structure: common structure of its networks.
        slots: slot of each network, by task name.
    """

    card: SoftwareCard
    structure: Structure
    slots: dict[str, int]

    def value(self, task: str) -> bytes:
        """Return the content of a network's slot."""
        return value_bytes(self.structure, self.card.networks[task])

    def graph_value(self, graph: SoftwareGraph) -> bytes:
        """Return ``struct graph``."""
        runs = [n for b in graph.branches for n in (self.slots[b.task], b.model.input.n_bits)]
        # struct graph has room for the most branches of any graph.
        runs += [0] * (2 * self.branches - len(runs))
        join, rules = _JOINS.index(graph.join), len(graph.rules)
        head = [graph.tenant, graph.input_bytes, rules, join, len(graph.branches), *runs]
        packed = struct.pack(f"={len(head)}I", *head)
        packed = packed.ljust(_aligned(len(packed)), b"\0") + b"".join(map(_rule, graph.rules))
        return packed.ljust(_aligned(4 * len(head)) + _RULE.size * RULES, b"\0")

    @property
    def ports(self) -> set[int]:
        """Ports that its policies forward to."""
        rules = (rule for g in self.card.graphs for rule in g.rules)
        return {r.value for r in rules if r.action == "forward" and r.value}

    @property
    def branches(self) -> int:
        """Largest number of networks of a graph."""
        return max(len(g.branches) for g in self.card.graphs)


def image_of(card: SoftwareCard) -> XdpCardImage:
    """Make the image of a card.

    Raises:
        CardError: The program does not support a graph, or the networks do not fit together.
    """
    for graph in card.graphs:
        _check(graph, card)
    if len(card.networks) > SLOTS:
        raise CardError(f"target xdp has {SLOTS} slots, the card has {len(card.networks)} networks")
    try:
        structure = structure_of(list(card.networks.values()), bits=True)
    except ExportError as error:
        shapes = ", ".join(sorted({m.shape_text for m in card.networks.values()}))
        raise CardError(
            f"target xdp runs all networks of a card in one program: {error} (shapes {shapes})"
        ) from error
    return XdpCardImage(card, structure, {name: i for i, name in enumerate(card.networks)})


def write_card(image: XdpCardImage, out: Path) -> None:
    """Write the program, the networks, the tables and the README of a card."""
    files = {
        PROGRAM: render(TEMPLATES, "card.c.j2", _values(image)),
        PACKET.name: PACKET.read_text(encoding="utf-8"),
        **network_source(image.structure),
        TABLES: json_text(_tables(image)),
        "README.md": render(TEMPLATES, "README.md.j2", _values(image)),
    }
    for name, text in files.items():
        (out / name).write_text(text, encoding="utf-8", newline="\n")
    (out / "networks").mkdir()
    for task, slot in image.slots.items():
        (out / "networks" / f"{slot}.bin").write_bytes(image.value(task))


def tenant_value(rate: int, burst: int) -> bytes:
    """Return ``struct tenant`` with a full bucket."""
    return _TENANT.pack(0, 0, rate, burst, burst, 0, 0)


def changed_tenant(value: bytes, rate: int, burst: int, now_ns: int) -> bytes:
    """Return ``struct tenant`` with another rate and burst; its bucket keeps what it holds.

    Args:
        value: the structure until now.
        rate: bytes per second.
        burst: bytes of the bucket.
        now_ns: time of the change on the kernel's clock; until then, the old rate fills the bucket.
    """
    _, _, old_rate, old_burst, tokens, part, filled_ns = _TENANT.unpack(value)
    if 0 < filled_ns < now_ns:
        parts = tokens * _SECOND + part + (now_ns - filled_ns) * old_rate
        tokens, part = divmod(min(parts, old_burst * _SECOND), _SECOND)
        filled_ns = now_ns
    tokens = min(tokens, burst)
    return _TENANT.pack(0, 0, rate, burst, tokens, part, filled_ns)


def _values(image: XdpCardImage) -> dict[str, object]:
    card = image.card
    longest = max(g.input_bytes for g in card.graphs)
    return {
        "title": comment(card.name),
        "carrier": card.carrier,
        "carried": _CARRIED[card.carrier],
        "slots": SLOTS,
        "tenants": len(card.tenants),
        # The kernel fixes the size of a map when it is created.
        "graphs": 2 * len(card.graphs),  # room for future graphs
        "rules": RULES,
        "ports": PORTS,
        "used_ports": sorted(image.ports),
        "branches": image.branches,
        "field": (1 << longest.bit_length()) - 1,
        "result_at": card.result_at,
        "offset": card.offset,
        "rows": [
            {
                "name": comment(g.name),
                "uid": g.uid,
                "bytes": g.input_bytes,
                "join": g.join if len(g.branches) > 1 else "",
                "slots": ", ".join(str(image.slots[b.task]) for b in g.branches),
                "shapes": ", ".join(b.model.shape_text for b in g.branches),
            }
            for g in card.graphs
        ],
        "shares": card.tenants,
    }


def _tables(image: XdpCardImage) -> dict[str, object]:
    """Return the content of the maps for a loader, in hexadecimal as the program reads it."""
    card = image.card
    return {
        "format": "n3ic-xdp-card",
        "version": 1,
        "tenants": [
            {"name": t.name, "value": tenant_value(t.rate, t.burst).hex()} for t in card.tenants
        ],
        "graphs": [
            {"name": g.name, "uid": g.uid, "value": image.graph_value(g).hex()} for g in card.graphs
        ],
        "slots": [{"network": name, "slot": slot} for name, slot in image.slots.items()],
    }


def _check(graph: SoftwareGraph, card: SoftwareCard) -> None:
    if graph.branches[0].features:
        raise CardError(
            f"{graph.name}: target xdp has no input stage on a shared card: its frames carry the "
            "input bits"
        )
    if graph.input_bytes > _LONGEST:
        raise CardError(f"{graph.name}: {graph.input_bytes} bytes of input, at most {_LONGEST}")
    if len(graph.rules) > RULES:
        raise CardError(f"{graph.name}: {len(graph.rules)} rules, target xdp has room for {RULES}")
    for rule in graph.rules:
        if rule.action not in _ACTIONS:
            raise CardError(
                f"{graph.name}: target xdp does not {rule.action} frames, because an XDP program "
                "can copy no frame: expected forward, drop or mark"
            )
        if rule.action == "mark" and card.carrier != "udp-port":
            raise CardError(
                f'{graph.name}: a rule marks packets, expected uid = "udp-port" in [device]: '
                f"frames of {card.carrier!r} have no DSCP"
            )
        if any(c >= _CLASSES for c in rule.classes):
            raise CardError(f"{graph.name}: rules of target xdp name classes below {_CLASSES}")


def _rule(rule: SoftwareRule) -> bytes:
    below = _NO_BOUND if rule.below is None else rule.below
    classes = sum(1 << c for c in rule.classes)
    action, everything = _ACTIONS.index(rule.action), int(not rule.classes)
    return _RULE.pack(action, rule.value, rule.margin, below, everything, 0, classes)


def _aligned(size: int) -> int:
    """Round a size up to the alignment of a rule."""
    return -(-size // 8) * 8
