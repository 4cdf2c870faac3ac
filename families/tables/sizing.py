# SPDX-License-Identifier: Apache-2.0
"""Chooses the sizes of look-up tables if only their bytes in total are given."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from n3ic.errors import UsageError
from n3ic.families.tables.boosting import Size

if TYPE_CHECKING:
    from n3ic.families.tables.settings import TablesTraining

TABLE_BITS = ((800, 5), (200, 4), (60, 3), (0, 2))
"""Total bytes from which tables of a number of input bits pay off."""
ENTRY_BITS = 3
"""UNSW-NB15 in 1,092 bytes, validation: 97.44 % with 3 bits and 97.27 % with 4; 92.59 and 92.32."""
MOST_TABLES = 1024


def within(
    settings: TablesTraining, fixed: Collection[str], budget: int, n_classes: int
) -> dict[str, Any]:
    """Choose the settings of tables that take at most a number of bytes.

    Args:
        settings: the settings, with the given values.
        fixed: names of the given values, which stay.
        budget: largest number of bytes in total: entries, indices, biases and cuts.
        n_classes: number of classes.

    Raises:
        UsageError: no table fits.
    """
    if "table_bytes" in fixed:
        raise UsageError("a budget of bytes sets the table_bytes of tables; give only one of them")
    sums = 1 if n_classes == 2 else n_classes
    bits = next(d for least, d in TABLE_BITS if budget >= least)
    chosen = {"table_bits": bits, "entry_bits": ENTRY_BITS, "tables": MOST_TABLES}
    own = {k: v for k, v in chosen.items() if k not in fixed}
    bits = own.get("table_bits", settings.table_bits)
    least = Size(1, bits, own.get("entry_bits", settings.entry_bits), sums).of(1, bits, 1)
    least += 5 * bits  # cuts of as many features, four bytes each
    if least > budget:
        raise UsageError(
            f"{budget} bytes hold no look-up table of {bits} bits and {n_classes} classes; "
            f"take {least} bytes or more"
        )
    return own | {"table_bytes": budget}
