# SPDX-License-Identifier: Apache-2.0
"""The 512-bit path takes frames as fast as 100 Gb/s brings them at 250 MHz, without a stall."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from n3ic.exporters.netfpga.exporter import EXPORTER
from n3ic.exporters.netfpga.frontend import messages as m
from n3ic.exporters.netfpga.frontend import packets as p
from n3ic.exporters.netfpga.frontend.bench import FrontBench, OfferedFrame
from n3ic.exporters.netfpga.frontend.verify import CARD, HOST
from n3ic.model.random_models import random_model
from scripts.front_end_measurement import measure, wire_clocks
from tests.support.pings import echo

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("verilator") is None, reason="needs Verilator"),
]

QUIET = 2000  # clocks without a beat that end a run; the rows of a datagram take a tenth of them


def test_least_frames_with_a_row_each(tmp_path: Path) -> None:
    """60 bytes, a beat: every clock one, 250 million a second, more than the wire's 149."""
    model = random_model((16, 4, 2), np.random.default_rng(2), extremes=False)
    options = {"front-end": "udp", "style": "unrolled", "answers": "verdict"}
    EXPORTER.write(model, EXPORTER.parse_options(options), tmp_path)
    words = np.random.default_rng(3).integers(0, 1 << 16, size=(400, 1), dtype=np.uint32)
    frames = [
        p.udp(HOST, CARD, m.request(i, 0, m.bit_rows(words[i : i + 1], 16)).to_bytes())
        for i in range(400)
    ]
    assert {len(f) for f in frames} == {60}
    noise = [bytes(60), b"\xff" * 60, p.udp(HOST, p.SocketAddress(CARD.mac, CARD.ip, 9), bytes(18))]
    with FrontBench(tmp_path, quiet=QUIET) as bench:
        seen = bench.run(frames)
        assert sum(t.stalls for t in seen.taken) == 0
        assert seen.taken[-1].last - seen.taken[0].first == len(frames) - 1
        replies = [m.read_message(p.read_ipv4(x.data).payload) for x in seen.left]
        assert [f.number for f in replies] == list(range(400))
        wanted = m.results_body(model, words, full=False)
        assert b"".join(f.body for f in replies) == wanted
        pings = [echo(HOST, CARD, bytes(18), number=i) for i in range(200)]
        mixed = [f for three in zip(pings, noise * 67, frames, strict=False) for f in three]
        seen = bench.run(mixed)
        assert sum(t.stalls for t in seen.taken) == 0
        assert len(seen.left) == 400
        start = seen.clock
        clocks = wire_clocks(mixed, 100, 250)
        seen = bench.run([OfferedFrame(f, start + c) for f, c in zip(mixed, clocks, strict=True)])
        assert sum(t.stalls for t in seen.taken) == 0
        assert len(seen.left) == 400


@pytest.mark.exhaustive
def test_frames_of_four_kibibytes(tmp_path: Path) -> None:
    """With as many executors as rows fit 50 bytes a clock, the goodput is the wire's."""
    model = random_model((256, 4, 2), np.random.default_rng(2), extremes=False)
    options = {"front-end": "udp", "style": "unrolled", "executors": 2, "mtu": 9000}
    EXPORTER.write(model, EXPORTER.parse_options(options), tmp_path)
    with FrontBench(tmp_path, quiet=QUIET) as bench:
        for rate in measure(bench, model, (1, 3, 45, 127, 128)):
            assert rate.stalls == 0
            assert rate.goodput == pytest.approx(rate.limit, rel=0.01)
