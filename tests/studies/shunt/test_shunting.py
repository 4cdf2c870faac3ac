# SPDX-License-Identifier: Apache-2.0
"""The threshold of a run: chosen on validation rows, never on test rows, and kept in a file."""

import csv
import io
from dataclasses import replace

import pytest

import n3ic
from n3ic.cli.outputs import show_result
from n3ic.data.dataset import data_set
from n3ic.data.split import split
from n3ic.errors import DataError, UsageError
from n3ic.evaluation.study import csv_text, write_result
from n3ic.model.network import BinaryModel
from n3ic.studies.shunt import study as shunting
from n3ic.studies.shunt.files import write_models
from n3ic.studies.shunt.guarantee import at_least
from n3ic.studies.shunt.result import ShuntStudies, ThresholdObjective
from n3ic.studies.shunt.study import study_shunting

pytest.importorskip("sklearn")
pytestmark = pytest.mark.slow  # trains a network, and boosted trees many times


@pytest.fixture(scope="module")
def flows(tmp_path_factory):
    from n3ic.data.dataset import data_set

    out = tmp_path_factory.mktemp("flows") / "flows.csv"
    return data_set("unsw-nb15-synthetic").generate_file(out, {"rows": 3000})


@pytest.fixture(scope="module")
def run(flows, tmp_path_factory, small_baselines):
    pytest.importorskip("torch")
    out = tmp_path_factory.mktemp("runs") / "anomaly"
    # Without copies of the rows, the baseline is the second stage of a study.
    overrides = {"epochs": 3, "polish": 0, "augment": 1.0}
    return n3ic.train("anomaly", data=flows, out=out, overrides=overrides, seed=1).path


def test_the_rows_are_those_of_the_training(run, flows):
    (study,) = n3ic.shunt(run, flows, accuracy=0.82).values()
    metrics = n3ic.api.load(run).provenance
    assert study.trained_rows and (study.protocol, study.seed) == ("random", 1)
    assert metrics["seed"] == "1"
    # The whole network's accuracy is that of the run, on the same test rows.
    from n3ic.runs.folder import load_metrics

    known = load_metrics(run)
    assert study.rows == known["rows"]
    assert study.figures["card"].accuracy == pytest.approx(known["test"]["accuracy"])
    assert study.figures["card"].accuracy_unseen == known["test"]["accuracy_unseen"]
    boosting = known["baselines"]["hist_gradient_boosting"]
    assert study.figures["host"].accuracy == pytest.approx(boosting["accuracy"])
    assert study.test[0].threshold == 0
    assert study.test[0].accuracy == pytest.approx(known["test"]["accuracy"])
    assert study.validation[0].accuracy == pytest.approx(known["validation"]["accuracy"])


def test_labels_of_test_rows_do_not_move_the_threshold(run, flows, monkeypatch):
    """Nor does anything else of them: they are reported on once."""
    real = shunting.labelled_flows

    def scrambled(*arguments):
        labelled = real(*arguments)
        (name, flow), *_ = labelled.items()
        test = split(flow.table, "random", 1).test
        label = flow.label.copy()
        label[test] = 1 - label[test]
        return {name: replace(flow, label=label)}

    for aim in (ThresholdObjective(accuracy=0.82), ThresholdObjective(host_load=0.2)):
        (before,) = study_shunting(run, flows, aim=aim).values()
        with monkeypatch.context() as patch:
            patch.setattr(shunting, "labelled_flows", scrambled)
            (after,) = study_shunting(run, flows, aim=aim).values()
        assert before.chosen == after.chosen
        assert after.validation == before.validation
        assert after.test != before.test


def test_the_threshold_gives_what_was_wanted_by_its_bound_on_validation_rows(run, flows):
    """On rows that duplicate no training row; the threshold below breaks the promise."""
    (whole,) = n3ic.shunt(run, flows, host_load=0.1).values()
    aim = round(whole.validation[0].accuracy + 0.01, 2)  # more than without shunting
    (study,) = n3ic.shunt(run, flows, accuracy=aim).values()
    sure = {
        p.threshold: at_least(round(p.accuracy_unseen * p.decided_unseen), p.decided_unseen, 0.95)
        for p in study.validation
        if p.decided_unseen
    }
    below = max(t for t in sure if t < study.chosen)
    assert sure[study.chosen] >= aim > sure[below]
    looks = [p for p in study.validation if p.accuracy is not None and p.accuracy >= aim]
    assert min(p.threshold for p in looks) < study.chosen
    (loose,) = n3ic.shunt(run, flows, accuracy=aim, confidence=0.5).values()
    assert loose.chosen < study.chosen
    (study,) = n3ic.shunt(run, flows, host_load=0.1).values()
    chosen = next(p for p in study.validation if p.threshold == study.chosen)
    rows = study.rows["validation"]
    assert 1 - at_least(chosen.decided, rows, 0.95) <= 0.1
    assert "90" not in str(study.aim) and "10.0 %" in str(study.aim)


def test_the_claim_is_shown_on_the_rows_that_chose_it_and_on_others(run, flows, tmp_path):
    other = tmp_path / "other.csv"
    lines = flows.read_text().splitlines(keepends=True)
    strangers = data_set("unsw-nb15-synthetic").generate_file(
        tmp_path / "s.csv", {"rows": 400, "seed": 5}
    )
    other.write_text("".join([*lines[:501], *strangers.read_text().splitlines(keepends=True)[1:]]))
    (study,) = n3ic.shunt(run, flows, host_load=0.3, other_rows=other).values()
    validation, _, test, new, more, more_new = study.claims
    point = next(p for p in study.test if p.threshold == study.chosen)
    assert validation.flows == study.rows["validation"] and test.flows == study.rows["test"]
    assert (test.decided, new.decided) == (point.decided, point.decided_unseen)
    assert test.right == round(point.accuracy * point.decided)
    assert new.right == round(point.accuracy_unseen * point.decided_unseen)
    assert more.rows == "other.csv" and more.flows == 900
    # Of the 500 rows of the training's file four fifths trained the network, or duplicate such.
    assert 400 < more_new.flows < 560
    low, high = test.interval
    assert low < test.right / test.decided < high
    assert study.to_dict()["claims"][2]["interval"] == [low, high]
    assert "other.csv" in study.tables[1].rows[4][0]


def test_the_verdicts_of_each_class_and_category_are_counted(run, flows):
    (study,) = n3ic.shunt(run, flows, host_load=0.3).values()
    _, _, test, _ = study.claims
    assert sum(row.flows for row in study.kinds) == study.rows["test"]
    assert sum(row.right for row in study.kinds) == test.right
    assert sum(row.wrong for row in study.kinds) == test.decided - test.right
    shares = [row.right / row.flows for row in study.kinds]
    assert shares == sorted(shares) and shares[0] < shares[-1]
    of_attack = {row.kind for row in study.kinds if row.name == "attack"}
    assert len(of_attack) > 3 and len({(row.name, row.kind) for row in study.kinds}) > 4
    (shown,) = (t for t in study.tables if "by kind" in t.title)
    assert shown.rows[0][:2] == (study.kinds[0].name, study.kinds[0].kind)
    assert study.to_dict()["kinds"][0]["shunted"] == study.kinds[0].shunted


def test_what_no_threshold_gives_is_said(run, flows, monkeypatch):
    """With all labels turned around, the card is wrong where it is sure."""
    (study,) = n3ic.shunt(run, flows).values()
    assert study.chosen is None and not study.figures
    (labelled,) = shunting.labelled_flows(run, flows).values()
    turned = {"": replace(labelled, label=1 - labelled.label)}
    monkeypatch.setattr(shunting, "labelled_flows", lambda *_: turned)
    with pytest.raises(UsageError, match=r"no threshold gives an accuracy of 95\.0 %.*at least"):
        n3ic.shunt(run, flows, accuracy=0.95)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"accuracy": 0.9, "host_load": 0.1}, "only one of them"),
        ({"accuracy": 1.5}, "a share from 0 to 1"),
        ({"host_load": -0.1}, "a share from 0 to 1"),
        ({"host_load": float("nan")}, "a share from 0 to 1"),
        ({"accuracy": 0.9, "confidence": 1.0}, "from 0.5 to below 1"),
    ],
)
def test_an_aim_that_is_none_is_refused(run, flows, given, message):
    with pytest.raises(UsageError, match=message):
        n3ic.shunt(run, flows, **given)


def test_other_rows_are_split_anew(run, tmp_path):
    from n3ic.data.dataset import data_set

    other = tmp_path / "other.csv"
    data_set("unsw-nb15-synthetic").generate_file(other, {"rows": 1500, "seed": 5})
    (study,) = n3ic.shunt(run, other, margin=3).values()
    assert not study.trained_rows
    assert study.chosen == 3 and 3 in [p.threshold for p in study.test]
    assert sum(study.rows.values()) == 1500


def test_a_model_that_does_not_say_its_rows_is_not_judged_on_them(run, flows, tmp_path):
    model = n3ic.load(run)
    known = {k: v for k, v in model.provenance.items() if k != "seed"}
    model.changed(provenance=known).save(tmp_path / "m.n3ic")
    with pytest.raises(UsageError, match="no row is known to be unseen"):
        n3ic.shunt(tmp_path / "m.n3ic", flows)
    with pytest.raises(DataError):
        n3ic.shunt(run, tmp_path / "missing.csv")


def test_the_model_is_written_with_its_threshold(run, flows, tmp_path):
    studies = n3ic.shunt(run, flows, host_load=0.2)
    (study,) = studies.values()
    out = tmp_path / "shunting.n3ic"
    write_models(studies, out, replace=False)
    again = BinaryModel.load(out)
    assert again.shunt == study.chosen > 0
    assert "host load of 20.0 % at most, with 95.0 % confidence, by" in again.provenance["shunting"]
    plain = n3ic.load(run)
    assert replace(again, shunt=0, provenance=plain.provenance) == plain
    with pytest.raises(UsageError, match="exists"):
        write_models(studies, out, replace=False)
    write_models(studies, out, replace=True)
    # The file's own split is still known: it can be studied again.
    (second,) = n3ic.shunt(out, flows, host_load=0.2).values()
    assert second.trained_rows and second.chosen == study.chosen
    # Where nothing is asked for, the file's own threshold is reported on.
    (own,) = n3ic.shunt(out, flows).values()
    assert own.chosen == study.chosen and own.figures == study.figures
    assert own.model == again
    (without,) = n3ic.shunt(out, flows, margin=0).values()
    assert without.model == plain
    # Verdicts of the file are those of the study.
    test = split(study_table(flows), "random", 1).test
    rows = study_table(flows).rows(test)
    verdicts = n3ic.predict(again, rows).verdicts
    point = next(p for p in study.test if p.threshold == study.chosen)
    assert (verdicts >= 0).sum() == point.decided


def study_table(flows):
    from n3ic.data.dataset import data_set

    return data_set("unsw-nb15-synthetic").load(flows)


def test_the_table_and_the_picture(run, flows, tmp_path):
    studies = n3ic.shunt(run, flows, host_load=0.2)
    (study,) = studies.values()
    lines = list(csv.DictReader(io.StringIO(csv_text(ShuntStudies("run", studies)).decode())))
    assert len(lines) == len(study.validation) + len(study.test)
    assert {line["rows"] for line in lines} == {"validation", "test"}
    first = next(line for line in lines if line["rows"] == "test")
    assert float(first["accuracy"]) == study.test[0].accuracy
    pytest.importorskip("matplotlib")
    for name in ("a.png", "b.png"):
        write_result(ShuntStudies("runs/$a_$ $", studies), picture=tmp_path / name)
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_several_networks_are_studied_and_written_together(
    run, flows, tmp_path, monkeypatch, capsys
):
    """Each with a threshold of its own, in a folder that commands take."""
    (one,) = shunting.labelled_flows(run, flows).values()
    assert isinstance(one.model, n3ic.BinaryModel)
    weights = one.model.output.weights[::-1]
    other = replace(one.model, output=replace(one.model.output, weights=weights))
    both = {"first": one, "second": replace(one, model=other)}
    monkeypatch.setattr(shunting, "labelled_flows", lambda *_: both)
    studies = n3ic.shunt(run, flows, host_load=0.3)
    assert list(studies) == ["first", "second"]
    assert studies["first"].validation != studies["second"].validation
    write_models(studies, tmp_path / "shunting", replace=False)
    show_result(ShuntStudies("both", studies), json=False)
    shown = capsys.readouterr().out
    assert "both: for a host load of 30.0 % at most" in shown
    assert [name in shown for name in ("first", "second", "third")] == [True, True, False]
    for name, study in studies.items():
        assert n3ic.load(tmp_path / "shunting", name).shunt == study.chosen
    with pytest.raises(UsageError, match="exists: 2 networks are written into a new folder"):
        write_models(studies, tmp_path / "shunting", replace=True)
    assert list(n3ic.shunt(run, flows, task="second", host_load=0.3)) == ["second"]
    with pytest.raises(UsageError, match="no network 'third'; it holds first, second"):
        n3ic.shunt(run, flows, task="third")
