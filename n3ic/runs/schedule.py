# SPDX-License-Identifier: Apache-2.0
"""The trainings of a run, and their execution in parallel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from n3ic.data.split import SplitProtocol
from n3ic.errors import N3icError
from n3ic.runs.checkpoints import TrainingCheckpoints
from n3ic.runs.experiment import TrainingResult, train_shapes
from n3ic.runs.preparation import Experiment
from n3ic.runs.progress import TrainingProgress


@dataclass(frozen=True)
class TrainingJob:
    """Trainings on the same rows, which run together.

    Attributes:
        task: name of one of the use case's tables.
        protocol: how its rows are split.
        seed: seed of all random choices.
        shapes: neurons of the hidden layers of each network.
        with_baselines: whether the baselines are trained as well.
    """

    task: str
    protocol: SplitProtocol
    seed: int
    shapes: tuple[tuple[int, ...], ...]
    with_baselines: bool

    @property
    def key(self) -> tuple[str, str, int]:
        """The key of its results."""
        return self.task, self.protocol, self.seed


def schedule(
    tasks: Iterable[str],
    protocols: Sequence[SplitProtocol],
    seeds: Sequence[int],
    own: tuple[int, ...],
    other_shapes: tuple[tuple[int, ...], ...],
) -> list[TrainingJob]:
    """The trainings of a run, the longest first so that the cores finish together.

    Args:
        tasks: names of the use case's tables.
        protocols: how rows are split; the networks of the first are kept.
        seeds: the first is used for all protocols, the others for the first protocol.
        own: hidden layers of the kept networks.
        other_shapes: hidden layers of the networks with which they are compared.
    """
    names = list(tasks)
    main, *further = protocols
    units = [TrainingJob(task, main, seeds[0], (own, *other_shapes), True) for task in names]
    # For many networks, the other protocols are reported without baselines.
    units += [
        TrainingJob(task, which, seeds[0], (own,), len(names) == 1)
        for which in further
        for task in names
    ]
    return units + [TrainingJob(task, main, s, (own,), False) for s in seeds[1:] for task in names]


Found = dict[tuple[str, str, int], dict[tuple[int, ...], TrainingResult]]


def train_jobs(
    plan: Sequence[TrainingJob],
    tasks: Mapping[str, Experiment],
    progress: TrainingProgress,
    *,
    jobs: int | None,
    dask: str | None,
    parts: TrainingCheckpoints | None = None,
) -> Found:
    """Train all units.

    Args:
        plan: the units.
        tasks: experiment of each task; units replace protocol, seed, layers and baselines.
        progress: receives messages on the way.
        jobs: number of units trained at once; None for all cores.
        dask: address of a Dask scheduler whose workers train instead.
        parts: finished trainings, which are not repeated. If there are several units, each is kept
            there as soon as it is done.

    Returns:
        Results by task, protocol and seed, then by hidden layers.

    Raises:
        N3icError: a unit cannot be trained; the message names the task, if there are several.
    """
    calls = [(_experiment(tasks[unit.task], unit), unit) for unit in plan]
    out: Found = {}
    for own, unit in calls:
        if parts and (results := parts.find(own, unit.shapes)):
            out[unit.key] = results
    if out:
        progress.note(f"resuming: {len(out)} of {len(plan)} parts were trained before")
    left = [(own, unit) for own, unit in calls if unit.key not in out]
    for own, unit, results in _trained(left, progress, len(tasks) == 1, jobs, dask):
        out[unit.key] = results
        if parts and len(plan) > 1:  # a single training has no part to resume from
            parts.write(own, unit.shapes, results)
    return out


def _trained(
    calls: Sequence[tuple[Experiment, TrainingJob]],
    progress: TrainingProgress,
    here: bool,
    jobs: int | None,
    dask: str | None,
) -> Iterator[tuple[Experiment, TrainingJob, dict[tuple[int, ...], TrainingResult]]]:
    """Train the units that are left, in this process or in parallel."""
    if here and dask is None:
        for own, unit in calls:
            yield own, unit, _train_job(own, unit, progress)
        return
    if not calls:
        return
    from n3ic.util.parallel import parallel_map

    networks = sum(len(unit.shapes) for _, unit in calls)
    protocols = " and ".join(dict.fromkeys(unit.protocol for _, unit in calls))
    progress.begin(f"training {networks} networks ({protocols} split)", networks)
    for i, results in parallel_map(_train_job, calls, jobs=jobs, dask=dask):
        own, unit = calls[i]
        yield own, unit, results
        for _ in results:
            progress.task(unit.task)


def _experiment(experiment: Experiment, unit: TrainingJob) -> Experiment:
    return replace(
        experiment, protocol=unit.protocol, seed=unit.seed, with_baselines=unit.with_baselines
    )


def _train_job(
    experiment: Experiment, unit: TrainingJob, progress: TrainingProgress | None = None
) -> dict[tuple[int, ...], TrainingResult]:
    try:
        results = train_shapes(experiment, unit.shapes, progress)
        return dict(zip(unit.shapes, results, strict=True))
    except N3icError as error:
        if not unit.task:
            raise
        raise type(error)(f"{unit.task}: {error}") from error
