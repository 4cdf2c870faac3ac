# SPDX-License-Identifier: Apache-2.0
"""A virtual card with a network stack, cabled to the host by a TAP device."""

from __future__ import annotations

import ipaddress
import secrets
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from n3ic.errors import N3icError, UsageError
from n3ic.exporters.netfpga.frontend.bench import PORT, front_program
from n3ic.exporters.netfpga.frontend.options import ADDRESS
from n3ic.exporters.netfpga.frontend.parameters import COUNTERS
from n3ic.exporters.netfpga.tools import simulator_process
from n3ic.exporters.netfpga.tools import tap as wire
from n3ic.exporters.netfpga.tools.simulator_process import SimulatedCardProcess, SimulatorProgram
from n3ic.targets.manifest import read_manifest


@dataclass(frozen=True)
class FrontCounters:
    """Counters of a card's traffic.

    Attributes:
        frames_in: frames received from the device.
        frames_out: frames sent to the device.
        dropped: frames that the kernel did not accept.
        clocks: number of simulated clocks.
        card: the card's own counters, by name.
    """

    frames_in: int
    frames_out: int
    dropped: int
    clocks: int
    card: dict[str, int]


class VirtualFront(SimulatedCardProcess):
    """The front end of an export directory behind a TAP device, while a ``with`` block runs.

    Attributes:
        counters: traffic of the card, set when the block has ended.
    """

    def __init__(
        self,
        directory: Path,
        *,
        tap: str = "n3ic0",
        netns: str = "",
        address: str = ADDRESS,
        bad_cable: int = 0,
        waves: Path | None = None,
    ) -> None:
        """Prepare a card; nothing is created before the ``with`` block.

        Args:
            directory: an export directory of the target ``netfpga`` with a front end.
            tap: name of the host's device, which gets another address of the card's /24.
            netns: network namespace to create for the device; empty for none.
            address: the card's IPv4 address.
            bad_cable: percentage of frames, 0 to 30, that are lost, duplicated and reordered, for
                each kind of damage and each direction.
            waves: FST file for all signals, whose folder exists; None for none.

        Raises:
            UsageError: Linux does not allow a name, or an address or percentage is invalid.
        """
        super().__init__()
        wire.check_names(tap, *filter(None, (netns,)))
        try:
            self.address = ipaddress.IPv4Address(address)
        except ValueError as error:
            raise UsageError(f"--address: {address!r} is not an IPv4 address") from error
        network = ipaddress.IPv4Network((self.address, 24), strict=False)
        if self.address.is_multicast or self.address in (network[0], network[255]):
            raise UsageError(f"--address: {address} is not the address of a host")
        if not 0 <= bad_cable <= 30:
            raise UsageError(f"a bad cable harms 0 to 30 % of the frames, not {bad_cable}")
        self.host = network[1] if self.address != network[1] else network[2]
        self.directory = directory.resolve()
        self.tap, self.netns, self.bad_cable, self.waves = tap, netns, bad_cable, waves
        self.counters: FrontCounters | None = None

    def _plug_in(self, stack: ExitStack) -> SimulatorProgram:
        wire.require()
        if self.netns:
            stack.enter_context(wire.namespace(self.netns))
        descriptor = stack.enter_context(
            wire.device(self.tap, netns=self.netns, address=f"{self.host}/24")
        )
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="n3ic-front-")))
        return front_program(
            self.directory,
            work,
            self.address.packed,
            key=secrets.randbits(64),
            bad_cable=self.bad_cable,
            device=descriptor,
            waves=self.waves,
        )

    def _count(self, text: str) -> None:
        fields = [int(field) for field in text.split()]
        card = dict(zip(COUNTERS, fields[4:], strict=False))
        self.counters = FrontCounters(fields[0], fields[1], fields[2], fields[3], card)


def has_front(directory: Path) -> bool:
    """Whether an export directory has a front end."""
    options = read_manifest(directory)["options"]
    return bool(options.get("front-end", "none") != "none")


def waves_file(text: str) -> Path:
    """Check the path of a file for signals.

    Raises:
        UsageError: it has another ending than ``.fst``, or its folder does not exist.
    """
    path = Path(text).resolve()
    if path.suffix != ".fst":
        raise UsageError(f"--waves: {text} is not named .fst: GTKWave and Surfer tell it by that")
    if path.is_dir() or not path.parent.is_dir():
        raise UsageError(f"--waves: {path.parent} is not a folder, or {path.name} is one")
    return path


def serve(
    directory: Path,
    *,
    tap: str,
    netns: str,
    address: str,
    waves: Path | None,
    say: Callable[[str], None],
) -> None:
    """Run a virtual card until Ctrl-C or SIGTERM, and report its counters.

    Raises:
        N3icError: see :class:`VirtualFront`; or the card ended unexpectedly.
    """
    card = VirtualFront(directory, tap=tap, netns=netns, address=address, waves=waves)
    where = f" in the namespace {netns}" if netns else ""
    text = f"the card is {card.address}, port {PORT}, at {tap} ({card.host}){where}; Ctrl-C ends it"
    simulator_process.serve(card, lambda: say(text))
    counters = card.counters
    if counters is None:
        raise N3icError("the simulated card ended unexpectedly")
    own = ", ".join(f"{name} {count}" for name, count in counters.card.items())
    say(
        f"{tap}: {counters.frames_in} frames in, {counters.frames_out} out, "
        f"{counters.dropped} dropped; "
        f"{counters.clocks:,} clocks simulated; {own}"
    )
