# SPDX-License-Identifier: Apache-2.0
"""The function ``n3ic.shunt``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from n3ic.errors import needed

if TYPE_CHECKING:
    from n3ic.systems.shunt.result import ShuntStudy


@needed("n3ic.shunt")
def shunt(
    model: str | Path,
    flows: str | Path | None = None,
    *,
    dataset: str | None = None,
    task: str = "",
    accuracy: float | None = None,
    host_load: float | None = None,
    margin: int | None = None,
    confidence: float = 0.95,
    other_rows: str | Path | None = None,
) -> dict[str, ShuntStudy]:
    """What the card decides by itself, what the host gets, and the threshold for a wanted figure.

    The threshold is chosen on validation rows and reported on test rows; the model of each study
    has it, and :meth:`~n3ic.BinaryModel.save` keeps it.

    Args:
        model: a run folder or a model file.
        flows: files of labelled flows; the data set's embedded sample where None.
        dataset: the data set that reads them; the one that the network was trained on where None.
        task: which network of a run of several; all where empty.
        accuracy: share that the card shall get right of what it decides, at least.
        host_load: share of the flows that the host may get, at most.
        margin: the threshold itself. One of the three, or none for the curve alone.
        confidence: probability that the wanted accuracy or load is kept on flows drawn like the
            validation rows; of an accuracy, on flows that duplicate no training row.
        other_rows: files of further labelled flows, which the threshold is shown on.

    Returns:
        Studies by network; under an empty name for a single one.

    Raises:
        UsageError: no data set reads the flows, or no threshold gives what is wanted.
        DataError: the flows cannot be read, or their classes are not the network's.
    """
    from n3ic.systems.shunt.result import ThresholdObjective
    from n3ic.systems.shunt.study import study_shunting

    aim = ThresholdObjective(accuracy, host_load, margin, confidence)
    return study_shunting(model, flows, dataset=dataset, task=task, aim=aim, other_rows=other_rows)
