# SPDX-License-Identifier: Apache-2.0
"""Sweeps over queues, shapes, thresholds and seeds, on the cores or on a Dask cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from n3ic.datasets.ns3_tomography.recipes import RECIPES, SHAPES
from n3ic.datasets.ns3_tomography.report import QueueFigures, figures_of
from n3ic.datasets.ns3_tomography.table import THRESHOLD, queue_tables
from n3ic.util.parallel import parallel_map

if TYPE_CHECKING:
    from n3ic.data.split import SplitProtocol
    from n3ic.data.table import FlowTable
    from n3ic.training.recipe import Recipe


@dataclass(frozen=True)
class SweepEntry:
    """One network of a sweep."""

    threshold: float
    seed: int
    figures: QueueFigures

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"threshold": self.threshold, "seed": self.seed, **asdict(self.figures)}


def sweep(
    table: FlowTable,
    *,
    recipe: Recipe | None = None,
    queue: str = "all",
    shapes: Sequence[tuple[int, ...]] = SHAPES,
    thresholds: Sequence[float] = (THRESHOLD,),
    seeds: Sequence[int] = (0,),
    protocol: SplitProtocol = "time",
    with_baselines: bool = False,
    jobs: int | None = None,
    dask: str | None = None,
    done: Callable[[int, int], object] | None = None,
) -> list[SweepEntry]:
    """Train a network for every combination.

    Args:
        table: a table of this data set.
        recipe: recipe of the networks, whose hidden layers are replaced; None for the default one.
        queue: ``all``, an index, a name, or several of them separated by commas.
        shapes: neurons of the hidden layers.
        thresholds: full packets above which a queue is congested.
        seeds: seeds of the choice of bits and of the training.
        protocol: how rows are split.
        with_baselines: whether to train the baselines too.
        jobs: number of networks trained at once on this machine; None for one per core.
        dask: address of a Dask scheduler (``tcp://host:8786``) whose workers have n3ic installed;
            None to use this machine's cores.
        done: called with the number of finished networks and the total.

    Returns:
        One entry per network, ordered by threshold, queue, seed and shape.

    Raises:
        MissingDependencyError: ``dask`` is given, but distributed is not installed.
        N3icError: the scheduler cannot be reached.
        UsageError: a queue does not exist or cannot be learned.
    """
    recipe = recipe or RECIPES["default"]
    shapes = [tuple(shape) for shape in shapes]
    plan = [
        (name, labelled, recipe, shapes, t, s, protocol, with_baselines)
        for t in thresholds
        for name, labelled in queue_tables(table, queue, t).items()
        for s in seeds
    ]
    found: dict[int, list[SweepEntry]] = {}
    for i, entries in parallel_map(_train_one, plan, jobs=jobs, dask=dask):
        found[i] = entries
        if done:
            done(len(found) * len(shapes), len(plan) * len(shapes))
    return [entry for i in range(len(plan)) for entry in found[i]]


def _train_one(
    queue: str,
    table: FlowTable,
    recipe: Recipe,
    shapes: Sequence[tuple[int, ...]],
    threshold: float,
    seed: int,
    protocol: SplitProtocol,
    with_baselines: bool,
) -> list[SweepEntry]:
    from n3ic.runs.experiment import train_shapes
    from n3ic.runs.preparation import Experiment

    experiment = Experiment(
        table,
        recipe,
        protocol=protocol,
        seed=seed,
        name=f"tomography-{queue}",
        with_baselines=with_baselines,
    )
    results = train_shapes(experiment, shapes)
    return [SweepEntry(threshold, seed, figures_of(queue, result)) for result in results]
