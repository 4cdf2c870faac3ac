# SPDX-License-Identifier: Apache-2.0
"""Registers of the first packets, histograms and TCP's sequence numbers: by hand, and in C."""

import random
import shutil

import pytest

from n3ic.errors import ModelError, UsageError
from n3ic.meter.sequences import sequence_registers, sequence_spec, with_sequence
from n3ic.meter.standard import standard_spec
from n3ic.model.meter_spec import (
    Decision,
    Guard,
    MeteredFeature,
    MeterSpec,
    Register,
    log_code,
)
from tests.support.conversations import ACK, FIN, SYN, Frames
from tests.support.generated import random_frames

pytestmark = pytest.mark.skipif(
    not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="no C compiler"
)
PORTS = (1000, 80)
RST = 4


def spec_of(*registers, **more):
    features = tuple(MeteredFeature(r.name, r.name) for r in registers)
    return MeterSpec(registers, features, tick_ns=1000, **more)


def timed(frames):
    return [(data, len(data), round(time * 1e6)) for time, data in frames.all]


def values(record):
    return list(record[-1])


def test_the_first_packets_of_a_flow_with_their_directions_and_gaps(equal):
    f = Frames()
    f.udp(0.0, True, PORTS, bytes(12))  # 40 bytes of IP
    f.udp(0.000005, True, PORTS, bytes(72))  # 100
    f.udp(0.000005, False, PORTS, bytes(3000))  # above 2047
    f.udp(1.000005, False, PORTS, b"")  # 28
    f.udp(9.0, True, PORTS, bytes(500))  # decided already
    (row,) = equal(sequence_spec((4,)), 1, timed(f))
    assert values(row) == [2048 + 40, 2048 + 100, 2048 - 2047, 2048 - 28, 5, 0, log_code(10**6)]
    assert row[8:10] == (4, "packets")


def test_packets_that_did_not_come_are_0(equal):
    f = Frames()
    f.udp(0.0, True, PORTS, bytes(12))
    (row,) = equal(sequence_spec((3,)), 1, timed(f))
    assert values(row) == [2048 + 40, 0, 0, 0, 0]


def test_a_guard_numbers_its_own_packets(equal):
    """Each direction has its own first packets, and gaps between them."""
    back = Guard("reverse")
    spec = spec_of(
        Register("back1", "nth", "ip_length", back, 16, packet=1),
        Register("back3", "nth", "ip_length", back, 16, packet=3),
        Register("gap3", "nth", "gap", back, 16, packet=3),
        Register("there2", "nth", "ip_length", Guard("forward"), 5, packet=2),
    )
    f = Frames()
    for time, out, size in (
        (0, True, 0),
        (1, False, 1),
        (2, False, 2),
        (3, True, 3),
        (7, False, 4),
    ):
        f.udp(time * 1e-6, out, PORTS, bytes(size))
    (row,) = equal(spec, 1, timed(f))
    assert values(row) == [29, 32, 5, 31]


@pytest.mark.parametrize(("packets", "gaps"), [(5, 2), (1, 5)])
def test_sequences_of_one_guard_may_have_other_lengths(packets, gaps, equal):
    sizes = [Register(f"s{k}", "nth", "ip_length", width=16, packet=k + 1) for k in range(packets)]
    times = [Register(f"g{k}", "nth", "gap", width=32, packet=k + 1) for k in range(1, gaps)]
    f = Frames()
    for i in range(6):
        f.udp(i * i * 1e-6, True, PORTS, bytes(i))
    (row,) = equal(spec_of(*sizes, *times), 1, timed(f))
    assert values(row) == [*(28 + k for k in range(packets)), *(2 * k - 1 for k in range(1, gaps))]


def test_fragments_and_doubled_packets_count_as_they_come(equal):
    f = Frames()
    f.udp(0.0, True, PORTS, bytes(12))
    f.all.append(f.all[0])
    f.udp(1.0, False, PORTS, bytes(12))
    (row,) = equal(sequence_spec((3,)), 1, timed(f))
    assert values(row)[:3] == [2048 + 40, 2048 + 40, 2048 - 40]


def test_rounded_logarithms():
    assert [log_code(v) for v in (0, 1, 7, 8, 9, 15, 16, 17, 18, 31, 32)] == [
        0, 1, 7, 8, 9, 15, 16, 16, 17, 23, 24,
    ]  # fmt: skip
    codes = [log_code(v) for v in range(1 << 14)]
    assert codes == sorted(codes)
    assert set(codes) == set(range(codes[-1] + 1))  # no code is left out
    assert log_code((1 << 48) - 1) == 367


def test_logarithms_of_gaps_at_each_power_of_two(equal):
    spec = spec_of(
        Register("last", "last", "gap", width=9, scale="log"),
        Register("most", "max", "gap", width=8, scale="log"),
        Register("sum", "sum", "gap", width=12, scale="log"),
        idle_timeout=(1 << 48) - 1,
        decision=Decision(1, repeat=True),
    )
    f = Frames()
    now = 0
    for exponent in range(31):  # a longer pause would be a wrong time stamp
        for gap in ((1 << exponent) - 1, 1 << exponent, (1 << exponent) + (1 << exponent >> 3)):
            now += gap
            f.udp(now / 1e6, True, PORTS, b"")
    rows = equal(spec, 1, timed(f))
    assert len({values(row)[0] for row in rows}) > 60


def test_a_histogram_counts_what_lies_in_its_bins(equal):
    bins = [(0, 39), (40, 99), (100, 1500)]
    spec = spec_of(
        *(Register(f"size{i}", "within", "ip_length", width=2, low=low, high=high)
          for i, (low, high) in enumerate(bins)),
        Register("soon", "within", "gap", width=8, high=10),
        Register("large", "within", "ip_length", width=1, low=100, high=1 << 47),
    )  # fmt: skip
    f = Frames()
    for i, size in enumerate([28, 39, 40, 99, 100, 40, 41, 42, 1500]):
        f.udp(i * (9e-6 if i < 3 else 12e-6), True, PORTS, bytes(size - 28))
    (row,) = equal(spec, 1, timed(f))
    assert values(row) == [2, 3, 2, 2, 1]  # two bits saturate at 3; the first packet has no gap


STREAM = spec_of(
    *(
        Register(f"{way}_{field}", "sum", f"tcp_{field}", Guard(way), 32)
        for way in ("forward", "reverse")
        for field in ("repeated", "skipped")
    ),
    ends=(),
)


def test_sequence_numbers_that_repeat_and_skip(equal):
    f = Frames()
    start = 2**32 - 150  # numbers wrap
    f.tcp(0, True, PORTS, SYN, start, 0)
    f.tcp(1, False, PORTS, SYN | ACK, 77, 0)
    f.tcp(2, True, PORTS, ACK, start + 1, 0, 100)
    f.tcp(3, True, PORTS, ACK, (start + 201) % 2**32, 0, 100)  # overtook 100 bytes
    f.tcp(4, True, PORTS, ACK, start + 101, 0, 100)  # which come now
    f.tcp(5, True, PORTS, ACK, (start + 251) % 2**32, 0, 100)  # 50 of them are new
    f.tcp(6, True, PORTS, RST, 5, 0)  # a reset's number means nothing
    f.tcp(7, False, PORTS, ACK, 78, 0)  # an acknowledgement repeats nothing
    f.tcp(8, False, PORTS, ACK, 77, 0, 1)  # a probe whether the other end lives
    (row,) = equal(STREAM, 1, timed(f))
    assert values(row) == [100 + 50, 100, 1, 0]


def test_a_connection_seen_from_its_middle_begins_with_its_first_packet(equal):
    f = Frames()
    f.tcp(0, True, PORTS, ACK, 10**6, 0, 10)
    f.tcp(1, True, PORTS, ACK, 10**6 + 10, 0, 10)
    f.tcp(2, True, PORTS, ACK, 10**6 + 20 + 2**31, 0, 10)  # as far behind as it can be
    (row,) = equal(STREAM, 1, timed(f))
    assert values(row) == [10, 0, 0, 0]


def repeated_and_skipped(packets):
    """By hand: of numbers without bounds, each packet has the one nearest to what is expected."""
    expected, repeated, skipped = packets[0][0] + packets[0][1], 0, 0
    for sequence, size in packets[1:]:
        near = [sequence + (wraps << 32) for wraps in range(-1, expected // 2**32 + 2)]
        (begins,) = (n for n in near if -(2**31) <= n - expected < 2**31)
        repeated += min(max(0, expected - begins), size)
        skipped += max(0, begins - expected)
        expected = max(expected, begins + size)
    return repeated, skipped


@pytest.mark.parametrize("seed", range(4))
def test_sequence_numbers_of_overlapping_packets(seed, equal):
    """Each lies a little before, at or behind what is expected, or half of the numbers away."""
    r = random.Random(seed)
    f, sent, expected = Frames(), [], 2**32 - 40
    for i in range(60):
        jump = r.choice([2**31 - 1, -(2**31), 2**31, 2**30]) if r.random() < 0.1 else 0
        sequence = (expected + r.randint(-3, 3) + jump) % 2**32
        flags, data = r.choice([0, 0, SYN, FIN, SYN | FIN]), r.randint(0, 3)
        f.tcp(i, True, PORTS, ACK | flags, sequence, 0, data)
        sent.append((sequence, data + (flags & SYN > 0) + (flags & FIN > 0)))
        expected = (sequence + sent[-1][1]) % 2**32
    (row,) = equal(STREAM, 1, timed(f))
    assert values(row)[:2] == [min(n, 2**32 - 1) for n in repeated_and_skipped(sent)]


@pytest.mark.first_case
@pytest.mark.parametrize("seed", range(2))
def test_the_standard_meter_with_thirty_packets_on_hostile_traffic(seed, equal):
    spec = with_sequence(standard_spec(schedule=(4, 8, 30)), 30)
    assert equal(spec, 1, random_frames(random.Random(seed), 1500))


def test_specifications_from_before_sequences_keep_their_digest():
    assert standard_spec().digest == (
        "97ab892d27a34fd0e0aa05b034d502684428e0486c8f5f65ac4e57f745821664"
    )


def test_a_specification_is_read_as_it_was_written():
    spec = with_sequence(standard_spec(), 8)
    assert MeterSpec.from_json(spec.to_json(), "it") == spec


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"update": "nth", "field": "gap"}, "packet 1 to 32"),
        ({"update": "nth", "field": "gap", "packet": 33}, "packet 1 to 32"),
        ({"update": "last", "field": "gap", "packet": 3}, "packet 1 to 32"),
        ({"update": "within", "field": "gap", "low": 3, "high": 2}, "range"),
        ({"update": "within", "field": "gap", "low": 3, "high": 1 << 48}, "range"),
        ({"update": "max", "field": "gap", "high": 2}, "range"),
        ({"update": "count", "scale": "log"}, "no scale"),
        ({"update": "within", "field": "gap", "high": 9, "scale": "log"}, "no scale"),
        ({"update": "max", "field": "gap", "scale": "square"}, "scale"),
        ({"update": "nth", "packet": 1}, "has a field|have one|has one"),
    ],
)
def test_registers_that_make_no_sense_are_refused(more, message):
    with pytest.raises(ModelError, match=message):
        Register("r", **more)


def test_sequence_numbers_belong_to_a_connection():
    register = Register("r", "sum", "tcp_repeated")
    with pytest.raises(ModelError, match="connection"):
        spec_of(register, key="host-pair", ends=())


def test_a_flow_keeps_4096_bits_of_registers():
    def of(packet, width):
        long = Register("long", "nth", "time", width=64, packet=packet)
        return spec_of(long, *(Register(f"r{i}", "count", width=width) for i in range(32)))

    assert of(32, 64).state_bits == 4096
    assert of(1, 64).state_bits == 2112
    with pytest.raises(ModelError, match="at most 4,096 bits"):
        spec_of(*of(32, 64).registers, Register("more", "count", width=1))


def test_sequences_are_of_1_to_32_packets():
    assert len(sequence_registers(32)) == 63
    for wrong in ((), (33,), (0,), (8, 4), (4, 4), (0, 4), (4, 33), (1, 4, 4)):
        with pytest.raises(UsageError, match=r"increasing numbers in 1..32"):
            sequence_spec(wrong)
    for decided in ((1,), (32,), (1, 32), (2, 3), (3, 5, 8)):
        spec = sequence_spec(decided)
        assert spec.registers == sequence_registers(decided[-1])
        assert [*spec.feature_names] == [r.name for r in spec.registers]
        once = Decision(packets=decided[0])
        assert spec.decision == (once if len(decided) == 1 else Decision(schedule=decided))


@pytest.mark.parametrize("length", ["wire_length", "ip_length", "payload_length"])
@pytest.mark.parametrize("payload", ["any", "some", "none"])
def test_lengths_have_twelve_bits_and_gaps_eight(length, payload):
    registers = sequence_registers(3, length, payload)
    guard = Guard(payload=payload)
    assert registers == (
        *(
            Register(f"len_{k}", "nth", f"directed_{length}", guard, 12, packet=k)
            for k in (1, 2, 3)
        ),
        *(Register(f"gap_{k}", "nth", "gap", guard, 8, packet=k, scale="log") for k in (2, 3)),
    )
    assert sequence_spec((3,), length, payload).registers == registers


@pytest.mark.parametrize("tick_ns", [1, 1000, 10**6])
def test_a_flow_of_a_sequence_ends_after_a_minute_in_any_unit(tick_ns):
    spec = sequence_spec((3,), tick_ns=tick_ns)
    assert (spec.tick_ns, spec.idle_timeout * tick_ns) == (tick_ns, 60 * 10**9)
