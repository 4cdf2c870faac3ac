"""One UNSW-NB15 file, in either layout, as integer columns."""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from n3ic.data.delimited import Sheet, check_header, open_sheet, parse_sheet, row_line
from n3ic.data.files import Content, printable
from n3ic.datasets.unsw_nb15.catalogue import BY_NAME, COLUMNS, Column, to_units
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
from n3ic.datasets.unsw_nb15.official import NOT_FLOWS
from n3ic.errors import DataError

UNKNOWN = "Unknown"
_IPV4 = re.compile(r"\d{1,3}(\.\d{1,3}){3}")
_PORT = re.compile(r"\d{1,10}|0[xX][0-9a-fA-F]{1,8}|-?")
_NAME = re.compile(r"[A-Za-z0-9+./-]*[A-Za-z+./-][A-Za-z0-9+./-]*")
_CODE = re.compile(r"\d{1,2}(\.0)?")
_COMMON = tuple(f.name for f in COLUMNS if f.name not in (*RAW_ONLY, "rate"))


class NotFlowsError(DataError):
    """A table that is published beside the flows, or one that has nothing of theirs."""


@dataclass(frozen=True, eq=False)
class FlowFile:
    """The flows of one file.

    Attributes:
        layout: ``partition`` or ``raw``.
        columns: int64 array of shape ``(rows,)`` per column, in the catalogue's integer unit.
        label: 0 benign, 1 attack, int64, shape ``(rows,)``.
        category: category of each row; a number in text where the file recodes categories.
        coded: whether the categories are numbers.
        synthetic: whether a generator made the flows, by their ids.
    """

    layout: str
    columns: dict[str, Column]
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


def read_flows(content: Content, *, labelled: bool = True) -> FlowFile:
    """Read one file whole.

    Args:
        content: its bytes.
        labelled: whether the label columns must be there; without them every row is benign.

    Raises:
        NotFlowsError: the table is known and holds no flows, or is another table altogether.
        DataError: the file breaks the layout; names file, line and column.
    """
    _refuse_companions(content)
    sheet = open_sheet(content)
    layout, names, header = _layout(sheet, labelled)
    names = [n if n in BY_NAME or n in ("id", "attack_cat", "label") else "" for n in names]
    text = [n for n in TEXT_COLUMNS if n in names]
    numeric = [n for n in names if n and n not in TEXT_COLUMNS]
    frame = parse_sheet(
        sheet, names, header=header, numeric=numeric, text=text, blank_is_zero=BLANK_IS_ZERO
    )

    def at(row: int, column: str, problem: str) -> DataError:
        line = row_line(sheet, header, row)
        return DataError(f"{sheet.name}, line {line}, column {column!r}: {problem}")

    def coded(column: str, code: Callable[[str], int | None], expected: str) -> Column:
        values = frame[column].cat
        texts = [str(t).strip() for t in values.categories]
        codes = [code(t) for t in ["", *texts]]
        used = np.asarray(values.codes, dtype=np.intp) + 1
        bad = np.array([c is None for c in codes])
        if bad[used].any():
            row = int(np.argmax(bad[used]))
            got = printable(["", *texts][used[row]])
            raise at(row, column, f"expected {expected}, got {got!r}; correct the cell")
        return np.array([c or 0 for c in codes], dtype=np.int64)[used]

    columns: dict[str, Column] = {}
    for name in numeric:
        if name in ("id", "label"):
            continue
        values = frame[name].to_numpy()
        lowest = -1 if name in BLANK_IS_ZERO else 0  # a public copy writes a blank as -1
        if (values < lowest).any():
            row = int(np.argmax(values < lowest))
            raise at(row, name, f"expected 0 or more, got {values[row]:g}; correct the cell")
        columns[name] = to_units(name, values)
    columns["proto"] = coded("proto", _protocol, "a protocol name")
    columns["service"] = coded("service", _service, "a service name or '-'")
    columns["state"] = coded("state", _state, "a state name")
    if layout == "raw":
        for name in ("srcip", "dstip"):
            columns[name] = coded(name, _address, "an address")
        for name in ("sport", "dsport"):
            columns[name] = coded(name, _port, "a port, decimal or hexadecimal")
    if "rate" not in columns:
        columns["rate"] = _rate(columns, frame["dur"].to_numpy())
    rows = len(frame)
    synthetic = "id" in names and bool((frame["id"].to_numpy() >= FIRST_SYNTHETIC_ID).any())
    if "label" not in names:
        return FlowFile(
            layout, columns, np.zeros(rows, np.int64), np.full(rows, NORMAL), False, synthetic
        )
    raw_label = frame["label"].to_numpy()
    wrong = (raw_label != 0) & (raw_label != 1)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise at(row, "label", f"expected 0 or 1, got {raw_label[row]:g}; correct the cell")
    label = raw_label.astype(np.int64)
    category, is_coded = _categories(frame["attack_cat"], label, at)
    return FlowFile(layout, columns, label, category, is_coded, synthetic)


def _refuse_companions(content: Content) -> None:
    first = content.data.removeprefix(b"\xef\xbb\xbf")[:200].split(b"\n")[0]
    cells = [c.strip().strip('"').lower() for c in first.decode("cp1252", "replace").split(",")]
    what = NOT_FLOWS.get((cells[0], cells[1])) if len(cells) > 1 else None
    if what:
        raise NotFlowsError(f"{content.name}: {what}")


def _layout(sheet: Sheet, labelled: bool) -> tuple[str, list[str], bool]:
    """The layout, the canonical name of each column, and whether there is a header."""
    first = sheet.first
    if len(first) == len(RAW_COLUMNS) and _IPV4.fullmatch(first[0]) and _IPV4.fullmatch(first[2]):
        return "raw", list(RAW_COLUMNS), False
    names = [canonical(c) for c in first]
    known = {*PARTITION_COLUMNS, *RAW_COLUMNS}
    if sum(n in known for n in names) < len(PARTITION_COLUMNS) // 2 and sheet.separator == ",":
        if len(first) in (len(PARTITION_COLUMNS), len(PARTITION_COLUMNS) - 1) and _CODE.match(
            first[0]
        ):
            raise DataError(
                f"{sheet.name}, line 1: no header; a file in the partition layout starts with "
                "the column names id,dur,proto,..."
            )
        shown = ", ".join(printable(c, 20) for c in first[:4])
        raise NotFlowsError(
            f"{sheet.name}, line 1: not an UNSW-NB15 table; expected columns such as "
            f"dur, proto, state, sbytes, got {shown}"
        )
    layout = "raw" if {"srcip", "stime", "dsport"} & set(names) else "partition"
    required = [*_COMMON, *(RAW_ONLY if layout == "raw" else ("rate",))]
    if labelled:
        required += ["attack_cat", "label"]
    elif not {"attack_cat", "label"} <= set(names):
        names = ["" if n in ("attack_cat", "label") else n for n in names]
    check_header(sheet, names, required)
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


def _rate(columns: dict[str, Column], seconds: NDArray[np.float64]) -> Column:
    # the partition files' own definition; see the data card for the rows where theirs differs
    gaps = columns["spkts"] + columns["dpkts"] - 1
    rate = np.divide(gaps, seconds, out=np.zeros(len(gaps)), where=seconds > 0)
    return to_units("rate", rate)


_SPELLINGS = {"": NORMAL, "normal": NORMAL, "backdoors": "Backdoor"} | {
    name.lower(): name for name in ATTACKS
}


def _categories(
    cells: object, label: Column, at: Callable[[int, str, str], DataError]
) -> tuple[NDArray[np.str_], bool]:
    """Category of each row, and whether the file recodes categories as numbers."""
    values = cells.cat  # type: ignore[attr-defined]
    texts = ["", *(str(t).strip() for t in values.categories)]
    used = np.asarray(values.codes, dtype=np.intp) + 1
    if len(texts) > 1 and all(_CODE.fullmatch(t) for t in texts[1:]):
        names = ["", *(str(int(float(t))) for t in texts[1:])]
        return np.array(names)[used], True
    known = [_SPELLINGS.get(t.lower()) for t in texts]
    bad = np.array([k is None for k in known])
    if bad[used].any():
        row = int(np.argmax(bad[used]))
        raise at(
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
        raise at(
            row,
            "label",
            f"label {label[row]} contradicts the category {str(category[row])!r}; correct one",
        )
    return category, False
