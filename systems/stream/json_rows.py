# SPDX-License-Identifier: Apache-2.0
"""A table as JSON, one object per row, written column by column.

The bytes are those of ``json.dumps`` of each row, without spaces; that function would take most of
a stream's time.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa


def json_rows(table: pa.Table) -> list[bytes]:
    """One JSON object per row; see :func:`json_lines`."""
    import pyarrow as pa

    rows: list[bytes] = _objects(table, "").cast(pa.binary()).to_pylist()
    return rows


def json_lines(table: pa.Table) -> memoryview:
    """One JSON object per row, each with a line feed.

    Args:
        table: columns of integers, of text, or of lists of one of these, without nulls.
    """
    lines = _objects(table, "\n")
    _, offsets, data = lines.buffers()
    if data is None:
        return memoryview(b"")
    ends = np.frombuffer(offsets, dtype=np.int32)[lines.offset :]
    return memoryview(data)[ends[0] : ends[len(lines)]]


def _objects(table: pa.Table, end: str) -> pa.Array:
    """The objects as text, each with ``end`` behind it."""
    import pyarrow as pa
    from pyarrow.compute import binary_join_element_wise

    parts: list[Any] = []
    lead = "{"
    for name, column in zip(table.column_names, table.columns, strict=True):
        array = column.combine_chunks()
        parts += [lead + json.dumps(name) + ":", _values(array)]
        lead = ","
    joined = binary_join_element_wise(*parts, "}" + end, "")
    return joined if isinstance(joined, pa.Array) else joined.combine_chunks()


def _values(array: pa.Array) -> pa.Array:
    """Each value of a column as JSON."""
    import pyarrow as pa
    from pyarrow.compute import binary_join, binary_join_element_wise

    kind = array.type
    if pa.types.is_integer(kind):
        return array.cast(pa.string())
    if pa.types.is_list(kind):
        inner = pa.ListArray.from_arrays(array.offsets, _values(array.values))
        return binary_join_element_wise("[", binary_join(inner, ","), "]", "")
    if pa.types.is_dictionary(kind):
        return pa.DictionaryArray.from_arrays(array.indices, _quoted(array.dictionary)).cast(
            pa.string()
        )
    return _quoted(array)


def _quoted(texts: pa.Array) -> pa.Array:
    """Each text in quotes, with escapes where JSON needs them."""
    import pyarrow as pa
    from pyarrow.compute import binary_join_element_wise

    if _is_plain(texts):
        return binary_join_element_wise('"', texts, '"', "")
    escaped = texts.dictionary_encode()
    names = pa.array([json.dumps(text) for text in escaped.dictionary.to_pylist()], pa.string())
    return pa.DictionaryArray.from_arrays(escaped.indices, names).cast(pa.string())


def _is_plain(texts: pa.Array) -> bool:
    """Whether no byte of some texts, or of what lies around them in memory, needs an escape."""
    data = texts.buffers()[2]
    octets = np.frombuffer(data or b"", dtype=np.uint8)
    printable = (octets >= 0x20) & (octets < 0x7F)
    return bool((printable & (octets != ord('"')) & (octets != ord("\\"))).all())
