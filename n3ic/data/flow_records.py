# SPDX-License-Identifier: Apache-2.0
"""Flow records in lines of JSON: Zeek's ``conn`` log and the ``flow`` events of Suricata's EVE.

Each record becomes a line of comma-separated text, and keys of nested objects are joined by a
point. Numbers keep their digits. A key that a record lacks is a blank cell.
"""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from n3ic.data.files import printable
from n3ic.errors import DataError

MOST_KEYS = 4096
MOST_LINE = 4 << 20  # bytes; statistics of Suricata are long, though they are left out
_GROWTH, _ROOM = 8, 64 << 20  # a hostile file of ever new keys would grow without bound
_DEEPEST = 16


@dataclass(frozen=True)
class FlowRecords:
    """Flow records as comma-separated text.

    Attributes:
        names: names of the columns; empty while no record was a flow.
        body: a line for each line of JSON, blank for one that is left out; without names.
        left_out: how many records of each kind are left out.
    """

    names: tuple[str, ...]
    body: bytes
    left_out: Mapping[str, int]


def is_json(text: bytes) -> bool:
    """Whether a text begins like lines of JSON objects."""
    begin = text[:256].lstrip()
    return begin.startswith(b"{") and begin[1:].lstrip()[:1] in (b'"', b"}", b"")


def flow_records(name: str, text: bytes, line: int, names: Sequence[str] = ()) -> FlowRecords:
    """Convert lines of JSON.

    Args:
        name: the file, for messages.
        text: whole lines.
        line: number of the first line.
        names: the columns, known from earlier lines; empty to take every key of the text.

    Raises:
        DataError: a line is no JSON object, is cut short or nested too deeply, has one key twice,
            or there are too many keys.
    """
    rows: list[dict[str, str] | None] = []
    left_out: Counter[str] = Counter()
    keys = dict.fromkeys(names)
    for number, raw in enumerate(text.split(b"\n"), line):
        record = _parsed(f"{name}, line {number}", raw) if raw.strip() else None
        kind = None if record is None else _other_kind(record)
        if record is None or kind is not None:
            rows.append(None)
            left_out.update([kind] if kind else [])
            continue
        flow = dict(_flat(f"{name}, line {number}", record, "", 0))
        rows.append(flow)
        if not names:
            keys.update(dict.fromkeys(flow))
            if len(keys) > MOST_KEYS:
                raise DataError(f"{name}, line {number}: more than {MOST_KEYS:,} different keys")
    columns = tuple(keys)
    if len(columns) * len(rows) > _GROWTH * len(text) + _ROOM:
        raise DataError(f"{name}: {len(columns):,} different keys, nearly all of them blank")
    return FlowRecords(columns, _text(rows, columns), left_out)


def _parsed(where: str, raw: bytes) -> dict[str, Any]:
    """The object of a line; its numbers are texts.

    Raises:
        DataError: the line holds no JSON object, or has a key twice.
    """

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        out = dict(pairs)
        if len(out) < len(pairs):
            repeated = next(key for key, n in Counter(k for k, _ in pairs).items() if n > 1)
            raise DataError(f"{where}: the key {printable(repeated)!r} comes twice; keep one")
        return out

    try:
        record = json.loads(
            raw, object_pairs_hook=once, parse_int=str, parse_float=str, parse_constant=str
        )
    except RecursionError as error:
        raise DataError(f"{where}: JSON of too many levels; expected a flow record") from error
    except ValueError as error:
        raise DataError(
            f"{where}: expected one JSON object a line, as Zeek and Suricata write them ({error}); "
            "the line is cut short, or the object spans several lines"
        ) from error
    if not isinstance(record, dict):
        raise DataError(f"{where}: expected a JSON object, got {printable(raw.decode()[:40])}")
    return record


def _other_kind(record: Mapping[str, Any]) -> str | None:
    """The kind of a record that is no flow; None for a flow."""
    if "event_type" in record:  # Suricata
        kind = record["event_type"]
        return None if kind == "flow" else f"records of event_type {printable(str(kind), 40)}"
    if "_path" in record:  # Zeek, several logs in one
        kind = record["_path"]
        return None if kind == "conn" else f"records of {printable(str(kind), 40)}.log"
    is_conn = "conn_state" in record or {"orig_pkts", "resp_pkts"} <= record.keys()
    return None if is_conn else "records that are no flows"


def _flat(
    where: str, record: Mapping[str, Any], prefix: str, depth: int
) -> Iterator[tuple[str, str]]:
    """Keys with their cells; those of nested objects follow the outer key and a point.

    Raises:
        DataError: the record has too many levels, or two keys become one.
    """
    if depth > _DEEPEST:
        raise DataError(f"{where}: more than {_DEEPEST} levels of JSON; expected a flow record")
    names = set()
    for key, value in record.items():
        cells = (
            _flat(where, value, f"{prefix}{key}.", depth + 1)
            if isinstance(value, dict)
            else [(f"{prefix}{key}", _cell(value))]
        )
        for full, cell in cells:
            if full in names:
                raise DataError(f"{where}: the key {printable(full)!r} comes twice; keep one")
            names.add(full)
            yield full, cell


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    text = value if isinstance(value, str) else json.dumps(value)
    return " ".join(text.replace("\0", " ").splitlines())


def _text(rows: Sequence[Mapping[str, str] | None], names: Sequence[str]) -> bytes:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for row in rows[:-1] if rows and rows[-1] is None else rows:
        if row is None:
            out.write("\n")
        else:
            writer.writerow([row.get(name, "") for name in names])
    return out.getvalue().encode("utf-8", "replace")
