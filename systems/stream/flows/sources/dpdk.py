# SPDX-License-Identifier: Apache-2.0
"""``dpdk:DEVICE``: packets of a port of DPDK, metered where they lie.

A device is a virtual one as EAL's ``--vdev`` names it, such as ``net_af_packet0,iface=eth0``, or
the PCI address of a NIC. The manager of :mod:`n3ic.systems.stream.functions` owns the port as a
process of its own, and this process is the one function to which it hands packets. A packet's
buffer goes back when the meter has counted it; while the stream is behind, buffers run out, and
what the port still receives is counted as lost.
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
from n3ic.systems.stream.flows.source import FrameBatch, Position
from n3ic.systems.stream.functions.chain import ChainFunction, FunctionChain, is_device
from n3ic.systems.stream.functions.manager import FunctionManager
from n3ic.systems.stream.functions.packets import PASS, PacketView, SharedPackets

TICKETS = 1 << 14  # packets that wait for the meter, at most
BATCH = 1 << 10
MEMORY: Literal["file", "dpdk"] = "file"  # of virtual devices; a NIC needs DPDK's
GRACE_NS = 10**9  # net_pcap's stamps are those of the kernel, some time before
_NAME = "stream"
_WAIT_US = 100_000
_END_S = 5.0
_SENT = ("transmit_errors",)  # nothing is sent


class DpdkSource:
    """A port of DPDK.

    Its position is empty: what comes while nobody reads is lost and not counted. A capture
    (``net_pcap0,rx_pcap=FILE``) waits for the stream and ends it, but cannot be gone on with.

    Args:
        device: the device.
        name: of the source.

    Attributes:
        status: what the manager counted when it was asked last, see
            :func:`n3ic.systems.stream.functions.manager.with_balance`.

    Raises:
        UsageError: the text names no device.
        MissingDependencyError: DPDK or a C compiler is missing.
        DataError: DPDK does not open the device.
    """

    link: int | None = LINK_ETHERNET
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
        self._stopped = False
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
                raise DataError(f"{self.name}: {error}; DPDK's own words stand above") from error
            self._stack = stack.pop_all()

    def batches(self, position: Position) -> Iterator[FrameBatch]:
        """Batches of packets as they come, in the manager's memory; those that wait come first.

        Raises:
            DataError: the manager is gone, or the capture was read before.
        """
        if position:
            raise DataError(
                f"{self.name}: DPDK reads a capture from its start alone; give n3ic stream the file"
            )
        after = {} if self.live else {"begun": True}
        told = False
        try:
            self._say("receive")
            while True:
                if self._stopped and not told:
                    self._say("end")
                    told = True
                ending = self._shared.stopping  # whatever is given is in the ring by then
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
            raise DataError(f"{self.name}: {error}; what came before it counts") from error

    def stop(self) -> None:
        """End :meth:`batches` behind what waits, which it does within a tenth of a second."""
        self._stopped = True

    def lost(self) -> Mapping[str, int]:
        """Packets lost: by the port, the driver and the interface; by full rings; at the end."""
        with self._asking, suppress(N3icError):  # of a manager that is gone, the last ones
            self.status = self._manager.status()
        (port,), (function,) = self.status["ports"], self.status["functions"]
        unread = max(0, function["given"] - self._counted) if self._stopped else 0
        found = {
            name.replace("_", " "): n for name, n in port["losses"].items() if name not in _SENT
        }
        found |= {"too long": self.status["too_long"], "ring full": function["full"]}
        return {f"{self.name}: {what}": n for what, n in {**found, "not read": unread}.items()}

    def close(self) -> None:
        """End the manager, which gives the device back."""
        with self._reading, self._returning:
            if self._closed:
                return
            self._closed = True
            with suppress(N3icError):
                self._say("end")
            self._shared.__exit__()
            select.select([self._manager.output], [], [], _END_S)
            self._stack.close()

    def _say(self, word: str) -> None:
        with self._asking:
            self._manager.say(word)

    def _batch(self, view: PacketView, after: Position) -> FrameBatch:
        if not len(view):
            return FrameBatch(after, quiet_ns=time.time_ns() - GRACE_NS)
        found = view.frames(1)
        frames = type(found)(found.data, *(column.copy() for column in found.columns))
        return FrameBatch(after, frames, counted=partial(self._return, view.descriptors.copy()))

    def _return(self, descriptors: NDArray[np.uint64]) -> None:
        with self._returning:
            self._counted += len(descriptors)
            if not self._closed:
                self._shared.give_back(descriptors, np.full(len(descriptors), PASS, dtype=np.uint8))


def open_source(rest: str, model: Classifier) -> DpdkSource:
    """Open a device by its name and arguments, or its PCI address."""
    return DpdkSource(rest)
