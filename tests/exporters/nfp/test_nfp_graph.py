# SPDX-License-Identifier: Apache-2.0
"""Graphs in micro-C: scores, the words of the blob, reads, and what is refused."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from n3ic.errors import ExportError, VerifyError
from n3ic.exporters.nfp.exporter import EXPORTER as TARGET
from n3ic.exporters.nfp.graph import counts
from n3ic.exporters.nfp.graph.blob import build
from n3ic.exporters.nfp.graph.decode import _Reader, decode_words
from n3ic.exporters.nfp.graph.exporter import EXPORTER
from n3ic.exporters.nfp.graph.program import StepKind, compiled
from n3ic.families.spn.arithmetic import LinearArithmetic, LogArithmetic
from n3ic.families.spn.random_models import random_spn
from n3ic.families.trees.network import TreesModel
from n3ic.families.trees.random_models import random_trees
from n3ic.model import passes
from n3ic.model.classifier import Classifier, margins_of
from n3ic.model.family import graph_of
from n3ic.model.graph.builder import GraphBuilder
from n3ic.model.graph.operations import (
    Add,
    Choose,
    Constant,
    Graph,
    LogAdd,
    Offset,
    Round,
    Scale,
    Select,
    Times,
)
from n3ic.model.inputs import Field, InputSpec
from n3ic.model.random_models import random_model
from n3ic.targets.colocation import CoLocatedNetwork
from n3ic.targets.decoded_graphs import compared
from n3ic.targets.directory import export
from n3ic.targets.verification import verify_artefacts
from tests.support.random_graphs import GraphModel, codes, graph_family, graph_model

COMPILER = shutil.which("gcc") or shutil.which("clang")
pytestmark = pytest.mark.usefixtures("quick_micro_c")
compiles = pytest.mark.skipif(not COMPILER, reason="needs gcc or clang")
OPTIONS = EXPORTER.parse_options({}, verify=True)
# Raw bits that cross words, a field wider than two words, a cut at the largest value.
MIXED = InputSpec(
    (
        Field("b", "binary", 5, 20),
        Field.thermometer("a", (3, 9, 40, 77, 1000)),
        Field("r", "binary", 32, 2**32 - 1),
        Field.thermometer("w", range(5, 75)),
        Field.thermometer("c", (1, 2**32 - 1)),
    )
)
MODELS: dict[str, Classifier] = {
    "forest": graph_model(1, operations=12, depth=5, classes=2),
    "three sums": graph_model(2, operations=4, depth=6),
    "sums below choices": graph_model(3, operations=200),
    "log": graph_model(4, "log"),
    "fixed": graph_model(6, "fixed", classes=2),
    "mixed input": replace(graph_model(7, operations=9, depth=4), input=MIXED),
    "mixed steps": replace(graph_model(8, operations=60), input=MIXED),
    "votes": random_trees(np.random.default_rng(3), trees=9, depth=5, classes=4),
    "votes of a few leaves": random_trees(
        np.random.default_rng(4), trees=9, depth=5, classes=5, largest=1, spec=MIXED
    ),
    "look-ups by bits": graph_model(9, operations=3, depth=2, bits=4),
    "large look-ups by bits": replace(graph_model(9, operations=3, depth=1, bits=8), input=MIXED),
}


@pytest.fixture(autouse=True)
def installed() -> Iterator[None]:
    with graph_family():
        yield


@pytest.mark.first_case
@compiles
@pytest.mark.parametrize("name", MODELS)
def test_equal_scores_from_bits_and_features(tmp_path: Path, name: str) -> None:
    model = MODELS[name]
    EXPORTER.write(model, OPTIONS, tmp_path)
    verification = verify_artefacts(tmp_path, EXPORTER, passes.unchanged(model), OPTIONS, 300)
    assert verification.ok, verification
    assert verification.edges


@pytest.mark.slow
@compiles
@pytest.mark.parametrize("family", ["trees", "log", "linear"])
def test_an_export_shunts_and_is_the_same_again(tmp_path: Path, family: str) -> None:
    rng = np.random.default_rng(9)
    arithmetic = LogArithmetic.of(6) if family == "log" else LinearArithmetic(12)
    model: Classifier = (
        random_trees(rng) if family == "trees" else random_spn(rng, arithmetic=arithmetic)
    )
    middle = int(np.median(margins_of(model.scores(codes(model.input, rng, 200)))))
    model = model.with_shunt(max(1, middle))
    exported = export(model, "nfp", tmp_path / "e")
    assert exported.verification is not None and exported.verification.ok, exported.verification
    again = export(model, "nfp", tmp_path / "again")
    assert (again.path / "weights.bin").read_bytes() == (exported.path / "weights.bin").read_bytes()
    figures = {f.name: f for f in exported.report.figures}
    size = (exported.path / "weights.bin").stat().st_size
    assert figures["memory.blob"].value == size
    assert sum(figures[f"memory.{part}"].value for part in build(model).sections) == size
    assert {figures[n].kind for n in ("latency", "features.latency")} == {"estimated"}
    assert not list(exported.path.glob("n3ic_neuron.h"))


# --- words --------------------------------------------------------------------------------------


def difference(words: np.ndarray, model: Classifier) -> str:
    try:
        compared(model, decode_words("weights.bin", words, model))
    except VerifyError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", MODELS)
def test_words_are_read_back(name: str) -> None:
    model = MODELS[name].with_shunt(3)
    assert difference(build(model).words, model) == ""
    assert sum(build(model).sections.values()) == build(model).size


@pytest.mark.parametrize("step", [9, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["small", "log", "fixed", "bits", "votes"])
def test_every_flipped_bit_is_found(name: str, step: int) -> None:
    model: Classifier = {
        "small": replace(graph_model(5, operations=2, depth=2), input=InputSpec(MIXED.fields[:2])),
        "log": graph_model(4, "log", operations=8, cuts=4),
        "fixed": graph_model(6, "fixed", operations=8, cuts=4),
        "votes": random_trees(np.random.default_rng(3), trees=2, depth=2, classes=3, cuts=2),
        "bits": graph_model(9, operations=1, depth=1, bits=3, classes=2, cuts=4),
    }[name].with_shunt(3)
    words = build(model).words
    for at in range(0, 32 * len(words), step):
        damaged = words.copy()
        damaged[at // 32] ^= np.uint32(1 << at % 32)
        assert difference(damaged, model), build(model).explain(at // 32)


def test_values_of_64_bits_are_read_in_twos_complement() -> None:
    reader = _Reader("file", np.array([-5 % 2**32, 2**32 - 1, 7, 1], np.uint32), MIXED)
    reader._width = 2
    assert reader._values(0, 2, "values") == [-5, 7 + 2**32]


@pytest.mark.parametrize("width", [1, 2])
def test_values_are_whole_words_in_twos_complement(width: int) -> None:
    half = 1 << (32 * width - 1)
    values = [0, 1, half - 1, -half, 1 - half, -1]
    words = [value >> 32 * k & 0xFFFFFFFF for value in values for k in range(width)]
    reader = _Reader("file", np.array([9, *words, 9], np.uint32), MIXED)
    reader._width = width
    assert reader._values(1, len(values), "values") == values
    assert reader._read.tolist() == [False, *[True] * len(words), False]
    with pytest.raises(VerifyError, match=f"values: ends before word {len(words) + 2}$"):
        reader._numbers(3, len(words), "values")


ONE_FIELD = InputSpec((Field.thermometer("a", (3, 9)),))


def file_of(width: int, *steps: tuple[int, int, int, int, int]) -> np.ndarray:
    """A file of steps alone: the kind, the value that is set, two operands, and a number.

    Both scores are value 0.
    """
    first = 23 + (2 + width) * len(steps)
    fields = first + 2
    words = [0x474E334E, 1, fields + 7, len(steps), 2, 1, fields, 1, *range(8)]
    words += [2, len({step[1] for step in steps}), width, first, 0, 0, 0]
    for kind, to, a, b, by in steps:
        words += [kind | to << 8, a | b << 16, *(by >> 32 * k & 0xFFFFFFFF for k in range(width))]
    words += [0, 0, 0, 1, 2, 9, fields + 5, 3, 9]
    return np.array(words, dtype=np.uint32)


@pytest.mark.parametrize("width", [1, 2])
def test_a_value_has_the_bits_of_its_words(width: int) -> None:
    """Up to both ends; no score is one of these values."""
    model = replace(random_model((2, 2), np.random.default_rng(0)), input=ONE_FIELD)
    half = 1 << (32 * width - 1)
    for base, by, fits in (
        (half - 2, 1, True), (half - 1, 1, False), (1 - half, -1, True), (-half, -1, False),
    ):  # fmt: skip
        words = file_of(width, (0, 0, 0, 0, 7), (0, 1, 0, 0, base), (5, 2, 1, 0, by))
        if fits:
            decoded = decode_words("file", words, model)
            assert decoded.graph.steps == (Constant(7), Constant(base), Offset(1, by))
            assert decoded.graph.scores == (0, 0) and decoded.cuts == ((3, 9),)
            assert decoded.digest == "".join(f"0{k}000000" for k in range(8))
        else:
            beyond = "file: a value exceeds 32 bits" if width == 1 else "beyond 64 bits"
            with pytest.raises(VerifyError, match=beyond):
                decode_words("file", words, model)


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ((7, 1, 0, 0, 0), "a product of 32 bits"),
        ((8, 1, 0, 0, 3), "a product of 32 bits"),
        ((9, 1, 0, 0, 0), "a product of 32 bits"),
        ((12, 1, 0, 0, 0), "an unknown kind 12"),
        ((127, 1, 0, 0, 0), "an unknown kind 127"),
        ((5, 1, 1, 0, 3), "value 1 is not set before"),
        ((4, 1, 0, 1, 0), "value 1 is not set before"),
        ((0 | 1 << 7, 1, 0, 0, 3), "value 1 is not set before"),
        ((0, 2, 0, 0, 3), "the steps set 2 values, not 2"),
        ((0, 1, 1, 0, 3), "has no first operand, but 1"),
        ((0, 1, 0, 1, 3), "has no second operand, but 1"),
        ((1, 1, 1, 0, 3), "has no first operand, but 1"),
        ((1, 1, 0, 1, 3), "has no second operand, but 1"),
        ((2, 1, 1, 1, 3), "has no first operand, but 1"),
        ((4, 1, 0, 0, 3), "has no number, but 3"),
        ((5, 1, 0, 1, 3), "has no second operand, but 1"),
        ((6, 1, 0, 0, 3), "has no number, but 3"),
        ((10, 1, 1, 0, 3), "has no first operand, but 1"),
        ((10, 1, 0, 1, 3), "has no second operand, but 1"),
        ((3, 1, 0, 0, 2), "reads input bit 2 of 2"),
        ((3, 1, 0, 0, -1), "reads input bit -1 of 2"),
        ((1, 1, 0, 0, -1), "reads word -1"),
        ((10, 1, 0, 0, -1), "reads word -1"),
        ((2, 1, 0, 1, -1), "reads word -1"),
        ((2, 1, 0, 0, 3), "adds no tree"),
    ],
)
def test_a_step_that_the_micro_c_does_not_run_is_refused(
    step: tuple[int, int, int, int, int], message: str
) -> None:
    model = replace(random_model((2, 2), np.random.default_rng(0)), input=ONE_FIELD)
    with pytest.raises(VerifyError, match=f"^file: .*(?:{message})"):
        decode_words("file", file_of(1, (0, 0, 0, 0, 7), step), model)


def test_steps_are_read_as_the_micro_c_runs_them() -> None:
    """Of 64 bits; a result is set, or added to the value that is there."""
    model = replace(random_model((2, 2), np.random.default_rng(0)), input=ONE_FIELD)
    adds = 1 << 7
    words = file_of(
        2,
        (0, 0, 0, 0, 7), (0, 1, 0, 0, 9), (0 | adds, 0, 0, 0, 5), (4, 2, 0, 1, 0),
        (8, 3, 1, 0, 6), (3, 4, 1, 2, 1), (3 | adds, 4, 2, 1, 0), (5, 1, 2, 0, -1),
    )  # fmt: skip
    graph = decode_words("file", words, model).graph
    assert graph.steps == (
        Constant(7), Constant(9), Constant(5), Add(0, 2), Add(3, 1), Scale(1, 6),
        Choose(1, 1, 4), Choose(0, 4, 1), Add(6, 7), Offset(4, -1),
    )  # fmt: skip
    assert graph.scores == (3, 3)


def test_operands_are_read_in_their_order() -> None:
    reader = _Reader("file", np.zeros(0, np.uint32), ONE_FIELD)
    reader._width = 2
    reader.slots = {1: reader._made(Constant(5)), 2: reader._made(Constant(6))}
    for kind, step in ((4, Add(0, 1)), (6, LogAdd(0, 1)), (7, Times(0, 1)), (9, Round(0))):
        place = reader._result(kind, 1, 0 if kind == 9 else 2, 0, "step 1")
        assert reader.steps[place] == step


def test_a_place_in_the_file_may_be_its_first_word() -> None:
    reader = _Reader("file", np.array([7], np.uint32), MIXED)
    assert reader._place(0, "step 1") == 0 and reader._place(5, "step 1") == 5
    with pytest.raises(VerifyError, match="file: step 1: reads word -1"):
        reader._place(-1, "step 1")


def test_a_short_file_is_refused() -> None:
    model = MODELS["mixed steps"]
    words = build(model).words
    for length in range(len(words)):
        assert difference(words[:length], model)
        shorter = words[:length].copy()
        if length > 2:
            shorter[2] = length
            assert difference(shorter, model)


@pytest.mark.parametrize(
    ("section", "word", "value", "text"),
    [
        ("header", 0, 0, "not a graph for the NFP of this version"),
        ("header", 3, 2**32 - 1, "ends before word"),
        ("header", 19, 2**32 - 1, "scores: ends before word"),
        ("header", 18, 3, "does not match the sizes"),
        ("scores", 0, 99, "value 99 is not set before"),
        ("trees", 0, 0, "in a circle"),
        ("trees", 0, 0x7FFF0001, r"reads input bit 32767 of \d+"),
        ("steps", 2, 2**31 - 1, "ends before word"),
        ("steps", 2, 2**31, "reads word -2147483648"),
        ("steps", 1, 0, "adds no tree"),
        ("steps", 0, 5, "has no second operand"),
    ],
)
def test_hostile_words_are_refused(section: str, word: int, value: int, text: str) -> None:
    model = MODELS["forest"]
    built = build(model)
    assert compiled(graph_of(model)).steps[0].kind == StepKind.TREES
    damaged = built.words.copy()
    damaged[built.starts[section] + word] = value
    if section == "steps" and text == "reads input bit":
        damaged[built.starts["steps"] + 1] = 0
    assert re.search(text, difference(damaged, model))


def test_hostile_words_of_a_look_up_by_bits_are_refused() -> None:
    """A table of three input bits: their number, two words of them, and eight values."""

    def make(builder: GraphBuilder) -> int:
        table = builder.select((4, 1, 3), (5, 3, 1, 8, 2, 9, 7, 4))
        return builder.choose(2, table, builder.constant(1))

    model = asked(make)
    built, n_bits = build(model), model.input.n_bits
    at = built.starts["tables"]
    assert built.words[at : at + 4].tolist() == [3, 1 << 16 | 4, 3, 5]
    for word, value, text in (
        (0, 0, "a look-up by 0 bits"),
        (0, 9, "a look-up by 9 bits"),
        (0, 2, "nothing reads word"),
        (1, 1 << 16 | n_bits, f"reads input bit {n_bits} of {n_bits}"),
        (1, 1 << 16 | 1, "different input bits"),
        (2, 1 << 16 | 3, "bits beside the input bits are not 0"),
        (3, 6, "the score of class 1 lacks a look-up by the bits 1, 3, 4, of x0"),
    ):
        damaged = built.words.copy()
        damaged[at + word] = value
        assert re.search(text, difference(damaged, model)), (word, difference(damaged, model))


@compiles
def test_a_leaf_of_one_file_alone_is_named(tmp_path: Path) -> None:
    model = MODELS["forest"]
    EXPORTER.write(model, OPTIONS, tmp_path)
    built = build(model)
    words = built.words.copy()
    leaf = next(w for w in range(built.starts["trees"], len(words)) if words[w] >> 31)
    words[leaf] ^= 1
    (tmp_path / "weights.bin").write_bytes(words.astype("<u4").tobytes())
    with pytest.raises(VerifyError, match=r"weights\.bin: the score of class 1 lacks a choice"):
        EXPORTER.decode(tmp_path, model, OPTIONS)
    with pytest.raises(VerifyError, match=r"differs from n3ic_weights\.h .*\(trees, word \d+\)"):
        EXPORTER.run(tmp_path, model, OPTIONS, codes(model.input, np.random.default_rng(0), 1))


@compiles
def test_a_retrained_forest_of_the_same_shape_is_another_blob_only(tmp_path: Path) -> None:
    """Other cuts and leaves: the same micro-C and the same sizes, only other words."""
    rng = np.random.default_rng(3)
    first = random_trees(rng, trees=5)
    fields = tuple(
        Field.thermometer(f.feature, [cut + 1 for cut in f.cuts]) for f in first.input.fields
    )
    second = replace(first, input=InputSpec(fields), leaves=first.leaves[::-1].copy())
    for name, model in (("first", first), ("second", second)):
        (tmp_path / name).mkdir()
        EXPORTER.write(model, OPTIONS, tmp_path / name)
    defined = [
        re.findall("#define.*", (tmp_path / name / "n3ic_config.h").read_text())
        for name in ("first", "second")
    ]
    assert defined[0] == defined[1]
    for name in ("weights.bin", "n3ic_weights.h"):
        shutil.copyfile(tmp_path / "second" / name, tmp_path / "first" / name)
    words = codes(second.input, rng, 100)
    done = EXPORTER.run(tmp_path / "first", second, OPTIONS, words)
    assert (done.inference.scores == second.scores(words)).all()
    assert (second.scores(words) != first.scores(words)).any()


# --- micro-C ------------------------------------------------------------------------------------


@compiles
@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("forest", "1)) - N3IC_LEAF_HALF", "1)) - N3IC_LEAF_HALF + 1"),
        ("votes", "[node + i] - N3IC_LEAF_HALF", "[node] - N3IC_LEAF_HALF"),
        pytest.param("mixed steps", "by += values[kind >> 8]", "by += 0", marks=pytest.mark.slow),
        ("look-ups by bits", "numbers >>= 16;", "numbers >>= 15;"),
        pytest.param("log", "distance < n3ic_words[20]", "distance < 1", marks=pytest.mark.slow),
        pytest.param("fixed", "<< (fraction - 1)", "<< (fraction - 2)", marks=pytest.mark.slow),
        pytest.param("mixed input", "if (value > count)", "if (0)", marks=pytest.mark.slow),
        pytest.param("mixed steps", "count -= i;", "count -= 32;", marks=pytest.mark.slow),
    ],
)
def test_changed_code_is_found(tmp_path: Path, name: str, old: str, new: str) -> None:
    model = MODELS[name]
    EXPORTER.write(model, OPTIONS, tmp_path)
    text = (tmp_path / "n3ic_graph.h").read_text()
    assert text.count(old) == 1
    (tmp_path / "n3ic_graph.h").write_text(text.replace(old, new))
    try:
        verification = verify_artefacts(tmp_path, EXPORTER, passes.unchanged(model), OPTIONS, 300)
    except VerifyError as error:
        assert "input stage" in str(error)
    else:
        assert verification.failures


@compiles
@pytest.mark.parametrize(
    "name", ["forest", "mixed steps", "log", "fixed", "look-ups by bits", "votes"]
)
def test_a_data_plane_reads_at_most_as_many_words_as_the_estimate_says(
    tmp_path: Path, name: str
) -> None:
    """The estimate of the latency counts reads of the blob; so does this program."""
    model = MODELS[name]
    EXPORTER.write(model, OPTIONS, tmp_path)
    (tmp_path / "plane.c").write_text(
        """
        #define N3IC_NO_MAIN
        #include "n3ic_port.h"
        #include "n3ic_config.h"
        #include "n3ic_weights.h"
        static unsigned reads;
        #define n3ic_words (reads++, n3ic_words)
        #include "n3ic_app.c"
        #include <stdio.h>
        int main(void)
        {
            uint32_t features[N3IC_FEATURES], x[N3IC_MAX_WORDS], y[N3IC_SCRATCH_WORDS], row, i;
            int32_t scores[N3IC_CLASSES], margin;
            unsigned encoded;
            for (row = 0; row < 2; row++) {
                for (i = 0; i < N3IC_FEATURES; i++)
                    features[i] = row ? 0xffffffffu : 0;
                reads = 0;
                n3ic_encode(features, x);
                encoded = reads;
                reads = 0;
                printf("%u ", (unsigned)n3ic_classify(0, x, y, scores, &margin));
                printf("%d %u %u ", (int)margin, encoded, reads);
            }
            return 0;
        }
        """
    )
    program = str(tmp_path / "plane")
    command = [str(COMPILER), "-Wall", "-Wextra", "-Werror", "-Wno-unused", "-o", program]
    subprocess.run([*command, str(tmp_path / "plane.c")], check=True, timeout=600)
    done = subprocess.run([program], check=True, capture_output=True, timeout=600)
    got = [int(number) for number in done.stdout.split()]
    run = counts.from_bits(model, build(model)).words
    both = counts.from_features(model, build(model)).words
    comparisons = sum(sum(b.depths) for b in compiled(graph_of(model)).blocks)
    beyond = 3 * sum(s.kind == StepKind.LOG_ADD for s in compiled(graph_of(model)).steps)
    selects = [s.lookup for s in compiled(graph_of(model)).steps if isinstance(s.lookup, Select)]
    run -= sum(len(each.bits) // 2 for each in selects)  # two numbers in a word are read at once
    both -= sum(len(each.bits) // 2 for each in selects)
    for at, value in ((0, 0), (4, 2**32 - 1)):
        row = {f: np.array([value]) for f in model.input.features}
        own = model.infer(model.input.encode_words(row))
        assert got[at : at + 2] == [own.classes[0], own.margins[0]]
        encoded, reads = got[at + 2 : at + 4]
        # A search may end earlier, as may a tree, and a distance may be beyond the table.
        assert both - run - len(model.input.fields) <= encoded <= both - run
        assert run - comparisons - beyond <= reads <= run


# --- what fits ----------------------------------------------------------------------------------


class _Asked(GraphModel):
    """A model whose graph a test builds."""

    def ask(self, kind: object) -> Graph:
        builder = GraphBuilder(self.input)
        return builder.build([builder.constant(0), self.made(builder)])  # type: ignore[attr-defined]


def asked(make: object, spec: InputSpec | None = None) -> GraphModel:
    base = graph_model(1, classes=2)
    own = type("_Own", (_Asked,), {"made": staticmethod(make)})
    own_model: GraphModel = own(spec or base.input, base.drawn, base.classes)
    return own_model


@compiles
def test_a_tree_that_does_not_fit_its_nodes_is_steps(tmp_path: Path) -> None:
    """A leaf of 32 bits; the trees beside it are packed."""

    def make(builder: GraphBuilder) -> int:
        far = builder.choose(0, builder.constant(-(2**30) - 1), builder.constant(5))
        near = builder.choose(1, builder.constant(-(2**30) + 3), builder.constant(2**30 - 6))
        return builder.add(far, near)

    model = asked(make)
    kinds = [step.kind for step in compiled(graph_of(model)).steps]
    assert kinds.count(StepKind.CHOOSE) == 1 and kinds.count(StepKind.TREES) == 1
    EXPORTER.write(model, OPTIONS, tmp_path)
    assert verify_artefacts(tmp_path, EXPORTER, passes.unchanged(model), OPTIONS, 50).ok


@compiles
def test_more_nodes_than_a_block_holds_are_more_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("n3ic.exporters.nfp.graph.program.MOST_NODES", 100)
    model = graph_model(3, operations=12, depth=5, classes=2)
    program = compiled(graph_of(model))
    assert len(program.blocks) > 3 and all(len(block.words) <= 100 for block in program.blocks)
    assert sum(len(block.depths) for block in program.blocks) == 12
    EXPORTER.write(model, OPTIONS, tmp_path)
    assert verify_artefacts(tmp_path, EXPORTER, passes.unchanged(model), OPTIONS, 100).ok


@pytest.mark.slow
@compiles
def test_input_bits_that_a_node_cannot_name_are_steps(tmp_path: Path) -> None:
    wide = InputSpec((Field.thermometer("a", range(1, 40_001)),))

    def make(builder: GraphBuilder) -> int:
        low, high = builder.constant(1), builder.constant(9)
        return builder.add(builder.choose(39_000, low, high), builder.choose(100, low, high))

    model = asked(make, wide)
    assert {StepKind.CHOOSE, StepKind.TREES} <= {
        step.kind for step in compiled(graph_of(model)).steps
    }
    EXPORTER.write(model, OPTIONS, tmp_path)
    values = np.array([0, 100, 101, 39_000, 39_001, 2**32 - 1])
    words = wide.encode_words({"a": values})
    assert (EXPORTER.encode(tmp_path, model, OPTIONS, {"a": values}) == words).all()
    scores = EXPORTER.run(tmp_path, model, OPTIONS, words).inference.scores
    assert scores[:, 1].tolist() == [2, 2, 10, 10, 18, 18]


def test_trees_that_vote_for_several_classes_are_walked_down_once() -> None:
    """Leaves of some classes are equal, so that these classes do not ask all bits of a tree."""
    for name, least in (("votes", 9), ("votes of a few leaves", 8)):  # one of these saves nothing
        model = MODELS[name]
        assert isinstance(model, TreesModel)
        program = compiled(graph_of(model))
        (votes,) = (step for step in program.steps if step.kind == StepKind.VOTES)
        assert votes.block is not None
        assert votes.classes == program.scores and len(votes.block.depths) == least
        alone = [len(block.depths) for block in program.blocks if block is not votes.block]
        assert alone == [9 - least] * len(alone)
        # No more nodes than the trees have: choices and leaves.
        assert len(votes.block.words) <= 2 * len(model.bits) + len(votes.block.depths)


def test_trees_that_ask_other_bits_in_each_class_are_walked_down_apart() -> None:
    kinds = [step.kind for step in compiled(graph_of(MODELS["three sums"])).steps]
    assert StepKind.VOTES not in kinds and kinds.count(StepKind.TREES) == 3


@compiles
def test_votes_of_more_nodes_than_a_block_holds_are_more_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("n3ic.exporters.nfp.graph.program.MOST_NODES", 80)
    model = random_trees(np.random.default_rng(5), trees=9, depth=4, classes=3)
    votes = [s for s in compiled(graph_of(model)).steps if s.kind == StepKind.VOTES]
    assert len(votes) > 2 and sum(len(s.block.depths) for s in votes if s.block) == 9
    EXPORTER.write(model, OPTIONS, tmp_path)
    assert verify_artefacts(tmp_path, EXPORTER, passes.unchanged(model), OPTIONS, 100).ok


def test_hostile_words_of_votes_are_refused() -> None:
    model = MODELS["votes"]
    built = build(model)
    at = next(i for i, s in enumerate(built.program.steps) if s.kind == StepKind.VOTES)
    step, block = (
        built.starts["steps"] + 3 * at,
        int(built.words[built.starts["steps"] + 3 * at + 2]),
    )
    leaf = next(w for w in range(block, len(built.words)) if built.words[w] >> 31)
    vector = block + len(model.classes) + (int(built.words[leaf]) & 0x7FFFFFFF)
    for word, value, text in (
        (step, 11 | 1 << 8, "votes go to the classes' values"),
        (step, 11 | 1 << 7, "votes go to the classes' values"),
        (step + 1, 4, "adds no votes"),
        (step + 1, 9 << 16, "adds no votes"),
        (step + 2, 2**31, "reads word -2147483648"),
        (block, 99, "value 99 is not set before"),
        (block, int(built.words[block + 1]), "the score of class 0"),
        (leaf, 2**32 - 1, "ends before word"),
        (leaf, int(built.words[leaf]) + 4, "nothing reads word"),
        (vector + 2, int(built.words[vector + 2]) ^ 1, "the score of class 2 lacks a choice"),
    ):
        damaged = built.words.copy()
        damaged[word] = value
        assert re.search(text, difference(damaged, model)), (word, difference(damaged, model))


def test_a_long_sum_needs_one_value() -> None:
    program = compiled(graph_of(graph_model(1, operations=50, depth=3, classes=2)))
    assert [step.kind for step in program.steps] == [StepKind.TREES, StepKind.CONSTANT]
    assert program.slots == 2 and len(program.blocks[0].depths) == 50


def test_a_chain_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"step \d+, a sum: a chain of threads shares the neuron"):
        export(MODELS["forest"], "nfp", tmp_path / "e", options={"mode": "model"})


def test_an_operation_that_is_not_written_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("n3ic.exporters.nfp.graph.exporter.WRITTEN", (Add,))
    model = MODELS["fixed"]
    texts = [p.message for p in EXPORTER.check(model, OPTIONS).problems]
    assert any(
        re.match(r"step \d+, a product, .*: this target writes no product", t) for t in texts
    )


@pytest.mark.slow
def test_larger_forests_go_to_slower_memories() -> None:
    small, large = MODELS["forest"], graph_model(3, operations=60, depth=9, classes=2)
    for model, memory in ((small, "cls"), (large, "ctm")):
        fit = EXPORTER.check(model, OPTIONS)
        assert fit.ok
        parts = {p.part: p for p in fit.placements}
        assert parts["trees"].memory == memory
        assert parts["trees"].bytes == build(model).sections["trees"]
    chosen = EXPORTER.parse_options({"memory": "cls"})
    (problem,) = EXPORTER.check(large, chosen).problems
    assert problem.memory == "cls"
    assert re.match(r"step [\d,]+, a sum: [\d,]+ operations take [\d,]+ bytes", problem.message)
    placed = sum(p.bytes for p in EXPORTER.check(large, chosen).placements if p.memory == "cls")
    assert problem.missing_bytes == placed + 16384 - TARGET.device.memory("cls").bytes


def test_values_that_do_not_fit_the_threads_state_are_refused() -> None:
    model = graph_model(3, operations=2000, fields=20)
    built = build(model)
    (problem,) = EXPORTER.check(model, EXPORTER.parse_options({"state": "lmem"})).problems
    arrays = model.input.n_words + 1 + len(model.classes) + len(model.input.features)
    state_bytes = 4 * (arrays + built.value_words * built.program.slots)
    assert problem.memory == "lmem"
    assert problem.missing_bytes == 8 * state_bytes - 2048


def test_the_target_takes_graphs() -> None:
    assert TARGET.for_family(TreesModel.family) is EXPORTER
    assert "sum-product-network" in TARGET.families


@compiles
def test_models_share_the_islands(tmp_path: Path) -> None:
    """Trees of 30 KB take most of the CLS of an island."""
    model = graph_model(3, operations=29, depth=7, classes=2)
    options = EXPORTER.parse_options({"threads": 5})
    fit = EXPORTER.check(model, options)
    assert fit.ok and fit.placements[0].memory == "cls"
    EXPORTER.write(model, options, tmp_path)
    member = CoLocatedNetwork(model, options, fit, EXPORTER.report(model, options, tmp_path))
    five = EXPORTER.colocate([member] * 5)
    assert not five.problems
    assert "1 + 1 + 1 + 1 + 1 networks in 5 islands" in five.way
    assert five.latency_ns == member.value("latency")
    assert any("6 networks" in text for text in EXPORTER.colocate([member] * 6).problems)
