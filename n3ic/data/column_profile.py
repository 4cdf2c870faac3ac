# SPDX-License-Identifier: Apache-2.0
"""Facts about the columns of a table, from all of its cells, for inference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from n3ic.data.catalogue_dataset import canonical
from n3ic.data.cell_text import NO_NUMBER, NUMBER
from n3ic.data.column_evidence import accuracy_alone, accuracy_beyond
from n3ic.data.column_evidence import blocks as _blocks
from n3ic.data.column_evidence import numbers_rows as _numbers_rows
from n3ic.data.column_evidence import rises as _rises
from n3ic.data.column_evidence import spread as _spread
from n3ic.data.column_roles import is_measurement, role_of
from n3ic.data.delimited import Sheet
from n3ic.errors import DataError

ColumnType = Literal["integer", "real", "text", "time", "empty"]
MOST_TEXTS = 1000
MOST_CATEGORIES = 64
MOST_DECIMALS = 9
_SAMPLE = 20_000
_VAST = 1e30  # such a large number has no decimal places
_SHARE = 0.999  # share of the values that must fit a unit
ALONE = 0.95  # from this balanced accuracy on, a column tells the classes alone
_HINT = 0.2  # a text that explains less of the label's entropy does not name the classes
_BINS = 64  # of a number of many values


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
        counts_up: whether the numbers count the rows, in order or, of many rows, in any.
        texts: different texts, most frequent first, at most 1,000.
        frequent: share of the rows that have one of the 64 most frequent texts.
        numbers: share of these texts that are numbers, without words for a blank.
        odd: one of the other texts, if most are numbers.
        tells: share of the label's entropy that the column explains; None for too many values.
        explained: share of the column's entropy that the label explains.
        codes: whether the numbers are 0, 1, 2, ... or 1, 2, 3, ..., one for each class.
        alone: balanced accuracy of the classes by this column alone, on half of the rows by the
            values of the other half; None without a label.
        beyond: how much of what a tree on the measurements leaves open the column tells, 0 to 1;
            None unless it is a text of few values that may name the classes.
        rises: whether the numbers go up along the file, in a few runs.
        blocks: whether the values change seldom along the file while the classes change often.
        spread: 16 or 32 if the numbers are as evenly spread as random bits of that width, or 0.
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
    frequent: float = 0.0
    numbers: float = 0.0
    odd: str = ""
    tells: float | None = None
    explained: float | None = None
    codes: bool = False
    alone: float | None = None
    beyond: float | None = None
    rises: bool = False
    blocks: bool = False
    spread: int = 0


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
    columns = [_joined(tables, i) for i in range(len(names))]
    classes = _codes(columns[names.index(label)]) if label else None
    if classes is not None and (classes == classes[0]).all():
        classes = None  # nothing tells a single class
    facts = [
        _facts(name, header, column, classes)
        for name, header, column in zip(names, sheets[0].first, columns, strict=True)
    ]
    if classes is None:
        return facts
    doubtful = [i for i, f in enumerate(facts) if f.name != label and may_name_classes(f)]
    if not doubtful:
        return facts
    known = _measurements(facts, columns, label)
    for i in doubtful:
        beyond = accuracy_beyond(known, _codes(columns[i]), classes)
        facts[i] = replace(facts[i], beyond=beyond)
    return facts


def tells_alone(facts: ColumnProfile) -> bool:
    """Whether the classes can be told by this column alone."""
    return facts.alone is not None and facts.alone >= ALONE


def may_name_classes(facts: ColumnProfile) -> bool:
    """Whether a column is a text of few values, and not by its name a measurement."""
    has_few_values = 1 < facts.distinct <= max(2, facts.rows // 20)
    known = role_of(facts.name)[0] != "feature" or is_measurement(facts.name)
    return facts.type == "text" and has_few_values and not known and (facts.tells or 0) >= _HINT


def _measurements(
    facts: Sequence[ColumnProfile], columns: Sequence[Any], label: str
) -> list[NDArray[np.int64]]:
    """The measurements of a table in bins, int64 of shape ``(rows,)`` each."""
    return [
        _bins(column)
        for f, column in zip(facts, columns, strict=True)
        if f.name != label
        and f.distinct > 1
        and role_of(f.name)[0] in ("feature", "root")
        and not (f.rises or f.spread or f.counts_up)
        and (f.type in ("integer", "real") or f.tells is not None)
        and (is_measurement(f.name) or (f.type != "text" and not tells_alone(f)))
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


def _bins(column: Any) -> NDArray[np.int64]:
    """A number of many values in bins of equal frequency, other cells as :func:`_codes`."""
    import pyarrow as pa

    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        return _codes(column)
    values = np.nan_to_num(
        column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), nan=-1.0
    )
    cuts = np.unique(np.quantile(values, np.linspace(0, 1, _BINS + 1)[1:-1], method="lower"))
    return np.asarray(np.searchsorted(cuts, values, side="right"), dtype=np.int64)


def _facts(name: str, header: str, column: Any, classes: NDArray[np.int64] | None) -> ColumnProfile:
    import pyarrow as pa
    import pyarrow.compute as pc

    rows, kind = len(column), column.type
    if pa.types.is_null(kind):
        return ColumnProfile(name, header, "empty", rows, 1, blank=rows)
    distinct = int(pc.count_distinct(column, mode="all").as_py())  # a blank counts as a value
    tells = explained_share = None
    if classes is not None and 1 < distinct <= MOST_TEXTS:
        tells, explained_share = _shared_entropy(_codes(column), classes)
    shared: dict[str, Any] = {"tells": tells, "explained": explained_share}
    if classes is not None and distinct > 1:
        shared["blocks"] = _blocks(_codes(column), classes)
        if distinct <= MOST_TEXTS:
            shared["alone"] = accuracy_alone(_codes(column), classes)
    if pa.types.is_temporal(kind):
        return ColumnProfile(
            name, header, "time", rows, distinct, blank=column.null_count, **shared
        )
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        counted = pc.value_counts(column).to_pylist()
        counts = Counter({str(c["values"]).strip(): int(c["counts"]) for c in counted})
        ordered = sorted(counts, key=lambda text: (-counts[text], text))[:MOST_TEXTS]
        filled = [t for t in ordered if t not in NO_NUMBER]
        non_numbers = [t for t in filled if not NUMBER.fullmatch(t)]
        return ColumnProfile(
            name=name,
            header=header,
            type="text",
            rows=rows,
            distinct=distinct,
            texts=tuple(ordered),
            frequent=sum(counts[text] for text in ordered[:MOST_CATEGORIES]) / rows,
            numbers=1 - len(non_numbers) / max(len(filled), 1),
            odd=non_numbers[0] if non_numbers else "",
            **shared,
        )
    values = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    finite = values[np.isfinite(values)]
    if not len(finite):
        return ColumnProfile(
            name, header, "empty", rows, distinct, blank=int(np.isnan(values).sum())
        )
    if classes is not None and distinct > 1:
        shared["alone"] = accuracy_alone(_bins(column), classes)
        many = int(classes.max()) + 1
        first = finite.min() in (0, 1) and finite.max() - finite.min() == many - 1
        shared["codes"] = bool(
            first and distinct == many and min(tells or 0, explained_share or 0) >= _SHARE
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
        counts_up=len(finite) == rows and _numbers_rows(finite),
        rises=_rises(finite),
        spread=_spread(finite),
        **shared,
    )


def _decimals(values: NDArray[np.float64]) -> int:
    """Decimal places of nearly all values, from a sample."""
    sample = np.clip(values[:: max(1, len(values) // _SAMPLE)], -_VAST, _VAST)
    for places in range(MOST_DECIMALS):
        scaled = sample * 10.0**places
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
