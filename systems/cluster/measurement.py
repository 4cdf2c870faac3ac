# SPDX-License-Identifier: Apache-2.0
"""A ring against the single model: every row compared, throughput and latency measured."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import VerifyError
from n3ic.kernel import prediction
from n3ic.model.bits import Words, pack
from n3ic.model.boundary import verification_vectors
from n3ic.model.network import BinaryModel
from n3ic.systems.cluster.session import Session

BATCH_ROWS = 32
LATENCY_ROWS = 50


@dataclass(frozen=True)
class RingMeasurement:
    """What a ring did.

    Attributes:
        rows: that were computed, all with the model's scores.
        rows_per_s: of all rows, in batches that overlap.
        p50_ms: median time of a row that is alone in the ring.
        p99_ms: the 99th percentile.
        one_process_rows_per_s: of the same rows in this process alone, without a ring.
    """

    rows: int
    rows_per_s: float
    p50_ms: float
    p99_ms: float
    one_process_rows_per_s: float

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it, labelled."""
        return asdict(self) | {"kind": "measured"}


def rows_to_compare(model: BinaryModel, rows: int, seed: int) -> Words:
    """Rows to compare: half of them those of verification, spread evenly, the rest random."""
    adversarial = verification_vectors(model, max(rows // 2, 1))
    step = -(-len(adversarial) // max(rows // 2, 1))
    chosen = adversarial[::step][:rows]
    bits = np.random.default_rng(seed).random((rows - len(chosen), model.input.n_bits)) < 0.5
    return np.concatenate([chosen, pack(bits)])


def compare(session: Session, model: BinaryModel, words: Words) -> RingMeasurement:
    """Compute rows on a ring, and compare each score with the single model's.

    Raises:
        VerifyError: a score differs.
        ClusterError: a node died or failed.
    """
    alone = []
    for i in range(min(LATENCY_ROWS, len(words))):
        began = time.perf_counter()
        session.scores(words[i : i + 1])
        alone.append(1e3 * (time.perf_counter() - began))
    began = time.perf_counter()
    batches = [
        session.submit(words[at : at + BATCH_ROWS]) for at in range(0, len(words), BATCH_ROWS)
    ]
    found = np.concatenate([batch.result() for batch in batches])
    took = time.perf_counter() - began
    wanted, one = _one_process(model, words)
    wrong = np.argwhere(found != wanted)
    if len(wrong):
        row, column = wrong[0]
        raise VerifyError(
            f"the ring computes another score than the model: row {row}, "
            f"class {model.classes[column]!r}; {len(wrong):,} scores differ"
        )
    p50, p99 = np.percentile(alone, [50, 99])
    return RingMeasurement(len(words), len(words) / took, float(p50), float(p99), one)


def _one_process(model: BinaryModel, words: Words) -> tuple[NDArray[np.int32], float]:
    """The single model's scores, and rows a second of what ``n3ic predict`` computes them with."""
    wanted = model.scores(words)
    score = prediction.scorer(model)
    score(words[:1])
    began = time.perf_counter()
    alone = score(words)
    took = time.perf_counter() - began
    if (alone != wanted).any():
        raise VerifyError("the compiled kernel computes another score than the model")
    return wanted, len(words) / took
