# SPDX-License-Identifier: Apache-2.0
"""The user box of OpenNIC shell: packets with results come back from it, whatever pauses."""

import re
from pathlib import Path

import pytest

from n3ic.errors import UsageError
from n3ic.exporters.netfpga.exporter import EXPORTER
from n3ic.exporters.netfpga.latency import pipeline_clocks
from tests.exporters.netfpga.shell_bench import (
    RUNS,
    beats,
    lint,
    model_of,
    packets,
    simulate,
    written,
)

BENCH = Path(__file__).with_name("opennic_tb.v")
OPTIONS = {"shell": "opennic"}
REQUESTS = 600
WAY = 4  # clocks of a beat from the box to the core, and from there out of the box


@pytest.mark.parametrize(("simulator", "pauses"), RUNS)
def test_packets_pass_the_box(tmp_path: Path, simulator: str, pauses: int) -> None:
    out = written(tmp_path / "e", OPTIONS)
    made = packets(OPTIONS)
    sent, due = (
        beats(frames, 32, lambda index, _: 1 << (22 + index % 2) | len(made[index][0]))
        for frames in zip(*made, strict=True)
    )
    defines = {"PACKETS": len(made), "PAUSES": pauses}
    simulate(out, BENCH, "opennic", simulator, (sent, due), defines)


@pytest.mark.parametrize(
    "simulator", ["iverilog", pytest.param("verilator", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("results", ["", pytest.param("4", marks=pytest.mark.slow)])
def test_an_inference_a_clock(tmp_path: Path, simulator: str, results: str) -> None:
    """More requests of one beat than any queue holds, back to back, each with the right scores."""
    options = {**OPTIONS, "style": "unrolled"}
    out = written(tmp_path / "e", options)
    (out / "mem").mkdir()
    if results:  # room for fewer inferences than are in flight
        top = out / "rtl" / "n3ic_top.v"
        model = f".MODEL(32'h{model_of().digest[:8]})"
        assert model in top.read_text()
        top.write_text(top.read_text().replace(model, f"{model}, .RESULTS_W({results})"))
    made = packets(options, REQUESTS, 64)
    sent, due = (beats(frames, 32, lambda *_: 64) for frames in zip(*made, strict=True))
    assert len(sent) == REQUESTS
    defines = {"PACKETS": REQUESTS, "PAUSES": 0}
    clocks = simulate(out, BENCH, "opennic", simulator, (sent, due), defines)
    latency = pipeline_clocks(model_of(), EXPORTER.parse_options(options))
    assert (clocks == REQUESTS + latency + WAY) == (not results)


@pytest.mark.parametrize("options", [OPTIONS, {**OPTIONS, "style": "unrolled"}], ids=str)
def test_linters_find_nothing_in_the_box(tmp_path: Path, options: dict[str, str]) -> None:
    lint(written(tmp_path / "e", options), "opennic", "n3ic_opennic")


def test_the_plugin_connects_every_port(tmp_path: Path) -> None:
    """Each port of the top once; what the shell's box has no signal for is not used."""
    plugin = written(tmp_path / "e", OPTIONS) / "opennic"
    top = (plugin / "rtl" / "n3ic_opennic.v").read_text()
    header = top[top.index("module n3ic_opennic") : top.index(");")]
    ports = re.findall(r"put +wire +(?:\[\d+:0\] +)?(\w+)", header)
    include = (plugin / "box_250mhz" / "user_plugin_250mhz_inst.vh").read_text()
    assert sorted(re.findall(r"\.(\w+)\(", include)) == sorted(ports)
    assert "wstrb" not in include  # as its AXI4-Lite has none


@pytest.mark.parametrize("shell", ["opennic", "corundum"])
@pytest.mark.parametrize(
    "other",
    [
        {"result": "tuser"},
        {"result": "both"},
        {"input": "side"},
        {"front-end": "udp"},
        {"shunt-port": "2"},
    ],
)
def test_what_a_shell_does_not_carry_is_refused(
    tmp_path: Path, shell: str, other: dict[str, str]
) -> None:
    with pytest.raises(UsageError, match="shell"):
        written(tmp_path / "e", {"shell": shell, **other})
