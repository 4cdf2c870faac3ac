# SPDX-License-Identifier: Apache-2.0
"""The functions ``n3ic.shifts`` and ``n3ic.domains``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from n3ic.errors import in_python, needed

if TYPE_CHECKING:
    from n3ic.studies.robustness.domains import DomainStudy
    from n3ic.studies.robustness.shifts import ShiftFigures


@in_python()
@needed("n3ic.shifts")
def shifts(
    model: str | Path,
    flows: str | Path | None = None,
    *,
    dataset: str | None = None,
    capture: str | Path | None = None,
    other_rows: str | Path | None = None,
    exchange: str = "",
    time_order: bool = False,
    leave_out: str = "",
) -> dict[str, ShiftFigures]:
    """Measure how much of its accuracy a model keeps at another site: ``n3ic evaluate --shift``.

    Args:
        model: a run folder or a model file.
        flows: files of labelled flows; None for the data set's embedded sample.
        dataset: the data set that reads them; None for the one the network was trained on.
        capture: a capture on which packets are lost and sampled; None for none.
        other_rows: files of other labelled flows of the same kind; None for none.
        exchange: columns exchanged between rows to detect and others with a mark, such as
            ``tcprtt,synack:sttl=31``; empty for none.
        time_order: whether to train a network on earlier rows and test it on later ones.
        leave_out: a category of attacks without which networks are trained; ``each`` for each of
            them in turn, empty for none.

    Returns:
        Figures by network; a single one has the empty name.

    Raises:
        UsageError: no data set reads the flows, the model has no meter for a capture, or the flows
            lack categories, an order in time or a column.
        DataError: the flows cannot be read, or their classes are not the network's.
    """
    from n3ic.options import OptionValue
    from n3ic.studies.robustness.shifts import EVALUATION, figures_of
    from n3ic.usecases.evaluation import further_figures

    given: dict[str, OptionValue] = {
        "shift": True,
        "capture": str(capture or ""),
        "other-rows": str(other_rows or ""),
        "exchange": exchange,
        "time-order": time_order,
        "leave-out": leave_out,
    }
    source = None if flows is None else Path(flows)
    further = further_figures(Path(model), source, given, dataset)
    return {task: figures_of(figures[EVALUATION.name]) for task, figures in further.items()}


@in_python()
@needed("n3ic.domains")
def domains(
    sites: Sequence[str | Path],
    *,
    label: str = "",
    positive: Sequence[str] = (),
    benign: Sequence[str] = (),
    new_labels: Sequence[int] = (50, 200, 1000),
    seeds: int = 1,
    model: str | Path | None = None,
) -> DomainStudy:
    """Train on each site and test on every site: ``n3ic evaluate --domains``.

    Args:
        sites: two or more files, folders, names of data sets with a sample, or ``DATASET:PATH``.
        label: the column of the class, in tables of your own.
        positive: classes to detect, all others being benign; patterns such as ``DoS*``.
        benign: classes that are benign, all others being attacks.
        new_labels: numbers of labelled flows of the new site.
        seeds: number of seeds, from 0 on.
        model: a run whose recipe trains the models; None for the default recipe.

    Returns:
        The sites, and the figures of each pair of them.

    Raises:
        UsageError: the sites share no columns or classes, or a number is below 1.
        DataError: a table cannot be read, or has too few rows.
    """
    from n3ic.studies.robustness.domain_matrix import study_domains

    return study_domains(
        [str(site) for site in sites],
        label=label,
        positive=positive,
        benign=benign,
        new_labels=new_labels,
        seeds=seeds,
        source=None if model is None else Path(model),
    )
