# SPDX-License-Identifier: Apache-2.0
"""DoH tunnels are found at their 8th packet while they run."""

import socket

import numpy as np
import pytest

import n3ic
from n3ic.datasets.packet_sequences import DOH_TUNNELS
from n3ic.datasets.packet_sequences.formats import read_sequences
from n3ic.exporters.xdp import libbpf
from n3ic.exporters.xdp.replay import difference, replay, replayable
from n3ic.meter.compiled import ENDS
from tests.support.metering import load
from tests.support.wires import link, wire

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("clang", "kernel", "small_baselines")]
FLOWS, PACKETS = 600, 12  # of each flow, so that packets follow the decision


def packet(number, length):
    """A frame with an IP packet of this signed length; the flow's number is its client's."""
    ends = [bytes([10, 0, number >> 8, number & 255]) + b"\x13\x88", b"\x0a\x09\x09\x09\x01\xbb"]
    source, destination = ends if length > 0 else ends[::-1]
    size = abs(length)
    head = b"\x45\0" + size.to_bytes(2, "big") + bytes(4) + b"\x40\x06\0\0"
    tcp = source[4:] + destination[4:] + bytes(8) + b"\x50\x10" + bytes(6)
    return bytes(12) + b"\x08\0" + head + source[:4] + destination[:4] + tcp + bytes(size - 40)


def frames_in_order(file):
    """Frames of all flows by time, whole."""
    timed_packets = [
        (packet(number, length), time)
        for number in range(FLOWS)
        for length, time in zip(
            file.lengths[number, :PACKETS].tolist(), file.times[number].tolist(), strict=False
        )
        if length
    ]
    return [(f, len(f), time) for f, time in sorted(timed_packets, key=lambda one: one[1])]


def test_tunnels_are_found_at_their_eighth_packet(in_namespace, tmp_path):
    run = n3ic.train("classification", dataset="doh-tunnels", out=tmp_path / "run", seed=3)
    model, table = n3ic.load(run.path), DOH_TUNNELS.load()
    (file,) = read_sequences(DOH_TUNNELS.folder / "doh-tunnels.csv.xz")
    frames = replayable(frames_in_order(file))
    want = n3ic.predict(model, table)

    def check():
        link("n3a", "n3b")
        with load(model, flows=1 << 14) as programs, wire("n3a") as sender:
            libbpf.attach(socket.if_nametoindex("n3b"), programs.program, "native")
            events = replay(programs, frames, sender.send)
            assert difference(model, model.meter, frames, events) == ""
        return events

    events = in_namespace(check)
    assert len(events) == FLOWS
    assert {ENDS[int(why)] for why in events["why"]} == {"packets"}
    assert set(events["packets"].tolist()) == {8}
    number = [int.from_bytes(bytes(a[:4])[2:], "big") for a in events["source"]]
    assert np.array_equal(events["class"], want.classes[number])
    tunnels = table.label[number] != table.classes.index("benign")
    alarms = events["class"] != model.classes.index("benign")
    assert (alarms == tunnels).mean() > 0.95  # most of these flows were trained on: no accuracy
