# SPDX-License-Identifier: Apache-2.0
"""What an audit finds: how well columns reveal a value of a mark."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """How well one or two columns reveal a value of a mark.

    Attributes:
        columns: one or two column names.
        how: ``cut``, ``bins``, ``pair``, ``difference`` or ``quotient``.
        mark: the marked column.
        value: the value of the mark.
        where: the part of the rows, in words.
        rows: number of rows in that part.
        share: share of these rows that have the value.
        accuracy: balanced accuracy on held-out folds.
        within: the same within the groups of one class, protocol, state and service (the ports);
            None if no group has enough rows with and without the value.
        label_class: the class that the value reveals best.
        label_gap: absolute difference between the value's share in that class and in the others.
        chance: share of the permuted marks that some column reveals as well; None if no
            permutation was tried.
        cut: the best cut of a single column, in words; empty for pairs.
        agree: share of the rows in which that cut agrees with the value; None for pairs.
        leaks: whether the finding raises the alarm.
    """

    columns: tuple[str, ...]
    how: str
    mark: str
    value: str
    where: str
    rows: int
    share: float
    accuracy: float
    within: float | None
    label_class: str
    label_gap: float
    chance: float | None = None
    cut: str = ""
    agree: float | None = None
    leaks: bool = False

    @property
    def sure(self) -> float:
        """The smaller of the two balanced accuracies; 0.5 if ``within`` is None."""
        return 0.5 if self.within is None else min(self.accuracy, self.within)

    @property
    def rule(self) -> str:
        """The rule that reveals the value, in words."""
        if self.how == "cut":
            return self.cut
        patterns = {"pair": "{} with {}", "difference": "{} less {}", "quotient": "{} over {}"}
        return patterns.get(self.how, "{}").format(*self.columns) + (
            " in bins" if self.how == "bins" else ""
        )


@dataclass(frozen=True)
class MarkFacts:
    """A mark of the table.

    Attributes:
        name: the column.
        kind: the kind of mark, such as ``address``.
        values: the values that the audit distinguishes.
        label: largest J at which the values reveal a class; 1 for a mark that determines a class.
    """

    name: str
    kind: str
    values: tuple[str, ...]
    label: float
