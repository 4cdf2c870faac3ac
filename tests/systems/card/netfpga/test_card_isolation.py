# SPDX-License-Identifier: Apache-2.0
"""Isolation of tenants in RTL simulation, driven through cocotb."""

import shutil
from pathlib import Path

import pytest

from n3ic.systems.card.netfpga.write import write_card
from tests.support import small_cards as cards

HERE = Path(__file__).resolve().parent

pytest.importorskip("cocotb", reason="needs cocotb")
pytestmark = pytest.mark.skipif(shutil.which("iverilog") is None, reason="needs iverilog")


@pytest.mark.slow
@pytest.mark.parametrize("scenario", ["flood", "long", "no-graph", "stolen", "malformed", "shared"])
def test_a_tenant_does_its_worst(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scenario: str
) -> None:
    """No bit, no counter and hardly a clock of the other tenant changes."""
    from cocotb_tools.check_results import get_results
    from cocotb_tools.runner import get_runner

    monkeypatch.syspath_prepend(str(HERE))  # where the simulator finds isolation_bench
    write_card(cards.guarded(shared=scenario == "shared"), tmp_path)
    runner = get_runner("icarus")
    runner.build(
        sources=sorted((tmp_path / "rtl").glob("*.v")),
        hdl_toplevel="n3ic_card",
        build_dir=tmp_path / "build",
        build_args=["-g2005"],
        timescale=("1ns", "1ps"),
    )
    results = runner.test(
        hdl_toplevel="n3ic_card",
        test_module="isolation_bench",
        build_dir=tmp_path / "build",
        test_dir=tmp_path / "mem",
        results_xml=str(tmp_path / "results.xml"),
        extra_env={"N3IC_SCENARIO": scenario},
    )
    assert get_results(results) == (2, 0)
