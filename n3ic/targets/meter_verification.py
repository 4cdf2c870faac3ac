# SPDX-License-Identifier: Apache-2.0
"""Compare a target's own meter with the reference meter and the network, flow by flow."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from n3ic.errors import MissingDependencyError, UsageError
from n3ic.model.bits import unpack
from n3ic.model.classifier import Classifier
from n3ic.model.meter_spec import MeterSpec
from n3ic.model.passes import Simplified
from n3ic.options import Options
from n3ic.targets.base import Exporter
from n3ic.targets.capabilities import MeteredCapture

if TYPE_CHECKING:
    from n3ic.meter.reference import FlowRecord
    from n3ic.targets.fuzz_traffic import Frame

_ROOM = 1 << 24  # the largest flow cache
_MAX_PACKETS = 2000  # per generated capture, because the reference meter is slow


@dataclass(frozen=True)
class Metering:
    """Result of comparing a target's own meter with the reference.

    Attributes:
        packets: packets of all captures; 0 if the target or the model has no meter.
        flows: number of decided flows.
        failures: differences, in words.
        missing: why the meter did not run here, in words; empty if it did.
    """

    packets: int = 0
    flows: int = 0
    failures: tuple[str, ...] = ()
    missing: str = ""


def check_metering(
    tool: Exporter[Any],
    directory: Path,
    network: Simplified[Any],
    options: Options,
    *,
    packets: int,
    seed: int,
    captures: Sequence[Path] = (),
) -> Metering:
    """Run a target's meter on generated captures and on given ones.

    Args:
        tool: the target.
        directory: its artefacts.
        network: the network of the artefacts, and the trained network behind it.
        options: options of the export and of the verification.
        packets: number of packets of each generated capture, 2,000 at most.
        seed: seed of the generated captures.
        captures: further captures, plain or packed.

    Raises:
        UsageError: captures are given, but the target or the model has no meter, or the target
            cannot read their link type.
        DataError: a capture cannot be read.
        VerifyError: the artefacts do not build or run.
    """
    spec = network.source.meter
    meter = tool.meter
    if meter is None or spec is None:
        if captures:
            raise UsageError(f"{directory}: this export meters no packets, and takes no captures")
        return Metering()
    if not meter.evicts:
        spec = replace(spec, cache_flows=_ROOM)
    metering = Metering()
    with tempfile.TemporaryDirectory(prefix="n3ic-captures-") as name:
        for title, path, link, frames in _captures(spec, Path(name), packets, seed, captures):
            if meter.links and link not in meter.links:
                if title in map(str, captures):
                    from n3ic.meter.capture import link_text

                    known = ", ".join(map(link_text, meter.links))
                    raise UsageError(
                        f"{title}: link type {link_text(link)}; {tool.name} meters {known}"
                    )
                continue
            try:
                actual = meter.run(directory, network.model, options, path)
            except MissingDependencyError as error:
                return Metering(missing=str(error))
            want = reference_flows(network, link, meter.received(frames, spec), spec)
            wrong = _difference(network, actual, want)
            metering = Metering(
                metering.packets + want.counters["packets"],
                metering.flows + len(want.flows),
                (*metering.failures, *([f"{title}: {wrong}"] if wrong else [])),
            )
    return metering


def _captures(
    spec: MeterSpec, scratch: Path, packets: int, seed: int, user_captures: Sequence[Path]
) -> Iterator[tuple[str, Path, int, Iterable[Frame]]]:
    """Name, plain file, link type and packets of each capture."""
    from n3ic.meter.capture import Capture, plain_capture
    from n3ic.targets.fuzz_traffic import fuzz_captures

    for generated in fuzz_captures(spec, seed, min(packets, _MAX_PACKETS)):
        path = scratch / generated.name
        path.write_bytes(generated.data)
        yield f"generated traffic {seed}, {generated.name}", path, generated.link, generated.frames
    for capture in user_captures:
        with Capture(capture) as opened:
            frames = ((data, n, time // spec.tick_ns) for data, n, time in opened.packets())
            yield str(capture), plain_capture(capture, scratch), opened.link, frames


def flow_columns(model: Classifier) -> list[str]:
    """Names of the compared columns; see :class:`~n3ic.targets.base.MeteredCapture`."""
    spec = model.meter
    registers, features = (
        ([r.name for r in spec.registers], spec.feature_names) if spec else ([], [])
    )
    return [
        *("row", "source", "source_port", "destination", "destination_port", "protocol"),
        *("first_us", "last_us", "packets", "decided", "class", "margin"),
        *(f"score_{name}" for name in model.classes),
        *(f"register_{name}" for name in registers),
        *(f"feature_{name}" for name in features),
        "bits",
    ]


def reference_flows(
    network: Simplified[Any], link: int, frames: Iterable[Frame], spec: MeterSpec | None = None
) -> MeteredCapture:
    """Run the reference meter and the trained network on frames; return flows and verdicts.

    Args:
        network: the trained network, which carries its meter, and the exported one, whose input
            bits are reported.
        link: link type of the frames.
        frames: captured bytes, length on the wire, and time in units of the specification.
        spec: the meter; None for the trained network's.
    """
    from n3ic.meter.compiled import STAMPS
    from n3ic.meter.packet import parse
    from n3ic.meter.reference import ReferenceMeter

    source = network.source
    spec = spec or source.meter
    if spec is None:
        raise UsageError("the model has no meter")
    meter = ReferenceMeter(spec)
    total = Counter[str]()

    def parsed() -> Iterator[object]:
        for frame in frames:
            total["packets"] += 1
            yield parse(link, *frame, spec.tunnels)

    flows = list(meter.run(parsed()))  # type: ignore[arg-type]
    columns = {
        name: np.array([flow.features[name] for flow in flows], dtype=np.int64)
        for name in spec.feature_names
    }
    words = source.encode(columns)
    inference = source.infer(words)
    bits = unpack(network.inputs(words), network.model.input.n_bits).astype(int)
    verdicts = source.verdicts(inference.scores)
    rows = tuple(
        (
            str(i),
            *_key(flow),
            *(str(time * spec.tick_ns // 1000) for time in (flow.first, flow.last)),
            str(flow.packets),
            flow.decided,
            source.verdict_names[verdicts[i]],
            str(inference.margins[i]),
            *map(str, inference.scores[i].tolist()),
            *map(str, flow.registers),
            *map(str, flow.features.values()),
            "".join(map(str, bits[i].tolist())),
        )
        for i, flow in enumerate(flows)
    )
    counters = {**total, "late": meter.late, "evicted": meter.evicted, **meter.aside}
    counters["forgotten"] = meter.sources.forgotten
    counters |= {name: getattr(meter.clock, name) for name in STAMPS}
    return MeteredCapture(rows, {name: n for name, n in counters.items() if n or name == "packets"})


def _key(flow: FlowRecord) -> tuple[str, ...]:
    from n3ic.meter.rows import address_text

    key = flow.key
    source, destination = (address_text(a) if a else "" for a in (key.source, key.destination))
    return source, str(key.source_port), destination, str(key.destination_port), str(key.protocol)


def _rank(column: str) -> int:
    """Rank of a column, causes first: the meter's columns, the bits, the network's columns."""
    return 1 if column == "bits" else 2 * column.startswith(("class", "margin", "score_"))


def _difference(network: Simplified[Any], actual: MeteredCapture, want: MeteredCapture) -> str:
    """The first flow, column or counter that differs, in words; empty if all are equal."""
    from n3ic.meter.compiled import STAMPS

    names = flow_columns(network.source)
    for i, (cells, expected) in enumerate(zip(actual.flows, want.flows, strict=False)):
        if cells == expected:
            continue
        if len(cells) != len(names):
            return f"flow {i}: {len(names)} columns expected, got {len(cells)}"
        wrong = [n for n, x, y in zip(names, cells, expected, strict=True) if x != y]
        name = min(wrong, key=_rank)
        x, y = (row[names.index(name)] for row in (cells, expected))
        ends = f"{expected[1]}:{expected[2]} to {expected[3]}:{expected[4]}"
        return f"flow {i} ({ends}), {name}: expected {y}, got {x}"
    if len(actual.flows) != len(want.flows):
        return f"{len(want.flows):,} flows expected, got {len(actual.flows):,}"
    stamps = {*STAMPS} - {*actual.counters}  # a target with its own clock has no such counters
    for name in sorted({*actual.counters, *want.counters} - stamps):
        counts: Mapping[str, int] = want.counters
        if actual.counters.get(name, 0) != counts.get(name, 0):
            return (
                f"packets counted as {name!r}: {counts.get(name, 0):,} expected, "
                f"got {actual.counters.get(name, 0):,}"
            )
    return ""
