# SPDX-License-Identifier: Apache-2.0
"""Tables in memory: pandas, Polars, whatever exports an Arrow stream, numpy arrays with names.

A table becomes the CSV text that its own library writes, so it is read as that file is: by the
same inference, to the same integers, with the same digest. No number goes through a float on the
way: integers are digits, and a float is the shortest decimal that reads back as itself. pandas and
Polars are never imported; a table brings its library along.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from n3ic.data.column_profile import column_names
from n3ic.data.delimited import SEPARATORS
from n3ic.data.files import MAX_BYTES, Content, printable
from n3ic.data.parquet import delimited_text
from n3ic.errors import DataError, UsageError

# Types whose cells have no text that is a number, a category or a time.
_NO_CELL = re.compile(
    r"(timedelta|duration|list|large_list|fixed_size_list|struct|map|array|object\(|object$|binary|"
    r"large_binary|fixed_size_binary|complex|void|period)",
    re.IGNORECASE,
)


def is_table(value: object) -> bool:
    """Whether a value is a table in memory, rather than the path of a file."""
    if _is_frame(value):
        return True
    return isinstance(value, np.ndarray) or hasattr(value, "__arrow_c_stream__")


def _is_frame(value: object) -> bool:
    """Whether a value is a pandas or a Polars table, which writes CSV itself."""
    return hasattr(value, "columns") and (hasattr(value, "to_csv") or hasattr(value, "write_csv"))


def table_content(
    table: Any,
    *,
    feature_names: Sequence[str] | None = None,
    label: ArrayLike | None = None,
    only: Collection[str] | None = None,
) -> Content:
    """A table as the text of a CSV file.

    The index of a pandas table is no column of it.

    Args:
        table: a table of :func:`is_table`.
        feature_names: names of the columns of a numpy array of shape ``(rows, columns)``.
        label: class of each row of such an array, shape ``(rows,)``; becomes its column ``label``.
        only: columns to take, by the names of :func:`.column_profile.column_names`, where a reader
            needs no others; all where None.

    Raises:
        DataError: a column has a type without a text, or the table is too large.
        UsageError: names are missing, or given to a table that has its own.
    """
    if isinstance(table, np.ndarray):
        table = _of_array(table, feature_names, label)
    elif feature_names is not None or label is not None:
        raise UsageError(
            f"{_kind(table)}: feature_names, and a label that is no name, go with a numpy array "
            "without names; a table has its own: name the column of the class"
        )
    elif not _is_frame(table):
        table = _arrow(table)
    kind = _kind(table)
    headers, types = _columns(table, kind)
    names = column_names(headers)
    taken = [i for i, name in enumerate(names) if only is None or name in only]
    if taken and len(taken) < len(names):
        table, types = _selected(table, taken, names), [types[i] for i in taken]
        headers = [names[i] for i in taken]
    for header, type_ in zip(headers, types, strict=True):
        if _NO_CELL.match(type_) and not (type_ == "object" and hasattr(table, "to_csv")):
            timed = "timedelta" in type_ or "uration" in type_
            todo = "write it as a number, such as its seconds" if timed else "drop the column"
            raise DataError(
                f"{kind}, column {printable(header)!r}: expected numbers, text, booleans or times, "
                f"got {type_}; {todo}"
            )
    data = _text(table, kind, headers)
    first = data[: data.find(b"\n") + 1].decode()
    if max(SEPARATORS, key=first.count) != "," or first.count('"') % 2:
        raise DataError(
            f"{kind}: its column names hold separators or line ends: "
            f"{printable(first)!r}; rename the columns"
        )
    if len(data) > MAX_BYTES:
        raise DataError(f"{kind}: more than {MAX_BYTES:,} bytes as text; take a sample of the rows")
    return Content(kind, data)


def like(given: Any, columns: Mapping[str, NDArray[Any]]) -> Any:
    """A table of the kind of another one, with the index of a pandas table.

    Args:
        given: a table of :func:`is_table`, of as many rows.
        columns: arrays of shape ``(rows,)`` by name.

    Returns:
        A pandas or Polars table, a structured array for an array, else a PyArrow table.
    """
    if hasattr(given, "iloc"):
        return given.iloc[:, :0].assign(**columns)
    if _is_frame(given):
        return type(given)(dict(columns))
    if isinstance(given, np.ndarray):
        kinds = [(name, values.dtype) for name, values in columns.items()]
        out = np.empty(len(given), dtype=kinds)
        for name, values in columns.items():
            out[name] = values
        return out
    import pyarrow as pa

    return pa.table(dict(columns))


def _kind(table: Any) -> str:
    """What a table is called in messages, such as ``pandas DataFrame``."""
    return f"{type(table).__module__.partition('.')[0]} {type(table).__name__}"


def _columns(table: Any, kind: str) -> tuple[list[str], list[str]]:
    """Names and types of a table's columns.

    Raises:
        DataError: there are none, or names of several levels.
    """
    if _is_frame(table):
        headers, types = [*table.columns], [*table.dtypes]
    else:
        headers, types = table.column_names, table.schema.types
    if not headers or getattr(getattr(table, "columns", None), "nlevels", 1) > 1:
        raise DataError(f"{kind}: expected a name a column, got none or names of several levels")
    return [str(h).strip() for h in headers], [str(t) for t in types]


def _selected(table: Any, taken: Sequence[int], names: Sequence[str]) -> Any:
    """Some columns of a table, under names that are unlike one another."""
    chosen = [names[i] for i in taken]
    if hasattr(table, "iloc"):
        return table.iloc[:, taken].set_axis(chosen, axis=1)
    if _is_frame(table):
        part = table[:, list(taken)]
        part.columns = chosen
        return part
    return table.select(list(taken)).rename_columns(chosen)


def _text(table: Any, kind: str, headers: Sequence[str]) -> bytes:
    import pyarrow as pa

    if hasattr(table, "to_csv"):
        text = str(table.to_csv(index=False, lineterminator="\n"))
    elif _is_frame(table):
        text = str(table.write_csv())
    else:
        header = io.StringIO()
        csv.writer(header, lineterminator="\n").writerow(headers)
        try:
            cells = delimited_text([c.combine_chunks() for c in table.columns])
        except pa.ArrowException as error:
            raise DataError(f"{kind}: no text can be made of its cells: {error}") from error
        return header.getvalue().encode() + cells
    return text.encode("utf-8", "surrogatepass")  # the reader says where what is no UTF-8 stands


def _arrow(table: Any) -> Any:
    """A PyArrow table of what exports an Arrow stream, of the same memory.

    Raises:
        DataError: the stream is of no table.
    """
    import pyarrow as pa

    try:
        return pa.table(table)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise DataError(f"{_kind(table)}: expected a table: {error}") from error


def _of_array(
    array: NDArray[Any], feature_names: Sequence[str] | None, label: ArrayLike | None
) -> Any:
    """A PyArrow table of a structured array, or of an array and the names of its columns.

    Raises:
        DataError: the shapes do not match, or a column holds values of several types.
        UsageError: an array without names.
    """
    import pyarrow as pa

    if array.dtype.names is not None:
        names, columns = list(array.dtype.names), [array[name] for name in array.dtype.names]
    elif feature_names is None:
        raise UsageError(
            "numpy ndarray: its columns have no names; say feature_names=[...], one a column"
        )
    else:
        names = [str(name) for name in feature_names]
        if array.ndim != 2 or array.shape[1] != len(names):
            raise DataError(
                f"numpy ndarray: expected shape (rows, {len(names)}) for {len(names)} "
                f"feature_names, got {array.shape}"
            )
        columns = [np.ascontiguousarray(column) for column in array.T]
    if label is not None:
        names, columns = [*names, "label"], [*columns, np.asarray(label)]
    try:
        return pa.Table.from_arrays([pa.array(column) for column in columns], names)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise DataError(
            f"numpy {type(array).__name__}: expected columns of one type and one length: {error}"
        ) from error
