# SPDX-License-Identifier: Apache-2.0
"""``n3ic train``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from n3ic.cli.console import list_options, print_json, print_note, print_result, table, training_bar
from n3ic.cli.plugin_options import Owned, options_of, with_options
from n3ic.cli.recipe_options import case_options, recipe_options, recipe_overrides
from n3ic.cli.recipes import show_recipe
from n3ic.cli.rows import case_and_rows, takes_rows
from n3ic.options import Option, OptionValue
from n3ic.util.markdown import percent

HELP_RECIPE = "--help-recipe"
RECIPE = "Each value of the recipe is also an option: n3ic recipes show NAME lists them."
_CASE = "A use case brings options of its own: name it before --help."
_HEAD = ("accuracy", "dedup.", "macro F1", "FPR", "ROC AUC", "PR AUC")
_CLASSES = 20  # shown; report.md and the JSON have all
MAX_SEED = 2**32 - 1  # limit of numpy's and scikit-learn's generators
DataOption = Annotated[
    Path | None, typer.Option(help="Files or a folder.", show_default="the embedded sample")
]
DatasetOption = Annotated[
    str | None,
    typer.Option(help="A data set that reads them.", show_default="the use case's own"),
]
ProtocolOption = Annotated[
    Literal["random", "partition", "time", "conversation"] | None,
    typer.Option(help="How rows are split.", show_default="the use case's own"),
]
JobsOption = Annotated[
    int | None,
    typer.Option(help="Networks trained at once.", min=1, show_default="one per core"),
]
DaskOption = Annotated[
    str | None,
    typer.Option(help="Dask scheduler whose workers train.", show_default="this machine"),
]


def register(app: typer.Typer, words: Sequence[str]) -> None:
    """Add the command.

    Args:
        app: the command line.
        words: the typed words, which tell whether the options of recipes and use cases are needed.
    """
    add(app, "train", train, words)


def add(
    app: typer.Typer,
    name: str,
    function: Callable[..., None],
    words: Sequence[str],
    panel: str | None = None,
) -> None:
    """Add a command that takes the options of recipes and use cases.

    The help shows the options of the named use case, or of the user's own tables; the others work
    as well. A plug-in passes the ``panel`` of the help that lists its command.
    """
    owners = option_owners(words) if words[:1] == [name] else []
    visible_owners = {*words[1:], "flows"}
    hidden = (
        []
        if HELP_RECIPE in words
        else [owner for owner, _ in owners if owner not in visible_owners]
    )
    epilog = f"{RECIPE} {_CASE}"
    app.command(name, epilog=epilog, rich_help_panel=panel)(with_options(function, owners, hidden))


def _own(name: str) -> tuple[Option, ...]:
    from n3ic.usecases.base import use_case

    return use_case(name).options


def option_owners(words: Sequence[str]) -> list[Owned]:
    """Options of the recipe and of use cases, with their owners.

    Args:
        words: the typed words. If they name use cases, only those are loaded, else all.
    """
    from n3ic import plugins
    from n3ic.data.user_table import OWN
    from n3ic.usecases.base import use_case

    cases = plugins.names("n3ic.usecases")
    named_cases = [name for name in cases if name in words[1:]]
    default_recipe = use_case(named_cases[0] if named_cases else OWN).recipes["default"]
    recipe: Owned = ("the recipe", recipe_options(default_recipe))
    return [recipe, *options_of({name: partial(_own, name) for name in named_cases or cases})]


@takes_rows("data")
def train(
    use_case: Annotated[
        str | None,
        typer.Argument(
            help="anomaly, ...; default: flows with --data, else the use cases are listed."
        ),
    ] = None,
    data: DataOption = None,
    dataset: DatasetOption = None,
    config: Annotated[
        Path | None,
        typer.Option(
            help="File of options (TOML, JSON, or options.json of a run); typed options win."
        ),
    ] = None,
    recipe: Annotated[
        str | None, typer.Option(help="A recipe of the use case.", show_default="default")
    ] = None,
    rows: Annotated[
        int | None,
        typer.Option(
            help="Draw so many rows of --data at random, for tables that memory does not hold.",
            min=1,
            hidden=True,  # the error of a table that is too large names it
        ),
    ] = None,
    budget_bytes: Annotated[
        int | None,
        typer.Option(
            help="Largest size in bytes, cuts included; chooses family, input bits and layers.",
            min=1,
            show_default="the recipe's shape",
        ),
    ] = None,
    sites: Annotated[
        int | None,
        typer.Option(
            help="Most look-up table sites (LUT6) of the unrolled NetFPGA core with class output, "
            "estimated; chooses family and shape. --cuts-on-card counts cuts, too.",
            min=1,
            show_default="the recipe's shape",
        ),
    ] = None,
    cuts_on_card: Annotated[
        bool,
        typer.Option(
            "--cuts-on-card",
            help="Count the comparisons of features with cuts among the --sites, too.",
            hidden=True,  # the help of --sites names it
        ),
    ] = False,
    input_of: Annotated[
        Path | None,
        typer.Option(
            help="Run or model whose input bits and layers to keep; only weights are trained."
        ),
    ] = None,
    protocol: ProtocolOption = None,
    seed: Annotated[
        int | None,
        typer.Option(help="Seed of all random choices.", min=0, max=MAX_SEED, show_default="0"),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(help="Report mean and deviation over N seeds.", min=1, show_default="1"),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Run folder.", show_default="runs/USE_CASE")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace an existing run.")] = False,
    jobs: JobsOption = None,
    dask: DaskOption = None,
    json: Annotated[bool, typer.Option("--json", help="Print the metrics as JSON.")] = False,
    help_recipe: Annotated[
        bool, typer.Option(HELP_RECIPE, help="Print each value of the recipe, and exit.")
    ] = False,
    given: Mapping[str, OptionValue] | None = None,
) -> None:
    """Train a model (a binary network, or another --family) and write a run: metrics, pictures."""
    from n3ic import plugins
    from n3ic.data.user_table import OWN
    from n3ic.runs.report import warnings_of
    from n3ic.usecases.base import use_case as named
    from n3ic.usecases.config import train_request
    from n3ic.usecases.training import train_use_case

    use_case, data = case_and_rows(use_case, data, plugins.names("n3ic.usecases"))
    if use_case is None and data is None and config is None:
        if not help_recipe:
            list_use_cases()
            return
        use_case = OWN
    typed = given or {}
    request = train_request(
        config,
        use_case=use_case,
        data=data,
        dataset=dataset,
        recipe=recipe,
        rows=rows,
        overrides=recipe_overrides(typed),
        budget_bytes=budget_bytes,
        sites=sites,
        cuts_on_card=cuts_on_card or None,
        input_of=input_of,
        options=case_options(typed),
        protocol=protocol,
        seed=seed,
        seeds=seeds,
        out=out,
        replace=replace,
        jobs=jobs,
        dask=dask,
    )
    if help_recipe:
        show_recipe(request.use_case, request.chosen_recipe(named(request.use_case)))
        return
    with training_bar(quiet=json) as progress:
        run = train_use_case(request, progress)
    if json:
        print_json({**run.metrics, "path": str(run.path)})
        return
    for line in run.metrics["data"].get("notes", ()):
        print_note(line)
    show(run.metrics, named(request.use_case).group)
    for line in warnings_of(run.metrics, named(request.use_case).group):
        print_note(line)
    print_result(
        f"run: {run.path} ({', '.join(str(p) for p in list(run.models.values())[:1])}"
        f"{', ...' if len(run.models) > 1 else ''}, metrics.json, report.md, plots/)"
    )
    if run.metrics["data"]["synthetic"] and request.data is None:
        print_note("these are synthetic or simulated flows; --data PATH trains on your own")


def list_use_cases() -> None:
    """Print the use cases, their recipes and their own options."""
    from n3ic import plugins
    from n3ic.usecases.base import use_case

    for name in plugins.names("n3ic.usecases"):
        case = use_case(name)
        print_result(f"{name}: {case.summary}")
        for recipe_name, recipe in case.recipes.items():
            print_result(f"  --recipe {recipe_name:<12} {recipe.summary}")
        list_options(case.options)


def show(metrics: Any, group: str) -> None:
    """Print a run's figures beside its baselines."""
    from n3ic.runs.folder import FIGURES
    from n3ic.runs.report import PACKET_HEAD, candidate_table, model_text, packet_rows

    origin = ", synthetic" if metrics["data"]["synthetic"] else ""
    title = (
        f"{metrics['use_case']}, recipe {metrics['recipe']}, {metrics['protocol']} split of "
        f"{metrics['data']['rows']:,} rows ({metrics['data']['name']}{origin})"
    )
    if group and group in metrics:
        table(
            title,
            [group, "accuracy", "macro F1", "majority", "float MLP", "boosting"],
            [
                [
                    task,
                    percent(m["test"]["accuracy"]),
                    percent(m["test"]["macro_f1"]),
                    *(
                        percent(m["baselines"].get(b, {}).get("accuracy"))
                        for b in ("majority", "float_mlp", "hist_gradient_boosting")
                    ),
                ]
                for task, m in {**metrics[group], "median": metrics}.items()
            ],
        )
    else:
        rows = [[model_text(metrics), *(percent(metrics["test"][k]) for k in FIGURES)]]
        rows += [
            [name.removeprefix("hist_").replace("_", " "), *(percent(m[k]) for k in FIGURES)]
            for name, m in metrics["baselines"].items()
        ]
        if candidates := candidate_table(metrics):
            table(candidates.title, candidates.head, candidates.rows)
        table(title, ["test rows", *_HEAD], rows)
        show_classes(metrics["classes"])
        if points := metrics.get("by_packet"):
            table("one network by packet", list(PACKET_HEAD), packet_rows(points), left=0)
    kind = "median accuracy" if group and group in metrics else "accuracy"
    for name, m in metrics["protocols"].items():
        if name != metrics["protocol"]:
            test = m["test"]
            print_result(
                f"{name} split: {kind} {percent(test['accuracy'])}, "
                f"macro F1 {percent(test['macro_f1'])}"
            )
    spread = metrics.get("seeds")
    if spread:
        a = spread["test"]["accuracy"]
        print_result(
            f"over {spread['count']} seeds: accuracy {percent(a['mean'])} +- {percent(a['std'])}"
        )
    memory = metrics["memory"]
    print_result(memory_text(memory))


def memory_text(memory: Mapping[str, int]) -> str:
    """Bytes in total and by part, in a line."""
    names = {"weight_bytes": "weights", "threshold_bytes": "thresholds and biases",
             "input_bytes": "input cuts"}  # fmt: skip
    parts = [
        f"{names.get(part, part.removesuffix('_bytes').replace('_', ' '))} {size:,} B"
        for part, size in memory.items()
        if size and part not in ("total_bytes", "float_weight_bytes")
    ]
    real = memory.get("float_weight_bytes")
    as_float = f" (weights as float32: {real:,} B)" if real else ""
    return f"{memory['total_bytes']:,} B in total: {', '.join(parts)}{as_float}"


def show_classes(classes: Mapping[str, Mapping[str, Any]]) -> None:
    """Print precision and recall by class; of many classes, those with the least recall."""
    from n3ic.runs.report import CLASS_HEAD, class_rows

    weakest = sorted(classes, key=lambda name: classes[name]["recall"] or 0.0)[:_CLASSES]
    rows = [row for row in class_rows(classes) if row[0] in weakest]
    many = f", the {_CLASSES} with the least recall" if len(classes) > _CLASSES else ""
    table(f"the network by class{many}", list(CLASS_HEAD), rows)
