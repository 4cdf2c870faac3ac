# SPDX-License-Identifier: Apache-2.0
"""Chooses the sizes of look-up tables if only their bytes in total are given."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from n3ic.errors import UsageError
from n3ic.families.tables.boosting import Size
from n3ic.model.summed import n_sums

if TYPE_CHECKING:
    from n3ic.families.tables.settings import TablesTraining

TABLE_BITS = ((800, 5), (200, 4), (60, 3), (0, 2))
"""Total bytes from which tables of a number of input bits pay off."""
ENTRY_BITS = 3
"""UNSW-NB15 in 1,092 bytes, validation: 97.44 % with 3 bits and 97.27 % with 4; 92.59 and 92.32."""
MOST_TABLES = 1024
SITE_SIZES = ({"table_bits": 5, "entry_bits": 4}, {"table_bits": 6, "entry_bits": 3})
"""Sizes of a table that are tried within LUT sites."""
SITE_SIZES_WITH_CUTS = (
    {"table_bits": 5, "entry_bits": 3, "coarse_cuts": 0.008},
    {"table_bits": 5, "entry_bits": 2, "coarse_cuts": 0.015},
)
"""The same if comparisons with cuts take sites, too: they cost more than the entries."""
_ADDER_SITES, _CUT_SITES = 0.6, 5.0  # a bit of an entry, and the cuts that a table adds


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


def in_sites(
    settings: TablesTraining, fixed: Collection[str], sites: int, cuts: bool, n_classes: int
) -> list[dict[str, Any]]:
    """Choose settings of tables that take about a number of LUT sites.

    Args:
        settings: the settings, with the given values.
        fixed: names of the given values, which stay.
        sites: LUT sites of the core.
        cuts: whether comparisons with cuts are among the sites.
        n_classes: number of classes.

    Returns:
        Settings for each size of a table that is tried.
    """
    chosen: list[dict[str, Any]] = []
    for size in SITE_SIZES_WITH_CUTS if cuts else SITE_SIZES:
        own: dict[str, Any] = {k: v for k, v in size.items() if k not in fixed}
        bits = own.get("table_bits", settings.table_bits)
        width = own.get("entry_bits", settings.entry_bits)
        a_bit = (0.5 if bits <= 5 else 2.0 ** (bits - 6)) + _ADDER_SITES
        a_table = n_sums(n_classes) * width * a_bit + cuts * _CUT_SITES
        if "tables" not in fixed:
            own["tables"] = min(max(1, int(sites / a_table)), MOST_TABLES)
        if own not in chosen:
            chosen.append(own)
    return chosen
