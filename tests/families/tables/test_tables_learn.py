# SPDX-License-Identifier: Apache-2.0
"""Growth and rounding of look-up tables: gradients, choices of bits, budgets, integers."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from n3ic.errors import UsageError
from n3ic.families.tables.boosting import PRIOR, Size, TableBooster
from n3ic.families.tables.gains import CellGains, cells_of
from n3ic.families.tables.learner import LEARNER
from n3ic.families.tables.loss import WeightedRows, merged
from n3ic.families.tables.round_cuts import coarse_cut, with_coarse_cuts
from n3ic.families.tables.rounding import rounded
from n3ic.families.tables.settings import TablesTraining
from n3ic.families.tables.train import fit_tables
from n3ic.model.bits import pack
from n3ic.model.inputs import Field, InputSpec
from n3ic.training.recipe import Recipe


def some_rows(classes=2, n=60, bits=7, q=0.0, seed=0):
    rng = np.random.default_rng(seed)
    x = np.unique(rng.random((n, bits)) < 0.5, axis=0)
    return WeightedRows(x, rng.random((len(x), classes)) + 0.1, q)


@pytest.mark.parametrize("q", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("classes", [2, 4])
def test_gradients_are_those_of_the_loss(classes, q):
    rows = some_rows(classes, q=q)
    sums = np.random.default_rng(1).normal(size=(len(rows.bits), rows.sums))
    slopes, curves = rows.gradients(sums)
    assert slopes.shape == curves.shape == sums.shape and (curves > 0).all()
    for row, column in product((0, 5, 11), range(rows.sums)):
        step = np.zeros_like(sums)
        step[row, column] = 1e-5
        slope = (rows.loss(sums + step) - rows.loss(sums - step)) / 2e-5
        assert slope == pytest.approx(slopes[row, column], abs=1e-6)


def test_curvature_is_the_second_derivative_of_the_cross_entropy():
    rows = some_rows(3)
    sums = np.random.default_rng(2).normal(size=(len(rows.bits), 3))
    step = np.zeros_like(sums)
    step[4, 1] = 1e-4
    up, down = (rows.gradients(sums + s)[0][4, 1] for s in (step, -step))
    assert (up - down) / 2e-4 == pytest.approx(rows.gradients(sums)[1][4, 1], rel=1e-6)


@pytest.mark.parametrize("q", [0.0, 0.7])
@pytest.mark.parametrize("classes", [2, 3])
def test_losses_of_a_column_differ_as_the_loss_does(classes, q):
    rows = some_rows(classes, q=q)
    sums = np.random.default_rng(3).normal(size=(len(rows.bits), rows.sums))
    cells, steps = cells_of(rows, (1, 4)), np.array([-2.0, 0.0, 1.5])
    losses = rows.column_losses(sums, rows.sums - 1, steps, cells, 4)
    for i, cell in product(range(3), range(4)):
        moved = sums.copy()
        moved[cells == cell, -1] += steps[i]
        assert losses[i, cell] - losses[1, cell] == pytest.approx(
            rows.loss(moved) - rows.loss(sums)
        )


def test_equal_rows_are_merged_with_their_weights():
    bits = np.array([[1, 0], [0, 1], [1, 0], [1, 0]], dtype=bool)
    rows = merged(bits, np.array([[1, 0], [0, 1], [0, 1], [1, 0]]) * 0.5)
    weights_by_bits = {
        tuple(b): tuple(w) for b, w in zip(rows.bits.tolist(), rows.weights.tolist(), strict=True)
    }
    assert weights_by_bits == {(True, False): (1.0, 0.5), (False, True): (0.0, 0.5)}


@pytest.mark.parametrize("base", [(2, 0), (3, 5, 1, 4)])  # by one product, and cell by cell
def test_gains_are_those_of_every_cell(base):
    rows = some_rows(4, bits=7)
    slopes, curves = rows.gradients(np.random.default_rng(4).normal(size=(len(rows.bits), 4)))
    gain = CellGains(rows, rows.bits.astype(np.float32), slopes, curves, PRIOR)

    def wanted(bits):
        cells = cells_of(rows, bits)
        sums = [
            [np.bincount(cells, v, 1 << len(bits)) for v in values.T] for values in (slopes, curves)
        ]
        return (np.square(sums[0]) / (np.array(sums[1]) + PRIOR)).sum(axis=1)

    for bit in {*range(7)} - {*base}:
        assert gain.of(base)[:, bit] == pytest.approx(wanted((*base, bit)), rel=1e-4)
        for j, gains in enumerate(gain.replacement_gains(base)):
            others = (*base[:j], bit, *base[j + 1 :])
            assert gains[:, bit] == pytest.approx(wanted(others), rel=1e-4)


def spec_of(bits):
    return InputSpec((Field.thermometer("a", range(1, bits + 1)),))


def test_a_table_holds_what_no_single_bit_tells():
    """The parity of three bits of eight, of which no two tell anything."""
    bits = np.array(list(product([0, 1], repeat=8)), dtype=bool)
    label = bits[:, [1, 4, 6]].sum(axis=1) % 2
    noisy = np.eye(2)[label] * 50 + bits[:, [1, 4, 6]] @ [[9, 0], [8, 0], [7, 0]]
    how = TablesTraining(tables=3, table_bits=3, renewals=2, teacher=0.0)
    model = fit_tables(bits, noisy, spec_of(8), ("x", "y"), how)
    bits_read = [c - 1 for c in model.input.fields[0].cuts]
    assert (model.infer(pack(bits[:, bits_read])).classes == label).all()


def test_bits_are_exchanged_that_others_make_useless():
    """The first bit tells most alone, and nothing beside the two that decide."""
    bits = np.array([x for x in product([0, 1], repeat=5) for _ in range(16)], dtype=bool)
    label = bits[:, 1] & bits[:, 2]
    bits[:, 0] = label ^ (np.random.default_rng(0).random(len(bits)) < 0.1)
    rows = merged(bits, np.eye(2)[label.astype(int)])
    grower = TableBooster(rows, Size(1, 2, 4, 1), spec_of(rows.bits.shape[1]))
    gain = CellGains(rows, rows.bits.astype(np.float32), *rows.gradients(grower.total), PRIOR)
    assert int(gain.of(()).sum(axis=0).argmax()) == 0
    grower.grow()
    assert set(grower.tables[0].bits) == {1, 2}


@pytest.mark.parametrize("classes", [2, 3])
def test_no_single_exchange_of_a_bit_gains_more(classes):
    rows = some_rows(classes, n=300, bits=16, seed=2)
    grower = TableBooster(rows, Size(1, 4, 4, rows.sums), spec_of(rows.bits.shape[1]))
    slopes, curves = rows.gradients(grower.total)
    gain = CellGains(rows, rows.bits.astype(np.float32), slopes, curves, PRIOR)

    def best(others):
        gains = gain.of(others).sum(axis=0)
        gains[[*others]] = -np.inf
        return int(gains.argmax()), gains

    greedy: list[int] = []
    for _ in range(4):
        greedy.append(best(greedy)[0])
    grower.grow()
    bits = grower.tables[0].bits
    for j, bit in enumerate(bits):
        gains = best(bits[:j] + bits[j + 1 :])[1]
        assert gains[bit] > gains.max() * (1 - 1e-3)
    assert gains[bit] > best(greedy[:3])[1][greedy[3]] * 1.01


@pytest.fixture(scope="module", params=[2, 4])
def learned(request):
    """Rows whose class depends on sums of conjunctions, and as many weights as classes."""
    rng = np.random.default_rng(5)
    bits = rng.random((1500, 24)) < 0.4
    parts = np.stack([bits[:, i] & bits[:, i + 3] for i in range(16)], axis=1)
    scores = parts @ rng.normal(size=(16, request.param)) * 3
    return bits, np.eye(request.param)[scores.argmax(axis=1)], tuple("abcd"[: request.param])


def test_rounding_finds_better_integers_than_the_nearest(learned):
    bits, weights, _ = learned
    size = Size(8, 4, 4, 1 if weights.shape[1] == 2 else 4)
    grower = TableBooster(merged(bits, weights), size, spec_of(bits.shape[1]))
    grower.grow()
    nearest, best = (
        rounded(grower.rows, grower.tables, grower.bias, [3] * 8, sweeps) for sweeps in (0, 3)
    )
    assert best.loss < nearest.loss
    for whole in (nearest, best):
        sums = whole.bias + sum(
            e.astype(int)[t.cells] for e, t in zip(whole.entries, grower.tables, strict=True)
        )
        assert grower.rows.loss(whole.step * sums) == pytest.approx(whole.loss)
        assert all(e.min() >= -4 and e.max() <= 3 for e in whole.entries)


def test_growth_and_renewal_lower_the_loss(learned):
    bits, weights, _ = learned
    rows = merged(bits, weights)
    grower = TableBooster(rows, Size(6, 3, 4, rows.sums), spec_of(rows.bits.shape[1]))
    start = rows.loss(grower.total)
    grower.grow()
    grown = rows.loss(grower.total)
    grower.renew()
    assert rows.loss(grower.total) < grown < start
    total = grower.bias + sum(t.sums for t in grower.tables)
    assert np.allclose(total, grower.total)


@pytest.mark.first_case
@pytest.mark.parametrize(
    "budget", [20, 150, 1000, *(pytest.param(n, marks=pytest.mark.slow) for n in (60, 400))]
)
def test_a_budget_of_bytes_is_kept_and_filled(learned, budget):
    bits, weights, classes = learned
    budget *= len(classes) // 2
    recipe = Recipe("r", "", family="tables")
    settings = LEARNER.within(recipe, (), budget, len(classes)).settings
    model = fit_tables(bits, weights, spec_of(24), classes, settings)
    assert model.total_bytes <= budget
    if budget == 400 and len(classes) == 2:
        assert model.total_bytes > 0.8 * budget


def test_within_bytes_a_table_adds_only_to_sums_that_pay_for_it():
    """Each class has a conjunction of its own, which tells nothing of the other classes."""
    rng = np.random.default_rng(6)
    bits = rng.random((2000, 18)) < 0.5
    own = np.stack([bits[:, 3 * c : 3 * c + 3].all(axis=1) for c in range(5)], axis=1)
    label = np.where(own.any(axis=1), own.argmax(axis=1), 5)
    weights, classes = np.eye(6)[label], tuple("abcdef")
    how = TablesTraining(tables=100, table_bits=3, teacher=0.0, table_bytes=200)
    model = fit_tables(bits, weights, spec_of(18), classes, how)
    assert model.total_bytes <= 200
    few = [int(t.held.sum()) for t in model.tables]
    assert max(few) < 6 and min(few) == 1 and len(few) > 6
    read = bits[:, [c - 1 for c in model.input.fields[0].cuts]]
    assert (model.infer(pack(read)).classes == label).mean() > 0.9
    # New entries go where the old ones are: what targets have laid out stays.
    again = fit_tables(read, weights, model.input, classes, how, template=model)
    assert all((a.held <= t.held).all() for a, t in zip(again.tables, model.tables, strict=True))


def test_a_budget_without_room_for_a_table_is_refused():
    recipe = Recipe("r", "", family="tables")
    with pytest.raises(UsageError, match="12 bytes hold no look-up table of 5 bits"):
        LEARNER.within(recipe.with_options({"table_bits": 5}), ("table_bits",), 12, 2)
    with pytest.raises(UsageError, match="only one of them"):
        LEARNER.within(recipe.with_options({"table_bytes": 5}), ("table_bytes",), 1200, 2)
    budget_recipe = LEARNER.within(recipe.with_options({"table_bits": 3}), ("table_bits",), 900, 2)
    assert (budget_recipe.settings.table_bits, budget_recipe.settings.table_bytes) == (3, 900)


def test_the_same_rows_give_the_same_model(learned):
    bits, weights, classes = learned
    how = TablesTraining(tables=5, table_bits=3)
    one, two = (fit_tables(bits, weights, spec_of(24), classes, how, q=0.5) for _ in range(2))
    assert one.digest == two.digest


def test_cuts_that_no_table_reads_are_dropped(learned):
    bits, weights, classes = learned
    how = TablesTraining(tables=2, table_bits=2)
    own = fit_tables(bits, weights, spec_of(24), classes, how)
    assert own.input.n_bits == len({b for t in own.tables for b in t.bits}) <= 4


def test_kept_tables_get_new_entries_alone(learned):
    bits, weights, classes = learned
    how = TablesTraining(tables=6, table_bits=3)
    one = fit_tables(bits, weights, spec_of(24), classes, how)
    other = replace(one.tables[0], width=6)
    one = replace(one, tables=(other, *one.tables[1:]))
    read = bits[:, [c - 1 for c in one.input.fields[0].cuts]]
    wrong = np.roll(weights, 1, axis=1)
    two = fit_tables(read, wrong, one.input, classes, TablesTraining(tables=1), template=one)
    assert two.input == one.input
    assert [(t.bits, t.width) for t in two.tables] == [(t.bits, t.width) for t in one.tables]
    right = [
        (m.infer(pack(read)).classes == w.argmax(axis=1)).mean()
        for m, w in ((one, weights), (two, wrong))
    ]
    assert right[1] > right[0] - 0.05


@pytest.mark.parametrize(
    "wrong",
    [
        {"tables": 0},
        {"tables": 4097},
        {"table_bits": 9},
        {"entry_bits": 1},
        {"table_bytes": -1},
        {"renewals": -1},
        {"cell_prior": -1.0},
        {"teacher": 1.5},
        {"coarse_cuts": 0.5},
        {"coarse_cuts": -0.1},
    ],
)
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(UsageError, match=next(iter(wrong))):
        replace(TablesTraining(), **wrong)


@pytest.mark.parametrize("share", [0.0, 0.004, 0.02, 0.3])
def test_a_coarse_cut_is_the_nearest_multiple_of_the_largest_power_in_reach(share):
    rng = np.random.default_rng(5)
    values = np.sort(np.append(rng.integers(0, 3000, 400), [2**32 - 1]))

    def passed(cut, other):
        return int(((values >= min(cut, other)) != (values >= max(cut, other))).sum())

    for cut in (1, 2, 3, 517, 1023, 1025, 2999, 2**31 + 3, 2**32 - 1):
        coarse_value = coarse_cut(cut, values, share)
        power = coarse_value & -coarse_value
        near = [c for c in (cut // power * power, -(-cut // power) * power) if 0 < c < 2**32]
        assert coarse_value in near and passed(cut, coarse_value) == min(
            passed(cut, c) for c in near
        )
        assert passed(cut, coarse_value) <= share * len(values)
        for larger in (power << k for k in range(1, 32 - power.bit_length())):
            others = [c for c in (cut // larger * larger, -(-cut // larger) * larger) if c > 0]
            assert all(passed(cut, c) > share * len(values) for c in others)


def test_coarse_cuts_that_meet_are_one_and_other_fields_stay():
    field = Field.thermometer("a", (30, 33, 60), unit="us", scale=1e6)
    spec = InputSpec((field, Field.binary("b", 3)))
    rows = {"a": np.arange(100), "b": np.zeros(100, dtype=np.int64)}
    coarse_spec = with_coarse_cuts(spec, rows, 0.02)
    assert [f.cuts for f in coarse_spec.fields] == [(32, 60), ()]
    assert coarse_spec.fields[1] == spec.fields[1]
    assert (coarse_spec.fields[0].unit, coarse_spec.fields[0].scale) == ("us", 1e6)
