"""Runs: a folder with the model, its metrics, the options that reproduce it, and pictures."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from n3ic import __version__, plugins
from n3ic.errors import DataError, UsageError
from n3ic.export import OptionValue
from n3ic.files import new_directory, write_atomic
from n3ic.model import BinaryModel
from n3ic.names import path_component
from n3ic.pipeline import Result, Stage, train
from n3ic.plots import write_plots
from n3ic.recipe import Recipe
from n3ic.split import PROTOCOLS, Protocol, duplicate_share, protocols_of
from n3ic.table import FlowTable

if TYPE_CHECKING:
    from n3ic.dataset import DataSet, UseCase
    from n3ic.train.fit import Progress

METRICS = "metrics.json"
MODEL = "model.n3ic"
METRICS_VERSION = 1


@dataclass(frozen=True)
class Run:
    """A run folder.

    Attributes:
        path: the folder.
        metrics: what ``metrics.json`` holds.
        models: model files, by task; one unnamed for a use case of one network.
    """

    path: Path
    metrics: Mapping[str, Any]
    models: Mapping[str, Path]


@dataclass(frozen=True)
class Watch:
    """What is told while training goes on; each may be None.

    Attributes:
        epoch: called after every epoch.
        stage: called with a line about each step.
        task: called with each finished task's name, and how many there are.
    """

    epoch: Progress | None = None
    stage: Stage | None = None
    task: Callable[[str, int], None] | None = None


def use_case(name: str) -> UseCase:
    """The use case of that name.

    Raises:
        UsageError: there is none; the text lists them.
    """
    from n3ic.dataset import UseCase

    found = plugins.load("n3ic.usecases", name)
    if not isinstance(found, UseCase):
        raise UsageError(f"the plug-in {name!r} is not an n3ic UseCase")
    return found


def load_table(case: UseCase, data: str | Path | None) -> FlowTable:
    """The table of a use case: the user's files, or the embedded default.

    Raises:
        DataError: the files are not what they should be.
    """
    source: DataSet = plugins.load("n3ic.datasets", case.default if data is None else case.dataset)
    return source.load(data)


def train_use_case(
    name: str,
    *,
    data: str | Path | None = None,
    table: FlowTable | None = None,
    recipe: str | Recipe = "default",
    overrides: Mapping[str, Any] | None = None,
    options: Mapping[str, OptionValue] | None = None,
    protocol: Protocol | None = None,
    seed: int = 0,
    seeds: int = 1,
    out: str | Path | None = None,
    replace: bool = False,
    jobs: int | None = None,
    watch: Watch | None = None,
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
        watch: what is told while it goes on.

    Raises:
        UsageError: an unknown name or option, or ``out`` exists.
        DataError: the data cannot be read or split.
    """
    case = use_case(name)
    own = _own_options(case, options or {})
    chosen = _recipe(case, recipe).with_options(overrides or {})
    if protocol is not None and protocol not in PROTOCOLS:
        raise UsageError(f"unknown protocol {protocol!r}; known: {', '.join(PROTOCOLS)}")
    target = _target(out, name, replace)
    watch = watch or Watch()
    if watch.stage:
        watch.stage("loading data")
    table = load_table(case, data) if table is None else table
    tasks = case.tasks(table, own)
    if not tasks:
        raise UsageError(f"{name}: the options leave no network to train")
    allowed = protocols_of(table)
    main = protocol or (case.protocol if case.protocol in allowed else "random")
    if main not in allowed:
        raise DataError(
            f"protocol {main!r} is not possible with {table.name}; it allows {', '.join(allowed)}"
        )
    with new_directory(target, replace=replace) as directory:
        every: dict[str, dict[str, Result]] = {}
        for which in (main, *(p for p in allowed if p != main)):
            # for many networks, the other protocols are reported without their baselines
            beside = which == main or len(tasks) == 1
            every[which] = _train_all(
                tasks, chosen, which, seed, name, jobs, watch, with_baselines=beside
            )
        results = every[main]
        repeated = [
            _train_all(tasks, chosen, main, s, name, jobs, watch, with_baselines=False)
            for s in range(seed + 1, seed + seeds)
        ]
        metrics = _metrics(case, table, chosen, main, seed, every, repeated)
        models = _write_models(directory, results)
        write_atomic(
            directory / "options.json",
            _json(
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
        if watch.stage:
            watch.stage("drawing")
        metrics |= case.finish(directory, table, results, own)
        for task, result in results.items():
            pictures = directory / "plots"
            write_plots(pictures / path_component(task) if task else pictures, result, table)
        write_atomic(directory / METRICS, _json(metrics))
        write_atomic(
            directory / "report.md", summary_markdown(metrics, case.group) + _links(directory)
        )
    return Run(target, metrics, {task: target / path for task, path in models.items()})


def _train_all(
    tasks: Mapping[str, FlowTable],
    recipe: Recipe,
    protocol: Protocol,
    seed: int,
    name: str,
    jobs: int | None,
    watch: Watch,
    *,
    with_baselines: bool = True,
) -> dict[str, Result]:
    def named(task: str) -> str:
        return f"{name}-{task}" if task else name

    if len(tasks) == 1:
        ((task, table),) = tasks.items()
        result = train(
            table,
            recipe,
            protocol=protocol,
            seed=seed,
            name=named(task),
            with_baselines=with_baselines,
            progress=watch.epoch,
            stage=watch.stage,
        )
        if watch.task:
            watch.task(task, 1)
        return {task: result}
    from joblib import Parallel, delayed, parallel_config

    if watch.stage:
        watch.stage(f"training {len(tasks)} networks ({protocol} split)")
    out = {}
    with parallel_config("loky", n_jobs=jobs or os.cpu_count() or 1, inner_max_num_threads=1):
        results = Parallel(return_as="generator_unordered")(
            delayed(_train_one)(task, table, recipe, protocol, seed, named(task), with_baselines)
            for task, table in tasks.items()
        )
        for task, result in results:
            out[task] = result
            if watch.task:
                watch.task(task, len(tasks))
    return {task: out[task] for task in tasks}


def _train_one(
    task: str,
    table: FlowTable,
    recipe: Recipe,
    protocol: Protocol,
    seed: int,
    name: str,
    with_baselines: bool,
) -> tuple[str, Result]:
    return task, train(
        table,
        recipe,
        protocol=protocol,
        seed=seed,
        name=name,
        with_baselines=with_baselines,
    )


def _own_options(case: UseCase, given: Mapping[str, OptionValue]) -> dict[str, OptionValue]:
    known = {o.name: o for o in case.options}
    for option in given:
        if option not in known:
            listed = ", ".join(f"--{o}" for o in known) or "none of its own"
            raise UsageError(f"{case.name} has no option --{option}; it has {listed}")
    return {n: o.parse(given[n]) if n in given else o.default for n, o in known.items()}


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


def _one(result: Result) -> dict[str, Any]:
    return {
        "test": result.test.to_dict(),
        "validation": result.validation.to_dict(),
        "train": {"accuracy": result.train_accuracy},
        "baselines": {name: e.to_dict() for name, e in result.baselines.items()},
        "rows": dict(result.rows),
        "twin_share": result.twin_share,
        "epochs": len(result.history),
    }


def memory_of(model: BinaryModel) -> dict[str, int]:
    """Bytes of a model by kind, and of the same weights as float32."""
    return {
        "weight_bytes": model.weight_bytes,
        "threshold_bytes": model.threshold_bytes,
        "mask_bytes": model.mask_bytes,
        "input_bytes": model.input_bytes,
        "float_weight_bytes": model.float_weight_bytes,
    }


def _metrics(
    case: UseCase,
    table: FlowTable,
    recipe: Recipe,
    main: Protocol,
    seed: int,
    every: Mapping[str, Mapping[str, Result]],
    repeated: list[dict[str, Result]],
) -> dict[str, Any]:
    results = every[main]
    first = next(iter(results.values()))
    out: dict[str, Any] = {
        "version": METRICS_VERSION,
        "use_case": case.name,
        "recipe": recipe.name,
        "protocol": main,
        "seed": seed,
        "tool": f"n3ic {__version__}",
        "data": {
            "name": table.name,
            "synthetic": table.synthetic,
            "sha256": table.sha256,
            "rows": len(table),
            "duplicate_share": duplicate_share(table),
            "sources": [
                {"path": s.path, "rows": s.rows, "identity": s.identity} for s in table.sources
            ],
        },
    }
    if set(results) == {""}:
        out |= _one(first)
        out["model"] = {"shape": list(first.model.shape), "sha256": first.model.digest}
        out["memory"] = memory_of(first.model)
        out["feature_scores"] = dict(first.feature_scores)
        out["protocols"] = {p: _one(r[""]) for p, r in every.items()}
        values = [r[""].test for r in (results, *repeated)]
        if repeated:
            out["seeds"] = {
                "count": len(values),
                "test": {
                    key: _spread(getattr(v, key) for v in values)
                    for key in ("accuracy", "accuracy_unseen", "macro_f1", "fpr", "roc_auc")
                },
            }
        return out
    group = case.group or "tasks"
    out[group] = {
        task: _one(r)
        | {
            "model": {"shape": list(r.model.shape), "sha256": r.model.digest},
            "memory": memory_of(r.model),
        }
        for task, r in results.items()
    }
    out["memory"] = {
        key: sum(memory_of(r.model)[key] for r in results.values())
        for key in memory_of(first.model)
    }
    out["test"] = _medians(results)
    out["protocols"] = {p: {"test": _medians(r)} for p, r in every.items()}
    out["baselines"] = {
        name: {
            key: float(np.median([getattr(r.baselines[name], key) for r in results.values()]))
            for key in ("accuracy", "macro_f1")
        }
        for name in first.baselines
    }
    if repeated:
        medians = [_medians(r) for r in (results, *repeated)]
        out["seeds"] = {
            "count": len(medians),
            "test": {key: _spread(m[key] for m in medians) for key in medians[0]},
        }
    return out


def _medians(results: Mapping[str, Result]) -> dict[str, float]:
    return {
        key: float(np.median([getattr(r.test, key) for r in results.values()]))
        for key in ("accuracy", "macro_f1")
    }


def _spread(values: Iterable[float | None]) -> dict[str, Any]:
    numbers = [float(v) for v in values if v is not None]
    if not numbers:
        return {"mean": None, "std": None, "values": []}
    deviation = float(np.std(numbers, ddof=1)) if len(numbers) > 1 else 0.0
    return {"mean": float(np.mean(numbers)), "std": deviation, "values": numbers}


def _json(data: Any) -> str:
    return json.dumps(data, indent=2, sort_keys=True) + "\n"


def load_metrics(run: str | Path) -> dict[str, Any]:
    """The metrics of a run folder.

    Raises:
        UsageError: the folder is not a run.
    """
    path = Path(run) / METRICS
    try:
        data = json.loads(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{run} is not a run: {METRICS}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is damaged: {error}") from error
    if not isinstance(data, dict) or "version" not in data:
        raise UsageError(f"{path} is not the metrics of an n3ic run")
    return data


def newest_run(root: str | Path = "runs") -> Path:
    """The run below ``root`` that was written last.

    Raises:
        UsageError: there is none.
    """
    found = [p for p in Path(root).glob(f"*/{METRICS}") if not p.parent.name.startswith(".")]
    if not found:
        raise UsageError(
            f"there is no run below {root}/: train one (n3ic train anomaly) or name a --model"
        )
    return max(found, key=lambda p: (p.stat().st_mtime_ns, str(p))).parent


def models_of(path: str | Path) -> dict[str, Path]:
    """Model files of a run folder by task, or of one model file.

    Raises:
        UsageError: there is no model.
    """
    given = Path(path)
    if not given.is_dir():
        return {"": given}
    if (given / MODEL).is_file():
        return {"": given / MODEL}
    several = {p.stem: p for p in sorted((given / "models").glob("*.n3ic"))}
    if not several:
        raise UsageError(f"{given} holds no model: expected {MODEL} or models/*.n3ic")
    return several


def summary_markdown(metrics: Mapping[str, Any], group: str = "") -> str:
    """The run's figures as a Markdown page."""
    data = metrics["data"]
    kind = " (synthetic)" if data["synthetic"] else ""
    lines = [
        f"# {metrics['use_case']}: recipe {metrics['recipe']}, {metrics['protocol']} split",
        "",
        f"Data: {data['name']}{kind}, {data['rows']:,} rows, "
        f"{data['duplicate_share']:.1%} of them repeat another. Seed {metrics['seed']}.",
        "",
    ]
    if group and group in metrics:
        lines += [
            f"| {group} | accuracy | macro F1 | majority | float MLP | boosting |",
            "|---|---:|---:|---:|---:|---:|",
        ]
        for task, m in metrics[group].items():
            b = m["baselines"]
            beside = [
                _percent(b.get(n, {}).get("accuracy"))
                for n in ("majority", "float_mlp", "hist_gradient_boosting")
            ]
            lines.append(
                f"| {task} | {_percent(m['test']['accuracy'])} "
                f"| {_percent(m['test']['macro_f1'])} | {' | '.join(beside)} |"
            )
        lines.append(
            f"| **median** | {_percent(metrics['test']['accuracy'])} "
            f"| {_percent(metrics['test']['macro_f1'])} | | | |"
        )
        return "\n".join(lines) + "\n"
    lines += [
        "| classifier | accuracy | without twins | macro F1 | FPR | ROC AUC |",
        "|---|---:|---:|---:|---:|---:|",
        _row("**binary network**", metrics["test"]),
        *(_row(name, m) for name, m in metrics["baselines"].items()),
        "",
        f"{metrics['twin_share']:.1%} of the test rows are equal to some training row.",
        "",
        "| protocol | accuracy | without twins | macro F1 | FPR | ROC AUC |",
        "|---|---:|---:|---:|---:|---:|",
        *(_row(name, m["test"]) for name, m in metrics["protocols"].items()),
        "",
        "| memory | bytes |",
        "|---|---:|",
        *(f"| {name} | {size:,} |" for name, size in metrics["memory"].items()),
    ]
    return "\n".join(lines) + "\n"


def _links(directory: Path) -> str:
    """The pictures and pages of a run itself, not those of each of its networks."""
    pages = [f"- [{p.name}]({p.name})" for p in sorted(directory.glob("*.md"))]
    pictures = [f"![{p.stem}](plots/{p.name})" for p in sorted((directory / "plots").glob("*.png"))]
    return "".join(f"\n{line}\n" for line in (*pages, *pictures))


def _row(name: str, m: Mapping[str, Any]) -> str:
    keys = ("accuracy", "accuracy_unseen", "macro_f1", "fpr", "roc_auc")
    return f"| {name} | {' | '.join(_percent(m.get(k)) for k in keys)} |"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f} %"
