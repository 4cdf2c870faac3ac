# SPDX-License-Identifier: Apache-2.0
"""Where packets come from: the interface of a source, and how a text names one."""

from __future__ import annotations

import socket
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

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
"""How far a source has been read, as JSON; empty at its start."""


@dataclass(frozen=True, eq=False)
class FrameBatch:
    """What a source yields: packets for the meter, or rows that are already metered.

    Attributes:
        position: the source's position after this batch.
        frames: packets, with times in nanoseconds since 1970.
        rows: flows of another meter, of dtype :func:`.decide.rows_type`, shape ``(rows,)``.
        quiet_ns: no more packets older than this (nanoseconds since 1970) will come, so idle flows
            may end; 0 if unknown.
        came_ns: time of arrival of the batch, in nanoseconds of the monotonic clock.
        counted: called by the counting thread once the frames are counted; after that, the source
            may reuse their memory.
    """

    position: Position
    frames: Frames | None = None
    rows: Records | None = None
    quiet_ns: int = 0
    came_ns: int = field(default_factory=time.monotonic_ns)
    counted: Callable[[], object] = lambda: None


class Source:
    """A source of packets. Its module has a function ``open_source(rest, model) -> Source``.

    Attributes:
        name: its name in messages and in the state.
        link: link type of the packets (LINKTYPE_ numbers); None if it yields rows.
        live: whether packets that come while nobody reads are lost.
        checked: whether positions are kept; if not, no checksum of the packets before is needed.
    """

    name: str
    link: int | None = None
    live: bool = True
    checked: bool = True
    _stopped = False

    @abstractmethod
    def batches(self, position: Position) -> Iterator[FrameBatch]:
        """Yield what comes after a position, until :meth:`stop`.

        Raises:
            DataError: The source cannot resume there, or cannot be read.
        """

    def stop(self) -> None:
        """Make :meth:`batches` end within a tenth of a second; called from another thread."""
        self._stopped = True

    def lost(self) -> Mapping[str, int]:
        """Number of packets lost so far, by place and reason."""
        return {}

    def close(self) -> None:
        """Release resources."""


def open_source(text: str, model: Classifier) -> Source:
    """Open the source that a text names: a capture, an interface, or ``NAME:REST``.

    Raises:
        UsageError: No source has that name.
        DataError: The source cannot be opened.
    """
    name, _, rest = text.partition(":")
    kinds = {*OWN, *plugins.names(GROUP)}
    if name in kinds and _:
        opener = import_module(OWN[name]) if name in OWN else plugins.load(GROUP, name)
        source: Source = opener.open_source(rest, model)
        return source
    if text == STANDARD_INPUT or Path(text).exists():
        return open_source(f"capture:{text}", model)
    if text in {interface for _, interface in socket.if_nameindex()}:
        return open_source(f"interface:{text}", model)
    hint = did_you_mean(name, kinds) if _ else ""
    raise UsageError(
        f"source {text!r}: {hint}no such file or network interface; expected a capture, - for "
        f"standard input, an interface, or one of {', '.join(f'{n}:...' for n in sorted(kinds))}"
    )
