# SPDX-License-Identifier: Apache-2.0
"""Graphs in C: the steps and trees of the program, what is refused, and the benchmark."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import n3ic
from n3ic.errors import ExportError, VerifyError
from n3ic.exporters.host.graph import EXPORTER, trees
from n3ic.exporters.host.graph.decode import decode_source
from n3ic.exporters.host.graph.program import program
from n3ic.exporters.host.graph.trees import LEAF, Tree
from n3ic.kernel import build
from n3ic.model.bits import unpack
from n3ic.model.classifier import Classifier
from n3ic.model.family import family as n3ic_family
from n3ic.model.family import graph_of
from n3ic.model.graph.arithmetic import FixedPoint, Logarithms
from n3ic.model.graph.builder import GraphBuilder
from n3ic.model.graph.operations import (
    Graph,
    Lookup,
    Operation,
    Round,
    Scale,
    Times,
)
from n3ic.model.inputs import Field, InputSpec
from n3ic.targets.decoded_graphs import compared
from n3ic.targets.directory import export
from tests.support.random_graphs import ARITHMETICS, codes, graph_family, graph_model, values_of

FOREST = graph_model(1, operations=6, depth=5, classes=2)
SPEC = InputSpec((Field.thermometer("a", (3, 9)), Field.thermometer("b", (5,))))


@pytest.fixture(autouse=True)
def installed() -> Iterator[None]:
    with graph_family():
        yield


def leaf_of(tree: Tree, features: list[int]) -> int:
    """The leaf that a row of features reaches, after as many comparisons as the tree is deep."""
    at = 0
    for _ in range(tree.depth):
        node = tree.nodes[at]
        at = node.next + (features[node.field] > node.most)
    assert tree.nodes[at].most == LEAF
    return tree.nodes[at].leaf


def test_rows_reach_the_leaves_that_the_choices_give() -> None:
    graph = graph_of(FOREST)
    trees_by_value = trees.trees(graph)
    assert len(trees_by_value) == 6
    words = codes(FOREST.input, np.random.default_rng(0), 50)
    for bits in unpack(words, FOREST.input.n_bits).tolist():
        features = [
            (0, *field.cuts)[sum(bits[start : start + field.width])]
            for start, field in zip(FOREST.input.offsets, FOREST.input.fields, strict=True)
        ]
        values = values_of(graph, bits)
        assert {i: values[i] for i in trees_by_value} == {
            i: leaf_of(t, features) for i, t in trees_by_value.items()
        }
    # The largest feature is not above a leaf's mark.
    assert all(
        leaf_of(t, [(1 << 32) - 1] * 5) in {n.leaf for n in t.nodes}
        for t in trees_by_value.values()
    )


def test_a_forest_is_one_tree_a_step_and_equal_children_are_placed_once() -> None:
    made = program(graph_of(FOREST))
    assert Counter(step.kind for step in made.steps) == {"TREE": 1, "ADD_TREE": 5, "CONSTANT": 1}
    builder = GraphBuilder(SPEC)
    zero, one = builder.constant(0), builder.constant(7)
    low, high = builder.choose(2, zero, one), builder.choose(2, zero, builder.constant(9))
    graph = builder.build([zero, builder.choose(0, low, builder.choose(1, high, low))])
    (tree,) = trees.trees(graph).values()
    assert (len(tree.nodes), tree.depth) == (9, 3)  # the children of `low` once
    assert [n.most for n in tree.nodes[:2]] == [2, 4]


def test_choices_between_computed_values_are_steps() -> None:
    made = program(graph_of(graph_model(3, operations=200)))
    kinds = Counter(step.kind for step in made.steps)
    assert kinds["CHOOSE"] > 3
    assert {"ADD_TREE", "TREE"} & {*kinds}
    assert made.reads_bins and made.chooses
    assert made.scratch_bytes(16) == 16 * (8 * made.fields + made.value_bytes * made.slots)


@pytest.mark.slow
def test_a_tree_of_too_many_nodes_is_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trees, "MOST_NODES", 8)
    made = program(graph_of(FOREST))
    assert made.trees == ()
    assert {step.kind for step in made.steps} == {"CHOOSE", "CONSTANT", "ADD"}
    exported = export(FOREST, "host", tmp_path / "e")
    assert exported.verification is not None
    assert exported.verification.ok, exported.verification


@pytest.mark.slow
def test_the_c_has_no_warnings(
    tmp_path: Path, compiler: build.CCompiler, warnings_of_c: tuple[str, ...]
) -> None:
    for at, model in enumerate((FOREST, graph_model(3, operations=200), graph_model(4, "log"))):
        directory = tmp_path / str(at)
        directory.mkdir()
        EXPORTER.write(model, EXPORTER.parse_options({}), directory)
        command = [*compiler.command, *warnings_of_c, "-c", "bnn.c", "-o", "bnn.o"]
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=600)
        assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture
def warnings_of_c() -> tuple[str, ...]:
    return ("-std=c11", "-O1", "-Wall", "-Wextra", "-Wpedantic", "-Werror")


def graph_with(*steps: Operation, arithmetic: FixedPoint | Logarithms | None) -> Graph:
    read = (Lookup(0, (-4, 5, 9)), Lookup(1, (-3, 1 << 28)))
    return Graph(SPEC, (*read, *steps), (0, len(steps) + 1), arithmetic)


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (graph_with(Times(0, 1), arithmetic=FixedPoint(4)), "step 2, a product: factors"),
        (graph_with(Scale(0, 3), arithmetic=None), "step 2, a scaling: factors"),
        (graph_with(Round(0), arithmetic=FixedPoint(4)), "step 2, a rounding: a rounded value"),
        (
            graph_with(Scale(1, 64), Round(2), arithmetic=FixedPoint(30)),
            "step 2, a scaling: factors",
        ),
    ],
)
def test_numbers_that_the_c_does_not_compute_are_refused(
    graph: Graph, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("n3ic.exporters.host.graph.exporter.graph_of", lambda model: graph)
    with pytest.raises(ExportError, match=message):
        export(replace(FOREST, input=SPEC, drawn=(0, 0, 1, 1)), "host", tmp_path / "e")


def test_inputs_that_the_c_does_not_compare_are_refused(tmp_path: Path) -> None:
    number = InputSpec((Field.thermometer("a", (3, 9)), Field.binary("b", 3)))
    twice = InputSpec((Field.thermometer("a", (3, 9)), Field.thermometer("a", (5,))))
    for spec, message in ((number, "field 1, b"), (twice, "field 1, a")):
        with pytest.raises(ExportError, match=f"{message}: the C reads one thermometer field"):
            export(replace(FOREST, input=spec), "host", tmp_path / "e")


@pytest.mark.slow
def test_the_benchmark_times_kernels_beside_the_graph_in_numpy() -> None:
    result = n3ic.bench("host", FOREST)
    names = [row[0] for row in result.tables[0][2]]
    assert names[-2:] == ["numpy (the reference)", "numpy (the graph)"]
    assert {"n3ic portable", "n3ic portable, from features"} <= {*names}
    assert not any("trees are trained" in note for note in result.notes)


# --- read back ---------------------------------------------------------------------------------

READ = {
    "forest": lambda: FOREST,
    **{name: partial(graph_model, 3, name, operations=60) for name in ARITHMETICS},
    "sum-product network": lambda: n3ic_family("sum-product-network").random(
        np.random.default_rng(2)
    ),
    "trees": lambda: n3ic_family("decision-trees").random(np.random.default_rng(2)),
}


@pytest.mark.parametrize("most", [6, pytest.param(60, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", READ)
def test_every_changed_number_is_found(name: str, most: int) -> None:
    """Of each array and macro, every number up to some, by one bit."""
    model = READ[name]().with_shunt(1)
    text = EXPORTER.source(model)
    assert difference(text, model) == ""
    missed, count = [], 0
    arrays = re.compile(
        r"^static const (?:struct )?\w+ (?:\*const )?(\w+)\[.*?\] = \{(.*?)\};", re.M | re.S
    )
    macros = re.compile(r"^#define ([A-Z]+|SPN_LOG) (\d+)u?(?: /\*.*)?$", re.M)
    places = [(m[1], m.start(2), m[2]) for m in arrays.finditer(text)]
    places += [(m[1], m.start(2), m[2]) for m in macros.finditer(text) if m[1] not in CODE]
    assert {"cuts", "scores_at", "program", "SHUNT", "SLOTS"} <= {name for name, *_ in places}
    for array, start, body in places:
        numbers = [*NUMBER.finditer(body)]
        for m in numbers[:: 1 + len(numbers) // most]:
            changed = f"0x{int(m[1][:-1], 16) ^ 1:08x}u" if m[1] else str(int(m[0]) ^ 1)
            at = start + m.start()
            other = text[:at] + changed + text[at + len(m[0]) :]
            count += 1
            if not difference(other, model):
                missed.append((array, m[0]))
    assert count > most
    assert missed == []


@pytest.mark.parametrize("rows", [8, 16, 32, 63, 64, 65, 128, 256])
def test_a_block_of_rows_has_a_size_that_is_written(rows: int) -> None:
    text, blocks = re.subn(r"(#define BLOCK )\d+", rf"\g<1>{rows}", EXPORTER.source(FOREST))
    assert blocks == 1
    message = "" if rows in (16, 32, 64, 128) else f"{rows} rows at a time"
    assert difference(text, FOREST).endswith(message) and bool(difference(text, FOREST)) == bool(
        message
    )


def test_another_cut_is_found() -> None:
    model = READ["sum-product network"]()
    text, changes = re.subn(
        r"(\bcuts\[\w+\] = \{\s*)(\d+)",
        lambda match: f"{match[1]}{int(match[2]) ^ 1}",
        EXPORTER.source(model),
    )
    assert changes == 1
    assert "other cuts than the model's" in difference(text, model)


@pytest.mark.parametrize("kind", ["int32_t", "int64_t"])
def test_a_value_fits_its_type_up_to_both_ends(kind: str) -> None:
    """Of a further value, as no score has more than 32 bits."""
    text = EXPORTER.source(FOREST)
    for pattern, new in (
        (r"typedef \w+ spn_value;", f"typedef {kind} spn_value;"),
        (r"(#define STEPS )7", r"\g<1>8"),
        (r"(#define SLOTS )2", r"\g<1>3"),
        (r"\{STEP_CONSTANT, 1, 0, 0, 0\},", r"\g<0> {STEP_CONSTANT, 2, 0, 0, VALUE},"),
    ):
        text, changes = re.subn(pattern, new, text)
        assert changes == 1, pattern
    half, message = 1 << 31, "bnn.c: a value exceeds the type of values"
    if kind == "int64_t":
        half, message = 1 << 63, "beyond 64 bits"
    for value, fits in ((half - 1, True), (half, False), (-half, True), (-half - 1, False)):
        refusal = difference(text.replace("VALUE", str(value)), FOREST)
        assert message in refusal if not fits else refusal == "", (value, refusal)
    long = text.replace("VALUE", str(10**19))
    assert "a number is expected, not 10000000000000000000" in difference(long, FOREST)


@pytest.mark.parametrize(
    ("pattern", "new", "message"),
    [
        (r"(#define INPUTS )86", "85", "INPUTS is 85, expected 86"),
        (r"(#define WORDS )3", "2", "WORDS is 2, expected 3"),
        (r"(#define STEPS )7", "8", "7 steps, 8 are run"),
        (r"(#define PARTS )7", "8", "a field counts other bits than its own"),
        (r"(\{0, 0, )0x0007ffffu", "0x0003ffffu", "a field counts other bits than its own"),
        (r"(\{0, 0, )0x0007ffffu", "0x000fffffu", "a field counts other bits than its own"),
        (r"(\{4, 2, 0x003fff00u\},)", " {4, 2, 0x00200000u},", "counts other bits than its own"),
        (r"(\{4, 2, )0x003fff00u", "4194048", "a field counts other bits than its own"),
        (r"(\{4, 2, )0x003fff00u", "0x003fff00u, 1", "parts has no rows of 3"),
        (r"(\{STEP_CONSTANT, 1, 0, 0, )0", "0x0", "a number is expected, not 0x0"),
        (r"(class_names\[CLASSES\] = \{)", '"other", ', "names of classes differ"),
    ],
)
def test_a_constant_of_the_source_that_says_something_else_is_refused(
    pattern: str, new: str, message: str
) -> None:
    text, changes = re.subn(pattern, rf"\g<1>{new}", EXPORTER.source(FOREST))
    assert changes == 1
    assert message in difference(text, FOREST)


def test_what_arithmetic_depends_on_is_read_from_the_source() -> None:
    log, fixed = (graph_model(3, name, operations=4) for name in ("log", "fixed"))
    for model in (log, fixed):
        own = graph_of(model).arithmetic
        assert decode_source(EXPORTER.source(model), model).graph.arithmetic == own
    text, changes = re.subn(r"(log_add\[LOG_ADD \+ 1\] = \{.*?)0,?(\s*\};)", r"\g<1>1\2",
                            EXPORTER.source(log), flags=re.S)  # fmt: skip
    assert changes == 1
    assert "log_add is not the model's" in difference(text, log)
    text = EXPORTER.source(fixed)
    half = "#define HALF (1u << (FRACTION - 1))\n"
    for other in ("", half + half, half.replace("1)", "2)")):
        assert "HALF is not half a step" in difference(text.replace(half, other), fixed)


CODE = {"TOGETHER", "FEW_CUTS"}  # of the code, not of the model
NUMBER = re.compile(r"(0x[0-9a-f]{8}u)|(?<![\w.])-?\d+(?![\w.]*\")")


def difference(text: str, model: Classifier) -> str:
    try:
        compared(model, decode_source(text, model))
    except VerifyError as error:
        return str(error)
    return ""
