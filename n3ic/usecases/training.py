"""Training a use case: from its data to a run folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from n3ic import __version__
from n3ic.data.split import PROTOCOLS, SplitProtocol, protocols_of
from n3ic.data.table import FlowTable
from n3ic.errors import DataError, UsageError
from n3ic.options import OptionValue, parse_options
from n3ic.runs.experiment import Result
from n3ic.runs.folder import METRICS, MODEL, Run
from n3ic.runs.plots import write_plots
from n3ic.runs.report import metrics_of, summary_markdown
from n3ic.runs.schedule import TrainingProgress, schedule, train_jobs
from n3ic.training.recipe import Recipe
from n3ic.usecases.base import UseCase, load_table, use_case
from n3ic.util.files import new_directory, write_atomic
from n3ic.util.json_text import json_text
from n3ic.util.names import path_component


def train_use_case(
    name: str,
    *,
    data: str | Path | None = None,
    table: FlowTable | None = None,
    recipe: str | Recipe = "default",
    overrides: Mapping[str, Any] | None = None,
    options: Mapping[str, OptionValue] | None = None,
    protocol: SplitProtocol | None = None,
    seed: int = 0,
    seeds: int = 1,
    out: str | Path | None = None,
    replace: bool = False,
    jobs: int | None = None,
    dask: str | None = None,
    watch: TrainingProgress | None = None,
) -> Run:
    """Train a use case and write its run folder, whole or not at all.

    Args:
        name: the use case, such as ``anomaly``.
        data: files to train on; the embedded default where None.
        table: a table that is loaded already, instead of ``data``.
        recipe: a recipe of the use case by name, or one of your own.
        overrides: values of the recipe that are replaced.
        options: the use case's own options.
        protocol: how the rows are split; the use case's default where None. The network of
            this protocol is kept; the other protocols that the data allows are reported.
        seed: of everything random.
        seeds: how many seeds to report mean and deviation over, ``seed`` the first.
        out: the folder; ``runs/NAME`` where None, numbered if that exists.
        replace: replace ``out`` if it is a run already.
        jobs: networks that are trained at once, for a use case of several; all cores if None.
        dask: address of a Dask scheduler (``tcp://host:8786``) whose workers have n3ic installed
            and train instead of this machine.
        watch: what is told while it goes on.

    Raises:
        UsageError: an unknown name or option, or ``out`` exists.
        DataError: the data cannot be read or split.
        MissingDependencyError: ``dask`` is given and distributed is not installed.
    """
    case = use_case(name)
    own = parse_options(case.options, options or {}, case.name)
    chosen = _recipe(case, recipe).with_options(overrides or {})
    if protocol is not None and protocol not in PROTOCOLS:
        raise UsageError(f"unknown protocol {protocol!r}; known: {', '.join(PROTOCOLS)}")
    target = _target(out, name, replace)
    watch = watch or TrainingProgress()
    if watch.stage:
        watch.stage("loading data")
    table = load_table(case, data) if table is None else table
    tasks = case.tasks(table, own)
    if not tasks:
        raise UsageError(f"{name}: the options leave no network to train")
    if set(tasks) != {""} and not case.group:
        raise UsageError(f"the use case {name} has several networks and no word for one (group)")
    allowed = protocols_of(table)
    main = protocol or (case.protocol if case.protocol in allowed else "random")
    if main not in allowed:
        raise DataError(
            f"protocol {main!r} is not possible with {table.name}; it allows {', '.join(allowed)}"
        )
    own_shape = chosen.training.hidden
    others = tuple(shape for shape in case.shapes(own) if shape != own_shape)
    plan = schedule(tasks, allowed, main, range(seed, seed + seeds), own_shape, others)
    with new_directory(target, replace=replace) as directory:
        found = train_jobs(plan, tasks, chosen, name, watch, jobs=jobs, dask=dask)
        every: dict[str, dict[str, Result]] = {
            which: {task: found[task, which, seed][own_shape] for task in tasks}
            for which in (main, *(p for p in allowed if p != main))
        }
        results = every[main]
        compared = {
            shape: {task: found[task, main, seed][shape] for task in tasks} for shape in others
        }
        repeated = [
            {task: found[task, main, s][own_shape] for task in tasks}
            for s in range(seed + 1, seed + seeds)
        ]
        metrics = metrics_of(name, case.group, table, chosen, main, seed, every, repeated)
        models = _write_models(directory, results)
        write_atomic(
            directory / "options.json",
            json_text(
                {
                    "command": _command(
                        name, data, chosen.name, overrides or {}, own, main, seed, seeds
                    ),
                    "use_case": name,
                    "recipe": chosen.to_dict(),
                    "options": dict(own),
                    "protocol": main,
                    "seed": seed,
                    "seeds": seeds,
                    "tool": f"n3ic {__version__}",
                }
            ),
        )
        if watch.begin:
            watch.begin("drawing", len(results))
        metrics |= case.finish(directory, table, results, own, compared)
        for task, result in results.items():
            pictures = directory / "plots"
            write_plots(pictures / path_component(task) if task else pictures, result, table)
            if watch.task:
                watch.task(task)
        write_atomic(directory / METRICS, json_text(metrics))
        write_atomic(
            directory / "report.md", summary_markdown(metrics, case.group) + _links(directory)
        )
    return Run(target, metrics, {task: target / path for task, path in models.items()})


def _recipe(case: UseCase, recipe: str | Recipe) -> Recipe:
    if isinstance(recipe, Recipe):
        return recipe
    if recipe not in case.recipes:
        raise UsageError(f"{case.name} has no recipe {recipe!r}; it has {', '.join(case.recipes)}")
    return case.recipes[recipe]


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
    while target.exists() and not replace:
        target, i = base.with_name(f"{base.name}-{i}"), i + 1
    return target


def _command(
    name: str,
    data: str | Path | None,
    recipe: str,
    overrides: Mapping[str, Any],
    options: Mapping[str, OptionValue],
    protocol: str,
    seed: int,
    seeds: int,
) -> list[str]:
    """The words of a command line that gives the same run."""
    out = ["n3ic", "train", name, "--recipe", recipe]
    if data is not None:
        out += ["--data", str(data)]
    for key, value in {**overrides, **options}.items():
        option = f"--{key.replace('_', '-')}"
        if isinstance(value, bool) and key in overrides:
            out.append(option if value else option.replace("--", "--no-", 1))
        elif value is not None:
            shown = ",".join(map(str, value)) if isinstance(value, tuple | list) else str(value)
            out += [option, shown]
    return [*out, "--protocol", protocol, "--seed", str(seed), "--seeds", str(seeds)]


def _write_models(directory: Path, results: Mapping[str, Result]) -> dict[str, str]:
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
    """The pictures and pages of a run itself, not those of each of its networks."""
    pages = [f"- [{p.name}]({p.name})" for p in sorted(directory.glob("*.md"))]
    pictures = [f"![{p.stem}](plots/{p.name})" for p in sorted((directory / "plots").glob("*.png"))]
    return "".join(f"\n{line}\n" for line in (*pages, *pictures))
