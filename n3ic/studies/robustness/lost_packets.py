# SPDX-License-Identifier: Apache-2.0
"""Verdicts on a capture when the meter misses some of its packets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import UsageError
from n3ic.kernel.prediction import predict
from n3ic.meter.capture import Capture
from n3ic.meter.compiled import CompiledMeter, Records
from n3ic.meter.verdicts import features_of, meter_for
from n3ic.model.classifier import Classifier
from n3ic.model.meter_spec import MeterSpec
from n3ic.studies.robustness.shift_row import ShiftRow

KEPT = {"1 % of the packets lost": 0.99, "1 packet in 10 sampled": 0.1}
"""Share of the packets that the meter sees, by what happened to the rest."""
_BATCH = 1 << 14


def capture_rows(
    model: Classifier, capture: Path, positive: int | None, seed: int = 0
) -> Iterator[ShiftRow]:
    """Yield a row for the whole capture, and one for each of :data:`KEPT`.

    Packets are lost independently. Flows are matched by their key regardless of direction, because
    a flow that lost packets may begin with an answer; the n-th flow of a key matches the n-th.

    Args:
        model: a model that carries its meter.
        capture: a pcap or pcapng file.
        positive: index of the class to detect; None if there is none.
        seed: decides which packets are lost.

    Raises:
        UsageError: The model carries no meter, or no flow of the capture was decided.
        DataError: The capture cannot be read.
    """
    spec = meter_for(model, capture)
    whole = _verdicts(model, metered(capture, spec, 1.0, seed))
    flows = sum(map(len, whole.values()))
    if not flows:
        raise UsageError(f"{capture}: no flow in it was decided: expected IP packets")
    yield _row("whole capture", whole, whole, positive)
    for name, share in KEPT.items():
        yield _row(name, whole, _verdicts(model, metered(capture, spec, share, seed)), positive)


def metered(capture: Path, spec: MeterSpec, share: float, seed: int) -> Records:
    """Meter a random share of a capture's packets.

    Args:
        capture: the file.
        spec: the meter.
        share: probability that a packet is seen, above 0 and up to 1.
        seed: decides which packets are seen.

    Returns:
        The flow records.
    """
    rng = np.random.default_rng(seed)
    out, batch = [], []
    with Capture(capture) as packets, CompiledMeter(spec, packets.link) as meter:
        for data, length, time in packets.packets():
            if rng.random() < share:
                batch.append((data, length, time // spec.tick_ns))
            if len(batch) == _BATCH:
                out.append(meter.count(batch))
                batch = []
        out += [meter.count(batch), meter.finish()]
    return np.concatenate(out)


_Key = tuple[Any, ...]


def _verdicts(model: Classifier, records: Records) -> Mapping[_Key, list[int]]:
    """The classes of each key's flows, in order of their first packets."""
    records = records[np.argsort(records["first"], kind="stable")]
    if not len(records):
        return {}
    assert model.meter is not None  # noqa: S101 - it metered the records
    classes = predict(model, model.encode(features_of(records, model.meter))).classes
    out: dict[_Key, list[int]] = defaultdict(list)
    for record, class_index in zip(records, classes.tolist(), strict=True):
        ends = [
            (record[end].tobytes(), int(record[f"{end}_port"])) for end in ("source", "destination")
        ]
        out[(*sorted(ends), int(record["protocol"]))].append(class_index)
    return out


def _row(
    name: str,
    whole: Mapping[_Key, list[int]],
    verdicts_of: Mapping[_Key, list[int]],
    positive: int | None,
) -> ShiftRow:
    pairs = [
        p
        for key, classes in verdicts_of.items()
        for p in zip(whole.get(key, ()), classes, strict=False)
    ]
    every: NDArray[np.int64] = np.array(
        [c for classes in verdicts_of.values() for c in classes], np.int64
    )
    same = float(np.mean([a == b for a, b in pairs])) if pairs else None
    positive_share = (
        None if positive is None or not len(every) else float((every == positive).mean())
    )
    return ShiftRow(name, len(every), None, called=positive_share, same=same)
