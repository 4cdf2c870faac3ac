# SPDX-License-Identifier: Apache-2.0
"""A chain of functions, as a TOML file describes it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from n3ic.errors import UsageError, did_you_mean
from n3ic.model.meter_spec import FlowKey
from n3ic.util.files import read_regular
from n3ic.util.plain_data import from_plain

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,30}")
_DEVICE = re.compile(r"(net_[a-z0-9_]+|[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])(,[^:]*)?")
_MOST_BYTES = 1 << 20
MOST_FUNCTIONS, MOST_PORTS, MOST_ROUTES, MOST_TICKETS = 32, 16, 16, 1 << 16


@dataclass(frozen=True)
class ChainFunction:
    """A function of a chain.

    Attributes:
        name: lower-case letters, digits, ``_`` and ``-``.
        use: a ready function, such as ``meter``, or ``FILE.py:CLASS``.
        next: the function or port to which passed packets go; empty for nowhere.
        routes: further functions and ports to which it may send packets.
        options: options of the function.
        tickets: the most packets that it may hold at a time.
        batch: the most packets of a view.
        hang_s: it is killed after this many seconds without a heartbeat while it has work; 0 for
            never, which a file may not set.
        absent: what happens to its packets while it is not running.
        restarts: how often it is restarted after it died or hung.
    """

    name: str
    use: str
    next: str = ""
    routes: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    tickets: int = 4096
    batch: int = 1024
    hang_s: float = 10.0
    absent: Literal["drop", "pass"] = "drop"
    restarts: int = 0


@dataclass(frozen=True)
class FunctionChain:
    """Ports, and the functions between them.

    Attributes:
        ports: DPDK devices: virtual ones, named as in EAL's ``--vdev``, or PCI addresses.
        receive: functions or ports; each of them gets every packet that a port receives.
        function: the functions.
        memory: ``file`` shares a memory file, ``huge-file`` one of huge pages, ``dpdk`` DPDK's own
            huge pages, with functions as secondary processes.
        buffers: number of packet buffers; 0 for as many as tickets and ports need.
        buffer_bytes: size of the longest packet in bytes.
        packets: end after this many packets; 0 for never.
        until_end: the ports are captures: wait instead of losing packets, and end with them.
        share: those of ``receive`` that share packets: all of a flow's go to the same one of them.
        share_by: whose packets stay together: the key of the meters that share.
    """

    ports: tuple[str, ...]
    receive: tuple[str, ...]
    function: tuple[ChainFunction, ...] = ()
    memory: Literal["file", "huge-file", "dpdk"] = "file"
    buffers: int = 0
    buffer_bytes: int = 2048
    packets: int = 0
    until_end: bool = False
    share: tuple[str, ...] = ()
    share_by: FlowKey = "five-tuple"

    @property
    def port_names(self) -> tuple[str, ...]:
        """The names of the devices, without their options."""
        return tuple(port.partition(",")[0] for port in self.ports)

    def place(self, name: str) -> str:
        """The manager's notation of a function or a port; ``-`` for nowhere."""
        names = [f.name for f in self.function]
        if not name:
            return "-"
        return f"f{names.index(name)}" if name in names else f"p{self.port_names.index(name)}"

    @property
    def entries(self) -> str:
        """The manager's notation of ``receive``, with ``+`` between places that share packets."""
        alone = [self.place(name) for name in self.receive if name not in self.share]
        shared = [self.place(name) for name in self.share]
        return ",".join([*alone, *(["+".join(shared)] if shared else [])])


def read_chain(path: str | Path) -> FunctionChain:
    """Read a chain from a TOML file.

    Raises:
        UsageError: The file cannot be read, or is not a chain; says what was expected.
    """
    try:
        data = tomllib.loads(read_regular(path, _MOST_BYTES).decode())
        chain = from_plain(FunctionChain, data, strict=True)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error
    except ValueError as error:
        raise UsageError(f"{path}: {error}") from error
    for message in _problems(chain):
        raise UsageError(f"{path}: {message}")
    return chain


def is_device(text: str) -> bool:
    """Whether a text names a DPDK device, as in :attr:`FunctionChain.ports`."""
    return _DEVICE.fullmatch(text) is not None


def _problems(chain: FunctionChain) -> list[str]:
    """What is wrong with a chain; the first problem is the one to report."""
    names = [f.name for f in chain.function]
    places = (*names, *chain.port_names)
    problems = [
        f"ports: expected a device such as net_pcap0,rx_pcap=FILE or 0000:01:00.0, got {p!r}"
        for p in chain.ports
        if not is_device(p)
    ]
    problems += [
        f"function {n!r}: a name is a-z, 0-9, _, -" for n in names if not _NAME.fullmatch(n)
    ]
    problems += [
        f"{n} is named twice, expected once" for n in dict.fromkeys(places) if places.count(n) > 1
    ]
    problems += [
        f"{what}: expected {least} to {most}, got {count}"
        for what, count, least, most in (
            ("ports", len(chain.ports), 1, MOST_PORTS),
            ("functions", len(names), 0, MOST_FUNCTIONS),
            ("receive", len(chain.receive), 1, MOST_FUNCTIONS),
            ("share", len({*chain.share}) or 2, 2, MOST_FUNCTIONS),
            ("buffers", chain.buffers, 0, 1 << 24),
            ("buffer_bytes", chain.buffer_bytes, 256, 65_000),
            ("packets", chain.packets, 0, 1 << 62),
            *((f"{f.name}: tickets", f.tickets, 64, MOST_TICKETS) for f in chain.function),
            *((f"{f.name}: batch", f.batch, 1, 1 << 16) for f in chain.function),
            *((f"{f.name}: hang_s", f.hang_s, 0.1, 86_400) for f in chain.function),
            *((f"{f.name}: routes", len(f.routes), 0, MOST_ROUTES) for f in chain.function),
            *((f"{f.name}: restarts", f.restarts, 0, 1 << 31) for f in chain.function),
        )
        if not least <= count <= most
    ]
    ends = [("receive", n) for n in chain.receive]
    ends += [(f.name, n) for f in chain.function for n in (f.next, *f.routes) if n]
    problems += [
        f"{of}: no function or port {name!r}; {did_you_mean(name, places)}".rstrip("; ")
        for of, name in ends
        if name not in places
    ]
    problems += [
        f"share: {name} is not in receive, where it is expected once"
        for name in chain.share
        if chain.receive.count(name) != 1 or chain.share.count(name) != 1
    ]
    return problems or [
        f"packets of {n} come back to it, expected a chain without a circle" for n in _circle(chain)
    ]


def _circle(chain: FunctionChain) -> list[str]:
    """The functions to which their own packets would return."""
    after = {f.name: {f.next, *f.routes} for f in chain.function}
    for _ in after:
        after = {n: to.union(*(after.get(t, ()) for t in to)) for n, to in after.items()}
    return [name for name, to in after.items() if name in to]
