"""The benchmark runs, is exact before it is timed, and says what it measured."""

import itertools

import numpy as np
import pytest

from n3ic.errors import VerifyError
from n3ic.exporters.xdp import bench
from n3ic.exporters.xdp.network import kernel as kernel_network
from n3ic.meter.packet import LINK_ETHERNET, Packet, parse
from n3ic.model.random_models import random_model

pytestmark = pytest.mark.usefixtures("kernel", "compile_bpf")


def test_every_network_is_checked_and_timed():
    model = random_model((40, 8, 2), np.random.default_rng(0))
    found = bench.bench_xdp(model, rounds=3, repeat=1000)
    assert found.timings[0].name == "bits"
    assert [t.aim for t in found.timings] == [None, 75.0, 65.0, None]
    assert all(t.verified < 100_000 and t.value_bytes < 32 << 10 for t in found.timings[1:])
    shown = bench.render(found)
    (title, columns, rows), *_ = shown.tables
    assert "measured" in title and all(len(row) == len(columns) for row in rows)
    assert shown.data["timings"][1]["shape"] == "256-32-16-2"
    ways = [(m.decides, m.clock, m.locked) for m in found.meters]
    assert ways == list(itertools.product((False, True), ("kernel", "coarse"), (True, False)))


def test_the_packet_that_is_metered_is_of_a_flow():
    frame = bench._OF_A_FLOW
    assert isinstance(parse(LINK_ETHERNET, frame, len(frame), 0), Packet)


def test_a_program_that_is_wrong_is_not_timed(monkeypatch):
    def damaged(structure, model):
        value = bytearray(value_bytes(structure, model))
        value[-4000:] = bytes(4000)
        return bytes(value)

    value_bytes = bench.value_bytes
    monkeypatch.setattr(bench, "value_bytes", damaged)
    monkeypatch.setattr(kernel_network.KernelNetwork, "differences", None)
    with pytest.raises(VerifyError, match="does not give"):
        bench.bench_xdp(random_model((256, 8, 2), np.random.default_rng(0)), rounds=1, repeat=1)
