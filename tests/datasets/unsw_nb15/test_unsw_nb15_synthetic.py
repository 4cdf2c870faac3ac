# SPDX-License-Identifier: Apache-2.0
"""The synthetic flows: repeatable, consistent, marked, and neither trivial nor hopeless."""

import subprocess
import sys

import numpy as np
import pytest

from n3ic.data.dataset import DataSet
from n3ic.datasets.unsw_nb15 import DATASET, SYNTHETIC, USECASE
from n3ic.datasets.unsw_nb15.behaviours import BEHAVIOURS
from n3ic.datasets.unsw_nb15.catalogue import (
    CATALOGUE,
    COLUMNS,
    DERIVED,
    HEADER_COLUMNS,
    NEEDS,
    PUBLISHED,
    WINDOWS,
)
from n3ic.datasets.unsw_nb15.columns import ATTACKS, NORMAL, PROTOCOLS, SERVICES
from n3ic.datasets.unsw_nb15.report import report
from n3ic.datasets.unsw_nb15.synthetic import generate, generate_columns, to_csv, write_csv
from n3ic.errors import UsageError
from n3ic.usecases.base import UseCase


@pytest.fixture(scope="module")
def table():
    return SYNTHETIC.load()


@pytest.fixture(scope="module")
def source():
    return generate_columns(5000, 2)


@pytest.mark.slow
def test_same_seed_same_flows(table):
    again = generate()
    assert table.sha256 == again.sha256
    for name in table.features:
        np.testing.assert_array_equal(table.features[name], again.features[name])
    assert generate(500, 2).sha256 != generate(500, 3).sha256


@pytest.mark.slow
def test_another_process_makes_the_same_flows():
    code = "from n3ic.datasets.unsw_nb15.synthetic import generate; print(generate(300, 9).sha256)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=True
    )
    assert done.stdout.strip() == generate(300, 9).sha256


def test_csv_read_back_is_the_same_table(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made = SYNTHETIC.generate(800, 5)
    path = SYNTHETIC.generate_file(tmp_path / "f.csv", {"rows": "800", "seed": "5"})
    for read in (SYNTHETIC.load(path), DATASET.load(path)):
        assert (read.name, read.synthetic, read.sha256) == (made.name, True, made.sha256)
        assert read.catalogue == made.catalogue
        assert read.sources[0].identity == made.sources[0].identity
        for name in made.features:
            np.testing.assert_array_equal(read.features[name], made.features[name])
        np.testing.assert_array_equal(read.label, made.label)
        np.testing.assert_array_equal(read.category, made.category)
        np.testing.assert_array_equal(read.partition, made.partition)


def test_the_synthetic_data_says_synthetic_everywhere(table):
    assert table.synthetic
    assert SYNTHETIC.synthetic
    assert "synthetic" in table.name
    assert "synthetic" in SYNTHETIC.summary
    assert "synthetic" in SYNTHETIC.card
    assert "synthetic" in table.sources[0].identity
    assert (generate_columns(10, 1)["id"] > 900_000_000).all()


def test_columns_agree_with_one_another(source):
    f = source
    dur = f["dur"]
    moving = dur > 0
    rate = (f["spkts"] + f["dpkts"] - 1)[moving] / dur[moving]
    np.testing.assert_allclose(f["rate"][moving], rate, atol=1e-6)
    for side in "sd":
        packets, volume = f[f"{side}pkts"], f[f"{side}bytes"]
        some = packets > 0
        np.testing.assert_array_equal(
            f[f"{side}mean"][some], np.rint(volume[some] / packets[some]).astype(int)
        )
        many = moving & (packets > 1)
        load = 8 * volume[many] * (packets[many] - 1) / packets[many] / dur[many]
        np.testing.assert_allclose(f[f"{side}load"][many], load, rtol=1e-6, atol=1e-2)
        assert (f[f"{side}inpkt"] * (packets - 1) <= dur * 1e3 + 1e-3).all()
        assert (f[f"{side}loss"] <= packets).all()
        assert (volume[some] >= 18 * packets[some]).all()
        assert (f[f"{side}mean"] <= 1500).all()
    np.testing.assert_allclose(f["tcprtt"], f["synack"] + f["ackdat"], atol=2e-6)
    assert (f["tcprtt"] <= dur + 1e-9).all()
    udp = f["proto"] == "udp"
    for name in ("swin", "dwin", "stcpb", "dtcpb", "tcprtt", "sloss"):
        assert not f[name][udp].any()
    assert not f["dttl"][f["dpkts"] == 0].any()
    for name in (n for n in f if n.startswith("ct_") and n.endswith(("ltm", "src", "dst"))):
        assert (f[name] >= 1).all()
        assert (f[name] <= 100).all()
    assert (f["ct_dst_src_ltm"] <= np.minimum(f["ct_dst_ltm"], f["ct_src_ltm"])).all()
    assert (f["ct_src_dport_ltm"] <= f["ct_src_ltm"]).all()


def test_every_value_fits_its_bits(table):
    for feature in table.catalogue:
        values = table.features[feature.name]
        assert values.min() >= 0, feature.name
        assert values.max() < 1 << feature.bits, feature.name


def test_behaviours_name_known_things():
    assert {b.category for b in BEHAVIOURS} == {NORMAL, *ATTACKS}
    assert len({b.name for b in BEHAVIOURS}) == len(BEHAVIOURS)
    for b in BEHAVIOURS:
        assert b.proto in PROTOCOLS
        assert b.service in SERVICES


def test_every_category_is_there_and_the_classes_are_balanced(table):
    assert set(table.category) == {NORMAL, *ATTACKS}
    assert 0.5 < table.label.mean() < 0.6
    np.testing.assert_array_equal(table.label == 0, table.category == NORMAL)


@pytest.mark.slow
def test_the_task_is_neither_trivial_nor_hopeless(table):
    ensemble = pytest.importorskip("sklearn.ensemble", reason="needs scikit-learn")
    tree = pytest.importorskip("sklearn.tree", reason="needs scikit-learn")
    columns = table.matrix([n for n in HEADER_COLUMNS if n in PUBLISHED])
    threads = pytest.importorskip("threadpoolctl", reason="needs scikit-learn")
    order = np.random.default_rng(0).permutation(len(table))
    train, test = order[:10000], order[10000:]

    def accuracy(model):
        with threads.threadpool_limits(1):
            model.fit(columns[train], table.label[train])
            return model.score(columns[test], table.label[test])

    boosted = accuracy(ensemble.HistGradientBoostingClassifier(max_iter=40, random_state=0))
    shallow = accuracy(tree.DecisionTreeClassifier(max_depth=3, random_state=0))
    assert 0.93 < boosted < 0.99
    assert shallow < boosted - 0.03


def test_rows_and_seed_are_checked(tmp_path):
    for rows, seed in ((0, 1), (10**8, 1), (10, -1)):
        with pytest.raises(UsageError):
            generate(rows, seed)
    with pytest.raises(UsageError, match="it has --rows, --seed"):
        SYNTHETIC.generate_file(tmp_path / "x.csv", {"row": "3"})
    with pytest.raises(UsageError, match="--rows: 'many'"):
        SYNTHETIC.generate_file(tmp_path / "x.csv", {"rows": "many"})
    assert not list(tmp_path.iterdir())
    assert len(generate(1, 0)) == 1
    assert write_csv(tmp_path / "y.csv", 2, 0).read_bytes() == to_csv(generate_columns(2, 0))


def test_catalogue_is_complete():
    assert isinstance(DATASET, DataSet)
    assert isinstance(SYNTHETIC, DataSet)
    assert isinstance(USECASE, UseCase)
    assert (USECASE.dataset, USECASE.default) == (DATASET.name, SYNTHETIC.name)
    names = [f.name for f in CATALOGUE]
    assert len(set(names)) == len(names) == len(COLUMNS) + len(DERIVED) + len(WINDOWS)
    for f in CATALOGUE:
        assert f.meaning
        assert f.unit
        assert f.nic_reason
        assert f.scale > 0
        assert 1 <= f.bits <= 32
        assert bool(f.leak_reason) == f.leaks
    assert len(HEADER_COLUMNS) == 33
    leaks = {f.name for f in CATALOGUE if f.leaks and not {*NEEDS.get(f.name, ())}}
    assert leaks == {
        "sttl", "dttl", "ct_state_ttl", "stcpb", "dtcpb", "is_sm_ips_ports",
        "srcip", "dstip", "sport", "dsport", "stime", "ltime", "synack", "ackdat", "tcprtt",
    }  # fmt: skip
    payload = {"trans_depth", "response_body_len", "ct_flw_http_mthd", "is_ftp_login", "ct_ftp_cmd"}
    assert {f.name for f in CATALOGUE if f.tap == "payload"} == {*payload, "service"}


def test_cards_are_filled_from_the_catalogue():
    for source in (DATASET, SYNTHETIC):
        assert "{{" not in source.card
        assert source.card.startswith("# ")
    for f in CATALOGUE:
        assert f"| `{f.name}` |" in DATASET.card
    assert "research" in DATASET.card
    assert "e55caabaa6cd4a8f1c06a227bcfababc" in DATASET.card


@pytest.mark.slow
def test_figures_of_the_card():
    figures = report(SYNTHETIC.load())
    card = " ".join(SYNTHETIC.card.split())
    assert f"{figures.classes['attack'] / figures.rows:.1%} attacks".replace("%", " %") in card
    assert f"{figures.duplicate_share:.1%} of the rows repeat".replace("%", " %") in card
    assert f"{figures.twin_share:.1%} of the test rows".replace("%", " %") in card


@pytest.mark.slow
def test_importing_the_data_set_is_cheap():
    code = (
        "import sys, n3ic.datasets.unsw_nb15 as d; d.SYNTHETIC.load();"
        "print([m for m in ('pandas', 'torch', 'sklearn', 'matplotlib') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=True
    )
    assert done.stdout.strip() == "[]"
