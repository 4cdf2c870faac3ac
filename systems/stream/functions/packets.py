# SPDX-License-Identifier: Apache-2.0
"""Packets as a function sees them: numpy arrays over the memory that the manager shares."""

from __future__ import annotations

import ctypes
import mmap
import os
import socket
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import N3icError, UsageError
from n3ic.meter.compiled import Frames
from n3ic.systems.stream.functions.native import function_library

PASS, DROP, HOLD = 0, 1, 255
FIRST_ROUTE = 2
_ANSWER_BYTES = 512
_BUSY_S = 0.02
_FOLDER = "RUNTIME_DIRECTORY"  # tells DPDK where to put its files
_EAL = ("--proc-type=secondary", "--no-pci", "--no-telemetry", "--log-level=4")


class PayloadKind(IntEnum):
    """What a packet is to a caller who looks for UDP over IPv4 to a port; ``PAYLOAD_`` in C."""

    WHOLE = 0
    OTHER = 1
    FRAGMENT = 2
    DAMAGED = 3


@dataclass(frozen=True, eq=False)
class PacketPayloads:
    """Where payloads lie; arrays of shape ``(packets,)``.

    ``start``, ``length`` and ``sender`` hold for packets that are ``WHOLE``.

    Attributes:
        kind: a :class:`PayloadKind`, uint8; ``DAMAGED`` if a length or a checksum is wrong.
        start: start of the payload in the view's ``data``, int64.
        length: length of the payload in bytes, int64.
        sender: port and address of the sender, ``port << 32 | address``, uint64.
    """

    kind: NDArray[np.uint8]
    start: NDArray[np.int64]
    length: NDArray[np.int64]
    sender: NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class PacketView:
    """Packets in shared memory, which are not copied and cannot be written.

    They stay in place until they are given back. After that, references to ``data`` show other
    packets. All other arrays have the shape ``(packets,)``.

    Attributes:
        data: memory of all packets, uint8; a packet is ``data[offset : offset + captured]``.
        descriptors: the manager's descriptor of each packet, uint64.
        offset: start of each packet in ``data``, uint64.
        captured: number of captured bytes of each packet, uint32.
        length: length of each packet on the wire in bytes, uint32.
        time: time of each packet in nanoseconds since 1970, uint64.
        port: number of the DPDK port that received each packet, uint32.
    """

    data: NDArray[np.uint8]
    descriptors: NDArray[np.uint64]
    offset: NDArray[np.uint64]
    captured: NDArray[np.uint32]
    length: NDArray[np.uint32]
    time: NDArray[np.uint64]
    port: NDArray[np.uint32]

    def __len__(self) -> int:
        return len(self.descriptors)

    def packet(self, index: int) -> NDArray[np.uint8]:
        """The bytes of a packet, in place."""
        start = int(self.offset[index])
        return self.data[start : start + int(self.captured[index])]

    def payloads(self, port: int) -> PacketPayloads:
        """Find the payloads of UDP over IPv4 to a port."""
        n = len(self)
        payloads = PacketPayloads(
            kind=np.zeros(n, dtype=np.uint8),
            start=np.zeros(n, dtype=np.int64),
            length=np.zeros(n, dtype=np.int64),
            sender=np.zeros(n, dtype=np.uint64),
        )
        function_library(secondary=False).payloads_find(
            *(self.data.ctypes.data, n, self.offset, self.captured, self.length, port),
            *(payloads.kind, payloads.start, payloads.length, payloads.sender),
        )
        return payloads

    def frames(self, tick_ns: int) -> Frames:
        """The packets in the form of the compiled meter, with times in ticks of ``tick_ns``."""
        time = self.time // np.uint64(tick_ns)
        return Frames(self.data, self.offset, self.captured, self.length, time)


class SharedPackets:
    """A function's connection to the manager: its rings, and the packets behind them.

    Args:
        path: path of the manager's socket.
        name: the function's name in the chain.
        batch: the most packets of a view.
        prefix: EAL's ``--file-prefix`` of a manager that uses DPDK's own memory; otherwise empty.

    Raises:
        UsageError: No manager listens, or it refuses the function.
        MissingDependencyError: DPDK or a C compiler is missing.
        N3icError: The memory cannot be mapped.
    """

    def __init__(self, path: str, name: str, batch: int, prefix: str = "") -> None:
        self._stack = ExitStack()
        self._socket = self._stack.enter_context(
            socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        )
        self._library = function_library(secondary=bool(prefix))
        if prefix:  # join before the manager counts the function as attached
            _join(self._library, prefix, str(Path(path).parent))
            self._stack.callback(self._library.secondary_end)
        try:
            self._socket.connect(path)
            answer = b"busy"
            while answer == b"busy":  # packets of the function's last process still wait for room
                self._socket.send(f"attach {name}".encode())
                answer, files, _, _ = socket.recv_fds(self._socket, _ANSWER_BYTES, 2)
                time.sleep(_BUSY_S * (answer == b"busy"))
        except OSError as error:
            raise UsageError(f"{path}: no manager answers: {error.strerror or error}") from error
        status, _, rest = answer.decode().partition(" ")
        if status != "ok":
            raise UsageError(f"function {name}: the manager says: {rest or 'nothing'}")
        sizes = [int(word) for word in rest.split(" ")[:2]]
        zones = rest.split(" ")[2:]
        pieces = (
            [_zone(self._library, z) for z in zones]
            if prefix
            else [
                _mapped(f, n, only_read=i == 0)
                for i, (f, n) in enumerate(zip(files, sizes, strict=False))
            ]
        )
        self.data: NDArray[np.uint8] = pieces[0]
        self.data.flags.writeable = False
        self._area = pieces[1]
        self._at = ctypes.c_void_p(self._area.ctypes.data)
        if not self._library.function_check(self._at, len(self._area)):
            raise N3icError(
                "the manager's memory has an unexpected layout: start the manager and the function "
                "with the same version of n3ic"
            )
        self._columns: tuple[NDArray[Any], ...] = tuple(
            np.zeros(batch, dtype=t)
            for t in (np.uint64, np.uint64, np.uint32, np.uint32, np.uint64, np.uint32)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def receive(self, wait_us: int) -> PacketView:
        """Wait for packets, at most ``wait_us``; the next call overwrites the view's columns."""
        n = self._library.function_receive(self._at, len(self._columns[0]), wait_us, *self._columns)
        return PacketView(self.data, *(column[:n] for column in self._columns))

    def give_back(self, descriptors: NDArray[np.uint64], actions: NDArray[np.uint8]) -> None:
        """Give packets back.

        Args:
            descriptors: descriptors of the packets, uint64, shape ``(packets,)``.
            actions: an action for each packet, uint8, shape ``(packets,)``; :data:`HOLD` keeps it.

        Raises:
            N3icError: More descriptors are given back than the function holds.
        """
        out = actions != HOLD
        if not out.all():
            descriptors, actions = descriptors[out], actions[out]
        if self._library.function_return(self._at, len(actions), descriptors, actions) < len(
            actions
        ):
            raise N3icError("more packets were given back than the function has")

    def alive(self) -> None:
        """Tell the manager that the function is still working, within a batch that takes long."""
        self._library.function_alive(self._at)

    @property
    def stopping(self) -> bool:
        """Whether the function must end once its ring is empty."""
        return bool(self._library.function_stopping(self._at))

    def check_manager(self) -> None:
        """Check that the manager is running.

        Raises:
            N3icError: It has ended.
        """
        try:
            ended = self._socket.recv(1, socket.MSG_DONTWAIT) == b""
        except BlockingIOError:
            return
        if ended:
            raise N3icError("the manager has ended")


def actions_of(actions: Any, packets: int) -> NDArray[np.uint8]:
    """Convert what ``on_batch`` returned to one action per packet.

    Args:
        actions: None to pass all packets on, one action for all, or an action for each.
        packets: number of packets.

    Returns:
        uint8 array of shape ``(packets,)``.

    Raises:
        N3icError: ``actions`` is something else, or has another length.
    """
    values = np.asarray(PASS if actions is None else actions)
    if values.dtype.kind not in "iub" or values.shape not in ((), (packets,)):
        raise N3icError(
            f"on_batch: expected None, an action, or an array of {packets} actions, got "
            f"{type(actions).__name__} of shape {values.shape}"
        )
    if values.size and (values.min() < 0 or values.max() > HOLD):
        raise N3icError(f"on_batch: actions are 0 to {HOLD}, got {values.min()} to {values.max()}")
    return np.ascontiguousarray(np.broadcast_to(values, (packets,)), dtype=np.uint8)


class PacketFunction:
    """What a function does with packets; subclass it, and name the subclass in the chain.

    Args:
        options: the function's ``options`` in the chain.
        routes: the function's ``routes``; :meth:`route` returns the action that leads to one.
        shared: the connection to the manager, for packets that are held.

    Attributes:
        wait_us: :meth:`on_idle` is called after this many microseconds without a packet.
        meters: whether it meters flows, and so needs the lengths of whole frames.
    """

    wait_us = 100_000
    meters: ClassVar[bool] = False

    def __init__(
        self, options: Mapping[str, Any], routes: tuple[str, ...], shared: SharedPackets
    ) -> None:
        self.options = options
        self.routes = routes
        self.shared = shared

    def on_batch(self, view: PacketView) -> Any:
        """Handle packets.

        Returns:
            None to pass all on to ``next``, one action for all, or an array with an action for
            each: :data:`PASS`, :data:`DROP`, :meth:`route`, or :data:`HOLD` to keep the packet and
            give it back later with ``self.shared.give_back``. Packets still held at the end count
            as lost.
        """
        raise NotImplementedError

    def on_idle(self) -> None:
        """Called when no packet has come for a while."""

    def on_end(self) -> None:
        """Called when the function is stopped, after its last packet."""

    def route(self, name: str) -> int:
        """The action that sends a packet to one of the function's ``routes``.

        Raises:
            UsageError: The chain gives the function no such route.
        """
        if name not in self.routes:
            raise UsageError(f"no route {name!r}; the chain's routes are {', '.join(self.routes)}")
        return FIRST_ROUTE + self.routes.index(name)


def _mapped(file: int, size: int, *, only_read: bool) -> NDArray[np.uint8]:
    protection = mmap.PROT_READ | (0 if only_read else mmap.PROT_WRITE)
    try:
        # The mapping lives as long as the array, and duplicates the file's descriptor.
        return np.frombuffer(mmap.mmap(file, size, mmap.MAP_SHARED, protection), dtype=np.uint8)
    except (OSError, ValueError) as error:
        raise N3icError(f"the manager's memory cannot be mapped: {error}") from error
    finally:
        socket.close(file)


def _join(library: ctypes.CDLL, prefix: str, folder: str) -> None:
    """Join the manager as a secondary DPDK process; ``folder`` has the manager's files."""
    words = [word.encode() for word in ("n3ic-function", f"--file-prefix={prefix}", *_EAL)]
    processors = os.sched_getaffinity(0)
    before = os.environ.get(_FOLDER)
    os.environ[_FOLDER] = folder
    try:
        status = library.secondary_start(len(words), (ctypes.c_char_p * len(words))(*words))
    finally:
        del os.environ[_FOLDER]
        os.environ |= {} if before is None else {_FOLDER: before}
    os.sched_setaffinity(0, processors)  # EAL has pinned this thread to the manager's CPU
    if status:
        raise N3icError(f"DPDK does not start as a secondary process: error {status}")


def _zone(library: ctypes.CDLL, name: str) -> NDArray[np.uint8]:
    size = ctypes.c_size_t()
    start = library.secondary_zone(name.encode(), ctypes.byref(size))
    if not start:
        raise N3icError(f"the manager's memory zone {name} is missing")
    memory = (ctypes.c_uint8 * size.value).from_address(start)
    return np.frombuffer(memoryview(memory), dtype=np.uint8)
