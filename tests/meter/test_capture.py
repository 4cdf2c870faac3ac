# SPDX-License-Identifier: Apache-2.0
"""Captures in every wrapping, labels joined to them, and tables that say what was left out."""

import bz2
import gzip
import io
import lzma
import os
import random
import struct
import threading
import zlib

import pyarrow.csv
import pyarrow.parquet
import pytest

from n3ic.data.delimited import open_sheet
from n3ic.data.files import Content
from n3ic.errors import DataError, MissingDependencyError, ModelError, N3icWarning, UsageError
from n3ic.meter.capture import Capture, libpcap, plain_capture
from n3ic.meter.extract import extract
from n3ic.meter.info_labels import SYNTHETIC_MARK
from n3ic.meter.labels import Labelled, read_labels
from n3ic.meter.packet import LINK_EACH, LINK_ETHERNET
from n3ic.meter.pcapng import BlockError, with_links
from n3ic.meter.records import meter_capture
from n3ic.meter.rows import KEY_COLUMNS
from n3ic.meter.spec_file import read_spec, write_spec
from n3ic.meter.standard import standard_spec
from n3ic.meter.table import load_flows, read_table
from n3ic.model.meter_spec import MeteredFeature, MeterSpec, Register

try:
    libpcap()
except MissingDependencyError as error:
    pytest.skip(str(error), allow_module_level=True)

START = 1_700_000_000
SPEC = MeterSpec((Register("n", "count"),), (MeteredFeature("n", "n"),))


def udp(source, destination, sport, dport, size=20):
    body = struct.pack(">HHHH", sport, dport, 8 + size, 0) + bytes(size)
    header = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(body), 0, 0, 64, 17, 0)
    return bytes(12) + b"\x08\0" + header + bytes(source) + bytes(destination) + body


A, B, C = (10, 0, 0, 1), (10, 0, 0, 2), (10, 0, 0, 3)
PACKETS = [
    (0.0, udp(A, B, 1000, 53)),
    (0.5, udp(B, A, 53, 1000)),
    (1.0, udp(C, B, 2000, 53)),
    (200.0, udp(A, B, 1000, 53)),
]


def pcap(packets, link=1):
    out = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, link)
    for time, frame in packets:
        whole, part = divmod(round(time * 1e6), 10**6)
        out += struct.pack("<IIII", START + whole, part, len(frame), len(frame) + 4) + frame
    return out


def pcapng(packets):
    def block(kind, body):
        body += bytes(-len(body) % 4)
        length = 12 + len(body)
        return struct.pack("<II", kind, length) + body + struct.pack("<I", length)

    out = block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1))
    out += block(1, struct.pack("<HHI", 1, 0, 65535))
    for time, frame in packets:
        ticks = (START * 10**6) + round(time * 1e6)
        head = struct.pack("<IIIII", 0, ticks >> 32, ticks & 0xFFFFFFFF, len(frame), len(frame) + 4)
        out += block(6, head + frame + bytes(-len(frame) % 4))
    return out


def zstd(data):
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize("form", [pcap, pcapng])
@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress, lzma.compress, zstd])
def test_every_wrapping_gives_the_same_packets(tmp_path, form, pack):
    path = tmp_path / "c.pcap"
    path.write_bytes(pack(form(PACKETS)))
    with Capture(path) as capture:
        assert capture.link == 1
        got = list(capture.packets())
    assert got == [(frame, len(frame) + 4, round((START + time) * 1e9)) for time, frame in PACKETS]


def test_a_table_of_flows_with_their_keys(tmp_path):
    (tmp_path / "c.pcap").write_bytes(pcap(PACKETS))
    extraction = extract([tmp_path / "c.pcap"], tmp_path / "f.parquet", SPEC)
    table = pyarrow.parquet.read_table(tmp_path / "f.parquet")
    assert table.column_names == [*KEY_COLUMNS, "n"]
    assert table.schema.metadata[b"n3ic-units"] == b"nic"
    rows = table.to_pylist()
    assert [(r["source"], r["source_port"], r["n"], r["decided"]) for r in rows] == [
        ("10.0.0.1", 1000, 2, "idle"),
        ("10.0.0.3", 2000, 1, "idle"),
        ("10.0.0.1", 1000, 1, "capture"),
    ]
    assert rows[0]["first_us"] == START * 10**6
    assert rows[0]["last_us"] == START * 10**6 + 500_000
    assert (extraction.flows, extraction.packets, extraction.aside) == (3, 4, {})
    extract([tmp_path / "c.pcap"] * 2, tmp_path / "f.csv", SPEC)
    text = (tmp_path / "f.csv").read_text()
    assert text.startswith("# n3ic-units: nic\n")
    assert text.count("\n") == 2 + 6


def test_a_capture_that_is_not_read_to_its_end_holds_nothing_up(tmp_path):
    (tmp_path / "c.pcap.gz").write_bytes(gzip.compress(pcap(noise(200))))
    before = {*threading.enumerate()}
    with Capture(tmp_path / "c.pcap.gz") as capture:
        next(capture.packets())
        (pump,) = {*threading.enumerate()} - before
        assert pump.daemon  # else a program would wait for it when it ends
    pump.join(60)
    assert not pump.is_alive()


def test_what_is_left_out_is_counted(tmp_path):
    arp = bytes(12) + b"\x08\x06" + bytes(28)
    (tmp_path / "c.pcap").write_bytes(pcap([(0, arp), *PACKETS, (300, PACKETS[0][1][:20])]))
    extraction = extract([tmp_path / "c.pcap"], tmp_path / "f.csv", SPEC)
    assert extraction.aside == {"not IP": 1, "IP header cut short": 1}
    assert extraction.packets == 6


def test_a_capture_that_is_cut_short_counts_up_to_there(tmp_path):
    (tmp_path / "c.pcap").write_bytes(pcap(PACKETS)[:-7])
    with pytest.warns(N3icWarning, match="the capture ends early"):
        extraction = extract([tmp_path / "c.pcap"], tmp_path / "f.csv", SPEC)
    assert (extraction.flows, extraction.packets) == (2, 3)


def noise(packets):
    """So many packets that no compressor makes small."""
    r = random.Random(1)
    return [(i, udp(A, B, 1000, 53, 1000)[:-1000] + r.randbytes(1000)) for i in range(packets)]


@pytest.mark.first_case
@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress, zstd])
def test_a_packed_capture_that_is_cut_gives_what_it_holds(tmp_path, pack):
    packets = noise(1000)
    data = pack(pcap(packets))
    data = data[: len(data) * 2 // 3]
    left = len(unpacked(data, pack)) - 24
    assert left > 500 * len(packets[0][1])
    (tmp_path / "c.pcap").write_bytes(data)
    with pytest.warns(N3icWarning, match="the packed file is cut or damaged") as recorder:
        extraction = extract([tmp_path / "c.pcap"], tmp_path / "f.csv", SPEC)
    assert extraction.packets == left // (16 + len(packets[0][1]))
    assert len(recorder) == 1


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
def test_a_cut_that_the_packing_alone_shows_is_told(tmp_path, pack):
    (tmp_path / "c.pcap").write_bytes(pack(pcap(PACKETS))[:-1])
    with pytest.warns(N3icWarning, match="ends early: the packed file is cut or damaged"):
        extraction = extract([tmp_path / "c.pcap"], tmp_path / "f.csv", SPEC)
    assert extraction.packets == len(PACKETS)


class Failing(io.RawIOBase):
    """Bytes, behind which the device fails."""

    def __init__(self, data):
        self.left = data

    def readable(self):
        return True

    def readinto(self, room):
        if not self.left:
            raise OSError(5, "Input/output error")
        piece, self.left = self.left[: len(room)], self.left[len(room) :]
        room[: len(piece)] = piece
        return len(piece)


@pytest.mark.parametrize("pack", [gzip.compress, zstd])
def test_a_device_that_fails_ends_a_capture(pack):
    packets, notes = noise(600), []
    data = pack(pcap(packets))
    given = io.BufferedReader(Failing(data[: len(data) - 100]))
    with Capture("-", notes.append, given) as capture:
        read = [frame for frame, _, _ in capture.packets()]
    assert read == [frame for _, frame in packets][: len(read)] != []
    (line,) = notes
    early = "standard input: the capture ends early: it cannot be read further"
    assert line.startswith(f"{early} (Input/output error); ")
    assert line.endswith("; what came before it counts")


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_named_pipe_is_read_as_a_file_is(tmp_path, pack):
    packets, pipe = noise(20), tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(pack(pcap(packets)),), daemon=True)
    writer.start()
    with Capture(pipe) as capture:
        assert [frame for frame, _, _ in capture.packets()] == [frame for _, frame in packets]
    writer.join(timeout=60)


def test_libpcap_is_the_one_that_the_system_names(monkeypatch):
    monkeypatch.setattr("ctypes.util.find_library", lambda name: f"libno{name}.so")
    with pytest.raises(MissingDependencyError, match="apt-get install libpcap"):
        libpcap.__wrapped__()
    monkeypatch.setattr("ctypes.util.find_library", lambda name: None)
    assert libpcap.__wrapped__().pcap_next_ex.argtypes == libpcap().pcap_next_ex.argtypes


def test_a_plain_capture_is_its_own_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.pcap").write_bytes(pcap(PACKETS))
    assert plain_capture("c.pcap", tmp_path / "none") == tmp_path / "c.pcap"
    with pytest.raises(DataError, match=r"^d\.pcap: .*No such file"):
        plain_capture("d.pcap", tmp_path)


def test_a_cut_before_the_first_byte_is_told_as_the_reason(tmp_path):
    (tmp_path / "c.pcap").write_bytes(bz2.compress(pcap(noise(100)))[:1000])
    with pytest.raises(DataError, match=r"not a capture .* the packed file is cut"):
        extract([tmp_path / "c.pcap"], tmp_path / "f.csv", SPEC)


def unpacked(data, pack):
    """What is whole in packed data that end early, by another decoder fed byte by byte."""
    if pack is zstd:
        return bytes(len(data) // 2**17 * 2**17)  # of bytes that stay as they are, whole blocks
    decoder = zlib.decompressobj(31) if pack is gzip.compress else lzma.LZMADecompressor()
    return b"".join(decoder.decompress(data[i : i + 1]) for i in range(len(data)))


FAR = 2_120_000_000 - START  # seconds, to the year 2037


@pytest.mark.parametrize("captures", [1, 2])
def test_time_stamps_that_go_back_or_jump_are_counted_and_warned_of(tmp_path, captures):
    far, early = (FAR, PACKETS[0][1]), (0.25, PACKETS[1][1])
    bad, good = [*PACKETS[:2], early, far, *PACKETS[2:]], [*PACKETS[:2], PACKETS[1], *PACKETS[1:]]
    paths = [tmp_path / f"{i}.pcap" for i in range(captures)]
    for path in paths:
        path.write_bytes(pcap(bad))
    with pytest.warns(N3icWarning) as recorder:
        extraction = extract(paths, tmp_path / "f.csv", SPEC)
    assert (extraction.back, extraction.ahead, extraction.steps) == (captures, captures, 0)
    assert [str(w.message) for w in recorder] == [
        f"{p.name}: time stamps: 1 packets earlier than one before them, 1 more than an hour "
        "ahead, 0 times the clock was set back"
        for p in paths
    ]
    for path in paths:
        path.write_bytes(pcap(good))
    extract(paths, tmp_path / "g.csv", SPEC)
    assert times_and_counts(tmp_path / "f.csv") == times_and_counts(tmp_path / "g.csv")


def times_and_counts(table):
    rows = pyarrow.csv.read_csv(table, pyarrow.csv.ReadOptions(skip_rows=1))
    return rows.select(["source_port", "first_us", "last_us", "decided"]).to_pylist()


@pytest.mark.parametrize(
    "data", [b"", b"text", b"\xd4\xc3\xb2\xa1", gzip.compress(b"no capture", mtime=0)]
)
def test_what_is_no_capture_is_one_error_and_no_file(tmp_path, data):
    (tmp_path / "c.pcap").write_bytes(data)
    with pytest.raises(DataError, match=r"c\.pcap: not a capture that libpcap reads"):
        extract([tmp_path / "c.pcap"], tmp_path / "f.csv", SPEC)
    assert [p.name for p in tmp_path.iterdir()] == ["c.pcap"]
    with pytest.raises(DataError, match="No such file"):
        extract([tmp_path / "none.pcap"], tmp_path / "f.csv", SPEC)
    with pytest.raises(DataError, match=r"c\.pcap: not a capture"):
        extract([tmp_path], tmp_path / "f.csv", SPEC)
    (tmp_path / "c.pcap").unlink()
    with pytest.raises(DataError, match="no capture in this folder"):
        extract([tmp_path], tmp_path / "f.csv", SPEC)
    with pytest.raises(UsageError, match="at least one capture"):
        extract([], tmp_path / "f.csv", SPEC)


def test_a_specification_survives_its_file(tmp_path):
    write_spec(standard_spec(packets=8), tmp_path / "m.json")
    assert read_spec(tmp_path / "m.json") == standard_spec(packets=8)


def test_a_specification_is_at_most_one_mebibyte(tmp_path):
    file = tmp_path / "m.json"
    write_spec(standard_spec(), file)
    file.write_bytes(file.read_bytes().ljust(2**20))
    assert read_spec(file) == standard_spec()
    file.write_bytes(file.read_bytes() + b" ")
    with pytest.raises(ModelError, match="larger than 1 MiB"):
        read_spec(file)


# --- labels ----------------------------------------------------------------------------------

TABLE = f"""source,source_port,destination,destination_port,protocol,start,end,label
10.0.0.2,53,10.0.0.1,1000,udp,{START},{START + 1},first
10.0.0.1,1000,10.0.0.2,53,17,{START + 199},{START + 201},second
10.0.0.3,2000,10.0.0.2,53,17,,,one
10.0.0.3,2000,10.0.0.2,53,17,,,other
"""
HOSTS = f"""network,label,start,end
10.0.0.0/24,site,,
10.0.0.3,late,{START + 100},{START + 200}
10.0.0.1,first,,
2001:db8::/32,six,,
"""
ZEEK = f"""#separator \\x09
#fields\tts\tuid\tid.orig_h\tid.orig_p\tid.resp_h\tid.resp_p\tproto\tservice\tduration
#types\ttime
{START}.0\tx\t10.0.0.1\t1000\t10.0.0.2\t53\tudp\tdns\t0.5
{START}.0\tx\t10.0.0.3\t2000\t10.0.0.2\t53\tudp\t-\t-
#close
"""
NDPI = """pcap,flow,l4,src,sport,dst,dport,ndpi_proto
c.pcap,1,UDP,10.0.0.1,1000,10.0.0.2,53,DNS
other.pcap,2,UDP,10.0.0.3,2000,10.0.0.2,53,NTP
"""
UPC = (
    f"1#{START}000000#{START}600000#10.0.0.1#10.0.0.2#1000#53#17#os#dig#url\n"
    f"2#{START}900000#{START + 2}000000#10.0.0.3#10.0.0.2#2000#53#UDP#os#ntpd#url\n"
)


@pytest.mark.parametrize(
    ("form", "text", "labels", "counts"),
    [
        ("table", TABLE, ["first", "", "second"], {"matched": 2, "ambiguous": 1}),
        ("hosts", HOSTS, ["first", "", "first"], {"matched": 2, "unmatched": 1}),
        ("hosts", f"{HOSTS}10.0.0.1,other,,\n", ["", "", ""], {"ambiguous": 2, "unmatched": 1}),
        ("zeek", ZEEK, ["dns", "", ""], {"matched": 1, "unmatched": 2}),
        ("ndpi", NDPI, ["DNS", "", "DNS"], {"matched": 2, "unmatched": 1}),
        ("upc-aau", UPC, ["dig", "ntpd", ""], {"matched": 2, "unmatched": 1}),
    ],
)
def test_labels_join_by_key_and_time_and_are_never_guessed(tmp_path, form, text, labels, counts):
    (tmp_path / "c.pcap").write_bytes(pcap(PACKETS))
    (tmp_path / "l").write_bytes(gzip.compress(text.encode()))
    read = read_labels(tmp_path / "l", form)
    extraction = extract([tmp_path / "c.pcap"], tmp_path / "f.parquet", SPEC, labels=read)
    table = pyarrow.parquet.read_table(tmp_path / "f.parquet")
    assert table["label"].to_pylist() == labels
    assert extraction.labels == counts


def test_a_flow_without_an_address_comes_from_no_network(tmp_path):
    (tmp_path / "l").write_text(HOSTS)
    read = read_labels(tmp_path / "l", "hosts")
    end, time = (bytes([10, 0, 0, 7]), 0), START * 10**6
    assert read.of(end, (b"", 0), 6, time, time) == ("site", "matched")
    assert read.of((b"", 0), end, 6, time, time) == ("", "unmatched")


@pytest.mark.parametrize("name", ["f.parquet", "f.csv"])
@pytest.mark.parametrize(("system", "synthetic"), [("os", False), (SYNTHETIC_MARK, True)])
def test_flows_that_a_generator_labelled_stay_marked(tmp_path, name, system, synthetic):
    (tmp_path / "c.pcap").write_bytes(pcap(PACKETS))
    (tmp_path / "l").write_text(UPC.replace("#os#", f"#{system}#"))
    labels = read_labels(tmp_path / "l", "upc-aau")
    extract([tmp_path / "c.pcap"], tmp_path / name, SPEC, labels=labels)
    assert load_flows(tmp_path / name).synthetic is synthetic


@pytest.mark.parametrize(
    ("form", "text", "message"),
    [
        ("table", "source,label\na,b\n", "column 'source_port' is missing"),
        ("table", "", "column 'source' is missing"),
        ("hosts", "source,label\n10.0.0.1,a\n", "column 'network' is missing"),
        ("hosts", "network,label\n10.0.0.1/8,a\n", "line 2: 10.0.0.1/8 has host bits set"),
        ("table", TABLE.splitlines()[0] + "\n", "no labelled flow"),
        ("table", TABLE.splitlines()[0] + "\nx,1,y,2,6,,,z\n", "line 2: 'x' does not appear"),
        ("table", TABLE.splitlines()[0] + "\n1.1.1.1,99999,1.1.1.2,2,6,,,z\n", "0..65535"),
        ("upc-aau", "1#2#3\n", "line 1: fewer than 8 fields"),
        ("zeek", "no log\n", "column 'id.orig_h' is missing"),
        ("csv", TABLE, "labels are read from table, ndpi"),
    ],
)
def test_tables_that_hold_no_labels_are_named(tmp_path, form, text, message):
    (tmp_path / "l").write_text(text)
    with pytest.raises((DataError, UsageError), match=message):
        read_labels(tmp_path / "l", form)


@pytest.mark.parametrize(
    ("form", "text", "line"),
    [
        ("table", f"{TABLE}nonsense,1,10.0.0.1,2,6,,,z\n", 6),
        ("table", f"{TABLE}\n10.0.0.9,1,10.0.0.1,2,6,inf,,z\n", 7),
        ("hosts", f"{HOSTS}10.0.0.9,z,nan,\n10.0.0.9,z,0,1e400\n", 6),
        ("zeek", f"#x\n{ZEEK}#more\n1\tx\t10.0.0.1\tp\t10.0.0.2\t53\tudp\tdns\t0\n", 9),
        ("zeek", f"{ZEEK}{ZEEK}x\n", 13),
    ],
)
def test_a_line_that_cannot_be_read_is_left_out_with_a_word(tmp_path, form, text, line):
    (tmp_path / "l").write_text(text)
    number = text.count("\n") - line + 1
    message = rf"{number} lines were left out, the first is .*, line {line}: "
    with pytest.warns(N3icWarning, match=message):
        read_labels(tmp_path / "l", form)


def test_a_label_without_times_always_holds(tmp_path):
    end = 1 << 62
    for form, text in (
        ("table", "\n10.0.0.9,1,10.0.0.1,2,6,{},{},z"),
        ("hosts", "\n10.0.0.9,z,{},{}"),
    ):
        header = (TABLE if form == "table" else HOSTS).splitlines()[0]
        for start, stop, want in (
            ("", "", (0, end)),
            ("-", " - ", (0, end)),
            (3, 5.5, (3 * 10**6, 5_500_000)),
            (3, 0, (3 * 10**6, end)),
        ):
            (tmp_path / "l").write_text(header + text.format(start, stop))
            ((entry,),) = (
                line.entries for line in read_labels(tmp_path / "l", form).by_key.values()
            )
            assert (entry.start, entry.end) == want
    assert Labelled("z") == Labelled("z", 0, end, "", synthetic=False)


def test_a_flow_of_a_zeek_log_lasts_for_its_duration(tmp_path):
    for start, duration, want in (
        ("7.25", "0.5", (7_250_000, 7_750_000)),
        ("7", "-", (7_000_000, 7_000_000)),
        ("-", "3", (0, 1 << 62)),
    ):
        line = f"{start}\tx\t10.0.0.1\t1\t10.0.0.2\t2\tudp\tdns\t{duration}\n"
        (tmp_path / "l").write_text("\n".join(ZEEK.split("\n")[:2]) + "\n" + line)
        ((entry,),) = (t.entries for t in read_labels(tmp_path / "l", "zeek").by_key.values())
        assert (entry.start, entry.end) == want


def test_the_last_line_needs_no_end_and_is_bounded(tmp_path):
    lines = TABLE.splitlines()
    (tmp_path / "l").write_text("\n".join(lines[:2]))
    assert len(read_labels(tmp_path / "l", "table").by_key) == 1
    padded = lines[1] + " " * (65_536 - len(lines[1]))
    (tmp_path / "l").write_text(f"{lines[0]}\n{padded}")
    assert len(read_labels(tmp_path / "l", "table").by_key) == 1
    (tmp_path / "l").write_text(f"{lines[0]}\n{padded} ")
    with pytest.raises(DataError, match="a line of more than 65,536 bytes"):
        read_labels(tmp_path / "l", "table")


def test_a_stream_shows_its_links_in_its_first_64_kibibytes(tmp_path):
    head, second = pcapng([]), struct.pack("<IIHHII", 1, 20, 101, 0, 65_535, 20)
    for size, link in ((65_536, LINK_EACH), (65_540, LINK_ETHERNET)):
        skipped = size - len(head) - len(second)
        length = struct.pack("<I", skipped)
        data = head + struct.pack("<I", 0xBAD) + length + bytes(skipped - 12) + length + second
        (tmp_path / "c.pcapng.zst").write_bytes(zstd(data))
        with Capture(tmp_path / "c.pcapng.zst") as capture:
            assert capture.link == link


def test_a_block_of_a_capture_has_at_most_16_mebibytes():
    head = pcapng([])
    for size, fits in ((1 << 24, True), ((1 << 24) + 4, False)):
        length = struct.pack("<I", size)
        data = head + struct.pack("<I", 0xBAD) + length + bytes(size - 12) + length
        stream = with_links(iter([data]))
        if fits:
            assert len(list(stream)) == 2  # its section and its interface
        else:
            with pytest.raises(BlockError, match="damaged"):
                list(stream)


def test_a_table_in_text_is_read_as_its_file_is(tmp_path):
    text = b"source,packets,label\n10.0.0.1,4,a\n10.0.0.2,70000,b\n"
    (tmp_path / "f.csv").write_bytes(text)
    (tmp_path / "of-a-meter.csv").write_bytes(b"# a meter\n" + text)
    want = {"source": ["10.0.0.1", "10.0.0.2"], "packets": [4, 70_000], "label": ["a", "b"]}
    for table in (
        tmp_path / "f.csv",
        tmp_path / "of-a-meter.csv",
        open_sheet(Content("f.csv", text)),
    ):
        assert read_table(table).to_pydict() == want
    (tmp_path / "f.csv").write_bytes(text + b"1\n")
    with pytest.raises(DataError, match=r"f\.csv: this table is damaged"):
        read_table(tmp_path / "f.csv")


# --- real captures ---------------------------------------------------------------------------


@pytest.mark.slow
def test_real_captures_meter_alike_and_match_ndpi(real_data, tmp_path, equal):
    folder = real_data / "pcaps"
    captures = sorted(p for p in folder.iterdir() if p.suffix in (".pcap", ".pcapng"))
    assert len(captures) > 200
    for path in captures[::8]:
        with Capture(path) as capture:
            frames = [(data, n, time // 1000) for data, n, time in capture.packets()]
            equal(standard_spec(), capture.link, frames)
    with pytest.warns(N3icWarning, match="lines were left out"):
        labels = read_labels(folder / "flows_expected.csv", "ndpi")
    with pytest.warns(N3icWarning) as warned:
        extraction = extract(captures, tmp_path / "f.parquet", standard_spec(), labels=labels)
    closed = {str(w.message).split(":")[0] for w in warned if "leaves closed" in str(w.message)}
    assert closed >= {"gre.pcapng", "vxlan.pcap"}
    assert any("time stamps" in str(w.message) for w in warned)
    assert extraction.packets == 26_991
    assert extraction.labels["matched"] > 0.95 * extraction.flows


def test_batches_do_not_change_the_flows(tmp_path, monkeypatch):
    (tmp_path / "c.pcap").write_bytes(pcap(PACKETS))
    one = [r.tobytes() for records, _ in meter_capture(tmp_path / "c.pcap", SPEC) for r in records]
    monkeypatch.setattr("n3ic.meter.records.BATCH_PACKETS", 1)
    batches = [records for records, _ in meter_capture(tmp_path / "c.pcap", SPEC)]
    many = [r.tobytes() for records in batches for r in records]
    assert many == one
    assert max(map(len, batches)) < 3  # those left at the end do not come all at once
    assert len(one) == 3


@pytest.mark.parametrize(
    ("written", "link"),
    [
        (1, 1),
        (101, 101),
        (12, 101),
        (14, 101),
        (228, 101),
        (229, 101),
        (108, 0),
        (0, 0),
        (113, 113),
        (276, 276),
    ],
)
def test_link_types_that_are_read_alike_have_one_number(tmp_path, written, link):
    header = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, written)
    (tmp_path / "c.pcap").write_bytes(header)
    with Capture(tmp_path / "c.pcap") as capture:
        assert capture.link == link
        assert list(capture.packets()) == []


@pytest.mark.parametrize("total", [24, 30, 1 << 30])
def test_a_section_has_a_length_of_whole_words_within_bounds(total):
    """The rest of it is right."""
    rest = struct.pack("<HHQ", 1, 0, 2**64 - 1)
    head = struct.pack("<III", 0x0A0D0D0A, total, 0x1A2B3C4D)
    data = (head + rest).ljust(total - 4 if total < 99 else 64, b"\0") + struct.pack("<I", total)
    with pytest.raises(BlockError, match="a block or packet is damaged"):
        list(with_links(iter([data])))
