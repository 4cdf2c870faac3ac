# SPDX-License-Identifier: Apache-2.0
"""Write the C of a card: sources that are the same for all cards, and the plan as tables."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from n3ic.errors import CardError
from n3ic.kernel import build
from n3ic.systems.card.compile import SoftwareCard, SoftwareGraph, SoftwareRule
from n3ic.systems.card.description import PacketTask
from n3ic.systems.card.frames import traffic
from n3ic.systems.card.host import embedded_model
from n3ic.systems.card.plan import CardPlan
from n3ic.systems.card.planner import packet_shares
from n3ic.systems.card.tasks.kind import FOLDER as TASKS
from n3ic.systems.card.tasks.kind import FRAME_HEAD, kind_of, writes
from n3ic.targets.fuzz_traffic import pcap
from n3ic.targets.identifiers import c_string, comment
from n3ic.util.names import path_component
from n3ic.util.templates import render

TEMPLATES = Path(__file__).resolve().parent / "templates"
NETWORKS = "network_*.c"  # those that are compiled in
PACKET_TASKS = "task_*.c"
SOURCES = ("n3ic_card.c", "card_plan.c", "bnn.c")
EXAMPLE = "frames.pcap"
ACTIONS = ("forward", "drop", "mark", "mirror")
QUEUE = 1024  # frames of a tenant that wait or are computed
_CARRIERS = ("header", "vlan", "udp-port")
_JOINS = {"both": 0, "vote": 1, "most-certain": 2}
_CARRIED = {
    "header": "bytes 18-19 behind EtherType 0x2323",
    "vlan": "the VLAN identifier of a tag before EtherType 0x2323",
    "udp-port": "its UDP destination port",
}
_SHARED = 0xFFFFFFFF
_INT32_MAX = 0x7FFFFFFF
_LARGEST_COST = 1 << 20
_BYTES_A_LINE = 16
_EXAMPLES = 3  # frames per graph, a second apart
_SECOND, _ETHERNET = 10**9, 1


def write_card(card: SoftwareCard, plan: CardPlan, out: Path) -> None:
    """Write the sources, the weights of each network, some frames and the README of a card.

    Raises:
        CardError: a rule marks frames, but they have no DSCP.
    """
    # A DSCP is in the IPv4 header, which only the carrier of UDP ports requires.
    if card.carrier != "udp-port":
        for graph in card.graphs:
            if any(rule.action == "mark" for rule in graph.rules):
                raise CardError(
                    f'{graph.name}: a rule marks packets, expected uid = "udp-port" in [device]: '
                    f"frames of {card.carrier!r} have no DSCP"
                )
    values = _values(card, plan)
    values["loaded"] = [n for n in values["networks"] if not n["compiled_in"]]
    for name in ("card_plan.h", "card_plan.c", "Makefile", "README.md"):
        (out / name).write_text(render(TEMPLATES, f"{name}.j2", values), "utf-8")
    for name in ("n3ic_card.h", "n3ic_card.c", "card_turns.h", "card_exec.c"):
        shutil.copyfile(TEMPLATES / name, out / name)
    shutil.copyfile(TASKS / "card_task.h", out / "card_task.h")
    for kind in values["kinds"]:
        (out / f"task_{kind}.c").write_text(_task_source(card, kind), "utf-8")
    shutil.copyfile(build.HEADER, out / "bnn.h")
    for name, text in values["sources"].items():
        (out / name).write_text(text, "utf-8")
    (out / "models").mkdir()
    for network, model in zip(values["networks"], card.networks.values(), strict=True):
        (out / "models" / network["file"]).write_bytes(embedded_model.weights_of(model))
    requests = traffic(card, _EXAMPLES)
    frames = [(a.frame, len(a.frame), second) for second, a in enumerate(requests)]
    (out / EXAMPLE).write_bytes(pcap(_ETHERNET, frames, _SECOND, "<"))


def _values(card: SoftwareCard, plan: CardPlan) -> dict[str, Any]:
    numbers = {name: i for i, name in enumerate(card.networks)}
    tasks = {name: i for i, name in enumerate(card.packet_tasks)}
    networks = card.networks.values()
    costs = _costs(plan)
    sources = embedded_model.sources([*networks])
    return {
        "sources": sources,
        "kinds": (kinds := sorted({t.task for t in card.packet_tasks.values()})),
        "task_objects": "".join(f" task_{kind}.o" for kind in kinds),
        "head": FRAME_HEAD + card.header if kinds else 0,
        "packet_tasks": [_packet_task(card, t) for t in card.packet_tasks.values()],
        "objects": "".join(
            f" {Path(name).stem}.o" for name in sources if fnmatchcase(name, NETWORKS)
        ),
        "title": comment(card.name),
        "queue": plan.card.device.queue or QUEUE,
        "carrier": _CARRIERS.index(card.carrier),
        "carried": _CARRIED[card.carrier],
        "result_at": card.result_at,
        "offset": card.offset,
        "branches": max(len(g.branches) for g in card.graphs),
        "scores": max(sum(len(b.model.classes) for b in g.branches) for g in card.graphs),
        "words": max(model.input.n_words for model in networks),
        "field": max(g.input_bytes for g in card.graphs),
        "tenants": [
            {
                "name": c_string(t.name),
                "comment": comment(t.name),
                "weight": t.weight,
                "rate": t.rate,
                "burst": t.burst,
            }
            for t in card.tenants
        ],
        "networks": [_network(card, name, i) for name, i in numbers.items()],
        "graphs": [_graph(graph, numbers, tasks, costs[graph.uid]) for graph in card.graphs],
    }


def _network(card: SoftwareCard, name: str, index: int) -> dict[str, Any]:
    model = card.networks[name]
    weights = embedded_model.weights_of(model)
    owner, slash, _ = name.partition("/")
    names = [t.name for t in card.tenants]
    features = any(b.features for g in card.graphs for b in g.branches if b.task == name)
    return {
        "name": c_string(name),
        "comment": comment(name),
        "file": f"{index:02d}-{path_component(name.replace('/', '-'))[:80]}.bin",
        "owner": names.index(owner) if slash else _SHARED,
        "inputs": model.input.n_bits,
        "features": [c_string(f) for f in model.input.features] if features else [],
        "classes": len(model.classes),
        "shape": model.shape_text,
        "digest": model.digest,
        "compiled_in": embedded_model.is_compiled_in(model),
        "size": len(weights),
        "rows": [
            ", ".join(f"0x{byte:02x}" for byte in weights[i : i + _BYTES_A_LINE])
            for i in range(0, len(weights), _BYTES_A_LINE)
        ],
    }


def _packet_task(card: SoftwareCard, task: PacketTask) -> dict[str, Any]:
    words = [f"0x{a:x}, 0x{word:x}" for a, word in writes(task.entries)]
    owner, slash, _ = task.name.partition("/")
    return {
        "name": c_string(task.name),
        "task": task.task,
        "owner": [t.name for t in card.tenants].index(owner) if slash else _SHARED,
        "writes": words or ["0, 0"],
        "count": len(words),
    }


def _task_source(card: SoftwareCard, kind: str) -> str:
    """Return the C of a packet task, with room for the most words that one of the card has."""
    text = (TASKS / kind / f"{kind}.c").read_text("utf-8")
    if not kind_of(kind).memory:
        return text
    words = max(t.entries[0][0] for t in card.packet_tasks.values() if t.task == kind)
    licence, _, rest = text.partition("\n")
    return f"{licence}\n#define CARD_SLOTS {words}\n{rest}"


def _graph(
    graph: SoftwareGraph, numbers: Mapping[str, int], tasks: Mapping[str, int], cost: int
) -> dict[str, Any]:
    return {
        "name": c_string(graph.name),
        "comment": comment(graph.name),
        "uid": graph.uid,
        "tenant": graph.tenant,
        "input_bytes": graph.input_bytes,
        "join": _JOINS[graph.join],
        "cost": cost,
        "networks": [numbers[b.task] for b in graph.branches],
        "steps": [
            f"{{ {i}u, {tasks[t.name]}u }}"
            for i, b in enumerate(graph.branches)
            for t in b.packet_tasks
        ],
        "tasks": ", ".join(
            comment(" > ".join([*(t.name for t in b.packet_tasks), b.task])) for b in graph.branches
        ),
        "rules": [_rule(rule) | {"index": i} for i, rule in enumerate(graph.rules)],
    }


def _rule(rule: SoftwareRule) -> dict[str, Any]:
    return {
        "action": ACTIONS.index(rule.action),
        "value": rule.value,
        "margin": rule.margin,
        "below": _INT32_MAX if rule.below is None else rule.below,
        "classes": list(rule.classes),
    }


def _costs(plan: CardPlan) -> dict[int, int]:
    """Return the cost of a frame of each graph in fair queueing, by UID; 1 if unknown."""
    shares = packet_shares(plan)
    # Only ratios count. The C shifts a cost left by 24 bits, so the bound keeps it within 64 bits.
    unit = max(shares.values()) / _LARGEST_COST
    return {uid: max(1, round(share / unit)) if unit else 1 for uid, share in shares.items()}
