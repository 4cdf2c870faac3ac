# SPDX-License-Identifier: Apache-2.0
"""Captures of several links are read as libpcap reads those of one, damage included."""

import struct

import pytest

from n3ic.errors import DataError, MissingDependencyError
from n3ic.meter import pcapng
from n3ic.meter.capture import Capture, libpcap
from n3ic.meter.packet import LINK_EACH, LINK_ETHERNET
from n3ic.meter.pcapng import BlockError, _Taken, needs_links, with_links

try:
    libpcap()
except MissingDependencyError as error:
    pytest.skip(str(error), allow_module_level=True)

FRAME = bytes(range(60))
NOW = 1_700_000_000_123_457_891  # units of any size


def block(kind, body, order="<", total=None):
    body += bytes(-len(body) % 4)
    size = struct.pack(order + "I", 12 + len(body) if total is None else total)
    return struct.pack(order + "I", kind) + size + body + size


def section(order="<", major=1, minor=0):
    return block(0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, major, minor, -1), order)


def option(code, value, order="<"):
    return struct.pack(order + "HH", code, len(value)) + value + bytes(-len(value) % 4)


def interface(options=b"", order="<", link=1, snapshot=0):
    return block(1, struct.pack(order + "HHI", link, 0, snapshot) + options, order)


def packet(frame=FRAME, order="<", *, units=NOW, number=0, captured=None, length=None, kind=6):
    captured = len(frame) if captured is None else captured
    length = len(frame) if length is None else length
    first = struct.pack(order + ("I" if kind == 6 else "HH"), *([number] + [7] * (kind == 2)))
    rest = struct.pack(order + "IIII", units >> 32, units % 2**32, captured, length)
    return block(kind, first + rest + frame, order)


def simple(frame=FRAME, order="<", length=None):
    length = len(frame) if length is None else length
    return block(3, struct.pack(order + "I", length) + frame, order)


def contents_of(path):
    """Its packets, without the link before each; whether it ends early, or is refused."""
    early, packets = [], []
    try:
        with Capture(path, early.append) as capture:
            for data, length, time in capture.packets():
                each = 4 if capture.link == LINK_EACH else 0
                packets.append((data[each:], length - each, time))
            return capture.link, packets, bool(early)
    except DataError:
        return None, [], True


@pytest.fixture
def alike(tmp_path):
    """A function that reads blocks by libpcap and behind an interface of another link."""

    def check(*blocks, order="<", first=None):
        first = interface(order=order) if first is None else first
        plain, several = tmp_path / "one.pcapng", tmp_path / "two.pcapng"
        plain.write_bytes(section(order) + first + b"".join(blocks))
        other = section(order) + interface(order=order, link=101, snapshot=9)
        several.write_bytes(other + section(order) + first + b"".join(blocks))
        link, want, early = contents_of(plain)
        assert link in (None, LINK_ETHERNET)
        assert contents_of(several) == (LINK_EACH, want, early)
        return want, early

    return check


@pytest.mark.parametrize("order", ["<", ">"])
def test_packets_of_every_kind_of_block(alike, order):
    blocks = (
        packet(order=order), packet(order=order, kind=2), simple(order=order),
        packet(FRAME[:7], order, length=900), simple(b"", order),
        packet(order=order, length=2**32 - 5), block(0xBAD, b"12345678", order),
        packet(b"", order, units=0), block(0xBAD, b"", order), packet(bytes(2**18 - 4), order),
    )  # fmt: skip
    packets, early = alike(*blocks, order=order)
    assert not early
    assert alike(packet(bytes(2**18 + 1), order), order=order) == ([], True)
    assert [len(data) for data, _, _ in packets] == [60, 60, 60, 7, 0, 60, 0, 2**18 - 4]
    assert packets[5][1] == 2**32 - 5


# Units of a second: powers of ten, and of two from 0x80 on.
@pytest.mark.parametrize("resolution", [0, 3, 6, 9, 12, 0x80, 0x81, 0x8A, 0xA0, 0xBE, 0xBF])
def test_time_stamps_of_every_resolution(alike, resolution):
    first = interface(option(9, bytes([resolution])))
    stamps = (0, 1, 999, NOW, 3 * NOW + 1, 2**60 + 12_345, 2**63 - 1, 2**63 + 5, 2**64 - 1)
    packets, early = alike(*(packet(units=units) for units in stamps), first=first)
    assert len(packets) == len(stamps) and not early


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("offset", [0, 1, 3600, -1, -3600, 2**62])
def test_an_offset_of_seconds_is_added(alike, order, offset):
    first = interface(option(14, struct.pack(order + "q", offset), order), order)
    packets, _ = alike(packet(units=1500 * 10**6 + 7, order=order), order=order, first=first)
    seconds = max(0, min(1500 + offset, 2**63 // 10**9 + 1))
    assert packets[0][2] == (min(seconds * 10**9 + 7000, 2**63 - 1) if 1500 + offset >= 0 else 0)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("size", range(10))
def test_other_options_are_skipped_with_their_padding(alike, size, order):
    nanoseconds = option(9, b"\x09", order)
    options = option(1, b"x" * size, order), option(2, b"y" * size, order), nanoseconds
    packets, _ = alike(packet(order=order), order=order, first=interface(b"".join(options), order))
    assert packets[0][2] == NOW
    behind = option(0, b"", order) + option(9, b"\0", order) + b"\xff" * 8
    ended = interface(nanoseconds + behind, order)
    packets, early = alike(packet(order=order), order=order, first=ended)
    assert packets[0][2] == NOW and not early


@pytest.mark.parametrize("snapshot", [0, 1, 2, 59, 60, 61, 2**31 - 1, 2**31, 2**32 - 1])
def test_a_snapshot_length_bounds_what_a_packet_holds(alike, snapshot):
    first = interface(snapshot=snapshot)
    _, refused = alike(packet(), first=first)
    assert refused == (0 < snapshot < 60)
    packets, _ = alike(simple(), first=first)  # its part that is held follows from the bound
    assert len(packets[0][0]) == (min(60, snapshot) if 0 < snapshot < 2**31 else 60)


GOOD = packet(FRAME[:20])
DAMAGED = {
    "a block of 8 bytes": (GOOD, b"\x06\0\0\0\x08\0\0\0", GOOD),
    "a block of no whole words": (GOOD, struct.pack("<II5xI", 0xBAD, 17, 17), GOOD),
    "another length at its end": (GOOD, GOOD[:-4] + b"\0\0\0\x10", GOOD),
    "a packet block of 16 bytes": (GOOD, block(6, bytes(16)), GOOD),
    "an old packet block of 16 bytes": (GOOD, block(2, bytes(16)), GOOD),
    "a simple packet block of none": (GOOD, block(3, b""), GOOD),
    "an interface of 4 bytes": (GOOD, block(1, bytes(4)), GOOD),
    "a packet of no interface": (GOOD, packet(number=1), GOOD),
    "more captured than held": (GOOD, packet(captured=61), GOOD),
    "more of a simple one": (GOOD, simple(length=61), GOOD),
    "another length at a section's end": (GOOD, section()[:-4] + bytes(4), interface(), GOOD),
    "a section of another version": (GOOD, section(major=2), interface(), GOOD),
    "a cut block": (GOOD, GOOD[:-1]),
    "a cut head": (GOOD, GOOD[:3]),
    "a cut length": (GOOD, GOOD[:7]),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_ends_a_capture_where_libpcap_ends_it(alike, name):
    packets, early = alike(*DAMAGED[name])
    assert len(packets) == 1 and early


@pytest.mark.parametrize(
    "options",
    [
        option(9, b"\6\0"), option(9, b""), option(9, b"\6") * 2, option(9, b"\x14"),
        option(9, b"\xc0"), option(14, bytes(4)), option(14, bytes(8)) * 2, option(0, b"1234"),
        option(1, b"12345678")[:-4], b"\x09\0\xff\xff",
    ],
    ids=range(10),
)  # fmt: skip
def test_options_that_are_damaged_end_it(alike, options):
    assert alike(GOOD, first=interface(options)) == ([], True)


@pytest.mark.parametrize(
    ("exponent", "fits"), [(18, True), (19, True), (20, False), (0xBF, True), (0xC0, False)]
)
def test_the_finest_resolutions(alike, exponent, fits):
    packets, early = alike(packet(), first=interface(option(9, bytes([exponent]))))
    assert (len(packets), early) == (int(fits), not fits)


@pytest.mark.parametrize("order", ["<", ">"])
def test_two_interfaces_of_one_section_have_each_its_link(tmp_path, order):
    path = tmp_path / "c.pcapng"
    first = section(order) + interface(order=order)
    frames = packet(FRAME[:30], order) + packet(FRAME, order, number=1)
    for link, snapshot in ((276, 0), (256, 0), (101, 0), (1, 96), (0, 0)):
        path.write_bytes(first + interface(order=order, link=link, snapshot=snapshot) + frames)
        with Capture(path) as capture:
            assert capture.link == LINK_EACH
            packets = [(data[:4], data[4:], length) for data, length, _ in capture.packets()]
        assert packets == [
            (struct.pack(">I", LINK_ETHERNET), FRAME[:30], 34),
            (struct.pack(">I", link), FRAME, 64),
        ]
    path.write_bytes(first + interface(order=order) + frames)  # libpcap reads two that are alike
    link, packets, early = contents_of(path)
    assert (link, len(packets), early) == (LINK_ETHERNET, 2, False)
    path.write_bytes(first + frames)
    assert needs_links(path) is False  # and no thread copies it


@pytest.mark.parametrize("order", ["<", ">"])
def test_a_check_sequence_is_looked_for_in_the_first_64_kib(tmp_path, order):
    path, check = tmp_path / "c.pcapng", interface(option(13, b"\x20", order), order=order)
    for between, is_seen in ((0, True), (60_000, True), (70_000, False)):
        comment = block(5, bytes(between), order)
        path.write_bytes(section(order) + comment + check + packet(order=order))
        assert needs_links(path) is is_seen
    path.write_bytes(section(order))  # no interface
    assert needs_links(path) is False


@pytest.mark.parametrize("order", ["<", ">"])
def test_captures_of_one_interface_are_not_read_block_by_block(tmp_path, monkeypatch, order):
    path, read = tmp_path / "c.pcapng", []
    monkeypatch.setattr(pcapng, "begins_with_links", lambda pieces: read.append(1) or any(pieces))
    one, frames = section(order) + interface(order=order), packet(order=order) * 3
    for data in (b"", b"\xd4\xc3\xb2\xa1" + one, one[:9], one, one + frames):
        path.write_bytes(data)
        assert needs_links(path) is False
    assert needs_links(tmp_path / "none") is False
    assert not read
    for data in (one + one, one + frames + one, one + frames + interface(order=order) + frames):
        path.write_bytes(data)
        assert needs_links(path) is True
    assert len(read) == 3


def test_numbers_of_blocks_tell_one_from_another(alike):
    """That of a section, and none near those that are read, is no other block."""
    given = [block(kind, bytes(28)) for kind in (0, 4, 5, 7, 8, 10, 11, 0x0A0D0D0B)]
    packets, early = alike(*given, GOOD)
    assert len(packets) == 1 and not early


def test_a_length_on_the_wire_is_at_most_32_bits(tmp_path):
    path = tmp_path / "c.pcapng"
    frames = [packet(length=length) for length in (2**32 - 6, 2**32 - 5, 2**32 - 4, 2**32 - 1)]
    path.write_bytes(section() + interface() + interface(link=101) + b"".join(frames))
    with Capture(path) as capture:
        lengths = [length for _, length, _ in capture.packets()]
    assert lengths == [2**32 - 2, *[2**32 - 1] * 3]  # with the 4 bytes of the link


@pytest.mark.parametrize(("major", "minor", "fits"), [(1, 0, 1), (1, 2, 1), (1, 1, 0), (2, 0, 0)])
def test_versions_of_the_first_section(tmp_path, major, minor, fits):
    path = tmp_path / "c.pcapng"
    for more in (b"", interface(link=101)):
        path.write_bytes(section(major=major, minor=minor) + interface() + more + GOOD)
        _, packets, early = contents_of(path)
        assert (len(packets), early) == (fits, not fits)


def test_a_section_has_at_most_65_536_interfaces():
    blocks = section() + interface() * (1 << 16), packet(number=(1 << 16) - 1), interface()
    linked_blocks = []
    with pytest.raises(BlockError, match="too many interfaces"):
        linked_blocks.extend(with_links(iter(blocks)))
    assert len(linked_blocks) == 3  # its section, its interface and the packet


def test_the_stream_that_libpcap_gets():
    """One section, one interface of nanoseconds, and each frame behind the number of its link."""
    seconds = interface(option(9, b"\0", ">"), ">", link=229)
    given = [packet(FRAME[:5], ">", units=units, length=9) for units in (7, 2**62, 2**63)]
    head, first, *packets = with_links(iter([section(">"), seconds, *given]))
    assert head == section()
    assert first == interface(option(9, b"\x09") + option(0, b""), link=0xFFFF)
    frame = struct.pack(">I", 101) + FRAME[:5]
    times = 7 * 10**9, 2**63 - 1, 0  # the last is before 1970
    assert packets == [packet(frame, units=units, length=13) for units in times]


def test_a_frame_has_at_most_2_to_18_bytes():
    most, more = (packet(bytes(2**18 + n)) for n in (0, 1))
    *_, last = with_links(iter([section(), interface(), most]))
    assert struct.unpack_from("<I", last, 20) == (2**18,)  # with its link: the last 4 are cut
    for bound in (0, 2**31, 2**32 - 1):  # which are no bounds: libpcap's own one holds
        with pytest.raises(BlockError, match="damaged"):
            list(with_links(iter([section(), interface(snapshot=bound), more])))
    *_, last = with_links(iter([section(), interface(snapshot=2**31 - 1), more]))
    assert struct.unpack_from("<I", last, 20) == (2**18,)


def test_bytes_are_taken_across_pieces_up_to_the_end():
    taken = _Taken(iter([b"ab", b"c", b"", b"d"]))
    assert (taken.take(1), taken.take(2)) == (b"a", b"bc")
    assert taken.take(1, may_end=True) == b""  # an empty piece is the end
    assert _Taken(iter([])).take(1, may_end=True) == b""
    with pytest.raises(BlockError, match="cut short"):
        _Taken(iter([b"ab"])).take(3, may_end=True)
