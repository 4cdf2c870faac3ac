# SPDX-License-Identifier: Apache-2.0
"""A card's program in the kernel."""

from __future__ import annotations

import json
import os
import socket
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from n3ic.errors import UsageError, VerifyError
from n3ic.exporters.xdp import libbpf
from n3ic.exporters.xdp.resident import check_slot, swap
from n3ic.exporters.xdp.source import compile_program
from n3ic.systems.card.xdp.image import PROGRAM, TABLES, changed_tenant

COUNTS = (
    "answered",
    "dropped",
    "short",
    "no_model",
    "throttled",
    "other",
    "unknown",
    "forwarded",
    "no_port",
)
REDIRECT, TX, PASS, DROP = 4, 3, 2, 1
PROGRAM_NAME = "n3ic_card"


class CardTables:
    """The tables that a card's program reads while frames flow.

    Args:
        maps: maps of the program, by name.
    """

    def __init__(self, maps: Mapping[str, libbpf.BpfMap]) -> None:
        self.maps = maps

    def set_tenant(self, index: int, value: bytes) -> None:
        """Set a tenant's rate and bucket; see :func:`~.image.tenant_value`."""
        self.maps["tenants"].update(index, value)

    def set_rate(self, index: int, rate: int, burst: int) -> None:
        """Change a tenant's rate and bucket; frames of these microseconds may cost it nothing."""
        value = self.maps["tenants"].lookup(index) or b""  # an array has all its indices
        self.set_tenant(index, changed_tenant(value, rate, burst, time.monotonic_ns()))

    def set_network(self, slot: int, value: bytes) -> None:
        """Put a network into a slot atomically: a frame sees the old network or the new one."""
        check_slot(slot)
        swap(self.maps["models"], slot, value)

    def remove_network(self, slot: int) -> None:
        """Empty a slot: frames of the graphs that use it are dropped and counted."""
        check_slot(slot)
        self.maps["models"].delete(slot)

    def set_port(self, port: int, interface: str) -> None:
        """Set the interface of a port that policies forward to; frames for other ports are dropped.

        Raises:
            UsageError: no interface has that name, or its packets have no Ethernet header.
        """
        index = _index(interface)
        libbpf.check_ethernet(index)
        self.maps["ports"].update(port, index)

    def set_graph(self, uid: int, value: bytes | None) -> None:
        """Set the graph of a UID; with None its frames pass unchanged."""
        key = struct.pack("=I", uid)
        if value is None:
            self.maps["graphs"].delete(key)
        else:
            self.maps["graphs"].update(key, value)


class CardProgram(CardTables):
    """The loaded program of a card's export with its tables; closing it unloads it.

    Args:
        directory: the export; its C is compiled and run by the kernel.

    Raises:
        MissingDependencyError: clang or libbpf is not installed.
        VerifyError: a file is missing or damaged.
        BpfError: the kernel refuses the program.
    """

    def __init__(self, directory: Path) -> None:
        try:
            files = {p.name: p.read_text("utf-8") for p in directory.glob("*.[ch]")}
            tables = json.loads((directory / TABLES).read_text("utf-8"))
            self.tenants = [str(t["name"]) for t in tables["tenants"]]
            values = [bytes.fromhex(t["value"]) for t in tables["tenants"]]
            graphs = [(int(g["uid"]), bytes.fromhex(g["value"])) for g in tables["graphs"]]
            slots = [int(s["slot"]) for s in tables["slots"]]
            networks = [(directory / "networks" / f"{s}.bin").read_bytes() for s in slots]
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise VerifyError(f"{directory}: not an export of a card for XDP: {error}") from error
        self.object = libbpf.BpfObject(compile_program(files, PROGRAM), "card.o")
        super().__init__(self.object.maps)
        self.program = self.object.programs[PROGRAM_NAME]
        # Tables are full before the program is attached, so no frame meets an empty slot.
        for index, value in enumerate(values):
            self.set_tenant(index, value)
        for slot, value in zip(slots, networks, strict=True):
            self.set_network(slot, value)
        for uid, value in graphs:
            self.set_graph(uid, value)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.object.close()

    def attach(self, interface: str, mode: libbpf.AttachMode) -> None:
        """Attach the program to an interface, where it stays until it is detached.

        Args:
            interface: its name.
            mode: ``native``, ``generic`` or ``offload``.

        Raises:
            UsageError: no interface has that name, or its packets have no Ethernet header.
            BpfError: another program is attached, or the driver does not support the mode.
        """
        libbpf.attach(_index(interface), self.program, mode)

    def send(self, frame: bytes) -> libbpf.TestRun:
        """Run the program on a frame, without an interface."""
        return self.program.test_run(frame, output=True)

    def scores(self, cpu: int, counts: Sequence[int], room: int) -> tuple[tuple[int, ...], ...]:
        """Return the scores that a CPU computed last.

        Args:
            cpu: number of the CPU.
            counts: number of classes of each branch.
            room: number of classes that a result has room for.
        """
        scratch = self.maps["scratches"].each_cpu(0)[cpu]
        size = 4 * (room + 3)  # struct network_result: scores, then verdict, class and margin
        return tuple(struct.unpack_from(f"={n}i", scratch, size * b) for b, n in enumerate(counts))

    def counters(self, tenant: int) -> dict[str, int]:
        """Count a tenant's frames by outcome; one index more counts the frames of no tenant."""
        counted: Any = self.maps["counted"]
        first = tenant * len(COUNTS)
        return {
            name: sum(int.from_bytes(v, "little") for v in counted.each_cpu(first + i))
            for i, name in enumerate(COUNTS)
        }


def _index(interface: str) -> int:
    try:
        return socket.if_nametoindex(interface)
    except OSError as error:
        raise UsageError(f"no interface {interface!r}: {error.strerror or error}") from error


@contextmanager
def one_cpu() -> Iterator[int]:
    """Keep this thread on one CPU, and return its number."""
    # The scores are in a per-CPU map, so the run and the read must happen on one CPU.
    allowed = os.sched_getaffinity(0)
    cpu = max(allowed)
    os.sched_setaffinity(0, {cpu})
    try:
        yield cpu
    finally:
        os.sched_setaffinity(0, allowed)
