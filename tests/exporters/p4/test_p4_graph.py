# SPDX-License-Identifier: Apache-2.0
"""Graphs of integer operations on P4: exact, read back, changed at run time, refused."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from n3ic.errors import ExportError, UsageError, VerifyError
from n3ic.exporters.p4.exporter import EXPORTER as P4
from n3ic.exporters.p4.graph import pipeline
from n3ic.exporters.p4.graph.target import P4GraphTarget
from n3ic.exporters.p4.graph.trees import forest_tables
from n3ic.exporters.p4.interpreter import P4Error, Switch
from n3ic.exporters.p4.run import bmv2
from n3ic.exporters.p4.run.execute import LoadedProgram
from n3ic.exporters.p4_netfpga.exporter import EXPORTER as NETFPGA
from n3ic.families.trees.network import TreesModel
from n3ic.families.trees.random_models import random_trees
from n3ic.families.trees.vectors import trees_vectors
from n3ic.model.bits import Words, unpack
from n3ic.model.classifier import Classifier, margins_of
from n3ic.model.difference import first_difference
from n3ic.model.family import family, graph_of
from n3ic.model.graph.builder import GraphBuilder
from n3ic.model.graph.evaluate import scores
from n3ic.model.graph.operations import Constant, Graph, Lookup, Scale
from n3ic.model.inputs import Field, InputSpec
from n3ic.options import Options
from n3ic.targets.base import Exporter
from n3ic.targets.directory import export
from n3ic.targets.packets import PacketResult
from n3ic.targets.verification import verify_directory
from tests.support.p4_stand_ins import needs_namespaces
from tests.support.random_graphs import GraphModel, codes, graph_family, graph_model

TARGETS: dict[str, Exporter[Any]] = {t.name: t.for_family(TreesModel.family) for t in (P4, NETFPGA)}
TARGET, SUME = TARGETS.values()
KERNEL: P4GraphTarget[Any] = TARGET.of_graphs  # type: ignore[attr-defined]
BOTH = pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
FILES = {
    "p4": ("commands.txt", "p4runtime.json", "p4runtime-1.txtpb", "bfrt.py", "runtime.json"),
    "p4-netfpga": ("n3ic.p4",),
}
RAW = InputSpec((Field.binary("port", 16), Field("mark", "binary", 3, 5, ())))
WIDE = InputSpec(
    (
        Field.thermometer("bytes", (1, 1 << 31, (1 << 32) - 1)),
        Field.thermometer("packets", (0x80000001, 0xFFFFFFFE)),
    )
)
CASES: dict[str, dict[str, Any]] = {
    "forest": {},
    "stump": {"features": 1, "cuts": 1, "trees": 1, "depth": 1},
    "stumps": {"trees": 40, "depth": 1},
    "three classes": {"trees": 9, "classes": 3},
    "many classes": {"trees": 5, "classes": 20, "depth": 2},
    "raw bits": {"spec": RAW, "classes": 4},
    "features of 32 bits": {"spec": WIDE, "trees": 5},
    "large leaves": {"trees": 6, "largest": 1 << 26},
    "hundreds of leaves": {"features": 8, "cuts": 60, "trees": 2, "depth": 9},
}


@pytest.fixture(autouse=True)
def installed() -> Iterator[None]:
    with graph_family():
        yield


def some_trees(seed: int = 0, **how: Any) -> TreesModel:
    return random_trees(np.random.default_rng(seed), **how)


def write(model: Classifier, out: Path, target: Exporter[Any] = TARGET, **given: str) -> Options:
    options = target.parse_options({k.replace("_", "-"): v for k, v in given.items()}, verify=True)
    out.mkdir(parents=True, exist_ok=True)
    target.write(model, options, out)
    return options


# --- scores ------------------------------------------------------------------------------------


@pytest.mark.first_case
@BOTH
@pytest.mark.parametrize("case", CASES)
def test_programs_give_scores_and_verdicts(
    target: Exporter[Any], tmp_path: Path, case: str
) -> None:
    model = some_trees(**CASES[case])
    margins = margins_of(model.scores(trees_vectors(model, 60, 0)))
    model = model.with_shunt(max(1, int(np.median(margins))))
    export(model, target.name, tmp_path / "e", verify=False, simplify=False)
    verification = verify_directory(tmp_path / "e", vectors=60)
    assert verification.ok, verification
    assert verification.decoded == FILES[target.name]
    assert verification.at_shunt or verification.below_shunt


@pytest.mark.first_case
@pytest.mark.parametrize("seed", range(8))
def test_each_input_matches_one_entry_of_each_tree(seed: int) -> None:
    model = graph_model(seed, operations=60) if seed % 2 else graph_model(seed, depth=4)
    graph = graph_of(model)
    forest = forest_tables(graph)
    words = codes(model.input, np.random.default_rng(0), 40)
    expected = scores(graph, words)
    assert (scores(forest.graph, words) == expected).all()
    total = np.array(forest.starts) + np.zeros((len(words), 1), dtype=np.int64)
    for tree in forest.trees:
        entries = list(forest.entries(tree))
        assert len(entries) == tree.count
        for row, bits in enumerate(unpack(words, model.input.n_bits)):
            key = sum(int(bits[b]) << j for j, b in enumerate(tree.bits))
            (hit,) = [e for e in entries if key & e.mask == e.value]
            total[row, list(tree.scores)] += hit.leaves
    assert (total == expected).all()


@pytest.mark.first_case
@BOTH
@pytest.mark.parametrize(
    "given",
    [
        {"input": "field", "field": "ipv6.dst", "output": "class", "ethertype": "0x1234"},
        {"input": "field", "field": "udp.payload", "udp_port": "77", "output": "scores"},
        {"shunt_port": "4"},
    ],
)
def test_packets_are_those_of_binary_networks(
    target: Exporter[Any], tmp_path: Path, given: Mapping[str, str]
) -> None:
    model = some_trees(classes=3).with_shunt(9 if "shunt_port" in given else 0)
    options = write(model, tmp_path, target, **given)
    words = trees_vectors(model, 40, 0)
    assert target.decode(tmp_path, model, options)
    inference = target.run(tmp_path, model, options, words).inference
    assert first_difference(model, inference, words) is None


@dataclass(frozen=True, eq=False, repr=False)
class Made(GraphModel):
    """A model whose graph is given."""

    def ask(self, kind: Any) -> Graph:
        return GRAPHS[self.drawn[0]](self.input)


def scaled(spec: InputSpec) -> Graph:
    """A sum that is scaled, with a look-up and choices; a builder makes no such scaling."""
    builder = GraphBuilder(spec)
    table = builder.lookup(0, [5, -7, 9, 2])
    choice = builder.choose(4, builder.constant(3), builder.lookup(1, [0, 4, 4]))
    total = builder.offset(builder.add(table, choice), 6)
    steps = (*builder.steps, Scale(total, -3))
    return Graph(spec, steps, (len(steps) - 1, total))


def unequal(spec: InputSpec) -> Graph:
    """Trees of scores that ask the same at first; one asks more, in another field."""
    builder = GraphBuilder(spec)
    one, two, three, four = (builder.constant(v) for v in (1, 2, 3, 40))
    more = builder.choose(1, builder.choose(4, one, two), builder.choose(3, three, one))
    less = builder.choose(1, two, four)
    return builder.build([more, less, builder.choose(1, builder.choose(0, one, two), one)])


def chain(depth: int) -> Any:
    def made(spec: InputSpec) -> Graph:
        builder = GraphBuilder(spec)
        value = builder.constant(-1)
        for i in range(depth):
            value = builder.choose(i, builder.constant(i), value)
        return builder.build([builder.constant(0), value])

    return made


def diamonds(count: int) -> Any:
    """Choices whose sides meet again: few nodes, and a way to a leaf for each combination."""

    def made(spec: InputSpec) -> Graph:
        builder = GraphBuilder(spec)
        rows = [builder.constant(i) for i in range(count + 1)]
        for bit in range(count):
            rows = [builder.choose(bit, a, b) for a, b in pairwise(rows)]
        return builder.build([builder.constant(0), rows[0]])

    return made


def constants(spec: InputSpec) -> Graph:
    builder = GraphBuilder(spec)
    return builder.build([builder.constant(v) for v in (4, -4, 4)])


def far(spec: InputSpec) -> Graph:
    builder = GraphBuilder(spec)
    large = builder.choose(0, builder.constant(0), builder.constant(1 << 30))
    return builder.build([builder.constant(0), large])


def summed(spec: InputSpec) -> Graph:
    """The sum that is scaled, alone."""
    graph = scaled(spec)
    return Graph(spec, (*graph.steps[:-1], Constant(0)), (len(graph.steps) - 1, graph.scores[1]))


BITS = InputSpec(tuple(Field.binary(f"x{i}", 32) for i in range(9)))
GRAPHS = {
    0: scaled, 1: chain(256), 2: diamonds(12), 3: constants, 4: far, 5: diamonds(40), 6: summed,
    7: unequal
}  # fmt: skip


def made(number: int, spec: InputSpec, classes: int = 2) -> Made:
    return Made(spec, (number, 0, 0, 0), tuple("abcdef"[:classes]))


@BOTH
@pytest.mark.parametrize(
    ("number", "spec", "classes"),
    [(0, WIDE, 2), (1, BITS, 2), (2, BITS, 2), (3, WIDE, 3), (7, WIDE, 3)],
)
def test_any_sum_of_trees_is_written(
    target: Exporter[Any], tmp_path: Path, number: int, spec: InputSpec, classes: int
) -> None:
    model = made(number, spec, classes)
    options = write(model, tmp_path, target)
    assert not target.check(model, options).problems
    words = codes(spec, np.random.default_rng(0), 30) if spec is WIDE else rows(spec, 60)
    assert len(target.decode(tmp_path, model, options)) == len(FILES[target.name])
    inference = target.run(tmp_path, model, options, words).inference
    assert first_difference(model, inference, words) is None


def rows(spec: InputSpec, count: int) -> Words:
    rng = np.random.default_rng(0)
    return np.concatenate(
        [
            np.full((1, spec.n_words), 0xFFFFFFFF, dtype=np.uint32),
            rng.integers(0, 1 << 32, (count, spec.n_words), dtype=np.uint32),
        ]
    )


@pytest.mark.first_case
@pytest.mark.parametrize("seed", range(6))
def test_joined_trees_are_read_back_as_they_were(tmp_path: Path, seed: int) -> None:
    """Trees of few cuts: a bit that one score's tree asks decides bits of another's."""
    model = some_trees(seed, classes=3, trees=8, features=2, cuts=7, largest=1)
    options = write(model, tmp_path)
    assert len(TARGET.decode(tmp_path, model, options)) == len(FILES["p4"])


# --- how many tables ---------------------------------------------------------------------------


def test_trees_of_several_classes_that_ask_the_same_are_one_table() -> None:
    model = some_trees(trees=10, classes=4, features=12, cuts=12)
    tables = forest_tables(graph_of(model)).trees
    assert len(tables) == 10
    assert sum(tree.count for tree in tables) < 1.1 * len(model.leaves)


def test_stumps_of_a_feature_are_one_table_of_its_intervals() -> None:
    model = some_trees(trees=300, depth=1, features=5, cuts=9)
    forest = forest_tables(graph_of(model))
    assert len(forest.trees) == 5
    assert all(isinstance(forest.forest.builder.steps[t.root], Lookup) for t in forest.trees)
    assert sum(t.count for t in forest.trees) <= model.input.n_bits + 5


def test_trees_that_ask_the_same_bits_share_a_key() -> None:
    spec = InputSpec((Field.binary("a", 2),))
    model = some_trees(trees=9, depth=2, spec=spec, classes=2, seed=2)
    network = pipeline.forest_pipeline(model)
    assert len(network.tables) > len(network.keys)


# --- entries changed at run time ---------------------------------------------------------------


def retrained(model: TreesModel, seed: int) -> TreesModel:
    """Other leaves and biases, of the same trees."""
    rng = np.random.default_rng(seed)
    leaves = rng.integers(-100, 101, model.leaves.shape).astype(np.int32)
    bias = rng.integers(-9, 9, len(model.bias)).astype(np.int32)
    return replace(model, leaves=leaves, bias=bias)


def loaded(out: Path, model: Classifier, options: Options) -> LoadedProgram:
    program: LoadedProgram = TARGET.program(out, model, options)  # type: ignore[attr-defined]
    return program


def answers(running: Switch, program: LoadedProgram, words: Words) -> list[PacketResult]:
    return [
        program.packets.result(running.process(request, 1).packet)
        for request in program.requests(words)
    ]


def sent(running: Switch, lines: Sequence[str]) -> list[str]:
    """Send commands as simple_switch_CLI does, which goes on after one that is refused."""
    refused = []
    for line in lines:
        try:
            running.load(line)
        except P4Error:
            refused.append(line)
    return refused


def test_entries_are_replaced_while_the_switch_runs(tmp_path: Path) -> None:
    first = some_trees(1, classes=3, trees=4)
    second = retrained(first, 2)
    options = write(first, tmp_path / "first")
    write(second, tmp_path / "second")
    sources = {(tmp_path / name / "n3ic.p4").read_text() for name in ("first", "second")}
    assert len(sources) == 1
    program = loaded(tmp_path / "first", first, options)
    running = program.switch()
    words = trees_vectors(first, 12, 0)
    known = {int(m.digest[:8], 16): m.scores(words) for m in (first, second)}
    old, new = known
    models = []
    lines = (tmp_path / "second" / "commands.txt").read_text().splitlines()
    watched = {0, 1, 2, len(lines) - 2, len(lines) - 1, len(lines), *range(3, len(lines), 7)}
    for i, line in enumerate(["", *lines]):
        running.load(line)
        if i not in watched:
            continue
        results = answers(running, program, words)
        models.append({result.model for result in results})
        for row, result in enumerate(results):
            if result.model:
                assert result.scores is not None
                assert result.scores.tolist() == known[result.model][row].tolist()
    assert models == [{old}, *[{0}] * (len(models) - 2), {new}]
    assert (known[old] != known[new]).any()


def test_a_tree_of_another_form_fits_a_table_of_the_same_bits(tmp_path: Path) -> None:
    """The bits of a key and the room of a table are compiled in, the tree is not."""
    spec = InputSpec((Field.binary("a", 3),))

    def of(order: Sequence[int]) -> TreesModel:
        n = len(order)
        return TreesModel(
            input=spec,
            sizes=np.array([n]),
            bits=np.array(order),
            zero_sizes=np.zeros(n, dtype=np.int64),
            leaves=np.arange(n + 1, dtype=np.int32).reshape(-1, 1) - 1,
            bias=np.array([0], dtype=np.int32),
            classes=("a", "b"),
        )

    one, other = of([0, 1, 2]), of([2, 0, 1])
    options = write(one, tmp_path / "one")
    write(other, tmp_path / "other")
    program = loaded(tmp_path / "one", one, options)
    running = program.switch()
    assert sent(running, (tmp_path / "other" / "commands.txt").read_text().splitlines()) == []
    words = np.arange(8, dtype=np.uint32).reshape(-1, 1)
    results = answers(running, program, words)
    assert {result.model for result in results} == {int(other.digest[:8], 16)}
    assert [result.scores.tolist() for result in results] == other.scores(words).tolist()


def test_entries_of_another_program_leave_answers_without_a_model(tmp_path: Path) -> None:
    model, other = some_trees(1, trees=3), some_trees(2, trees=3)
    options = write(model, tmp_path / "right")
    write(other, tmp_path / "wrong")
    program = loaded(tmp_path / "right", model, options)
    running = program.switch()
    assert sent(running, (tmp_path / "wrong" / "commands.txt").read_text().splitlines())
    results = answers(running, program, trees_vectors(model, 3, 0))
    assert {result.model for result in results} == {0}


def test_a_switch_that_lost_entries_names_no_model(tmp_path: Path) -> None:
    model = some_trees(trees=3)
    options = write(model, tmp_path)
    program = loaded(tmp_path, model, options)
    running = program.switch()
    running.load("table_clear t1")
    results = answers(running, program, trees_vectors(model, 4, 0))
    assert {result.model for result in results} == {0}


@pytest.mark.slow
@needs_namespaces
def test_a_running_switch_holds_the_ternary_entries(tmp_path: Path, stand_ins: Path) -> None:
    """The switch, its compiler and its command line are stand-ins: their plumbing is real."""
    model = some_trees(1, trees=3)
    options = write(model, tmp_path / "e", with_bmv2="yes")
    words = trees_vectors(model, 20, 0)[:40]
    execution = TARGET.run(tmp_path / "e", model, options, words)
    assert execution.executor.startswith("simple_switch 0.0.0-stand-in")
    assert first_difference(model, execution.inference, words) is None
    program, log = loaded(tmp_path / "e", model, options), tmp_path / "log"
    with bmv2.network_namespace() as namespace:
        compiled = bmv2.compile_program(program.source, tmp_path)
        with bmv2.running_switch(namespace, compiled, log) as process:
            # The offsets and both readings of the model's number are default actions.
            entries = bmv2.load_entries(namespace, program, process, log)
            assert entries == len(model.leaves) + 3


# --- read back ---------------------------------------------------------------------------------


def decoding_error(
    model: Classifier, out: Path, options: Options, target: Exporter[Any] = TARGET
) -> str:
    with pytest.raises(VerifyError) as error:
        target.decode(out, model, options)
    return str(error.value)


def changed(text: str, pattern: str, new: Any, which: int = 0) -> str:
    match = list(re.finditer(pattern, text, re.MULTILINE))[which]
    return text[: match.start()] + match.expand(new) + text[match.end() :]


@pytest.mark.parametrize(
    ("name", "pattern", "new", "message"),
    [
        ("n3ic.p4", r"meta\.x >> (\d)(\d*)\)", r"meta.x >> 1\1\2)", "has an input bit twice"),
        ("n3ic.p4", r"meta\.k1: ternary", "meta.k0: ternary", ""),
        ("n3ic.p4", r"t1_s0 = (\(bit<\d+>\)) leaf0", r"t0_s0 = \1 leaf0", "own table"),
        ("n3ic.p4", r"meta\.t0_s1 \+ meta\.t1_s1", "meta.t0_s1 + meta.t2_s1", "adds a leaf twice"),
        ("n3ic.p4", r"\+ offset1;", "+ offset2;", "not the sum"),
        ("n3ic.p4", r"(meta\.k0 = .*;)$", r"\1 meta.k1 = 0;", "of another form|not made"),
        ("n3ic.p4", r"(meta\.k0 = .*;)$", r"\1\n\tmeta.k1 = 0;", "of another form"),
        ("n3ic.p4", r"score2 = .*;$", "score2 = offset2;", "not the sum"),
        ("n3ic.p4", r"(\.set_model_again_)\w", r"\1x", "not set by two matching actions"),
        ("n3ic.p4", r"\.set_model_again_", ".set_model_", "not set by two matching actions"),
        ("commands.txt", r"^.* offsets .*\n", "", "offsets are not set once"),
        ("commands.txt", r"^table_add t1 t1_leaf .*\n", "", "not those of a tree|no such"),
        ("commands.txt", r"=> 0x(.)[^ ]", r"=> 0x\1\1", ""),
        ("commands.txt", r"(offsets 0x.*)[0-9a-f]$", r"\g<1>z", "not a number"),
        ("commands.txt", r" 1$", " 2", "not a command"),
        ("commands.txt", r"^(table_add t0 .*\n)(table_add t0 .*\n)", r"\2\1", "not those of"),
        ("p4runtime.json", r'"priority": 1', '"priority": 2', "sets neither"),
        ("p4runtime.json", r'"mask": "[^"]*"', '"mask": "/w=="', ""),
        ("runtime.json", r'"priority": 1', '"priority": true', "not an entry"),
        ("runtime.json", r'"meta.k1"', '"meta.k0"', "not an entry"),
        ("runtime.json", r'"leaf0": \d+', '"leaf0": 12345678901', "another size"),
        ("runtime.json", r'"offset1": (\d)', r'"offset1": 9\1', ""),
    ],
)
def test_what_is_changed_is_told(
    tmp_path: Path, name: str, pattern: str, new: str, message: str
) -> None:
    model = some_trees(3, trees=4, classes=3)
    options = write(model, tmp_path)
    assert len(TARGET.decode(tmp_path, model, options)) == len(FILES["p4"])
    path = tmp_path / name
    text = path.read_text()
    path.write_text(changed(text, pattern, new))
    assert path.read_text() != text
    assert re.search(message, decoding_error(model, tmp_path, options))


@pytest.mark.parametrize(
    ("pattern", "new", "message"),
    [
        (r"\.x >> 3\) & ", ".x >> 4) & ", "no mask of input bit 3"),
        (r"(user_metadata\.m(\d+) = .*\n)", r"\1\1", "set twice|another form"),
        (r"(~user_metadata\.m)3\)", r"\g<1>4)", "by two bits|not set before"),
        (r"(compute1\(\);\n *)(compute2\(\);)", r"\2\1", "not applied once each"),
        (r"^            take_scores\(\);\n", "", "not applied once each"),
        (r"(\d+w0x)(0|1)", r"\g<1>f", "values have|the score of class"),
        (r"score1 = .*;", "score1 = user_metadata.score0;", "no value with its sign"),
        (r"model = 32w0x.", "model = 32w0x~", "written 1 times"),
        (r"(second\) - 32w0x0000000).", r"\g<1>1", "shunts margins below 1"),
    ],
)
def test_statements_that_are_changed_are_told(
    tmp_path: Path, pattern: str, new: str, message: str
) -> None:
    model = some_trees(3, trees=4, classes=3).with_shunt(7)
    options = write(model, tmp_path, SUME)
    assert len(SUME.decode(tmp_path, model, options)) == 1
    path = tmp_path / "n3ic.p4"
    text = path.read_text()
    path.write_text(changed(text, pattern, new))
    assert path.read_text() != text
    assert re.search(message, decoding_error(model, tmp_path, options, SUME))


def test_each_number_of_the_statements_is_compared(tmp_path: Path) -> None:
    model = made(0, WIDE)
    graph = GRAPHS[0](WIDE)
    model = Made(WIDE, (6, 0, 0, 0), model.classes)
    options = write(model, tmp_path, SUME)
    path = tmp_path / "n3ic.p4"
    text = path.read_text()
    assert {type(step) for step in graph_of(model).steps} == {type(s) for s in graph.steps[:-1]}
    body = text[text.index("action compute1") : text.index("action take_scores")]
    numbers = list(re.finditer(r"w0x[0-9a-f]+", body))
    assert len(numbers) > 6
    for match in numbers:
        other = f"w0x{int(match[0][3:], 16) ^ 1:0{len(match[0]) - 3}x}"
        path.write_text(text.replace(body, body[: match.start()] + other + body[match.end() :]))
        assert "class" in decoding_error(model, tmp_path, options, SUME)


def test_every_leaf_and_offset_of_each_file_is_compared(tmp_path: Path) -> None:
    model = some_trees(3, trees=2, depth=2, classes=3)
    options = write(model, tmp_path)
    path = tmp_path / "commands.txt"
    text = path.read_text()
    values = list(re.finditer(r"(?<==> )(?:0x\w+ )+|(?<=offsets )0x.*", text))
    assert len(values) > 5
    for match in values:
        for number in re.finditer(r"0x\w+", match[0]):
            start, end = (match.start() + at for at in number.span())
            other = f"{int(number[0], 16) ^ 1:#0{end - start}x}"
            path.write_text(text[:start] + other + text[end:])
            assert "class" in decoding_error(model, tmp_path, options)
    other_model = retrained(model, 1)
    path.write_text(text)
    assert "class" in decoding_error(other_model, tmp_path, options)


# --- what does not fit -------------------------------------------------------------------------


def problems(model: Classifier, target: Exporter[Any] = TARGET) -> list[str]:
    return [str(p) for p in target.check(model, target.parse_options({})).problems]


def test_what_does_not_fit_is_refused_by_operation_or_number(monkeypatch: Any) -> None:
    (text,) = problems(graph_model(4, "log"))
    assert re.match(r"step [\d,]+, a log-add, .*this target writes no log-add", text)
    assert "the score of class 1 reaches 0 to 1,073,741,824" in problems(made(4, WIDE))[0]
    (text,) = problems(made(5, BITS))
    assert text == "1,099,511,627,776 leaves are as many table entries, 65,536 load in minutes"
    deep = some_trees(features=9, cuts=30, trees=30)
    network = pipeline.forest_pipeline(deep)
    needs = KERNEL.needs(network)
    for what in ("statements", "tables", "entries"):
        limit(monkeypatch, what, needs[what] - 1)
        (text,) = problems(deep)
        assert re.search(r"; the nearest shape that fits: the first 2\d of its 30 trees$", text)
    limit(monkeypatch, "field_bits", 40)
    (text,) = problems(deep)
    assert re.match(r"\d+ input bits, a field has 40 at most; the nearest .* of its 30 trees", text)


def limit(monkeypatch: pytest.MonkeyPatch, what: str, most: float) -> None:
    """Bound one resource of the device; the others are as they are."""
    device = P4.device
    monkeypatch.setitem(
        KERNEL.__dict__, "device", replace(device, limits={**device.limits, what: most})
    )


def test_options_that_do_not_apply_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no shunting threshold"):
        write(some_trees(), tmp_path, shunt_port="2")


@pytest.mark.exhaustive
def test_a_forest_beyond_the_netfpga_is_refused_with_the_nearest() -> None:
    model = some_trees(trees=400, features=30, cuts=40, depth=6, largest=9999)
    text = next(text for text in problems(model, SUME) if "LUTs" in text)
    pattern = r"[\d,]+ LUTs estimated, the device has 433,200; .* the first \d+ of its 400 trees"
    assert re.fullmatch(pattern, text), text


@BOTH
def test_sum_product_networks_are_refused_by_their_log_add(
    target: Exporter[Any], tmp_path: Path
) -> None:
    model = family("sum-product-network").random(np.random.default_rng(0))
    with pytest.raises(ExportError, match=r"step [\d,]+, a log-add.*writes no log-add"):
        export(model, target.name, tmp_path / "e")


def test_reports_count_entries_keys_and_tables(tmp_path: Path) -> None:
    model = some_trees(classes=3, trees=6)
    options = write(model, tmp_path)
    figures = {f.name: f.value for f in TARGET.report(model, options, tmp_path).figures}
    network = pipeline.forest_pipeline(model)
    lines = (tmp_path / "commands.txt").read_text().splitlines()
    added = [line for line in lines if line.startswith("table_add")]
    # The leaves, the offsets, and both readings of the model's number.
    assert figures["table.entries"] == len(added) + 3
    assert figures["tables.ternary"] == len(network.tables) == 6
    assert figures["key.longest"] == max(len(t.key.bits) for t in network.tables)
    assert figures["table.key_bits"] == network.key_bits
    assert figures["memory.leaves"] == network.leaf_bytes
    assert figures["tables"] == KERNEL.needs(network)["tables"] + 1


@pytest.mark.exhaustive
def test_a_forest_that_nobody_tuned_is_written_with_what_it_costs(tmp_path: Path) -> None:
    model = some_trees(features=20, cuts=60, trees=100, depth=6)
    options = write(model, tmp_path)
    assert TARGET.check(model, options).ok
    assert len(TARGET.decode(tmp_path, model, options)) == len(FILES["p4"])
    words = trees_vectors(model, 100, 0)[:300:2]
    inference = TARGET.run(tmp_path, model, options, words).inference
    assert first_difference(model, inference, words) is None
    figures = {f.name: f.value for f in TARGET.report(model, options, tmp_path).figures}
    assert figures["tables.ternary"] == 100
    assert 3000 < figures["table.entries"] < 6500
    assert figures["operations"] < 8192
