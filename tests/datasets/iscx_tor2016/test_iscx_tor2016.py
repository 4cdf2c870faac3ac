# SPDX-License-Identifier: Apache-2.0
"""ISCXTor2016: the embedded file, what is derived from it, and the figures of its card."""

import csv
import io

import numpy as np
import pytest

from n3ic.data.dataset import data_set_of
from n3ic.data.files import read_contents
from n3ic.data.split import protocols_of, split
from n3ic.datasets.iscx_tor2016 import DATASET, USECASE
from n3ic.errors import DataError


@pytest.fixture(scope="module")
def table():
    return DATASET.load()


@pytest.fixture(scope="module")
def rows():
    """The rows of the file, parsed by other means than the loader's."""
    (content,) = read_contents(DATASET.embedded)
    return list(csv.DictReader(io.StringIO(content.data.decode()), skipinitialspace=True))


def test_the_file_is_the_published_one(table):
    assert len(table) == 14508
    assert dict(zip(table.classes, np.bincount(table.label).tolist(), strict=True)) == {
        "AUDIO": 1026,
        "BROWSING": 2645,
        "CHAT": 485,
        "FILE-TRANSFER": 1663,
        "MAIL": 497,
        "P2P": 2139,
        "VIDEO": 1529,
        "VOIP": 4524,
    }
    assert table.sources[0].identity.endswith("as published, byte for byte")
    assert not table.synthetic
    assert data_set_of(DATASET.embedded) is DATASET


def test_values_are_those_of_the_file(table, rows):
    for name, column, scale in (
        ("flow_duration", "Flow Duration", 1),
        ("fwd_iat_mean", "Fwd IAT Mean", 1),
        ("flow_bytes_s", "Flow Bytes/s", 8),
        ("flow_packets_s", "Flow Packets/s", 1000),
    ):
        source = np.array([float(row[column]) for row in rows]) * scale
        finite = np.isfinite(source)
        assert (np.abs(table.features[name] - source)[finite] <= 0.5 + 1e-6).all(), name


def test_counters_are_exactly_those_behind_the_rates(table, rows):
    seconds = np.array([int(row["Flow Duration"]) for row in rows]) / 1e6
    for name, column in (("packets", "Flow Packets/s"), ("bytes", "Flow Bytes/s")):
        with np.errstate(invalid="ignore"):
            counter = np.array([float(row[column]) for row in rows]) * seconds
        finite = np.isfinite(counter)
        assert (~finite).sum() == 1
        whole = np.rint(counter[finite])
        assert np.abs(counter[finite] - whole).max() < 3e-8
        assert np.array_equal(table.features[name][finite], whole)


def test_addresses_and_ports_stay_out_of_networks(table):
    assert not {n for n in table.usable if n.startswith(("source", "destination", "protocol"))}
    assert not {n for n in table.usable if n.endswith("_std")}  # no target has the products
    assert "flow_iat_mean" in table.usable


def test_quotients_of_times(table):
    mean, most = table.features["flow_iat_mean"], table.features["flow_iat_max"]
    row = int(np.argmax(mean))
    assert table.features["flow_iat_peak"][row] == (int(most[row]) << 4) // int(mean[row])
    forward, backward = (table.features[f"{way}_iat_mean"] for way in ("fwd", "bwd"))
    share = table.features["fwd_share_iat_mean"]
    assert share[(forward > 0) & (backward == 0)].min() == 1024
    assert not share[forward == 0].any()
    assert {one.feature.name for one in DATASET._derived} == set(DATASET.formulas)


def test_no_conversation_is_on_both_sides(table, rows):
    assert protocols_of(table) == ("random", "conversation")
    parts = split(table, "conversation", 0)
    names = ("Source IP", "Source Port", "Destination IP", "Destination Port")

    def ends(index):
        tuples = [[rows[i][n] for n in names] for i in index]
        return {frozenset([(a, b), (c, d)]) for a, b, c, d in tuples}

    train = ends([*parts.train, *parts.validation])
    test = ends(parts.test)
    assert not train & test
    assert len(train) + len(test) == 78


def test_figures_of_the_card(table):
    report = DATASET.check(DATASET.embedded)
    card = " ".join(DATASET.card.split())
    assert report["rows_changed"] == 388
    assert "387 rows of the embedded file" in card
    assert "flow_iat_min negative, set to 0: 387 of 14,508 rows" in report["problems"]
    assert report["conversations"] == 78
    several = [len(np.unique(table.label[table.conversation == k])) > 1 for k in range(78)]
    assert sum(several) == 4
    largest = {}
    for name in ("MAIL", "P2P"):
        own = table.conversation[table.label == table.classes.index(name)]
        counts = np.sort(np.bincount(own))[::-1]
        largest[name] = (int((counts > 0).sum()), int(counts[:2].sum()))
    assert largest == {"MAIL": (5, 404), "P2P": (10, 2109)}
    assert "5 connections, 2 of them with 404 of its 497" in card
    assert not table.features["active_std"].any()
    assert "{{" not in card


def test_one_class_against_the_rest(table):
    (task,) = USECASE.tasks(table, {"positive": "P2P"}).values()
    assert task.classes == ("not P2P", "P2P")
    assert task.label.sum() == 2139
    assert USECASE.tasks(table, {"positive": ""})[""] is table
    with pytest.raises(
        DataError,
        match="no class 'p2p' to tell from others; did you mean 'P2P'\\? the classes are AUD",
    ):
        USECASE.tasks(table, {"positive": "p2p"})
