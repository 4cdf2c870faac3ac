# SPDX-License-Identifier: Apache-2.0
"""A stream's figures for Prometheus, on a port of this machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from n3ic.cli.console import print_note
from n3ic.errors import UsageError, needed
from n3ic.systems.stream.flows.figures import Latencies, StreamFigures

if TYPE_CHECKING:
    from prometheus_client.core import Metric

_BUCKETS_US = tuple(10**n for n in range(1, 9))


@contextmanager
def serving(place: str, figures: StreamFigures) -> Iterator[int]:
    """Serve the figures at ``ADDRESS:PORT`` during the block.

    Yields:
        The port.

    Raises:
        UsageError: ``place`` is not an address and a port, or the port is in use.
        MissingDependencyError: prometheus-client is not installed.
    """
    with needed("serving figures"):
        from prometheus_client import start_http_server
        from prometheus_client.registry import Collector, CollectorRegistry

    class Figures(Collector):
        def collect(self) -> Iterable[Metric]:
            return metrics(figures)

        def describe(self) -> Iterable[Metric]:
            return ()

    address, _, port = place.rpartition(":")
    if not address or not port.isdecimal() or int(port) >= 1 << 16:
        raise UsageError(f"--metrics {place!r}: expected ADDRESS:PORT, such as 127.0.0.1:9109")
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Figures())
    try:
        server, thread = start_http_server(int(port), address.strip("[]"), registry)
    except OSError as error:
        raise UsageError(f"--metrics {place}: {error.strerror or error}") from error
    print_note(f"http://{address}:{server.server_port}/metrics")
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def metrics(f: StreamFigures) -> Iterator[Metric]:
    """Convert the figures to metrics; counters start at 0 when the stream begins."""
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
    )

    for name, text, value in (
        ("packets", "Packets or rows read", f.packets),
        ("flows", "Flows decided", f.flows),
        ("states", "States written", f.commits),
        ("packets_late", "Packets behind the end of their flow", f.meter.get("late", 0)),
        ("flows_evicted", "Flows that the full cache ended", f.meter.get("evicted", 0)),
    ):
        yield CounterMetricFamily(f"n3ic_stream_{name}", text, value=value)
    for name, text, label, counts in (
        ("verdicts", "Flows by verdict", "verdict", dict(f.classes)),
        ("packets_dropped", "Packets that no flow has, by place and reason", "place", f.dropped),
    ):
        family = CounterMetricFamily(f"n3ic_stream_{name}", text, labels=[label])
        for what, count in counts.items():
            family.add_metric([what], count)
        yield family
    waiting = GaugeMetricFamily("n3ic_stream_waiting", "Batches in a queue", labels=["queue"])
    for queue, (now, _, _) in f.waiting.items():
        waiting.add_metric([queue], now)
    yield waiting
    latency = HistogramMetricFamily(
        "n3ic_stream_latency_seconds", "Time from a flow's arrival", labels=["until"]
    )
    for until, times in (("decided", f.decided), ("written", f.written)):
        latency.add_metric([until], _buckets(times), times.sum_us / 1e6)
    yield latency


def _buckets(times: Latencies) -> list[tuple[str, float]]:
    counts = [
        (item.value_iterated_to, item.count_at_value_iterated_to)
        for item in times.histogram.get_recorded_iterator()
    ]
    ends = [(us, sum(n for value, n in counts if value <= us)) for us in _BUCKETS_US]
    return [*((f"{us / 1e6:g}", n) for us, n in ends), ("+Inf", sum(n for _, n in counts))]
