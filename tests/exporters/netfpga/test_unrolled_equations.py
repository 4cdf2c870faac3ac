# SPDX-License-Identifier: Apache-2.0
"""The equations of a core's cells beside the cells themselves, computed for every input."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from n3ic.errors import VerifyError
from n3ic.exporters.netfpga.unrolled.decode import (
    Bit,
    EquationSystem,
    Undecidable,
    _fixed,
    _value,
    check_adders,
    claim,
    claimed_formula,
)
from n3ic.exporters.netfpga.unrolled.decode import (
    ThresholdTest as Comparison,
)
from n3ic.exporters.netfpga.unrolled.syntax import Literal, Module, ParsedCore, ParsedInstance

N = 4  # input bits of a core
ROWS = 1 << N
ADDERS = {
    "n3ic_add3": (3, "sk"),
    "n3ic_add5": (5, "sk"),
    "n3ic_add32": (5, "sk"),
    "n3ic_add7": (7, "smk"),
}


def sized(name: str, n_inputs: int, output) -> Module:
    """A module of one output ``y``, from a function of its input bits."""
    rows = (tuple(row >> k & 1 for k in range(n_inputs)) for row in range(1 << n_inputs))
    return Module(name, n_inputs, {"y": sum(int(output(x)) << i for i, x in enumerate(rows))})


def comparison(weights: Sequence[int], bound: int) -> Module:
    name = f"n3ic_ge{bound}_{'_'.join(map(str, weights))}"
    return sized(
        name, len(weights), lambda x: sum(w * b for w, b in zip(weights, x, strict=True)) >= bound
    )


def formula(text: str) -> Module:
    letters = max(int(c) for c in text if c.isdigit()) + 1
    return sized(f"n3ic_rule_{text}", letters, lambda x: _value(iter(text), x))


class Circuit:
    """Cells, and the value of each of their wires on every input."""

    def __init__(self, n_inputs: int = N) -> None:
        self.n = n_inputs
        self.cells: list[ParsedInstance] = []
        self.wires: dict[str, tuple[int, ...]] = {"": (0,) * (1 << n_inputs)}
        for i in range(n_inputs):
            self.wires[f"in_bits[{i}]"] = tuple(row >> i & 1 for row in range(1 << n_inputs))

    def value(self, literal: Literal) -> tuple[int, ...]:
        return tuple(bit ^ literal[1] for bit in self.wires[literal[0]])

    def add(self, module: Module, inputs: Sequence[Literal], ports: str = "y") -> list[Literal]:
        """Add a cell; the literals of its outputs."""
        outputs = {port: f"w{len(self.cells)}{port}" for port in ports}
        rows = list(zip(*map(self.value, inputs), strict=True))
        for index, (port, wire) in enumerate(outputs.items()):
            if port == "y" and module.outputs:
                table = module.outputs["y"]
                at = (sum(bit << k for k, bit in enumerate(row)) for row in rows)
                self.wires[wire] = tuple(table >> i & 1 for i in at)
            else:
                self.wires[wire] = tuple(_fixed(module.name, index, row) for row in rows)
        self.cells.append(ParsedInstance(module, tuple(inputs), outputs))
        return [(wire, 0) for wire in outputs.values()]

    def adder(self, name: str, inputs: Sequence[Literal]) -> list[Literal]:
        size, ports = ADDERS[name]
        return self.add(Module(name, size, {}), inputs, ports)

    def system(self) -> EquationSystem:
        return EquationSystem(ParsedCore(self.n, tuple(self.cells), {}))


def any_adders(seed: int, count: int = 7) -> Circuit:
    """Adders of any wires and constants, plain and inverted, often the same ones again."""
    rng = np.random.default_rng(seed)
    made = Circuit()
    for _ in range(count):
        name = [*ADDERS][rng.integers(4)]
        of = [*made.wires][-6 if rng.random() < 0.5 else 0 :]
        wires = rng.choice(of, ADDERS[name][0])
        made.adder(name, [(str(w), int(rng.integers(2))) for w in wires])
    return made


def values_of(system: EquationSystem) -> list[tuple[int, ...]]:
    """The value of each variable on every input, from the adders' equations."""
    n = len([bit for bit in system.bits if bit.startswith("in_bits")])
    values: dict[int, tuple[int, ...]] = {0: (0,) * (1 << n)}
    for i in range(n):
        values[i + 1] = tuple(row >> i & 1 for row in range(1 << n))
    for equation in system.equations:
        assert [weight for _, weight in equation.inputs] == [1] * len(equation.inputs)
        assert all(inverted in (0, 1) for (_, inverted), _ in equation.inputs)
        read = [[bit ^ inverted for bit in values[v]] for (v, inverted), _ in equation.inputs]
        counts = [sum(row) for row in zip(*read, strict=True)]
        total, turned = equation.total
        odd = tuple((count & 1) ^ turned for count in counts)
        assert values.setdefault(total, odd) == odd
        values[equation.variable] = tuple(count >> 1 for count in counts)
    return [values[v] for v in range(len(system.defined))]


@pytest.mark.parametrize("seed", range(40))
def test_the_equations_of_adders_hold_on_every_input(seed):
    made = any_adders(seed)
    system = made.system()
    values = values_of(system)
    for wire, wanted in made.wires.items():
        variable, inverted = system.bit((wire, 0))
        assert inverted in (0, 1)
        assert tuple(bit ^ inverted for bit in values[variable]) == wanted, wire
        assert system.bit((wire, 1)) == (variable, inverted ^ 1)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("modulus", [0, 8])
def test_a_weighted_sum_of_wires_lies_in_the_solved_range(seed, modulus):
    made = any_adders(seed)
    system, rng = made.system(), np.random.default_rng(seed)
    values = values_of(system)
    known = {*range(1, N + 1)} | {int(v) for v in rng.integers(1, len(values), 2)}
    wires = [(str(w), int(rng.integers(2))) for w in rng.choice([*made.wires][1:], 4)]
    weights = rng.choice([-4, -2, -1, 1, 2, 3, 4, 8], 4).tolist()
    asked = [(system.bit(w), Fraction(weight)) for w, weight in zip(wires, weights, strict=True)]
    form = system.solve(asked, known, modulus)
    assert 0 not in form.terms.values() and set(form.terms) <= known
    for row in range(ROWS):
        wanted = sum(w * made.value(x)[row] for w, x in zip(weights, wires, strict=True))
        total = form.constant + sum(c * values[v][row] for v, c in form.terms.items())
        low, high = form.low + total - wanted, form.high + total - wanted
        # Some multiple of the modulus is between them; without a modulus, 0 is.
        multiple = high // modulus * modulus if modulus else 0
        assert low <= multiple <= high, (row, form)


@pytest.mark.parametrize("weights", [(1, 0), (0, 1), (3, 1), (1, 3), (-1, 1), (2, -3), (-2, -4)])
@pytest.mark.parametrize("flips", [*product((0, 1), repeat=3)])
@pytest.mark.parametrize("third", ["", "in_bits[2]"])
def test_the_range_of_what_is_left_out_is_no_larger_than_it_is(weights, flips, third):
    """A sum and a carry with weights that no sum of the inputs has leave one bit as a rest."""
    made = Circuit(3)
    wires = [*(f"in_bits[{i}]" for i in range(2)), third]
    total, carry = made.adder("n3ic_add3", [*zip(wires, flips, strict=True)])
    system = made.system()
    asked = [(system.bit(x), Fraction(w)) for x, w in zip((total, carry), weights, strict=True)]
    form = system.solve(asked, {1, 2, 3})
    rests = set()
    for row in range(8):
        wanted = sum(w * made.value(x)[row] for x, w in zip((total, carry), weights, strict=True))
        lit = (c for v, c in form.terms.items() if row >> (v - 1) & 1)
        rests.add(wanted - form.constant - sum(lit))
    assert (min(rests), max(rests)) == (form.low, form.high)


def exact(made: Circuit, asked: Sequence[tuple[Literal, int]], wanted: dict[int, int]) -> None:
    """A weighted sum of wires is one of input bits, without a rest."""
    system = made.system()
    inputs = [system.bit((f"in_bits[{i}]", 0))[0] for i in range(made.n)]
    bits = [(system.bit(x), Fraction(weight)) for x, weight in asked]
    form = system.solve(bits, set(inputs))
    assert (form.low, form.high) == (0, 0)
    assert form.terms == {inputs[i]: c for i, c in wanted.items() if c}
    for row in range(0, 1 << made.n, 7):
        total = sum(w * made.value(x)[row] for x, w in asked)
        assert total == form.constant + sum(c * (row >> i & 1) for i, c in wanted.items())


@pytest.mark.parametrize("sign", [0, 1])
@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_a_sum_of_two_numbers_is_solved_through_its_carries(width, sign):
    """``a + b``, or ``a - b`` as ``a + !b + 1``, whose last carry counts as well."""
    made, carry, asked = Circuit(2 * width), ("", sign), []
    for k in range(width):
        bits = ((f"in_bits[{k}]", 0), (f"in_bits[{width + k}]", sign), carry)
        total, carry = made.adder("n3ic_add3", bits)
        asked.append((total, 1 << k))
    weights = {k: 1 << k for k in range(width)}
    second = {width + k: (1 - 2 * sign) << k for k in range(width)}
    exact(made, [*asked, (carry, 1 << width)], weights | second)
    exact(made, [(x, -3 * w) for x, w in (*asked, (carry, 1 << width))], {
        i: -3 * c for i, c in (weights | second).items()
    })  # fmt: skip


@pytest.mark.first_case
@pytest.mark.parametrize("order", range(6))
def test_a_number_of_bits_is_solved_in_any_order_of_its_adders(order):
    """Eleven bits: five, five with a sum of them, then carries; wires are asked in any order."""
    rng = np.random.default_rng(order)
    made = Circuit(11)
    bits = [(f"in_bits[{i}]", int(rng.integers(2))) for i in rng.permutation(11)]
    ones, two = made.adder("n3ic_add3", bits[:3])
    ones, twos = made.adder("n3ic_add3", (ones, *bits[3:5]))
    odd, four, *_ = made.adder("n3ic_add3", (two, twos, ("", 0)))
    low, middle, high = made.adder("n3ic_add7", (ones, *bits[5:]))
    twice, fours = made.adder("n3ic_add3", (odd, middle, ("", 0)))
    fours, eights = made.adder("n3ic_add3", (four, high, fours))
    asked = [(low, 1), (twice, 2), (fours, 4), (eights, 8)]
    turned = {int(name[8:-1]): 1 - 2 * flip for name, flip in bits}
    exact(made, [asked[i] for i in rng.permutation(4)], turned)


def test_a_table_is_an_equation_of_its_inputs():
    made = Circuit(3)
    bits = [(f"in_bits[{i}]", i & 1) for i in range(3)]
    made.add(sized("n3ic_table3_x", 3, lambda x: x[0] ^ x[2]), bits)
    (equation,) = made.system().equations
    assert (equation.kind, equation.table, equation.total) == ("table", 0b01011010, (0, 0))
    assert equation.inputs == (((1, 0), 1), ((2, 1), 1), ((3, 0), 1))


def test_the_same_sum_makes_one_equation_however_its_bits_are_turned():
    x, y, z = ((f"in_bits[{i}]", 0) for i in range(3))
    made = Circuit(3)
    for bits in ((x, y, z), (z, x, y), [(name, 1) for name, _ in (y, x, z)]):
        made.adder("n3ic_add3", bits)
    system = made.system()
    assert len(system.equations) == 1
    (first, _), (last, turned) = system.bit(("w0s", 0)), system.bit(("w2s", 0))
    assert (first, turned) == (last, system.bit(("w0s", 0))[1] ^ 1)


# --- comparisons ------------------------------------------------------------------------------


def agrees(made: Circuit, literal: Literal, known: set[int] | None = None) -> str:
    """What a comparison is read as: ``ValueError`` where it is read as another function."""
    system = made.system()
    inputs = {system.bit((f"in_bits[{i}]", 0))[0]: i for i in range(made.n)}
    try:
        test = system.test(system.bit(literal), known or set(inputs))
    except Undecidable:
        return "constant"
    except VerifyError as error:
        return str(error)
    for row, wanted in enumerate(made.value(literal)):
        total = sum(c * (row >> inputs[v] & 1) for v, c in test.terms.items())
        if (total >= test.bound) != bool(wanted):
            return f"wrong for {row}: {test}"
    return "right"


def counted(turned: int = 0) -> tuple[Circuit, list[Literal]]:
    """Seven input bits, of which three may be inverted, and the bits of their number."""
    made = Circuit(7)
    bits = [(f"in_bits[{i}]", turned if i % 3 else 0) for i in range(7)]
    return made, made.adder("n3ic_add7", bits)


@pytest.mark.parametrize("turned", [0, 1])
@pytest.mark.parametrize("inverted", [0, 1])
@pytest.mark.parametrize("bound", range(1, 8))
def test_a_bound_of_a_number_of_bits(turned, inverted, bound):
    made, number = counted(turned)
    (reached,) = made.add(comparison((1, 2, 4), bound), number)
    assert agrees(made, (reached[0], inverted)) == "right"


@pytest.mark.parametrize("scale", [1, 2, 3])
@pytest.mark.parametrize("bound", range(1, 10))
def test_a_bound_between_what_sums_reach_is_the_next_of_them(scale, bound):
    """Without the lowest bit, and with weights that have a common divisor."""
    made, number = counted()
    for part, weights in ((number[1:], (scale, 2 * scale)), (number[2:], (scale,))):
        if bound <= sum(weights):
            (reached,) = made.add(comparison(weights, bound), part)
            assert agrees(made, reached) == "right"
    made = Circuit(3)
    both = made.adder("n3ic_add3", [(f"in_bits[{i}]", 0) for i in range(3)])
    (reached,) = made.add(comparison((scale, scale), bound), both)
    assert bound > 2 * scale or agrees(made, reached) == "right"


@pytest.mark.parametrize("constant", [0, 1])
@pytest.mark.parametrize("inverted", [0, 1])
def test_the_highest_bit_of_a_number_is_a_comparison(constant, inverted):
    """An adder with a constant is an AND or an OR; a sum bit below a carry is no comparison."""
    made = Circuit(2)
    x, y = ("in_bits[0]", 1), ("in_bits[1]", 0)
    total, carry = made.adder("n3ic_add3", (x, y, ("", constant)))
    assert agrees(made, (carry[0], inverted)) == "right"
    assert "leaves out can change its answer" in agrees(made, (total[0], inverted))
    assert agrees(made, (x[0], inverted)) == "right"
    made, number = counted()
    assert agrees(made, (number[2][0], inverted)) == "right"
    assert "leaves out can change its answer" in agrees(made, (number[1][0], inverted))


def test_what_a_comparison_leaves_out_must_be_less_than_its_step():
    """Of s + 4 k, a multiple of 1, 2 (s + 2 k) is a sum of inputs, and s is left: 0 or 1."""
    made = Circuit(3)
    both = made.adder("n3ic_add3", [(f"in_bits[{i}]", 0) for i in range(3)])
    for weights in ((1, 4), (1, 0), (3, 4)):
        for bound in range(1, sum(weights) + 1):
            (reached,) = made.add(comparison(weights, bound), both)
            assert "leaves out can change its answer" in agrees(made, reached)
    (reached,) = made.add(comparison((0, 0), 0), both)
    assert "leaves out can change its answer" in agrees(made, reached)


def test_a_comparison_of_inputs_that_count_differently():
    made = Circuit(3)
    bits = [(f"in_bits[{i}]", i & 1) for i in range(3)]
    for weights in ((2, 3, 4), (3, 2, 6), (6, 4, 2), (1, 1, 5)):
        for bound in range(1, sum(weights) + 1):
            (reached,) = made.add(comparison(weights, bound), bits)
            assert agrees(made, reached) == "right", (weights, bound)
            assert agrees(made, (reached[0], 1)) == "right", (weights, bound)


def test_a_constant_is_no_comparison():
    made = Circuit(2)
    x, turned = ("in_bits[0]", 0), ("in_bits[0]", 1)
    (always,) = made.add(comparison((1, 1), 1), (x, turned))
    for literal in (always, ("", 0), ("", 1)):
        assert agrees(made, literal) == "constant"


OR = (1, 1), 1


@pytest.mark.parametrize(
    ("inner", "outer", "turned", "is_equal"),
    [
        (OR, OR, 0, "right"),
        (((2, 3), 1), ((3, 1), 1), 0, "right"),
        (((2, 0), 1), OR, 0, "right"),  # an input that counts nothing
        (OR, OR, 1, "a comparison is used as a number"),
        (((1, 1), 2), OR, 0, "a comparison is used as a number"),
        (OR, ((1, 1), 2), 0, "a comparison is used as a number"),
    ],
)
def test_only_an_or_of_ors_is_one_comparison(inner, outer, turned, is_equal):
    made = Circuit(4)
    w, x, y, z = ((f"in_bits[{i}]", 0) for i in range(4))
    ((name, _),) = made.add(comparison(*inner), (w, x))
    (last,) = made.add(comparison(*outer), ((name, turned), y))
    assert agrees(made, last) == is_equal
    (first,) = made.add(comparison(*outer), (z, (name, turned)))
    assert agrees(made, first) == is_equal


def test_what_a_layer_reads_is_not_expanded():
    made = Circuit(3)
    x, y, z = ((f"in_bits[{i}]", 0) for i in range(3))
    (inner,) = made.add(comparison(*OR), (x, y))
    (outer,) = made.add(comparison(*OR), (inner, z))
    system = made.system()
    (own, _), (other, _) = system.bit(inner), system.bit(z)
    assert system.test((own, 0), {own}) == Comparison({own: 1}, 1)
    assert system.test((own, 1), {own}) == Comparison({own: -1}, 0)
    assert system.test(system.bit(outer), {own, other}) == Comparison({own: 1, other: 1}, 1)


def test_an_or_has_its_inputs_as_alternatives():
    made = Circuit(3)
    x, y, z = ((f"in_bits[{i}]", i & 1) for i in range(3))
    (either,) = made.add(comparison((1, 1, 1), 1), (x, y, z))
    (both,) = made.add(comparison((1, 1), 2), (x, y))
    total, _ = made.adder("n3ic_add3", (x, y, z))
    system = made.system()
    assert system.alternatives(system.bit(either)) == ((1, 0), (2, 1), (3, 0))
    for literal in ((either[0], 1), both, total, x, ("", 0)):
        assert system.alternatives(system.bit(literal)) == ()


# --- formulas ---------------------------------------------------------------------------------


def expanded(made: Circuit, literal: Literal, most: int = 99) -> list[list[Bit]] | None:
    system = made.system()
    cubes = system.multiplied_out(system.bit(literal), set(range(1, made.n + 1)), most)
    return None if cubes is None else [sorted(cube) for cube in cubes]


@pytest.mark.parametrize(
    ("text", "cubes"),
    [
        ("a01", [[0, 1]]),
        ("o01", [[0], [1]]),
        ("an01", [[~0, 1]]),
        ("ann0n1", [[0, ~1]]),
        ("m012", [[~0, 1], [0, 2]]),
        ("mn012", [[0, 1], [~0, 2]]),
        ("ao01o23", [[0, 2], [0, 3], [1, 2], [1, 3]]),
        ("moo00120", None),  # the selecting bit is an OR
        ("na01", None),
        ("no01", None),
        ("ana012", None),
        ("oa0na122", None),
        ("a2na01", None),
        ("o2na01", None),
    ],
)
def test_a_formula_is_an_or_of_ands(text, cubes):
    """A number is an input, ``~`` of it the inverted input."""
    made = Circuit(4)
    needed = max(int(c) for c in text if c.isdigit()) + 1
    (out,) = made.add(formula(text), [(f"in_bits[{i}]", 0) for i in range(needed)])
    wanted = cubes and [
        sorted((i + 1, 0) if i >= 0 else (~i + 1, 1) for i in cube) for cube in cubes
    ]
    assert expanded(made, out) == wanted
    if cubes:
        lit = [
            any(all((row >> (v - 1) & 1) != flip for v, flip in cube) for cube in wanted)
            for row in range(ROWS)
        ]
        assert tuple(map(int, lit)) == made.value(out)
        assert expanded(made, out, len(cubes)) == wanted
    if cubes and len(cubes) > 1:  # one AND has no operator whose ANDs are counted
        with pytest.raises(VerifyError, match=f"a formula has more than {len(cubes) - 1} ANDs"):
            expanded(made, out, len(cubes) - 1)


def test_formulas_of_formulas():
    made = Circuit(4)
    w, x, y, z = ((f"in_bits[{i}]", i & 1) for i in range(4))
    ((inner, _),) = made.add(formula("o01"), (w, x))
    (outer,) = made.add(formula("a01"), ((inner, 0), y))
    (turned,) = made.add(formula("a01"), ((inner, 1), y))
    (other,) = made.add(comparison(*OR), (y, z))
    (mixed,) = made.add(formula("a01"), (other, z))
    assert expanded(made, outer) == [[(1, 0), (3, 0)], [(2, 1), (3, 0)]]
    assert expanded(made, x) == [[(2, 1)]]
    for literal in (turned, (outer[0], 1), other, mixed, ("", 0)):
        assert expanded(made, literal) is None


@pytest.mark.parametrize(
    ("text", "n_inputs", "message"),
    [
        ("01", 2, "no formula after 1 letters"),
        ("a012", 3, "no formula after 3 letters"),
        ("a0", 2, "does not compute a formula of its inputs"),
        ("m01", 2, "does not compute a formula of its inputs"),
        ("n", 1, "does not compute a formula of its inputs"),
        ("a02", 2, "does not compute a formula of its inputs"),
        ("a20", 2, "does not compute a formula of its inputs"),
        ("n" * 64, 1, "does not compute a formula of its inputs"),
        ("a01", 2, "y is wrong for in = 3"),
    ],
)
def test_a_name_that_is_no_formula(text, n_inputs, message):
    with pytest.raises(VerifyError, match=f"^module n3ic_rule_{text}:? {message}$"):
        claimed_formula(Module(f"n3ic_rule_{text}", n_inputs, {"y": 0}))


@pytest.mark.parametrize(
    "text", ["0", "n0", "a01", "o10", "m012", "mn01a23", "n" * 63 + "0", "a05"]
)
def test_a_name_that_is_a_formula(text):
    assert claimed_formula(formula(text)) == text
    longer = Module(f"n3ic_rule_n{'n' * 63}0", 1, {"y": 2})
    assert claimed_formula(longer) is None
    with pytest.raises(VerifyError, match=f"module {longer.name} is of an unknown kind"):
        claim(longer)


def test_a_comparison_has_its_weights_and_bound_in_its_name():
    assert claim(comparison((1, 20, 3), 21)) == ((1, 20, 3), 21)
    wrong = comparison((1, 2), 3)
    for row in range(4):
        changed = Module(wrong.name, 2, {"y": wrong.outputs["y"] ^ 1 << row})
        with pytest.raises(VerifyError, match=f"{wrong.name}: y is wrong for in = {row}$"):
            claim(changed)


# --- cells of fixed function ------------------------------------------------------------------


def fixed(name: str, size: int, ports: Sequence[str]) -> Module:
    rows = [tuple(row >> k & 1 for k in range(size)) for row in range(1 << size)]
    return Module(
        name,
        size,
        {
            port: sum(_fixed(name, index, bits) << row for row, bits in enumerate(rows))
            for index, port in enumerate(ports)
        },
    )


FIXED = {**ADDERS, "n3ic_parity6": (6, "s"), "n3ic_mux": (3, "y")}


@pytest.mark.parametrize("name", FIXED)
def test_a_cell_of_fixed_function_has_its_ports_and_its_function(name):
    size, ports = FIXED[name]
    right = fixed(name, size, ports)
    check_adders({name: right})
    check_adders({"n3ic_other": right})
    for port in ports:
        for row in (0, 5, (1 << size) - 2, (1 << size) - 1):
            changed = {**right.outputs, port: right.outputs[port] ^ 1 << row}
            with pytest.raises(
                VerifyError, match=f"^module {name}: {port} is wrong for in = {row}$"
            ):
                check_adders({name: Module(name, size, changed)})
    for other in (
        Module(name, size + 1, right.outputs),
        Module(name, size - 1, right.outputs),
        Module(name, size, {**right.outputs, "z": 0}),
        Module(name, size, dict(list(right.outputs.items())[1:])),
    ):
        with pytest.raises(VerifyError, match=f"^module {name} has other ports than expected$"):
            check_adders({name: other})


def test_the_sums_of_adders():
    for bits in product((0, 1), repeat=7):
        assert [_fixed("n3ic_add7", i, bits) for i in range(3)] == [
            sum(bits) >> i & 1 for i in range(3)
        ]
    for bits in product((0, 1), repeat=5):
        first = sum(bits[:3])
        for name, part in (("n3ic_add5", first & 1), ("n3ic_add32", first >> 1)):
            total = part + bits[3] + bits[4]
            assert [_fixed(name, i, bits) for i in range(2)] == [total & 1, total >> 1]
