# SPDX-License-Identifier: Apache-2.0
"""The card's AXI4-Stream ports under Icarus, driven through cocotb and cocotbext-axi."""

import shutil
from pathlib import Path

import pytest

from n3ic.systems.cluster.netfpga.image import NodeSize, node_image
from n3ic.systems.cluster.netfpga.sources import TOP, node_sources
from tests.support.card_rig import endpoints
from tests.support.lone_card import CARD, MODEL, PLACED, placement

HERE = Path(__file__).resolve().parent

pytest.importorskip("cocotb", reason="needs cocotb")
pytest.importorskip("cocotbext.axi", reason="needs cocotbext-axi")


@pytest.mark.exhaustive
@pytest.mark.skipif(shutil.which("iverilog") is None, reason="needs iverilog")
def test_ports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(HERE))  # where the simulator finds port_bench
    from cocotb_tools.check_results import get_results
    from cocotb_tools.runner import get_runner

    placed = placement(*PLACED["neurons"])
    image = tmp_path / "image.hex"
    image.write_text(node_image(MODEL, placed, CARD, **endpoints(placed, CARD)).text)
    runner = get_runner("icarus")
    runner.build(
        sources=node_sources(),
        hdl_toplevel=TOP,
        build_dir=tmp_path / "build",
        build_args=["-g2005"],
        parameters=NodeSize(row_w=10, neuron_w=9).parameters,
        timescale=("1ns", "1ps"),
    )
    results = runner.test(
        hdl_toplevel=TOP,
        test_module="port_bench",
        build_dir=tmp_path / "build",
        test_dir=tmp_path,
        results_xml=str(tmp_path / "results.xml"),
        extra_env={"N3IC_IMAGE": str(image)},
    )
    assert get_results(results) == (2, 0)
