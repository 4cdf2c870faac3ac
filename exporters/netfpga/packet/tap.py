"""A virtual card for any network client: TAP device, simulated Verilog, TAP device.

Linux only; needs root, ``/dev/net/tun``, ``ip``, Verilator and a C++ compiler.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from n3ic.errors import N3icError, UsageError
from n3ic.exporters.netfpga.core import Core
from n3ic.exporters.netfpga.sequential import read_update
from n3ic.exporters.netfpga.tools import running, simulate
from n3ic.exporters.netfpga.tools import tap as wire
from n3ic.exporters.netfpga.tools.running import Program, RunningCard
from n3ic.targets.manifest import exported_network, read_manifest

ADDRESSES = ("10.23.23.1/24", "10.23.23.2/24")


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


class VirtualNic(RunningCard):
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
        wire.check_names(tap, peer, *filter(None, (tap_netns, peer_netns)))
        if tap == peer or (tap_netns and tap_netns == peer_netns):
            raise UsageError("the two ports of the card need two names")
        super().__init__()
        self.directory = directory.resolve()
        self.devices = (tap, peer)
        self.namespaces = (tap_netns, peer_netns)
        self.counters: Counters | None = None

    def _plug_in(self, stack: ExitStack) -> Program:
        wire.require()
        for name in filter(None, self.namespaces):
            stack.enter_context(wire.namespace(name))
        addresses = ADDRESSES if any(self.namespaces) else ("", "")
        descriptors = [
            stack.enter_context(wire.device(device, netns=netns, address=address))
            for device, netns, address in zip(self.devices, self.namespaces, addresses, strict=True)
        ]
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="n3ic-nic-")))
        binary = build(self.directory, work)
        command = [str(binary), *(str(d) for d in descriptors)]
        return Program(command, simulate.memory_folder(self.directory, work), descriptors)

    def _count(self, text: str) -> None:
        fields = text.split()
        if len(fields) == 6:
            self.counters = Counters(*(int(field) for field in fields))

    def load(self, update: str | Path) -> None:
        """Put another model into the card while frames flow, as a driver would.

        Args:
            update: a ``mem/update.hex`` that was made for this card's executor.

        Raises:
            UsageError: the file is damaged or made for another executor; nothing is written.
            N3icError: the card does not run.
        """
        found = read_update(update, Core.load(self.directory))
        asked, answered = self._pipes()
        lines = (f"{address:x} {word:x}\n" for address, word in found.writes)
        try:
            asked.write("".join(lines) + "swap\n")
            asked.flush()
        except OSError as error:
            raise N3icError("the card does not run any more") from error
        if answered.readline().strip() != "swapped":
            raise N3icError("the card ended while a model was written")


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
    nic = VirtualNic(Path(directory), tap=tap, peer=peer, peer_netns=netns)
    where = f" in the namespace {netns} (10.23.23.2; {tap} is 10.23.23.1)" if netns else ""
    text = f"the card is plugged in between {tap} and {peer}{where}; Ctrl-C ends it"
    running.serve(nic, lambda: ready(text))
    return nic.counters


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
    sources = [*sorted((directory / "rtl").glob("*.v")), Path(__file__).with_name("tap.cpp")]
    macros = ["N3IC_WRITE_PORT"] if core.write_port else []
    return simulate.verilate("n3ic_top", sources, work, macros=macros)
