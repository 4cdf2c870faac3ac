# SPDX-License-Identifier: Apache-2.0
"""``dpdk:DEVICE``: packets of a DPDK port, metered in place.

A device is a virtual one, named as in EAL's ``--vdev``, such as ``net_af_packet0,iface=eth0``, or
the PCI address of a NIC. The manager of :mod:`n3ic.systems.stream.functions`, a separate process,
owns the port, and this process is the only function to which it hands packets. A packet's buffer is
returned once the meter has counted it. While the stream lags behind, buffers run out, and further
packets count as lost.
"""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import DataError, MissingDependencyError, N3icError, UsageError
from n3ic.meter.packet import LINK_ETHERNET
from n3ic.model.classifier import Classifier
from n3ic.systems.stream.flows.source import FrameBatch, Position, Source
from n3ic.systems.stream.functions.capture_ports import check_whole_frames
from n3ic.systems.stream.functions.chain import ChainFunction, FunctionChain, is_device
from n3ic.systems.stream.functions.manager import FunctionManager
from n3ic.systems.stream.functions.packets import PASS, PacketView, SharedPackets

TICKETS = 1 << 14  # most packets that wait for the meter
BATCH = 1 << 10
MEMORY: Literal["file", "dpdk"] = "file"  # for virtual devices; a NIC needs DPDK's memory
GRACE_NS = 10**9  # the kernel stamps packets some time before net_pcap delivers them
_NAME = "stream"
_WAIT_US = 100_000
_END_S = 5.0
_SENT = ("transmit_errors",)  # left out: this source sends nothing


class DpdkSource(Source):
    """A DPDK port.

    Its position is empty: packets that come while nobody reads are lost and not counted. A capture
    (``net_pcap0,rx_pcap=FILE``) waits for the stream and ends it, but a stream cannot resume it.

    Args:
        device: the device.
        name: name of the source; empty derives it from the device.

    Attributes:
        status: the manager's counters when last read, see
            :func:`n3ic.systems.stream.functions.manager.with_balance`.

    Raises:
        UsageError: The text names no device, or one that replays a capture of cut frames.
        MissingDependencyError: DPDK or a C compiler is missing.
        DataError: DPDK cannot open the device.
    """

    link = LINK_ETHERNET
    status: Mapping[str, Any]

    def __init__(self, device: str, name: str = "") -> None:
        self.name = name or f"dpdk:{device}"
        if not is_device(device):
            raise UsageError(
                f"{self.name}: expected a device of DPDK, such as net_af_packet0,iface=eth0 or "
                "the PCI address 0000:01:00.0"
            )
        ends = ",rx_pcap=" in device and ",infinite_rx=1" not in device
        self.live = not ends
        check_whole_frames(device)
        self._asking, self._reading, self._returning = (threading.Lock() for _ in range(3))
        self._closed = False
        self._counted = 0  # packets that the meter has counted
        function = ChainFunction(_NAME, "", tickets=TICKETS, batch=BATCH, hang_s=0)
        memory = MEMORY if device.startswith("net_") else "dpdk"
        chain = FunctionChain((device,), (_NAME,), (function,), memory, until_end=ends)
        with ExitStack() as stack:
            try:
                self._manager = stack.enter_context(FunctionManager(chain))
                self._shared = SharedPackets(
                    str(self._manager.path), _NAME, BATCH, self._manager.prefix
                )
                stack.enter_context(self._shared)
                self.status = self._manager.status()
            except MissingDependencyError:
                raise
            except N3icError as error:
                raise DataError(f"{self.name}: {error}; see DPDK's own messages above") from error
            self._stack = stack.pop_all()

    def batches(self, position: Position) -> Iterator[FrameBatch]:
        """Yield batches of packets, in the manager's memory; those already waiting come first.

        Raises:
            DataError: The manager has ended, or the capture was already begun.
        """
        if position:
            raise DataError(
                f"{self.name}: DPDK reads a capture only from its start; give n3ic stream the file"
            )
        after = {} if self.live else {"begun": True}
        end_sent = False
        try:
            self._request("receive")
            while True:
                if self._stopped and not end_sent:
                    self._request("end")
                    end_sent = True
                ending = self._shared.stopping  # read first: once set, the ring holds all packets
                with self._reading:
                    if self._closed:
                        return
                    view = self._shared.receive(_WAIT_US)
                    batch = self._batch(view, after)
                if len(view) or not ending:
                    yield batch
                if not len(view):
                    if ending:
                        return
                    self._shared.check_manager()
        except N3icError as error:
            raise DataError(f"{self.name}: {error}; the packets before it are counted") from error

    def stop(self) -> None:
        """End :meth:`batches` after the waiting packets; it notices within a tenth of a second."""
        self._stopped = True

    def lost(self) -> Mapping[str, int]:
        """Packets lost by the port, the driver, the interface and full rings, and at the end."""
        with self._asking, suppress(N3icError):  # if the manager has ended, keep its last counts
            self.status = self._manager.status()
        (port,), (function,) = self.status["ports"], self.status["functions"]
        unread = max(0, function["given"] - self._counted) if self._stopped else 0
        losses = {
            name.replace("_", " "): n for name, n in port["losses"].items() if name not in _SENT
        }
        losses |= {"too long": self.status["too_long"], "ring full": function["full"]}
        return {f"{self.name}: {what}": n for what, n in {**losses, "not read": unread}.items()}

    def close(self) -> None:
        """End the manager, which releases the device."""
        with self._reading, self._returning:
            if self._closed:
                return
            self._closed = True
            with suppress(N3icError):
                self._request("end")
            self._shared.__exit__()
            select.select([self._manager.output], [], [], _END_S)
            self._stack.close()

    def _request(self, word: str) -> None:
        with self._asking:
            self._manager.request(word)

    def _batch(self, view: PacketView, after: Position) -> FrameBatch:
        if not len(view):
            # A capture has times of its own: the clock says nothing of how long its flows are idle.
            return FrameBatch(after, quiet_ns=time.time_ns() - GRACE_NS if self.live else 0)
        frames_in_place = view.frames(1)
        frames = type(frames_in_place)(
            frames_in_place.data, *(column.copy() for column in frames_in_place.columns)
        )
        return FrameBatch(after, frames, counted=partial(self._return, view.descriptors.copy()))

    def _return(self, descriptors: NDArray[np.uint64]) -> None:
        with self._returning:
            self._counted += len(descriptors)
            if not self._closed:
                self._shared.give_back(descriptors, np.full(len(descriptors), PASS, dtype=np.uint8))


def open_source(rest: str, model: Classifier) -> DpdkSource:
    """Open a device by its name and arguments, or its PCI address."""
    return DpdkSource(rest)
