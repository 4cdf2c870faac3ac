# SPDX-License-Identifier: Apache-2.0
"""``n3ic.sweep``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from n3ic.errors import needed
from n3ic.options import OptionValue

if TYPE_CHECKING:
    from n3ic.runs.progress import TrainingProgress
    from n3ic.systems.sweep.result import Sweep


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
    """Train networks of many sizes side by side, and find those that are worth their cost.

    An interrupted sweep goes on where it was when it is asked for again.

    Args:
        use_case: its name, such as ``anomaly``.
        axes: values that are all tried with one another: ``{"budget_bytes": (256, 512), "density":
            (0.25, 1)}``, or any value of a recipe; budgets of bytes where None.
        target: whose estimates of size and latency stand beside each point.
        target_options: the target's options; its defaults where None, and an unrolled core of
            ``netfpga``.
        out: the sweep's folder; ``sweeps/USE_CASE`` where None.
        replace: throw the results of another sweep in that folder away.
        progress: what is told while it goes on.
        **request: what all trainings have in common, attributes of
            :class:`~n3ic.usecases.request.TrainRequest`: ``data``, ``seeds``, ``jobs``, ...

    Raises:
        UsageError: an unknown name or option, or the folder is another sweep's.
        DataError: the data cannot be read or split.
    """
    from n3ic.systems.sweep.request import SweepRequest
    from n3ic.systems.sweep.training import sweep_use_case
    from n3ic.usecases.request import TrainRequest

    base = TrainRequest(use_case, **request)
    tried = {name: tuple(values) for name, values in (axes or {}).items()}
    asked = SweepRequest(base, tried, target, target_options, out, replace)
    return sweep_use_case(asked, progress)
