# SPDX-License-Identifier: Apache-2.0
"""Devices, and what of a model goes where on them."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


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
    """Something of a device that several networks divide.

    Attributes:
        name: such as ``lut_sites``, ``cls``, ``cycles``.
        unit: of amounts.
        figure: of a network's report that says how much it takes; with ``whole``, the figure of
            the inferences a second that it gives by having ``whole`` of the resource.
        capacity: of the device; None where it is counted but has no bound.
        whole: amount by which a report's rate is reached, of what inferences take (threads,
            cycles a second); None of what a network takes by being there (area, memory).
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
        regions: equal parts that hold networks: FPGA regions, islands, cores.
        resources: what is divided.
        ingress_gbps: bandwidth of its ports together, in Gb/s; None where it has none of its own.
        scheduling_ns: one pass through the scheduler that gives packets to regions.
        source: where the numbers come from.
    """

    regions: int
    resources: tuple[SharedResource, ...]
    ingress_gbps: float | None
    scheduling_ns: float
    source: str


@dataclass(frozen=True)
class Device:
    """A device, read from the ``device.toml`` beside a target.

    Attributes:
        name: the device's name.
        clock_mhz: its clock; 0 where it has none of its own.
        memories: its memories, the fastest first.
        limits: numbers that bound a program (threads, table bytes, LUTs, ...).
        paper: the paper's figures for it, by name.
        source: where the numbers come from.
        card: how several owners' networks share it; None where nothing is known of that.
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
        data = tomllib.loads(path.read_text(encoding="utf-8"))
        return cls(
            name=data["name"],
            clock_mhz=float(data.get("clock_mhz", 0)),
            memories=tuple(Memory(**m) for m in data.get("memories", [])),
            limits=data.get("limits", {}),
            paper=data.get("paper", {}),
            source=data["source"],
            card=_card_layout(data["card"]) if "card" in data else None,
        )

    def memory(self, name: str) -> Memory:
        """The memory of that name."""
        return next(m for m in self.memories if m.name == name)


def _card_layout(data: Mapping[str, Any]) -> CardLayout:
    return CardLayout(
        regions=data["regions"],
        resources=tuple(SharedResource(**r) for r in data["resources"]),
        ingress_gbps=data.get("ingress_gbps"),
        scheduling_ns=float(data.get("scheduling_ns", 0)),
        source=data["source"],
    )


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
        layer: the layer's index, or None where it is not one layer.
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
    """What goes where on a device, and what does not fit."""

    placements: tuple[Placement, ...] = ()
    problems: tuple[Problem, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether all fits."""
        return not self.problems
