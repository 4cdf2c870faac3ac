# SPDX-License-Identifier: Apache-2.0
"""What the benches of shells share: a model, packets and what comes back of them, and runs."""

import random
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from n3ic.exporters.netfpga.exporter import EXPORTER
from n3ic.exporters.netfpga.packet.wrapper import packet_format
from n3ic.model.bits import pack
from n3ic.model.network import BinaryModel
from n3ic.model.random_models import random_model
from n3ic.targets.directory import export

LENGTHS = (14, 31, 32, 33, 60, 63, 64, 65, 96, 128, 129, 1514)
RUNS = [  # simulator, and whether it pauses
    ("iverilog", 1),
    pytest.param("verilator", 1, marks=pytest.mark.slow),
    pytest.param("iverilog", 0, marks=pytest.mark.slow),
]


def model_of() -> BinaryModel:
    return random_model((40, 6, 4, 3), np.random.default_rng(2), extremes=False).with_shunt(2)


def written(out: Path, options: Mapping[str, str]) -> Path:
    export(model_of(), "netfpga", out, options=dict(options), verify=False)
    return out


def sources(out: Path, shell: str) -> list[str]:
    folders = (out / shell / "rtl", out / "rtl")
    return [str(path) for folder in folders for path in sorted(folder.glob("*.v"))]


def packets(
    options: Mapping[str, str], count: int = 60, length_of_all: int = 0
) -> list[tuple[bytes, bytes]]:
    """Packets, and what must come back of each: every other one asks, or all, of one length."""
    form = packet_format(model_of(), EXPORTER.parse_options(dict(options)))
    rng, model, made = random.Random(1), model_of(), []
    for attempt in range(count):
        asks = attempt % 2 == 0 or length_of_all > 0
        length = length_of_all or max(rng.choice(LENGTHS), form.need if asks else 14)
        data = bytearray(rng.randbytes(length))
        data[12:14] = (form.value if asks else form.value ^ 1).to_bytes(2, "big")
        back = bytearray(data)
        if asks:
            field = data[form.offset : form.offset + form.input_bytes]
            number = int.from_bytes(field, "big")
            bits = np.array([[number >> i & 1 for i in range(model.input.n_bits)]], dtype=bool)
            inference = model.infer(pack(bits))
            margin = int(inference.margins[0])
            label = 0xFFFF if margin < model.shunt else int(inference.classes[0])
            result = bytes.fromhex(model.digest[:8])
            result += label.to_bytes(2, "big") + margin.to_bytes(4, "big")
            back[form.result_at : form.result_at + len(result)] = result
        made.append((bytes(data), bytes(back)))
    return made


def beats(frames: Sequence[bytes], width: int, side: Callable[[int, int], int]) -> list[str]:
    """A line of hexadecimal digits a beat: last, sideband, keep and data.

    ``side`` gives the sideband's ``width`` bits for a frame's number and a beat's first byte.
    """
    lines = []
    for index, frame in enumerate(frames):
        for at in range(0, len(frame), 64):
            part = frame[at : at + 64]
            number = int(at + 64 >= len(frame)) << width | side(index, at)
            number = number << 64 | (1 << len(part)) - 1
            lines.append(f"{number << 512 | int.from_bytes(part, 'little'):x}")
    return lines


def simulate(
    out: Path,
    bench: Path,
    shell: str,
    simulator: str,
    lines: tuple[list[str], list[str]],
    defines: Mapping[str, int],
) -> int:
    """Run a bench on the beats that are sent and those that are due; skip without simulator.

    Returns:
        Clocks from the first beat into the network's stream to the last one out of it.
    """
    if not shutil.which(simulator):
        pytest.skip(f"needs {simulator}")
    sent, due = lines
    assert sent != due
    for name, content in (("sent", sent), ("due", due)):
        (out / "mem" / f"{name}.mem").write_text("\n".join(content) + "\n")
    every = {"BEATS": len(sent), **defines}
    top = bench.stem
    program = out.parent / "build" / top
    program.parent.mkdir()
    if simulator == "iverilog":
        build = ["iverilog", "-g2005", "-s", top, "-o", str(program)]
    else:
        build = ["verilator", "--binary", "--timing", "-Wno-lint", "--top-module", top]
        build += ["--Mdir", str(program.parent), "-o", program.name, "-O0", "-CFLAGS", "-O0"]
    build += [f"-I{folder}" for folder in (out / "mem", bench.parent)]
    build += [f"-D{name}={value}" for name, value in every.items()]
    build += [str(bench), *sources(out, shell)]
    done = subprocess.run(build, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    command = ["vvp", "-n", str(program)] if simulator == "iverilog" else [str(program)]
    done = subprocess.run(
        command, cwd=out / "mem", capture_output=True, text=True, timeout=600, check=False
    )
    passed = re.search(r"^PASS in (\d+) clocks$", done.stdout, re.MULTILINE)
    assert passed, done.stdout
    return int(passed[1])


def lint(out: Path, shell: str, top: str) -> None:
    """Check that Verilator and Icarus Verilog have nothing to say."""
    for command in (
        ["verilator", "--lint-only", "-Wall", "--top-module", top],
        ["iverilog", "-Wall", "-g2005", "-s", top, "-o", str(out.parent / "x")],
    ):
        if not shutil.which(command[0]):
            pytest.skip(f"needs {command[0]}")
        done = subprocess.run(
            [*command, *sources(out, shell)],
            cwd=out / "rtl",
            capture_output=True,
            text=True,
            timeout=600,
        )
        quiet = "".join(line for line in done.stderr.splitlines(True) if "readmemh" not in line)
        assert (done.returncode, done.stdout + quiet) == (0, ""), command[0]
