"""Sweeps over queues, shapes, thresholds and seeds, on the cores or on a Dask cluster."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from n3ic.datasets.ns3_tomography.recipes import RECIPES, SHAPES
from n3ic.datasets.ns3_tomography.report import QueueFigures, figures_of
from n3ic.datasets.ns3_tomography.table import THRESHOLD, queue_tables
from n3ic.errors import MissingDependencyError, N3icError

if TYPE_CHECKING:
    from n3ic.recipe import Recipe
    from n3ic.split import Protocol
    from n3ic.table import FlowTable


@dataclass(frozen=True)
class Entry:
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
    protocol: Protocol = "time",
    with_baselines: bool = False,
    jobs: int | None = None,
    dask: str | None = None,
    done: Callable[[int, int], object] | None = None,
) -> list[Entry]:
    """Train a network for every combination.

    Args:
        table: a table of this data set.
        recipe: how they are trained; its hidden layers are replaced. The default recipe if None.
        queue: ``all``, an index, a name, or several of them parted by commas.
        shapes: neurons of the hidden layers.
        thresholds: full packets above which a queue is congested.
        seeds: of the choice of bits and the training.
        protocol: how rows are split.
        with_baselines: whether the baselines are trained, too.
        jobs: networks that are trained at once on this machine; all cores if None.
        dask: address of a Dask scheduler (``tcp://host:8786``) whose workers have n3ic installed;
            this machine's cores if None.
        done: called with the number of finished networks and of all.

    Returns:
        One entry a network, in the order of thresholds, queues, shapes and seeds.

    Raises:
        MissingDependencyError: ``dask`` is given and distributed is not installed.
        N3icError: the scheduler cannot be reached.
        UsageError: a queue does not exist or cannot be learned.
    """
    from joblib import Parallel, delayed

    recipe = recipe or RECIPES["default"]
    plan = [
        (
            i,
            name,
            tab,
            replace(recipe, training=replace(recipe.training, hidden=tuple(shape))),
            t,
            s,
        )
        for i, (t, name, tab, shape, s) in enumerate(
            (t, name, tab, shape, s)
            for t in thresholds
            for name, tab in queue_tables(table, queue, t).items()
            for shape in shapes
            for s in seeds
        )
    ]
    found: dict[int, Entry] = {}
    with _workers(jobs, dask):
        parallel = Parallel(return_as="generator" if dask else "generator_unordered")
        for i, entry in parallel(delayed(_one)(*item, protocol, with_baselines) for item in plan):
            found[i] = entry
            if done:
                done(len(found), len(plan))
    return [found[i] for i in range(len(plan))]


def _one(
    index: int,
    queue: str,
    table: FlowTable,
    recipe: Recipe,
    threshold: float,
    seed: int,
    protocol: Protocol,
    with_baselines: bool,
) -> tuple[int, Entry]:
    from n3ic.pipeline import train

    result = train(
        table,
        recipe,
        protocol=protocol,
        seed=seed,
        name=f"tomography-{queue}",
        with_baselines=with_baselines,
    )
    return index, Entry(threshold, seed, figures_of(queue, result))


@contextmanager
def _workers(jobs: int | None, dask: str | None) -> Iterator[None]:
    from joblib import parallel_config

    if dask is None:
        count = jobs or os.cpu_count() or 1
        with parallel_config("loky", n_jobs=count, inner_max_num_threads=1):
            yield
        return
    try:
        from distributed import Client
    except ImportError as error:
        raise MissingDependencyError(
            "a sweep on a Dask cluster needs distributed; install it with: "
            "pip install 'n3ic[cluster]'"
        ) from error
    try:
        client = Client(dask, timeout="10s")
    except (OSError, ValueError, TimeoutError) as error:
        raise N3icError(f"no Dask scheduler answers at {dask}: {error}") from error
    with client, parallel_config("dask"):
        yield
