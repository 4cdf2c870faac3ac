# SPDX-License-Identifier: Apache-2.0
"""The domain warning: quiet on the training's traffic at any share of attacks, loud on another."""

import dataclasses
import json
from contextlib import nullcontext
from itertools import pairwise

import numpy as np
import pytest
from scipy.special import rel_entr
from scipy.stats import binom

import n3ic
from n3ic.errors import N3icWarning
from n3ic.evaluation.out_of_distribution import (
    EVALUATION,
    FEWEST,
    MANY_OUTSIDE,
    mixture,
    ood_report,
    outside_of,
    share_bound,
)
from n3ic.evaluation.training_distribution import FALSE_ALARMS, alarm_of, axes
from n3ic.model.inputs import RATE_UNIT, SPAN_LEFT, Field, InputSpec
from n3ic.model.passes import simplify
from n3ic.systems.xdp import status, terminal
from tests.support.command_line import n3ic as run
from tests.support.small_flows import flows

pd = pytest.importorskip("pandas", reason="needs pandas (pip install 'n3ic[train]')")


def look(model, table):
    watch = EVALUATION.watch(model)
    watch.add(table.features)
    return watch.report()


def picked(table, rng, rows, share):
    """Rows of a table with a share of attacks."""
    attacks = rng.binomial(rows, share)
    parts = [np.flatnonzero(table.label == c) for c in (0, 1)]
    return table.rows(
        np.concatenate([rng.choice(parts[0], rows - attacks), rng.choice(parts[1], attacks)])
    )


@pytest.mark.parametrize(
    ("rows", "share"),
    [
        *((20, 0.5), (FEWEST, 0.001), (2000, 1.0)),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in ((20, 0.001), (20, 1.0), (FEWEST, 0.5), (FEWEST, 1.0))
        ),
        *(pytest.param(2000, share, marks=pytest.mark.slow) for share in (0.5, 0.001)),
    ],
)
def test_like_the_training_it_alarms_once_in_a_hundred_at_most(model, share, rows):
    fresh, rng = flows(20_000, seed=9), np.random.default_rng(4)
    samples = 60
    reports = [look(model, picked(fresh, rng, rows, share)) for _ in range(samples)]
    alarms = sum(d.traffic == "another" for d in reports)
    assert binom.sf(alarms - 1, samples, FALSE_ALARMS) > 0.001
    assert {d.traffic for d in reports} - {"another"} == {"same" if rows >= FEWEST else "unknown"}
    lines = [line for d in reports if d.traffic != "another" for line in d.lines()]
    assert not any("warning" in line for line in lines)
    assert len(lines) == (0 if rows >= FEWEST else samples - alarms)  # too few is said


@pytest.mark.parametrize("slower", [0.2, 5.0])
@pytest.mark.parametrize("rows", [FEWEST, 2000])
def test_another_site_is_told(model, slower, rows):
    report = look(model, flows(rows, seed=3, slower=slower))
    assert report.traffic == "another"
    (line,) = report.lines()
    assert "not the traffic of the training" in line and "rtt" in line
    assert json.loads(json.dumps(report.to_dict()))["traffic"] == "another"


def test_the_mixture_is_that_of_the_classes(model):
    for share in (0.02, 0.3, 0.9):
        table = flows(6000, seed=8, share=share)
        assert look(model, table).mixture[1] == pytest.approx(table.label.mean(), abs=0.05)


def two_classes() -> InputSpec:
    """Two features of which two classes set their bits at other rates."""
    unit = RATE_UNIT // 100
    fields = []
    for name, first, second in (("rtt", (90, 40, 10), (95, 80, 60)), ("loss", (50, 20), (30, 0))):
        of_classes = tuple(tuple(r * unit for r in rates) for rates in (first, second))
        both = tuple((a + b) // 2 for a, b in zip(*of_classes, strict=True))
        field = Field.thermometer(name, range(1, len(both) + 1))
        fields.append(dataclasses.replace(field, rates=both, class_rates=of_classes))
    return InputSpec(tuple(fields))


@pytest.mark.parametrize("live", [[0.92, 0.55, 0.3, 0.4, 0.1], [1.0, 1.0, 1.0, 0.0, 0.0]])
def test_the_mixture_takes_200_steps_of_expectation_maximisation(live):
    """Of the intervals between cuts; an interval that no row of a class had counts as half one."""
    spec, weights = two_classes(), [0.5, 0.5]
    shares = []  # of each interval: of the first class, of the second, and live
    for at, field in zip(spec.offsets, spec.fields, strict=True):
        rates = [[r / RATE_UNIT for r in of] for of in field.class_rates]
        above = zip(*([1, *r, 0] for r in (*rates, live[at : at + field.width])), strict=True)
        shares += [[a - b for a, b in zip(*cuts, strict=True)] for cuts in pairwise(above)]
    least = 0.5 / RATE_UNIT
    for _ in range(200):
        parts = [0.0, 0.0]
        for first, second, flows_in in shares:
            of = max(first, least), max(second, least)
            whole = weights[0] * of[0] + weights[1] * of[1]
            parts = [p + w * o * max(flows_in, 0) / whole
                     for p, w, o in zip(parts, weights, of, strict=True)]  # fmt: skip
        weights = [p / sum(parts) for p in parts]
    assert mixture([*axes(spec)], np.array(live)) == pytest.approx(weights, rel=1e-9, abs=1e-15)


def test_few_flows_are_unlike_where_a_bit_passes_the_bound_of_every_class():
    """Ten bound tests, of which each may alarm in its share of the chance of one feature."""
    spec, rows = two_classes(), 60
    chance = alarm_of([*axes(spec)]) * 2 / (2 * spec.n_bits)
    like = np.concatenate([f.rates for f in spec.fields]) / RATE_UNIT * rows
    for bit, most, least in ((2, 0.6, 0.1), (3, 0.5, 0.3)):
        name = "rtt" if bit < 3 else "loss"
        for count in range(rows + 1):
            counts = like.copy()
            counts[bit] = count
            report = ood_report(spec, counts, rows)
            beyond = count / rows >= share_bound(most, rows, chance)
            beyond |= 1 - count / rows >= share_bound(1 - least, rows, chance)
            assert (name in report.unlike) == beyond, (bit, count)
            assert report.traffic == ("another" if beyond else "unknown")


def test_flows_outside_of_the_range_are_counted(model, table):
    known = dict(zip(model.input.features, (f.span for f in model.input.fields), strict=False))
    spans = {f.feature: f.span for f in model.input.fields}
    assert known.keys() == spans.keys()
    low, high = spans["rtt"]
    inside = np.mean((table.features["rtt"] >= low) & (table.features["rtt"] <= high))
    assert 1 - 6 * SPAN_LEFT <= inside <= 1
    far = {n: np.full(40, spans[n][0]) for n in model.input.features}
    far["rtt"] = np.where(np.arange(40) < 30, high, high + 1)
    assert outside_of(model.input, far).tolist() == [False] * 30 + [True] * 10
    watch = EVALUATION.watch(model)
    watch.add({**far, "rtt": np.full(40, high + 1)})
    assert watch.report().traffic == "another" and "100.0% of 40 flows" in watch.lines()[0]


@pytest.mark.parametrize(("share", "rows"), [(0.0, 50), (0.01, 300), (0.2, 40), (0.01, 100_000)])
def test_the_bound_of_a_share_holds(share, rows):
    bound = share_bound(share, rows, 0.001)
    assert binom.sf(np.ceil(bound * rows) - 1, rows, share) <= 0.001
    assert share < bound <= 1


@pytest.mark.parametrize("share", [0.001, 0.04, 0.5, 0.9])
@pytest.mark.parametrize("rows", [40, 10_000])
def test_the_share_bound_is_where_chernoffs_bound_is_the_alarm(share, rows):
    q = share_bound(share, rows, 0.01)
    if q > 1:
        assert rows * -np.log(share) < -np.log(0.01)
        return
    divergence = rel_entr(q, share) + rel_entr(1 - q, 1 - share)
    assert rows * divergence == pytest.approx(-np.log(0.01), rel=1e-9)


def test_so_few_rows_that_all_of_them_say_nothing_tell_nothing(model):
    """One flow outside of the range is one of 25 in traffic like the training's."""
    assert share_bound(0.04, 1, 0.0004) > 1 and share_bound(0.04, 3, 0.0004) <= 1
    one = {n: np.array([f.span[1] + 1]) for f in model.input.fields for n in [f.feature]}
    watch = EVALUATION.watch(model)
    watch.add(one)
    (line,) = watch.lines()
    assert watch.report().traffic == "unknown" and "too few flows (1)" in line


def test_few_flows_of_another_site_are_told(model):
    """They are all alike, and no class of the training is: the bound is exact for few."""
    fresh = flows(4000, seed=13, slower=5.0)
    far = fresh.rows(
        np.flatnonzero(fresh.features["rtt"] > np.quantile(fresh.features["rtt"], 0.5))
    )
    watch = EVALUATION.watch(model)
    watch.add({n: v[:15] for n, v in far.features.items()})
    report = watch.report()
    assert report.traffic == "another" and report.rows == 15 < FEWEST and "rtt" in report.unlike
    assert any("unlike those of any class" in line for line in report.lines())


def test_facts_of_the_training_survive_file_and_passes(model, tmp_path):
    model.save(tmp_path / "m.n3ic")
    again = type(model).load(tmp_path / "m.n3ic")
    for one, other in zip(again.input.fields, model.input.fields, strict=True):
        assert (one.class_rates, one.span) == (other.class_rates, other.span)
        assert len(one.class_rates) == 2 and len(one.span) == 2
        mixed = np.array(one.class_rates) / RATE_UNIT
        assert np.all(mixed.min(axis=0) - 1e-4 <= np.array(one.rates) / RATE_UNIT)
    small = simplify(model).model.input
    assert all(len(r) == f.width for f in small.fields for r in f.class_rates)
    assert ood_report(small, np.zeros(small.n_bits, int), 0).traffic == "unknown"


def test_traffic_is_another_from_the_bound_of_rows_outside_on(model):
    spec, rows = simplify(model).model.input, 10_000
    rates = np.concatenate([field.rates for field in spec.fields]) / RATE_UNIT
    counts = np.rint(rates * rows).astype(int)
    reports = [ood_report(spec, counts, rows, round(rows * MANY_OUTSIDE) - k) for k in (0, 1)]
    assert [report.traffic for report in reports] == ["another", "same"]


def test_a_model_that_knows_no_rows_says_nothing(model):
    bare = InputSpec((Field.thermometer("rtt", [1, 2]),))
    assert ood_report(bare, [0, 0], 5) is None
    assert EVALUATION.watch(model.changed(input=InputSpec.raw(32))) is None


@pytest.mark.parametrize("slower", [1.0, 10.0])
def test_predict_tells_it_beside_the_verdicts(model, tmp_path, slower):
    model.save(tmp_path / "m.n3ic")
    table = flows(1000, seed=11, share=0.01, slower=slower)
    names = list(table.features)
    lines = [",".join(names)] + [",".join(map(str, r)) for r in table.matrix(names).tolist()]
    text = "\n".join(["# n3ic-units: nic", *lines, ""])
    (tmp_path / "flows.csv").write_text(text, encoding="utf-8")
    done = run("predict", "flows.csv", "--model", "m.n3ic", "--json", cwd=tmp_path)
    report = json.loads(done.stdout)
    assert report["rows"] == report["domain"]["rows"] == 1000
    assert report["domain"]["traffic"] == ("same" if slower == 1 else "another")
    assert ("not the traffic of the training" in done.stderr) == (slower != 1)


def test_predict_warns_of_it_in_python(model):
    """Of tables, of arrays by name, and of DataFrames; warnings are errors in tests."""
    for slower in (1.0, 10.0):
        table = flows(1000, seed=11, share=0.01, slower=slower)
        for given in (table, table.features, pd.DataFrame(table.features)):
            with nullcontext() if slower == 1 else pytest.warns(N3icWarning, match="not the traf"):
                n3ic.predict(model, given, units="nic")
    n3ic.predict(model, {name: column[:0] for name, column in table.features.items()})


@pytest.mark.parametrize("slower", [1.0, 10.0])
def test_the_status_of_a_program_tells_it(model, monkeypatch, slower):
    """By the rates of bits alone: the program counts no ranges."""
    table = flows(3000, seed=12, share=0.01, slower=slower)
    bits = model.input.encode(table.features)
    classes = model.infer(model.encode(table.features)).classes
    monkeypatch.setattr(status, "bit_counts", lambda structure, model, row: row)
    tally = {
        "class": np.bincount(classes, minlength=2), "shunted": np.int64(0),
        "row": bits.sum(axis=0), "margin": np.zeros(3, int),
    }  # fmt: skip
    slot = status._slot(None, model, tally)
    assert slot.domain.outside is None and slot.domain.rows == 3000
    assert slot.domain.traffic == ("same" if slower == 1 else "another")
    fields = {f.name: 0 for f in dataclasses.fields(status.ProgramStatus)}
    counts = {name: {} for name in ("ends", "aside", "losses", "alarms")}
    shown = terminal.lines(status.ProgramStatus(**{**fields, **counts, "slots": {0: slot}}))
    assert any("not the traffic of the training" in line for line in shown) == (slower != 1)
