# SPDX-License-Identifier: Apache-2.0
"""Early exit: by hand on a few flows, and in the report of a run of a schedule."""

from types import SimpleNamespace

import numpy as np
import pytest

import n3ic
from n3ic.evaluation.early_exit import EVALUATION, EarlyExit, early_exits
from n3ic.evaluation.plugin import tables_of


def holdout_of(rows):
    """Held-out rows of (flow, packet, margin, right); packet 0 is the end."""
    flow, point, margin, right = (np.array(c) for c in zip(*rows, strict=True))
    table = SimpleNamespace(flow=flow, point=point)
    inference = SimpleNamespace(margins=margin.astype(np.uint32))
    return SimpleNamespace(
        table=table, rows=np.arange(len(flow)), inference=inference, right=right.astype(bool)
    )


def test_a_flow_is_decided_where_its_margin_first_suffices():
    holdout = holdout_of(
        [
            (7, 0, 9, True), (7, 4, 1, False), (7, 8, 5, True),
            (2, 4, 6, False), (2, 0, 0, True),
            (5, 0, 0, True),  # ended before packet 4
        ]
    )  # fmt: skip
    exits = {one.margin: one for one in early_exits(holdout)}
    assert exits[0] == EarlyExit(0, 3, pytest.approx(1 / 3), pytest.approx(2 / 3), 4)
    assert exits[5] == EarlyExit(5, 3, pytest.approx(2 / 3), pytest.approx(2 / 3), 6)
    assert exits[7].accuracy == 1.0
    assert (exits[7].early, exits[7].packets) == (0.0, 0)


@pytest.mark.parametrize("first", [0, 1])
def test_thresholds_are_quantiles_of_the_margins_and_each_flow_is_decided_once(first):
    """Against a walk through each flow; the lowest flow's number may be any."""
    rng = np.random.default_rng(first)
    rows = [
        (flow, point, int(rng.integers(0, 40)), bool(rng.integers(0, 2)))
        for flow in range(first, first + 25)
        for point in [*(4 << k for k in range(int(rng.integers(0, 4)))), 0]
    ]
    exits = early_exits(holdout_of([rows[i] for i in rng.permutation(len(rows))]))
    margins = np.array([row[2] for row in rows])
    shares = (0.0, 0.25, 0.5, 0.75, 0.9)
    assert [e.margin for e in exits] == sorted({0, *(int(np.quantile(margins, s)) for s in shares)})
    for each in exits:
        decided = []
        for flow in range(first, first + 25):
            own = [row for row in rows if row[0] == flow]  # in the order of packets, the end last
            decided.append(next((row for row in own if row[2] >= each.margin), own[-1]))
        early = [point for _, point, _, _ in decided if point]
        assert each.flows == 25
        assert each.accuracy == pytest.approx(np.mean([right for *_, right in decided]))
        assert each.early == pytest.approx(len(early) / 25)
        assert each.packets == (int(np.median(early)) if early else 0)


def test_flows_that_are_decided_once_have_none():
    holdout = SimpleNamespace(table=SimpleNamespace(flow=None, point=None), rows=np.arange(3))
    assert early_exits(holdout) == []
    assert EVALUATION.tables(EVALUATION.figures(holdout, 0)) == []
    with pytest.raises(ValueError, match="expected an integer"):
        EVALUATION.tables({"exits": [{"margin": "x"}]})


def test_figures_become_a_table_of_the_report():
    holdout = holdout_of([(0, 4, 3, True), (0, 0, 5, True), (1, 4, 0, False), (1, 0, 4, True)])
    (table,) = tables_of({"early_exit": EVALUATION.figures(holdout, 0)})
    assert table.rows[0] == ("0", "50.0 %", "100.0 %", "4")


@pytest.mark.slow
def test_a_run_of_a_schedule_says_it(tmp_path, small_baselines):
    run = n3ic.train(
        "classification",
        dataset="doh-tunnels",
        options={"packets": "4,8"},
        overrides={"hidden": (8,), "epochs": 2, "bits": 32, "polish": 0},
        out=tmp_path / "run",
    )
    title = "decided at the first packet whose margin suffices"
    (table,) = [t for t in tables_of(run.metrics) if t.title == title]
    assert len(table.rows) > 2
    assert title in (run.path / "report.md").read_text()
