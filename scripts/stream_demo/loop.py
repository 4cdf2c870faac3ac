# SPDX-License-Identifier: Apache-2.0
"""The learning loop of the demo.

Packets go through XDP, a second stage decides shunted flows, labels come late, and a refreshed
model is swapped in under load.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from n3ic.exporters.xdp.layout import event_type
from n3ic.exporters.xdp.links import add_link, own_network
from n3ic.exporters.xdp.network.structure import structure_of
from n3ic.meter.compiled import Records
from n3ic.meter.flow_keys import Key
from n3ic.meter.labels import Labelled
from n3ic.model.classifier import SHUNT, SHUNT_NAME, Classifier
from n3ic.systems.stream.batch import FlowBatch, encoded, features_read
from n3ic.systems.stream.flows.channel import Channel, ChannelEnded
from n3ic.systems.stream.learning.blocks import record_key
from n3ic.systems.stream.learning.late_labels import LabelJoin
from n3ic.systems.stream.learning.learner import LearnSettings
from n3ic.systems.stream.learning.learning_folder import LearningFolder
from n3ic.systems.stream.learning.pushes import push_to
from n3ic.systems.stream.learning.stream import LiveLearner
from n3ic.systems.xdp import deployment
from n3ic.systems.xdp.flow_reader import FlowReader, flow_records
from n3ic.systems.xdp.program_record import Interface
from n3ic.systems.xdp.status import status
from n3ic.targets.directory import export
from scripts.stream_demo.traffic import (
    CLASSES,
    METER,
    DemoFlow,
    PacedSocket,
    SecondStage,
    flows,
    second_stage,
    trained,
)

BATCH = 60  # flows that are sent before their decisions are read
WINDOWS = 16
EVERY = 240  # labelled flows between two refreshed models
PATIENCE = 200  # held-out flows after which a candidate that is not better makes room
_LATE = 3  # batches after which labels come
_RECENT = 15  # batches on which the second stage is retrained
_CARD, _PEER = "n3icdemo0", "n3icdemo1"
_FIRST = 10_000  # number of the first client; lower numbers are those of the training
_WAIT_S, _SILENT_S = 0.2, 2.0
_DIGEST = 16  # digits of the model's digest that a decided flow carries


@dataclass(frozen=True)
class LoopWindow:
    """Figures of consecutive flows.

    Attributes:
        flows: flows decided by the end of the window.
        changed: whether the traffic has changed.
        shunted: share of the flows that the card left to the second stage.
        card: share of the card's decisions that are right; None if it decided no flow.
        rest: share of the second stage's decisions that are right; None if it decided no flow.
        both: share of all decisions that are right.
        labelled: flows whose labels had come by the end of the window.
        kernel: beginning of the digest of the model that decided the last flow.
        pushes: models pushed by the end of the window.
    """

    flows: int
    changed: bool
    shunted: float
    card: float | None
    rest: float | None
    both: float
    labelled: int
    kernel: str
    pushes: int


@dataclass
class LoopFigures:
    """What the loop has done so far.

    Attributes:
        total: flows that are to be sent.
        flows: decided flows that the card has reported.
        windows: the windows that have ended.
        refreshed: models that were trained to replace the running one.
        failed: pushes that failed.
        lost: flows for which the ring buffer had no room.
        unlike: flows whose scores in the kernel differ from those of the model with that digest.
        seconds: seconds since the first packet.
    """

    total: int
    flows: int = 0
    windows: list[LoopWindow] = field(default_factory=list)
    refreshed: int = 0
    failed: int = 0
    lost: int = 0
    unlike: int = 0
    seconds: float = 0.0

    def summary(self) -> dict[str, LoopWindow]:
        """The last window before the change, the first one after it, and the last one."""
        before = [w for w in self.windows if not w.changed]
        after = [w for w in self.windows if w.changed]
        windows = {"before the change": before[-1:], "after it": after[:1], "at the end": after[1:]}
        return {name: some[-1] for name, some in windows.items() if some}

    def to_dict(self) -> dict[str, Any]:
        """The figures as plain data."""
        summary = {name: asdict(window) for name, window in self.summary().items()}
        return {**asdict(self), "seconds": round(self.seconds, 3), "summary": summary}


class _LateLabels:
    """Labels that come some batches late; within a batch, the last flow's label comes first."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Records, NDArray[np.int64]]] = deque()
        self._labelled: deque[tuple[NDArray[np.uint32], NDArray[np.int64]]] = deque(maxlen=_RECENT)
        self.late = _LATE

    def add(self, records: Records, label: NDArray[np.int64]) -> None:
        """Add flows whose labels will come."""
        self._waiting.append((records, label))

    def news(self) -> list[tuple[Key, Labelled]]:
        """The labels that are due."""
        if len(self._waiting) <= self.late:
            return []
        records, label = self._waiting.popleft()
        self._labelled.append((records["features"], label))
        pairs = zip(records[::-1], label[::-1].tolist(), strict=True)
        return [(record_key(record), Labelled(CLASSES[index])) for record, index in pairs]

    def latest(self) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """The features, shape ``(flows, features)``, and labels of the latest labelled flows."""
        features, label = zip(*self._labelled, strict=True)
        return np.concatenate(features), np.concatenate(label)


def learn_settings(seed: int) -> LearnSettings:
    """How the demo learns: each client sends one flow, and so is a block.

    A block's minute would be the kernel's, and each run would train on other flows.
    """
    return LearnSettings(every=EVERY, block="source", patience=PATIENCE, seed=seed)


def run_loop(
    folder: Path, total: int, seed: int, report_figures: Callable[[LoopFigures], object]
) -> LoopFigures:
    """Run the loop in a network namespace of its own.

    Args:
        folder: where export, models and log are written.
        total: how many flows to send; the traffic changes after half of them.
        seed: seed of the traffic and the training.
        report_figures: called with the figures after each batch.

    Raises:
        N3icError: This machine lacks something, or the kernel refuses.
    """
    rng = np.random.default_rng(seed)
    card, host = trained(rng)
    export(card, "xdp", folder / "export", verify=False)
    LearningFolder.begin(folder / "learned", card, learn_settings(seed))
    starts = range(0, total, BATCH)
    batches = [
        flows(rng, _FIRST + i, min(BATCH, total - i), changed=2 * i >= total) for i in starts
    ]
    with own_network(), _loaded(folder / "export") as reader:
        learning = LearningFolder(folder / "learned", push_to(f"xdp:{_CARD}"))
        with closing(learning), _reported_flows(reader, card, batches) as reported:
            # All batches: with two CPUs, packets of one batch may overtake those of another.
            truth = {flow.client: flow.label for batch in batches for flow in batch}
            loop = _Loop(card, host, learning, LoopFigures(total), len(batches))
            for events in reported:
                label = np.array([truth[bytes(source[:4])] for source in events["source"]])
                loop.process_batch(events, label)
                loop.figures.lost = status(Interface.named(_CARD)).events_lost + reader.lost
                report_figures(loop.figures)
            loop.finish()
    return loop.figures


class _Loop:
    """The second stage, late labels and learner behind the card, and their figures.

    Args:
        card: the card's first model.
        host: the first second stage.
        learning: learns, and pushes models to the card.
        figures: the figures to update.
        batches: number of batches that will come.
    """

    def __init__(
        self,
        card: Classifier,
        host: SecondStage,
        learning: LearningFolder,
        figures: LoopFigures,
        batches: int,
    ) -> None:
        self.figures = figures
        self._card, self._host, self._learning = card, host, learning
        self._models = {card.digest[:_DIGEST]: card}
        self._labels = _LateLabels()
        settings = learning.learner.settings
        join = LabelJoin(card, seed=settings.seed, block=settings.block)
        self._learner = LiveLearner(lambda _: self._labels.news(), learning, join)
        self._window: list[NDArray[np.bool_]] = []
        self._began, self._batch, self._batches = time.monotonic(), 0, batches

    def process_batch(self, events: Records, label: NDArray[np.int64]) -> None:
        """Take a batch that the card reported, and its true labels, which are revealed late."""
        f = self.figures
        batch = _of_events(self._card, events)
        f.unlike += _count_unlike(self._models, batch)
        both = batch.verdicts.copy()
        rest = np.flatnonzero(both == SHUNT)
        both[rest] = self._host(events["features"][rest])
        self._window.append(np.stack([batch.verdicts != SHUNT, both == label], axis=1))
        self._labels.add(events, label)
        learned = self._learner.learn(batch)
        running = self._learning.learner.running
        self._models[running.digest[:_DIGEST]] = running
        names = Counter(d["what"] for d in self._learning.decisions)
        pushed = [not d["error"] for d in self._learning.decisions if d["what"] == "push"]
        if names["candidate"] > f.refreshed:
            self._host = second_stage(*self._labels.latest())
        f.flows, f.refreshed, f.failed = learned.flows, names["candidate"], pushed.count(False)
        f.seconds = time.monotonic() - self._began
        self._batch += 1
        if self._batch * WINDOWS // self._batches > len(f.windows):
            changed = 2 * self._batch > self._batches
            kernel = bytes(events["model"][-1]).hex()
            f.windows.append(
                LoopWindow(
                    learned.flows,
                    changed,
                    *self._shares(),
                    learned.labelled,
                    kernel,
                    pushed.count(True),
                )
            )

    def finish(self) -> None:
        """Learn from the remaining labels."""
        self._labels.late = 0
        self._learner.finish()

    def _shares(self) -> tuple[float, float | None, float | None, float]:
        """The share shunted, and the shares decided right: by the card, of the rest, of all."""
        decided, right = np.concatenate(self._window).T
        self._window.clear()
        card, rest = (
            float(right[rows].mean()) if rows.any() else None for rows in (decided, ~decided)
        )
        return float(1 - decided.mean()), card, rest, float(right.mean())


@contextmanager
def _loaded(directory: Path) -> Iterator[FlowReader]:
    """Make a link, load the program at one end, and read its flows."""
    add_link(_CARD, _PEER)
    interface = Interface.named(_CARD)
    deployment.load(interface, directory)
    try:
        with closing(FlowReader(interface)) as reader:
            yield reader
    finally:
        deployment.unload(interface)


@contextmanager
def _reported_flows(
    reader: FlowReader, card: Classifier, batches: Sequence[list[DemoFlow]]
) -> Iterator[Channel[Records]]:
    """Send batches, and yield the flows that the program reports, about a batch at a time."""
    sent_batches, reported = Channel[list[DemoFlow]](2), Channel[Records](2)
    with ThreadPoolExecutor(2) as pool:
        jobs = [
            pool.submit(_guarded, _send, batches, sent_batches),
            pool.submit(_guarded, _receive, reader, card, sent_batches, reported),
        ]
        try:
            yield reported
        finally:
            sent_batches.stop()
            reported.stop()
        for job in jobs:
            job.result()


def _guarded(function: Callable[..., None], *arguments: Any) -> None:
    """Run a thread, and close the channel that it writes, its last argument, at the end."""
    try:
        with suppress(ChannelEnded):
            function(*arguments)
    finally:
        arguments[-1].close()


def _receive(
    reader: FlowReader,
    card: Classifier,
    sent_batches: Channel[list[DemoFlow]],
    reported: Channel[Records],
) -> None:
    waiting: list[dict[str, Any]] = []
    for batch in sent_batches:
        end = time.monotonic() + _SILENT_S  # packets may be lost on the way
        while len(waiting) < len(batch) and time.monotonic() < end:
            if new := reader.read(_WAIT_S):
                waiting += new
                end = time.monotonic() + _SILENT_S
        flows, waiting = waiting[: len(batch)], waiting[len(batch) :]
        if flows:
            reported.put(_events(card, flows))


def _events(card: Classifier, flows: Sequence[dict[str, Any]]) -> Records:
    """Flows with what the card decided."""
    events = flow_records(flows, METER, event_type(METER, structure_of([card])))
    for event, flow in zip(events, flows, strict=True):
        shunted, event["margin"] = flow["verdict"] == SHUNT_NAME, flow["margin"]
        event["scores"], event["class"] = flow["scores"], int(np.argmax(flow["scores"]))
        event["verdict"] = SHUNT if shunted else CLASSES.index(flow["verdict"])
        event["model"] = list(bytes.fromhex(flow["model"]))
    return events


def _send(batches: Sequence[list[DemoFlow]], sent_batches: Channel[list[DemoFlow]]) -> None:
    """Send batches; pause while the receiver is two batches behind."""
    with PacedSocket(_PEER, _CARD) as out:
        for batch in batches:
            for flow in batch:
                out.send(flow.frames)
            sent_batches.put(batch)


def _of_events(model: Classifier, events: Records) -> FlowBatch:
    """Convert the card's events to decided flows, with the scores that the card computed."""
    return FlowBatch(
        events,
        features_read(model, METER.feature_names, events),
        events["scores"].astype(np.int32),
        events["class"].astype(np.int64),
        events["margin"].astype(np.int32),
        events["verdict"].astype(np.int64),
    )


def _count_unlike(models: dict[str, Classifier], batch: FlowBatch) -> int:
    """Count the flows whose scores differ from those of the model that the kernel names."""
    out = 0
    digests = batch.records["model"]
    for digest in np.unique(digests, axis=0):
        rows = np.flatnonzero((digests == digest).all(axis=1))
        model = models.get(bytes(digest).hex())
        if model is None:
            out += len(rows)
            continue
        words = encoded(model, np.ascontiguousarray(batch.features[rows]))
        out += int((model.scores(words) != batch.scores[rows]).any(axis=1).sum())
    return out
