# SPDX-License-Identifier: Apache-2.0
"""The function ``n3ic.audit``."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from n3ic.errors import N3icWarning, in_python, needed

if TYPE_CHECKING:
    from n3ic.studies.audit.audit import Audit


@in_python()
@needed("n3ic.audit")
def audit(
    data: str | Path,
    *,
    dataset: str | None = None,
    label: str = "",
    marks: Sequence[str] = (),
    columns: Sequence[str] = (),
    within: Sequence[str] = (),
    pairs: int = 16,
    bar: float = 0.95,
    rows: int = 30_000,
    losses: int = 8,
    network: str = "",
    seed: int = 0,
) -> Audit:
    """Find columns of a table that are an address, a TTL, a time or a capture in disguise.

    Args:
        data: files, a folder, or the name of an embedded data set.
        dataset: the data set that reads them; None to find it by their layout.
        label: the column of the class, in a table of your own.
        marks: marked columns; empty for addresses, TTLs, ports and times.
        columns: columns to audit; empty for those in use, ``("all",)`` for all.
        within: columns that divide the rows; empty for protocol, state and frequent ports.
        pairs: all pairs of this many columns are tried, the most revealing ones.
        bar: balanced accuracy, above 0.5, at which a column leaks.
        rows: largest number of rows to read.
        losses: number of columns whose loss of accuracy is measured, the most revealing ones.
        network: a recipe, to measure the loss on networks instead of boosted trees.
        seed: seed of all random choices.

    Returns:
        Findings by column, and losses; ``audit.leaking`` names the columns that leak.

    Raises:
        UsageError: a column, a recipe or a value is unknown, or no data set knows the files.
        DataError: a file is malformed, or no rows can be audited.

    Warns:
        N3icWarning: a data set read the table, not the inference of columns.
    """
    from n3ic.studies.audit.audit import AuditRequest
    from n3ic.studies.audit.study import audit_with_losses, audited_table

    request = AuditRequest(
        marks=tuple(marks),
        columns=tuple(columns),
        within=tuple(within),
        pairs=pairs,
        bar=bar,
        rows=rows,
        seed=seed,
    )

    def warn(text: str) -> None:
        warnings.warn(text, N3icWarning, stacklevel=5)

    table, source = audited_table(str(data), dataset, label, warn)
    return audit_with_losses(table, source, request, losses, network)
