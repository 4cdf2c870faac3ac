# SPDX-License-Identifier: Apache-2.0
"""From a capture to verdicts: the same by every way, row for row."""

import bz2
import csv
import gzip
import io
import json
import lzma
import os
import random
import shutil
import sys
import warnings
from dataclasses import replace

import numpy as np
import pyarrow.csv
import pyarrow.parquet
import pytest

import n3ic
from n3ic.cli.model import predict
from n3ic.data.dataset import data_set_of
from n3ic.data.flows import read_features
from n3ic.data.streaming import predict_stream
from n3ic.data.table import SourceFile
from n3ic.data.table_meter import meter_file, meter_of
from n3ic.datasets.unsw_nb15.meter import one_tap
from n3ic.errors import DataError, MissingDependencyError, N3icWarning, UsageError
from n3ic.meter.capture import Capture, is_capture, libpcap, plain_capture
from n3ic.meter.extract import extract
from n3ic.meter.labels import read_labels
from n3ic.meter.standard import standard_spec
from n3ic.meter.table import catalogue_of, load_flows
from n3ic.meter.verdicts import predict_capture
from n3ic.model.meter_spec import UINT32_MAX
from n3ic.model.network import BinaryModel
from n3ic.runs.preparation import Experiment
from n3ic.training.recipe import Recipe, Training
from n3ic.util.files import sha256_file
from tests.support.generated import random_frames, random_spec
from tests.support.metered_models import metered_network
from tests.support.traffic import labelled_capture, pcap

try:
    libpcap()
except MissingDependencyError as error:
    pytest.skip(str(error), allow_module_level=True)

pytestmark = pytest.mark.skipif(
    not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="no C compiler"
)


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text.decode())))


def expected_rows(reference, model, path):
    """The reference meter and the network in numpy, a flow at a time."""
    spec = model.meter
    with Capture(path) as capture:
        frames = [(data, n, time // spec.tick_ns) for data, n, time in capture.packets()]
        flows, _ = reference(spec, capture.link, frames)
    columns = np.array([flow[-1] for flow in flows], dtype=np.int64)
    return flows, model.infer(model.encode(dict(zip(spec.feature_names, columns.T, strict=True))))


@pytest.fixture
def check_every_way(reference):
    """A function that compares the verdicts of a capture by every way that there is."""
    return lambda model, path, folder: every_way(reference, model, path, folder)


def every_way(reference, model, path, folder):
    batches = []
    prediction = predict_capture(
        model,
        path,
        folder / "verdicts.csv",
        progress=lambda rows, columns: batches.append((rows, columns)),
    )
    verdicts = rows_of((folder / "verdicts.csv").read_bytes())
    assert [int(v["row"]) for v in verdicts] == [*range(prediction.rows)]
    lengths = [len(next(iter(columns.values()))) for _, columns in batches]
    assert [rows for rows, _ in batches] == np.cumsum(lengths).tolist()
    for table in ("flows.parquet", "flows.csv"):
        extract([path], folder / table, model.meter)
        predict_stream(model, folder / table, folder / "classes.csv")
        classes = rows_of((folder / "classes.csv").read_bytes())
        assert [{k: v[k] for k in classes[0]} for v in verdicts] == classes
    flows, want = expected_rows(reference, model, path)
    assert len(verdicts) == len(flows) > 3
    columns = (
        "row,source,source_port,destination,destination_port,protocol,first_us,last_us,packets"
    )
    assert [*verdicts[0]][:12] == [*columns.split(","), "decided", "class", "margin"]
    counted = [int(np.sum(model.verdicts(want.scores) == i)) for i in range(len(model.classes))]
    assert list(prediction.classes.items())[: len(counted)] == [
        *zip(model.classes, counted, strict=True)
    ]
    assert sum(prediction.classes.values()) == prediction.rows
    names = [name for name in verdicts[0] if name.startswith("score_")]
    for i, (row, flow) in enumerate(zip(verdicts, flows, strict=True)):
        assert [int(row[name]) for name in names] == want.scores[i].tolist()
        assert int(row["margin"]) == want.margins[i]
        assert (int(row["packets"]), row["decided"]) == (flow[8], flow[9])
        assert int(row["first_us"]) == flow[6] * model.meter.tick_ns // 1000
    table = pyarrow.parquet.read_table(folder / "flows.parquet").to_pylist()
    for row, flow in zip(verdicts, table, strict=True):
        for name in ("source", "source_port", "destination", "destination_port", "protocol"):
            assert row[name] == str(flow[name])
    assert np.array_equal(n3ic.predict(model, path).scores, want.scores)


@pytest.mark.parametrize("packets", [0, 4])
def test_a_capture_and_its_table_get_the_same_verdicts(tmp_path, packets, check_every_way):
    (tmp_path / "c.pcap").write_bytes(gzip.compress(labelled_capture(40)[0]))
    check_every_way(metered_network(standard_spec(packets=packets)), tmp_path / "c.pcap", tmp_path)


@pytest.mark.first_case
@pytest.mark.filterwarnings("ignore:.* time stamps")
@pytest.mark.parametrize("seed", [0, 2, 3, 4])
def test_hostile_frames_and_any_meter_get_the_verdicts_of_the_reference(
    tmp_path, seed, quick_build, check_every_way
):
    r = random.Random(seed)
    spec = replace(random_spec(r), tick_ns=1000, when_full="evict-oldest")
    packets = [(max(0, t) / 1e6, f) for f, _, t in random_frames(r, 400, 1000)]
    (tmp_path / "c.pcap").write_bytes(pcap(packets))
    check_every_way(metered_network(spec, seed), tmp_path / "c.pcap", tmp_path)


def test_the_meter_of_a_data_set_gets_the_verdicts_of_the_reference(
    tmp_path, quick_build, check_every_way
):
    (tmp_path / "c.pcap").write_bytes(labelled_capture(60)[0])
    check_every_way(metered_network(one_tap(windows=True)), tmp_path / "c.pcap", tmp_path)


@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress, bz2.compress])
def test_a_capture_comes_from_standard_input(tmp_path, monkeypatch, pack):
    model, data = metered_network(standard_spec()), labelled_capture(5)[0]
    model.save(tmp_path / "m.n3ic")
    (tmp_path / "c.pcap").write_bytes(data)
    (tmp_path / "given").write_bytes(pack(data))
    with (tmp_path / "given").open("rb") as given:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(given))
        predict(source="-", model=tmp_path / "m.n3ic", out=str(tmp_path / "got.csv"))
        given.seek(0)
        extract(["-"], tmp_path / "flows.csv", model.meter)
    predict_capture(model, tmp_path / "c.pcap", tmp_path / "want.csv")
    assert (tmp_path / "got.csv").read_bytes() == (tmp_path / "want.csv").read_bytes()
    extract([tmp_path / "c.pcap"], tmp_path / "want_flows.csv", model.meter)
    want, flows = (
        pyarrow.csv.read_csv(tmp_path / name, pyarrow.csv.ReadOptions(skip_rows=1))
        for name in ("want_flows.csv", "flows.csv")
    )
    assert flows.drop("capture") == want.drop("capture")


@pytest.mark.parametrize(
    "head", [b"", b"f1,f2\n1,2\n", gzip.compress(b"f1,f2\n", mtime=0), b"\x1f\x8b\x08"]
)
def test_standard_input_that_is_no_capture_stays_a_table(monkeypatch, head):
    stream = io.BufferedReader(io.BytesIO(head))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(stream))
    assert is_capture("-") is False
    assert stream.read() == head  # nothing was taken from it


def test_a_cut_packed_capture_is_unpacked_up_to_the_cut(tmp_path):
    data = labelled_capture(5)[0]
    (tmp_path / "c.pcap.gz").write_bytes(gzip.compress(data)[:-20])
    plain = plain_capture(tmp_path / "c.pcap.gz", tmp_path).read_bytes()
    assert len(data) / 2 < len(plain) < len(data)
    assert data.startswith(plain)
    with pytest.warns(N3icWarning, match="is cut"):
        prediction = predict_capture(metered_network(standard_spec()), tmp_path / "c.pcap.gz", None)
    assert prediction.rows > 2


def test_a_model_without_a_meter_says_what_to_do(tmp_path):
    (tmp_path / "c.pcap").write_bytes(pcap([]))
    model = replace(metered_network(standard_spec()), meter=None)
    for function in (predict_capture, n3ic.predict):
        with pytest.raises(UsageError, match="train it on a table that n3ic data extract wrote"):
            function(model, tmp_path / "c.pcap")
    assert [p.name for p in tmp_path.iterdir()] == ["c.pcap"]


def test_the_command_line_says_where_meters_differ(tmp_path, capsys):
    capture, model = tmp_path / "c.pcap", metered_network(standard_spec())
    capture.write_bytes(labelled_capture(5)[0])
    model.save(tmp_path / "m.n3ic")

    def errors_of(source):
        capsys.readouterr()
        predict(
            source=str(source), model=tmp_path / "m.n3ic", out=str(tmp_path / "v.csv"), replace=True
        )
        return capsys.readouterr().err

    assert errors_of(capture) == f"n3ic: wrote 5 rows to {tmp_path / 'v.csv'}\n"
    arp = bytes(12) + b"\x08\x06" + bytes(28)
    (tmp_path / "arp.pcap").write_bytes(pcap([(0.0, arp)] * 3))
    assert "put aside: 3 packets (not IP)" in errors_of(tmp_path / "arp.pcap")
    for packets, warns in ((0, False), (4, True)):
        for name in (f"{packets}.csv", f"{packets}.parquet"):
            extract([capture], tmp_path / name, standard_spec(packets=packets))
            assert ("was metered differently" in errors_of(tmp_path / name)) is warns
    with pytest.raises(UsageError, match="leave out --dataset and --units"):
        predict(
            source=str(capture), model=tmp_path / "m.n3ic", out=str(tmp_path / "x"), units="nic"
        )


def test_a_capture_is_known_by_its_bytes(tmp_path):
    good, path = labelled_capture(1)[0], tmp_path / "x"
    for data, answer in (
        (good, True),
        (gzip.compress(good, mtime=0), True),
        (good[:4], True),
        (b"", False),
        (b"a,b\n1,2\n", False),
        (gzip.compress(b"a,b\n1,2\n", mtime=0), False),
        (b"\x1f\x8b damaged", False),
        (b"\x28\xb5\x2f\xfd damaged", False),
    ):
        path.write_bytes(data)
        assert is_capture(path) is answer, data[:8]
    for magic in (0xA1B2C3D4, 0xA1B23C4D, 0x0A0D0D0A):  # of micro- and nanoseconds, and pcapng
        for order in ("little", "big"):
            for number in (magic - 1, magic, magic + 1):
                path.write_bytes(number.to_bytes(4, order) + good[4:])
                assert is_capture(path) is (number == magic), hex(number)
    assert is_capture(tmp_path) is False
    assert is_capture(tmp_path / "none") is False
    os.mkfifo(tmp_path / "pipe")
    assert is_capture(tmp_path / "pipe") is False  # its bytes are for who reads the table


# --- training --------------------------------------------------------------------------------

RECIPE = Recipe(
    name="tiny", summary="", bits=32, encoding="quantile", training=Training(hidden=(8,), epochs=5)
)


def labelled_table(folder, name, flows=120):
    capture, labels = labelled_capture(flows)
    (folder / "c.pcap").write_bytes(capture)
    (folder / "labels.csv").write_bytes(labels)
    label_table = read_labels(folder / "labels.csv", "table")
    extraction = extract(
        [folder / "c.pcap"], folder / name, standard_spec(packets=8), labels=label_table
    )
    assert extraction.labels == {"matched": extraction.flows}
    return folder / name


@pytest.mark.parametrize("packets", [8, 3])
def test_evaluation_says_where_meters_differ(tmp_path, packets):
    path = labelled_table(tmp_path, "flows.csv")
    model = replace(
        metered_network(standard_spec(packets=packets)), classes=("bulk", "question", "x")
    )
    model.save(tmp_path / "m.n3ic")
    with warnings.catch_warnings(record=True) as records:
        warnings.simplefilter("always", N3icWarning)
        n3ic.evaluate(tmp_path / "m.n3ic", path, dataset="metered")
    assert ["was metered differently" in str(w.message) for w in records] == [True] * (packets == 3)


@pytest.mark.parametrize("name", ["flows.csv", "flows.parquet"])
def test_a_table_names_its_meter_and_so_does_the_network(tmp_path, name):
    path = labelled_table(tmp_path, name)
    spec = standard_spec(packets=8)
    assert meter_of(path) == spec
    assert meter_file(path).exists() is (name == "flows.csv")
    table = load_flows(path)
    assert (table.meter, table.classes, len(table)) == (spec, ("bulk", "question"), 120)
    assert {f.name for f in table.catalogue if f.leaks} == {"sttl", "dttl"}
    assert table.feature("dbytes").unit == "byte"
    assert "last 100 flows have the same source" in table.feature("ct_src").meaning
    meaning = (
        "how many of the last 100 flows have the same source and protocol and destination port"
    )
    assert table.feature("ct_src_service").meaning == meaning
    assert table.sources == (SourceFile(str(path), sha256_file(path), 120, "metered flows"),)
    assert len(np.unique(table.conversation)) == 120
    metered = data_set_of(path)
    assert metered.name == table.name
    assert metered.check(path)["classes"].keys() == {"bulk", "question"}
    assert "sttl" in {f.name for f in metered.catalogue}
    with pytest.raises(UsageError, match="has no sample"):
        metered.load()
    assert not metered.recognises(tmp_path / "labels.csv")


@pytest.mark.slow
def test_from_labelled_captures_to_an_export(tmp_path, quick_build, check_every_way):
    from n3ic.runs.experiment import train

    table = load_flows(labelled_table(tmp_path, "flows.parquet"))
    model = train(Experiment(table, RECIPE, with_baselines=False)).model
    assert model.meter == table.meter
    check_every_way(model, tmp_path / "c.pcap", tmp_path)
    inference = n3ic.predict(model, tmp_path / "c.pcap")
    truth = read_features(tmp_path / "flows.parquet", model)
    assert np.array_equal(inference.scores, model.scores(model.encode(truth)))
    assert (inference.classes == table.label).mean() > 0.95
    n3ic.export(model, "host", tmp_path / "host")
    manifest, report = (
        json.loads((tmp_path / "host" / f"{file}.json").read_text())
        for file in ("manifest", "report")
    )
    assert manifest["model"]["meter"] == report["model"]["meter"] == table.meter.digest
    assert str(table.meter) in (tmp_path / "host" / "report.md").read_text()
    assert BinaryModel.load(tmp_path / "host" / "model.n3ic").meter == table.meter
    n3ic.export(model.changed(meter=None), "host", tmp_path / "bare", verify=False)
    assert "meter" not in json.loads((tmp_path / "bare" / "manifest.json").read_text())["model"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.replace_schema_metadata({}), "names no meter"),
        (lambda t: t.drop_columns(["label"]), "the column 'label' is missing; .* --labels"),
        (lambda t: t.drop_columns(["dur"]), "the column 'dur' is missing"),
        (lambda t: t.slice(0, 0), "no flow has a label"),
        (
            lambda t: t.set_column(
                t.column_names.index("dur"), "dur", [[-1] * len(t)]
            ),
            f"from 0 to {UINT32_MAX:,}",
        ),
        (
            lambda t: t.set_column(t.column_names.index("dur"), "dur", [["x"] * len(t)]),
            "expected integers, got string",
        ),
    ],
)  # fmt: skip
def test_a_table_that_cannot_be_trained_on_is_one_error(tmp_path, change, message):
    path = labelled_table(tmp_path, "flows.parquet", 20)
    pyarrow.parquet.write_table(change(pyarrow.parquet.read_table(path)), path)
    with pytest.raises(DataError, match=message):
        load_flows(path)


def test_every_specification_has_a_catalogue():
    for seed in range(50):
        spec = random_spec(random.Random(seed))
        assert [f.name for f in catalogue_of(spec)] == spec.feature_names


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore:.* (time stamps|in tunnels)")
def test_a_network_trained_on_real_captures_meters_them_itself(real_data, tmp_path, reference):
    from n3ic.runs.experiment import train

    folder = real_data / "pcaps"
    captures = sorted(p for p in folder.iterdir() if p.suffix in (".pcap", ".pcapng"))
    if not captures:
        pytest.skip(f"no captures in {folder}")
    with pytest.warns(match="lines were left out"):
        labels = read_labels(folder / "flows_expected.csv", "ndpi")
    extract(captures, tmp_path / "f.parquet", standard_spec(packets=8), labels=labels)
    table = load_flows(tmp_path / "f.parquet")
    most = np.argsort(-np.bincount(table.label))[:4]
    table = table.rows(np.isin(table.label, most))
    of = np.searchsorted(np.sort(most), table.label)
    named = replace(
        table, label=of.astype(np.int64), classes=tuple(table.classes[i] for i in np.sort(most))
    )
    result = train(Experiment(named, RECIPE))
    assert result.test.accuracy > result.baselines["majority"].accuracy
    for path in captures[::40]:
        check = metered_network(standard_spec(packets=8))
        for model in (check, result.model):
            flows, want = expected_rows(reference, model, path)
            got = n3ic.predict(model, path)
            assert np.array_equal(got.scores, want.scores)
            assert len(got.scores) == len(flows)
