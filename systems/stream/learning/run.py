# SPDX-License-Identifier: Apache-2.0
"""Learns from a table or a source whose labels come late, in a folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from n3ic.errors import UsageError
from n3ic.meter.capture import is_capture
from n3ic.model.classifier import Classifier
from n3ic.systems.stream.batch import FlowBatch
from n3ic.systems.stream.flows.decide import StreamModel
from n3ic.systems.stream.flows.figures import StreamFigures
from n3ic.systems.stream.flows.pipeline import FlowStream, StreamSettings
from n3ic.systems.stream.flows.sinks.callback import CallbackSink
from n3ic.systems.stream.flows.source import Source, open_source
from n3ic.systems.stream.learning.blocks import block_hashes
from n3ic.systems.stream.learning.late_labels import LabelFile, LabelJoin
from n3ic.systems.stream.learning.learner import LearnSettings
from n3ic.systems.stream.learning.learning_folder import LOG, LearningFolder, time_text
from n3ic.systems.stream.learning.pushes import push_to
from n3ic.systems.stream.learning.replay import ReplayedFlows, replayed
from n3ic.systems.stream.learning.rows import LabelledRows
from n3ic.systems.stream.learning.stream import LearnedBatch, LiveLearner, replayed_labels
from n3ic.util.display import Displayed, TextTable, View
from n3ic.util.markdown import percent

_BATCH = 200  # flows of a batch of a replayed table
_ANCHORS = 2000


@dataclass(frozen=True, repr=False, eq=False)
class LearnedStream(Displayed):
    """What was learned from a stream of flows.

    Attributes:
        began: the model that ran first.
        running: the model that runs now.
        decisions: the learner's decisions in their order, as ``n3ic stream history`` shows them.
        counts: numbers of flows and labels, by what became of them.
        accuracy: for a replayed table, flows and right decisions of each batch by the model that
            ran at the time.
        unread: labels that could not be read.
        first_fault: what was wrong with the first of them.
    """

    began: Classifier
    running: Classifier
    decisions: tuple[Mapping[str, Any], ...]
    counts: Mapping[str, int]
    accuracy: tuple[tuple[int, int], ...] = ()
    unread: int = 0
    first_fault: str = ""

    def __str__(self) -> str:
        same = ", as before" if self.running.digest == self.began.digest else ""
        return (
            f"{self.counts['flows labelled']:,} flows labelled, running {self.running.name} "
            f"{self.running.digest[:12]}{same}"
        )

    def view(self) -> View:
        """The line and tables to display."""
        rows = tuple((name, f"{count:,}") for name, count in self.counts.items())
        flows = sum(number for number, _ in self.accuracy)
        right = sum(number for _, number in self.accuracy)
        more = (("right, by the model of the time", percent(right / flows)),) if flows else ()
        return View(str(self), (TextTable("learned", ("", ""), rows + more),))

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "running": self.running.digest,
            "began": self.began.digest,
            "decisions": [dict(d) for d in self.decisions],
            "counts": dict(self.counts),
            "accuracy": [{"flows": n, "right": share} for n, share in self.accuracy],
        }


def learn_from(
    source: str,
    folder: Path,
    model: Classifier | None,
    settings: LearnSettings,
    *,
    labels: str | Path | None = None,
    delay: int | None = None,
    push: str = "",
    anchors: str | Path | None = None,
    dataset: str | None = None,
    seconds: float | None = None,
    watch: Callable[[LearnedBatch], object] = lambda batch: None,
) -> LearnedStream:
    """Refresh a model on labels that come late, with the arguments of :func:`n3ic.learn`."""
    if (labels is None) == (delay is None):
        raise UsageError("labels come from --labels FILE or, for a table, --delay N: give one")
    swap = push_to(push) if push else None
    with ExitStack() as opened:
        learning: LearningFolder | None = None
        if (folder / LOG).exists():
            if model is not None:
                raise UsageError(f"{folder} exists: leave --model out to go on there")
            learning = LearningFolder(folder, swap, now=time_text)
            opened.callback(learning.close)
            first, settings = learning.learner.running, learning.learner.settings
        elif model is None:
            raise UsageError(f"{folder}: a new folder needs --model")
        else:
            first = model
        trusted = None if anchors is None else _anchors(anchors, first, dataset, settings)
        flows = packets = None
        if Path(source).is_file() and not is_capture(source):
            flows = replayed(source, first, dataset=dataset)
            if seconds is not None:
                raise UsageError("--seconds: a table of flows is read to its end")
        else:
            packets = open_source(source, first)
            if labels is None:
                packets.close()
                raise UsageError(f"{source}: packets have no labels of their own: give --labels")
        if learning is None:
            LearningFolder.begin(folder, first, settings)
            learning = LearningFolder(folder, swap, now=time_text)
            opened.callback(learning.close)
        if trusted is not None:
            learning.anchor(trusted)
        join = LabelJoin(first, seed=settings.seed, block=settings.block)
        right: list[tuple[int, int]] = []
        file = LabelFile(labels or "")
        if flows is None or labels is not None:
            learner = LiveLearner(lambda _: file.news(), learning, join)
        else:
            late = replayed_labels(flows, first, delay or 0, settings.seed)
            learner = LiveLearner(late, learning, join)
        if packets is not None:
            learn_live(packets, first, learner, watch, seconds)
        if flows is not None:
            for batch in _running(flows, learning, right):
                watch(learner.learn(batch))
        return LearnedStream(
            first,
            learning.learner.running,
            tuple(learning.decisions),
            {**join.counts, "late for their block": learning.learner.blocks.late},
            tuple(right),
            file.unread,
            file.first_fault,
        )


def learn_live(
    source: Source,
    model: Classifier,
    learner: LiveLearner,
    watch: Callable[[LearnedBatch], object],
    seconds: float | None = None,
    figures: Callable[[StreamFigures], object] = lambda figures: None,
) -> StreamFigures:
    """Learn from packets until they end, the time limit is reached, or Ctrl-C.

    ``figures`` gets those of the stream a few times a second; see :func:`learn_from`.
    """
    sink = CallbackSink(lambda batch: watch(learner.learn(batch)), "learner")
    settings = StreamSettings(seconds=seconds)
    counts = FlowStream(source, StreamModel(model), [sink], settings).run(figures)
    watch(learner.finish())
    return counts


def _anchors(
    path: str | Path, model: Classifier, dataset: str | None, settings: LearnSettings
) -> LabelledRows:
    flows = replayed(path, model, dataset=dataset)
    rows = np.flatnonzero(flows.label >= 0)
    if len(rows) > _ANCHORS:
        rows = np.sort(np.random.default_rng(settings.seed).choice(rows, _ANCHORS, replace=False))
    tick = model.meter.tick_ns if model.meter else 1000
    blocks = block_hashes(flows.records[rows], tick, settings.block, settings.seed)
    return LabelledRows(flows.features[rows], flows.label[rows], blocks)


def _running(
    flows: ReplayedFlows, learning: LearningFolder, right: list[tuple[int, int]]
) -> Iterator[FlowBatch]:
    """Decide flows with the model running at the time; append how many are right to ``right``."""
    for start in range(0, len(flows), _BATCH):
        rows = slice(start, start + _BATCH)
        batch = flows.batch(learning.learner.running, rows)
        right.append((len(batch), int((batch.classes == flows.label[rows]).sum())))
        yield batch
