"""``n3ic data``: list, show, check and generate data sets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from n3ic.cli.console import list_options, note, pairs, print_json, say, table
from n3ic.errors import UsageError

app = typer.Typer(help="List, show, check and generate data sets.", no_args_is_help=True)


@app.command("list")
def list_sets() -> None:
    """List the data sets."""
    from n3ic import plugins

    for name in plugins.names("n3ic.datasets"):
        source = plugins.load("n3ic.datasets", name)
        say(f"{name:<24}{source.summary}")


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="A data set.")],
    features: Annotated[
        bool, typer.Option("--features", help="Show the feature catalogue, not the card.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the catalogue as JSON.")] = False,
) -> None:
    """Print a data set's card, or its features."""
    from dataclasses import asdict

    from n3ic import plugins

    source = plugins.load("n3ic.datasets", name)
    if json:
        print_json([asdict(f) for f in source.catalogue])
    elif features:
        table(
            name,
            ["feature", "meaning", "unit", "bits", "NIC", "leaks"],
            [
                [
                    f.name,
                    f.meaning,
                    f.unit,
                    str(f.bits),
                    "yes" if f.nic else f"no: {f.nic_reason}",
                    f.leak_reason if f.leaks else "",
                ]
                for f in source.catalogue
            ],
            left=3,
        )
    else:
        say(source.card.rstrip())


@app.command()
def check(
    path: Annotated[Path, typer.Argument(help="Files or a folder.")],
    name: Annotated[str, typer.Option("--dataset", help="The data set.")] = "unsw-nb15",
    json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Read files and say what they are, how many rows they have, and what is odd."""
    from dataclasses import asdict

    from n3ic import plugins
    from n3ic.data.split import duplicate_share, protocols_of

    source = plugins.load("n3ic.datasets", name)
    if hasattr(source, "check"):
        found = asdict(source.check(path))
    else:
        loaded = source.load(path)
        found = {
            "name": loaded.name,
            "rows": len(loaded),
            "classes": {c: int((loaded.label == i).sum()) for i, c in enumerate(loaded.classes)},
            "protocols": protocols_of(loaded),
            "duplicate_share": duplicate_share(loaded),
            "sources": [asdict(s) for s in loaded.sources],
        }
    if json:
        print_json(found)
        return
    for s in found.pop("sources"):
        say(f"{s['path']}: {s['identity']}, {s['rows']:,} rows, sha256 {s['sha256'][:16]}...")
    problems = found.pop("problems", ())
    for key, value in found.items():
        say(f"{key.replace('_', ' ')}: {_words(value)}")
    for problem in problems:
        say(f"note: {problem}")


def _words(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k or '(none)'} {_words(v)}" for k, v in value.items()) or "none"
    if isinstance(value, float):
        return f"{value:.2%}"
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return "not known" if value is None else str(value)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def generate(
    ctx: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(help="A data set or use case; without it, the generators are listed."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="File to write.")] = None,
) -> None:
    """Generate flows or run a simulator, and write a file that n3ic reads."""
    from n3ic import plugins
    from n3ic.data.dataset import Generator
    from n3ic.usecases.base import use_case

    sets = plugins.names("n3ic.datasets")
    if name is None:
        for listed in sets:
            found = plugins.load("n3ic.datasets", listed)
            if isinstance(found, Generator):
                say(f"{listed}: {found.summary}")
                list_options(found.generator_options)
        return
    if name in plugins.names("n3ic.usecases") and name not in sets:
        name = use_case(name).default
    source = plugins.load("n3ic.datasets", name)
    if not isinstance(source, Generator):
        raise UsageError(f"the data set {name} has no generator")
    written = source.generate_file(out, pairs(ctx.args), note)
    say(f"wrote {written}")
