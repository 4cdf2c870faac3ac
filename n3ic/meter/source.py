# SPDX-License-Identifier: Apache-2.0
"""Generates the C code of a meter from its specification."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from n3ic.model.meter_spec import (
    SOURCE_WAYS,
    TCP_STREAM,
    Guard,
    MeteredFeature,
    MeterSpec,
    Register,
    Step,
    Tunnel,
)

FOLDER = Path(__file__).resolve().parent / "c"


def meter_source(spec: MeterSpec) -> dict[str, str]:
    """C files of a metering process for the host, by name; ``meter.h`` is its interface."""
    return {
        **{
            name: (FOLDER / name).read_text(encoding="utf-8")
            for name in ("packet.h", "key.h", "sources.h", "meter.h")
            if name != "sources.h" or spec.sources.features
        },
        "flow.h": _render("flow.h.j2", spec),
        "meter.c": _render("meter.c.j2", spec),
    }


@dataclass(frozen=True)
class StructMember:
    """A member of C's ``struct flow_state``, an unsigned integer.

    Attributes:
        name: ``r`` and a register's number; ``before`` and a guard's number, for the time of the
            last packet that passed it; ``seen`` and ``passed``, a bit per first value and guard;
            ``q`` and a sequence's number, ``n`` and that of its guard's count of packets;
            ``answered``, for features by source.
        bytes: 1, 2, 4 or 8.
        comment: what it is, such as the register's name; may be empty.
        length: elements of an array; 0 for a scalar.
    """

    name: str
    bytes: int
    comment: str = ""
    length: int = 0


@dataclass(frozen=True)
class _Sequence:
    """Values of a guard's first packets: an array in the flow's state, an element per packet."""

    guard: Guard
    field: str
    scale: str
    width: int

    @classmethod
    def of(cls, r: Register) -> _Sequence:
        return cls(r.guard, r.field, r.scale, r.width)


def _sequences(spec: MeterSpec) -> dict[_Sequence, list[Register]]:
    """Registers of each sequence."""
    registers_of: dict[_Sequence, list[Register]] = {}
    for r in spec.registers:
        if r.update == "nth":
            registers_of.setdefault(_Sequence.of(r), []).append(r)
    return registers_of


def _counted(spec: MeterSpec) -> list[Guard]:
    """Guards whose packets are counted for sequences."""
    return list(dict.fromkeys(q.guard for q in _sequences(spec)))


def state_members(spec: MeterSpec) -> tuple[StructMember, ...]:
    """Members of a flow's state, in the order of memory."""
    # What every packet updates comes first, then each direction, wide members first: a packet
    # touches few lines of the processor's cache, and there is no padding inside a group.
    gaps = _gap_guards(spec)
    firsts = len(_firsts(spec))
    placed = [
        ("both", StructMember("seen", _bytes(firsts))),
        ("both", StructMember("passed", _bytes(len(gaps)))),
    ]
    placed += [(g.direction, StructMember(f"before{i}", 8)) for i, g in enumerate(gaps)]
    if _stream(spec):
        placed += [
            ("both", StructMember("expected", 4, "next sequence number, by direction", 2)),
            ("both", StructMember("known", 1, "directions whose next number is known")),
        ]
    if spec.sources.features:
        placed.append(("both", StructMember("answered", 1, "whether a packet came back")))
    placed += [(g.direction, StructMember(f"n{i}", 1)) for i, g in enumerate(_counted(spec))]
    placed += [
        (r.guard.direction, StructMember(f"r{i}", _bytes(r.width), r.name))
        for i, r in enumerate(spec.registers)
        if r.update != "nth"
    ]
    placed += [
        (q.guard.direction, StructMember(f"q{i}", _bytes(q.width), of[0].name, _length(of)))
        for i, (q, of) in enumerate(_sequences(spec).items())
    ]
    order = ("both", "forward", "reverse")
    placed.sort(key=lambda place: (order.index(place[0]), -place[1].bytes))
    return tuple(member for _, member in placed)


def _stream(spec: MeterSpec) -> bool:
    """Whether TCP's sequence numbers are followed."""
    return any(r.field in TCP_STREAM for r in spec.registers)


def _length(registers: list[Register]) -> int:
    return max(r.packet for r in registers)


def _place(spec: MeterSpec, index: int) -> str:
    """Where a register's value lies in ``struct flow_state``."""
    r = spec.registers[index]
    if r.update != "nth":
        return f"r{index}"
    return f"q{list(_sequences(spec)).index(_Sequence.of(r))}[{r.packet - 1}]"


def _bytes(bits: int) -> int:
    return next(size for size in (1, 2, 4, 8) if bits <= 8 * size)


def _gap_guards(spec: MeterSpec) -> list[Guard]:
    """Guards of the gap registers; registers that share a guard see the same gaps."""
    return list(dict.fromkeys(r.guard for r in spec.registers if r.field == "gap"))


def _firsts(spec: MeterSpec) -> list[str]:
    return [r.name for r in spec.registers if r.update == "first"]


def _render(name: str, spec: MeterSpec) -> str:
    from n3ic.util.templates import render

    return render(FOLDER, name, _values(spec))


def _values(spec: MeterSpec) -> dict[str, Any]:
    registers = [_register(spec, r) for r in spec.registers]
    gaps, counted, sequences = _gap_guards(spec), _counted(spec), _sequences(spec)
    guards = dict.fromkeys(r.guard for r in spec.registers)
    return {
        "registers": registers,
        "members": state_members(spec),
        "stream": _stream(spec),
        "guards": [
            {
                "guard": _guard(guard),
                "registers": [
                    values
                    for r, values in zip(spec.registers, registers, strict=True)
                    if r.guard == guard and r.update != "nth"
                ],
                "sequences": [
                    {**_register(spec, of[0]), "name": f"q{i}", "length": _length(of)}
                    for i, (q, of) in enumerate(sequences.items())
                    if q.guard == guard
                ],
                "count": counted.index(guard) if guard in counted else None,
                "longest": max(
                    (_length(of) for q, of in sequences.items() if q.guard == guard), default=0
                ),
                "gap": gaps.index(guard) if guard in gaps else None,
            }
            for guard in guards
        ],
        "features": [_feature(spec, i, f) for i, f in enumerate(spec.features)],
        "windows": [{"flows": w.flows, "same": w.same} for w in spec.windows],
        "sources": [f.count for f in spec.sources.features],
        "source_window": spec.sources.window,
        "source_sets": spec.sources.entries // SOURCE_WAYS,
        "key": spec.key.replace("-", "_").upper(),
        "idle_timeout": spec.idle_timeout,
        "active_timeout": spec.active_timeout,
        "cache_flows": spec.cache_flows,
        "drop_new": int(spec.when_full == "drop-new"),
        "ends_fin": int("fin" in spec.ends),
        "ends_rst": int("rst" in spec.ends),
        "decide_packets": spec.decision.packets,
        "decide_after": spec.decision.after,
        "decide_again": int(spec.decision.again),
        "decide_repeat": spec.decision.repeat,
        "decide_schedule": spec.decision.schedule,
        "fragments_aside": int(spec.fragments == "aside"),
        "tick_ns": spec.tick_ns,
        "tunnels": sum(1 << get_args(Tunnel).index(tunnel) for tunnel in spec.tunnels),
    }


def _register(spec: MeterSpec, r: Register) -> dict[str, Any]:
    return {
        "place": _place(spec, spec.index[r.name]),
        "name": r.name,
        "kind": r.update,
        "field": r.field,
        "log": r.scale == "log",
        "low": f"{r.low}ull",
        "high": f"{r.high}ull",
        "top": f"{r.top}ull",
        "raw_top": f"{r.raw_top}ull",
        "field_top": f"{r.field_top}ull",
        "first": _firsts(spec).index(r.name) if r.update == "first" else None,
    }


def _guard(guard: Guard) -> str:
    parts = []
    if guard.direction != "both":
        parts.append("forward" if guard.direction == "forward" else "!forward")
    if guard.protocols:
        parts.append("(" + " || ".join(f"p->protocol == {n}" for n in guard.protocols) + ")")
    if guard.payload != "any":
        parts.append("p->payload_length" if guard.payload == "some" else "!p->payload_length")
    if guard.flags_set:
        parts.append(f"(p->tcp_flags & {guard.flags_set:#x}) == {guard.flags_set:#x}")
    if guard.flags_clear:
        parts.append(f"!(p->tcp_flags & {guard.flags_clear:#x})")
    return " && ".join(parts) or "1"


def _feature(spec: MeterSpec, number: int, feature: MeteredFeature) -> dict[str, Any]:
    def operand(name: str) -> str:
        return (
            f"s{name[1:]}"
            if name.startswith("$")
            else f"(uint64_t)s->{_place(spec, spec.index[name])}"
        )

    steps = []
    read = _steps_read(feature.program)
    for i, step in enumerate(feature.program):
        if i not in read:
            continue
        right = operand(step.right) if step.right else f"{step.amount}ull"
        steps.append(
            {"result": f"s{i}", "expression": _expression(step, operand(step.left), right)}
        )
    last = f"s{len(feature.program) - 1}"
    result = operand(feature.register) if feature.register else last
    # A feature's name comes from a file, so the comment has its number instead.
    return {"name": f"feature {number}", "steps": steps, "result": result}


def _steps_read(program: tuple[Step, ...]) -> set[int]:
    """Indices of the steps that the last one depends on; ``x - x`` depends on none."""
    read = {len(program) - 1}
    for i, step in reversed([*enumerate(program)]):
        if i in read and not (step.operation == "sub" and step.left == step.right):
            read |= {int(name[1:]) for name in (step.left, step.right) if name.startswith("$")}
    return read


def _expression(step: Step, left: str, right: str) -> str:
    if left == right and step.operation in ("sub", "min", "max"):  # compilers warn about these
        return "0ull" if step.operation == "sub" else left
    match step.operation:
        case "add":
            return f"{left} + {right}"
        case "sub":  # unsigned: a difference below 0 would wrap
            return f"{left} > {right} ? {left} - {right} : 0"
        case "min":
            return f"{left} < {right} ? {left} : {right}"
        case "max":
            return f"{left} > {right} ? {left} : {right}"
        case "shift":
            return f"{left} >> {step.amount}"
        case "quotient":
            return f"{right} ? {step.amount}ull * {left} / {right} : 0"
