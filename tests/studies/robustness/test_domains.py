# SPDX-License-Identifier: Apache-2.0
"""Models of one site on the flows of another: shared columns and classes, new labels."""

import json
from dataclasses import replace

import numpy as np
import pytest

import n3ic as called
from n3ic.errors import UsageError
from n3ic.model.columns import ColumnRule, TableRules
from n3ic.studies.robustness.domain_matrix import EVALUATION
from n3ic.studies.robustness.domain_tables import read_sites, shared_sites
from n3ic.studies.robustness.domains import DomainRequest, DomainStudy, across_domains
from n3ic.util.json_text import json_text
from n3ic.util.plain_data import from_plain
from tests.support.small_flows import RECIPE, feature, flows

QUICK = RECIPE.with_options({"epochs": 3})


def request(**changed):
    return DomainRequest(
        **{"recipe": QUICK, "augments": (1.0, 16.0), "new_labels": (200,)} | changed
    )


@pytest.fixture(scope="module")
def study():
    """A site, and one that is six times slower, whose attacks look like the first one's others."""
    return study_of(1500)


def study_of(rows, **changed):
    tables = {"here": flows(rows), "away": flows(rows, seed=1, slower=6.0)}
    return across_domains(shared_sites(tables), request(**changed))


@pytest.fixture(scope="module")
def small_study():
    """The same of fewer flows, for tests that look at no accuracy."""
    return study_of(300, new_labels=(40,), augments=(1.0, 2.0))


def cell(study, trained, tested, augment=1.0, new_labels=0):
    (match,) = [
        c for c in study.cells
        if (c.trained, c.tested, c.augment, c.new_labels) == (trained, tested, augment, new_labels)
    ]  # fmt: skip
    return match


@pytest.mark.slow
def test_a_slower_site_is_seen_worse_and_copies_and_labels_help(study):
    home, away = cell(study, "here", "here"), cell(study, "here", "away")
    assert home.accuracy > 0.8 and away.accuracy < home.accuracy - 0.1
    assert cell(study, "here", "away", 16.0).accuracy > away.accuracy + 0.03
    assert cell(study, "here", "away", 1.0, 200).accuracy > away.accuracy + 0.1
    assert cell(study, "", "away", 1.0, 200).accuracy > 0.7  # the labels alone
    pairs = [("here", "away"), ("away", "here")]
    assert len(study.cells) == 2 * (4 + len(pairs) + 2)
    assert {c.rows for c in study.cells} == {285}  # of a random tenth, and a tenth of the rest


@pytest.mark.slow
def test_the_domain_warning_stands_on_a_move_and_not_at_home(study):
    assert cell(study, "here", "away").traffic == "another"
    assert cell(study, "away", "here").traffic == "another"
    assert cell(study, "here", "away").moved >= 1
    assert cell(study, "here", "here").traffic == cell(study, "away", "away").traffic == "same"


def test_a_study_is_shown_and_kept_as_plain_data(small_study):
    study = small_study
    plain = json.loads(json.dumps(study.to_dict()))
    assert from_plain(DomainStudy, plain) == study
    sites, matrix = EVALUATION.tables(plain)
    assert [row[0] for row in sites.rows] == ["here", "away"]
    assert len(matrix.rows) == len(study.cells)
    assert all(len(row) == len(matrix.head) for row in matrix.rows)
    assert "2 sites, 4 shared columns" in repr(study)


def test_a_table_shows_the_mean_of_the_seeds(small_study):
    study = small_study
    (first, *rest) = study.cells
    two = replace(study, cells=(first, replace(first, seed=1, accuracy=0.5), *rest))
    row = two.tables[1].rows[0]
    assert row[4] == f"{50 * (first.accuracy + 0.5):.1f} %"
    assert "mean of 2 seeds" in two.tables[1].title


@pytest.mark.slow
def test_the_same_seed_gives_the_same_figures():
    sites = shared_sites({"here": flows(400), "away": flows(400, seed=1, slower=3.0)})
    asked = request(new_labels=(60,), augments=(1.0,))
    first, second = (across_domains(sites, asked) for _ in range(2))
    assert first == second != across_domains(sites, replace(asked, seeds=(1,)))


def test_a_site_of_one_class_is_only_tested_on():
    benign = flows(500, seed=2, slower=4.0)
    benign = benign.rows(benign.label == 0)
    study = across_domains(
        shared_sites({"here": flows(600), "quiet": benign}),
        request(augments=(1.0,), new_labels=(50, 1000)),
    )
    assert [(c.trained, c.tested, c.new_labels) for c in study.cells] == [
        ("here", "here", 0), ("here", "quiet", 0), ("here", "quiet", 50), ("", "here", 50)
    ]  # fmt: skip
    quiet = cell(study, "here", "quiet")
    assert quiet.macro_f1 is None
    assert quiet.recall is None and quiet.false_alarms == pytest.approx(1 - quiet.accuracy)
    assert any("quiet has rows of one class" in note for note in study.notes)
    assert any("rows to label, not 1,000" in note for note in study.notes)
    with pytest.raises(UsageError, match="a site with rows of two classes"):
        across_domains(shared_sites({"one": benign, "other": benign}), request())


def test_without_times_there_are_no_copies():
    sites = shared_sites({"a": flows(300).only(["bytes"]), "b": flows(300, seed=1).only(["bytes"])})
    study = across_domains(sites, request(new_labels=()))
    assert {c.augment for c in study.cells} == {1.0}
    assert any("no copies on other time scales" in note for note in study.notes)


# --- what sites share ----------------------------------------------------------------------------


def named(table, classes):
    return replace(table, classes=classes)


def test_columns_of_another_unit_are_left_out_and_said():
    here, away = flows(100), flows(100, seed=1)
    other = replace(away, catalogue=(feature("rtt", "ms"), *away.catalogue[1:]))
    sites = shared_sites({"here": here, "away": other})
    assert sites.columns == ("load", "bytes", "noise")
    assert all(tuple(t.features) == sites.columns for t in sites.tables.values())
    assert sites.notes == ("columns that not every site has alike: rtt",)


def test_no_shared_column_is_an_error_with_the_columns():
    here = flows(100).only(["rtt"])
    with pytest.raises(UsageError, match=r"share no usable column .* here has rtt; away has bytes"):
        shared_sites({"here": here, "away": flows(100).only(["bytes"])})


def test_one_site_is_too_few():
    with pytest.raises(UsageError, match="two sites or more, got here"):
        shared_sites({"here": flows(100)})


def test_classes_are_those_that_every_site_has():
    here, away = named(flows(100), ("web", "mail")), named(flows(100, seed=1), ("web", "voice"))
    with pytest.raises(
        UsageError, match=r"got 1: here has web, mail; away has web, voice; .*--benign"
    ):
        shared_sites({"here": here, "away": away})
    three = replace(here, classes=("mail", "web", "game"), label=np.arange(100) % 3)
    sites = shared_sites({"three": three, "two": here})
    assert sites.classes == ("mail", "web")
    assert (sites.tables["two"].label == 1 - here.label).all()
    assert len(sites.tables["three"]) == 67
    assert sites.notes == ("33 rows of three are of classes not shared: game",)


@pytest.mark.parametrize(
    "option", [{"positive": ["DoS*", "scan"]}, {"benign": ["benign", "NORMAL"]}]
)
def test_named_classes_become_benign_and_attack(option):
    here, away = named(flows(100), ("BENIGN", "DoS Hulk")), named(flows(99), ("normal", "scan"))
    sites = shared_sites({"here": here, "away": away}, **option)
    assert sites.classes == ("benign", "attack")
    assert (sites.tables["here"].label == here.label).all()
    with pytest.raises(UsageError, match="no site has such a class; they have BENIGN, DoS Hulk"):
        shared_sites({"here": here, "away": away}, positive=["worm"])
    with pytest.raises(UsageError, match="one of them, got both"):
        shared_sites({"here": here, "away": away}, positive=["scan"], benign=["normal"])


def test_texts_get_the_numbers_of_the_first_site():
    def site(values, codes):
        rule = ColumnRule("category", values=values)
        table = flows(len(codes)).only(["bytes"])
        return replace(
            table, features={"bytes": np.array(codes)}, rules=TableRules({"bytes": rule})
        )

    sites = shared_sites(
        {"a": site(("tcp", "udp"), [0, 1, 2]), "b": site(("icmp", "tcp"), [0, 1, 2])}
    )
    assert sites.tables["a"].features["bytes"].tolist() == [0, 1, 2]
    assert sites.tables["b"].features["bytes"].tolist() == [2, 0, 2]  # icmp is unknown, tcp is 0


def test_a_name_is_a_file_or_a_data_set(tmp_path):
    with pytest.raises(
        UsageError, match=r"expected a file, .* or the name of a data set: cic-ids2017"
    ):
        read_sites(["nowhere.csv", "cic-ids2017"])
    for place in "ab":
        table_file(tmp_path / place / "flows.csv", 0, 1.0)
    paths = [f"{tmp_path}/{place}/flows.csv" for place in "ab"]
    assert [*read_sites(paths, "app")] == ["a/flows", "b/flows"]
    with pytest.raises(UsageError, match="named twice"):
        read_sites(["cic-ids2017", "cic-ids2017"])
    with pytest.raises(UsageError, match="expected numbers from 1 on"):
        EVALUATION.study(dict.fromkeys(("domains", "positive", "benign", "label"), "")
                         | {"new-labels": "5,x", "seeds": 1}, None)  # fmt: skip


# --- the command ---------------------------------------------------------------------------------


def table_file(path, seed, slower):
    table = flows(400, seed=seed, slower=slower)
    names = ["rtt_us", "load_kbps", "bytes", "noise"]
    lines = [",".join([*names, "app"])]
    for *values, label in zip(*table.features.values(), table.label, strict=True):
        lines.append(",".join(map(str, [*values, table.classes[label]])))
    path.parent.mkdir()
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def trained_here(n3ic, folder):
    """A model of one site, and the command that evaluates it on two."""
    here = table_file(folder / "here" / "flows.csv", 0, 1.0)
    table_file(folder / "away" / "flows.csv", 1, 6.0)
    data = f"--data {here} --label app"
    n3ic(f"train {data} --epochs 2 --bits 16 --hidden 4 --encoding quantile --out run")
    return "evaluate --domains here,away/ --label app --model run --new-labels 50"


@pytest.mark.slow
def test_the_command_takes_two_folders_of_a_user(n3ic, tmp_path, small_baselines):
    asked = trained_here(n3ic, tmp_path)
    domains = json.loads(n3ic(f"{asked} --json").stdout)["domains"]
    assert [site["name"] for site in domains["sites"]] == ["here", "away"]
    assert {c["augment"] for c in domains["cells"]} == {1.0, 16.0}
    assert len(domains["cells"]) == 2 * (4 + 2 + 2)
    printed = json.loads(n3ic("evaluate away --model run --shift --json").stdout)["networks"]
    shifts = called.shifts(tmp_path / "run", tmp_path / "away")
    assert json.loads(json_text(shifts[""].to_dict())) == printed[""]["shifts"]
    assert "rows at another site" in repr(shifts[""])


def test_a_mistake_is_told_in_the_terms_of_python():
    with pytest.raises(UsageError, match=r"^domains: expected two sites or more, got cic-ids2017"):
        called.domains(["cic-ids2017"])
    with pytest.raises(UsageError, match="seeds: expected one or more"):
        called.domains(["cic-ids2017", "iscx-tor2016"], benign=["BENIGN", "AUDIO"], seeds=0)


@pytest.mark.slow
def test_the_command_shows_domain_warnings_and_what_labels_alone_reach(n3ic, tmp_path):
    asked = trained_here(n3ic, tmp_path)
    shown = n3ic(asked).stdout
    assert "domain warning" in shown and "the labels alone" in shown
    printed = json.loads(n3ic(f"{asked} --json").stdout)["domains"]
    folders = [tmp_path / "here", tmp_path / "away"]
    study = called.domains(folders, label="app", model=tmp_path / "run", new_labels=[50])
    assert json.loads(json_text(study.to_dict())) == printed


@pytest.mark.first_case
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--domains cic-ids2017", "expected two sites or more, got cic-ids2017"),
        ("--domains cic-ids2017,iscx-tor2016 --shift", "--domains: expected without --shift"),
        ("flows.csv --domains cic-ids2017,iscx-tor2016", "--domains: expected without FLOWS"),
        ("--domains cic-ids2017,iscx-tor2016", "say with --benign or --positive"),
        ("--domains cic-ids2017,doh-tunnels --benign benign", "share no usable column"),
        ("--domains cic-ids2017,nowhere.csv", "--domains nowhere.csv: expected a file, a folder"),
        ("--domains cic-ids2017,iscx-tor2016 --new-labels ten", "--new-labels ten: expected"),
    ],
)
def test_a_mistake_is_told_in_words(n3ic, words, message):
    (n3ic.keywords["cwd"] / "flows.csv").touch()
    assert message in " ".join(n3ic(f"evaluate {words}", expect=2).stderr.split())


@pytest.mark.exhaustive
def test_real_sites_are_told_apart(n3ic, real_data):
    """Two excerpts of a laboratory's raw files, and two data sets of packet sequences."""
    raw = real_data / "unsw_nb15" / "raw_layout"
    tunnels, others = (
        real_data / name / "flows.csv.xz" for name in ("cic_dohbrw2020", "tii_ssrc23")
    )
    files = f"{raw}/luna866_10000.csv.xz,{raw}/hfcatucuamba_3500.csv.xz"
    sequences = f"packet-sequences:{tunnels},packet-sequences:{others}"
    for words in (files, f"{sequences} --benign benign,audio,video"):
        done = n3ic(f"evaluate --domains {words} --new-labels 200 --json")
        cells = json.loads(done.stdout)["domains"]["cells"]
        as_they_are = [c for c in cells if c["trained"] and not c["new_labels"]]
        home = [c for c in as_they_are if c["trained"] == c["tested"]]
        away = [c for c in as_they_are if c["trained"] != c["tested"]]
        assert {c["traffic"] for c in away} == {"another"}
        assert "another" not in {c["traffic"] for c in home}
        accuracy = [np.mean([c["accuracy"] for c in of]) for of in (home, away)]
        taught = [c["accuracy"] for c in cells if c["trained"] and c["new_labels"]]
        assert accuracy[0] > np.mean(taught) > accuracy[1] + 0.03
