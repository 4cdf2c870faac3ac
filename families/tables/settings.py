# SPDX-License-Identifier: Apache-2.0
"""Settings of boosted look-up tables in a recipe."""

from __future__ import annotations

from dataclasses import dataclass

from n3ic.errors import UsageError


@dataclass(frozen=True)
class TablesTraining:
    """How look-up tables are grown and rounded.

    Attributes:
        tables: largest number of look-up tables.
        table_bits: number of input bits that address a table.
        entry_bits: bits of an entry.
        table_bytes: largest number of bytes of entries, indices, biases and cuts; 0 for no limit.
        renewals: how often each table is removed in turn and grown again beside the others.
        cell_prior: curvature that is added to each entry's, so that few rows move it only a little:
            with more, fewer rows are memorised; 0 trains with 3, 30 and 100, and validation rows
            choose one.
        teacher: weight of the boosted trees' probabilities against the labels.
        coarse_cuts: share of the training rows that a cut may pass to become a multiple of a
            larger power of two, which logic compares at less cost; 0 leaves the cuts unchanged.
    """

    tables: int = 52
    table_bits: int = 5
    entry_bits: int = 4
    table_bytes: int = 0
    renewals: int = 1
    cell_prior: float = 3.0
    teacher: float = 0.5
    coarse_cuts: float = 0.0

    def __post_init__(self) -> None:
        def require(ok: bool, name: str, rule: str) -> None:
            if not ok:
                raise UsageError(f"{name} must be {rule}, got {getattr(self, name)!r}")

        require(1 <= self.tables <= 4096, "tables", "in 1..4096")
        require(1 <= self.table_bits <= 8, "table_bits", "in 1..8")
        require(2 <= self.entry_bits <= 8, "entry_bits", "in 2..8")
        require(self.table_bytes >= 0, "table_bytes", "0 or more")
        require(0 <= self.renewals <= 100, "renewals", "in 0..100")
        require(0 <= self.cell_prior <= 1e6, "cell_prior", "in 0..1000000")
        require(0 <= self.teacher <= 1, "teacher", "in [0, 1]")
        require(0 <= self.coarse_cuts < 0.5, "coarse_cuts", "in [0, 0.5)")
