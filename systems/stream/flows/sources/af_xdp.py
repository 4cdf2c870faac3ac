# SPDX-License-Identifier: Apache-2.0
"""``af_xdp:INTERFACE``: packets of a network interface by AF_XDP, through DPDK's ``net_af_xdp``.

The kernel hands the interface's packets to this process instead of its own network stack.
"""

from __future__ import annotations

import socket
import warnings
from pathlib import Path

from n3ic.errors import N3icWarning, UsageError
from n3ic.exporters.xdp.libbpf import check_ethernet
from n3ic.model.classifier import Classifier
from n3ic.systems.stream.flows.sources.dpdk import DpdkSource

_QUEUES = "/sys/class/net/{}/queues"


def open_source(rest: str, model: Classifier) -> DpdkSource:
    """Open an interface by its name; commas may add arguments of ``net_af_xdp``.

    Raises:
        UsageError: There is no such interface, or its packets have no Ethernet header.
        MissingDependencyError: DPDK or a C compiler is missing.
        DataError: DPDK cannot open it.
    """
    interface, _, _ = rest.partition(",")
    if interface not in {name for _, name in socket.if_nameindex()}:
        raise UsageError(f"af_xdp:{rest}: no such network interface")
    check_ethernet(socket.if_nametoindex(interface))
    queues = len([*Path(_QUEUES.format(interface)).glob("rx-*")])
    if queues > 1:
        warnings.warn(
            f"af_xdp:{rest}: one of its {queues} queues is read; what others receive goes to the "
            f"kernel: ethtool -L {interface} combined 1",
            N3icWarning,
            stacklevel=2,
        )
    return DpdkSource(f"net_af_xdp0,iface={rest}", f"af_xdp:{rest}")
