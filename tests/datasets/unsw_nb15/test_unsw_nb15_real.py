# SPDX-License-Identifier: Apache-2.0
"""The real files, where they are: identity, integers, and the figures of the data card."""

import lzma

import numpy as np
import pandas as pd
import pytest

from n3ic.data.files import Content, read_contents
from n3ic.data.split import duplicate_share
from n3ic.dataframes import table_sheet
from n3ic.datasets.unsw_nb15 import DATASET
from n3ic.datasets.unsw_nb15.catalogue import WINDOWS
from n3ic.datasets.unsw_nb15.columns import PROTOCOL_NOT_IP
from n3ic.datasets.unsw_nb15.official import PARTITIONS, identify
from n3ic.datasets.unsw_nb15.report import check

TEST = PARTITIONS[1]


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def folder(real_data):
    return real_data / "unsw_nb15"


@pytest.fixture(scope="module")
def partition(folder):
    return folder / "UNSW_NB15_testing-set.csv.xz"


@pytest.fixture(scope="module")
def table(partition):
    return DATASET.load(partition)


@pytest.fixture(scope="module")
def raw(folder):
    return DATASET.load(folder / "raw_layout" / "hfcatucuamba_3500.csv.xz")


@pytest.mark.slow
def test_official_test_partition_is_known_under_any_name(partition, table, tmp_path):
    assert table.sources[0].identity == "official test partition, byte for byte"
    assert table.sha256 == TEST.sha256
    assert len(table) == TEST.rows
    assert set(table.partition) == {"test"}
    renamed = tmp_path / "UNSW_NB15_training-set.csv"
    renamed.write_bytes(lzma.decompress(partition.read_bytes()))
    report = check(renamed)
    assert report.partitions == {"test": TEST.rows}
    assert report.categories == dict(TEST.categories)
    assert any(
        "named like the train partition, but it is the test one" in p for p in report.problems
    )


def test_reencoded_copy_is_known_by_rows_and_categories(partition):
    (content,) = read_contents(partition)
    crlf = Content("copy.csv", content.data.replace(b"\n", b"\r\n"))
    identity, which = identify(crlf, "partition", TEST.rows, TEST.categories)
    assert which == "test"
    assert "other bytes than published" in identity
    identity, which = identify(crlf, "partition", TEST.rows, {"Normal": TEST.rows})
    assert which == ""
    assert "not that file" in identity


@pytest.mark.slow
def test_figures_of_the_card(partition):
    report = check(partition)
    card = DATASET.card
    for figure, words in (
        (report.duplicate_share, "{:.1%} of the rows repeat an earlier row"),
        (duplicate_share(DATASET.load(partition)), "{:.1%} where the class alone"),
        (report.twin_share, "{:.1%} of the test rows"),
        (report.contradiction_share, "{:.3%} of the rows have the features"),
        (report.one_column["sttl"], "gets {:.1%} of the rows"),
        (report.one_column["dttl"], "{:.1%} for `dttl`"),
        (report.one_column["ct_state_ttl"], "{:.1%} for `ct_state_ttl`"),
        (report.rate_agreement, "in {:.1%} of the rows"),
        (report.classes["attack"] / report.rows, 'always saying "attack": {:.1%}'),
    ):
        assert words.format(figure).replace("%", " %") in " ".join(card.split())
    assert report.rows == TEST.rows


@pytest.mark.slow
def test_ports_give_the_service_as_the_card_says(folder):
    report = check(folder / "raw_layout")
    assert report.rows == 13_500
    assert report.rate_agreement == 1.0
    assert f"{report.port_agreement:.1%}".replace("%", " %") in DATASET.card


@pytest.mark.slow
def test_every_value_fits_its_bits_unclamped(table, raw):
    for t in (table, raw):
        for feature in t.catalogue:
            assert t.features[feature.name].max() < (1 << feature.bits) - (feature.bits > 8)


@pytest.mark.slow
def test_values_are_those_of_the_file(partition, table):
    pandas = pytest.importorskip("pandas", reason="needs pandas")
    frame = pandas.read_csv(partition, encoding="utf-8-sig")
    for feature in table.catalogue:
        if feature.name not in frame or frame[feature.name].dtype.kind not in "if":
            continue
        source = frame[feature.name].to_numpy(dtype=np.float64)
        values = table.features[feature.name]
        near = np.abs(values - source * feature.scale) <= 0.5 + 1e-6
        assert (near | ((source > 0) & (values == 1))).all(), feature.name
        assert ((source > 0) == (values > 0)).all(), feature.name


@pytest.mark.slow
def test_folder_reads_the_partition_and_says_what_it_left_out(folder, table):
    folder_table = DATASET.load(folder)
    assert folder_table.sha256 == table.sha256
    notes = [s.identity for s in folder_table.sources if not s.rows]
    assert sum(n.startswith("left out beside an official partition") for n in notes) == 3
    assert sum(n.startswith("skipped") for n in notes) == 2


@pytest.mark.slow
def test_raw_rows_equal_the_partition_rows_of_the_same_flows(table, raw):
    keys = ("stcpb", "dtcpb", "sbytes", "dbytes", "dur")

    def index(t):
        rows = zip(*(t.features[k].tolist() for k in keys), strict=True)
        return {k: i for i, k in enumerate(rows) if k[0] and k[1]}

    ours, theirs = index(raw), index(table)
    shared = sorted(set(ours) & set(theirs))
    assert len(shared) > 80
    a, b = np.array([ours[k] for k in shared]), np.array([theirs[k] for k in shared])
    for name in set(raw.features) & set(table.features) - {"rate"}:
        np.testing.assert_array_equal(raw.features[name][a], table.features[name][b], err_msg=name)
    np.testing.assert_allclose(raw.features["rate"][a], table.features["rate"][b], atol=1)
    np.testing.assert_array_equal(raw.category[a], table.category[b])
    assert {"Normal"} < set(raw.category)


def test_raw_rows_without_header(folder, raw, tmp_path):
    (content,) = read_contents(folder / "raw_layout" / "hfcatucuamba_3500.csv.xz")
    assert b"0xc0a8" in content.data
    bare = tmp_path / "UNSW-NB15_1.csv"
    bare.write_bytes(content.data.split(b"\n", 1)[1])
    again = DATASET.load(bare)
    for name in raw.features:
        np.testing.assert_array_equal(raw.features[name], again.features[name])
    np.testing.assert_array_equal(raw.category, again.category)


def test_a_raw_file_without_labels_has_the_counts_of_recent_flows(folder, tmp_path):
    raw = folder / "raw_layout" / "hfcatucuamba_3500.csv.xz"
    want = DATASET.load(raw)
    names = [*(f.name for f in WINDOWS), "tap_dur", "sbytes"]
    frame = pd.read_csv(raw).drop(columns=["Label", "attack_cat"], errors="ignore")
    frame.to_csv(tmp_path / "flows.csv", index=False)
    of_file = DATASET.file_features(tmp_path / "flows.csv", names, None)
    assert of_file.meter == want.meter
    for features in (of_file.features, DATASET.read_features(table_sheet(frame), names)):
        assert [*features] == names
        for name in names:
            np.testing.assert_array_equal(features[name], want.features[name])


@pytest.mark.slow
def test_recoded_categories_are_named_by_the_partition(folder, partition):
    recoded = folder / "raw_layout" / "luna866_10000.csv.xz"
    alone = DATASET.load(recoded)
    assert "category 1" in set(alone.category)
    both = DATASET.load([recoded, partition])
    code = dict(zip(alone.category.tolist(), both.category[: len(alone)].tolist(), strict=True))
    known = {"category 1": "Exploits", "category 4": "Generic", "category 6": "Fuzzers"}
    assert {k: code[k] for k in known} == known
    assert code["category 5"] == "category 5"


def test_extract_of_the_train_partition_belongs_to_none(folder):
    report = check(folder / "UNSW_NB15_training-set.first-5000.csv.xz")
    assert report.rows == 5000
    assert report.partitions == {"": 5000}
    assert any("all rows are normal" in p for p in report.problems)


@pytest.mark.slow
def test_shares_of_rows_that_the_catalogue_gives_as_evidence(table):
    column = table.features
    even = (column["spkts"] % 2 == 0) & (column["dpkts"] % 2 == 0)
    pair = (column["spkts"] == 2) & (column["dpkts"] == 0)
    closed = (column["proto"] == 6) & (column["state"] == 5)
    window = np.isin(column["swin"], (0, 255)) & np.isin(column["dwin"], (0, 255))
    for name, share in (
        ("spkts", even.mean()),
        ("spkts", even[column["proto"] != PROTOCOL_NOT_IP].mean()),
        ("dur", pair.mean()),
        ("sloss", (column["sloss"][closed] > 0).mean()),
        ("sloss", (column["dloss"][closed] > 0).mean()),
    ):
        assert f"{100 * share:.1f} %" in table.feature(name).tap_reason, name
    assert f"{100 * window.mean():.2f} %" in table.feature("swin").tap_reason
