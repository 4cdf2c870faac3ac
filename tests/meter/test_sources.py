# SPDX-License-Identifier: Apache-2.0
"""Features by source: what they count, in the reference meter and in the compiled one."""

import csv
import random
import shutil
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from n3ic.cli.main import command_line
from n3ic.data.table_meter import meter_of
from n3ic.errors import ModelError
from n3ic.meter.compiled import CompiledMeter
from n3ic.meter.packet import LINK_ETHERNET, parse
from n3ic.meter.reference import ReferenceMeter
from n3ic.meter.source import meter_source
from n3ic.meter.sources import NAMES, SourceTable, table_bytes, with_sources
from n3ic.meter.standard import standard_spec
from n3ic.meter.table import catalogue_of
from n3ic.model.meter_spec import MeterSpec, SourceFeature, Sources
from n3ic.targets.fuzz_traffic import pcap
from tests.support.generated import random_frames, random_spec
from tests.support.sourced_traffic import SERVER, frames_of_sources, sourced, udp_frame

SPEC = sourced(standard_spec(packets=1))
PAIRS = replace(SPEC, sources=Sources(), windows=(), key="host-pair", ends=())
WINDOW = 1 << 20
HOST, SECRET = bytes([10, 0, 0, 1]), bytes(range(16))

needs_compiler = pytest.mark.skipif(
    not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="no C compiler"
)


def values(frames, spec=SPEC):
    """The features by source of each decision of the reference meter, in their order."""
    meter = ReferenceMeter(spec)
    records = meter.run(parse(LINK_ETHERNET, data, 60, time) for data, time in frames)
    return [tuple(r.features[name] for name in NAMES.values()) for r in records]


def test_new_flows_are_those_of_a_window_and_the_one_before_it():
    times = [0, 1, WINDOW - 1, WINDOW, 2 * WINDOW - 1, 2 * WINDOW, 4 * WINDOW, 7 * WINDOW]
    frames = [(udp_frame(HOST, SERVER, 1000 + i, 53), 5 + t) for i, t in enumerate(times)]
    assert [v[0] for v in values(frames)] == [1, 2, 3, 4, 5, 3, 1, 1]


def test_each_source_has_its_own_counts_and_a_network_of_ipv6_is_one():
    one, same = bytes(range(8)) + bytes(8), bytes(range(8)) + bytes(7) + b"\1"
    other = bytes(range(1, 9)) + bytes(8)
    senders = [HOST, SERVER, one, same, other, HOST, same]
    to = {4: bytes([10, 9, 9, 9]), 16: bytes(16)}
    frames = [(udp_frame(s, to[len(s)], 7 + i, 53), i) for i, s in enumerate(senders)]
    assert [v[0] for v in values(frames)] == [1, 1, 1, 2, 1, 2, 3]


def test_a_flow_is_answered_once_at_its_first_packet_back():
    there, back = udp_frame(HOST, SERVER, 1, 53), udp_frame(SERVER, HOST, 53, 1)
    other = udp_frame(HOST, SERVER, 2, 53)
    spec = replace(SPEC, decision=replace(SPEC.decision, repeat=True))
    frames = [(there, 0), (other, 1), (back, 2), (back, 3), (there, 4)]
    assert [v[1] for v in values(frames, spec)][: len(frames)] == [1, 2, 1, 1, 1]


def test_ports_and_hosts_are_the_bits_that_they_set():
    ports = [(udp_frame(HOST, SERVER, 9, 1 + i), i) for i in range(200)]
    hosts = [(udp_frame(HOST, bytes([192, 168, 1, i]), 9, 53), i) for i in range(200)]
    for frames, tried, still in ((ports, 2, 3), (hosts, 3, 2)):
        features = values(frames)
        assert {v[still] for v in features} == {1}
        bits = [v[tried] for v in features]
        assert bits[0] == 1 and bits == sorted(bits) and bits[19] > 14 and 58 < bits[-1] <= 64


def test_the_one_used_longest_ago_makes_room():
    assert Sources().entries == 65_536
    table = SourceTable(Sources(entries=8))
    names = [bytes([10, 0, 0, i]) for i in range(9)]
    for i, name in enumerate(names[:8]):
        table.begin(name, SERVER, 17, 53, i)
    table.answer(names[0], 9)  # of a flow of the first, which is now the last that was used
    table.begin(names[8], SERVER, 17, 53, 10)
    assert [table.value("new_flows", name, 10) for name in names] == [1, 0, *[1] * 7]
    assert table.forgotten == 1
    table.answer(names[1], 11)  # it is not there, and does not come back
    assert table.value("new_flows", names[1], 11) == 0


@pytest.mark.parametrize(("back", "left"), [(WINDOW, 3), (WINDOW + 1, 1)])
def test_a_clock_that_goes_back_by_more_than_a_window_begins_anew(back, left):
    table = SourceTable(Sources())
    for _ in range(2):
        table.begin(HOST, SERVER, 17, 53, 9 * WINDOW)
    table.begin(HOST, SERVER, 17, 53, 9 * WINDOW - back)
    assert table.value("new_flows", HOST, 9 * WINDOW - back) == left


def test_a_decision_later_than_the_window_counts_what_is_left():
    table = SourceTable(Sources())
    table.begin(HOST, SERVER, 17, 53, 5)
    table.begin(HOST, SERVER, 17, 54, 5 + WINDOW)
    counts = [table.value("ports", HOST, 5 + n * WINDOW) for n in (0, 1, 2, 3)]
    assert counts == [2, 2, 1, 0]


@needs_compiler
@pytest.mark.first_case
@pytest.mark.parametrize("entries", [8, 16, 1024])
@pytest.mark.parametrize("window", [0, 12, 16])
def test_both_meters_are_equal_where_sources_make_room(entries, window, equal, reference):
    r = random.Random(entries + window)
    spec = sourced(standard_spec(schedule=(1, 2, 5)), window, entries)
    spec = replace(spec, idle_timeout=20_000)
    frames = frames_of_sources(r, 1500, 300)
    rows = equal(spec, LINK_ETHERNET, frames)
    _, counters = reference(spec, LINK_ETHERNET, frames)
    assert (counters["forgotten"] > 50) == (entries < 1024)
    flows, unanswered, ports, hosts = zip(*(row[-1][-4:] for row in rows), strict=True)
    assert max(ports) > (1 if not window else 5) and max(hosts) > (1 if not window else 5)
    assert any(a > b for a, b in zip(flows, unanswered, strict=True))


@needs_compiler
def test_both_meters_count_no_unanswered_flow_where_all_are_answered(equal):
    there, back = udp_frame(HOST, SERVER, 1, 53), udp_frame(SERVER, HOST, 53, 1)
    spec = replace(SPEC, decision=replace(SPEC.decision, repeat=True))
    rows = equal(spec, LINK_ETHERNET, [(there, 60, 0), (back, 60, 2), (there, 60, 4)])
    assert [row[-1][-3] for row in rows[:3]] == [1, 0, 0]


@needs_compiler
@pytest.mark.first_case
@pytest.mark.parametrize(
    "seed", [pytest.param(i, marks=[pytest.mark.slow] if i > 3 else []) for i in range(8)]
)
def test_both_meters_are_equal_on_damaged_traffic(seed, equal):
    r = random.Random(seed)
    spec = replace(random_spec(r), key="five-tuple")
    few = slice(r.randrange(3), r.choice([3, 4]))
    spec = sourced(spec, r.choice([0, 3, 6]), 8 * r.choice([1, 2, 100]), few)
    assert equal(spec, LINK_ETHERNET, random_frames(r, 600))


@needs_compiler
def test_both_meters_have_the_same_sketches_under_a_secret():
    spec, frames = sourced(SPEC, entries=16), frames_of_sources(random.Random(1), 400, 300)
    meter = ReferenceMeter(spec, SECRET)
    records = meter.run(parse(LINK_ETHERNET, *frame) for frame in frames)
    wanted = [tuple(r.features.values()) for r in records]
    with CompiledMeter(spec, LINK_ETHERNET) as hidden, CompiledMeter(spec, LINK_ETHERNET) as open_:
        hidden.library.meter_hide_sources(hidden.pointer, SECRET)
        meter_rows = [
            [
                tuple(row.tolist())
                for part in (m.count(frames), m.finish())
                for row in part["features"]
            ]
            for m in (hidden, open_)
        ]
    assert meter_rows[0] == wanted != meter_rows[1]


@needs_compiler
def test_a_meter_goes_on_with_its_sources_where_another_stopped():
    spec, frames = sourced(SPEC, entries=16), frames_of_sources(random.Random(2), 400, 300)
    with CompiledMeter(spec, LINK_ETHERNET) as whole:
        wanted = whole.count(frames)
    with CompiledMeter(spec, LINK_ETHERNET) as first, CompiledMeter(spec, LINK_ETHERNET) as then:
        before = first.count(frames[:300])
        then.restore(first.save())
        after = then.count(frames[300:])
    assert before.tobytes() + after.tobytes() == wanted.tobytes()


def test_a_specification_without_them_is_what_it_was():
    plain = standard_spec()
    assert "sources" not in plain.to_dict() and "sources.h" not in meter_source(plain)
    assert replace(SPEC, sources=Sources()).digest == standard_spec(packets=1).digest
    assert SPEC.only(["dur"]).sources == Sources()
    assert SPEC.only(["src_hosts_tried"]).feature_names == ["src_hosts_tried"]
    assert MeterSpec.from_json(SPEC.to_json(), "x") == SPEC


@needs_compiler
def test_a_table_has_their_columns_and_its_meter_computes_them(tmp_path):
    capture, out = tmp_path / "c.pcap", tmp_path / "flows.csv"
    frames = sorted(frames_of_sources(random.Random(3), 60, 300), key=lambda frame: frame[2])
    capture.write_bytes(pcap(LINK_ETHERNET, frames, SPEC.tick_ns, "<"))
    words = ["data", "extract", str(capture), "--packets", "1", "--sources", "--out", str(out)]
    done = CliRunner().invoke(command_line(words), words, catch_exceptions=False)
    assert done.exit_code == 0
    with out.open(newline="") as stream:
        rows = list(csv.DictReader(line for line in stream if not line.startswith("#")))
    features = [tuple(int(row[name]) for name in NAMES.values()) for row in rows]
    assert features == values([(data, time) for data, _, time in frames])
    assert meter_of(out) == with_sources(standard_spec(packets=1))


def test_they_are_described_with_their_units():
    of = {f.name: f for f in catalogue_of(SPEC)}
    flows, ports = of["src_new_flows"], of["src_ports_tried"]
    assert (flows.unit, flows.bits, ports.unit, ports.bits) == ("flow", 32, "port", 7)
    assert flows.meaning == "new flows of the source in 1.05 to 2.1 s"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: with_sources(PAIRS),
         "'src_new_flows' counts connections of a source, not flows of a host-pair"),
        (lambda: Sources(entries=12), "8 to 2^24 entries in sets of 8, got 12"),
        (lambda: Sources(window=41), "got 2^41"),
        (lambda: SourceFeature("x", "replies"), "expected new_flows, unanswered, ports, hosts"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(make, words):
    with pytest.raises(ModelError) as refused:
        make()
    assert words in str(refused.value)


def test_a_table_that_no_feature_reads_takes_no_bytes():
    assert table_bytes(Sources()) == 0
    assert table_bytes(with_sources(standard_spec(packets=1)).sources) > 0
