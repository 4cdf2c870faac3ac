# SPDX-License-Identifier: Apache-2.0
"""The function ``n3ic.shunt``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from n3ic.errors import in_python, needed

if TYPE_CHECKING:
    from n3ic.studies.shunt.result import ShuntStudy


@in_python()
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
    left_out_kinds: float | None = None,
    times: int = 1,
    confidence: float = 0.95,
    other_rows: str | Path | None = None,
) -> dict[str, ShuntStudy]:
    """Study which flows the card decides and which the host gets, and choose the threshold.

    The threshold is chosen on validation rows and reported on test rows. The model of each study
    contains it, and :meth:`~n3ic.BinaryModel.save` keeps it.

    Args:
        model: a run folder or a model file.
        flows: files of labelled flows; None for the data set's embedded sample.
        dataset: the data set that reads them; None for the one the network was trained on.
        task: name of one network of a run of several; empty for all.
        accuracy: smallest share of correct decisions on the card.
        host_load: largest share of the flows sent to the host.
        margin: the threshold itself.
        left_out_kinds: largest share of the kinds of other classes that would be blocked by a
            network that has not seen them: it is trained again without each kind. Give at most one
            of these four; none shows only the curve.
        times: with ``left_out_kinds``, how many flows of the class to detect block a host.
        confidence: probability that the wanted accuracy or load is kept on flows drawn like the
            validation rows, or the share on kinds drawn like those of the flows. An accuracy holds
            for flows that duplicate no training row.
        other_rows: files of further labelled flows on which to show the threshold.

    Returns:
        Studies by network; a single one has the empty name.

    Raises:
        UsageError: no data set reads the flows, or no threshold reaches the aim.
        DataError: the flows cannot be read, or their classes are not the network's.
    """
    from n3ic.studies.shunt.result import ThresholdObjective
    from n3ic.studies.shunt.study import study_shunting

    aim = ThresholdObjective(accuracy, host_load, margin, confidence, left_out_kinds, times)
    return study_shunting(model, flows, dataset=dataset, task=task, aim=aim, other_rows=other_rows)
