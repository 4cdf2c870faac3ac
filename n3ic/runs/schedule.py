"""What a run trains, and its trainings side by side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from n3ic.data.split import SplitProtocol
from n3ic.errors import N3icError
from n3ic.runs.experiment import Result, train_shapes
from n3ic.runs.preparation import Experiment
from n3ic.runs.progress import TrainingProgress

if TYPE_CHECKING:
    pass


@dataclass(frozen=True)
class Job:
    """Trainings on the same rows, which are done together.

    Attributes:
        task: one of the use case's tables.
        protocol: how its rows are split.
        seed: of everything random.
        shapes: neurons of the hidden layers of each network.
        with_baselines: whether the baselines are trained, too.
    """

    task: str
    protocol: SplitProtocol
    seed: int
    shapes: tuple[tuple[int, ...], ...]
    with_baselines: bool


def schedule(
    tasks: Iterable[str],
    protocols: Sequence[SplitProtocol],
    seeds: Sequence[int],
    own: tuple[int, ...],
    others: tuple[tuple[int, ...], ...],
) -> list[Job]:
    """What a run trains: the longest first, so that no core is left with it at the end.

    Args:
        tasks: names of the use case's tables.
        protocols: how rows are split; the networks of the first are kept.
        seeds: the first for all protocols, the others for the first of these.
        own: hidden layers of the networks that are kept.
        others: hidden layers that they are compared with.
    """
    names = list(tasks)
    main, *further = protocols
    units = [Job(task, main, seeds[0], (own, *others), True) for task in names]
    # for many networks, the other protocols are reported without their baselines
    units += [
        Job(task, which, seeds[0], (own,), len(names) == 1) for which in further for task in names
    ]
    return units + [Job(task, main, s, (own,), False) for s in seeds[1:] for task in names]


Found = dict[tuple[str, str, int], dict[tuple[int, ...], Result]]


def train_jobs(
    plan: Sequence[Job],
    tasks: Mapping[str, Experiment],
    progress: TrainingProgress,
    *,
    jobs: int | None,
    dask: str | None,
) -> Found:
    """Train all units.

    Args:
        plan: what is to be trained.
        tasks: what is trained of each task; protocol, seed, hidden layers and whether baselines
            are trained are replaced by each unit's.
        progress: what is told meanwhile.
        jobs: units that are trained at once; all cores if None.
        dask: address of a Dask scheduler whose workers train instead.

    Returns:
        Results by task, protocol and seed, then by hidden layers.

    Raises:
        N3icError: a unit cannot be trained; its task is named where there are several.
    """
    out: Found = {}
    if len(tasks) == 1 and dask is None:
        for unit in plan:
            out[unit.task, unit.protocol, unit.seed] = _train_job(tasks[unit.task], unit, progress)
        return out
    from n3ic.util.parallel import each

    networks = sum(len(unit.shapes) for unit in plan)
    protocols = " and ".join(dict.fromkeys(unit.protocol for unit in plan))
    progress.begin(f"training {networks} networks ({protocols} split)", networks)
    calls = ((tasks[unit.task], unit) for unit in plan)
    for i, results in each(_train_job, calls, jobs=jobs, dask=dask):
        unit = plan[i]
        out[unit.task, unit.protocol, unit.seed] = results
        for _ in results:
            progress.task(unit.task)
    return out


def _train_job(
    experiment: Experiment, unit: Job, progress: TrainingProgress | None = None
) -> dict[tuple[int, ...], Result]:
    own = replace(
        experiment, protocol=unit.protocol, seed=unit.seed, with_baselines=unit.with_baselines
    )
    try:
        return dict(zip(unit.shapes, train_shapes(own, unit.shapes, progress), strict=True))
    except N3icError as error:
        if not unit.task:
            raise
        raise type(error)(f"{unit.task}: {error}") from error
