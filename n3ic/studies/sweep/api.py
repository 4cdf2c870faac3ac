# SPDX-License-Identifier: Apache-2.0
"""The function ``n3ic.sweep``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from n3ic.errors import needed
from n3ic.options import OptionValue

if TYPE_CHECKING:
    from n3ic.runs.progress import TrainingProgress
    from n3ic.studies.sweep.result import Sweep


@needed("n3ic.sweep")
def sweep(
    use_case: str,
    axes: Mapping[str, Sequence[Any]] | None = None,
    *,
    target: str = "netfpga",
    target_options: Mapping[str, OptionValue] | None = None,
    out: str | Path | None = None,
    replace: bool = False,
    progress: TrainingProgress | None = None,
    **request: Any,
) -> Sweep:
    """Train networks of many sizes in parallel, and find those that are worth their cost.

    An interrupted sweep resumes if it is called again with the same arguments.

    Args:
        use_case: name of the use case, such as ``anomaly``.
        axes: values to combine with each other: ``{"budget_bytes": (256, 512), "density": (0.25,
            1)}``, or any value of a recipe; None for budgets of bytes.
        target: target that estimates size and latency of each point.
        target_options: options of the target; None for its defaults, and for an unrolled core of
            ``netfpga``.
        out: folder of the sweep; None for ``sweeps/USE_CASE``.
        replace: whether to remove the results of another sweep in that folder.
        progress: receives messages on the way.
        **request: common values of all trainings, attributes of
            :class:`~n3ic.usecases.request.TrainRequest`: ``data``, ``seeds``, ``jobs``, ...

    Returns:
        The sweep, with its points and Pareto fronts.

    Raises:
        UsageError: a name or option is unknown, or the folder holds another sweep.
        DataError: the data cannot be read or split.
    """
    from n3ic.studies.sweep.request import SweepRequest
    from n3ic.studies.sweep.training import sweep_use_case
    from n3ic.usecases.request import TrainRequest

    base = TrainRequest(use_case, **request)
    tried = {name: tuple(values) for name, values in (axes or {}).items()}
    asked = SweepRequest(base, tried, target, target_options, out, replace)
    return sweep_use_case(asked, progress)
