# SPDX-License-Identifier: Apache-2.0
"""The function ``n3ic.stream``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

from n3ic.errors import ArgumentError, in_python, needed

if TYPE_CHECKING:
    from n3ic.api import ModelLike
    from n3ic.systems.stream.batch import FlowBatch
    from n3ic.systems.stream.flows.figures import StreamFigures
    from n3ic.systems.stream.flows.sink import StreamSink
    from n3ic.systems.stream.flows.sinks.callback import TakesFlows

Sink = Union[str, Path, "TakesFlows", "StreamSink"]


@in_python()
@needed("n3ic.stream")
def stream(
    source: str | Path,
    model: ModelLike | None = None,
    sink: Sink | Sequence[Sink] | None = None,
    *,
    on_flows: Callable[[FlowBatch], object] | None = None,
    state: str | Path | None = None,
    commit: float = 5.0,
    follow: bool = False,
    features: bool = False,
    replace: bool = False,
    seconds: float | None = None,
    metrics: str = "",
    watch: Callable[[StreamFigures], object] | None = None,
) -> StreamFigures:
    """Meter packets, decide flows and write them to sinks, until the source ends or Ctrl-C.

    Args:
        source: a capture, ``-`` for standard input, a network interface, ``af_xdp:INTERFACE``,
            ``dpdk:DEVICE``, ``shunted:SOCKET``, ``xdp:INTERFACE``, ``udp:ADDRESS:PORT`` or
            ``kafka://HOST:PORT/TOPIC``.
        model: a model, its file, a run of one network, or a fitted estimator; None for the newest
            run. For packets it must carry its meter.
        sink: where decided flows go, one or several: ``FILE.jsonl``, ``FILE.parquet``, ``-`` for
            standard output, ``ipfix://HOST:PORT``, ``kafka://HOST:PORT/TOPIC``,
            ``nats://HOST:PORT/SUBJECT``, or an object with ``write(batch)``. None for standard
            output, or for ``on_flows`` alone.
        on_flows: called with each :class:`~n3ic.systems.stream.batch.FlowBatch` of decided flows.
        state: folder of the stream's state, from which the same call resumes; None keeps no state.
        commit: seconds between two states.
        follow: go on with a new model whenever the file of ``model`` is replaced.
        features: write the model's features as well.
        replace: replace existing files of the sinks.
        seconds: stop after this many seconds; None for no limit.
        metrics: address to serve figures for Prometheus on, such as ``127.0.0.1:9109``.
        watch: called with the figures a few times a second.

    Returns:
        Counts of packets, flows, verdicts and losses, and latencies in microseconds.

    Raises:
        ArgumentError: ``follow`` is set, and ``model`` is no file or run.
        UsageError: a source or sink is unknown, or the model carries no meter.
        DataError: the source cannot be opened, or the state is of another stream.
        N3icError: the source or a sink failed; everything before the last state is kept.
    """
    from n3ic.api import model_of
    from n3ic.runs.folder import models_of, newest_run
    from n3ic.systems.stream.flows.pipeline import StreamSettings
    from n3ic.systems.stream.flows.run import run_stream

    given = newest_run() if model is None else model
    followed = None
    if follow:
        if not isinstance(given, str | Path):
            raise ArgumentError(f"model: expected a file to follow, got {type(given).__name__}")
        followed = next(iter(models_of(given).values()))
    settings = StreamSettings(
        None if state is None else Path(state),
        commit,
        replace,
        seconds,
        followed,
    )
    return run_stream(
        str(source),
        model_of(given),
        _sinks([] if sink is None else sink, on_flows),
        settings,
        features=features,
        metrics=metrics,
        watch=watch or (lambda _: None),
    )


def _sinks(sink: Any, on_flows: Callable[[FlowBatch], object] | None) -> list[str | StreamSink]:
    """One sink or several, with a name for each object or function that takes flows."""
    from n3ic.systems.stream.flows.sink import StreamSink
    from n3ic.systems.stream.flows.sinks.callback import CallbackSink

    several = [*sink] if isinstance(sink, list | tuple) else [sink]
    if on_flows is not None:
        several.append(on_flows)
    sinks: list[str | StreamSink] = []
    for number, one in enumerate(several):
        if isinstance(one, str | Path):
            sinks.append(str(one))
        elif isinstance(one, StreamSink):
            sinks.append(one)
        elif callable(write := getattr(one, "write", on_flows if one is on_flows else None)):
            sinks.append(CallbackSink(write, f"callback {number}" if number else "callback"))
        else:
            raise ArgumentError(
                "sink: expected a file, a place such as kafka://HOST:PORT/TOPIC, or an object with "
                f"write(batch), got {one!r:.60}"
            )
    return sinks or ["-"]
