# SPDX-License-Identifier: Apache-2.0
"""Infer the meaning of the columns of any flow table from their names and cells.

The result is a catalogue of :mod:`n3ic.data.catalogue_dataset`, which a ``columns.toml`` overrides.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from n3ic.data.catalogue_dataset import TEXT
from n3ic.data.cell_text import is_address, is_date, is_ip
from n3ic.data.column_profile import (
    MOST_CATEGORIES,
    ColumnProfile,
    may_name_classes,
    tells_alone,
)
from n3ic.data.column_roles import (
    CICFLOWMETER_TIMES,
    ENDS,
    IN_NAME,
    PROTOCOLS,
    UNITS,
    WHY,
    first_row,
    is_cicflowmeter,
    is_measure,
    is_measurement,
    role_of,
)
from n3ic.data.unit_consistency import TIME_UNITS
from n3ic.model.columns import INDICATOR, LONGEST, MOST_VALUES
from n3ic.model.inputs import UINT32_MAX

BUCKETS = 16  # numbers of the texts that are not frequent
INDICATORS = 16  # frequent texts with a feature of their own
SPLIT_SHARE = 0.01  # from this share of rows below 0 on, their magnitude is its own feature
SAME = 0.99  # from this share of the label's entropy on, a text is another form of the label
FORM = 0.5  # from this share of what measurements leave open on, a text names the classes
_COVERED = 0.9  # share of the rows that the frequent texts of a column must have
_COVERED_FIELD = 0.5  # of a protocol, flag, state or service by its name
_CODES = 2  # numbers and words for a blank among the texts of a field
_HEXADECIMAL = re.compile(r"0x[0-9a-f]+", re.ASCII | re.IGNORECASE)

_WHY = {
    "row": "a number that counts the rows",
    "form": "by its values another form of the label",
    "codes": "a number for each class: another form of the label",
    "rises": "it goes up along the file: a time or a counter",
    "blocks": "it stays the same over stretches of the file: it names a capture or a time",
    "spread": "as evenly spread as random bits: a port, a checksum or a sequence number",
    "hexadecimal": "hexadecimal numbers: a port, a checksum or an identifier",
    "constant": "the same in every row",
    "empty": "no value in any row",
}
BY_VALUES = frozenset(
    _WHY[kind] for kind in ("form", "codes", "rises", "blocks", "spread", "hexadecimal")
)
"""Reasons that a column is left out for its values, whatever its name."""
_FINER = {"s": ("ms", "us", "ns"), "ms": ("us", "ns"), "us": ("ns",)}


def infer(
    facts: Sequence[ColumnProfile],
    label: str = "",
    *,
    time_unit: str = "",
    units: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """A catalogue of a table's columns.

    Args:
        facts: facts of every column.
        label: name of the column of the class; empty for none.
        time_unit: unit of the columns of times whose names do not say it; empty for the usual.
        units: units of further columns, by name.

    Returns:
        ``table`` (``label``, and ``conversation`` if the table has the 5-tuple) and ``columns``:
        an entry for each column but the label, with ``use`` and ``reason``.
    """
    features = {f.name: f for f in facts if f.name != label}
    table: dict[str, Any] = {"label": [label]} if label else {}
    if key := _conversation(features):
        table["conversation"] = key
    times = (CICFLOWMETER_TIMES,) if time_unit or is_cicflowmeter(features) else ()

    def unit_of(name: str) -> str:
        row = first_row((*times, *UNITS), name)
        if row is None or name in units:
            return units.get(name, "")
        return (
            time_unit if time_unit and row.what in TIME_UNITS and row.why != IN_NAME else row.what
        )

    columns = {name: _entry(f, unit_of(name)) for name, f in features.items()}
    for name, entry in columns.items():
        # a column of the table may have the name of an indicator
        if not entry["use"] or any(column.startswith(name + INDICATOR) for column in columns):
            entry.pop("indicators", None)
    return {"table": table, "columns": columns}


def _entry(facts: ColumnProfile, unit: str) -> dict[str, Any]:
    kind = _kind(facts)
    why = _left_out(facts) or (_no_feature(facts) if kind == TEXT else "")
    entry: dict[str, Any] = {
        "use": not why,
        "reason": why or _usable(facts, kind),
        "meaning": facts.header,
        "kind": kind,
    }
    if not why and (doubt := _doubt(facts)):
        entry["doubt"] = doubt
    if kind == "category":
        return entry | {"unit": "code"} | _values(facts)
    if kind == "number":
        return entry | _number(facts, unit)
    return entry | {"unit": "IPv4 number" if kind == "address" else "", "bits": 32}


def _left_out(facts: ColumnProfile) -> str:
    """Why a column is left out; empty if it is used."""
    if facts.type == "empty":
        return _WHY["empty"]
    role, why = role_of(facts.name)
    if role not in ("feature", "root"):
        return why
    if facts.type == "time" or _is_time(facts):
        return WHY["time"]
    if facts.counts_up:
        return _WHY["row"]
    if facts.distinct <= 1:
        return _WHY["constant"]
    if _all(facts.texts, is_address):
        return WHY["address"]
    if pattern := _by_values(facts):
        return _WHY[pattern]
    return why if role == "root" else ""


def _by_values(facts: ColumnProfile) -> str:
    """What the values of a column show that is no measurement by its name; empty for nothing."""
    if facts.rises and not is_measure(facts.name):
        return "rises"
    if facts.spread and not is_measure(facts.name):
        return "spread"
    if is_measurement(facts.name):
        return ""
    if facts.codes and facts.distinct > 2:  # of two values, it may be a flag
        return "codes"
    if facts.type != "text":
        return "blocks" if facts.blocks and facts.distinct <= MOST_CATEGORIES else ""
    if _all(facts.texts, lambda text: bool(_HEXADECIMAL.fullmatch(text) or text.isdecimal())) and (
        facts.numbers < 0.5
    ):
        return "hexadecimal"
    says = (facts.tells or 0) >= SAME or tells_alone(facts) or (facts.beyond or 0) >= FORM
    if says and may_name_classes(facts):
        return "form"
    return "blocks" if facts.blocks else ""


def _doubt(facts: ColumnProfile) -> str:
    """Why a column that is used may give the classes away; empty without such evidence."""
    doubts = []
    if tells_alone(facts):
        doubts.append(f"alone it tells the classes to {facts.alone:.1%} (balanced accuracy)")
    if facts.rises:
        doubts.append("it goes up along the file, as a time does")
    if facts.type != "text" and not is_measurement(facts.name) and (facts.explained or 0) >= SAME:
        doubts.append("the label determines it, as another form of the label would be")
    if (facts.beyond or 0) >= FORM / 2:
        doubts.append(f"it tells {facts.beyond:.0%} of what the measurements leave open")
    return "; ".join(doubts)


def _is_time(facts: ColumnProfile) -> bool:
    """Whether a column holds times of day and year, by its cells."""
    if facts.type == "text":
        return _all(facts.texts, is_date)
    # seconds since 1970 of the years 1999 to 2039, or milli-, micro- or nanoseconds
    units = (1, 1e3, 1e6, 1e9) if facts.type in ("integer", "real") else ()
    return any(facts.lowest >= 9.2e8 * s and facts.highest <= 2.2e9 * s for s in units)


def _all(texts: Iterable[str], predicate: Callable[[str], bool]) -> bool:
    filled = [text for text in texts if text]
    return bool(filled) and all(map(predicate, filled))


def _kind(facts: ColumnProfile) -> str:
    if facts.type in ("integer", "real"):
        return "number"
    if facts.type != "text":
        return TEXT
    if _all(facts.texts, is_ip) and "" not in facts.texts:
        return "address"
    codes = round(facts.numbers * len(facts.texts))  # such as 0 or - for a field that is absent
    texts = facts.numbers < 0.5 or (
        codes <= _CODES and is_measurement(facts.name) and not is_measure(facts.name)
    )
    return "category" if texts and (_few(facts) or _recurs(facts)) else TEXT


def _few(facts: ColumnProfile) -> bool:
    """Whether each text of a column can have a number of its own."""
    short = all(len(text) < LONGEST for text in facts.texts)
    return facts.distinct <= min(MOST_CATEGORIES, max(2, facts.rows // 4)) and short


def _recurs(facts: ColumnProfile) -> bool:
    """Whether a few texts of a column are in so many rows that they are no identifiers.

    A column of another name than a protocol's, flag's, state's or service's must have so few texts
    that what they tell of the classes is known.
    """
    if not any(len(text) < LONGEST for text in facts.texts):
        return False
    if is_measurement(facts.name):
        has_few_values = facts.distinct <= MOST_VALUES or facts.frequent >= _COVERED_FIELD
        return has_few_values and facts.distinct <= facts.rows // 4
    is_categorical = facts.tells is not None and facts.distinct <= facts.rows // 20
    return is_categorical and facts.frequent >= _COVERED


def _values(facts: ColumnProfile) -> dict[str, Any]:
    """The texts of a category, the frequent ones if they are many, and the bits of its numbers."""
    if _few(facts):
        values = sorted(facts.texts)
        return {"bits": len(values).bit_length(), "values": values}
    values = [text for text in facts.texts if len(text) < LONGEST][:MOST_CATEGORIES]
    bits = (len(values) + BUCKETS - 1).bit_length()
    single = min(INDICATORS, len(values))
    return {"bits": bits, "values": values, "buckets": BUCKETS, "indicators": single}


def _no_feature(facts: ColumnProfile) -> str:
    if facts.numbers >= 0.5 and facts.odd:
        return f"numbers and text in one column, such as {facts.odd[:40]!r}"
    return f"text of {facts.distinct:,} different values"


def _usable(facts: ColumnProfile, kind: str) -> str:
    if kind == "category":
        if _few(facts):
            return "a text of few values, each by its number in the list"
        return f"a text of {facts.distinct:,} values, the frequent ones by number, others by hash"
    kind_text = (
        "integers" if facts.type == "integer" else f"numbers of {facts.decimals} decimal places"
    )
    return f"{kind_text} from {facts.lowest:,.10g} to {facts.highest:,.10g}"


def _number(facts: ColumnProfile, unit: str) -> dict[str, Any]:
    """Unit, scale and treatment of odd cells.

    A number keeps as many decimal places as leave 99.9 % of the column within 32 bits. If a tenth
    of a column exceeds 32 bits, it loses its last digits.
    """
    room = math.floor(math.log10(UINT32_MAX / max(facts.usual, 1.0)))
    if room < 0:  # up to a tenth of the rows may be outliers, which become the largest integer
        room = min(0, math.floor(math.log10(UINT32_MAX / max(facts.common, 1.0))))
    places = min(facts.decimals, room)
    finer = _FINER.get(unit, ())
    if finer and places > 0:
        places = 3 * min(-(-places // 3), len(finer), room // 3) or places  # whole SI steps
    out: dict[str, Any] = {"unit": unit, "bits": 32}
    if places:
        step = f"1/{10**places:,}" if places > 0 else f"{10**-places:,}"
        unit_name = finer[places // 3 - 1] if finer and places > 0 and places % 3 == 0 else ""
        out |= {
            "source_unit": unit,
            "unit": unit_name or f"{step} {unit}".rstrip(),
            "scale": 10.0**places,
        }
    if facts.negative >= SPLIT_SHARE * facts.rows:
        out["negative"] = "split"
    return out | {"blank": "largest"}


def _conversation(columns: Iterable[str]) -> list[str] | None:
    """The columns of the 5-tuple, if there is one of each."""
    columns_of: dict[str, list[str]] = {}
    for name in columns:
        role, _ = role_of(name)
        if PROTOCOLS.has(name):
            columns_of.setdefault("protocol", []).append(name)
        elif role in ("address", "port"):
            end = first_row(ENDS, name)
            columns_of.setdefault(f"{end.what if end else ''} {role}", []).append(name)
    key = ("source address", "source port", "destination address", "destination port", "protocol")
    if all(len(columns_of.get(part, ())) == 1 for part in key):
        return [columns_of[part][0] for part in key]
    return None
