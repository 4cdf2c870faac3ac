# SPDX-License-Identifier: Apache-2.0

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from n3ic.systems.card.control.regions import RegionState, RegionStates, cover, part_of

AB, CD, BD = ("a", "b"), ("c", "d"), ("b", "d")


def card(*chains, free=0, **change):
    regions = tuple(RegionState(c, scheduled=True) for c in chains) + (RegionState(),) * free
    return RegionStates(regions, **change)


def test_a_chain_runs_through_others_by_skipping():
    assert part_of(BD, ("a", "b", "c", "d")) == 2
    assert part_of(("d", "b"), ("a", "b", "c", "d")) == 1
    assert cover(BD, {0: AB, 1: CD}) == (0, 1)
    assert cover(BD, {0: AB, 1: CD, 2: BD}) == (2,)
    assert cover(("a", "x"), {0: AB}) == ()


def test_deployed_chains_are_launched_before_they_are_used():
    regions, launch = card(AB, free=1).pre_launch(CD)
    assert (launch.way, launch.ready, regions.serving) == ("pre-launch", 5e-3, {0: AB, 1: CD})
    again, nothing = regions.pre_launch(BD)  # both of its tasks run already
    assert nothing is None
    assert again is regions


def test_launches_are_tried_in_the_text_s_order():
    spare = dict.fromkeys("abcd", 0.5)
    load = {0: 0.9, 1: 0.1}
    full = card(AB, CD)
    shared, launch = full.use(BD, 1.0, spare, load)
    assert (launch.way, launch.regions, launch.ready) == ("share", (0, 1), 0.0)
    assert shared is full
    busy = spare | {"b": 0.0}
    _, launch = card(AB, CD, free=1).use(BD, 1.0, busy, load)
    assert (launch.way, launch.regions, launch.ready) == ("free", (2,), 1.005)
    _, launch = full.use(BD, 1.0, busy, load)
    assert launch.way == "share"  # nothing is stopped for what runs
    switched, launch = full.use(("x",), 1.0, spare, load)
    assert (launch.way, launch.regions, launch.stopped) == ("context-switch", (1,), CD)
    assert launch.ready == pytest.approx(1.0 + 5e-3 + 1e-4)
    assert switched.serving == {0: AB, 1: ("x",)}


def test_a_victim_is_used_again_without_reconfiguration():
    regions = card(AB, CD, free=1).deschedule(1, 1.0)
    again, launch = regions.another(CD, 2.0, {})
    assert (launch.way, launch.regions, launch.ready) == ("victim", (1,), 2.0)
    assert again.serving == {0: AB, 1: CD}
    _, launch = replace(regions, victim_cache=False).another(CD, 2.0, {})
    assert (launch.way, launch.ready) == ("free", 2.005)


def test_empty_regions_go_first_then_the_oldest_victim():
    regions = card(AB, CD, BD, free=1).deschedule(1, 1.0).deschedule(0, 2.0)
    regions, launch = regions.another(("x",), 3.0, {})
    assert launch.regions == (3,)
    regions, launch = regions.another(("y",), 3.0, {})
    assert launch.regions == (1,)


def test_no_pinned_region_is_switched():
    regions = RegionStates((RegionState(AB, scheduled=True, pinned=True),))
    assert regions.another(CD, 1.0, {}) == (regions, None)
    assert card(AB).another(CD, 1.0, {}, switch=False)[1] is None


@settings(max_examples=100)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 4)), max_size=40), st.integers(1, 4))
def test_a_victim_cache_only_helps(steps, count):
    """The same chains come and go: nothing is ready later, nothing more is launched."""
    chains = [(c,) for c in "vwxyz"]
    waits = {}
    for cache in (True, False):
        regions, waits[cache] = card(free=count, victim_cache=cache), []
        for now, (comes, which) in enumerate(steps):
            here = [i for i, c in regions.serving.items() if c == chains[which]]
            if comes and not here:
                regions, launch = regions.another(chains[which], float(now), {}, switch=False)
                waits[cache].append(launch and launch.ready - now)
            elif not comes and here:
                regions = regions.deschedule(here[0], float(now))
    for with_cache, without in zip(waits[True], waits[False], strict=True):
        assert (with_cache is None) == (without is None)
        assert with_cache is None or with_cache <= without
