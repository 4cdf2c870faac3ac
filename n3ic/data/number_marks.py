# SPDX-License-Identifier: Apache-2.0
"""Numbers as spreadsheets write them: decimal commas, and marks between thousands.

``1.279`` is 1279 where the decimal mark is a comma, and a fraction where it is a point. A column
tells which by its cells: ``0,5`` and ``1.234.567`` have a decimal comma, ``0.5`` and ``1,234,567``
a point. A column that fits both is read like the others of its table; without any other, the table
is refused. Numbers become plain: with a decimal point, and nothing between thousands.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from n3ic.data.cell_text import NO_NUMBER
from n3ic.errors import DataError

Mark = Literal[",", "."]
_GROUPS = "'\u2019 \u00a0\u202f"  # between thousands, beside the mark that is not the decimal one
_END = r"([eE][+-]?[0-9]+)?$"
_WHOLE = r"^[+-]?[0-9]+$"
_ENDLESS = r"(?i)^[+-]?(inf|infinity)$"
_BYTE = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_ADDRESS = rf"^({_BYTE}\.){{3}}{_BYTE}$"  # 192.168.100.100 looks grouped
_QUOTED = re.compile(rb'"[+-]?\d[\d.]*,\d[\d.,]*"')
_DISTINCT = 8  # numbers that show the mark of a whole table; the version of a protocol has fewer


def _pattern(decimal: Mark) -> str:
    group = f"[{re.escape(',' if decimal == '.' else '.')}{_GROUPS}]"
    point = re.escape(decimal)
    whole = rf"([1-9][0-9]{{0,2}}({group}[0-9]{{3}})+|[0-9]+)"
    return rf"^[+-]?({whole}({point}[0-9]*)?|{point}[0-9]+){_END}"


_NUMBER: Mapping[Mark, str] = {mark: _pattern(mark) for mark in (",", ".")}
_PLAIN: Mapping[Mark, Mapping[int, str | None]] = {
    ",": str.maketrans({",": ".", **dict.fromkeys(f".{_GROUPS}")}),
    ".": str.maketrans(dict.fromkeys(f",{_GROUPS}")),
}


@dataclass(frozen=True)
class PlainNumbers:
    """A table with plain numbers.

    Attributes:
        body: its text.
        decimal: the decimal mark that its columns show; None without any.
        changed: positions of the columns that were rewritten, and their decimal marks.
    """

    body: bytes
    decimal: Mark | None
    changed: Mapping[int, Mark]


def plain_numbers(
    name: str,
    body: bytes,
    separator: str,
    names: Sequence[str],
    *,
    header: bool,
    known: Mark | None = None,
) -> PlainNumbers:
    """Rewrite the numbers of a table that have other marks than a decimal point.

    Args:
        name: the file, for messages.
        body: its text; whole lines.
        separator: what separates its cells.
        names: names of its columns.
        header: whether the first line holds them.
        known: the decimal mark of the lines before, or of the training; None if unknown.

    Raises:
        DataError: a column can be read in two ways, and nothing tells which.
    """
    plain = PlainNumbers(body, known, {})
    if separator == "," and not _QUOTED.search(body):
        return plain  # a comma cannot be in a number
    columns = _texts(body, separator, len(names), header)
    if columns is None:
        return plain  # the parser says what is wrong
    column_marks = [_ColumnMarks.of(column) for column in columns]
    certain_marks = {marks.only for marks in column_marks if marks.only and marks.strong}
    decimal = known if len(certain_marks) != 1 else next(iter(certain_marks))
    changed: dict[int, Mark] = {}
    for i, marks in enumerate(column_marks):
        mark = marks.only or (decimal if marks.both else None)
        if marks.both and mark is None:
            raise DataError(
                f"{name}, column {names[i]!r}: {marks.example!r} is "
                f"{marks.example.translate(_PLAIN[','])} if the comma is the decimal mark, and "
                f"{marks.example.translate(_PLAIN['.'])} if the point is; no column tells which: "
                'say decimal = "," or decimal = "." under [table] of columns.toml beside the data '
                "or in --description FILE, or write numbers without marks between thousands"
            )
        if mark is not None and marks.rewrite(mark):
            changed[i] = mark
    if not changed:
        return PlainNumbers(body, decimal, {})
    if decimal is None and len({*changed.values()}) == 1:
        decimal = next(iter(changed.values()))
    return PlainNumbers(_rewritten(body, separator, changed, header), decimal, changed)


@dataclass(frozen=True)
class _ColumnMarks:
    """What the cells of a column say about its marks.

    Attributes:
        only: the decimal mark that alone fits; None if both or none do.
        both: whether both fit, and read some cells differently.
        strong: whether enough different cells show the mark.
        example: a cell that can be read in both ways.
        marks: whether cells have a point, and a comma or another mark.
    """

    only: Mark | None = None
    both: bool = False
    strong: bool = False
    example: str = ""
    marks: tuple[bool, bool] = (False, False)

    def rewrite(self, mark: Mark) -> bool:
        """Whether cells have to be rewritten for a decimal mark."""
        point, other = self.marks
        return other or (point and mark == ",")

    @classmethod
    def of(cls, column: Any) -> _ColumnMarks:
        import pyarrow as pa
        import pyarrow.compute as pc

        def having(cells: Any, pattern: str) -> Any:
            return cells.filter(pc.match_substring_regex(cells, pattern))

        if not pa.types.is_string(column.type):  # numbers without marks, times, nothing
            return cls()
        cells = pc.utf8_trim_whitespace(column)
        cells = cells.filter(pc.invert(pc.is_in(cells, pa.array(sorted(NO_NUMBER)))))
        cells = cells.filter(pc.invert(pc.match_substring_regex(cells, _ENDLESS)))
        marked = having(cells, f"[.,{_GROUPS}]")
        fits = {
            mark: len(having(marked, pattern)) == len(marked) for mark, pattern in _NUMBER.items()
        }
        whole = having(cells, _WHOLE)
        if not len(marked) or len(whole) + len(marked) != len(cells) or not any(fits.values()):
            return cls()
        if len(having(marked, _ADDRESS)) == len(marked):
            return cls()
        marks = (len(having(marked, r"\.")) > 0, len(having(marked, f"[,{_GROUPS}]")) > 0)
        mark = next(m for m, good in fits.items() if good)
        if all(fits.values()):
            commas, example = bool(len(having(marked, ","))), marked[0].as_py()
            if not commas and not marks[0]:  # a blank between thousands is the same in both
                return cls(".", marks=marks)
            grouping: Mark = "." if commas else ","
            if len(having(whole, r"[0-9]{4}")):  # a thousand without a mark
                mark = "," if commas else "."
            elif len(whole) and len(having(marked, "0$")):  # no fraction beside 12 ends in 0
                mark = grouping
            else:
                return cls(both=True, example=example, marks=marks)
        shows = marked.filter(pc.invert(pc.match_substring_regex(marked, _NUMBER[_OTHER[mark]])))
        distinct = len(pc.unique(shows)) if len(shows) else len(pc.unique(marked))
        enough = distinct >= min(_DISTINCT, max(2, len(cells) // 4))
        return cls(mark, strong=enough, marks=marks)


_OTHER: Mapping[Mark, Mark] = {",": ".", ".": ","}


def _texts(body: bytes, separator: str, columns: int, header: bool) -> list[Any] | None:
    """The columns: those of whole numbers as numbers, others as text; None if it is no table."""
    import pyarrow as pa
    from pyarrow import csv as arrow

    names = [str(i) for i in range(columns)]
    quoted = b'"' in body

    def read(**types: Any) -> Any:
        return arrow.read_csv(
            pa.BufferReader(body),
            read_options=arrow.ReadOptions(
                column_names=names,
                skip_rows=int(header),
                block_size=max(1 << 20, len(body) + 1),  # one type for a whole column
            ),
            parse_options=arrow.ParseOptions(
                delimiter=separator,
                quote_char='"' if quoted else False,
                newlines_in_values=quoted,
            ),
            convert_options=arrow.ConvertOptions(
                null_values=sorted(NO_NUMBER), strings_can_be_null=False, column_types=types
            ),
        )

    try:
        table = read()
        real = [f.name for f in table.schema if pa.types.is_floating(f.type)]
        texts = read(**dict.fromkeys(real, pa.string())) if real else table
    except pa.ArrowException:
        return None
    return [texts.column(i).combine_chunks() for i in range(columns)]


def _rewritten(body: bytes, separator: str, columns: Mapping[int, Mark], header: bool) -> bytes:
    numbers = {mark: re.compile(pattern) for mark, pattern in _NUMBER.items()}

    def plain(cell: str, mark: Mark) -> str:
        return cell.translate(_PLAIN[mark]) if numbers[mark].match(cell.strip()) else cell

    def change(cells: list[str]) -> list[str]:
        for i, mark in columns.items():
            if i < len(cells):
                cells[i] = plain(cells[i], mark)
        return cells

    text = body.decode()
    return (_quoted if '"' in text else _split)(text, separator, change, header).encode()


def _split(
    text: str, separator: str, change: Callable[[list[str]], list[str]], header: bool
) -> str:
    lines = text.split("\n")
    changed = (separator.join(change(line.split(separator))) for line in lines[header:])
    return "\n".join([*lines[:header], *changed])


def _quoted(
    text: str, separator: str, change: Callable[[list[str]], list[str]], header: bool
) -> str:
    """The same of text with quotes; blank lines keep the number of each line."""
    out = io.StringIO()
    writer = csv.writer(out, delimiter=separator, lineterminator="\n")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    line = 0
    for number, row in enumerate(reader):
        out.write("\n" * (reader.line_num - line - 1))
        line = reader.line_num
        if row:
            writer.writerow(row if header and not number else change(row))
        else:
            out.write("\n")
    return out.getvalue()
