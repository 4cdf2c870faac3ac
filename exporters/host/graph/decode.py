# SPDX-License-Identifier: Apache-2.0
"""Reads a graph back from the constants of ``bnn.c``; shares nothing with their writer."""

from __future__ import annotations

import re
from pathlib import Path

from n3ic.errors import ModelError
from n3ic.exporters.host.constants import (
    FILE,
    Constants,
    c_text,
    octets_of,
    scale_of,
    text_of,
    wrong,
)
from n3ic.exporters.host.graph.readback import CNode, CProgram, CStep, graph_in
from n3ic.model.classifier import Classifier
from n3ic.model.family import graph_of
from n3ic.model.graph.arithmetic import Arithmetic, FixedPoint, Logarithms
from n3ic.model.graph.operations import Graph
from n3ic.model.inputs import InputSpec
from n3ic.targets.decoded_graphs import DecodedGraph, compared
from n3ic.targets.decoding import Decoded, read_artefact

_NODES = re.compile(r"^static const struct node nodes\[", re.M)
_HALF = "#define HALF (1u << (FRACTION - 1))\n"
_NO_VALUE = 2**32 - 1  # no value of a feature is above that of a leaf


def decode_directory(directory: Path, model: Classifier) -> tuple[Decoded, ...]:
    """Decode the graph in ``bnn.c``, and compare it with the model's.

    Raises:
        VerifyError: the file cannot be read, or does not hold the model.
    """
    text = read_artefact(directory / FILE).decode("utf-8", "replace")
    return (compared(model, decode_source(text, model)),)


def decode_source(text: str, model: Classifier) -> DecodedGraph:
    """Decode the graph in the text of ``bnn.c``; see :func:`decode_directory`."""
    constants, spec = Constants(text), model.input
    for name, value in (
        ("INPUTS", spec.n_bits),
        ("WORDS", -(-spec.n_bits // 32)),
        ("FIELDS", len(spec.features)),
        ("CLASSES", len(model.classes)),
    ):
        if constants.size(name) != value:
            raise wrong(f"{name} is {constants.size(name)}, expected {value}")
    if constants.size("BLOCK") not in (16, 32, 64, 128):
        raise wrong(f"{constants.size('BLOCK')} rows at a time")
    if constants.strings("class_names") != [c_text(name) for name in model.classes]:
        raise wrong("the names of classes differ from the model's")
    cuts = _cuts(constants, spec)
    _check_parts(constants, spec)
    graph = _graph(text, constants, model)
    # No graph has values of more than 64 bits.
    if constants.type("spn_value") != "int64_t" and not graph.fits(32):
        raise wrong("a value exceeds the type of values")
    shunt, digest = constants.size("SHUNT"), constants.defined("DIGEST")
    return DecodedGraph(FILE, graph, cuts, shunt, digest)


def _cuts(constants: Constants, spec: InputSpec) -> tuple[tuple[int, ...], ...]:
    """The cuts of each field, after a check of the fields' other constants."""
    tokens = constants.tokens("fields")
    rows = [
        (text_of(name), scale_of(scale), first, width)
        for name, scale, first, width in _rows(tokens, 4, "fields")
    ]
    expected = [
        (c_text(field.feature), octets_of(field.scale), str(start), str(field.width))
        for start, field in zip(spec.offsets, spec.fields, strict=True)
    ]
    if rows != expected:
        raise wrong("the fields of the input are not the model's")
    cuts = constants.numbers("cuts", spec.n_bits)
    return tuple(
        tuple(cuts[start : start + field.width])
        for start, field in zip(spec.offsets, spec.fields, strict=True)
    )


def _check_parts(constants: Constants, spec: InputSpec) -> None:
    """Check that each field counts its own bits, each once."""
    seen = []
    for field, word, mask in _rows(constants.tokens("parts"), 3, "parts"):
        bits = int(mask.rstrip("u"), 16) if re.fullmatch("0x[0-9a-f]{8}u", mask) else 0
        at = 32 * _number(word)
        seen += [(_number(field), at + k) for k in range(32) if bits >> k & 1]
    own = [
        (i, start + k)
        for i, (start, field) in enumerate(zip(spec.offsets, spec.fields, strict=True))
        for k in range(field.width)
    ]
    if sorted(seen) != own or constants.size("PARTS") != len(constants.tokens("parts")) // 3:
        raise wrong("a field counts other bits than its own")


def _graph(text: str, constants: Constants, model: Classifier) -> Graph:
    steps = [
        CStep(kind.removeprefix("STEP_"), *map(_number, rest))
        for kind, *rest in _rows(constants.tokens("program"), 5, "program")
    ]
    if len(steps) != constants.size("STEPS"):
        raise wrong(f"{len(steps)} steps, {constants.size('STEPS')} are run")
    nodes: list[CNode] = []
    trees: list[tuple[int, int]] = []
    if _NODES.search(text):
        rows = [[*map(_number, row)] for row in _rows(constants.tokens("nodes"), 3, "nodes")]
        leaves = constants.numbers("leaves", len(rows))
        nodes = [
            CNode(field, None if most == _NO_VALUE else most + 1, following, leaf)
            for (most, field, following), leaf in zip(rows, leaves, strict=True)
        ]
        trees = [
            (_number(first), _number(depth))
            for first, depth in _rows(constants.tokens("trees"), 2, "trees")
        ]
        if trees == [(0, 0)] and not any(step.kind.endswith("TREE") for step in steps):
            trees = []  # C has no empty arrays
    program = CProgram(
        FILE,
        steps,
        constants.size("SLOTS"),
        constants.numbers("tables"),
        nodes,
        trees,
        constants.numbers("scores_at", len(model.classes)),
    )
    return graph_in(program, model.input, _arithmetic(text, constants, model))


def _arithmetic(text: str, constants: Constants, model: Classifier) -> Arithmetic | None:
    """What log-adds, products and roundings of the C depend on."""
    own = graph_of(model).arithmetic
    try:
        if constants.size("SPN_LOG"):
            *table, beyond = constants.numbers("log_add", constants.size("LOG_ADD") + 1)
            if beyond or not isinstance(own, Logarithms):
                raise wrong("log_add is not the model's")
            return Logarithms(own.fraction, tuple(table))  # the C does not hold the fraction
        if isinstance(own, FixedPoint):
            if text.count(_HALF) != 1:
                raise wrong("HALF is not half a step")
            return FixedPoint(constants.size("FRACTION"))
    except ModelError as error:
        raise wrong(str(error)) from error
    return None


def _number(token: str) -> int:
    if not re.fullmatch(r"-?\d{1,19}u?", token):
        raise wrong(f"a number is expected, not {token[:20]}")
    return int(token.rstrip("u"))


def _rows(tokens: list[str], width: int, name: str) -> list[tuple[str, ...]]:
    if len(tokens) % width:
        raise wrong(f"{name} has no rows of {width}")
    return [tuple(tokens[at : at + width]) for at in range(0, len(tokens), width)]
