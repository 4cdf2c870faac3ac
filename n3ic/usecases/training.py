# SPDX-License-Identifier: Apache-2.0
"""Train a use case: from its data to a run folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from n3ic import __version__
from n3ic.errors import UsageError
from n3ic.evaluation.held_out import held_out
from n3ic.evaluation.plugin import evaluations
from n3ic.runs.checkpoints import training_checkpoints
from n3ic.runs.experiment import TrainingResult
from n3ic.runs.folder import METRICS, MODEL, OPTIONS, Run, load_metrics
from n3ic.runs.pictures.writing import write_pictures
from n3ic.runs.progress import TrainingProgress
from n3ic.runs.report import metrics_of, summary_markdown
from n3ic.runs.schedule import schedule, train_jobs
from n3ic.usecases.request import TrainRequest, command_words
from n3ic.usecases.training_data import read_training_data
from n3ic.util.files import being_written, new_directory, write_atomic
from n3ic.util.json_text import json_text
from n3ic.util.names import path_component


def train_use_case(request: TrainRequest, progress: TrainingProgress | None = None) -> Run:
    """Train a use case and write a complete run folder, or none.

    Finished trainings of several networks, seeds or protocols are kept beside the run's folder
    until the run is written, so that the same request resumes after an interruption.

    Args:
        request: the use case, the recipe, the data and the folder.
        progress: receives messages on the way.

    Raises:
        UsageError: a name or option is unknown, or ``request.out`` exists.
        DataError: the data cannot be read or split.
        MissingDependencyError: ``request.dask`` is given and distributed is not installed.
    """
    target = _target(request.out, request.use_case, request.replace)
    progress = progress or TrainingProgress()
    data = read_training_data(request, progress)
    case, options, table, tasks = data.case, data.options, data.table, data.tasks
    n_classes = data.n_classes
    recipe = request.chosen_recipe(case, n_classes)
    columns = [asdict(use) for use in data.column_uses(recipe)]
    progress.columns(columns)
    main, *further = data.protocols
    own = recipe.training.hidden
    other_shapes = tuple(shape for shape in case.shapes(options) if shape != own)
    seed, *more_seeds = range(request.seed, request.seed + request.seeds)
    plan = schedule(tasks, [main, *further], [seed, *more_seeds], own, other_shapes)
    rivals = request.rivals(case, n_classes)
    sites = request.site_budget(case)
    experiments = data.experiments(recipe, request.budget_bytes, rivals, sites)
    # Only files that n3ic wrote may go with an old run; any other one prevents its replacement.
    written = _written(target) if target.exists() else []
    with (
        new_directory(target, replace=request.replace, written=written) as directory,
        training_checkpoints(target, progress.note) as parts,
    ):
        results_of = train_jobs(
            plan, experiments, progress, jobs=request.jobs, dask=request.dask, parts=parts
        )
        every: dict[str, dict[str, TrainingResult]] = {
            which: {task: results_of[task, which, seed][own] for task in tasks}
            for which in (main, *further)
        }
        results = every[main]
        compared = {
            shape: {task: results_of[task, main, seed][shape] for task in tasks}
            for shape in other_shapes
        }
        repeated = [{task: results_of[task, main, s][own] for task in tasks} for s in more_seeds]
        progress.stage("measuring the importance of features")
        samples = {
            task: held_out(r.model, experiments[task].table, positive=r.positive)
            for task, r in results.items()
        }
        importance = {task: of.importance() for task, of in samples.items()}
        metrics = metrics_of(case.name, case.group, table, seed, every, repeated, importance)
        metrics["columns"] = columns
        for task, of in samples.items():
            entry = metrics[case.group][task] if task else metrics
            if points := of.by_packet():
                entry["by_packet"] = points
            further_figures = {
                name: evaluation.figures(of, seed) for name, evaluation in evaluations().items()
            }
            entry |= {name: figures for name, figures in further_figures.items() if figures}
        models = _write_models(directory, results)
        if request.config is not None:
            write_atomic(directory / request.config.name, request.config.content)
        write_atomic(
            directory / OPTIONS,
            json_text(
                {
                    "command": command_words(request, case, recipe, options, main, n_classes),
                    "use_case": case.name,
                    "recipe": recipe.to_dict(),
                    "options": dict(options),
                    "protocol": main,
                    "seed": request.seed,
                    "seeds": request.seeds,
                    **({"input_of": _digests(request)} if request.input_models else {}),
                    "tool": f"n3ic {__version__}",
                }
            ),
        )
        progress.begin("drawing", len(results))
        metrics |= case.finish(directory, table, results, options, compared)
        for task, result in results.items():
            pictures = directory / "plots" / (path_component(task) if task else "")
            write_pictures(pictures, result, samples[task], importance[task])
            progress.task(task)
        page = summary_markdown(metrics, case.group) + _links(directory)
        write_atomic(directory / "report.md", page)
        files = (p for p in directory.rglob("*") if p.is_file())
        metrics["files"] = sorted([METRICS, *(p.relative_to(directory).as_posix() for p in files)])
        write_atomic(directory / METRICS, json_text(metrics))
    return Run(target, metrics, {task: target / path for task, path in models.items()})


def _digests(request: TrainRequest) -> dict[str, str]:
    """Digests of the networks whose input is kept, by name."""
    return {name: model.digest for name, model in request.input_models.items()}


def _target(out: str | Path | None, name: str, replace: bool) -> Path:
    if out is not None:
        target = Path(out)
        if target.exists() and not replace:
            raise UsageError(f"{target} exists: name another folder, or add --replace")
        if target.exists() and not (target / METRICS).is_file():
            raise UsageError(f"{target} exists and is not a run; it is left as it is")
        return target
    base = Path("runs") / path_component(name)
    target, i = base, 2
    while (target.exists() and not replace) or being_written(target):
        target, i = base.with_name(f"{base.name}-{i}"), i + 1
    return target


def _written(run: Path) -> list[str]:
    """Files of a run folder that n3ic wrote; ``metrics.json`` lists them, except in runs of 0.1."""
    files = load_metrics(run).get("files")
    if isinstance(files, list):
        return [str(name) for name in files]
    kinds = (".n3ic", ".json", ".md", ".png")
    return [p.relative_to(run).as_posix() for p in run.rglob("*") if p.suffix in kinds]


def _write_models(directory: Path, results: Mapping[str, TrainingResult]) -> dict[str, str]:
    if set(results) == {""}:
        results[""].model.save(directory / MODEL)
        return {"": MODEL}
    (directory / "models").mkdir()
    paths = {}
    for task, result in results.items():
        paths[task] = f"models/{path_component(task)}.n3ic"
        result.model.save(directory / paths[task])
    return paths


def _links(directory: Path) -> str:
    """Links to a run's own pages and pictures, without those of single networks."""
    pages = [f"- [{p.name}]({p.name})" for p in sorted(directory.glob("*.md"))]
    pictures = [f"![{p.stem}](plots/{p.name})" for p in sorted((directory / "plots").glob("*.png"))]
    return "".join(f"\n{line}\n" for line in (*pages, *pictures))
