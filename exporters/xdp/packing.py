# SPDX-License-Identifier: Apache-2.0
"""What ``n3icd``, the daemon in C, needs of an export: its sources, and packs of map values.

A pack holds all that Python decides when it loads a program: models, rules, policies, sizes, names.
``daemon/pack.h`` has its format; the daemon writes it into the maps without knowing more.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

import numpy as np

from n3ic.errors import UsageError, VerifyError
from n3ic.exporters.xdp import layout, policy_parser
from n3ic.exporters.xdp.resident import rule_table
from n3ic.exporters.xdp.source import Table
from n3ic.exporters.xdp.verdicts import ACTIONS, NEW_FLOWS, SCOPES, SECOND_NS, VERDICTS, Limits
from n3ic.meter.compiled import ASIDE, ENDS
from n3ic.model.network import BinaryModel
from n3ic.targets.identifiers import c_string
from n3ic.util.files import read_regular

FOLDER = Path(__file__).resolve().parent / "daemon"
SHUNTED = FOLDER.parent / "shunted"  # takes packets that a policy hands to sockets
PACK = "n3icd.pack"
_IDLE = ("idle.bpf.c", "idle.h")
_MAX_BYTES = 16 << 20
_CPU_QUEUE = 2048  # maximum packets queued for another CPU, as in deployment.py
_RULES_FROM = 8  # bytes of a rule table before its rules


def write_daemon(out: Path, model: BinaryModel, table: Table, value: bytes) -> None:
    """Write what runs beside the program: n3icd with configuration, unit and pack, and ``shunted``.

    Args:
        out: the export's directory, with its folder ``meter``.
        model: the exported network.
        table: flow table of the program.
        value: the network's map value.
    """
    place = out / "daemon"
    for folder in (FOLDER, SHUNTED):
        (out / folder.name).mkdir()
        for path in sorted(folder.iterdir()):
            (out / folder.name / path.name).write_bytes(path.read_bytes())
    lines = (
        "/* What the sources of n3icd need to know of the program; generated. */",
        f'#define N3ICD_LAYOUT "{layout_id(out)}"',
        f"#define N3ICD_BUCKETS {int(table == 'buckets')}",
        f"#define N3ICD_ENDS {', '.join(map(c_string, ENDS))}",
        f"#define N3ICD_ASIDE {', '.join(map(c_string, ASIDE))}",
    )
    (place / "build.h").write_text("\n".join(lines) + "\n", encoding="ascii", newline="\n")
    (place / PACK).write_bytes(pack(out, model, table, value))


def layout_id(export: Path) -> str:
    """SHA-256 of the sources of an export's metering program and of the search for idle flows.

    Raises:
        VerifyError: a source cannot be read.
    """
    paths = [p for p in sorted((export / "meter").iterdir()) if p.suffix in (".c", ".h")]
    found = hashlib.sha256()
    try:
        for path in [*paths, *(export / "daemon" / name for name in _IDLE)]:
            data = read_regular(path, _MAX_BYTES)
            found.update(f"{path.name} {len(data)}\n".encode() + data)
    except OSError as error:
        raise VerifyError(f"{export}: cannot be read: {error}") from error
    return found.hexdigest()


def pack(
    export: Path,
    model: BinaryModel,
    table: Table,
    value: bytes,
    *,
    clock: int = 0,
    policies: Sequence[str] = (),
    rules: Sequence[str] = (),
    otherwise: int = 0,
    limits: Limits = Limits(new_flows=NEW_FLOWS),  # noqa: B008 - frozen
    room: int = VERDICTS,
    flows: int | None = None,
) -> bytes:
    """Serialise what a daemon writes into the maps of an export's metering program.

    Args:
        export: the export, whose daemon takes the pack.
        model: network in the slot ``otherwise``.
        table: flow table of the program.
        value: map value of the network, for the program's structure.
        clock: index in :data:`~.program.CLOCKS`.
        policies: actions by verdict as typed.
        rules: rules as typed; interfaces are looked up when the daemon loads the pack.
        otherwise: slot of flows without a matching rule.
        limits: what bounds verdicts and new flows.
        room: room for verdicts by decisions.
        flows: flows that the table is made for; None for the cache of the specification.

    Raises:
        UsageError: a policy or rule is malformed, or can never act.
    """
    spec = model.meter
    if spec is None:
        raise UsageError(f"{model.name} has no meter, so no packets decide flows")
    entries = layout.table_entries(table, flows or spec.cache_flows)
    options = np.array([(clock, 1, 1, entries, 0)], dtype=layout.OPTIONS).tobytes()
    lines = [
        "n3ic-pack 1",
        f"layout {layout_id(export)}",
        f"options {options.hex()}",
        *(f"entries {n} {count}" for n, count in
          (("flows", entries), ("tuples", room), ("hosts", room))),
        f"value config 0 {limits.value().hex()}",
        *_rules(rules, otherwise),
        *_policies(model, policies, spec.tick_ns),
        f"inner models {otherwise} {value.hex()}",
        f"model {otherwise} {_name(model.name)}",
        *(f"class {otherwise} {i} {_name(name)}" for i, name in enumerate(model.classes)),
        *(f"feature {i} {_name(name)}" for i, name in enumerate(spec.feature_names)),
        *(f"register {i} {_name(r.name)}" for i, r in enumerate(spec.registers)),
    ]  # fmt: skip
    body = "".join(f"{line}\n" for line in lines).encode("ascii")
    return body + f"end {zlib.crc32(body):08x}\n".encode()


def _policies(model: BinaryModel, texts: Sequence[str], tick_ns: int) -> Iterator[str]:
    """Lines of all policies: the given ones, and ``pass`` for all other verdicts."""
    others = ("shunted", "undecided", "aside", "excess")
    count = len(model.classes)
    rows: dict[int, tuple[int, ...]] = dict.fromkeys(range(count + len(others)), (0, 0, 0, 0, 0))
    for i, one in enumerate(policy_parser.policies(texts, model.classes)):
        argument = one.argument
        if isinstance(argument, str):
            yield f"value interfaces {i} {bytes(4).hex()}"
            yield f"interface interfaces {i} 0 {_name(argument)}"
            argument = i
        elif one.action == "cpu":
            yield f"value cpus {argument} {_CPU_QUEUE.to_bytes(4, 'little').hex()}"
        verdict = one.verdict
        index = verdict if isinstance(verdict, int) else count + others.index(verdict)
        ttl = int(one.ttl_s * SECOND_NS) // tick_ns
        rows[index] = (ACTIONS.index(one.action), argument, SCOPES.index(one.scope), 0, ttl)
    for index, row in rows.items():
        yield f"value policies {index} {np.array([row], dtype=layout.POLICY).tobytes().hex()}"


def _rules(texts: Sequence[str], otherwise: int) -> Iterator[str]:
    """The line of the rule table, and those of interfaces in it."""
    made, places = [], []
    kind = layout.RULE
    inside = int((kind.fields or {"interface": (kind, 0)})["interface"][1])
    for i, text in enumerate(texts):
        conditions, equals, slot = text.rpartition("=")
        parts = conditions.split(",")
        names = [p.removeprefix("interface=") for p in parts if p.startswith("interface=")]
        kept = ",".join(p for p in parts if not p.startswith("interface="))
        made.append(policy_parser.rule(f"{kept}{equals}{slot}"))
        at = _RULES_FROM + i * kind.itemsize + inside
        places += [f"interface dispatch 0 {at} {_name(name)}" for name in names[-1:]]
    yield f"inner dispatch 0 {rule_table(made, otherwise).hex()}"
    yield from places


def _name(text: str) -> str:
    """A name as one word of ASCII."""
    return quote(text, safe="")
