# SPDX-License-Identifier: Apache-2.0
"""A meter that gets frames in bursts, and the verdict on each of them."""

import ctypes

from n3ic.meter.compiled import CompiledMeter

RECORD, ASIDE = 0x80000000, 0xFFFFFFFF
MOST = 64


class BurstFrame(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_char_p),
        ("captured", ctypes.c_uint32),
        ("length", ctypes.c_uint32),
        ("time", ctypes.c_uint64),
    )


def in_bursts(spec, frames, sizes, verdicts_of, in_force=lambda earlier, verdict: verdict):
    """Records, counters, and the verdict on each frame, as an application takes them.

    ``sizes`` gives those of the bursts, ``verdicts_of`` a number for each of some records, and
    ``in_force`` the number that holds after one, by that before it (0: none).
    """
    records, verdicts, at = b"", [], 0
    with CompiledMeter(spec, 1) as meter:
        call = meter.library.meter_burst
        call.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p]
        mark = meter.library.meter_mark
        mark.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint32]
        earlier = meter.library.meter_earlier_mark
        earlier.argtypes, earlier.restype = [ctypes.c_void_p, ctypes.c_size_t], ctypes.c_uint32
        while at < len(frames):
            part = frames[at : at + next(sizes)]
            given = (BurstFrame * len(part))(*[BurstFrame(d, len(d), n, t) for d, n, t in part])
            marks = (ctypes.c_uint32 * len(part))()
            call(meter.pointer, len(part), given, marks)
            records_of_burst = meter.records()
            decisions = verdicts_of(records_of_burst)
            for i, verdict in enumerate(decisions):
                before = earlier(meter.pointer, i)
                decisions[i] = in_force(
                    decisions[before - RECORD] if before >= RECORD else before, verdict
                )
                mark(meter.pointer, i, decisions[i])
            verdicts += [
                decisions[m - RECORD] if RECORD <= m < ASIDE else "aside" if m == ASIDE else m
                for m in marks
            ]
            records += records_of_burst.tobytes()
            at += len(part)
        return records + meter.finish().tobytes(), meter.counters(), verdicts
