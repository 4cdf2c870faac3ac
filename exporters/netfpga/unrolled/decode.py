# SPDX-License-Identifier: Apache-2.0
"""Decodes the Verilog of an unrolled core to weights, thresholds and biases, for all inputs.

The core has no memory of weights: they are part of its logic. The logic consists of adders, and
each adder is an equation between bits: the sum of three bits equals a sum bit plus twice a carry.
The decoder checks each cell on all its inputs, and then solves the equations. A neuron's output is
a comparison of a few bits. The decoder replaces each carry among them by the bits that it was made
of, until only bits that the layer reads are left. Sum bits that a comparison dropped remain as a
bounded rest, which must be too small to change the answer. So every coefficient and every threshold
is exact, not sampled. A layer of ORs over a layer of ANDs is a formula instead: multiplied out, it
must give those ANDs. The shunting threshold is decoded in the same way from a comparison of the
margin's bits or, if only two classes are compared, of the hidden bits.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import islice, permutations, product
from math import ceil, gcd, lcm
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import VerifyError
from n3ic.exporters.netfpga.unrolled.syntax import (
    Literal,
    Module,
    ParsedCore,
    ParsedInstance,
    read_core,
    read_modules,
)
from n3ic.model.network import BinaryModel
from n3ic.targets.decoding import Decoded, DecodedLayer

T = TypeVar("T")
CORE, CELLS = "rtl/n3ic_core.v", "rtl/n3ic_cells.v"
TABLE = "n3ic_table"  # start of the names of modules of any function

Bit = tuple[int, int]  # (variable, inverted); variable 0 is the constant 0
_FULL, _FIVE, _UPPER, _SEVEN, _PARITY, _MUX = (
    f"n3ic_{kind}" for kind in ("add3", "add5", "add32", "add7", "parity6", "mux")
)
_Comparison = tuple[NDArray[np.int64], int]  # coefficients of bits, and a lower bound of their sum
_Cube = frozenset[Bit]  # bits that are ANDed
_MOST_DIFFERING = 12  # differing coefficients up to which equal_tests enumerates all values


class Undecidable(Exception):  # noqa: N818 - not an error, but a fact about the network
    """The logic does not determine a weight: a neuron is constant, or two share a wire."""


@dataclass(frozen=True)
class LinearForm:
    """``constant + sum(coefficient * bit)`` plus a rest between ``low`` and ``high``."""

    terms: dict[int, Fraction]
    constant: Fraction
    low: Fraction
    high: Fraction

    @property
    def most(self) -> Fraction:
        """The largest value."""
        return self.constant + self.high + sum(max(c, Fraction(0)) for c in self.terms.values())


@dataclass(frozen=True)
class ThresholdTest:
    """``sum(coefficient * bit) >= bound``."""

    terms: dict[int, int]
    bound: int


@dataclass(frozen=True)
class Equation:
    """The definition of a variable.

    Attributes:
        variable: the defined variable.
        kind: ``adder`` (the sum of three inputs is ``total`` plus twice the variable), ``parity``
            (the inputs sum to the variable plus an even number), ``comparison`` (the variable says
            whether the weighted inputs reach ``bound``), ``rule`` (a formula), ``table`` (any
            function) or ``mux``.
        inputs: input bits and their weights.
        total: sum bit of an adder.
        bound: bound of a comparison.
        formula: formula of a rule, in prefix order.
        table: truth table of a table; bit ``i`` is for the input value ``i``.
    """

    variable: int
    kind: str
    inputs: tuple[tuple[Bit, int], ...] = ()
    total: Bit = (0, 0)
    bound: int = 0
    formula: str = ""
    table: int = 0


class EquationSystem:
    """Equations of a core's cells; equal sums of equal bits become one variable."""

    def __init__(self, core: ParsedCore) -> None:
        self.equations: list[Equation] = []
        self.defined: list[int | None] = [None]  # index of the equation that defines a variable
        self.adders: dict[tuple[Bit, ...], tuple[Bit, Bit]] = {}
        self.parities: dict[frozenset[int], Bit] = {}  # of input bits and carries
        self.bases: dict[int, tuple[frozenset[int], int]] = {0: (frozenset(), 0)}
        self.bits: dict[str, Bit] = {"": (0, 0)}
        for index in range(core.n_inputs):
            self.bits[f"in_bits[{index}]"] = (self._variable(None), 0)
        for instance in core.instances:
            self._add(instance)
        above = self._above()
        self.levels = self._leveled(above)
        # A sum bit whose carry is not read is solved last, by the lowest of its equations.
        self.sums: dict[int, int] = {
            variable: min(equations_above, key=lambda index: (self.levels[index], index))
            for variable, equations_above in above.items()
            if equations_above and self.bases[variable][0] != {variable}
        }

    def _above(self) -> dict[int, list[int]]:
        """The equations that solve each variable, the defining one first.

        An equation whose inputs depend on the variable itself is left out, to avoid a cycle.
        """
        above: dict[int, list[int]] = {
            variable: [] if index is None else [index]
            for variable, index in enumerate(self.defined)
        }
        for index, equation in enumerate(self.equations):
            total = equation.total[0]
            if total and self.defined[total] != index and not self._reads(index, total, above):
                above[total].append(index)
        return above

    def _reads(self, index: int, variable: int, above: Mapping[int, Sequence[int]]) -> bool:
        """Whether an equation depends on a variable, directly or indirectly."""
        todo, visited = [index], {index}
        while todo:
            for (source, _), _ in self.equations[todo.pop()].inputs:
                if source == variable:
                    return True
                new = [i for i in above[source] if i not in visited]
                visited.update(new)
                todo += new
        return False

    def _leveled(self, above: Mapping[int, Sequence[int]]) -> list[int]:
        """A level for each equation, higher than the levels of its inputs' equations."""
        raised: list[list[int]] = [[] for _ in self.equations]
        for variable, indices in above.items():
            for index in indices:
                raised[index].append(variable)
        levels = [0] * len(self.equations)
        sums = [0] * len(self.defined)
        changed = True
        while changed:  # a sum bit of several equations takes the highest of their levels
            changed = False
            for index, equation in enumerate(self.equations):
                level = 1 + max((sums[v] for (v, _), _ in equation.inputs), default=0)
                levels[index] = max(levels[index], level)
                for variable in raised[index]:
                    if sums[variable] < level:
                        sums[variable] = level
                        changed = True
        return levels

    def bit(self, literal: Literal) -> Bit:
        """The variable of a literal."""
        variable, inverted = self.bits[literal[0]]
        return variable, inverted ^ literal[1]

    def _variable(self, equation: int | None) -> int:
        self.defined.append(equation)
        variable = len(self.defined) - 1
        self.bases[variable] = (frozenset((variable,)), 0)
        return variable

    def _define(
        self,
        kind: str,
        bits: Sequence[Bit] = (),
        weights: Sequence[int] | None = None,
        **more: Any,
    ) -> Bit:
        """Add an equation of weighted bits (1 each by default); return the bit that it defines."""
        variable = self._variable(len(self.equations))
        inputs = zip(bits, weights or (1,) * len(bits), strict=True)
        self.equations.append(Equation(variable, kind, tuple(inputs), **more))
        return variable, 0

    def _add(self, instance: ParsedInstance) -> None:
        name = instance.module.name
        inputs = tuple(self.bit(literal) for literal in instance.inputs)
        values: dict[str, Bit] = {}
        if name == _FULL:
            values["s"], values["k"] = self._full(inputs)
        elif name == _FIVE:
            odd, _ = self._full(inputs[:3])
            values["s"], values["k"] = self._full((odd, *inputs[3:]))
        elif name == _UPPER:
            _, carry = self._full(inputs[:3])
            values["s"], values["k"] = self._full((carry, *inputs[3:]))
        elif name == _SEVEN:
            three, first = self._full(inputs[:3])
            five, second = self._full((three, *inputs[3:5]))
            values["s"], third = self._full((five, *inputs[5:]))
            values["m"], values["k"] = self._full((first, second, third))
        elif name.startswith(TABLE):
            table = instance.module.outputs["y"]
            values["y"] = self._define("table", inputs, table=table)
        elif name == _PARITY:
            values["s"] = self._define("parity", inputs)
        elif name == _MUX:
            values["y"] = self._define("mux")
        elif (formula := claimed_formula(instance.module)) is not None:
            values["y"] = self._define("rule", inputs, formula=formula)
        else:
            weights, bound = claim(instance.module)
            values["y"] = self._define("comparison", inputs, weights, bound=bound)
        for port, wire in instance.outputs.items():
            self.bits[wire] = values[port]

    def _full(self, inputs: tuple[Bit, ...]) -> tuple[Bit, Bit]:
        """Sum and carry of three bits."""
        one, two, three = key = tuple(sorted(inputs))
        for first, other, third in ((one, two, three), (two, three, one)):
            # x + x + y has sum y and carry x; x + !x + y has sum !y and carry y.
            if first[0] == other[0]:  # a bit twice, or a bit and its inverse
                if first == other:
                    return third, first
                return (third[0], third[1] ^ 1), third
        # Inverting all inputs inverts sum and carry, so adders are stored with their second input
        # not inverted. The first cannot be used for this: it may be a constant.
        _, flip = two
        key = tuple((variable, inverted ^ flip) for variable, inverted in key)
        if key not in self.adders:
            odd = self._parity(key, len(self.equations))
            self.adders[key] = (odd, self._define("adder", key, total=odd))
        (total, turned), (carry, _) = self.adders[key]
        return (total, turned ^ flip), (carry, flip)

    def _parity(self, inputs: Sequence[Bit], equation: int) -> Bit:
        """The parity of bits, as one variable for every order of addition."""
        base, sign = frozenset[int](), 0
        for variable, inverted in inputs:
            own, turned = self.bases[variable]
            base, sign = base ^ own, sign ^ turned ^ inverted
        if base not in self.parities:
            if len(base) <= 1:
                self.parities[base] = (next(iter(base), 0), 0)
            else:
                variable = self._variable(equation)
                self.bases[variable] = (base, 0)
                self.parities[base] = (variable, 0)
        variable, turned = self.parities[base]
        return variable, turned ^ sign

    # --- solving -----------------------------------------------------------------------------

    def solve(
        self, bits: Iterable[tuple[Bit, Fraction]], known: set[int], modulus: int = 0
    ) -> LinearForm:
        """Express a weighted sum of bits in the known bits.

        Args:
            bits: bits and their weights.
            known: variables at which the expansion stops.
            modulus: multiples of it are dropped; 0 to keep them.

        Raises:
            VerifyError: a bit is not a sum of bits.
        """
        terms: dict[int, Fraction] = {}
        constant = low = high = Fraction(0)
        # Equations to expand, highest level first, so that each is expanded once with its whole
        # weight; the flag marks those of which only the sum bit is wanted.
        todo: list[tuple[int, bool, int]] = []

        def add(bit: Bit, weight: Fraction) -> None:
            nonlocal constant
            variable, inverted = bit
            if inverted:
                constant += weight
                weight = -weight
            if variable:
                terms[variable] = terms.get(variable, Fraction(0)) + weight
                alone = variable in self.sums
                equation = self.sums[variable] if alone else self.defined[variable]
                if variable not in known and equation is not None:
                    heapq.heappush(todo, (-self.levels[equation], alone, equation))

        def leave(weight: Fraction) -> None:
            """Replace an unknown part by its range, 0 to its weight."""
            nonlocal low, high
            if not (modulus and weight % modulus == 0):
                low += min(weight, Fraction(0))
                high += max(weight, Fraction(0))

        for bit, weight in bits:
            add(bit, weight)
        while todo:
            _, alone, index = heapq.heappop(todo)
            equation = self.equations[index]
            total, turned = equation.total
            carry = Fraction(0) if alone else terms.pop(equation.variable, Fraction(0))
            share = Fraction(0)
            if (carry or alone) and total not in known:
                share = terms.pop(total, Fraction(0))
            if turned:
                constant += share
                share = -share
            if not carry and not share:
                continue
            if equation.kind not in ("adder", "parity"):
                raise VerifyError("a comparison is used as a number")
            inputs = [(bit, Fraction(weight)) for bit, weight in equation.inputs]
            if equation.kind == "parity":
                share, carry = carry, Fraction(0)
            factor = carry / 2 if carry else share
            if modulus and (carry - 2 * share) % modulus == 0:
                factor = share  # equal modulo 2**width: the sum's weight has the right sign
            leave(share - factor)
            if carry != 2 * factor:
                # The rest of the carry stays unknown; it is 0 if the inputs cannot sum to 2.
                leave((carry - 2 * factor) * int(self.solve(inputs, known).most // 2))
            for bit, weight in inputs:
                add(bit, factor * weight)
        return LinearForm({v: c for v, c in terms.items() if c}, constant, low, high)

    def test(self, bit: Bit, known: set[int]) -> ThresholdTest:
        """Express a bit as a comparison of the known bits.

        Raises:
            Undecidable: the bit is constant.
            VerifyError: the bit cannot be shown to be a comparison.
        """
        variable, inverted = bit
        if not variable:
            raise Undecidable
        bits, bound = [((variable, 0), Fraction(1))], 1
        compared = self._comparison(variable, known)
        if compared is not None:
            bits, bound = [(b, Fraction(w)) for b, w in compared.inputs], compared.bound
            while bound == 1 and (nested := self._nested(bits, known)) is not None:
                (inner, _), weight = bits.pop(nested)
                comparison = self._comparison(inner, known)
                bits += [(b, weight * w) for b, w in comparison.inputs] if comparison else []
        grain = gcd(*(int(weight) for _, weight in bits))
        total = self.solve(bits, known)
        if total.high - total.low >= grain:
            raise VerifyError("the bits that a comparison leaves out can change its answer")
        if not total.terms:
            raise Undecidable
        # The sum is a multiple of the grain, so it reaches the next one if it reaches the bound.
        edge = -(-bound // grain) * grain - total.high - total.constant
        unit = abs(next(iter(total.terms.values())))  # any coefficient gives the same scale
        scale = lcm(*((c / unit).denominator for c in total.terms.values())) / unit
        terms = {v: int(c * scale) for v, c in total.terms.items()}
        limit = ceil(edge * scale)
        if inverted:
            return ThresholdTest({v: -c for v, c in terms.items()}, 1 - limit)
        return ThresholdTest(terms, limit)

    def _comparison(self, variable: int, known: set[int]) -> Equation | None:
        index = self.defined[variable]
        if variable in known or index is None:
            return None
        equation = self.equations[index]
        return equation if equation.kind == "comparison" else None

    def multiplied_out(self, bit: Bit, known: set[int], most: int) -> list[_Cube] | None:
        """The ANDs of known bits whose OR equals a bit; None if the bit is not such a formula.

        Args:
            bit: the bit to expand.
            known: variables at which the expansion stops.
            most: maximum number of ANDs.

        Raises:
            VerifyError: the formula has more ANDs.
        """
        variable, inverted = bit
        if variable in known:
            return [frozenset({bit})]
        index = self.defined[variable]
        if inverted or index is None or self.equations[index].kind != "rule":
            return None
        equation = self.equations[index]
        letters = iter(equation.formula)
        inputs = [b for b, _ in equation.inputs]

        def limited(cubes: list[_Cube]) -> list[_Cube]:
            if len(cubes) > most:
                raise VerifyError(f"a formula has more than {most} ANDs")
            return cubes

        def both(first: list[_Cube] | None, second: list[_Cube] | None) -> list[_Cube] | None:
            if first is None or second is None:
                return None
            return limited([a | b for a, b in islice(product(first, second), most + 1)])

        def either(first: list[_Cube] | None, second: list[_Cube] | None) -> list[_Cube] | None:
            return None if first is None or second is None else limited(first + second)

        def inverse(cubes: list[_Cube] | None) -> list[_Cube] | None:
            if cubes is None or len(cubes) != 1 or len(cubes[0]) != 1:
                return None
            ((variable, inverted),) = cubes[0]
            return [frozenset({(variable, inverted ^ 1)})]

        def value() -> list[_Cube] | None:
            letter = next(letters)
            if letter == "n":
                return inverse(value())
            if letter == "m":
                select = value()
                zero, one = value(), value()
                return either(both(inverse(select), zero), both(select, one))
            if letter in "ao":
                return (both if letter == "a" else either)(value(), value())
            return self.multiplied_out(inputs[int(letter)], known, most)

        return value()

    def alternatives(self, bit: Bit) -> tuple[Bit, ...]:
        """The inputs of a bit that is an OR; empty for other bits."""
        index = self.defined[bit[0]]
        if index is None or bit[1] or self.equations[index].kind != "comparison":
            return ()
        equation = self.equations[index]
        return tuple(b for b, _ in equation.inputs) if equation.bound == 1 else ()

    def _nested(self, bits: Sequence[tuple[Bit, Fraction]], known: set[int]) -> int | None:
        """Position of an input of an OR that is itself an OR."""
        for index, ((variable, inverted), _) in enumerate(bits):
            comparison = self._comparison(variable, known)
            if comparison is not None and comparison.bound == 1 and not inverted:
                return index
        return None


def claimed_formula(module: Module) -> str | None:
    """The formula in a rule's module name; None for other kinds of module.

    Raises:
        VerifyError: the module does not compute its formula.
    """
    named = re.fullmatch(r"n3ic_rule_([aomn0-5]{1,64})", module.name)
    if named is None:
        return None
    formula = named[1]
    open_ends = 1  # operands that are still missing
    for at, letter in enumerate(formula):
        if not open_ends:
            raise VerifyError(f"module {module.name}: no formula after {at} letters")
        open_ends += {"a": 1, "o": 1, "m": 2, "n": 0}.get(letter, -1)
    if open_ends or max(map(int, re.findall(r"\d", formula))) >= module.n_inputs:
        raise VerifyError(f"module {module.name} does not compute a formula of its inputs")
    check(module, {"y": lambda x: _value(iter(formula), x)})
    return formula


def _value(letters: Iterator[str], inputs: tuple[int, ...]) -> int:
    """Evaluate a formula in prefix order."""
    letter = next(letters)
    if letter.isdigit():
        return inputs[int(letter)]
    first = _value(letters, inputs)
    if letter == "n":
        return 1 - first
    second = _value(letters, inputs)
    if letter == "m":
        third = _value(letters, inputs)
        return third if first else second
    return first & second if letter == "a" else first | second


def claim(module: Module) -> tuple[tuple[int, ...], int]:
    """Weights and bound in the module name of a comparison.

    Raises:
        VerifyError: the module does not compute its comparison, or is of an unknown kind.
    """
    named = re.fullmatch(r"n3ic_ge(\d+)_(\d+(?:_\d+)*)", module.name)
    if named is None:
        raise VerifyError(f"module {module.name} is of an unknown kind")
    weights, bound = tuple(int(w) for w in named[2].split("_")), int(named[1])
    check(module, {"y": lambda x: sum(w * b for w, b in zip(weights, x, strict=True)) >= bound})
    return weights, bound


def check(module: Module, outputs: Mapping[str, Callable[[tuple[int, ...]], int]]) -> None:
    """Compare a module with its specification on all inputs.

    Raises:
        VerifyError: an output differs.
    """
    for row in range(1 << module.n_inputs):
        bits = tuple(row >> k & 1 for k in range(module.n_inputs))
        for port, formula in outputs.items():
            if (module.outputs[port] >> row & 1) != formula(bits):
                raise VerifyError(f"module {module.name}: {port} is wrong for in = {row}")


def check_adders(modules: Mapping[str, Module]) -> None:
    """Compare the modules of fixed function with their specification.

    Raises:
        VerifyError: an output differs.
    """
    sizes = {_FULL: 3, _FIVE: 5, _UPPER: 5, _SEVEN: 7, _PARITY: 6, _MUX: 3}
    for name, size in sizes.items():
        if name not in modules:
            continue
        module = modules[name]
        ports = tuple(module.outputs)
        expected = {_PARITY: ("s",), _MUX: ("y",), _SEVEN: ("s", "m", "k")}.get(name, ("s", "k"))
        if module.n_inputs != size or ports != expected:
            raise VerifyError(f"module {name} has other ports than expected")
        for index, port in enumerate(ports):
            check(module, {port: partial(_fixed, name, index)})


def _fixed(name: str, output: int, bits: tuple[int, ...]) -> int:
    """Specified output of a module of fixed function."""
    if name == _PARITY:
        return sum(bits) & 1
    if name == _MUX:
        return bits[2] if bits[0] else bits[1]
    total = sum(bits if name == _SEVEN else bits[:3])
    if name == _FIVE:
        total = (total & 1) + sum(bits[3:])
    elif name == _UPPER:
        total = (total >> 1) + sum(bits[3:])
    return total >> output & 1


def decode(directory: Path, model: BinaryModel) -> tuple[Decoded, ...]:
    """Decode the unrolled core of an export directory; see :func:`decode_core`."""
    decoded = of_core(directory, lambda core, cells: decode_core(core, cells, model))
    return () if decoded is None else (decoded,)


def of_core(directory: Path, read: Callable[[str, str], T]) -> T:
    """Apply a reader to the texts of an export's core and cells.

    Raises:
        VerifyError: a file cannot be read, or the reader raises one, which then names the core.
    """
    try:
        core, cells = ((directory / name).read_text(encoding="utf-8") for name in (CORE, CELLS))
    except (OSError, UnicodeDecodeError) as error:
        raise VerifyError(f"{CORE} or {CELLS} cannot be read: {error}") from error
    try:
        return read(core, cells)
    except VerifyError as error:
        raise VerifyError(f"{CORE}: {error}") from error


def decode_core(core_text: str, cells_text: str, model: BinaryModel) -> Decoded | None:
    """Decode every weight, mask bit, threshold and bias of an unrolled core.

    Args:
        core_text: Verilog of the core.
        cells_text: Verilog of its cells.
        model: the model. It gives the number of neurons per layer, and its shunting threshold is
            reported if no input separates it from the decoded one.

    Returns:
        The decoded core, or None if the logic does not determine all weights because a neuron is
        constant or two neurons share a wire.

    Raises:
        VerifyError: the logic cannot be shown to be a network.
    """
    modules = read_modules(cells_text)
    check_adders(modules)
    core = read_core(core_text, modules)
    plain = read_core(core_text, modules, debug=False)
    same_class(core, plain)
    system = EquationSystem(core)
    inputs: list[Bit] = [system.bit((f"in_bits[{i}]", 0)) for i in range(core.n_inputs)]
    trace = [system.bit(literal) for literal in core.outputs.get("out_trace", ())]
    if len(trace) != sum(model.shape[1:-1]):
        raise VerifyError(f"the core shows {len(trace)} hidden bits, not {sum(model.shape[1:-1])}")
    layers: list[DecodedLayer] = []
    below: list[Bit] = []
    try:
        for index, count in enumerate(model.shape[1:-1]):
            outputs, trace = trace[:count], trace[count:]
            ands = _cubes_of(layers[-1], below) if layers else {}
            layers.append(_hidden(system, inputs, outputs, index, {v for v, _ in below}, ands))
            below, inputs = inputs, outputs
        layers.append(_output(system, inputs, score_literals(core, len(model.classes))))
    except Undecidable:
        return None
    lead = None
    if "out_scores" not in plain.outputs:  # otherwise the class is derived from the scores
        lead = _lead(layers[-1])
        check_class(system, inputs, core, lead)
    shunt = None
    if (literal := shunt_literal(core, model.shunt)) is not None:
        bit = system.bit(literal)
        if lead is None:
            margin = [system.bit(x) for x in output(core, "out_margin")]
            shunt = shunt_of_margin(system, bit, margin, model.shunt)
        else:
            shunt = shunt_of_lead(system, bit, inputs, lead, model.shunt)
    return Decoded(CORE, tuple(layers), shunt=shunt)


def same_class(debug: ParsedCore, plain: ParsedCore) -> None:
    """Check that the core without its debug outputs computes the same class."""
    results = [
        {name: core.outputs.get(name) for name in ("out_class", "out_shunt")}
        for core in (debug, plain)
    ]
    if plain.instances != debug.instances[: len(plain.instances)] or results[0] != results[1]:
        raise VerifyError("the debug build computes the class in another way")


def _known(inputs: Sequence[Bit]) -> set[int]:
    """Variables that a layer reads."""
    known = {variable for variable, _ in inputs}
    if 0 in known or len(known) < len(inputs):
        raise Undecidable
    return known


def _cubes_of(layer: DecodedLayer, inputs: Sequence[Bit]) -> dict[_Cube, int]:
    """The neurons of a layer that are ANDs, keyed by the bits that they AND."""
    neurons: dict[_Cube, int] = {}
    if layer.limits is None or layer.mask is None:
        return neurons
    for j, (weights, mask, limit) in enumerate(
        zip(layer.weights, layer.mask, layer.limits, strict=True)
    ):
        if limit == mask.sum():
            chosen = np.flatnonzero(mask).tolist()
            neurons[
                frozenset((inputs[i][0], inputs[i][1] ^ int(not weights[i])) for i in chosen)
            ] = j
    return neurons


def _hidden(
    system: EquationSystem,
    inputs: Sequence[Bit],
    outputs: Sequence[Bit],
    layer: int,
    below: set[int],
    ands: Mapping[_Cube, int],
) -> DecodedLayer:
    """Decode a hidden layer from its input and output bits."""
    known = _known(inputs)
    signs = np.zeros((len(outputs), len(inputs)), dtype=np.int64)
    limits = np.zeros(len(outputs), dtype=np.int64)
    for j, bit in enumerate(outputs):
        try:
            wire = bit[0] in known  # a copy of an input, which is an AND of one bit
            and_cubes = None if wire else system.multiplied_out(bit, below, len(ands))
            if and_cubes is not None:
                named = {_named(cube, ands) for cube in and_cubes}
                signs[j], limits[j] = [i in named for i in range(len(inputs))], 1
                continue
            test = system.test(bit, known)
        except VerifyError as error:
            raise VerifyError(f"layer {layer}, neuron {j}: {error}") from error
        signs[j], shift = _signs(test.terms, inputs)
        if np.abs(signs[j]).max() > 1:
            raise VerifyError(f"layer {layer}, neuron {j}: an input counts more than once")
        # Weight bit 0 counts 1 - x, so each such input raises the threshold by 1.
        limits[j] = test.bound - shift + int((signs[j] < 0).sum())
    return DecodedLayer(signs > 0, limits, signs != 0)


def _named(cube: _Cube, ands: Mapping[_Cube, int]) -> int:
    """Index of the AND with the given bits."""
    if cube not in ands:
        raise VerifyError(f"an AND of {len(cube)} bits is not a neuron of the layer before")
    return ands[cube]


def _output(
    system: EquationSystem, inputs: Sequence[Bit], scores: Sequence[Sequence[Literal]]
) -> DecodedLayer:
    """Decode the layer of scores, from the bits of each."""
    known = _known(inputs)
    signs = np.zeros((len(scores), len(inputs)), dtype=np.int64)
    bias = np.zeros(len(scores), dtype=np.int64)
    for c, literals in enumerate(scores):
        bits = [system.bit(x) for x in literals]
        modulus = 1 << len(bits)
        solution = system.solve(
            [(bit, Fraction(1 << power)) for power, bit in enumerate(bits)], known, modulus
        )
        whole = all(t.denominator == 1 for t in (solution.constant, *solution.terms.values()))
        if solution.low or solution.high or not whole:
            raise VerifyError(f"the score of class {c} is not shown to be a sum of hidden bits")
        half = modulus // 2
        terms = {v: unwrapped(int(t), half) for v, t in solution.terms.items()}
        signs[c], shift = _signs({v: t for v, t in terms.items() if t}, inputs)
        if np.abs(signs[c]).max() > 1:
            raise VerifyError(f"the score of class {c} counts an input more than once")
        low, high = int((signs[c] < 0).sum()), int((signs[c] > 0).sum())
        constant = unwrapped(int(solution.constant) + shift, half, -low)
        if constant + high >= half:
            raise VerifyError(f"the score of class {c} exceeds its {len(bits)} bits")
        bias[c] = constant - low
    return DecodedLayer(signs > 0, bias, signs != 0)


def unwrapped(number: int, half: int, low: int = 0) -> int:
    """The value of a number that is known modulo ``2 * half``.

    Args:
        number: a coefficient, or the constant of a sum.
        half: half the modulus.
        low: the least that is added to the number; the sum lies between -half and half - 1.
    """
    return (number + low + half) % (2 * half) - half - low


def _signs(terms: Mapping[int, int], inputs: Sequence[Bit]) -> tuple[NDArray[np.int64], int]:
    """Coefficients of a layer's inputs, and the constant that inverted wires add."""
    row = np.array([terms.get(variable, 0) for variable, _ in inputs], dtype=np.int64)
    turned = np.array([inverted for _, inverted in inputs], dtype=np.bool_)
    return np.where(turned, -row, row), int(row[turned].sum())


def output(core: ParsedCore, name: str) -> tuple[Literal, ...]:
    """The literals of an output, lowest bit first."""
    if name not in core.outputs:
        raise VerifyError(f"the core has no {name}")
    return core.outputs[name]


def score_literals(core: ParsedCore, classes: int) -> list[tuple[Literal, ...]]:
    """The literals of each score."""
    literals = output(core, "out_scores")
    width, rest = divmod(len(literals), classes)
    if rest:
        raise VerifyError(f"the core has {len(literals)} bits of {classes} scores")
    return [literals[c * width :][:width] for c in range(classes)]


def shunt_literal(core: ParsedCore, threshold: int) -> Literal | None:
    """The literal of ``out_shunt``; None for a core and a model without a shunting threshold."""
    if "out_shunt" not in core.outputs:
        if threshold:
            raise VerifyError(f"no shunting threshold, the model's is {threshold}")
        return None
    return only(core, "out_shunt")


def only(core: ParsedCore, name: str) -> Literal:
    """The literal of a one-bit output."""
    literals = output(core, name)
    if len(literals) != 1:
        raise VerifyError(f"{name} has {len(literals)} bits, not one")
    return literals[0]


@dataclass(frozen=True, eq=False)
class Lead:
    """Score of the second class minus the first: ``constant + row @ hidden bits``."""

    row: NDArray[np.int64]
    constant: int

    def reaches(self, bound: int) -> _Comparison:
        """The test ``lead >= bound``, as coefficients and a bound of the hidden bits."""
        return self.row, bound - self.constant

    def turned(self) -> Lead:
        """Score of the first class minus the second."""
        return Lead(-self.row, -self.constant)


def _lead(scores: DecodedLayer) -> Lead | None:
    """The lead of two classes; None for more classes."""
    limits, mask = scores.limits, scores.mask
    if len(scores.weights) > 2 or limits is None or mask is None:
        return None
    signs = np.where(scores.weights, 1, -1) * mask
    bias = limits + (signs < 0).sum(axis=1)
    return Lead(signs[1] - signs[0], int(bias[1] - bias[0]))


def check_class(
    system: EquationSystem, inputs: Sequence[Bit], core: ParsedCore, lead: Lead | None
) -> None:
    """Check that the class of two is the one with the higher score."""
    if lead is None:
        return
    bit = system.bit(only(core, "out_class"))
    if not _agree(lead.reaches(1), _comparison(system, bit, inputs)):
        raise VerifyError("the class is not that of the higher score")


def _comparison(system: EquationSystem, bit: Bit, inputs: Sequence[Bit]) -> _Comparison | None:
    """Coefficients of the inputs, and the bound that a bit compares their sum with.

    A constant bit has no coefficients and the bound 0 or 1. The result is None for other bits.
    """
    try:
        test = system.test(bit, _known(inputs))
    except Undecidable:
        return None if bit[0] else (np.zeros(len(inputs), dtype=np.int64), 1 - bit[1])
    except VerifyError:
        return None
    coefficients, shift = _signs(test.terms, inputs)
    return coefficients, test.bound - shift


def _agree(expected: _Comparison, actual: _Comparison | None) -> bool:
    """Whether two comparisons of the same bits always agree."""
    if actual is None or actual[0].any():
        return actual is not None and equal_tests(*expected, *actual)
    row, bound = expected
    # A constant agrees if no input contradicts it, so the extreme sum is tested.
    worst = np.maximum if actual[1] else np.minimum
    return (int(worst(row, 0).sum()) >= bound) != actual[1]


def shunt_of_lead(
    system: EquationSystem, bit: Bit, inputs: Sequence[Bit], lead: Lead, model_threshold: int
) -> int:
    """The smallest lead of either class that is decided on the card."""
    decided = (bit[0], bit[1] ^ 1)
    leads = sorted({abs(lead.constant + total) for total in _sums(lead.row)})
    ways = [
        [_comparison(system, part, inputs) for part in parts]
        for parts in ((decided,), system.alternatives(decided))
    ]
    for threshold in (model_threshold, *leads, leads[-1] + 1):
        if not bit[0]:
            if {margin >= threshold for margin in leads} == {bool(decided[1])}:
                return threshold
            continue
        sides = [lead.reaches(threshold), lead.turned().reaches(threshold)]
        # A bound that no input reaches has no logic, so that side is left out.
        sides = [(row, bound) for row, bound in sides if int(np.maximum(row, 0).sum()) >= bound]
        for comparisons in ways:
            for order in permutations(sides):
                if len(comparisons) == len(order) and all(map(_agree, order, comparisons)):
                    return threshold
    raise VerifyError("out_shunt is not whether the margin is below a threshold")


def shunt_of_margin(
    system: EquationSystem, bit: Bit, margin: Sequence[Bit], model_threshold: int
) -> int:
    """The smallest margin that is decided on the card."""
    weights: dict[int, int] = {}
    constant = 0
    for power, (variable, inverted) in enumerate(margin):
        constant += inverted << power
        if variable:
            sign = -1 if inverted else 1
            weights[variable] = weights.get(variable, 0) + (sign << power)
    least = constant + sum(min(w, 0) for w in weights.values())
    most = constant + sum(max(w, 0) for w in weights.values())
    try:
        test = system.test((bit[0], bit[1] ^ 1), set(weights))
    except Undecidable:  # constant: either all margins are decided, or no margin is
        return max(model_threshold, most + 1) if bit[1] else min(model_threshold, least)
    weight, coefficient = next((weights[v], c) for v, c in test.terms.items())
    if any(weights[v] * coefficient != c * weight for v, c in test.terms.items()):
        return _equal_threshold(weights, constant, test, model_threshold)
    # The bits that the test reads give sum(weights) >= edge, in steps of their common divisor.
    # The other bits of the margin must be too small to change the answer.
    step = gcd(*(weights[v] for v in test.terms))
    edge = -(-test.bound * weight // coefficient // step) * step
    others = [w for v, w in weights.items() if v not in test.terms]
    high = edge + constant + sum(min(w, 0) for w in others)
    low = edge - step + constant + sum(max(w, 0) for w in others) + 1
    if weight * coefficient < 0 or low > high:
        raise VerifyError("out_shunt is not a comparison of the margin")
    return min(max(model_threshold, low), high)


def _equal_threshold(
    weights: Mapping[int, int], constant: int, test: ThresholdTest, model_threshold: int
) -> int:
    """The threshold of a margin's test whose coefficients are not the margin's.

    An odd bound may count the lowest bit like the one above it: X + b >= 14 is 2 X + b >= 27.
    """
    own, read = (np.array([of.get(v, 0) for v in weights]) for of in (weights, test.terms))
    near = constant + test.bound * int(np.abs(own).max()) // int(np.abs(read).max())
    candidates: list[int] = [model_threshold, *range(near - 2, near + 3)]
    for threshold in candidates:
        if equal_tests(own, threshold - constant, read, test.bound):
            return threshold
    raise VerifyError("out_shunt is not a comparison of the margin")


def _sums(coefficients: NDArray[np.int64]) -> set[int]:
    """All values of sums over subsets of the coefficients."""
    sums = {0}
    for coefficient in coefficients.tolist():
        sums |= {total + coefficient for total in sums}
    return sums


def equal_tests(one: NDArray[np.int64], bound: int, other: NDArray[np.int64], limit: int) -> bool:
    """Whether two comparisons of the same bits always agree.

    Their coefficients may differ where the difference does not matter. The sums over the common
    coefficients form one set of values, so only the differing bits are enumerated.
    """
    first, second = int(np.abs(one).max()), int(np.abs(other).max())
    if not first or not second:
        return False
    one, bound, other, limit = one * second, bound * second, other * first, limit * first
    differing = np.flatnonzero(one != other)
    if len(differing) > _MOST_DIFFERING:
        return False
    sums = _sums(one[one == other])
    for chosen in product((0, 1), repeat=len(differing)):
        a, b = int(one[differing] @ chosen), int(other[differing] @ chosen)
        if any((total + a >= bound) != (total + b >= limit) for total in sums):
            return False
    return True
