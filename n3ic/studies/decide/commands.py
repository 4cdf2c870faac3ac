# SPDX-License-Identifier: Apache-2.0
"""``n3ic decide``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from n3ic.cli.console import print_note, training_bar
from n3ic.cli.data import (
    BySource,
    CacheFlows,
    IdleTimeout,
    LabelColumn,
    LabelsFormat,
    MeterJobs,
    SequencePackets,
    Tunnels,
    packets_of,
    tunnels_of,
)
from n3ic.cli.outputs import show_result
from n3ic.cli.plugin_options import with_options
from n3ic.cli.recipe_options import recipe_options, recipe_overrides
from n3ic.cli.train import HELP_RECIPE, RECIPE
from n3ic.evaluation.study import Study
from n3ic.options import OptionValue

if TYPE_CHECKING:
    from n3ic.training.recipe import Recipe


def register(app: typer.Typer, words: Sequence[str]) -> None:
    """Add the command.

    Args:
        app: the command line.
        words: typed words, which say whether the options of recipes are needed, too.
    """
    owners = [("the recipe", recipe_options(_default()))] if "decide" in words[:1] else []
    hidden = [] if HELP_RECIPE in words else [owner for owner, _ in owners]
    app.command("decide", epilog=RECIPE, rich_help_panel="Train and use")(
        with_options(decide, owners, hidden)
    )


def _default() -> Recipe:
    from n3ic.data.user_table import OWN
    from n3ic.usecases.base import use_case

    return use_case(OWN).recipes["default"]


def decide(
    captures: Annotated[
        list[str], typer.Argument(help="pcap or pcapng files, plain or packed, and folders.")
    ],
    labels: Annotated[Path, typer.Option(help="Labels to join by key and time.")],
    labels_format: LabelsFormat = "table",
    label_column: LabelColumn = "",
    packets: Annotated[
        str, typer.Option(help="Packets to decide at; 'end' for the end of the flow.")
    ] = "1,2,4,8,16,end",
    sequence: SequencePackets = 0,
    sources: BySource = False,
    idle_timeout: IdleTimeout = 60.0,
    cache_flows: CacheFlows = 1 << 16,
    tunnels: Tunnels = "",
    positive: Annotated[str, typer.Option(help="A class to tell from all others.")] = "",
    least: Annotated[int, typer.Option(help="Drop classes with fewer flows.", min=1)] = 50,
    recipe: Annotated[str, typer.Option(help="A recipe: default or large.")] = "default",
    protocol: Annotated[
        Literal["random", "conversation"], typer.Option(help="How flows are split.")
    ] = "random",
    seed: Annotated[int, typer.Option(help="Seed of all random choices.", min=0)] = 0,
    seeds: Annotated[int, typer.Option(help="Report mean and deviation over N seeds.", min=1)] = 1,
    jobs: MeterJobs = None,
    out: Annotated[Path, typer.Option(help="Folder to write.")] = Path("runs/decide"),
    replace: Annotated[bool, typer.Option("--replace", help="Replace an existing folder.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
    given: Mapping[str, OptionValue] | None = None,
) -> None:
    """Compare accuracy by the packet at which flows are decided.

    Labelled captures are metered, and a network is trained for each number of packets: on the same
    flows, with the same recipe and seeds, beside baselines on the same data. One more network
    decides at all of these packets.
    """
    from n3ic.data.user_table import OWN
    from n3ic.meter.labels import read_labels
    from n3ic.meter.sequences import with_sequence
    from n3ic.meter.sources import with_sources
    from n3ic.meter.standard import standard_spec
    from n3ic.studies.decide.comparison import (
        FIGURES,
        PLOT,
        REPORT,
        DecisionRequest,
        compare_decisions,
    )
    from n3ic.usecases.base import use_case
    from n3ic.usecases.request import TrainRequest
    from n3ic.util.files import free_path

    free_path(out, replace)
    spec = standard_spec(
        idle_timeout_us=round(idle_timeout * 1e6),
        cache_flows=cache_flows,
        tunnels=tunnels_of(tunnels),
    )
    spec = with_sequence(spec, sequence) if sequence else spec
    training = TrainRequest(OWN, recipe=recipe, overrides=recipe_overrides(given or {}))
    request = DecisionRequest(
        captures=captures,
        labels=read_labels(labels, labels_format, label_column),
        spec=with_sources(spec) if sources else spec,
        packets=packets_of(packets),
        recipe=training.chosen_recipe(use_case(OWN)),
        out=out,
        positive=positive,
        least=least,
        protocol=protocol,
        seed=seed,
        seeds=seeds,
        replace=replace,
        jobs=jobs,
    )
    with training_bar(quiet=json) as progress:
        result = compare_decisions(request, progress)
    show_result(result, json=json, beside={"path": str(out)})
    print_note(f"{out}: {REPORT}, {PLOT}, {FIGURES}, a model for each line and for all")


STUDY = Study(register)
