# SPDX-License-Identifier: Apache-2.0
"""Settings of boosted trees in a recipe."""

from __future__ import annotations

from dataclasses import dataclass

from n3ic.errors import UsageError


@dataclass(frozen=True)
class TreesTraining:
    """How boosted trees are grown and rounded.

    Attributes:
        boosting_rounds: largest number of boosting rounds. A round grows one tree for two classes,
            one per class for more; validation rows choose how many trees are kept.
        boosting_rate: share of each tree's leaf values that counts; 0 tries several, and validation
            rows choose one.
        boosted_leaves: largest number of leaves of a tree; 0 tries several, and validation rows
            choose one.
        boosted_cuts: largest number of different cuts that all trees share; 0 for no limit. Within
            a budget of bytes, a new cut must gain what its bytes cost in any case.
        boosted_bytes: largest number of bytes of nodes, leaves, biases and cuts; 0 for no limit.
    """

    boosting_rounds: int = 100
    boosting_rate: float = 0.0
    boosted_leaves: int = 0
    boosted_cuts: int = 0
    boosted_bytes: int = 0

    def __post_init__(self) -> None:
        def require(ok: bool, name: str, rule: str) -> None:
            if not ok:
                raise UsageError(f"{name} must be {rule}, got {getattr(self, name)!r}")

        require(1 <= self.boosting_rounds <= 4096, "boosting_rounds", "in 1..4096")
        require(0 <= self.boosting_rate <= 1, "boosting_rate", "in [0, 1]")
        leaves = self.boosted_leaves
        require(leaves == 0 or 2 <= leaves <= 4096, "boosted_leaves", "0 or in 2..4096")
        require(0 <= self.boosted_cuts <= 65536, "boosted_cuts", "in 0..65536")
        require(self.boosted_bytes >= 0, "boosted_bytes", "0 or more")
