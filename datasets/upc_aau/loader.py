# SPDX-License-Identifier: Apache-2.0
"""Loads captures and their ``.info`` as a table of labelled flows."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from n3ic.data.table import FlowTable, SourceFile
from n3ic.datasets.upc_aau.extraction import metered
from n3ic.datasets.upc_aau.info_file import SETTINGS, InfoFile, Settings, read_info
from n3ic.errors import DataError
from n3ic.meter.capture import is_capture
from n3ic.meter.flow_keys import packed_address
from n3ic.meter.labels import SLACK_US, Labels
from n3ic.meter.records import left_out
from n3ic.meter.sequences import sequence_spec
from n3ic.meter.spec_file import read_spec
from n3ic.meter.standard import standard_spec
from n3ic.meter.stream import StreamExtraction
from n3ic.meter.table import flow_table, read_table
from n3ic.model.meter_spec import MeterSpec
from n3ic.util.files import sha256_file

if TYPE_CHECKING:
    import pyarrow as pa

REAL_NAME, SYNTHETIC_NAME = "upc-aau", "upc-aau-synthetic"
METER = "meter.json"
_INFO = ".info"


@dataclass(frozen=True)
class Files:
    """The files of a folder.

    Attributes:
        info: file with the labels.
        captures: captures in the order of their names.
        spec: the meter's specification, from ``meter.json`` or the standard one.
        settings: settings from ``upc-aau.toml``, or the defaults.
    """

    info: Path
    captures: tuple[Path, ...]
    spec: MeterSpec
    settings: Settings


@dataclass(frozen=True, eq=False)
class LoadedTable:
    """A table and the facts of its loading.

    Attributes:
        table: the flows.
        info: content of the ``.info``.
        extraction: counters of the captures' extraction.
        joined: number of flows that are ``matched``, ``unmatched`` and ``ambiguous``.
        flows: number of flows of each class before any was left out.
        cached: whether an earlier call metered the captures.
    """

    table: FlowTable
    info: InfoFile
    extraction: StreamExtraction
    joined: Mapping[str, int]
    flows: Mapping[str, int]
    cached: bool


def find_files(path: str | Path) -> Files:
    """Find the files of a folder, or those beside an ``.info`` or a capture.

    Raises:
        DataError: not exactly one ``.info`` or no capture is found, or a file beside them is
            damaged.
        ModelError: ``meter.json`` is damaged.
    """
    source = Path(path)
    folder = source if source.is_dir() else source.parent
    if not source.exists():
        raise DataError(f"{source}: no such file or folder")
    try:
        files = sorted(p for p in folder.iterdir() if p.is_file() and not p.name.startswith("."))
    except OSError as error:
        raise DataError(f"{folder}: cannot be read: {error.strerror or error}") from error
    infos = [p for p in files if _INFO in p.suffixes[-2:]]
    if source in infos:
        infos = [source]
    if len(infos) != 1:
        listed = ", ".join(p.name for p in infos) or "none"
        raise DataError(f"{folder}: expected one file that ends in {_INFO}, got {listed}")
    captures = [p for p in files if p not in infos and is_capture(p)]
    if source in captures:
        captures = [source]
    if not captures:
        raise DataError(f"{folder}: expected a capture (pcap, pcapng) beside {infos[0].name}")
    meter = folder / METER
    spec = read_spec(meter) if meter.is_file() else standard_spec()
    return Files(infos[0], tuple(captures), spec, Settings.read(folder))


def load(
    path: str | Path, *, cache: bool = True, packets: Sequence[int] | None = None
) -> LoadedTable:
    """Meter captures, or take their flows from the cache, and join the labels to them.

    Args:
        path: a folder, or one of its files.
        cache: whether metered flows are kept in the user's cache folder.
        packets: packets at which flows are decided on the sequence of their first packets; None
            for the features of the folder's meter.

    Raises:
        DataError: a file is missing or cannot be read, or no flow has one of the classes.
        ModelError: ``meter.json`` is damaged.
        MissingDependencyError: libpcap or a C compiler is missing.
    """
    files = find_files(path)
    if packets is not None:
        files = replace(files, spec=sequence_spec(packets))
    info = read_info(files.info, files.settings)
    with metered(files.captures, files.spec, cache=cache) as flows:
        rows = read_table(flows.table).sort_by("first_us")
    labels, joined = _labelled(rows, info.labels)
    classes = tuple(info.classes)
    index = np.array([classes.index(x) if x in info.classes else -1 for x in labels], dtype=int)
    flows_of = np.bincount(index[index >= 0], minlength=len(classes))
    selected = _at_most(index, len(classes), files.settings.flows_per_class)
    if not len(selected):
        raise DataError(
            f"{path}: none of the {len(rows):,} flows of the captures has a label of "
            f"{files.info.name} (matched {joined['matched']:,}): are they of the same traffic?"
        )
    table = _flow_table(path, rows.take(selected), index[selected], classes, files.spec)
    counted = dict(zip(classes, flows_of.tolist(), strict=True))
    loaded = LoadedTable(table, info, flows.extraction, joined, counted, flows.cached)
    sources = (
        *(SourceFile(str(p), "", 0, f"capture of {p.stat().st_size:,} B") for p in files.captures),
        SourceFile(str(files.info), sha256_file(files.info), len(table), "labels"),
    )
    return replace(
        loaded,
        table=replace(
            table,
            name=SYNTHETIC_NAME if info.synthetic else REAL_NAME,
            synthetic=info.synthetic,
            sources=sources,
            notes=tuple(_notes(files, loaded)),
        ),
    )


def _flow_table(
    path: str | Path,
    rows: pa.Table,
    index: NDArray[np.int64],
    classes: tuple[str, ...],
    spec: MeterSpec,
) -> FlowTable:
    """Make a table of rows in time order, with the given order of classes, without empty ones."""
    import pyarrow as pa

    names = [classes[i] for i in index]
    rows = rows.append_column("label", pa.array(names, pa.string()))
    table = flow_table(path, rows, spec, sha256="")
    order = [c for c in classes if c in table.classes]
    at = np.array([order.index(c) for c in table.classes])
    digest = hashlib.sha256("\n".join([spec.digest, *order]).encode())
    label = at[table.label]
    for column in (label, *table.features.values()):
        digest.update(column.tobytes())
    return replace(
        table,
        label=label,
        classes=tuple(order),
        sha256=digest.hexdigest(),
        time_order=True,
    )


def _labelled(rows: pa.Table, labels: Labels) -> tuple[list[str], Counter[str]]:
    """Label of each flow, empty if it has none or several; and the number of each outcome."""
    sides = [
        zip(map(_packed, rows[end].to_pylist()), rows[f"{end}_port"].to_pylist(), strict=True)
        for end in ("source", "destination")
    ]
    flow_facts = (rows[name].to_pylist() for name in ("protocol", "first_us", "last_us"))
    outcomes = [labels.of(*flow) for flow in zip(*sides, *flow_facts, strict=True)]
    return [label for label, _ in outcomes], Counter(outcome for _, outcome in outcomes)


def _packed(text: str) -> bytes:
    return packed_address(text) if text else b""


def _at_most(index: NDArray[np.int64], classes: int, flows: int) -> NDArray[np.int64]:
    """Select at most ``flows`` rows of each class, spread evenly over its rows."""
    selections = []
    for c in range(classes):
        rows = np.flatnonzero(index == c)
        if flows and len(rows) > flows:
            rows = rows[np.arange(flows) * len(rows) // flows]
        selections.append(rows)
    return np.sort(np.concatenate(selections))


def _notes(files: Files, loaded: LoadedTable) -> Iterator[str]:
    """What was assumed and left out, as sentences."""
    info, extraction = loaded.info, loaded.extraction
    if info.synthetic:
        yield "SYNTHETIC: a generator made these captures; no figure says anything about traffic"
    yield from info.notes
    for reason, lines in info.bad.items():
        yield f"{lines:,} of {info.lines:,} lines were left out: {reason}"
    if info.other_lines:
        label_counts = ", ".join(f"{name} {n:,}" for name, n in info.other_labels.items())
        yield f"{info.other_lines:,} lines have labels that are none of the classes: {label_counts}"
    if missing := [c for c, n in info.classes.items() if not n]:
        yield f"no line has the class {', '.join(missing)}"
    meter = METER if (files.info.parent / METER).is_file() else "the standard meter"
    if files.spec.registers[0].update == "nth":
        meter = "a meter of sequences"
    packets = extraction.counters["packets"]
    yield (
        f"flows metered by {meter} ({files.spec}) from {packets:,} packets; joined by "
        f"address, port and protocol, within {SLACK_US / 1e6:g} s of a line's time"
    )
    yield from left_out(extraction.counters)
    yield from extraction.damaged
    if len(files.captures) > 1:
        pieces = len(files.captures)
        yield f"{pieces:,} captures were taken for pieces of one, in order of their first packets"
    joined = loaded.joined
    yield (
        f"of {extraction.flows:,} flows {joined['matched']:,} have one label, "
        f"{joined['unmatched']:,} none and {joined['ambiguous']:,} several, which were left out"
    )
    limit = files.settings.flows_per_class
    for name, flows in loaded.flows.items():
        if limit and flows > limit:
            yield (
                f"{limit:,} of {flows:,} flows of {name} kept, spread evenly "
                f"(flows_per_class in {SETTINGS})"
            )
