# SPDX-License-Identifier: Apache-2.0
"""The function ``n3ic.learn``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from n3ic.errors import in_python, needed

if TYPE_CHECKING:
    from n3ic.api import ModelLike
    from n3ic.systems.stream.learning.run import LearnedStream
    from n3ic.systems.stream.learning.stream import LearnedBatch


@in_python()
@needed("n3ic.learn")
def learn(
    source: str | Path,
    folder: str | Path,
    model: ModelLike | None = None,
    *,
    labels: str | Path | None = None,
    delay: int | None = None,
    push: str = "",
    anchors: str | Path | None = None,
    dataset: str | None = None,
    alpha: float = 0.05,
    block: str = "source,minute",
    every: int = 500,
    held: float = 0.3,
    guard: float = 0.05,
    seconds: float | None = None,
    seed: int = 0,
    watch: Callable[[LearnedBatch], object] | None = None,
) -> LearnedStream:
    """Refresh a model on labels that come late, and swap it in only if it is better.

    Args:
        source: a table of flows, or a source as :func:`n3ic.stream` takes it.
        folder: log and models; an existing folder resumes, with the settings that it began with.
        model: the model to begin with, for a new folder: a model, its file or a run of one network.
        labels: labels by flow key: a growing file of JSON lines, or ``.csv``.
        delay: take the table's own labels, up to this many flows late; instead of ``labels``.
        push: where the running model is: ``file:PATH``, ``host:FOLDER`` or ``xdp:INTERFACE``.
        anchors: flows with trusted labels, of which no class may be forgotten.
        dataset: the data set that reads the flows; None for the one of the training.
        alpha: probability of ever promoting a model that is no better; blocks are independent.
        block: what flows of a block have in common, which count as one in judging: ``flow``, or
            some of ``source``, ``destination`` and ``minute``, joined by commas.
        every: labelled flows between two refreshed models.
        held: share of the blocks that judge and are not trained on.
        guard: by how much the recall of a class may fall on the anchors.
        seconds: stop a live source after this many seconds; None for no limit.
        seed: seed of the reservoir and the training.
        watch: called with the result of each batch.

    Returns:
        The models before and after, the decisions, and counts of flows and labels.

    Raises:
        UsageError: arguments contradict each other, or no data set reads the flows.
        DataError: the source or the labels cannot be opened.
        N3icError: the source, the folder's log or a push failed.
    """
    from n3ic.api import model_of
    from n3ic.systems.stream.learning.learner import LearnSettings
    from n3ic.systems.stream.learning.run import learn_from

    return learn_from(
        str(source),
        Path(folder),
        None if model is None else model_of(model),
        LearnSettings(
            every=every,
            held=held,
            alpha=alpha,
            guard=guard,
            seed=seed,
            block=block,
        ),
        labels=labels,
        delay=delay,
        push=push,
        anchors=anchors,
        dataset=dataset,
        seconds=seconds,
        watch=watch or (lambda _: None),
    )
