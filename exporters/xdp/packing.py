# SPDX-License-Identifier: Apache-2.0
"""Writes what ``n3icd``, the daemon in C, needs: its sources, and packs of map values.

A pack holds everything that Python decides when it loads a program: models, rules, policies, sizes
and names. Its format is in ``daemon/pack.h``; the daemon only copies it into the maps.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

import n3ic
from n3ic.errors import VerifyError
from n3ic.evaluation.drift import compared
from n3ic.exporters.xdp import layout, policy_parser
from n3ic.exporters.xdp.network.rows import bit_rows
from n3ic.exporters.xdp.network.structure import structure_of
from n3ic.exporters.xdp.network.sums import Structure
from n3ic.exporters.xdp.network.values import value_bytes
from n3ic.exporters.xdp.plan import CPU_QUEUE, Choices, Plan, plan
from n3ic.exporters.xdp.program import CLOCKS
from n3ic.exporters.xdp.resident import RULE, rule_table
from n3ic.exporters.xdp.source import Table
from n3ic.meter.compiled import ASIDE, ENDS
from n3ic.model.classifier import Classifier
from n3ic.model.load import parse_model
from n3ic.targets.identifiers import c_string
from n3ic.util.files import read_regular

FOLDER = Path(__file__).resolve().parent / "daemon"
SHUNTED = FOLDER.parent / "shunted"  # receives packets that a policy hands to sockets
PACK = "n3icd.pack"
_IDLE = ("idle.bpf.c", "idle.h")
_MAX_BYTES = 16 << 20
_DIGEST_BYTES = 32  # at the beginning of a network's value
_RULES_FROM = 8  # bytes before the rules in a rule table


def write_daemon(out: Path, model: Classifier, table: Table) -> None:
    """Write the programs for user space: ``n3icd`` with configuration, unit and pack, ``shunted``.

    Args:
        out: the export's directory, with its folder ``meter``.
        model: the exported network.
        table: flow table of the program.
    """
    place = out / "daemon"
    for folder in (FOLDER, SHUNTED):
        (out / folder.name).mkdir()
        for path in sorted(folder.iterdir()):
            (out / folder.name / path.name).write_bytes(path.read_bytes())
    lines = (
        "/* What the sources of n3icd need to know of the program; generated. */",
        f"#define N3ICD_VERSION {c_string(n3ic.__version__)}",
        f'#define N3ICD_LAYOUT "{layout_id(out)}"',
        f'#define N3ICD_METER "{_meter_id(out, model, table)}"',
        f"#define N3ICD_RECORD {layout.VERSION}",
        f"#define N3ICD_BUCKETS {int(table == 'buckets')}",
        f"#define N3ICD_ENDS {', '.join(map(c_string, ENDS))}",
        f"#define N3ICD_ASIDE {', '.join(map(c_string, ASIDE))}",
    )
    (place / "build.h").write_text("\n".join(lines) + "\n", encoding="ascii", newline="\n")
    (place / PACK).write_bytes(pack(out, plan(model, table, Choices())))


def _meter_id(export: Path, model: Classifier, table: Table) -> str:
    """Return a SHA-256 that is equal for programs which may take over each other's flows."""
    spec = "" if model.meter is None else model.meter.digest
    parts = (layout.VERSION, spec, table, _has_windows_by_cpu(export), len(model.classes))
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def layout_id(export: Path) -> str:
    """Return the SHA-256 of the sources of an export's meter and of the search for idle flows.

    Raises:
        VerifyError: a source cannot be read.
    """
    paths = [p for p in sorted((export / "meter").iterdir()) if p.suffix in (".c", ".h")]
    digest = hashlib.sha256()
    try:
        for path in [*paths, *(export / "daemon" / name for name in _IDLE)]:
            data = read_regular(path, _MAX_BYTES)
            digest.update(f"{path.name} {len(data)}\n".encode() + data)
    except OSError as error:
        raise VerifyError(f"{export}: cannot be read: {error}") from error
    return digest.hexdigest()


def _has_windows_by_cpu(export: Path) -> bool:
    """Return whether the windows of an export's program are over the flows of one CPU each."""
    try:
        return b"recent_of_cpus" in read_regular(export / "meter" / "model.h", _MAX_BYTES)
    except OSError as error:
        raise VerifyError(f"{export}: cannot be read: {error}") from error


def pack(export: Path, plan: Plan) -> bytes:
    """Serialise what a daemon writes into the maps of an export's metering program.

    Args:
        export: the export, whose daemon takes the pack.
        plan: the plan. The daemon looks up its interfaces by name when it loads the pack.

    Raises:
        UsageError: a rule is malformed.
        ExportError: a network does not fit the program.
    """
    spec, choices, structure = plan.spec, plan.choices, structure_of([plan.compiled])
    entries = layout.table_entries(plan.table, choices.flows or spec.cache_flows)
    options = np.array([(CLOCKS.index(choices.clock), 1, 1, entries, 0)], dtype=layout.OPTIONS)
    files = dict.fromkeys([plan.compiled, *plan.models.values()])
    about = {
        "clock": choices.clock,
        "otherwise": choices.otherwise,
        "per_cpu": _has_windows_by_cpu(export),
        "policies": choices.policies,
        "rules": choices.rules,
        "table": plan.table,
    }
    lines = [
        "n3ic-pack 2",
        f"layout {layout_id(export)}",
        f"about {json.dumps(about, sort_keys=True).encode().hex()}",
        f"options {options.tobytes().hex()}",
        *(f"entries {n} {count}" for n, count in
          (("flows", entries), ("tuples", choices.room), ("hosts", choices.room))),
        f"value config 0 {choices.limits.value().hex()}",
        *_rules(choices.rules, choices.otherwise),
        *_policies(plan),
        *(line for slot, model in plan.models.items()
          for line in _network(structure, slot, model)),
        *(f"feature {i} {_name(name)}" for i, name in enumerate(spec.feature_names)),
        *(f"register {i} {_name(r.name)}" for i, r in enumerate(spec.registers)),
        *(f"file {model.to_bytes().hex()}" for model in files),
    ]  # fmt: skip
    return _closed(lines)


def _closed(lines: Sequence[str]) -> bytes:
    body = "".join(f"{line}\n" for line in lines).encode("ascii")
    return body + f"end {zlib.crc32(body):08x}\n".encode()


def _network(structure: Structure, slot: int, model: Classifier) -> Iterator[str]:
    """Yield the lines of a network in a slot."""
    yield f"inner models {slot} {value_bytes(structure, model).hex()}"
    yield f"model {slot} {_name(model.name)}"
    for i, name in enumerate(model.classes):
        yield f"class {slot} {i} {_name(name)}"
    rows = bit_rows(structure, model)
    for feature, _, groups in compared(model.input):
        words = []
        for group in groups:
            words.append(len(group))
            for rate, bit in group:
                words += [rate, len(rows[bit]), *(edge for ends in rows[bit] for edge in ends)]
        yield f"drift {slot} {_name(feature)} {np.array(words, dtype='<u4').tobytes().hex()}"


@dataclass(frozen=True)
class Packed:
    """The parts of a pack that Python reads.

    Attributes:
        about: clock, table, policies and rules as typed, and the slot of other flows.
        compiled: network for whose structure the program was compiled.
        networks: networks in the pack, by digest.
    """

    about: Mapping[str, Any]
    compiled: Classifier
    networks: Mapping[str, Classifier]


def unpack(data: bytes) -> Packed:
    """Read a pack.

    Raises:
        ValueError: the data is not a pack, or is damaged.
        ModelError: a network in it is damaged.
    """
    lines = _lines(data)
    by_kind = {kind: [r for k, _, r in lines if k == kind] for kind in ("about", "file")}
    if not all(by_kind.values()):
        raise ValueError("not a pack of a whole program")
    about = json.loads(bytes.fromhex(by_kind["about"][0]))
    files = [bytes.fromhex(rest) for rest in by_kind["file"]]
    models = [parse_model(file, "a pack") for file in files]
    return Packed(about, models[0], {model.digest: model for model in models})


def repack(
    data: bytes, slot: int, model: Classifier, program: tuple[Path, Classifier] | None = None
) -> bytes:
    """Return a pack with another network in a slot.

    Args:
        data: the pack.
        slot: number of the slot.
        model: the network.
        program: export of the program that the new pack is for, and the network for which it was
            compiled; None for the program of ``data``.

    Raises:
        ValueError: the data is not a pack, or is damaged.
        ExportError: a network does not fit the program.
    """
    old, lines = unpack(data), _lines(data)
    networks = {**residents(data), slot: model}
    compiled = old.compiled if program is None else program[1]
    replaced = {str(slot)} if program is None else {str(at) for at in networks}
    unchanged = []
    for kind, line, rest in lines:
        words = rest.split(" ", 2)
        at = words[1] if (kind, words[0]) == ("inner", "models") else words[0]
        is_of_network = kind in ("model", "class", "drift") or at != words[0]
        if kind == "file" or (is_of_network and at in replaced):
            continue
        if kind == "layout" and program is not None:
            line = f"layout {layout_id(program[0])}"
        unchanged.append(line)
    structure = structure_of([compiled])
    for number in sorted(map(int, replaced)):
        unchanged += _network(structure, number, networks[number])
    files = dict.fromkeys([compiled, *networks.values()])
    return _closed([*unchanged, *(f"file {m.to_bytes().hex()}" for m in files)])


def residents(data: bytes) -> dict[int, Classifier]:
    """Return the networks of a pack by slot.

    Raises:
        ValueError: the data is not a pack, or is damaged.
    """
    packed, out = unpack(data), {}
    for kind, _, rest in _lines(data):
        if kind == "inner" and rest.startswith("models "):
            slot, value = rest.split(" ")[1:]
            out[int(slot)] = packed.networks[value[: 2 * _DIGEST_BYTES]]
    return out


def _lines(data: bytes) -> list[tuple[str, str, str]]:
    """Split a pack into lines, without the last: the kind, the whole line, and what follows."""
    body, _, end = data.rpartition(b"\nend ")
    if not body.startswith(b"n3ic-pack 2\n") or end != b"%08x\n" % zlib.crc32(body + b"\n"):
        raise ValueError("not a pack of this version, or damaged")
    lines = body.decode("ascii").split("\n")
    return [(line.partition(" ")[0], line, line.partition(" ")[2]) for line in lines]


def _policies(plan: Plan) -> Iterator[str]:
    """Yield the lines of all policies, and of the interfaces and CPUs that they name."""
    rows, interfaces = plan.policies()
    for i, name in interfaces.items():
        yield f"value interfaces {i} {bytes(4).hex()}"
        yield f"interface interfaces {i} 0 {_name(name)}"
    for cpu in plan.cpus:
        yield f"value cpus {cpu} {CPU_QUEUE.to_bytes(4, 'little').hex()}"
    for i, row in rows.items():
        yield f"value policies {i} {row.hex()}"


def _rules(texts: Sequence[str], otherwise: int) -> Iterator[str]:
    """Yield the line of the rule table, and those of the interfaces in it."""
    rules, places = [], []
    kind = RULE
    inside = int((kind.fields or {"interface": (kind, 0)})["interface"][1])
    for i, text in enumerate(texts):
        conditions, equals, slot = text.rpartition("=")
        parts = conditions.split(",")
        names = [p.removeprefix("interface=") for p in parts if p.startswith("interface=")]
        others = ",".join(p for p in parts if not p.startswith("interface="))
        rules.append(policy_parser.rule(f"{others}{equals}{slot}"))
        at = _RULES_FROM + i * kind.itemsize + inside
        places += [f"interface dispatch 0 {at} {_name(name)}" for name in names[-1:]]
    yield f"inner dispatch 0 {rule_table(rules, otherwise).hex()}"
    yield from places


def _name(text: str) -> str:
    """Encode a name as one word of ASCII."""
    return quote(text, safe="")
