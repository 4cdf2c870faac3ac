# SPDX-License-Identifier: Apache-2.0
"""Lines of an .info file: sound ones, damaged ones and hostile ones."""

import gzip

import pytest

from n3ic.errors import DataError, N3icWarning, UsageError
from n3ic.meter.flow_keys import flow_key
from n3ic.meter.info_labels import MAX_LINE, InfoFlow, info_lines, parse_info
from n3ic.meter.labels import SLACK_US, Labelled, Labels, read_labels

T = 1_361_750_400_000_000
GOOD = f"7#{T}#{T + 5}#10.0.0.1#2001:db8::1#1000#53#UDP#os#dns#http://a/#frag#"


def changed(**fields):
    names = ("id", "start", "end", "local", "remote", "lport", "rport")
    cells = GOOD.split("#")
    for name, value in fields.items():
        cells[names.index(name)] = value
    return "#".join(cells)


def test_a_line_is_read():
    flow = parse_info(GOOD)
    assert flow == InfoFlow(
        flow_key("10.0.0.1", "1000", "2001:db8::1", "53", "17"), T, T + 5, tuple(GOOD.split("#"))
    )


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("", "fewer than 8 fields"),
        ("#" * 6, "fewer than 8 fields"),
        (GOOD[:40], "fewer than 8 fields"),
        ("#" * 7, "a time is invalid, or not in microseconds since 1970"),
        (changed(start=str(T // 10**6)), "a time is invalid, or not in microseconds since 1970"),
        (changed(end=str(T * 1000)), "a time is invalid, or not in microseconds since 1970"),
        (changed(end="9" * 5000), "a time is invalid, or not in microseconds since 1970"),
        (changed(start="-5"), "a time is invalid, or not in microseconds since 1970"),
        (changed(start="1_000"), "a time is invalid, or not in microseconds since 1970"),
        (changed(start="\u0661" * 16), "a time is invalid, or not in microseconds since 1970"),
        (changed(end=str(T - 1)), "ends before it starts"),
        (changed(lport="65536"), "a port is invalid"),
        (changed(rport="0x35"), "a port is invalid"),
        (changed(rport="53.0"), "a port is invalid"),
        (changed(local="10.0.0.256"), "an address is invalid"),
        (changed(local="167772161"), "an address is invalid"),
        (changed(remote=""), "an address is invalid"),
        (changed(remote="example.org"), "an address is invalid"),
        (GOOD + "x" * MAX_LINE, "longer than 64 KiB"),
        ("\0" * 100, "fewer than 8 fields"),
    ],
)  # fmt: skip
def test_a_damaged_line_is_refused_with_a_reason(line, reason):
    assert parse_info(line) == reason


@pytest.mark.parametrize(
    ("start", "end", "reason"),
    [
        ("946684799999999", "946684800000000", "a time is invalid"),
        ("946684800000000", "946684800000000", ""),
        ("4102444799999999", "4102444799999999", ""),
        ("4102444799999999", "4102444800000000", "a time is invalid"),
        ("4102444800000000", "4102444799999999", "a time is invalid"),
    ],
)
def test_times_are_from_2000_until_2100(start, end, reason):
    entry = parse_info(changed(start=start, end=end))
    assert entry.startswith(reason) if reason else entry.start == int(start)


def test_a_line_may_have_64_kib():
    line = GOOD + "x" * (65536 - len(GOOD))
    assert parse_info(line).key == parse_info(GOOD).key
    assert parse_info(line + "x") == "longer than 64 KiB"


def test_a_protocol_that_nobody_knows_stays_open():
    assert parse_info(GOOD.replace("UDP", "?")).key[1] == 0
    fields = len(GOOD.split("#"))
    for number in (fields, fields + 1, 99):
        assert parse_info(GOOD, protocol_field=number).key[1] == 0


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_lines_of_a_file(tmp_path, pack):
    long = "é" * (MAX_LINE // 2 + 1)  # fewer letters than 64 Ki, more bytes
    text = f"{GOOD}\r\n\n{long}\n{GOOD}".encode() + b"\xff"
    (tmp_path / "x.info").write_bytes(pack(text))
    one, blank, cut, last = info_lines(tmp_path / "x.info")
    assert (one, blank, last) == (GOOD, "", GOOD + "\N{REPLACEMENT CHARACTER}")
    assert len(cut) == MAX_LINE + 2
    assert parse_info(cut) == "longer than 64 KiB"


def test_a_line_of_64_kib_is_text(tmp_path):
    (tmp_path / "x.info").write_text("é" * (MAX_LINE // 2) + "\nend\n", encoding="utf-8")
    assert [*info_lines(tmp_path / "x.info")] == ["é" * (MAX_LINE // 2), "end"]


def test_a_file_of_one_endless_line_takes_no_memory(tmp_path):
    (tmp_path / "x.info").write_bytes(b"#" * (8 << 20))
    assert [len(line) for line in info_lines(tmp_path / "x.info")] == [MAX_LINE + 1]


def test_damaged_lines_are_counted_and_the_others_read(tmp_path):
    (tmp_path / "x.info").write_text(f"{GOOD}\n\n1#2\n{changed(lport='x')}\n")
    with pytest.warns(N3icWarning, match="2 lines were left out.*line 3: fewer than 8 fields"):
        labels = read_labels(tmp_path / "x.info", "upc-aau")
    ((entry,),) = (line.entries for line in labels.by_key.values())
    assert entry == Labelled("dns", T, T + 5)
    (tmp_path / "x.info").write_text("1#2\n")
    with pytest.raises(DataError, match="line 1: fewer than 8 fields"):
        read_labels(tmp_path / "x.info", "upc-aau")


def test_of_many_flows_with_one_key_those_of_the_time_are_found():
    key = flow_key("10.0.0.1", "123", "10.0.0.2", "123", "17")
    second = 10**6
    entries = [Labelled("long", 0, 5000 * second)]
    entries += [Labelled(str(i), 10 * i * second, (10 * i + 1) * second) for i in range(1000)]
    labels = Labels.of_entries((key, entry) for entry in entries)
    ends, protocol = key

    def of(first, last):
        return labels.of(*ends, protocol, first, last)

    assert of(6000 * second, 6000 * second + 1) == ("600", "matched")
    assert of(4000 * second, 4000 * second + 1) == ("", "ambiguous")
    assert of(6005 * second, 6006 * second) == ("", "unmatched")
    assert of(6001 * second + SLACK_US, 6006 * second) == ("600", "matched")
    assert of(6001 * second + SLACK_US + 1, 6006 * second) == ("", "unmatched")


def test_any_field_of_a_line_may_be_its_label(tmp_path):
    (tmp_path / "x.info").write_text(GOOD + "\n")
    for number, label in ((8, "os"), (10, "http://a/"), (11, "frag")):
        ((entry,),) = (
            line.entries
            for line in read_labels(tmp_path / "x.info", "upc-aau", str(number)).by_key.values()
        )
        assert entry.label == label
    with pytest.raises(DataError, match="no labelled flow in it"):  # the last is empty
        read_labels(tmp_path / "x.info", "upc-aau", "12")
    for number in (13, 14):
        with pytest.raises(DataError, match=f"line 1: 13 fields, no field {number}"):
            read_labels(tmp_path / "x.info", "upc-aau", str(number))
    with pytest.raises(UsageError, match=r"number of a field of .*x\.info, from 0, got 'process'"):
        read_labels(tmp_path / "x.info", "upc-aau", "process")


def test_a_long_line_is_named_with_its_file(tmp_path):
    (tmp_path / "l.csv").write_text("x" * (MAX_LINE + 1))
    with pytest.raises(DataError, match=r"l\.csv: a line of more than"):
        read_labels(tmp_path / "l.csv", "table")


def test_a_label_without_a_protocol_holds_for_any():
    def labels_of(protocol):
        key = flow_key("10.0.0.1", "1", "10.0.0.2", "2", protocol)
        return Labels.of_entries([(key, Labelled("a"))])

    ends = (bytes([10, 0, 0, 2]), 2), (bytes([10, 0, 0, 1]), 1)
    for protocol, known in (("?", range(256)), ("1", [1]), ("17", [17])):
        protocols = [
            n for n in range(256) if labels_of(protocol).of(*ends, n, 5, 5)[1] == "matched"
        ]
        assert protocols == [*known]


def test_one_flow_that_a_generator_made_marks_all():
    key = flow_key("10.0.0.1", "1", "10.0.0.2", "2", "6")
    made = [Labelled("a", synthetic=True), Labelled("b")]
    for entries, synthetic in ((made, True), (made[1:], False), (made[::-1], True), ([], False)):
        assert Labels.of_entries([(key, entry) for entry in entries]).synthetic is synthetic
