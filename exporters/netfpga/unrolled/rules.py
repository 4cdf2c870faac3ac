# SPDX-License-Identifier: Apache-2.0
"""Builds rules as look-up tables: neurons that are an OR of ANDs, such as a tree and its leaves.

A neuron that fires if all its inputs agree is an AND. A neuron that fires if any of these ANDs
fires is a rule. The ANDs are not built one by one. Instead, common factors are extracted variable
by variable (``x a + !x b + c``), so the branches of a decision tree become selections. Dynamic
programming over the gates of the formula and their cheapest cuts then covers it with tables of six
inputs (cuts as in Cong and Ding, FlowMap, IEEE TCAD 1994).

Multiplied out, the formula gives exactly the ANDs that went in, so the decoder recovers all weights
(:mod:`n3ic.exporters.netfpga.unrolled.decode`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from n3ic.exporters.netfpga.unrolled.cells import MAX_INPUTS, rule
from n3ic.exporters.netfpga.unrolled.netlist import FALSE, TRUE, Netlist
from n3ic.model.layers import Connections, HiddenLayer
from n3ic.model.network import BinaryModel

Cube = frozenset[int]  # literals of an AND
_MOST_LITERALS = 64  # literals of an AND, which bound the depth of the recursion
_CUTS = 12  # cuts kept per gate
_COST = (0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # cost of a table by inputs: small ones share sites


@dataclass(frozen=True, eq=False)
class Gate:
    """A node of a formula.

    Attributes:
        kind: ``x`` for a literal, ``a`` for AND, ``o`` for OR, ``m`` for a selection.
        literal: the literal of ``x``, or the selecting literal of ``m``.
        children: two gates, none for ``x``; for ``m`` the values for 0 and for 1.
    """

    kind: str
    literal: int = 0
    children: tuple[Gate, ...] = ()


def is_ands(layer: Connections) -> bool:
    """Whether every neuron of a layer is an AND of inputs and inverted inputs."""
    return (
        isinstance(layer, HiddenLayer)
        and bool((layer.thresholds == layer.fan_in).all())
        and int(layer.fan_in.min()) > 0
        and int(layer.fan_in.max()) <= _MOST_LITERALS
    )


def is_ors(layer: Connections) -> bool:
    """Whether every neuron of a layer is an OR of inputs."""
    return (
        isinstance(layer, HiddenLayer)
        and bool((layer.thresholds == 1).all() and (layer.fan_in > 0).all())
        and bool((layer.weights if layer.mask is None else layer.weights | ~layer.mask).all())
    )


def layers(model: BinaryModel) -> frozenset[int]:
    """Indices of hidden layers that are ORs over a layer of ANDs, which only they read."""
    indices: set[int] = set()
    for i in range(1, len(model.hidden)):
        if i - 1 not in indices and is_ands(model.hidden[i - 1]) and is_ors(model.hidden[i]):
            indices.add(i)
    return frozenset(indices)


def cubes(ands: Connections, ors: Connections, neuron: int, literals: Sequence[int]) -> list[Cube]:
    """The satisfiable ANDs of one OR."""
    satisfiable: dict[Cube, None] = {}
    for j in _present(ors, neuron):
        own = _present(ands, j)
        cube = frozenset(literals[i] ^ int(not ands.weights[j, i]) for i in own) - {TRUE}
        if FALSE not in cube and not any(x ^ 1 in cube for x in cube):
            satisfiable[cube] = None
    return list(satisfiable)


def _present(layer: Connections, neuron: int) -> list[int]:
    """Indices of the inputs that a neuron is connected to."""
    if layer.mask is None:
        return list(range(layer.n_inputs))
    return np.flatnonzero(layer.mask[neuron]).tolist()


def factored(all_cubes: Sequence[Cube]) -> Gate:
    """Factor a non-empty list of non-empty ANDs to a formula that contains each once."""
    terms: list[Gate] = []
    remaining = list(all_cubes)
    while remaining:
        uses = Counter(x & ~1 for cube in remaining for x in cube)
        variable = min(uses, key=lambda x: (-uses[x], x))
        if uses[variable] == 1:  # no common factor is left
            terms += [_joined("a", [Gate("x", x) for x in sorted(cube)]) for cube in remaining]
            break
        ways = [
            [cube - {literal} for cube in remaining if literal in cube]
            for literal in (variable ^ 1, variable)
        ]
        remaining = [
            cube for cube in remaining if variable not in cube and variable ^ 1 not in cube
        ]
        # x a + !x b is one selection. An empty cube would make a branch the constant 1, so its
        # literal becomes a term of its own instead.
        if all(ways) and frozenset() not in (*ways[0], *ways[1]):
            terms.append(Gate("m", variable, (factored(ways[0]), factored(ways[1]))))
            continue
        for literal, way in zip((variable ^ 1, variable), ways, strict=True):
            alone = Gate("x", literal)
            terms += [alone for cube in way if not cube]
            if rest := [cube for cube in way if cube]:
                terms.append(Gate("a", children=(alone, factored(rest))))
    return _joined("o", terms)


def _joined(kind: str, gates: Sequence[Gate]) -> Gate:
    """A balanced tree of ANDs or of ORs."""
    if len(gates) == 1:
        return gates[0]
    half = len(gates) // 2
    return Gate(kind, children=(_joined(kind, gates[:half]), _joined(kind, gates[half:])))


@dataclass(frozen=True, eq=False)
class _Cut:
    """A table of a gate: the variables and gates that it reads, and the total cost."""

    variables: frozenset[int]
    gates: frozenset[Gate]
    cost: float  # total cost of the gates that it reads and all gates below

    @property
    def size(self) -> int:
        return len(self.variables) + len(self.gates)


def build(net: Netlist, gate: Gate, name: str) -> int:
    """Build a formula and return its literal, with a heuristically minimal number of tables."""
    best: dict[Gate, _Cut] = {}
    _choose(gate, best)
    return _emit(net, gate, best, name)


def _choose(gate: Gate, best: dict[Gate, _Cut]) -> list[_Cut]:
    """Return the cuts of a gate for the gate above; store the gate's own best cut in ``best``."""
    if gate.kind == "x":
        return [_Cut(frozenset({gate.literal & ~1}), frozenset(), 0.0)]
    first, second = (_choose(child, best) for child in gate.children)
    select = {gate.literal & ~1} if gate.kind == "m" else set[int]()
    cuts: dict[tuple[frozenset[int], frozenset[Gate]], _Cut] = {}
    for a in first:
        for b in second:
            cut = _Cut(a.variables | b.variables | select, a.gates | b.gates, a.cost + b.cost)
            if cut.size <= MAX_INPUTS:
                cuts.setdefault((cut.variables, cut.gates), cut)
    ranked = sorted(cuts.values(), key=lambda cut: (cut.cost + _COST[cut.size], cut.size))
    best[gate] = ranked[0]
    # The gate above may also read this gate's own table as one input.
    whole = _Cut(frozenset(), frozenset({gate}), ranked[0].cost + _COST[ranked[0].size])
    return [whole, *ranked[:_CUTS]]


def _emit(net: Netlist, gate: Gate, best: dict[Gate, _Cut], name: str) -> int:
    if gate.kind == "x":
        return gate.literal
    cut = best[gate]
    inputs: list[int] = []
    words: list[str] = []

    def spell(node: Gate) -> None:
        if node in cut.gates:
            place(_emit(net, node, best, name))
        elif node.kind == "x":
            place(node.literal)
        else:
            words.append(node.kind)
            if node.kind == "m":
                place(node.literal)
            for child in node.children:
                spell(child)

    def place(literal: int) -> None:
        known = next((x for x in inputs if x >> 1 == literal >> 1), None)
        if known is None:
            inputs.append(literal)
            known = literal
        if known != literal:
            words.append("n")
        words.append(str(inputs.index(known)))

    spell(gate)
    return net.cell(rule("".join(words)), inputs, [name])[0]


def fire(
    net: Netlist, ands: Connections, ors: Connections, literals: Sequence[int], name: str
) -> list[int]:
    """Literals of a layer of ORs over a layer of ANDs."""
    out = []
    for j in range(ors.n_outputs):
        and_cubes = cubes(ands, ors, j, literals)
        if not and_cubes or frozenset() in and_cubes:
            out.append(TRUE if and_cubes else FALSE)
        else:
            out.append(build(net, factored(and_cubes), f"{name}_n{j}"))
    return out
