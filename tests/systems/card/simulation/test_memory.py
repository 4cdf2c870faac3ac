# SPDX-License-Identifier: Apache-2.0

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from n3ic.systems.card.simulation.memory import (
    PAGE_BYTES,
    PAGES_OF_SPACE,
    MemoryFaultError,
    MemoryTiming,
    OnBoardMemory,
    Segment,
)


def memory(frames=8):
    made = OnBoardMemory(frames, {"a": 4, "b": 4})
    for name in "ab":
        made.map(name, (Segment(0, 16), Segment(20, 2, write=False)))
    return made


def resident(m, tenant):
    """Number of a tenant's pages on board."""
    return len(m._spaces[tenant].frames)


def elsewhere(m, tenant):
    """Number of a tenant's pages on the host."""
    return len(m._spaces[tenant].elsewhere)


def test_a_space_is_the_text_s():
    assert PAGES_OF_SPACE * PAGE_BYTES == 1 << 30


def test_pages_are_taken_on_demand_and_kept():
    m = memory()
    first = m.access("a", 5, "write")
    assert first.allocated
    assert m.access("a", PAGE_BYTES - 1).frame == first.frame
    assert m.access("b", 5).frame != first.frame
    assert m.free == 6


@pytest.mark.parametrize(
    ("address", "kind", "message"),
    [
        (16 * PAGE_BYTES, "read", "not mapped"),
        (-1, "read", "not mapped"),
        (1 << 40, "read", "not mapped"),
        (20 * PAGE_BYTES, "write", "only be read"),
    ],
)
def test_what_is_not_allowed_changes_nothing(address, kind, message):
    m = memory()
    with pytest.raises(MemoryFaultError, match=message):
        m.access("a", address, kind)
    assert (m.free, resident(m, "a")) == (8, 0)


def test_segments_must_fit_the_space_and_not_overlap():
    m = memory()
    for wrong in ((Segment(0, 513),), (Segment(0, 2), Segment(1, 2)), (Segment(0, 0),)):
        with pytest.raises(MemoryFaultError):
            m.map("a", wrong)


def test_who_is_within_its_share_takes_from_who_is_beyond():
    m = memory()
    for page in range(8):
        m.access("a", page * PAGE_BYTES)
    m.access("a", 0)  # now page 1 is the least recently used
    taken = m.access("b", 0)
    assert taken.swapped_out
    assert (resident(m, "a"), elsewhere(m, "a"), resident(m, "b")) == (7, 1, 1)
    back = m.access("a", 1 * PAGE_BYTES)
    assert back.swapped_in
    assert back.swapped_out  # for another of its own
    assert resident(m, "b") == 1
    assert back.cycles(MemoryTiming(), 250e6) > 80_000  # two pages over PCIe


@settings(max_examples=50)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 15)), max_size=80))
def test_frames_are_never_shared_and_shares_are_kept(accesses):
    m = memory()
    for name, page in accesses:
        m.access(name, page * PAGE_BYTES, "write")
        frames = [f for s in m._spaces.values() for f in s.frames.values()]
        assert len(frames) == len(set(frames))
        assert len(frames) + m.free == 8
    touched = {n: len({p for a, p in accesses if a == n}) for n in "ab"}
    for name in "ab":
        assert resident(m, name) >= min(4, touched[name])
        assert resident(m, name) + elsewhere(m, name) == touched[name]
