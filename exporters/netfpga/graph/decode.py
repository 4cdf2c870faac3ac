# SPDX-License-Identifier: Apache-2.0
"""Reads a graph back from the Verilog of a pipeline.

Each statement is read by a strict grammar (:mod:`.syntax`). Each signal has a clock in which it is
there; what a cell reads must be there in the same clock. The gates of a tree are followed along all
ways of the model's tree (:mod:`.logic`), which gives the leaves that the Verilog has.

A signal of ``w`` bits holds a value modulo ``2^w``. Where it is read with more bits, or as a
number, its proven bounds must be those of the bits that are put above. Of the integers that they
may stand for, that of the model is taken if there is one: it makes no difference to the scores.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from n3ic.errors import ModelError, VerifyError
from n3ic.exporters.netfpga.core import unframed
from n3ic.exporters.netfpga.graph.logic import (
    FALSE,
    TRUE,
    Network,
    State,
    UnlikeError,
    followed,
    leaves_of,
)
from n3ic.exporters.netfpga.graph.syntax import (
    Expression,
    Extended,
    Reference,
    SizedNumber,
    Statement,
    entries,
    expression,
    joined,
    plain_text,
    statements,
)
from n3ic.model.classifier import Classifier
from n3ic.model.family import graph_of
from n3ic.model.graph.arithmetic import Arithmetic, FixedPoint, Logarithms
from n3ic.model.graph.comparison import ValuesRead
from n3ic.model.graph.operations import (
    Add,
    Choose,
    Constant,
    Graph,
    LogAdd,
    Lookup,
    Offset,
    Operation,
    Round,
    Scale,
    Select,
    Times,
    applied,
    bounds_of,
    operands,
    with_article,
)
from n3ic.model.graph.trees import choices_of_constants, roots_of
from n3ic.targets.decoded_graphs import DecodedGraph

CORE = "rtl/n3ic_core.v"
TABLE = "rtl/n3ic_log_table.v"
_MOST_INDEX = 20  # bits of a table's index
_MOST_MEANINGS = 16  # values of the model that the same bits may stand for
_BLOCKS = Path(__file__).resolve().parent / "rtl"
_BLOCK_OF = {
    "count": "n3ic_ones.v",
    "gate": "n3ic_gate.v",
    "larger": "n3ic_log_max.v",
    "times": "n3ic_times.v",
    "scale": "n3ic_scale.v",
    "round": "n3ic_round.v",
    "match": "n3ic_best.v",
}
# Clocks from what a block reads to its result.
_CLOCKS = {
    "count": 1, "lookup": 1, "add": 1, "gate": 1, "mux": 1, "larger": 4, "times": 3, "scale": 2,
    "round": 1, "match": 2,
}  # fmt: skip


def decode_core(directory: Path, model: Classifier) -> DecodedGraph:
    """Decode the graph and the shunting threshold of an export's core.

    Raises:
        VerifyError: a file cannot be read, or is not a pipeline that the reader can follow.
    """
    core = _text(directory / CORE, CORE)
    reader = _Reader(model)
    kinds = reader.read(statements(core, CORE))
    for kind in sorted(kinds & _BLOCK_OF.keys()):
        name = _BLOCK_OF[kind]
        if _text(directory / "rtl" / name, name) != (_BLOCKS / name).read_text("ascii"):
            raise VerifyError(f"rtl/{name}: not the block that the core needs")
    own = graph_of(model).arithmetic
    arithmetic = own
    if isinstance(own, Logarithms):
        table = _log_table(_text(directory / TABLE, TABLE), reader.table_widths)
        try:
            arithmetic = Logarithms(own.fraction, table)  # the Verilog does not hold the fraction
        except ModelError as error:
            raise VerifyError(f"{TABLE}: {error}") from error
    return DecodedGraph(CORE, reader.graph(arithmetic), None, reader.shunt)


def _text(path: Path, name: str) -> str:
    try:
        return unframed(path.read_bytes().decode("ascii"))
    except (OSError, UnicodeDecodeError) as error:
        raise VerifyError(f"{name}: cannot be read ({error})") from error


@dataclass(frozen=True)
class _Signal:
    """A signal of a core.

    Attributes:
        name: its name.
        width: its bits.
        clock: the clock in which it is there, counted from that of the network's input.
        bits: of input bits, the first one.
        count: of the number of set bits, the first of those bits and how many they are.
        node: of a bit, its node in the network of gates.
        values: of a number, its place among the operations. There are several places if the bits
            may stand for several values of the model; how they are read tells which it is.
        larger: of the larger of two logarithms and of what log-add adds to it, the log-adds.
        more: whether it is what log-add adds.
    """

    name: str
    width: int
    clock: int
    bits: int | None = None
    count: tuple[int, int] | None = None
    node: int | None = None
    values: tuple[int, ...] = ()
    larger: tuple[int, ...] = ()
    more: bool = False


@dataclass(frozen=True)
class _Read:
    """What a cell reads: a signal in a clock, or a constant.

    Attributes:
        width: bits, those that are put above included.
        signal: the signal; None for a constant.
        clock: the clock in which the signal is read.
        above: what the bits above are: ``0``, ``1`` or ``sign``; empty if there are none.
        constant: the constant.
    """

    width: int
    signal: _Signal | None = None
    clock: int = 0
    above: str = ""
    constant: int = 0


@dataclass(frozen=True)
class _Score:
    """A score: its place among the operations, and its clock; None for a constant."""

    value: int
    clock: int | None


@dataclass(frozen=True)
class _Group:
    """Neighbouring classes whose best score is known in a clock; ``end`` is the one after them."""

    clock: int
    first: int
    end: int


class _Reader:
    """Follows the statements of a core.

    Attributes:
        steps: the operations that were read.
        shunt: the smallest margin that is decided.
        table_widths: bits of distances and of entries of the log-add table.
    """

    def __init__(self, model: Classifier) -> None:
        self.model = model
        self.own = graph_of(model)
        self.steps: list[Operation] = []
        self.shunt = 0
        self.table_widths = (0, 0)
        self._spec = model.input
        self._bounds: list[tuple[int, int]] = []
        self._known: dict[Operation, int] = {}
        self._values = ValuesRead(self.own)
        self._network = Network()
        self._signals: dict[str, _Signal] = {}
        self._delays: dict[str, int] = {}
        self._scores: list[_Score] = []
        self._groups: dict[str, _Group] = {}
        self._score_bits = self._class_bits = self._latency = self._decided = 0
        self._strange = ""  # the first table that the model does not have, in words
        self._where = CORE
        self._numbers = [s.value for _, s in self.own.places(Constant)]
        self._numbers += [s.by for _, s in self.own.places(Offset)]
        self._trees = self._trees_by_bits()
        self._selects: dict[frozenset[int], list[Select]] = {}
        for _, select in self.own.places(Select):
            self._selects.setdefault(frozenset(select.bits), []).append(select)

    def _trees_by_bits(self) -> dict[int, list[int]]:
        """The roots of the model's trees of constants, by the mask of the bits that they ask."""
        choices = choices_of_constants(self.own)
        masks: dict[int, int] = {}
        for i in choices:
            step = self.own.steps[i]
            assert isinstance(step, Choose)  # noqa: S101 - choices are
            masks[i] = 1 << step.bit | masks.get(step.zero, 0) | masks.get(step.one, 0)
        of_mask: dict[int, list[int]] = {}
        for root in roots_of(self.own, choices):
            of_mask.setdefault(masks[root], []).append(root)
        return of_mask

    def read(self, text: Iterable[Statement]) -> set[str]:
        """Follow all statements; return their kinds."""
        kinds: list[str] = []
        for statement in text:
            kinds.append(statement.kind)
            name = statement.parts.get("name") or statement.kind
            self._where = f"{CORE}, {name}"
            getattr(self, f"_read_{statement.kind}")(statement)
        fixed = [k for k in kinds if k in ("ports", "valid", "scores", "out_scores", "lead", "end")]
        if fixed != ["ports", "valid", "scores", "out_scores", "lead", "end"]:
            raise VerifyError(f"{CORE}: has {', '.join(fixed)}, not each part of a core once")
        return {*kinds}

    def graph(self, arithmetic: Arithmetic | None) -> Graph:
        """The graph that was read."""
        scores = tuple(score.value for score in self._scores)
        try:
            return Graph(self._spec, tuple(self.steps), scores, arithmetic)
        except ModelError as error:
            raise VerifyError(f"{CORE}: {error}") from error

    def _wrong(self, text: str) -> VerifyError:
        return VerifyError(self._strange or f"{self._where}: {text}")

    # --- the frame ------------------------------------------------------------------------------

    def _read_ports(self, s: Statement) -> None:
        classes = len(self.model.classes)
        wide = (s.number("margin") + 1) * classes == s.number("scores") + 1
        class_bits = max(1, (classes - 1).bit_length())
        if s.number("inputs") + 1 != self._spec.n_bits or not wide:
            raise self._wrong("its inputs and scores are not as many as the model's")
        if s.number("class") + 1 != class_bits or s.has("shunts") != (self.model.shunt > 0):
            raise self._wrong("its outputs are not those of the model's classes")
        self._score_bits, self._class_bits = s.number("margin") + 1, class_bits

    def _read_unread(self, s: Statement) -> None:
        """Bits that nothing reads."""

    def _read_valid(self, s: Statement) -> None:
        if s.number("before") != s.number("depth") - 1:
            raise self._wrong("validity and tags take other ways")
        self._latency = s.number("depth")

    # --- signals --------------------------------------------------------------------------------

    def _new(self, s: Statement, signal: _Signal) -> None:
        if signal.name in self._signals:
            raise self._wrong("is there twice")
        if "top" in s.parts and s.number("top") + 1 != signal.width:
            raise self._wrong(f"has {s.number('top') + 1} bits, not {signal.width}")
        self._signals[signal.name] = signal
        if signal.values and not self._values.known(self.steps[signal.values[0]]):
            self._unlike(
                f"{with_article(type(self.steps[signal.values[0]]))} that the model has not"
            )

    def _width(self, s: Statement) -> int:
        return s.number("top") + 1

    def _read_delay(self, s: Statement) -> None:
        signal = self._signals.get(s.parts["name"])
        if signal is None or s.parts["name"] in self._delays:
            raise self._wrong("its delays are there twice, or before it")
        count, rest = divmod(self._width(s), signal.width)
        kept_bits = s.number("kept") + 1 if s.has("kept") else 0
        if rest or not count or kept_bits != signal.width * (count - 1):
            raise self._wrong("its delays are no whole values")
        self._delays[signal.name] = count

    def _reference(self, of: Reference) -> tuple[_Signal, int]:
        """A signal, and the clock in which it is read."""
        signal = self._signals.get(of.name)
        if signal is None:
            raise self._wrong(f"reads {of.name}, which is not there before")
        if of.high < 0:
            return signal, signal.clock
        late, rest = divmod(of.high + 1, signal.width)
        whole = not rest and of.low == of.high + 1 - signal.width
        if not whole or late > self._delays.get(of.name, 0):
            raise self._wrong(
                f"reads bits {of.high} to {of.low} of {of.name}, which are no delayed value"
            )
        return signal, signal.clock + late

    def _operand(self, text: str) -> _Read:
        return self._resolved(expression(text, self._where))

    def _resolved(self, read: Expression) -> _Read:
        if isinstance(read, SizedNumber):
            return _Read(read.width, constant=read.value)
        of = read.of if isinstance(read, Extended) else read
        signal, clock = self._reference(of)
        if isinstance(read, Reference):
            return _Read(signal.width, signal, clock)
        name = f"{of.name}_d" if of.high >= 0 else of.name
        top = of.high if of.high >= 0 else signal.width - 1
        above = {"1'b0": "0", "1'b1": "1", f"{name}[{top}]": "sign"}.get(read.by)
        if above is None or not read.more:
            raise self._wrong(f"puts {read.by} above {of.name}")
        return _Read(signal.width + read.more, signal, clock, above)

    def _clock(self, *reads: _Read) -> int:
        """The clock in which signals are read; they must be there in the same one."""
        clocks = {read.clock for read in reads if read.signal is not None}
        if len(clocks) != 1:
            raise self._wrong(f"reads values of clocks {', '.join(map(str, sorted(clocks)))}")
        return clocks.pop()

    # --- values ---------------------------------------------------------------------------------

    def _made(self, step: Operation) -> int:
        if step not in self._known:
            try:
                bounds = bounds_of(
                    step, [self._bounds[k] for k in operands(step)], self.own.arithmetic
                )
            except ModelError as error:
                raise self._wrong(str(error)) from error
            self._known[step] = len(self.steps)
            self.steps.append(step)
            self._bounds.append(bounds)
            self._values.append(step)
        return self._known[step]

    def _kept(self, candidates: Iterable[Operation]) -> tuple[int, ...]:
        """The operations that the model has; if it has none, the first one."""
        each = list(dict.fromkeys(candidates))
        known = [step for step in each if self._values.known(step)][:_MOST_MEANINGS]
        return tuple(map(self._made, known or each[:1]))

    def _integers(self, number: int, width: int) -> list[int]:
        """What bits may stand for: integers of the model, and the one in two's complement."""
        signed = number - (1 << width if number >> (width - 1) else 0)
        own = {n for n in self._numbers if (n - number) % (1 << width) == 0}
        return [*sorted(own), signed]

    def _as_number(self, read: _Read, low: int, high: int) -> tuple[int, ...]:
        """The value that is read as an integer from ``low`` to ``high``, less one."""
        if read.signal is None:
            turn = high - low if read.constant >= high else 0
            return (self._made(Constant(read.constant - turn)),)
        places = self._value(read)
        fitting = [p for p in places if low <= self._bounds[p][0] and self._bounds[p][1] < high]
        if fitting:
            return tuple(fitting)
        least, most = self._bounds[places[0]]
        turns = -((least - low) // (high - low)) * (high - low)
        if most + turns >= high:
            text = f"reads {read.signal.name} as {low:,} to {high - 1:,}"
            raise self._wrong(f"{text}, but it is {least:,} to {most:,}")
        return (self._made(Offset(places[0], turns)),)

    def _value(self, read: _Read) -> tuple[int, ...]:
        """The value of a signal that is read; bits that are put above it must be its own."""
        if read.signal is None or not read.signal.values:
            raise self._wrong("reads what is no value")
        if not read.above:
            return read.signal.values
        own = _Read(read.signal.width, read.signal, read.clock)
        return self._as_number(own, *_range(read))

    def _unsigned(self, read: _Read) -> tuple[int, ...]:
        if not self._positive([read]):
            raise self._wrong("reads a number that is not positive")
        width = read.signal.width if read.signal is not None else read.width
        return self._as_number(read, 0, 1 << width)

    # --- cells ----------------------------------------------------------------------------------

    def _read_bits(self, s: Statement) -> None:
        low, width = s.number("low"), s.number("high") - s.number("low") + 1
        if width < 1 or low + width > self._spec.n_bits:
            raise self._wrong("reads input bits that are not there")
        one = width == 1
        node = self._network.bit(low) if one else None
        count = (low, 1) if one else None
        self._new(s, _Signal(s.parts["name"], width, 0, low, count, node))

    def _read_count(self, s: Statement) -> None:
        read, n, width = self._operand(s.parts["a"]), s.number("n"), s.number("w")
        if read.signal is None or read.signal.bits is None or read.above or read.width != n:
            raise self._wrong("counts what are no input bits")
        if n > 6 or n >> width:
            raise self._wrong(f"counts {n} bits in {width}")
        clock = self._clock(read) + _CLOCKS["count"]
        self._new(s, _Signal(s.parts["name"], width, clock, count=(read.signal.bits, n)))

    def _read_add(self, s: Statement) -> None:
        reads, width = [self._operand(s.parts[side]) for side in "ab"], self._width(s)
        if any(read.width != width for read in reads):
            raise self._wrong(f"adds values of other bits than {width}")
        clock = self._clock(*reads) + _CLOCKS["add"]
        name = s.parts["name"]
        counted = [r.signal.count if r.signal is not None else None for r in reads]
        if counted[0] is not None and counted[1] is not None:
            (first, n), (next_one, more) = sorted(each for each in counted if each is not None)
            if first + n != next_one or (n + more) >> width or not self._positive(reads):
                raise self._wrong("adds numbers of bits that are not side by side")
            self._new(s, _Signal(name, width, clock, count=(first, n + more)))
            return
        self._new(s, _Signal(name, width, clock, values=self._sum(reads, width)))

    def _positive(self, reads: Sequence[_Read]) -> bool:
        """Whether the bits above what is read are 0."""
        return all(read.above in ("", "0") for read in reads)

    def _sum(self, reads: Sequence[_Read], width: int) -> tuple[int, ...]:
        a, b = reads
        if a.signal is None:
            a, b = b, a
        if b.signal is None:
            numbers = self._integers(b.constant, width)
            return self._kept(Offset(one, by) for one in self._value(a) for by in numbers)
        first, second = a.signal, b.signal
        assert first is not None  # noqa: S101 - two constants have no clock
        if not first.larger and not second.larger:
            values = self._value(b)
            return self._kept(Add(one, other) for one in self._value(a) for other in values)
        if first.more:
            a, b, first, second = b, a, second, first
        if first.more or not second.more or first.larger != second.larger:
            raise self._wrong("adds a correction of log-add to another value")
        if not self._positive([b]) or a.clock != b.clock:
            raise self._wrong("adds a correction of log-add that is none")
        return self._log_add(a)

    def _log_add(self, read: _Read) -> tuple[int, ...]:
        """The log-adds of which a signal is the larger operand."""
        assert read.signal is not None  # noqa: S101 - it is the larger operand
        if not read.above:
            return read.signal.larger
        least, beyond = _range(read)
        fitting = []
        for place in read.signal.larger:
            bounds = [self._bounds[k] for k in operands(self.steps[place])]
            low, high = (max(each) for each in zip(*bounds, strict=True))
            if least <= low and high < beyond:
                fitting.append(place)
        if not fitting:
            raise self._wrong(f"reads {read.signal.name} as {least:,} to {beyond - 1:,}")
        return tuple(fitting)

    def _read_gate(self, s: Statement) -> None:
        reads = [self._resolved(part) for part in joined(s.parts["a"], self._where)]
        table, n = int(s.parts["table"], 16), s.number("n")
        if len(reads) != n or s.number("size") != 1 << n or table >> (1 << n) or n > 6:
            raise self._wrong("its table is not that of its inputs")
        node = self._network.table(table, [self._node(read) for read in reads])
        clock = self._clock(*reads) + _CLOCKS["gate"]
        self._new(s, _Signal(s.parts["name"], 1, clock, node=node))

    def _node(self, read: _Read) -> int:
        if read.signal is None and read.width == 1:
            return TRUE if read.constant else FALSE
        if read.signal is None or read.signal.node is None or read.above:
            raise self._wrong("reads what is no bit")
        return read.signal.node

    def _read_join(self, s: Statement) -> None:
        reads = [self._resolved(part) for part in joined(s.parts["a"], self._where)]
        nodes, width = [self._node(read) for read in reads], len(reads)
        clock = self._clock(*reads)
        size = 1 << width  # the number is the value
        values = self._same_trees(nodes, width, range(size), set())
        values = values or (self._nearest_tree(nodes, range(size), size),)
        self._new(s, _Signal(s.parts["name"], width, clock, values=values))

    def _read_mux(self, s: Statement) -> None:
        reads = [self._operand(s.parts[part]) for part in ("bit", "one", "zero")]
        (bit, one, zero), width = reads, self._width(s)
        if bit.signal is None or bit.signal.bits is None or bit.width != 1:
            raise self._wrong("chooses by what is no input bit")
        if one.width != width or zero.width != width:
            raise self._wrong(f"chooses between values of other bits than {width}")
        clock = self._clock(*reads) + _CLOCKS["mux"]
        sides = [
            [self._made(Constant(n)) for n in self._integers(read.constant, width)]
            if read.signal is None
            else self._value(read)
            for read in (zero, one)
        ]
        values = self._kept(Choose(bit.signal.bits, a, b) for a in sides[0] for b in sides[1])
        self._new(s, _Signal(s.parts["name"], width, clock, values=values))

    def _read_larger(self, s: Statement) -> None:
        reads, width = [self._operand(s.parts[side]) for side in "ab"], self._width(s)
        widths = (s.number("at_w"), s.number("more_w"))
        if s.number("w") != width or any(read.width != width for read in reads):
            raise self._wrong(f"compares values of other bits than {width}")
        if s.number("more_top") + 1 != widths[1] or self.table_widths not in ((0, 0), widths):
            raise self._wrong("reads another table of log-add")
        self.table_widths = widths
        size = 1 << width
        halves = [-size // 2] if s.number("signed") else [0, -size]
        # Both operands lie in the same half, or their order is another one.
        below = len(halves) > 1 and any(self._below(read) for read in reads)
        low = halves[int(below)]
        one, other = (self._as_number(read, low, low + size) for read in reads)
        clock = self._clock(*reads) + _CLOCKS["larger"]
        made = self._kept(LogAdd(a, b) for a in one for b in other)
        name, more = s.parts["name"], f"more{s.parts['at']}"
        self._new(s, _Signal(name, width, clock, larger=made))
        self._signals[more] = _Signal(more, widths[1], clock, larger=made, more=True)

    def _below(self, read: _Read) -> bool:
        """Whether a value is never 0 or more."""
        values = () if read.signal is None else read.signal.values
        return any(self._bounds[place][1] < 0 for place in values)

    def _fraction(self, s: Statement) -> None:
        own = self.own.arithmetic
        if not isinstance(own, FixedPoint) or s.number("fraction") != own.fraction:
            raise self._wrong(
                f"rounds {s.number('fraction')} fraction bits, which are not the model's"
            )

    def _read_times(self, s: Statement) -> None:
        reads = [self._operand(s.parts[side]) for side in "ab"]
        self._fraction(s)
        if [read.width for read in reads] != [s.number("a_w"), s.number("b_w")]:
            raise self._wrong("multiplies values of other bits than its own")
        one, other = (self._unsigned(read) for read in reads)
        made = self._kept(Times(a, b) for a in one for b in other)
        clock = self._clock(*reads) + _CLOCKS["times"]
        self._new(s, _Signal(s.parts["name"], s.number("w"), clock, values=made))

    def _read_scale(self, s: Statement) -> None:
        read = self._operand(s.parts["a"])
        if (read.width, s.number("by_w")) != (s.number("a_w"), s.number("w")):
            raise self._wrong("multiplies values of other bits than its own")
        # The product is that of the number's lowest bits, and equal in as many bits.
        made = self._kept(Scale(one, s.number("by")) for one in self._unsigned(read))
        clock = self._clock(read) + _CLOCKS["scale"]
        self._new(s, _Signal(s.parts["name"], s.number("w"), clock, values=made))

    def _read_round(self, s: Statement) -> None:
        read = self._operand(s.parts["a"])
        self._fraction(s)
        if read.width != s.number("a_w"):
            raise self._wrong("rounds a value of other bits than its own")
        made = self._kept(Round(one) for one in self._unsigned(read))
        clock = self._clock(read) + _CLOCKS["round"]
        self._new(s, _Signal(s.parts["name"], s.number("w"), clock, values=made))

    # --- tables ---------------------------------------------------------------------------------

    def _read_lookup(self, s: Statement) -> None:
        reads = [self._resolved(part) for part in joined(s.parts["a"], self._where)]
        width, name = self._width(s), s.parts["name"]
        clock = self._clock(*reads) + _CLOCKS["lookup"]
        index = sum(read.width for read in reads)
        table: dict[int, int] = {}
        for at, (at_w, size, value) in entries(s.parts["entries"], name, self._where).items():
            if at_w != index or size != width or at >> index or value >> width:
                raise self._wrong(f"entry {at} is of other bits than the table")
            table[at] = value
        other = self._operand(s.parts["other"])
        if other.width != width:
            raise self._wrong("the last entry is of other bits than the table")
        values = self._table(reads, table, other.constant, width)
        self._new(s, _Signal(name, width, clock, values=values))

    def _table(
        self, reads: Sequence[_Read], table: dict[int, int], other: int, width: int
    ) -> tuple[int, ...]:
        """The operations that a table by the bins of fields or by bits may be; the lowest first."""
        index = sum(read.width for read in reads)
        places = [self._field(read) for read in reads]
        fields = [place for place in places if place is not None]
        counted = len(fields) == len(reads)
        bits = [read.signal.bits for read in reads if read.signal is not None and read.width == 1]
        read_bits = [bit for bit in bits if bit is not None]
        own = self._selects.get(frozenset(read_bits), []) if len(read_bits) == len(reads) else []
        asked = all(read.width == 1 for read in reads) and (bool(own) or self._asked(reads))
        operations: tuple[int, ...] = ()
        if counted:  # a bit may be a bin, too: then it may be both
            operations = self._by_bins(reads, fields, table, other, width, exact=asked)
        if counted and not asked:
            return operations
        if index > _MOST_INDEX:
            raise self._wrong(f"a table of {index} index bits")
        listed = [table.get(at, other) for at in range(1 << index)]
        if own:
            exact = bool(operations) or self._asked(reads)
            operations = (*operations, *self._selected(own, read_bits, listed, width, exact=exact))
        reached: set[int] = set()
        nodes = [self._node(read) for read in reads]
        trees = self._same_trees(nodes, width, listed, reached)
        if not trees and operations:
            return operations
        trees = trees or (self._nearest_tree(nodes, listed, 1 << width),)
        for at in sorted({*range(1 << index)} - reached if reached else ()):
            if listed[at] != listed[-1]:
                raise self._wrong(f"entry {at} is {listed[at]}, but no way of the tree leads there")
        return (*operations, *trees)

    def _selected(
        self,
        own: Sequence[Select],
        bits: Sequence[int],
        listed: Sequence[int],
        width: int,
        *,
        exact: bool,
    ) -> tuple[int, ...]:
        """The look-ups by bits that a table may be; unless ``exact``, the nearest if it is none.

        Args:
            own: those of the model by these bits.
            bits: the bits that are read, the lowest of the index first.
            listed: the table's entries.
            width: bits of an entry.
            exact: whether nothing is found where the model has no equal one.
        """
        size = 1 << width
        tables = [_by_order(select, bits) for select in own]
        same = [t for t in tables if [entry % size for entry in t] == [*listed]]
        if same or exact:
            return self._kept(Select(tuple(bits), t) for t in same)
        near = max(tables, key=lambda t: _equal(t, listed, size))
        made = _nearest_entries(near, listed, size)
        at = _first_difference(made, near)
        text = f"a look-up by the bits {', '.join(map(str, bits))} of the model has {near[at]}"
        self._unlike(f"entry {at} is {made[at]}, {text}")
        return (self._made(Select(tuple(bits), made)),)

    def _asked(self, reads: Sequence[_Read]) -> bool:
        """Whether the model has a tree that asks the bits that are read."""
        return self._mask([self._node(read) for read in reads]) in self._trees

    def _mask(self, nodes: Sequence[int]) -> int:
        """The input bits that nodes depend on."""
        mask = 0
        for node in nodes:
            mask |= self._network.support[node]
        return mask

    def _field(self, read: _Read) -> int | None:
        """The thermometer field whose set bits a signal counts."""
        count = None if read.signal is None or read.above else read.signal.count
        spec = self._spec
        for i, (first, field) in enumerate(zip(spec.offsets, spec.fields, strict=True)):
            if count == (first, field.width) and field.kind == "thermometer":
                return i
        return None

    def _by_bins(
        self,
        reads: Sequence[_Read],
        fields: Sequence[int],
        table: dict[int, int],
        other: int,
        width: int,
        *,
        exact: bool,
    ) -> tuple[int, ...]:
        """A look-up by one field, or what joins those by two; the second one's bin is lowest.

        If ``exact``, nothing is found where the model has no equal one.
        """
        widths = [self._spec.fields[field].width for field in fields]
        if len(fields) == 1:
            bins = range(widths[0] + 1)
            self._same_beyond({at: widths[0] for at in table if at not in bins}, table, other)
            residues = [table.get(at, other) for at in bins]
            return self._single(fields[0], residues, width, exact=exact)
        if len(fields) > 2 and exact:
            return ()
        if len(fields) != 2:
            raise self._wrong(f"reads the bins of {len(fields)} fields")
        low_bits = reads[0].width
        rows = [
            [table.get(a << low_bits | b, other) for b in range(widths[0] + 1)]
            for a in range(widths[1] + 1)
        ]
        beyond = {
            at: (min(at >> low_bits, widths[1]) << low_bits) | widths[0]
            for at in table
            if at >> low_bits > widths[1] or at & ((1 << low_bits) - 1) > widths[0]
        }
        self._same_beyond(beyond, table, other)
        return self._pair(fields[1], fields[0], rows, width, exact=exact)

    def _same_beyond(self, beyond: dict[int, int], table: dict[int, int], other: int) -> None:
        """Check entries that no bin reaches: they repeat one that is reached."""
        for at, like in beyond.items():
            if table[at] != table.get(like, other):
                raise self._wrong(f"entry {at} is {table[at]}, but no input reaches it")

    def _single(
        self, field: int, residues: Sequence[int], width: int, *, exact: bool
    ) -> tuple[int, ...]:
        """A look-up of the model whose entries have these bits; if there is none, the nearest."""
        size = 1 << width
        own = [s.table for _, s in self.own.places(Lookup) if s.field == field]
        same = [t for t in own if [entry % size for entry in t] == [*residues]]
        if same:
            return self._kept(Lookup(field, t) for t in same)
        if exact:
            return ()
        near = max(own, key=lambda t: _equal(t, residues, size), default=(0,) * len(residues))
        made = _nearest_entries(near, residues, size)
        at = _first_difference(made, near)
        feature = self._spec.fields[field].feature
        self._unlike(
            f"entry {at} is {made[at]}, a look-up by {feature} of the model has {near[at]}"
        )
        return (self._made(Lookup(field, made)),)

    def _unlike(self, text: str) -> None:
        self._strange = self._strange or f"{self._where}: {text}"

    def _pair(
        self, first: int, second: int, rows: Sequence[Sequence[int]], width: int, *, exact: bool
    ) -> tuple[int, ...]:
        """A sum or a product of two look-ups of the model."""
        size = 1 << width
        read = np.array(rows, dtype=object)
        nearest: tuple[int, str] = (-1, "the model joins no look-ups of these fields")
        candidates: list[Operation] = []
        for step in self.own.steps:
            if not isinstance(step, Add | Times):
                continue
            parts = [self.own.steps[k] for k in operands(step)]
            tables = [part for part in parts if isinstance(part, Lookup)]
            if [part.field for part in tables] != [first, second]:
                continue
            a, b = (np.array(part.table, dtype=np.int64) for part in tables)
            values = [np.repeat(a[:, None], len(b), axis=1), np.repeat(b[None], len(a), axis=0)]
            wanted = applied(step, values, self.own.arithmetic)
            other = np.argwhere(wanted % size != read)
            if not len(other):
                one, two = (self._made(part) for part in tables)
                candidates.append(Add(one, two) if isinstance(step, Add) else Times(one, two))
            elif read.size - len(other) > nearest[0]:
                at, to = other[0]
                text = f"the entry for bins {at} and {to} is {read[at, to]}, the model has "
                nearest = read.size - len(other), f"{text}{wanted[at, to] % size}"
        if not candidates and not exact:
            raise self._wrong(nearest[1])
        return self._kept(candidates) if candidates else ()

    # --- trees ----------------------------------------------------------------------------------

    def _same_trees(
        self, nodes: Sequence[int], width: int, table: Sequence[int], reached: set[int]
    ) -> tuple[int, ...]:
        """The trees of the model that a number computes, with the values that it has there."""
        mask, size, own = self._mask(nodes), 1 << width, self.own

        def same(leaf: int, number: int) -> bool:
            step = own.steps[leaf]
            return isinstance(step, Constant) and step.value % size == table[number]

        roots = self._trees.get(mask) or [root for each in self._trees.values() for root in each]
        meanings: list[int] = []
        for root in roots:
            try:
                met = leaves_of(self._network, own, root, nodes, same)
            except UnlikeError:
                continue
            reached.update(number for numbers in met.values() for number in numbers)
            meanings.append(self._choices(root, tuple(nodes), {}))
            if len(meanings) == _MOST_MEANINGS:
                break
        return tuple(dict.fromkeys(meanings))

    def _nearest_tree(self, nodes: Sequence[int], table: Sequence[int], size: int) -> int:
        """The tree of which the fewest leaves have other values, with these values."""
        roots = self._trees.get(self._mask(nodes), [])
        best: tuple[int, int, dict[State, int]] | None = None
        text = "it asks the bits of no tree of the model"
        for root in roots:
            try:
                met = leaves_of(self._network, self.own, root, nodes)
            except UnlikeError as error:
                text = str(error)
                continue
            values: dict[State, int] = {}
            unlike = 0
            for state, numbers in met.items():
                step = self.own.steps[state[0]]
                if not isinstance(step, Constant):
                    continue
                residues = {table[number] for number in numbers}
                if len(residues) != 1:
                    text, unlike = "its value depends on what a tree of the model does not ask", -1
                    break
                values[state] = _nearest(step.value, residues.pop(), size)
                unlike += values[state] != step.value
            if unlike >= 0 and (best is None or unlike < best[0]):
                best = unlike, root, values
        if best is None:
            raise self._wrong(text)
        _, root, values = best
        pair = next((a, b) for (at, _), a in values.items() if a != (b := self._constant(at)))
        self._unlike(f"a leaf of a tree is {pair[0]}, the model has {pair[1]}")
        return self._choices(root, tuple(nodes), values)

    def _constant(self, at: int) -> int:
        step = self.own.steps[at]
        assert isinstance(step, Constant)  # noqa: S101 - leaves are
        return step.value

    def _choices(self, root: int, nodes: tuple[int, ...], values: dict[State, int]) -> int:
        """The choices of a tree, with values at its ends that differ from the model's."""
        made: dict[State, int] = {}
        waiting: list[State] = [(root, nodes)]
        while waiting:
            state = waiting[-1]
            step = self.own.steps[state[0]]
            if state in made:
                waiting.pop()
            elif not isinstance(step, Choose):
                made[state] = self._made(Constant(values.get(state, self._constant(state[0]))))
            else:
                sides = followed(self._network, step, state[1])
                if missing := [side for side in sides if side not in made]:
                    waiting += missing
                else:
                    made[state] = self._made(Choose(step.bit, made[sides[0]], made[sides[1]]))
        return made[root, nodes]

    # --- scores ---------------------------------------------------------------------------------

    def _read_score(self, s: Statement) -> None:
        c, bits = len(self._scores), self._score_bits
        read = self._operand(s.parts["a"])
        if s.number("at") != c or self._width(s) != bits or read.width != bits:
            raise self._wrong(f"score {s.parts['at']} is not that of class {c}")
        if s.number("below") != bits - 2:
            raise self._wrong(f"score {c}: its key is in another order")
        half = 1 << (bits - 1)
        places = self._as_number(read, -half, half)
        own = self.own.scores[c] if c < len(self.own.scores) else 0
        place = next((p for p in places if self._values.same(p, own)), places[0])
        clock = read.clock if read.signal is not None else None
        self._scores.append(_Score(place, clock))

    def _read_scores(self, s: Statement) -> None:
        names = [f"score{c}" for c in reversed(range(len(self._scores)))]
        if s.parts["a"] != ", ".join(names) or len(names) != len(self.model.classes):
            raise self._wrong("are not the scores of all classes")
        clocks = {score.clock for score in self._scores if score.clock is not None}
        if len(clocks) > 1:
            raise self._wrong(f"are of clocks {', '.join(map(str, sorted(clocks)))}")
        rounds = (len(names) - 1).bit_length()
        late = 2 * rounds + 1 + (self.model.shunt > 0)
        clock = clocks.pop() if clocks else self._latency - late
        self._new(s, _Signal("scores", self._score_bits * len(names), clock))

    def _read_out_scores(self, s: Statement) -> None:
        signal, clock = self._reference(Reference("scores", s.number("high"), s.number("low")))
        if clock != self._latency:
            raise self._wrong(f"{signal.name} come in clock {clock}, not {self._latency}")

    def _read_match(self, s: Statement) -> None:
        if (self._width(s), s.number("w")) != (self._score_bits,) * 2:
            raise self._wrong("compares scores of other bits")
        if (s.number("class") + 1, s.number("class_w")) != (self._class_bits,) * 2:
            raise self._wrong("numbers classes in other bits")
        a, b = (self._group(s, side) for side in "ab")
        if a is None or (b is not None and (a.clock, a.end) != (b.clock, b.first)):
            raise self._wrong("compares scores of other classes or clocks than those side by side")
        made = _Group(a.clock + _CLOCKS["match"], a.first, a.end if b is None else b.end)
        self._groups[s.parts["name"]] = made

    def _group(self, s: Statement, side: str) -> _Group | None:
        """The classes of one side of a match; None for nobody, whose score is the least."""
        best, second, number = (s.parts[f"{side}_{part}"] for part in ("best", "second", "class"))
        nothing = f"{self._score_bits}'d0"
        clock = self._signals["scores"].clock if "scores" in self._signals else 0
        for c in range(len(self._scores)):
            if (best, second, number) == (f"key{c}", nothing, f"{self._class_bits}'d{c}"):
                return _Group(clock, c, c + 1)
        name = best.removesuffix("_best")
        of_match = (f"{name}_best", f"{name}_second", f"{name}_class")
        if (best, second, number) == of_match and name in self._groups:
            return self._groups[name]
        if (best, second, number) != (nothing, nothing, f"{self._class_bits}'d0"):
            raise self._wrong(f"compares {best}, {second} and {number}")
        return None

    def _read_lead(self, s: Statement) -> None:
        group = self._groups.get(s.parts["name"])
        if group is None or (group.first, group.end) != (0, len(self.model.classes)):
            raise self._wrong("does not compare all classes")
        self._check_lead_bits(s)
        self._decided = group.clock + 1

    def _read_shunt(self, s: Statement) -> None:
        self._check_lead_bits(s)
        self._decided += 1
        least = self._operand(s.parts["least"]) if s.has("least") else None
        if least is not None and least.width != self._score_bits:
            raise self._wrong("the threshold has other bits than a margin")
        # A threshold above all margins has a bit more than they.
        self.shunt = 1 << self._score_bits if least is None else least.constant

    def _check_lead_bits(self, s: Statement) -> None:
        if self._width(s) != self._score_bits or s.number("class") + 1 != self._class_bits:
            raise self._wrong("the margin or the class has other bits than the model's")

    def _read_end(self, s: Statement) -> None:
        if s.has("late") != (self.shunt > 0) or (self.model.shunt > 0) != (self.shunt > 0):
            raise self._wrong("its outputs are those of another clock than the shunted flows")
        if self._decided != self._latency:
            raise self._wrong(f"decides in clock {self._decided}, not {self._latency}")


def _range(read: _Read) -> tuple[int, int]:
    """The integers that a signal and the bits above it stand for: from, and one past the last."""
    assert read.signal is not None  # noqa: S101 - bits are put above signals only
    size = 1 << read.signal.width
    least = {"0": 0, "1": -size, "sign": -size // 2}[read.above]
    return least, least + size


def _nearest_entries(near: Sequence[int], residues: Sequence[int], size: int) -> tuple[int, ...]:
    """The integers with these bits that are nearest to a table's entries."""
    return tuple(
        _nearest(entry, number, size) for entry, number in zip(near, residues, strict=True)
    )


def _nearest(value: int, residue: int, size: int) -> int:
    """The integer with these bits that is nearest to a value; of two, the lower one."""
    half = size // 2
    return value - half + (residue - value + half) % size


def _first_difference(made: Sequence[int], near: Sequence[int]) -> int:
    """The first place where two tables differ; 0 if they are equal."""
    return next((k for k in range(len(made)) if made[k] != near[k]), 0)


def _by_order(select: Select, bits: Sequence[int]) -> tuple[int, ...]:
    """The entries of a look-up whose index has its bits in another order."""
    place = [bits.index(bit) for bit in select.bits]
    return tuple(
        select.table[sum((at >> k & 1) << j for j, k in enumerate(place))]
        for at in range(len(select.table))
    )


def _equal(table: Sequence[int], residues: Sequence[int], size: int) -> int:
    """SizedNumber of a table's entries that have the same bits."""
    return sum(entry % size == number for entry, number in zip(table, residues, strict=True))


_CLOCKED = r"always @\(posedge clk\)"
_TABLE_HEAD = re.compile(
    r"module n3ic_log_table \( input wire clk, input wire \[(\d+):0\] distance, "
    r"input wire reached, output reg \[(\d+):0\] more \); "
    rf"reg reached1; {_CLOCKED} reached1 <= reached; "
)
_TABLE_BLOCK = re.compile(
    rf"reg \[(\d+):0\] (block\d+); {_CLOCKED} begin case \(distance\[(\d+):0\]\) "
    r"((?:\d+'d\d+: block\d+ <= \d+'d\d+; )+)default: \2 <= (\d+)'d0; endcase end "
)
_TABLE_ONE = re.compile(rf"{_CLOCKED} more <= reached1 \? block0 : (\d+)'d0; endmodule")
_TABLE_MORE = re.compile(
    rf"reg \[(\d+):0\] high; {_CLOCKED} begin high <= distance\[(\d+):(\d+)\]; "
    r"if \(!reached1\) more <= (\d+)'d0; else case \(high\) "
    r"((?:\d+'d\d+: more <= \{(?:\d+'d0, )?block\d+\}; )+)"
    r"default: more <= (\d+)'d0; endcase end endmodule"
)


def _zeros(bits: int) -> str:
    return f"{bits}'d0, " if bits else ""


def _log_table(text: str, widths: tuple[int, int]) -> tuple[int, ...]:
    """The entries of the log-add table.

    Args:
        text: the Verilog.
        widths: bits of a distance and of an entry, as the core has them.
    """

    def wrong(what: str) -> VerifyError:
        return VerifyError(f"{TABLE}: {what}")

    plain = plain_text(text)
    head = _TABLE_HEAD.match(plain)
    if head is None:
        raise wrong("is no table of log-add")
    at_w, more_w = (int(number) + 1 for number in head.groups())
    if widths not in ((0, 0), (at_w, more_w)):
        raise wrong(
            f"has distances of {at_w} bits and entries of {more_w}, the core reads {widths}"
        )
    at, table, sizes = head.end(), list[int](), list[int]()
    low_w = 0
    while block := _TABLE_BLOCK.match(plain, at):
        at, width, name = block.end(), int(block[1]) + 1, block[2]
        low_w = low_w or int(block[3]) + 1
        read = entries(block[4], name, TABLE)
        same = {(w, size) for w, size, _ in read.values()} == {(low_w, width)}
        full = len(table) == len(sizes) << low_w and [*read] == [*range(len(read))]
        fits = max(value for _, _, value in read.values()) >> width == 0
        if name != f"block{len(sizes)}" or int(block[3]) + 1 != low_w or int(block[5]) != width:
            raise wrong(f"{name} is not the next block of {low_w} bits")
        if not (same and full and fits) or len(read) > 1 << low_w:
            raise wrong(f"{name}: its entries are not those of all distances in turn")
        table += [value for _, _, value in read.values()]
        sizes.append(width)
    if one := _TABLE_ONE.fullmatch(plain, at):
        if len(sizes) != 1 or (sizes[0], int(one[1]), low_w) != (more_w, more_w, at_w):
            raise wrong("does not read its block")
        return tuple(table)
    more = _TABLE_MORE.fullmatch(plain, at)
    if more is None or not sizes:
        raise wrong(f"a block is expected, not {plain[at : at + 60]!r}")
    high_w = int(more[1]) + 1
    if (high_w, int(more[2]), int(more[3])) != (at_w - low_w, at_w - 1, low_w):
        raise wrong("selects its blocks by other bits of the distance")
    wanted = "".join(
        f"{high_w}'d{k}: more <= {{{_zeros(more_w - size)}block{k}}}; "
        for k, size in enumerate(sizes)
    )
    if (more[4], more[6], more[5]) != (str(more_w), str(more_w), wanted):
        raise wrong("does not read each block at its place")
    return tuple(table)
