# SPDX-License-Identifier: Apache-2.0
"""Shows figures of the three ways as tables, with the paper's own beside them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from statistics import median
from typing import Any

from n3ic.systems.stream.messages.bench import (
    MEDIAN,
    ForwardFigures,
    TransferFigures,
    processor_mhz,
)
from n3ic.systems.stream.messages.netml_paper import paper_table
from n3ic.systems.stream.messages.training import TrainedStream
from n3ic.systems.stream.messages.transfers import TRANSFERS
from n3ic.util.display import TextTable
from n3ic.util.markdown import percent


def plain(figures: ForwardFigures) -> dict[str, Any]:
    """Figures as plain data."""
    return asdict(figures)


def _times(microseconds: Sequence[float]) -> str:
    return " / ".join(f"{t / 1e3:.2f}" for t in microseconds)


def transfer_tables(figures: Iterable[TransferFigures]) -> list[TextTable]:
    """Tables for figures 5 and 9 of the paper."""
    clock = processor_mhz()
    head = ("message", "packets of", "way", "first byte", "last byte", "to device", "after last",
            "early", "CPU", "device's CPU", "Mcycles", "lost", "as sent")  # fmt: skip
    rows = tuple(
        (
            f"{f.size:,}",
            f"{f.part:,}",
            f"{TRANSFERS[f.way].paper} {f.way}",
            *(f"{times[MEDIAN] / 1e3:.2f}" for times in (f.first, f.last)),
            _times(f.transfer),
            f"{f.tail[MEDIAN] / 1e3:.2f}",
            percent(f.early),
            f"{f.host_cpu_us / 1e3:.3f}",
            f"{f.device_cpu_us / 1e3:.3f}" if f.device_cpu_us else "-",
            f"{f.host_cpu_us * clock / 1e6:.2f}" if clock else "-",
            str(f.lost),
            "yes" if f.equal else "NO",
        )
        for f in figures
    )
    title = (
        "transfer, milliseconds; to device: least / median / 90 % / 99 %, else medians; "
        "cycles: CPU time at the nominal clock"
    )
    return [TextTable(title, head, rows, 3), paper_table("transfer")]


def model_tables(figures: Sequence[TransferFigures], alone: dict[str, float]) -> list[TextTable]:
    """Tables for table I and figures 10 to 12 of the paper."""
    head = ("model", "packets of", "way", "total", "to device", "after last", "inference",
            "device alone", "pipelined", "overlap", "lost")  # fmt: skip
    rows = tuple(
        (
            f.model,
            f"{f.part:,}",
            f"{TRANSFERS[f.way].paper} {f.way}",
            _times(f.total),
            *(f"{t[MEDIAN] / 1e3:.2f}" for t in (f.transfer, f.tail, f.inference)),
            f"{alone[f.model]:.2f}",
            f"{f.pipelined_ms:.2f}",
            percent(f.overlap),
            str(f.lost),
        )
        for f in figures
    )
    title = "messages to results, milliseconds; total: least / median / 90 % / 99 %, else medians"
    return [TextTable(title, head, rows, 3), paper_table("models")]


def memory_tables(figures: Iterable[ForwardFigures], registered: bool) -> list[TextTable]:
    """Tables for table II of the paper."""
    names = {
        "huge": "huge pages",
        "ordinary": "ordinary pages",
        "library": "the library's allocator",
    }
    rows = tuple(
        (names[f.pages], f"{f.part:,}", f"{f.huge_bytes / 2**20:.0f} MiB", f"{f.gbit_s:.3f}",
         f"{f.cpu_ns:,.0f}")
        for f in figures
    )  # fmt: skip
    head = ("memory", "packets of", "in huge pages", "Gb/s", "CPU ns a packet")
    title = "forwarding over the kernel's UDP"
    if not registered:
        title += "; no GPU: pages are not registered, the library's memory is not pinned"
    return [TextTable(title, head, rows, 2), paper_table("memory")]


def training_tables(runs_of_ways: Sequence[Sequence[TrainedStream]], what: str) -> list[TextTable]:
    """Tables for table III of the paper, from all repeats for each batch size and way."""
    head = ("batch", "way", "messages/s", "least", "most", "accuracy", "CPU µs a message", "lost",
            "weights")  # fmt: skip
    rows = []
    for runs in runs_of_ways:
        rates = [run.rate for run in runs]
        weights = {run.weights[:12] for run in runs}
        rows.append(
            (
                f"{runs[0].batch}",
                f"{TRANSFERS[runs[0].way].paper} {runs[0].way}",
                *(f"{rate:,.0f}" for rate in (median(rates), min(rates), max(rates))),
                percent(median(run.accuracy for run in runs)),
                f"{median(run.host_cpu_us for run in runs):.1f}",
                str(sum(run.lost for run in runs)),
                ", ".join(sorted(weights)),
            )
        )
    title = f"one epoch: {what}; median, least and most of {len(runs_of_ways[0])}"
    return [TextTable(title, head, tuple(rows), 2), paper_table("training")]
