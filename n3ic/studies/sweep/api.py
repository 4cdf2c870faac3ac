# SPDX-License-Identifier: Apache-2.0
"""The function ``n3ic.sweep``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from n3ic.data.user_table import OWN
from n3ic.errors import in_python, needed
from n3ic.options import OptionValue
from n3ic.training.recipe_values import RecipeValues

if TYPE_CHECKING:
    from n3ic.data.split import SplitProtocol
    from n3ic.data.table import FlowTable
    from n3ic.runs.progress import TrainingProgress
    from n3ic.studies.sweep.result import Sweep
    from n3ic.training.recipe import Recipe


@in_python()
@needed("n3ic.sweep")
def sweep(
    use_case: str | Path | Sequence[str | Path] | None = None,
    axes: Mapping[str, Sequence[Any]] | None = None,
    *,
    label: str | None = None,
    positive: str | None = None,
    data: str | Path | Sequence[str | Path] | FlowTable | None = None,
    dataset: str | None = None,
    recipe: str | Recipe | None = None,
    protocol: SplitProtocol | None = None,
    seed: int | None = None,
    seeds: int | None = None,
    jobs: int | None = None,
    dask: str | None = None,
    target: str = "netfpga",
    target_options: Mapping[str, OptionValue] | None = None,
    out: str | Path | None = None,
    replace: bool = False,
    overrides: Mapping[str, Any] | None = None,
    options: Mapping[str, OptionValue] | None = None,
    progress: TrainingProgress | None = None,
    **values: Unpack[RecipeValues],
) -> Sweep:
    """Train networks of many sizes in parallel, and find those that are worth their cost.

    An interrupted sweep resumes if it is called again with the same arguments.

    Args:
        use_case: a use case, such as ``anomaly``, or files to train on; None for ``data``, a table
            of your own.
        axes: values to combine with each other: ``{"budget_bytes": (256, 512), "density": (0.25,
            1)}``, or any value of a recipe; None for budgets of bytes.
        label: the column of the class, in a table of your own.
        positive: the class to tell from all others in such a table.
        data: files for a use case to train on, or the ``table`` of :func:`n3ic.datasets.load`.
        dataset: the data set that reads them; None for the use case's own.
        recipe: name of a recipe of the use case, or a recipe of your own.
        protocol: how the rows are split; None for the use case's default.
        seed: the first seed, 0 by default.
        seeds: number of seeds of each point, for mean and deviation.
        jobs: number of networks trained at once; None for all cores.
        dask: address of a Dask scheduler whose workers train instead of this machine.
        target: target that estimates size and latency of each point.
        target_options: options of the target; None for its defaults, and for an unrolled core of
            ``netfpga``.
        out: folder of the sweep; None for ``sweeps/USE_CASE``.
        replace: whether to remove the results of another sweep in that folder.
        overrides: values of the recipe by name, as ``values``; the same for all networks.
        options: the use case's own options by name.
        progress: receives messages on the way.
        **values: any value of the recipe, the same for all networks; see :func:`n3ic.train`.

    Returns:
        The sweep, with its points and Pareto fronts.

    Raises:
        UsageError: a name or option is unknown, or the folder holds another sweep.
        DataError: the data cannot be read or split.
    """
    from n3ic.data.table import FlowTable
    from n3ic.studies.sweep.request import SweepRequest
    from n3ic.studies.sweep.training import sweep_use_case
    from n3ic.usecases.arguments import request_of, source_of
    from n3ic.usecases.request import TrainRequest

    own = {"label": label, "positive": positive}
    arguments = {
        "use_case": OWN,
        **source_of(use_case),
        **({} if data is None else {"table" if isinstance(data, FlowTable) else "data": data}),
        "dataset": dataset,
        "recipe": recipe,
        "protocol": protocol,
        "seed": seed,
        "seeds": seeds,
        "jobs": jobs,
        "dask": dask,
        "overrides": overrides,
        "options": {**(options or {}), **{n: v for n, v in own.items() if v is not None}},
    }
    base = TrainRequest(**request_of(arguments, values))
    grid_axes = {name: tuple(several) for name, several in (axes or {}).items()}
    request = SweepRequest(base, grid_axes, target, target_options, out, replace)
    return sweep_use_case(request, progress)
