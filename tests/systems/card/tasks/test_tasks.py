# SPDX-License-Identifier: Apache-2.0
"""Each packet task computes the same in C, in Verilog and in its reference."""

import shutil
import subprocess
from pathlib import Path

import pytest

from n3ic.systems.card.tasks.kind import DENIED, FOLDER, kind_of, kinds, started
from tests.systems.card.tasks import task_forms as forms

needs_icarus = pytest.mark.skipif(shutil.which("iverilog") is None, reason="needs iverilog")
needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


@needs_icarus
@needs_cc
@pytest.mark.parametrize("name", kinds())
def test_the_three_forms_agree(name: str, tmp_path: Path) -> None:
    entries, steps = forms.trial(name, 1, 400)
    expected = forms.referenced(started(kind_of(name), entries), steps)
    assert len({verdict for _, verdict in expected.answers}) > 1 or not kind_of(name).classes
    assert forms.in_c(name, entries, steps, tmp_path).answers == expected.answers
    for pauses in (False, True):
        seen = forms.in_verilog(name, entries, steps, tmp_path, pauses=pauses)
        assert seen.answers == expected.answers


def test_a_firewall_denies_some_and_passes_some() -> None:
    entries, steps = forms.trial("firewall", 1, 400)
    expected = forms.referenced(started(kind_of("firewall"), entries), steps)
    denied = [verdict == DENIED for _, verdict in expected.answers]
    assert 40 < sum(denied) < len(denied) - 40


@pytest.mark.skipif(shutil.which("verilator") is None, reason="needs verilator")
@pytest.mark.parametrize("name", kinds())
def test_the_verilog_has_no_warnings(name: str) -> None:
    sources = [str(FOLDER / name / f"n3ic_task_{name}.v"), *map(str, FOLDER.glob("*.v"))]
    fifo = FOLDER.parents[2] / "exporters/netfpga/rtl/n3ic_fifo.v"
    command = ["verilator", "--lint-only", "-Wall", "--top-module", f"n3ic_task_{name}"]
    command += [f"-GHEAD_W={8 * forms.head_of(name)}", *sources, str(fifo)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
