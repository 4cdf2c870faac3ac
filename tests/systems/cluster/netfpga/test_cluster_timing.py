"""The clocks of a node on the NetFPGA, which the plan and the cycle simulator read."""

import os
import shutil
import signal
import tomllib
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from card_rig import frame
from lone_card import Alone, bits

from n3ic.systems.cluster import netfpga

needs_verilator = pytest.mark.skipif(
    shutil.which("verilator") is None or shutil.which("g++") is None,
    reason="needs Verilator and g++",
)
TASK = 132  # bytes of a frame with a packet


def clocks():
    return tomllib.loads((Path(netfpga.__file__).parent / "node.toml").read_text())["clocks"]


def events(path: Path):
    """Lines of the log: what, clock, bytes of what left."""
    for line in path.read_text().splitlines():
        kind, clock, *size = line.split()
        yield kind, int(clock), int(size[0]) if size else 0


@pytest.mark.slow
@needs_verilator
def test_the_clocks_of_the_file_are_those_of_the_verilog(tmp_path):
    card = Alone(tmp_path)
    card.begin()
    first, second, last = bits(0)
    for packet in (first, second):
        card.tell(packet)
        for _ in range(2):
            card.packet()
    other = replace(first, array=1)
    card.tell(other)
    card.packet()
    os.kill(card.rig.process.pid, signal.SIGSTOP)  # so that what follows comes back to back
    for _ in range(40):
        card.rig.send(frame(card.raw(other)))
        card.sequence += 1
    os.kill(card.rig.process.pid, signal.SIGCONT)
    for _ in range(40):
        card.packet()
    card.inbox[1].clear()
    card.rig.send(frame(card.raw(last)))
    for _ in range(2 + 2):  # to both sides, and 480 bits in two packets
        card.packet()
    card.rig.stop()

    seen = list(events(card.rig.log))
    stored = [i for i, (kind, _, _) in enumerate(seen) if kind == "s"]
    want = clocks()
    came = [clock for kind, clock, _ in seen if kind == "i"]
    for at in stored:
        assert seen[at][1] - seen[at - 1][1] == want["classify"]
    passed = next(
        i for i in range(stored[1], len(seen)) if seen[i][2] == TASK and i > stored[1] + 3
    )
    before = [clock for kind, clock, _ in seen[:passed] if kind == "i"]
    assert seen[passed][1] - before[-1] == want["forward"]
    gaps = [b - a for a, b in pairwise(came)]
    assert gaps.count(want["packet"]) >= 15  # the window is full then
    results = [clock for _, clock, size in seen[stored[2] :] if size == TASK]
    complete = seen[stored[2]][1]
    # 384 neurons of two slices fill a packet; the second one holds three words of twelve.
    assert results[2] - complete == 384 * 2 + want["compute"] + want["result"]
    assert results[3] - complete == 480 * 2 + want["compute"] + want["result"] + 9
