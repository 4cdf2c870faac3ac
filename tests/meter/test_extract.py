# SPDX-License-Identifier: Apache-2.0
"""Many captures, one table: the same bytes however they were metered, and nothing lost."""

import fcntl
import itertools
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pyarrow.ipc
import pyarrow.parquet
import pytest

from n3ic.errors import DataError, MissingDependencyError, N3icWarning, UsageError
from n3ic.meter import extract as module
from n3ic.meter.capture import libpcap
from n3ic.meter.extract import extract, find_captures
from n3ic.meter.labels import read_labels
from n3ic.meter.records import left_out
from n3ic.meter.standard import standard_spec
from n3ic.model.meter_spec import MeteredFeature, MeterSpec, Register
from n3ic.targets.bench_tools import generated_frames, write_pcap
from tests.support.traffic import labelled_capture, pcap, udp

try:
    libpcap()
except MissingDependencyError as error:
    pytest.skip(str(error), allow_module_level=True)

SPEC = MeterSpec((Register("n", "count"),), (MeteredFeature("n", "n"),))
A, B = (10, 0, 0, 1), (10, 0, 0, 2)


def questions(*times, port=1000):
    return pcap([(t, udp(A, B, (port, 53), 20)) for t in times])


@pytest.fixture
def folder(tmp_path):
    """Five captures, one cut short, one that is none; and a file of another kind."""
    there = tmp_path / "day"
    (there / "b").mkdir(parents=True)
    (there / "a.pcap").write_bytes(labelled_capture(40, 1)[0])
    (there / "b" / "a.pcap").write_bytes(labelled_capture(30, 2)[0])
    (there / "b" / "no-suffix").write_bytes(labelled_capture(20, 3)[0])
    (there / "cut.pcap").write_bytes(questions(0, 1, 2, port=9)[:-7])
    (there / "none.pcap.gz").write_bytes(b"no capture")
    (there / "notes.txt").write_text("no capture either")
    return there


def rows(path):
    return pyarrow.parquet.read_table(path).to_pylist()


@pytest.mark.first_case
@pytest.mark.filterwarnings("ignore::n3ic.errors.N3icWarning")
@pytest.mark.parametrize("name", ["f.parquet", "f.csv"])
def test_interrupted_or_not_and_whatever_jobs_the_bytes_are_the_same(
    folder, tmp_path, name, monkeypatch
):
    (tmp_path / "l.csv").write_bytes(labelled_capture(40, 1)[1])
    labels = read_labels(tmp_path / "l.csv", "table")
    one, two, three = (tmp_path / n / name for n in ("one", "two", "three"))
    for out in (one, two, three):
        out.parent.mkdir()
    first = extract([folder], one, standard_spec(), labels=labels)
    assert extract([folder], two, standard_spec(), labels=labels, jobs=2) == first
    metered = []

    def interrupted(path, *arguments, _meter=module._meter_part):
        metered.append(path)
        if len(metered) == 3:
            raise KeyboardInterrupt
        return _meter(path, *arguments)

    monkeypatch.setattr(module, "_meter_part", interrupted)
    with pytest.raises(KeyboardInterrupt):
        extract([folder], three, standard_spec())
    assert [p.name for p in three.parent.iterdir()] == [f"{name}.parts"]
    assert len(list((three.parent / f"{name}.parts").iterdir())) == 4
    extraction = extract([folder], three, standard_spec(), labels=labels)
    assert (extraction.kept, extraction.flows, extraction.labels) == (2, first.flows, first.labels)
    assert len(metered) == 3 + 3
    for out in (one, two, three):
        assert out.read_bytes() == one.read_bytes()
        assert not any(p.is_dir() for p in out.parent.iterdir())


def test_damaged_captures_are_named_and_counted_and_the_others_are_there(folder, tmp_path):
    with pytest.warns(N3icWarning) as recorder:
        extraction = extract([folder], tmp_path / "f.parquet", SPEC)
    assert [str(w.message) for w in recorder] == list(extraction.damaged)
    cut, none = extraction.damaged
    assert cut.startswith(f"{folder}/cut.pcap: the capture ends early")
    assert none.startswith(f"{folder}/none.pcap.gz: not a capture that libpcap reads")
    assert none.endswith("it is left out")
    assert extraction.captures == 5
    captures = dict.fromkeys(row["capture"] for row in rows(tmp_path / "f.parquet"))
    assert [*captures] == ["a.pcap", "b/a.pcap", "b/no-suffix", "cut.pcap"]
    assert [r["n"] for r in rows(tmp_path / "f.parquet") if r["capture"] == "cut.pcap"] == [2]


def test_captures_are_named_as_they_were_given(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.warns(N3icWarning):
        extraction = extract(["day/cut.pcap", "day/none.pcap.gz", "day/a.pcap"], "f.parquet", SPEC)
    assert [line.split(":")[0] for line in extraction.damaged] == [
        "day/cut.pcap",
        "day/none.pcap.gz",
    ]


def test_damage_that_was_found_before_an_interruption_is_told_after_it(
    folder, tmp_path, monkeypatch
):
    monkeypatch.setattr(module, "write_rows", interrupt)
    with pytest.raises(KeyboardInterrupt):
        extract([folder], tmp_path / "f.parquet", SPEC)
    monkeypatch.undo()
    with pytest.warns(N3icWarning) as recorder:
        extraction = extract([folder], tmp_path / "f.parquet", SPEC)
    assert [str(w.message) for w in recorder] == list(extraction.damaged)
    assert (extraction.kept, len(extraction.damaged)) == (4, 2)


def test_labels_of_one_capture_are_not_those_of_another(tmp_path):
    for name in ("a.pcap", "b.pcap"):
        (tmp_path / name).write_bytes(questions(0))
    flow = "UDP,10.0.0.1,1000,10.0.0.2,53"
    table = f"pcap,l4,src,sport,dst,dport,ndpi_proto\na.pcap,{flow},DNS\nc.pcap,{flow},NTP\n"
    (tmp_path / "l.csv").write_text(table)
    labels = read_labels(tmp_path / "l.csv", "ndpi")
    captures = [tmp_path / "a.pcap", tmp_path / "b.pcap"]
    for more in ({}, {"one_stream": True}):
        extraction = extract(captures, tmp_path / "f.parquet", SPEC, labels=labels, **more)
        labels_read = {row["capture"]: row["label"] for row in rows(tmp_path / "f.parquet")}
        assert labels_read == ({"a.pcap": "DNS", "b.pcap": ""} if not more else {"b.pcap": ""})
        assert extraction.labels == (
            {"matched": 1, "unmatched": 1} if not more else {"unmatched": 1}
        )


@pytest.mark.filterwarnings("ignore::n3ic.errors.N3icWarning")
def test_progress_counts_captures_bytes_packets_and_flows(folder, tmp_path):
    steps = []
    extraction = extract([folder], tmp_path / "f.parquet", SPEC, progress=steps.append)
    assert [t.captures for t in steps] == [0, 1, 2, 3, 4, 5]
    assert {t.of for t in steps} == {5}
    assert (steps[0].share, steps[0].packets, steps[0].flows) == (0, 0, 0)
    assert all(a.share < b.share and a.flows <= b.flows for a, b in itertools.pairwise(steps))
    assert (steps[-1].share, steps[-1].packets, steps[-1].flows) == (
        1,
        extraction.packets,
        extraction.flows,
    )
    assert extraction.packets > extraction.flows > 0


def test_progress_of_one_stream_counts_its_captures(tmp_path):
    pieces = [tmp_path / name for name in ("a.pcap", "b.pcap")]
    pieces[0].write_bytes(questions(0, 1))
    pieces[1].write_bytes(questions(2, port=9))
    steps = []
    extract(pieces, tmp_path / "f.parquet", SPEC, one_stream=True, progress=steps.append)
    assert all((t.of, t.share) == (2, 0) and t.captures <= 2 for t in steps)
    assert (steps[-1].packets, steps[-1].flows) == (3, 2)


def interrupt(*_):
    raise KeyboardInterrupt


def test_a_capture_that_changed_is_metered_anew(tmp_path, monkeypatch):
    files = [tmp_path / name for name in ("a.pcap", "b.pcap")]
    for file in files:
        file.write_bytes(questions(0))
    monkeypatch.setattr(module, "write_rows", interrupt)
    for spec in (SPEC, standard_spec()):
        with pytest.raises(KeyboardInterrupt):
            extract(files, tmp_path / "f.parquet", spec)
    monkeypatch.undo()
    files[1].write_bytes(questions(0, 1))
    extraction = extract(files, tmp_path / "f.parquet", SPEC)
    assert (extraction.kept, extraction.packets) == (1, 3)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.pcap", "b.pcap", "f.parquet"]


def test_a_part_has_another_name_when_anything_of_it_changes(tmp_path):
    capture, other = tmp_path / "a.pcap", tmp_path / "b.pcap"
    for path in (capture, other):
        path.write_bytes(questions(0))
        os.utime(path, (1, 1))

    def name(path=capture, called="a", spec=SPEC):
        part = module.checkpoint_file(tmp_path, (module.CaptureSource(str(path), called),), spec)
        assert part.parent == tmp_path and module.STEP_FILE.fullmatch(part.name)
        return part

    names = [name(), name(other), name(called="b"), name(spec=standard_spec())]
    assert name() == names[0]
    os.utime(capture, (1, 2))
    names.append(name())
    capture.write_bytes(questions(0, 1))
    os.utime(capture, (1, 2))
    names.append(name())
    assert len({*names}) == 6


def test_when_no_capture_can_be_read_nothing_is_left(tmp_path):
    for name in ("a.pcap", "b.pcap"):
        (tmp_path / name).write_bytes(b"text")
    with pytest.raises(DataError, match=r"none of the captures can be read: .*a\.pcap"):
        extract([tmp_path / "a.pcap", tmp_path / "b.pcap"], tmp_path / "f.csv", SPEC)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.pcap", "b.pcap"]


def test_pieces_of_one_capture_go_on_and_others_end_with_their_file(tmp_path):
    pieces = [tmp_path / name for name in ("p10.pcap", "p9.pcap")]
    pieces[0].write_bytes(questions(2, 3))
    pieces[1].write_bytes(questions(0, 1))
    extract(pieces, tmp_path / "f.parquet", SPEC)
    assert [(r["n"], r["decided"]) for r in rows(tmp_path / "f.parquet")] == [(2, "capture")] * 2
    extract(pieces, tmp_path / "f.parquet", SPEC, one_stream=True)
    (row,) = rows(tmp_path / "f.parquet")
    assert (row["n"], row["capture"], row["last_us"] - row["first_us"]) == (
        4,
        "p10.pcap",
        3_000_000,
    )
    header = bytearray(questions())
    header[20] = 101
    pieces[1].write_bytes(header)
    message = r"link type is 101 \(RAW\), the first capture has 1 \(EN10MB\)"
    with pytest.raises(DataError, match=message):
        extract(pieces, tmp_path / "f.parquet", SPEC, one_stream=True)


def test_a_capture_alone_is_read_once(tmp_path, monkeypatch):
    """It may be standard input, which cannot be read for its first time stamp before."""
    monkeypatch.setattr(module, "_first_time", lambda source: pytest.fail("it is read before"))
    (tmp_path / "c.pcap").write_bytes(questions(0, 1))
    extract([tmp_path / "c.pcap"], tmp_path / "f.parquet", SPEC, one_stream=True)
    assert [r["n"] for r in rows(tmp_path / "f.parquet")] == [2]


def test_a_table_does_not_show_how_its_rows_came(tmp_path, monkeypatch):
    (tmp_path / "c.pcap").write_bytes(labelled_capture(40)[0])
    monkeypatch.setattr("n3ic.meter.rows.ROW_GROUP", 7)
    extract([tmp_path / "c.pcap"], tmp_path / "one.parquet", SPEC)
    monkeypatch.setattr("n3ic.meter.records.BATCH_PACKETS", 5)
    extract([tmp_path / "c.pcap"], tmp_path / "two.parquet", SPEC)
    assert (tmp_path / "one.parquet").read_bytes() == (tmp_path / "two.parquet").read_bytes()
    groups = pyarrow.parquet.ParquetFile(tmp_path / "one.parquet").metadata
    assert [groups.row_group(i).num_rows for i in range(groups.num_row_groups)] == [7] * 5 + [5]


def test_captures_of_a_folder_are_files_that_are_not_hidden(tmp_path):
    for name in ("b.pcap", ".a.pcap", "sub.pcap/.c.pcap", "sub.pcap/d.pcap.gz", "c/e", "f.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(questions(0) if name == "c/e" else b"")
    sources = find_captures([tmp_path, tmp_path / "f.txt"])
    assert [source.name for source in sources] == ["b.pcap", "c/e", "sub.pcap/d.pcap.gz", "f.txt"]
    assert [source.path for source in sources[:2]] == [f"{tmp_path}/b.pcap", f"{tmp_path}/c/e"]


def test_an_empty_piece_of_one_capture_comes_last(tmp_path):
    for name, times in (("a", ()), ("b", (2**31 - 1.7e9 - 1,)), ("c", (0,))):
        (tmp_path / f"{name}.pcap").write_bytes(questions(*times))
    sources = find_captures([tmp_path])
    assert [s.name for s in sorted(sources, key=module._first_time)] == [
        "c.pcap",
        "b.pcap",
        "a.pcap",
    ]
    assert module._first_time(sources[2]) == 1_700_000_000 * 10**9


def test_captures_of_no_bytes_are_no_share_of_the_work(tmp_path):
    steps = []
    for name in ("a.pcap", "b.pcap"):
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(DataError, match="none of the captures can be read"):
        extract([tmp_path], tmp_path / "f.csv", SPEC, progress=steps.append)
    assert [(t.captures, t.share) for t in steps] == [(0, 0), (1, 0), (2, 0)]


def test_standard_input_goes_alone_and_a_missing_file_is_found_first(tmp_path):
    with pytest.raises(UsageError, match="cannot be combined"):
        find_captures(["-", tmp_path])
    (tmp_path / "c.pcap").write_bytes(questions(0))
    with pytest.raises(DataError, match="No such file"):
        find_captures([tmp_path / "c.pcap", tmp_path / "d.pcap"])


def test_files_of_others_and_another_extraction_are_left_alone(tmp_path):
    for name in ("a.pcap", "b.pcap"):
        (tmp_path / name).write_bytes(questions(0))
    captures, parts = [tmp_path / "a.pcap", tmp_path / "b.pcap"], tmp_path / "f.csv.parts"
    parts.mkdir()
    (parts / ".mine").write_text("")
    with pytest.raises(UsageError, match=r"holds \.mine, which n3ic did not write"):
        extract(captures, tmp_path / "f.csv", SPEC)
    (parts / ".mine").unlink()
    handle = os.open(parts, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    with pytest.raises(UsageError, match="is being written by another n3ic"):
        extract(captures, tmp_path / "f.csv", SPEC)
    os.close(handle)
    assert extract(captures, tmp_path / "f.csv", SPEC).flows == 2
    assert not parts.exists()


@pytest.mark.parametrize("how", ["damaged", "cut short"])
def test_a_damaged_part_is_named(tmp_path, monkeypatch, how):
    for name in ("a.pcap", "b.pcap"):
        (tmp_path / name).write_bytes(questions(0))
    captures = [tmp_path / "a.pcap", tmp_path / "b.pcap"]
    monkeypatch.setattr(module, "write_rows", interrupt)
    with pytest.raises(KeyboardInterrupt):
        extract(captures, tmp_path / "f.csv", SPEC)
    monkeypatch.undo()
    part = min((tmp_path / "f.csv.parts").glob("*.flows"))
    whole = part.read_bytes()
    part.write_bytes(whole[:300])
    if how == "cut short":
        pyarrow.ipc.new_stream(part, pyarrow.ipc.open_stream(whole).schema).close()
    with pytest.raises(DataError, match=f"is {how}; remove it"):
        extract(captures, tmp_path / "f.csv", SPEC)
    part.unlink()
    assert extract(captures, tmp_path / "f.csv", SPEC).kept == 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::n3ic.errors.N3icWarning")
def test_a_dask_cluster_makes_the_same_table(folder, tmp_path, monkeypatch):
    distributed = pytest.importorskip("distributed")
    monkeypatch.chdir(tmp_path)
    extract(["day"], "here.parquet", standard_spec())
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, local_directory=tmp_path / "w"
    ) as cluster:
        extract(["day"], "far.parquet", standard_spec(), dask=cluster.scheduler_address)
    assert (tmp_path / "far.parquet").read_bytes() == (tmp_path / "here.parquet").read_bytes()
    assert not (tmp_path / "far.parquet.parts").exists()


def test_flows_of_one_host_have_no_destination_even_where_there_are_none(tmp_path):
    spec = replace(SPEC, key="source-host", ends=())
    (tmp_path / "none.pcap").write_bytes(pcap([]))
    (tmp_path / "some.pcap").write_bytes(questions(0))
    extract([tmp_path / "none.pcap", tmp_path / "some.pcap"], tmp_path / "f.parquet", spec)
    assert [r["destination"] for r in rows(tmp_path / "f.parquet")] == [""]


@pytest.mark.slow
def test_ctrl_c_keeps_what_is_done_and_the_same_command_goes_on(tmp_path):
    write_pcap(tmp_path / "0.pcap", 1, generated_frames(200_000))
    names = [f"{i}.pcap" for i in range(12)]
    for name in names[1:]:
        shutil.copy(tmp_path / "0.pcap", tmp_path / name)
    command = [sys.executable, "-m", "n3ic", "data", "extract", *names, "--jobs", "2"]
    running = subprocess.Popen(
        command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    parts = tmp_path / "flows.parquet.parts"
    while running.poll() is None and not [*parts.glob("*.counted")]:
        time.sleep(0.01)
    os.killpg(running.pid, signal.SIGINT)
    _, errors = running.communicate(timeout=600)
    assert running.returncode == 130, errors
    assert "the same command resumes from there" in errors
    captures_done = len([*parts.glob("*.counted")])
    assert 0 < captures_done < 12
    assert not [*parts.glob(".*")]
    again = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert f"metered before: {captures_done} of 12 captures" in again.stdout
    extract([tmp_path / n for n in names], tmp_path / "one.parquet", standard_spec())
    assert (tmp_path / "flows.parquet").read_bytes() == (tmp_path / "one.parquet").read_bytes()
    assert not parts.exists()


def test_what_is_left_out_is_told_line_by_line():
    counts = {"not IP": 1234, "flow cache full": 2000, "tunnelled": 3000, "late": 4000}
    counts |= {"evicted": 5000, "back": 6000, "ahead": 7000, "steps": 8000}
    lines = [
        "put aside: 1,234 packets (not IP)",
        "put aside: 2,000 packets (flow cache full)",
        "in tunnels that the meter leaves closed: 3,000 packets",
        "after the end of their flow: 4,000 packets",
        "evicted: 5,000 flows, whose cache was full",
        "time stamps: 6,000 packets earlier than one before them, 7,000 more than an hour ahead, "
        "8,000 times the clock was set back",
    ]
    assert [*left_out(counts)] == lines
    for i, name in enumerate([*counts][:5]):
        assert [*left_out({name: counts[name]})] == [lines[i]]
    for name in ("back", "ahead", "steps"):
        (line,) = left_out({name: 1})
        assert line.count("0 ") == 2 and line.count("1 ") == 1
    assert [*left_out({})] == [*left_out(dict.fromkeys(counts, 0))] == []


def test_each_counter_is_told_by_its_name():
    names = (
        "packets",
        "late",
        "evicted",
        "back",
        "ahead",
        "steps",
        "tunnelled",
        "forgotten",
        *module.ASIDE,
    )
    counters = {name: 10 + i for i, name in enumerate(names)} | {"not IP": 0}
    with pytest.warns(N3icWarning) as warned:
        extraction = module._extracted(
            9, counters, {"matched": 4}, 3, ["a.pcap ends early"], reused=2
        )
    assert (extraction.flows, extraction.packets, extraction.late, extraction.evicted) == (
        9,
        10,
        11,
        12,
    )
    assert (
        extraction.back,
        extraction.ahead,
        extraction.steps,
        extraction.captures,
        extraction.kept,
    ) == (13, 14, 15, 3, 2)
    assert (extraction.tunnelled, extraction.forgotten) == (16, 17)
    assert extraction.aside == {name: counters[name] for name in module.ASIDE if name != "not IP"}
    assert (extraction.labels, extraction.damaged) == ({"matched": 4}, ("a.pcap ends early",))
    assert [str(w.message) for w in warned] == ["a.pcap ends early"]


def test_a_host_s_kind_stands_beside_its_label(tmp_path):
    (tmp_path / "hosts.csv").write_text(
        "network,label,kind\n10.0.0.0/8,honest,pages\n10.1.0.0/16,honest,\n0.0.0.0/0,attack,\n"
    )
    labels = read_labels(tmp_path / "hosts.csv", "hosts")
    kinds = [labels.kind(bytes([*first, 1, 1])) for first in ((10, 0), (10, 1), (11, 1))]
    assert kinds == ["pages", "", ""]  # the longest prefix counts, also without a kind
