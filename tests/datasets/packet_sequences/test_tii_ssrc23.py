# SPDX-License-Identifier: Apache-2.0
"""Flows of TII-SSRC-23 as packet sequences, where they are: read, learned, and told apart."""

import numpy as np
import pytest

from n3ic.data.dataset import data_set_of
from n3ic.datasets.packet_sequences import DATASET
from n3ic.runs.experiment import train
from n3ic.runs.preparation import Experiment
from n3ic.usecases.base import use_case


@pytest.fixture(scope="module")
def file(real_data):
    path = real_data / "tii_ssrc23" / "flows.csv.xz"
    if not path.is_file():
        pytest.skip(f"no {path}")
    return path


def test_the_flows_are_read(file):
    assert data_set_of(file).name == "packet-sequences"
    table = DATASET.load(file)
    assert dict(zip(table.classes, np.bincount(table.label).tolist(), strict=True)) == {
        "audio": 120,
        "bruteforce_http": 80,
        "bruteforce_telnet": 80,
        "mirai": 80,
        "video": 120,
    }
    assert table.features["len_1"][0] == 2048 + 52
    assert table.features["len_2"][0] == 2048 - 171


@pytest.mark.slow
@pytest.mark.parametrize("family", ["binary", "tables"])
def test_a_network_tells_held_out_flows_apart(file, family):
    small = {"family": family, "bits": 64, "hidden": (16,), "epochs": 10}
    recipe = use_case("classification").recipes["default"].with_options(small)
    table = DATASET.load(file)
    result = train(Experiment(table, recipe, with_baselines=False))
    assert result.model.meter == table.meter
    majority = 120 / 480
    assert result.test.accuracy > majority + 0.35
