# SPDX-License-Identifier: Apache-2.0
"""A cluster's card for any network client: a Verilated node behind a TAP device.

Linux only; needs root, ``/dev/net/tun``, ``ip``, Verilator and a C++ compiler.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

from n3ic.errors import ClusterError
from n3ic.exporters.netfpga.tools import tap as wire
from n3ic.exporters.netfpga.tools.simulator_process import SimulatedCardProcess, SimulatorProgram
from n3ic.systems.cluster.kernels import GemmKernel
from n3ic.systems.cluster.launch import KernelWork, ModelWork, RingWork
from n3ic.systems.cluster.matrices import CARD_KERNELS
from n3ic.systems.cluster.netfpga.image import EndpointAddress, NodeImage, node_image
from n3ic.systems.cluster.netfpga.matrix_image import matrix_image
from n3ic.systems.cluster.netfpga.simulation import build
from n3ic.systems.cluster.simulated_cards import CardSimulator, SimulatedCard

CARD_PORT = 0x4E33


@dataclass(frozen=True)
class NodeCounters:
    """Counters of a simulated card.

    Attributes:
        frames_in: received frames of any kind.
        frames_out: sent frames.
        not_taken: frames that the kernel refused.
        thrown: frames that were discarded on purpose.
        clocks: simulated clocks; none pass while the card waits.
        bad_frames: IPv4 frames for the card that were damaged, cut short or for another port.
        bad_datagrams: datagrams that were damaged or not of the protocol.
        strays: datagrams of another session, or not from a neighbour.
        again: datagrams that were duplicates or beyond the window.
        refused: packets that had to wait for room.
        bad_packets: impossible packets.
        stored: tasks with words for the card's share.
        resent: datagrams that were resent.
    """

    frames_in: int
    frames_out: int
    not_taken: int
    thrown: int
    clocks: int
    bad_frames: int
    bad_datagrams: int
    strays: int
    again: int
    refused: int
    bad_packets: int
    stored: int
    resent: int

    @property
    def summary(self) -> dict[str, int]:
        """Datagrams that were resent, dropped on arrival, and lost on purpose."""
        dropped = self.bad_frames + self.bad_datagrams + self.strays
        return {"resent": self.resent, "dropped": dropped, "lost": self.thrown}

    @classmethod
    def parse(cls, text: str) -> NodeCounters | None:
        """Parse what the program prints at its end; return None for anything else."""
        numbers = text.split()
        if len(numbers) != len(fields(cls)) or not all(n.isdecimal() for n in numbers):
            return None
        return cls(*(int(n) for n in numbers))


def host_endpoint(node: int, port: int) -> EndpointAddress:
    """Return the address of a process on the host's end of a card's TAP device."""
    return EndpointAddress(bytes([2, 0x6E, 0x33, 0, node, 1]), f"10.233.{node}.1", port)


def card_endpoint(node: int) -> EndpointAddress:
    """Return the address of the card behind its TAP device."""
    return EndpointAddress(bytes([2, 0x6E, 0x33, 0, node, 2]), f"10.233.{node}.2", CARD_PORT)


class VirtualCard(SimulatedCardProcess):
    """A node's card behind a TAP device, while a ``with`` block runs.

    The device is made in the network namespace of this process. Host and card have the two
    addresses of the network ``10.233.NODE.0/30``. Device and process are removed at the end, even
    after an error.

    Attributes:
        device: name of the TAP device.
        counters: counters of the card, once the block has ended.
    """

    def __init__(self, image: NodeImage, node: int, *, loss: float = 0.0, seed: int = 0) -> None:
        """Describe a card; device and process are made by the ``with`` block.

        Args:
            image: contents of the card, with the addresses of :func:`host_endpoint` and
                :func:`card_endpoint`.
            node: number of the card in the ring.
            loss: fraction of its frames to discard on purpose.
            seed: seed of that choice.
        """
        super().__init__()
        self.device = f"n3ic-card{node}"
        self.counters: NodeCounters | None = None
        self._image = image
        self._host = host_endpoint(node, 0)
        self._faults = (repr(loss), str(seed))

    def _plug_in(self, stack: ExitStack) -> SimulatorProgram:
        wire.require()
        binary = build(self._image.size)
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="n3ic-card-")))
        image = work / "image.hex"
        image.write_text(self._image.text)
        # The program inherits the open device, so it needs no rights of its own.
        descriptor = stack.enter_context(
            wire.device(self.device, address=f"{self._host.ip}/30", mac=self._host.mac.hex(":"))
        )
        command = [str(binary), str(descriptor), str(image), *self._faults]
        return SimulatorProgram(command, descriptors=(descriptor,))

    def _count(self, text: str) -> None:
        self.counters = NodeCounters.parse(text)


class VerilatedCards(CardSimulator):
    """Cards of this target: the Verilog under Verilator, each behind its own TAP device."""

    name = "netfpga"
    summary = "the Verilog of a node under Verilator, behind a TAP device"

    @contextmanager
    def run(
        self, work: RingWork[Any], node: int, *, loss: float, seed: int
    ) -> Iterator[SimulatedCard]:
        """Run a node's card, plugged in while the context is entered."""
        own = card_endpoint(node)
        before = host_endpoint(node, CARD_PORT + 1)
        # On a ring of one node, predecessor and successor are the coordinator, with one socket.
        behind = host_endpoint(node, CARD_PORT + (1 if work.nodes == 1 else 2))
        image = _image(work, node, own, before, behind)
        simulated = SimulatedCard(
            (own.ip, own.port), (before.ip, before.port), (behind.ip, behind.port)
        )
        with VirtualCard(image, node, loss=loss, seed=seed) as card:
            yield simulated
        # The counters are printed when the program ends, so they exist only after the block.
        if card.counters is not None:
            simulated.counters.update(card.counters.summary)


def _image(
    work: RingWork[Any],
    node: int,
    own: EndpointAddress,
    predecessor: EndpointAddress,
    successor: EndpointAddress,
) -> NodeImage:
    if isinstance(work, ModelWork):
        make = partial(node_image, work.model, work.placement)
    elif isinstance(work, KernelWork) and isinstance(work.kernel, GemmKernel):
        make = partial(matrix_image, work.kernel, work.nodes)
    else:
        what = type(work.kernel if isinstance(work, KernelWork) else work).__name__
        raise ClusterError(f"node {node}: a card computes no {what}; {CARD_KERNELS}")
    return make(node, own=own, predecessor=predecessor, successor=successor)


CARDS = VerilatedCards()
