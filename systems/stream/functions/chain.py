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
        next: function or port to which packets pass on; empty: nowhere.
        routes: further functions and ports that it may send packets to.
        options: what the function is given.
        tickets: packets that it may have at a time.
        batch: packets of a view, at most.
        hang_s: seconds without a sign of life, with work to do, after which it is killed; 0 for
            never, which no file may say.
        absent: what happens with its packets while it does not run.
        restarts: how often it is started again after it died or hung.
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
        ports: devices of DPDK: a virtual one as EAL's ``--vdev`` names it, or a PCI address.
        receive: functions or ports that each get every packet which a port received.
        function: the functions.
        memory: ``file`` shares a memory file, ``huge-file`` one of huge pages, ``dpdk`` DPDK's own
            huge pages, with functions as secondary processes.
        buffers: packet buffers; 0 for what tickets and ports need.
        buffer_bytes: the longest packet.
        packets: end after so many; 0 for never.
        until_end: the ports are captures: wait in place of losing, and end with them.
    """

    ports: tuple[str, ...]
    receive: tuple[str, ...]
    function: tuple[ChainFunction, ...] = ()
    memory: Literal["file", "huge-file", "dpdk"] = "file"
    buffers: int = 0
    buffer_bytes: int = 2048
    packets: int = 0
    until_end: bool = False

    @property
    def port_names(self) -> tuple[str, ...]:
        """Names of the devices without their options."""
        return tuple(port.partition(",")[0] for port in self.ports)

    def place(self, name: str) -> str:
        """A function or a port as the manager is told it, ``-`` for nowhere."""
        names = [f.name for f in self.function]
        if not name:
            return "-"
        return f"f{names.index(name)}" if name in names else f"p{self.port_names.index(name)}"


def read_chain(path: str | Path) -> FunctionChain:
    """Read a chain from a TOML file.

    Raises:
        UsageError: the file cannot be read, or is not a chain; says what was expected.
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
    """Whether a text names a device of DPDK, as :attr:`FunctionChain.ports` has them."""
    return _DEVICE.fullmatch(text) is not None


def _problems(chain: FunctionChain) -> list[str]:
    """What is wrong with a chain, the first things first."""
    names = [f.name for f in chain.function]
    places = (*names, *chain.port_names)
    found = [
        f"ports: expected a device such as net_pcap0,rx_pcap=FILE or 0000:01:00.0, got {p!r}"
        for p in chain.ports
        if not is_device(p)
    ]
    found += [f"function {n!r}: a name is a-z, 0-9, _, -" for n in names if not _NAME.fullmatch(n)]
    found += [f"{n} is there twice" for n in dict.fromkeys(places) if places.count(n) > 1]
    found += [
        f"{what}: expected {least} to {most}, got {count}"
        for what, count, least, most in (
            ("ports", len(chain.ports), 1, MOST_PORTS),
            ("functions", len(names), 0, MOST_FUNCTIONS),
            ("receive", len(chain.receive), 1, MOST_FUNCTIONS),
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
    wanted = [("receive", n) for n in chain.receive]
    wanted += [(f.name, n) for f in chain.function for n in (f.next, *f.routes) if n]
    found += [
        f"{of}: there is no function or port {name!r}; {did_you_mean(name, places)}".rstrip("; ")
        for of, name in wanted
        if name not in places
    ]
    return found or [f"packets of {n} come back to it" for n in _circle(chain)]


def _circle(chain: FunctionChain) -> list[str]:
    """Functions whose packets would come back to them."""
    after = {f.name: {f.next, *f.routes} for f in chain.function}
    for _ in after:
        after = {n: to.union(*(after.get(t, ()) for t in to)) for n, to in after.items()}
    return [name for name, to in after.items() if name in to]
