#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Try the test of drift: how often it alarms without a change, and how soon after one.

``level`` simulates unchanged traffic that comes in bursts, each one flow repeated, the strongest
dependence there is, and counts alarms with a block a burst and a block a flow.

``delays`` replays flows to which other traffic follows, and compares the test with others. ADWIN
(Bifet and Gavaldà 2007, from river: ``pip install river``) watches the margins, proxies for labels,
or the true labels, which come at once only in a replay. The proxies are those of Caravan (Zhang et
al., OSDI 2024): a larger model labels the flows, and the share on which the running model agrees
stands for its accuracy. PSI is what ``n3ic xdp status`` shows, of 500 flows at a time.

Usage: scripts/drift_trial.py level [--runs N] [--bursts N N ...] [--alpha A]
       scripts/drift_trial.py delays FLOWS --then FLOWS --model MODEL --reference FLOWS
                                     [--block N] [--alpha A]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import UsageError
from n3ic.evaluation.drift import drift
from n3ic.kernel.prediction import predict
from n3ic.model.classifier import Classifier
from n3ic.model.inputs import Field, InputSpec
from n3ic.model.load import load_model
from n3ic.model.random_models import random_model
from n3ic.runs.refresh import columns_of
from n3ic.systems.stream.learning.drift_detector import DriftDetector
from n3ic.systems.stream.learning.replay import ReplayedFlows, flows_of
from n3ic.training.input_bits import boosted_trees

OURS = "betting on ranks"
ADWIN_MARGIN = "ADWIN, margins"
ADWIN_PROXY = "ADWIN, proxy labels"
ADWIN_LABEL = "ADWIN, true labels at once"
PSI = "PSI of 500 flows"
_WINDOW = 500
_PROXY_ROUNDS = 100


@dataclass(frozen=True)
class DetectionDelay:
    """What a detector did.

    Attributes:
        detector: its name.
        false_alarms: alarms before the change.
        delay: flows from the change to the first alarm after it; None without one.
        statistic: what the alarm was about, if the detector tells.
    """

    detector: str
    false_alarms: int
    delay: int | None
    statistic: str = ""


def detection_delays(
    model: Classifier,
    reference: ReplayedFlows,
    stream: ReplayedFlows,
    change: int,
    *,
    reference_block: NDArray[np.uint64] | None = None,
    block: NDArray[np.uint64] | None = None,
    alpha: float = 0.01,
    seed: int = 0,
) -> tuple[DetectionDelay, ...]:
    """Compare detectors on a stream whose traffic changes.

    Args:
        model: the running model.
        reference: flows like those of the training; their labels train the model for the proxies.
        stream: the flows; from number ``change`` on, they are other traffic.
        change: number of flows before the change; ``len(stream)`` for no change.
        reference_block: hash of the block of each flow of the reference, uint64, shape
            ``(flows,)``, for the test of ``n3ic stream drift``; None if each is one of its own.
        block: likewise, of each flow of the stream.
        alpha: error of the test; also ADWIN's delta.
        seed: seed of the test and of the trees.

    Returns:
        A result for each detector, the test of ``n3ic stream drift`` first.

    Raises:
        UsageError: The reference has too few flows.
    """
    inference = predict(model, model.encode(columns_of(model, stream.features)))
    top = max(1, model.largest_margin)
    signals = {ADWIN_MARGIN: inference.margins / top}
    if (reference.label >= 0).all():
        proxies = _proxies(model, reference, stream.features, seed)
        signals[ADWIN_PROXY] = (inference.classes != proxies).astype(np.float64)
    if (stream.label >= 0).all():
        signals[ADWIN_LABEL] = (inference.classes != stream.label).astype(np.float64)
    if block is None:
        block = np.arange(len(stream), dtype=np.uint64) + np.uint64(len(reference))
    if reference_block is None:
        reference_block = np.arange(len(reference), dtype=np.uint64)
    start_test = partial(
        DriftDetector, model, reference.features, reference_block=reference_block, alpha=alpha
    )
    ours = _ours(start_test, stream.features, block, seed)
    out = [_delay(OURS, [at for at, _ in ours], change, dict(ours))]
    out += [_delay(name, _adwin(values, alpha), change) for name, values in signals.items()]
    moved = _psi(model, reference.features, stream.features)
    return (*out, _delay(PSI, moved, change))


def _proxies(
    model: Classifier, reference: ReplayedFlows, stream: NDArray[np.uint32], seed: int
) -> NDArray[np.int64]:
    """The classes that boosted trees, trained on the reference, give the stream."""
    if len(np.unique(reference.label)) < 2:
        raise UsageError("expected reference flows of two classes, got one")
    columns = columns_of(model, reference.features)
    trees = boosted_trees(columns, reference.label, rounds=_PROXY_ROUNDS, seed=seed)
    return np.asarray(trees.predict(stream.astype(np.int64)))


def _ours(
    start_test: Callable[..., DriftDetector],
    stream: NDArray[np.uint32],
    block: NDArray[np.uint64],
    seed: int,
) -> list[tuple[int, str]]:
    """The alarms and their statistics; after each alarm, a new test begins."""
    out: list[tuple[int, str]] = []
    at = 0
    while at < len(stream):
        test = start_test(seed=seed + len(out))
        while test.alarm is None and at + test.flows < len(stream):
            start = at + test.flows
            test.add(stream[start : start + _WINDOW], block[start : start + _WINDOW])
        at += test.flows
        if test.alarm is not None:
            out.append((at, test.alarm.statistic))
    return out


def _adwin(values: NDArray[np.float64], delta: float) -> list[int]:
    from river.drift import ADWIN

    detector_class: Any = ADWIN  # river has no types
    detector, out = detector_class(delta=delta), []
    for number, value in enumerate(values.tolist(), 1):
        detector.update(value)
        if detector.drift_detected:
            out.append(number)
    return out


def _psi(model: Classifier, reference: NDArray[np.uint32], stream: NDArray[np.uint32]) -> list[int]:
    """The ends of windows in which a feature has drifted far from the reference."""
    spec = model.input.with_rates(model.input.encode(columns_of(model, reference)))
    out = []
    for end in range(_WINDOW, len(stream) + 1, _WINDOW):
        part = stream[end - _WINDOW : end]
        counts = spec.encode(columns_of(model, part)).sum(axis=0)
        if any(each.level == "large" for each in drift(spec, counts, len(part))):
            out.append(end)
    return out


def _delay(
    name: str, alarms: list[int], change: int, statistics: dict[int, str] | None = None
) -> DetectionDelay:
    after = next((at for at in alarms if at > change), None)
    early = sum(at <= change for at in alarms)
    if after is None:
        return DetectionDelay(name, early, None)
    return DetectionDelay(name, early, after - change, (statistics or {}).get(after, ""))


def level(burst: int, runs: int, alpha: float, *, by_flow: bool, bursts: int = 200) -> float:
    """Share of unchanged streams in which the test ever raises an alarm.

    Args:
        burst: flows of a burst.
        runs: number of streams; each has a reference of as many bursts.
        alpha: the error that the test promises.
        by_flow: whether each flow is a block of its own; otherwise each burst is one.
        bursts: bursts of a stream.
    """
    spec = InputSpec(tuple(Field.thermometer(f"f{i}", range(10, 100, 10)) for i in range(6)))
    model = random_model((spec.n_bits, 8, 2), np.random.default_rng(0)).with_input(spec)
    alarms = 0
    for number in range(runs):
        rng = np.random.default_rng([burst, number])
        parts = [
            (
                np.repeat(rng.integers(0, 110, (bursts, 6)).astype(np.uint32), burst, axis=0),
                np.repeat(rng.integers(0, 1 << 64, bursts, np.uint64), burst),
            )
            for _ in range(2)
        ]
        (reference, own), (stream, block) = parts
        test = DriftDetector(
            model, reference, reference_block=None if by_flow else own, alpha=alpha, seed=number
        )
        alarms += test.add(stream, None if by_flow else block) is not None
    return alarms / runs


def main() -> None:
    """Print the table of one of the trials."""
    parser = argparse.ArgumentParser(description="Alarms without a change, and delays after one.")
    trials = parser.add_subparsers(dest="trial", required=True)
    levels, delays = (trials.add_parser(name) for name in ("level", "delays"))
    levels.add_argument("--runs", type=int, default=200)
    levels.add_argument("--bursts", type=int, nargs="+", default=[1, 5, 20, 100, 1000])
    delays.add_argument("flows")
    for name in ("--then", "--model", "--reference"):
        delays.add_argument(name, required=True)
    delays.add_argument("--block", type=int, default=1, help="consecutive flows that are alike")
    for trial in (levels, delays):
        trial.add_argument("--alpha", type=float, default=0.01)
    options = parser.parse_args()
    if options.trial == "level":
        print(f"{'flows of a burst':>16} {'a block a flow':>15} {'a block a burst':>15}")
        for burst in options.bursts:
            shares = [level(burst, options.runs, options.alpha, by_flow=by) for by in (True, False)]
            print(f"{burst:16,} {shares[0]:15.1%} {shares[1]:15.1%}", flush=True)
        return
    model = load_model(options.model)
    flows, then, reference = (
        flows_of(path, model) for path in (options.flows, options.then, options.reference)
    )
    whole = ReplayedFlows.joined(flows, then)
    block = np.arange(len(whole) + len(reference)) // options.block
    results = detection_delays(
        model,
        reference,
        whole,
        len(flows),
        reference_block=block[: len(reference)].astype(np.uint64),
        block=block[len(reference) :].astype(np.uint64) + np.uint64(1),
        alpha=options.alpha,
    )
    print(f"{len(flows):,} flows, then {len(then):,} of other traffic")
    print(f"{'detector':28} {'alarms before':>14} {'flows to the alarm':>19}  of")
    for each in results:
        delay = "never" if each.delay is None else f"{each.delay:,}"
        print(f"{each.detector:28} {each.false_alarms:14,} {delay:>19}  {each.statistic}")


if __name__ == "__main__":
    main()
