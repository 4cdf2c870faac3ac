# SPDX-License-Identifier: Apache-2.0
"""Reads one UNSW-NB15 file, in either layout, as integer columns."""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from n3ic.data.dataset import FileFeatures
from n3ic.data.delimited import (
    CHUNK_BYTES,
    Cells,
    Sheet,
    TextColumn,
    check_header,
    open_batches,
    open_sheet,
    parse_sheet,
)
from n3ic.data.files import Content, first_bytes, printable, read_contents
from n3ic.data.narrow_columns import NarrowArray, narrow
from n3ic.data.table_meter import is_parquet
from n3ic.datasets.unsw_nb15.catalogue import (
    BY_NAME,
    COLUMNS,
    NEEDS,
    WINDOWS,
    Column,
    to_units,
    with_derived,
)
from n3ic.datasets.unsw_nb15.columns import (
    ATTACKS,
    BLANK_IS_ZERO,
    FIRST_SYNTHETIC_ID,
    NORMAL,
    PARTITION_COLUMNS,
    PROTOCOL_UNASSIGNED,
    PROTOCOLS,
    RAW_COLUMNS,
    RAW_ONLY,
    SERVICE_OTHER,
    SERVICES,
    STATE_OTHER,
    STATES,
    TEXT_COLUMNS,
    canonical,
)
from n3ic.datasets.unsw_nb15.meter import one_tap
from n3ic.datasets.unsw_nb15.official import NOT_FLOWS
from n3ic.datasets.unsw_nb15.windows import WINDOW_COLUMNS, causal_windows
from n3ic.errors import DataError

UNKNOWN = "Unknown"
_IPV4 = re.compile(r"\d{1,3}(\.\d{1,3}){3}")
_PORT = re.compile(r"\d{1,10}|0[xX][0-9a-fA-F]{1,8}|-?")
_NAME = re.compile(r"[A-Za-z0-9+./-]*[A-Za-z+./-][A-Za-z0-9+./-]*")
_CODE = re.compile(r"\d{1,2}(\.0)?")
_COMMON = tuple(f.name for f in COLUMNS if f.name not in (*RAW_ONLY, "rate"))
_RATE = ("dur", "spkts", "dpkts")


class NotFlowsError(DataError):
    """A known table without flows, or a table of another kind."""


@dataclass(frozen=True, eq=False)
class FlowFile:
    """The flows of one file.

    Attributes:
        layout: ``partition`` or ``raw``.
        columns: unsigned integers of shape ``(rows,)`` per column, in the catalogue's integer unit
            and in the narrowest type.
        label: 0 benign, 1 attack, int64, shape ``(rows,)``.
        category: category of each row; a number as text if the file recodes categories.
        coded: whether the categories are numbers.
        synthetic: whether a generator made the flows, by their ids.
    """

    layout: str
    columns: dict[str, NarrowArray]
    label: Column
    category: NDArray[np.str_]
    coded: bool
    synthetic: bool

    def __len__(self) -> int:
        return len(self.label)

    @property
    def counts(self) -> dict[str, int]:
        """Rows of each category."""
        return {str(k): v for k, v in Counter(self.category.tolist()).items()}


def read_flows(content: Content, *, batch_bytes: int = CHUNK_BYTES) -> FlowFile:
    """Read one file of labelled flows, in batches of about so many bytes; see :func:`flows_of`.

    Raises:
        NotFlowsError: the table is known and holds no flows.
    """
    _refuse_companions(content)
    return _flows(open_batches(content, batch_bytes=batch_bytes), lambda: open_sheet(content))


def flows_of(sheet: Sheet) -> FlowFile:
    """Read the labelled flows of a table.

    Raises:
        NotFlowsError: the table is of another kind.
        DataError: the table breaks the layout; the error names file, line and column.
    """
    return _flows([sheet], lambda: sheet)


@dataclass(frozen=True, eq=False)
class _Batch:
    """Some rows of a file: its columns, labels, categories as in the file, and whether made."""

    columns: Mapping[str, NarrowArray]
    label: NarrowArray
    category: TextColumn
    synthetic: bool


def _flows(batches: Iterable[Sheet], whole: Callable[[], Sheet]) -> FlowFile:
    """The flows of a file in batches; ``whole`` gives it in one piece, to find a row's line."""
    layout, header, parts = "", True, []
    for sheet in batches:
        if not layout:
            layout, names, header = _layout(sheet)
            known = {*BY_NAME, "id", "attack_cat", "label"}
            names = [n if n in known else "" for n in names]
        parts.append(_batch(sheet, names, header))
    label = np.concatenate([part.label for part in parts]).astype(np.int64)
    codes: dict[str, int] = {}
    used = [
        np.array([codes.setdefault(t, len(codes)) for t in part.category.texts], dtype=np.intp)[
            part.category.codes
        ]
        for part in parts
    ]
    categories = TextColumn((*codes,), np.concatenate(used))
    category, coded = _categories(whole, header, categories, label)
    columns = {n: np.concatenate([part.columns[n] for part in parts]) for n in parts[0].columns}
    return FlowFile(layout, columns, label, category, coded, any(part.synthetic for part in parts))


def _batch(sheet: Sheet, names: Sequence[str], header: bool) -> _Batch:
    cells = _parse(sheet, names, header)
    columns = _columns(sheet, header, cells)
    ids = cells.numbers.get("id", np.zeros(0))
    raw_label = cells.numbers["label"]
    wrong = (raw_label != 0) & (raw_label != 1)
    if wrong.any():
        row = int(np.argmax(wrong))
        problem = f"expected 0 or 1, got {raw_label[row]:g}; correct the cell"
        raise sheet.cell_error(header, row, "label", problem)
    return _Batch(
        {name: narrow(values) for name, values in columns.items()},
        raw_label.astype(np.uint8),
        cells.texts["attack_cat"],
        bool((ids >= FIRST_SYNTHETIC_ID).any()),
    )


def read_whole(path: Path, names: Collection[str]) -> FileFeatures | None:
    """Features of a file, if some count over recent flows, and the meter that counts alike.

    Raises:
        DataError: the file holds several tables, a column is missing, or a cell is malformed.
    """
    if not _windows(names) or not path.is_file() or is_parquet(path):
        return None
    contents = list(read_contents(path))
    if len(contents) != 1:
        raise DataError(
            f"{path}: {len(contents)} tables; flows are counted over one table: name a single one"
        )
    features = read_features(open_sheet(contents[0]), names, whole=True)
    return FileFeatures(features, one_tap(windows=True))


def _windows(names: Collection[str]) -> list[str]:
    """The wanted features that count over recent flows."""
    return sorted({f.name for f in WINDOWS} & {*names})


def read_features(
    sheet: Sheet, feature_names: Collection[str], *, whole: bool = False
) -> dict[str, Column]:
    """Read integer features of flows that may lack labels, derived ones included.

    Args:
        sheet: table in either layout; only the columns behind ``feature_names`` are required.
        feature_names: names of features.
        whole: whether the sheet certainly has all rows of its file.

    Raises:
        DataError: a column is missing, or a cell is malformed.
    """
    windows = _windows(feature_names)
    if windows and not whole and sheet.memory is None:
        raise DataError(
            f"{sheet.name}: {windows[0]} counts over recent flows, but this table is read in "
            "pieces: name a raw file that is no Parquet, or a capture"
        )
    header = not _is_bare(sheet)
    names = [canonical(c) for c in sheet.first] if header else list(RAW_COLUMNS)
    alone = {*feature_names} - {*windows}
    needed = {n for f in alone for n in NEEDS.get(f, (f,))} | {*(WINDOW_COLUMNS if windows else ())}
    if "rate" in needed and "rate" not in names:
        needed = needed - {"rate"} | {*_RATE}
    check_header(sheet, names, sorted(needed))
    cells = _parse(sheet, [n if n in needed else "" for n in names], header)
    columns = with_derived(_columns(sheet, header, cells), alone)
    columns |= causal_windows(columns) if windows else {}
    return {name: columns[name] for name in feature_names}


def recognises(path: Path) -> bool:
    """Whether a file has most of the columns, even if it is malformed in other ways."""
    start = first_bytes(path)
    try:
        sheet = open_sheet(Content(str(path), start[: start.find(b"\n", 200) + 1] or start))
    except DataError:
        return False
    return _is_bare(sheet) or _is_known([canonical(c) for c in sheet.first])


def has_layout(sheet: Sheet) -> bool:
    """Whether a table has most columns of a layout, and protocols or states as names."""
    if _is_bare(sheet):
        return True
    names = [canonical(c) for c in sheet.first]
    _, row = next(sheet.as_text(1).rows(True), (0, []))
    name_cells = [n in ("proto", "state") and _NAME.fullmatch(c.strip()) is not None
             for n, c in zip(names, row, strict=False)]  # fmt: skip
    return _is_known(names) and any(name_cells)


def _parse(sheet: Sheet, names: Sequence[str], header: bool) -> Cells:
    numeric = [n for n in names if n and n not in TEXT_COLUMNS]
    return parse_sheet(
        sheet,
        names,
        header=header,
        numeric=numeric,
        text=[n for n in TEXT_COLUMNS if n in names],
        whole=[n for n in numeric if n in BY_NAME and BY_NAME[n].scale == 1],
        blank_is_zero=BLANK_IS_ZERO,
    )


def _columns(sheet: Sheet, header: bool, cells: Cells) -> dict[str, Column]:
    """The features among the cells in the catalogue's integer units."""
    columns: dict[str, Column] = {}
    for name, values in cells.numbers.items():
        if name not in BY_NAME:
            continue
        lowest = -1 if name in BLANK_IS_ZERO else 0  # a public copy writes a blank as -1
        if (values < lowest).any():
            row = int(np.argmax(values < lowest))
            problem = f"expected 0 or more, got {values[row]:g}; correct the cell"
            raise sheet.cell_error(header, row, name, problem)
        columns[name] = to_units(name, values)
    for name, (code, expected) in _CODES.items():
        if name in cells.texts:
            columns[name] = _coded(sheet, header, name, cells.texts[name], code, expected)
    if "rate" not in columns and set(_RATE) <= {*columns}:
        # The partition files' own definition; the data card names the rows that differ from it.
        gaps = columns["spkts"] + columns["dpkts"] - 1
        seconds = cells.numbers["dur"]
        rate = np.divide(gaps, seconds, out=np.zeros(len(gaps)), where=seconds > 0)
        columns["rate"] = to_units("rate", rate)
    return columns


def _coded(
    sheet: Sheet,
    header: bool,
    name: str,
    column: TextColumn,
    code: Callable[[str], int | None],
    expected: str,
) -> Column:
    codes = [code(t) for t in column.texts]
    bad = np.array([c is None for c in codes], dtype=np.bool_)
    if bad[column.codes].any():
        row = int(np.argmax(bad[column.codes]))
        cell = printable(column.texts[column.codes[row]])
        problem = f"expected {expected}, got {cell!r}; correct the cell"
        raise sheet.cell_error(header, row, name, problem)
    return np.array([c or 0 for c in codes], dtype=np.int64)[column.codes]


def _refuse_companions(content: Content) -> None:
    first = content.data.removeprefix(b"\xef\xbb\xbf")[:200].split(b"\n")[0]
    cells = [c.strip().strip('"').lower() for c in first.decode("cp1252", "replace").split(",")]
    description = NOT_FLOWS.get((cells[0], cells[1])) if len(cells) > 1 else None
    if description:
        raise NotFlowsError(f"{content.name}: {description}")


def _is_bare(sheet: Sheet) -> bool:
    """Whether a table is a raw file without a header."""
    first = sheet.first
    return (
        len(first) == len(RAW_COLUMNS)
        and _IPV4.fullmatch(first[0]) is not None
        and _IPV4.fullmatch(first[2]) is not None
    )


def _is_known(names: Sequence[str]) -> bool:
    known = {*PARTITION_COLUMNS, *RAW_COLUMNS}
    return sum(n in known for n in names) >= len(PARTITION_COLUMNS) // 2


def _layout(sheet: Sheet) -> tuple[str, list[str], bool]:
    """The layout, the canonical name of each column, and whether there is a header."""
    first = sheet.first
    if _is_bare(sheet):
        return "raw", list(RAW_COLUMNS), False
    names = [canonical(c) for c in first]
    if not _is_known(names) and sheet.separator == ",":
        if sheet.remarks and len(PARTITION_COLUMNS) - 1 <= len(first) <= len(PARTITION_COLUMNS):
            raise DataError(
                f"{sheet.name}, line 1: no header; a file in the partition layout starts with "
                "the column names id,dur,proto,..."
            )
        cells_text = ", ".join(printable(c, 20) for c in first[:4])
        raise NotFlowsError(
            f"{sheet.name}, line 1: not an UNSW-NB15 table; expected columns such as "
            f"dur, proto, state, sbytes, got {cells_text}"
        )
    layout = "raw" if {"srcip", "stime", "dsport"} & set(names) else "partition"
    extra = RAW_ONLY if layout == "raw" else ("rate",)
    check_header(sheet, names, [*_COMMON, *extra, "attack_cat", "label"])
    return layout, names, True


def _protocol(text: str) -> int | None:
    if not _NAME.fullmatch(text) or text == "-":
        return None
    return PROTOCOLS.get(text.lower(), PROTOCOL_UNASSIGNED)


def _service(text: str) -> int | None:
    if text == "":
        return 0
    return SERVICES.get(text.lower(), SERVICE_OTHER) if _NAME.fullmatch(text) else None


def _state(text: str) -> int | None:
    return STATES.get(text.lower(), STATE_OTHER) if _NAME.fullmatch(text) else None


def _address(text: str) -> int | None:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    return int(address) if address.version == 4 else 0


def _port(text: str) -> int | None:
    if not _PORT.fullmatch(text):
        return None
    value = int(text, 0) if text.lower().startswith("0x") else int(text or 0) if text != "-" else 0
    return min(value, 65535)


_CODES: Mapping[str, tuple[Callable[[str], int | None], str]] = {
    "proto": (_protocol, "a protocol name"),
    "service": (_service, "a service name or '-'"),
    "state": (_state, "a state name"),
    "srcip": (_address, "an address"),
    "dstip": (_address, "an address"),
    "sport": (_port, "a port, decimal or hexadecimal"),
    "dsport": (_port, "a port, decimal or hexadecimal"),
}

_SPELLINGS = {"": NORMAL, "normal": NORMAL, "backdoors": "Backdoor"} | {
    name.lower(): name for name in ATTACKS
}


def _categories(
    whole: Callable[[], Sheet], header: bool, column: TextColumn, label: Column
) -> tuple[NDArray[np.str_], bool]:
    """Category of each row, and whether the file recodes categories as numbers."""
    texts, used = column.texts, column.codes
    names = [t for t in texts if t]
    if names and all(_CODE.fullmatch(t) for t in names):
        return np.array([t and str(int(float(t))) for t in texts])[used], True
    known = [_SPELLINGS.get(t.lower()) for t in texts]
    bad = np.array([k is None for k in known], dtype=np.bool_)
    if bad[used].any():
        row = int(np.argmax(bad[used]))
        raise whole().cell_error(
            header,
            row,
            "attack_cat",
            f"unknown category {printable(texts[used[row]])!r}; expected {NORMAL} or one of "
            f"{', '.join(ATTACKS)}",
        )
    category = np.array([k or "" for k in known])[used]
    blank = np.array([t == "" for t in texts])[used]
    category = np.where(blank & (label == 1), UNKNOWN, category)
    clash = (category == NORMAL) != (label == 0)
    if clash.any():
        row = int(np.argmax(clash))
        raise whole().cell_error(
            header,
            row,
            "label",
            f"label {label[row]} contradicts the category {str(category[row])!r}; correct one",
        )
    return category, False
