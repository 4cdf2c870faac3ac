# SPDX-License-Identifier: Apache-2.0
"""The command line as a person types it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from n3ic.families.tables.random_models import random_tables
from n3ic.model.network import BinaryModel
from n3ic.model.random_models import random_model
from tests.support.command_line import N3IC, n3ic


@pytest.fixture(scope="module")
def flows(tmp_path_factory):
    """A small file of synthetic flows."""
    folder = tmp_path_factory.mktemp("flows")
    n3ic(
        "data", "generate", "unsw-nb15-synthetic", "--rows", 3000, "--out", "flows.csv", cwd=folder
    )
    return folder / "flows.csv"


@pytest.fixture(scope="module")
def place(flows, tmp_path_factory, small_baselines, small_pictures_of_runs):
    """A folder with a run of the anomaly network, trained quickly."""
    folder = tmp_path_factory.mktemp("place")
    n3ic("train", "anomaly", "--data", flows, "--epochs", 3, cwd=folder)
    return folder


def test_a_run_holds_what_is_promised(place):
    run = place / "runs" / "anomaly"
    metrics = json.loads((run / "metrics.json").read_text())
    for key in ("accuracy", "accuracy_unseen", "macro_f1", "fpr", "roc_auc"):
        assert 0 <= metrics["test"][key] <= 1
    assert metrics["memory"]["weight_bytes"] == 1092
    assert 256 < metrics["memory"]["input_bytes"] < 4 * 256
    assert metrics["memory"]["threshold_bytes"] > 0
    names = {
        "majority",
        "float_mlp",
        "hist_gradient_boosting",
        "tree_same_cuts",
        "random_forest",
    } | {f"tree_depth_{d}" for d in (3, 6, 9)}
    assert set(metrics["baselines"]) == names
    for baseline in metrics["baselines"].values():
        assert baseline["rows"] == metrics["test"]["rows"]
    assert metrics["data"]["synthetic"] is True
    assert "synthetic" in metrics["data"]["name"]
    assert len(metrics["data"]["sha256"]) == 64
    assert metrics["seed"] == 0
    assert metrics["recipe"] == "default"
    importance = metrics["importance"]
    read = BinaryModel.load(run / "model.n3ic").input.features
    assert {f["feature"] for f in importance} == set(read)
    for picture in ("confusion", "roc", "training", "features", "calibration"):
        data = (run / "plots" / f"{picture}.png").read_bytes()
        assert data.startswith(b"\x89PNG")
    options = json.loads((run / "options.json").read_text())
    assert options["recipe"]["training"]["epochs"] == 3
    assert "synthetic" in (run / "report.md").read_text()


@pytest.mark.exhaustive
def test_one_seed_gives_one_model(place, flows, tmp_path):
    n3ic("train", "anomaly", "--data", flows, "--epochs", 3, "--out", "again", cwd=tmp_path)
    first = (place / "runs" / "anomaly" / "model.n3ic").read_bytes()
    assert (tmp_path / "again" / "model.n3ic").read_bytes() == first
    n3ic(
        "train", "anomaly", "--data", flows, "--epochs", 3, "--seed", 7, "--out", "x", cwd=tmp_path
    )
    assert (tmp_path / "x" / "model.n3ic").read_bytes() != first


@pytest.mark.slow
def test_paper_recipe_is_the_papers_network(flows, tmp_path):
    done = n3ic(
        "train", "anomaly", "--data", flows, "--recipe", "paper", "--epochs", 2, "--json",
        cwd=tmp_path,
    )  # fmt: skip
    metrics = json.loads(done.stdout)
    assert metrics["memory"]["threshold_bytes"] == 0
    model = BinaryModel.load(tmp_path / "runs" / "anomaly" / "model.n3ic")
    assert model.shape == (256, 32, 16, 2)
    assert [f.width for f in model.input.fields] == [16] * 16
    for layer in model.hidden:
        assert (layer.thresholds == layer.n_inputs // 2).all()
    assert not model.output.bias.any()


@pytest.mark.exhaustive
def test_density_and_seeds(flows, tmp_path, small_baselines):
    n3ic(
        "train", "anomaly", "--data", flows, "--epochs", 2, "--density", 0.25, "--seeds", 2,
        "--hidden", "16,8", "--bits", 64, "--polish", 0, cwd=tmp_path,
    )  # fmt: skip
    model = BinaryModel.load(tmp_path / "runs" / "anomaly" / "model.n3ic")
    assert model.shape == (64, 16, 8, 2)
    assert set(model.hidden[0].fan_in.tolist()) == {16}
    metrics = json.loads((tmp_path / "runs" / "anomaly" / "metrics.json").read_text())
    assert metrics["seeds"]["count"] == 2
    assert len(metrics["seeds"]["test"]["accuracy"]["values"]) == 2
    assert metrics["memory"]["mask_bytes"] > 0


@pytest.mark.slow
def test_every_training_option_is_reached_and_the_command_repeats_the_run(flows, tmp_path):
    n3ic(
        "train", "anomaly", "--data", flows, "--epochs", 2, "--encoding", "quantile", "--bits", 64,
        "--ste", "clip", "--no-batch-norm", "--loss", "squared_hinge", "--dropout", 0.1,
        "--optimizer", "sgd", "--learning-rate", 0.02, "--schedule", "constant",
        "--batch-size", 64, "--patience", 5, "--features", 9, "--hidden", "8", "--no-output-bias",
        "--label-smoothing", 0.1, "--class-weight", "balanced", "--polish", 1, "--distill", 0.25,
        "--columns", "ct_*,sbytes,dbytes", "--out", "a",
        cwd=tmp_path,
    )  # fmt: skip
    options = json.loads((tmp_path / "a" / "options.json").read_text())
    training = options["recipe"]["training"]
    assert training["optimizer"] == "sgd"
    assert training["batch_norm"] is False
    assert options["recipe"]["encoding"] == "quantile"
    n3ic(*options["command"][1:], "--out", "b", cwd=tmp_path)
    model = (tmp_path / "a" / "model.n3ic").read_bytes()
    assert (tmp_path / "b" / "model.n3ic").read_bytes() == model


@pytest.mark.exhaustive
def test_a_second_run_gets_a_number_and_an_explicit_folder_is_kept(place, flows):
    n3ic("train", "anomaly", "--data", flows, "--epochs", 1, cwd=place)
    assert (place / "runs" / "anomaly-2" / "model.n3ic").is_file()
    done = n3ic("train", "anomaly", "--out", "runs/anomaly", cwd=place, expect=2)
    assert "runs/anomaly exists" in done.stderr
    (place / "runs" / "anomaly-2" / "notes.md").write_text("mine")
    words = ["train", "anomaly", "--data", flows, "--out", "runs/anomaly-2", "--replace"]
    done = n3ic(*words, cwd=place, expect=2)
    assert "holds notes.md, which n3ic did not write" in done.stderr


def test_inspect_prints_layers_and_bytes(place):
    done = n3ic("inspect", "runs/anomaly", "--bits", cwd=place)
    assert "256-32-16-2" in done.stdout
    assert "1,092" in done.stdout
    assert "34,944" in done.stdout
    assert "bit 255:" in done.stdout
    data = json.loads(n3ic("inspect", "runs/anomaly/model.n3ic", "--json", cwd=place).stdout)
    assert data[""]["shape"] == [256, 32, 16, 2]


def test_predictions_are_the_models(place, flows):
    done = n3ic("predict", "--model", "runs/anomaly", flows, cwd=place)
    rows = [line.split(",") for line in done.stdout.splitlines()]
    assert rows[0] == ["row", "class", "margin", "score_normal", "score_attack"]
    assert len(rows) == 3001
    model = BinaryModel.load(place / "runs" / "anomaly" / "model.n3ic")
    from n3ic import plugins

    table = plugins.load("n3ic.datasets", "unsw-nb15-synthetic").load(flows)
    trace = model.infer(model.encode(table.features))
    assert [r[1] for r in rows[1:]] == [model.classes[c] for c in trace.classes]
    assert [int(r[2]) for r in rows[1:]] == trace.margins.tolist()
    assert (trace.classes == table.label).mean() > 0.8


def test_a_plain_table_needs_no_data_set(place, tmp_path):
    model = random_model((40, 5, 2), np.random.default_rng(0))
    model.save(tmp_path / "m.n3ic")
    (tmp_path / "t.csv").write_text("x1,other,x0\n7,a,4294967295\n0,b,3\n")
    done = n3ic("predict", "--model", "m.n3ic", "t.csv", cwd=tmp_path)
    want = model.infer(model.encode({"x0": [4294967295, 3], "x1": [7, 0]}))
    got = [line.split(",") for line in done.stdout.splitlines()[1:]]
    assert [[int(v) for v in row[3:]] for row in got] == want.scores.tolist()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x0,x1\n1,2,3\n", "line 2: 3 cells, expected 2"),
        ("x0\n1\n", "1 column missing: x1"),
        ("x0,x1\n1,zwei\n", "line 2, column 'x1': expected a finite number, got 'zwei'"),
        ("x0,x1\n1,inf\n", "column 'x1': expected a finite number, got 'inf'"),
        ("x0,x1\n", "no row"),
        ("", "empty"),
    ],
)
def test_bad_tables_are_named(tmp_path, text, message):
    random_model((40, 5, 2), np.random.default_rng(0)).save(tmp_path / "m.n3ic")
    (tmp_path / "t.csv").write_text(text)
    done = n3ic("predict", "--model", "m.n3ic", "t.csv", cwd=tmp_path, expect=1)
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["train", "anomali"], 2, "did you mean 'anomaly'?"),
        (["train", "anomaly", "--recipe", "x"], 2, "it has default, published, paper"),
        (["train", "anomaly", "--epochs", "x"], 2, "--epochs: 'x' is not of type int"),
        (["train", "anomaly", "--hidden=-5"], 2, "expected numbers such as 32,16, got '-5'"),
        (["train", "anomaly", "--seed", str(2**32)], 2, "--seed"),
        (["train", "anomaly", "--epoch", "3"], 2, "--epochs"),
        (["export", "--target", "nfp", "--thread", "3"], 2, "Possible options: --threads"),
        (["verify", "--simulator", "icarus", "/nowhere"], 1, "/nowhere is not an export"),
        (["train", "anomaly", "--data", "/nowhere"], 1, "/nowhere"),
        (["train", "anomaly", "--hidden", "a,b"], 2, "numbers such as 32,16"),
        (["train", "anomaly", "--density", "7"], 2, "density must be in (0, 1]"),
        (["train", "anomaly", "--ste", "x"], 2, "ste must be identity, clip or approx"),
        (["train", "anomaly", "--encoding", "x"], 2, "encoding must be binary"),
        (["train", "anomaly", "--queue", "3"], 2, "No such option: --queue"),
        (["inspect", "/nowhere"], 1, "cannot read the model /nowhere: No such file"),
        (["export"], 2, "name a target with --target"),
        (["export", "runs/a", "--target", "host"], 2, "a model or a run is named by --model"),
        (["targets", "host", "more"], 2, "argument(s) (more) (--help lists what there is)"),
        (["export", "--target"], 2, "--target"),
        (["export", "--target", "nfpp"], 2, "did you mean 'nfp'?"),
        (["export", "--target", "nfp"], 2, "there is no run below runs/"),
        (["verify", "/nowhere"], 1, "is not an export directory"),
        (["data", "extract", "a.pcap", "--out", "a.xlsx"], 2, "to a .csv or a .parquet file"),
        (["data", "show", "nope"], 2, "unknown data set 'nope'"),
        (["nope"], 2, "No such command 'nope'"),
        (["simulate", "host", "/nowhere"], 1, "is not an export directory"),
    ],
)
def test_mistakes_get_one_line_and_a_code(tmp_path, words, code, message):
    done = n3ic(*words, cwd=tmp_path, expect=code)
    assert message in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_damaged_models_are_one_line(tmp_path, place):
    data = (place / "runs" / "anomaly" / "model.n3ic").read_bytes()
    (tmp_path / "m.n3ic").write_bytes(data[: len(data) // 2])
    done = n3ic("inspect", "m.n3ic", cwd=tmp_path, expect=1)
    assert "m.n3ic: not an n3ic model, or damaged" in done.stderr


@pytest.mark.slow
def test_a_closed_pipe_ends_quietly(place, flows):
    line = f"{sys.executable} -m n3ic predict --model runs/anomaly {flows} | head -1"
    done = subprocess.run(
        line, shell=True, cwd=place, capture_output=True, text=True, timeout=600, check=True
    )
    assert done.stdout.startswith("row,class")
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_export_all_then_verify_then_report(place, flows):
    words = ("export", "--model", "runs/anomaly", "--target", "all", "--out", "all")
    done = n3ic(*words, cwd=place)
    for line in done.stdout.splitlines():
        assert "equal scores" in line or "not run" in line, line
    folders = {p.name for p in (place / "all").iterdir()}
    assert {"host", "nfp", "netfpga", "p4", "p4-netfpga", "onnx", "qonnx"} <= folders
    checked = n3ic("verify", "all/host", "--rows", flows, cwd=place)
    assert "3,000 rows, input stage included" in checked.stdout
    again = n3ic(*words, cwd=place, expect=2)
    assert "exists" in again.stdout + again.stderr
    table = n3ic("report", "runs/anomaly", cwd=place).stdout
    for name in folders:
        assert name in table
    assert "estimated" in table
    done = n3ic(
        "report", "runs/anomaly", "--exports", "all", "--html", "page.html", "--data", flows,
        cwd=place,
    )  # fmt: skip
    assert "wrote page.html" in done.stderr
    page = (place / "page.html").read_text()
    for heading in (
        "Confusion on the test rows",
        "What single decisions rest on",
        "the 300 test rows",
        "and 3,000 rows, cc",  # what host was tested with
    ):
        assert heading in page
    n3ic("report", "runs/anomaly", "--exports", "all", "--html", "page.html", cwd=place, expect=2)


def test_a_page_is_not_written_over(tmp_path):
    random_model((16, 4, 2), np.random.default_rng(0)).save(tmp_path / "m.n3ic")
    (tmp_path / "page.html").write_text("old")
    done = n3ic("report", "m.n3ic", "--html", "page.html", cwd=tmp_path, expect=2)
    assert "page.html exists" in done.stderr
    assert (tmp_path / "page.html").read_text() == "old"
    done = n3ic("report", "m.n3ic", "--data", "flows.csv", cwd=tmp_path, expect=2)
    assert "go with --html" in done.stderr


def test_a_changed_weight_is_found(place):
    n3ic("export", "--target", "nfp", "--out", "nfp", cwd=place)
    path = place / "nfp" / "n3ic_weights.h"
    text = path.read_text()
    at = text.index("0x") + 9
    digit = "1" if text[at] != "1" else "2"
    path.write_text(text[:at] + digit + text[at + 1 :])
    done = n3ic("verify", "nfp", cwd=place, expect=3)
    assert "n3ic_weights.h is not what n3ic writes" in done.stdout


@pytest.mark.parametrize("words", [[], ["data"]])
def test_no_command_shows_the_help_and_no_error(tmp_path, words):
    done = n3ic(*words, cwd=tmp_path, expect=2)
    assert "Usage: " in done.stdout + done.stderr
    assert "error" not in done.stderr


def test_flows_that_are_no_text_are_one_line(tmp_path, place):
    (tmp_path / "flows.csv").write_bytes(b"sbytes,dur\n1,2\n\xff\xfe\n")
    model = place / "runs" / "anomaly"
    done = n3ic("predict", "--model", model, "flows.csv", cwd=tmp_path, expect=1)
    assert "flows.csv, line 3: byte 0xff is not UTF-8" in done.stderr


def test_what_may_be_typed_is_listed(tmp_path):
    listed = n3ic("train", cwd=tmp_path).stdout
    for words in ("anomaly: ", "tomography: ", "--recipe paper", "--queue", "--shapes"):
        assert words in listed
    listed = n3ic("data", "generate", cwd=tmp_path).stdout
    for words in ("unsw-nb15-synthetic: ", "--rows", "ns3-tomography: ", "--incast"):
        assert words in listed
    refused = n3ic("data", "generate", "unsw-nb15-synthetic", "--row", 3, cwd=tmp_path, expect=2)
    assert "No such option: --row" in refused.stderr
    assert "--rows" in refused.stderr
    refused = n3ic("data", "generate", "unsw-nb15-synthetic", "--incast", 3, cwd=tmp_path, expect=2)
    assert "has no option --incast; it has --rows, --seed" in refused.stderr
    assert list(tmp_path.iterdir()) == []


def test_features_are_the_integers_of_the_card_and_predict_reads_them(place, flows, tmp_path):
    words = ["features", "--model", place / "runs" / "anomaly", flows]
    n3ic(*words, "--bits", "--out", "f.csv", cwd=tmp_path)
    lines = (tmp_path / "f.csv").read_text().splitlines()
    assert lines[0] == "# n3ic-units: nic"
    model = BinaryModel.load(place / "runs" / "anomaly" / "model.n3ic")
    names = list(model.input.features)
    assert lines[1].split(",") == [*names, *(f"bit_{i}" for i in range(model.input.n_bits))]
    table = np.array([line.split(",") for line in lines[2:]], dtype=np.int64)
    columns = dict(zip(names, table.T, strict=False))
    assert np.array_equal(model.input.encode(columns), table[:, len(names) :])
    predict = ["predict", "--model", place / "runs" / "anomaly"]
    assert (
        n3ic(*predict, "f.csv", cwd=tmp_path).stdout == n3ic(*predict, flows, cwd=tmp_path).stdout
    )
    piped = n3ic(*words[:-1], "-", cwd=tmp_path, input=flows.read_text())
    assert piped.stdout.splitlines()[1] == ",".join(names)
    refused = n3ic(*words, "--out", "f.csv", cwd=tmp_path, expect=2)
    assert "f.csv exists" in refused.stderr


def test_predict_streams_and_never_destroys_its_input(place, flows, tmp_path):
    run = place / "runs" / "anomaly"
    n3ic("features", "--model", run, flows, "--out", "f.parquet", cwd=tmp_path)
    want = n3ic("predict", "--model", run, flows, cwd=tmp_path).stdout
    words = ["predict", "--model", run]
    assert n3ic(*words, "f.parquet", cwd=tmp_path).stdout == want
    assert n3ic(*words, "-", cwd=tmp_path, input=flows.read_text()).stdout == want
    n3ic(*words, "f.parquet", "--out", "v.csv", cwd=tmp_path)
    assert (tmp_path / "v.csv").read_text() == want
    assert "v.csv exists" in n3ic(*words, flows, "--out", "v.csv", cwd=tmp_path, expect=2).stderr
    before = (tmp_path / "f.parquet").read_bytes()
    for more in ([], ["--replace"]):
        n3ic(*words, "f.parquet", "--out", "f.parquet", *more, cwd=tmp_path, expect=2)
        assert (tmp_path / "f.parquet").read_bytes() == before
    counts = json.loads(n3ic(*words, "f.parquet", "--json", cwd=tmp_path).stdout)
    assert counts["rows"] == 3000 == sum(counts["classes"].values())


def test_evaluate_gives_the_figures_of_the_network(place, flows):
    from n3ic import plugins

    run = ["--model", "runs/anomaly"]
    evaluation = json.loads(n3ic("evaluate", "--json", flows, *run, cwd=place).stdout)
    model = BinaryModel.load(place / "runs" / "anomaly" / "model.n3ic")
    table = plugins.load("n3ic.datasets", "unsw-nb15-synthetic").load(flows)
    classes = model.infer(model.encode(table.features)).classes
    figures = evaluation["networks"][""]
    assert figures["rows"] == len(table) == 3000
    assert figures["accuracy"] == pytest.approx((classes == table.label).mean())
    assert figures["confusion"][1][1] == int((classes[table.label == 1] == 1).sum())
    assert figures["classes"]["attack"]["recall"] == pytest.approx(
        (classes[table.label == 1] == 1).mean()
    )
    most = max((table.label == 0).mean(), (table.label == 1).mean())
    (baseline,) = (name for name in evaluation if name != "networks")  # of the same rows, or none
    assert evaluation[baseline][""]["rows"] == 3000
    assert evaluation[baseline][""]["accuracy"] == pytest.approx(most)
    done = n3ic("evaluate", flows, *run, cwd=place)
    assert "was trained on some of these flows" in done.stderr
    shown = done.stdout
    assert "confusion" in shown
    assert [line for line in shown.splitlines() if "majority" in line and "3,000" in line]
    refused = n3ic("evaluate", flows, *run, "--dataset", "ns3-tomography", cwd=place, expect=1)
    assert "not a tomography trace" in refused.stderr


@pytest.mark.slow
def test_evaluate_names_the_family_of_the_network(place, flows, tmp_path):
    model = BinaryModel.load(place / "runs" / "anomaly" / "model.n3ic")
    rng = np.random.default_rng(0)
    tables = random_tables(rng, spec=model.input, tables=3).changed(
        classes=model.classes, meter=model.meter
    )
    tables.save(tmp_path / "tables.n3ic")
    for path, family in (
        (place / "runs" / "anomaly" / "model.n3ic", "binary network"),
        (tmp_path / "tables.n3ic", "look-up tables"),
    ):
        given = ("--model", path, "--dataset", "unsw-nb15-synthetic")
        shown = n3ic("evaluate", flows, *given, cwd=place).stdout
        assert [row for row in shown.splitlines() if family in row and "3,000" in row], shown


def test_names_from_files_do_not_reach_the_terminal_as_control_characters(tmp_path):
    hostile = random_model((32, 4, 2), np.random.default_rng(0))
    object.__setattr__(hostile, "name", "a\x1b[2Jb")
    hostile.save(tmp_path / "m.n3ic")
    shown = n3ic("inspect", "m.n3ic", cwd=tmp_path, expect=1).stderr
    assert "\\x1b[2J" in shown
    assert not set("\x1b\x07\r") & set(shown)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_a_full_disk_is_one_line(place):
    words = [*N3IC, "data", "show", "unsw-nb15"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, cwd=place)
    assert done.returncode == 1
    assert done.stderr == "n3ic: error: output: No space left on device\n"


@pytest.mark.parametrize(
    ("words", "options"),
    [
        (["train", "--help-recipe"], ["--output-bias", "--label-smoothing", "--polish"]),
        (["export"], ["--replace", "name the target"]),
        (["export", "--target", "nfp"], ["--threads", "--replace"]),
        (["export", "--target=netfpga"], ["--style"]),
        (["export", "-t", "all"], ["--threads", "--style", "--field"]),
        (["verify", "--capture", "x"], ["--simulator", "--with-bmv2", "--vectors"]),
        (["simulate", "netfpga"], ["--tap", "--netns"]),
        (["data", "generate"], ["--rows", "--incast", "--replace"]),
    ],
)
def test_help_lists_the_options_of_plug_ins(tmp_path, monkeypatch, words, options):
    monkeypatch.setenv("COLUMNS", "200")
    shown = n3ic(*words, "--help", cwd=tmp_path).stdout
    assert [o for o in options if o not in shown] == []


def test_a_generated_file_is_not_overwritten(flows, tmp_path):
    (tmp_path / "mine.csv").write_text("mine")
    words = ["data", "generate", "unsw-nb15-synthetic", "--rows", 60, "--out", "mine.csv"]
    refused = n3ic(*words, cwd=tmp_path, expect=2)
    assert "mine.csv exists" in refused.stderr
    assert (tmp_path / "mine.csv").read_text() == "mine"
    n3ic(*words, "--replace", cwd=tmp_path)
    assert (tmp_path / "mine.csv").read_text().count("\n") == 61


def test_data_commands(flows, tmp_path):
    listed = n3ic("data", "list", cwd=tmp_path).stdout
    assert "unsw-nb15-synthetic" in listed
    card = n3ic("data", "show", "unsw-nb15", cwd=tmp_path).stdout
    assert "research" in card
    features = json.loads(n3ic("data", "show", "unsw-nb15", "--json", cwd=tmp_path).stdout)
    assert all(f["nic_reason"] and f["tap"] and f["tap_reason"] for f in features)
    table = " ".join(n3ic("data", "show", "unsw-nb15", "--features", cwd=tmp_path).stdout.split())
    assert "at one tap" in table
    assert "not causal" in table
    report = json.loads(n3ic("data", "check", flows, "--json", cwd=tmp_path).stdout)
    assert report["rows"] == 3000


def test_help_does_not_import_the_heavy_libraries(tmp_path):
    code = (
        "import sys; from n3ic.cli.main import command_line\n"
        "try: command_line(['--help'])(['--help'], standalone_mode=False)\n"
        "except SystemExit: pass\n"
        "heavy = {'numpy', 'torch', 'pandas', 'sklearn', 'matplotlib', 'onnx', 'lark', 'jinja2'}\n"
        "sys.exit(', '.join(sorted(heavy & set(sys.modules))) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_nic_host_needs_neither_pytorch_nor_pandas(place, tmp_path):
    """Inspect, predict, export and verify with the libraries of n3ic[train] out of reach."""
    blocked = "torch", "brevitas", "sklearn", "pandas", "matplotlib", "joblib", "onnx", "qonnx"
    hook = tmp_path / "sitecustomize.py"
    hook.write_text(
        "import sys\n"
        "class Blocked:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.partition('.')[0] in {blocked!r}:\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Blocked())\n"
    )
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    work = tmp_path / "work"
    work.mkdir()
    model = random_model((40, 8, 2), np.random.default_rng(0))
    model.save(work / "m.n3ic")
    (work / "t.csv").write_text("x0,x1\n1,2\n")
    n3ic("inspect", "m.n3ic", cwd=work, env=environment)
    n3ic("predict", "--model", "m.n3ic", "t.csv", cwd=work, env=environment)
    for target in ("nfp", "p4", "host"):
        n3ic(
            "export", "-t", target, "--model", "m.n3ic", "--out", target, cwd=work, env=environment
        )
        n3ic("verify", target, "--vectors", 50, cwd=work, env=environment)
    every = ["export", "-t", "all", "--model", "m.n3ic", "--out", "all"]
    done = n3ic(*every, cwd=work, env=environment)
    assert {p.name for p in (work / "all").iterdir()} == {
        "dpdk", "host", "netfpga", "nfp", "p4", "p4-netfpga", "xdp",
    }  # fmt: skip
    assert "pip install 'n3ic[onnx]'" in done.stdout
    done = n3ic("train", "anomaly", cwd=work, env=environment, expect=4)
    assert "pip install 'n3ic[train]'" in done.stderr
    assert not list(Path(work).glob("runs/*"))


@pytest.mark.slow
def test_a_generated_capture_is_checked_trained_on_and_marked(tmp_path):
    make = ("data", "generate", "upc-aau", "--flows", 350, "--out", "upc")
    n3ic(*make, cwd=tmp_path)
    n3ic(*make, cwd=tmp_path, expect=2)
    n3ic(*make, "--replace", cwd=tmp_path)
    report = n3ic("data", "check", "upc", cwd=tmp_path).stdout
    assert "name: upc-aau-synthetic" in report
    assert "field 9 of packets_default.info" in report
    words = (
        "--data",
        "upc",
        "--dataset",
        "upc-aau",
        "--positive",
        "bittorrent",
        "--epochs",
        2,
        "--polish",
        0,
    )
    done = n3ic("train", "classification", *words, "--encoding", "quantile", cwd=tmp_path)
    assert "n3ic: SYNTHETIC: a generator made these captures" in done.stderr
    run = tmp_path / "runs" / "classification"
    assert "- SYNTHETIC" in (run / "report.md").read_text()
    assert json.loads((run / "metrics.json").read_text())["data"]["synthetic"]
