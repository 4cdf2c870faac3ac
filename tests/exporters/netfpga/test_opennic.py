# SPDX-License-Identifier: Apache-2.0
"""The user box of OpenNIC shell: packets with results come back from it, whatever pauses."""

import re
from pathlib import Path

import pytest

from n3ic.errors import UsageError
from tests.exporters.netfpga.shell_bench import RUNS, beats, lint, packets, simulate, written

BENCH = Path(__file__).with_name("opennic_tb.v")
OPTIONS = {"shell": "opennic"}


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
