# SPDX-License-Identifier: Apache-2.0
"""The sequential executor: layout of its memories, and its Verilog run against the model."""

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from n3ic.errors import ExportError, N3icWarning, UsageError, VerifyError
from n3ic.exporters.netfpga.core import CorePorts
from n3ic.exporters.netfpga.exporter import EXPORTER
from n3ic.exporters.netfpga.sequential import layout as sequential_layout
from n3ic.exporters.netfpga.sequential import memory_contents as sequential_memory
from n3ic.exporters.netfpga.tools import simulate, synth
from n3ic.model.bits import unpack
from n3ic.model.difference import first_difference
from n3ic.model.inputs import Field, InputSpec
from n3ic.model.network import BinaryModel
from n3ic.model.random_models import random_model
from n3ic.model.verification_vectors import verification_vectors
from n3ic.targets.directory import export
from n3ic.targets.verification import verify_directory

needs_icarus = pytest.mark.skipif(shutil.which("iverilog") is None, reason="needs iverilog")
needs_verilator = pytest.mark.skipif(shutil.which("verilator") is None, reason="needs verilator")

CASES = [
    ((256, 32, 16, 2), {}),
    ((152, 20, 9, 2), {"packing": "full"}),
    ((40, 8, 4, 3), {"modules": "3", "popcount": "tables"}),
    ((300, 6, 3), {"density": "0.4", "modules": "2"}),
    ((70, 5, 40, 10), {"density": "0.5", "packing": "full"}),
    ((5, 2), {}),
    ((33, 1, 2), {"popcount": "tables"}),
    ((140, 6, 3), {"density": "0.5", "row-bits": "64"}),
]


# The fast tests leave out the large ones, whose options smaller ones have, too.
MOST = [
    pytest.param(*case, marks=[pytest.mark.slow] if case[0][0] in (152, 256) else [])
    for case in CASES
]


def write(folder: Path, shape: tuple[int, ...], given_options: dict[str, str]) -> BinaryModel:
    options = dict(given_options)
    density = options.pop("density", None)
    model = random_model(
        shape, np.random.default_rng(1), density=float(density) if density else None
    )
    folder.mkdir(exist_ok=True)
    EXPORTER.write(model, EXPORTER.parse_options(options), folder)
    return model


@pytest.mark.first_case
@needs_icarus
@pytest.mark.parametrize(("shape", "options"), MOST, ids=str)
def test_equal_to_the_model(
    tmp_path: Path, shape: tuple[int, ...], options: dict[str, str]
) -> None:
    model = write(tmp_path, shape, options)
    words = verification_vectors(model, 60)
    seen = simulate.run_core(tmp_path, model, words, "icarus")
    assert first_difference(model, seen.inference, words) is None
    assert len(seen.inference.hidden) == len(shape) - 2
    reference = model.infer(words)
    np.testing.assert_array_equal(seen.inference.scores, reference.scores)
    np.testing.assert_array_equal(seen.inference.margins, reference.margins)
    for got, wanted in zip(seen.inference.hidden, reference.hidden, strict=True):
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.slow
@needs_icarus
def test_the_slowest_layer_sets_the_rate(tmp_path: Path) -> None:
    model = write(tmp_path / "one", (256, 32, 16, 2), {})
    words = verification_vectors(model, 24)[-24:]
    one = simulate.run_core(tmp_path / "one", model, words, "icarus")
    assert one.interval == 32
    assert one.latency <= 100  # the paper's 0.5 us at 200 MHz
    write(tmp_path / "four", (256, 32, 16, 2), {"modules": "4"})
    four = simulate.run_core(tmp_path / "four", model, words, "icarus")
    assert four.interval is not None
    assert four.interval < 9
    assert four.latency == one.latency


@pytest.mark.slow
@needs_icarus
@pytest.mark.parametrize("modules", [1, 5])
def test_the_reported_interval_is_that_of_whole_rounds(tmp_path: Path, modules: int) -> None:
    model = random_model((256, 25, 2), np.random.default_rng(1))
    options = EXPORTER.parse_options({"modules": str(modules)})
    EXPORTER.write(model, options, tmp_path)
    figures = {f.name: f.value for f in EXPORTER.report(model, options, tmp_path).figures}
    assert figures["interval.clocks"] == 25 / modules


@pytest.mark.slow
@needs_verilator
def test_verilator_says_the_same(tmp_path: Path) -> None:
    model = write(tmp_path, (40, 8, 4, 3), {})
    words = verification_vectors(model, 2000)
    seen = simulate.run_core(tmp_path, model, words, "verilator")
    assert "Verilator" in seen.simulator
    assert first_difference(model, seen.inference, words) is None


@needs_verilator
@pytest.mark.slow
def test_more_input_bits_than_a_simulator_reads_at_once(tmp_path: Path) -> None:
    model = write(tmp_path, (9000, 3, 2), {})
    words = verification_vectors(model, 8)
    seen = simulate.run_core(tmp_path, model, words, "verilator")
    assert first_difference(model, seen.inference, words) is None


@pytest.mark.slow
@needs_verilator
def test_random_power_up_values_write_no_weight(tmp_path: Path) -> None:
    model = write(tmp_path, (33, 2), {})
    bench = tmp_path / "bench"
    bench.mkdir()
    (command,) = simulate._build(tmp_path, CorePorts.load(tmp_path), "verilator", bench)
    words = verification_vectors(model, 40)
    (bench / "in.hex").write_text(simulate.hex_lines(words))
    for seed in range(1, 17):
        out = bench / "out.txt"
        subprocess.run(
            [command, f"+in={bench / 'in.hex'}", f"+out={out}", "+verilator+rand+reset+2",
             f"+verilator+seed+{seed}"],
            cwd=tmp_path / "mem", check=True, timeout=600,
        )  # fmt: skip
        lines = out.read_text().splitlines()
        seen = simulate._parse(lines, CorePorts.load(tmp_path), model, len(words), "Verilator")
        assert first_difference(model, seen.inference, words) is None, seed


LINTED = [
    *MOST,
    ((40, 8, 4, 3), {"input-stage": "features", "match": "udp", "result": "both"}),
    ((40, 8, 4, 3), {"input": "side", "result": "tuser"}),
]


@pytest.mark.first_case
@pytest.mark.parametrize(("shape", "options"), LINTED, ids=str)
@needs_icarus
@needs_verilator
def test_verilog_has_no_warning(
    tmp_path: Path, shape: tuple[int, ...], options: dict[str, str]
) -> None:
    write(tmp_path, shape, options)
    files = sorted(str(p) for p in (tmp_path / "rtl").glob("*.v"))
    for command in (
        ["verilator", "--lint-only", "-Wall", "--top-module", "n3ic_top", *files],
        ["verilator", "--lint-only", "-Wall", "-DN3IC_TRACE", "--top-module", "n3ic_top", *files],
        ["iverilog", "-Wall", "-g2005", "-s", "n3ic_top", "-o", str(tmp_path / "x"), *files],
    ):
        done = subprocess.run(
            command, cwd=tmp_path / "mem", capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout + done.stderr) == (0, ""), command[:3]


def test_256_32_16_2_fits_four_blocks(tmp_path: Path) -> None:
    model = random_model((256, 32, 16, 2), np.random.default_rng(1))
    layout = sequential_layout.plan(model, packing="balanced", modules=1, tables=False)
    assert [p.rows for p in layout.layers] == [32, 16, 2]
    assert sum(p.bram36 for p in layout.layers) == 4
    full = sequential_layout.plan(model, packing="full", modules=1, tables=False)
    assert [p.lanes for p in full.layers] == [1, 8, 1]


def test_shorter_rows_take_more_clocks_and_fewer_blocks() -> None:
    model = random_model((256, 32, 16, 2), np.random.default_rng(1))
    layout = sequential_layout.plan(model, packing="balanced", modules=1, tables=False, row_bits=64)
    assert [p.rows for p in layout.layers] == [128, 16, 2]
    assert sum(p.bram36 for p in layout.layers) == 1


def test_deep_thresholds_lie_in_block_ram() -> None:
    model = random_model((152, 128, 64, 2), np.random.default_rng(1))
    layout = sequential_layout.plan(model, packing="balanced", modules=1, tables=False)
    assert [p.block_side for p in layout.layers] == [True, False, False]
    assert [p.bram36 for p in layout.layers] == [3.0, 2.0, 0.0]  # five words a row, four, a few


def test_memory_files_hold_the_weights(tmp_path: Path) -> None:
    model = write(tmp_path, (152, 20, 9, 2), {"packing": "full"})
    rows = (tmp_path / "mem" / "layer1_weights.mem").read_text().split()
    half = len(rows) // 2
    assert rows[:half] == rows[half:]  # both banks
    layer = model.layers[1]
    got = []
    for row in rows[:2]:  # eight neurons of 32 bits, then one and seven empty lanes
        words = np.array(
            [[int(row[8 * i : 8 * i + 8], 16)] for i in range(len(row) // 8)][::-1], np.uint32
        )
        got.append(unpack(words, layer.n_inputs))
    np.testing.assert_array_equal(np.concatenate(got)[:9], layer.weights)
    coe = (tmp_path / "mem" / "layer1_weights.coe").read_text()
    assert coe.startswith("memory_initialization_radix=16;\n")
    assert coe.replace(",", "").replace(";", "").split()[2:] == rows


def test_same_model_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / name, (70, 5, 4, 3), {"input-stage": "features"})
    files = sorted(p.relative_to(tmp_path / "a") for p in (tmp_path / "a").rglob("*"))
    for file in files:
        if (tmp_path / "a" / file).is_file():
            assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()
    assert any(f.name == "n3ic_features.v" for f in files)


@needs_icarus
def test_a_changed_weight_is_named(tmp_path: Path) -> None:
    model = random_model((40, 8, 4, 3), np.random.default_rng(28), extremes=False)
    export(model, "netfpga", tmp_path / "x", verify=False)
    file = tmp_path / "x" / "mem" / "layer0_weights.mem"
    first, *rows = file.read_text().split()
    changed = f"{int(first, 16) ^ 0xFF:0{len(first)}x}"
    file.write_text("\n".join([changed, *rows]) + "\n")
    with pytest.warns(N3icWarning, match="your rights"):
        result = verify_directory(tmp_path / "x", vectors=50, record=False, run_changed=True)
    assert not result.ok
    assert any("is not what n3ic writes" in f for f in result.failures)
    assert any("layer 0" in f for f in result.failures)


def test_another_shape_has_no_writes() -> None:
    rng = np.random.default_rng(1)
    layout = sequential_layout.plan(
        random_model((40, 8, 3), rng), packing="balanced", modules=1, tables=False
    )
    with pytest.raises(ExportError, match="computes 40-8-3, the model is 40-9-3"):
        sequential_memory.writes(random_model((40, 9, 3), rng), layout)
    with pytest.raises(ExportError, match="has a mask"):
        sequential_memory.writes(random_model((40, 8, 3), rng, density=0.5), layout)


def test_too_large_a_network_is_refused() -> None:
    model = random_model((2048, 4096, 2), np.random.default_rng(1))
    fit = EXPORTER.check(model, EXPORTER.parse_options({"modules": "64"}))
    assert not fit.ok
    assert "layer 0 needs" in str(fit.problems[0])
    assert EXPORTER.check(model, EXPORTER.parse_options({})).ok


def test_a_result_over_the_input_is_refused(tmp_path: Path) -> None:
    model = random_model((40, 8, 3), np.random.default_rng(1))
    with pytest.raises(UsageError, match="over the input"):
        EXPORTER.write(model, EXPORTER.parse_options({"offset": "20"}), tmp_path)


def test_an_input_longer_than_the_packet_path_looks_at_is_refused(tmp_path: Path) -> None:
    model = random_model((65536, 2), np.random.default_rng(1))
    with pytest.raises(UsageError, match="--input side"):
        EXPORTER.write(model, EXPORTER.parse_options({}), tmp_path)


@pytest.mark.parametrize(
    "change",
    [{"sources": ["../../other.v"]}, {"n_in": "40; shell"}, {"style": "x"}, {"wr_aw": -1}],
    ids=str,
)
def test_a_hostile_core_is_refused_by_all_tools(tmp_path: Path, change: dict[str, object]) -> None:
    write(tmp_path, (40, 8, 3), {})
    file = tmp_path / "core.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(VerifyError, match="not the description of a core"):
        synth.synthesise(tmp_path)


def test_a_foreign_core_is_refused(tmp_path: Path) -> None:
    model = write(tmp_path, (40, 8, 3), {})
    other = random_model((41, 8, 3), np.random.default_rng(1))
    with pytest.raises(VerifyError, match="40 inputs"):
        CorePorts.load(tmp_path, other)
    (tmp_path / "core.json").write_text("{}")
    with pytest.raises(VerifyError, match="not the description"):
        CorePorts.load(tmp_path, model)


FIELDS = (
    Field.thermometer("a", (1, 7, 30, 2**31, 2**32 - 1)),
    Field.binary("b", 16),
    Field("c", "binary", 8, 200),
    Field.thermometer("b", (2, 5, 60)),
    Field.binary("d", 32),
)


@pytest.fixture(scope="module")
def input_stage(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, BinaryModel]:
    spec = InputSpec(FIELDS)
    base = random_model((spec.n_bits, 4, 2), np.random.default_rng(1))
    model = BinaryModel(spec, base.hidden, base.output, base.classes)
    folder = tmp_path_factory.mktemp("stage")
    EXPORTER.write(model, EXPORTER.parse_options({"input-stage": "features"}), folder)
    return folder, model


@needs_icarus
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_input_stage_is_the_spec(
    input_stage: tuple[Path, BinaryModel], data: st.DataObject
) -> None:
    folder, model = input_stage
    cuts = sorted({c + d for f in FIELDS for c in (*f.cuts, f.clamp, 0) for d in (-1, 0, 1)})
    value = st.one_of(st.sampled_from(cuts), st.integers(-5, 2**33))
    rows = data.draw(st.lists(st.tuples(*[value] * 4), min_size=1, max_size=40))
    features = {name: np.array([r[i] for r in rows]) for i, name in enumerate("abcd")}
    options = EXPORTER.parse_options(
        {"input-stage": "features", "simulator": "icarus"}, verify=True
    )
    got = EXPORTER.encode(folder, model, options, features)
    np.testing.assert_array_equal(got, model.encode(features))


@pytest.mark.parametrize(
    "options",
    [
        {"style": "unrolled", "modules": "2"},
        {"style": "unrolled", "packing": "full"},
        {"style": "unrolled", "popcount": "tables"},
        {"pipeline": "2"},
        {"outputs": "class"},
        {"udp-port": "53"},
        {"match": "udp", "ethertype": "0x88b5"},
        {"input": "side", "offset": "64"},
    ],
    ids=str,
)
def test_an_option_that_does_not_apply_is_refused(options: dict[str, str]) -> None:
    with pytest.raises(UsageError, match=f"--{list(options)[-1]} applies only with"):
        EXPORTER.parse_options(options)
