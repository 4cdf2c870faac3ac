# SPDX-License-Identifier: Apache-2.0
"""``capture:PATH``: a capture file or standard input. It waits for the stream and loses nothing."""

from __future__ import annotations

import io
import os
import select
import sys
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path

from typing_extensions import Buffer

from n3ic.errors import DataError, N3icWarning
from n3ic.meter.capture import STANDARD_INPUT, Capture, link_text
from n3ic.meter.compiled import Frames
from n3ic.meter.packet import LINK_EACH, LINKS
from n3ic.meter.records import unread_error, unread_lines
from n3ic.model.classifier import Classifier
from n3ic.systems.stream.flows.gather import PACKETS, PacketGatherer
from n3ic.systems.stream.flows.source import FrameBatch, Position, Source


class StoppableInput(io.RawIOBase):
    """Standard input that can be ended while its writer still writes.

    Args:
        handle: file descriptor of standard input.
    """

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._wakes, self._waker = os.pipe()

    def readable(self) -> bool:
        """Return True; see :class:`io.RawIOBase`."""
        return True

    def readinto(self, buffer: Buffer, /) -> int:
        """Wait for bytes, or for :meth:`stop`; see :class:`io.RawIOBase`."""
        ready, _, _ = select.select([self._handle, self._wakes], [], [])
        if self._wakes in ready:
            return 0
        room = memoryview(buffer).cast("B")
        data = os.read(self._handle, len(room))
        room[: len(data)] = data
        return len(data)

    def stop(self) -> None:
        """End the input, from another thread."""
        os.write(self._waker, b".")


class CaptureFrames(Source):
    """A capture; its position is the number of packets read and their checksums.

    Args:
        path: see :class:`~n3ic.meter.capture.Capture`.

    Raises:
        DataError: the capture cannot be opened, or its link type is not one that is read.
    """

    live = False

    def __init__(self, path: str) -> None:
        self._reading = False
        self._stoppable = StoppableInput(sys.stdin.fileno()) if path == STANDARD_INPUT else None
        standard_input = io.BufferedReader(self._stoppable) if self._stoppable else None
        self._capture = Capture(path, self._damaged, standard_input)
        self._gatherer = PacketGatherer()
        self.name = f"capture:{path if path == STANDARD_INPUT else Path(path).absolute()}"
        self.link = self._capture.link
        if self._capture.link_type not in (*LINKS, LINK_EACH):
            with self._capture:
                raise unread_error(self.name, link_text(self._capture.link_type))

    def batches(self, position: Position) -> Iterator[FrameBatch]:
        """Yield batches after a position; the packets before it are read again and compared.

        Raises:
            DataError: The packets before the position differ from those of the first reading.
        """
        gatherer = self._gatherer
        read = gatherer.read_within if self._stoppable else gatherer.read
        target, packets, ended = int(position.get("packets", 0)), 0, False
        checksums = [0, 0, 0]
        while not ended and not self._stopped:
            room = target - packets
            self._reading = True
            frames, ended = read(
                self._capture.dispatch_by, min(room, PACKETS) if room > 0 else PACKETS
            )
            self._reading = False
            packets += len(frames.time)
            if self.checked or room > 0:
                checksums = _added(frames, checksums)
            if room > 0:
                if packets == target and checksums != [*position["checksums"]]:
                    raise DataError(f"{self.name}: {_OTHER}")
                continue
            if len(frames.time):
                yield FrameBatch({"packets": packets, "checksums": checksums}, frames)
        for line in unread_lines(self._capture.unread):
            warnings.warn(f"{self.name}: {line}", N3icWarning, stacklevel=2)
        if packets < target and not self._stopped:
            raise DataError(f"{self.name}: {packets:,} packets, the state has {target:,}; {_OTHER}")

    def stop(self) -> None:
        """End :meth:`batches` after its current batch, even if it waits for standard input."""
        self._stopped = True
        if self._stoppable:
            self._stoppable.stop()

    def close(self) -> None:
        """Close the file, unless a thread is still reading it."""
        if not self._reading and not self._gatherer.is_reading:
            self._capture.__exit__()

    def _damaged(self, line: str) -> None:
        if not self._stopped:  # a stopped input looks cut off
            warnings.warn(line, N3icWarning, stacklevel=2)


_OTHER = "expected the capture that the state belongs to; give that one, or another --state"


def _added(frames: Frames, checksums: list[int]) -> list[int]:
    """Update the checksums of all bytes, lengths and times, which do not depend on the batches."""
    data = frames.data[: int(frames.captured.sum())]
    parts = data.data, frames.length.data, frames.time.data
    return [zlib.crc32(part, checksum) for part, checksum in zip(parts, checksums, strict=True)]


def open_source(rest: str, model: Classifier) -> CaptureFrames:
    """Open a capture by its path, or ``-``."""
    return CaptureFrames(rest)
