# SPDX-License-Identifier: Apache-2.0
"""Meters a capture by the model's specification, and classifies its flows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from n3ic.data.flows import STANDARD_OUTPUT, Columns
from n3ic.data.streaming import StreamedClasses, csv_cell
from n3ic.errors import UsageError
from n3ic.kernel.prediction import encode, predict
from n3ic.meter.compiled import Records
from n3ic.meter.records import meter_capture, require_read
from n3ic.meter.rows import KEY_COLUMNS, key_table
from n3ic.model.classifier import Classifier, Inference
from n3ic.model.meter_spec import MeterSpec
from n3ic.util.files import new_file

FLOW_COLUMNS = KEY_COLUMNS[1:]  # all flows are of one capture


@dataclass(frozen=True)
class CaptureClasses(StreamedClasses):
    """Classes of the flows of a capture.

    Attributes:
        counters: counts of packets; see :meth:`~n3ic.meter.compiled.CompiledMeter.counters`.
    """

    counters: Mapping[str, int]


def meter_for(model: Classifier, capture: str | Path) -> MeterSpec:
    """The meter that computes a model's features from packets.

    Raises:
        UsageError: the model carries no meter.
    """
    if model.meter is None:
        raise UsageError(
            f"{capture} is a capture, and this model was trained on a table that names no meter: "
            "train it on a table that n3ic data extract wrote, or classify a table of its features"
        )
    return model.meter


def capture_features(model: Classifier, capture: str | Path) -> Columns:
    """A model's features of a capture's flows, in order of decision: uint32, shape ``(flows,)``.

    Raises:
        UsageError: the model carries no meter.
        DataError: the capture cannot be read, or its link type is not one that is read.
        MissingDependencyError: libpcap or a C compiler is missing.
    """
    spec = meter_for(model, capture)
    batches, counters = [], {}
    for records, so_far in meter_capture(capture, spec):
        counters = so_far
        batches.append(features_of(records, spec))
    require_read(str(capture), counters)
    return {n: np.concatenate([batch[n] for batch in batches]) for n in model.input.features}


def features_of(records: Records, spec: MeterSpec) -> Columns:
    """Features of flow records by name: uint32 arrays of shape ``(rows,)``."""
    return {name: records["features"][:, i] for i, name in enumerate(spec.feature_names)}


def predict_capture(
    model: Classifier,
    capture: str | Path,
    sink: str | Path | None = STANDARD_OUTPUT,
    *,
    progress: Callable[[int, Columns], object] | None = None,
) -> CaptureClasses:
    """Write key, times, class, margin and scores of each flow of a capture when it is decided.

    The rows are those of ``n3ic data extract`` with the model's meter, in the same order.

    Args:
        model: a network that carries its meter.
        capture: a pcap or pcapng file, plain or packed.
        sink: the CSV file to write, whole or not at all; ``-`` for standard output; None only
            counts the classes.
        progress: called with the number of flows so far, and the features of the latest ones.

    Raises:
        UsageError: the model carries no meter.
        DataError: the capture cannot be read, or its link type is not one that is read.
        MissingDependencyError: libpcap or a C compiler is missing.
        N3icError: the file cannot be written.
    """
    spec = meter_for(model, capture)
    names = [csv_cell(name) for name in model.verdict_names]
    scores = [csv_cell(f"score_{name}") for name in model.classes]
    header = [*(n.encode() for n in ("row", *FLOW_COLUMNS, "class", "margin")), *scores]
    counts = np.zeros(len(names), dtype=np.int64)
    counters: Mapping[str, int] = {}
    with _opened(sink) as out:
        if out:
            out.write(b",".join(header) + b"\n")
        for records, so_far in meter_capture(capture, spec):
            counters = so_far
            columns = features_of(records, spec)
            inference = predict(model, encode(model.input, columns))
            verdicts = model.verdicts(inference.scores)
            if out:
                out.writelines(_lines(records, spec, inference, verdicts, names, int(counts.sum())))
            # SHUNT is -1: modulo the number of names, it is the index of the last.
            counts += np.bincount(verdicts % len(names), minlength=len(names))
            if progress is not None:
                progress(int(counts.sum()), columns)
        require_read(str(capture), counters)
        if out:
            out.flush()
    of_class = dict(zip(model.verdict_names, counts.tolist(), strict=True))
    return CaptureClasses(int(counts.sum()), of_class, counters)


def _opened(sink: str | Path | None) -> AbstractContextManager[IO[bytes] | None]:
    if sink is None:
        return nullcontext(None)
    return nullcontext(sys.stdout.buffer) if str(sink) == STANDARD_OUTPUT else new_file(sink)


def _lines(
    records: Records,
    spec: MeterSpec,
    inference: Inference,
    verdicts: NDArray[np.int64],
    names: Sequence[bytes],
    first: int,
) -> Iterator[bytes]:
    """Lines of CSV; addresses, numbers and reasons need no quotes."""
    columns = key_table(records, spec, "").select(FLOW_COLUMNS).to_pydict().values()
    results = verdicts.tolist(), inference.margins.tolist(), inference.scores.tolist()
    for row, (key, index, margin, scores) in enumerate(
        zip(zip(*columns, strict=True), *results, strict=True), first
    ):
        prefix = ",".join(map(str, (row, *key))).encode()
        yield b"%s,%s,%d,%s\n" % (
            prefix,
            names[index],
            margin,
            b",".join(b"%d" % s for s in scores),
        )
