# SPDX-License-Identifier: Apache-2.0
"""The function ``second-stage``: a larger model decides the flows that the first one shunts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from n3ic.api import load
from n3ic.errors import ModelError, UsageError
from n3ic.meter.rows import texts_of
from n3ic.model.classifier import SHUNT
from n3ic.systems.stream.batch import FlowBatch
from n3ic.systems.stream.functions.metering import MeterFunction, score_columns
from n3ic.systems.stream.functions.options import path_of
from n3ic.systems.stream.learning.second_stage import second_verdicts

if TYPE_CHECKING:
    import pyarrow as pa


class SecondStageFunction(MeterFunction):
    """Meters packets with the meter of ``model``, and decides their flows with ``stage``.

    In a chain, it follows a meter that sends it the packets of shunted flows. A line also has
    ``first``, the verdict of ``model`` on the packets that came here, which is ``shunt`` if all
    packets of the flow came.
    """

    option_names = (*MeterFunction.option_names, "stage")

    def __init__(self, *words: Any) -> None:
        super().__init__(*words)
        path = path_of(self.options, "stage")
        self.stage = load(path)
        try:  # on no flow
            self.decided(self._batch(self.meter.records()))
        except ModelError as error:
            raise UsageError(f"{path}: {error}") from error

    def decided(self, batch: FlowBatch) -> tuple[NDArray[np.int64], dict[str, pa.Array]]:
        """The second stage's verdicts, and the fields of their lines."""
        shunted = replace(batch, verdicts=np.full(len(batch), SHUNT))
        verdicts = second_verdicts(self.stage, shunted, self.spec, self.model.classes)
        return verdicts, {
            "verdict": texts_of(verdicts, self.model.classes),
            "first": texts_of(batch.verdicts, self.model.verdict_names),
            **score_columns(batch),
        }
