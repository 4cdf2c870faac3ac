# SPDX-License-Identifier: Apache-2.0
"""The user box of OpenNIC shell: packets with results come back from it, whatever pauses."""

import random
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from n3ic.errors import UsageError
from n3ic.exporters.netfpga.exporter import EXPORTER
from n3ic.exporters.netfpga.packet.wrapper import PacketFormat, packet_format
from n3ic.model.bits import pack
from n3ic.model.network import BinaryModel
from n3ic.model.random_models import random_model
from n3ic.targets.directory import export

BENCH = Path(__file__).with_name("opennic_tb.v")
OPTIONS = {"shell": "opennic"}
LENGTHS = (14, 31, 32, 33, 60, 63, 64, 65, 96, 128, 129, 1514)


def model_of() -> BinaryModel:
    return random_model((40, 6, 4, 3), np.random.default_rng(2), extremes=False).with_shunt(2)


def written(out: Path, options: dict[str, str] = OPTIONS) -> Path:
    export(model_of(), "netfpga", out, options=options, verify=False)
    return out


def sources(out: Path) -> list[str]:
    folders = (out / "opennic" / "rtl", out / "rtl")
    return [str(path) for folder in folders for path in sorted(folder.glob("*.v"))]


def packets(form: PacketFormat) -> list[tuple[bytes, bytes]]:
    """Packets, and what must come back of each."""
    rng, model, made = random.Random(1), model_of(), []
    for turn in range(60):
        asks = turn % 2 == 0
        length = max(rng.choice(LENGTHS), form.need if asks else 14)
        data = bytearray(rng.randbytes(length))
        data[12:14] = (form.value if asks else form.value ^ 1).to_bytes(2, "big")
        back = bytearray(data)
        if asks:
            field = data[form.offset : form.offset + form.input_bytes]
            number = int.from_bytes(field, "big")
            bits = np.array([[number >> i & 1 for i in range(model.input.n_bits)]], dtype=bool)
            found = model.infer(pack(bits))
            margin = int(found.margins[0])
            label = 0xFFFF if margin < model.shunt else int(found.classes[0])
            result = bytes.fromhex(model.digest[:8])
            result += label.to_bytes(2, "big") + margin.to_bytes(4, "big")
            back[form.result_at : form.result_at + len(result)] = result
        made.append((bytes(data), bytes(back)))
    return made


def beats(frames: list[bytes]) -> list[str]:
    """A line of hexadecimal digits a beat: last, source, size, keep and data."""
    lines = []
    for index, frame in enumerate(frames):
        for at in range(0, len(frame), 64):
            part = frame[at : at + 64]
            number = int(at + 64 >= len(frame))
            number = number << 16 | 1 << (6 + index % 2)
            number = number << 16 | len(frame)
            number = number << 64 | (1 << len(part)) - 1
            number = number << 512 | int.from_bytes(part, "little")
            lines.append(f"{number:x}")
    return lines


@pytest.mark.parametrize(
    ("simulator", "pauses"),
    [
        ("iverilog", 1),
        pytest.param("verilator", 1, marks=pytest.mark.slow),
        pytest.param("iverilog", 0, marks=pytest.mark.slow),
    ],
)
def test_packets_pass_the_box(tmp_path: Path, simulator: str, pauses: int) -> None:
    if not shutil.which(simulator):
        pytest.skip(f"needs {simulator}")
    out = written(tmp_path / "e")
    form = packet_format(model_of(), EXPORTER.parse_options(OPTIONS))
    made = packets(form)
    sent, due = (beats([pair[i] for pair in made]) for i in (0, 1))
    assert sent != due
    for name, lines in (("sent", sent), ("due", due)):
        (out / "mem" / f"{name}.mem").write_text("\n".join(lines) + "\n")
    values = {"BEATS": len(sent), "PACKETS": len(made), "PAUSES": pauses}
    defines = [f"-D{name}={value}" for name, value in values.items()]
    program = tmp_path / "build" / "opennic_tb"
    program.parent.mkdir()
    if simulator == "iverilog":
        build = ["iverilog", "-g2005", "-s", "opennic_tb", "-o", str(program)]
    else:
        build = ["verilator", "--binary", "--timing", "-Wno-lint", "--top-module", "opennic_tb"]
        build += ["--Mdir", str(program.parent), "-o", program.name, "-O0", "-CFLAGS", "-O0"]
    subprocess.run(
        [*build, *defines, str(BENCH), *sources(out)], check=True, capture_output=True, timeout=600
    )
    command = ["vvp", "-n", str(program)] if simulator == "iverilog" else [str(program)]
    done = subprocess.run(
        command, cwd=out / "mem", capture_output=True, text=True, timeout=600, check=False
    )
    assert re.search(r"^PASS in \d+ clocks$", done.stdout, re.MULTILINE), done.stdout


@pytest.mark.skipif(
    not shutil.which("verilator") or not shutil.which("iverilog"),
    reason="needs verilator and iverilog",
)
@pytest.mark.parametrize("options", [OPTIONS, {**OPTIONS, "style": "unrolled"}], ids=str)
def test_linters_find_nothing_in_the_box(tmp_path: Path, options: dict[str, str]) -> None:
    out = written(tmp_path / "e", options)
    top = "n3ic_opennic"
    for command in (
        ["verilator", "--lint-only", "-Wall", "--top-module", top],
        ["iverilog", "-Wall", "-g2005", "-s", top, "-o", str(tmp_path / "x")],
    ):
        done = subprocess.run(
            [*command, *sources(out)],
            cwd=out / "rtl",
            capture_output=True,
            text=True,
            timeout=600,
        )
        quiet = "".join(line for line in done.stderr.splitlines(True) if "readmemh" not in line)
        assert (done.returncode, done.stdout + quiet) == (0, ""), command[0]


def test_the_plugin_connects_every_port(tmp_path: Path) -> None:
    """Each port of the top once; what the shell's box has no signal for is not used."""
    plugin = written(tmp_path / "e") / "opennic"
    top = (plugin / "rtl" / "n3ic_opennic.v").read_text()
    header = top[top.index("module n3ic_opennic") : top.index(");")]
    ports = re.findall(r"put +wire +(?:\[\d+:0\] +)?(\w+)", header)
    include = (plugin / "box_250mhz" / "user_plugin_250mhz_inst.vh").read_text()
    assert sorted(re.findall(r"\.(\w+)\(", include)) == sorted(ports)
    assert "wstrb" not in include  # as its AXI4-Lite has none


@pytest.mark.parametrize(
    "other", [{"result": "tuser"}, {"input": "side"}, {"front-end": "udp"}, {"shunt-port": "2"}]
)
def test_what_the_box_does_not_carry_is_refused(tmp_path: Path, other: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="shell"):
        written(tmp_path / "e", {**OPTIONS, **other})
