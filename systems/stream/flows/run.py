# SPDX-License-Identifier: Apache-2.0
"""Run a stream between a source and sinks that texts name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack

from n3ic.errors import UsageError
from n3ic.model.classifier import Classifier
from n3ic.systems.stream.flows.decide import StreamModel
from n3ic.systems.stream.flows.figures import StreamFigures
from n3ic.systems.stream.flows.pipeline import FlowStream, StreamSettings
from n3ic.systems.stream.flows.sink import StreamSink, open_sink
from n3ic.systems.stream.flows.source import open_source


def run_stream(
    source: str,
    model: Classifier,
    sinks: Sequence[str | StreamSink],
    settings: StreamSettings,
    *,
    features: bool = False,
    metrics: str = "",
    watch: Callable[[StreamFigures], object] = lambda _: None,
) -> StreamFigures:
    """Meter packets, decide flows and write them, until the source ends or Ctrl-C.

    Args:
        source: what :func:`open_source` takes.
        model: the model.
        sinks: sinks, or what :func:`open_sink` takes.
        settings: how to run.
        features: whether sinks also get the model's features.
        metrics: address to serve figures for Prometheus on; empty for none.
        watch: called with the figures a few times a second.

    Raises:
        UsageError: a name is unknown, a place is named twice, or the model carries no meter.
        DataError: the source cannot be opened, or the state is of another stream.
        N3icError: the source or a sink failed; see :meth:`FlowStream.run`.
    """
    places = [sink for sink in sinks if isinstance(sink, str)]
    if len({*places}) < len(places):
        raise UsageError("--sink: the same place is named twice")
    stream_model = StreamModel(model, features)
    with ExitStack() as stack:
        opened = open_source(source, model)
        stack.callback(opened.close)
        writers = [
            open_sink(sink, stream_model) if isinstance(sink, str) else sink for sink in sinks
        ]
        stream = FlowStream(opened, stream_model, writers, settings)
        if metrics:
            from n3ic.systems.stream.flows.metrics import serving

            stack.enter_context(serving(metrics, stream.figures))
        return stream.run(watch)
