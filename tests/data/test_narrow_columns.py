# SPDX-License-Identifier: Apache-2.0
"""Columns that are kept narrow are the int64 columns that they stand for, in fewer bytes."""

import pickle
import tracemalloc

import numpy as np
import pytest

from n3ic.data.delimited import open_batches
from n3ic.data.files import Content
from n3ic.data.narrow_columns import NarrowColumns, narrow
from n3ic.datasets.unsw_nb15.catalogue import narrow_columns, with_derived
from n3ic.datasets.unsw_nb15.columns import PARTITION_HEADER
from n3ic.datasets.unsw_nb15.loader import load_table
from n3ic.datasets.unsw_nb15.reader import read_flows
from n3ic.datasets.unsw_nb15.synthetic import write_csv
from n3ic.errors import DataError

ROWS = 3000


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write_csv(tmp_path_factory.mktemp("rows") / "flows.csv", ROWS, 1)


@pytest.fixture(scope="module")
def columns(path):
    return read_flows(Content("flows.csv", path.read_bytes())).columns


def test_derived_columns_are_those_computed_at_once(columns):
    wide = {name: values.astype(np.int64) for name, values in columns.items()}
    want, got = with_derived(wide), narrow_columns(columns)
    picked = np.arange(0, ROWS, 7)
    few = ["tap_rate", "dur", "is_tcp"]
    sent = pickle.loads(pickle.dumps(got))  # as to other processes
    assert [*got] == [*want] and len(got) == len(want)
    assert [*got.only(few)] == [name for name in want if name in few]
    for name, values in want.items():
        assert got[name].dtype == np.int64
        for columns_read in (got, sent):
            np.testing.assert_array_equal(columns_read[name], values)
        np.testing.assert_array_equal(got.rows(picked)[name], values[picked])
    np.testing.assert_array_equal(got.only(few)["tap_rate"], want["tap_rate"])
    with pytest.raises(KeyError):
        got.only(few)["spkts"]  # kept for tap_rate, but not among the columns


@pytest.mark.parametrize(("largest", "bytes_"), [(0, 1), (255, 1), (256, 2), (65536, 4)])
def test_integers_are_kept_in_the_narrowest_type(largest, bytes_):
    assert narrow(np.array([0, largest])).itemsize == bytes_


def test_a_table_is_held_in_a_tenth_of_the_bytes_of_its_int64_columns(path):
    load_table(path, cache=False)  # imports
    tracemalloc.start()
    table = load_table(path, cache=False)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert isinstance(table.features, NarrowColumns)
    assert sum(v.itemsize for v in table.features.arrays.values()) < 8 * len(table.features) / 10
    assert size / ROWS < 8 * len(table.features) / 2.5  # the classes' names and the partition, too


def test_batches_are_the_whole_file_and_errors_name_its_lines(path):
    whole = read_flows(Content("flows.csv", path.read_bytes()))
    content = Content("flows.csv", path.read_bytes())
    assert len([*open_batches(content, batch_bytes=20_000)]) > 20
    flows = read_flows(content, batch_bytes=20_000)
    np.testing.assert_array_equal(flows.label, whole.label)
    np.testing.assert_array_equal(flows.category, whole.category)
    for name, values in whole.columns.items():
        assert flows.columns[name].dtype == values.dtype
        np.testing.assert_array_equal(flows.columns[name], values)
    lines = path.read_text().splitlines()
    for column, cell, message in (
        ("dur", "fast", "expected a finite number, got 'fast'"),
        ("label", "7", "expected 0 or 1"),
        ("attack_cat", "Bot", "unknown category 'Bot'"),
        ("proto", "-", "expected a protocol name"),
    ):
        cells = lines[ROWS - 10].split(",")
        cells[PARTITION_HEADER.split(",").index(column)] = cell
        text = "\n".join([*lines[: ROWS - 10], ",".join(cells), *lines[ROWS - 9 :]])
        with pytest.raises(DataError, match=f"line {ROWS - 9}, column '{column}': {message}"):
            read_flows(Content("flows.csv", text.encode()), batch_bytes=20_000)
