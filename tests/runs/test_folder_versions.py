# SPDX-License-Identifier: Apache-2.0
"""Runs of a newer n3ic are refused, in one line."""

import json

import pytest

from n3ic.errors import UsageError
from n3ic.runs.folder import METRICS_VERSION, load_metrics


def test_metrics_of_a_newer_version_are_refused(tmp_path):
    written = tmp_path / "metrics.json"
    written.write_text(json.dumps({"version": METRICS_VERSION, "seed": 0}))
    assert load_metrics(tmp_path)["seed"] == 0
    for version in (METRICS_VERSION + 1, "1", None):
        written.write_text(json.dumps({"version": version}))
        with pytest.raises(UsageError, match="this n3ic reads 1"):
            load_metrics(tmp_path)
