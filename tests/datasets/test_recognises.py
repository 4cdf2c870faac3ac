# SPDX-License-Identifier: Apache-2.0
"""The data set of a file is found by what the file holds."""

import lzma
import shutil
from importlib.resources import files

import pytest

from n3ic.data.dataset import data_set_of
from n3ic.datasets.ns3_tomography import BUNDLED
from n3ic.datasets.unsw_nb15.synthetic import write_csv
from n3ic.errors import UsageError


@pytest.mark.first_case
@pytest.mark.parametrize("name", ["mine.tomo.xz", "mine", "mine.csv"])
def test_a_trace_is_one_under_any_name(tmp_path, name):
    shutil.copy(str(files("n3ic.datasets.ns3_tomography") / BUNDLED), tmp_path / name)
    assert data_set_of(tmp_path / name).name == "ns3-tomography"


@pytest.mark.parametrize("name", ["mine.csv", "mine"])
@pytest.mark.parametrize("pack", [bytes, lzma.compress])
def test_flows_are_known_by_their_columns(tmp_path, name, pack):
    text = write_csv(tmp_path / "f.csv", 20, 1).read_bytes()
    damaged = text.replace(b"dur", b"duration", 1).replace(b",tcp,", b",=,")
    (tmp_path / name).write_bytes(pack(damaged))
    assert data_set_of(tmp_path / name).name == "unsw-nb15"


@pytest.mark.parametrize(
    "data", [b"", b"pkts,dur\n1,2\n", b"\0" * 99, b"\xfd7zXZ\0junk", b"PK\x03\x04"]
)
def test_a_file_that_no_data_set_recognises_is_an_error(tmp_path, data):
    (tmp_path / "other.csv").write_bytes(data)
    for path in (tmp_path / "other.csv", tmp_path, tmp_path / "absent"):
        with pytest.raises(UsageError, match="no data set knows it; name one with --dataset"):
            data_set_of(path)
