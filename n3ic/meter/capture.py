# SPDX-License-Identifier: Apache-2.0
"""Captures: pcap and pcapng files, plain or compressed, or a stream, read through libpcap."""

from __future__ import annotations

import ctypes
import ctypes.util
import io
import os
import sys
import tempfile
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext, suppress
from functools import cache
from pathlib import Path
from typing import IO, Any, Self

from n3ic.data.files import DamagedError, unpack
from n3ic.errors import DataError, MissingDependencyError, N3icWarning
from n3ic.meter.packet import ALIKE, CHECK_MOST, CHECK_SHIFT, LINK_EACH, LINK_RAW, LINKS
from n3ic.meter.pcapng import SECTION, BlockError, begins_with_links, needs_links, with_links

STANDARD_INPUT = "-"
_NANOSECONDS = 1  # PCAP_TSTAMP_PRECISION_NANO
_ERROR_BYTES = 256
_HEAD = 1 << 16  # bytes of a stream in which all of its interfaces are expected
_LAST = 2**63 - 1
_PRIVATE = range(147, 163)  # link types for private use
_RAW_IN_MEMORY = 12  # libpcap's number for raw IP
_ZSTD = b"\x28\xb5\x2f\xfd"
_ZSTD_PIECE = 1 << 12  # bytes; Arrow loses the piece that contains the damage
_PACKED = (_ZSTD, b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00")  # zstd, gzip, bzip2, xz

_MAGICS = (
    SECTION,  # pcapng
    *(n.to_bytes(4, order) for n in (0xA1B2C3D4, 0xA1B23C4D) for order in ("little", "big")),
)


def is_capture(path: str | Path) -> bool:
    """Whether a regular file, or standard input (``-``), is a capture, by its first bytes.

    It may be packed. For bzip2 on standard input, too few bytes are known, so the result is False.
    """
    if str(path) == STANDARD_INPUT:
        head = sys.stdin.buffer.peek() if hasattr(sys.stdin.buffer, "peek") else b""
        with suppress(ValueError):
            first = head if head.startswith(_ZSTD) else next(_plain(io.BytesIO(head)), b"")
            return first.startswith((*_MAGICS, _ZSTD))
        return False
    file = Path(path)
    if not file.is_file():
        return False
    try:
        with file.open("rb") as stream:
            return next(iter(_plain(stream)), b"").startswith(_MAGICS)
    except (OSError, ValueError):
        return False


class PacketHeader(ctypes.Structure):
    """libpcap's ``struct pcap_pkthdr``, opened for nanoseconds."""

    _fields_ = (
        ("seconds", ctypes.c_long),
        ("nanoseconds", ctypes.c_long),
        ("captured", ctypes.c_uint32),
        ("length", ctypes.c_uint32),
    )


class Capture:
    """A capture that is open for reading.

    Args:
        path: a pcap or pcapng file, plain or packed by gzip, bzip2, xz or zstd; ``-`` for
            standard input.
        damaged: called with a message if the capture ends early; None for a
            :class:`N3icWarning`.
        given: the stream to read as standard input; None for ``sys.stdin``.

    Attributes:
        name: its name in messages.
        link: its link type (LINKTYPE_ numbers) with the bytes of the check sequence, as
            :func:`.packet.parse` takes it, or :data:`.packet.LINK_EACH`.
        unread: frames so far whose link type the meter does not read, by link type.

    Raises:
        DataError: the file cannot be read, or is not a capture.
        MissingDependencyError: libpcap is not installed.
    """

    def __init__(
        self,
        path: str | Path,
        damaged: Callable[[str], object] | None = None,
        stream: IO[bytes] | None = None,
    ) -> None:
        self._damaged, self._stream = damaged or _warn, stream
        self.name = "standard input" if str(path) == STANDARD_INPUT else str(path)
        self._c = libpcap()
        self._stack = ExitStack()
        self._unpacking: list[str] = []  # reasons why the packed bytes end early
        self._links = False  # whether a link type precedes each frame
        self._seeks = False  # whether libpcap reads the file itself, and packet after packet
        self.unread: Counter[int] = Counter()
        error = ctypes.create_string_buffer(_ERROR_BYTES)
        try:
            where = self._readable(path)
            self._pcap = ctypes.c_void_p(
                self._c.pcap_open_offline_with_tstamp_precision(
                    os.fsencode(where), _NANOSECONDS, error
                )
            )
        except OSError as problem:
            self._stack.close()
            raise DataError(f"{self.name}: {problem.strerror or problem}") from problem
        if self._pcap.value is None:
            self._stack.close()
            errors = [error.value.decode(errors="replace"), *self._unpacking]
            raise DataError(f"{self.name}: not a capture that libpcap reads: {'; '.join(errors)}")
        self._stack.callback(self._c.pcap_close, self._pcap)
        link = int(self._c.pcap_datalink(self._pcap))
        link = ALIKE.get(link, link)
        self._is_read = self._links or link in LINKS  # of several links, the converter counts
        check = _check_bytes(int(self._c.pcap_datalink_ext(self._pcap)))
        self.link = LINK_EACH if self._links else link | check << CHECK_SHIFT

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def packets(self) -> Iterator[tuple[bytes, int, int]]:
        """Yield the captured bytes, length on the wire, and time of each packet.

        Times are nanoseconds since 1970. Earlier times become 0, and times beyond 63 bits (the year
        2262) become the largest value.
        """
        header = ctypes.POINTER(PacketHeader)()
        data = ctypes.POINTER(ctypes.c_ubyte)()
        while self._goes_on(
            self._c.pcap_next_ex(self._pcap, ctypes.byref(header), ctypes.byref(data))
        ):
            h = header.contents
            if not self._is_read:
                self.unread[self.link_type] += 1
            time = min(max(0, h.seconds * 10**9 + h.nanoseconds), _LAST)  # stamps are not trusted
            yield ctypes.string_at(data, h.captured), int(h.length), time

    def dispatch(self, function: Any, argument: ctypes.c_void_p, packets: int) -> bool:
        """Pass the next packets to a C function of libpcap's type ``pcap_handler``.

        Args:
            function: pointer to the function.
            argument: first argument of the function.
            packets: maximum number of packets.

        Returns:
            Whether any packet was passed.
        """
        return self.dispatch_by(
            lambda pcap: int(self._c.pcap_dispatch(pcap, packets, function, argument))
        )

    def dispatch_by(self, dispatch: Callable[[ctypes.c_void_p], int]) -> bool:
        """Pass the next packets by a function of libpcap's ``pcap_t *``.

        Args:
            dispatch: returns the packets that it passed, or a negative number, as libpcap does.

        Returns:
            Whether any packet was passed.
        """
        passed = dispatch(self._pcap)
        if passed > 0 and not self._is_read:
            self.unread[self.link_type] += passed
        return self._goes_on(passed)

    @property
    def position(self) -> int:
        """Where the next packet is in the file, in bytes; -1 if the file is packed, or pcapng."""
        return int(libc().ftello(self._c.pcap_file(self._pcap))) if self._seeks else -1

    def go_to(self, position: int, packets: int) -> bool:
        """Go on at a packet whose :attr:`position` an earlier reading of the same file gave.

        Args:
            position: the position, in bytes.
            packets: number of packets before it.

        Returns:
            Whether the file can be read from there; if not, the next packet is the same as before.
        """
        if not self._seeks or libc().fseeko(self._c.pcap_file(self._pcap), position, os.SEEK_SET):
            return False
        if not self._is_read:
            self.unread[self.link_type] += packets
        return True

    @property
    def link_type(self) -> int:
        """Its link type alone, without the check sequence."""
        return self.link & ((1 << CHECK_SHIFT) - 1) if self.link != LINK_EACH else LINK_EACH

    def _goes_on(self, result: int) -> bool:
        errors = [] if result > 0 else list(self._unpacking)
        if result == -1:
            errors.append(self._c.pcap_geterr(self._pcap).decode(errors="replace"))
        if errors:
            why = "; ".join(errors)
            self._damaged(f"{self.name}: the capture ends early: {why}; what came before it counts")
        return result > 0

    def _readable(self, path: str | Path) -> str:
        """A path that libpcap can open: the file itself, or a pipe of its plain bytes."""
        opened = None
        if str(path) == STANDARD_INPUT:
            stream: IO[bytes] = self._stream or sys.stdin.buffer
        else:
            file = Path(path)
            if file.is_dir():
                raise IsADirectoryError(21, "is a folder; name a capture")
            stream = opened = file.open("rb")
            # A pipe is read once: libpcap could not open it again.
            if file.is_file() and not _is_packed(opened) and not needs_links(file):
                self._seeks = opened.peek()[:4] in _MAGICS[1:]  # not pcapng, which has blocks
                opened.close()
                return str(file)
        # libpcap does not unpack, and opens files by name: a thread feeds a pipe that has a name.
        readable, writable = os.pipe()
        self._stack.callback(os.close, readable)
        pump = threading.Thread(
            target=_pump,
            args=(self._pieces(stream), writable, self._unpacking.append, opened),
            daemon=True,
        )
        pump.start()
        return f"/dev/fd/{readable}"

    def _pieces(self, stream: IO[bytes]) -> Iterator[bytes]:
        """Plain bytes for libpcap; pcapng captures that it would refuse are converted."""
        pieces = _plain(stream)
        first: list[bytes] = []
        damage: list[DamagedError] = []

        def rest() -> Iterator[bytes]:
            yield from first
            if damage:
                raise damage[0]
            yield from pieces

        try:
            first.append(next(pieces, b""))
            # An interface may be described behind packets of another.
            while first[0].startswith(SECTION) and sum(map(len, first)) < _HEAD:
                if not (piece := next(pieces, b"")):
                    break
                first.append(piece)
        except DamagedError as error:
            damage.append(error)
        # Set before libpcap, and so the constructor, gets the first byte.
        self._links = begins_with_links(iter(first))
        yield from with_links(rest(), self.unread) if self._links else rest()


def link_text(link: int) -> str:
    """A link type by its number and its name, such as ``147 (USER0)``."""
    if link == LINK_EACH:
        return "one for each frame"
    check, link = link >> CHECK_SHIFT, link & ((1 << CHECK_SHIFT) - 1)
    name = libpcap().pcap_datalink_val_to_name(_RAW_IN_MEMORY if link == LINK_RAW else link)
    if name is None and link in _PRIVATE:
        name = f"USER{link - _PRIVATE[0]}".encode()
    text = f"{link} ({name.decode() if name else 'no name is known'})"
    return f"{text} with a check sequence of {check} bytes" if check else text


def _check_bytes(upper: int) -> int:
    """Bytes of the check sequence, from the upper bits of the link type in a pcap header."""
    words = upper >> 28 & 15 if upper & 1 << 26 else 0
    return 2 * words if 2 * words <= CHECK_MOST else 0


def _warn(line: str) -> None:
    warnings.warn(line, N3icWarning, stacklevel=4)


def _is_packed(stream: io.BufferedReader) -> bool:
    head = stream.peek()
    stream.seek(0)
    return head.startswith(_PACKED)


def _pump(
    pieces: Iterator[bytes],
    writable: int,
    damaged: Callable[[str], object],
    opened: IO[bytes] | None,
) -> None:
    """Write bytes into a pipe; damage is reported before the pipe is closed.

    The file ``opened``, if any, is closed at the end.
    """
    # A reader that closes the pipe early is no error: it wanted only some packets.
    with suppress(BrokenPipeError), opened or nullcontext(), open(writable, "wb") as out:
        try:
            for piece in pieces:
                out.write(piece)
                out.flush()
        except BlockError as error:
            damaged(str(error))
        except DamagedError as error:
            damaged(f"the packed file is cut or damaged ({error})")
        except BrokenPipeError:
            raise
        except OSError as error:
            damaged(f"it cannot be read further ({error.strerror or error})")


def _plain(stream: IO[bytes]) -> Iterator[bytes]:
    """A capture's plain bytes.

    Raises:
        DamagedError: the stream is truncated or damaged; raised after the bytes before the damage.
        OSError: the stream cannot be read.
    """
    peeked = stream.peek()[:4] if hasattr(stream, "peek") else b""
    if peeked != _ZSTD:
        yield from unpack(stream)
        return
    import pyarrow as pa

    try:
        with pa.CompressedInputStream(pa.PythonFile(stream), "zstd") as plain:
            while piece := plain.read(_ZSTD_PIECE):
                yield piece
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise DamagedError(str(error)) from error


def plain_capture(path: str | Path, scratch: Path) -> Path:
    """Return the path of a plain capture; a packed one is unpacked into the folder ``scratch``.

    If a packed capture is cut or damaged, the file holds what comes before the damage.

    Raises:
        DataError: the capture cannot be read.
    """
    try:
        with Path(path).open("rb") as stream:
            if not _is_packed(stream):
                return Path(path).absolute()
            with tempfile.NamedTemporaryFile(dir=scratch, delete=False) as out:
                with suppress(DamagedError):  # reading the packets reports it
                    out.writelines(_plain(stream))
                return Path(out.name)
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: {error}") from error


@cache
def libc() -> Any:
    """The C library of this process, with the types of what goes to a place in a file."""
    library, stream = ctypes.CDLL(None), ctypes.c_void_p
    library.ftello.restype, library.ftello.argtypes = ctypes.c_long, [stream]
    library.fseeko.argtypes = [stream, ctypes.c_long, ctypes.c_int]
    return library


@cache
def libpcap() -> Any:
    """Load libpcap and declare its functions' types.

    Raises:
        MissingDependencyError: libpcap is not installed.
    """
    name = ctypes.util.find_library("pcap") or "libpcap.so.0.8"
    try:
        library = ctypes.CDLL(name)
    except OSError as error:
        raise MissingDependencyError(
            "reading captures needs libpcap (Debian: apt-get install libpcap0.8)"
        ) from error
    text, pointer = ctypes.c_char_p, ctypes.c_void_p
    for function, result, arguments in (
        ("pcap_open_offline_with_tstamp_precision", pointer, [text, ctypes.c_uint, text]),
        ("pcap_datalink", ctypes.c_int, [pointer]),
        ("pcap_datalink_ext", ctypes.c_int, [pointer]),
        ("pcap_datalink_val_to_name", text, [ctypes.c_int]),
        ("pcap_next_ex", ctypes.c_int, [pointer, pointer, pointer]),
        ("pcap_dispatch", ctypes.c_int, [pointer, ctypes.c_int, pointer, pointer]),
        ("pcap_geterr", text, [pointer]),
        ("pcap_close", None, [pointer]),
        ("pcap_file", pointer, [pointer]),
    ):
        foreign_function = getattr(library, function)
        foreign_function.restype, foreign_function.argtypes = result, arguments
    return library
