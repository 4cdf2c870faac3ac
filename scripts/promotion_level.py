#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Simulate how often ``n3ic stream learn`` promotes a model that is no better, with bursts.

Each burst is one flow repeated, with one label: the strongest dependence there is. All candidates
are random networks. For "equal", a burst's label is the toss of a coin, so every network is right
on half of the bursts. For "better", the candidate is right on 80 % of them, and the running network
is another random one. The learner is that of the command; only the training is replaced. A block is
a burst, or, for comparison, a flow.

Usage: scripts/promotion_level.py [--runs N] [--bursts N N ...] [--least-bursts N] [--seed N]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from n3ic.kernel.prediction import predict
from n3ic.model.classifier import Classifier
from n3ic.model.inputs import Field, InputSpec
from n3ic.model.random_models import random_model
from n3ic.runs.refresh import columns_of
from n3ic.systems.stream.learning.learner import LearnSettings, OnlineLearner
from n3ic.systems.stream.learning.rows import LabelledRows

SPEC = InputSpec(tuple(Field.thermometer(f"f{i}", range(10, 100, 10)) for i in range(3)))
BATCH = 200  # labels that come at a time
FLOWS = 4000  # fewest flows of a run
NOISE = 0.2  # share of bursts on which the better network is wrong
Rows = Iterator[LabelledRows]


@dataclass(frozen=True)
class Level:
    """The result of some runs.

    Attributes:
        promoted: share of runs in which a model was promoted.
        flows: median of the labelled flows until then, over the runs that promoted.
    """

    promoted: float
    flows: int | None


def network(rng: np.random.Generator) -> Classifier:
    """A random network of two classes."""
    return random_model((SPEC.n_bits, 8, 2), rng).with_input(SPEC)


def rows_of(
    rng: np.random.Generator, burst: int, bursts: int, better: Classifier | None, by_flow: bool
) -> Rows:
    """Labelled flows in bursts, batch by batch.

    Args:
        rng: draws the flows.
        burst: flows of a burst.
        bursts: number of bursts.
        better: network that is right on most bursts; None for coins as labels.
        by_flow: whether each flow is a block of its own.
    """
    features = rng.integers(0, 110, (bursts, len(SPEC.features))).astype(np.uint32)
    label = rng.integers(0, 2, bursts)
    if better is not None:
        right = predict(better, better.encode(columns_of(better, features))).classes
        label = right ^ (rng.random(bursts) < NOISE)
    of = np.repeat(np.arange(bursts), burst)
    blocks = rng.integers(0, 1 << 64, len(of) if by_flow else bursts, np.uint64)
    for start in range(0, len(of), BATCH):
        part = of[start : start + BATCH]
        block = blocks[start : start + BATCH] if by_flow else blocks[part]
        yield LabelledRows(features[part], label[part].astype(np.int64), block)


def flows_to_promotion(rows: Rows, running: Classifier, make: Callable[[], Classifier]) -> int:
    """Labelled flows until a model is promoted; 0 if none is."""
    promoted: list[Classifier] = []

    def train(
        model: Classifier,
        features: NDArray[np.uint32],
        label: NDArray[np.int64],
        class_weight: NDArray[np.float64],
    ) -> Classifier:
        return make()

    def push(model: Classifier) -> str:
        promoted.append(model)
        return ""

    learner = OnlineLearner(
        running, LearnSettings(), train=train, push=push, record_decision=lambda what, **facts: None
    )
    flows = 0
    for batch in rows:
        learner.add_rows(batch)
        flows += len(batch)
        if promoted:
            return flows
    return 0


def level(
    burst: int,
    runs: int,
    *,
    better: bool = False,
    by_flow: bool = False,
    flows: int = FLOWS,
    least_bursts: int = 200,
    seed: int = 0,
) -> Level:
    """Simulate some runs.

    Args:
        burst: flows of a burst.
        runs: number of runs.
        better: whether the candidate is better than the running network; otherwise both are equal.
        by_flow: whether each flow is a block of its own; otherwise each burst is one.
        flows: fewest flows of a run.
        least_bursts: fewest bursts of a run.
        seed: seed of the runs.
    """
    bursts = max(flows // burst, least_bursts)
    promoted = []
    for number in range(runs):
        rng = np.random.default_rng([seed, number])
        running, good = network(rng), network(rng)
        rows = rows_of(rng, burst, bursts, good if better else None, by_flow)
        make = (lambda good=good: good) if better else partial(network, rng)
        promoted.append(flows_to_promotion(rows, running, make))
    took = [each for each in promoted if each]
    return Level(len(took) / runs, int(np.median(took)) if took else None)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="How often equal models are promoted.")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--bursts", type=int, nargs="+", default=[1, 5, 20, 100, 1000])
    parser.add_argument("--least-bursts", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print(f"{options.runs} runs of {FLOWS:,} flows or {options.least_bursts} bursts; promoted:")
    print("  burst  equal, by flow  equal, by burst  better, by burst  flows until then")
    for burst in options.bursts:
        run = partial(
            level, burst, options.runs, least_bursts=options.least_bursts, seed=options.seed
        )
        wrong, equal, better = run(by_flow=True), run(), run(better=True)
        delay = "never" if better.flows is None else f"{better.flows:,}"
        shares = wrong.promoted, equal.promoted, better.promoted
        columns = zip(shares, (14, 15, 16), strict=True)
        print(f"{burst:>7,}", *(f"{share:>{width}.1%}" for share, width in columns), f"{delay:>17}",
              sep="  ", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
