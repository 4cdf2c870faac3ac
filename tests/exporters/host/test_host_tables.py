# SPDX-License-Identifier: Apache-2.0
"""Look-up tables as C: every kernel, blocks of every length, raw bits, and faults."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from n3ic.errors import N3icWarning, VerifyError
from n3ic.exporters.host import runner
from n3ic.exporters.host.constants import Constants
from n3ic.exporters.host.graph import EXPORTER
from n3ic.exporters.host.graph.bit_tables.decode import (
    _check_octets,
    _check_spans,
    decode_source,
)
from n3ic.exporters.host.graph.bit_tables.kernel import BLOCK, MOST_INPUTS
from n3ic.exporters.host.graph.bit_tables.planes import ordered, plane_of
from n3ic.families.tables.network import Table, TablesModel
from n3ic.families.tables.random_models import random_tables
from n3ic.families.tables.vectors import tables_vectors
from n3ic.kernel import build
from n3ic.meter.standard import standard_spec
from n3ic.model import passes
from n3ic.model.classifier import margins_of
from n3ic.model.family import graph_of
from n3ic.model.graph.bit_tables import BitTable, bit_tables
from n3ic.model.inputs import Field, InputSpec
from n3ic.targets.decoded_graphs import compared
from n3ic.targets.directory import export
from n3ic.targets.verification import verify_artefacts, verify_directory

pytestmark = pytest.mark.usefixtures("quick_build")  # tests/e2e/test_every_model.py optimises
OPTIONS = EXPORTER.parse_options({}, verify=True)


def shunting(model: TablesModel) -> TablesModel:
    """The model with a threshold that about half of all margins reach."""
    margins = margins_of(model.scores(tables_vectors(model, 200)))
    return model.with_shunt(max(1, int(np.median(margins))))


@pytest.mark.parametrize("classes", [pytest.param(2, marks=pytest.mark.slow), 3])
def test_every_kernel_gives_the_scores_and_verdicts(
    compiler: build.CCompiler, tmp_path: Path, classes: int
) -> None:
    rng = np.random.default_rng(classes)
    model = random_tables(rng, cuts=40, tables=20, classes=classes, inputs=(1, 8), widths=(1, 8))
    exported = export(shunting(model), "host", tmp_path / "e")
    assert exported.verification is not None
    assert exported.verification.ok, exported.verification
    assert exported.verification.edges
    assert exported.verification.decoded == ("bnn.c",)
    assert exported.verification.decided_bits == exported.verification.weight_bits > 1000
    again = export(shunting(model), "host", tmp_path / "again")
    assert (exported.path / "bnn.c").read_bytes() == (again.path / "bnn.c").read_bytes()


@pytest.mark.slow
def test_blocks_of_every_length(compiler: build.CCompiler, tmp_path: Path) -> None:
    # More small tables than 16 bits hold the sums of, of extreme entries, then larger ones.
    rng = np.random.default_rng(4)
    small = random_tables(rng, tables=600, features=9, inputs=(1, 5), widths=(8, 8))
    large = random_tables(rng, tables=9, spec=small.input, inputs=(6, 8))
    least = [replace(t, entries=np.full_like(t.entries, -128)) for t in small.tables[:300]]
    model = replace(small, tables=(*least, *small.tables[300:], *large.tables))
    EXPORTER.write(model, OPTIONS, tmp_path)
    library, _ = runner.compile_library(tmp_path)
    net = runner.load(library, None, tmp_path)
    words = tables_vectors(model, 3 * BLOCK)
    wanted = model.scores(words)
    for kernel in library.kernels:
        net.use_kernel(kernel)
        for count in (
            0,
            1,
            2,
            7,
            8,
            15,
            16,
            BLOCK - 1,
            BLOCK,
            BLOCK + 1,
            2 * BLOCK + 9,
            len(words),
        ):
            for start in (0, 1, 3):  # no row begins at a multiple of 16 bytes
                rows = slice(start, start + count)
                assert (net.scores(words[rows]) == wanted[rows]).all()


@pytest.mark.slow
def test_raw_bits_several_fields_of_a_feature_and_many_cuts(
    compiler: build.CCompiler, tmp_path: Path
) -> None:
    rng = np.random.default_rng(5)
    many = sorted(rng.choice(np.arange(1, 10**6), 60, False).tolist())
    spec = InputSpec(
        (
            Field.thermometer("a", many),
            Field.binary("b", 11),
            Field.thermometer("a", many[7:9]),
            Field.thermometer("c", (1, 2**32 - 1)),
        )
    )
    model = random_tables(rng, spec=spec, tables=40, inputs=(2, 6))
    EXPORTER.write(model, OPTIONS, tmp_path)
    verification = verify_artefacts(tmp_path, EXPORTER, passes.unchanged(model), OPTIONS, 500)
    assert verification.ok, verification
    only_raw = random_tables(rng, spec=InputSpec.raw(40), tables=9, classes=4)
    EXPORTER.write(only_raw, OPTIONS, tmp_path)
    assert verify_artefacts(tmp_path, EXPORTER, passes.unchanged(only_raw), OPTIONS, 200).ok


# Raw bits beside comparisons, cuts of one, two and four bytes, and a feature of two fields.
MIXED = InputSpec(
    (
        Field.thermometer("a", (1, 3, 200)),
        Field.binary("b", 32),
        Field.thermometer("c", (5, 256, 65535)),
        Field.thermometer("d", (1, 65536, 2**31, 2**32 - 1)),
        Field("b", "binary", 3, 5),
        Field.thermometer("a", (2**32 - 1,)),
        Field.thermometer("e", tuple(range(1, 256, 8))),
    )
)


@pytest.mark.slow
@pytest.mark.parametrize("features", [0, 1, 2, 5])
def test_features_of_every_size_at_the_ends_of_their_ranges(
    compiler: build.CCompiler, tmp_path: Path, features: int
) -> None:
    rng = np.random.default_rng(features)
    own = MIXED if features == 0 else InputSpec(MIXED.fields[-features:])
    model = random_tables(rng, spec=own, tables=35, inputs=(1, 7), classes=2 + features % 2)
    EXPORTER.write(model, OPTIONS, tmp_path)
    library, _ = runner.compile_library(tmp_path)
    net = runner.load(library, None, tmp_path)
    cuts = np.array([cut for f in own.fields for cut in f.cuts] + [1 << 8, 1 << 16, 1 << 31])
    ends = np.concatenate([cuts - 1, cuts, cuts + 1, [0, 2**32 - 1]]).clip(0, 2**32 - 1)
    values = {name: rng.choice(ends, 5 * BLOCK) for name in own.features}
    words = model.encode(values)
    wanted = model.infer(words)
    assert (net.encode(values) == words).all()
    for kernel in library.kernels:
        net.use_kernel(kernel)
        for count in (0, 1, 7, 8, BLOCK - 1, BLOCK, BLOCK + 1, 5 * BLOCK):
            answers = net.run({name: column[:count] for name, column in values.items()})
            assert (answers.scores == wanted.scores[:count]).all()
            assert (answers.margins == wanted.margins[:count]).all()
            assert answers.verdicts is not None and wanted.verdicts is not None
            assert (answers.verdicts == wanted.verdicts[:count]).all()


NAME = r"""a"\?{},é"""


def decoded(text: str, model: TablesModel) -> str:
    try:
        compared(model, decode_source(text, model))
        return ""
    except VerifyError as error:
        return str(error)


def test_an_index_has_1_to_8_bits() -> None:
    """One table, and two of different sizes; no size beside theirs."""
    rng = np.random.default_rng(6)
    model = random_tables(rng, features=2, cuts=6, tables=1, inputs=(3, 3))
    text = EXPORTER.source(model)
    assert decoded(text, model) == ""
    for wrong in (0, 9):
        changed = re.sub(r"(sizes\[TABLES\] = \{[^}]*?)\b3\b(?=[^}/]*\})", rf"\g<1>{wrong}", text)
        assert "a table has an index of 1 to 8 bits" in decoded(changed, model)
    model = random_tables(rng, features=2, cuts=6, tables=5, inputs=(1, 6))
    assert len({len(table.bits) for table in model.tables}) > 1
    text = EXPORTER.source(model)
    assert decoded(text, model) == ""
    first = len(model.tables[0].bits)
    head = rf"(sizes\[TABLES\] = \{{(?:\s|/\*.*?\*/)*){first}\b"
    for wrong in (0, 9):
        changed = re.sub(head, rf"\g<1>{wrong}", text, flags=re.DOTALL)
        assert "a table has an index of 1 to 8 bits" in decoded(changed, model)


@pytest.mark.first_case
@pytest.mark.parametrize("classes", [2, 3])
def test_every_constant_is_read_back(tmp_path: Path, classes: int) -> None:
    # Any digit that changes is found, of every constant: only comments and names of C may differ.
    rng = np.random.default_rng(6)
    fields = (Field.thermometer(NAME, (3, 9), scale=0.25), *MIXED.fields[3:5])
    model = random_tables(
        rng, spec=InputSpec(fields), tables=3, inputs=(1, 3), widths=(8, 8), classes=classes
    )
    text = EXPORTER.source(model.with_shunt(1))
    model = model.with_shunt(1)
    assert decoded(text, model) == ""
    constants = text[text.index("#define INPUTS") : text.index("What networks that are compiled")]
    bare = re.sub(r"/\*.*?\*/", lambda m: " " * len(m[0]), constants, flags=re.S)
    numbers = [m for m in re.finditer(r"(?<![\w.])-?\d+", bare) if m.start() < bare.rindex("};")]
    seen = 0
    first = text.index(constants)
    text = text[: first + len(constants)]  # what follows holds no constant of the model
    for each in numbers:
        at = first + each.start()
        changed = text[:at] + str(int(each[0]) ^ 1) + text[at + len(each[0]) :]
        line = changed[changed.rindex("\n", 0, at) : changed.index("\n", at)]
        if "#define START" in line or "#define SIZE" in line:
            continue
        assert decoded(changed, model), line
        seen += 1
    assert seen > 200
    for gone in (
        "bits",
        "entries",
        "cuts",
        "codes",
        "octets",
        "planes",
        "spans",
        "starts",
        "DIGEST",
    ):
        assert decoded(re.sub(rf"\b{gone}\b", "other", text), model)
    for size in range(0, len(text), 997):
        assert decoded(text[:size], model)


@pytest.mark.parametrize(
    ("bits", "tables", "inputs"),
    [(32, 31, (1, 1)), (33, 32, (2, 2)), (64, 33, (1, 3)), (256, 3, (8, 8)), (257, 5, (1, 8))],
)
def test_sizes_at_whole_words_and_registers_are_read_back(
    bits: int, tables: int, inputs: tuple[int, int]
) -> None:
    spec = InputSpec(tuple(Field.binary(f"x{at}", min(32, bits - at)) for at in range(0, bits, 32)))
    rng = np.random.default_rng(bits)
    model = random_tables(rng, spec=spec, tables=tables, inputs=inputs, widths=(8, 8))
    text = EXPORTER.source(model)
    assert decoded(text, model) == ""
    for name in ("WORDS", "ROOM", "MOST", "EVEN", "BLOCK", "PLANES"):
        for step in (-1, 1, 32):
            pattern = re.compile(rf"(#define {name} )(\d+)")
            changed = pattern.sub(lambda m: f"{m[1]}{max(0, int(m[2]) + step)}", text)  # noqa: B023
            assert changed == text or decoded(changed, model)


def test_a_macro_is_defined_once_and_has_at_most_ten_digits() -> None:
    for number in (0, 7, 2**32 - 1):
        assert Constants(f"#define SHUNT {number}u /* margins */\n").size("SHUNT") == number
    with pytest.raises(VerifyError, match="SHUNT is not a 32-bit number"):
        Constants("#define SHUNT 10000000000u\n").size("SHUNT")
    with pytest.raises(VerifyError, match="SHUNT is not a 32-bit number"):
        Constants(f'#define SHUNT "{"0" * 64}"\n').size("SHUNT")
    for text, times in (("", 0), ("#define SHUNT 1\n#define SHUNT 1\n", 2)):
        with pytest.raises(VerifyError, match=f"SHUNT is defined {times} times"):
            Constants(text).size("SHUNT")


def test_numbers_are_in_the_range_of_their_type_and_count() -> None:
    def read(kind: str, *numbers: int | str, count: int | None = None) -> list[int]:
        body = ", ".join(map(str, numbers))
        return Constants(f"static const {kind} held[] = {{{body}}};").numbers("held", count)

    limits = {
        "int8_t": (-128, 127),
        "uint8_t": (0, 255),
        "uint16_t": (0, 65_535),
        "int32_t": (-2_147_483_648, 2_147_483_647),
        "uint32_t": (0, 4_294_967_295),
        "struct code": (0, 4_294_967_295),
    }
    for kind, (low, high) in limits.items():
        assert read(kind, low, f"{high}u", count=2) == [low, high]
        for wrong in (low - 1, high + 1, "0x1", "1.0", "00000000001"):
            with pytest.raises(VerifyError, match=f"held holds {wrong}"):
                read(kind, wrong)
    for wrong in (1, 3):
        with pytest.raises(VerifyError, match=f"2 numbers in held, expected {wrong}"):
            read("uint8_t", 1, 2, count=wrong)
    assert Constants("#define LAST 4294967295u").size("LAST") == 4_294_967_295
    with pytest.raises(VerifyError, match="LAST is not a 32-bit number"):
        Constants("#define LAST 04294967295u").size("LAST")


def test_spans_hold_all_tables_and_no_more_than_a_byte() -> None:
    def fault(spans: list[int], *tables: list[list[int]]) -> str:
        try:
            _check_spans(spans, tuple(np.array(t) for t in tables))
        except VerifyError as error:
            return str(error)
        return ""

    low, high, both = [[-64, 0], [5, 0]], [[0, 63], [0, 64]], [[-65, 0], [0, 64]]
    assert fault([2, 1], low, low, high) == fault([1, 2], high, low, low) == ""
    assert fault([2], high, [[0, 63], [0, 0]]) == fault([2], low, [[0, -128], [0, 0]]) == ""
    assert fault([2], high, high) == "bnn.c: sums from table 0 on exceed a byte"  # 64 + 64
    assert fault([1, 2], high, low, both) == "bnn.c: sums from table 1 on exceed a byte"  # -129
    assert fault([1, 1], low, [[-129], [0]]) == "bnn.c: sums from table 1 on exceed a byte"
    for spans in ([], [1], [1, 2], [0, 2], [3]):
        message = f"bnn.c: {sum(spans)} tables in spans, there are 2"
        assert fault(spans, low, low) == message


@pytest.mark.parametrize("room", [0, 31, 32, 33, 64])
def test_places_of_index_bits_fill_whole_registers(room: int) -> None:
    """Thirty-two tables of a bit each: a register holds all of them."""
    places = range(200, 200 + 32)
    rows = {"octets": [p >> 3 for p in places], "octet_bits": [1 << (p & 7) for p in places]}
    zeros = max(0, room - 32) * [0]
    text = f"#define ROOM {room}u\n#define INPUTS 256u\n" + "".join(
        f"static const uint8_t {name}[MOST][ROOM] = {{{{{str([*row[:room], *zeros])[1:-1]}}}}};\n"
        for name, row in rows.items()
    )
    bits = tuple((p,) for p in places)
    if room == 32:
        _check_octets(Constants(text), bits, 1)
        with pytest.raises(VerifyError, match="octet_bits are not the places of the index bits"):
            _check_octets(Constants(text), ((201,), *bits[1:]), 1)
        return
    with pytest.raises(VerifyError, match=f"room for {room} of 32 tables"):
        _check_octets(Constants(text), bits, 1)


@pytest.mark.slow
def test_a_number_that_is_wrong_is_found(compiler: build.CCompiler, tmp_path: Path) -> None:
    model = random_tables(np.random.default_rng(6), features=2, tables=9, inputs=(2, 2))
    directory = export(model, "host", tmp_path / "e").path
    path = directory / "bnn.c"
    head, mark, tail = path.read_text().partition("static const int8_t entries[] = {")
    number, rest = tail.strip().split(",", 1)
    path.write_text(f"{head}{mark}{int(number) + 1},{rest}")
    assert "bnn.c is not what n3ic writes" in str(verify_directory(directory))
    with pytest.warns(N3icWarning, match="not what n3ic writes"):
        verification = verify_directory(directory, run_changed=True)
    bits = ", ".join(map(str, sorted(model.tables[0].bits)))
    lacking = f"bnn.c: the score of class 1 lacks a look-up by the bits {bits}, of "
    assert any(lacking in text for text in verification.failures), verification


def test_index_bits_are_ordered_for_few_planes() -> None:
    rng = np.random.default_rng(11)
    model = random_tables(rng, features=40, cuts=6, tables=52, inputs=(1, 8))
    own = bit_tables(graph_of(model))
    assert own is not None
    tables = ordered(own.tables)
    again = replace(model, tables=tuple(Table(t.bits, t.entries, 8) for t in tables))
    words = tables_vectors(model, 500)
    assert (again.scores(words) == model.scores(words)).all()

    def planes(of: tuple[BitTable, ...]) -> set[tuple[int, int]]:
        return {plane_of(bit, place) for t in of for place, bit in enumerate(t.bits)}

    assert len(planes(tables)) < 0.7 * len(planes(own.tables))
    for octet, shift in planes(tables):
        assert 0 <= octet < 4 * model.input.n_words and -7 <= shift <= 7
    many = bit_tables(graph_of(random_tables(rng, spec=model.input, tables=600, inputs=(5, 5))))
    assert many is not None
    assert ordered(many.tables) == many.tables  # it would take long


def test_memory_counts_the_arrays_of_the_c(compiler: build.CCompiler, tmp_path: Path) -> None:
    model = random_tables(np.random.default_rng(8), tables=11)
    EXPORTER.write(model, OPTIONS, tmp_path)
    text = (tmp_path / "bnn.c").read_text()

    def numbers(array: str) -> int:
        body = text.partition(f"{array} = {{")[2].partition("};")[0].split("*/")[-1]
        return len(re.findall(r"\d+", body))

    memory = EXPORTER.memory(model)
    assert memory["entries"] == numbers("int8_t entries[]")
    assert memory["index_bits"] == (
        numbers("uint8_t sizes[TABLES]")
        + 2 * numbers("uint16_t bits[]")
        + 4 * numbers("uint32_t starts[TABLES]")
        + 2 * numbers("uint8_t octets[MOST][ROOM]")
    )
    assert memory["planes"] == (
        2 * numbers("uint16_t plane_octets[PLANES]")
        + numbers("int8_t plane_shifts[PLANES]")
        + 2 * numbers("uint16_t planes[]")
    )
    assert memory["spans"] == 2 * numbers("uint16_t spans[]")
    assert memory["cuts"] == 4 * (numbers("compared[]") + numbers("uint32_t cuts[]"))


def test_more_input_bits_than_the_stack_holds_are_refused() -> None:
    spec = InputSpec(tuple(Field.binary(f"x{i}", 32) for i in range((MOST_INPUTS >> 5) + 1)))
    model = random_tables(np.random.default_rng(0), spec=spec, tables=2)
    assert [str(p) for p in EXPORTER.check(model, OPTIONS).problems] == [
        f"{MOST_INPUTS + 32:,} input bits, {MOST_INPUTS:,} are allowed"
    ]


@pytest.mark.slow
def test_metered_packets_reach_the_tables(compiler: build.CCompiler, tmp_path: Path) -> None:
    meter = standard_spec()
    names = meter.feature_names[:6]
    units = meter.units
    rng = np.random.default_rng(9)
    fields = tuple(
        Field.thermometer(n, sorted(rng.choice(np.arange(1, 2000), 4, False)), unit=units[n])
        for n in names
    )
    model = random_tables(rng, spec=InputSpec(fields)).changed(meter=meter)
    exported = export(model, "host", tmp_path / "e")
    assert exported.verification is not None and exported.verification.ok, exported.verification
    assert exported.verification.flows
