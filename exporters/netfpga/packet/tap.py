# SPDX-License-Identifier: Apache-2.0
"""A virtual card between two TAP devices: simulated Verilog that any network client can use.

Linux only. Needs root, ``/dev/net/tun``, ``ip``, Verilator and a C++ compiler.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from n3ic.errors import N3icError, UsageError
from n3ic.exporters.netfpga.core import CorePorts
from n3ic.exporters.netfpga.sequential.update import read_update
from n3ic.exporters.netfpga.tools import simulate, simulator_process
from n3ic.exporters.netfpga.tools import tap as wire
from n3ic.exporters.netfpga.tools.simulator_process import SimulatedCardProcess, SimulatorProgram
from n3ic.targets.manifest import exported_network, read_manifest

ADDRESSES = ("10.23.23.1/24", "10.23.23.2/24")


@dataclass(frozen=True)
class NicCounters:
    """Counters of a card's traffic.

    Attributes:
        tap_in: frames received from the device ``tap``.
        peer_in: frames received from the device ``peer``.
        tap_out: frames sent to the device ``tap``.
        peer_out: frames sent to the device ``peer``.
        dropped: frames that the kernel did not accept.
        clocks: number of simulated clocks.
    """

    tap_in: int
    peer_in: int
    tap_out: int
    peer_out: int
    dropped: int
    clocks: int


class VirtualNic(SimulatedCardProcess):
    """The card of an export directory between two TAP devices, running inside a ``with`` block.

    A frame received from one device leaves at the other, in both directions through the Verilog.
    The process, the devices and the namespaces made for them are removed at the end in any case.

    Attributes:
        counters: traffic of the card, set when the block has ended.
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
        """Prepare a card; nothing is created before the ``with`` block.

        Args:
            directory: an export directory of the target ``netfpga``.
            tap: name of the first device.
            peer: name of the second device.
            tap_netns: network namespace to create for the first device; empty for none.
            peer_netns: the same for the second device. If either is given, both devices get
                addresses.

        Raises:
            UsageError: Linux does not allow a name, or both names are equal.
        """
        wire.check_names(tap, peer, *filter(None, (tap_netns, peer_netns)))
        if tap == peer or (tap_netns and tap_netns == peer_netns):
            raise UsageError("the two ports of the card need two names")
        super().__init__()
        self.directory = directory.resolve()
        self.devices = (tap, peer)
        self.namespaces = (tap_netns, peer_netns)
        self.counters: NicCounters | None = None

    def _plug_in(self, stack: ExitStack) -> SimulatorProgram:
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
        return SimulatorProgram(command, simulate.memory_folder(self.directory, work), descriptors)

    def _count(self, text: str) -> None:
        fields = text.split()
        if len(fields) == 6:
            self.counters = NicCounters(*(int(field) for field in fields))

    def load(self, update: str | Path) -> None:
        """Load another model into the card while frames flow, as a driver would.

        Args:
            update: a ``mem/update.hex`` made for this card's executor.

        Raises:
            UsageError: the file is damaged or made for another executor; nothing is written.
            N3icError: the card is not running.
        """
        new_model = read_update(update, CorePorts.load(self.directory))
        commands, answers = self._pipes()
        lines = (f"{address:x} {word:x}\n" for address, word in new_model.writes)
        try:
            commands.write("".join(lines) + "swap\n")
            commands.flush()
        except OSError as error:
            raise N3icError("the card is not running any more") from error
        if answers.readline().strip() != "swapped":
            raise N3icError("the card ended while a model was written")


def serve(
    directory: str | Path,
    *,
    tap: str = "n3ic0",
    peer: str = "n3ic1",
    netns: str = "",
    ready: Callable[[str], None] = lambda text: None,
) -> NicCounters | None:
    """Run a virtual card until Ctrl-C or SIGTERM.

    Args:
        directory: an export directory of the target ``netfpga``.
        tap: name of the first TAP device.
        peer: name of the second TAP device.
        netns: network namespace to create for the second device, so that both ends can talk on one
            machine: 10.23.23.1 here, 10.23.23.2 in the namespace.
        ready: called with a line of text when the card is ready.

    Returns:
        Counters of the card's traffic; None if the card ended unexpectedly.

    Raises:
        N3icError: see :class:`VirtualNic`.
    """
    nic = VirtualNic(Path(directory), tap=tap, peer=peer, peer_netns=netns)
    where = f" in the namespace {netns} (10.23.23.2; {tap} is 10.23.23.1)" if netns else ""
    text = f"the card is plugged in between {tap} and {peer}{where}; Ctrl-C ends it"
    simulator_process.serve(nic, lambda: ready(text))
    return nic.counters


def build(directory: Path, work: Path) -> Path:
    """Compile the card of an export directory to a program in ``work``.

    Raises:
        UsageError: the directory is an export of another target, or has a side channel for inputs.
        VerifyError: the Verilog does not build.
    """
    manifest = read_manifest(directory)
    if manifest["target"] != "netfpga":
        raise UsageError(f"{directory} is an export for {manifest['target']}, not for netfpga")
    if manifest["options"].get("input") == "side":
        raise UsageError(f"{directory} takes inputs from a side channel, which a TAP device lacks")
    core = CorePorts.load(directory, exported_network(directory, manifest).model)
    sources = [*sorted((directory / "rtl").glob("*.v")), Path(__file__).with_name("tap.cpp")]
    macros = ["N3IC_WRITE_PORT"] if core.write_port else []
    return simulate.verilate("n3ic_top", sources, work, macros=macros)
