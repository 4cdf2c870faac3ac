# SPDX-License-Identifier: Apache-2.0
"""The unrolled core computes what the model computes, bit for bit."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from n3ic.errors import UsageError
from n3ic.exporters.netfpga.core import CorePorts
from n3ic.exporters.netfpga.lut_packing import lut_pairs
from n3ic.exporters.netfpga.tools import simulate
from n3ic.exporters.netfpga.tools.simulate import run_core
from n3ic.exporters.netfpga.unrolled import design as unrolled_design
from n3ic.exporters.netfpga.unrolled import network as unrolled_network
from n3ic.exporters.netfpga.unrolled import write as unrolled_write
from n3ic.exporters.netfpga.unrolled.network import LutNetwork
from n3ic.model.bits import unpack
from n3ic.model.inputs import InputSpec
from n3ic.model.layers import HiddenLayer, OutputLayer
from n3ic.model.network import BinaryModel
from n3ic.model.random_models import random_model
from n3ic.model.verification_vectors import verification_vectors

needs_icarus = pytest.mark.skipif(
    shutil.which("iverilog") is None, reason="needs Icarus Verilog (iverilog)"
)


def evaluate(network: LutNetwork, bits):
    """Value of every literal on some inputs, by looking up every table."""
    net = network.net
    values = np.zeros((net.n_nodes, len(bits)), dtype=np.int64)
    values[1 : net.n_inputs + 1] = bits.T
    for node, table in enumerate(net.tables, net.n_inputs + 1):
        kind = table.cell.kind
        index = sum((values[x >> 1] ^ (x & 1)) << k for k, x in enumerate(table.cell.inputs))
        rows = np.array([kind.tables[table.port] >> i & 1 for i in range(1 << kind.n_inputs)])
        values[node] = rows[index] ^ table.inverted
    return lambda literals: (
        sum((values[x >> 1] ^ (x & 1)) << k for k, x in enumerate(literals))
        + np.zeros(len(bits), dtype=np.int64)
    )


def check(model: BinaryModel, outputs: str, vectors: int) -> None:
    network = unrolled_design.design(model, outputs=outputs).network
    words = verification_vectors(model, vectors)
    truth = model.infer(words)
    value = evaluate(network, unpack(words, model.input.n_bits))
    np.testing.assert_array_equal(value(network.classes), truth.classes)
    hidden = np.array([value([x]) for x in network.hidden]).reshape(-1, len(words))
    if model.hidden:
        np.testing.assert_array_equal(hidden.T, np.concatenate(truth.hidden, axis=1))
    half = 1 << (unrolled_network.score_width(model) - 1)
    for c, literals in enumerate(network.scores):
        np.testing.assert_array_equal((value(literals) ^ half) - half, truth.scores[:, c])
    np.testing.assert_array_equal(value(network.margin), truth.margins)


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(
    shape=st.lists(st.integers(1, 40), min_size=1, max_size=4),
    classes=st.integers(2, 6),
    density=st.sampled_from([None, 0.7, 0.3, 0.05]),
    seed=st.integers(0, 2**32 - 1),
    outputs=st.sampled_from(unrolled_design.OUTPUTS),
)
def test_tables_compute_the_model(shape, classes, density, seed, outputs):
    model = random_model((*shape, classes), np.random.default_rng(seed), density=density)
    check(model, outputs, 300)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "density"),
    [((256, 32, 16, 2), None), ((256, 32, 16, 2), 0.25), ((152, 128, 64, 2), None)],
)
def test_the_papers_shapes(shape, density):
    model = random_model(shape, np.random.default_rng(7), density=density)
    check(model, "class", 1000)


def model_of(weights, thresholds, last, bias=(0, 0)) -> BinaryModel:
    return BinaryModel(
        input=InputSpec.raw(len(weights[0])),
        hidden=(HiddenLayer(np.array(weights), thresholds=np.array(thresholds)),),
        output=OutputLayer(np.array(last), bias=np.array(bias)),
        classes=("a", "b"),
    )


def test_equal_opposite_and_constant_neurons():
    rng = np.random.default_rng(3)
    row = rng.random(24) < 0.5
    weights = [row, row, ~row, row, row, row]
    last = rng.random((2, 6)) < 0.5
    last[1] = ~last[0]
    model = model_of(weights, [12, 12, 13, 0, 25, 14], last)
    for outputs in unrolled_design.OUTPUTS:
        check(model, outputs, 500)
    design = unrolled_design.design(model)
    # One sum serves all neurons, so the core is about as large as that of two of them.
    two = unrolled_design.design(model_of([row, row], [12, 14], last[:, :2]))
    assert len(design.plan.core) <= len(two.plan.core) + 8


@pytest.mark.slow
def test_every_threshold_of_a_pair():
    # Constants that make a bound a power of two depend on both thresholds of a pair.
    rng = np.random.default_rng(5)
    weights = rng.random((2, 13)) < 0.5
    for thresholds in product(range(0, 15, 2), range(15)):
        check(model_of(weights, thresholds, [[0, 1], [1, 0]]), "class", 60)


def test_neurons_that_nothing_needs_cost_nothing():
    rng = np.random.default_rng(4)
    weights = rng.random((8, 40)) < 0.5
    last = np.zeros((2, 8), dtype=bool)
    last[:, 3:] = True  # the same for both classes
    last[0, :3] = True
    used = unrolled_design.design(model_of(weights, [20] * 8, last))
    alone = unrolled_design.design(model_of(weights[:3], [20] * 3, last[:, :3]))
    assert len(used.plan.core) == len(alone.plan.core)


def test_a_constant_answer_needs_no_tables():
    model = model_of([[1, 0, 1]], [2], [[1], [1]], bias=(5, 0))
    assert not unrolled_design.design(model).plan.core
    check(model, "class", 8)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_random_dense_weights_fit_the_goal():
    model = random_model((256, 32, 16, 2), np.random.default_rng(1), extremes=False)
    design = unrolled_design.design(model)
    supports = [design.network.net.table(node).inputs for node in sorted(design.plan.core)]
    assert len(supports) - lut_pairs(supports) <= 2500


def test_cost_follows_connections():
    sizes = [
        len(unrolled_design.design(random_model((128, 16, 2), np.random.default_rng(2), density=d,
                                         extremes=False)).plan.core)
        for d in (0.5, 0.25, 0.125)
    ]  # fmt: skip
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[2] < sizes[0] / 3


def test_the_same_model_gives_the_same_text():
    model = random_model((48, 12, 3), np.random.default_rng(8))
    first = unrolled_write.generate(model)
    unrolled_design._design.cache_clear()
    assert unrolled_write.generate(model) == first


@pytest.mark.parametrize(("key", "value"), [("pipeline", 0), ("pipeline", "x"), ("outputs", "y")])
def test_options_are_checked(key, value):
    with pytest.raises(UsageError):
        unrolled_write.generate(random_model((4, 2, 2), np.random.default_rng(0)), **{key: value})


def export(model: BinaryModel, out: Path, **options) -> Path:
    ports = unrolled_write.write(model, out, **options)
    CorePorts(
        "unrolled",
        model.shape[0],
        model.shape[-1],
        sources=("rtl/n3ic_cells.v", "rtl/n3ic_core.v"),
        **ports,
    ).save(out)
    return out


@pytest.mark.first_case
@needs_icarus
@pytest.mark.parametrize(
    ("shape", "density", "pipeline", "outputs"),
    [
        ((40, 9, 5, 3), None, 1, "class"),
        pytest.param((37, 12, 2), 0.4, 2, "scores", marks=pytest.mark.slow),
        ((64, 2), None, 3, "scores"),
        pytest.param((20, 1, 2), None, 8, "class", marks=pytest.mark.slow),
        ((33, 8, 6, 5), 0.5, 1, "class"),
    ],
)
def test_verilog_computes_the_model(tmp_path, shape, density, pipeline, outputs):
    model = random_model(shape, np.random.default_rng(9), density=density)
    options = {"pipeline": pipeline, "outputs": outputs}
    words = verification_vectors(model, 1000)
    seen = run_core(export(model, tmp_path, **options), model, words, "icarus")
    truth = model.infer(words)
    np.testing.assert_array_equal(seen.inference.classes, truth.classes)
    np.testing.assert_array_equal(seen.inference.scores, truth.scores)
    np.testing.assert_array_equal(seen.inference.margins, truth.margins)
    for got, wanted in zip(seen.inference.hidden, truth.hidden, strict=True):
        np.testing.assert_array_equal(got, wanted)
    assert seen.interval == 1
    assert seen.latency == unrolled_design.latency(model, **options)


def test_short_runs_do_without_a_compiler(tmp_path):
    model = random_model((5, 2), np.random.default_rng(1))
    core = CorePorts.load(export(model, tmp_path), model)
    assert simulate._short(core, model, 5_000)
    assert not simulate._short(core, model, 5_001)
    sequential = replace(core, style="sequential")
    assert simulate._short(sequential, model, 300_000)  # of ten weights
    assert not simulate._short(sequential, model, 300_001)


@pytest.mark.parametrize("define", ["", "-DN3IC_TRACE"])
def test_verilator_finds_nothing(tmp_path, define):
    if shutil.which("verilator") is None:
        pytest.skip("needs Verilator")
    for seed, shape in enumerate([(40, 9, 5, 3), (5, 2), (3, 1, 2)]):
        model = random_model(shape, np.random.default_rng(seed))
        rtl = export(model, tmp_path) / "rtl"
        command = [
            "verilator",
            "--lint-only",
            "-Wall",
            "-Wno-UNUSEDSIGNAL",
            "--top-module",
            "n3ic_core",
            *filter(None, [define]),
        ]
        done = subprocess.run(
            [*command, *map(str, sorted(rtl.glob("*.v")))],
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, done.stderr
