# SPDX-License-Identifier: Apache-2.0
"""Whatever its cells are, a table in memory gives the verdicts of the CSV file that it writes."""

import datetime as dt
import re
import warnings
from decimal import Decimal
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import n3ic
from n3ic import dataframes
from n3ic.dataframes import table_sheet
from n3ic.datasets.unsw_nb15.columns import PARTITION_COLUMNS
from n3ic.errors import DataError, N3icWarning
from n3ic.model.columns import ColumnRule, TableRules
from n3ic.model.inputs import Field, InputSpec
from n3ic.model.network import BinaryModel
from n3ic.model.random_models import random_model

ROWS = 3
WHOLE = st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 300)
REAL = st.floats() | WHOLE.map(float) | st.sampled_from([-0.0, 0.1, 1e300, 2.0**53 + 2])
TEXT = st.sampled_from(
    [
        *("1", "-1", "+2", "1.5", "1e3", "0x1F", ".5", "5.", "007", "1_0", "9223372036854775808"),
        *("inf", "-Infinity", "nan", "NaN", "NA", "null", "None", "-", "?", "", " ", " 7 "),
        *("tcp", "UDP", "true", "False", "2026-01-01", "10.0.0.1", "a,b", 'a "b"', "é", "a\nb"),
    ]
)
MIXED = (
    st.one_of(st.none(), st.booleans(), WHOLE, REAL, TEXT, st.just(2**70))
    | WHOLE.map(np.int64)
    | st.floats(width=32).map(np.float32)
    | st.sampled_from([Decimal("1.50"), Decimal("1E+3"), np.bool_(True), pd.NA, pd.NaT])
    | st.sampled_from([dt.date(2026, 1, 2), dt.datetime(2026, 1, 2, 3), np.uint64(2**64 - 1)])
)
SMALL = st.integers(0, 200)
TIMES = st.datetimes(dt.datetime(1990, 1, 1), dt.datetime(2099, 1, 1))


def cells(of):
    return st.lists(of, min_size=ROWS, max_size=ROWS)


def gaps(of):
    return cells(of | st.none())


def column(kind, of):
    """Columns that a library makes of cells, where it takes them."""
    return of.map(lambda values: (kind, values))


NUMPY = [
    column("float64", cells(REAL)),
    column("float32", cells(st.floats(width=32))),
    column("float16", cells(st.floats(width=16))),
    *(column(f"int{n}", cells(st.integers(-(2 ** (n - 1)), 2 ** (n - 1) - 1))) for n in (8, 64)),
    *(column(f"uint{n}", cells(st.integers(0, 2**n - 1))) for n in (32, 64)),
    column("bool", cells(st.booleans())),
    column("float64", cells(SMALL.map(float))),
]
OF_PANDAS = [
    *NUMPY,
    column("object", cells(MIXED)),
    column("object", gaps(SMALL)),
    column("object", gaps(TEXT)),
    column("str", gaps(TEXT)),
    column("Int64", gaps(WHOLE)),
    column("Float64", gaps(REAL)),
    column("boolean", gaps(st.booleans())),
    column("double[pyarrow]", gaps(REAL)),
    column("int64[pyarrow]", gaps(WHOLE)),
    column("category", gaps(TEXT)),
    column("category", gaps(SMALL)),
    column("category", gaps(REAL)),
    column("datetime64[ns]", cells(TIMES)),
]
OF_ARROW = [
    column(pa.float64(), gaps(REAL)),
    column(pa.float32(), gaps(st.floats(width=32))),
    column(pa.int64(), gaps(WHOLE)),
    column(pa.uint64(), gaps(st.integers(0, 2**64 - 1))),
    column(pa.bool_(), gaps(st.booleans())),
    column(pa.string(), gaps(TEXT)),
    column(pa.timestamp("us"), gaps(TIMES)),
    column(pa.dictionary(pa.int32(), pa.string()), gaps(TEXT)),
    column(pa.decimal128(9, 2), gaps(st.sampled_from([Decimal("1.50"), Decimal("7.00")]))),
    column(pa.null(), cells(st.none())),
]


def model(fields, **more):
    spec = InputSpec(fields)
    base = random_model((spec.n_bits, 6, 2), np.random.default_rng(0), extremes=False)
    return BinaryModel(spec, base.hidden, base.output, ("benign", "attack"), "m", **more)


def thermometers(*names, scale=1.0):
    return tuple(Field.thermometer(n, [1, 2, 5, 100, 2**31], scale=scale) for n in names)


OWN = model(
    thermometers("dur", "bytes", "bytes_negative", "proto", "gap", "strict"),
    table=TableRules(
        {
            "dur": ColumnRule(scale=1000.0, blank="zero"),
            "bytes": ColumnRule(blank="largest", negative="split"),
            "proto": ColumnRule("category", values=("tcp", "true", "1", "")),
            "gap": ColumnRule(blank="largest", bits=9),
            "strict": ColumnRule(),
        }
    ),
)
PLAIN = model(thermometers("dur", "bytes", "gap"))
UNSW = model(
    thermometers("ct_ftp_cmd", "is_ftp_login", "dur", "sbytes", "proto", "service"),
    provenance={"data": "unsw-nb15"},
)
COLUMNS = {
    "own": (OWN, ("dur", "bytes", "proto", "gap", "strict")),
    "plain": (PLAIN, ("dur", "bytes", "gap")),
    "unsw": (UNSW, PARTITION_COLUMNS),
}
SAFE = {"proto": "tcp", "service": "http", "state": "FIN", "attack_cat": "Normal"}


def pandas_table(columns):
    return pd.DataFrame({n: pd.Series(v, dtype=kind) for n, (kind, v) in columns.items()})


def arrow_table(columns):
    return pa.table({n: pa.array(v, kind) for n, (kind, v) in columns.items()})


def polars_table(columns):
    return pl.from_arrow(arrow_table(columns))


def outcome(network, flows):
    """Classes, margins, scores and warnings, or the error, in which a row is a line."""
    with warnings.catch_warnings(record=True) as records:
        warnings.simplefilter("always", N3icWarning)
        try:
            inference = n3ic.predict(network, flows)
        except DataError as error:
            where = re.sub(
                r"^.*?, (line|row) (\d+)", lambda m: row_of_line(*m.groups()), str(error)
            )
            where = re.sub(r"(?<=\d)\.0\b", "", where)  # libraries spell whole floats differently
            return re.sub(r"^[^,:]*(DataFrame|Table|flows\.csv)", "", where)
    lines = sorted(
        re.sub(r"^.*?(DataFrame|Table|flows\.csv): ", "", str(w.message)) for w in records
    )
    if isinstance(flows, Path):
        classes = np.array(network.verdict_names)[network.verdicts(inference.scores)]
        return classes.tolist(), inference.margins.tolist(), inference.scores.tolist(), lines
    table = {name: list(np.asarray(inference[name])) for name in columns_of(inference)}
    scores = np.stack([table[f"score_{c}"] for c in network.classes], axis=1)
    return [*map(str, table["class"])], [*map(int, table["margin"])], scores.tolist(), lines


def row_of_line(word, number):
    return f"row {int(number) - (word == 'line')}"


def columns_of(table):
    return table.column_names if isinstance(table, pa.Table) else list(table.columns)


def written(table):
    if isinstance(table, pd.DataFrame):
        return table.to_csv(index=False, lineterminator="\n").encode("utf-8", "surrogatepass")
    if isinstance(table, pl.DataFrame):
        return table.write_csv().encode()
    return table_sheet(table).as_text().body


LIBRARIES = {
    "pandas": (pandas_table, OF_PANDAS, lambda v: ("object" if isinstance(v[0], str) else None, v)),
    "Polars": (polars_table, OF_ARROW, lambda v: (None, v)),
    "PyArrow": (arrow_table, OF_ARROW, lambda v: (None, v)),
}


# By default each library and each layout once.
DEFAULT = {("pandas", "own"), ("Polars", "plain"), ("PyArrow", "unsw")}
CASES = [
    pytest.param(*case, marks=() if case in DEFAULT else pytest.mark.slow)
    for case in product(LIBRARIES, COLUMNS)
]


@pytest.mark.slow
@pytest.mark.parametrize(("library", "layout"), CASES)
@given(data=st.data())
def test_a_table_is_the_file_that_its_library_writes(library, layout, data):
    """Classes, margins, scores, warnings about changed cells, and refused cells with their row."""
    make, kinds, usual = LIBRARIES[library]
    network, names = COLUMNS[layout]
    columns = {name: usual([SAFE.get(name, 1 + i) for i in range(ROWS)]) for name in names}
    drawn = [*network.table.columns] if network.table else list(network.input.features)
    for name in sorted(data.draw(st.sets(st.sampled_from(drawn), max_size=2))):
        columns[name] = data.draw(st.one_of(kinds), label=name)
    try:
        table = make(columns)
    except (pa.ArrowException, pl.exceptions.PolarsError, TypeError, ValueError, OverflowError):
        return  # the library takes no such cells
    with TemporaryDirectory() as folder:
        path = Path(folder) / "flows.csv"
        path.write_bytes(written(table))
        assert outcome(network, table) == outcome(network, path)


def test_a_boolean_of_numpy_among_integers_is_no_1(tmp_path):
    """Arrow takes it for 1, where the file has a word."""
    columns = {n: (None, [SAFE.get(n, 1 + i) for i in range(ROWS)]) for n in PARTITION_COLUMNS}
    table = pandas_table(columns | {"ct_ftp_cmd": ("object", [None, 0, np.True_])})
    (tmp_path / "flows.csv").write_bytes(written(table))
    refused = outcome(UNSW, table)
    assert refused == outcome(UNSW, tmp_path / "flows.csv") and "got 'True'" in refused


def test_blanks_that_are_counts_of_0_are_not_written_as_text(monkeypatch):
    """A word for NaN is an error as in the file; of a cell that is blank, no text is made."""
    kind, usual = pa.float64(), [1 + i for i in range(ROWS)]
    columns = {n: (None, [SAFE.get(n, i) for i in usual]) for n in PARTITION_COLUMNS}
    blank = arrow_table(columns | {"ct_ftp_cmd": (kind, [None, 1.0, 2.0])})
    tables = [blank, pl.from_arrow(blank), blank.to_pandas(), blank.to_pandas().astype(object)]
    zero = outcome(UNSW, arrow_table(columns | {"ct_ftp_cmd": (kind, [0.0, 1.0, 2.0])}))
    word = arrow_table(columns | {"ct_ftp_cmd": (kind, [float("nan"), 1.0, 2.0])})
    for table in (word, pl.from_arrow(word)):
        with pytest.raises(DataError, match="row 1, column 'ct_ftp_cmd': expected a finite number"):
            n3ic.predict(UNSW, table)
    texts, written_as = [], dataframes._Columns._text
    monkeypatch.setattr(
        dataframes._Columns, "_text", lambda self, of: texts.append(of) or written_as(self, of)
    )
    for table in tables:
        texts.clear()
        assert outcome(UNSW, table) == zero
        whole = [text for text in texts if len(text) == ROWS]
        assert all(len(columns_of(text)) == 2 for text in whole)  # a column of objects, alone
        assert not whole or table is tables[3]
