# SPDX-License-Identifier: Apache-2.0
"""Converts the figures of a program to metrics for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from n3ic.errors import needed
from n3ic.systems.xdp.status import ALARMS, ProgramStatus

if TYPE_CHECKING:
    from prometheus_client.core import Metric
    from prometheus_client.registry import CollectorRegistry


def registry(status: Callable[[], ProgramStatus]) -> CollectorRegistry:
    """Make a registry with one collector, which reads the figures at every scrape.

    Raises:
        MissingDependencyError: prometheus-client is not installed.
    """
    with needed("serving figures"):
        from prometheus_client.registry import Collector, CollectorRegistry

    class Figures(Collector):
        def collect(self) -> Iterable[Metric]:
            return metrics(status())

        def describe(self) -> Iterable[Metric]:
            return ()

    collectors = CollectorRegistry(auto_describe=False)
    collectors.register(Figures())
    return collectors


def metrics(status: ProgramStatus) -> Iterator[Metric]:
    """Convert the figures to metrics; counters start at 0 when the program is loaded."""
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
    )

    where = [status.interface]

    def single(
        kind: type[CounterMetricFamily | GaugeMetricFamily], name: str, text: str, value: float
    ) -> Metric:
        family = kind(f"n3ic_xdp_{name}", text, labels=["interface"])
        family.add_metric(where, value)
        return family

    for name, text, value in (
        ("packets", "Packets that the program saw", status.packets),
        ("bytes", "Bytes of these packets", status.bytes),
        ("flows_started", "Flows that began", status.started),
        ("flows_evicted", "Flows that the full table forgot", status.evicted),
        ("packets_late", "Packets behind the end of their flow", status.late),
        ("events_lost", "Decisions that nobody read in time", status.events_lost),
        ("decisions_without_model", "Decisions for which there was no model", status.no_model),
        ("packets_contended", "Packets whose flow another CPU held", status.contended),
        ("sources_forgotten", "Sources that made room for others in their table", status.forgotten),
        ("packets_not_marked", "Packets without room for their mark", status.not_marked),
        ("flows_undecided", "Flows that left the table undecided, at least", status.undecided),
        ("packets_allowed", "Packets of allowed sources and flows", status.allowed),
        ("packets_blocked", "Packets dropped by a verdict before the meter", status.blocked),
        ("packets_limited", "Packets over the rate of a verdict, dropped", status.limited),
        ("packets_dropped", "Packets dropped by the policy of their flow", status.dropped),
        ("packets_spared", "Packets that the dry run let pass", status.spared),
        ("packets_excess", "Packets of flows begun too fast, put aside", status.excess),
        ("packets_super", "Packets cut on the way out or joined on the way in", status.super),
        ("segments", "Packets that these are on the wire", status.segments),
        ("packets_mirrored", "Copies sent out of another interface", status.mirrored),
        ("packets_not_mirrored", "Packets whose copy could not be sent", status.not_mirrored),
        ("packets_no_socket", "Packets for a socket that nobody opened", status.no_socket),
        ("samples_lost", "Samples of dropped packets that nobody read", status.samples_lost),
        ("verdicts_put", "Verdicts that decisions put into the maps", status.verdicts),
        ("verdicts_refused", "Verdicts over the limit of blocked hosts", status.refused),
    ):
        yield single(CounterMetricFamily, name, text, value)
    for name, text, value in (
        ("flows", "Flows in the table", status.flows),
        ("flows_limit", "Flows that the table holds", status.room),
        (
            "blocked_hosts",
            "Hosts that decisions keep away, and expired ones",
            status.blocked_hosts,
        ),
        ("blocked_hosts_limit", "Maximum number of these", status.max_blocked),
        ("dry_run", "Whether every packet passes", status.dry_run),
    ):
        yield single(GaugeMetricFamily, name, text, value)
    alarm = GaugeMetricFamily(
        "n3ic_xdp_alarm", "Whether it needs attention", labels=["interface", "alarm"]
    )
    for name in ALARMS:
        alarm.add_metric([*where, name], name in status.alarms)
    yield alarm
    for name, text, counts in (
        ("packets_aside", "Packets of no flow, by reason", status.aside),
        ("decisions", "Decisions, by what brought them", status.ends),
    ):
        by_reason = CounterMetricFamily(f"n3ic_xdp_{name}", text, labels=["interface", "reason"])
        for reason, value in counts.items():
            by_reason.add_metric([*where, reason], value)
        yield by_reason
    info = GaugeMetricFamily(
        "n3ic_xdp_model_info",
        "SHA-256 of the model that a slot holds",
        labels=["interface", "slot", "model", "digest"],
    )
    verdicts = CounterMetricFamily(
        "n3ic_xdp_verdicts", "Flows by verdict", labels=["interface", "slot", "model", "verdict"]
    )
    margins = HistogramMetricFamily(
        "n3ic_xdp_margin", "Margin of the scores", labels=["interface", "slot", "model"]
    )
    gauge = GaugeMetricFamily(
        "n3ic_xdp_drift",
        "Population stability index against the training rows; 0.25 is a change",
        labels=["interface", "slot", "model", "feature"],
    )
    for number, slot in status.slots.items():
        labels = [*where, str(number), slot.model]
        info.add_metric([*labels, slot.digest], 1)
        for verdict, count in {**slot.classes, "shunt": slot.shunted}.items():
            verdicts.add_metric([*labels, verdict], count)
        total, buckets = 0, []
        for margin, count in enumerate(slot.margins):
            total += count
            buckets.append((str(float(margin)), total))
        summed = sum(margin * count for margin, count in enumerate(slot.margins))
        margins.add_metric(labels, [*buckets, ("+Inf", total)], summed)
        for moved in slot.drift:
            gauge.add_metric([*labels, moved.feature], moved.psi)
    yield from (info, verdicts, margins, gauge)
