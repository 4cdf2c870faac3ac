# SPDX-License-Identifier: Apache-2.0
"""Where on an interface n3ic's program is attached: at XDP, alone or beside others, or at tcx."""

from __future__ import annotations

from collections.abc import Sequence

from n3ic.errors import UsageError
from n3ic.exporters.xdp import libbpf
from n3ic.exporters.xdp.libbpf import AttachedProgram, AttachMode
from n3ic.exporters.xdp.policy_parser import VerdictPolicy, index_of
from n3ic.exporters.xdp.program import METER, METER_TC
from n3ic.systems.xdp import dispatcher

METERS = (METER, METER_TC)


def query(interface: int) -> AttachedProgram | None:
    """n3ic's program at tcx or in a dispatcher; otherwise the XDP program, whoever loaded it."""
    for number in libbpf.tcx_programs(interface):
        with libbpf.program_by_id(number) as program:
            if program.name == METER_TC:
                return AttachedProgram(number, "tcx")
    attached = libbpf.query(interface)
    beside = dispatcher.dispatched(interface) if attached is not None else None
    for number, name in beside.programs.items() if beside else ():
        if beside and name == METER:
            return AttachedProgram(number, beside.mode, dispatched=True)
    return attached


def detach(interface: int, attached: AttachedProgram, program: libbpf.BpfProgram) -> None:
    """Detach a program that :func:`query` returned."""
    mode = attached.mode or "native"
    if attached.dispatched:
        dispatcher.detach(interface, attached.program_id, mode)
    else:
        libbpf.detach(interface, mode, program)


def ways(mode: AttachMode | None) -> list[tuple[AttachMode, bool]]:
    """List the ways to attach a program, the best first.

    Each is a mode, and whether the program takes frames that lie in several pieces. A driver that
    refuses such a program may accept one without this ability.
    """
    native: list[tuple[AttachMode, bool]] = [("native", True), ("native", False)]
    if mode is None:
        return [*native, ("generic", True)]
    return native if mode == "native" else [(mode, True)]


def check_hook(interface: str, acts: Sequence[VerdictPolicy], mode: AttachMode | None) -> None:
    """Check that policies and interface suit a hook.

    Raises:
        UsageError: The hook has no such action, or the packets of the interface, or of one that XDP
            is to send them to, have no Ethernet header.
    """
    libbpf.check_ethernet(index_of(interface))
    for one in acts:
        if mode != "tcx" and one.action == "mirror":
            raise UsageError(
                "mirror: XDP cannot copy a packet and pass it on: load with --hook tcx, or send "
                "the packets themselves away by interface:NAME"
            )
        if mode == "tcx" and one.action in ("socket", "cpu"):
            raise UsageError(f"{one.action}: only XDP hands packets to it: load with --hook xdp")
        if (
            mode == "tcx"
            and isinstance(one.argument, str)
            and index_of(one.argument) == index_of(interface)
        ):
            raise UsageError(
                f"{one.action}:{one.argument}: packets that leave {interface} would pass the "
                "program again, without end: expected another interface"
            )
        if (
            mode != "tcx"
            and isinstance(one.argument, str)
            and not libbpf.has_ethernet(index_of(one.argument))
        ):
            raise UsageError(
                f"{one.action}:{one.argument}: XDP sends whole Ethernet frames, and packets of "
                f"{one.argument} have no Ethernet header: expected another interface, or load "
                "with --hook tcx, where the kernel takes the header off"
            )
