# SPDX-License-Identifier: Apache-2.0
"""The kinds of cell of an unrolled core: at most six inputs, and one table per output.

Adders are pairs of three-input tables, so that two outputs of the same inputs share one site. A
wider adder omits the outputs that a full adder of its first three inputs computes. One adder reads
seven bits: its three tables fill two sites and use the carry logic beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from math import gcd

MAX_INPUTS = 6  # inputs of a look-up table


@dataclass(frozen=True)
class Kind:
    """A kind of cell, written as a module in the Verilog.

    Attributes:
        name: name of the module.
        ports: names of its outputs.
        tables: one table per output; bit ``i`` is the output when input ``k`` is bit ``k`` of
            ``i``.
        n_inputs: number of inputs.
        swaps: lengths of runs of interchangeable inputs.
        self_dual: whether inverting all inputs inverts all outputs.
        formula: the outputs as a formula for readers.
        merges: whether an output may replace the same function of another cell. Not for a cell
            whose structure the decoder reads: a comparison's weights, or the signs of a parity.
        folds: whether an output that is constant or a copy of an input is replaced by it.
    """

    name: str
    ports: tuple[str, ...]
    tables: tuple[int, ...]
    n_inputs: int
    swaps: tuple[int, ...]
    self_dual: bool
    formula: str
    merges: bool = True
    folds: bool = True


def _table(n_inputs: int, holds: Callable[[tuple[int, ...]], int]) -> int:
    table = 0
    for index in range(1 << n_inputs):
        if holds(tuple(index >> k & 1 for k in range(n_inputs))):
            table |= 1 << index
    return table


def _majority(bits: Sequence[int]) -> int:
    return int(sum(bits[:3]) >= 2)


def _rest(bits: Sequence[int]) -> int:
    """Sum of five bits minus twice the majority of the first three."""
    return sum(bits) - 2 * _majority(bits)


def _bit_of_sum(bit: int) -> Callable[[tuple[int, ...]], int]:
    return lambda bits: sum(bits) >> bit & 1


def _upper(bits: Sequence[int]) -> int:
    """Sum of three bits and two bits of double weight, without its lowest bit."""
    return (sum(bits[:3]) + 2 * sum(bits[3:])) >> 1


ADD3 = Kind(
    "n3ic_add3",
    ("s", "k"),
    (_table(3, lambda x: sum(x) & 1), _table(3, _majority)),
    3,
    (3,),
    self_dual=True,
    formula="in[0] + in[1] + in[2] = s + 2 k",
)
ADD5 = Kind(
    "n3ic_add5",
    ("s", "k"),
    (_table(5, lambda x: _rest(x) & 1), _table(5, lambda x: _rest(x) >> 1)),
    5,
    (3, 2),
    self_dual=True,
    formula="in[0] + ... + in[4] = s + 2 k + 2 majority(in[0], in[1], in[2])",
)
ADD32 = Kind(
    "n3ic_add32",
    ("s", "k"),
    (_table(5, lambda x: _upper(x) & 1), _table(5, lambda x: _upper(x) >> 1)),
    5,
    (3, 2),
    self_dual=True,
    formula="in[0] + in[1] + in[2] + 2 in[3] + 2 in[4] = parity(in[0], in[1], in[2]) + 2 s + 4 k",
)
ADD7 = Kind(
    "n3ic_add7",
    ("s", "m", "k"),
    tuple(_table(7, _bit_of_sum(bit)) for bit in range(3)),
    7,
    (),
    self_dual=False,
    formula="in[0] + ... + in[6] = s + 2 m + 4 k",
    merges=False,
)
PARITY = Kind(
    "n3ic_parity6",
    ("s",),
    (_table(6, lambda x: sum(x) & 1),),
    6,
    (6,),
    self_dual=False,
    formula="in[0] + ... + in[5] = s + 2 n",
    merges=False,
)
MUX = Kind(
    "n3ic_mux",
    ("y",),
    (_table(3, lambda x: x[2] if x[0] else x[1]),),
    3,
    (),
    self_dual=False,
    formula="y = in[0] ? in[2] : in[1]",
)


@cache
def at_least(weights: tuple[int, ...], bound: int) -> Kind:
    """The kind that tests whether a weighted sum of at most six bits reaches ``bound``."""
    divisor = gcd(*weights)
    weights, bound = tuple(w // divisor for w in weights), -(-bound // divisor)
    terms = " + ".join(f"{f'{w} ' if w > 1 else ''}in[{k}]" for k, w in enumerate(weights))
    return Kind(
        f"n3ic_ge{bound}_{'_'.join(str(w) for w in weights)}",
        ("y",),
        (
            _table(
                len(weights),
                lambda x: int(sum(w * b for w, b in zip(weights, x, strict=True)) >= bound),
            ),
        ),
        len(weights),
        (),
        self_dual=False,
        formula=f"y = {terms} >= {bound}",
        merges=False,
    )


@cache
def lookup(table: int, n_inputs: int) -> Kind:
    """The kind of any function of at most six inputs."""
    return Kind(
        f"n3ic_table{n_inputs}_{table:x}",
        ("y",),
        (table,),
        n_inputs,
        (),
        self_dual=False,
        formula=f"y = bit 'in' of {table:x}",
    )


@cache
def rule(formula: str) -> Kind:
    """The kind of a formula over at most six inputs, in prefix order.

    ``a`` is AND, ``o`` OR, ``n`` NOT, a digit an input, and ``m`` a selection with three operands:
    the selector, the value for 0, the value for 1.
    """
    n_inputs = 1 + max(int(c) for c in formula if c.isdigit())
    return Kind(
        f"n3ic_rule_{formula}",
        ("y",),
        (_table(n_inputs, lambda x: evaluate(formula, x)),),
        n_inputs,
        (),
        self_dual=False,
        formula=f"y = {_infix(iter(formula))}",
        merges=False,
        folds=False,
    )


def evaluate(formula: str, inputs: Sequence[int]) -> int:
    """Evaluate a formula in prefix order."""
    letters = iter(formula)

    def value() -> int:
        letter = next(letters)
        if letter == "n":
            return 1 - value()
        if letter == "m":
            select, zero, one = value(), value(), value()
            return one if select else zero
        if letter in "ao":
            first, second = value(), value()
            return first & second if letter == "a" else first | second
        return inputs[int(letter)]

    return value()


def _infix(letters: Iterator[str]) -> str:
    letter = next(letters)
    if letter == "n":
        return f"!{_infix(letters)}"
    if letter == "m":
        select, zero, one = (_infix(letters) for _ in range(3))
        return f"({select} ? {one} : {zero})"
    if letter in "ao":
        first, second = _infix(letters), _infix(letters)
        return f"({first} {'&' if letter == 'a' else '|'} {second})"
    return f"in[{letter}]"
