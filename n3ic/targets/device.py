# SPDX-License-Identifier: Apache-2.0
"""Devices, and the placement of a model on them."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from n3ic.util.plain_data import from_plain


@dataclass(frozen=True)
class Memory:
    """A memory of a device: size in bytes, access time in nanoseconds, word width in bits."""

    name: str
    bytes: int
    access_ns_min: float = 0.0
    access_ns_max: float = 0.0
    word_bits: int = 32
    note: str = ""


@dataclass(frozen=True)
class SharedResource:
    """A resource of a device that several networks share.

    Attributes:
        name: name, such as ``lut_sites``, ``cls``, ``cycles``.
        unit: unit of the amounts.
        figure: name of the report's figure for the amount that a network takes; if ``whole`` is
            set, for the inferences per second that ``whole`` of the resource gives.
        capacity: amount on the device; None if it is counted but has no bound.
        whole: amount behind a report's rate, for resources that inferences take (threads, cycles
            per second); None for those that a network occupies (area, memory).
    """

    name: str
    unit: str
    figure: str
    capacity: float | None = None
    whole: float | None = None


@dataclass(frozen=True)
class CardLayout:
    """How a device is divided among several networks and their owners.

    Attributes:
        regions: number of equal parts that hold networks: FPGA regions, islands, cores.
        resources: the shared resources.
        source: source of the numbers.
        ingress_gbps: total bandwidth of its ports in Gb/s; None if it has no ports of its own.
        scheduling_ns: time of one pass through the scheduler that gives packets to regions.
        pages: pages of 2 MiB of on-board memory that tasks can have; 0 for none.
        accesses: accesses to it per second of one task; None for as many as it asks for.
    """

    regions: int
    resources: tuple[SharedResource, ...]
    source: str
    ingress_gbps: float | None = None
    scheduling_ns: float = 0.0
    pages: int = 0
    accesses: float | None = None


@dataclass(frozen=True)
class Device:
    """A device, read from the ``device.toml`` beside a target.

    Attributes:
        name: the device's name.
        clock_mhz: its clock; 0 if it has none of its own.
        memories: its memories, the fastest first.
        limits: numbers that bound a program (threads, table bytes, LUTs, ...).
        paper: the paper's figures for it, by name.
        source: source of the numbers.
        card: how several owners' networks share it; None if unknown.
    """

    name: str
    clock_mhz: float
    memories: tuple[Memory, ...]
    limits: Mapping[str, float]
    paper: Mapping[str, float]
    source: str
    card: CardLayout | None = None

    @classmethod
    def from_toml(cls, path: Path) -> Device:
        """Read a device description."""
        data = {"memories": (), "limits": {}, "paper": {}, **tomllib.loads(path.read_text("utf-8"))}
        return from_plain(cls, data | {"clock_mhz": float(data.get("clock_mhz", 0))})

    def memory(self, name: str) -> Memory:
        """The memory of that name."""
        return next(m for m in self.memories if m.name == name)


@dataclass(frozen=True)
class Placement:
    """Bytes of one part of a program in one memory."""

    part: str
    memory: str
    bytes: int


@dataclass(frozen=True)
class Problem:
    """Why a model does not fit a device.

    Attributes:
        message: what does not fit, and where.
        layer: the layer's index, or None if the problem is not about one layer.
        memory: the memory's name, or empty.
        missing_bytes: bytes that are missing in it, or 0.
        nearest: the nearest shape that would fit, or empty.
    """

    message: str
    layer: int | None = None
    memory: str = ""
    missing_bytes: int = 0
    nearest: str = ""

    def __str__(self) -> str:
        near = f"; the nearest shape that fits: {self.nearest}" if self.nearest else ""
        return f"{self.message}{near}"


@dataclass(frozen=True)
class Fit:
    """The placement of a model on a device, and what does not fit."""

    placements: tuple[Placement, ...] = ()
    problems: tuple[Problem, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether everything fits."""
        return not self.problems
