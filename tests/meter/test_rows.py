# SPDX-License-Identifier: Apache-2.0
"""Keys of flows as text."""

from ipaddress import ip_address

import numpy as np
import pytest

from n3ic.meter.compiled import record_type
from n3ic.meter.rows import key_table
from n3ic.meter.standard import standard_spec

SPEC = standard_spec()


@pytest.mark.parametrize("short", [0, 0.5, 1])
def test_addresses_are_written_as_python_does(short):
    """Also those that repeat, and IPv6 addresses with runs of zeros."""
    rng = np.random.default_rng(0)
    records = np.zeros(600, dtype=record_type(SPEC))
    size = np.where(rng.random(600) < short, 4, 16)
    records["address_bytes"] = size
    for side in ("source", "destination"):
        packed = rng.integers(0, 256, (600, 16), dtype=np.uint8)
        packed[::3, 2:14] = 0
        packed[1::3] = packed[1]
        packed[size == 4, 4:] = 0
        records[side] = packed
    table = key_table(records, SPEC, "c.pcap")
    for side in ("source", "destination"):
        want = [str(ip_address(r[side][: r["address_bytes"]].tobytes())) for r in records]
        assert table[side].to_pylist() == want
    assert table["capture"].to_pylist() == ["c.pcap"] * 600
