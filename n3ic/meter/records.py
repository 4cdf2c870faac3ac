# SPDX-License-Identifier: Apache-2.0
"""Turns captures into flow records, as a stream in bounded memory."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from pathlib import Path

from n3ic.errors import DataError
from n3ic.meter.capture import Capture, link_text
from n3ic.meter.compiled import ASIDE, STAMPS, CompiledMeter, Records
from n3ic.meter.packet import LINKS, Reason
from n3ic.model.meter_spec import MeterSpec

BATCH_PACKETS = 1 << 16
_UNREAD = "link type "  # begins the counter of frames of a link type that is not read
_UNKNOWN: Reason = "link type not known"


def meter_capture(path: str | Path, spec: MeterSpec) -> Iterator[tuple[Records, dict[str, int]]]:
    """Yield a capture's flow records batch by batch, in bounded memory, with the counters so far.

    Args:
        path: see :class:`~n3ic.meter.capture.Capture`.
        spec: definition of a flow and of the integers kept for it.

    Raises:
        DataError: the capture cannot be read.
        MissingDependencyError: libpcap or a C compiler is missing.
    """
    with Capture(path) as capture, CompiledMeter(spec, capture.link) as meter:
        handler = ctypes.cast(meter.library.meter_packet, ctypes.c_void_p)
        while capture.dispatch(handler, meter.pointer, BATCH_PACKETS):
            yield meter.records(), counters_of(meter, capture.unread)
        left = True
        while left:
            left = meter.end(BATCH_PACKETS)
            yield meter.records(), counters_of(meter, capture.unread)


def counters_of(meter: CompiledMeter, unread: Mapping[int, int]) -> dict[str, int]:
    """A meter's counters, with one for each link type that is not read; see :func:`unread_links`.

    Args:
        meter: the meter.
        unread: frames of these link types, by link type.
    """
    by_link = {f"{_UNREAD}{link_text(link)}": count for link, count in sorted(unread.items())}
    return meter.counters() | by_link


def unread_links(counters: Mapping[str, int]) -> dict[str, int]:
    """Frames whose link type is not read, by its number and name.

    Args:
        counters: counters from :func:`counters_of`.
    """
    return {
        name.removeprefix(_UNREAD): count
        for name, count in counters.items()
        if name.startswith(_UNREAD) and name != _UNKNOWN
    }


def unread_lines(unread: Mapping[int, int]) -> Iterator[str]:
    """Yield a line for each link type that is not read, with the number of its frames."""
    for link, count in sorted(unread.items()):
        yield f"{count:,} packets of link type {link_text(link)}, which is not read"


def require_read(name: str, counters: Mapping[str, int]) -> None:
    """Refuse captures of which no frame was read, because no link type of theirs is known.

    Args:
        name: what was read, for the message.
        counters: counters from :func:`counters_of`.

    Raises:
        DataError: there are frames, and all of them are of link types that are not read.
    """
    if counters["packets"] and counters[_UNKNOWN] == counters["packets"]:
        raise unread_error(name, ", ".join(unread_links(counters)) or "unknown, inside PKTAP")


def unread_error(name: str, link: str) -> DataError:
    """The error for a capture whose link type is not read; ``link`` names the type."""
    known = ", ".join(map(link_text, sorted(LINKS)))
    return DataError(
        f"{name}: nothing can be read, because its link type is {link}; expected one of {known}. "
        "Capture on an interface of one of these"
    )


def left_out(counters: Mapping[str, int]) -> Iterator[str]:
    """Yield lines about packets of no flow, flows that ended early, and times that jump.

    Args:
        counters: counters from :meth:`CompiledMeter.counters`, or some of them.
    """
    for link, count in unread_links(counters).items():
        yield f"put aside: {count:,} packets of link type {link}, which is not read"
    for reason in ASIDE:
        if counters.get(reason) and not (reason == _UNKNOWN and unread_links(counters)):
            yield f"put aside: {counters[reason]:,} packets ({reason})"
    if counters.get("tunnelled"):
        yield f"in tunnels that the meter leaves closed: {counters['tunnelled']:,} packets"
    if counters.get("late"):
        yield f"after the end of their flow: {counters['late']:,} packets"
    if counters.get("evicted"):
        yield f"evicted: {counters['evicted']:,} flows, whose cache was full"
    if counters.get("forgotten"):
        yield f"forgotten: {counters['forgotten']:,} sources, whose places others took"
    back, ahead, steps = (counters.get(name, 0) for name in STAMPS)
    if back or ahead or steps:
        yield (
            f"time stamps: {back:,} packets earlier than one before them, {ahead:,} more than an "
            f"hour ahead, {steps:,} times the clock was set back"
        )
