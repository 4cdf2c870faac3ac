# SPDX-License-Identifier: Apache-2.0
"""Writes a network as one header and one source of C99, for firmware.

Without heap, floating point or libraries beyond ``stdint.h``; every constant has the narrowest type
that holds it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from n3ic.errors import ExportError
from n3ic.exporters.host.graph.program import Instruction, Program, program
from n3ic.exporters.host.graph.trees import LEAF
from n3ic.model.bits import pack
from n3ic.model.classifier import Classifier
from n3ic.model.family import graph_of
from n3ic.model.graph.arithmetic import FixedPoint, Logarithms
from n3ic.model.graph.bit_tables import BitTables, bit_tables
from n3ic.model.graph.operations import Graph
from n3ic.model.inputs import InputSpec
from n3ic.model.network import BinaryModel
from n3ic.targets.identifiers import comment
from n3ic.util.templates import render

TEMPLATES = Path(__file__).resolve().parent / "templates"
STEM = "n3ic_model"
_LINE = 100  # characters
_WORDS = ("weights", "mask")
_OF_CUTS = ("field_form", "cuts_", "repeated_bit")
_CUTS = {1: 8, 2: 16, 3: 32}  # bits of a cut, by the code in a field's form
_TYPES = (
    ("uint8_t", 0, 255),
    ("int8_t", -128, 127),
    ("uint16_t", 0, 65_535),
    ("int16_t", -32_768, 32_767),
    ("uint32_t", 0, 2**32 - 1),
    ("int32_t", -(2**31), 2**31 - 1),
    ("int64_t", -(2**63), 2**63 - 1),
)


def write_plain(model: Classifier, out: Path) -> None:
    """Write the header, the source and the README.

    Raises:
        ExportError: a file cannot be written.
    """
    constants, spec = constants_of(model), model.input
    names = {
        "shape": comment(model.shape_text),
        "digest": model.digest,
        "features": [comment(_described(spec, name)) for name in spec.features],
        "classes": [comment(name) for name in model.classes],
        "words": spec.n_words,
        "inputs": spec.n_bits,
        "shunt": model.shunt,
    }
    values = {
        **names,
        **_network(model, constants),
        **{name: constants[name] for name in ("field_feature", "field_form", "field_clamp")},
        "repeated_bit": constants["repeated_bit"],
        "cuts": [(code, width) for code, width in _CUTS.items() if constants[f"cuts_{width}"]],
        "raw": bool(constants["field_clamp"]),
        "constants": constants,
        "array": _array,
        "constant_bytes": f"{sum(memory_of(model).values()):,}",
    }
    files = {
        f"{STEM}.h": f"{STEM}.h.j2",
        f"{STEM}.c": f"{STEM}.c.j2",
        "README.md": "README.md.j2",
    }
    try:
        for name, template in files.items():
            (out / name).write_text(render(TEMPLATES, template, values), "utf-8")
    except OSError as error:
        raise ExportError(f"cannot write {out}: {error.strerror or error}") from error


def constants_of(model: Classifier) -> dict[str, Sequence[int]]:
    """The integers of every array of the source, by its name."""
    if isinstance(model, BinaryModel):
        own = _layers(model)
    elif tables := bit_tables(graph_of(model)):
        own = _tables(tables)
    else:
        own = _steps(graph_of(model))
    return {**_fields(model.input), **own}


def memory_of(model: Classifier) -> dict[str, int]:
    """Bytes of the constants, by array; ``cuts`` are all arrays of the cuts."""
    out: dict[str, int] = {}
    for name, numbers in constants_of(model).items():
        if len(numbers):
            part = "cuts" if name.startswith(_OF_CUTS) else name
            out[part] = out.get(part, 0) + _width(_type(name, numbers)) * len(numbers)
    return out


def _described(spec: InputSpec, name: str) -> str:
    scale = next(f.scale for f in spec.fields if f.feature == name)
    return name if scale == 1 else f"{name}, {scale:g} in one source unit"


def _fields(spec: InputSpec) -> dict[str, Sequence[int]]:
    own = spec.own_fields
    places = {name: i for i, name in enumerate(spec.features)}
    features = [places[f.feature] for f in own]
    raw = any(f.kind == "binary" for f in own)
    return {
        "field_feature": features if features != [*range(len(own))] else (),
        "field_form": [f.form for f in own],
        "field_clamp": [f.clamp if f.kind == "binary" else 0 for f in own] if raw else (),
        **{
            f"cuts_{width}": [c for f in own if 8 * f.cut_bytes == width for c in f.cuts]
            for width in _CUTS.values()
        },
        "repeated_bit": spec.repeated_bits,
    }


def _layers(model: BinaryModel) -> dict[str, Sequence[int]]:
    out: dict[str, Sequence[int]] = {}
    limits = [*(layer.thresholds for layer in model.hidden), model.output.bias]
    for i, (layer, limit) in enumerate(zip(model.layers, limits, strict=True)):
        out[f"weights_{i}"] = pack(layer.weights, pad=True).ravel().tolist()
        if layer.mask is not None:
            out[f"mask_{i}"] = pack(layer.mask).ravel().tolist()
        name = "bias" if i == len(model.hidden) else "threshold"
        out[f"{name}_{i}"] = limit.tolist()
    return out


def _tables(own: BitTables) -> dict[str, Sequence[int]]:
    return {
        "index_bits": [len(t.bits) for t in own.tables],
        "index_bit": [bit for t in own.tables for bit in t.bits],
        "entries": [e for t in own.tables for e in t.entries.ravel().tolist()],
        "bias": own.bias.tolist(),
    }


def _steps(graph: Graph) -> dict[str, Sequence[int]]:
    """The arrays of a graph's program, whose nodes compare bins instead of features."""
    own = program(graph)
    kinds = _kinds(own)
    fields = graph.input.fields
    marker = _leaf_marker(graph)
    leaves = list(dict.fromkeys(node.leaf for node in own.nodes if node.most == LEAF))
    at_leaf = {value: i for i, value in enumerate(leaves)}
    log = graph.arithmetic.table if isinstance(graph.arithmetic, Logarithms) else ()
    return {
        "table_entries": own.tables if own.reads_bins else (),
        "log_add": log,
        "node_field": [node.field for node in own.nodes],
        "node_bin": [
            marker if node.most == LEAF else fields[node.field].cuts.index(node.most + 1)
            for node in own.nodes
        ],
        "node_next": [at_leaf[n.leaf] if n.most == LEAF else n.next for n in own.nodes]
        if own.trees
        else (),
        "leaf_value": leaves,
        "tree_first": [tree.first for tree in own.trees],
        "step_kind": [kinds.index(_kind(step)) for step in own.steps],
        "step_to": [step.to for step in own.steps],
        "step_a": [step.a for step in own.steps],
        "step_b": [step.b for step in own.steps],
        "step_by": [step.by for step in own.steps],
        "score_of": own.scores,
    }


def _leaf_marker(graph: Graph) -> int:
    """What stands in place of a leaf's bin: a number that no bin reaches."""
    return 255 if max((f.width for f in graph.input.fields), default=0) < 255 else 65_535


def _kind(step: Instruction) -> str:
    """The kind of a step; tables of eight entries are read as all others."""
    return step.kind.removesuffix("_8")


def _kinds(own: Program) -> list[str]:
    return sorted({_kind(step) for step in own.steps})


def _network(model: Classifier, constants: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    if not isinstance(model, BinaryModel):
        graph = graph_of(model)
        if bit_tables(graph) is not None:
            return {"network": "tables.c.j2", **constants}
        own = program(graph)
        kinds = _kinds(own)
        fixed = graph.arithmetic if isinstance(graph.arithmetic, FixedPoint) else None
        return {
            "network": "graph.c.j2",
            **constants,
            "value_type": f"int{8 * own.value_bytes}_t",
            "slots": own.slots,
            "leaf_marker": _leaf_marker(graph),
            "kinds": kinds,
            "reads_one": bool({*kinds} - {"CONSTANT", "LOOKUP", "TREE"}),
            "reads_two": bool({"ADD", "CHOOSE", "LOG_ADD", "TIMES"} & {*kinds}),
            "half": fixed.half if fixed else 0,
            "fraction": fixed.fraction if fixed else 0,
        }
    layers = [
        {
            "inputs": layer.n_inputs,
            "neurons": layer.n_outputs,
            "words": -(-layer.n_inputs // 32),
            "weights": constants[f"weights_{i}"],
            "mask": constants.get(f"mask_{i}", ()),
            "limits": constants[f"{'bias' if i == len(model.hidden) else 'threshold'}_{i}"],
        }
        for i, layer in enumerate(model.layers)
    ]
    return {"network": "layers.c.j2", "layers": layers, "masked": model.has_masks}


def _type(name: str, numbers: Sequence[int]) -> str:
    """The narrowest type that holds all numbers of an array; words are read whole."""
    if name.startswith(_WORDS):
        return "uint32_t"
    low, high = min(numbers, default=0), max(numbers, default=0)
    return next(name for name, least, most in _TYPES if least <= low and high <= most)


def _width(name: str) -> int:
    """Bytes of a type."""
    return int("".join(filter(str.isdigit, name))) // 8


def _array(name: str, numbers: Sequence[int]) -> str:
    """A constant array as C."""
    kind = _type(name, numbers)
    suffix = "u" if kind.startswith("u") else ""
    texts = [f"0x{n:08x}" if name.startswith(_WORDS) else f"{n}{suffix}"
             for n in numbers]  # fmt: skip
    head = f"static const {kind} {name}[{len(numbers)}] = {{"
    if len(one_line := f"{head}{', '.join(texts)}}};") <= _LINE:
        return one_line
    lines, line = [], ""
    for text in texts:
        if 4 + len(line) + len(text) + 2 > _LINE:
            lines.append(line)
            line = ""
        line += f"{' ' if line else ''}{text},"
    body = "\n".join(f"    {each}" for each in [*lines, line])
    return f"{head}\n{body}\n}};"
