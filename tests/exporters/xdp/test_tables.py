# SPDX-License-Identifier: Apache-2.0
"""Look-up tables in XDP programs: the model's scores, room for retrained ones, refusals, a link."""

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

import n3ic
from n3ic.errors import ExportError, UsageError, VerifyError
from n3ic.exporters.xdp import bench
from n3ic.exporters.xdp.exporter import EXPORTER
from n3ic.exporters.xdp.graph.bit_tables import decode
from n3ic.exporters.xdp.graph.bit_tables.decode import NETWORK, _parted, decode_directory
from n3ic.exporters.xdp.graph.exporter import XdpGraphExporter
from n3ic.exporters.xdp.network.host import HostNetwork
from n3ic.exporters.xdp.network.kernel_run import BpfNetwork
from n3ic.exporters.xdp.network.rows import bits_of
from n3ic.exporters.xdp.network.structure import structure_of
from n3ic.exporters.xdp.network.sums import as_bits
from n3ic.exporters.xdp.network.values import layout, value_bytes
from n3ic.exporters.xdp.packing import repack, unpack
from n3ic.exporters.xdp.plan import Choices
from n3ic.families.spn.random_models import random_spn
from n3ic.families.tables.network import Table, TablesModel
from n3ic.families.tables.random_models import random_tables
from n3ic.families.tables.vectors import tables_coverage, tables_vectors
from n3ic.meter.standard import standard_spec
from n3ic.model.bits import pack
from n3ic.model.graph.comparison import graph_difference
from n3ic.model.inputs import UINT32_MAX, Field, InputSpec
from n3ic.model.random_models import random_model
from n3ic.model.verification_vectors import boundary_features
from n3ic.systems.xdp import deployment
from n3ic.systems.xdp.packs import write_pack
from n3ic.systems.xdp.program_record import Interface
from n3ic.systems.xdp.status import status
from n3ic.targets.decoded_graphs import DecodedGraph, graph_of_tables
from n3ic.targets.directory import export
from tests.support.metered_models import metered_network
from tests.support.n3icd import (
    build,
    check_a_retrained_model,
    decided,
    flows,
    mount,
    send,
)

CUTS = (3, 200, 255, 256, (1 << 15) - 1, 1 << 15, (1 << 31) - 1, 1 << 31, UINT32_MAX)


def inputs(rng, features=9):
    """Thermometers with cuts of all sizes, two fields of one feature, and raw bits."""
    fields = [Field("raw", "binary", 11, 1500), Field.thermometer("f0", CUTS)]
    for i in range(features):
        top = int(rng.choice(CUTS[1:]))
        cuts = np.unique(rng.integers(1, top, int(rng.integers(1, 14)), endpoint=True))
        fields.append(Field.thermometer(f"f{i}", cuts.tolist()))
    return InputSpec(tuple(fields))


def computed(model, structure, host, features):
    """The program computes the model on some features."""
    got = host.run(value_bytes(structure, model), features)
    source = as_bits(model) if structure.bits else model
    words = source.encode(features)
    want = model.infer(words)
    assert np.array_equal(got.scores, want.scores)
    assert np.array_equal(got.classes, want.classes)
    assert np.array_equal(got.margins, want.margins)
    assert np.array_equal(got.verdicts, want.verdicts)
    assert np.array_equal(pack(bits_of(structure, model, got.selected)), words)
    return words


def columns(words):
    return {f"x{i}": column for i, column in enumerate(words.T)}


def at_cuts(model, rows=600):
    """Features on and beside every cut, drawn at random together."""
    rng = np.random.default_rng(0)
    values = boundary_features(model.input)
    return {name: rng.choice(column, rows) for name, column in values.items()}


def with_entries(model, seed):
    """The model with other entries, biases and order of index bits: the same sizes."""
    rng = np.random.default_rng(seed)
    tables = []
    for t in model.tables:
        half = 1 << (t.width - 1)
        entries = rng.integers(-half, half, t.entries.shape, dtype=np.int8)
        tables.append(Table(tuple(rng.permutation(t.bits).tolist()), entries, t.width))
    return replace(model, tables=tuple(tables), bias=model.bias + 3)


@pytest.fixture
def shaped():
    """A model with tables of all sizes, so that the program does not have them in its order."""
    rng = np.random.default_rng(2)
    return random_tables(rng, spec=inputs(rng), tables=30, classes=3, inputs=(1, 8), widths=(1, 8))


@pytest.mark.first_case
@pytest.mark.parametrize(
    ("classes", "tables", "sizes", "widths"),
    [
        (2, 52, (5, 5), (4, 4)),
        (2, 9, (1, 8), (8, 8)),
        (5, 40, (1, 7), (1, 8)),
        (16, 3, (2, 2), (8, 8)),
    ],
)
def test_scores_and_verdicts_are_the_models(compiler, classes, tables, sizes, widths):
    rng = np.random.default_rng(classes + tables)
    model = random_tables(
        rng, spec=inputs(rng), tables=tables, classes=classes, inputs=sizes, widths=widths
    ).with_shunt(7)
    structure = structure_of([model])
    computed(model, structure, HostNetwork.build(structure), at_cuts(model))
    structure = structure_of([model], bits=True)
    words = tables_vectors(model, 300)
    computed(model, structure, HostNetwork.build(structure), columns(words))
    coverage = tables_coverage(model, words)
    assert coverage.decided == coverage.total


def test_scores_that_need_wide_lanes(compiler):
    model = random_tables(np.random.default_rng(1), classes=3)
    model = replace(model, bias=np.array([1 << 29, -(1 << 29), 12345], dtype=np.int32))
    structure = structure_of([model])
    computed(model, structure, HostNetwork.build(structure), at_cuts(model))


def test_a_program_takes_other_entries_indices_and_cuts(compiler, shaped):
    structure = structure_of([shaped])
    host = HostNetwork.build(structure)
    features = at_cuts(shaped)
    smaller = replace(shaped, tables=shaped.tables[4:20])
    moved = [
        replace(f, cuts=tuple(c - 1 for c in f.cuts))
        if f.kind == "thermometer" and f.cuts[0] > 1
        else f
        for f in shaped.input.fields
    ]
    for model in (with_entries(shaped, 5), smaller, replace(shaped, input=InputSpec(tuple(moved)))):
        computed(model, structure, host, features)


def two_sites(order):
    """Tables of which each reads one of two features of 20 cuts."""
    rng = np.random.default_rng(4)
    spec = InputSpec(tuple(Field.thermometer(n, range(1, 21)) for n in "ab"))
    tables = []
    for site in order:
        bits = 20 * site + rng.permutation(20)[:5]
        tables.append(Table(tuple(bits.tolist()), rng.integers(-8, 8, (32, 1)), 4))
    return TablesModel(spec, tuple(tables), np.zeros(1, dtype=np.int32), ("no", "yes"))


def test_a_feature_adds_only_the_words_of_its_tables():
    # Twelve tables of five bits fit a word: those of a feature stand together, in any order.
    model = two_sites([0, 1] * 12)
    structure = structure_of([model])
    assert sorted(structure.touched) == [(0,), (1,)]
    rows = next(m for m in layout(structure).members if m.name == "rows0")
    assert rows.bytes == 8 * sum(s.rows for s in structure.selectors)
    assert structure_of([with_entries(model, 1)]) == structure
    with pytest.raises(ExportError, match="a table reads 'a', for which the program adds nothing"):
        value_bytes(structure, two_sites([0] * 24))
    both = structure_of([model, two_sites([0] * 24)])
    assert sorted(map(len, both.touched)) == [1, 2]


def test_several_models_share_a_program(compiler, shaped):
    other = random_tables(np.random.default_rng(8), spec=shaped.input, tables=40, classes=3)
    structure = structure_of([shaped, other])
    host = HostNetwork.build(structure)
    for model in (shaped, other):
        computed(model, structure, host, at_cuts(model))


def test_what_does_not_fit_a_program_is_refused(shaped):
    structure = structure_of([shaped])
    rng = np.random.default_rng(0)
    more = replace(shaped, tables=(*shaped.tables, shaped.tables[0]))
    with pytest.raises(ExportError, match="31 tables, the program has room for 30"):
        value_bytes(structure, more)
    largest = max(shaped.tables, key=lambda t: len(t.bits))
    larger = replace(shaped, tables=(largest,) * 30)
    with pytest.raises(ExportError, match=r"a table of 8 bits, the program has room for \d there"):
        value_bytes(structure, larger)
    with pytest.raises(ExportError, match="2 classes, the program has 3"):
        value_bytes(structure, random_tables(rng, spec=shaped.input))
    wide = replace(shaped, bias=np.array([1 << 20, 0, 0], dtype=np.int32))
    with pytest.raises(ExportError, match="scores are too large: the program's have 16 bits"):
        value_bytes(structure, wide)
    binary = random_model((shaped.input.n_bits, 8, 3), rng)
    with pytest.raises(
        ExportError, match="binary-network, the program is for sums of look-up tables"
    ):
        value_bytes(structure, binary)
    with pytest.raises(ExportError, match="look-up-tables, the program is for binary-network"):
        value_bytes(structure_of([binary]), shaped)


def test_models_without_a_common_program_are_refused(shaped):
    rng = np.random.default_rng(0)
    binary = random_model((shaped.input.n_bits, 8, 3), rng)
    with pytest.raises(
        ExportError, match="of one family, these are of binary-network and look-up-ta"
    ):
        structure_of([shaped, binary])
    with pytest.raises(ExportError, match="of 2 and 3 classes cannot share"):
        structure_of([shaped, random_tables(rng)])
    with pytest.raises(ExportError, match="a log-add: trees have no log-add"):
        structure_of([random_spn(rng)])


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"classes": 17}, "17 classes, an XDP program has room for 16"),
        ({"tables": 4000, "inputs": (6, 6), "widths": (8, 8)}, "instructions"),
    ],
)
def test_what_exceeds_the_verifier_is_refused(given, match):
    tool = EXPORTER.for_family(TablesModel.family)
    fit = tool.check(random_tables(np.random.default_rng(0), **given), tool.parse_options({}))
    assert match in fit.problems[0].message


@pytest.mark.first_case
@pytest.mark.parametrize("classes", [2, 3])
def test_the_value_is_read_back_and_a_flipped_bit_is_found(tmp_path, classes):
    rng = np.random.default_rng(3)
    model = random_tables(rng, features=3, cuts=3, tables=4, classes=classes, inputs=(1, 3))
    structure = structure_of([model], bits=True)
    data = value_bytes(structure, model)
    path = tmp_path / NETWORK
    path.parent.mkdir()
    path.write_bytes(data)
    (decoded_model,) = decode_directory(tmp_path, model)
    assert decoded_model.digest == model.digest
    where = layout(structure)
    sizes = {member.name: member.bytes for member in where.members}
    entry_bytes = sum(1 << len(t.bits) for t in model.tables) * (1 if classes == 2 else 8)
    places = [where.offset("rows0") + at for at in range(sizes["rows0"])]
    places += [where.offset("rows1") + at for at in range(entry_bytes)]
    places += [where.offset(name) for name in ("model", "shunt", "start1")]
    for at in places:
        damaged = bytearray(data)
        damaged[at] ^= 1
        path.write_bytes(damaged)
        with pytest.raises(VerifyError):
            decode_directory(tmp_path, model)


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_indices_of_several_words_are_read_back(tmp_path, classes):
    rng = np.random.default_rng(classes)
    model = random_tables(
        rng, spec=inputs(rng), tables=40, classes=classes, inputs=(1, 8), widths=(1, 8)
    ).with_shunt(5)
    structure = structure_of([model], bits=True)
    assert structure.layers[0].words > 2
    (tmp_path / NETWORK).parent.mkdir()
    data = value_bytes(structure, model)
    (tmp_path / NETWORK).write_bytes(data)
    (decoded_model,) = decode_directory(tmp_path, model)
    assert decoded_model.shunt == 5

    where = layout(structure)
    for name, message in (
        ("rows0", "from input 0 on are not sums over them"),
        ("rows1", r"does not give a sum of its tables' entries|lacks a look-up by the bits"),
    ):
        damaged = bytearray(data)
        damaged[where.offset(name)] ^= 1
        (tmp_path / NETWORK).write_bytes(damaged)
        with pytest.raises(VerifyError, match=message):
            decode_directory(tmp_path, model)


@pytest.mark.parametrize("sizes", [(8, 8), (1, 1), (7, 7), (4, 8)])
def test_indices_that_fill_a_word_are_read_back(tmp_path, sizes):
    model = random_tables(np.random.default_rng(9), tables=70, inputs=sizes, widths=(1, 1))
    (tmp_path / NETWORK).parent.mkdir()
    (tmp_path / NETWORK).write_bytes(value_bytes(structure_of([model], bits=True), model))
    (decoded_model,) = decode_directory(tmp_path, model)
    assert decoded_model.digest == model.digest


def test_a_class_that_does_not_exist_has_no_score(tmp_path):
    """Of five classes, eight lanes are held."""
    model = random_tables(np.random.default_rng(3), features=3, cuts=3, tables=4, classes=5)
    structure = structure_of([model], bits=True)
    data, where = value_bytes(structure, model), layout(structure)
    (tmp_path / NETWORK).parent.mkdir()
    for lane in (5, 6, 7):
        for name, at in (("start1", 2 * lane), ("rows1", 2 * lane), ("rows1", 16 * 3 + 2 * lane)):
            damaged = bytearray(data)
            damaged[where.offset(name) + at] ^= 1
            (tmp_path / NETWORK).write_bytes(damaged)
            with pytest.raises(VerifyError, match="a class that does not exist has a score"):
                decode_directory(tmp_path, model)


def test_rows_that_are_sums_of_other_bits_are_refused(tmp_path):
    """What each of the first four inputs gives to the indices, in rows that are sums of it."""
    model = two_sites([0] * 6 + [1])  # 35 of the 64 bits of a word
    structure = structure_of([model], bits=True)
    data, start = value_bytes(structure, model), layout(structure).offset("rows0")
    assert structure.touched[0] == (0,)
    plain = np.frombuffer(data, "<u8", 16, start)[:, None]
    patterns = (np.arange(16)[:, None] >> np.arange(4) & 1).astype(np.uint64)
    used = [b for b in range(4) if plain[1 << b].any()]
    (tmp_path / NETWORK).parent.mkdir()

    def refusal(change):
        single = plain[[1 << b for b in range(4)]].copy()
        change(single)
        rows = (patterns @ single).tobytes()
        (tmp_path / NETWORK).write_bytes(data[:start] + rows + data[start + len(rows) :])
        try:
            decode_directory(tmp_path, model)
        except VerifyError as error:
            return str(error)
        return ""

    def moved(single, bit, place):
        single[bit] |= np.uint64(1 << place)

    assert len(used) > 1 and refusal(lambda single: None) == ""
    first, second = used[:2]
    owned = int(plain[1 << second].max()).bit_length() - 1
    assert "two inputs set the same bit of an index" in refusal(lambda s: moved(s, first, owned))
    for place in (35, 40, 63):
        assert f"input {first} addresses no table" in refusal(
            lambda s, place=place: moved(s, first, place)
        )
    assert "lacks a look-up by the bits" in refusal(lambda single: single[first].fill(0))


@pytest.mark.parametrize("classes", [2, 3])
def test_an_index_bit_that_no_input_sets_is_zero(tmp_path, classes, monkeypatch):
    """Also where a table has no other: its first entry is added to the start."""
    rng = np.random.default_rng(3)
    model = random_tables(rng, features=3, cuts=3, tables=6, classes=classes, inputs=(1, 3))
    structure = structure_of([model], bits=True)
    data, start = value_bytes(structure, model), layout(structure).offset("rows0")
    monkeypatch.setattr(decode, "compared", lambda model, decoded: decoded)
    path = tmp_path / NETWORK
    path.parent.mkdir()
    emptied = 0
    for unset in [*((bit,) for bit in range(model.input.n_bits)), range(model.input.n_bits)]:
        rows, at = bytearray(data), start
        for low, words in zip(range(0, model.input.n_bits, 4), structure.touched, strict=True):
            count = min(4, model.input.n_bits - low)
            size = 8 * len(words)
            read = 15 - sum(1 << bit - low for bit in unset if low <= bit < low + 4)
            for row in range(1 << count):
                like = at + size * (row & read)
                rows[at + size * row : at + size * (row + 1)] = data[like : like + size]
            at += size << count
        path.write_bytes(rows)
        (decoded,) = decode_directory(tmp_path, model)
        tables, bias = [], model.bias
        for table in model.tables:
            places = [k for k, bit in enumerate(table.bits) if bit in unset]
            index = np.arange(len(table.entries))
            entries = table.entries[(index & sum(1 << k for k in places)) == 0]
            bits = [bit for bit in table.bits if bit not in unset]
            if bits:
                tables.append((tuple(bits), entries))
            else:
                bias, emptied = bias + entries[0], emptied + 1
        expected = graph_of_tables("own", model.input, tables, bias)
        assert isinstance(decoded, DecodedGraph)
        assert graph_difference(expected, decoded.graph) == "", unset
    assert emptied > len(model.tables)


def test_entries_of_a_look_up_are_those_of_its_tables():
    """The first table's index has the lowest bits; each table's least entry is 0."""
    structure = Mock(tables=((2, 1), (1,)))
    first, second = np.array([[0, 9], [4, 0], [1, 2], [7, 3]]), np.array([[5, 0], [0, 6]])
    third = np.array([[8, 0], [0, 1]])
    both = (second[:, None] + first[None]).reshape(-1, 2)
    parts = _parted(np.concatenate([both, third]), structure)
    for part, own in zip(parts, (first, second, third), strict=True):
        np.testing.assert_array_equal(part, own)
    both[5, 1] += 1
    with pytest.raises(VerifyError, match="does not give a sum of its tables' entries"):
        _parted(np.concatenate([both, third]), structure)


# --- in the kernel -------------------------------------------------------------------------------


def metered(seed=0, **given):
    """Random tables over the features of the standard meter."""
    spec = standard_spec(packets=4)
    source = metered_network(spec, seed, classes=("a", "b"))
    given = {"tables": 20, "classes": 3, "inputs": (2, 5)} | given
    model = random_tables(np.random.default_rng(seed), spec=source.input, **given)
    return replace(model, meter=spec, name=f"tables{seed}")


@pytest.fixture(scope="module")
def exported(tmp_path_factory, clang):
    return build(tmp_path_factory.mktemp("tables"), metered())


@pytest.mark.slow
@pytest.mark.parametrize("classes", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_an_export_is_verified_from_packets_to_verdicts(clang, kernel, tmp_path, classes):
    model = metered(classes=classes).with_shunt(4)
    verification = export(model, "xdp", tmp_path / "e").verification
    assert verification.ok, verification
    assert "BPF_PROG_TEST_RUN" in str(verification)
    assert (
        verification.decided_bits
        == verification.weight_bits
        == sum(t.entries.size for t in model.tables)
    )
    assert verification.edges


@pytest.mark.slow
def test_the_kernel_takes_many_features_of_one_cut(clang, kernel):
    # The verifier would follow both values of a comparison that became a mask: ways multiply.
    rng = np.random.default_rng(3)
    single = [Field.thermometer(f"s{i}", (int(rng.integers(1, 1 << 20)),)) for i in range(60)]
    spec = InputSpec((*inputs(rng, 14).fields, *single))
    model = random_tables(rng, spec=spec, tables=52, inputs=(5, 5))
    structure = structure_of([model])
    assert {s.form for s in structure.selectors} > {"table", "lanes16", "cuts", "bits"}
    with BpfNetwork.load(structure, keep_rows=False) as loaded:
        assert loaded.program.verified < 50_000
        features = at_cuts(model, loaded.inputs)
        got = loaded.run(value_bytes(structure, model), features)
        assert np.array_equal(got.scores, model.scores(model.encode(features)))


@pytest.mark.slow
def test_verification_finds_another_entry_in_the_meters_value(compiler, tmp_path):
    tool, model = EXPORTER.for_family(TablesModel.family), metered()
    options = tool.parse_options({})
    tool.write(model, options, tmp_path)
    features = at_cuts(model, 50)
    assert np.array_equal(tool.encode(tmp_path, model, options, features), model.encode(features))
    value = value_bytes(structure_of([model]), with_entries(model, 9))
    (tmp_path / "meter" / "network.bin").write_bytes(value)
    with pytest.raises(VerifyError, match=r"row 0: scores .* from features, .* from its bits"):
        tool.encode(tmp_path, model, options, features)


def test_a_pack_holds_tables_and_takes_retrained_ones(exported, tmp_path):
    model = write_pack(exported, tmp_path / "pack", Choices())
    assert isinstance(model, TablesModel)
    again = with_entries(model, 4)
    contents = unpack(repack((tmp_path / "pack").read_bytes(), 0, again))
    assert contents.compiled.digest == model.digest
    assert contents.networks.keys() == {model.digest, again.digest}
    with pytest.raises(ExportError, match="the program has room for 20"):
        repack((tmp_path / "pack").read_bytes(), 0, metered(tables=21))


@pytest.mark.slow
def test_entries_are_replaced_on_a_link_while_flows_stay(exported, kernel, veth, run_folder):
    for name in veth:
        Path(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6").write_text("1")
    link, other = Interface.named(veth[0]), veth[1]
    model = metered()
    try:
        deployment.load(link, exported, Choices())
        send(other, flows(range(10)))
        first = status(link)
        assert decided(first.slots[0]) == 10
        assert first.slots[0].digest == model.digest

        retrained = with_entries(model, 1)
        assert deployment.update(link, retrained).note == ""
        send(other, flows(range(10, 13)))
        second = status(link)
        assert second.program_id == first.program_id
        assert second.flows == 13
        assert second.slots[0].digest == retrained.digest
        assert decided(second.slots[0]) == 3

        with pytest.raises(ExportError, match=r"family look-up-tables, .* for binary-network"):
            deployment.update(link, metered_network(standard_spec(packets=4)), 3)
        assert status(link).slots.keys() == {0}
    finally:
        deployment.unload(link)


@pytest.mark.slow
def test_a_daemon_tells_the_models_scores_and_takes_retrained_tables(
    exported, kernel, veth, tmp_path, tmp_path_factory
):
    if not shutil.which("gcc") or not Path("/usr/include/bpf/libbpf.h").exists():
        pytest.skip("needs gcc and libbpf's headers (apt-get install gcc libbpf-dev)")
    for name in veth:
        Path(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6").write_text("1")
    built, pins = tmp_path / "export", tmp_path_factory.mktemp("bpffs") / "bpf"
    shutil.copytree(exported, built)
    subprocess.run(["make", "-s", "-C", built, "daemon/n3icd", "meter/meter.o"], check=True)
    if not mount(pins):
        pytest.skip("needs the right to mount a BPF file system")
    check_a_retrained_model(built, veth, tmp_path, pins, (metered(), with_entries(metered(), 3)))


def test_the_verb_hands_tables_to_the_benchmark_of_their_family(tmp_path, monkeypatch):
    model = random_tables(np.random.default_rng(3))
    model.save(tmp_path / "m.n3ic")
    own = XdpGraphExporter().benchmark
    assert own is not None
    stand_in = replace(own, run=lambda *given: given)
    monkeypatch.setattr(XdpGraphExporter, "benchmark", stand_in)
    given: Any = n3ic.bench("xdp", tmp_path / "m.n3ic")
    assert given[0].digest == model.digest
    with pytest.raises(UsageError, match="no benchmark"):
        n3ic.bench("onnx", model)


@pytest.mark.exhaustive
def test_the_benchmark_times_tables_beside_a_binary_network_of_their_input(
    kernel, compile_bpf, monkeypatch
):
    """What it measures of metering, which is the same of any model, is left out here."""
    counting = Mock(decides=False, table="buckets")
    monkeypatch.setattr(bench._Metering, "build", lambda *given: counting)
    monkeypatch.setattr(bench, "_meters", lambda *given: ((), 0.0))
    monkeypatch.setattr(bench, "_wire", lambda *given: (0.0, (), "not measured here"))
    monkeypatch.setattr(bench, "_verdicts", lambda *given: ())
    model = random_tables(np.random.default_rng(0))
    figures = bench.bench_xdp(model, rounds=3, repeat=1000)
    names = ["bits", "its features", "bits, binary", "its features, binary"]
    assert [t.name for t in figures.timings[:4]] == names
    shapes = [model.shape_text] * 2 + [f"{model.input.n_bits}-32-16-2"] * 2
    assert [t.shape for t in figures.timings[:4]] == shapes
