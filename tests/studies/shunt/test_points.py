# SPDX-License-Identifier: Apache-2.0
"""What a threshold makes of labelled rows: by hand, and against a slow count."""

import numpy as np
import pytest

from n3ic.evaluation.metrics import evaluate
from n3ic.studies.shunt.points import (
    TwoStageRows,
    shunt_points,
    stage_figures,
    thresholds_of,
)

#           right  right  wrong  right  wrong
LABEL = np.array([0, 1, 1, 0, 1])
CARD = np.array([0, 1, 0, 0, 0])
MARGINS = np.array([9, 4, 4, 2, 0], dtype=np.int32)
HOST = np.array([1, 1, 1, 1, 1])
UNSEEN = np.array([True, False, True, True, False])
STAGES = TwoStageRows(LABEL, CARD, MARGINS, HOST, UNSEEN)


def test_points_by_hand():
    thresholds = thresholds_of(MARGINS)
    assert thresholds == [0, 2, 4, 9, 10]
    assert thresholds_of(MARGINS[:4]) == [0, 4, 9, 10]
    points = {p.threshold: p for p in shunt_points(STAGES, thresholds)}
    everything = points[0]
    assert (everything.decided, everything.share, everything.host_load) == (5, 1.0, 0.0)
    assert everything.accuracy == pytest.approx(3 / 5)
    assert everything.shunted_accuracy is None
    assert everything.end_to_end == pytest.approx(3 / 5)
    at_4 = points[4]
    assert at_4.decided == 3
    assert at_4.accuracy == pytest.approx(2 / 3)
    assert at_4.accuracy_unseen == pytest.approx(1 / 2)
    assert at_4.decided_unseen == 2
    assert at_4.share_unseen == pytest.approx(2 / 3)
    assert at_4.shunted_accuracy == pytest.approx(1 / 2)
    assert at_4.end_to_end == pytest.approx(3 / 5)
    assert at_4.end_to_end_unseen == pytest.approx(1 / 3)
    nothing = points[10]
    assert nothing.accuracy is None and nothing.accuracy_unseen is None
    assert nothing.end_to_end == pytest.approx(3 / 5)  # the host alone


def test_figures_are_those_of_each_stage_on_its_rows():
    figures = stage_figures(STAGES, 4, 2, positive=0)
    assert figures["card"] == evaluate(LABEL, CARD, None, 2, unseen=UNSEEN, positive=0)
    decided = [0, 1, 2]
    assert figures["decided"] == evaluate(
        LABEL[decided], CARD[decided], None, 2, unseen=UNSEEN[decided], positive=0
    )
    assert figures["shunted_host"].confusion == ((0, 1), (0, 1))
    assert figures["card"].confusion == ((2, 0), (2, 1))


def test_points_and_figures_agree_on_drawn_rows():
    rng = np.random.default_rng(0)
    rows = 500
    stages = TwoStageRows(
        rng.integers(0, 3, rows),
        rng.integers(0, 3, rows),
        rng.integers(0, 12, rows).astype(np.int32),
        rng.integers(0, 3, rows),
        rng.random(rows) < 0.7,
    )
    for point in shunt_points(stages, range(14)):
        figures = stage_figures(stages, point.threshold, 3)
        decided = [i for i in range(rows) if stages.margins[i] >= point.threshold]
        assert point.decided == len(decided)
        right = sum(
            (stages.card if i in set(decided) else stages.host)[i] == stages.label[i]
            for i in range(rows)
        )
        assert point.end_to_end == pytest.approx(right / rows)
        assert figures["end_to_end"].accuracy == pytest.approx(point.end_to_end)
        assert figures["end_to_end"].accuracy_unseen == pytest.approx(point.end_to_end_unseen)
        assert ("decided" in figures) == (point.accuracy is not None)
        if decided:
            assert figures["decided"].accuracy == pytest.approx(point.accuracy)
        assert ("shunted_host" in figures) == (point.shunted_accuracy is not None)
