# SPDX-License-Identifier: Apache-2.0
"""Where decided flows go: the interface of a sink, and how a text names one."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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
    """A sink. The module of a sink has a function ``open_sink(text, model) -> StreamSink``.

    With a state (``--state``), there are two kinds of sinks. A sink whose output can be cut
    (``cuts``) writes at once; its offset is part of the state, and output after the offset is cut
    off when the stream resumes. Any other sink gets flows only after a state that holds them is
    written; after a kill, it gets the flows of the last state again, with the same numbers.

    Attributes:
        name: its name in messages and in the state.
        cuts: whether :meth:`open` removes the output after an offset.
        lost: flows that were not taken although the stream went on.
    """

    name: str
    lost: int = 0
    cuts: ClassVar[bool] = False

    def begin(self, replace: bool) -> Offset:
        """Return the offset at which the output begins; writes nothing yet.

        Args:
            replace: whether existing output may be replaced.

        Raises:
            UsageError: There is output already.
        """
        return {}

    def open(self, offset: Offset, first: int, stream: str) -> None:
        """Prepare to write after an offset.

        Args:
            offset: an offset that :meth:`begin` or :meth:`flush` returned.
            first: number of the next flow.
            stream: identifier of the stream, which stays the same when it resumes; empty without
                a state.

        Raises:
            N3icError: The output cannot be opened, or ends before the offset.
        """

    def use(self, model: StreamModel) -> None:
        """The next flows are decided by another model of the same meter, features and verdicts."""

    @abstractmethod
    def write(self, batch: FlowBatch, first: int) -> None:
        """Write flows; ``first`` is the number of the first one, counted since the stream began.

        Raises:
            N3icError: They cannot be written.
        """

    def flush(self) -> Offset:
        """Make the written flows durable, and return the offset at which the output ends.

        Raises:
            N3icError: They cannot be made durable.
        """
        return {}

    def finish(self, more: bool) -> None:
        """End the output; with ``more``, the stream may resume later."""

    def discard(self) -> None:
        """Remove a file that the stream made: it was stopped before the first flow."""

    def close(self) -> None:
        """Release resources, also after an error."""


class FileSink(StreamSink):
    """A file that grows at its end and can be cut.

    Args:
        path: the file.
    """

    cuts: ClassVar[bool] = True

    def __init__(self, path: Path) -> None:
        self.name, self.path = str(path.absolute()), path
        self._stream: IO[bytes] | None = None
        self._is_new = False

    def begin(self, replace: bool) -> Offset:
        """The offset of an empty file; see :meth:`StreamSink.begin`."""
        if self.path.is_dir() or (self.path.exists() and not replace):
            raise UsageError(
                f"{self.path} exists: name another file, go on with its --state, or add --replace"
            )
        return {"bytes": 0}

    def open(self, offset: Offset, first: int, stream: str) -> None:
        """Open the file and cut it at the offset; see :meth:`StreamSink.open`."""
        size = int(offset["bytes"])
        self._is_new = not self.path.exists()
        with self._errors():
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
        if not size:
            self.append(self.head())

    def head(self) -> bytes:
        """What the file begins with."""
        return b""

    def append(self, data: bytes | memoryview) -> None:
        """Add bytes."""
        assert self._stream is not None  # noqa: S101 - it is open
        with self._errors():
            self._stream.write(data)

    def flush(self) -> Offset:
        """Make all bytes durable; see :meth:`StreamSink.flush`."""
        assert self._stream is not None  # noqa: S101 - it is open
        with self._errors():
            self._stream.flush()
            os.fsync(self._stream.fileno())
            return {"bytes": self._stream.tell()}

    def close(self) -> None:
        """Close the file; bytes that a full disk refused stay unwritten."""
        if self._stream is not None:
            try:
                self._stream.close()
            except OSError:
                # Writing or flushing reported it; the offset in the state lies before these bytes.
                self._stream = None

    def discard(self) -> None:
        """Close the file, and remove it if it is new and empty."""
        self.close()
        if self._is_new and self.path.stat().st_size == 0:
            self.path.unlink()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise N3icError(f"cannot write {self.path}: {error.strerror or error}") from error


def open_sink(text: str, model: StreamModel) -> StreamSink:
    """The sink that a text names: a file by its suffix, ``-``, or ``NAME://REST``.

    Raises:
        UsageError: No sink has that name.
    """
    name, scheme, _ = text.partition("://")
    if scheme:
        kinds = (*SCHEMES, *plugins.names(GROUP))
        if name not in kinds:
            raise UsageError(f"sink {text!r}: {did_you_mean(name, kinds)}known: {', '.join(kinds)}")
        module = import_module(f"{_HERE}.{name}") if name in SCHEMES else plugins.load(GROUP, name)
    else:
        suffix = Path(text).suffix.lower()
        if text != STANDARD_OUTPUT and suffix not in SUFFIXES:
            raise UsageError(
                f"sink {text!r}: expected a file that ends in {', '.join(SUFFIXES)}, - for "
                f"standard output, or a place such as {', '.join(f'{s}://' for s in SCHEMES)}"
            )
        module = import_module(f"{_HERE}.{SUFFIXES.get(suffix, 'json_lines')}")
    sink: StreamSink = module.open_sink(text, model)
    return sink


_HERE = "n3ic.systems.stream.flows.sinks"
