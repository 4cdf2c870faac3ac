# SPDX-License-Identifier: Apache-2.0
"""Bursts: flows are fetched ahead, and each frame is told which decision holds for its flow."""

import random
import shutil
from dataclasses import replace
from itertools import repeat

import pytest

from n3ic.meter.compiled import CompiledMeter
from n3ic.meter.standard import standard_spec
from n3ic.model.meter_spec import Decision
from tests.support.bursts import MOST, in_bursts
from tests.support.conversations import Frames
from tests.support.generated import random_frames, random_spec

pytestmark = pytest.mark.skipif(
    not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="no C compiler"
)


def verdicts_of(records):
    return [verdict_of(r) for r in records]


def verdict_of(record):
    """Any number that tells decisions apart, below those that marks keep for themselves."""
    return 1 + (int(record["number"]) * 1009 + int(record["packets"])) % (1 << 30)


@pytest.mark.first_case
@pytest.mark.parametrize("seed", range(4))
def test_bursts_give_what_frames_one_by_one_give(seed):
    r = random.Random(seed)
    spec = replace(random_spec(r), cache_flows=r.choice([3, 30, 4096]))
    frames = random_frames(r, 800)
    with CompiledMeter(spec, 1) as meter:
        records = meter.count(frames).tobytes() + meter.finish().tobytes()
        counters = meter.counters()
    sizes = iter(lambda: r.randint(1, MOST), 0)
    alone = in_bursts(spec, frames, repeat(1), verdicts_of)
    assert in_bursts(spec, frames, sizes, verdicts_of) == alone
    assert alone[:2] == (records, counters)


def test_a_decision_holds_from_its_packet_on_until_the_next_or_the_flows_end():
    spec = replace(standard_spec(), decision=Decision(packets=3, repeat=True), ends=("rst",))
    talk = Frames()
    for i, flags in enumerate([16, 16, 16, 16, 16, 16, 16, 4]):
        talk.tcp(i, i % 2 == 0, (1, 80), flags, 0, 0)
    for i in (8, 9):
        talk.tcp(i, True, (2, 80), 16, 0, 0)
    talk.tcp(10, True, (1, 80), 2, 0, 0)  # the closed flow begins anew
    frames = [(frame, len(frame), 1_000_000 * time) for time, frame in talk.all]
    frames.insert(8, (b"", 0, 8_000_000))
    for size in (1, 2, 5, MOST):
        _, _, verdicts = in_bursts(spec, frames, repeat(size), verdicts_of)
        third, sixth, end = (verdict_of({"number": 0, "packets": n}) for n in (3, 6, 8))
        assert verdicts == [0, 0, third, third, third, sixth, sixth, end, "aside", 0, 0, 0], size
        _, _, lasting_verdicts = in_bursts(
            spec, frames, repeat(size), verdicts_of, lambda old, new: old or new
        )
        assert lasting_verdicts == [
            0,
            0,
            third,
            third,
            third,
            third,
            third,
            third,
            "aside",
            0,
            0,
            0,
        ], size
