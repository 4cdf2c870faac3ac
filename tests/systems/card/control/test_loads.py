# SPDX-License-Identifier: Apache-2.0

from itertools import islice, takewhile

import numpy as np
import pytest

from n3ic.errors import UsageError
from n3ic.systems.card.control.loads import LOAD_KINDS, SIZE_KINDS, Load, parse_load


def arrivals(load, seconds, seed=0):
    rng = np.random.default_rng(seed)
    return list(takewhile(lambda p: p.time < seconds, load.packets(rng)))


@pytest.mark.parametrize("kind", LOAD_KINDS)
def test_every_kind_has_its_mean_rate(kind):
    counts = [len(arrivals(Load(1000.0, kind, burst=8), 10, seed)) for seed in range(4)]
    assert np.mean(counts) == pytest.approx(10_000, rel=0.15 if kind == "heavy-tailed" else 0.05)


def test_bursts_are_of_their_peak_rate():
    times = [p.time for p in arrivals(Load(1000.0, "bursts", peak=10.0), 5)]
    gaps = np.diff(times)
    assert np.quantile(gaps, 0.5) == pytest.approx(1e-4)
    assert gaps.max() > 20e-4


@pytest.mark.parametrize("sizes", SIZE_KINDS)
def test_lengths_have_the_mean_that_is_said(sizes):
    load = Load(1.0, bytes=300, sizes=sizes)
    lengths = [p.bytes for p in islice(load.packets(np.random.default_rng(0)), 20_000)]
    assert np.mean(lengths) == pytest.approx(load.mean_bytes, rel=0.03)


def test_changes_take_effect_when_they_are_due_and_gaps_span_them():
    load = Load(10.0, changes=((1.0, 0.0), (2.0, 5.0)))
    times = [p.time for p in arrivals(load, 3)]
    assert len([t for t in times if t < 1 - 1e-9]) == 10
    assert not [t for t in times if 1 + 1e-9 < t < 2]
    assert len([t for t in times if t >= 2]) == pytest.approx(50, abs=1)


def test_a_load_that_falls_silent_ends():
    packets = list(Load(10.0, changes=((1.05, 0.0),)).packets(np.random.default_rng(0)))
    assert len(packets) == 11
    assert list(Load(0.0).packets(np.random.default_rng(0))) == []


@pytest.mark.parametrize("wrong", [{"kind": "storm"}, {"sizes": "huge"}])
def test_an_unknown_kind_is_refused_with_those_that_exist(wrong):
    known = LOAD_KINDS if "kind" in wrong else SIZE_KINDS
    with pytest.raises(UsageError, match=f"expected .*{', '.join(known)}, got"):
        Load(1.0, **wrong)


def test_the_same_seed_gives_the_same_packets():
    load = Load(1e4, "heavy-tailed", sizes="data-centre")
    assert arrivals(load, 0.1, 3) == arrivals(load, 0.1, 3) != arrivals(load, 0.1, 4)


def test_a_typed_load_changes_at_its_seconds():
    """Factors are of the rate that is wanted, whatever the first one is."""
    tenant, load = parse_load("u=constant*0.5,4@1,0@2.5", Load(100.0, bytes=99), ("u", "v"))
    assert (tenant, load.bytes) == ("u", 99)
    times = [p.time for p in arrivals(load, 9)]
    counts = [sum(a <= t < b for t in times) for a, b in ((0, 1), (1, 2.5), (2.5, 9))]
    assert counts == pytest.approx([50, 600, 0], abs=1)
    assert load.offered(2.0) == 450
    assert parse_load("poisson", load, ("u",)) == ("", Load(50.0, "poisson", bytes=99))


MISTYPED = """w=poisson storm poisson*0 poisson*x poisson*nan poisson, poisson,1 poisson,1@0
poisson,-1@2 poisson,1@2,1@2 poisson,1@inf poisson,1e9@1 poisson,1@2@3"""


@pytest.mark.parametrize("wrong", MISTYPED.split())
def test_a_load_that_is_mistyped_is_refused(wrong):
    with pytest.raises(UsageError, match=r"--load .*(expected|no tenant)"):
        parse_load(wrong, Load(1.0), ("u",))
