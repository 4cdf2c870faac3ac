# SPDX-License-Identifier: Apache-2.0
"""Tables in the layouts of public data sets are trained on without their leaks."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestClassifier
from typer.testing import CliRunner

import n3ic
from n3ic.cli.main import command_line
from n3ic.errors import N3icWarning
from tests.support.public_layouts import LAYOUTS, made

pytestmark = pytest.mark.usefixtures("small_baselines")
QUICK = {"hidden": (16,), "epochs": 3, "bits": 64, "polish": 0, "encoding": "boosted"}


def trained(folder, frame, label, **more):
    frame.to_csv(folder / "flows.csv", index=False)
    return n3ic.train(
        data=folder / "flows.csv", use_case="flows", label=label.strip(), out=folder / "run", **more
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", LAYOUTS)
def test_leaks_alone_give_no_more_than_the_majority(tmp_path, name):
    layout = LAYOUTS[name]
    run = trained(tmp_path, made(name), layout.label, overrides=QUICK)
    majority = run.metrics["baselines"]["majority"]["accuracy"]
    for figures in (run.metrics["test"], *run.metrics["baselines"].values()):
        assert figures["accuracy"] < majority + 0.1  # of 300 test rows; the leaks alone give 0.95


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["NF-UQ-NIDS", "X-IIoTID"])  # leaks: in all
def test_the_figure_is_near_that_of_a_forest_on_the_columns_that_do_not_leak(tmp_path, name):
    layout = LAYOUTS[name]
    frame, fresh = made(name, true=True, rows=6000), made(name, true=True, rows=6000, seed=1)
    run = trained(tmp_path, frame, layout.label)
    fresh.to_csv(tmp_path / "fresh.csv", index=False)
    ours = n3ic.evaluate(run, tmp_path / "fresh.csv")[""].accuracy
    columns = [*layout.numbers, *layout.texts]
    both = pd.concat([frame, fresh]).rename(columns=str.strip)[columns]
    codes = both.apply(lambda c: c if c.dtype.kind in "if" else pd.factorize(c, sort=True)[0])
    forest = RandomForestClassifier(random_state=0).fit(codes[:6000], frame[layout.label])
    theirs = (forest.predict(codes[6000:]) == fresh[layout.label]).mean()
    assert theirs > 0.8
    assert ours > theirs - 0.02


def flows(rows=900, seed=0):
    """Flows of three kinds: the protocol, the bytes and a text that names them tell them apart."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 3, rows)
    return pd.DataFrame(
        {
            "src_ip": [f"10.0.0.{h}" for h in rng.integers(0, 9, rows)],
            "proto": np.array(["TCP", "UDP", "UDP"])[kind],
            "syn": (kind == 0) & (rng.random(rows) < 0.7),
            "bytes": 400 * kind + rng.integers(40, 300, rows),
            "pkts": rng.poisson(9, rows),
            "said": np.array(["w1", "v1", "d1"])[kind],
            "app": np.array(["web", "voip", "dns"])[kind],
        }
    )


@pytest.mark.slow
def test_python_warns_and_the_run_and_its_reports_tell_of_every_column(tmp_path):
    with pytest.warns(N3icWarning, match="bytes is in doubt: alone it tells") as warned:
        run = n3ic.train(flows(), label="app", overrides=QUICK, out=tmp_path / "run")
    warning = str(warned[0].message)
    assert warned[0].filename == __file__
    assert "overrides={'columns': ['!bytes']} leaves it out" in warning
    assert "said is left out: by its values another form of the label" in warning
    uses = {name: (use, why) for name, use, why in run.columns.rows}
    assert {name: use for name, (use, _) in uses.items()} == {
        "src_ip": "left out",
        "said": "left out",
        "bytes": "in doubt",
        **dict.fromkeys(("proto", "syn", "pkts"), "used"),
    }
    page = (run.path / "report.md").read_text()
    assert "--columns '!bytes' leaves it out" in page
    assert "| said | left out | by its values another form of the label |" in page
    shown = CliRunner().invoke(
        command_line(["report"]),
        ["report", str(run.path), "--html", str(tmp_path / "page.html")],
    )
    assert shown.exit_code == 0, shown.output
    assert "by its values another form of the label" in (tmp_path / "page.html").read_text()
    less = n3ic.train(
        flows().drop(columns="said"),
        label="app",
        overrides={**QUICK, "columns": ["!bytes"]},
        out=tmp_path / "less",
    )
    assert ("bytes", "left out") in [row[:2] for row in less.columns.rows]


def test_the_command_tells_in_one_table_and_named_columns_are_not_called_left_out(tmp_path):
    flows().to_csv(tmp_path / "flows.csv", index=False)
    words = ["train", "--data", str(tmp_path / "flows.csv"), "--label", "app"]
    words += ["--hidden", "8", "--epochs", "1", "--bits", "32", "--polish", "0"]
    words += ["--encoding", "boosted"]

    def column_rows(*more):
        every = [*words, *more]
        done = CliRunner().invoke(command_line(["train"]), every, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        rows = [line for line in done.stderr.splitlines() if line.startswith("│")]
        return {
            name.strip(): [part.strip() for part in rest]
            for _, names, *rest in (row.split("│") for row in rows)
            for name in names.split(",")
        }

    usual = column_rows("--out", str(tmp_path / "usual"))
    assert {name: row[0] for name, row in usual.items()} == {
        "src_ip": "left out",
        "said": "left out",
        "bytes": "in doubt",
        **dict.fromkeys(("proto", "syn", "pkts"), "used"),
    }
    named = column_rows("--columns", "src_ip,proto,said,bytes", "--out", str(tmp_path / "named"))
    assert {name: row[0] for name, row in named.items()} == {
        **dict.fromkeys(("src_ip", "proto", "said", "bytes"), "used"),
        **dict.fromkeys(("syn", "pkts"), "left out"),
    }
    assert "named, though: an address" in named["src_ip"][1]
    columns = json.loads((tmp_path / "named" / "metrics.json").read_bytes())["columns"]
    assert {one["name"] for one in columns if one["use"] == "used"} == {
        *("src_ip", "proto", "said", "bytes")
    }
