# SPDX-License-Identifier: Apache-2.0
"""Where a training writes, beside others that write there."""

from n3ic.usecases.training import _target
from n3ic.util.files import new_directory


def test_a_run_that_is_being_written_has_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert _target(None, "anomaly", False).as_posix() == "runs/anomaly"
    with new_directory("runs/anomaly"):
        assert _target(None, "anomaly", False).as_posix() == "runs/anomaly-2"
    assert _target(None, "anomaly", False).as_posix() == "runs/anomaly-2"
    assert _target(None, "anomaly", True).as_posix() == "runs/anomaly"
