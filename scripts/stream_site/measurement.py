# SPDX-License-Identifier: Apache-2.0
"""Measures capacities of one core of this machine."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial

import numpy as np

from n3ic.meter.compiled import CompiledMeter, Frames
from n3ic.meter.standard import standard_spec
from n3ic.targets.bench_tools import generated_frames, median_seconds

PACKETS = 200_000
ROWS = 20_000
BATCH = 100  # flows that leave a card at once, as simulated
FEATURES = 20
_ETHERNET = 1


def measure(report: Callable[[str], None]) -> dict[str, float]:
    """Measure what one core handles per second, by CPU time, as the median of several runs.

    Args:
        report: called with what is measured next.

    Returns:
        Rates per second by name: packets in the compiled meter, flows through boosting of 100
        trees, and records parsed from JSON lines.
    """
    report("the compiled meter")
    frames = generated_frames(PACKETS)
    rates = {"capture packets: meter": PACKETS / median_seconds(partial(_meter, frames))}
    report("boosting of 100 trees")
    boosting = f"shunted flows: boosting of 100 trees, {BATCH} at once"
    rates[boosting] = ROWS / median_seconds(_boosting())
    report("records of JSON lines")
    lines = _lines()
    rates["records: parsed from JSON lines"] = ROWS / median_seconds(partial(_parse, lines))
    return rates


def _meter(frames: Frames) -> None:
    with CompiledMeter(standard_spec(), _ETHERNET) as meter:
        meter.count_frames(frames)
        meter.finish()


def _boosting() -> Callable[[], object]:
    from sklearn.ensemble import HistGradientBoostingClassifier
    from threadpoolctl import threadpool_limits

    random = np.random.default_rng(0)
    rows = random.normal(size=(ROWS, FEATURES))
    model = HistGradientBoostingClassifier(max_iter=100, early_stopping=False, random_state=0)
    model.fit(rows[:5000], rows[:5000, :4].sum(axis=1) > 0)

    def predict() -> object:
        with threadpool_limits(1):
            return [model.predict(rows[i : i + BATCH]) for i in range(0, ROWS, BATCH)]

    return predict


def _lines() -> list[bytes]:
    record = {
        "source": "203.0.113.255:65535",
        "destination": "198.51.100.255:443",
        "protocol": 6,
        "first": 1_700_000_000_000_000,
        "packets": 20,
        "class": "attack",
        "margin": 17,
        "features": list(range(1000, 1000 + FEATURES)),
    }
    return [json.dumps(record).encode()] * ROWS


def _parse(lines: list[bytes]) -> None:
    for line in lines:
        json.loads(line)
