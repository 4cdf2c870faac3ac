# SPDX-License-Identifier: Apache-2.0
"""The trials of the drift test: delays beside other detectors', and alarms without a change."""

import sys

import pytest

from n3ic.systems.stream.learning.replay import ReplayedFlows
from scripts import drift_trial
from scripts.drift_trial import (
    ADWIN_LABEL,
    ADWIN_MARGIN,
    ADWIN_PROXY,
    OURS,
    PSI,
    detection_delays,
    level,
)
from tests.support.changing_traffic import tables, traffic, write_table


@pytest.fixture(name="model", scope="module")
def trained_before():
    return tables(rows=600)


@pytest.mark.exhaustive
def test_detectors_are_compared_on_a_replay_that_changes(model):
    pytest.importorskip("river")
    before = traffic(1500, 1)
    after = traffic(1500, 2, changed=True)
    after.features[:, :3] = after.features[:, :3] // 2
    whole = ReplayedFlows.joined(before, after)
    delays = {e.detector: e for e in detection_delays(model, traffic(800, 3), whole, 1500)}
    assert set(delays) == {OURS, ADWIN_MARGIN, ADWIN_PROXY, ADWIN_LABEL, PSI}
    assert delays[OURS].false_alarms == 0
    assert delays[OURS].delay < 100
    assert delays[PSI].delay == 500
    assert delays[ADWIN_LABEL].delay is not None
    calm = detection_delays(model, traffic(800, 3), before, 1500)
    assert all(each.delay is None for each in calm)


@pytest.mark.slow
def test_a_change_of_the_labels_alone_moves_no_flow(model):
    """Without labels nobody can see it; labels at once show it."""
    pytest.importorskip("river")
    whole = ReplayedFlows.joined(traffic(1500, 1), traffic(1500, 2, changed=True))
    delays = {e.detector: e for e in detection_delays(model, traffic(800, 3), whole, 1500)}
    assert delays[OURS].delay is None
    assert delays[ADWIN_PROXY].delay is None
    assert delays[ADWIN_LABEL].delay is not None


@pytest.mark.slow
def test_the_script_prints_the_delays(model, tmp_path, monkeypatch, capsys):
    pytest.importorskip("river")
    moved = traffic(700, 2)
    moved.features[:, 1] //= 2
    model.save(tmp_path / "model.n3ic")
    for name, flows in (("old", traffic(600, 3)), ("flows", traffic(1000, 1)), ("moved", moved)):
        write_table(tmp_path / f"{name}.csv", flows)
    files = [str(tmp_path / f"{name}.csv") for name in ("flows", "moved", "old")]
    words = [files[0], "--then", files[1], "--reference", files[2]]
    words += ["--model", str(tmp_path / "model.n3ic")]
    monkeypatch.setattr(sys, "argv", ["drift_trial", "delays", *words])
    drift_trial.main()
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "1,000 flows, then 700 of other traffic"
    (ours,) = [line for line in printed if line.startswith(OURS)]
    assert ours.split()[3] == "0" and ours.endswith("smaxlen")


@pytest.mark.slow
def test_bursts_are_counted_once(monkeypatch, capsys):
    assert level(20, 40, 0.05, by_flow=False) <= 0.1 < 0.5 < level(20, 40, 0.05, by_flow=True)
    words = ["drift_trial", "level", "--runs", "2", "--bursts", "1", "5"]
    monkeypatch.setattr(sys, "argv", words)
    drift_trial.main()
    assert len(capsys.readouterr().out.splitlines()) == 3
