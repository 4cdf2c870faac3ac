# SPDX-License-Identifier: Apache-2.0
"""Turns flow records into decided flows, and decided flows into rows of a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from n3ic.meter.compiled import KEY, Records, record_type
from n3ic.meter.rows import key_table, texts_of
from n3ic.meter.standard import standard_spec
from n3ic.meter.verdicts import FLOW_COLUMNS
from n3ic.model.classifier import Classifier
from n3ic.model.meter_spec import MeterSpec
from n3ic.systems.stream.batch import FlowBatch, decided, encoded, features_read

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, eq=False)
class StreamModel:
    """A model, and how its flows are written.

    Attributes:
        model: the model.
        with_features: whether rows also have the model's features.
    """

    model: Classifier
    with_features: bool = False

    @property
    def spec(self) -> MeterSpec:
        """The meter that defines keys and times; the standard one (microseconds) if it has none."""
        return self.model.meter or standard_spec()

    @property
    def metered(self) -> bool:
        """Whether the model carries a meter, and so can decide packets."""
        return self.model.meter is not None

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the model's features."""
        return tuple(self.model.input.features)

    @property
    def schema(self) -> pa.Schema:
        """Columns of :meth:`table`."""
        none = np.empty(0, dtype=record_type(self.spec))
        features = np.empty((0, len(self.features)), dtype=np.uint32)
        scores = np.empty((0, len(self.model.classes)), dtype=np.int32)
        numbers, margins = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int32)
        return self.table(FlowBatch(none, features, scores, numbers, margins, numbers), 0).schema

    def of_records(self, records: Records) -> FlowBatch:
        """Decide flows that the model's meter recorded, shape ``(flows,)``."""
        features = features_read(self.model, self.spec.feature_names, records)
        return decided(self.model, records, features)

    def of_rows(self, records: Records) -> FlowBatch:
        """Decide records of dtype :func:`rows_type`, shape ``(flows,)``."""
        words = np.ascontiguousarray(records["words"])
        return decided(self.model, records, np.ascontiguousarray(records["features"]), words)

    def table(self, batch: FlowBatch, first: int) -> pa.Table:
        """Make a table with the columns of ``n3ic predict``: key, times, class, margin and scores.

        Args:
            batch: the flows.
            first: number of the first flow.
        """
        import pyarrow as pa

        keys = key_table(batch.records, self.spec, "").select(FLOW_COLUMNS)
        columns: dict[str, pa.Array] = {"row": pa.array(np.arange(first, first + len(batch)))}
        columns |= dict(zip(keys.column_names, keys.columns, strict=True))
        columns["class"] = texts_of(batch.verdicts, self.model.verdict_names)
        columns["margin"] = pa.array(batch.margins)
        for i, name in enumerate(self.model.classes):
            columns[f"score_{name}"] = pa.array(np.ascontiguousarray(batch.scores[:, i]))
        for i, name in enumerate(self.features if self.with_features else ()):
            columns[f"feature_{name}"] = pa.array(np.ascontiguousarray(batch.features[:, i]))
        return pa.table(columns)


def rows_type(model: Classifier) -> np.dtype[np.void]:
    """The dtype of records of flows that were metered elsewhere.

    Its fields are those of :func:`~n3ic.meter.compiled.record_type` without registers. ``features``
    are the model's features, or zeros if only its input bits are known; ``words`` are its packed
    input bits.
    """
    return np.dtype(
        [
            *KEY,
            ("why", np.uint32),
            *((name, np.uint64) for name in ("number", "first", "last", "packets")),
            ("features", np.uint32, (len(model.input.features),)),
            ("words", np.uint32, (model.input.n_words,)),
        ],
        align=True,
    )


def row_records(
    model: Classifier, features: NDArray[np.uint32] | None, words: NDArray[np.uint32] | None = None
) -> Records:
    """Make records, without keys and times, from features or from packed input bits.

    Args:
        model: the model.
        features: uint32, shape ``(rows, features)``; None if only the bits are known.
        words: uint32, shape ``(rows, n_words)``; None to encode the features.

    Returns:
        Records of dtype :func:`rows_type`, shape ``(rows,)``.
    """
    if words is None:
        assert features is not None  # noqa: S101 - one of them is given
        words = encoded(model, features)
    records = np.zeros(len(words), dtype=rows_type(model))
    records["words"] = words
    if features is not None:
        records["features"] = features
    return records
