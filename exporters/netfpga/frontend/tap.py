"""A virtual card with a network stack: a TAP device of the host is the cable to it."""

from __future__ import annotations

import ipaddress
import os
import subprocess
import tempfile
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from n3ic.errors import N3icError, UsageError
from n3ic.exporters.netfpga.frontend.bench import MAC, PORT, RESEND, build
from n3ic.exporters.netfpga.frontend.form import COUNTERS
from n3ic.exporters.netfpga.packet import tap as wire
from n3ic.targets.manifest import read_manifest

ADDRESS = "10.23.23.2"


@dataclass(frozen=True)
class FrontCounters:
    """What went through a card.

    Attributes:
        frames_in: frames from the device.
        frames_out: frames to the device.
        dropped: frames that the kernel did not take.
        clocks: simulated clocks.
        card: the card's own counters, by name.
    """

    frames_in: int
    frames_out: int
    dropped: int
    clocks: int
    card: dict[str, int]


class VirtualFront:
    """The front end of an export directory behind a TAP device, while a ``with`` block runs.

    Attributes:
        counters: what went through, once the block has ended.
    """

    def __init__(
        self,
        directory: Path,
        *,
        tap: str = "n3ic0",
        netns: str = "",
        address: str = ADDRESS,
        bad_cable: int = 0,
    ) -> None:
        """Describe a card; nothing is made before the ``with`` block.

        Args:
            directory: an export directory of the target ``netfpga`` with a front end.
            tap: name of the host's device; it gets another address of the card's /24.
            netns: a network namespace to make for the device; empty for none.
            address: the card's IPv4 address.
            bad_cable: percentage of the frames that are lost, doubled and delayed behind others,
                0 to 30, each way and of each kind.

        Raises:
            UsageError: a name that Linux does not allow, no address of a host, or no percentage.
        """
        for name in (tap, *([netns] if netns else [])):
            if not wire.NAME.fullmatch(name):
                raise UsageError(
                    f"{name!r} is no name of a device: a letter, then 14 of A-Za-z0-9_.-"
                )
        try:
            self.address = ipaddress.IPv4Address(address)
        except ValueError as error:
            raise UsageError(f"--address: {address!r} is no IPv4 address") from error
        network = ipaddress.IPv4Network((self.address, 24), strict=False)
        if self.address.is_multicast or self.address in (network[0], network[255]):
            raise UsageError(f"--address: {address} is no address of a host")
        if not 0 <= bad_cable <= 30:
            raise UsageError(f"a bad cable harms 0 to 30 % of the frames, not {bad_cable}")
        self.host = network[1] if self.address != network[1] else network[2]
        self.directory = directory.resolve()
        self.tap, self.netns, self.bad_cable = tap, netns, bad_cable
        self.counters: FrontCounters | None = None
        self._stack = ExitStack()
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        """Build the card and plug it in.

        Raises:
            MissingDependencyError: see :func:`~n3ic.exporters.netfpga.packet.tap.require`.
            N3icError: not root, or a device or namespace of that name exists.
            VerifyError: the Verilog does not build.
        """
        wire.require()
        with ExitStack() as stack:
            if self.netns:
                wire.ip("netns", "add", self.netns)
                stack.callback(wire.ip, "netns", "del", self.netns)
            descriptor = wire.open_tap(self.tap)
            stack.callback(os.close, descriptor)
            inside = ["-n", self.netns] if self.netns else []
            if self.netns:
                wire.ip("link", "set", self.tap, "netns", self.netns)
            wire.ip(*inside, "address", "add", f"{self.host}/24", "dev", self.tap)
            wire.ip(*inside, "link", "set", self.tap, "up")
            work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="n3ic-front-")))
            binary = build(self.directory, work)
            addresses = [MAC.hex(), self.address.packed.hex(), f"{PORT:x}", f"{RESEND:x}"]
            addresses.append(f"{self.bad_cable:x}")
            self._process = subprocess.Popen(
                [str(binary), str(descriptor), *addresses],
                cwd=wire.memory_folder(self.directory, work),
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
        traceback: TracebackType | None,
    ) -> None:
        """Unplug the card and remove all that was made for it."""
        self._stack.close()

    @property
    def running(self) -> bool:
        """Whether the card works."""
        return self._process is not None and self._process.poll() is None

    def _wait(self) -> None:
        process = self._process
        if process is None or process.stdout is None:
            raise N3icError("the simulated card did not start")
        timer = threading.Timer(wire.READY_SECONDS, process.kill)
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
            text, _ = process.communicate(timeout=wire.STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            text, _ = process.communicate()
        fields = [int(field) for field in text.split()]
        if process.returncode == 0 and len(fields) >= 4:
            card = dict(zip(COUNTERS, fields[4:], strict=False))
            self.counters = FrontCounters(fields[0], fields[1], fields[2], fields[3], card)


def has_front(directory: Path) -> bool:
    """Whether an export directory has a front end."""
    options = read_manifest(directory)["options"]
    return bool(options.get("front-end", "none") != "none")


def serve(
    directory: Path, *, tap: str, netns: str, address: str, say: Callable[[str], None]
) -> None:
    """Run a virtual card until Ctrl-C or SIGTERM, and say what went through it.

    Raises:
        N3icError: see :class:`VirtualFront`; or the card ended by itself.
    """
    with (
        wire.until_signal() as stop,
        VirtualFront(directory, tap=tap, netns=netns, address=address) as card,
    ):
        where = f" in the namespace {netns}" if netns else ""
        say(
            f"the card is {card.address}, port {PORT}, at {tap} ({card.host}){where}; "
            "Ctrl-C ends it"
        )
        while card.running and not stop.wait(0.2):
            pass
    seen = card.counters
    if seen is None:
        raise N3icError("the simulated card ended by itself")
    own = ", ".join(f"{name} {count}" for name, count in seen.card.items())
    say(
        f"{tap}: {seen.frames_in} frames in, {seen.frames_out} out, {seen.dropped} dropped; "
        f"{seen.clocks:,} clocks simulated; {own}"
    )
