# SPDX-License-Identifier: Apache-2.0
"""What an export with a front end holds, refuses, and is found wrong in."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from n3ic.errors import MissingDependencyError, UsageError, VerifyError
from n3ic.exporters.netfpga.exporter import EXPORTER
from n3ic.exporters.netfpga.frontend.parameters import FOLDER, frontend_parameters
from n3ic.exporters.netfpga.frontend.verify import check_front
from n3ic.exporters.netfpga.tools import synth
from n3ic.model.network import BinaryModel
from n3ic.model.random_models import random_model
from n3ic.options import Options, OptionValue

needs_verilator = pytest.mark.skipif(
    shutil.which("verilator") is None, reason="needs Verilator (apt install verilator)"
)
FORMS = {
    "udp-64": {"front-end": "udp", "data-width": "64"},
    "udp-512": {"front-end": "udp", "style": "unrolled", "executors": 4, "bypass": False},
    "tcp-64": {"front-end": "tcp", "style": "unrolled", "data-width": "64", "answers": "verdict"},
    "tcp-512": {"front-end": "tcp", "input-stage": "features", "sessions": 1024, "mtu": 9000},
}

UNROLLED: dict[str, OptionValue] = {"front-end": "udp", "style": "unrolled", "data-width": "64"}


def model_of(bits: int = 41) -> BinaryModel:
    return random_model((bits, 8, 3), np.random.default_rng(13), extremes=False).with_shunt(1)


def write(out: Path, model: BinaryModel, **given: OptionValue) -> Options:
    options = EXPORTER.parse_options(given)
    EXPORTER.write(model, options, out)
    return options


@pytest.mark.first_case
@needs_verilator
@pytest.mark.parametrize("form", FORMS)
def test_the_verilog_is_clean(form: str, tmp_path: Path) -> None:
    write(tmp_path, model_of(), **FORMS[form])
    files = [str(f) for f in sorted((tmp_path / "rtl").glob("*.v"))]
    command = ["verilator", "--lint-only", "-Wall", "--top-module", "n3ic_front_top", *files]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]


def test_the_same_model_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        write(tmp_path / name, model_of(), **FORMS["tcp-64"])
    files = sorted(f.relative_to(tmp_path / "a") for f in (tmp_path / "a").rglob("*"))
    assert Path("n3ic.lua") in files
    assert Path("rtl/n3ic_top.v") not in files
    for file in files:
        if (tmp_path / "a" / file).is_file():
            assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_options_that_do_not_go_together() -> None:
    def form(**given: OptionValue) -> None:
        frontend_parameters(
            model_of(), EXPORTER.parse_options({k.replace("_", "-"): v for k, v in given.items()})
        )

    for wrong in (
        {"sessions": 8, "front_end": "udp"},
        {"match": "udp", "front_end": "udp"}, {"executors": 2, "front_end": "udp"},
    ):  # fmt: skip
        with pytest.raises(UsageError, match="applies only with"):
            form(**wrong)
    with pytest.raises(UsageError, match="--outputs scores"):
        form(front_end="udp", style="unrolled", outputs="class")
    form(front_end="udp", style="unrolled", outputs="class", answers="verdict")
    with pytest.raises(UsageError, match="a row has 1100 bytes, the front end takes 1024"):
        frontend_parameters(model_of(8800), EXPORTER.parse_options({"front-end": "udp"}))
    with pytest.raises(UsageError, match="takes 532 at most: use --mtu"):
        frontend_parameters(
            model_of(4800), EXPORTER.parse_options({"front-end": "udp", "mtu": 576})
        )


@pytest.mark.exhaustive
@needs_verilator
def test_another_network_behind_it_is_found(tmp_path: Path) -> None:
    """The core of another network of the same shape, and digest: the answers tell.

    They are asked for over UDP of any front end, so the least is built.
    """
    model, other = model_of(), random_model((41, 8, 3), np.random.default_rng(14), extremes=False)
    options = write(tmp_path, model, **UNROLLED)
    words = np.random.default_rng(1).integers(0, 1 << 32, size=(100, 2), dtype=np.uint32)
    words[:, 1] &= 511
    assert "datagrams of 100 rows" in check_front(tmp_path, model, options, words)
    (tmp_path / "other").mkdir()
    write(tmp_path / "other", other.with_shunt(1), **UNROLLED)
    shutil.copy(tmp_path / "other" / "rtl" / "n3ic_core.v", tmp_path / "rtl")
    shutil.copy(tmp_path / "other" / "rtl" / "n3ic_cells.v", tmp_path / "rtl")
    with pytest.raises(VerifyError, match="the front end: datagram 0, row"):
        check_front(tmp_path, model, options, words)


@pytest.mark.slow
def test_memories_of_sessions_have_a_register_at_their_output(tmp_path: Path) -> None:
    """Only then they become block RAM; a second source of that register takes them out of it."""
    folder = FOLDER / "rtl"
    names = ("n3ic_fe_tcp", "n3ic_fe_cookie", "n3ic_fe_fifo", "n3ic_fe_sum")
    commands = synth.read_commands(
        [folder / f"{name}.v" for name in names], names[0], {"SESSIONS": 64, "SW": 6}, tmp_path
    )
    try:
        synth.version(synth.YOSYS)
    except MissingDependencyError as error:
        pytest.skip(str(error))
    commands += ["hierarchy -auto-top", "proc", "flatten", "opt -fast", "memory -nomap"]
    synth._yosys(tmp_path, [*commands, "write_json netlist.json"])
    (module,) = json.loads((tmp_path / "netlist.json").read_text())["modules"].values()
    clocked = {
        cell["parameters"]["MEMID"].lstrip("\\"): int(cell["parameters"]["RD_CLK_ENABLE"], 2)
        for cell in module["cells"].values()
        if cell["type"].startswith("$mem")
    }
    large = ("states", "buckets", "contexts", "words", "records")
    assert {name: clocked[name] for name in large} == dict.fromkeys(large, 1)
