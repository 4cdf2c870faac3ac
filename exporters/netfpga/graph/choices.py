# SPDX-License-Identifier: Apache-2.0
"""Maps trees of choices among constants to look-up tables of the FPGA.

A choice between two bits is a function of three bits, and a table of the FPGA computes any function
of six, so a table takes several choices. There are four ways to get a value of many bits:

- *index*: at most six input bits decide the tree, and one table for each bit of the value reads
  them.
- *direct*: each bit of the value is a tree of choices of its own. Bits that are equal are shared.
- *by value*: the bits of a number of the value, in the order in which values are met, are trees of
  choices. Tables then read the number.
- *by place*: the same with a number for each leaf. The highest bit of the number tells little more
  than the side of the root, so these trees are small: of a full tree they have as many choices as
  the tree itself, whatever the width of its values.

The way with the fewest tables is taken. A tree of choices of one bit is covered by tables from the
leaves to the root, with the fewest tables for each number of inputs that a part leaves to the table
above it.

Source of the covering: J. Cong, Y. Ding, "FlowMap", 1994, and priority cuts: A. Mishchenko et al.,
"Combinational and Sequential Mapping with Priority Cuts", 2007.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple

from n3ic.model.graph.operations import Choose, Constant, Graph
from n3ic.model.graph.trees import choices_of_constants, roots_of

INPUTS = 6  # of a look-up table
SHARED = 5  # inputs of two functions that share one
_FALSE, _TRUE = 0, 1


class Signal(NamedTuple):
    """A bit: a constant (its value), an input bit, or the output of a gate (its number)."""

    kind: Literal["constant", "input", "gate"]
    number: int


@dataclass(frozen=True)
class ChoiceGate:
    """A look-up table of one bit.

    Attributes:
        inputs: what it reads, at most six bits; the first is the lowest bit of its index.
        table: its value for each index, index 0 in the lowest bit.
    """

    inputs: tuple[Signal, ...]
    table: int


@dataclass(frozen=True)
class Logic:
    """The tables of the FPGA for a tree of choices.

    Attributes:
        gates: tables of one bit each; those that a gate reads come before it.
        number: bits of a number, the lowest first.
        entries: the value for each number, all ``2 ** len(number)``; empty if the number is the
            value, in two's complement.
    """

    gates: tuple[ChoiceGate, ...]
    number: tuple[Signal, ...]
    entries: tuple[int, ...] = ()

    def cost(self, width: int, sharers: int = 1) -> float:
        """Tables that it takes, where two functions of the same five bits share one.

        Args:
            width: bits of a value.
            sharers: number of trees that have the same gates.
        """
        columns = len(computed_columns(self.entries, width))
        inputs = len(self.number)
        each = 0.5 if inputs <= SHARED else float(1 << (inputs - INPUTS))
        return len(self.gates) / sharers + columns * each


def computed_columns(entries: Sequence[int], width: int) -> frozenset[int]:
    """Different bits of a table's entries that need logic: no constant, no copy of an index bit.

    Args:
        entries: an integer for each index.
        width: number of bits of an entry.

    Returns:
        Each such bit as its values for all indices, index 0 in the lowest bit.
    """
    columns = {_column(entries, k) for k in range(width)}
    copies = {_column(range(len(entries)), k) for k in range(len(entries).bit_length())}
    return frozenset(columns - copies - {0, (1 << len(entries)) - 1})


def reads_of(column: int, inputs: int) -> tuple[int, ...]:
    """The index bits on which a bit of a table depends.

    Args:
        column: the bit's values for all indices, index 0 in the lowest bit.
        inputs: number of index bits.
    """
    places = []
    for k in range(inputs):
        high = _column(range(1 << inputs), k)  # the indices whose bit k is 1
        if (column & high) >> (1 << k) != column & ~high & ((1 << (1 << inputs)) - 1):
            places.append(k)
    return tuple(places)


def _column(entries: Sequence[int], bit: int) -> int:
    return sum((value >> bit & 1) << at for at, value in enumerate(entries))


class Trees:
    """The trees of choices among constants of a graph, as look-up tables; deterministic.

    A tree's root is a choice that another operation or a score reads. Trees of the same choices,
    such as those of several classes, share the tables that number their leaves.

    Attributes:
        graph: the operations.
        roots: the roots of the trees.
        inside: the other choices among constants.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        among = choices_of_constants(graph)
        self.roots = {i: _Tree.of(graph, i) for i in roots_of(graph, among)}
        self.inside = frozenset(among.keys() - self.roots.keys())
        self._shapes = Counter(tree.shape for tree in self.roots.values())
        self._places: dict[_Shape, Logic] = {}  # the numbers of places, by shape

    def logic(self, root: int, width: int) -> Logic:
        """The tables of a tree.

        Args:
            root: one of ``roots``.
            width: bits of a value.
        """
        tree = self.roots[root]
        support = sorted({choice.bit for choice in tree.choices.values()})
        if len(support) <= INPUTS:
            return _by_index(tree, support, width)
        ways = []
        if tree.single and _bits(len(tree.leaves)) < width:
            places = self._by_place(tree)
            ways.append((places, places.cost(width, self._shapes[tree.shape])))
        if not ways or self._shapes[tree.shape] == 1:
            others = [_direct(tree, width)]
            if len(tree.values) > 1 and _bits(len(tree.values)) < width:
                others.append(_numbered(tree, _by_value(tree), tree.values))
            ways += [(logic, logic.cost(width)) for logic in others]
        return min(ways, key=lambda way: way[1])[0]

    def _by_place(self, tree: _Tree) -> Logic:
        made = self._places.get(tree.shape)
        if made is None:
            made = self._places[tree.shape] = _numbered(tree, _by_place(tree), tree.leaves)
        return replace(made, entries=_filled(tree.leaves))


def _bits(count: int) -> int:
    """Bits of a number for each of some things."""
    return (count - 1).bit_length()


@dataclass(frozen=True)
class _Tree:
    """A tree of choices among constants, whose parts may be shared.

    Attributes:
        root: index of its root.
        choices: its choices by index, operands first.
        constants: the value of each of its constants, by index.
        leaves: the values as they are met, the side of 0 first, each part entered once.
        single: whether no part is shared, so that the leaves are all ends of the tree.
    """

    root: int
    choices: Mapping[int, Choose]
    constants: Mapping[int, int]
    leaves: tuple[int, ...]
    single: bool

    @classmethod
    def of(cls, graph: Graph, root: int) -> _Tree:
        choices: dict[int, Choose] = {}
        constants: dict[int, int] = {}
        leaves: list[int] = []
        single = True
        waiting = [root]
        while waiting:
            at = waiting.pop()
            step = graph.steps[at]
            if isinstance(step, Constant):
                leaves.append(step.value)
                constants[at] = step.value
            elif at in choices:
                single = False
            elif isinstance(step, Choose):
                choices[at] = step
                waiting += (step.one, step.zero)
        return cls(root, dict(sorted(choices.items())), constants, tuple(leaves), single)

    @cached_property
    def shape(self) -> _Shape:
        """Its choices, whose sides are the places of choices among them, or -1 for a constant."""
        place = {at: k for k, at in enumerate(self.choices)}
        return tuple(
            (step.bit, place.get(step.zero, -1), place.get(step.one, -1))
            for step in self.choices.values()
        )

    @property
    def values(self) -> tuple[int, ...]:
        """The different values, as they are met."""
        return tuple(dict.fromkeys(self.leaves))


_Shape = tuple[tuple[int, int, int], ...]
_Codes = Callable[[int, int], int]  # the number of a choice's end, on its side 0 or 1


def _direct(tree: _Tree, width: int) -> Logic:
    functions = _Functions()
    code = _value_codes(tree, {value: value % (1 << width) for value in tree.values})
    return functions.logic(_bit_functions(tree, functions, code, width), ())


def _numbered(tree: _Tree, code: _Codes, values: tuple[int, ...]) -> Logic:
    functions = _Functions()
    number = _bit_functions(tree, functions, code, _bits(len(values)))
    return functions.logic(number, _filled(values))


def _filled(values: tuple[int, ...]) -> tuple[int, ...]:
    """Values for all numbers of as many bits; those beyond the last have its value."""
    return values + values[-1:] * ((1 << _bits(len(values))) - len(values))


def _by_index(tree: _Tree, support: Sequence[int], width: int) -> Logic:
    functions = _Functions()
    code = _value_codes(tree, {value: k for k, value in enumerate(tree.values)})
    bits = _bit_functions(tree, functions, code, _bits(len(tree.values)))
    inputs = [functions.literal(bit) for bit in support]
    columns = [functions.table(node, inputs) for node in bits]
    entries = tuple(
        tree.values[sum((column >> at & 1) << k for k, column in enumerate(columns))]
        for at in range(1 << len(support))
    )
    return Logic((), tuple(Signal("input", bit) for bit in support), entries)


def _by_value(tree: _Tree) -> _Codes:
    return _value_codes(tree, {value: k for k, value in enumerate(tree.values)})


def _value_codes(tree: _Tree, code: Mapping[int, int]) -> _Codes:
    def of(choice: int, side: int) -> int:
        step = tree.choices[choice]
        return code[tree.constants[step.one if side else step.zero]]

    return of


def _by_place(tree: _Tree) -> _Codes:
    """Number the ends of a tree of which no part is shared."""
    ends = dict.fromkeys(tree.constants, 1)
    for at, step in tree.choices.items():
        ends[at] = ends[step.zero] + ends[step.one]
    first = {tree.root: 0}
    for at, step in reversed(list(tree.choices.items())):
        for side, before in ((step.zero, 0), (step.one, ends[step.zero])):
            if side in tree.choices:
                first[side] = first[at] + before

    def of(choice: int, side: int) -> int:
        return first[choice] + (ends[tree.choices[choice].zero] if side else 0)

    return of


def _bit_functions(tree: _Tree, functions: _Functions, code: _Codes, width: int) -> tuple[int, ...]:
    """The function of each bit of the numbers of a tree's ends, the lowest bit first."""
    of: dict[int, tuple[int, ...]] = {}
    for at, step in tree.choices.items():
        sides = [
            of[k] if k in tree.choices else tuple(code(at, side) >> b & 1 for b in range(width))
            for side, k in enumerate((step.zero, step.one))
        ]
        of[at] = tuple(functions.choose(step.bit, *pair) for pair in zip(*sides, strict=True))
    return of[tree.root]


class _Cone(NamedTuple):
    """A part of a function that one table may take.

    Attributes:
        gates: tables that compute its inputs.
        levels: the most tables in a row before it.
        inputs: the nodes that it reads, as a mask.
    """

    gates: int
    levels: int
    inputs: int


_NOTHING = (_Cone(0, 0, 0),)  # a constant


class _Functions:
    """Functions of one bit as choices: 0 and 1 are the constants, other numbers are nodes.

    Equal functions of equal choices are one node; operands have lower numbers.
    """

    def __init__(self) -> None:
        self.nodes: list[tuple[int, int, int]] = [(-1, 0, 0), (-1, 1, 1)]
        self._made: dict[tuple[int, int, int], int] = {}
        self._cones: list[tuple[_Cone, ...]] = [_NOTHING, _NOTHING]  # the best one first
        self._parts: list[tuple[_Cone, ...]] = [_NOTHING, _NOTHING]  # what a reader may include

    def literal(self, bit: int) -> int:
        """The node of an input bit."""
        return self._make((bit, _FALSE, _TRUE))

    def choose(self, bit: int, zero: int, one: int) -> int:
        """The function ``one`` where an input bit is 1, else ``zero``."""
        if zero == one:
            return zero
        self.literal(bit)
        return self._make((bit, zero, one))

    def _make(self, node: tuple[int, int, int]) -> int:
        if node not in self._made:
            self._made[node] = at = len(self.nodes)
            self.nodes.append(node)
            if self._is_literal(at):
                self._cones.append(_NOTHING)
                self._parts.append((_Cone(0, 0, 1 << at),))
            else:
                cones = self._covered(*node)
                best = cones[0]
                self._cones.append(cones)
                own = _Cone(best.gates + 1, best.levels + 1, 1 << at)
                self._parts.append((*cones, own))
        return self._made[node]

    def _is_literal(self, at: int) -> bool:
        return self.nodes[at][1:] == (_FALSE, _TRUE)

    def _covered(self, bit: int, zero: int, one: int) -> tuple[_Cone, ...]:
        """The best cone of a choice for each number of inputs; more inputs must save tables."""
        own = 1 << self._made[bit, _FALSE, _TRUE]
        best: list[_Cone | None] = [None] * (INPUTS + 1)
        for a in self._parts[zero]:
            for b in self._parts[one]:
                inputs = own | a.inputs | b.inputs
                count = inputs.bit_count()
                if count <= INPUTS:
                    cone = _Cone(a.gates + b.gates, max(a.levels, b.levels), inputs)
                    other = best[count]
                    if other is None or cone < other:
                        best[count] = cone
        cones: list[_Cone] = []
        for candidate in best:
            if candidate is not None and (not cones or candidate[:2] < cones[-1][:2]):
                cones.append(candidate)
        return tuple(sorted(cones))

    def logic(self, number: Sequence[int], entries: tuple[int, ...]) -> Logic:
        """Cover functions with tables."""
        needed = {at for at in number if at > _TRUE and not self._is_literal(at)}
        for at in range(max(number, default=0), _TRUE, -1):
            if at in needed:
                needed.update(k for k in self._inputs(at) if not self._is_literal(k))
        order = {at: k for k, at in enumerate(sorted(needed))}

        def signal(at: int) -> Signal:
            if at <= _TRUE:
                return Signal("constant", at)
            if at in order:
                return Signal("gate", order[at])
            return Signal("input", self.nodes[at][0])

        gates = []
        for at in order:
            inputs = list(self._inputs(at))
            gates.append(ChoiceGate(tuple(map(signal, inputs)), self.table(at, inputs)))
        return Logic(tuple(gates), tuple(map(signal, number)), entries)

    def _inputs(self, at: int) -> Iterator[int]:
        """The nodes that the table of a node reads."""
        mask = self._cones[at][0].inputs
        while mask:
            yield (mask & -mask).bit_length() - 1
            mask &= mask - 1

    def table(self, at: int, inputs: Sequence[int]) -> int:
        """The value of a node for each index that some nodes form, index 0 in the lowest bit."""
        size = 1 << len(inputs)
        known = {_FALSE: 0, _TRUE: (1 << size) - 1}
        for k, node in enumerate(inputs):
            known[node] = sum(1 << i for i in range(size) if i >> k & 1)
        waiting = [at]
        while waiting:
            node = waiting[-1]
            bit, zero, one = self.nodes[node]
            missing = [k for k in (zero, one) if k not in known] if node not in known else []
            waiting += missing
            if not missing:
                waiting.pop()
                if node not in known:
                    own = known[self._made[bit, _FALSE, _TRUE]]
                    known[node] = own & known[one] | ~own & known[zero]
        return known[at]
