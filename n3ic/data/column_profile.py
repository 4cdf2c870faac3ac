# SPDX-License-Identifier: Apache-2.0
"""Facts about the columns of a table, from all of its cells, for inference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from n3ic.data.catalogue_dataset import canonical
from n3ic.data.cell_text import NO_NUMBER, NUMBER
from n3ic.data.delimited import Sheet
from n3ic.errors import DataError

ColumnType = Literal["integer", "real", "text", "time", "empty"]
MOST_TEXTS = 1000
MOST_DECIMALS = 9
_SAMPLE = 20_000
_VAST = 1e30  # such a large number has no decimal places
_SHARE = 0.999  # share of the values that must fit a unit


@dataclass(frozen=True)
class ColumnProfile:
    """Facts about a column.

    Attributes:
        name: unique name in lower case, with ``_`` for all but letters and digits.
        header: name as the table spells it.
        type: type of its cells; ``text`` if one is neither a number nor a word for a blank.
        rows: number of cells.
        distinct: number of different cells.
        blank: number of cells without a number.
        infinite: number of infinite cells.
        negative: number of finite cells below 0.
        lowest: least finite number.
        highest: largest finite number.
        usual: 0.999 quantile of the magnitudes.
        common: 0.9 quantile of the magnitudes.
        decimals: decimal places of 99.9 % of the numbers, at most 9.
        counts_up: whether each number is one more than the one before.
        texts: different texts, most frequent first, at most 1,000.
        numbers: share of these texts that are numbers, without words for a blank.
        odd: one of the other texts, if most are numbers.
        tells: share of the label's entropy that the column explains; None for too many values.
        told: share of the column's entropy that the label explains.
    """

    name: str
    header: str
    type: ColumnType
    rows: int
    distinct: int
    blank: int = 0
    infinite: int = 0
    negative: int = 0
    lowest: float = 0.0
    highest: float = 0.0
    usual: float = 0.0
    common: float = 0.0
    decimals: int = 0
    counts_up: bool = False
    texts: tuple[str, ...] = ()
    numbers: float = 0.0
    odd: str = ""
    tells: float | None = None
    told: float | None = None


def column_names(headers: Sequence[str]) -> list[str]:
    """Unique names of columns: the second ``Flow ID`` is ``flow_id_2``.

    A header without letters and digits is named by its position.
    """
    out: list[str] = []
    for i, header in enumerate(headers, 1):
        base = canonical(header)[:200] or f"unnamed_{i}"
        name, n = base, 1
        while name in out:
            n += 1
            name = f"{base}_{n}"
        out.append(name)
    return out


def profile_columns(sheets: Sequence[Sheet], label: str = "") -> list[ColumnProfile]:
    """Profile every column of tables that share a layout.

    Args:
        sheets: the tables.
        label: name of the column of the class; empty for none.

    Raises:
        DataError: the tables have different columns, or one cannot be read.
    """
    names = column_names(sheets[0].first)
    for sheet in sheets[1:]:
        if column_names(sheet.first) != names:
            differ = sorted({*names} ^ {*column_names(sheet.first)}) or ["their order"]
            raise DataError(
                f"{sheet.name}: other columns than {sheets[0].name} ({', '.join(differ[:5])}); "
                "name tables of one layout"
            )
    tables = [read_cells(sheet, names) for sheet in sheets]
    classes = None
    if label:
        classes = _codes(_joined(tables, names.index(label)))
    return [
        _facts(name, header, _joined(tables, i), classes)
        for i, (name, header) in enumerate(zip(names, sheets[0].first, strict=True))
    ]


def read_cells(sheet: Sheet, names: Sequence[str]) -> Any:
    """The cells as an Arrow table with columns ``0``, ``1``, ..., each of the narrowest type.

    Raises:
        DataError: a line has too few or too many cells, or the table has no rows.
    """
    if sheet.memory is not None:
        table = sheet.memory.table()
        return table if table is not None else read_cells(sheet.as_text(), names)
    import pyarrow as pa
    from pyarrow import csv as arrow

    quoted = b'"' in sheet.body

    def read(**types: Any) -> Any:
        return arrow.read_csv(
            pa.BufferReader(sheet.body),
            read_options=arrow.ReadOptions(
                column_names=[str(i) for i in range(len(names))],
                skip_rows=1,
                block_size=max(1 << 20, len(sheet.body) + 1),  # one type for a whole column
            ),
            parse_options=arrow.ParseOptions(
                delimiter=sheet.separator,
                quote_char='"' if quoted else False,
                newlines_in_values=quoted,
            ),
            convert_options=arrow.ConvertOptions(
                null_values=[*sorted(NO_NUMBER), " "],
                strings_can_be_null=False,
                true_values=[],  # booleans stay text
                false_values=[],
                column_types=types,
            ),
        )

    try:
        table = read()
    except pa.ArrowException as error:
        for line, row in sheet.rows(True):
            if len(row) != len(names):
                raise DataError(
                    f"{sheet.name}, {sheet.row} {line}: {len(row)} cells, expected {len(names)}; "
                    "the line is cut short or has a stray separator"
                ) from error
        raise DataError(f"{sheet.name}: no table: {error}") from error
    if b"0x" in sheet.body or b"0X" in sheet.body:
        table = _without_hexadecimal(table, read)
    if not table.num_rows:
        raise DataError(f"{sheet.name}: a header and no rows; expected one flow a line")
    return table


def _without_hexadecimal(table: Any, read: Callable[..., Any]) -> Any:
    """The table with columns of hexadecimal integers as text, as other readers see them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    whole = [f.name for f in table.schema if pa.types.is_integer(f.type)]
    texts = read(**dict.fromkeys(whole, pa.string()))
    for name in whole:
        if pc.any(pc.match_substring(texts[name], "0x", ignore_case=True)).as_py():
            table = table.set_column(table.schema.get_field_index(name), name, texts[name])
    return table


def _joined(tables: Sequence[Any], column: int) -> Any:
    """A column of all tables: numbers if all have numbers, otherwise texts."""
    import pyarrow as pa

    parts = [table.column(column) for table in tables]
    kinds = {part.type for part in parts} - {pa.null()}
    if len(kinds) == 1:
        kind = kinds.pop()
    elif all(pa.types.is_integer(k) or pa.types.is_floating(k) for k in kinds):
        kind = pa.float64() if kinds else pa.null()
    else:
        kind = pa.string()
    chunks = [chunk.cast(kind) for part in parts for chunk in part.chunks]
    return pa.chunked_array(chunks, kind).combine_chunks()


def _codes(column: Any) -> NDArray[np.int64]:
    """An index for each cell, equal for equal cells, int64 of shape ``(rows,)``."""
    codes = column.dictionary_encode("encode").indices.to_numpy(zero_copy_only=False)
    return np.asarray(codes, dtype=np.int64)


def _facts(name: str, header: str, column: Any, classes: NDArray[np.int64] | None) -> ColumnProfile:
    import pyarrow as pa
    import pyarrow.compute as pc

    rows, kind = len(column), column.type
    if pa.types.is_null(kind):
        return ColumnProfile(name, header, "empty", rows, 1, blank=rows)
    distinct = int(pc.count_distinct(column, mode="all").as_py())  # a blank counts as a value
    tells = told = None
    if classes is not None and 1 < distinct <= MOST_TEXTS:
        tells, told = _shared_entropy(_codes(column), classes)
    shared: dict[str, Any] = {"tells": tells, "told": told}
    if pa.types.is_temporal(kind):
        return ColumnProfile(
            name, header, "time", rows, distinct, blank=column.null_count, **shared
        )
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        counted = pc.value_counts(column).to_pylist()
        counts = Counter({str(c["values"]).strip(): int(c["counts"]) for c in counted})
        ordered = sorted(counts, key=lambda text: (-counts[text], text))[:MOST_TEXTS]
        said = [t for t in ordered if t not in NO_NUMBER]
        others = [t for t in said if not NUMBER.fullmatch(t)]
        return ColumnProfile(
            name=name,
            header=header,
            type="text",
            rows=rows,
            distinct=distinct,
            texts=tuple(ordered),
            numbers=1 - len(others) / max(len(said), 1),
            odd=others[0] if others else "",
            **shared,
        )
    values = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    finite = values[np.isfinite(values)]
    if not len(finite):
        return ColumnProfile(
            name, header, "empty", rows, distinct, blank=int(np.isnan(values).sum())
        )
    common, usual = np.quantile(np.abs(finite), (0.9, _SHARE), method="higher").tolist()
    return ColumnProfile(
        name=name,
        header=header,
        type="integer" if pa.types.is_integer(kind) or not _decimals(finite) else "real",
        rows=rows,
        distinct=distinct,
        blank=int(np.isnan(values).sum()),
        infinite=int(np.isinf(values).sum()),
        negative=int((finite < 0).sum()),
        lowest=float(finite.min()),
        highest=float(finite.max()),
        usual=usual,
        common=common,
        decimals=0 if pa.types.is_integer(kind) else _decimals(finite),
        counts_up=rows > 2 and len(finite) == rows and bool((finite[1:] == finite[:-1] + 1).all()),
        **shared,
    )


def _decimals(values: NDArray[np.float64]) -> int:
    """Decimal places of nearly all values, from a sample."""
    some = np.clip(values[:: max(1, len(values) // _SAMPLE)], -_VAST, _VAST)
    for places in range(MOST_DECIMALS):
        scaled = some * 10.0**places
        whole = np.abs(scaled - np.rint(scaled)) <= 1e-9 + 1e-15 * np.abs(scaled)  # float error
        if whole.mean() >= _SHARE:
            return places
    return MOST_DECIMALS


def _shared_entropy(a: NDArray[np.int64], b: NDArray[np.int64]) -> tuple[float, float]:
    """Mutual information over the entropy of ``b``, and over that of ``a``."""
    width = int(b.max()) + 1

    def entropy(codes: NDArray[np.int64]) -> float:
        share = np.unique(codes, return_counts=True)[1] / len(codes)
        return float(-(share * np.log2(share)).sum())

    of_a, of_b = entropy(a), entropy(b)
    common = of_a + of_b - entropy(a * width + b)  # one code for each pair
    return (common / of_b if of_b else 0.0), (common / of_a if of_a else 0.0)
