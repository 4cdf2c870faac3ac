# SPDX-License-Identifier: Apache-2.0
"""``n3ic targets``, ``export``, ``verify``, ``bench`` and ``simulate``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from inspect import signature
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from n3ic.cli.console import print_json, print_note, print_result, spinner, table
from n3ic.cli.plugin_options import Owned, options_of, with_options
from n3ic.cli.rows import takes_rows
from n3ic.errors import N3icError, UsageError, VerifyError
from n3ic.options import Option, OptionValue, parse_options

if TYPE_CHECKING:
    from n3ic.targets.base import Command

JsonFlag = Annotated[bool, typer.Option("--json", help="Print as JSON.")]
ModelOption = Annotated[
    Path | None, typer.Option(help="Model file or run; default: the newest run.")
]
Given = Mapping[str, OptionValue] | None
_HINT = (
    "A target brings options of its own: name the target in n3ic {name} before --help, or call "
    "n3ic targets TARGET."
)
RunChanged = Annotated[
    bool,
    typer.Option(
        "--run-changed",
        help="Run files that differ from n3ic's own; this runs their author's code.",
    ),
]


def register(app: typer.Typer, words: Sequence[str]) -> None:
    """Add the commands.

    Args:
        app: the command line.
        words: the typed words. Only the target named in them is loaded for its options.
    """

    def add(name: Command, function: Callable[..., None]) -> None:
        is_called = words[:1] == [name]
        target_names = _targets_named(name, words[1:]) if is_called else ()
        epilog = _HINT.format(name=name) if is_called and not target_names else None
        every = not {"-h", "--help"}.isdisjoint(words)  # only the help shows other families'
        owned = with_options(function, _owners(name, target_names, every=every))
        app.command(name, epilog=epilog)(owned)

    app.command("targets")(targets)
    add("export", export)
    add("verify", verify)
    add("bench", bench)
    add("simulate", simulate)


def _targets_named(command: str, words: Sequence[str]) -> tuple[str, ...]:
    """The targets that a command line names, by option, by export directory or as an argument.

    If options are typed but no target is recognised, it returns all, so that the options parse.
    """
    from n3ic import plugins

    known = plugins.names("n3ic.exporters")
    if command == "verify":
        own = {f"--{name.replace('_', '-')}" for name in signature(verify).parameters}
        typed = {word.partition("=")[0] for word in words if word.startswith("-")}
        if typed <= own | {"--data", "--no-record"}:
            return ()  # no option of a target: verification alone reads the manifests
        mentioned = {name for word in words for name in _exported_for(Path(word))}
    elif command == "export":
        mentioned = {value for word, value in pairwise(words) if word in ("--target", "-t")}
        mentioned |= {word.partition("=")[2] for word in words if word.startswith("--target=")}
        mentioned |= {word[2:] for word in words if word.startswith("-t")}
    else:
        mentioned = set(words)
    target_names = tuple(name for name in known if name in mentioned)
    options = [word for word in words if word.startswith("-") and word not in ("-h", "--help")]
    return known if "all" in mentioned or (options and not target_names) else target_names


def _exported_for(directory: Path) -> Iterator[str]:
    """Targets of the exports in a directory; verification reports other files."""
    from n3ic.targets.artefacts import exports_below
    from n3ic.targets.manifest import read_manifest

    with suppress(N3icError):
        for folder in exports_below(directory) if directory.is_dir() else ():
            with suppress(N3icError):
                yield read_manifest(folder)["target"]


def _owners(command: Command, names: Sequence[str], *, every: bool) -> list[Owned]:
    """Options of targets; with ``every``, also those that a target has for its other families.

    Options of other families reuse the names of the target's own, so a command that runs need not
    load those families.
    """

    def load(name: str) -> Sequence[Option]:
        from n3ic.targets.base import exporter

        tool = exporter(name)
        tools = [tool.for_family(family) for family in tool.families] if every else [tool]
        return [option for each in tools for option in each.options_of(command)]

    return options_of({name: partial(load, name) for name in names})


def targets(
    target: Annotated[str | None, typer.Argument(help="Show one target's options.")] = None,
    json: JsonFlag = False,
) -> None:
    """List the targets, or one target's options."""
    from n3ic import plugins
    from n3ic.targets.base import Command, exporter

    names = plugins.names("n3ic.exporters") if target is None else (target,)
    exporters = [exporter(name) for name in names]
    if json:
        print_json(
            {
                e.name: {
                    "summary": e.summary,
                    "device": e.device.name,
                    "families": e.families,
                    "shunts": e.shunts,
                    "options": [asdict(o) for o in e.options],
                    "verify_options": [asdict(o) for o in e.options_of("verify")],
                }
                for e in exporters
            }
        )
        return
    for e in exporters:
        print_result(f"{e.name:<12}{e.summary}")
        if target is None:
            continue
        print_result(f"  takes models of family {', '.join(e.families)}")
        print_result(
            f"  gives {'class or shunt' if e.shunts else 'a class: models that shunt are refused'}"
        )
        for command in get_args(Command):
            for o in e.options_of(command):
                choices = f" ({'|'.join(o.choices)})" if o.choices else ""
                print_result(f"  {command} --{o.name} {o.default!r}{choices}: {o.help}")


def export(
    target: Annotated[
        str, typer.Option("--target", "-t", help="A target, or all; without one, they are listed.")
    ] = "",
    model: ModelOption = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder to write; exports/MODEL-TARGET by default, exports/MODEL/TARGET for all."
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Write a model that does not fit, marked as such.")
    ] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace an existing export directory.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--verify/--no-verify", help="Run vectors before the export appears.")
    ] = True,
    simplify: Annotated[
        bool | None,
        typer.Option(
            "--simplify/--no-simplify",
            help="Drop neurons and input bits that do not affect the scores; without it, "
            "weights of another training of the same shape can be loaded later.",
            show_default="on, except for xdp",
        ),
    ] = None,
    json: JsonFlag = False,
    given: Given = None,
) -> None:
    """Export a model for one target or all; a wrong export is an error.

    If a target refuses the model, the other exports are still written.
    """
    from n3ic.runs.folder import open_models
    from n3ic.targets.base import exporter
    from n3ic.targets.batch import export_item, export_plan, failure

    if not target:
        targets()
        raise UsageError("name a target with --target, or all of them: --target all")
    if target != "all":
        exporter(target)  # reports a mistyped target before a missing run
    source, models, metrics = open_models(model)
    if model is None:
        print_note(f"model: {source}")
    outcomes = []
    with spinner(f"exporting for {target}") as progress:
        for item in export_plan(source, models, target, out, given or {}):
            progress(f"exporting for {item.target} {item.task}".rstrip())
            outcomes.append(
                export_item(
                    item,
                    force=force,
                    replace=replace,
                    verify=check,
                    simplify=simplify,
                    metrics=metrics,
                )
            )
    if json:
        print_json([d.to_dict() for d in outcomes])
    else:
        for d in outcomes:
            print_result(str(d))
    if len(outcomes) > 1:
        from n3ic.targets.colocation_report import write_set_report

        summary = write_set_report(outcomes, _set_tables(metrics))
        if summary is not None and not json:
            print_result(f"set report: {summary}")
    failed, errors = failure(outcomes), [d.error for d in outcomes if d.error is not None]
    if failed is not None:
        raise failed
    if errors and (len(errors) == len(outcomes) or target != "all"):
        raise errors[0]
    if errors:
        print_note(f"{len(errors)} of {len(outcomes)} exports were refused, for the reasons above")


def _set_tables(metrics: Mapping[str, Any] | None) -> Any:
    """The tables that a run's use case adds for several networks; None for a model without run."""
    if metrics is None:
        return None
    from n3ic.usecases.base import set_tables

    return set_tables(metrics)


@takes_rows("rows")
def verify(
    directory: Annotated[Path, typer.Argument(help="An export directory, or a folder of them.")],
    vectors: Annotated[
        int | None, typer.Option(help="Number of boundary and random vectors.", min=1)
    ] = None,
    rows: Annotated[Path | None, typer.Option(help="Table of flows to run as well.")] = None,
    capture: Annotated[
        list[Path] | None, typer.Option(help="Capture for the export's own meter; repeatable.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the random vectors.", min=0)] = 0,
    record: Annotated[
        bool, typer.Option("--record/--no-record", help="Write verification.json into it.")
    ] = True,
    run_changed: RunChanged = False,
    json: JsonFlag = False,
    given: Given = None,
) -> None:
    """Compare an export with a fresh one, then run it against its model.

    Every file is regenerated from the model and options, and compared. Files that differ are not
    run. Any difference is an error.
    """
    from n3ic.data.flows import read_features
    from n3ic.model.load import load_model
    from n3ic.targets.artefacts import exports_below
    from n3ic.targets.verification import verify_directory

    folders = exports_below(directory)
    if not folders:
        raise UsageError(f"{directory} holds no export directory")
    results = []
    for folder in folders:
        features = None
        if rows is not None:
            features = read_features(rows, load_model(folder / "model.n3ic"), None)
        with spinner(f"verifying {folder}"):
            results.append(
                verify_directory(
                    folder,
                    vectors=vectors,
                    rows=features,
                    captures=capture or (),
                    options=given or {},
                    seed=seed,
                    record=record,
                    run_changed=run_changed,
                )
            )
        if not json:
            print_result(str(results[-1]))
            for f in results[-1].figures:
                print_result(f"  {f.name}: {f.value:,.6g} {f.unit} ({f.kind}: {f.source})")
    if json:
        print_json([r.to_dict() for r in results])
    bad = [r for r in results if r.failures]
    if bad:
        raise VerifyError(f"{len(bad)} of {len(results)} exports differ from their model")
    missing = [r for r in results if r.missing]
    if missing:
        from n3ic.errors import MissingDependencyError

        raise MissingDependencyError(
            f"{len(missing)} of {len(results)} exports could not be run: {missing[0].missing}"
        )


def bench(
    target: Annotated[str, typer.Argument(help="A target such as host, or meter.")],
    model: ModelOption = None,
    capture: Annotated[
        Path | None, typer.Option(help="With meter: packets to count; default: generated ones.")
    ] = None,
    json: JsonFlag = False,
    given: Given = None,
) -> None:
    """Measure a target or the meter beside its alternatives, in one run."""
    from n3ic import api
    from n3ic.evaluation.study import bench_of

    if model is None and bench_of(target) is None:
        print_note("model: random weights of shape 256-32-16-2 (speed does not depend on them)")
    with spinner(f"measuring {target}"):
        result = api.bench(target, model, capture=capture, **(given or {}))
    if json:
        print_json(result.data)
        return
    for title, columns, rows in result.tables:
        table(title, list(columns), [list(row) for row in rows])
    for line in result.notes:
        print_result(line)


def simulate(
    target: Annotated[str, typer.Argument(help="A target with a simulated card: netfpga.")],
    directory: Annotated[Path, typer.Argument(help="An export directory of that target.")],
    run_changed: RunChanged = False,
    given: Given = None,
) -> None:
    """Run a simulated card between real network interfaces, until Ctrl-C."""
    import tempfile

    from n3ic.targets.base import exporter
    from n3ic.targets.integrity import trusted_copy
    from n3ic.targets.manifest import read_manifest

    manifest = read_manifest(directory)
    if manifest["target"] != target:
        raise UsageError(f"{directory} is an export for {manifest['target']}, not {target}")
    card = exporter(target).simulated_card
    if card is None:
        raise UsageError(f"target {target} has no simulated card")
    with tempfile.TemporaryDirectory(prefix="n3ic-card-") as name:
        place = trusted_copy(directory, Path(name), run_changed=run_changed)
        options = parse_options(card.options, given or {}, "a simulated card")
        card.run(place, options, print_result)
