# SPDX-License-Identifier: Apache-2.0
"""The metering program of an export: its files, and its replays in verification."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from n3ic.errors import MissingDependencyError, VerifyError
from n3ic.exporters.host.estimate import sources_figure
from n3ic.exporters.xdp import exported, source
from n3ic.exporters.xdp.capture_replay import flow_rows, replay_capture, room_for
from n3ic.exporters.xdp.clang import compile_bpf
from n3ic.exporters.xdp.layout import KEY, TAGS, WAYS, bucket_type, flow_type, table_entries
from n3ic.exporters.xdp.libbpf import BpfError, BpfObject, VerifierError
from n3ic.exporters.xdp.network.host import HostVerdicts
from n3ic.exporters.xdp.network.kernel_run import PROGRAM as HARNESS
from n3ic.exporters.xdp.network.kernel_run import BpfNetwork
from n3ic.exporters.xdp.network.rows import bits_of
from n3ic.exporters.xdp.network.source import FOLDER as NETWORK
from n3ic.exporters.xdp.network.structure import structure_of
from n3ic.exporters.xdp.network.values import value_bytes
from n3ic.exporters.xdp.packing import write_daemon
from n3ic.exporters.xdp.program import MeterPrograms
from n3ic.exporters.xdp.replay import counter_difference, difference, replay, traffic
from n3ic.meter.compiled import SECRET_BYTES
from n3ic.model.bits import Words, pack
from n3ic.model.classifier import Classifier
from n3ic.model.meter_spec import MeterSpec
from n3ic.options import Options
from n3ic.targets.capabilities import MeteredCapture
from n3ic.targets.figures import Figure

PACKETS = 1000  # packets that verification replays; they reach every branch of the parser
_BATCH = 1024


def write(model: Classifier, options: Options, out: Path) -> None:
    """Write the sources of the metering program and of the daemon, and the network's map value."""
    assert model.meter is not None  # noqa: S101 - the caller looked
    structure, table = structure_of([model]), source.table_of(options)
    per_cpu = options["windows"] != "shared"
    files = source.meter_program(model.meter, structure, per_cpu=per_cpu, table=table)
    exported.write_program(out / "meter", files, value_bytes(structure, model))
    write_daemon(out, model, table)


def memory_figures(spec: MeterSpec, options: Options) -> tuple[Figure, ...]:
    """Return the memory of the flow table, and of the table of sources if there is one."""
    table = source.table_of(options)
    if table == "buckets":
        item = bucket_type(spec).itemsize + TAGS.itemsize
        name = f"buckets of {WAYS} flows"
    else:
        item = 2 * KEY.itemsize + flow_type(spec).itemsize
        name = "flows, with keys"
    entries = table_entries(table, spec.cache_flows)
    formula = f"{item:,} bytes for each of {entries:,} {name}"
    flows = Figure("memory.flows", item * entries, "byte", "measured", formula)
    return (flows, *sources_figure(spec))


def encode(
    directory: Path, model: Classifier, features: Mapping[str, Any]
) -> tuple[HostVerdicts, Words]:
    """Run the metering program's network on features; return its results and the packed inputs."""
    place = directory / "meter"
    inference = _in_kernel(place, model, features) or exported.on_host(place, model, features)
    return inference, pack(bits_of(structure_of([model]), model, inference.selected))


def meter_capture(
    directory: Path, model: Classifier, options: Options, capture: Path
) -> MeteredCapture:
    """Replay a capture through the metering program in test runs."""
    assert model.meter is not None  # noqa: S101 - the caller looked
    place, table = directory / "meter", source.table_of(options)
    flows = room_for(capture, table, model.meter.tunnels)
    try:
        with _metering(place, model, table, flows) as programs:
            events, counters = replay_capture(programs, capture)
    except VerifierError as error:
        raise VerifyError(str(error)) from error
    except BpfError as error:
        raise MissingDependencyError(str(error)) from error
    if not len(events):
        return MeteredCapture((), counters)
    features = {n: events["features"][:, i] for i, n in enumerate(model.meter.feature_names)}
    alone, bits = encode(directory, model, features)
    wrong = np.flatnonzero((alone.scores != events["scores"]).any(axis=1))
    if len(wrong):
        raise VerifyError(f"{capture.name}: flow {wrong[0]}: other scores from its features")
    return MeteredCapture(flow_rows(model, model.meter, events, bits), counters)


def replay_traffic(place: Path, model: Classifier, options: Options) -> tuple[int, list[Figure]]:
    """Replay traffic through the metering program, and compare it with the reference meter."""
    assert model.meter is not None  # noqa: S101 - the caller looked
    # The table must evict nothing, because the reference meter chooses other victims.
    spec = replace(model.meter, cache_flows=2 * PACKETS)
    frames = traffic(spec, PACKETS, seed=0)
    with _metering(place, model, source.table_of(options), 2 * PACKETS) as programs:
        events = replay(programs, frames)
        problem = difference(model, spec, frames, events)
        problem = problem or counter_difference(spec, frames, programs.counters())
        if problem:
            raise VerifyError(f"meter.c: {problem}")
        return len(frames), exported.program_figures("meter", programs.program)


def _metering(place: Path, model: Classifier, table: source.Table, flows: int) -> MeterPrograms:
    """Load the metering program of an export into the kernel, with its model in slot 0."""
    assert model.meter is not None  # noqa: S101 - the callers looked
    image = source.compile_program(exported.read_program(place), source.METER)
    structure = structure_of([model])
    # A fixed hash key, so that every verification fills the same buckets.
    programs = MeterPrograms(
        image, "meter.o", model.meter, structure, clock="trailer", flows=flows, table=table,
        secret=bytes(SECRET_BYTES),
    )  # fmt: skip
    programs.set_model(0, exported.read_value(place))
    return programs


def _in_kernel(place: Path, model: Classifier, features: Mapping[str, Any]) -> HostVerdicts | None:
    """Run the network of a program's folder in the kernel; None if the kernel does not allow it."""
    structure = structure_of([model])
    files = exported.read_program(place) | {
        HARNESS: (NETWORK / HARNESS).read_text(encoding="utf-8")
    }
    try:
        options = ("-DNETWORK_KEEP_ROWS", f"-DINPUTS={_BATCH}")
        loaded = BpfObject(compile_bpf(files, HARNESS, options), HARNESS)
    except (MissingDependencyError, BpfError):
        return None
    columns = {name: np.asarray(features[name]) for name in structure.features}
    rows = len(next(iter(columns.values())))
    parts = []
    with BpfNetwork(structure, loaded, _BATCH) as network:
        for start in range(0, rows, _BATCH):
            part = {n: np.resize(c[start : start + _BATCH], _BATCH) for n, c in columns.items()}
            parts.append(network.run(exported.read_value(place), part))
    names = ("scores", "classes", "margins", "verdicts", "selected")
    return HostVerdicts(*(np.concatenate([getattr(p, n) for p in parts])[:rows] for n in names))
