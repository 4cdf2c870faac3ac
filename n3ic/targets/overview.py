# SPDX-License-Identifier: Apache-2.0
"""One row per target: fit, resources, speed, and how they are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from n3ic.targets.base import exporter
from n3ic.targets.batch import ExportOutcome
from n3ic.targets.colocation_report import set_summary
from n3ic.targets.directory import Exported
from n3ic.targets.figures import KINDS, NANOSECONDS, Figure, FigureKind
from n3ic.targets.verification import Verification

HEAD = ("target", "fits", "bytes", "latency", "a second", "resources", "equality")
LEGEND = (
    "m measured, s simulated, e estimated; equality: weights read back and compared (checked), "
    "artefacts run on vectors (tested)."
)
_RESOURCES = 3  # resources shown in a row
_NOT_RESOURCES = ("byte", "inference/s", "clock", "%", *NANOSECONDS)


@dataclass(frozen=True)
class SourcedNumber:
    """A number and how it is known."""

    value: float
    unit: str
    kind: FigureKind

    def __str__(self) -> str:
        if self.unit == "ns":
            return f"{duration(self.value)} {self.kind[0]}"
        unit = "" if self.unit == "/s" else f" {self.unit}"
        return f"{number(self.value)}{unit} {self.kind[0]}"


@dataclass(frozen=True)
class TargetRow:
    """A row of the table of targets.

    Attributes:
        target: name of the target.
        networks: number of networks to export.
        fitting: number of networks that fit, each alone.
        together: whether they fit together; None for a single network, or if unknown.
        bytes: bytes of memory; None if unknown.
        latency: nanoseconds until the last network has answered.
        throughput: inferences per second of a single network.
        resources: the first few resources other than memory.
        shown: evidence that the artefacts compute the model's scores: ``checked`` (every weight
            read back and compared), ``tested`` (run on vectors), ``not verified``, ``not run`` (a
            tool is missing), ``FAILED``.
        remarks: why networks were refused, and what was tested, in sentences.
    """

    target: str
    networks: int
    fitting: int
    together: bool | None
    bytes: int | None
    latency: SourcedNumber | None
    throughput: SourcedNumber | None
    resources: tuple[SourcedNumber, ...]
    shown: tuple[str, ...]
    remarks: tuple[str, ...]

    @property
    def cells(self) -> tuple[str, ...]:
        """The row as text, a cell for each name of ``HEAD``."""
        fits = "yes" if self.fitting else "no"
        if self.networks > 1:
            fits = f"{self.fitting}/{self.networks}" if self.together is not False else "apart"
        return (
            self.target,
            fits,
            "-" if self.bytes is None else f"{self.bytes:,}",
            "-" if self.latency is None else str(self.latency),
            "-" if self.throughput is None else str(self.throughput),
            ", ".join(map(str, self.resources)) or "-",
            ", ".join(self.shown) or "-",
        )


def overview(outcomes: Sequence[ExportOutcome]) -> tuple[TargetRow, ...]:
    """One row per target; networks of a set are combined by the target's co-location.

    Args:
        outcomes: outcomes of all targets and networks.
    """
    several = len({o.item.task for o in outcomes}) > 1
    summary = set_summary(outcomes) if several else {}
    return tuple(
        _row([o for o in outcomes if o.item.target == name], summary.get(name))
        for name in dict.fromkeys(o.item.target for o in outcomes)
    )


def _row(outcomes: Sequence[ExportOutcome], sharing: Mapping[str, object] | None) -> TargetRow:
    exports = [o.exported for o in outcomes if o.exported is not None]
    errors = dict.fromkeys(o.reason for o in outcomes if o.error is not None)
    problems = dict.fromkeys(f"does not fit: {p}" for each in exports for p in each.fit.problems)
    remarks = [*errors, *problems]
    together = sharing["together"] if sharing else None
    target = outcomes[0].item.target
    memory: int | None = None
    latency = throughput = None
    resources: tuple[SourcedNumber, ...] = ()
    fit_together = None
    if isinstance(together, Mapping):
        fit_together = not together["problems"]
        remarks += [f"does not fit together: {p}" for p in together["problems"]]
        memory = sum(together["memory"].values()) or None
        if together["latency_ns"] is not None:
            latency = SourcedNumber(together["latency_ns"], "ns", together["latency_kind"])
        resources = tuple(
            SourcedNumber(amount, _unit(exports[0], name), "estimated")
            for name, amount in together["resources"].items()
        )[:_RESOURCES]
    elif exports:
        memory = _bytes(exports[0])
        latency, throughput = _latency(exports[0]), _throughput(exports[0])
        resources = _resources(exports[0])
    checks = [each.verification for each in exports]
    vector_kinds = _shown(checks)
    if "tested" in vector_kinds:
        remarks.append(_tested([c for c in checks if c is not None]))
    return TargetRow(
        target,
        len(outcomes),
        sum(each.fit.ok for each in exports),
        fit_together,
        memory,
        latency,
        throughput,
        resources,
        vector_kinds,
        tuple(dict.fromkeys(remarks)),
    )


def _figures(exported: Exported) -> list[Figure]:
    """The figures of the report and of the verification, the surest first."""
    ran = exported.verification.figures if exported.verification else ()
    return sorted((*ran, *exported.report.figures), key=lambda f: KINDS.index(f.kind))


def _latency(exported: Exported) -> SourcedNumber | None:
    latencies = (f for f in _figures(exported) if f.name == "latency" and f.unit in NANOSECONDS)
    first = next(latencies, None)
    if first is None:
        return None
    return SourcedNumber(first.value * NANOSECONDS[first.unit], "ns", first.kind)


def _throughput(exported: Exported) -> SourcedNumber | None:
    rates = (f for f in _figures(exported) if f.name == "throughput" and f.unit == "inference/s")
    first = next(rates, None)
    return None if first is None else SourcedNumber(first.value, "/s", first.kind)


def _bytes(exported: Exported) -> int | None:
    """Bytes of all placed parts or, without any, of the largest memory in the report."""
    if exported.fit.placements:
        return sum(p.bytes for p in exported.fit.placements)
    sizes = [f.value for f in exported.report.figures if f.unit == "byte" and "memory." in f.name]
    return int(max(sizes)) if sizes else None


def _resources(exported: Exported) -> tuple[SourcedNumber, ...]:
    """The device's shared resources or, without any, the report's figures other than bytes."""
    card = exporter(exported.target).device.card
    divided = [r.figure for r in card.resources] if card else []
    able = [f for f in exported.report.figures if f.unit not in _NOT_RESOURCES]
    first = [f for f in able if f.name in divided] or able
    return tuple(SourcedNumber(f.value, f.unit, f.kind) for f in first[:_RESOURCES])


def _unit(exported: Exported, resource: str) -> str:
    units = {f.name: f.unit for f in exported.report.figures}
    return units.get(resource, resource)


def _shown(checks: Sequence[Verification | None]) -> tuple[str, ...]:
    """The weakest verification of a target's exports."""
    known = [c for c in checks if c is not None]
    if not checks or len(known) < len(checks):
        return ("not verified",) if checks else ()
    if any(c.failures for c in known):
        return ("FAILED",)
    if any(c.missing for c in known):
        return ("not run",)
    return ("checked", "tested") if all(c.decoded for c in known) else ("tested",)


def _tested(checks: Sequence[Verification]) -> str:
    """The number of inputs on which a target's exports were run, and the executor."""
    least = min(checks, key=lambda c: c.vectors + c.rows)
    rows = f" and {least.rows:,} rows" if least.rows else ""
    each = " each" if len(checks) > 1 else ""
    executors = "; ".join(dict.fromkeys(c.executor for c in checks))
    return f"tested: {least.vectors:,} vectors{rows}{each}, {executors}"


def duration(nanoseconds: float) -> str:
    """Format a time with three digits and a suitable unit."""
    for limit, scale, unit in ((1e3, 1.0, "ns"), (1e6, 1e3, "us"), (1e9, 1e6, "ms")):
        if nanoseconds < limit:
            return f"{nanoseconds / scale:.3g} {unit}"
    return f"{nanoseconds / 1e9:,.3g} s"


def number(value: float) -> str:
    """Format a number with three digits, whole below a hundred thousand: ``589``, ``6.25M``."""
    for least, scale, letter in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e5, 1e3, "k")):
        if abs(value) >= least:
            return f"{value / scale:.3g}{letter}"
    return f"{value:,.0f}" if float(value).is_integer() or abs(value) >= 100 else f"{value:.3g}"
