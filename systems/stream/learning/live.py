# SPDX-License-Identifier: Apache-2.0
"""Learns from a source while it runs."""

from __future__ import annotations

from collections.abc import Callable

from n3ic.model.classifier import Classifier
from n3ic.systems.stream.batch import FlowBatch
from n3ic.systems.stream.flows.decide import StreamModel
from n3ic.systems.stream.flows.figures import StreamFigures
from n3ic.systems.stream.flows.pipeline import FlowStream, StreamSettings
from n3ic.systems.stream.flows.sinks.callback import CallbackSink
from n3ic.systems.stream.flows.source import Source
from n3ic.systems.stream.learning.stream import LearnedBatch, LiveLearner


class _Feed:
    """Hands the flows of a stream to a learner."""

    def __init__(self, learner: LiveLearner, on_batch: Callable[[LearnedBatch], object]) -> None:
        self._learner, self._on_batch = learner, on_batch

    def write(self, batch: FlowBatch) -> None:
        """Learn from a batch, and report the result."""
        self._on_batch(self._learner.learn(batch))


def learn_live(
    source: Source,
    model: Classifier,
    learner: LiveLearner,
    on_batch: Callable[[LearnedBatch], object],
    seconds: float | None = None,
    watch: Callable[[StreamFigures], object] = lambda figures: None,
) -> StreamFigures:
    """Learn from a source until it ends, the time limit is reached, or Ctrl-C.

    Labels are read with each batch of flows.

    Args:
        source: the source; closed at the end.
        model: the model that defines the meter and the features.
        learner: the learner.
        on_batch: called with the result of each batch.
        seconds: time limit in seconds; None for no limit.
        watch: called with the figures a few times a second.

    Raises:
        UsageError: The source gives packets, but the model carries no meter.
        N3icError: The source, the learner's log or a push failed.
    """
    feed = CallbackSink(_Feed(learner, on_batch).write, "learner")
    stream = FlowStream(source, StreamModel(model), [feed], StreamSettings(seconds=seconds))
    figures = stream.run(watch)
    on_batch(learner.finish())
    return figures
