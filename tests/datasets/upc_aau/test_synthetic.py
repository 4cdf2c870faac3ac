# SPDX-License-Identifier: Apache-2.0
"""The generator of captures in the format of UPC-AAU."""

import struct

import numpy as np

from n3ic.datasets.upc_aau.classes import CLASSES
from n3ic.datasets.upc_aau.frames import Packets
from n3ic.datasets.upc_aau.synthetic import CAPTURE, INFO, OTHER, generate, write_data
from n3ic.meter.capture import Capture
from n3ic.meter.packet import ACK, FIN, RST, SYN, parse

FLOWS = 400


def test_the_same_seed_gives_the_same_bytes(tmp_path, monkeypatch):
    made = write_data(tmp_path / "made", FLOWS, 3)
    monkeypatch.setattr("n3ic.datasets.upc_aau.frames._CHUNK", 100)
    again = write_data(tmp_path / "again", FLOWS, 3)
    other = write_data(tmp_path / "other", FLOWS, 4)
    for name in (CAPTURE, INFO):
        assert (again / name).read_bytes() == (made / name).read_bytes()
        assert (other / name).read_bytes() != (made / name).read_bytes()
    assert "Nothing here was captured" in (made / "README.md").read_text()


def checksum(data):
    data += bytes(len(data) % 2)
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def test_frames_are_sound(tmp_path):
    """Lengths, checksums, and no packet that a meter puts aside."""
    kinds = set()
    write_data(tmp_path / "made", FLOWS, 3)
    with Capture(tmp_path / "made" / CAPTURE) as capture:
        for frame, length, time in capture.packets():
            packet = parse(capture.link, frame, length, time)
            assert not isinstance(packet, str)
            whole = frame + bytes(length - len(frame))
            six = len(packet.source) == 16
            assert six or checksum(whole[14:34]) == 0xFFFF
            ip = whole[14 : 14 + packet.ip_length]
            transport = ip[40 if six else 20 :]
            pseudo = packet.source + packet.destination
            pseudo += struct.pack(">HH", packet.protocol, len(transport))
            assert checksum(pseudo + transport) == 0xFFFF
            assert len(whole) == 14 + len(ip) or len(whole) == 60
            kinds.add((six, packet.protocol))
    assert len(kinds) == 4


def test_tcp_flows_have_handshakes_sequence_numbers_and_retransmissions():
    flows, packets, _ = generate(FLOWS, 3)
    repeated = ends = 0
    for flow in np.flatnonzero(~flows.udp):
        own = packets.flow == flow
        p = Packets(*(column[own] for column in vars(packets).values()))
        assert (np.diff(p.time) >= 0).all()
        assert p.flags[0] == SYN
        assert p.outbound[0] != flows.inbound[flow]
        if not (p.outbound != p.outbound[0]).any():  # nobody answers
            assert p.flags.tolist() == [SYN] * 3
            continue
        answer = np.flatnonzero(p.outbound != p.outbound[0])[0]
        assert p.flags[answer] == SYN | ACK
        assert p.acknowledged[answer] == (p.sequence[0] + 1) % 2**32
        for way in (False, True):
            sent = p.outbound == way
            carries = sent & (p.payload > 0)
            first = p.sequence[sent & ((p.flags & SYN) != 0)][0]
            offset = (p.sequence[carries] - first - 1) % 2**32
            repeated += len(offset) - len(np.unique(offset))
            pieces = dict(zip(offset.tolist(), p.payload[carries].tolist(), strict=True))
            at = 0
            while at in pieces:
                at += pieces[at]
            assert at == sum(pieces.values())  # no hole, no overlap
        ends += bool((p.flags & (FIN | RST)).any())
    assert repeated > 5
    assert ends > 50
    assert 0.02 < flows.version_6.mean() < 0.2


def test_hundred_thousand_packets_of_every_class():
    _, packets, labels = generate(6000, 1)
    assert len(packets.time) > 100_000
    assert (np.diff(packets.time) >= 0).all()
    assert {*labels} == {*CLASSES, OTHER, ""}


def test_one_flow_is_enough_to_make_a_capture(tmp_path):
    for seed in range(30):
        write_data(tmp_path / str(seed), 1, seed)
        assert (tmp_path / str(seed) / CAPTURE).stat().st_size > 24
