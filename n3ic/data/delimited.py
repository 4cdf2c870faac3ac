# SPDX-License-Identifier: Apache-2.0
"""Parse tables of delimited text; every error names file, line and column."""

from __future__ import annotations

import csv
import io
import re
from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from n3ic.data.cell_text import NO_NUMBER, NUMBER
from n3ic.data.files import Content, first_bytes, printable
from n3ic.data.first_line import names_without_header
from n3ic.data.flow_records import MOST_LINE, flow_records, is_json
from n3ic.data.number_marks import Mark, plain_numbers
from n3ic.errors import DataError, did_you_mean

Units = Literal["nic", "source"]
Numbers = NDArray[np.int64] | NDArray[np.float64]

MAX_LINE = 1 << 16  # bytes; a longer line is not a flow
CHUNK_BYTES = 8 << 20
LARGEST_WHOLE = 2**63 - 1
SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "vertical bar"}
_UNITS = re.compile(rb"#[ \t]*n3ic-units:[ \t]*(.*?)[ \t]*\r?(?:\n|\Z)")
_ZEEK_FIELDS = re.compile(rb"^#fields\t", re.MULTILINE)
_ZEEK_COMMENT = re.compile(rb"^#.*(?:\n|\Z)", re.MULTILINE)
_BLANKS = re.compile(rb" {2,}")
_LOOKED_AT = 1 << 16  # bytes that tell whether the first line holds names
_REPEATED = "lines that repeat the names of the columns"
_NO_NUMBER_LOWER = frozenset(text.lower() for text in NO_NUMBER)


class TableInMemory(Protocol):
    """A table in memory, whose cells are those of the text that its library writes."""

    @property
    def sha256(self) -> str:
        """SHA-256 of that text, in hexadecimal."""

    def text(self, rows: int | None = None) -> bytes:
        """That text, or its first rows below the names."""

    def table(self) -> Any | None:
        """All cells as an Arrow table, each column of the narrowest type; None to read the text."""

    def cells(self, columns: Wanted) -> Cells | None:
        """The wanted columns; None if the text must be read instead."""


@dataclass(frozen=True)
class Sheet:
    """Separated text whose encoding, separator and first line are known.

    Attributes:
        name: the file, for messages.
        body: UTF-8 bytes without a byte order mark or a line of units.
        separator: one of :data:`SEPARATORS`.
        first: the cells of the table's first line, stripped.
        units: the units that the file's line of units names; None without such a line.
        line: number of the body's first line in the file.
        continued: whether the body continues an earlier sheet of the file, without a header.
        zeek: whether it is a Zeek log, whose names follow ``#fields``; the body has neither that
            word nor lines that begin with ``#``.
        row: the word for a line of the body in messages.
        memory: the table in memory that stands for a body, which is then empty.
        blanks: whether blanks separate the last columns of a Zeek log.
        header: the table's first line, if it holds names that a later line may repeat.
        records: whether the rows were flow records in JSON, which may lack keys.
        decimal: the decimal mark that the table shows; None without any.
        remarks: how the file was read, as sentences.
        left_out: number of lines that are left out, by what they are.
    """

    name: str
    body: bytes
    separator: str
    first: tuple[str, ...]
    units: Units | None = None
    line: int = 1
    continued: bool = False
    zeek: bool = False
    row: str = "line"
    memory: TableInMemory | None = None
    blanks: bool = False
    header: bytes = b""
    records: bool = False
    decimal: Mark | None = None
    remarks: tuple[str, ...] = ()
    left_out: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name

    def as_text(self, rows: int | None = None) -> Sheet:
        """The table, or the first rows of one in memory, with a body.

        Raises:
            DataError: as :func:`open_sheet`.
        """
        if self.memory is None:
            return self
        content = Content(self.name, self.memory.text(rows))
        return replace(open_sheet(content, named=True), line=0, row="row")

    def with_blank(self, names: Iterable[str]) -> Sheet:
        """The flow records with blank columns of these names in addition."""
        more = tuple(names)
        if not more:
            return self
        first = b"" if self.continued else self.body[: self.body.find(b"\n")]
        head = b"," + ",".join(more).encode() if first else b""
        lines = re.sub(rb"(?m)(?<=.)$", b"," * len(more), self.body[len(first) :])
        return replace(self, body=first + head + lines, first=(*self.first, *more))

    def rows(self, header: bool) -> Iterator[tuple[int, list[str]]]:
        """The number of the line on which each row ends, and the row's cells.

        Args:
            header: whether the table's first line holds names.

        Raises:
            DataError: a quoted cell does not end.
        """
        if self.memory is not None:
            yield from self.as_text().rows(header)
            return
        text = io.StringIO(self.body.decode(), newline="")
        reader = csv.reader(text, delimiter=self.separator, strict=True)
        skip = header and not self.continued
        try:
            for row in reader:
                if not row or (len(row) == 1 and not row[0].strip()):
                    continue
                if skip:
                    skip = False
                    continue
                yield self.line + reader.line_num - 1, row
        except csv.Error as error:
            line = self.line + reader.line_num - 1
            raise DataError(f"{self.name}, {self.row} {line}: {error}") from error

    def cell_error(self, header: bool, row: int, column: str, problem: str) -> DataError:
        """Make the error for the cell of a row, counted from 0."""
        line = next((n for i, (n, _) in enumerate(self.rows(header)) if i == row), 0)
        return DataError(f"{self.name}, {self.row} {line}, column {column!r}: {problem}")


@dataclass(frozen=True, eq=False)
class TextColumn:
    """A column of text.

    Attributes:
        texts: the different cells, stripped.
        codes: index in ``texts`` of each row, shape ``(rows,)``.
    """

    texts: tuple[str, ...]
    codes: NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Cells:
    """The wanted columns of a sheet.

    Attributes:
        rows: number of rows.
        numbers: finite numbers by column, int64 (if all are integers) or float64 ``(rows,)``.
        texts: the columns of text.
    """

    rows: int
    numbers: Mapping[str, Numbers]
    texts: Mapping[str, TextColumn]


def open_sheet(
    content: Content,
    *,
    units: Units | None = "source",
    named: bool = False,
    decimal: Mark | None = None,
) -> Sheet:
    """Check encoding, NUL bytes and line lengths, and find the separator.

    Args:
        content: the bytes of a file.
        units: the units that the file may name; None for any.
        named: whether the first line certainly holds names.
        decimal: the decimal mark where the text fits two; None to refuse such a text.

    Raises:
        DataError: the text is not UTF-8, holds NUL bytes or a line that is far too long, or its
            numbers are in other units.
    """
    size = len(content.data) + 1
    (sheet,) = stream_sheets(
        content.name, [content.data], chunk_bytes=size, named=named, decimal=decimal
    )
    return _in_units(sheet, units)


def open_batches(
    content: Content, *, units: Units | None = "source", batch_bytes: int = CHUNK_BYTES
) -> Iterator[Sheet]:
    """The sheet of :func:`open_sheet` in batches of whole lines, which take less memory to parse.

    Args:
        content: the bytes of a file.
        units: the units that the file may name; None for any.
        batch_bytes: about how many bytes a batch has.

    Raises:
        DataError: as :func:`open_sheet`.
    """
    starts = range(0, max(1, len(content.data)), batch_bytes)
    pieces = (content.data[i : i + batch_bytes] for i in starts)
    for sheet in stream_sheets(content.name, pieces, chunk_bytes=batch_bytes):
        yield _in_units(sheet, units)


def _in_units(sheet: Sheet, units: Units | None) -> Sheet:
    """The sheet itself, if its numbers are in these units."""
    if units is not None and sheet.units not in (None, units):
        raise DataError(
            f"{sheet.name}, line 1: the numbers are in {sheet.units} units, expected {units} units"
        )
    return sheet


def stream_sheets(
    name: str,
    pieces: Iterable[bytes],
    *,
    chunk_bytes: int = CHUNK_BYTES,
    named: bool = False,
    decimal: Mark | None = None,
) -> Iterator[Sheet]:
    """Split text into sheets of whole lines, each of about ``chunk_bytes``.

    Args:
        name: the file, for messages.
        pieces: its bytes.
        chunk_bytes: bytes of a sheet; bounds the memory.
        named: whether the first line certainly holds names.
        decimal: the decimal mark where the text fits two; None to refuse such a text.

    Raises:
        DataError: as :func:`open_sheet`.
    """
    buffer = bytearray()
    sheet: Sheet | None = None
    records: bool | None = None
    for piece in pieces:
        buffer += piece
        if len(buffer) < chunk_bytes:
            continue
        if records is None:
            records = is_json(bytes(buffer[:256]))
        end = buffer.rfind(b"\n") + 1 if records else _last_line_end(buffer)
        if sheet is None and not records and buffer.count(b"\n", 0, end) < 3:
            end = 0  # units, header and a row belong together
        if not end and len(buffer) > chunk_bytes + (MOST_LINE if records else MAX_LINE):
            _check_text(name, bytes(buffer), _next_line(sheet))
            reason = "a line does not end" if records else "a quote does not end"
            raise DataError(f"{name}, line {_next_line(sheet)} or below: {reason}")
        if end:
            sheet = _sheet(name, bytes(buffer[:end]), sheet, named, decimal)
            if sheet.first:
                yield sheet
            del buffer[:end]
    if sheet is None or not sheet.first or buffer.strip():
        sheet = _sheet(name, bytes(buffer), sheet, named, decimal)
        if not sheet.first:
            reasons = ", ".join(f"{n:,} {reason}" for reason, n in sheet.left_out.items())
            raise DataError(
                f"{name}: no flow in this JSON ({reasons or 'no record'}); expected Zeek's conn "
                "log or flow events of Suricata's EVE, one record a line, or a CSV file"
            )
        yield sheet


def remarks_of(sheets: Iterable[Sheet]) -> list[str]:
    """How files were read, and what was left out of them, as sentences."""
    remarks: dict[str, None] = {}
    left_out: Counter[tuple[str, str]] = Counter()
    for sheet in sheets:
        remarks.update(dict.fromkeys(f"{sheet.name}: {remark}" for remark in sheet.remarks))
        left_out.update({(sheet.name, reason): n for reason, n in sheet.left_out.items()})
    lines = (f"{name}: left out {n:,} {reason}" for (name, reason), n in left_out.items())
    return [*remarks, *lines]


def _last_line_end(text: bytearray) -> int:
    """Position after the last line end outside of quotes; 0 if there is no such line end."""
    # A line end with an odd number of quotes before it is inside a quoted cell.
    end = text.rfind(b"\n") + 1
    inside = text.count(b'"', 0, end) % 2
    while end and inside:
        start = text.rfind(b"\n", 0, end - 1) + 1
        inside ^= text.count(b'"', start, end) % 2
        end = start
    return end


def _next_line(before: Sheet | None) -> int:
    return 1 if before is None else before.line + before.body.count(b"\n")


def _sheet(
    name: str, body: bytes, before: Sheet | None, named: bool, decimal: Mark | None
) -> Sheet:
    if before is not None:
        line = _next_line(before)
        if before.records:
            return _records(name, body, line, before)
        _check_text(name, body, line)
        if before.zeek:
            body = _zeek_lines(body, blanks=before.blanks)
        body, left_out = _without_headers(body, before.header)
        sheet = replace(before, body=body, line=line, continued=True, left_out=left_out)
        return _plain(replace(sheet, remarks=()), sheet.decimal or decimal)
    body = body.removeprefix(b"\xef\xbb\xbf")
    if is_json(body):
        return _records(name, body, 1, None)
    units: Units | None = None
    line = 1
    if match := _UNITS.match(body):
        units_name = match[1].decode(errors="replace")
        if units_name not in ("nic", "source"):
            raise DataError(
                f"{name}, line 1: expected n3ic-units: nic or source, got {printable(units_name)!r}"
            )
        units, line, body = cast(Units, units_name), 2, body[match.end() :]
    _check_text(name, body, line)
    zeek = body.startswith((b"#separator", b"#fields\t")) and _ZEEK_FIELDS.search(body)
    blanks = False
    if zeek:
        line += body.count(b"\n", 0, zeek.start())
        body = body[zeek.end() :]
        blanks = b"  " in body.split(b"\n", 1)[0]
        body = _zeek_lines(body, blanks=blanks)
    first = re.split(rb"[\r\n]", body[:MAX_LINE], maxsplit=1)[0].decode(errors="replace")
    if not first.strip():
        raise DataError(f"{name}, line {line}: blank; expected the column names or the first flow")
    separator = "\t" if zeek else max(SEPARATORS, key=first.count)  # of equals, the comma
    cells = next(csv.reader([first], delimiter=separator), [])
    names = tuple(c.strip() for c in cells)
    sheet = Sheet(name, body, separator, names, units, line, zeek=bool(zeek), blanks=blanks)
    if zeek or named:
        return replace(sheet, header=first.encode())
    if (bare := _bare(sheet)) is not None:
        return _plain(bare, decimal)
    body, left_out = _without_headers(body, first.encode(), begin=len(first.encode()))
    return _plain(replace(sheet, body=body, header=first.encode(), left_out=left_out), decimal)


def _plain(sheet: Sheet, decimal: Mark | None) -> Sheet:
    """The table with plain numbers.

    Raises:
        DataError: as :func:`.plain_numbers`.
    """
    if sheet.zeek or sheet.units == "nic" or not sheet.first:
        return sheet
    plain_table = plain_numbers(
        sheet.name,
        sheet.body,
        sheet.separator,
        sheet.first,
        header=not sheet.continued,
        known=decimal,
    )
    columns = {
        mark: [sheet.first[i] for i, of in plain_table.changed.items() if of == mark]
        for mark in ",."
    }
    remarks = tuple(
        f"the decimal mark is a {mark_name}, marks between thousands are dropped, in "
        f"{', '.join(column_names)}"
        for (mark, column_names), mark_name in zip(columns.items(), ("comma", "point"), strict=True)
        if column_names
    )
    return replace(
        sheet,
        body=plain_table.body,
        decimal=plain_table.decimal,
        remarks=(*sheet.remarks, *remarks),
    )


def _records(name: str, body: bytes, line: int, before: Sheet | None) -> Sheet:
    """Flow records in JSON as a sheet; without names while no record was a flow."""
    known = before.first if before else ()
    records = flow_records(name, body, line, known)
    if known or not records.names:
        text, head = records.body, b""
    else:
        head = _line(records.names, ",")
        text, line = head + records.body, line - 1
    left_out = Counter(records.left_out)
    if before is not None and not known:  # it was not handed on
        left_out.update(before.left_out)
    return Sheet(name, text, ",", records.names, line=line, continued=bool(known), records=True,
                 left_out=left_out)  # fmt: skip


def _bare(sheet: Sheet) -> Sheet | None:
    """The table with names for its columns, if its first line is a flow; otherwise None."""
    if len(sheet.first) < 2 or all(
        not c[:1].isdigit() and c[:1] not in "+-.:" for c in sheet.first if c
    ):
        return None
    beginning = sheet.body[:_LOOKED_AT]
    beginning = beginning[: beginning.rfind(b"\n") + 1] or beginning
    head = csv.reader(beginning.decode(errors="replace").splitlines(), delimiter=sheet.separator)
    try:
        rows = [row for row in head if row][1:]
    except csv.Error:
        return None
    bare_names = names_without_header(sheet.first, rows)
    if bare_names is None:
        return None
    names, layout = bare_names
    columns = f"those of {layout}" if layout else f"column_1 to column_{len(names)}"
    remark = f"no names in the first line: the columns are {columns}"
    more = "" if layout else "; write a line of names above to say what they are"
    return replace(
        sheet,
        body=_line(names, sheet.separator) + sheet.body,
        first=names,
        line=sheet.line - 1,
        remarks=(remark + more,),
    )


def _line(cells: Sequence[str], separator: str) -> bytes:
    out = io.StringIO()
    csv.writer(out, delimiter=separator, lineterminator="\n").writerow(cells)
    return out.getvalue().encode("utf-8", "replace")


def _without_headers(body: bytes, header: bytes, begin: int = 0) -> tuple[bytes, Mapping[str, int]]:
    """The body from a position on without lines that repeat the header, which become blank."""
    if not header or body.find(header, begin) < 0:
        return body, {}
    # files that are joined may begin with a byte order mark, or a line of units
    pattern = rb"(?m)^(?:\xef\xbb\xbf)?" + re.escape(header) + rb"[ \t]*\r?$"
    remainder, count = re.compile(pattern).subn(b"", body[begin:])
    return body[:begin] + remainder, {_REPEATED: count} if count else {}


def _zeek_lines(body: bytes, *, blanks: bool) -> bytes:
    """The lines of a Zeek log; comment lines become blank, so that line numbers stay.

    Args:
        body: the lines.
        blanks: whether the last columns are separated by blanks, as where labels were added.
    """
    body = _ZEEK_COMMENT.sub(b"\n", body)
    if not blanks:
        return body
    parts = (line.rpartition(b"\t") for line in body.split(b"\n"))
    return b"\n".join(a + tab + _BLANKS.sub(b"\t", last.strip()) for a, tab, last in parts)


def _check_text(name: str, body: bytes, line: int) -> None:
    def at(position: int) -> str:
        before = body.count(b"\n", 0, position)
        return f"{name}, line {line + before}"

    if (nul := body.find(b"\0")) >= 0:
        raise DataError(f"{at(nul)}: a NUL byte; this is not a text file")
    if not body.isascii():
        try:
            body.decode()
        except UnicodeDecodeError as error:
            raise DataError(
                f"{at(error.start)}: byte 0x{body[error.start]:02x} is not UTF-8; convert the "
                "file to UTF-8"
            ) from error
    if (start := _long_line(body)) >= 0:
        raise DataError(
            f"{at(start)}: longer than {MAX_LINE:,} bytes; this is no table of flows, or its "
            "lines do not end in a line feed"
        )


def _long_line(body: bytes) -> int:
    """Position of a line of more than ``MAX_LINE`` bytes, or -1."""
    start = 0
    while len(body) - start > MAX_LINE:
        end = body.rfind(b"\n", start, start + MAX_LINE + 1)  # jumps over many short lines at once
        if end < 0:
            return start
        start = end + 1
    return -1


def first_lines(path: Path) -> Sheet | None:
    """The first lines of a file, plain or compressed; None if it is not delimited text."""
    start = first_bytes(path)
    try:
        return open_sheet(Content(str(path), start[: start.rfind(b"\n") + 1] or start), units=None)
    except DataError:
        return None


def check_header(
    sheet: Sheet, names: Sequence[str], required: Collection[str], *, comma: bool = True
) -> None:
    """Check that a header has every required column, and no duplicates.

    Args:
        sheet: the table.
        names: the column names of its header, in the data set's spelling.
        required: the columns that must be among them.
        comma: whether the separator must be a comma.

    Raises:
        DataError: a column is missing or duplicated, or the separator is not a comma.
    """
    missing = [c for c in required if c not in names]
    where = f"{sheet.name}, {sheet.row} {1 if sheet.units is None else 2}"
    if comma and sheet.separator != ",":
        separator = SEPARATORS[sheet.separator]
        raise DataError(
            f"{where}: columns are separated by a {separator} ({sheet.separator!r}), expected a "
            "comma; save the table with commas"
        )
    if missing:
        listed = ", ".join(missing[:8]) + (", ..." if len(missing) > 8 else "")
        noun = "column" if len(missing) == 1 else "columns"
        raise DataError(
            f"{where}: {len(missing)} {noun} missing: {listed}; {did_you_mean(missing[0], names)}"
            "the header must name each"
        )
    repeated = sorted({n for n in names if n and names.count(n) > 1})
    if repeated:
        raise DataError(f"{where}: column {repeated[0]!r} comes twice; keep one")


def parse_sheet(
    sheet: Sheet,
    names: Sequence[str],
    *,
    header: bool,
    numeric: Collection[str],
    text: Collection[str] = (),
    whole: Collection[str] = (),
    blank_is_zero: Collection[str] = (),
    gaps: Collection[str] = (),
) -> Cells:
    """Parse the wanted columns.

    Args:
        sheet: the table.
        names: column names, one for each cell of a line.
        header: whether the table's first line holds names.
        numeric: columns of finite numbers.
        text: columns of text.
        whole: columns of ``numeric`` that must hold integers of at most 64 bits.
        blank_is_zero: numeric columns in which a blank cell means 0.
        gaps: numeric columns whose cells may also be infinite, or one of :data:`NO_NUMBER`,
            which becomes NaN.

    Raises:
        DataError: a line has too few or too many cells, or a cell is not a valid number.
    """
    columns = Wanted(tuple(names), frozenset(numeric), frozenset(text), frozenset(whole),
                     frozenset(blank_is_zero), frozenset(gaps))  # fmt: skip
    cells = None if sheet.memory is None else sheet.memory.cells(columns)
    if cells is None:
        sheet = sheet.as_text()
        # A separator or a line end may be hidden in quotes, which the fast path does not parse.
        fast = None if b'"' in sheet.body else _parse_fast(sheet, header, columns)
        cells = fast or _parse_carefully(sheet, header, columns)
    if not cells.rows and not sheet.continued:
        raise DataError(f"{sheet.name}: a header and no rows; expected one flow a line")
    return cells


@dataclass(frozen=True)
class Wanted:
    """The columns of :func:`parse_sheet`."""

    names: tuple[str, ...]
    numeric: frozenset[str]
    text: frozenset[str]
    whole: frozenset[str]
    blank_is_zero: frozenset[str]
    gaps: frozenset[str]


def _parse_fast(sheet: Sheet, header: bool, wanted_columns: Wanted) -> Cells | None:
    """Parse by Arrow; return None if a cell or line is invalid or needs a closer look."""
    import pyarrow as pa
    from pyarrow import csv as arrow

    unique = [
        n
        if n in wanted_columns.numeric or n in wanted_columns.text
        else f"\0{i}"  # no header has a NUL
        for i, n in enumerate(wanted_columns.names)
    ]
    included = [n for n in unique if not n.startswith("\0")]
    types = {n: pa.dictionary(pa.int32(), pa.string()) for n in wanted_columns.text}
    if b"0x" in sheet.body or b"0X" in sheet.body:  # Arrow would accept hexadecimal integers
        types |= dict.fromkeys(wanted_columns.numeric, pa.float64())
    try:
        table = arrow.read_csv(
            pa.BufferReader(sheet.body),
            read_options=arrow.ReadOptions(
                column_names=unique, skip_rows=int(header and not sheet.continued)
            ),
            parse_options=arrow.ParseOptions(delimiter=sheet.separator, quote_char=False),
            convert_options=arrow.ConvertOptions(
                column_types=types,
                include_columns=included,
                null_values=["", " ", *(sorted(NO_NUMBER) if wanted_columns.gaps else ())],
                strings_can_be_null=False,
            ),
        )
    except pa.ArrowException:
        return None
    table = table.unify_dictionaries()  # each chunk has codes of its own
    numbers: dict[str, Numbers] = {}
    texts: dict[str, TextColumn] = {}
    for name in included:
        column = table[name].combine_chunks()
        if name in wanted_columns.text:
            codes = column.indices.to_numpy().astype(np.intp)
            texts[name] = TextColumn(tuple(t.strip() for t in column.dictionary.to_pylist()), codes)
            continue
        if (values := numbers_of(column, name, wanted_columns)) is None:
            return None
        numbers[name] = values
    return Cells(table.num_rows, numbers, texts)


def numbers_of(column: Any, name: str, columns: Wanted) -> Numbers | None:
    """An Arrow array as numbers; None if a cell is not valid in that column."""
    import pyarrow as pa

    blank = pa.types.is_null(column.type) and len(column) > 0
    if not (blank or pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        return None
    if column.null_count:
        if name not in columns.gaps and name not in columns.blank_is_zero:
            return None
        column = column.cast(pa.int64()) if blank else column
        if name in columns.gaps:
            column = column.cast(pa.float64(), safe=False).fill_null(float("nan"))
        else:
            column = column.fill_null(0)
    values = column.to_numpy()
    sound = values.dtype.kind != "f" or name in columns.gaps
    return values if sound or _all_fit(values, name in columns.whole) else None


def _all_fit(values: NDArray[np.float64], whole: bool) -> bool:
    """Whether all values are finite, and 64-bit integers if required; False for NaN."""
    largest = float(np.abs(values).max(initial=0.0))
    if not whole:
        return largest < float("inf")
    return largest < LARGEST_WHOLE and bool((np.rint(values) == values).all())


def _gap(cell: str) -> float | None:
    """NaN or infinity, if a cell means one."""
    if cell.lower() in _NO_NUMBER_LOWER:
        return float("nan")
    sign, number = (-1, cell[1:]) if cell[:1] == "-" else (1, cell.removeprefix("+"))
    return sign * float("inf") if number.lower() in ("inf", "infinity") else None


def _complaint(cell: str, whole: bool) -> str:
    """What was expected of an invalid cell; empty for a valid one."""
    number = float(cell) if NUMBER.fullmatch(cell) else float("nan")
    if not abs(number) < float("inf"):
        return "a finite number"
    if whole and not (number.is_integer() and abs(number) < LARGEST_WHOLE):
        return "an integer of at most 64 bits"
    return ""


def _parse_carefully(sheet: Sheet, header: bool, columns: Wanted) -> Cells:
    """Parse cell by cell, up to the first error, which is reported with its position."""
    numbers = {n: (i, array("d")) for i, n in enumerate(columns.names) if n in columns.numeric}
    texts = {
        n: (i, array("q"), dict[str, int]())
        for i, n in enumerate(columns.names)
        if n in columns.text
    }
    rows = 0
    for line, row in sheet.rows(header):
        if len(row) != len(columns.names):
            raise DataError(
                f"{sheet.name}, {sheet.row} {line}: {len(row)} cells, "
                f"expected {len(columns.names)}; the line is cut short or has a stray separator"
            )
        for name, (i, values) in numbers.items():
            cell = row[i].strip()
            if not cell and name in columns.blank_is_zero:
                values.append(0.0)
                continue
            if name in columns.gaps and (gap := _gap(cell)) is not None:
                values.append(gap)
                continue
            if expected := _complaint(cell, name in columns.whole):
                expected = "a number" if name in columns.gaps else expected
                actual = f"got {printable(cell)!r}" if cell else "got a blank"
                raise DataError(
                    f"{sheet.name}, {sheet.row} {line}, column {name!r}: expected {expected}, "
                    f"{actual}; "
                    "correct the cell or remove the line"
                )
            values.append(float(cell))
        for i, codes, known in texts.values():
            codes.append(known.setdefault(row[i].strip(), len(known)))
        rows += 1
    return Cells(
        rows,
        {n: np.frombuffer(values) if rows else np.empty(0) for n, (_, values) in numbers.items()},
        {
            n: TextColumn(tuple(known), np.array(codes, dtype=np.intp))
            for n, (_, codes, known) in texts.items()
        },
    )
