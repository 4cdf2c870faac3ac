# SPDX-License-Identifier: Apache-2.0
"""Where packets come from: what a source is, and the source of a name."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from n3ic import plugins
from n3ic.errors import UsageError, did_you_mean
from n3ic.meter.capture import STANDARD_INPUT
from n3ic.meter.compiled import Frames, Records
from n3ic.model.classifier import Classifier

GROUP = "n3ic.stream_sources"  # entry points of further sources: NAME:REST opens NAME's with REST
OWN = {
    name: f"n3ic.systems.stream.flows.sources.{module}"
    for name, module in (
        ("af_xdp", "af_xdp"),
        ("capture", "capture"),
        ("dpdk", "dpdk"),
        ("interface", "af_packet"),
        ("kafka", "kafka"),
        ("shunted", "shunted"),
        ("udp", "udp"),
        ("xdp", "xdp_events"),
    )
}

Position = Mapping[str, Any]
"""Where a source stands, as JSON; empty at its start."""


@dataclass(frozen=True, eq=False)
class FrameBatch:
    """What a source gives: packets for the meter, or rows that are metered already.

    Attributes:
        position: where the source stands behind it.
        frames: packets, with times in nanoseconds since 1970.
        rows: flows of another meter, of :func:`.decide.rows_type`.
        quiet_ns: no packet before that time (nanoseconds since 1970) will come any more, so idle
            flows may end; 0: unknown.
        came_ns: when it came, on the monotonic clock.
        counted: called once the frames are counted, by the one thread that counts; the source may
            use their memory again.
    """

    position: Position
    frames: Frames | None = None
    rows: Records | None = None
    quiet_ns: int = 0
    came_ns: int = field(default_factory=time.monotonic_ns)
    counted: Callable[[], object] = lambda: None


class Source(Protocol):
    """Packets of a stream. A module of a source has ``open_source(rest, model) -> Source``.

    Attributes:
        name: what to call it in messages and in the state.
        link: link type of the packets (LINKTYPE_ numbers); None where it gives rows.
        live: whether what comes while nobody reads is lost.
    """

    name: str
    link: int | None
    live: bool

    def batches(self, position: Position) -> Iterator[FrameBatch]:
        """Give what comes behind a position, until :meth:`stop`.

        Raises:
            DataError: the source cannot go on from there, or cannot be read.
        """
        ...

    def stop(self) -> None:
        """End :meth:`batches` soon; called from another thread."""
        ...

    def lost(self) -> Mapping[str, int]:
        """Number of packets lost so far, by place and reason."""
        ...

    def close(self) -> None:
        """Free what it holds."""
        ...


def open_source(text: str, model: Classifier) -> Source:
    """Open the source that a text names: a capture, an interface, or ``NAME:REST``.

    Raises:
        UsageError: no source is known by that name.
        DataError: it cannot be opened.
    """
    name, _, rest = text.partition(":")
    known = {*OWN, *plugins.names(GROUP)}
    if name in known and _:
        opener = import_module(OWN[name]) if name in OWN else plugins.load(GROUP, name)
        found: Source = opener.open_source(rest, model)
        return found
    if text == STANDARD_INPUT or Path(text).exists():
        return open_source(f"capture:{text}", model)
    if text in {interface for _, interface in socket.if_nameindex()}:
        return open_source(f"interface:{text}", model)
    hint = did_you_mean(name, known) if _ else ""
    raise UsageError(
        f"source {text!r}: {hint}no such file or network interface; expected a capture, - for "
        f"standard input, an interface, or one of {', '.join(f'{n}:...' for n in sorted(known))}"
    )
