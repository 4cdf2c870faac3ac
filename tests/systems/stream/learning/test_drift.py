# SPDX-License-Identifier: Apache-2.0
"""The test of drift gives false alarms as seldom as stated, and finds changes early and late."""

import json

import numpy as np
import pytest

from n3ic.errors import UsageError
from n3ic.systems.stream.learning.drift_detector import DriftDetector
from tests.support.changing_traffic import tables, traffic, write_table

ALPHA = 0.2


@pytest.fixture(name="model", scope="module")
def trained_before():
    return tables(rows=600)


def alarms(model, make, runs, flows=600):
    """In how many streams the test finds drift; each has a reference of its own."""
    alarm_count = 0
    for i in range(runs):
        rng = np.random.default_rng(i)
        test = DriftDetector(model, make(rng, 200), alpha=ALPHA, seed=i)
        for start in range(0, flows, 150):
            test.add(make(rng, min(150, flows - start)))
        alarm_count += test.alarm is not None
    return alarm_count


def even(rng, rows):
    return rng.integers(0, 110, (rows, 6)).astype(np.uint32)


def heavy(rng, rows):
    """Features of few values with many ties, and long tails, of which some depend on others."""
    one = rng.pareto(0.7, (rows, 2)) * 20
    return np.concatenate([one, one // 9, rng.poisson(0.3, (rows, 2)) * 30], axis=1).clip(
        0, 1 << 31
    ).astype(np.uint32)  # fmt: skip


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("make", "runs"),
    [(even, 12), *(pytest.param(make, 120, marks=pytest.mark.slow) for make in (even, heavy))],
)
def test_false_alarms_are_as_rare_as_stated(model, make, runs):
    assert alarms(model, make, runs) / runs <= ALPHA + 3 * np.sqrt(ALPHA * (1 - ALPHA) / runs)


def in_bursts(rng, burst, bursts):
    """Flows that are alike within a burst, and the burst of each."""
    number = np.repeat(rng.integers(0, 1 << 64, bursts, np.uint64), burst)
    return np.repeat(even(rng, bursts), burst, axis=0), number


@pytest.mark.exhaustive
@pytest.mark.parametrize("burst", [5, 20])
def test_bursts_raise_no_more_alarms_than_stated(model, burst):
    alarms = {"bursts": 0, "flows": 0}
    for i in range(100):
        rng = np.random.default_rng([burst, i])  # other draws than those of the test
        reference, of = in_bursts(rng, burst, 200)
        test = DriftDetector(model, reference, reference_block=of, alpha=0.05, seed=i)
        without = DriftDetector(model, reference, alpha=0.05, seed=i)
        features, block = in_bursts(rng, burst, 200)
        alarms["bursts"] += test.add(features, block) is not None
        alarms["flows"] += without.add(features) is not None
        assert test.alarm is not None or (test.flows, test.blocks) == (200 * burst, 200)
    assert alarms["bursts"] <= 100 * 0.05
    assert alarms["flows"] > 50


@pytest.mark.slow
def test_an_alarm_does_not_depend_on_batches(model):
    rng = np.random.default_rng(3)
    reference = even(rng, 400)
    moved = np.concatenate([even(rng, 300), even(rng, 900) // 2])
    block = np.arange(len(moved), dtype=np.uint64) // np.uint64(3) + np.uint64(1000)
    alarms = set()
    for batch in (1, 7, 64, 150, len(moved)):
        test = DriftDetector(
            model, reference, reference_block=np.arange(400, dtype=np.uint64), seed=5
        )
        for start in range(0, len(moved), batch):
            test.add(moved[start : start + batch], block[start : start + batch])
        alarms.add((test.alarm, test.flows, test.blocks, test._wealth.tobytes()))
    ((alarm, flows, blocks, _),) = alarms
    assert flows == alarm.flow > 300
    assert blocks == -(-flows // 3)


@pytest.mark.parametrize("before", [100, 20_000])
def test_a_change_is_found_soon_however_late_it_comes(model, before):
    rng = np.random.default_rng(1)
    test = DriftDetector(model, even(rng, 1000), alpha=0.01)
    assert test.add(even(rng, before)) is None
    moved = even(rng, 1000)
    moved[:, 2] = moved[:, 2] * 3 // 2
    alarm = test.add(moved)
    assert alarm is not None
    assert 0 < alarm.flow - before < 250
    assert alarm.statistic == "smean"
    assert test.add(even(rng, 100)) == alarm  # it stays


def test_flows_that_spread_or_gather_are_found_too(model):
    """A change that moves no mean."""
    rng = np.random.default_rng(2)
    for spread in (True, False):
        test = DriftDetector(model, even(rng, 1000), alpha=0.01)
        moved = even(rng, 1500)
        middle = 55 + (moved[:, 0] - 55.0) * 0.5
        moved[:, 0] = np.where(moved[:, 0] < 55, 0, 109) if spread else middle
        assert test.add(moved) is not None


def test_few_reference_flows_are_refused(model):
    with pytest.raises(UsageError, match="expected 100"):
        DriftDetector(model, even(np.random.default_rng(0), 99))


@pytest.mark.slow
def test_the_command_says_what_moved(n3ic, tmp_path, model):
    model.save(tmp_path / "model.n3ic")
    write_table(tmp_path / "flows.csv", traffic(1600, 1))
    moved = traffic(700, 2)
    moved.features[:, 1] //= 2
    write_table(tmp_path / "moved.csv", moved)
    command = "stream drift flows.csv --model model.n3ic --reference-flows 600"
    assert json.loads(n3ic(f"{command} --json").stdout) == {
        "flows": 1000, "blocks": 1000, "reference": 600, "alarm": None
    }  # fmt: skip
    assert "each flow is a block" in n3ic(command).stderr
    assert "each flow is a block" not in n3ic(f"{command} --block flow").stderr
    alone = n3ic("stream drift moved.csv --model model.n3ic --reference flows.csv").stdout
    assert "most in smaxlen" in alone
    ten = json.loads(n3ic(f"{command} --block 5 --json").stdout)
    assert (ten["flows"], ten["blocks"], ten["alarm"]) == (1000, 200, None)
    assert "1 flow or more" in n3ic(f"{command} --block 0", expect=2).stderr
    assert "block: expected flow" in n3ic(f"{command} --block host", expect=2).stderr
    assert "--alpha" in n3ic(f"{command} --alpha 1", expect=2).stderr
