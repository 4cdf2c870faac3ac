# SPDX-License-Identifier: Apache-2.0
"""Train the networks of a sweep in parallel, and resume an earlier call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from n3ic import __version__
from n3ic.errors import UsageError
from n3ic.evaluation.study import write_result
from n3ic.options import Options
from n3ic.runs.checkpoints import experiment_digest, table_digest
from n3ic.runs.experiment import train
from n3ic.runs.preparation import Experiment
from n3ic.runs.progress import TrainingProgress
from n3ic.runs.report import memory_of, values_text
from n3ic.studies.sweep.folder import PAGE, PICTURE, POINTS, SweepFolder, sweep_folder
from n3ic.studies.sweep.request import SweepNetwork, SweepRequest, sweep_networks
from n3ic.studies.sweep.result import SeedFigures, Sweep, points_of
from n3ic.targets.base import Exporter, exporter
from n3ic.targets.estimates import estimates
from n3ic.targets.figures import NANOSECONDS
from n3ic.training.recipe import Recipe
from n3ic.usecases.training_data import TrainingData, read_training_data
from n3ic.util.names import path_component
from n3ic.util.parallel import parallel_map


def sweep_use_case(request: SweepRequest, progress: TrainingProgress | None = None) -> Sweep:
    """Train networks of many sizes and find those that are worth their cost.

    Each training is written into the sweep's folder as soon as it is done, and the same request
    resumes there. Accuracy on validation rows chooses; accuracy on test rows is reported only for
    the networks on the fronts.

    Args:
        request: the networks, the data and the folder.
        progress: receives messages on the way.

    Raises:
        UsageError: a name or option is unknown, no network is possible, or the folder holds
            another sweep.
        DataError: the data cannot be read or split.
        MissingDependencyError: a Dask scheduler is given and distributed is not installed.
    """
    progress = progress or TrainingProgress()
    base, tool = request.base, exporter(request.target)
    options = tool.parse_options(request.target_values)
    # The base class estimates nothing, and without estimates there is no front to find.
    if type(tool).estimate is Exporter.estimate:
        raise UsageError(f"target {tool.name} cannot estimate a model before its export")
    data = read_training_data(base, progress)
    networks, left_out = sweep_networks(request, data)
    out = Path(request.out or Path("sweeps") / path_component(data.case.name))
    identity = _identity(request, data, options)
    seeds = range(base.seed, base.seed + base.seeds)
    with sweep_folder(out, identity, request.replace, progress.note) as folder:
        trainings = {
            (i, task, seed): replace(experiment, seed=seed, with_baselines=False)
            for i, network in enumerate(networks)
            for task, experiment in data.experiments(
                network.recipe, network.budget, network.rivals
            ).items()
            for seed in seeds
        }
        digests = {
            key: experiment_digest(experiment, rows=identity["data"][key[1]])
            for key, experiment in trainings.items()
        }
        # By digest: networks that share a task, a recipe and a seed are trained once.
        calls = {
            digests[key]: (experiment, tool.name, request.target_values)
            for key, experiment in trainings.items()
        }
        figures = _measured(calls, folder, progress, base.jobs, base.dask)
        trained: list[tuple[SweepNetwork, Mapping[str, tuple[SeedFigures, ...]]]] = []
        for i, network in enumerate(networks):
            every = {task: [figures[digests[i, task, s]] for s in seeds] for task in data.tasks}
            why = [f for runs in every.values() for f in runs if isinstance(f, str)]
            if why:
                # One refused training makes the point incomparable, so the whole network is left
                # out.
                left_out.append(f"left out {values_text(network.values)}: {why[0]}")
                continue
            runs = {t: tuple(f for f in e if isinstance(f, SeedFigures)) for t, e in every.items()}
            trained.append((network, runs))
        for line in left_out:
            progress.note(line)
        if not trained:
            raise UsageError(f"none of these networks can be trained; {left_out[-1]}")
        title = (
            f"{data.case.name}, {data.protocols[0]} split of {len(data.table):,} rows "
            f"({data.table.name}), {base.seeds} seed{'s' if base.seeds > 1 else ''}"
        )
        by = (f"target {tool.name}", values_text(request.target_values), tool.device.name)
        source = ", ".join(filter(None, by))
        sweep = Sweep(out, title, points_of(trained), source, tuple(left_out))
        progress.stage("drawing")
        write_result(sweep, out / POINTS)
        write_result(sweep, out / PAGE, out / PICTURE)
    return sweep


def _identity(request: SweepRequest, data: TrainingData, options: Options) -> dict[str, Any]:
    """Return the values that decide a sweep, as plain data; paths do not decide it."""
    base = request.base
    recipe = base.recipe.to_dict() if isinstance(base.recipe, Recipe) else base.recipe
    return {
        "tool": f"n3ic {__version__}",
        "use case": data.case.name,
        # The rows count, not their path: a file that was moved resumes, one that was edited does
        # not.
        "data": {task: table_digest(rows) for task, rows in data.tasks.items()},
        "recipe": recipe,
        "protocol": data.protocols[0],
        "seed": base.seed,
        "seeds": base.seeds,
        "options": dict(data.options),
        "budget": base.budget_bytes,
        "fixed": dict(base.overrides),
        "swept": {name: list(values) for name, values in request.grid.items()},
        "target": request.target,
        "target options": dict(options),
    }


def _measured(
    calls: Mapping[str, tuple[Experiment, str, Options]],
    folder: SweepFolder,
    progress: TrainingProgress,
    jobs: int | None,
    dask: str | None,
) -> dict[str, SeedFigures | str]:
    """Return the figures of all trainings: finished ones are read, others trained and written.

    Args:
        calls: arguments of :func:`measure` by the digest of a training.
        folder: the sweep's folder.
        progress: receives messages on the way.
        jobs: number of trainings at once; None for all cores.
        dask: address of a Dask scheduler whose workers train instead.

    Returns:
        Figures by digest, or the reason why a training is impossible.
    """
    before = {digest: folder.find(digest) for digest in calls}
    figures_of: dict[str, SeedFigures | str] = {
        digest: f for digest, f in before.items() if f is not None
    }
    if figures_of:
        progress.note(f"{len(figures_of)} of {len(calls)} networks were trained before; going on")
    left = [digest for digest in calls if digest not in figures_of]
    if left:
        progress.begin(f"training {len(left)} networks", len(left))
    for i, figures in (
        parallel_map(measure, [calls[d] for d in left], jobs=jobs, dask=dask) if left else ()
    ):
        figures_of[left[i]] = figures
        if isinstance(figures, SeedFigures):
            # Kept at once, so an interruption loses only the trainings under way.
            folder.write(left[i], figures)
        experiment = calls[left[i]][0]
        progress.task(f"{experiment.name}, seed {experiment.seed}")
    return figures_of


def measure(experiment: Experiment, target: str, options: Options) -> SeedFigures | str:
    """Train a network and estimate its costs.

    Args:
        experiment: the experiment.
        target: the target that estimates its size and latency.
        options: the target's options that differ from its defaults.

    Returns:
        The figures, or the reason why the recipe does not fit the table.
    """
    try:
        result = train(experiment)
    except UsageError as error:
        return str(error)
    model = result.model
    figures = {f.name: f for f in estimates(model, target, options)}
    latency, sites = figures.get("latency"), figures.get("lut_sites")
    return SeedFigures(
        shape=model.shape,
        sha256=model.digest,
        memory=memory_of(model),
        sites=None if sites is None else float(sites.value),
        latency_ns=None if latency is None else latency.value * NANOSECONDS[latency.unit],
        validation=result.validation.accuracy,
        test=result.test.accuracy,
        beside={c.name: (c.bytes, c.accuracy) for c in result.candidates if not c.kept},
    )
