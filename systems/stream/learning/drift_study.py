# SPDX-License-Identifier: Apache-2.0
"""How soon detectors find a change in a replayed stream, and how often they raise false alarms.

The test of :mod:`.drift_detector` is compared with two others. ADWIN (Bifet and Gavaldà 2007, from
river) watches the margins, proxies for labels, or the true labels, which come at once only in a
replay. The proxies are those of Caravan (Zhang et al., OSDI 2024): a larger model labels the flows,
and the share on which the running model agrees stands for its accuracy. The other is the PSI that
``n3ic xdp status`` shows, of 500 flows at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import UsageError, needed
from n3ic.evaluation.drift import drift
from n3ic.kernel.prediction import predict
from n3ic.model.classifier import Classifier
from n3ic.runs.refresh import columns_of
from n3ic.systems.stream.learning.drift_detector import DriftDetector
from n3ic.systems.stream.learning.host_models import HostTrees
from n3ic.systems.stream.learning.replay import ReplayedFlows
from n3ic.util.display import TextTable

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
            ``(flows,)``, for the test of :mod:`.drift_detector`; None if each is one of its own.
        block: likewise, of each flow of the stream.
        alpha: error of the test; also ADWIN's delta.
        seed: seed of the test and of the trees.

    Returns:
        A result for each detector, the test of :mod:`.drift_detector` first.

    Raises:
        UsageError: The reference has too few flows.
        MissingDependencyError: river or scikit-learn is missing.
    """
    inference = predict(model, model.encode(columns_of(model, stream.features)))
    top = max(1, model.largest_margin)
    signals = {ADWIN_MARGIN: inference.margins / top}
    if (reference.label >= 0).all():
        agent = _agent(model, reference, seed)
        proxies = agent.odds(stream.features.astype(np.int64)).argmax(axis=1)
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


def delay_table(delays: Iterable[DetectionDelay], change: int, flows: int) -> TextTable:
    """The delays as a table."""
    rows = tuple(
        (
            each.detector,
            f"{each.false_alarms:,}",
            "never" if each.delay is None else f"{each.delay:,}",
            each.statistic,
        )
        for each in delays
    )
    head = ("detector", "alarms before", "flows to the alarm", "of")
    return TextTable(f"{change:,} flows, then {flows - change:,} of other traffic", head, rows)


def to_plain(delays: Iterable[DetectionDelay]) -> list[dict[str, Any]]:
    """Plain data for JSON."""
    return [asdict(each) for each in delays]


def _agent(model: Classifier, reference: ReplayedFlows, seed: int) -> HostTrees:
    from n3ic.training.input_bits import boosted_trees

    if len(np.unique(reference.label)) < 2:
        raise UsageError("expected reference flows of two classes, got one")
    columns = columns_of(model, reference.features)
    trees = boosted_trees(columns, reference.label, rounds=_PROXY_ROUNDS, seed=seed)
    return HostTrees.of_boosted(trees, model.input.features, model.classes)


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
    with needed("comparing with ADWIN"):
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
