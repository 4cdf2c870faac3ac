# SPDX-License-Identifier: Apache-2.0
"""Where decided flows go: what a sink is, and the sink of a name."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import IO, Any, ClassVar

from n3ic import plugins
from n3ic.errors import DataError, N3icError, UsageError, did_you_mean
from n3ic.systems.stream.batch import FlowBatch
from n3ic.systems.stream.flows.decide import StreamModel

GROUP = "n3ic.stream_sinks"  # entry points of further sinks: NAME://REST
SCHEMES = ("ipfix", "kafka", "nats")
SUFFIXES = {
    ".jsonl": "json_lines",
    ".ndjson": "json_lines",
    ".parquet": "parquet",
    ".ipfix": "ipfix",
}
STANDARD_OUTPUT = "-"

Offset = Mapping[str, Any]
"""Where a sink's output ends, as JSON."""


class StreamSink:
    """A sink. A module of a sink has ``open_sink(text, model) -> StreamSink``.

    With a state (``--state``), a sink is in one of two ways. A sink whose output can be cut
    (``cuts``) writes at once; its offset is part of the state, and what lies behind the offset is
    cut when the stream goes on. Any other is given flows only when a state that holds them is
    written; after a kill it is given those of the last state again, with the same numbers.

    Attributes:
        name: what to call it in messages and in the state.
        cuts: whether :meth:`open` removes what lies behind an offset.
        lost: flows that it knows not to have been taken, where that ends no stream.
    """

    name: str
    lost: int = 0
    cuts: ClassVar[bool] = False

    def begin(self, replace: bool) -> Offset:
        """The offset of no flows; nothing is written yet.

        Args:
            replace: whether existing output may be replaced.

        Raises:
            UsageError: there is output already.
        """
        return {}

    def open(self, offset: Offset, first: int, stream: str) -> None:
        """Make ready to write behind an offset.

        Args:
            offset: as :meth:`begin` or :meth:`flush` gave it.
            first: number of the flow that may come next.
            stream: identifier of the stream, the same when it goes on; empty without a state.

        Raises:
            N3icError: the output cannot be opened, or ends before the offset.
        """

    @abstractmethod
    def write(self, batch: FlowBatch, first: int) -> None:
        """Take flows; ``first`` is the number of the first of them since the stream began.

        Raises:
            N3icError: they cannot be written.
        """

    def flush(self) -> Offset:
        """Make what was written durable, and give where the output ends.

        Raises:
            N3icError: it is not durable.
        """
        return {}

    def finish(self, more: bool) -> None:
        """The stream ends here; ``more``: it may go on later."""

    def close(self) -> None:
        """Free what it holds, also after an error."""


class CutFile:
    """A file that is written at its end and can be cut.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stream: IO[bytes] | None = None

    def begin(self, replace: bool) -> Offset:
        """The offset of an empty file; see :meth:`StreamSink.begin`."""
        if self.path.is_dir() or (self.path.exists() and not replace):
            raise UsageError(
                f"{self.path} exists: name another file, go on with its --state, or add --replace"
            )
        return {"bytes": 0}

    def open(self, offset: Offset) -> int:
        """Open the file and cut it at the offset; give the offset."""
        size = int(offset["bytes"])
        try:
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            self._stream = os.fdopen(handle, "r+b")
            there = os.fstat(handle).st_size
            if there < size:
                raise DataError(
                    f"{self.path} has {there:,} bytes, {size:,} were written: it was cut or "
                    "replaced; put it back, or begin again with another --state and sink"
                )
            os.ftruncate(handle, size)
            self._stream.seek(size)
        except OSError as error:
            raise self._error(error) from error
        return size

    def write(self, data: bytes) -> None:
        """Add bytes."""
        assert self._stream is not None  # noqa: S101 - it is open
        try:
            self._stream.write(data)
        except OSError as error:
            raise self._error(error) from error

    def flush(self) -> Offset:
        """Make all bytes durable; see :meth:`StreamSink.flush`."""
        assert self._stream is not None  # noqa: S101 - it is open
        try:
            self._stream.flush()
            os.fsync(self._stream.fileno())
            return {"bytes": self._stream.tell()}
        except OSError as error:
            raise self._error(error) from error

    def close(self) -> None:
        """Close the file; what a full disk refused stays unwritten."""
        if self._stream is not None:
            try:
                self._stream.close()
            except OSError:
                # Said when it was written or flushed; the offset in the state is before it.
                self._stream = None

    def _error(self, error: OSError) -> N3icError:
        return N3icError(f"cannot write {self.path}: {error.strerror or error}")


def open_sink(text: str, model: StreamModel) -> StreamSink:
    """The sink that a text names: a file by its suffix, ``-``, or ``NAME://REST``.

    Raises:
        UsageError: no sink is known by that name.
    """
    name, scheme, _ = text.partition("://")
    if scheme:
        known = (*SCHEMES, *plugins.names(GROUP))
        if name not in known:
            raise UsageError(f"sink {text!r}: {did_you_mean(name, known)}known: {', '.join(known)}")
        module = import_module(f"{_HERE}.{name}") if name in SCHEMES else plugins.load(GROUP, name)
    else:
        suffix = Path(text).suffix.lower()
        if text != STANDARD_OUTPUT and suffix not in SUFFIXES:
            raise UsageError(
                f"sink {text!r}: expected a file that ends in {', '.join(SUFFIXES)}, - for "
                f"standard output, or a place such as {', '.join(f'{s}://' for s in SCHEMES)}"
            )
        module = import_module(f"{_HERE}.{SUFFIXES.get(suffix, 'json_lines')}")
    found: StreamSink = module.open_sink(text, model)
    return found


_HERE = "n3ic.systems.stream.flows.sinks"
