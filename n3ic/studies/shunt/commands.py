# SPDX-License-Identifier: Apache-2.0
"""``n3ic shunt``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from n3ic.cli.console import print_note, print_result, spinner
from n3ic.cli.outputs import free_files, show_result
from n3ic.cli.rows import takes_rows
from n3ic.errors import UsageError
from n3ic.evaluation.study import Study, write_result

if TYPE_CHECKING:
    from n3ic.studies.shunt.result import ShuntStudy


def register(app: typer.Typer, words: Sequence[str]) -> None:
    """Add the command."""
    app.command("shunt", rich_help_panel="Train and use")(shunt)


@takes_rows("data")
def shunt(
    model: Annotated[
        Path | None, typer.Option(help="Model file or run; default: the newest run.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Labelled flows; default: the embedded sample.")
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(help="Data set that reads the flows; default: the network's own.")
    ] = None,
    task: Annotated[str, typer.Option(help="Network of a run of several; default: all.")] = "",
    accuracy: Annotated[
        float | None,
        typer.Option(
            help="Choose the threshold by accuracy: share of correct decisions on the card."
        ),
    ] = None,
    host_load: Annotated[
        float | None,
        typer.Option(help="Choose the threshold by load: largest share of flows sent to the host."),
    ] = None,
    margin: Annotated[
        int | None,
        typer.Option(help="Set the threshold: smallest margin decided on the card.", min=0),
    ] = None,
    left_out_kinds: Annotated[
        float | None,
        typer.Option(
            help="Choose the threshold by kinds of flows: largest share of kinds that are blocked "
            "by a network trained without them."
        ),
    ] = None,
    times: Annotated[
        int, typer.Option(help="With --left-out-kinds: flows that block a host.", min=1)
    ] = 1,
    confidence: Annotated[
        float, typer.Option(help="Probability that what is asked for is kept.")
    ] = 0.95,
    other_rows: Annotated[
        Path | None, typer.Option(help="Further labelled flows to show the threshold on.")
    ] = None,
    write: Annotated[
        Path | None,
        typer.Option(
            help="Write the model with the threshold to a new file, or to an existing one with "
            "--replace; several networks go to a new folder."
        ),
    ] = None,
    csv: Annotated[Path | None, typer.Option(help="Write every threshold as CSV.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw accuracy over share (.png).")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace existing files.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Show which flows the card decides and which the host gets, and choose the threshold.

    The threshold is chosen on validation rows by an exact bound, and reported on test rows. A
    promised accuracy holds for flows that duplicate no training row.
    """
    from n3ic.runs.folder import models_of, newest_run
    from n3ic.studies.shunt.files import check_place
    from n3ic.studies.shunt.result import ShuntStudies, ThresholdObjective
    from n3ic.studies.shunt.study import study_shunting

    aim = ThresholdObjective(accuracy, host_load, margin, confidence, left_out_kinds, times)
    if model is None:
        model = newest_run()
        print_note(f"model: {model}")
    count = 1 if task else len(models_of(model))
    if write is not None:
        if not str(aim):
            raise UsageError(
                "--write needs a threshold: add --accuracy, --host-load, --margin or "
                "--left-out-kinds"
            )
        check_place(write, count, replace=replace)
    if plot is not None and count > 1:
        raise UsageError(f"{model} holds {count} networks: draw one of them with --task")
    free_files(csv, plot, replace=replace)
    with spinner("splitting rows and training boosted trees"):
        studies = study_shunting(
            model, data, dataset=dataset, task=task, aim=aim, other_rows=other_rows
        )
    result = ShuntStudies(str(model), studies)
    show_result(result, json=json)
    if not json and any(study.chosen is None for study in studies.values()):
        print_result(
            "choose a threshold with --accuracy, --host-load, --margin or --left-out-kinds, and "
            "keep it with --write"
        )
    for path in write_result(result, csv, plot, kind=".csv"):
        print_note(f"wrote {path}")
    if write is not None:
        _write(studies, write, replace)


def _write(studies: Mapping[str, ShuntStudy], path: Path, replace: bool) -> None:
    from n3ic.studies.shunt.files import write_models

    exists = path.exists()
    write_models(studies, path, replace=replace)
    chosen = ", ".join(
        (f"{name}: " if name else "")
        + (f"margins below {study.chosen} are shunted" if study.chosen else "nothing is shunted")
        for name, study in studies.items()
    )
    print_note(f"{'replaced' if exists else 'wrote'} {path}: {chosen}")


STUDY = Study(register)
