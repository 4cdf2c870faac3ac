"""Tables of delimited text, parsed so that every complaint names file, line and column."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from n3ic.errors import DataError, MissingDependencyError

if TYPE_CHECKING:
    import pandas as pd
from n3ic.data.files import Content, printable

MAX_LINE = 1 << 16
SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "vertical bar"}
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
# quoted cells may hide a separator or a line end, and pandas takes truth values for numbers
_SUSPECT = (b'"', b"True", b"true", b"TRUE", b"False", b"false", b"FALSE")


@dataclass(frozen=True)
class Sheet:
    """Separated text whose encoding, separator and first line are known.

    Attributes:
        name: the file, for messages.
        body: UTF-8 bytes without a byte order mark.
        separator: one of :data:`SEPARATORS`.
        first: the cells of the first line, stripped.
    """

    name: str
    body: bytes
    separator: str
    first: tuple[str, ...]


def open_sheet(content: Content) -> Sheet:
    """Check encoding, NUL bytes and line lengths, and find the separator.

    Raises:
        DataError: the text is not UTF-8, holds NUL bytes, or a line that is far too long.
    """
    name, data = content.name, content.data
    body = data.removeprefix(b"\xef\xbb\xbf")
    if (nul := body.find(b"\0")) >= 0:
        raise DataError(f"{name}, line {_line(body, nul)}: a NUL byte; this is no text file")
    if not body.isascii():
        try:
            body.decode()
        except UnicodeDecodeError as error:
            raise DataError(
                f"{name}, line {_line(body, error.start)}: byte 0x{body[error.start]:02x} is "
                "not UTF-8; convert the file to UTF-8"
            ) from error
    if (start := _long_line(body)) >= 0:
        raise DataError(
            f"{name}, line {_line(body, start)}: longer than {MAX_LINE:,} bytes; this is no "
            "table of flows, or its lines do not end in a line feed"
        )
    line = re.split(rb"[\r\n]", body[:MAX_LINE], maxsplit=1)[0].decode(errors="replace")
    if not line.strip():
        raise DataError(f"{name}, line 1: blank; expected the column names or the first flow")
    separator = max(SEPARATORS, key=line.count)
    cells = next(csv.reader([line], delimiter=separator), [])
    return Sheet(name, body, separator, tuple(c.strip() for c in cells))


def _long_line(body: bytes) -> int:
    """Position of a line of more than ``MAX_LINE`` bytes, or -1."""
    start = 0
    while len(body) - start > MAX_LINE:
        end = body.rfind(b"\n", start, start + MAX_LINE + 1)
        if end < 0:
            return start
        start = end + 1
    return -1


def _line(body: bytes, position: int) -> int:
    return body.count(b"\n", 0, position) + 1


def check_header(sheet: Sheet, names: Sequence[str], required: Collection[str]) -> None:
    """Check that a header has every required column, and none twice.

    Args:
        sheet: the table.
        names: the column names of its header, in the data set's spelling.
        required: the columns that must be among them.

    Raises:
        DataError: a column is missing or comes twice, or the separator is not a comma.
    """
    missing = [c for c in required if c not in names]
    if sheet.separator != ",":
        seen = SEPARATORS[sheet.separator]
        raise DataError(
            f"{sheet.name}, line 1: columns are separated by a {seen} ({sheet.separator!r}), "
            "expected a comma; save the table with commas"
        )
    if missing:
        listed = ", ".join(missing[:8]) + (", ..." if len(missing) > 8 else "")
        what = "column" if len(missing) == 1 else "columns"
        raise DataError(
            f"{sheet.name}, line 1: {len(missing)} {what} missing: {listed}; "
            "the header must name each"
        )
    twice = sorted({n for n in names if n and names.count(n) > 1})
    if twice:
        raise DataError(f"{sheet.name}, line 1: column {twice[0]!r} comes twice; keep one")


def parse_sheet(
    sheet: Sheet,
    names: Sequence[str],
    *,
    header: bool,
    numeric: Collection[str],
    text: Collection[str],
    blank_is_zero: Collection[str] = (),
) -> pd.DataFrame:
    """Parse the wanted columns: numbers as float64, text as categories with blanks missing.

    Args:
        sheet: the table.
        names: column names, one for each cell of a line.
        header: whether the first line holds names.
        numeric: columns of finite numbers.
        text: columns of text.
        blank_is_zero: numeric columns whose blank cells mean 0.

    Raises:
        DataError: a line has too few or too many cells, or a cell is not a finite number.
        MissingDependencyError: pandas is not installed.
    """
    try:
        import pandas as pd
    except ImportError as error:
        raise MissingDependencyError(
            "reading tables needs pandas: pip install 'n3ic[train]'"
        ) from error
    unique = [n if n in numeric or n in text else f"\0{i}" for i, n in enumerate(names)]
    wanted = [n for n in unique if not n.startswith("\0")]

    def explain(problem: Exception | str) -> DataError:
        return _locate(sheet, names, header, numeric, blank_is_zero) or DataError(
            f"{sheet.name}: cannot be read as a table: {problem}"
        )

    # exact is the default, and no longer an option, from pandas 3 on
    precision: dict[str, Any] = (
        {} if int(pd.__version__.split(".")[0]) >= 3 else {"float_precision": "round_trip"}
    )
    try:
        frame: pd.DataFrame = pd.read_csv(
            io.BytesIO(sheet.body),
            sep=sheet.separator,
            header=None,
            names=unique,
            usecols=wanted,
            index_col=False,
            skiprows=1 if header else 0,
            dtype={n: "category" if n in text else "float64" for n in wanted},
            keep_default_na=False,
            na_values=[""],
            skipinitialspace=True,
            **precision,
            low_memory=False,
            encoding="utf-8",
        )
    except (ValueError, OverflowError) as error:
        raise explain(error) from error
    if frame.empty:
        raise DataError(f"{sheet.name}: a header and no rows; expected one flow a line")
    cells = (len(frame) + header) * (len(names) - 1)
    if (
        any(word in sheet.body for word in _SUSPECT)
        or sheet.body.count(sheet.separator.encode()) != cells
    ):
        problem = _locate(sheet, names, header, numeric, blank_is_zero)
        if problem is not None:
            raise problem
    for column in blank_is_zero:
        if column in frame:
            frame[column] = frame[column].fillna(0.0)
    numbers = frame[[n for n in wanted if n in numeric]].to_numpy()
    if not abs(numbers).max(initial=0.0) < float("inf"):  # False for NaN as well
        raise explain("a cell is not a finite number")
    return frame


def _locate(
    sheet: Sheet,
    names: Sequence[str],
    header: bool,
    numeric: Collection[str],
    blank_is_zero: Collection[str],
) -> DataError | None:
    """Walk the table cell by cell to the first that breaks the contract."""
    reader = csv.reader(
        io.StringIO(sheet.body.decode(), newline=""), delimiter=sheet.separator, strict=True
    )
    columns = [(i, n, n in blank_is_zero) for i, n in enumerate(names) if n in numeric]
    seen = False
    try:
        for row in reader:
            if not row or (len(row) == 1 and not row[0].strip()):
                continue
            if header and not seen:
                seen = True
                continue
            where = f"{sheet.name}, line {reader.line_num}"
            if len(row) != len(names):
                return DataError(
                    f"{where}: {len(row)} cells, expected {len(names)}; "
                    "the line is cut short or has a stray separator"
                )
            for i, name, blank in columns:
                cell = row[i].strip()
                if _NUMBER.fullmatch(cell) and abs(float(cell)) < float("inf"):
                    continue
                if not cell and blank:
                    continue
                got = f"got {printable(cell)!r}" if cell else "got a blank"
                return DataError(
                    f"{where}, column {name!r}: expected a finite number, {got}; "
                    "correct the cell or remove the line"
                )
    except csv.Error as error:
        return DataError(f"{sheet.name}, line {reader.line_num}: {error}")
    return None


def row_line(sheet: Sheet, header: bool, row: int) -> int:
    """Line number, counted from 1, of a row, counted from 0."""
    reader = csv.reader(io.StringIO(sheet.body.decode(), newline=""), delimiter=sheet.separator)
    left = row + header
    for cells in reader:
        if not cells or (len(cells) == 1 and not cells[0].strip()):
            continue
        if left == 0:
            return reader.line_num
        left -= 1
    return 0
