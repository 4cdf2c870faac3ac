# SPDX-License-Identifier: Apache-2.0
"""Bursts: flows are fetched ahead, and each frame is told which decision holds for its flow."""

import ctypes
import random
import shutil
from dataclasses import replace

import pytest
from conversations import Frames
from generated import random_frames, random_spec

from n3ic.meter.compiled import CompiledMeter
from n3ic.meter.standard import standard_spec
from n3ic.model.metering import Decision

pytestmark = pytest.mark.skipif(
    not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="no C compiler"
)

UNDECIDED, RECORD, ASIDE = 0, 0x80000000, 0xFFFFFFFF
MOST = 64


class BurstFrame(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_char_p),
        ("captured", ctypes.c_uint32),
        ("length", ctypes.c_uint32),
        ("time", ctypes.c_uint64),
    )


def verdict_of(record):
    """Any number that tells decisions apart, below those that marks keep for themselves."""
    return 1 + (int(record["number"]) * 1009 + int(record["packets"])) % (1 << 30)


def in_bursts(spec, frames, sizes):
    """Records, counters, and the verdict on each frame, as an application takes them."""
    records, verdicts, at = b"", [], 0
    with CompiledMeter(spec, 1) as meter:
        call = meter.library.meter_burst
        call.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p]
        mark = meter.library.meter_mark
        mark.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint32]
        while at < len(frames):
            part = frames[at : at + next(sizes)]
            given = (BurstFrame * len(part))(*((d, len(d), n, t) for d, n, t in part))
            marks = (ctypes.c_uint32 * len(part))()
            call(meter.pointer, len(part), given, marks)
            found = meter.records()
            told = [verdict_of(r) for r in found]
            for i, verdict in enumerate(told):
                mark(meter.pointer, i, verdict)
            verdicts += [
                told[m - RECORD] if RECORD <= m < ASIDE else "aside" if m == ASIDE else m
                for m in marks
            ]
            records += found.tobytes()
            at += len(part)
        return records + meter.finish().tobytes(), meter.counters(), verdicts


@pytest.mark.parametrize("seed", range(4))
def test_bursts_give_what_frames_one_by_one_give(seed):
    r = random.Random(seed)
    spec = replace(random_spec(r), cache_flows=r.choice([3, 30, 4096]))
    frames = random_frames(r, 800)
    with CompiledMeter(spec, 1) as meter:
        records = meter.count(frames).tobytes() + meter.finish().tobytes()
        counters = meter.counters()
    sizes = iter(lambda: r.randint(1, MOST), 0)
    alone = in_bursts(spec, frames, iter(lambda: 1, 0))
    assert in_bursts(spec, frames, sizes) == alone
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
        _, _, found = in_bursts(spec, frames, iter(lambda n=size: n, 0))
        third, sixth, end = (verdict_of({"number": 0, "packets": n}) for n in (3, 6, 8))
        assert found == [0, 0, third, third, third, sixth, sixth, end, "aside", 0, 0, 0], size
