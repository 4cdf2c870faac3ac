"""A cluster's card for any network client: a Verilated node behind a TAP device.

Linux only; needs root, ``/dev/net/tun``, ``ip``, Verilator and a C++ compiler.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import Self

from n3ic.cluster.placement import Placement
from n3ic.cluster.simulated import CardSimulator, SimulatedCard
from n3ic.errors import N3icError
from n3ic.exporters.netfpga.cluster.image import CardImage, Endpoint, card_image
from n3ic.exporters.netfpga.cluster.simulation import build
from n3ic.exporters.netfpga.packet import tap
from n3ic.model.network import BinaryModel

CARD_PORT = 0x4E33
_STOP_SECONDS = 10
_READY_SECONDS = 120


@dataclass(frozen=True)
class NodeCounters:
    """What a simulated card did.

    Attributes:
        frames_in: frames that came, of whatever kind.
        frames_out: frames that it sent.
        not_taken: frames that the kernel did not take.
        thrown: frames that were thrown away on purpose.
        clocks: simulated clocks; none pass while it waits.
        bad_frames: IPv4 for the card that was damaged, cut short or for another port.
        bad_datagrams: datagrams that were damaged or none of the protocol.
        strays: datagrams of another session, or of no neighbour.
        again: datagrams that had come before, or much too early.
        refused: packets that had to wait for room.
        bad_packets: packets that cannot be.
        stored: tasks with words for its share.
        resent: datagrams that it sent again.
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
        """Datagrams sent again, dropped when they came, and lost on purpose, as processes count."""
        dropped = self.bad_frames + self.bad_datagrams + self.strays
        return {"resent": self.resent, "dropped": dropped, "lost": self.thrown}

    @classmethod
    def parse(cls, text: str) -> NodeCounters | None:
        """What the program prints at its end; None for anything else."""
        numbers = text.split()
        if len(numbers) != len(fields(cls)) or not all(n.isdecimal() for n in numbers):
            return None
        return cls(*(int(n) for n in numbers))


def host_endpoint(node: int, port: int) -> Endpoint:
    """A process on the host's end of a card's TAP device."""
    return Endpoint(bytes([2, 0x6E, 0x33, 0, node, 1]), f"10.233.{node}.1", port)


def card_endpoint(node: int) -> Endpoint:
    """The card behind its TAP device."""
    return Endpoint(bytes([2, 0x6E, 0x33, 0, node, 2]), f"10.233.{node}.2", CARD_PORT)


class VirtualCard:
    """A node's card behind a TAP device, while a ``with`` block runs.

    The device is made in the network namespace of this process. Host and card have the two
    addresses of a network of their own, ``10.233.NODE.0/30``. Device and process go at the end,
    whatever happens.

    Attributes:
        device: name of the TAP device.
        counters: what it did, once the block has ended.
    """

    def __init__(self, image: CardImage, node: int, *, loss: float = 0.0, seed: int = 0) -> None:
        """Describe a card; nothing is made before the ``with`` block.

        Args:
            image: what it holds, with the addresses of :func:`host_endpoint` and
                :func:`card_endpoint`.
            node: its number in the ring.
            loss: share of its frames to throw away on purpose.
            seed: of that choice.
        """
        self.device = f"n3ic-card{node}"
        self.counters: NodeCounters | None = None
        self._image = image
        self._host = host_endpoint(node, 0)
        self._faults = (repr(loss), str(seed))
        self._stack = ExitStack()
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        """Build the card and plug it in.

        Raises:
            MissingDependencyError: a tool or ``/dev/net/tun`` is missing.
            N3icError: not root, or the device exists.
            VerifyError: the Verilog does not build.
        """
        tap.require()
        program = build(self._image.size)
        with ExitStack() as stack:
            work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="n3ic-card-")))
            image = work / "image.hex"
            image.write_text(self._image.text)
            descriptor = tap.open_tap(self.device)
            stack.callback(os.close, descriptor)
            tap.ip("link", "set", self.device, "address", self._host.mac.hex(":"))
            tap.ip("address", "add", f"{self._host.ip}/30", "dev", self.device)
            tap.ip("link", "set", self.device, "up")
            self._process = subprocess.Popen(
                [str(program), str(descriptor), str(image), *self._faults],
                pass_fds=[descriptor],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                text=True,
            )
            stack.callback(self._stop)
            self._wait()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Unplug the card and remove all that was made for it."""
        self._stack.close()

    def kill(self) -> None:
        """Pull the card's plug: its device stays, and nothing answers there."""
        if self._process is not None:
            self._process.kill()

    def _wait(self) -> None:
        process = self._process
        assert process is not None  # noqa: S101 - for the type checker
        assert process.stdout is not None  # noqa: S101
        timer = threading.Timer(_READY_SECONDS, process.kill)
        timer.start()
        line = process.stdout.readline()
        timer.cancel()
        if line.strip() != "ready":
            raise N3icError(f"the simulated card did not start (exit code {process.wait()})")

    def _stop(self) -> None:
        process = self._process
        if process is None:
            return
        process.terminate()
        try:
            text, _ = process.communicate(timeout=_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            text, _ = process.communicate()
        self.counters = NodeCounters.parse(text)


class VerilatedCards(CardSimulator):
    """Cards of this target, their Verilog under Verilator behind a TAP device each."""

    name = "netfpga"
    summary = "the Verilog of a node under Verilator, behind a TAP device"

    @contextmanager
    def run(
        self, model: BinaryModel, placement: Placement, node: int, *, loss: float, seed: int
    ) -> Iterator[SimulatedCard]:
        """A node's card, plugged in while the context is entered."""
        own = card_endpoint(node)
        before = host_endpoint(node, CARD_PORT + 1)
        behind = host_endpoint(node, CARD_PORT + (1 if placement.nodes == 1 else 2))
        image = card_image(model, placement, node, own=own, predecessor=before, successor=behind)
        found = SimulatedCard(
            (own.ip, own.port), (before.ip, before.port), (behind.ip, behind.port)
        )
        with VirtualCard(image, node, loss=loss, seed=seed) as card:
            yield found
        if card.counters is not None:
            found.counters.update(card.counters.summary)


CARDS = VerilatedCards()
