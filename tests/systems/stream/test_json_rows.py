# SPDX-License-Identifier: Apache-2.0
"""Lines that are written column by column are those of ``json.dumps``, row by row."""

import json

import pyarrow as pa
import pytest

from n3ic.systems.stream.json_rows import json_lines, json_rows

HOSTILE = ("plain", 'quote "', "back\\slash", "line\nfeed", "\x7f\x00", "naïve", "€😀", "")


def hostile_table():
    """Names and values of every kind that need escapes, and numbers at their bounds."""
    rows = len(HOSTILE)
    columns = {f'column {number} {name}"': [name] * rows for number, name in enumerate(HOSTILE)}
    return pa.table(
        {
            **columns,
            "mixed": [*HOSTILE],
            "named": pa.array([*HOSTILE]).dictionary_encode(),
            "least": pa.array([-(2**63)] * rows, pa.int64()),
            "most": pa.array([2**64 - 1] * rows, pa.uint64()),
            "small": pa.array(range(rows), pa.uint8()),
            "scores": pa.array([[-n, n] for n in range(rows)], pa.list_(pa.int32())),
            "lists": pa.array([[*HOSTILE[:n]] for n in range(rows)]),
        }
    )


@pytest.mark.parametrize("part", [(0, len(HOSTILE)), (2, 3), (5, 0)])
def test_rows_are_those_of_json_dumps(part):
    table = hostile_table().slice(*part)
    want = [json.dumps(row, separators=(",", ":")).encode() for row in table.to_pylist()]
    assert json_rows(table) == want
    assert bytes(json_lines(table)) == b"".join(row + b"\n" for row in want)


def test_columns_in_chunks_are_one_table():
    table = pa.concat_tables([hostile_table(), hostile_table().slice(3)])
    assert json_rows(table) == json_rows(hostile_table()) + json_rows(hostile_table().slice(3))
