# SPDX-License-Identifier: Apache-2.0
"""The generator of captures in the format of UPC-AAU."""

import struct

import numpy as np
import pytest

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


@pytest.mark.slow
@pytest.mark.parametrize("whole", [False, True])
def test_frames_are_sound(tmp_path, whole):
    """Lengths, checksums, and no packet that a meter puts aside."""
    kinds = set()
    write_data(tmp_path / "made", FLOWS, 3, whole=whole)
    with Capture(tmp_path / "made" / CAPTURE) as capture:
        for frame, length, time in capture.packets():
            packet = parse(capture.link, frame, length, time)
            assert not isinstance(packet, str)
            assert len(frame) == (length if whole else min(length, 96))
            sent = frame + bytes(length - len(frame))
            six = len(packet.source) == 16
            assert six or checksum(sent[14:34]) == 0xFFFF
            ip = sent[14 : 14 + packet.ip_length]
            transport = ip[40 if six else 20 :]
            pseudo = packet.source + packet.destination
            pseudo += struct.pack(">HH", packet.protocol, len(transport))
            assert checksum(pseudo + transport) == 0xFFFF
            assert len(sent) == 14 + len(ip) or len(sent) == 60
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


@pytest.fixture(scope="module")
def generated():
    return generate(6000, 1)


def test_hundred_thousand_packets_of_every_class(generated):
    _, packets, labels = generated
    assert len(packets.time) > 100_000
    assert (np.diff(packets.time) >= 0).all()
    assert {*labels} == {*CLASSES, OTHER, ""}


MIB = 1 << 20
# Mean bytes of the IP packets of a flow, by the beginning of a class's name: the table that the
# module of behaviours cites. Its NTP flows have two packets of 76 bytes on average if a megabyte is
# 2^20 bytes of IP packets, which is therefore assumed.
PUBLISHED_BYTES = {
    "bittorrent": 2621.37 * MIB / 62_845,
    "emule": 2823.88 * MIB / 176_581,
    "rdp": 13218.47 * MIB / 132_907,
    "web-browser": 5757.32 * MIB / 46_669,
    "dns": 1.74 * MIB / 6_600,
    "ntp": 4.03 * MIB / 27_786,
    "ssh": 91.80 * MIB / 26_219,
}


@pytest.mark.parametrize("application", PUBLISHED_BYTES)
def test_flows_have_as_many_bytes_as_published(generated, application):
    flows, packets, labels = generated
    headers = np.where(flows.udp, 28, 40)[packets.flow] + 20 * flows.version_6[packets.flow]
    size = np.bincount(packets.flow, packets.payload + headers, len(labels))
    own = [label.startswith(application) for label in labels]
    assert size[own].mean() == pytest.approx(PUBLISHED_BYTES[application], rel=0.2)


@pytest.mark.parametrize(
    ("label", "udp", "sizes"),
    [
        ("bittorrent-all-encrypted", False, [(96, 608), (96, 608), (124, 636), (82, 594)]),
        ("bittorrent-outgoing-non-encrypted", False, [(68, 68), (68, 68), (17, 17), (1448, 1448)]),
        ("bittorrent-outgoing-non-encrypted", True, [(95, 95), (47, 400)]),
        ("emule-outgoing-non-obfuscated", True, [(35, 35)]),
        ("rdp", False, [(19, 80), (19, 19), (416, 416), (337, 337)]),
        ("ntp", True, [(48, 48)] * 2),
        ("ssh", False, [(9, 255)] * 2),
    ],
)
def test_flows_begin_as_their_protocols_are_specified(generated, label, udp, sizes):
    flows, packets, labels = generated
    of = np.array(labels)[packets.flow] == label
    rows = np.flatnonzero(of & (packets.payload > 0) & (flows.udp[packets.flow] == udp))
    rows = rows[np.argsort(packets.flow[rows], kind="stable")]
    seen = 0
    for own in np.split(rows, np.flatnonzero(np.diff(packets.flow[rows])) + 1):
        # Segments that are sent again, and requests that nobody answers, are left out.
        _, once = np.unique(packets.sequence[own], return_index=True)
        own = own if udp else own[np.sort(once)]
        ways = packets.outbound[own]
        if len(own) < len(sizes) or (len(sizes) > 1 and (ways[1:2] == ways[:1]).all()):
            continue
        payloads = packets.payload[own][: len(sizes)]
        assert all(low <= n <= high for n, (low, high) in zip(payloads, sizes, strict=True)), (
            payloads
        )
        seen += 1
    assert seen > 20


def test_one_flow_is_enough_to_make_a_capture(tmp_path):
    for seed in range(30):
        write_data(tmp_path / str(seed), 1, seed)
        assert (tmp_path / str(seed) / CAPTURE).stat().st_size > 24
