# SPDX-License-Identifier: Apache-2.0
"""Learns from what a source gives while it gives it."""

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


class _Taker:
    """Gives a learner the flows of a stream."""

    def __init__(self, learner: LiveLearner, tell: Callable[[LearnedBatch], object]) -> None:
        self._learner, self._tell = learner, tell

    def write(self, batch: FlowBatch) -> None:
        """Learn from a batch, and say what came of it."""
        self._tell(self._learner.learn(batch))


def learn_live(
    source: Source,
    model: Classifier,
    learner: LiveLearner,
    tell: Callable[[LearnedBatch], object],
    seconds: float | None = None,
    watch: Callable[[StreamFigures], object] = lambda figures: None,
) -> StreamFigures:
    """Learn from a source until it ends, the time is over, or Ctrl-C.

    Labels are asked for with each batch of flows.

    Args:
        source: the source; closed at the end.
        model: has the meter and the features.
        learner: learns.
        tell: called with what happened with each batch.
        seconds: time limit; None for none.
        watch: called with the figures a few times a second.

    Raises:
        UsageError: the model carries no meter and the source gives packets.
        N3icError: the source, the learner's log or a push failed.
    """
    taker = CallbackSink(_Taker(learner, tell), "learner")
    stream = FlowStream(source, StreamModel(model), [taker], StreamSettings(seconds=seconds))
    figures = stream.run(watch)
    tell(learner.finish())
    return figures
