# SPDX-License-Identifier: Apache-2.0
"""The graph of a pipeline is read back from its Verilog: every number that matters is compared."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from n3ic.errors import VerifyError
from n3ic.exporters.netfpga.graph import decode
from n3ic.exporters.netfpga.graph.exporter import EXPORTER
from n3ic.exporters.netfpga.graph.logic import FALSE, TRUE, Network
from n3ic.exporters.netfpga.graph.syntax import Statement, statements
from n3ic.exporters.netfpga.tools import simulate
from n3ic.families.spn.arithmetic import LinearArithmetic, LogArithmetic
from n3ic.families.spn.random_models import random_spn
from n3ic.families.trees.random_models import random_trees
from n3ic.model.classifier import Classifier
from n3ic.model.graph.arithmetic import FixedPoint, Logarithms
from n3ic.model.graph.builder import GraphBuilder
from n3ic.model.graph.comparison import ValuesRead
from n3ic.model.graph.operations import (
    Add,
    Choose,
    Constant,
    Graph,
    LogAdd,
    Lookup,
    Offset,
    Operation,
    Round,
    Scale,
    Select,
    Times,
)
from n3ic.model.inputs import Field, InputSpec
from n3ic.model.random_models import random_model
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


def other_numbers(path: Path, step: int) -> Iterator[str]:
    """Write a file with one number in so many changed, in turn; the file is as it was at the end.

    Yields:
        Each changed number, and its place.
    """
    text = path.read_text()
    for k, number in [*enumerate(numbers_of(text))][::step]:
        if text[number.start() - 1] == "h":
            digits = int(number[0], 16) ^ (1 << k % (4 * len(number[0])))
            new = f"{digits:0{len(number[0])}x}"
        else:
            new = str(int(number[0]) + 1)
        path.write_text(text[: number.start()] + new + text[number.end() :])
        yield f"{number[0]} at {number.start()}"
    path.write_text(text)


@pytest.mark.parametrize(
    "name",
    ["forest", "stumps", "trees of raw bits", "sums below choices", "log-adds", "products"],
)
def test_one_changed_number_in_seventeen_is_found(tmp_path: Path, name: str) -> None:
    model = MODELS[name].with_shunt(3)
    out = written(model, tmp_path)
    for number in other_numbers(out / "rtl" / CORE, 17):
        with pytest.raises(VerifyError):
            EXPORTER.decode(out, model, OPTIONS)
            pytest.fail(number)


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
        for _ in other_numbers(path, 1) if path.exists() else ():
            try:
                EXPORTER.decode(out, model, OPTIONS)
            except VerifyError:
                continue
            same += 1  # no input leads there
            seen = simulate.run_core(out, model, words, "icarus")
            np.testing.assert_array_equal(seen.inference.scores, model.scores(words))
    assert same < 10


TINY: dict[str, Classifier] = {
    "forest": random_trees(np.random.default_rng(1), trees=2, depth=3, cuts=3),
    "log": graph_model(4, "log", operations=7, cuts=3, classes=2, fields=2),
    "fixed": graph_model(6, "fixed", operations=7, cuts=3, classes=2, fields=2),
}


@pytest.mark.parametrize("name", TINY)
def test_every_number_of_a_small_core_counts(tmp_path: Path, name: str) -> None:
    """One number in four."""
    model = TINY[name].with_shunt(3)
    path = written(model, tmp_path) / "rtl" / CORE
    text = path.read_text()
    for number in [*numbers_of(text)][::4]:
        base, kind = (16, "x") if text[number.start() - 1] == "h" else (10, "d")
        new = f"{int(number[0], base) ^ 1:{kind}}"
        path.write_text(text[: number.start()] + new + text[number.end() :])
        with pytest.raises(VerifyError):
            EXPORTER.decode(tmp_path, model, OPTIONS)


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


# Bits 0 to 2 count a, bit 3 is b's, bits 4 to 7 are a number.
SMALL = InputSpec(
    (Field.thermometer("a", (3, 9, 40)), Field.thermometer("b", (5,)), Field.binary("c", 4))
)


class Reading:
    """A reader of a core of a small model, which is fed with statements."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        *steps: Operation,
        arithmetic: FixedPoint | Logarithms | None = None,
        shunt: int = 0,
        scores: tuple[int, ...] = (0, 0),
    ) -> None:
        graph = Graph(SMALL, steps or (Constant(0),), scores, arithmetic)
        monkeypatch.setattr(decode, "graph_of", lambda model: graph)
        made = random_model((SMALL.n_bits, len(scores)), np.random.default_rng(0))
        self.reader = decode._Reader(replace(made, input=SMALL).with_shunt(shunt))

    def __call__(self, text: str) -> None:
        for statement in statements(text, "text"):
            getattr(self.reader, f"_read_{statement.kind}")(statement)

    def signal(self, name: str) -> decode._Signal:
        return self.reader._signals[name]

    def values(self, name: str) -> list[Operation]:
        return [self.reader.steps[at] for at in self.signal(name).values]

    def refused(self, text: str, message: str) -> None:
        with pytest.raises(VerifyError, match=message):
            self(text)

    def put(self, name: str, width: int, *steps: Operation, clock: int = 1) -> decode._Read:
        """A signal that may stand for some operations, as it is read."""
        places = tuple(map(self.reader._made, steps))
        self.reader._signals[name] = signal = decode._Signal(name, width, clock, values=places)
        return decode._Read(width, signal, clock)


CLOCKED = "always @(posedge clk)"


@pytest.mark.parametrize(
    ("value", "low", "high", "turns"),
    [
        (0, 0, 8, 0), (7, 0, 8, 0), (8, 0, 8, -8), (15, 0, 8, -8), (16, 0, 8, -16), (21, 0, 8, -16),
        (-1, 0, 8, 8), (-8, 0, 8, 8), (-9, 0, 8, 16), (-4, -4, 4, 0), (3, -4, 4, 0), (4, -4, 4, -8),
        (-5, -4, 4, 8), (-12, -4, 4, 8), (-13, -4, 4, 16), (-1, -8, 0, 0), (0, -8, 0, -8),
    ],
)  # fmt: skip
def test_bits_are_read_as_the_number_of_their_range(
    monkeypatch: pytest.MonkeyPatch, value: int, low: int, high: int, turns: int
) -> None:
    reading = Reading(monkeypatch)
    read = reading.put("sum1", 3, Constant(value))
    (place,) = reading.reader._as_number(read, low, high)
    made = reading.reader.steps[place]
    assert made == (Offset(0, turns) if turns else Constant(value))
    assert reading.reader._bounds[place] == (value + turns,) * 2
    assert low <= value + turns < high


def test_a_constant_is_read_as_the_number_of_its_range(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading(monkeypatch)
    for number, low, high, expected in (
        (7, -8, 8, 7), (8, -8, 8, -8), (15, -8, 8, -1), (0, -8, 8, 0), (15, 0, 16, 15),
        (0, -16, 0, -16), (15, -16, 0, -1),
    ):  # fmt: skip
        (place,) = reading.reader._as_number(decode._Read(4, constant=number), low, high)
        assert reading.reader.steps[place] == Constant(expected)


def test_values_that_lie_in_two_ranges_are_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading(monkeypatch)
    inside = reading.put("leaf1", 3, Lookup(1, (6, 7)))
    (place,) = reading.reader._as_number(inside, 0, 8)
    assert reading.reader.steps[place] == Lookup(1, (6, 7))
    (place,) = reading.reader._as_number(inside, -8, 0)
    assert reading.reader.steps[place] == Offset(0, -8)
    across = reading.put("leaf2", 3, Lookup(1, (7, 8)))
    with pytest.raises(VerifyError, match="reads leaf2 as 0 to 7, but it is 7 to 8"):
        reading.reader._as_number(across, 0, 8)
    with pytest.raises(VerifyError, match="reads leaf2 as -8 to -1, but it is 7 to 8"):
        reading.reader._as_number(across, -8, 0)
    # Of several that the bits may stand for, those in the range are read.
    several = reading.put("leaf3", 3, Lookup(1, (7, 8)), Lookup(1, (-1, 0)), Lookup(1, (0, 7)))
    (place,) = reading.reader._as_number(several, 0, 8)
    assert reading.reader.steps[place] == Lookup(1, (0, 7))


@pytest.mark.parametrize(
    ("above", "values", "refused"),
    [("0", (0, 7), (-1, 8)), ("1", (-8, -1), (-9, 0)), ("sign", (-4, 3), (-5, 4))],
)
def test_bits_that_are_put_above_are_those_of_the_value(
    monkeypatch: pytest.MonkeyPatch,
    above: str,
    values: tuple[int, int],
    refused: tuple[int, int],
) -> None:
    """Beyond an end, the bits stand for the number at the other one."""
    for value in (*values, *refused):
        reading = Reading(monkeypatch)
        read = replace(reading.put("sum1", 3, Constant(value)), width=5, above=above)
        (place,) = reading.reader._value(read)
        wrong = values[1 - refused.index(value)] if value in refused else value
        assert reading.reader._bounds[place] == (wrong, wrong)


def test_only_what_has_no_sign_is_multiplied_or_rounded(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading(monkeypatch)
    read = reading.put("sum1", 3, Constant(9))
    for above in ("", "0"):
        (place,) = reading.reader._unsigned(replace(read, above=above))
        assert reading.reader._bounds[place] == (1, 1)
    for above in ("1", "sign"):
        with pytest.raises(VerifyError, match="reads a number that is not positive"):
            reading.reader._unsigned(replace(read, width=5, above=above))
    (place,) = reading.reader._unsigned(decode._Read(4, constant=15))
    assert reading.reader.steps[place] == Constant(15)


def test_bits_may_stand_for_numbers_of_the_model_or_of_twos_complement(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps = (Constant(0), Constant(19), Offset(1, -13), Offset(1, 3), Constant(4), Constant(3))
    reader = Reading(monkeypatch, *steps).reader
    for number, width, expected in (
        (3, 4, [-13, 3, 19, 3]), (7, 4, [7]), (8, 4, [-8]), (15, 4, [-1]), (0, 4, [0, 0]),
        (4, 4, [4, 4]), (3, 3, [-13, 3, 19, 3]), (4, 3, [4, -4]), (1, 1, [-13, 3, 19, -1]),
    ):  # fmt: skip
        assert reader._integers(number, width) == expected


def test_at_most_sixteen_meanings_are_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of operations that the model has; without one, the first."""
    steps = [Constant(k) for k in range(17)]
    reader = Reading(monkeypatch, *steps).reader
    assert [reader.steps[at] for at in reader._kept(steps)] == steps[:16]
    reader = Reading(monkeypatch, *steps).reader
    some = [Constant(99), Constant(3), Constant(3), Constant(98), Constant(5)]
    assert [reader.steps[at] for at in reader._kept(some)] == [Constant(3), Constant(5)]
    reader = Reading(monkeypatch, *steps).reader
    assert [reader.steps[at] for at in reader._kept([Constant(99), Constant(98)])] == [Constant(99)]
    assert reader._kept([]) == ()
    trees: list[Operation] = []
    for k in range(17):
        trees += [Constant(4 * k), Constant(4 * k + 1)]
        trees.append(Choose(0, 3 * k, 3 * k + 1))
    sums = [Add(3 * k + 2, 5 if k == 0 else 50 + k) for k in range(17)]
    reader = Reading(monkeypatch, *trees, *sums, scores=(0, len(trees) + 16)).reader
    trees = reader._same_trees([reader._network.bit(0)], 2, range(4), set())
    assert len(trees) == 16


def test_a_table_has_at_most_twenty_index_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which are followed, and are no tree."""
    reading = Reading(monkeypatch, Constant(0), Constant(1), Choose(0, 0, 1))
    bits = [reading.reader._operand("bits0") for _ in [reading("wire [0:0] bits0 = in_bits[0:0];")]]
    with pytest.raises(VerifyError, match="a table of 21 index bits"):
        reading.reader._table(bits * 21, {}, 0, 1)
    monkeypatch.setattr(reading.reader, "_same_trees", lambda nodes, *rest: (len(nodes),))
    assert reading.reader._table(bits * 20, {}, 0, 1) == (20,)


def test_input_bits_are_those_that_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading(monkeypatch)
    reading("wire [0:0] bits0 = in_bits[0:0]; wire [7:0] bits1 = in_bits[7:0];")
    reading("wire [0:0] bits2 = in_bits[7:7]; wire [2:0] bits3 = in_bits[3:1];")
    bit = reading.reader._network.bit
    assert reading.signal("bits0") == decode._Signal("bits0", 1, 0, 0, (0, 1), bit(0))
    assert reading.signal("bits1") == decode._Signal("bits1", 8, 0, 0)
    assert reading.signal("bits2") == decode._Signal("bits2", 1, 0, 7, (7, 1), bit(7))
    assert reading.signal("bits3") == decode._Signal("bits3", 3, 0, 1)
    for high, low in ((8, 8), (8, 7), (8, 0), (0, 1)):
        text = f"wire [{high - low}:0] bits4 = in_bits[{high}:{low}];"
        if high >= low:
            reading.refused(text, "reads input bits that are not there")
    reading.refused("wire [0:0] bits4 = in_bits[0:1];", "reads input bits that are not there")
    reading.refused("wire [1:0] bits4 = in_bits[0:0];", "has 2 bits, not 1")
    reading.refused("wire [0:0] bits0 = in_bits[0:0];", "is there twice")


def count(name: str, a: str, n: int, w: int) -> str:
    return (
        f"wire [{w - 1}:0] {name}; n3ic_ones #(.N({n}), .W({w})) u_{name} (.clk(clk), .bits({a}), "
        f".ones({name}));"
    )


def test_counts_are_of_at_most_six_input_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading(monkeypatch)
    for n in range(1, 9):
        reading(f"wire [{n - 1}:0] bits{n} = in_bits[{n - 1}:0];")
    for n, w in ((3, 2), (4, 3), (6, 3), (6, 9)):
        reading(count(f"count{n}{w}", f"bits{n}", n, w))
        assert reading.signal(f"count{n}{w}") == decode._Signal(f"count{n}{w}", w, 1, count=(0, n))
    for n, w in ((4, 2), (2, 1), (7, 3), (7, 9)):
        reading.refused(count("count1", f"bits{n}", n, w), f"counts {n} bits in {w}")
    what = "counts what are no input bits"
    reading.put("sum1", 3, Constant(0))
    for a, n in (("sum1", 3), ("3'd1", 3), ("bits4", 3), ("{{1 {1'b0}}, bits3}", 4)):
        reading.refused(count("count1", a, n, 3), what)


def add(name: str, width: int, a: str, b: str) -> str:
    return f"reg [{width - 1}:0] {name}; {CLOCKED} {name} <= {a} + {b};"


def test_counts_are_added_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading(monkeypatch)
    for at, (high, low) in enumerate([(2, 0), (5, 3), (6, 4), (4, 2)]):
        reading(f"wire [2:0] bits{at} = in_bits[{high}:{low}];")
        reading(count(f"count{at}", f"bits{at}", 3, 2))
    wide = "{{1 {1'b0}}, count%d}"
    for name, a, b in (("sum1", 0, 1), ("sum2", 1, 0)):
        reading(add(name, 3, wide % a, wide % b))
        assert reading.signal(name) == decode._Signal(name, 3, 2, count=(0, 6))
    message = "adds numbers of bits that are not side by side"
    for other in (2, 3, 0):
        reading.refused(add("sum3", 3, wide % 0, wide % other), message)
    reading.refused(add("sum3", 2, "count0", "count1"), message)  # six set bits need three
    reading.refused(add("sum3", 3, wide % 0, "{{1 {1'b1}}, count1}"), message)
    reading.refused(add("sum3", 3, wide % 0, "count1"), "adds values of other bits than 3")
    reading.refused(add("sum3", 3, "count0", wide % 1), "adds values of other bits than 3")


def test_sums_are_of_values_of_one_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = (Lookup(0, (0, 1, 2, 3)), Lookup(1, (0, 5)), Add(0, 1), Offset(2, -3))
    reading = Reading(monkeypatch, *steps)
    reading.put("leaf1", 4, steps[0])
    reading.put("leaf2", 4, steps[1])
    reading.put("leaf3", 4, steps[1], clock=2)
    reading(add("sum1", 4, "leaf1", "leaf2"))
    assert reading.values("sum1") == [steps[2]] and reading.signal("sum1").clock == 2
    for name, a, b in (("sum2", "sum1", "4'd13"), ("sum3", "4'd13", "sum1")):
        reading(add(name, 4, a, b))
        assert reading.values(name) == [steps[3]] and reading.signal(name).clock == 3
    reading.refused(add("sum4", 4, "leaf1", "leaf3"), "reads values of clocks 1, 2")
    reading.refused(add("sum4", 4, "4'd1", "4'd2"), "reads values of clocks $")
    reading(f"reg [7:0] leaf1_d; {CLOCKED} leaf1_d <= {{leaf1_d[3:0], leaf1}};")
    reading(add("sum5", 4, "leaf1_d[3:0]", "leaf3"))
    assert reading.signal("sum5").clock == 3 and reading.values("sum5") == [steps[2]]
    reading.refused(add("sum6", 4, "leaf1_d[7:4]", "leaf3"), "reads values of clocks 2, 3")
    for high, low in ((3, 1), (4, 1), (6, 3), (7, 0), (11, 8), (8, 5)):
        text = f"reads bits {high} to {low} of leaf1, which are no delayed value"
        reading.refused(add("sum6", 4, f"leaf1_d[{high}:{low}]", "leaf3"), text)
    reading.refused(add("sum6", 4, "leaf2_d[3:0]", "leaf3"), "which are no delayed value")


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("reg [3:0] leaf1_d; {} leaf1_d <= leaf1;", True),
        ("reg [11:0] leaf1_d; {} leaf1_d <= {{leaf1_d[7:0], leaf1}};", True),
        ("reg [7:0] leaf1_d; {} leaf1_d <= leaf1;", False),
        ("reg [7:0] leaf1_d; {} leaf1_d <= {{leaf1_d[4:0], leaf1}};", False),
        ("reg [8:0] leaf1_d; {} leaf1_d <= {{leaf1_d[3:0], leaf1}};", False),
        ("reg [2:0] leaf1_d; {} leaf1_d <= leaf1;", False),
        ("reg [3:0] leaf1_d; {} leaf1_d <= {{leaf1_d[3:0], leaf1}};", False),
    ],
)
def test_delays_are_whole_values(monkeypatch: pytest.MonkeyPatch, text: str, fits: bool) -> None:
    reading = Reading(monkeypatch)
    reading.put("leaf1", 4, Constant(0))
    text = text.format(CLOCKED)
    if fits:
        reading(text)
        assert reading.reader._delays == {"leaf1": 3 if "11" in text else 1}
        reading.refused(text, "its delays are there twice, or before it")
    else:
        reading.refused(text, "its delays are no whole values")
    reading.refused(text.replace("leaf1", "leaf2"), "its delays are there twice, or before it")


def gate(name: str, n: int, size: int, table: str, *at: str) -> str:
    return (
        f"wire {name}; n3ic_gate #(.N({n}), .TABLE({size}'h{table})) u_{name} "
        f"(.clk(clk), .at({{{', '.join(at)}}}), .value({name}));"
    )


def test_gates_are_tables_of_up_to_six_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading(monkeypatch)
    names = [f"bits{bit}" for bit in range(8)]
    for bit, name in enumerate(names):
        reading(f"wire [0:0] {name} = in_bits[{bit}:{bit}];")
    network, wrong = reading.reader._network, "its table is not that of its inputs"
    reading(gate("gate0", 2, 4, "8", "bits1", "bits0"))
    both = network.table(8, [network.bit(0), network.bit(1)])
    assert reading.signal("gate0") == decode._Signal("gate0", 1, 1, node=both)
    reading(gate("gate1", 2, 4, "2", "bits1", "bits0"))  # the one that is written first is higher
    assert reading.signal("gate1").node == network.table(2, [network.bit(0), network.bit(1)])
    reading(gate("gate2", 6, 64, "f" * 15 + "7", *names[:6]))
    reading(gate("gate3", 3, 8, "80", "bits1", "1'd1", "bits0"))
    assert reading.signal("gate3").node == both
    reading(gate("gate4", 3, 8, "80", "bits0", "1'd0", "bits1"))
    assert reading.signal("gate4").node == FALSE
    for n, size, table, at in (
        (7, 128, "1", names[:7]), (2, 4, "10", names[:2]), (2, 8, "1", names[:2]),
        (3, 8, "1", names[:2]), (2, 4, "1", names[:3]),
    ):  # fmt: skip
        reading.refused(gate("gate9", n, size, table, *at), wrong)
    reading("wire [1:0] bits8 = in_bits[1:0];")
    for no_bit in ("bits8", "2'd1", "{{1 {1'b0}}, bits0}"):
        reading.refused(gate("gate9", 1, 2, "2", no_bit), "reads what is no bit|signal is expected")


def test_bits_that_are_joined_are_the_value_of_a_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which has as many as are joined; another value at an end is named."""
    steps = (Constant(1), Constant(2), Choose(4, 0, 1), Choose(5, 2, 0))
    reading = Reading(monkeypatch, *steps, scores=(0, 3))
    for bit in (4, 5):
        reading(f"wire [0:0] bits{bit} = in_bits[{bit}:{bit}];")
    reading(gate("gate0", 2, 4, "d", "bits5", "bits4"))
    reading(gate("gate1", 2, 4, "2", "bits5", "bits4"))
    reading("wire [1:0] value0 = {gate1, gate0};")
    assert (reading.signal("value0").width, reading.signal("value0").clock) == (2, 1)
    (place,) = reading.signal("value0").values
    assert reading.reader._values.same(place, 3)
    assert reading.reader._strange == ""
    # At the end where bit 5 is 0 and bit 4 is 1, the bits are 3 rather than 2.
    reading(gate("gate2", 2, 4, "f", "bits5", "bits4"))
    reading("wire [1:0] value1 = {gate1, gate2};")
    assert "a leaf of a tree is 3, the model has 2" in reading.reader._strange


def test_the_value_at_an_end_of_a_tree_is_the_nearest_one_with_its_bits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of two bits: 0 is 4, which is nearer to 3; of two that are as near, the lower one is it."""
    for bits, text in (
        (0, "a leaf of a tree is 4, the model has 3"),
        (2, "a leaf of a tree is 2, the model has 3"),
    ):
        steps = (Constant(1), Constant(3), Choose(4, 0, 1))
        reading = Reading(monkeypatch, *steps, scores=(0, 2))
        reading("wire [0:0] bits4 = in_bits[4:4];")
        reading(gate("gate0", 1, 2, "1", "bits4"))
        reading(gate("gate1", 1, 2, f"{bits}", "bits4"))
        reading("wire [1:0] value0 = {gate1, gate0};")
        assert text in reading.reader._strange
    for value in range(-9, 9):
        for residue in range(8):
            made = decode._nearest(value, residue, 8)
            assert made % 8 == residue and -4 <= made - value < 4


def test_entries_are_the_nearest_ones_and_the_first_other_one_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = (Lookup(1, (5, -3)), Lookup(1, (20, 21)), Lookup(1, (6, 9)))
    for residues, made, text in (
        ([5, 13], own[:1], ""),
        ([4, 5], own[1:2], ""),
        ([5, 14], (Lookup(1, (5, -2)),), "entry 1 is -2, a look-up by b of the model has -3"),
        ([6, 5], (Lookup(1, (22, 21)),), "entry 0 is 22, a look-up by b of the model has 20"),
        ([6, 8], (Lookup(1, (6, 8)),), "entry 1 is 8, a look-up by b of the model has 9"),
    ):
        for exact in (True, False):
            reader = Reading(monkeypatch, *own).reader
            places = reader._single(1, residues, 4, exact=exact)
            equal = exact and text
            assert [reader.steps[at] for at in places] == ([] if equal else [*made])
            assert reader._strange == ("" if equal or not text else f"rtl/n3ic_core.v: {text}")
    reader = Reading(monkeypatch, *own).reader
    (place,) = reader._single(0, [0, 0, 0, 0], 4, exact=False)
    assert reader.steps[place] == Lookup(0, (0, 0, 0, 0))
    assert "entry 0 is 0, a look-up by a of the model has 0" in reader._strange
    # Several look-ups of the model have these bits.
    reader = Reading(monkeypatch, *own, Lookup(1, (5, 13))).reader
    places = reader._single(1, [5, 13], 4, exact=False)
    assert [reader.steps[at] for at in places] == [own[0], Lookup(1, (5, 13))]


def test_look_ups_by_bits_are_the_nearest_ones_in_any_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = (Select((4, 6), (0, 1, 2, 3)), Select((4, 6), (9, 9, 9, 8)))
    for bits, listed, table, text in (
        ((4, 6), [0, 1, 2, 3], (0, 1, 2, 3), ""),
        ((6, 4), [0, 2, 1, 3], (0, 2, 1, 3), ""),
        ((6, 4), [1, 1, 1, 0], (9, 9, 9, 8), ""),
        ((4, 6), [1, 1, 2, 0], (9, 9, 10, 8), "entry 2 is 10, a look-up by the bits 4, 6 of the"),
        ((6, 4), [0, 2, 2, 3], (0, 2, 2, 3), "entry 2 is 2, a look-up by the bits 6, 4 of the mo"),
    ):
        for exact in (True, False):
            reader = Reading(monkeypatch, *own).reader
            places = reader._selected(own, bits, listed, 3, exact=exact)
            equal = exact and text
            made = [] if equal else [Select(bits, table)]
            assert [reader.steps[at] for at in places] == made
            assert bool(reader._strange) == bool(text and not exact) and text in (
                reader._strange or text
            )


def test_a_table_by_two_fields_joins_look_ups_of_the_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    a, b, c, d = (
        Lookup(0, (0, 1, 2, 3)), Lookup(1, (0, 5)), Lookup(0, (7, 7, 7, 7)), Lookup(1, (1, 2))
    )  # fmt: skip
    for steps in ((a, b, c, d, Add(0, 1), Add(2, 3)), (c, d, a, b, Add(0, 1), Add(2, 3))):
        rows = [[(x + y) % 16 for y in b.table] for x in a.table]
        for exact in (True, False):
            reader = Reading(monkeypatch, *steps).reader
            (place,) = reader._pair(0, 1, rows, 4, exact=exact)
            assert reader.steps[place] == Add(0, 1) and reader.steps[:2] == [a, b]
        rows[2][1] += 1
        reader = Reading(monkeypatch, *steps).reader
        with pytest.raises(VerifyError, match="entry for bins 2 and 1 is 8, the model has 7"):
            reader._pair(0, 1, rows, 4, exact=False)
        assert reader._pair(0, 1, rows, 4, exact=True) == ()
        with pytest.raises(VerifyError, match="the model joins no look-ups of these fields"):
            reader._pair(1, 0, [*zip(*rows, strict=True)], 4, exact=False)
        for x in range(4):  # nothing is as the model has it
            rows[x] = [rows[x][0] + 3, 15 if x == 2 else rows[x][1] + 4]
        with pytest.raises(VerifyError, match="entry for bins 0 and 0 is 3, the model has "):
            reader._pair(0, 1, rows, 4, exact=False)


def test_a_product_of_two_look_ups_is_read_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = Lookup(0, (0, 100, 200, 300)), Lookup(1, (1 << 9, 5))
    reader = Reading(monkeypatch, a, b, Times(0, 1), arithmetic=FixedPoint(9)).reader
    rows = [[(x * y + 256) // 512 for y in b.table] for x in a.table]
    (place,) = reader._pair(0, 1, rows, 10, exact=False)
    assert reader.steps[place] == Times(0, 1)


def lookup(name: str, width: int, a: str, entries: dict[int, int], other: int, index: int) -> str:
    rows = "".join(f"{index}'d{at}: {name} <= {width}'d{v}; " for at, v in entries.items())
    return (
        f"reg [{width - 1}:0] {name}; {CLOCKED} begin case ({a}) {rows}"
        f"default: {name} <= {width}'d{other}; endcase end"
    )


def test_tables_are_read_by_the_bins_of_one_or_two_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second field's bin is lowest; entries that no bin reaches repeat one that is reached."""
    a, b = Lookup(0, (0, 1, 2, 3)), Lookup(1, (0, 5))
    reading = Reading(monkeypatch, a, b, Add(0, 1), scores=(0, 2))
    reading("wire [2:0] bits0 = in_bits[2:0];")
    reading(count("count0", "bits0", 3, 3))
    reading("wire [0:0] bits1 = in_bits[3:3];")
    reading(f"reg [0:0] bits1_d; {CLOCKED} bits1_d <= bits1;")
    reading(lookup("leaf1", 3, "count0", {0: 0, 1: 1, 2: 2}, 3, 3))
    assert reading.values("leaf1") == [a] and reading.signal("leaf1").clock == 2
    reading(lookup("leaf2", 3, "count0", {0: 0, 1: 1, 2: 2, 4: 3, 7: 3}, 3, 3))
    assert reading.values("leaf2") == [a]
    for at in (4, 7):
        text = lookup("leaf3", 3, "count0", {0: 0, 1: 1, 2: 2, at: 2}, 3, 3)
        reading.refused(text, f"entry {at} is 2, but no input reaches it")
    both = {at << 1 | high: at + 5 * high for at in range(4) for high in (0, 1)}
    reading(lookup("leaf4", 4, "{count0, bits1_d[0:0]}", both, 8, 4))
    (place,) = reading.signal("leaf4").values
    assert isinstance(reading.reader.steps[place], Add)
    beyond = dict.fromkeys((4 << 1, 7 << 1, 4 << 1 | 1, 7 << 1 | 1), 8)
    reading(lookup("leaf5", 4, "{count0, bits1_d[0:0]}", both | beyond, 8, 4))
    for at, value in beyond.items():
        text = lookup("leaf6", 4, "{count0, bits1_d[0:0]}", both | {at: value - 1}, 8, 4)
        reading.refused(text, f"entry {at} is {value - 1}, but no input reaches it")
    three = "{count0, count0, count0}"
    reading.refused(lookup("leaf7", 4, three, {}, 8, 9), "reads the bins of 3 fields")


def test_entries_of_a_table_have_its_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading(monkeypatch, Lookup(0, (0, 1, 2, 3)))
    reading("wire [2:0] bits0 = in_bits[2:0];")
    reading(count("count0", "bits0", 3, 2))
    rows = {0: 0, 1: 1, 2: 2}
    reading(lookup("leaf1", 2, "count0", rows, 3, 2))
    text = lookup("leaf2", 2, "count0", rows, 3, 2)
    for old, new, message in (
        ("2'd1: ", "3'd1: ", "entry 1 is of other bits"),
        ("<= 2'd1;", "<= 3'd1;", "entry 1 is of other bits"),
        ("<= 2'd1;", "<= 2'd4;", "entry 1 is of other bits"),
        ("2'd2: ", "2'd4: ", "entry 4 is of other bits"),
        ("default: leaf2 <= 2'd3", "default: leaf2 <= 3'd3", "the last entry is of other bits"),
        ("2'd2: ", "2'd1: ", "entry 1 is there twice"),
    ):
        assert text.count(old) == 1
        reading.refused(text.replace(old, new), message)


def test_bins_of_three_fields_may_be_a_tree_of_their_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of fields of one cut. Where the model has such a tree, nothing else is looked for."""
    a, b = Lookup(0, (0, 1, 2, 3)), Lookup(1, (0, 5))
    reader = Reading(monkeypatch, a, b, Add(0, 1)).reader
    by_bins = partial(reader._by_bins, [decode._Read(1)] * 3, table={}, other=0, width=4)
    assert by_bins([1, 1, 1], exact=True) == ()
    with pytest.raises(VerifyError, match="reads the bins of 3 fields"):
        by_bins([1, 1, 1], exact=False)
    rows = {at << 1 | high: at + 5 * high for at in range(4) for high in (0, 1)}
    for exact in (True, False):
        reads = [decode._Read(1), decode._Read(2)]
        (place,) = reader._by_bins(reads, [1, 0], rows, 0, 4, exact=exact)
        assert reader.steps[place] == Add(0, 1)


def larger(w: int, signed: int, a: str, b: str, at_w: int = 3, more_w: int = 2, at: int = 7) -> str:
    return (
        f"wire [{w - 1}:0] max{at}; wire [{more_w - 1}:0] more{at}; n3ic_log_max #(.W({w}), "
        f".SIGNED({signed}), .AT_W({at_w}), .MORE_W({more_w})) u_max{at} ( .clk(clk), .a({a}), "
        f".b({b}), .larger(max{at}), .more(more{at}) );"
    )


LOG = Logarithms(2, (4, 3, 3, 2, 2, 1, 1, 1))


@pytest.mark.parametrize(
    ("signed", "one", "other", "turns"),
    [
        (0, (0, 7), (3, 7), (0, 0)), (0, (-8, -1), (-8, -3), (0, 0)), (0, (8, 15), (0, 1), (-8, 0)),
        (0, (-1, -1), (1, 2), (0, -8)), (1, (-4, 3), (3, 3), (0, 0)), (1, (4, 11), (0, 1), (-8, 0)),
    ],
)  # fmt: skip
def test_logarithms_are_compared_in_one_range(
    monkeypatch: pytest.MonkeyPatch,
    signed: int,
    one: tuple[int, int],
    other: tuple[int, int],
    turns: tuple[int, int],
) -> None:
    """From 0 on, or below 0, or on both sides: bits are turned into that range."""
    reading = Reading(monkeypatch, arithmetic=LOG)
    reading.put("leaf1", 3, Lookup(1, one))
    reading.put("leaf2", 3, Lookup(1, other))
    reading(larger(3, signed, "leaf1", "leaf2"))
    (place,) = reading.signal("max7").larger
    step = reading.reader.steps[place]
    assert isinstance(step, LogAdd)
    for at, own, turn in ((step.a, one, turns[0]), (step.b, other, turns[1])):
        made = reading.reader.steps[at]
        plain = Lookup(1, own)
        assert made == (Offset(reading.reader._known[plain], turn) if turn else plain)
    assert reading.signal("max7") == decode._Signal("max7", 3, 5, larger=(place,))
    assert reading.signal("more7") == decode._Signal("more7", 2, 5, larger=(place,), more=True)


def test_all_log_adds_read_one_table(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading(monkeypatch, arithmetic=LOG)
    reading.put("leaf1", 3, Lookup(1, (0, 3)))
    reading.put("leaf2", 4, Lookup(1, (0, 3)))
    wide = larger(3, 0, "leaf1", "leaf1")
    reading.refused(wide.replace("[1:0] more", "[2:0] more"), "reads another table of log-add")
    reading(wide)
    assert reading.reader.table_widths == (3, 2)
    for at_w, more_w in ((4, 2), (3, 3), (2, 2)):
        text = larger(3, 0, "leaf1", "leaf1", at_w, more_w, at=8)
        reading.refused(text, "reads another table of log-add")
    reading.refused(larger(3, 0, "leaf1", "leaf2"), "compares values of other bits than 3")
    reading.refused(larger(3, 0, "leaf2", "leaf1"), "compares values of other bits than 3")
    reading.refused(wide.replace(".W(3)", ".W(4)"), "compares values of other bits than 3")
    reading(larger(3, 0, "leaf1", "leaf1", at=8))
    reading.put("leaf3", 3, Lookup(1, (-1, 3)))
    for a, b in (("leaf1", "leaf3"), ("leaf3", "leaf1")):
        text = "reads leaf3 as 0 to 7, but it is -1 to 3"
        reading.refused(larger(3, 0, a, b, at=9), text)


def test_the_larger_logarithm_and_its_correction_are_added(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = (Lookup(1, (-1, -4)), Lookup(1, (-2, -3)), LogAdd(0, 1), LogAdd(0, 0))
    reading = Reading(monkeypatch, *steps, arithmetic=LOG)
    reading.put("leaf1", 3, steps[0])
    reading.put("leaf2", 3, steps[1])
    reading(larger(3, 0, "leaf1", "leaf2"))
    reading(larger(3, 0, "leaf1", "leaf1", at=8))
    more = "{{2 {1'b0}}, more7}"
    bits = "{{1 {1'b%s}}, max7}"
    for name, a, b in (("sum1", bits % 1, more), ("sum2", more, bits % 1)):
        reading(add(name, 4, a, b))
        (step,) = reading.values(name)
        assert isinstance(step, LogAdd) and reading.signal(name).clock == 6
    reading(add("sum3", 3, "max7", "{{1 {1'b0}}, more7}"))
    reading.refused(add("sum5", 4, bits % 0, more), "reads max7 as 0 to 7")
    reading(add("sum4", 4, "{{1 {max7[2]}}, max7}", more))
    reading.refused(add("sum5", 4, bits % 1, "{{2 {1'b1}}, more7}"), "a correction .* is none")
    reading.refused(add("sum5", 4, bits % 1, "{{2 {1'b0}}, more8}"), "to another value")
    reading.refused(add("sum5", 3, "max7", "max7"), "to another value")
    reading.refused(add("sum5", 2, "more7", "more7"), "to another value")
    reading.refused(add("sum5", 3, "max7", "max8"), "to another value")
    reading.put("leaf9", 3, steps[0], clock=5)
    for a, b in (("max7", "leaf9"), ("leaf9", "max7")):
        reading.refused(add("sum5", 3, a, b), "to another value")
    reading.put("leaf9", 2, steps[0], clock=5)
    for a, b in (("more7", "leaf9"), ("leaf9", "more7")):
        reading.refused(add("sum5", 2, a, b), "to another value")


def test_a_larger_logarithm_is_read_in_the_range_of_both(monkeypatch: pytest.MonkeyPatch) -> None:
    """The larger of two is at least the larger of their least values, up to their largest one."""
    reading = Reading(monkeypatch, arithmetic=LOG)
    for one, other, above, fits in (
        ((0, 7), (3, 5), "0", True), ((-9, 7), (0, 5), "0", True), ((-9, 7), (-1, 5), "0", False),
        ((0, 8), (3, 5), "0", False), ((-8, -1), (-20, -2), "1", True),
        ((-9, -1), (-20, -2), "1", False), ((-8, 0), (-20, -2), "1", False),
        ((-4, 3), (-9, 0), "sign", True), ((-5, 3), (-9, 0), "sign", False),
        ((-4, 4), (-9, 0), "sign", False),
    ):  # fmt: skip
        a, b = (reading.reader._made(Lookup(1, each)) for each in (one, other))
        place = reading.reader._made(LogAdd(a, b))
        read = decode._Read(5, decode._Signal("max1", 3, 1, larger=(place,)), 1, above)
        if fits:
            assert reading.reader._log_add(read) == (place,)
        else:
            with pytest.raises(VerifyError, match="reads max1 as "):
                reading.reader._log_add(read)
        plain = replace(read, above="", width=3)
        assert reading.reader._log_add(plain) == (place,)


def test_products_and_roundings_have_the_fraction_of_the_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reading = Reading(monkeypatch, arithmetic=FixedPoint(4))
    reading.put("leaf1", 5, Lookup(1, (3, 16)))
    reading.put("leaf2", 6, Lookup(1, (1, 40)))
    times = (
        "wire [5:0] product1; n3ic_times #(.A_W(5), .B_W(6), .W(6), .FRACTION(4)) u_product1 "
        "( .clk(clk), .a(leaf1), .b(leaf2), .product(product1) );"
    )
    scale = (
        "wire [8:0] scaled1; n3ic_scale #(.A_W(5), .W(9), .BY(9'd21)) u_scaled1 "
        "( .clk(clk), .a(leaf1), .product(scaled1) );"
    )
    rounded = (
        "wire [2:0] rounded1; n3ic_round #(.A_W(6), .W(3), .FRACTION(4)) u_rounded1 "
        "( .clk(clk), .a(leaf2), .rounded(rounded1) );"
    )
    for text, old, new, message in (
        (times, ".FRACTION(4)", ".FRACTION(5)", "rounds 5 fraction bits"),
        (times, ".A_W(5)", ".A_W(6)", "multiplies values of other bits"),
        (times, ".B_W(6)", ".B_W(5)", "multiplies values of other bits"),
        (times, ".W(6)", ".W(7)", "has 6 bits, not 7"),
        (scale, ".A_W(5)", ".A_W(6)", "multiplies values of other bits"),
        (scale, "(9'd", "(8'd", "multiplies values of other bits"),
        (scale, "[8:0]", "[7:0]", "has 8 bits, not 9"),
        (rounded, ".FRACTION(4)", ".FRACTION(3)", "rounds 3 fraction bits"),
        (rounded, ".A_W(6)", ".A_W(5)", "rounds a value of other bits"),
        (rounded, "[2:0]", "[3:0]", "has 4 bits, not 3"),
    ):
        assert text.count(old) == 1
        reading.refused(text.replace(old, new), message)
    reading(times)
    assert [type(step) for step in reading.values("product1")] == [Times]
    reading(scale)
    (step,) = reading.values("scaled1")
    assert isinstance(step, Scale) and step.by == 21
    reading(rounded)
    assert [type(step) for step in reading.values("rounded1")] == [Round]
    assert [reading.signal(n).clock for n in ("product1", "scaled1", "rounded1")] == [4, 3, 2]
    reading = Reading(monkeypatch, arithmetic=LOG)
    reading.put("leaf2", 6, Lookup(1, (1, 40)))
    reading.refused(rounded, "rounds 4 fraction bits, which are not the model's")


def score(at: int, width: int, a: str, below: int | None = None) -> str:
    top = width - 1
    below = top - 1 if below is None else below
    return (
        f"wire [{top}:0] score{at} = {a}; "
        f"wire [{top}:0] key{at} = {{~score{at}[{top}], score{at}[{below}:0]}};"
    )


def test_scores_are_those_of_the_classes_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading(monkeypatch, Constant(0), Lookup(1, (-8, 7)), Constant(3), scores=(0, 1, 2))
    reader = reading.reader
    reader._score_bits, reader._class_bits, reader._latency = 4, 2, 9
    reading.put("leaf1", 4, Lookup(1, (-8, 7)))
    reading.put("leaf2", 3, Lookup(1, (-8, 7)))
    reading.put("leaf3", 4, Lookup(1, (-8, 7)), clock=2)
    reading.refused(score(1, 4, "leaf1"), "score 1 is not that of class 0")
    reading.refused(score(0, 5, "{{1 {1'b0}}, leaf1}"), "score 0 is not that of class 0")
    reading.refused(score(0, 4, "leaf2"), "score 0 is not that of class 0")
    reading.refused(score(0, 4, "leaf1", below=1), "score 0: its key is in another order")
    reading(score(0, 4, "4'd0"))
    reading(score(1, 4, "leaf1"))
    scores = "wire [11:0] scores = {score2, score1, score0};"
    reading.refused(scores.replace("score2, ", ""), "are not the scores of all classes")
    reading(score(2, 4, "leaf3"))
    reading.refused(scores, "are of clocks 1, 2")
    reader._scores[2:] = []
    reading(score(2, 4, "4'd15"))
    reading.refused(scores.replace("score2, score1", "score1, score2"), "are not the scores of all")
    reading.refused(scores.replace("[11:0]", "[10:0]"), "has 11 bits, not 12")
    reader._signals.clear()
    reading(scores)
    assert reading.signal("scores") == decode._Signal("scores", 12, 1)
    graph = reader.graph(None)
    assert [graph.steps[at] for at in graph.scores] == [
        Constant(0), Lookup(1, (-8, 7)), Constant(-1)
    ]  # fmt: skip
    reading(f"reg [95:0] scores_d; {CLOCKED} scores_d <= {{scores_d[83:0], scores}};")
    reading("assign out_scores = scores_d[95:84];")
    reading.refused("assign out_scores = scores_d[83:72];", "scores come in clock 8, not 9")


@pytest.mark.parametrize(
    ("classes", "shunts", "late"), [(2, 0, 3), (2, 1, 4), (3, 0, 5), (5, 2, 8)]
)
def test_scores_that_are_all_constant_have_the_clock_of_their_comparison(
    monkeypatch: pytest.MonkeyPatch, classes: int, shunts: int, late: int
) -> None:
    steps = (Constant(0), Constant(3))
    scores = (1, *[0] * (classes - 1))
    reading = Reading(monkeypatch, *steps, scores=scores, shunt=shunts)
    reader = reading.reader
    reader._score_bits, reader._latency = 4, 20
    for c in range(classes):
        reading(score(c, 4, "4'd3" if c == 0 else "4'd0"))
    names = ", ".join(f"score{c}" for c in reversed(range(classes)))
    reading(f"wire [{4 * classes - 1}:0] scores = {{{names}}};")
    assert reading.signal("scores").clock == 20 - late


def match(name: str, a: tuple[str, str, str], b: tuple[str, str, str]) -> str:
    sides = ", ".join(
        f".{side}_{part}({text})"
        for side, parts in (("a", a), ("b", b))
        for part, text in zip(("best", "second", "class"), parts, strict=True)
    )
    return (
        f"wire [3:0] {name}_best, {name}_second; wire [1:0] {name}_class; "
        f"n3ic_best #(.W(4), .CLASS_W(2)) u_{name} ( .clk(clk), {sides}, "
        f".best({name}_best), .second({name}_second), .best_class({name}_class) );"
    )


def test_neighbouring_classes_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading(monkeypatch, Constant(0), Constant(3), scores=(0, 1, 1))
    reader = reading.reader
    reader._score_bits, reader._class_bits = 4, 2
    reader._scores = [decode._Score(0, 5)] * 3
    reader._signals["scores"] = decode._Signal("scores", 12, 5)

    def key(c: int) -> tuple[str, str, str]:
        return f"key{c}", "4'd0", f"2'd{c}"

    def best(name: str) -> tuple[str, str, str]:
        return f"{name}_best", f"{name}_second", f"{name}_class"

    nobody = ("4'd0", "4'd0", "2'd0")
    side = "other classes or clocks than those side by side"
    reading.refused(match("match9", key(0), key(2)), side)
    reading.refused(match("match9", key(1), key(0)), side)
    reading.refused(match("match9", key(1), key(1)), side)
    reading.refused(match("match9", nobody, key(1)), side)
    reading(match("match0", key(0), key(1)))
    assert reader._groups["match0"] == decode._Group(7, 0, 2)
    reading(match("match1", key(2), nobody))
    assert reader._groups["match1"] == decode._Group(7, 2, 3)
    reading.refused(match("match9", best("match0"), key(2)), side)  # of another clock
    reading.refused(match("match9", best("match1"), best("match0")), side)
    reading(match("match2", best("match0"), best("match1")))
    assert reader._groups["match2"] == decode._Group(9, 0, 3)
    for wrong in (
        ("key0", "4'd1", "2'd0"), ("key0", "4'd0", "2'd1"), ("key3", "4'd0", "2'd3"),
        ("match0_best", "match1_second", "match0_class"), ("match0_best", "match0_second", "2'd0"),
        ("match5_best", "match5_second", "match5_class"), ("4'd0", "4'd0", "2'd1"),
        ("4'd1", "4'd0", "2'd0"),
    ):  # fmt: skip
        reading.refused(match("match9", wrong, nobody), f"compares {wrong[0]}, ")
    plain = match("match9", key(0), key(1))
    for old, new, message in (
        ("wire [3:0]", "wire [4:0]", "compares scores of other bits"),
        (".W(4)", ".W(5)", "compares scores of other bits"),
        ("wire [1:0]", "wire [2:0]", "numbers classes in other bits"),
        (".CLASS_W(2)", ".CLASS_W(1)", "numbers classes in other bits"),
    ):
        reading.refused(plain.replace(old, new), message)
    lead = (
        f"reg [3:0] margin; reg [1:0] winner; {CLOCKED} begin "
        "margin <= match2_best - match2_second; winner <= match2_class; end"
    )
    reading.refused(lead.replace("match2", "match0"), "does not compare all classes")
    reading.refused(lead.replace("match2", "match1"), "does not compare all classes")
    reading.refused(lead.replace("match2", "match7"), "does not compare all classes")
    reading.refused(lead.replace("[3:0]", "[4:0]"), "the margin or the class has other bits")
    reading.refused(lead.replace("[1:0]", "[0:0]"), "the margin or the class has other bits")
    reading(lead)
    assert reader._decided == 10


def test_ports_are_as_wide_as_the_model_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = {"inputs": "7", "class": "1", "shunts": None, "scores": "11", "margin": "3"}
    many = "its inputs and scores are not as many as the model's"
    other = "its outputs are not those of the model's classes"
    for classes, change, message in (
        (3, {}, ""), (3, {"inputs": "8"}, many), (3, {"inputs": "6"}, many),
        (3, {"scores": "12"}, many), (3, {"scores": "10"}, many), (3, {"margin": "4"}, many),
        (3, {"class": "0"}, other), (3, {"class": "2"}, other), (3, {"shunts": "x"}, other),
        (2, {"scores": "7", "class": "0"}, ""), (2, {"scores": "7"}, other),
        (4, {"scores": "15"}, ""), (5, {"scores": "19", "class": "2"}, ""),
        (5, {"scores": "19"}, other),
    ):  # fmt: skip
        reading = Reading(monkeypatch, scores=(0,) * classes)
        read = partial(reading.reader._read_ports, Statement("ports", {**parts, **change}))
        if message:
            with pytest.raises(VerifyError, match=message):
                read()
        else:
            read()
            assert reading.reader._score_bits == 4
            assert reading.reader._class_bits == {2: 1, 3: 2, 4: 2, 5: 3}[classes]
    reading = Reading(monkeypatch, shunt=1)
    changed = parts | {"scores": "7", "class": "0"}
    reading.reader._read_ports(Statement("ports", changed | {"shunts": "output"}))
    with pytest.raises(VerifyError, match=other):
        reading.reader._read_ports(Statement("ports", changed))
    reading.reader._read_valid(Statement("valid", {"depth": "9", "before": "8"}))
    assert reading.reader._latency == 9
    for before in ("7", "9"):
        with pytest.raises(VerifyError, match="validity and tags take other ways"):
            reading.reader._read_valid(Statement("valid", {"depth": "9", "before": before}))


def shunt(margin: int, winner: int, formula: str) -> str:
    return (
        f"reg [{margin - 1}:0] margin_d; reg [{winner - 1}:0] winner_d; reg shunt_d; {CLOCKED} "
        f"begin margin_d <= margin; winner_d <= winner; shunt_d <= {formula}; end "
        "assign out_shunt = shunt_d;"
    )


def test_a_threshold_above_all_margins_shunts_every_flow(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scores of three classes are -4 to 3: margins of three bits, of which 8 is no number."""
    steps = (Constant(0), Constant(3), Constant(-4))
    for formula, threshold in (("1'b1", 8), ("margin < 3'd7", 7), ("margin < 3'd1", 1)):
        reading = Reading(monkeypatch, *steps, scores=(0, 1, 2), shunt=threshold)
        reader = reading.reader
        reader._score_bits, reader._class_bits, reader._decided = 3, 2, 4
        reading(shunt(3, 2, formula))
        assert (reader.shunt, reader._decided) == (threshold, 5)
        message = "the margin or the class has other bits than the model's"
        reading.refused(shunt(4, 2, formula), message)
        reading.refused(shunt(3, 1, formula), message)
    # Before the ports, no width is that of a score.
    early = Reading(monkeypatch, *steps, scores=(0, 1, 2), shunt=1)
    early.refused(shunt(1, 1, "1'b1"), "the margin or the class has other bits than the model's")
    message = "the threshold has other bits than a margin"
    reading.refused(shunt(3, 2, "margin < 4'd7"), message)
    reading.refused(shunt(3, 2, "margin < 2'd3"), message)


def test_the_end_is_that_of_the_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    late = "assign out_margin = margin_d; assign out_class = winner_d; endmodule"
    early = "assign out_margin = margin; assign out_class = winner; endmodule"
    message = "its outputs are those of another clock than the shunted flows"
    for model_shunt, read, text, fits in (
        (0, 0, early, True), (3, 3, late, True), (3, 2, late, True),
        (0, 0, late, False), (3, 3, early, False), (0, 3, late, False), (3, 0, early, False),
    ):  # fmt: skip
        reading = Reading(monkeypatch, Constant(0), Constant(9), scores=(0, 1), shunt=model_shunt)
        reader = reading.reader
        reader.shunt, reader._decided, reader._latency = read, 7, 7
        if fits:
            reading(text)
        else:
            reading.refused(text, message)
        reader._latency = 8
        reading.refused(text, "decides in clock 7, not 8" if fits else message)


def mux(name: str, width: int, bit: str, one: str, zero: str) -> str:
    return f"reg [{width - 1}:0] {name}; {CLOCKED} {name} <= {bit} ? {one} : {zero};"


def test_an_input_bit_chooses_between_values(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = (Lookup(0, (0, 1, 2, 3)), Constant(-2), Choose(4, 0, 1), Choose(4, 1, 0))
    reading = Reading(monkeypatch, *steps)
    reading("wire [0:0] bits4 = in_bits[4:4]; wire [1:0] bits5 = in_bits[5:4];")
    reading(f"reg [0:0] bits4_d; {CLOCKED} bits4_d <= bits4;")
    reading.put("leaf1", 3, steps[0])
    reading(mux("chosen1", 3, "bits4_d[0:0]", "3'd6", "leaf1"))
    assert reading.values("chosen1") == [steps[2]] and reading.signal("chosen1").clock == 2
    reading(mux("chosen2", 3, "bits4_d[0:0]", "leaf1", "3'd6"))
    assert [type(step) for step in reading.values("chosen2")] == [Choose]
    (place,) = reading.signal("chosen2").values
    assert reading.reader._values.same(place, 3)
    reading.refused(mux("chosen3", 3, "bits4", "leaf1", "3'd6"), "reads values of clocks 0, 1")
    for bit in ("bits5", "leaf1", "1'd1"):
        reading.refused(mux("chosen3", 3, bit, "leaf1", "3'd6"), "chooses by what is no input bit")
    wide = "{{1 {1'b0}}, leaf1}"
    for one, zero in ((wide, "3'd6"), ("3'd6", wide), ("leaf1", "4'd6")):
        message = "chooses between values of other bits than 3"
        reading.refused(mux("chosen3", 3, "bits4_d[0:0]", one, zero), message)


def test_a_delay_of_one_bit_is_put_above_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """The delay's bit, not the signal's."""
    reading = Reading(monkeypatch, Lookup(1, (-1, 0)))
    reading.put("leaf1", 1, Lookup(1, (-1, 0)))
    reading(f"reg [1:0] leaf1_d; {CLOCKED} leaf1_d <= {{leaf1_d[0:0], leaf1}};")
    for text, clock in (
        ("{{2 {leaf1[0]}}, leaf1}", 1),
        ("{{2 {leaf1_d[0]}}, leaf1_d[0:0]}", 2),
        ("{{2 {leaf1_d[1]}}, leaf1_d[1:1]}", 3),
    ):
        read = reading.reader._operand(text)
        assert (read.width, read.clock, read.above) == (3, clock, "sign")
    for by, of in (
        ("leaf1[0]", "leaf1_d[0:0]"), ("leaf1_d[0]", "leaf1"), ("leaf1_d[0]", "leaf1_d[1:1]"),
        ("leaf1[1]", "leaf1"), ("2'b0", "leaf1"),
    ):  # fmt: skip
        with pytest.raises(VerifyError, match=re.escape(f"puts {by} above leaf1")):
            reading.reader._operand(f"{{{{2 {{{by}}}}}, {of}}}")
    with pytest.raises(VerifyError, match="puts 1'b0 above leaf1"):
        reading.reader._operand("{{0 {1'b0}}, leaf1}")


def test_a_number_or_bits_of_the_input_are_no_value(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading(monkeypatch)
    reading("wire [1:0] bits0 = in_bits[1:0];")
    for text in ("bits0", "2'd1", "{{1 {1'b0}}, bits0}"):
        with pytest.raises(VerifyError, match="reads what is no value"):
            reading.reader._value(reading.reader._operand(text))


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
