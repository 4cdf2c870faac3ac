# SPDX-License-Identifier: Apache-2.0
"""``n3ic stream learn``, ``rollback``, ``history``, ``second-stage`` and ``drift``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from n3ic.cli.rows import takes_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from n3ic.model.classifier import Classifier
    from n3ic.systems.stream.learning.replay import ReplayedFlows
    from n3ic.systems.stream.learning.stream import LearnedBatch

Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder of n3ic stream learn.")]
Push = Annotated[
    str,
    typer.Option(help="Where the running model is: file:PATH, host:FOLDER or xdp:INTERFACE."),
]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print as JSON.")]


@takes_rows("source")
def learn(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE", help="A table of flows, or a source as n3ic stream takes it."
        ),
    ],
    folder: Annotated[Path, typer.Option(help="Log and models; an existing folder resumes.")],
    model: Annotated[
        Path | None, typer.Option(help="Model file or run to begin with, for a new folder.")
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(help="Labels by flow key: a growing file of JSON lines, or .csv."),
    ] = None,
    delay: Annotated[
        int | None,
        typer.Option(help="Take the table's own labels, up to this many flows late.", min=0),
    ] = None,
    push: Push = "",
    anchors: Annotated[
        Path | None,
        typer.Option(help="Flows with trusted labels, of which no class may be forgotten."),
    ] = None,
    dataset: Annotated[str | None, typer.Option(help="Data set that reads the flows.")] = None,
    alpha: Annotated[
        float, typer.Option(help="Probability of ever promoting a model that is no better.")
    ] = 0.05,
    block: Annotated[
        str,
        typer.Option(
            help="Flows that count as one in judging: flow, or some of source,destination,minute."
        ),
    ] = "source,minute",
    every: Annotated[
        int, typer.Option(help="Labelled flows between two refreshed models.", min=1)
    ] = 500,
    held_share: Annotated[
        float, typer.Option("--held", help="Share of blocks that judge and are not trained on.")
    ] = 0.3,
    guard: Annotated[
        float, typer.Option(help="By how much the recall of a class may fall on the anchors.")
    ] = 0.05,
    seconds: Annotated[
        float | None, typer.Option(help="Stop after this many seconds.", min=0.0)
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the reservoir and the training.")] = 0,
    json: JsonFlag = False,
) -> None:
    """Refresh a model on labels that come late, and swap it in only if it is better."""
    from n3ic.cli.console import print_json, print_note, print_result
    from n3ic.systems.stream.learning.learner import LearnSettings
    from n3ic.systems.stream.learning.run import learn_from

    def show_decisions(learned: LearnedBatch) -> None:
        if learned.decisions and not json:
            decisions = ", ".join(learned.decisions)
            print_note(f"after {learned.flows:,} flows, {learned.labelled:,} labelled: {decisions}")

    settings = LearnSettings(
        every=every,
        held=held_share,
        alpha=alpha,
        guard=guard,
        seed=seed,
        block=block,
    )
    result = learn_from(
        source,
        folder,
        None if model is None else _model(model),
        settings,
        labels=labels,
        delay=delay,
        push=push,
        anchors=anchors,
        dataset=dataset,
        seconds=seconds,
        watch=show_decisions,
    )
    if result.unread:
        print_note(f"{result.unread} labels could not be read: {result.first_fault}")
    if json:
        print_json(result.to_dict())
        return
    print_result(str(result))
    if late := result.counts["late for their block"]:
        print_note(f"{late:,} held-out flows came after their block was judged, and were left out")


def rollback(
    folder: Folder,
    push: Push = "",
) -> None:
    """Put the former model back, both on the target and in the log."""
    from n3ic.cli.console import print_result
    from n3ic.systems.stream.learning.learning_folder import LearningFolder, time_text
    from n3ic.systems.stream.learning.pushes import push_to

    learning = LearningFolder(folder, push_to(push) if push else None, now=time_text)
    learning.roll_back()
    now = learning.learner.running
    learning.close()
    print_result(f"{folder}: running {now.name} {now.digest[:12]} again")


def history(
    folder: Folder,
    replay: Annotated[
        bool, typer.Option("--replay", help="Train every model again, and compare its bytes.")
    ] = False,
    json: JsonFlag = False,
) -> None:
    """Show what was decided, and check that the log yields the same decisions again."""
    from n3ic.cli.console import print_json, print_result, show_table
    from n3ic.systems.stream.learning.learning_folder import LearningFolder
    from n3ic.util.display import TextTable

    learning = LearningFolder(folder, retrain=replay)
    learning.close()
    now = learning.learner.running
    if json:
        print_json({"running": now.digest, "decisions": learning.decisions})
        return
    rows = tuple(
        (
            str(d["what"]),
            str(d.get("model", ""))[:12],
            str(d.get("outcome") or d.get("error") or d.get("reason") or ""),
            "" if "blocks" not in d else f"{d['blocks']:,}",
            f"{d['better']} : {d['worse']}" if "better" in d else "",
        )
        for d in learning.decisions
    )
    head = ("decision", "model", "outcome", "blocks", "better : worse")
    show_table(TextTable(f"{folder}", head, rows, left=3))
    print_result(f"running {now.name} {now.digest[:12]}")


@takes_rows("data")
def second_stage(
    model: Annotated[
        Path | None, typer.Option(help="Model file or run; default: the newest run.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Labelled flows; default: the embedded sample.")
    ] = None,
    dataset: Annotated[str | None, typer.Option(help="Data set that reads the flows.")] = None,
    write: Annotated[
        Path | None, typer.Option(help="Write the second stage, a model, to this file.")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace an existing file.")] = False,
    json: JsonFlag = False,
) -> None:
    """Train boosted trees for the flows that the card is not sure of, and show both together.

    A star marks the threshold that n3ic shunt wrote into the model.
    """
    from n3ic.cli.console import print_json, print_note, show_table, spinner
    from n3ic.runs.folder import newest_run
    from n3ic.systems.stream.learning.second_stage import second_stage as study
    from n3ic.util.files import free_path

    if write is not None:
        free_path(write, replace)
    if model is None:
        model = newest_run()
        print_note(f"model: {model}")
    with spinner("training the second stage"):
        result = study(model, data, dataset=dataset)
    if json:
        print_json(result.to_dict())
    else:
        for each in result.tables:
            show_table(each)
    if write is not None:
        result.stage.save(write)
        print_note(f"wrote {write}")


@takes_rows("source")
def drift(
    source: Annotated[
        Path, typer.Argument(metavar="SOURCE", help="A capture, or a table of flows.")
    ],
    model: Annotated[Path, typer.Option(help="Model file or run that classifies them.")],
    reference: Annotated[
        Path | None,
        typer.Option(help="Flows like those of the training; default: the source's first ones."),
    ] = None,
    reference_flows: Annotated[
        int, typer.Option(help="Without --reference, take this many of the source.", min=100)
    ] = 1000,
    dataset: Annotated[str | None, typer.Option(help="Data set that reads the flows.")] = None,
    block: Annotated[
        str,
        typer.Option(
            help="Flows that count as one: flow, some of source,destination,minute, or a number "
            "of consecutive flows."
        ),
    ] = "source,minute",
    alpha: Annotated[
        float, typer.Option(help="Probability of ever giving an alarm without a change.")
    ] = 0.01,
    seed: Annotated[int, typer.Option(help="Seed of the ranks among equals.")] = 0,
    json: JsonFlag = False,
) -> None:
    """Test whether traffic is still that of the training."""
    import numpy as np

    from n3ic.cli.console import print_json, print_note, print_result
    from n3ic.errors import UsageError
    from n3ic.systems.stream.learning.blocks import FLOW
    from n3ic.systems.stream.learning.drift_detector import DriftDetector
    from n3ic.systems.stream.learning.replay import flows_of

    if not 0 < alpha < 1:
        raise UsageError(f"--alpha: expected an error between 0 and 1, got {alpha}")
    network = _model(model)
    tables = [source, *([reference] if reference else [])]
    flows, *others = [flows_of(table, network, dataset) for table in tables]
    blocks, *blocks_of_others = _drift_blocks([flows, *others], network, block, seed)
    if reference:
        like, like_block = others[0], blocks_of_others[0]
    else:
        like, like_block = flows.select(slice(reference_flows)), blocks[:reference_flows]
        flows, blocks = flows.select(slice(reference_flows, None)), blocks[reference_flows:]
    test = DriftDetector(
        network,
        np.ascontiguousarray(like.features),
        reference_block=like_block,
        alpha=alpha,
        seed=seed,
    )
    change = test.add(flows.features, blocks)
    if test.blocks == test.flows and not (block.isdecimal() or block == FLOW):
        print_note(
            "each flow is a block of its own: if the rows are in the order of time and have no "
            "addresses, give --block N for N consecutive flows"
        )
    if json:
        alarm = None if change is None else {"flow": change.flow, "statistic": change.statistic}
        counts = {"flows": len(flows), "blocks": test.blocks, "reference": len(like)}
        print_json({**counts, "alarm": alarm})
    elif change is None:
        print_result(
            f"no drift in {len(flows):,} flows ({test.blocks:,} blocks), "
            f"against {len(like):,} of the reference"
        )
    else:
        print_result(
            f"drift: found at flow {change.flow:,} of {len(flows):,} (block {test.blocks:,}), "
            f"most in {change.statistic}; if blocks are exchangeable, an alarm ever has a "
            f"probability of at most {alpha:g}"
        )


def _model(path: Path) -> Classifier:
    """The model of a file, or of a run with one model."""
    from n3ic.errors import UsageError
    from n3ic.model.load import load_model
    from n3ic.runs.folder import models_of

    models = models_of(path)
    if len(models) > 1:
        raise UsageError(f"{path} holds {len(models)} networks: name the file of one")
    return load_model(next(iter(models.values())))


def _drift_blocks(
    tables: Sequence[ReplayedFlows], model: Classifier, block: str, seed: int
) -> list[NDArray[np.uint64]]:
    """The block of each flow; consecutive flows if ``block`` is a number.

    Blocks of different tables differ, for addresses and times of flows without any are numbers.
    """
    import numpy as np

    from n3ic.errors import UsageError
    from n3ic.systems.stream.learning.blocks import block_hashes

    if not block.isdecimal():
        tick = model.meter.tick_ns if model.meter else 1000
        seeds = range(len(tables) * seed, len(tables) * (seed + 1))
        return [
            block_hashes(table.records, tick, block, own)
            for table, own in zip(tables, seeds, strict=True)
        ]
    if int(block) < 1:
        raise UsageError(f"--block: expected 1 flow or more, got {block}")
    starts = np.cumsum([0, *(-(-len(table) // int(block)) for table in tables)]).tolist()
    return [
        (np.arange(len(table)) // int(block) + start).astype(np.uint64)
        for table, start in zip(tables, starts, strict=False)
    ]
