# SPDX-License-Identifier: Apache-2.0
"""The how-to "from a capture to verdicts", followed as written."""

import csv
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from n3ic.errors import MissingDependencyError
from n3ic.meter.capture import libpcap
from n3ic.meter.table import load_flows
from n3ic.model.network import BinaryModel
from tests.support import command_line
from tests.support.traffic import labelled_capture

try:
    libpcap()
except MissingDependencyError as error:
    pytest.skip(str(error), allow_module_level=True)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("small_baselines"),
    pytest.mark.skipif(
        not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="no C compiler"
    ),
    pytest.mark.skipif(not shutil.which("make"), reason="no make"),
]  # fmt: skip


def output_of(line, folder):
    """What a line of a shell says; ``n3ic`` alone runs in this process."""
    if line.startswith("n3ic ") and not set(line) & set("|><&"):
        return command_line.n3ic(*shlex.split(line, comments=True)[1:], cwd=folder).stdout
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "-c", line],
        cwd=folder,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    return done.stdout


def rows_of(text):
    return list(csv.DictReader(text.splitlines()))


def test_from_a_capture_to_verdicts_as_written(repository, tmp_path):
    capture, labels = labelled_capture(300)
    (tmp_path / "capture.pcap").write_bytes(capture)
    (tmp_path / "labels.csv").write_bytes(labels)
    live, truth = labelled_capture(100, seed=1)
    (tmp_path / "live.pcap").write_bytes(live)
    page = (repository / "docs" / "how-to" / "captures.md").read_text()
    lines = re.search(r"^```sh\n(.*?)^```", page, re.DOTALL | re.MULTILINE)[1].splitlines()
    outputs = {line.split()[1]: output_of(line, tmp_path) for line in lines}
    program = ["-C", "live.pcap", "verdicts.csv"]  # make, flow-exec, cmp
    steps = ["data", "train", "inspect", "predict", "export", "verify"]
    assert list(outputs) == [*steps, *program]
    assert "flows that it metered from" in outputs["verify"]
    assert "meter: flows by five-tuple" in outputs["inspect"]
    model = BinaryModel.load(tmp_path / "run" / "model.n3ic")
    assert model.meter == load_flows(tmp_path / "flows.parquet").meter
    assert BinaryModel.load(tmp_path / "host" / "model.n3ic") == model

    verdicts = rows_of((tmp_path / "verdicts.csv").read_text())
    output_of("n3ic data extract live.pcap --packets 8 --out live.csv", tmp_path)
    classes = rows_of(output_of("n3ic predict live.csv --model run", tmp_path))
    assert [{k: row[k] for k in classes[0]} for row in verdicts] == classes
    key = ("source", "source_port", "destination", "destination_port", "protocol")
    label = {tuple(row[k] for k in key): row["label"] for row in rows_of(truth.decode())}
    right = [row["class"] == label[tuple(row[k] for k in key)] for row in verdicts]
    assert len(right) == 100
    assert sum(right) > 90
