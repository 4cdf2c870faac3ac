"""What a run trains, and its trainings side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from n3ic.data.split import SplitProtocol
from n3ic.data.table import FlowTable
from n3ic.errors import N3icError
from n3ic.runs.experiment import Result, StageCallback, train_shapes
from n3ic.training.recipe import Recipe

if TYPE_CHECKING:
    from n3ic.training.loop import EpochCallback


def _ignored(*_: object) -> None:
    """Tell nobody."""


@dataclass(frozen=True)
class TrainingProgress:
    """What is told while training goes on.

    Attributes:
        epoch: called after every epoch.
        stage: called with a line about each step.
        begin: called with a line about a step of several tasks, and how many they are.
        task: called with the name of each of these tasks that is done.
    """

    epoch: EpochCallback = _ignored
    stage: StageCallback = _ignored
    begin: Callable[[str, int], None] = _ignored
    task: Callable[[str], None] = _ignored


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
    tasks: Mapping[str, FlowTable],
    recipe: Recipe,
    name: str,
    progress: TrainingProgress,
    *,
    jobs: int | None,
    dask: str | None,
) -> Found:
    """Train all units.

    Args:
        plan: what is to be trained.
        tasks: the tables by task.
        recipe: how; its hidden layers are replaced by each unit's.
        name: of the use case; it begins the models' names.
        progress: what is told meanwhile.
        jobs: units that are trained at once; all cores if None.
        dask: address of a Dask scheduler whose workers train instead.

    Returns:
        Results by task, protocol and seed, then by hidden layers.

    Raises:
        N3icError: a unit cannot be trained; its task is named where there are several.
    """

    def call(unit: Job) -> tuple[FlowTable, Recipe, Job, str]:
        return tasks[unit.task], recipe, unit, f"{name}-{unit.task}" if unit.task else name

    out: Found = {}
    if len(tasks) == 1 and dask is None:
        for unit in plan:
            out[unit.task, unit.protocol, unit.seed] = _train_job(
                *call(unit), progress=progress.epoch, stage=progress.stage
            )
        return out
    from n3ic.runs.parallel import each

    networks = sum(len(unit.shapes) for unit in plan)
    protocols = " and ".join(dict.fromkeys(unit.protocol for unit in plan))
    progress.begin(f"training {networks} networks ({protocols} split)", networks)
    for i, results in each(_train_job, map(call, plan), jobs=jobs, dask=dask):
        unit = plan[i]
        out[unit.task, unit.protocol, unit.seed] = results
        for _ in results:
            progress.task(unit.task)
    return out


def _train_job(
    table: FlowTable,
    recipe: Recipe,
    unit: Job,
    name: str,
    *,
    progress: EpochCallback | None = None,
    stage: StageCallback | None = None,
) -> dict[tuple[int, ...], Result]:
    results = train_shapes(
        table,
        recipe,
        unit.shapes,
        protocol=unit.protocol,
        seed=unit.seed,
        name=name,
        with_baselines=unit.with_baselines,
        progress=progress,
        stage=stage,
    )
    try:
        return dict(zip(unit.shapes, results, strict=True))
    except N3icError as error:
        if not unit.task:
            raise
        raise type(error)(f"{unit.task}: {error}") from error
