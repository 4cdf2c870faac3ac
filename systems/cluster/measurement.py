# SPDX-License-Identifier: Apache-2.0
"""Compare a ring with the single model: scores of every row, throughput and latency."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import VerifyError
from n3ic.kernel import prediction
from n3ic.model.bits import Words, pack
from n3ic.model.network import BinaryModel
from n3ic.model.verification_vectors import verification_vectors
from n3ic.systems.cluster.replacement import LastingRing
from n3ic.systems.cluster.session import Session

BATCH_ROWS = 4096
LATENCY_ROWS = 50


@dataclass(frozen=True)
class RingMeasurement:
    """Measurements of a ring.

    Attributes:
        rows: number of computed rows; all have the model's scores.
        rows_per_s: throughput of all rows, in batches that overlap.
        p50_ms: median latency of a single row in the ring.
        p99_ms: 99th percentile of that latency.
        one_process_rows_per_s: throughput of the same rows in this process, without a ring.
    """

    rows: int
    rows_per_s: float
    p50_ms: float
    p99_ms: float
    one_process_rows_per_s: float

    def to_dict(self) -> dict[str, Any]:
        """Convert to JSON types, with the kind of the figures."""
        return asdict(self) | {"kind": "measured"}


def rows_to_compare(model: BinaryModel, rows: int, seed: int) -> Words:
    """Choose rows to compare: half from the verification vectors, evenly spread; half random."""
    adversarial = verification_vectors(model, max(rows // 2, 1))
    # Verification vectors are grouped by neuron; an even spread reaches neurons of every layer.
    step = -(-len(adversarial) // max(rows // 2, 1))
    part = adversarial[::step][:rows]
    bits = np.random.default_rng(seed).random((rows - len(part), model.input.n_bits)) < 0.5
    return np.concatenate([part, pack(bits)])


def compare(
    session: Session | LastingRing[Session], model: BinaryModel, words: Words
) -> RingMeasurement:
    """Compute rows on a ring and compare each score with the single model's.

    Raises:
        VerifyError: A score differs.
        ClusterError: A node died or failed.
    """
    alone = []
    for i in range(min(LATENCY_ROWS, len(words))):
        began = time.perf_counter()
        session.scores(words[i : i + 1])
        alone.append(1e3 * (time.perf_counter() - began))
    began = time.perf_counter()
    # All batches are submitted before the first result is read, so that the ring stays full.
    batches = [
        session.submit(words[at : at + BATCH_ROWS]) for at in range(0, len(words), BATCH_ROWS)
    ]
    scores = np.concatenate([batch.result() for batch in batches])
    took = time.perf_counter() - began
    expected, one = _one_process(model, words)
    wrong = np.argwhere(scores != expected)
    if len(wrong):
        row, column = wrong[0]
        raise VerifyError(
            f"the ring's scores differ from the model's: row {row}, "
            f"class {model.classes[column]!r}; {len(wrong):,} scores differ"
        )
    p50, p99 = np.percentile(alone, [50, 99])
    return RingMeasurement(len(words), len(words) / took, float(p50), float(p99), one)


def _one_process(model: BinaryModel, words: Words) -> tuple[NDArray[np.int32], float]:
    """Return the single model's scores and the rows per second of the ``n3ic predict`` kernel."""
    expected = model.scores(words)
    prediction.scores(model, words[:1])  # warms up outside the measured time
    began = time.perf_counter()
    alone = prediction.scores(model, words)
    took = time.perf_counter() - began
    if (alone != expected).any():
        raise VerifyError("the compiled kernel's scores differ from the model's")
    return expected, len(words) / took
