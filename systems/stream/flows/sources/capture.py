# SPDX-License-Identifier: Apache-2.0
"""``capture:PATH``: a capture file or standard input. It waits for the stream; nothing is lost."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from n3ic.errors import DataError
from n3ic.meter.capture import STANDARD_INPUT, Capture
from n3ic.meter.compiled import Frames
from n3ic.model.classifier import Classifier
from n3ic.systems.stream.flows.gather import PACKETS, PacketGatherer
from n3ic.systems.stream.flows.source import FrameBatch, Position


class CaptureSource:
    """A capture; its position is a number of packets and their checksums.

    Args:
        path: see :class:`~n3ic.meter.capture.Capture`.
    """

    live = False

    def __init__(self, path: str) -> None:
        self._capture = Capture(path)
        self.name = f"capture:{path if path == STANDARD_INPUT else Path(path).absolute()}"
        self.link: int | None = self._capture.link
        self._stopped = False

    def batches(self, position: Position) -> Iterator[FrameBatch]:
        """Batches behind a position, up to which the packets are read again and compared.

        Raises:
            DataError: the packets before the position are not those that were read before.
        """
        gatherer = PacketGatherer()
        target, packets, ended = int(position.get("packets", 0)), 0, False
        checksums = [0, 0, 0]
        while not ended and not self._stopped:
            left = target - packets
            frames, ended = gatherer.read(
                self._capture.dispatch, min(left, PACKETS) if left > 0 else PACKETS
            )
            packets += len(frames.time)
            checksums = _added(frames, checksums)
            if left > 0:
                if packets == target and checksums != [*position["checksums"]]:
                    raise DataError(f"{self.name}: {_OTHER}")
                continue
            if len(frames.time):
                yield FrameBatch({"packets": packets, "checksums": checksums}, frames)
        if packets < target and not self._stopped:
            raise DataError(f"{self.name}: {packets:,} packets, the state has {target:,}; {_OTHER}")

    def stop(self) -> None:
        """End :meth:`batches` after its batch."""
        self._stopped = True

    def lost(self) -> Mapping[str, int]:
        """Nothing is lost of a capture."""
        return {}

    def close(self) -> None:
        """Close the file."""
        self._capture.__exit__()


_OTHER = "this is not the capture that the state is of; give that one, or another --state"


def _added(frames: Frames, checksums: list[int]) -> list[int]:
    """Checksums of all bytes, lengths and times, which do not depend on batches."""
    parts = frames.data[: int(frames.captured.sum())], frames.length, frames.time
    return [
        zlib.crc32(part.tobytes(), checksum)
        for part, checksum in zip(parts, checksums, strict=True)
    ]


def open_source(rest: str, model: Classifier) -> CaptureSource:
    """Open a capture by its path, or ``-``."""
    return CaptureSource(rest)
