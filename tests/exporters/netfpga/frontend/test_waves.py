# SPDX-License-Identifier: Apache-2.0
"""Signals of a simulated front end, in a file."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from n3ic.errors import UsageError
from n3ic.exporters.netfpga.exporter import EXPORTER, _simulate
from n3ic.exporters.netfpga.frontend import packets as p
from n3ic.exporters.netfpga.frontend.bench import FrontBench
from n3ic.exporters.netfpga.frontend.messages import bit_rows, request
from n3ic.exporters.netfpga.frontend.tap import waves_file
from n3ic.exporters.netfpga.frontend.verify import CARD, HOST
from n3ic.model.random_models import random_model
from n3ic.targets.directory import export


@pytest.mark.slow
@pytest.mark.skipif(
    any(shutil.which(tool) is None for tool in ("verilator", "fst2vcd")),
    reason="needs Verilator and fst2vcd (apt install verilator gtkwave)",
)
def test_the_file_holds_every_signal_of_every_clock(tmp_path: Path) -> None:
    model = random_model((24, 4, 2), np.random.default_rng(1), extremes=False)
    given = {"front-end": "udp", "style": "unrolled", "data-width": "64"}
    EXPORTER.write(model, EXPORTER.parse_options(given), tmp_path)
    words = np.array([[5]], dtype=np.uint32)
    frame = p.udp(HOST, CARD, request(1, 0, bit_rows(words, 24)).to_bytes())
    file = tmp_path / "waves.fst"
    with FrontBench(tmp_path, quiet=200, waves=file) as bench:
        seen = bench.run([frame])
    assert len(seen.left) == 1
    done = subprocess.run(["fst2vcd", str(file)], capture_output=True, text=True, check=True)
    names = {line.split()[4] for line in done.stdout.splitlines() if line.startswith("$var")}
    assert {"axis_aclk", "s_axis_tdata", "m_axis_tvalid", "ask_data", "answer_valid"} <= names
    times = [int(line[1:]) for line in done.stdout.splitlines() if line[:1] == "#"]
    assert times == sorted(times)
    assert times[-1] >= 2 * seen.clock


def test_a_file_is_refused_in_words(tmp_path: Path) -> None:
    for wrong, message in (("a.vcd", "not named .fst"), ("no/a.fst", "is not a folder")):
        with pytest.raises(UsageError, match=message):
            waves_file(str(tmp_path / wrong))
    assert waves_file(str(tmp_path / "a.fst")) == (tmp_path / "a.fst").resolve()
    model = random_model((24, 4, 2), np.random.default_rng(1), extremes=False)
    export(model, "netfpga", tmp_path / "card", verify=False)
    options = {"tap": "a", "peer": "b", "netns": "", "address": "10.0.0.2"}
    options |= {"waves": "a.fst", "scaffold": ""}
    with pytest.raises(UsageError, match="--waves needs a card with a front end"):
        _simulate(tmp_path / "card", options, lambda _: None)
