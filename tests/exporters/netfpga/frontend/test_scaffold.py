# SPDX-License-Identifier: Apache-2.0
"""A user's own kernel behind the front end: written, tested, changed, and tested again."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from n3ic.errors import UsageError
from n3ic.exporters.netfpga.frontend.scaffold import write_scaffold
from n3ic.model.random_models import random_model
from n3ic.options import OptionValue
from n3ic.targets.directory import export
from tests.support.command_line import n3ic

needs_verilator = pytest.mark.skipif(shutil.which("verilator") is None, reason="needs Verilator")
NARROW: dict[str, OptionValue] = {"front-end": "udp", "style": "unrolled", "data-width": "64"}
FORMS: dict[str, dict[str, OptionValue]] = {
    "udp-64": NARROW,
    "tcp-512": {"front-end": "tcp", "style": "unrolled", "executors": 3, "answers": "verdict"},
}


def card_of(folder: Path, **options: OptionValue) -> Path:
    model = random_model((41, 4, 2), np.random.default_rng(13), extremes=False)
    export(model, "netfpga", folder / "card", verify=False, options=options)
    return folder / "card"


def run_test(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "test_kernel.py", *more],
        cwd=folder, capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.first_case
@needs_verilator
@pytest.mark.parametrize("form", ["tcp-512", "udp-64"])
def test_the_test_passes_and_finds_a_change(form: str, tmp_path: Path) -> None:
    card_of(tmp_path, **FORMS[form])
    completed = n3ic("simulate", "netfpga", "card", "--scaffold", "mine", cwd=tmp_path)
    assert "python mine/test_kernel.py runs its test" in completed.stdout
    mine = tmp_path / "mine"
    done = run_test(mine, "waves.fst")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the kernel answers as expected" in done.stdout
    assert (mine / "waves.fst").stat().st_size > 1000
    kernel = mine / "rtl" / "kernel.v"
    kernel.write_text(kernel.read_text().replace("sum = sum + {", "sum = sum ^ {"))
    done = run_test(mine)
    assert done.returncode == 1
    assert "AssertionError: datagram 0" in done.stderr
    test = mine / "test_kernel.py"  # the expectation is changed alike
    text = test.read_text().replace("row.sum(dtype=np.uint64)", "np.bitwise_xor.reduce(row)")
    test.write_text(text)
    done = run_test(mine)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_verilator
@pytest.mark.parametrize("form", FORMS)
def test_the_verilog_is_clean(form: str, tmp_path: Path) -> None:
    write_scaffold(card_of(tmp_path, **FORMS[form]), tmp_path / "mine")
    files = [str(f) for f in sorted((tmp_path / "mine" / "rtl").glob("*.v"))]
    command = ["verilator", "--lint-only", "-Wall", "-Wno-DECLFILENAME", "--top-module"]
    done = subprocess.run([*command, "n3ic_front_top", *files], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    ports = re.findall(r"\.(\w+)\(", (tmp_path / "mine" / "rtl" / "n3ic_front_top.v").read_text())
    assert {"ask_valid", "ask_data", "answer_valid", "answer_data"} <= set(ports)


def test_a_folder_stays_and_a_card_without_front_end_is_refused(tmp_path: Path) -> None:
    card = card_of(tmp_path)
    completed = n3ic("simulate", "netfpga", card, "--scaffold", "mine", cwd=tmp_path, expect=2)
    assert "--scaffold needs a card with a front end" in completed.stderr
    assert not (tmp_path / "mine").exists()
    shutil.rmtree(card)
    card = card_of(tmp_path, **NARROW)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "kernel.v").write_text("mine")
    with pytest.raises(UsageError, match="exists"):
        write_scaffold(card, tmp_path / "mine")
    assert (tmp_path / "mine" / "kernel.v").read_text() == "mine"
