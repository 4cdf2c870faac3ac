# SPDX-License-Identifier: Apache-2.0
"""``interface:NAME``: packets of a network interface, by AF_PACKET through libpcap.

Packets that come while the buffer is full are lost, and libpcap counts them. The interface's own
counters show in addition which packets were lost earlier, and which passed while nobody read.
"""

from __future__ import annotations

import ctypes
import os
import select
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from n3ic.errors import DataError, UsageError
from n3ic.meter.capture import libpcap, link_text
from n3ic.meter.packet import ALIKE, LINKS
from n3ic.meter.records import unread_error
from n3ic.model.classifier import Classifier
from n3ic.systems.stream.flows.gather import LARGEST, PacketGatherer
from n3ic.systems.stream.flows.source import FrameBatch, Position, Source

BUFFER = 1 << 25  # bytes of the kernel's buffer
GRACE_NS = 10**9  # a packet of the interface is fetched within this time
_WAIT_MS = 100
_ERROR_BYTES = 256
_NANOSECONDS = 1
_NO_SUCH_DEVICE, _NOT_PERMITTED = -5, -8
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_COUNTERS = Path("/proc/thread-self/net/dev")  # those of the thread's network namespace
# The columns of that file: packets received, sent, and dropped by the interface or its driver.
_COLUMNS = {"received": 1, "sent": 9, "dropped": 3, "errors in its buffers": 4}
_DROPPED = ("dropped", "errors in its buffers")


class _Statistics(ctypes.Structure):
    _fields_ = (
        ("received", ctypes.c_uint),
        ("dropped", ctypes.c_uint),
        ("interface", ctypes.c_uint),
    )


class InterfaceSource(Source):
    """A network interface.

    Its position is the number of the interface's packets that the stream has handled. If the
    stream restarts, but not the machine, the packets in between count as lost.

    Args:
        interface: name of the interface.

    Raises:
        UsageError: There is no such interface, or reading it is not permitted.
        DataError: libpcap cannot read it, or its link type is not one that is read.
        MissingDependencyError: libpcap is not installed.
    """

    def __init__(self, interface: str) -> None:
        self.interface, self.name = interface, f"interface:{interface}"
        self._passed_on = 0
        self._missed = 0  # packets that passed while nobody read
        self._before = self._counters()
        self._c = _declared()
        self._pcap = self._activated()
        link = int(self._c.pcap_datalink(self._pcap))
        self.link = ALIKE.get(link, link)
        if self.link not in LINKS:
            self._c.pcap_close(self._pcap)
            raise unread_error(self.name, link_text(link))

    def batches(self, position: Position) -> Iterator[FrameBatch]:
        """Yield batches of packets as they come, and an empty batch if none came for a while."""
        begun = self._seen(self._before)
        if position.get("boot") == _boot() and begun >= int(position["seen"]):
            self._missed = begun - int(position["seen"])
        gatherer = PacketGatherer()
        handle = int(self._c.pcap_get_selectable_fd(self._pcap))
        waits = select.poll()
        waits.register(handle, select.POLLIN)
        while not self._stopped:
            frames, quiet = gatherer.read(self._dispatch)
            self._passed_on += len(frames.time)
            count = begun + self._passed_on + self._statistics().dropped
            at = {"boot": _boot(), "seen": count}
            # Only if the buffer is empty: a packet that waits there is older than the clock.
            until = time.time_ns() - GRACE_NS if quiet else 0
            yield FrameBatch(at, frames if len(frames.time) else None, quiet_ns=until)
            if quiet:
                waits.poll(_WAIT_MS)

    def lost(self) -> Mapping[str, int]:
        """Packets lost by the kernel's buffer, by the interface, and while nobody read."""
        after = self._counters()
        statistics = self._statistics()
        own = {name: after[name] - self._before[name] for name in _DROPPED}
        return {
            f"{self.name}: buffer full": statistics.dropped,
            **{f"{self.name}: {name}": n for name, n in own.items()},
            f"{self.name}: while the stream was down": self._missed,
        }

    def close(self) -> None:
        """Close the interface."""
        if self._pcap.value is not None:
            self._c.pcap_close(self._pcap)
            self._pcap = ctypes.c_void_p()

    def _dispatch(self, dispatch: Callable[[ctypes.c_void_p], int]) -> bool:
        packets_read = dispatch(self._pcap)
        if packets_read < 0:
            raise DataError(f"{self.name}: {self._pcap_error()}; the packets before it are counted")
        return packets_read > 0

    def _statistics(self) -> _Statistics:
        statistics = _Statistics()
        if self._pcap.value is None or self._c.pcap_stats(self._pcap, ctypes.byref(statistics)):
            raise DataError(f"{self.name}: its statistics cannot be read")
        return statistics

    def _counters(self) -> dict[str, int]:
        for line in _COUNTERS.read_text().splitlines():
            name, _, numbers = line.partition(":")
            if name.strip() == self.interface:
                columns = numbers.split()
                return {what: int(columns[at]) for what, at in _COLUMNS.items()}
        raise UsageError(f"{self.name}: no such network interface")

    def _seen(self, counters: Mapping[str, int]) -> int:
        """The packets that a socket sees: the loopback counts each twice, a socket sees it once."""
        loops = self.interface == "lo"
        return counters["received"] + (0 if loops else counters["sent"])

    def _activated(self) -> ctypes.c_void_p:
        error = ctypes.create_string_buffer(_ERROR_BYTES)
        pcap = ctypes.c_void_p(self._c.pcap_create(os.fsencode(self.interface), error))
        if pcap.value is None:
            raise DataError(f"{self.name}: {error.value.decode(errors='replace')}")
        self._pcap = pcap
        for function, value in (
            ("pcap_set_snaplen", LARGEST),
            ("pcap_set_promisc", 1),
            ("pcap_set_timeout", 1),
            ("pcap_set_buffer_size", BUFFER),
            ("pcap_set_tstamp_precision", _NANOSECONDS),
        ):
            if getattr(self._c, function)(pcap, value):
                raise DataError(f"{self.name}: {self._pcap_error()}")
        status = int(self._c.pcap_activate(pcap))
        if status < 0:
            reason = self._pcap_error()
            self.close()
            if status == _NOT_PERMITTED:
                raise UsageError(f"{self.name}: not permitted: run as root, or with CAP_NET_RAW")
            if status == _NO_SUCH_DEVICE:
                raise UsageError(f"{self.name}: no such network interface")
            raise DataError(f"{self.name}: {reason}")
        if self._c.pcap_setnonblock(pcap, 1, error):
            raise DataError(f"{self.name}: {error.value.decode(errors='replace')}")
        return pcap

    def _pcap_error(self) -> str:
        return str(self._c.pcap_geterr(self._pcap).decode(errors="replace"))


def _declared() -> Any:
    """Libpcap, with the types of its functions for live interfaces."""
    library = libpcap()
    pointer, number, text = ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p
    setters = ("snaplen", "promisc", "timeout", "buffer_size", "tstamp_precision")
    for function, result, arguments in (
        ("pcap_create", pointer, [text, text]),
        *((f"pcap_set_{name}", number, [pointer, number]) for name in setters),
        ("pcap_activate", number, [pointer]),
        ("pcap_setnonblock", number, [pointer, number, text]),
        ("pcap_get_selectable_fd", number, [pointer]),
        ("pcap_stats", number, [pointer, pointer]),
    ):
        symbol = getattr(library, function)
        symbol.restype, symbol.argtypes = result, arguments
    return library


def _boot() -> str:
    return _BOOT.read_text().strip()


def open_source(rest: str, model: Classifier) -> InterfaceSource:
    """Open an interface by its name."""
    return InterfaceSource(rest)
