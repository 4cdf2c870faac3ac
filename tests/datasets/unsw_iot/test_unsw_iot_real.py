# SPDX-License-Identifier: Apache-2.0
"""The UNSW IoT table, where it is."""

import numpy as np
import pytest

from n3ic.data.delimited import open_sheet
from n3ic.data.files import read_contents
from n3ic.datasets.unsw_iot import DATASET
from n3ic.errors import UsageError


@pytest.fixture(scope="module")
def file(real_data):
    path = real_data / "unsw_iot" / "unsw-iot-workload1.csv"
    if not path.is_file():
        pytest.skip(f"no {path}")
    return path


def test_unsw_iot_is_not_embedded():
    with pytest.raises(UsageError, match="unsw-iot has no embedded sample"):
        DATASET.load()


def test_devices_and_integers(file):
    table = DATASET.load(file)
    assert len(table) == 6000
    assert dict(zip(table.classes, np.bincount(table.label).tolist(), strict=True)) == {
        "amazon echo": 722,
        "dropcam": 672,
        "insteon camera": 704,
        "samsung smartcam": 2500,
        "smart things": 696,
        "withings smart baby monitor": 706,
    }
    assert table.conversation is None
    assert table.features["dur"][0] == 2645091
    assert table.features["sintpkt"][0] == 1219240
    assert not {"proto", "sttl", "dttl"} & {*table.usable}
    assert DATASET.recognises(file)
    assert DATASET.recognises(file.parent)


def test_the_label_numbers_the_devices_and_the_generated_one_is_noise(file):
    (content,) = read_contents(file)
    sheet = open_sheet(content)
    at = [sheet.first.index(n) for n in ("DeviceName", "label", "generated_label")]
    rows = [tuple(row[i] for i in at) for _, row in sheet.rows(True)]
    assert len({(device, label) for device, label, _ in rows}) == 6
    agree = np.mean([label == generated for _, label, generated in rows])
    assert agree <= 0.2
    assert "`label` in a fifth of the rows at most" in DATASET.card
