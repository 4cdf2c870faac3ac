"""Exporters: what a target is to the core, and how an export directory comes to be.

A target lives in ``n3ic.exporters`` and is an :class:`Exporter`; the core writes the directory
around its artefacts, compares what they compute with the model, and words the errors.
"""

from __future__ import annotations

import inspect
import tomllib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

from n3ic.bits import Words
from n3ic.errors import ExportError, UsageError
from n3ic.model import BinaryModel, Trace

OptionValue = str | int | float | bool
Options = Mapping[str, OptionValue]
FigureKind = Literal["measured", "simulated", "estimated"]
_KINDS: tuple[FigureKind, ...] = ("measured", "simulated", "estimated")  # the surest first
_NANOSECONDS = {"ns": 1.0, "us": 1e3, "ms": 1e6}


@dataclass(frozen=True)
class Option:
    """An option of a target, ``--name VALUE`` on the command line.

    Attributes:
        name: with dashes, as typed.
        help: one line.
        default: its value when not given; also fixes its type (str, int, float or bool).
        choices: the allowed values of a str option; empty for any.
        minimum: smallest allowed value of a number.
        maximum: largest allowed value of a number.
    """

    name: str
    help: str
    default: OptionValue
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None

    def parse(self, text: OptionValue) -> OptionValue:
        """The option's value from what was typed.

        Raises:
            UsageError: the text is not such a value.
        """
        kind = type(self.default)
        try:
            if kind is bool:
                value: OptionValue = _parse_bool(text)
            elif kind is int and isinstance(text, str):
                value = int(text, 0)
            else:
                value = kind(text)
        except ValueError as error:
            raise UsageError(f"--{self.name}: {text!r} is not of type {kind.__name__}") from error
        if self.choices and value not in self.choices:
            raise UsageError(f"--{self.name}: {text!r} is none of {', '.join(self.choices)}")
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            if self.minimum is not None and value < self.minimum:
                raise UsageError(f"--{self.name}: {value} is below {self.minimum:g}")
            if self.maximum is not None and value > self.maximum:
                raise UsageError(f"--{self.name}: {value} is above {self.maximum:g}")
        return value


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
class Device:
    """A device, read from the ``device.toml`` beside a target.

    Attributes:
        name: the device's name.
        clock_mhz: its clock; 0 where it has none of its own.
        memories: its memories, the fastest first.
        limits: numbers that bound a program (threads, table bytes, LUTs, ...).
        paper: the paper's figures for it, by name.
        source: where the numbers come from.
    """

    name: str
    clock_mhz: float
    memories: tuple[Memory, ...]
    limits: Mapping[str, float]
    paper: Mapping[str, float]
    source: str

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
        )

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


@dataclass(frozen=True)
class Figure:
    """A number of a report.

    Attributes:
        name: what it is, in dotted lower case: ``memory.weights``, ``latency``, ``throughput``.
        value: the number.
        unit: its unit: ``byte``, ``ns``, ``inference/s``, ``LUT``.
        kind: whether it was measured, simulated or estimated.
        source: from what: a tool and its version, a formula and its inputs, a count.
        paper: the paper's figure for the same, where it has one.
    """

    name: str
    value: float
    unit: str
    kind: FigureKind
    source: str
    paper: float | None = None


@dataclass(frozen=True)
class Report:
    """A target's figures for one model, with remarks that a reader needs."""

    figures: tuple[Figure, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Member:
    """One of several networks that are to share a device, as it was exported alone."""

    model: BinaryModel
    options: Options
    fit: Fit
    report: Report

    def value(self, name: str) -> float | None:
        """The value of a figure of its report; None where it has none."""
        return next((f.value for f in self.report.figures if f.name == name), None)

    @property
    def latency(self) -> tuple[float, FigureKind] | None:
        """Latency in nanoseconds, and its kind; None where the report has none."""
        for figure in self.report.figures:
            if figure.name == "latency" and figure.unit in _NANOSECONDS:
                return figure.value * _NANOSECONDS[figure.unit], figure.kind
        return None


@dataclass(frozen=True)
class Together:
    """How several networks share a device.

    Attributes:
        way: how they run, in words.
        memory: bytes that all of them take of each memory.
        resources: what all of them take besides memory, by the name of the figure.
        latency_ns: from their input to the last answer; None where a network has no latency.
        latency_kind: whether that comes from measured, simulated or estimated figures.
        problems: why they do not fit together; empty if they do.
    """

    way: str
    memory: Mapping[str, int]
    resources: Mapping[str, float]
    latency_ns: float | None
    latency_kind: FigureKind | None
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Run:
    """What an executor computed, and what was seen of its speed.

    Attributes:
        trace: the scores and, where the executor tells, the hidden bits.
        executor: what ran, such as ``gcc 12.2, AVX-512`` or ``p4 interpreter``.
        figures: figures that the run gave (clocks, nanoseconds).
    """

    trace: Trace
    executor: str
    figures: tuple[Figure, ...] = field(default=())


@dataclass(frozen=True)
class Bench:
    """What a benchmark measured.

    Attributes:
        tables: title, column names and rows of text of each table.
        notes: remarks that a reader needs.
        data: the same as plain data for JSON.
    """

    tables: tuple[tuple[str, tuple[str, ...], tuple[tuple[str, ...], ...]], ...]
    notes: tuple[str, ...]
    data: Mapping[str, Any]


class Exporter(ABC):
    """A target: how a BinaryModel becomes a program, and how that program is run here.

    An entry point in the group ``n3ic.exporters`` names an instance. Subclasses keep a
    ``device.toml`` and their templates beside their module, and import no PyTorch.

    Attributes:
        name: as in ``--target NAME``.
        summary: one line for ``n3ic targets``.
        options: what the export may be told.
        verify_options: what the verification may be told.
        vectors: how many random vectors ``verify`` runs by default.
        quick_vectors: how many are run at export time.
        reads: suffixes of the files that :meth:`read` imports; empty for none.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    options: ClassVar[tuple[Option, ...]] = ()
    verify_options: ClassVar[tuple[Option, ...]] = ()
    vectors: ClassVar[int] = 10_000
    quick_vectors: ClassVar[int] = 500
    reads: ClassVar[tuple[str, ...]] = ()

    @cached_property
    def folder(self) -> Path:
        """The target's folder, where its templates and ``device.toml`` are."""
        return Path(inspect.getfile(type(self))).resolve().parent

    @cached_property
    def device(self) -> Device:
        """The device that is exported for."""
        return Device.from_toml(self.folder / "device.toml")

    @abstractmethod
    def check(self, model: BinaryModel, options: Options) -> Fit:
        """Whether the model fits the device: which layer, which memory, by how much."""

    @abstractmethod
    def write(self, model: BinaryModel, options: Options, out: Path) -> None:
        """Write the artefacts into the empty directory ``out``.

        Also writes ``README.md`` there, which tells the next command on the device. The core
        adds ``model.n3ic``, ``report.json``, ``report.md`` and ``manifest.json``.

        Raises:
            ExportError: the model cannot be expressed for this target.
        """

    @abstractmethod
    def run(self, directory: Path, model: BinaryModel, options: Options, words: Words) -> Run:
        """Run the artefacts in ``directory`` on packed inputs, without changing the directory.

        Must compute from the artefacts alone; ``model`` only tells shapes. ``options`` holds
        the export's options and the verification's.

        Args:
            directory: an export directory of this target.
            model: the model that it was made from.
            options: as described.
            words: packed inputs, uint32 array of shape ``(rows, n_words)``.

        Raises:
            MissingDependencyError: a tool that this needs is not installed; names it.
            VerifyError: the artefacts do not build or run.
        """

    @abstractmethod
    def report(self, model: BinaryModel, options: Options, directory: Path) -> Report:
        """Memory, resources, latency and throughput of the artefacts in ``directory``."""

    def encode(
        self,
        directory: Path,
        model: BinaryModel,
        options: Options,
        features: Mapping[str, Any],
    ) -> Words | None:
        """Run the artefacts' input stage on integer features; None where it has none."""
        return None

    def together(self, members: Sequence[Member]) -> Together:
        """How several networks share the device: one after the other, if nothing else is known.

        Args:
            members: one or more networks, each of which fits alone.
        """
        memory = summed_memory(members)
        sizes = {m.name: m.bytes for m in self.device.memories}
        problems = too_much(
            {f"bytes of {name}": used for name, used in memory.items()},
            {f"bytes of {name}": size for name, size in sizes.items()},
        )
        return together(members, "one after the other", sum, problems=problems)

    def read(self, path: Path) -> BinaryModel:
        """Import a network of this target's format.

        Raises:
            UsageError: this target's format cannot be imported.
            ModelError: the file is not a binary network; says why.
        """
        raise UsageError(f"networks cannot be imported from {self.name}")

    def bench(self, model: BinaryModel, options: Mapping[str, OptionValue]) -> Bench:
        """Measure the target beside its alternatives, after checking that all agree.

        Raises:
            UsageError: this target has no benchmark.
        """
        raise UsageError(f"target {self.name} has no benchmark here")

    def simulate(
        self,
        directory: Path,
        options: Mapping[str, OptionValue],
        say: Callable[[str], None],
    ) -> None:
        """Run a simulated card between network interfaces until interrupted.

        Raises:
            UsageError: this target has no simulated card.
        """
        raise UsageError(f"target {self.name} has no simulated card")

    def parse_options(self, given: Mapping[str, OptionValue], *, verify: bool = False) -> Options:
        """Defaults and what was given, checked.

        Raises:
            UsageError: an option is unknown or has a value it cannot have.
        """
        known = (*self.options, *(self.verify_options if verify else ()))
        return parse_options(known, given, f"target {self.name}")


def parse_options(
    known: Sequence[Option], given: Mapping[str, OptionValue], owner: str
) -> dict[str, OptionValue]:
    """Defaults and what was given, checked.

    Args:
        known: the options that there are.
        given: values or what was typed, by name.
        owner: whose options they are, for the error.

    Raises:
        UsageError: an option is unknown or has a value it cannot have.
    """
    names = [option.name for option in known]
    for name in given:
        if name not in names:
            listed = ", ".join(f"--{n}" for n in names) or "none of its own"
            raise UsageError(f"{owner} has no option --{name}; it has {listed}")
    return {o.name: o.parse(given[o.name]) if o.name in given else o.default for o in known}


def summed_memory(members: Sequence[Member]) -> dict[str, int]:
    """Bytes that networks take of each memory, added up."""
    memory: dict[str, int] = {}
    for member in members:
        for part in member.fit.placements:
            memory[part.memory] = memory.get(part.memory, 0) + part.bytes
    return memory


def together(
    members: Sequence[Member],
    way: str,
    combine: Callable[[list[float]], float],
    *,
    memory: Mapping[str, int] | None = None,
    resources: Mapping[str, float] | None = None,
    problems: tuple[str, ...] = (),
) -> Together:
    """What an exporter says of several networks, from what it knows of them.

    Args:
        members: the networks.
        way: how they run, in words.
        combine: the latency of all from the latencies in the order of the networks: ``sum``
            where they take turns, ``max`` where they run side by side.
        memory: bytes of each memory; those of the networks added up if None.
        resources: what they take besides; nothing if None.
        problems: why they do not fit together.
    """
    latency, kind = _latency(members, combine)
    used = summed_memory(members) if memory is None else memory
    return Together(way, used, resources or {}, latency, kind, problems)


def summed_figures(members: Sequence[Member], names: Sequence[str]) -> dict[str, float]:
    """Figures of networks added up by name; one that a network lacks is left out."""
    found = {name: [member.value(name) for member in members] for name in names}
    return {
        name: sum(value for value in values if value is not None)
        for name, values in found.items()
        if None not in values
    }


def too_much(needs: Mapping[str, float], room: Mapping[str, float]) -> tuple[str, ...]:
    """What is needed beyond the room there is, in words; what has no room named is not bounded."""
    return tuple(
        f"{amount:,.0f} {name}, there is room for {room[name]:,.0f}"
        for name, amount in needs.items()
        if amount > room.get(name, amount)
    )


def _latency(
    members: Sequence[Member], combine: Callable[[list[float]], float]
) -> tuple[float | None, FigureKind | None]:
    """Combined latency in nanoseconds and its least certain kind; None where one has none."""
    found = [member.latency for member in members]
    known = [each for each in found if each is not None]
    if len(known) != len(found):
        return None, None
    return combine([value for value, _ in known]), max((k for _, k in known), key=_KINDS.index)


def _parse_bool(text: OptionValue) -> bool:
    if isinstance(text, bool):
        return text
    lowered = str(text).lower()
    if lowered in ("1", "true", "yes", "on", ""):
        return True
    if lowered in ("0", "false", "no", "off"):
        return False
    raise ValueError(text)


__all__ = [
    "Bench",
    "Device",
    "ExportError",
    "Exporter",
    "Figure",
    "Fit",
    "Member",
    "Memory",
    "Option",
    "OptionValue",
    "Options",
    "Placement",
    "Problem",
    "Report",
    "Run",
    "Together",
    "parse_options",
    "summed_figures",
    "summed_memory",
    "together",
    "too_much",
]
