# SPDX-License-Identifier: Apache-2.0
"""A network for a table of the user's own, from ``n3ic train`` to verdicts on the next table."""

import json
import lzma
import random
import re
import shutil
import warnings
from dataclasses import replace
from importlib.resources import files

import numpy as np
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import n3ic
from n3ic.cli.main import command_line
from n3ic.data.user_table import UserTable, describe
from n3ic.datasets.cic_ids2017 import DATASET as CIC
from n3ic.datasets.iscx_tor2016 import DATASET as TOR
from n3ic.errors import DataError, N3icError, N3icWarning, UsageError
from n3ic.model.network import BinaryModel
from n3ic.usecases.base import use_case
from n3ic.usecases.request import TrainRequest
from n3ic.usecases.training import train_use_case

QUICK = {"hidden": (16,), "epochs": 3, "bits": 64, "polish": 0, "encoding": "boosted"}


def flows(count, seed, label=True):
    rng = random.Random(seed)
    yield "Src IP,Duration,Bytes,Delta,Proto" + (",Class" if label else "")
    for _ in range(count):
        kind = rng.choice(["web", "mail", "scan"])
        size = {"web": 9000, "mail": 900, "scan": 60}[kind] * rng.uniform(0.8, 1.3)
        cells = [f"10.0.0.{rng.randrange(200)}", f"{rng.expovariate(1):.6f}", f"{size:.0f}"]
        cells += [f"{rng.gauss(kind == 'web', 1):.3f}", "udp" if rng.random() < 0.3 else "tcp"]
        yield ",".join([*cells, kind] if label else cells)


def written(path, lines):
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory, small_baselines):
    folder = tmp_path_factory.mktemp("own")
    data = written(folder / "flows.csv", flows(600, 1))
    lines = []
    request = TrainRequest(
        "flows", data=data, options={"label": "Class"}, overrides=QUICK, out=folder / "run"
    )
    from n3ic.runs.progress import TrainingProgress

    training_run = train_use_case(request, TrainingProgress(note=lines.append))
    return training_run, data, lines


@pytest.mark.slow
def test_what_was_inferred_is_shown_and_kept_in_the_run(run):
    training_run, data, lines = run
    assert lines[0].startswith("600 rows, label 'class', 4 columns: duration (us), bytes")
    assert "| src_ip | left out | an address" in (training_run.path / "report.md").read_text()
    assert ("src_ip", "left out") in [row[:2] for row in training_run.columns.rows]
    assert training_run.metrics["test"]["accuracy"] > 0.8
    again, _ = describe(data, description=training_run.path / "columns.toml")
    assert again.rules == describe(data, "Class")[0].rules
    command = json.loads((training_run.path / "options.json").read_bytes())["command"]
    assert "--label=Class" in command


@pytest.mark.slow
def test_the_next_table_is_read_by_the_same_rules(run, tmp_path):
    training_run, data, _ = run
    model = BinaryModel.load(training_run.models[""])
    assert model.table is not None
    table = describe(data, "Class")[0].load(data)
    expected = n3ic.predict(model, table).scores
    lines = [line.split(",") for line in data.read_text().splitlines()]
    turned = written(tmp_path / "new.csv", (";".join(reversed(c[:-1])) for c in lines))
    assert np.array_equal(n3ic.predict(model, turned).scores, expected)
    parquet = tmp_path / "new.parquet"
    pq.write_table(arrow_csv.read_csv(data), parquet)
    assert np.array_equal(n3ic.predict(model, parquet).scores, expected)
    by_run = n3ic.evaluate(training_run.path, parquet)[""]
    with pytest.warns(N3icWarning, match="was trained on some of these flows"):
        assert by_run.accuracy == n3ic.evaluate(training_run.models[""], data)[""].accuracy
    assert BinaryModel.from_bytes(model.to_bytes()).table == model.table


@pytest.mark.slow
def test_flows_of_one_class_alone_are_evaluated(run, tmp_path):
    training_run, data, _ = run
    header, *rows = data.read_text().splitlines()
    scans = written(tmp_path / "scans.csv", [header, *(r for r in rows if r.endswith("scan"))])
    assert n3ic.evaluate(training_run.path, scans)[""].accuracy > 0.8
    rules = BinaryModel.load(training_run.models[""]).table
    assert rules is not None
    one = UserTable(replace(rules, positive="mail"), ("not mail", "mail")).load(scans)
    assert one.classes == ("not mail", "mail")
    assert not one.label.any()


def test_another_table_is_refused_and_odd_cells_are_told(run, tmp_path):
    training_run, data, _ = run
    other = written(tmp_path / "other.csv", ["Duration,Octets", "1.0,5"])
    with pytest.raises(DataError, match=r"other.csv, line 1: .* missing: bytes"):
        n3ic.predict(training_run.path, other)
    text = data.read_text().splitlines()[:4]
    seconds = written(tmp_path / "t.csv", [text[0], text[1], "a,?,-5,1,gre,w"])
    with pytest.warns(N3icWarning, match="bytes negative, set to 0: 1 cells; duration blank"):
        n3ic.predict(training_run.path, seconds)
    with pytest.raises(DataError, match="line 2, column 'bytes': expected a number, got 'many'"):
        n3ic.predict(
            training_run.path, written(tmp_path / "m.csv", [text[0], "a,1,many,1,tcp,web"])
        )
    with pytest.raises(UsageError, match="name labelled flows"):
        n3ic.evaluate(training_run.path)


@pytest.mark.slow
def test_a_model_of_user_flows_is_exported_and_verified(run, tmp_path, compiler, quick_build):
    training_run, data, _ = run
    n3ic.export(training_run.path, "host", tmp_path / "host")
    rows = describe(data, "Class")[0].load(data).features
    assert n3ic.verify(tmp_path / "host", rows=rows, vectors=500).ok


@pytest.mark.slow
def test_without_a_name_the_command_line_trains_the_table(tmp_path, monkeypatch):
    data = written(tmp_path / "flows.csv", flows(300, 2))
    monkeypatch.chdir(tmp_path)
    app = command_line(["train"])
    words = ["train", "--data", str(data), "--label", "Class", "--positive", "scan", "--json"]
    words += ["--hidden", "8", "--epochs", "1", "--bits", "32", "--polish", "0"]
    done = CliRunner().invoke(app, [*words, "--encoding", "boosted"], catch_exceptions=False)
    metrics = json.loads(done.stdout)
    assert metrics["use_case"] == "flows"
    assert metrics["positive"] == "scan"
    with pytest.raises(UsageError, match=r"--label COLUMN; these could be: Class \(3 values\)"):
        CliRunner().invoke(app, ["train", "--data", str(data)], catch_exceptions=False)


def test_joined_files_are_told_by_every_command(tmp_path):
    lines = [*flows(60, 3), *flows(60, 4)]
    data = written(tmp_path / "flows.csv", lines)
    remark = "left out 1 lines that repeat the names of the columns"
    app, run = command_line(["data"]), CliRunner()
    assert remark in run.invoke(app, ["data", "describe", str(data), "--label", "Class"]).stdout
    assert f"note: {data}: {remark}" in run.invoke(app, ["data", "check", str(data)]).stdout
    notes = []
    options = {"label": "", "positive": "", "description": ""}
    assert len(use_case("flows").load(data, None, options, notes.append)) == 120
    assert notes[0] == f"{data}: {remark}"


def test_a_prediction_in_another_unit_is_told_for_files_and_frames(run, tmp_path):
    header, *lines = flows(300, 8, label=False)
    rows = [line.split(",") for line in lines]
    for row in rows:
        row[2] = str(int(row[2]) * 1000)
    data = written(tmp_path / "other.csv", [header, *(",".join(row) for row in rows)])
    training_run, _, _ = run
    model = BinaryModel.load(training_run.models[""])
    for given in (data, arrow_csv.read_csv(data)):
        with warnings.catch_warnings(record=True) as records:
            warnings.simplefilter("always")
            n3ic.predict(model, given)
        warning = "bytes: 1,000 times larger than in training: another unit?"
        assert warning in [str(one.message) for one in records]


def test_data_describe_writes_what_check_and_show_read(tmp_path):
    data = written(tmp_path / "flows.csv", flows(120, 3))
    app = command_line(["data"])
    run = CliRunner()
    done = run.invoke(app, ["data", "describe", str(data), "--label", "Class"])
    assert done.exit_code == 0, done.output
    assert "an address tells the hosts" in done.stdout
    assert (tmp_path / "columns.toml").is_file()
    notes = []
    options = {"label": "", "positive": "", "description": ""}
    assert use_case("flows").load(data, None, options, notes.append).classes[0] == "mail"
    assert notes[0] == f"{tmp_path / 'columns.toml'} overrides what is inferred"
    checked = run.invoke(app, ["data", "check", str(data)]).stdout
    assert "rows: 120" in checked
    assert "note: " not in checked
    shown = json.loads(run.invoke(app, ["data", "show", str(data), "--json"]).stdout)
    assert shown["table"]["label"] == ["class"]
    with pytest.raises(N3icError, match="exists"):
        run.invoke(app, ["data", "describe", str(data)], catch_exceptions=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("known", "label", "more", "less"),
    [
        (TOR, "label", set(), set()),
        (
            CIC,
            "attack_cat",
            {  # repeat other columns, hold only what the capture's hosts had set, or are wrong
                *("avg_bwd_segment_size", "avg_fwd_segment_size", "fwd_header_length_1"),
                *("init_win_bytes_backward", "init_win_bytes_forward", "min_seg_size_forward"),
                *(
                    f"subflow_{way}_{what}"
                    for way in ("fwd", "bwd")
                    for what in ("bytes", "packets")
                ),
            },
            {"bwd_psh_flags", "bwd_urg_flags", "cwe_flag_count", "fwd_urg_flags"},  # constant
        ),
    ],
)
def test_inference_agrees_with_the_catalogues_of_known_data(known, label, more, less):
    path = known.embedded
    own, _ = describe(path, label)
    table, expected = own.load(path), known.load()
    used = {n for n, entry in own.toml["columns"].items() if entry["use"]}
    usable = {n for n in expected.usable if n in own.toml["columns"]}
    assert (used - usable, usable - used) == (more, less)
    assert table.classes == expected.classes
    assert np.array_equal(table.label, expected.label)
    assert np.array_equal(table.conversation, expected.conversation)
    for n in used & usable:
        rule, entry = own.rules.columns[n], expected.feature(n)
        mine, theirs = table.features[n] / rule.scale, expected.features[n] / entry.scale
        near = np.isclose(mine, theirs, rtol=1e-3, atol=2 / min(entry.scale, 1))
        assert near.mean() > 0.999, n


def test_any_data_set_may_still_be_named(tmp_path):
    case = use_case("flows")
    options = {"label": "", "positive": "", "description": ""}
    table = case.load(None, "iscx-tor2016", options, print)
    assert table.name == "iscx-tor2016"
    with pytest.raises(UsageError, match="name a table with --data"):
        case.load(None, None, options, print)


def test_a_table_of_leaking_columns_alone_is_refused(tmp_path):
    lines = (f"10.0.0.{i % 9},{i % 7},{'ab'[i % 2]}" for i in range(90))
    data = written(tmp_path / "flows.csv", ["src_ip,sport,label", *lines])
    request = TrainRequest("flows", data=data, options={"label": "label"}, out=tmp_path / "run")
    with pytest.raises(UsageError, match="every column is left out; name those to use"):
        train_use_case(request)
    assert not (tmp_path / "run").exists()


def test_classification_takes_any_table_with_a_label(tmp_path):
    data = written(tmp_path / "flows.csv", flows(90, 5))
    case = use_case("classification")
    table = case.load(data, None, {"label": "Class", "positive": "mail"}, print)
    assert (table.name, table.classes) == ("flows", ("not mail", "mail"))
    assert case.tasks(table, {"positive": "mail"})[""].classes == ("not mail", "mail")
    assert case.load(None, None, {"label": "", "positive": ""}, print).name == "iscx-tor2016"


def test_a_metered_table_keeps_its_meter(tmp_path):
    from n3ic.data.table_meter import meter_file
    from n3ic.meter.spec_file import write_spec
    from n3ic.meter.standard import standard_spec

    spec = standard_spec()
    header = ",".join([*spec.feature_names, "label"])
    rows = [",".join([*["1"] * len(spec.feature_names), "ab"[i % 2]]) for i in range(60)]
    path = written(tmp_path / "m.csv", ["# n3ic-units: nic", header, *rows])
    write_spec(spec, meter_file(path))
    options = {"label": "", "positive": "a", "description": ""}
    notes = []
    table = use_case("flows").load(path, None, options, notes.append)
    assert table.meter == spec
    assert table.classes == ("b", "a")
    assert "carry its meter" in notes[0]


def test_parquet_in_a_known_data_sets_layout_is_read(tmp_path):
    """What a data set reads as CSV, it reads as Parquet: labelled rows and flows to classify."""
    plain = tmp_path / "tor.csv"
    with lzma.open(TOR.embedded) as packed, plain.open("wb") as out:
        shutil.copyfileobj(packed, out)
    table = arrow_csv.read_csv(plain)
    parquet = tmp_path / "tor.parquet"
    pq.write_table(table, parquet)
    expected, parquet_table = TOR.load(plain), TOR.load(parquet)
    assert parquet_table.sha256 != expected.sha256
    for name, column in expected.features.items():
        assert np.array_equal(parquet_table.features[name], column), name
    assert files("n3ic.datasets.flows").joinpath("card.md").is_file()


@pytest.mark.slow
def test_a_table_that_a_data_set_knows_is_said(tmp_path):
    notes = []
    options = {"label": "label", "positive": "", "description": ""}
    use_case("flows").load(TOR.embedded, None, options, notes.append)
    assert notes[0].startswith("the data set iscx-tor2016 knows this layout and reads it")
    assert "packets, bytes, packet_mean" in notes[0] and len(notes) == 1


def layout_of(path, known, count, label=None, more=()):
    """A table of a known layout with other flows, from a seed: cells drawn from the embedded."""
    with lzma.open(known.embedded, "rt") as stream:
        head, *rows = (line.rstrip("\n").split(",") for line in stream)
    rng = random.Random(3)
    by_class = [rows[i] for i in sorted(rng.sample(range(len(rows)), count))]
    if label:
        head = [label if name.strip() == "label" else name for name in head]
    lines = [",".join([*head, *more])]
    lines += [",".join([*row, *(str(rng.random()) for _ in more)]) for row in by_class]
    return written(path, lines)


@pytest.mark.parametrize(
    ("label", "more", "beside", "message"),
    [
        ("app", (), "", "with another column as the class|but: .*label"),
        (None, ("jitter",), "", "without jitter, or with --dataset iscx-tor2016"),
        (None, (), "[columns.flow_duration]\nbits = 20\n", "without .*columns.toml it adds"),
    ],
)
def test_nothing_of_the_users_is_lost_to_a_layout(tmp_path, label, more, beside, message):
    """Another class, further columns or a description stay, and a line says what to do."""
    data = layout_of(tmp_path / "own.csv", TOR, 300, label, more)
    if beside:
        (tmp_path / "columns.toml").write_text(beside)
    notes = []
    options = {"label": label or "label", "positive": "", "description": ""}
    table = use_case("flows").load(data, None, options, notes.append)
    assert table.name == "flows" and "packets" not in table.features
    assert re.search(message, notes[0]) and {*more} <= {*table.features}


@pytest.mark.slow
def test_layouts_of_other_data_sets_are_read_by_them(tmp_path):
    from n3ic.data.dataset import data_set

    path = data_set("unsw-nb15-synthetic").generate_file(tmp_path / "own.csv", {"rows": 400})
    notes = []
    options = {"label": "label", "positive": "", "description": ""}
    table = use_case("flows").load(path, None, options, notes.append)
    assert table.name == "unsw-nb15-synthetic" and table.classes == ("normal", "attack")
    assert "tap_dload" in table.features and "derived columns" in notes[0]
    inferred = use_case("flows").load(path, "flows", options, notes.append)
    assert inferred.name == "flows" and "tap_dload" not in inferred.features
    data = layout_of(tmp_path / "cic.csv", CIC, 300)
    as_cic = options | {"label": "attack_cat", "positive": "BENIGN"}
    table = use_case("flows").load(data, None, as_cic, notes.append)
    assert table.name == "cic-ids2017" and table.classes == ("not BENIGN", "BENIGN")
    again = use_case("flows").tasks(CIC.load(data), as_cic)[""]
    assert np.array_equal(again.label, table.label) and again.classes == table.classes
