# SPDX-License-Identifier: Apache-2.0
"""Which columns of a table a training reads, leaves out and doubts, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from n3ic.data.column_inference import BY_VALUES
from n3ic.data.table import Feature, FlowTable
from n3ic.util.display import TextTable

Use = Literal["used", "in doubt", "left out"]
_WORDS: tuple[Use, ...] = ("in doubt", "left out", "used")
HEAD = ("columns", "", "why")


@dataclass(frozen=True)
class ColumnUse:
    """What a training does with a column.

    Attributes:
        name: the column.
        use: ``used``; ``in doubt`` if it is used though its values speak against it; ``left out``.
        why: the reason; empty if nothing speaks against a used column.
        by_values: whether the reason is in the column's values, not in its name.
    """

    name: str
    use: Use
    why: str = ""
    by_values: bool = False


def column_uses(
    table: FlowTable, chosen: Sequence[str], named: Sequence[str] = ()
) -> tuple[ColumnUse, ...]:
    """What a training does with each column of a table.

    Args:
        table: the flows.
        chosen: the features to choose from.
        named: those that the user named; they are not doubted.
    """
    used, requested = {*chosen}, {*named}
    features = (_use_of(f, f.name in used, f.name in requested) for f in table.catalogue)
    texts = (
        ColumnUse(name, "left out", why, why in BY_VALUES) for name, why in table.omitted.items()
    )
    return (*features, *texts)


def _use_of(feature: Feature, used: bool, named: bool) -> ColumnUse:
    why = feature.leak_reason if feature.leaks and feature.leak_reason else feature.nic_reason
    against = feature.doubt if feature.usable else why
    if not used:
        reason = against if not feature.usable else "not among the named columns"
        return ColumnUse(feature.name, "left out", reason, reason in BY_VALUES)
    if named and against:
        return ColumnUse(feature.name, "used", f"named, though: {against}")
    doubted: Use = "in doubt" if against else "used"
    return ColumnUse(feature.name, doubted, against, bool(against))


def leaving_out(name: str) -> str:
    """How a column is left out, on the command line."""
    return f"--columns '!{name}' leaves it out"


def columns_table(uses: Sequence[Mapping[str, Any]]) -> TextTable | None:
    """One table of all columns, those of one reason in a row; None without columns.

    Args:
        uses: the entry ``columns`` of a run's metrics.
    """
    rows: dict[tuple[str, str], list[str]] = {}
    for use_record in sorted(uses, key=lambda of: (*_WORDS, of.get("use")).index(of.get("use"))):
        name, use, why = (str(use_record.get(key, "")) for key in ("name", "use", "why"))
        if use == "in doubt":
            why = f"{why}; {leaving_out(name)}"
        rows.setdefault((use, why), []).append(name)
    cells = tuple((", ".join(names), use, why) for (use, why), names in rows.items())
    return TextTable("columns of the table", HEAD, cells, left=3) if cells else None


def column_warning(uses: Sequence[Mapping[str, Any]]) -> str:
    """What a caller should hear of before trusting the figures, in a line; empty for nothing."""
    warnings = []
    for use in uses:
        how = f" (overrides={{'columns': ['!{use['name']}']}} leaves it out)"
        more = how if use["use"] == "in doubt" else ""
        warnings += (
            [f"{use['name']} is {use['use']}: {use['why']}{more}"] if use["by_values"] else []
        )
    return "; ".join(warnings)
