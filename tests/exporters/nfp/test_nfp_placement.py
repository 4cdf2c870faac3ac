# SPDX-License-Identifier: Apache-2.0
"""Where networks go on the NFP, what is refused, and how honest the estimates are."""

from __future__ import annotations

import numpy as np
import pytest

from n3ic.errors import UsageError
from n3ic.exporters.nfp.estimate import PAPER_SHAPES, calibration, estimate, paper_key
from n3ic.exporters.nfp.exporter import EXPORTER
from n3ic.exporters.nfp.placement import available, plan
from n3ic.model.random_models import random_model


def planned(shape, density=None, **given):
    model = random_model(shape, np.random.default_rng(0), density=density)
    options = EXPORTER.parse_options({k.replace("_", "-"): v for k, v in given.items()})
    return model, options, plan(model, options, EXPORTER.device)


@pytest.mark.first_case
@pytest.mark.parametrize(
    ("shape", "given", "mode", "memory"),
    [
        ((256, 32, 16, 2), {}, "data", "cls"),
        ((152, 128, 64, 2), {}, "data", "cls"),
        ((4096, 2048, 2), {}, "model", "emem"),
        ((1024, 512, 2), {"mode": "data"}, "data", "imem"),
        ((512, 512, 2), {"mode": "data"}, "data", "ctm"),
        ((2048, 8192, 2), {"mode": "data", "threads": 60}, "data", "emem"),
        ((256, 32, 16, 2), {"memory": "emem"}, "data", "emem"),
        ((256, 32, 16, 2), {"mode": "model"}, "model", "emem"),
        ((256, 32, 16, 2), {"mode": "model", "memory": "imem"}, "model", "imem"),
    ],
)
def test_mode_and_memory(shape, given, mode, memory):
    model, options, chosen = planned(shape, **given)
    assert (chosen.mode, chosen.memory) == (mode, memory)
    assert EXPORTER.check(model, options).ok


def test_refusal_names_layer_memory_bytes_and_a_shape_that_fits():
    model, options, chosen = planned((256, 1024, 256, 2), memory="cls", mode="data")
    fit = EXPORTER.check(model, options)
    (problem,) = fit.problems
    assert (problem.layer, problem.memory) == (0, "cls")
    placed = sum(p.bytes for p in fit.placements if p.memory == "cls" and "state" not in p.part)
    assert problem.missing_bytes == placed - available(chosen, EXPORTER.device)
    nearest = tuple(int(n) for n in problem.nearest.split("-"))
    smaller, again, _ = planned(nearest, memory="cls", mode="data")
    assert EXPORTER.check(smaller, again).ok
    for text in ("layer 0", "CLS", str(problem.missing_bytes), problem.nearest):
        assert text in str(problem)


def test_masks_and_state_are_counted():
    dense, _, _ = planned((256, 512, 2), memory="cls", mode="data")
    masked, options, _ = planned((256, 512, 2), density=0.5, memory="cls", mode="data")
    sizes = {p.part: p.bytes for p in EXPORTER.check(masked, options).placements}
    assert sizes["masks"] == sizes["weights"] == 4 * (512 * 8 + 2 * 16)
    assert "masks" not in {p.part for p in EXPORTER.check(dense, options).placements}
    _, _, chosen = planned((256, 512, 2), mode="data", threads=8)
    _, _, crowded = planned((256, 512, 2), mode="data", threads=480)
    assert available(chosen, EXPORTER.device) > available(crowded, EXPORTER.device)


def test_state_that_fits_no_local_memory_is_refused():
    model, options, _ = planned((16384, 2), state="lmem", mode="data")
    (problem,) = EXPORTER.check(model, options).problems
    assert problem.memory == "lmem"
    assert problem.missing_bytes > 0


def test_a_chain_longer_than_the_device_is_refused():
    with pytest.raises(Exception, match="above 360"):
        planned((64, 2), mode="model", executors=361)


@pytest.mark.parametrize(
    ("shape", "given", "message"),
    [
        (
            (64, 2),
            {"mode": "model", "threads": 8},
            "--threads applies only with --mode auto or",
        ),
        ((64, 2), {"mode": "data", "executors": 8}, "--executors applies only with --mode auto or"),
        ((64, 2), {"executors": 8}, "--executors applies only with --mode model; 64-2 is laid out"),
        (
            (4096, 2048, 2),
            {"threads": 8},
            "--threads applies only with --mode data; 4096-2048-2",
        ),
    ],
)
def test_an_option_that_would_be_ignored_is_refused(shape, given, message):
    with pytest.raises(UsageError, match=message):
        EXPORTER.check(*planned(shape, **given)[:2])


def test_report_is_labelled_and_stands_beside_the_paper(tmp_path):
    model, options, _ = planned((256, 32, 16, 2))
    EXPORTER.write(model, options, tmp_path)
    report = EXPORTER.report(model, options, tmp_path)
    figures = {f.name: f for f in report.figures}
    assert figures["memory.blob"].value == (tmp_path / "weights.bin").stat().st_size
    assert figures["memory.weights"].value == 1096
    assert figures["operations"].value == 274
    assert figures["latency"].kind == "estimated"
    assert figures["latency"].paper == 42_000
    assert figures["throughput"].paper == 7_100_000
    assert all(f.source for f in report.figures)
    assert any("modelled syntax, not compiled by the vendor's compiler" in n for n in report.notes)


@pytest.mark.parametrize("layout", PAPER_SHAPES)
def test_estimates_are_as_far_from_the_paper_as_the_documentation_says(layout):
    shape, mode, memory, threads = layout
    device = EXPORTER.device
    got = estimate(device, shape, (False,) * (len(shape) - 1), mode, memory, "cls", threads)
    paper = device.paper[paper_key("latency_us", shape, mode, memory, threads)]
    far = {("data", "emem"): 0.77}.get((mode, memory), 0.2)
    assert abs(got.latency_us / paper - 1) <= far
    assert any(f"paper {paper:,.0f} us" in line for line in calibration(device))


def test_estimates_move_the_right_way():
    device = EXPORTER.device

    def latency(memory="cls", threads=480, shape=(256, 32, 16, 2)):
        masked = (False,) * (len(shape) - 1)
        return estimate(device, shape, masked, "data", memory, "cls", threads).latency_us

    assert latency("cls", 1) < latency("ctm", 1) < latency("imem", 1) < latency("emem", 1)
    assert latency(threads=1) < latency(threads=480)
    assert latency(shape=(256, 64, 16, 2)) > latency()
    # One thread alone waits for each of 324 words twice (43.75 ns) and counts it (15.3 cycles).
    assert latency(threads=1) == pytest.approx(324 * (2 * 43.75 + 15.3 / 0.8) / 1e3)
