# SPDX-License-Identifier: Apache-2.0
"""DataFrames in the layout of a data set: its derived columns, in training and on every target."""

import io
import lzma

import numpy as np
import pandas as pd
import polars as pl
import pytest

import n3ic
from n3ic.data.dataset import data_set
from n3ic.dataframes import read_dataframe, table_sheet
from n3ic.datasets.cic_ids2017 import DATASET as CIC
from n3ic.datasets.iscx_tor2016 import DATASET as TOR
from n3ic.errors import DataError, N3icWarning, UsageError
from n3ic.runs.experiment import train
from n3ic.runs.preparation import Experiment
from n3ic.runs.progress import TrainingProgress
from n3ic.training.recipe import Recipe
from n3ic.usecases.base import use_case

COLUMNS = ("packets", "bytes", "packet_mean", "flow_duration")  # three of them derived
EVERY = ("host", "netfpga", "nfp", "onnx", "p4", "p4-netfpga", "qonnx", "xdp")
PLAIN = {"label": "", "positive": "", "description": ""}


def frame_of(known, rows):
    """Rows of an embedded file, drawn from a seed, as a pandas table."""
    with lzma.open(known.embedded, "rt") as stream:
        return pd.read_csv(io.StringIO(stream.read())).sample(rows, random_state=5)


def synthetic(path, rows=300):
    return data_set("unsw-nb15-synthetic").generate_file(path / "unsw.csv", {"rows": rows})


def as_trained(table, label, notify=lambda line: None, dataset=None, **options):
    """A table in memory as :func:`n3ic.train` reads it."""

    def read(sheet, column, *, positive, notify):
        settings = PLAIN | {"label": column, "positive": positive} | options
        return use_case("flows").load(sheet, dataset, settings, notify)

    return read_dataframe(table, label, notify=notify, read=read)


def network(table, columns=COLUMNS):
    """A network of a table, as a run has it, but for the baselines beside it."""
    recipe = Recipe("own", "quick", encoding="quantile", columns=columns)
    recipe = recipe.with_options({"hidden": (8,), "epochs": 1, "bits": 32})
    return train(Experiment(table, recipe, name="flows", with_baselines=False)).model


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    """The network of a DataFrame, the DataFrame, and its CSV file."""
    path = tmp_path_factory.mktemp("layout") / "own.csv"
    frame = frame_of(TOR, 500)
    frame.to_csv(path, index=False)
    return network(as_trained(frame, "label")), frame, path


@pytest.mark.slow
def test_a_frame_trains_the_network_of_its_file_byte_for_byte(known, monkeypatch):
    model, frame, path = known
    options = PLAIN | {"label": "label"}
    of_file = network(use_case("flows").load(path, None, options, lambda line: None))
    assert model.to_bytes() == of_file.to_bytes()
    assert model.provenance["data"] == "iscx-tor2016" and model.table is None
    assert {*model.input.features} & {"packets", "bytes", "packet_mean"}
    given, notes = [], []
    monkeypatch.setattr("n3ic.usecases.training.train_use_case", lambda r, _: given.append(r))
    n3ic.train(frame, label="label", progress=TrainingProgress(note=notes.append))
    assert network(given[0].table).to_bytes() == model.to_bytes()
    assert notes[0].startswith("the data set iscx-tor2016 knows this layout and reads it")


@pytest.mark.slow
def test_flows_are_predicted_and_evaluated_from_frames_and_files(known):
    model, frame, path = known
    prediction, expected = n3ic.predict(model, frame), n3ic.predict(model, path)
    words = model.encode({n: TOR.load(path).features[n] for n in model.input.features})
    assert np.array_equal(expected.scores, model.infer(words).scores)
    assert np.array_equal(prediction["margin"], expected.margins)
    unlabelled = pl.from_pandas(frame.drop(columns="label"))
    assert np.array_equal(n3ic.predict(model, unlabelled)["margin"], expected.margins)
    asked = ((frame, None), (frame, "label"), (path, None), (path, "label"))
    with pytest.warns(N3icWarning, match="was trained on some of these flows"):
        figures = [n3ic.evaluate(model, of, label=label)[""].accuracy for of, label in asked]
    right = (prediction["class"] == frame["label"].str.strip()).mean()
    assert figures == [pytest.approx(right)] * len(asked)


@pytest.mark.parametrize("label", ["protocol", "app"])
def test_a_label_that_says_other_classes_is_refused(known, label):
    model, frame, path = known
    for flows in (frame, path):
        with pytest.raises(UsageError, match=r"holds others|no column 'app'"):
            n3ic.evaluate(model, flows, label=label)


@pytest.mark.slow
@pytest.mark.parametrize(
    "target",
    [
        t if t in ("host", "netfpga", "xdp") else pytest.param(t, marks=pytest.mark.slow)
        for t in EVERY
    ],
)
def test_every_target_computes_the_derived_columns(known, target, tmp_path, quick_build):
    """Rows of a frame and of a file go through the target, with features that no column has."""
    model, frame, _ = known
    later = frame[:12]
    later.to_csv(tmp_path / "later.csv", index=False)
    n3ic.export(model, target, tmp_path / "out", verify=False)
    for rows in (later, tmp_path / "later.csv"):
        done = n3ic.verify(tmp_path / "out", rows=rows, vectors=4, record=False)
        if done.missing:
            pytest.skip(done.missing)
        assert done.ok and done.rows == len(later), str(done)


@pytest.mark.slow
def test_frames_of_other_layouts_are_read_by_their_data_sets(tmp_path):
    """The same table as of the file: names, integers, classes, digest."""
    synthetic(tmp_path)
    unsw = pd.read_csv(tmp_path / "unsw.csv")
    for frame, label in ((unsw, "label"), (frame_of(CIC, 300), "attack_cat")):
        frame.to_csv(path := tmp_path / "own.csv", index=False)
        notes, of_file = [], []
        table = as_trained(frame, label, notes.append)
        options = PLAIN | {"label": label}
        want = use_case("flows").load(path, None, options, of_file.append)
        assert notes == of_file and " knows this layout and reads it" in notes[0]
        assert (table.name, table.classes, table.sha256) == (want.name, want.classes, want.sha256)
        assert table.catalogue == want.catalogue and table.meter == want.meter
        for name, column in want.features.items():
            assert np.array_equal(table.features[name], column), name
    assert "without init_win_bytes_forward" in notes[0]  # a leak that the user's table has


def test_a_network_with_a_meter_evaluates_frames_of_its_layout(tmp_path):
    """The network of UNSW-NB15's columns carries a meter, and its frames are no metered flows."""
    frame = pd.read_csv(synthetic(tmp_path))
    model = network(as_trained(frame, "label"), ())
    assert model.meter is not None
    with pytest.warns(N3icWarning, match="was trained on some of these flows"):
        (figures,) = n3ic.evaluate(model, frame, label="label").values()
    classes = n3ic.predict(model, frame)["class"]
    right = (classes == np.where(frame["label"], "attack", "normal")).mean()
    assert figures.accuracy == pytest.approx(right)


def test_a_damaged_frame_is_refused_by_row(tmp_path):
    frame = pd.read_csv(synthetic(tmp_path, 60))
    frame["sbytes"] = frame["sbytes"].astype(object)
    frame.loc[3, "sbytes"] = "many"
    with pytest.raises(DataError, match="pandas DataFrame, row 4, column 'sbytes'"):
        data_set("unsw-nb15").load_sheet(table_sheet(frame))
    notes = []
    assert as_trained(frame, "label", notes.append).name == "flows"
    assert "derives is_tcp" in notes[0] and "row 4, column 'sbytes'" in notes[0]


def test_a_frame_without_a_needed_column_is_told_how_to_have_the_derived_ones():
    whole = frame_of(TOR, 300)
    fwd = [name for name in whole if name.strip() == "Fwd IAT Max"]
    frame = whole.drop(columns=fwd)
    notes = []
    table = as_trained(frame, "label", notes.append)
    assert table.name == "flows" and "packets" not in table.features
    assert notes[0].startswith("the data set iscx-tor2016 derives packets, bytes,")
    assert "1 column missing: fwd_iat_max" in notes[0]


def test_nothing_is_told_where_no_column_is_to_be_had():
    """A frame of n3ic.datasets has the derived columns; a few common names are no layout."""
    frame, notes = n3ic.datasets.load("iscx-tor2016").frame.sample(300, random_state=1), []
    assert as_trained(frame, "target", notes.append).name == "flows"
    rng = np.random.default_rng(1)
    few = pd.DataFrame({name: rng.integers(0, 99, 90) for name in ("dur", "size", "pace")})
    as_trained(few.assign(app=["a", "b"] * 45), "app", notes.append)
    assert not [line for line in notes if line.startswith("the data set")]


def test_another_data_set_may_be_named_for_a_frame():
    frame = frame_of(TOR, 200)
    assert as_trained(frame, "label", dataset="flows").name == "flows"
    assert as_trained(frame.assign(jitter=1.5), "label", dataset="iscx-tor2016").name == TOR.name
    with pytest.raises(UsageError, match="ns3-tomography reads files of its own, not pandas"):
        as_trained(frame, "label", dataset="ns3-tomography")
