# SPDX-License-Identifier: Apache-2.0
"""Decides when a refreshed model replaces the running one.

Nothing here reads a clock. Everything depends only on the rows, their order and the seed, so a log
of the rows reproduces the same decisions and the same models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import UsageError
from n3ic.kernel.prediction import predict
from n3ic.model.classifier import Classifier
from n3ic.runs.refresh import columns_of
from n3ic.systems.stream.learning.betting_tests import PairedBet, block_gains, spent
from n3ic.systems.stream.learning.blocks import (
    DEFAULT,
    OpenBlocks,
    block_parts,
    block_starts,
    first_blocks,
    last_blocks,
)
from n3ic.systems.stream.learning.rows import LabelledRows, Reservoir, held_out

_FEWEST = 20  # fewest anchors of a class from which its recall is judged
_FORMER = 100  # the most models that rollbacks reach
_ROWS = ("anchors", "rehearsed", "waiting", "recent")

Outcome = Literal["better", "given up", "anchors"]


@dataclass(frozen=True)
class LearnSettings:
    """How a stream is learned from.

    Attributes:
        room: the most flows of the reservoir.
        every: labelled flows to train on between two refreshed models.
        held: share of the blocks that is held out for judging and never trained on.
        alpha: probability that a model is ever promoted that is no better on held-out blocks.
        block: what flows of a block have in common, which count as one in judging: ``flow``, or
            some of ``source``, ``destination`` and ``minute``, joined by commas.
        patience: a model that is not better after this many held-out blocks is dropped. A model
            that has gained nothing is dropped as soon as a new candidate is ready.
        watch: the number of held-out blocks during which the former model may prove better and
            come back.
        guard: by how much the recall of a class may fall on the anchors; 1 for no guard.
        rounds: the most passes of polishing.
        seed: seed of the reservoir and the training.
    """

    room: int = 1500
    every: int = 500
    held: float = 0.3
    alpha: float = 0.05
    block: str = DEFAULT
    patience: int = 1500
    watch: int = 3000
    guard: float = 0.05
    rounds: int = 4
    seed: int = 0

    def __post_init__(self) -> None:
        block_parts(self.block)
        shares = {"held": self.held, "alpha": self.alpha}
        for name, value in shares.items():
            if not 0 < value < 1:
                raise UsageError(f"{name}: expected a share between 0 and 1, got {value!r}")
        if not 0 <= self.guard <= 1:
            raise UsageError(f"guard: expected a share from 0 to 1, got {self.guard!r}")
        for name in ("room", "every", "patience", "watch", "rounds"):
            if not 1 <= getattr(self, name) <= 10_000_000:
                raise UsageError(f"{name}: expected 1 to 10,000,000, got {getattr(self, name)!r}")


class Train(Protocol):
    """Makes a refreshed model from the running one."""

    def __call__(
        self,
        model: Classifier,
        features: NDArray[np.uint32],
        label: NDArray[np.int64],
        class_weight: NDArray[np.float64],
    ) -> Classifier:
        """See :func:`n3ic.runs.refresh.refreshed`."""


@dataclass(eq=False)
class Challenge:
    """A model that is compared with the running one.

    Attributes:
        model: the model.
        bet: the test so far.
        most: number of held-out blocks after which the test ends.
        former: whether the model was replaced by the running one.
    """

    model: Classifier
    bet: PairedBet
    most: int
    former: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, with the model's digest."""
        parts = {"bet": self.bet.to_dict(), "most": self.most, "former": self.former}
        return {"model": self.model.digest, **parts}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], read: Callable[[str], Classifier]) -> Self:
        """The comparison of :meth:`to_dict`; ``read`` gives the model of a digest."""
        bet = PairedBet.from_dict(data["bet"])
        return cls(read(data["model"]), bet, data["most"], data["former"])


class OnlineLearner:
    """Learns from labelled flows; see :class:`LearnSettings`.

    Args:
        model: the running model.
        settings: how to learn.
        train: makes refreshed models.
        push: replaces the running model on the target; returns why it failed, or "".
        record_decision: called with the name and the facts of each decision.

    Attributes:
        running: the running model.
        former: the models that ran before, the latest at the end; 100 at most.
        blocks: the held-out blocks that are not judged yet.
    """

    def __init__(
        self,
        model: Classifier,
        settings: LearnSettings,
        *,
        train: Train,
        push: Callable[[Classifier], str],
        record_decision: Callable[..., object],
    ) -> None:
        self.running = model
        self.former: list[Classifier] = []
        self.settings = settings
        self._train, self._push, self._record_decision = train, push, record_decision
        features, classes = len(model.input.features), len(model.classes)
        self._reservoir = Reservoir(settings.room, features, classes, settings.seed)
        self.blocks = OpenBlocks(features)
        none = LabelledRows.none(features)
        self._anchors, self._rehearsed, self._waiting, self._recent = none, none, none, none
        self._challenges: list[Challenge] = []
        self._watch: Challenge | None = None
        self._due: Challenge | None = None  # a better model whose push failed
        self._tests = self._new = 0

    @property
    def models(self) -> Iterator[Classifier]:
        """The models that may run from now on, and the running one."""
        challenges = (*self._challenges, self._watch, self._due)
        yield from (self.running, *self.former, *(c.model for c in challenges if c is not None))

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, from which :meth:`restore` makes the same learner."""
        return {
            "running": self.running.digest,
            "former": [model.digest for model in self.former],
            "challenges": [each.to_dict() for each in self._challenges],
            "watch": self._watch and self._watch.to_dict(),
            "due": self._due and self._due.to_dict(),
            "tests": self._tests,
            "new": self._new,
            "reservoir": self._reservoir.to_dict(),
            "blocks": self.blocks.to_dict(),
            **{name: getattr(self, f"_{name}").to_dict() for name in _ROWS},
        }

    def restore(self, data: Mapping[str, Any], read: Callable[[str], Classifier]) -> None:
        """Take over what :meth:`to_dict` gave; ``read`` gives the model of a digest."""
        self.running, self.former = read(data["running"]), [*map(read, data["former"])]
        self._challenges = [Challenge.from_dict(each, read) for each in data["challenges"]]
        self._watch, self._due = (
            data[name] and Challenge.from_dict(data[name], read) for name in ("watch", "due")
        )
        self._tests, self._new = data["tests"], data["new"]
        self._reservoir.restore(data["reservoir"])
        self.blocks.restore(data["blocks"], self.read_rows)
        for name in _ROWS:
            setattr(self, f"_{name}", self.read_rows(data[name]))

    def read_rows(self, data: Any) -> LabelledRows:
        """Read flows of the model; see :meth:`.LabelledRows.from_dict`."""
        model = self.running
        return LabelledRows.from_dict(data, len(model.input.features), len(model.classes))

    def anchor(self, rows: LabelledRows) -> None:
        """Take flows of the training, whose labels are trusted.

        Half of them guard against bad labels: on these, a refreshed model must keep the recall of
        each class. The other half is trained on together with the stream's flows.
        """
        half = held_out(rows.block, 0.5)
        self._anchors, self._rehearsed = rows.select(half), rows.select(~half)

    def add_rows(self, rows: LabelledRows) -> None:
        """Learn from flows whose labels have come."""
        judging = held_out(rows.block, self.settings.held)
        own = rows.select(~judging)
        self._reservoir.add(own)
        self._recent = LabelledRows.joined(self._recent, own).select(
            slice(-self.settings.every, None)
        )
        self._new += len(own)
        judges = self.blocks.add(rows.select(judging))
        self._retry()
        self._judge_former(judges)
        recent = LabelledRows.joined(self._waiting, judges)
        self._waiting = last_blocks(recent, self.settings.patience)
        while self._due is None:
            if self._challenges:
                self._judge()
            if self._challenges or not self._due_again:
                break
            self._refresh()

    def roll_back(self, reason: str) -> None:
        """Replace the running model by the former one.

        Raises:
            UsageError: No model ran before.
        """
        if not self.former:
            raise UsageError("no former model to go back to")
        self._swap_in(self.former[-1], reason, back=True)

    # --- decisions -------------------------------------------------------------------------

    def _refresh(self) -> None:
        """Train models and let them challenge the running one.

        One is trained on the reservoir. Another is trained only on the latest flows, because older
        flows mislead after the traffic has changed.
        """
        self._new = 0
        for of, rows in (("reservoir", self._reservoir.rows()), ("latest", self._latest())):
            features, label, weight = rows
            features = np.concatenate([features, self._rehearsed.features])
            label = np.concatenate([label, self._rehearsed.label])
            if len(np.unique(label)) < 2:
                continue
            model = self._train(self.running, features, label, weight)
            models = [self.running, *(test.model for test in self._challenges)]
            if any(_same(model, other) for other in models):
                self._record_decision("unchanged", of=of, rows=len(label))
                continue
            self._tests += 1
            alpha = spent(self.settings.alpha, self._tests)
            self._challenges.append(Challenge(model, PairedBet(alpha), self.settings.patience))
            self._record_decision(
                "candidate", model=model.digest, of=of, rows=len(label), alpha=alpha
            )

    def _latest(self) -> tuple[NDArray[np.uint32], NDArray[np.int64], NDArray[np.float64]]:
        """The latest flows to train on, with equal weights."""
        rows = self._recent
        return rows.features, rows.label, np.ones(len(self.running.classes))

    def _judge(self) -> None:
        """Compare refreshed models with the running one on blocks that no earlier test has seen."""
        rows, self._waiting = self._waiting, self._waiting.select(slice(0, 0))
        for test in self._challenges:
            self._look(test, rows)
        # If several are better, the one with the largest capital wins.
        for test in sorted(self._challenges, key=lambda test: -test.bet.capital):
            if test.bet.won and not self._rejected(test):
                others, self._challenges = self._challenges, []
                self._end(test, "better")
                for other in others:
                    if other is not test:
                        self._end(other, "given up")
                self._swap_in(test.model, "better")
                return
            idle = self._due_again and test.bet.capital < 0
            if test.bet.won or idle or test.bet.blocks >= test.most:
                self._challenges.remove(test)
                if not test.bet.won:
                    self._end(test, "given up")

    def _rejected(self, test: Challenge) -> bool:
        """Whether a better model would lose a class of the anchors; if so, ends its test."""
        lost_class = self._lost_class(test.model)
        if lost_class:
            self._end(test, "anchors", lost=lost_class)
        return bool(lost_class)

    @property
    def _due_again(self) -> bool:
        """Whether enough flows have come for another refreshed model."""
        return self._new >= self.settings.every

    def _judge_former(self, rows: LabelledRows) -> None:
        """Compare the former model with the running one for a while after its promotion."""
        test = self._watch
        if test is None:
            return
        self._look(test, rows)
        if test.bet.won:
            self._watch = None
            if not self._rejected(test):
                self._end(test, "better")
                self._swap_in(test.model, "the former model is better", back=True)
        elif test.bet.blocks >= test.most:
            self._watch = None
            self._end(test, "given up")

    def _look(self, test: Challenge, rows: LabelledRows) -> None:
        rows = first_blocks(rows, max(0, test.most - test.bet.blocks))
        one, other = _right(test.model, rows), _right(self.running, rows)
        test.bet.add(block_gains(one, other, block_starts(rows.block)))

    def _end(self, test: Challenge, outcome: Outcome, **facts: Any) -> None:
        bet = test.bet
        self._record_decision(
            "test",
            model=test.model.digest,
            former=test.former,
            outcome=outcome,
            blocks=bet.blocks,
            better=bet.better,
            worse=bet.worse,
            **facts,
        )

    def _lost_class(self, model: Classifier) -> str:
        """A class whose recall on the anchors would fall too far; empty if there is none."""
        label = self._anchors.label
        after, before = _right(model, self._anchors), _right(self.running, self._anchors)
        for index, name in enumerate(model.classes):
            own = label == index
            if own.sum() < _FEWEST:
                continue
            if after[own].mean() < before[own].mean() - self.settings.guard:
                return name
        return ""

    # --- the swap --------------------------------------------------------------------------

    def _swap_in(self, model: Classifier, reason: str, *, back: bool = False) -> None:
        """Push a model; if that fails, the running one stays and the push is retried later."""
        push_error = self._push(model)
        self._record_decision("push", model=model.digest, reason=reason, error=push_error)
        if push_error:
            self._due = Challenge(model, PairedBet(0.5), 0, former=back)
            return
        self._due = self._watch = None
        self._challenges = []
        self._waiting = self._waiting.select(slice(0, 0))
        if back:
            self.former.pop()
        else:
            self.former = [*self.former, self.running][-_FORMER:]
            self._tests += 1
            bet = PairedBet(spent(self.settings.alpha, self._tests))
            self._watch = Challenge(self.running, bet, self.settings.watch, former=True)
        self.running = model

    def _retry(self) -> None:
        if self._due is not None:
            self._swap_in(self._due.model, "the push had failed", back=self._due.former)


def _same(one: Classifier, other: Classifier) -> bool:
    """Whether two models with the same input have equal numbers, whatever their provenance."""
    return one.changed(provenance={}) == other.changed(provenance={}, input=one.input)


def _right(model: Classifier, rows: LabelledRows) -> NDArray[np.bool_]:
    """Whether a model is right on each flow."""
    if not len(rows):
        return np.empty(0, dtype=np.bool_)
    inference = predict(model, model.encode(columns_of(model, rows.features)))
    return np.asarray(inference.classes == rows.label)
