# SPDX-License-Identifier: Apache-2.0
"""The binary layer of a cluster's card, bit for bit against numpy."""

import shutil
from pathlib import Path

import pytest

from n3ic.systems.cluster.netfpga.sources import layer_sources

HERE = Path(__file__).resolve().parent

pytest.importorskip("cocotb", reason="needs cocotb")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("iverilog") is None, reason="needs iverilog")
def test_layer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(HERE))  # where the simulator finds layer_bench
    from cocotb_tools.check_results import get_results
    from cocotb_tools.runner import get_runner

    runner = get_runner("icarus")
    runner.build(
        sources=layer_sources(),
        hdl_toplevel="n3ic_cluster_layer",
        build_dir=tmp_path / "build",
        build_args=["-g2005"],
        parameters={"ROW_W": 8, "NEURON_W": 7, "INPUT_W": 6},
        timescale=("1ns", "1ps"),
    )
    results = runner.test(
        hdl_toplevel="n3ic_cluster_layer",
        test_module="layer_bench",
        build_dir=tmp_path / "build",
        test_dir=tmp_path,
        results_xml=str(tmp_path / "results.xml"),
    )
    assert get_results(results) == (2, 0)
