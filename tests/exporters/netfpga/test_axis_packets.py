# SPDX-License-Identifier: Apache-2.0
"""The packet path under Icarus, driven through cocotb and cocotbext-axi."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from n3ic.model.inputs import Field, InputSpec
from n3ic.model.network import BinaryModel
from n3ic.model.random_models import random_model
from n3ic.targets.directory import export

HERE = Path(__file__).resolve().parent

pytest.importorskip("cocotb", reason="needs cocotb")
pytest.importorskip("cocotbext.axi", reason="needs cocotbext-axi")
needs_icarus = pytest.mark.skipif(shutil.which("iverilog") is None, reason="needs iverilog")


def small_model(
    seed: int, *, features: bool = False, biases: tuple[int, int, int] = (0, 0, 0)
) -> BinaryModel:
    """A net of 40 input bits whose classes all occur."""
    model = random_model((40, 8, 4, 3), np.random.default_rng(seed), extremes=False)
    model = replace(model, output=replace(model.output, bias=np.array(biases, dtype=np.int32)))
    if not features:
        return model
    spec = InputSpec(
        (
            Field.thermometer("bytes", (1, 7, 30, 33, 2**31, 2**32 - 1)),
            Field.binary("packets", 16),
            Field("rate", "binary", 8, 200),
            Field.thermometer("packets", (2, 5, 60)),
            Field.binary("gap", 7),
        )
    )
    return BinaryModel(spec, model.hidden, model.output, model.classes, name="features")


@pytest.mark.slow
@needs_icarus
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"input-stage": "features", "match": "udp", "result": "both", "modules": "2"},
        {"style": "unrolled", "input": "side", "input-stage": "features", "result": "both"},
    ],
    ids=["ethertype", "udp-features", "side-features-unrolled"],
)
def test_packet_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, str]
) -> None:
    monkeypatch.syspath_prepend(str(HERE))  # where the simulator finds axis_bench
    from cocotb_tools.runner import get_runner

    features = options.get("input-stage") == "features"
    # The second one's biases are larger than any score of the first one.
    for name, seed, biases in (("a", 26, (0, 0, 0)), ("b", 28, (300, 301, 300))):
        export(
            small_model(seed, features=features, biases=biases),
            "netfpga",
            tmp_path / name,
            options=options,
            verify=False,
        )
    memory = tmp_path / "run"
    if (tmp_path / "a" / "mem").is_dir():
        shutil.copytree(tmp_path / "a" / "mem", memory)
    else:
        memory.mkdir()
    runner = get_runner("icarus")
    runner.build(
        sources=sorted((tmp_path / "a" / "rtl").glob("*.v")),
        hdl_toplevel="n3ic_top",
        build_dir=tmp_path / "build",
        build_args=["-g2005"],
        timescale=("1ns", "1ps"),
    )
    results = runner.test(
        hdl_toplevel="n3ic_top",
        test_module="axis_bench",
        build_dir=tmp_path / "build",
        test_dir=memory,
        results_xml=str(tmp_path / "results.xml"),
        extra_env={
            "N3IC_EXPORT": str(tmp_path / "a"),
            "N3IC_OTHER": str(tmp_path / "b"),
        },
    )
    from cocotb_tools.check_results import get_results

    count, failed = get_results(results)
    assert count == 5
    assert failed == 0
