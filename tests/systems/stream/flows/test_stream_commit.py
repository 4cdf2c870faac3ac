# SPDX-License-Identifier: Apache-2.0
"""A stream is killed at every step, and what it decided is neither lost nor doubled."""

import subprocess
import sys
from pathlib import Path

from stream_models import MODELS, lines, stream
from traffic import labelled_capture

HERE = Path(__file__).parent


def killed(folder, name, flows=8):
    """Streams killed at every step: their folders, the capture and the model."""
    (folder / "c.pcap").write_bytes(labelled_capture(flows)[0])
    model = MODELS["binary"]()
    model.save(folder / "m.n3ic")
    (folder / "runs").mkdir()
    done = subprocess.run(
        [sys.executable, HERE / "killed_streams.py", "runs", "m.n3ic", "c.pcap", name],
        cwd=folder,
        env={"PYTHONPATH": f"{HERE}:{HERE.parents[2] / 'meter'}", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout), sorted((folder / "runs").iterdir()), model


def test_a_file_is_the_same_after_a_kill_at_any_step(tmp_path):
    kills, runs, model = killed(tmp_path, "out.jsonl")
    stream(tmp_path / "c.pcap", model, tmp_path / "want.jsonl")
    want = (tmp_path / "want.jsonl").read_bytes()
    assert kills > 15
    assert len(lines(tmp_path / "want.jsonl")) == 8
    assert [run.name for run in runs if (run / "out.jsonl").read_bytes() != want] == []
