# SPDX-License-Identifier: Apache-2.0
"""Reads the sums of an unrolled core back from its Verilog, for all inputs.

The decoder of binary networks solves the adders (:mod:`n3ic.exporters.netfpga.unrolled.decode`),
which leaves each score as a sum of functions of input bits. Such a sum has exactly one form as a
polynomial in the input bits without powers, so two sums are equal iff their coefficients are. The
decoder cannot tell which table an entry belongs to: tables that read the same inputs may split
their sum in many ways.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import VerifyError
from n3ic.exporters.netfpga.unrolled.decode import (
    CORE,
    Bit,
    Equation,
    EquationSystem,
    Lead,
    check_adders,
    check_class,
    of_core,
    output,
    same_class,
    score_literals,
    shunt_literal,
    shunt_of_lead,
    shunt_of_margin,
    unwrapped,
)
from n3ic.exporters.netfpga.unrolled.syntax import Literal, ParsedCore, read_core, read_modules
from n3ic.model.classifier import Classifier
from n3ic.model.family import graph_of
from n3ic.model.graph.bit_tables import bit_tables
from n3ic.model.graph.operations import MAX_SELECT_BITS
from n3ic.targets.decoding import Decoded

Polynomial = Mapping[frozenset[int], int]
"""Coefficients by the input bits that are multiplied; none of them is 0."""


def decode(directory: Path, model: Classifier) -> Decoded:
    """Compare an unrolled core with its model on all inputs: scores, and what is shunted.

    For two classes, the class is compared as well. For more classes, test vectors check it.

    Raises:
        VerifyError: the Verilog cannot be read, or does not compute the model.
    """
    shunt = of_core(directory, lambda core, cells: _compare(core, cells, model))
    return Decoded(CORE, (), shunt=shunt)


def _compare(core_text: str, cells_text: str, model: Classifier) -> int | None:
    """Compare the scores with the model's; return the shunting threshold, None without one."""
    modules = read_modules(cells_text)
    check_adders(modules)
    core = read_core(core_text, modules)
    plain = read_core(core_text, modules, debug=False)
    same_class(core, plain)
    if core.n_inputs != model.input.n_bits:
        raise VerifyError(f"{core.n_inputs} input bits, the model has {model.input.n_bits}")
    system = EquationSystem(core)
    inputs = {system.bit((f"in_bits[{i}]", 0))[0]: i for i in range(core.n_inputs)}
    known = set(inputs) | {e.variable for e in system.equations if e.kind == "table"}
    scores = score_literals(core, len(model.classes))
    score_terms = [_score(system, literals, known, c) for c, literals in enumerate(scores)]
    modulus = 1 << len(scores[0])
    for c, (constant, terms) in enumerate(score_terms):
        expected = _of_model(model, c)
        got = Counter({frozenset[int](): constant})
        for variable, coefficient in terms.items():
            for product, factor in _of_bit(system, variable, inputs).items():
                got[product] += coefficient * factor
        for product in expected.keys() | got.keys():
            # Every score fits its bits, so scores that agree modulo 2**width are equal.
            if (got[product] - expected.get(product, 0)) % modulus:
                bits = " and ".join(str(bit) for bit in sorted(product)) or "no"
                raise VerifyError(
                    f"the score of class {c} counts {bits} input bits with {got[product]}, "
                    f"the model with {expected.get(product, 0)} modulo {modulus}"
                )
    return _decisions(system, core, plain, score_terms, model.shunt)


def _score(
    system: EquationSystem, literals: Sequence[Literal], known: set[int], c: int
) -> tuple[int, dict[int, int]]:
    """A score as a constant and the coefficients of known bits, modulo its range."""
    modulus = 1 << len(literals)
    bits = [(system.bit(x), Fraction(1 << power)) for power, x in enumerate(literals)]
    solution = system.solve(bits, known, modulus)
    whole = all(t.denominator == 1 for t in (solution.constant, *solution.terms.values()))
    if solution.low or solution.high or not whole:
        raise VerifyError(f"the score of class {c} is not shown to be a sum of entries")
    half = modulus // 2
    terms = {v: unwrapped(int(t), half) for v, t in solution.terms.items()}
    return int(solution.constant), {v: t for v, t in terms.items() if t}


def _decisions(
    system: EquationSystem,
    core: ParsedCore,
    plain: ParsedCore,
    score_terms: Sequence[tuple[int, dict[int, int]]],
    threshold: int,
) -> int | None:
    """Check the comparison that picks one of two classes; return the shunting threshold."""
    literal = shunt_literal(core, threshold)
    margin = [system.bit(x) for x in output(core, "out_margin")]
    if len(score_terms) > 2 or "out_scores" in plain.outputs:
        if literal is None:
            return None
        return shunt_of_margin(system, system.bit(literal), margin, threshold)
    constant, terms = score_terms[1]
    row = np.array(list(terms.values()), dtype=np.int64)
    half = 1 << len(margin) - 1
    lead = Lead(row, unwrapped(constant, half, int(np.minimum(row, 0).sum())))
    read: list[Bit] = [(variable, 0) for variable in terms]
    check_class(system, read, core, lead)
    if literal is None:
        return None
    return shunt_of_lead(system, system.bit(literal), read, lead, threshold)


def _of_bit(system: EquationSystem, variable: int, inputs: Mapping[int, int]) -> Polynomial:
    """A table's output, or an input bit, as a polynomial."""
    read = sorted(_cone(system, variable, inputs))
    if len(read) > MAX_SELECT_BITS:
        raise VerifyError(f"an entry's bit depends on {len(read)} input bits")
    rows = np.arange(1 << len(read))
    values = {0: np.zeros_like(rows)} | {v: rows >> k & 1 for k, v in enumerate(read)}
    return _polynomial(_values(system, variable, values), [inputs[v] for v in read])


def _cone(system: EquationSystem, variable: int, inputs: Mapping[int, int]) -> set[int]:
    """The input bits that a table's output depends on."""
    if variable in inputs:
        return {variable}
    read = _table_of(system, variable).inputs
    return {v for (inner, _), _ in read if inner for v in _cone(system, inner, inputs)}


def _values(
    system: EquationSystem, variable: int, values: Mapping[int, NDArray[np.int64]]
) -> NDArray[np.int64]:
    """The values of a table's output, from those of input bits."""
    if variable in values:
        return values[variable]
    equation = _table_of(system, variable)
    index = sum(
        (_values(system, inner, values) ^ inverted) << k
        for k, ((inner, inverted), _) in enumerate(equation.inputs)
    )
    outputs = np.array([equation.table >> row & 1 for row in range(1 << len(equation.inputs))])
    return np.asarray(outputs[index])


def _table_of(system: EquationSystem, variable: int) -> Equation:
    index = system.defined[variable]
    if index is None or system.equations[index].kind != "table":
        raise VerifyError("an entry's bit depends on a sum")
    return system.equations[index]


def _of_model(model: Classifier, c: int) -> Polynomial:
    """A class's score as a polynomial."""
    own = bit_tables(graph_of(model))
    if own is None:
        raise VerifyError("the model adds up no look-up tables")
    if len(own.bias) == 1 and c == 0:
        return {}
    s = c if len(own.bias) > 1 else 0
    out = Counter({frozenset[int](): int(own.bias[s])})
    for table in own.tables:
        out.update(_polynomial(table.entries[:, s], table.bits))
    return out


def _polynomial(values: NDArray[np.int64], bits: Sequence[int]) -> dict[frozenset[int], int]:
    """The polynomial of a function: a coefficient for each set of its bits."""
    remainder = values.copy()
    for k in range(len(bits)):
        halves = remainder.reshape(-1, 2, 1 << k)
        halves[:, 1] -= halves[:, 0]
    return {
        frozenset(bit for k, bit in enumerate(bits) if row >> k & 1): int(remainder[row])
        for row in np.flatnonzero(remainder).tolist()
    }
