# SPDX-License-Identifier: Apache-2.0
"""Settings of sum-product networks in a recipe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from n3ic.errors import UsageError


@dataclass(frozen=True)
class SpnTraining:
    """How a sum-product network is learned and folded.

    Attributes:
        spn_task: ``anomaly`` learns normal flows, and calls a flow less likely than a threshold an
            anomaly; ``classes`` learns each class and answers the likeliest.
        leaf_cuts: maximum number of cuts of a feature.
        min_rows: number of rows below which features count as independent; 0 for a fiftieth of all.
        dependence: mutual information, in bits, above which two features depend on each other.
        clusters: maximum number of terms of a sum.
        depth: maximum number of sums from the root to a leaf.
        smoothing: rows added to each bin, so that no bin is impossible.
        arithmetic: ``log`` or ``linear``.
        error: largest allowed distance of a score from the real one, in bits of the logarithm or as
            a probability; 0 for the defaults, 1 bit and 1e-7.
        false_positives: share of the normal validation rows that the threshold may call anomalies.
    """

    spn_task: Literal["anomaly", "classes"] = "anomaly"
    leaf_cuts: int = 7
    min_rows: int = 0
    dependence: float = 0.15
    clusters: int = 4
    depth: int = 5
    smoothing: float = 0.1
    arithmetic: Literal["log", "linear"] = "log"
    error: float = 0.0
    false_positives: float = 0.05

    def __post_init__(self) -> None:
        def require(ok: bool, name: str, rule: str) -> None:
            if not ok:
                raise UsageError(f"{name} must be {rule}, got {getattr(self, name)!r}")

        require(self.spn_task in ("anomaly", "classes"), "spn_task", "anomaly or classes")
        require(1 <= self.leaf_cuts <= 255, "leaf_cuts", "in 1..255")
        require(self.min_rows >= 0, "min_rows", "0 or more")
        require(self.dependence >= 0, "dependence", "0 or more")
        require(2 <= self.clusters <= 64, "clusters", "in 2..64")
        require(0 <= self.depth <= 64, "depth", "in 0..64")
        require(0 < self.smoothing <= 1000, "smoothing", "in (0, 1000]")
        require(self.arithmetic in ("log", "linear"), "arithmetic", "log or linear")
        require(self.error >= 0, "error", "0 or more")
        require(0 <= self.false_positives < 1, "false_positives", "in [0, 1)")

    @property
    def largest_error(self) -> float:
        """The largest allowed error, as given or by default."""
        return self.error or (1.0 if self.arithmetic == "log" else 1e-7)
