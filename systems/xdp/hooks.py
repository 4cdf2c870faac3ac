# SPDX-License-Identifier: Apache-2.0
"""What the hooks of an interface, XDP and tcx, can do."""

from __future__ import annotations

from collections.abc import Sequence

from n3ic.errors import UsageError
from n3ic.exporters.xdp import libbpf
from n3ic.exporters.xdp.policy_parser import VerdictPolicy, index_of


def check_hook(interface: str, acts: Sequence[VerdictPolicy], mode: str) -> None:
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
