# SPDX-License-Identifier: Apache-2.0
"""The graph of a pipeline is read back from its Verilog: every number that matters is compared."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from n3ic.errors import VerifyError
from n3ic.exporters.netfpga.graph.exporter import EXPORTER
from n3ic.exporters.netfpga.graph.logic import FALSE, TRUE, Network
from n3ic.exporters.netfpga.tools import simulate
from n3ic.families.spn.arithmetic import LinearArithmetic, LogArithmetic
from n3ic.families.spn.random_models import random_spn
from n3ic.families.trees.random_models import random_trees
from n3ic.model.classifier import Classifier
from n3ic.model.graph.builder import GraphBuilder
from n3ic.model.graph.comparison import ValuesRead
from n3ic.model.graph.operations import Add, Constant, Lookup, Offset
from n3ic.model.inputs import Field, InputSpec
from n3ic.targets.directory import export
from tests.support.random_graphs import codes, graph_family, graph_model

OPTIONS = EXPORTER.parse_options({}, verify=True)
CORE, TABLE = "n3ic_core.v", "n3ic_log_table.v"
simulated = pytest.mark.skipif(not shutil.which("iverilog"), reason="needs Icarus Verilog")
MIXED = InputSpec(
    (
        Field("b", "binary", 5, 20),
        Field.thermometer("a", (3, 9, 40, 77, 1000)),
        Field("r", "binary", 32, 2**32 - 1),
        Field.thermometer("w", range(5, 75)),
        Field.thermometer("o", (7,)),
    )
)
MODELS: dict[str, Classifier] = {
    "forest": random_trees(np.random.default_rng(1), trees=4, depth=4),
    "votes": random_trees(np.random.default_rng(3), trees=9, depth=5, classes=4, largest=1),
    "stumps": random_trees(np.random.default_rng(4), trees=6, depth=1, cuts=1, classes=3),
    "trees of raw bits": random_trees(np.random.default_rng(5), trees=4, depth=4, spec=MIXED),
    "sums below choices": graph_model(3, operations=60),
    "log-adds": graph_model(4, "log"),
    "products": graph_model(6, "fixed", classes=2),
    "log spn": random_spn(np.random.default_rng(7), arithmetic=LogArithmetic.of(8), classes=3),
    "linear spn": random_spn(np.random.default_rng(8), arithmetic=LinearArithmetic(12)),
    # A cut of one field is a bit as well as a bin; bits may stand for several values of a model.
    "one cut": graph_model(31, "log", operations=21, classes=2, cuts=2),
    "look-ups by bits": graph_model(9, operations=3, depth=2, bits=4),
    "large look-ups by bits": replace(graph_model(9, operations=2, depth=1, bits=8), input=MIXED),
    # Look-ups by one bit, or by both bits of a field, are also bins and ends of trees.
    "few bits": graph_model(13, operations=4, depth=1, bits=2, fields=3, cuts=2),
    "cells wider than scores": graph_model(20, "log", operations=37, classes=3, cuts=9),
}


@pytest.fixture(autouse=True)
def installed() -> Iterator[None]:
    with graph_family():
        yield


def written(model: Classifier, out: Path) -> Path:
    out.mkdir(exist_ok=True)
    EXPORTER.write(model, OPTIONS, out)
    return out


@pytest.mark.parametrize("name", MODELS)
def test_what_is_written_is_read_back(tmp_path: Path, name: str) -> None:
    for folder, model in (("all", MODELS[name]), ("shunted", MODELS[name].with_shunt(3))):
        out = written(model, tmp_path / folder)
        (decoded,) = EXPORTER.decode(out, model, OPTIONS)
        assert (decoded.artefact, decoded.shunt) == (f"rtl/{CORE}", model.shunt)
    with pytest.raises(VerifyError):
        EXPORTER.decode(tmp_path / "shunted", MODELS[name], OPTIONS)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(25))
def test_random_models_are_read_back(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    largest = int(rng.choice([1, 2, 9, 1000, 100_000]))
    shape = {"depth": int(rng.integers(0, 6)), "classes": int(rng.integers(2, 6))}
    models: list[Classifier] = [
        random_trees(rng, trees=8, cuts=int(rng.integers(1, 9)), largest=largest, **shape),
        random_trees(rng, trees=4, spec=MIXED, **shape),
        random_spn(rng, arithmetic=LogArithmetic.of(int(rng.integers(1, 9)))),
        random_spn(rng, arithmetic=LinearArithmetic(int(rng.integers(8, 28)))),
    ]
    for kind in ("integers", "log", "steep", "fixed"):
        own = graph_model(seed, kind, operations=int(rng.integers(3, 60)), cuts=9)
        models += [own, replace(own, input=MIXED)]
    for bits in (1, 2, 8):
        shape = {"operations": 3, "depth": 1, "bits": bits, "cuts": int(rng.integers(1, 9))}
        own = graph_model(seed, classes=int(rng.integers(2, 5)), **shape)
        models += [own, replace(own, input=MIXED)]
    for i, model in enumerate(models):
        EXPORTER.decode(written(model, tmp_path / str(i)), model, OPTIONS)


@pytest.mark.slow
@simulated
@pytest.mark.parametrize("name", ["cells wider than scores", "one cut"])
def test_a_score_is_as_wide_as_its_cell(tmp_path: Path, name: str) -> None:
    model = MODELS[name]
    words = codes(model.input, np.random.default_rng(5), 50)
    seen = simulate.run_core(written(model, tmp_path), model, words, "icarus")
    np.testing.assert_array_equal(seen.inference.scores, model.scores(words))


@pytest.mark.slow
def test_an_export_says_that_it_was_read_back(tmp_path: Path) -> None:
    model = MODELS["forest"]
    options = {"input-stage": "features"}
    exported = export(model, "netfpga", tmp_path / "e", options=options)
    assert exported.verification is not None and exported.verification.ok
    assert exported.verification.decoded == (f"rtl/{CORE}",)
    path = exported.path / "rtl" / "n3ic_features.v"
    text = path.read_text()
    path.write_text(text.replace("assign bits[0] = ", "assign bits[0] = ~", 1))
    with pytest.raises(VerifyError, match="do not compare"):
        EXPORTER.decode(exported.path, model, EXPORTER.parse_options(options))


# --- changes --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "pattern", "new", "text"),
    [
        (
            "forest",
            r"(case \(\{gate.*?'d0: leaf\d+ <= \d+'d)(\d+)",
            1,
            "lacks a choice by bit",
        ),
        ("forest", r"(TABLE\(\d+'h)([0-9a-f])", 1, r"core\.v, leaf\d+: "),
        ("forest", r"(sum\d+ <= sum\d+ \+ \d+'d)(\d+)", 1, "adds other values"),
        ("forest", r"(wire \[0:0\] bits\d+ = )(in_bits\[3:3\])", "in_bits[2:2]", r"leaf\d+: "),
        ("forest", r"(\.at\(\{)(bits\d+)_d", "bits0", r"reads|not there"),
        ("forest", r"(bits\d+_d\[)(1:1)", "0:0", "reads values of clocks"),
        ("forest", r"(\{\{\d+ \{)(leaf\d+\[\d+\])", "1'b0", "reads leaf"),
        ("forest", r"(out_scores = scores_d\[)(\d+:\d+)", "39:20", "scores come in clock"),
        ("forest", r"(b_class\(1'd)(1)", "0", "compares key1"),
        ("forest", r"(margin < \d+'d)(3)", "4", "shunts margins below 4, the model below 3"),
        ("forest", r"(score0 = 10'd)(0)", "1", "class 0"),
        ("log-adds", r"(leaf\d+ <= \d+'d)(\d+)", 1, r"lacks a look-up of \d+ entries by x0"),
        ("log-adds", r"(sum\d+ <= chosen\d+ \+ 6'd)(\d+)", 1, "lacks|that the model has not"),
        ("log-adds", r"(chosen29 <= )(bits28_d\[\d+:\d+\])", "leaf14", "chooses by what is no"),
        ("log-adds", r"(\.SIGNED\()(1)", "0", r"max30: reads leaf27 as"),
        ("log-adds", r"(\.b\()(chosen29)(?=\))", "leaf14", "max30: compares values of other bits"),
        ("log-adds", r"(\{\{1 \{)(1'b0)", "1'b1", r"sum10: adds numbers of bits"),
        ("log-adds", r"(case \(sum13\).*?)(5'd0)", "5'd31", "the table|no input reaches|look-up"),
        ("products", r"(\.BY\(17'd)(\d+)", 1, "lacks a rounding|the model has not|scaling"),
        ("products", r"(\.FRACTION\()(9)", "8", "rounds 8 fraction bits"),
    ],
)
def test_a_change_is_named(
    tmp_path: Path, name: str, pattern: str, new: str | int, text: str
) -> None:
    model = MODELS[name].with_shunt(3)
    path = written(model, tmp_path) / "rtl" / CORE
    core = path.read_text()
    match = re.search(pattern, core, re.S)
    assert match is not None
    if isinstance(new, int):
        base = 16 if match[1].endswith("h") else 10
        new = f"{int(match[2], base) ^ new:{'x' if base == 16 else 'd'}}"
    path.write_text(core[: match.start(2)] + new + core[match.end(2) :])
    with pytest.raises(VerifyError) as error:
        EXPORTER.decode(tmp_path, model, OPTIONS)
    assert re.search(text, str(error.value)), str(error.value)


def test_an_entry_of_a_look_up_by_bits_is_named(tmp_path: Path) -> None:
    model = MODELS["look-ups by bits"]
    path = written(model, tmp_path) / "rtl" / CORE
    text = path.read_text("ascii")
    (change, *_) = re.finditer(r"case \(\{bits.*\n *4'd0: leaf\d+ <= \d+'d(\d+)", text)
    number = int(change[1]) ^ 1
    path.write_text(text[: change.start(1)] + str(number) + text[change.end(1) :], "ascii")
    with pytest.raises(
        VerifyError, match=r"the score of class \d lacks a look-up by the bits \d+, "
    ):
        EXPORTER.decode(tmp_path, model, OPTIONS)


@pytest.mark.slow
def test_entries_of_log_add_are_named(tmp_path: Path) -> None:
    for name in ("log-adds", "log spn"):  # one block, and several
        model = MODELS[name]
        path = written(model, tmp_path / name) / "rtl" / TABLE
        text = path.read_text()
        numbers = [m for m in re.finditer(r"block\d+ <= \d+'d(\d+)", text) if int(m[1]) > 1]
        for m in numbers[:: max(1, len(numbers) // 20)]:
            path.write_text(f"{text[: m.start(1)]}{int(m[1]) - 1}{text[m.end(1) :]}")
            with pytest.raises(VerifyError, match=r"log-add table|log_table\.v: "):
                EXPORTER.decode(tmp_path / name, model, OPTIONS)


def code_of(text: str) -> str:
    """A text whose comments, and the wire of unread bits, are blank."""
    ignored = r"//[^\n]*|/\*.*?\*/|wire unread[^\n]*"
    return re.sub(ignored, lambda match: " " * len(match[0]), text)


def numbers_of(text: str) -> Iterator[re.Match[str]]:
    """The numbers of a file's code; those of a table of gates by digit."""
    return re.finditer(r"(?<='h)[0-9a-f]+|\d+", code_of(text))


@pytest.mark.slow
@simulated
@pytest.mark.parametrize(
    "name", ["forest", "log-adds", "products", "sums below choices", "few bits"]
)
def test_every_changed_number_is_found_or_changes_nothing(tmp_path: Path, name: str) -> None:
    model = MODELS[name].with_shunt(3)
    out, words = written(model, tmp_path), codes(model.input, np.random.default_rng(0), 300)
    same = 0
    for path in (out / "rtl" / CORE, out / "rtl" / TABLE):
        text = path.read_text() if path.exists() else ""
        for k, number in enumerate(numbers_of(text)):
            if text[number.start() - 1] == "h":
                digits = int(number[0], 16) ^ (1 << k % (4 * len(number[0])))
                new = f"{digits:0{len(number[0])}x}"
            else:
                new = str(int(number[0]) + 1)
            path.write_text(text[: number.start()] + new + text[number.end() :])
            try:
                EXPORTER.decode(out, model, OPTIONS)
            except VerifyError:
                continue
            same += 1  # no input leads there
            seen = simulate.run_core(out, model, words, "icarus")
            np.testing.assert_array_equal(seen.inference.scores, model.scores(words))
        if text:
            path.write_text(text)
    assert same < 10


@pytest.mark.first_case
@pytest.mark.parametrize("name", ["forest", "log-adds", "products"])
def test_text_that_is_no_pipeline_is_refused(tmp_path: Path, name: str) -> None:
    model = MODELS[name]
    path = written(model, tmp_path) / "rtl" / CORE
    text = path.read_text()
    lines = [line for line in text.splitlines(keepends=True) if code_of(line).strip()]
    for at in range(0, len(lines), max(1, len(lines) // 40)):
        before, after = lines[:at], lines[at:]
        # A row of entries may repeat what the table has elsewhere: without it, it is the same one.
        entries = re.match(r"\d+'d", lines[at])
        less = [] if entries else [[*before, *after[1:]]]
        for changed in (before, *less, [*before, "wire z = clk;\n", *after]):
            path.write_text("".join(changed))
            with pytest.raises(VerifyError, match=r"n3ic_core\.v"):
                EXPORTER.decode(tmp_path, model, OPTIONS)
    path.write_text(text + "module n3ic_gate(); endmodule\n")
    with pytest.raises(VerifyError, match="a statement of a pipeline is expected"):
        EXPORTER.decode(tmp_path, model, OPTIONS)
    path.unlink()
    with pytest.raises(VerifyError, match="cannot be read"):
        EXPORTER.decode(tmp_path, model, OPTIONS)


@pytest.mark.parametrize(
    ("name", "block"),
    [("forest", "n3ic_gate.v"), ("forest", "n3ic_best.v"), ("log-adds", "n3ic_log_max.v"),
     ("log-adds", "n3ic_ones.v"), ("products", "n3ic_times.v"), ("products", "n3ic_round.v")],
)  # fmt: skip
def test_a_changed_block_is_refused(tmp_path: Path, name: str, block: str) -> None:
    model = MODELS[name]
    path = written(model, tmp_path) / "rtl" / block
    path.write_text(path.read_text().replace("<=", "<= ~", 1))
    with pytest.raises(VerifyError, match=f"{block}: not the block that the core needs"):
        EXPORTER.decode(tmp_path, model, OPTIONS)


# --- parts ----------------------------------------------------------------------------------


def test_a_network_of_tables_gives_its_function() -> None:
    """Bits are put in, in any order, until only a constant is left."""
    rng = np.random.default_rng(0)
    for _ in range(40):
        network = Network()
        nodes = [network.bit(bit) for bit in range(5)]
        rows = np.array(list(product((0, 1), repeat=5)))
        values = [*rows.T]
        for _ in range(6):
            read = rng.integers(0, len(nodes), int(rng.integers(1, 5)))
            table = int(rng.integers(0, 1 << 16)) & ((1 << (1 << len(read))) - 1)
            nodes.append(network.table(table, [nodes[k] for k in read]))
            index = sum(values[k] << j for j, k in enumerate(read))
            values.append(np.array([table >> int(at) & 1 for at in index]))
        for row, wanted in zip(rows, values[-1], strict=True):
            node = nodes[-1]
            for bit in rng.permutation(5).tolist():
                node = network.put(node, bit, int(row[bit]))
            assert node == (TRUE if wanted else FALSE)


def test_values_that_are_read_are_those_of_a_graph_in_any_form() -> None:
    spec = InputSpec((Field.thermometer("a", (1, 2)), Field.thermometer("b", (5,))))
    builder = GraphBuilder(spec)
    a, b = builder.lookup(0, (0, 3, 4)), builder.lookup(1, (1, 7))
    graph = builder.build((builder.constant(0), builder.offset(builder.add(a, b), 5)))
    read = ValuesRead(graph)
    for step in (Lookup(1, (6, 12)), Lookup(0, (0, 3, 4)), Constant(5)):
        read.append(step)
    assert read.known(Add(0, 1)) and read.known(Add(1, 0))
    assert not read.known(Offset(0, 1))
    read.append(Add(1, 0))
    assert read.same(3, graph.scores[1]) and not read.same(3, graph.scores[0])
