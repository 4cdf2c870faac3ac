"""A virtual card for any network client: TAP device, simulated Verilog, TAP device.

Linux only; needs root, ``/dev/net/tun``, ``ip``, Verilator and a C++ compiler.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import struct
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from n3ic.errors import MissingDependencyError, N3icError, UsageError
from n3ic.exporters.netfpga.core import Core
from n3ic.exporters.netfpga.sequential import read_update
from n3ic.exporters.netfpga.tools import simulate
from n3ic.targets.manifest import exported_network, read_manifest

TUN = Path("/dev/net/tun")
_TUNSETIFF = 0x400454CA  # linux/if_tun.h
_IFF_TAP_NO_PI = 0x1002
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,14}")
ADDRESSES = ("10.23.23.1/24", "10.23.23.2/24")
STOP_SECONDS = 10
READY_SECONDS = 120


@dataclass(frozen=True)
class Counters:
    """What went through a card.

    Attributes:
        tap_in: frames from the device ``tap``.
        peer_in: frames from the device ``peer``.
        tap_out: frames to the device ``tap``.
        peer_out: frames to the device ``peer``.
        dropped: frames that the kernel did not take.
        clocks: simulated clocks.
    """

    tap_in: int
    peer_in: int
    tap_out: int
    peer_out: int
    dropped: int
    clocks: int


def require() -> None:
    """Check that this machine can run a virtual card.

    Raises:
        MissingDependencyError: a tool or ``/dev/net/tun`` is missing.
        N3icError: this process is not root.
    """
    for tool, package in (("ip", "iproute2"), ("verilator", "verilator"), ("g++", "g++")):
        if shutil.which(tool) is None:
            raise MissingDependencyError(f"a virtual card needs {tool}: apt install {package}")
    if not TUN.exists():
        raise MissingDependencyError(
            f"a virtual card needs {TUN}: modprobe tun, or give it to the container "
            "(--device /dev/net/tun)"
        )
    if os.geteuid() != 0:
        raise N3icError("a virtual card needs root, to make TAP devices: run it with sudo")


class VirtualNic:
    """The card of an export directory, between two TAP devices, while a ``with`` block runs.

    Frames that come in at one device leave at the other one, both ways through the Verilog.
    The devices, the namespaces that were made for them and the process go at the end, whatever
    happens.

    Attributes:
        counters: what went through, once the block has ended.
    """

    def __init__(
        self,
        directory: Path,
        *,
        tap: str = "n3ic0",
        peer: str = "n3ic1",
        tap_netns: str = "",
        peer_netns: str = "",
    ) -> None:
        """Describe a card; nothing is made before the ``with`` block.

        Args:
            directory: an export directory of the target ``netfpga``.
            tap: name of the first device.
            peer: name of the second device.
            tap_netns: a network namespace to make for the first device; empty for none.
            peer_netns: the same for the second one. With either, both devices get addresses.

        Raises:
            UsageError: a name that Linux does not allow, or one twice.
        """
        for name in (tap, peer, *(n for n in (tap_netns, peer_netns) if n)):
            if not NAME.fullmatch(name):
                raise UsageError(
                    f"{name!r} is no name of a device: a letter, then 14 of A-Za-z0-9_.-"
                )
        if tap == peer or (tap_netns and tap_netns == peer_netns):
            raise UsageError("the two ports of the card need two names")
        self.directory = directory.resolve()
        self.devices = (tap, peer)
        self.namespaces = (tap_netns, peer_netns)
        self.counters: Counters | None = None
        self._stack = ExitStack()
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        """Build the card and plug it in.

        Raises:
            MissingDependencyError: see :func:`require`.
            N3icError: not root, a device or namespace of that name exists, or no packet path.
            VerifyError: the Verilog does not build.
        """
        require()
        with ExitStack() as stack:
            for name in filter(None, self.namespaces):
                ip("netns", "add", name)
                stack.callback(ip, "netns", "del", name)
            descriptors = []
            for device in self.devices:
                descriptor = open_tap(device)
                stack.callback(os.close, descriptor)
                descriptors.append(descriptor)
            for i, device in enumerate(self.devices):
                self._plug(i, device)
            work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="n3ic-nic-")))
            binary = build(self.directory, work)
            self._process = subprocess.Popen(
                [str(binary), *(str(d) for d in descriptors)],
                cwd=memory_folder(self.directory, work),
                pass_fds=descriptors,
                stdin=subprocess.PIPE,
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

    def load(self, update: str | Path) -> None:
        """Put another model into the card while frames flow, as a driver would.

        Args:
            update: a ``mem/update.hex`` that was made for this card's executor.

        Raises:
            UsageError: the file is damaged or made for another executor; nothing is written.
            N3icError: the card does not run.
        """
        found = read_update(update, Core.load(self.directory))
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise N3icError("the card does not run: load models within the with block")
        lines = (f"{address:x} {word:x}\n" for address, word in found.writes)
        try:
            process.stdin.write("".join(lines) + "swap\n")
            process.stdin.flush()
        except OSError as error:
            raise N3icError("the card does not run any more") from error
        if process.stdout.readline().strip() != "swapped":
            raise N3icError("the card ended while a model was written")

    def _plug(self, index: int, device: str) -> None:
        inside: list[str] = []
        if self.namespaces[index]:
            ip("link", "set", device, "netns", self.namespaces[index])
            inside = ["-n", self.namespaces[index]]
        if any(self.namespaces):
            ip(*inside, "address", "add", ADDRESSES[index], "dev", device)
        ip(*inside, "link", "set", device, "up")

    def _wait(self) -> None:
        process = self._process
        assert process is not None  # noqa: S101 - for the type checker
        assert process.stdout is not None  # noqa: S101
        timer = threading.Timer(READY_SECONDS, process.kill)
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
            text, _ = process.communicate(timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            text, _ = process.communicate()
        fields = text.split()
        if process.returncode == 0 and len(fields) == 6:
            self.counters = Counters(*(int(f) for f in fields))


def serve(
    directory: str | Path,
    *,
    tap: str = "n3ic0",
    peer: str = "n3ic1",
    netns: str = "",
    ready: Callable[[str], None] = lambda text: None,
) -> Counters | None:
    """Run a virtual card until Ctrl-C or SIGTERM.

    Args:
        directory: an export directory of the target ``netfpga``.
        tap: name of the first TAP device.
        peer: name of the second one.
        netns: a network namespace to make for the second device, so that both ends can talk on
            one machine: 10.23.23.1 here, 10.23.23.2 in the namespace.
        ready: called with a line of text when the card works.

    Returns:
        What went through it; None if it ended by itself.

    Raises:
        N3icError: see :class:`VirtualNic`.
    """
    with (
        until_signal() as stop,
        VirtualNic(Path(directory), tap=tap, peer=peer, peer_netns=netns) as nic,
    ):
        where = f" in the namespace {netns} (10.23.23.2; {tap} is 10.23.23.1)" if netns else ""
        ready(f"the card is plugged in between {tap} and {peer}{where}; Ctrl-C ends it")
        while nic.running and not stop.wait(0.2):
            pass
    return nic.counters


@contextmanager
def until_signal() -> Iterator[threading.Event]:
    """An event that Ctrl-C or SIGTERM sets, for the length of the block."""
    stop = threading.Event()
    before = {
        number: signal.signal(number, lambda *_: stop.set())
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def build(directory: Path, work: Path) -> Path:
    """Compile the card of an export directory to a program in ``work``.

    Raises:
        UsageError: the directory is of another target, or inputs come from a side channel.
        VerifyError: the Verilog does not build.
    """
    manifest = read_manifest(directory)
    if manifest["target"] != "netfpga":
        raise UsageError(f"{directory} is an export for {manifest['target']}, not for netfpga")
    if manifest["options"].get("input") == "side":
        raise UsageError(f"{directory} takes inputs from a side channel, which a TAP device lacks")
    core = Core.load(directory, exported_network(directory, manifest).model)
    flags = "-O1" + (" -DN3IC_WRITE_PORT" if core.write_port else "")
    command = [
        "verilator", "--cc", "--exe", "--build", "-O3", "-Wno-fatal", "-Wno-lint",
        "--top-module", "n3ic_top", "--Mdir", str(work / "obj"), "-CFLAGS", flags,
        "-MAKEFLAGS", "OPT_FAST=-O1 OPT_SLOW=-O0 OPT_GLOBAL=-O0",
        *sorted(str(p) for p in (directory / "rtl").glob("*.v")),
        str(Path(__file__).with_name("tap.cpp")),
    ]  # fmt: skip
    simulate.call(command, work, simulate.BUILD_SECONDS, "the build with Verilator")
    return work / "obj" / "Vn3ic_top"


def memory_folder(directory: Path, work: Path) -> Path:
    """Where ``$readmemh`` finds its files."""
    return directory / "mem" if (directory / "mem").is_dir() else work


def open_tap(name: str) -> int:
    """Make a TAP device that lives as long as its descriptor, which is returned.

    Raises:
        N3icError: the kernel refuses; the text says why.
    """
    import fcntl

    descriptor = os.open(TUN, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        request = struct.pack("16sH22x", name.encode(), _IFF_TAP_NO_PI)
        fcntl.ioctl(descriptor, _TUNSETIFF, request)
    except OSError as error:
        os.close(descriptor)
        raise N3icError(f"cannot make the TAP device {name}: {error.strerror}") from error
    return descriptor


def ip(*arguments: str) -> None:
    """Run ``ip``.

    Raises:
        N3icError: it failed.
    """
    done = subprocess.run(
        ["ip", *arguments], capture_output=True, text=True, timeout=30, check=False
    )
    if done.returncode != 0:
        raise N3icError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
