# SPDX-License-Identifier: Apache-2.0
"""``columns.toml``: a user's description of a table's columns, read and written.

The format is a catalogue as in :mod:`n3ic.data.catalogue_dataset`, but any entry and any key of an
entry may be missing; it is then inferred.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from n3ic.data.catalogue_dataset import TEXT, rule_of
from n3ic.data.unit_consistency import TIME_UNITS
from n3ic.errors import DataError, ModelError
from n3ic.util.structured import read_toml

COLUMNS_FILE = "columns.toml"
_MAX_BYTES = 4 << 20
_TABLE_KEYS = {
    "label": (str, list),
    "positive": (str,),
    "blank_label": (str,),
    "conversation": (list,),
    "time_unit": (str,),
    "decimal": (str,),
}
_COLUMN_KEYS: Mapping[str, tuple[type, ...]] = {
    "use": (bool,),
    "reason": (str,),
    "doubt": (str,),
    "meaning": (str,),
    "kind": (str,),
    "unit": (str,),
    "source_unit": (str,),
    "scale": (int, float),
    "bits": (int,),
    "blank": (str,),
    "negative": (str,),
    "values": (list,),
    "buckets": (int,),
    "indicators": (int,),
}


def read_description(path: str | Path) -> dict[str, Any]:
    """Read a ``columns.toml``: its entries ``table`` and ``columns``.

    Raises:
        DataError: the file cannot be read, or has an unknown or invalid key; the error names it.
    """
    data = read_toml(path, _MAX_BYTES, DataError, "a description of columns")
    unknown = data.keys() - {"table", "columns"}
    if unknown:
        raise DataError(f"{path}: unknown entry {min(unknown)!r}; expected [table], [columns.NAME]")
    table, columns = data.get("table", {}), data.get("columns", {})
    if not isinstance(table, dict) or not isinstance(columns, dict):
        raise DataError(f"{path}: expected [table] and [columns.NAME]")
    _check(path, "table", table, _TABLE_KEYS)
    if isinstance(table.get("label"), str):
        table["label"] = [table["label"]]
    if table.get("time_unit", "s") not in TIME_UNITS:
        raise DataError(
            f"{path}: time_unit of [table] is one of {', '.join(TIME_UNITS)}, got "
            f"{table['time_unit']!r}"[:300]
        )
    if table.get("decimal", ",") not in (",", "."):
        raise DataError(
            f"{path}: decimal of [table] is the decimal mark, ',' or '.', got {table['decimal']!r}"[
                :300
            ]
        )
    for key in ("label", "conversation"):
        if any(not isinstance(name, str) for name in table.get(key, ())):
            raise DataError(f"{path}: {key} of [table] names columns")
    if len(table.get("conversation", ())) not in (0, 5):
        raise DataError(
            f"{path}: conversation of [table] names five columns: source address and port, "
            "destination address and port, protocol"
        )
    for name, entry in columns.items():
        if not isinstance(entry, dict):
            raise DataError(f"{path}: expected [columns.{name}]")
        _check(path, f"columns.{name}", entry, _COLUMN_KEYS)
        if entry.get("kind") not in (None, TEXT):
            try:
                rule_of(({"values": ["?"]} if entry["kind"] == "category" else {}) | entry)
            except ModelError as error:
                raise DataError(f"{path}: [columns.{name}]: {error}") from error
    return {"table": table, "columns": columns}


def _check(
    path: object, where: str, entry: Mapping[str, Any], known: Mapping[str, tuple[type, ...]]
) -> None:
    for key, value in entry.items():
        if key not in known:
            raise DataError(f"{path}: [{where}] has no {key!r}; it has {', '.join(known)}")
        if not isinstance(value, known[key]) or (
            isinstance(value, bool) and bool not in known[key]
        ):
            kinds = " or ".join(kind.__name__ for kind in known[key])
            raise DataError(f"{path}: {key!r} of [{where}] must be {kinds}, got {value!r}"[:300])


def description_text(catalogue: Mapping[str, Any]) -> str:
    """A complete ``columns.toml`` of a table; the same description gives the same bytes."""
    out = [
        "# How the columns of the tables beside this file are read; n3ic data describe wrote it.",
        "# What stands here overrides what n3ic infers; an entry that is left out is inferred.",
        "",
        "[table]",
        *_entries(catalogue["table"]),
    ]
    for name, entry in catalogue["columns"].items():
        out += ["", f"[columns.{name}]", *_entries(entry)]
    return "\n".join(out) + "\n"


def _entries(entry: Mapping[str, Any]) -> list[str]:
    return [f"{key} = {_toml_value(value)}" for key, value in entry.items() if value != ""]


def _toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml_value, value))}]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # TOML bans DEL
    return repr(value)
