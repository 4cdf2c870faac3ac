# SPDX-License-Identifier: Apache-2.0
"""CIC-IDS2017: the embedded sample, and the figures of its card."""

import numpy as np
import pytest

from n3ic.data.dataset import data_set_of
from n3ic.data.delimited import open_sheet
from n3ic.data.files import read_contents
from n3ic.datasets.cic_ids2017 import DATASET


@pytest.fixture(scope="module")
def table():
    return DATASET.load()


def test_the_sample_is_the_published_one(table):
    assert len(table) == 9000
    assert table.classes[0] == "BENIGN"
    assert np.bincount(table.label).tolist() == [4500] + [500] * 9
    assert table.sources[0].identity.endswith("byte for byte")
    assert len(np.unique(table.conversation)) == 8660
    assert data_set_of(DATASET.embedded) is DATASET


def test_the_card_says_what_was_changed():
    report = DATASET.check(DATASET.embedded)
    card = " ".join(DATASET.card.split())
    assert report["problems"] == [
        "flow_bytes_s blank or infinite, set to the largest value: 3 of 9,000 rows",
        "flow_packets_s blank or infinite, set to the largest value: 3 of 9,000 rows",
        "flow_iat_min negative, set to 0: 2 of 9,000 rows",
        "fwd_iat_min negative, set to 0: 1 of 9,000 rows",
        "init_win_bytes_forward negative, set to 0: 2,044 of 9,000 rows",
        "init_win_bytes_backward negative, set to 0: 3,574 of 9,000 rows",
    ]
    assert "2,044 rows forward and 3,574 backward" in card
    assert "{{" not in card


def test_left_out_columns_are_zero_or_repeat_another():
    (content,) = read_contents(DATASET.embedded)
    sheet = open_sheet(content)
    rows = list(sheet.rows(True))
    column = {n: np.array([float(r[i]) for _, r in rows]) for i, n in enumerate(sheet.first)
              if n not in ("flow id", "source ip", "destination ip", "timestamp", "attack_cat",
                           "flow bytes/s")}  # fmt: skip
    for name in ("fwd avg bytes/bulk", "bwd avg packets/bulk", "bwd avg bulk rate"):
        assert not column[name].any()
    for one, other in (
        ("fwd header length.1", "fwd header length"),
        ("subflow fwd packets", "total fwd packets"),
        ("subflow bwd packets", "total backward packets"),
        ("subflow fwd bytes", "total length of fwd packets"),
        ("avg fwd segment size", "fwd packet length mean"),
        ("avg bwd segment size", "bwd packet length mean"),
    ):
        np.testing.assert_allclose(column[one], column[other], rtol=1e-6)


def test_values_fit_their_bits(table):
    for f in table.catalogue:
        if f.bits in (8, 16) and f.unit != "port":
            assert table.features[f.name].max() < (1 << f.bits) - 1 or "window" in f.meaning, f.name
