# SPDX-License-Identifier: Apache-2.0
"""The leak audit: planted leaks are found, and a table without one raises no alarm."""

import csv
import json

import numpy as np
import pytest
from typer.testing import CliRunner

from n3ic.cli.main import command_line
from n3ic.data.column_profile import column_names
from n3ic.data.dataset import data_set
from n3ic.data.user_table import describe
from n3ic.errors import DataError, UsageError
from n3ic.studies.audit import ablation
from n3ic.studies.audit.ablation import losses
from n3ic.studies.audit.audit import AuditRequest, audit
from n3ic.studies.audit.marks import kind_of, marks_of
from n3ic.studies.audit.separability import FOLDS, CodedRows, best_cut, bins, separability_by
from n3ic.studies.audit.study import recipe_for
from n3ic.training.recipe import Recipe, Training
from tests.support.public_layouts import LAYOUTS, made

ROWS = 2400


def columns(seed=0, rows=ROWS):
    """Flows of hosts at two distances: the far ones attack, and honest columns tell attacks."""
    rng = np.random.default_rng(seed)
    attack = rng.random(rows) < 0.5
    far = rng.random(rows) < np.where(attack, 0.8, 0.3)
    return rng, {
        "proto": rng.choice([6, 17], rows),
        "ttl": np.where(far, 254, 31),
        "packets": rng.poisson(np.where(attack, 9, 4)),
        "bytes": rng.integers(40, 1500, rows),
        "duration": rng.integers(0, 10**6, rows),
        "gap": rng.integers(0, 10**4, rows),
        "label": np.where(attack, "attack", "benign"),
    }


def written(path, table):
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(table)
        writer.writerows(zip(*table.values(), strict=True))
    return path


def audited(path, table, **more):
    own, _ = describe(written(path, table), "label")
    return audit(own.load(path), own, AuditRequest(**more))


@pytest.mark.parametrize("seed", range(3))
def test_a_table_without_a_leak_raises_no_alarm(tmp_path, seed):
    audit_result = audited(tmp_path / "t.csv", columns(seed)[1], seed=seed)
    assert [(mark.name, mark.kind) for mark in audit_result.marks] == [("ttl", "ttl")]
    assert audit_result.columns == ("packets", "bytes", "duration", "gap")
    assert audit_result.paired == audit_result.columns
    assert (audit_result.leaking, audit_result.leaking_pairs) == ((), ())


def test_many_random_columns_do_not_pass_for_a_leak_of_a_rare_value(tmp_path):
    rng, table = columns(5, 600)
    table["ttl"] = np.where(np.arange(600) % 10 == 0, 31, 254)  # 60 rows, 30 a class or fewer
    table |= {f"noise{i}": rng.integers(0, 1000, 600) for i in range(30)}
    audit_result = audited(tmp_path / "t.csv", table, bar=0.55, gap=0.0, pairs=0)
    assert audit_result.leaking == ()


def test_a_planted_column_is_found_with_its_cut(tmp_path):
    rng, table = columns()
    near = table["ttl"] == 31
    table["rtt"] = np.where(near, rng.integers(100, 900, ROWS), rng.integers(1100, 9000, ROWS))
    audit_result = audited(tmp_path / "t.csv", table)
    assert audit_result.leaking == ("rtt",)
    one = audit_result.singles[0]
    assert (one.columns, one.mark, one.how) == (("rtt",), "ttl", "cut")
    assert one.sure > 0.98
    assert one.chance == 0.05
    assert one.cut.startswith("rtt < 1,1" if one.value == "31" else "rtt >= 1,1")
    assert one.agree == 1


def test_a_leak_in_some_flows_alone_is_found_there(tmp_path):
    rng, table = columns()
    near, tcp = table["ttl"] == 31, table["proto"] == 6
    leak = np.where(near, rng.integers(100, 900, ROWS), rng.integers(1100, 9000, ROWS))
    table["rtt"] = np.where(tcp, leak, 0)
    audit_result = audited(tmp_path / "t.csv", table)
    assert audit_result.leaking == ("rtt",)
    assert audit_result.singles[0].where in ("proto = 6", "rtt > 0")
    assert audit_result.singles[0].rows == tcp.sum()
    everywhere = audited(tmp_path / "t.csv", {k: v for k, v in table.items() if k != "proto"})
    assert everywhere.leaking == ("rtt",)
    assert everywhere.singles[0].where == "rtt > 0"


def exclusive(rng, near):
    one = rng.integers(0, 1000, len(near))
    other = rng.integers(0, 500, len(near))
    return one, np.where(near ^ (one < 500), other, other + 500)


def differing(rng, near):
    one = rng.integers(0, 10**6, len(near))
    return one, one + np.where(near, 100, 5000) + rng.integers(0, 50, len(near))


def multiplied(rng, near):
    one = rng.integers(1000, 10**6, len(near))
    return one, one * np.where(near, 2, 5)


@pytest.mark.first_case
@pytest.mark.parametrize(
    ("plant", "how"), [(exclusive, "pair"), (differing, "difference"), (multiplied, "quotient")]
)
def test_a_planted_pair_is_found_of_which_neither_column_leaks(tmp_path, plant, how):
    rng, table = columns()
    table["one"], table["other"] = plant(rng, table["ttl"] == 31)
    audit_result = audited(tmp_path / "t.csv", table, columns=("packets", "one", "other"))
    assert audit_result.leaking == ()
    assert [(f.columns, f.how) for f in audit_result.leaking_pairs] == [(("one", "other"), how)]


def test_what_tells_the_class_alone_is_no_leak(tmp_path):
    """The far hosts attack: a column that tells attacks tells the hosts, and not within a class."""
    rng, table = columns()
    attack = table["label"] == "attack"
    table["ttl"] = np.where(attack ^ (rng.random(ROWS) < 0.08), 254, 31)
    table["payload"] = np.where(attack, 900, 100) + rng.integers(0, 99, ROWS)
    audit_result = audited(tmp_path / "t.csv", table)
    assert audit_result.leaking == ()
    one = next(f for f in audit_result.singles if f.columns == ("payload",))
    assert one.accuracy > 0.9
    assert one.within is not None
    assert one.within < 0.6


def test_what_the_protocol_and_the_state_say_is_no_leak(tmp_path):
    rng, table = columns()
    table["conn_state"] = np.where(table["ttl"] == 31, "SF", "S0")
    table["replies"] = np.where(table["ttl"] == 31, rng.integers(1, 9, ROWS), 0)
    audit_result = audited(tmp_path / "t.csv", table)
    assert audit_result.leaking == ()
    assert "conn_state" not in audit_result.columns


def test_a_port_raises_no_alarm_unless_it_is_named(tmp_path):
    _, table = columns()
    attack = table["label"] == "attack"
    table["dport"] = np.where(table["bytes"] > 700, 53, np.where(attack, 80, 443))
    marks = [m.kind for m in audited(tmp_path / "t.csv", table).marks]
    assert sorted(marks) == ["port", "ttl"]
    assert audited(tmp_path / "t.csv", table, gap=0.0).leaking == ()
    assert audited(tmp_path / "t.csv", table, gap=0.0, marks=("dport",)).leaking == ("bytes",)


def test_columns_of_text_are_marks(tmp_path):
    rng, table = columns()
    table["capture"] = np.where(table["ttl"] == 31, "monday.pcap", "tuesday.pcap")
    table["timestamp"] = np.where(rng.random(ROWS) < 0.5, "5/7/2017 9:58", "6/7/2017 1:02")
    table["src_ip"] = np.where(table["ttl"] == 31, "10.0.0.1", "10.0.1.2")
    audit_result = audited(tmp_path / "t.csv", table)
    known = {mark.name: (mark.kind, set(mark.values)) for mark in audit_result.marks}
    assert known == {
        "ttl": ("ttl", {"31", "254"}),
        "src_ip": ("address", {"10.0.0.1", "10.0.1.2"}),
        "src_ip /24": ("network", {"10.0.0.0", "10.0.1.0"}),
        "capture": ("capture", {"monday.pcap", "tuesday.pcap"}),
        "timestamp": ("time", {"5/7/2017", "6/7/2017"}),
    }
    assert [mark.label > 0.3 for mark in audit_result.marks if mark.name == "capture"] == [True]
    assert kind_of("bytes") == ""


def test_a_table_without_marks_and_unknown_columns_are_refused(tmp_path):
    _, table = columns()
    with pytest.raises(UsageError, match="no column 'tll'"):
        audited(tmp_path / "t.csv", table, marks=("tll",))
    with pytest.raises(UsageError, match="no column 'x'"):
        audited(tmp_path / "t.csv", table, columns=("x",))
    with pytest.raises(UsageError, match="no column 'x' to divide"):
        audited(tmp_path / "t.csv", table, within=("x",))
    del table["ttl"]
    with pytest.raises(DataError, match="--mark"):
        audited(tmp_path / "t.csv", table)
    table["dport"] = table["proto"] + 50
    audit_result = audited(tmp_path / "t.csv", table)  # ports alone only divide the rows
    assert (audit_result.marks, [one.name for one in audit_result.uses]) == ((), ["dport"])
    with pytest.raises(UsageError, match="19 permutations"):
        AuditRequest(permutations=3)
    with pytest.raises(UsageError, match="0 pairs of columns or more, got -1"):
        AuditRequest(pairs=-1)


def test_told_by_a_cut_and_by_bins_is_what_counting_by_hand_gives():
    mark = np.repeat([0, 1], 100)
    fold = np.arange(200) % FOLDS
    every = np.zeros(200, dtype=np.int64)
    rows = CodedRows(mark, 2, every, every, fold)
    cut, table = separability_by(mark, rows)
    assert cut.sure.tolist() == table.sure.tolist() == [1, 1]
    cut, table = separability_by(np.where(np.arange(200) % 100 < 25, 1 - mark, mark), rows)
    assert np.allclose(cut.sure, 0.5)
    assert np.allclose(table.within, 0.5)
    cut, table = separability_by(
        np.where(mark, 1, np.tile([0, 2], 100)), rows
    )  # the middle of three
    assert np.allclose(cut.sure, 0.5, atol=0.05)
    assert np.allclose(table.sure, 1)


def test_groups_that_have_one_value_alone_say_nothing():
    mark = np.repeat([0, 1], 100)
    every = np.zeros(200, dtype=np.int64)
    rows = CodedRows(mark, 2, every, mark, np.arange(200) % FOLDS)
    assert np.isnan(separability_by(mark, rows)[0].within).all()
    assert separability_by(mark, rows)[0].sure.tolist() == [0, 0]
    assert (rows.permuted(np.random.default_rng(0)).mark == mark).all()


def test_bins_keep_frequent_values_apart_and_the_order():
    rng = np.random.default_rng(0)
    values = np.r_[np.zeros(500), rng.integers(0, 10**6, 500), np.full(500, 777_777)].astype(int)
    codes = bins(values, 64)
    assert codes.max() < 64
    order = np.argsort(values, kind="stable")
    assert (np.diff(codes[order]) >= 0).all()
    for frequent in (0, 777_777):
        assert len(np.unique(values[codes == codes[values == frequent][0]])) == 1


def test_the_best_cut_is_the_threshold_between():
    cut = best_cut(np.array([1, 2, 3, 10, 11, 12]), np.array([1, 1, 1, 0, 0, 0], dtype=bool))
    assert (cut.at, cut.below, cut.agree) == (10, True, 1)


def test_what_is_lost_is_paired_by_row():
    def right(columns):
        return np.arange(100) < (90 if "a" in columns else 80)

    (one, other) = losses(right, "trees", ("a", "b"), [("a",), ("b",), ("a", "b")])
    assert (one.before, one.free) == (0.9, False)
    assert one.lost == pytest.approx(0.1)
    assert one.error == pytest.approx(np.sqrt(0.1 * 0.9 / 100))
    assert (other.lost, other.error, other.free) == (0, 0, True)


def run(*words):
    words = [*map(str, words)]
    return CliRunner().invoke(command_line(words), words)


@pytest.mark.slow
def test_the_command_writes_table_json_csv_page_and_picture(tmp_path, monkeypatch):
    monkeypatch.setattr(ablation, "_ROUNDS", 3)
    rng, table = columns(rows=1000)
    table["rtt"] = np.where(table["ttl"] == 31, 500, 5000) + rng.integers(0, 99, 1000)
    path = written(tmp_path / "t.csv", table)
    words = ("data", "audit", path, "--label", "label")
    shown = run(*words, "--losses", 1, "--out", tmp_path / "page.md")
    assert shown.exit_code == 0, shown.output
    assert "leaking: rtt" in shown.stdout
    assert "points lost" in shown.stdout
    assert (tmp_path / "page.png").read_bytes().startswith(b"\x89PNG")
    assert "leaking: rtt" in (tmp_path / "page.md").read_text()
    out = json.loads(run(*words, "--losses", 0, "--json").stdout)
    assert out["leaking"] == ["rtt"]
    assert out["losses"] == []
    run(*words, "--losses", 0, "--out", tmp_path / "t2.csv", "--picture", tmp_path / "p.svg")
    first = next(csv.DictReader((tmp_path / "t2.csv").open()))
    assert (first["columns"], first["leaks"]) == ("rtt", "True")
    assert b"<svg" in (tmp_path / "p.svg").read_bytes()
    again = run(*words, "--losses", 0, "--out", tmp_path / "t2.csv")
    assert isinstance(again.exception, UsageError)
    bad = run(*words, "--out", tmp_path / "t.txt")
    assert isinstance(bad.exception, UsageError)


@pytest.mark.first_case
@pytest.mark.parametrize("name", LAYOUTS)
def test_every_leak_of_a_public_layout_is_listed(tmp_path, name):
    layout, path = LAYOUTS[name], tmp_path / "t.csv"
    made(name, rows=600).to_csv(path, index=False)
    words = ("data", "audit", path, "--label", layout.label.strip(), "--losses", 0, "--pairs", 0)
    report = json.loads(run(*words, "--json").stdout)
    left = {use["name"] for use in report["uses"] if use["use"] == "left out"}
    assert left == {*column_names([*layout.leaks])}
    shown = run(*words, "--out", tmp_path / "page.md")
    assert shown.exit_code == 0, shown.output
    assert "left out by training: " in shown.stdout
    assert "| left out |" in (tmp_path / "page.md").read_text()


def test_a_column_in_doubt_is_listed_with_its_figure(tmp_path):
    _, table = columns(rows=800)
    table["gap"] = np.where(table["label"] == "attack", 7, 9)
    completed = run("data", "audit", written(tmp_path / "t.csv", table), "--label", "label",
                "--losses", 0)  # fmt: skip
    assert "in doubt by training: gap" in completed.stdout
    assert "to 100.0%" in completed.stdout


def test_the_columns_of_a_layout_are_those_that_training_reads(tmp_path):
    """A user's table in a data set's layout is audited with its derived columns."""
    path = data_set("unsw-nb15-synthetic").generate_file(tmp_path / "own.csv", {"rows": 300})
    words = ("data", "audit", path, "--label", "label", "--losses", 0, "--pairs", 0, "--json")
    report = json.loads(run(*words).stdout)
    assert report["name"] == "unsw-nb15-synthetic"
    assert {"tap_dload", "sbytes_share"} <= {*report["columns"]}
    inferred = json.loads(run(*words, "--dataset", "flows").stdout)
    assert inferred["name"] == "flows" and "tap_dload" not in inferred["columns"]


def test_columns_that_an_embedded_data_set_leaves_out_are_marks_too():
    source = data_set("cic-ids2017")
    marks = {mark.name: mark for mark in marks_of(source.load(), source)}
    assert {"source_ip", "source_ip /24", "destination_port", "timestamp"} <= marks.keys()
    assert "5/7/2017" in marks["timestamp"].values
    assert not marks["destination_port"].counts


def test_what_the_service_says_is_no_leak(tmp_path):
    rng, table = columns()
    near = table["ttl"] == 31
    table["dport"] = np.where(near, 53, 443)  # near hosts ask for names
    table["size"] = np.where(near, 60, 900) + rng.integers(0, 50, ROWS)
    assert audited(tmp_path / "t.csv", table).leaking == ()


def test_a_part_of_nearly_one_class_has_nothing_to_tell(tmp_path):
    rng, table = columns()
    attack = rng.random(ROWS) < 0.04
    table["label"] = np.where(attack, "attack", "benign")
    table["ttl"] = np.where(attack | (rng.random(ROWS) < 0.4), 254, 31)
    table["rtt"] = np.where(table["ttl"] == 31, 500, 5000) + rng.integers(0, 99, ROWS)
    audit_result = audited(tmp_path / "t.csv", table)
    assert audit_result.leaking == ()
    assert audit_result.singles[0].columns == ("rtt",)
    assert audit_result.singles[0].label_gap == 0


def test_a_network_without_the_column_that_tells_the_class_loses(tmp_path, small_baselines):
    _, table = columns()
    table["payload"] = np.where(table["label"] == "attack", 900, 100)
    own, _ = describe(written(tmp_path / "t.csv", table), "label")
    quick = Recipe("quick", "", bits=16, training=Training(hidden=(8,), epochs=2, polish=0))
    right = ablation.network(own.load(tmp_path / "t.csv"), quick, 1, lambda _: None)
    (one,) = losses(right, "networks", ("payload", "bytes"), [("payload",)])
    assert one.rows == 216  # validation rows: a tenth of nine tenths
    assert one.lost > 0.2 and not one.free
    assert recipe_for("published", data_set("unsw-nb15")).name == "published"
    with pytest.raises(UsageError, match="no recipe 'x'"):
        recipe_for("x", own)
