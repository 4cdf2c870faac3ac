# SPDX-License-Identifier: Apache-2.0
"""Look-up tables in micro-C: scores, the words of the blob, reads, and what is refused."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from n3ic.errors import ExportError, VerifyError
from n3ic.exporters.nfp.exporter import EXPORTER as TARGET
from n3ic.exporters.nfp.graph.bit_tables.blob import TablesBlob
from n3ic.exporters.nfp.graph.bit_tables.decode import _row_bits, decode_words
from n3ic.exporters.nfp.graph.bit_tables.kernel import MicroCBitTables
from n3ic.exporters.nfp.graph.exporter import EXPORTER, kernel_of
from n3ic.exporters.nfp.graph.steps import MicroCSteps
from n3ic.families.tables.network import TablesModel
from n3ic.families.tables.random_models import random_tables
from n3ic.families.tables.vectors import tables_vectors
from n3ic.model import passes
from n3ic.model.bits import pack
from n3ic.model.classifier import margins_of
from n3ic.model.inputs import Field, InputSpec
from n3ic.targets.colocation import CoLocatedNetwork
from n3ic.targets.decoded_graphs import compared
from n3ic.targets.directory import export
from n3ic.targets.verification import verify_artefacts

COMPILER = shutil.which("gcc") or shutil.which("clang")
pytestmark = pytest.mark.usefixtures("quick_micro_c")
compiles = pytest.mark.skipif(not COMPILER, reason="needs gcc or clang")
OPTIONS = EXPORTER.parse_options({}, verify=True)
# Two thermometers of a feature that share a cut, raw bits twice, a cut at the largest value.
MIXED = InputSpec(
    (
        Field.thermometer("a", (3, 9, 40, 77, 1000)),
        Field("b", "binary", 5, 20),
        Field.thermometer("a", (9, 50)),
        Field.thermometer("c", (1, 2**32 - 1)),
        Field("b", "binary", 5, 20),
    )
)


def tables(seed: int, **how: object) -> TablesModel:
    return random_tables(np.random.default_rng(seed), **how)  # type: ignore[arg-type]


def build(model: TablesModel) -> TablesBlob:
    kernel = kernel_of(model)
    assert isinstance(kernel, MicroCBitTables)
    return kernel.built


def sparse(model: TablesModel) -> TablesModel:
    """The model with tables that add to few sums, and one that adds to none."""
    rng = np.random.default_rng(1)
    made = []
    for t, table in enumerate(model.tables):
        entries = np.array(table.entries)
        entries[:, rng.random(entries.shape[1]) < (1 if t == 1 else 0.6)] = 0
        made.append(replace(table, entries=entries))
    return replace(model, tables=tuple(made))


MODELS = {
    "one sum": tables(0, tables=20, inputs=(1, 8), widths=(1, 8)),
    "equal sizes": tables(1, tables=13, inputs=(5, 5), cuts=20),
    "three sums": tables(2, classes=3, inputs=(1, 6), widths=(1, 8)),
    "rows of several words": sparse(tables(3, classes=32, tables=9, widths=(1, 8))),
    "mixed input": sparse(tables(4, spec=MIXED, tables=15, classes=4)),
    "few of many bits": tables(5, features=80, cuts=9, tables=2),
}


@pytest.mark.first_case
@compiles
@pytest.mark.parametrize("name", MODELS)
def test_equal_scores_from_bits_and_features(tmp_path: Path, name: str) -> None:
    model = MODELS[name]
    EXPORTER.write(model, OPTIONS, tmp_path)
    verification = verify_artefacts(tmp_path, EXPORTER, passes.unchanged(model), OPTIONS, 300)
    assert verification.ok, verification
    assert verification.edges
    assert verification.decided_bits == verification.weight_bits > 0


@pytest.mark.slow
@compiles
def test_an_export_shunts_and_is_the_same_again(tmp_path: Path) -> None:
    model = tables(6)
    middle = int(np.median(margins_of(model.scores(tables_vectors(model, 200)))))
    exported = export(model.with_shunt(max(1, middle)), "nfp", tmp_path / "e")
    assert exported.verification is not None and exported.verification.ok, exported.verification
    again = export(model.with_shunt(max(1, middle)), "nfp", tmp_path / "again")
    assert (again.path / "weights.bin").read_bytes() == (exported.path / "weights.bin").read_bytes()
    figures = {f.name: f for f in exported.report.figures}
    size = (exported.path / "weights.bin").stat().st_size
    parts = ("header", "tables", "indices", "entries", "biases", "input", "shunt")
    assert figures["memory.blob"].value == size
    assert sum(figures[f"memory.{part}"].value for part in parts) == size
    assert {figures[n].kind for n in ("latency", "features.latency")} == {"estimated"}
    assert not list(exported.path.glob("n3ic_neuron.h"))


# --- words --------------------------------------------------------------------------------------


def difference(words: np.ndarray, model: TablesModel) -> str:
    try:
        compared(model, decode_words("weights.bin", words, model))
    except VerifyError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", MODELS)
def test_words_are_read_back(name: str) -> None:
    model = MODELS[name]
    assert difference(build(model).words, model) == ""
    assert sum(build(model).sections.values()) == build(model).size


@pytest.mark.parametrize("step", [9, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("classes", [2, 3])
def test_every_flipped_bit_is_found(classes: int, step: int) -> None:
    model = tables(7, spec=MIXED, tables=4, inputs=(2, 3), classes=classes).with_shunt(3)
    words = build(model).words
    for at in range(0, 32 * len(words), step):
        damaged = words.copy()
        damaged[at // 32] ^= np.uint32(1 << at % 32)
        assert difference(damaged, model), build(model).explain(at // 32)


def test_indices_that_are_longer_than_the_rest_of_the_file_are_read_back() -> None:
    model = tables(8, features=1, cuts=5, tables=100, inputs=(5, 5), widths=(1, 1))
    assert difference(build(model).words, model) == ""


def test_a_row_has_a_power_of_two_of_bits_or_whole_words() -> None:
    for need, bits in ((0, 0), (1, 1), (3, 4), (5, 8), (8, 8), (9, 16), (16, 16)):
        assert _row_bits(need) == bits
    for need in range(17, 100):
        assert _row_bits(need) % 32 == 0 <= _row_bits(need) - need < 32


def test_a_group_of_other_sizes_is_refused() -> None:
    """Tables of a group, bits of an index, of an entry and of a row, and the group's sums."""
    model = tables(7, spec=MIXED, tables=4, inputs=(2, 3), classes=3)
    words = build(model).words
    sizes = [int(words[21 + k]) for k in range(4)]
    size, slot, row = sizes[1] & 0xFF, sizes[1] >> 8 & 0xFF, sizes[1] >> 16
    assert (size, slot) in {(2, 4), (3, 4)} and sizes[2] == 7

    def difference_of(at: int, value: int) -> str:
        damaged = words.copy()
        damaged[21 + at] = value
        return difference(damaged, model)

    for at, value in (
        (0, 0),
        (0, len(model.tables) + 1),
        *((1, row << 16 | slot << 8 | other) for other in (0, 9)),
        *((1, row << 16 | other << 8 | size) for other in (0, 3, 5, 9, 16)),
        (2, 15),
    ):
        assert difference_of(at, value) == "weights.bin, group 0: unknown sizes or sums", (
            at,
            value,
        )
    assert row == 16
    for bits in (0, 8, 32):
        message = f"weights.bin, group 0: rows of {bits} bits for 3 entries of {slot}"
        assert difference_of(1, bits << 16 | slot << 8 | size) == message
    for at, header in ((0, 0), (1, 0), (1, 3), (2, len(words) + 1)):
        damaged = words.copy()
        damaged[at] = header
        assert "not look-up tables for the NFP of this version" in difference(damaged, model)


def test_a_short_file_is_refused() -> None:
    model = MODELS["mixed input"]
    words = build(model).words
    for length in range(len(words)):
        assert difference(words[:length], model)
        shorter = words[:length].copy()
        if length > 2:
            shorter[2] = length
            assert difference(shorter, model)


@compiles
def test_an_entry_of_one_file_alone_is_named(tmp_path: Path) -> None:
    model = MODELS["equal sizes"]
    EXPORTER.write(model, OPTIONS, tmp_path)
    words = build(model).words.copy()
    words[build(model).starts["entries"] + 3] ^= 1
    (tmp_path / "weights.bin").write_bytes(words.astype("<u4").tobytes())
    read = f"look-up by the bits {', '.join(map(str, sorted(model.tables[0].bits)))}"
    with pytest.raises(
        VerifyError, match=rf"weights\.bin: the score of class 1 lacks a {read}, of x"
    ):
        EXPORTER.decode(tmp_path, model, OPTIONS)
    with pytest.raises(VerifyError, match=r"differs from n3ic_weights\.h .*\(entries, word 3\)"):
        EXPORTER.run(tmp_path, model, OPTIONS, tables_vectors(model, 1))


# --- micro-C ------------------------------------------------------------------------------------


@compiles
@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("mixed input", "value >= n3ic_words[cut", "value > n3ic_words[cut"),
        pytest.param("mixed input", "value > cut", "value > 31", marks=pytest.mark.slow),
        pytest.param(
            "mixed input", "(count - 1) * N3IC_INDEX_WORDS", "count", marks=pytest.mark.slow
        ),
        ("rows of several words", "used == 32", "used == 33"),
        ("equal sizes", "numbers >>= 16;", "numbers >>= 15;"),
        pytest.param(
            "equal sizes",
            "word + 1 < N3IC_INDEX_WORDS",
            "word + 2 < N3IC_INDEX_WORDS",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_changed_code_is_found(tmp_path: Path, name: str, old: str, new: str) -> None:
    model = MODELS[name]
    EXPORTER.write(model, OPTIONS, tmp_path)
    (file,) = (path for path in tmp_path.glob("*.h") if old in path.read_text())
    text = file.read_text()
    assert text.count(old) == 1
    file.write_text(text.replace(old, new))
    try:
        verification = verify_artefacts(tmp_path, EXPORTER, passes.unchanged(model), OPTIONS, 300)
    except VerifyError as error:
        assert "input stage" in str(error)
    else:
        assert verification.failures


@compiles
@pytest.mark.parametrize("name", ["equal sizes", "three sums", "mixed input"])
def test_a_data_plane_reads_as_many_words_as_the_estimate_says(tmp_path: Path, name: str) -> None:
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
            uint32_t features[N3IC_FEATURES], x[N3IC_MAX_WORDS], y[N3IC_MAX_WORDS], i;
            int32_t scores[N3IC_CLASSES], margin;
            for (i = 0; i < N3IC_FEATURES; i++)
                features[i] = 0xffffffffu;
            n3ic_encode(features, x);
            printf("%u ", (unsigned)n3ic_classify(0, x, y, scores, &margin));
            printf("%d %u ", (int)margin, reads);
            reads = 0;
            for (i = 0; i < N3IC_MAX_WORDS; i++)
                x[i] = 0;
            n3ic_address(x, y);
            printf("%u ", (unsigned)n3ic_classify(0, x, y, scores, &margin));
            printf("%d %u", (int)margin, reads);
            return 0;
        }
        """
    )
    program = str(tmp_path / "plane")
    command = [str(COMPILER), "-Wall", "-Werror", "-Wno-unused", "-o", program]
    subprocess.run([*command, str(tmp_path / "plane.c")], check=True, timeout=600)
    done = subprocess.run([program], check=True, capture_output=True, timeout=600)
    got = [int(number) for number in done.stdout.split()]
    most = {f: np.array([2**32 - 1]) for f in model.input.features}
    highest = model.infer(pack(model.input.encode(most)))
    lowest = model.infer(np.zeros((1, model.input.n_words), np.uint32))
    assert got[:2] == [highest.classes[0], highest.margins[0]]
    assert got[3:5] == [lowest.classes[0], lowest.margins[0]]
    # From features the count is the most: a search may end earlier, and a bit may be 0.
    features = kernel_of(model).from_features().words
    assert features - 4 * len(model.input.fields) <= got[2] <= features
    bits = sum(len(t.bits) for t in model.tables)  # two in a word are read at once
    assert got[5] == kernel_of(model).from_bits().words - bits // 2


# --- what fits ----------------------------------------------------------------------------------


def test_one_load_a_table() -> None:
    model = tables(8, tables=52, inputs=(5, 5), features=11, cuts=20)
    built = build(model)
    assert (built.groups, built.row_words) == (1, 52)
    assert built.sections["entries"] == 52 * 32 * 4 / 8
    # Eight entries of four bits lie side by side; nine need a second load.
    assert build(tables(8, classes=8, tables=10)).row_words == 10
    assert build(tables(8, classes=9, tables=10)).row_words == 20


def test_a_chain_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="look-up tables have no layers"):
        export(tables(9), "nfp", tmp_path / "e", options={"mode": "model"})


@compiles
def test_more_classes_than_a_word_names_are_steps(tmp_path: Path) -> None:
    """A word of 32 bits names the classes whose scores a table changes."""
    many = tables(9, classes=33, tables=4)
    assert isinstance(kernel_of(many), MicroCSteps)
    assert isinstance(kernel_of(tables(9, classes=32, tables=4)), MicroCBitTables)
    exported = export(many, "nfp", tmp_path / "e", options={"threads": 48})
    assert exported.verification is not None and exported.verification.ok, exported.verification
    assert any("the steps of a graph" in note for note in exported.report.notes)


def test_features_that_a_part_cannot_name_are_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tables(9, features=9)
    monkeypatch.setattr("n3ic.exporters.nfp.graph.bit_tables.kernel.MAX_FEATURES", 9)
    assert isinstance(kernel_of(model), MicroCBitTables)
    kernel_of.cache_clear()
    monkeypatch.setattr("n3ic.exporters.nfp.graph.bit_tables.kernel.MAX_FEATURES", 8)
    assert isinstance(kernel_of(model), MicroCSteps)


def test_larger_tables_go_to_slower_memories() -> None:
    small, large = tables(10), tables(10, tables=300, inputs=(8, 8), widths=(8, 8))
    options = EXPORTER.parse_options({"threads": 48})
    for model, memory in ((small, "cls"), (large, "imem")):
        fit = EXPORTER.check(model, options)
        assert fit.ok
        parts = {p.part: p for p in fit.placements}
        assert parts["entries"].memory == memory
        assert parts["entries"].bytes == build(model).sections["entries"]
    chosen = EXPORTER.parse_options({"memory": "cls"})
    (problem, *_) = EXPORTER.check(large, chosen).problems
    assert problem.memory == "cls"
    placed = sum(p.bytes for p in EXPORTER.check(large, chosen).placements if p.memory == "cls")
    assert problem.missing_bytes == placed + 16384 - TARGET.device.memory("cls").bytes


def test_state_that_does_not_fit_is_refused() -> None:
    model = tables(11, tables=2000, inputs=(8, 8), widths=(1, 1))
    chosen = EXPORTER.parse_options({"state": "lmem"})
    (problem,) = EXPORTER.check(model, chosen).problems
    state_bytes = 4 * (2 * build(model).index_words + 2 + len(model.input.features))
    assert problem.memory == "lmem"
    assert problem.missing_bytes == 8 * state_bytes - 2048


def test_the_target_names_the_family() -> None:
    assert TARGET.for_family(TablesModel.family) is EXPORTER


@compiles
def test_models_share_the_islands(tmp_path: Path) -> None:
    """Entries of 30 KB take most of the CLS of an island."""
    model = tables(12, tables=120, inputs=(8, 8), widths=(8, 8), cuts=2)
    options = EXPORTER.parse_options({"threads": 5})
    fit = EXPORTER.check(model, options)
    assert fit.ok and fit.placements[0].memory == "cls"
    EXPORTER.write(model, options, tmp_path)
    member = CoLocatedNetwork(model, options, fit, EXPORTER.report(model, options, tmp_path))  # type: ignore[arg-type]
    five = EXPORTER.colocate([member] * 5)
    assert not five.problems
    assert "1 + 1 + 1 + 1 + 1 networks in 5 islands" in five.way
    assert five.latency_ns == member.value("latency")
    assert any("6 networks" in text for text in EXPORTER.colocate([member] * 6).problems)
