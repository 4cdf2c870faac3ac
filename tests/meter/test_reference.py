# SPDX-License-Identifier: Apache-2.0
"""The reference meter on packets whose flows are worked out by hand."""

import struct
from dataclasses import replace

import pytest

from n3ic.meter import reference
from n3ic.meter.packet import ACK, FIN, LINK_ETHERNET, RST, SYN, TCP, UDP, Packet, parse
from n3ic.meter.reference import FlowKey, ReferenceMeter, _passes
from n3ic.meter.standard import standard_spec
from n3ic.model.meter_spec import (
    Decision,
    Guard,
    MeteredFeature,
    MeterSpec,
    Register,
    Step,
    Window,
)

HOUR = 3600 * 10**6
YEAR = 8766 * HOUR
A, B, C = bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2]), bytes([10, 0, 0, 3])


def packet(time, source=A, destination=B, sport=1000, dport=80, **more):
    values = {
        "protocol": TCP, "wire_length": 60, "ip_length": 46, "payload_length": 6, "ttl": 64,
        "tcp_flags": ACK, "tcp_window": 100,
    }  # fmt: skip
    return Packet(
        time, source, destination, source_port=sport, destination_port=dport, **values | more
    )


def back(time, **more):
    return packet(time, B, A, 80, 1000, **more)


def spec(*registers, features=None, **more):
    features = features or tuple(MeteredFeature(r.name, r.name) for r in registers)
    return MeterSpec(registers=registers, features=features, **more)


def run(of, packets):
    meter = ReferenceMeter(of)
    return list(meter.run(packets)), meter


def test_a_guard_passes_what_it_names():
    forward = Guard("forward", protocols=(TCP,), payload="some", flags_set=SYN, flags_clear=RST)
    sent = packet(0, tcp_flags=SYN | ACK)
    assert _passes(forward, sent, True) is True
    assert _passes(forward, sent, False) is False
    assert _passes(forward, replace(sent, protocol=UDP), True) is False
    assert _passes(forward, replace(sent, payload_length=0), True) is False
    for flags in (ACK, SYN | RST, 0):
        assert _passes(forward, replace(sent, tcp_flags=flags), True) is False


def test_every_update_of_every_direction():
    forward, reverse = Guard("forward"), Guard("reverse")
    registers = (
        Register("n", "count"),
        Register("fn", "count", guard=forward),
        Register("rb", "sum", "wire_length", reverse),
        Register("small", "min", "payload_length", width=16),
        Register("large", "max", "payload_length"),
        Register("ttl0", "first", "ttl", reverse, 8),
        Register("ttl9", "last", "ttl", reverse, 8),
        Register("flags", "or", "tcp_flags", width=8),
        Register("span", "last", "time"),
        Register("gaps", "sum", "gap", forward),
        Register("gap0", "first", "gap", forward),
        Register("gapmin", "min", "gap", forward),
        Register("never", "min", "ttl", Guard(protocols=(UDP,)), 8),
    )
    (record,), _ = run(
        spec(*registers),
        [
            packet(100, payload_length=0, tcp_flags=SYN),
            back(130, ttl=50, payload_length=0, tcp_flags=SYN | ACK, wire_length=66),
            packet(150, payload_length=0),
            packet(150, payload_length=900),
            back(190, ttl=49, payload_length=20, wire_length=80),
            packet(250, payload_length=7),
        ],
    )
    assert record.features == {
        "n": 6, "fn": 4, "rb": 146, "small": 0, "large": 900, "ttl0": 50, "ttl9": 49,
        "flags": SYN | ACK, "span": 150, "gaps": 150, "gap0": 50, "gapmin": 0, "never": 255,
    }  # fmt: skip
    assert (record.first, record.last, record.packets, record.decided) == (100, 250, 6, "capture")


def test_registers_saturate_and_features_are_clamped():
    registers = (
        Register("n", "count", width=2),
        Register("bytes", "sum", "wire_length", width=8),
        Register("long", "sum", "gap", width=48),
    )
    features = (
        MeteredFeature("n", "n"),
        MeteredFeature("bytes", "bytes"),
        MeteredFeature("long", "long"),
    )
    packets = [packet(i * 2**30) for i in range(9)]
    (record,), _ = run(spec(*registers, features=features, idle_timeout=2**40), packets)
    assert record.registers == (3, 255, 2**33)
    assert record.features == {"n": 3, "bytes": 255, "long": 2**32 - 1}


def test_programs_without_division():
    registers = (
        Register("a", "sum", "wire_length"),
        Register("n", "count"),
        Register("z", "count", guard=Guard(protocols=(1,))),
    )
    features = (
        MeteredFeature("mean", program=(Step("quotient", "a", "n", 10),)),
        MeteredFeature("none", program=(Step("quotient", "a", "z", 10),)),
        MeteredFeature("less", program=(Step("sub", "n", "a"),)),
        MeteredFeature("half", program=(Step("add", "a", "n"), Step("shift", "$0", amount=1))),
        MeteredFeature("low", program=(Step("min", "a", "n"), Step("max", "$0", "z"))),
    )
    packets = [packet(0, wire_length=60), packet(1, wire_length=61), packet(2, wire_length=61)]
    (record,), _ = run(spec(*registers, features=features), packets)
    assert record.features == {"mean": 606, "none": 0, "less": 0, "half": 92, "low": 3}


N = (Register("n", "count"),)


def ends(records):
    return [(r.number, r.packets, r.decided) for r in records]


def test_the_idle_timeout_is_longer_than_and_ends_the_longest_idle_first():
    packets = [packet(0), packet(5, sport=2), packet(10), packet(20), packet(31), packet(31, C)]
    records, _ = run(spec(*N, idle_timeout=10, ends=()), packets)
    assert ends(records) == [
        (1, 1, "idle"),
        (0, 3, "idle"),
        (2, 1, "capture"),
        (3, 1, "capture"),
    ]


def test_the_active_timeout_begins_a_new_flow():
    records, _ = run(spec(*N, active_timeout=10), [packet(t) for t in (0, 9, 10, 19, 20)])
    assert ends(records) == [(0, 2, "active"), (1, 2, "active"), (2, 1, "capture")]


def test_fin_of_both_sides_ends_and_what_follows_is_late_until_a_syn():
    packets = [
        packet(0, tcp_flags=SYN), back(1, tcp_flags=SYN | ACK), packet(2),
        packet(3, tcp_flags=FIN | ACK), back(4), back(5, tcp_flags=FIN | ACK),
        packet(6), packet(7, tcp_flags=SYN), packet(8, tcp_flags=RST), packet(9),
    ]  # fmt: skip
    records, meter = run(spec(*N), packets)
    assert ends(records) == [(0, 6, "fin"), (1, 2, "rst")]
    assert meter.late == 2
    records, _ = run(spec(*N, ends=()), packets)
    assert ends(records) == [(0, 10, "capture")]


def test_a_flow_is_decided_once_or_again_and_again():
    packets = [packet(t) for t in range(7)]
    once, _ = run(spec(*N, decision=Decision(packets=3)), packets)
    assert ends(once) == [(0, 3, "packets")]
    again, _ = run(spec(*N, decision=Decision(packets=3, repeat=True)), packets)
    assert ends(again) == [(0, 3, "packets"), (0, 6, "packets"), (0, 7, "capture")]
    timed, _ = run(spec(*N, decision=Decision(after=4, packets=6)), packets)
    assert ends(timed) == [(0, 5, "after")]


@pytest.mark.parametrize(
    ("schedule", "after", "expected"),
    [
        ((3, 5), 0, [(3, "packets"), (5, "packets"), (7, "capture")]),
        ((1,), 0, [(1, "packets"), (7, "capture")]),
        ((7, 9), 0, [(7, "packets"), (7, "capture")]),
        ((9,), 0, [(7, "capture")]),
        # the time comes first, and takes the place of packet 3 alone
        ((3, 5), 1, [(2, "after"), (5, "packets"), (7, "capture")]),
        ((3, 5), 2, [(3, "packets"), (5, "packets"), (7, "capture")]),
        ((9, 10), 4, [(5, "after"), (7, "capture")]),
        ((1, 2), 4, [(1, "packets"), (2, "packets"), (7, "capture")]),
    ],
)
def test_a_schedule_decides_at_each_of_its_packets_and_at_the_end(schedule, after, expected):
    decision = Decision(after=after, schedule=schedule)
    records, _ = run(spec(*N, decision=decision), [packet(t) for t in range(7)])
    assert [(r.packets, r.decided) for r in records] == expected


def test_a_flow_that_ends_at_a_point_is_decided_there_once():
    packets = [packet(0), packet(1), packet(2, tcp_flags=RST), packet(3)]
    records, _ = run(spec(*N, decision=Decision(schedule=(2, 3, 4))), packets)
    assert ends(records) == [(0, 2, "packets"), (0, 3, "rst")]


@pytest.mark.parametrize(
    ("when_full", "expected", "evicted", "aside"),
    [
        ("evict-oldest", [(0, 1, "evicted"), (1, 2, "capture"), (2, 1, "capture")], 1, 0),
        ("drop-new", [(0, 1, "capture"), (1, 2, "capture")], 0, 1),
    ],
)
def test_a_full_cache(when_full, expected, evicted, aside):
    packets = [packet(0), packet(1, sport=2), packet(2, sport=2), packet(3, sport=3)]
    records, meter = run(spec(*N, cache_flows=2, when_full=when_full), packets)
    assert ends(records) == expected
    assert meter.evicted == evicted
    assert meter.aside["flow cache full"] == aside


def test_windows_count_decided_flows_with_the_same_parts_and_forget():
    windows = (Window("src", 3, ("source",)), Window("pair", 3, ("source", "destination")))
    sources = [A, A, C, A, A, C]
    packets = [packet(t, source, sport=t + 1) for t, source in enumerate(sources)]
    records, _ = run(spec(*N, windows=windows, decision=Decision(packets=1)), packets)
    assert [r.features["src"] for r in records] == [1, 2, 1, 2, 2, 1]


@pytest.mark.parametrize(
    ("packets", "times"),
    [
        # synack, ackdat, tcprtt of what was seen of a handshake, and of what follows it
        ([(0, SYN), (-30, SYN | ACK), (37, ACK), (90, ACK)], (30, 7, 37)),
        ([(0, SYN), (1000, SYN), (-1030, SYN | ACK), (1037, ACK)], (30, 7, 37)),  # SYN again
        ([(0, SYN), (-30, SYN | ACK), (-40, SYN | ACK), (50, ACK)], (30, 20, 50)),
        ([(0, SYN), (-30, SYN | ACK)], (30, 0, 30)),
        ([(0, SYN), (-30, SYN | ACK), (35, ACK | FIN)], (30, 0, 30)),
        ([(0, SYN), (37, ACK), (90, ACK)], (0, 0, 0)),  # one direction is seen
        ([(0, SYN), (1000, SYN)], (0, 0, 0)),
        ([(0, FIN), (37, ACK)], (0, 0, 0)),  # joined in the middle
        ([(0, ACK), (-30, ACK), (37, ACK)], (0, 0, 0)),
        ([(0, SYN | ACK), (-30, ACK), (37, ACK)], (0, 0, 0)),  # its first packet was missed
        ([(0, FIN), (-30, SYN | ACK), (37, ACK)], (0, 7, 7)),
    ],
)
def test_the_standard_meter_times_what_it_saw_of_a_handshake(packets, times):
    seen = [(back if time < 0 else packet)(abs(time), tcp_flags=flags) for time, flags in packets]
    (record,), _ = run(standard_spec(), seen)
    assert tuple(record.features[name] for name in ("synack", "ackdat", "tcprtt")) == times


def test_the_clock_does_not_run_backwards():
    (record,), _ = run(spec(Register("span", "last", "time")), [packet(50), packet(20), packet(60)])
    assert record.features == {"span": 10}


def test_time_stamps_that_go_back_or_jump_are_counted():
    times = (50, 20, 49, 50, HOUR + 50, 2 * HOUR + 51, 60, 70, 2 * HOUR + 51)
    meter = ReferenceMeter(spec(*N))
    list(meter.run(packet(time) for time in times))
    assert (meter.clock.back, meter.clock.ahead, meter.clock.steps) == (4, 2, 0)


@pytest.mark.parametrize(
    ("times", "counted", "counts"),
    [  # times of packets, the flows they make (first, last, packets), back, ahead, steps
        # one wrong stamp gets the time of the clock, wherever it stands
        ((YEAR, YEAR + 9, 2 * YEAR, YEAR + 20), [(YEAR, YEAR + 20, 4)], (0, 1, 0)),
        ((YEAR, YEAR + 9, 0, YEAR + 20), [(YEAR, YEAR + 20, 4)], (1, 0, 0)),
        ((YEAR, 2 * YEAR, 0, YEAR + 20), [(YEAR, YEAR + 20, 4)], (1, 1, 0)),
        ((2 * YEAR, YEAR, YEAR + 9), [(2 * YEAR, 2 * YEAR, 1), (YEAR, YEAR + 9, 2)], (0, 0, 1)),
        ((0, YEAR, YEAR + 9), [(0, 0, 1), (YEAR, YEAR + 9, 2)], (0, 0, 0)),
        # two that agree are believed, and so is what comes back
        (
            (YEAR, 2 * YEAR, 2 * YEAR + 5, YEAR + 9, YEAR + 10),
            [(YEAR, YEAR, 1), (2 * YEAR, 2 * YEAR + 5, 2), (YEAR + 9, YEAR + 10, 2)],
            (0, 0, 1),
        ),
        # a pause is a pause: at its end nothing is lost, and small steps back stay small
        ((5, HOUR + 6, HOUR + 3), [(5, 5, 1), (HOUR + 6, HOUR + 6, 2)], (1, 0, 0)),
        ((5, HOUR + 5, 1), [(5, 5, 1), (HOUR + 5, HOUR + 5, 2)], (1, 0, 0)),
        # of the last packet nobody can tell
        ((5, HOUR + 6), [(5, 5, 1), (HOUR + 6, HOUR + 6, 1)], (0, 1, 0)),
        ((YEAR, 5), [(YEAR, YEAR, 2)], (1, 0, 0)),
    ],
)
def test_the_clock_follows_stamps_as_far_as_they_agree(times, counted, counts):
    records, meter = run(spec(*N), [packet(time) for time in times])
    assert [(r.first, r.last, r.packets) for r in records] == counted
    assert (meter.clock.back, meter.clock.ahead, meter.clock.steps) == counts


def test_keys_of_hosts():
    pair, _ = run(spec(*N, key="host-pair", ends=()), [packet(0), back(1), packet(2, sport=9)])
    assert [record.key for record in pair] == [FlowKey(A, B)]
    assert ends(pair) == [(0, 3, "capture")]
    source, _ = run(spec(*N, key="source-host", ends=()), [packet(0), back(1), packet(2, sport=9)])
    assert [record.key for record in source] == [FlowKey(B), FlowKey(A)]
    assert ends(source) == [(1, 1, "capture"), (0, 2, "capture")]


# --- frames ----------------------------------------------------------------------------------


def ipv4(payload, protocol=UDP, fragment=0, identification=7, source=A, destination=B):
    return (
        struct.pack(
            ">BBHHHBBH", 0x45, 0, 20 + len(payload), identification, fragment, 64, protocol, 0
        )
        + source + destination + payload
    )  # fmt: skip


def udp(sport=53, dport=1000, data=b"12345"):
    return struct.pack(">HHHH", sport, dport, 8 + len(data), 0) + data


def frame(packet_bytes, kind=0x0800, tags=b""):
    return bytes(12) + tags + struct.pack(">H", kind) + packet_bytes


def test_frames_with_and_without_tags():
    plain = parse(LINK_ETHERNET, frame(ipv4(udp())), 60, 5)
    assert isinstance(plain, Packet)
    assert (plain.source_port, plain.destination_port) == (53, 1000)
    assert (plain.wire_length, plain.ip_length, plain.payload_length) == (60, 33, 5)
    tagged = parse(LINK_ETHERNET, frame(ipv4(udp()), tags=b"\x88\xa8\0\1\x81\0\0\2"), 68, 5)
    assert isinstance(tagged, Packet)
    assert (tagged.source_port, tagged.wire_length) == (53, 68)
    assert parse(LINK_ETHERNET, frame(ipv4(udp()), tags=b"\x81\0\0\1" * 3), 68, 5) == "not IP"


@pytest.mark.parametrize(
    ("length", "on_the_wire", "ip_length"),
    [
        (33, 60, 33),  # padding does not count
        (0, 3014, 3000),  # to be cut by the sender's card
        (60_000, 60, 46),  # no header makes a packet longer than its frame
        (33, 20, 20),  # nor a capture's length a header shorter
    ],
)
def test_ip_length_of_ipv4(length, on_the_wire, ip_length):
    data = bytearray(frame(ipv4(udp())))
    data[16:18] = length.to_bytes(2, "big")
    outcome = parse(LINK_ETHERNET, bytes(data), on_the_wire, 0)
    assert isinstance(outcome, Packet)
    assert (outcome.ip_length, outcome.payload_length) == (ip_length, max(0, ip_length - 28))


@pytest.mark.parametrize(
    ("length", "following", "on_the_wire", "ip_length"),
    [
        (13, 17, 99, 53),
        (0, 17, 99, 40),
        (0, 0, 70_014, 70_000),  # a jumbogram
        (60_000, 17, 99, 85),
        (13, 17, 20, 40),
    ],
)
def test_ip_length_of_ipv6(length, following, on_the_wire, ip_length):
    options = b"\x11\0" + bytes(6) if following == 0 else b""
    header = struct.pack(">IHBB", 6 << 28, length, following, 9) + bytes(15) + b"\1" + bytes(16)
    outcome = parse(LINK_ETHERNET, frame(header + options + udp(), 0x86DD), on_the_wire, 0)
    assert isinstance(outcome, Packet)
    assert outcome.ip_length == ip_length
    assert outcome.payload_length == max(0, ip_length - 48 - len(options))


def test_ipv6_with_extension_headers_and_fragments():
    header = struct.pack(">IHBB", 6 << 28, 8 + 13, 0, 9) + bytes(15) + b"\1" + bytes(15) + b"\2"
    outcome = parse(LINK_ETHERNET, frame(header + b"\x11\0" + bytes(6) + udp(), 0x86DD), 99, 0)
    assert isinstance(outcome, Packet)
    assert (outcome.protocol, outcome.source_port, outcome.payload_length, outcome.ttl) == (
        17,
        53,
        5,
        9,
    )
    header = header[:6] + bytes([44]) + header[7:]
    later = parse(LINK_ETHERNET, frame(header + b"\x11\0\0\x08" + bytes(4) + udp(), 0x86DD), 99, 0)
    assert isinstance(later, Packet)
    assert later.later
    assert later.source_port == 0


def test_as_many_datagrams_are_remembered_as_there_is_room_for(monkeypatch):
    """That which began longest ago is forgotten; one that begins anew is the latest."""
    monkeypatch.setattr(reference, "MAX_FRAGMENTS", 3)

    def of(number, later):
        ports = {"sport": 0, "dport": 0} if later else {}
        return packet(0, identification=number, later=later, **ports)

    for begun, lost in (((1, 2, 3), []), ((1, 2, 3, 4), [1]), ((1, 2, 3, 1, 4), [2])):
        for number in {*begun}:
            sent = [*(of(n, False) for n in begun), of(number, True)]
            (record,), meter = run(spec(*N), sent)
            assert (record.packets < len(sent)) == (number in lost)
            assert meter.aside["fragment without its first"] == (number in lost)


def test_fragments_join_the_flow_of_their_first():
    parts = [
        parse(LINK_ETHERNET, frame(ipv4(udp(), fragment=0x2000)), 60, 0),
        parse(LINK_ETHERNET, frame(ipv4(b"rest of it", fragment=2)), 60, 1),
        parse(LINK_ETHERNET, frame(ipv4(b"lost", fragment=2, identification=8)), 60, 2),
    ]
    records, meter = run(spec(*N), parts)
    assert ends(records) == [(0, 2, "capture")]
    assert meter.aside == {"fragment without its first": 1}
    records, meter = run(spec(*N, fragments="aside"), parts)
    assert ends(records) == [(0, 1, "capture")]
    assert meter.aside["fragment without its first"] == 2


def test_no_prefix_and_no_flipped_byte_of_a_frame_is_fatal():
    whole = [
        frame(ipv4(udp(), protocol=UDP)),
        frame(ipv4(bytes(12) + b"\xf0\x12" + bytes(6), protocol=TCP)),
        frame(struct.pack(">IHBB", 6 << 28, 40, 0, 9) + bytes(32) + b"\x2b\x01" + bytes(40), 34525),
    ]  # fmt: skip
    for data in whole:
        for link in (0, 1, 101, 113, 276, 7):
            for end in range(len(data) + 1):
                parse(link, data[:end], len(data), 0)
            for at in range(len(data)):
                for value in (0, 0xFF, data[at] ^ 0x80):
                    outcome = parse(link, data[:at] + bytes([value]) + data[at + 1 :], len(data), 0)
                    if isinstance(outcome, Packet):
                        assert outcome.payload_length >= 0
                        assert outcome.wire_length >= 0
