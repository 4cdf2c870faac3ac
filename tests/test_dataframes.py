# SPDX-License-Identifier: Apache-2.0
"""Tables in memory are read as the CSV files that their libraries write, and come back in kind."""

import datetime as dt
import re
import subprocess
import sys
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.metrics import accuracy_score, balanced_accuracy_score, f1_score, roc_auc_score

import n3ic
import n3ic.datasets
from n3ic import dataframes
from n3ic.data.column_profile import profile_columns
from n3ic.data.dataset import data_set
from n3ic.data.delimited import parse_sheet
from n3ic.data.user_table import UserTable, load_own
from n3ic.dataframes import read_dataframe, table_sheet
from n3ic.errors import DataError, N3icWarning, UsageError
from n3ic.meter.table import load_flows
from n3ic.model.random_models import random_model
from n3ic.runs.experiment import train
from n3ic.runs.folder import Run
from n3ic.runs.preparation import Experiment
from n3ic.training.recipe import Recipe
from tests.support.traffic import labelled_capture

ROWS = 240
TEXTS = ("Proto", "note")
QUICK = {"hidden": (6,), "epochs": 1, "bits": 24}


def silent(line):
    """Takes what is told, and tells nobody."""


@pytest.fixture(scope="module")
def frame():
    """A table with a column of every kind; the class depends on three of them."""
    rng = np.random.default_rng(1)
    k = rng.integers(0, 4, ROWS)
    proto = (k + (rng.random(ROWS) < 0.2)) % 3
    jitter = pd.array(rng.integers(-9, 99, ROWS), dtype="Int64")
    jitter[5] = pd.NA
    rate = rng.random(ROWS).astype(np.float32) * 9
    rate[7] = np.nan
    return pd.DataFrame(
        {
            "Proto": pd.Categorical.from_codes(proto, ["tcp", "udp", "sctp"]),
            "dur": np.round(rng.random(ROWS) * (k + 1), 3),
            "Src Bytes": rng.integers(100, 900, ROWS) * (k + 1),
            "syn": rng.random(ROWS) < 0.2 + 0.2 * k,
            "jitter": jitter,
            "rate": rate,
            "large": 2**53 + 1 + 10**12 * rng.integers(0, 900, ROWS),
            "when": pd.Timestamp("2026-01-01") + pd.to_timedelta(rng.integers(0, 9**6, ROWS), "s"),
            "mixed": pd.Series([1, "two", 3.5, True] * (ROWS // 4), dtype=object),
            "note": pd.Series(["a, b", None, 'c "d"'] * (ROWS // 3), dtype=object),
            "app": np.array(["web", "dns", "p2p", "voip"])[k],
        }
    )


def structured(columns):
    """A structured array of columns by name."""
    out = np.empty(len(next(iter(columns.values()))), [(n, c.dtype) for n, c in columns.items()])
    for name, column in columns.items():
        out[name] = column
    return out


def network(table):
    """A network of a table, as a run has it, but for the baselines beside it."""
    recipe = Recipe("own", "quick", encoding="quantile").with_options(QUICK)
    return train(Experiment(table, recipe, name="flows", with_baselines=False)).model


@pytest.fixture(scope="module")
def run(frame, tmp_path_factory):
    path = tmp_path_factory.mktemp("run") / "model.n3ic"
    network(read_dataframe(frame, "app", notify=silent)).save(path)
    return Run(path, {}, {"": path})


def same(one, other):
    """Whether two tables are the same flows, read in the same way."""
    assert one.catalogue == other.catalogue
    assert (one.rules, one.classes, one.sha256) == (other.rules, other.classes, other.sha256)
    np.testing.assert_array_equal(one.label, other.label)
    for name, column in other.features.items():
        np.testing.assert_array_equal(one.features[name], column)


def test_a_pandas_table_is_its_csv_file(frame, tmp_path):
    frame.to_csv(tmp_path / "flows.csv", index=False)
    notes, of_file = [], []
    got = read_dataframe(frame, "app", notify=notes.append)
    same(got, load_own(tmp_path / "flows.csv", "app", notify=of_file.append))
    assert notes == of_file
    features = [f.name for f in got.catalogue if f.usable]
    assert features.pop() == "jitter_negative"
    assert features == ["proto", "dur", "src_bytes", "syn", "jitter", "rate", "large", "note"]
    assert any(line == f"jitter blank or infinite, set to the largest value: 1 of {ROWS} rows"
               for line in notes)  # fmt: skip
    assert {"when", "mixed"} <= {*got.omitted} | {f.name for f in got.catalogue if not f.usable}


def test_a_polars_table_is_its_csv_file(frame, tmp_path):
    table = pl.from_pandas(frame.drop(columns="mixed"))
    table.write_csv(tmp_path / "flows.csv")
    got = read_dataframe(table, "app", notify=silent)
    same(got, load_own(tmp_path / "flows.csv", "app", notify=silent))


def test_every_kind_of_table_holds_the_same_flows(frame):
    plain = frame[["dur", "Src Bytes", "large", "app"]]
    want = read_dataframe(plain, "app", notify=silent)
    arrow = pa.Table.from_pandas(plain, preserve_index=False)
    records = structured({c: plain[c].to_numpy("U8" if c == "app" else None) for c in plain})
    for other in (pl.from_pandas(plain), arrow, records, Stream(arrow)):
        got = read_dataframe(other, "app", notify=silent)
        same(replace(got, sha256=want.sha256), want)
    whole = plain[["Src Bytes", "large"]]
    got = read_dataframe(whole.to_numpy(), plain["app"], feature_names=list(whole), notify=silent)
    want = read_dataframe(whole.assign(label=plain["app"]), "label", notify=silent)
    same(replace(got, sha256=want.sha256), want)


class Stream:
    """A table of a library that nobody knows, which exports an Arrow stream."""

    def __init__(self, table):
        self.table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


def either(one, other):
    """A cell one or the other, by chance."""
    return [(one, other)[i] for i in np.random.default_rng(2).integers(0, 2, 60)]


DRAWN = np.random.default_rng(3)
MOMENTS = pd.Timestamp("2026-01-01") + pd.to_timedelta(DRAWN.integers(0, 9**6, 60), "s")
CELLS = {
    "float64": np.where(np.isfinite(x := DRAWN.integers(0, 2**63, 60).view(float)), x, 1.0),
    "float32": (10 ** DRAWN.uniform(-30, 30, 60)).astype(np.float32),
    "float16": DRAWN.random(60).astype(np.float16),
    "whole floats": np.array(either(-0.0, 3.0)),
    "zeros": np.array(either(-0.0, 0.0)),
    "blanks": np.array(either(np.nan, 1.5)),
    "all blank": np.full(60, np.nan),
    "infinite": np.array(either(-np.inf, 1.5)),
    "int8": DRAWN.integers(-9, 9, 60).astype(np.int8),
    "int64": DRAWN.integers(-(2**62), 2**62, 60),
    "uint64": DRAWN.integers(0, 2**64 - 1, 60, dtype=np.uint64),
    "bool": np.array(either(True, False)),
    "numbers as text": DRAWN.integers(0, 99, 60).astype(str),
    "hexadecimal": np.array(either("0x1F", "12")),
    "signs": np.array(either("+1", "2")),
    "words for blanks": np.array(either("NaN", "3")),
    "dashes": np.full(60, "-"),
    "empty texts": np.array(either("", "2")),
    "spaces": np.array(either(" a", "a ")),
    "commas": np.array(either("a,b", "c")),
    "quotes": np.array(either('1"', "2")),
    "line ends": np.array(either("a\r\nb", "1")),
    "no ASCII": np.array(either("\u00e9", "2")),
    "dates as text": np.array(either("2026-01-01", "2026-01-02")),
    "times of day as text": np.array(either("12:00:01", "12:00:02")),
    "addresses": np.array(either("10.0.0.1", "10.2.3.4")),
    "dates": MOMENTS.floor("D").to_numpy(),
    "times": MOMENTS.to_numpy(),
}
OF_PANDAS = {
    "nullable integers": lambda: pd.array(either(None, 2**53 + 1), "Int64"),
    "nullable floats": lambda: pd.array(either(None, 0.1), "Float32"),
    "nullable booleans": lambda: pd.array(either(None, True), "boolean"),
    "Arrow's floats": lambda: pd.array(either(0.1, 0.2), "float[pyarrow]"),
    "Arrow's text": lambda: pd.array(either(None, "1"), "string[pyarrow]"),
    "categories": lambda: pd.Categorical(either("1", "2"), ["1", "2", "unused"]),
    "integer categories": lambda: pd.Categorical(either(7, 8)),
    "several types": lambda: pd.Series([1, "two", 3.5, True] * 15, dtype=object),
    "integers and floats": lambda: pd.Series(either(1, 2.5), dtype=object),
    "huge integers": lambda: pd.Series(either(1, 2**70), dtype=object),
    "booleans and blanks": lambda: pd.Series(either(True, None), dtype=object),
    "decimals": lambda: pd.Series(either(Decimal("1.50"), Decimal("1E+3")), dtype=object),
    "days": lambda: pd.Series(either(dt.date(2026, 1, 1), dt.date(2026, 1, 2)), dtype=object),
    "times of a zone": lambda: MOMENTS.tz_localize("Europe/Berlin"),
    "far times": lambda: np.array(["0001-01-01", "9000-01-01T01:02:03.5"] * 30, "M8[ms]"),
    "periods": lambda: pd.period_range("2026-01", periods=60, freq="D"),
    "sparse": lambda: pd.arrays.SparseArray(either(0, 3)),
}
OF_POLARS = {
    "enums": lambda: pl.Series(either("a", "b"), dtype=pl.Enum(["a", "b", "1"])),
    "decimals": lambda: pl.Series(either("1.50", "2.25")).cast(pl.Decimal(10, 2)),
    "times of day": lambda: pl.Series(either(dt.time(12), dt.time(13, 0, 1, 5))),
    "128 bits": lambda: pl.Series(either(1, 2), dtype=pl.Int128),
    "blank booleans": lambda: pl.Series(either(None, True)),
    "blank text": lambda: pl.Series(either(None, "1")),
    "nothing": lambda: pl.Series([None] * 60),
}
OF_ARROW = {
    "float16": lambda: pa.array(np.array(either(0.1, 0.2), np.float16)),
    "views": lambda: pa.array(either("a", "1"), pa.string_view()),
    "times of day": lambda: pa.array(either(dt.time(12), dt.time(13)), pa.time32("s")),
    "dictionaries": lambda: pa.array(either(1, 2)).dictionary_encode(),
}
COLUMNS = {
    **{f"pandas, {n}": lambda c=c: pd.DataFrame({"x": c}) for n, c in CELLS.items()},
    **{f"pandas, {n}": lambda c=c: pd.DataFrame({"x": c()}) for n, c in OF_PANDAS.items()},
    **{f"Polars, {n}": lambda c=c: pl.DataFrame({"x": pl.Series(c)}) for n, c in CELLS.items()},
    **{f"Polars, {n}": lambda c=c: pl.DataFrame({"x": c()}) for n, c in OF_POLARS.items()},
    **{f"Arrow, {n}": lambda c=c: pa.table({"x": pa.array(c)}) for n, c in CELLS.items()},
    **{f"Arrow, {n}": lambda c=c: pa.table({"x": c()}) for n, c in OF_ARROW.items()},
}


def facts_or_error(of, *arguments, **named):
    """What a function gives, as text that shows every bit, or what it refuses."""
    try:
        table = of(*arguments, **named)
    except DataError as error:
        return str(error)
    if isinstance(table, list):
        return repr(table)
    numbers = {name: values.astype(float).tolist() for name, values in table.numbers.items()}
    texts = {n: [t.texts[i] for i in t.codes] for n, t in table.texts.items()}
    return repr((table.rows, numbers, texts))


@pytest.mark.first_case
@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_is_what_its_text_says(name):
    """As its facts, as numbers with and without gaps, and as text such as that of a class."""
    table, beside = COLUMNS[name](), {"y": range(60), "app": ["a", "b", "c"] * 20}
    if isinstance(table, pa.Table):
        for label, cells in beside.items():
            table = table.append_column(label, pa.array(cells))
    elif isinstance(table, pl.DataFrame):
        table = table.with_columns(**{label: pl.Series(c) for label, c in beside.items()})
    else:
        table = table.assign(**beside)
    sheet = table_sheet(table, "app")
    try:
        text = sheet.as_text()
    except DataError as error:  # Arrow writes no such type: then it is not read, either
        with pytest.raises(DataError, match=re.escape(str(error))):
            profile_columns([sheet], "app")
        return
    assert facts_or_error(profile_columns, [sheet], "app") == (
        facts_or_error(profile_columns, [text], "app")
    )
    for wanted in ({"numeric": "x"}, {"numeric": "x", "gaps": "x"}, {"numeric": (), "text": "x"}):
        got, want = (
            facts_or_error(parse_sheet, s, ["x", "", ""], header=True, **wanted)
            for s in (sheet, text)
        )
        assert got == want, wanted


@pytest.mark.filterwarnings("ignore::n3ic.errors.N3icWarning")
def test_columns_are_not_written_as_text(frame, run, monkeypatch):
    """Prediction writes none, training only the digest that a model names."""
    plain = frame.drop(columns=["mixed", "when"])
    tables = [plain, pl.from_pandas(plain), pa.Table.from_pandas(plain)]
    want = [n3ic.predict(run, table) for table in tables]
    texts, written = [], dataframes._Columns._text
    monkeypatch.setattr(
        dataframes._Columns,
        "_text",
        lambda self, table: texts.append(table) or written(self, table),
    )
    for table, frame_of_file in zip(tables, want, strict=True):
        assert frame_of_file.equals(n3ic.predict(run, table))
    assert texts == []
    read_dataframe(plain, "app", notify=silent)
    assert len(texts) == 1 and texts[0] is plain


def test_64_bits_do_not_go_through_a_float(frame):
    odd = 2**53 + 1
    classes = pd.DataFrame({"x": range(60), "y": [3, 1] * 30, "app": [odd, odd + 1] * 30})
    assert read_dataframe(classes, "app", notify=silent).classes == (str(odd), str(odd + 1))
    for dtype in ("int64", "uint64", "Int64", "UInt64", "int64[pyarrow]"):
        assert str(odd).encode() in table_sheet(classes.astype({"app": dtype})).as_text().body
    wide = pl.DataFrame({"x": [2**64 - 1, odd]})
    assert table_sheet(wide).as_text().body == b"x\n18446744073709551615\n9007199254740993\n"
    assert table_sheet(wide.to_arrow()).as_text().body == table_sheet(wide).as_text().body
    assert table_sheet(wide["x"].to_numpy()[:, None], feature_names=["x"]).as_text().body == (
        table_sheet(wide).as_text().body
    )


def test_the_network_is_that_of_the_file_byte_for_byte(frame, run, tmp_path):
    frame.to_csv(tmp_path / "flows.csv", index=False)
    of_file = network(load_own(tmp_path / "flows.csv", "app", notify=silent))
    assert run.path.read_bytes() == of_file.to_bytes()


@pytest.mark.filterwarnings("ignore::n3ic.errors.N3icWarning")
def test_what_comes_back_is_of_the_kind_that_went_in(frame, run, tmp_path):
    shuffled = frame.sample(frac=1, random_state=0)  # the index is no longer 0, 1, 2
    predicted = run.predict(shuffled)
    assert isinstance(predicted, pd.DataFrame)
    assert predicted.index.equals(shuffled.index)
    model = n3ic.load(run.path)
    assert list(predicted) == ["class", "margin", *(f"score_{c}" for c in model.classes)]
    frame.to_csv(tmp_path / "flows.csv", index=False)
    want = n3ic.predict(model, tmp_path / "flows.csv")
    predicted = predicted.sort_index()
    np.testing.assert_array_equal(predicted["class"], np.array(model.classes)[want.classes])
    np.testing.assert_array_equal(predicted["margin"], want.margins)
    np.testing.assert_array_equal(predicted.filter(like="score_").to_numpy(), want.scores)
    plain = frame.drop(columns="mixed")
    polars, arrow = pl.from_pandas(plain), pa.Table.from_pandas(plain)
    of_polars, of_arrow = n3ic.predict(run, polars), n3ic.predict(run, arrow)
    assert of_polars.equals(model.predict(polars))
    assert isinstance(of_polars, pl.DataFrame) and isinstance(of_arrow, pa.Table)
    pd.testing.assert_frame_equal(of_polars.to_pandas(), predicted)
    pd.testing.assert_frame_equal(of_arrow.to_pandas(), predicted)
    columns = {name: plain[name].to_numpy() for name in plain.drop(columns=["when", "app"])}
    columns["jitter"] = plain["jitter"].astype(float).to_numpy()
    columns |= {name: plain[name].astype(object).fillna("").to_numpy("U8") for name in TEXTS}
    got = n3ic.predict(run, structured(columns))
    np.testing.assert_array_equal(got["class"], predicted["class"])
    assert got.dtype.names == tuple(predicted)


def test_columns_that_a_model_does_not_read_do_not_matter(frame, run):
    read = frame.drop(columns=["app", "when", "mixed"])
    more = read.assign(span=pd.to_timedelta(1, "s"))[["span", *reversed(list(read))]]
    with pytest.warns(N3icWarning, match="jitter blank"):
        want = run.predict(read)
    with pytest.warns(N3icWarning, match="jitter blank"):
        pd.testing.assert_frame_equal(run.predict(more), want)
    with pytest.raises(DataError, match="1 column missing: dur"):
        run.predict(read.drop(columns="dur"))


def test_a_shunted_flow_says_so(frame, run):
    model = n3ic.load(run.path).with_shunt(2)
    with pytest.warns(N3icWarning, match="jitter blank"):
        predicted = n3ic.predict(model, frame)
    assert ((predicted["class"] == "shunt") == (predicted["margin"] < 2)).all()
    assert 0 < (predicted["class"] == "shunt").sum() < ROWS


@pytest.mark.filterwarnings("ignore::n3ic.errors.N3icWarning")
def test_figures_are_those_of_scikit_learn(frame, run):
    (figures,) = n3ic.evaluate(run, frame, label="app").values()
    predicted = run.predict(frame)
    true, classes = frame["app"], predicted["class"]
    assert figures.accuracy == pytest.approx(accuracy_score(true, classes))
    assert figures.macro_f1 == pytest.approx(f1_score(true, classes, average="macro"))
    recall = np.diag(figures.confusion) / np.sum(figures.confusion, axis=1)
    assert recall.mean() == pytest.approx(balanced_accuracy_score(true, classes))
    scores = predicted.filter(like="score_")
    areas = [
        roc_auc_score(
            true == c, scores[f"score_{c}"] - scores.drop(columns=f"score_{c}").max(axis=1)
        )
        for c in n3ic.load(run.path).classes
    ]
    assert figures.roc_auc == pytest.approx(np.mean(areas))
    renamed = frame.rename(columns={"app": "Application"})
    assert n3ic.evaluate(n3ic.load(run.path), renamed, label="Application")[""] == figures
    with pytest.raises(DataError, match="1 column missing: app"):
        n3ic.evaluate(run, renamed)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f.assign(span=pd.to_timedelta(f["dur"], "s")), "'span'.*timedelta64.*seconds"),
        (lambda f: f.assign(z=1j), "'z': expected numbers.*complex128; drop"),
        (lambda f: pl.DataFrame({"x": [[1], [2]], "app": ["a", "b"]}), "'x'.*List.*drop"),
        (lambda f: pa.table({"x": [b"1", b"2"], "app": ["a", "b"]}), "'x'.*binary.*drop"),
        (
            lambda f: pl.DataFrame({"x": [dt.timedelta(1)], "app": ["a"]}),
            "'x'.*Duration.*seconds",
        ),
        (lambda f: pd.concat({"a": f}, axis=1), r"one name per column, got \[\('a', 'Proto'\)"),
        (lambda f: f.rename(columns={"dur": "a\nb"}), "rename the columns"),
        (lambda f: f.iloc[:0], "no rows"),
        (lambda f: f.drop(columns="app"), "no column 'app'; its columns are Proto, dur"),
        (lambda f: pd.concat([f, f[["app"]]], axis=1), "2 columns are called 'app'; rename one"),
        (lambda f: f.assign(app=f["app"].where(f.index != 3)), "row 4, column 'app': no class"),
        (lambda f: f.assign(app="web"), "the one class 'web'"),
        (lambda f: f.assign(note="a\0b"), "NUL"),
        (lambda f: np.zeros((9, 2)), r"no names; say feature_names=\[...\]"),
        (lambda f: np.zeros(9, dtype=[("x", "f8", 3), ("app", "U3")]), "one type"),
    ],
)
def test_what_cannot_be_read_says_what_to_do(frame, change, message):
    with pytest.raises((DataError, UsageError), match=message) as raised:
        read_dataframe(change(frame), "app", notify=silent)
    assert "\n" not in str(raised.value)


def test_arguments_that_do_not_go_together_are_refused(frame):
    with pytest.raises(UsageError, match="a table comes first"):
        n3ic.train(frame, data="flows.csv")
    with pytest.raises(UsageError, match="'anomaly' reads files"):
        n3ic.train("anomaly", data=frame)
    with pytest.raises(UsageError, match="beside a numpy array"):
        n3ic.train(data="flows.csv", feature_names=["x"])
    with pytest.raises(UsageError, match="feature_names go with a numpy array"):
        n3ic.train(frame, label="app", feature_names=["a"])
    with pytest.raises(DataError, match=r"expected shape \(rows, 3\)"):
        n3ic.train(np.zeros((60, 2)), label=[0, 1] * 30, feature_names=["a", "b", "c"])


def test_a_second_column_of_a_name_has_a_name_of_its_own(frame):
    twice = frame[["dur", "Src Bytes", "app"]].set_axis(["x", "x", "app"], axis=1)
    got = read_dataframe(twice, "app", notify=silent)
    assert list(got.features) == ["x", "x_2"]
    np.testing.assert_array_equal(got.features["x_2"], frame["Src Bytes"])


def test_a_boolean_is_the_same_however_it_is_written():
    rows = {"flag": [True, False, True, False] * 20, "x": [1, 2, 3, 5] * 20, "app": ["a", "b"] * 40}
    table = read_dataframe(pd.DataFrame(rows), "app", notify=silent)
    sheet = table_sheet(pl.DataFrame(rows))
    got = UserTable(table.rules).read_features(sheet, ["flag"])
    np.testing.assert_array_equal(got["flag"], table.features["flag"])


@pytest.mark.slow
def test_a_plain_installation_takes_tables_without_pandas(tmp_path):
    path = tmp_path / "m.n3ic"
    random_model((64, 5, 2), np.random.default_rng(0)).save(path)
    code = (
        "import sys; blocked = 'pandas polars narwhals sklearn torch'.split()\n"
        "class Without:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] in blocked: raise ImportError(name)\n"
        "sys.meta_path.insert(0, Without())\n"
        "import n3ic, numpy as np, pyarrow as pa\n"
        f"table = pa.table({{n: [1, 2] for n in n3ic.load({str(path)!r}).input.features}})\n"
        f"print(n3ic.predict({str(path)!r}, table)['class'].to_pylist())\n"
        f"array, names = np.ones((2, table.num_columns)), table.column_names\n"
        f"print(len(n3ic.predict({str(path)!r}, array, feature_names=names)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "['class0', 'class0']\n2\n", done.stderr


@pytest.fixture(scope="module")
def capture(tmp_path_factory):
    folder = tmp_path_factory.mktemp("capture")
    data, labels = labelled_capture(120)
    (folder / "a.pcap").write_bytes(data)
    (folder / "labels.csv").write_bytes(labels)
    return folder


def test_a_capture_is_a_frame_that_carries_its_meter(capture, tmp_path):
    frame = n3ic.extract(capture / "a.pcap", labels=capture / "labels.csv")
    assert isinstance(frame, pd.DataFrame)
    arrow = n3ic.extract([capture / "a.pcap"], labels=capture / "labels.csv", as_frame=False)
    pd.testing.assert_frame_equal(arrow.to_pandas(), frame)
    got = read_dataframe(frame, "label", notify=silent)
    pa.parquet.write_table(arrow, tmp_path / "flows.parquet")
    want = load_flows(tmp_path / "flows.parquet")
    assert got.meter == want.meter == read_dataframe(arrow, notify=silent).meter
    for name, column in want.features.items():
        np.testing.assert_array_equal(got.features[name], column)
    np.testing.assert_array_equal(got.label, want.label)


def test_a_bunch_is_what_scikit_learn_gives(tmp_path):
    name = "unsw-nb15-synthetic"
    data_set(name).generate_file(tmp_path / "flows.csv", {"rows": 120})
    bunch = n3ic.datasets.load(name, tmp_path / "flows.csv")
    table = bunch.table
    assert list(bunch.frame) == [*bunch.feature_names, "target"]
    assert bunch.data.equals(bunch.frame[bunch.feature_names])
    assert (bunch.data.dtypes == "int64").all()
    assert list(bunch.target.cat.categories) == bunch.target_names == list(table.classes)
    np.testing.assert_array_equal(bunch.target.cat.codes, table.label)
    assert bunch.DESCR.startswith("# ")
    for parts in bunch.splits.values():
        rows = np.concatenate(list(parts.values()))
        assert len(np.unique(rows)) == len(rows) <= len(table)
    X, y = n3ic.datasets.load(name, tmp_path / "flows.csv", as_frame=False, return_X_y=True)
    np.testing.assert_array_equal(X, bunch.data)
    np.testing.assert_array_equal(y, table.label)
    with pytest.raises(UsageError, match="no embedded sample"):
        n3ic.datasets.load("unsw-nb15")


@pytest.mark.filterwarnings("ignore::n3ic.errors.N3icWarning")
def test_a_network_of_such_a_frame_meters_and_is_evaluated(capture, tmp_path):
    frame = n3ic.extract(capture / "a.pcap", labels=capture / "labels.csv")
    model = network(read_dataframe(frame, "label", notify=silent))
    assert model.meter is not None
    labelled = frame[frame["label"].fillna("") != ""]
    right = n3ic.predict(model, labelled)["class"] == labelled["label"]
    (figures,) = n3ic.evaluate(model, frame).values()
    assert (figures.rows, figures.accuracy) == (len(labelled), pytest.approx(right.mean()))
    verdicts = n3ic.predict(model, capture / "a.pcap")  # of packets, metered as the frame was
    assert len(verdicts.classes) == len(frame)
