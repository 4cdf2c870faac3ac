# SPDX-License-Identifier: Apache-2.0
"""``n3ic data label``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from n3ic.cli.outputs import show_result
from n3ic.errors import MissingDependencyError, UsageError
from n3ic.evaluation.study import Study


def register(app: typer.Typer, words: Sequence[str]) -> None:
    """Add the command."""
    app.command("label")(label)


def label(
    captures: Annotated[
        list[str],
        typer.Argument(help="pcap or pcapng files, plain or packed, and folders of them."),
    ],
    out: Annotated[Path, typer.Option(help="CSV of labels to write.")] = Path("labels.csv"),
    classes: Annotated[
        Path | None,
        typer.Option(
            help="CSV of pattern,label: names such as *.example.org and their class; "
            "flows of other names get no label. Default: the name is the label."
        ),
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace an existing file.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print counts as JSON.")] = False,
) -> None:
    """Name flows by TLS and QUIC hellos and DNS answers, as labels to train on.

    n3ic data extract --labels reads the table; any of its columns, such as ja4, can be the label.
    """
    from n3ic.meter.extract import find_captures
    from n3ic.studies.label.table import Patterns, write_labels
    from n3ic.util.files import free_path

    try:
        from n3ic.studies.label.names import named_flows
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            f"names need {error.name}: pip install 'n3ic[label]'"
        ) from error
    if out.suffix.lower() != ".csv":
        raise UsageError(f"--out {out}: labels are written to a .csv file")
    free_path(out, replace)
    patterns = Patterns.read(classes) if classes else None
    paths = [source.path for source in find_captures(captures)]
    show_result(write_labels(named_flows(paths), out, patterns), json=json)


STUDY = Study(register, group="data")
