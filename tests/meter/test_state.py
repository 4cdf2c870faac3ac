# SPDX-License-Identifier: Apache-2.0
"""A meter that goes on from the state of another one says what one that was not stopped says."""

import gzip
import json
import os
import random
import signal
import threading
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from n3ic.errors import DataError, N3icError, N3icWarning
from n3ic.meter import extract as extracting
from n3ic.meter import stream as module
from n3ic.meter.capture import Capture
from n3ic.meter.checkpoints import CaptureSource
from n3ic.meter.compiled import CompiledMeter, Frames
from n3ic.meter.extract import extract
from n3ic.meter.packet import LINK_ETHERNET
from n3ic.meter.standard import standard_spec
from n3ic.model.meter_spec import Decision, MeterSpec, Window
from n3ic.targets.bench_tools import generated_frames, write_pcap
from tests.support.generated import random_frames, random_spec
from tests.support.traffic import labelled_capture


@pytest.mark.first_case
@pytest.mark.parametrize(
    "seed", [*range(7), *(pytest.param(n, marks=pytest.mark.slow) for n in range(7, 12))]
)
def test_a_restored_meter_goes_on(seed, quick_build, rows_of):
    r = random.Random(seed)
    spec, frames = random_spec(r), random_frames(r, 400)
    cut = r.randint(0, 400)
    with CompiledMeter(spec, LINK_ETHERNET) as meter:
        meter.count(frames[:cut])
        state = meter.save()
        want = rows_of(spec, meter.count(frames[cut:]))
        want += rows_of(spec, meter.finish())
        counters = meter.counters()
    with CompiledMeter(spec, LINK_ETHERNET) as meter:
        meter.count(frames[: r.randint(0, 400)])  # what it knew before is forgotten
        meter.restore(state)
        got = rows_of(spec, meter.count(frames[cut:]))
        got += rows_of(spec, meter.finish())
        assert meter.counters() == counters
        with pytest.raises(N3icError, match="a meter's state has"):
            meter.restore(state[:-1])
    assert got == want


def test_a_restored_window_knows_all_its_flows(quick_build, rows_of):
    """Few flows and buckets, so that each bucket counts."""
    spec = MeterSpec((), (), windows=(Window("same", 6, ("source",)),), decision=Decision(1))
    for seed in range(20):
        r = random.Random(seed)
        frames = random_frames(r, 60)
        with CompiledMeter(spec, LINK_ETHERNET) as meter:
            meter.count(frames[:30])
            state = meter.save()
            want = rows_of(spec, meter.count(frames[30:]))
        with CompiledMeter(spec, LINK_ETHERNET) as meter:
            meter.restore(state)
            assert rows_of(spec, meter.count(frames[30:])) == want


def sources_of(paths):
    return tuple(CaptureSource(str(path), path.name) for path in paths)


def progress_in(work):
    (file,) = work.glob("*.progress")
    return file


def packets(path):
    return pq.read_table(path).to_pylist()


@pytest.mark.first_case
@pytest.mark.parametrize("damage", ["", "progress", "state", "flows"])
def test_an_extraction_goes_on_and_never_from_what_is_damaged(tmp_path, monkeypatch, damage):
    capture, work = tmp_path / "c.pcap", tmp_path / "work"
    capture.write_bytes(labelled_capture(60)[0])
    spec = standard_spec(packets=5)
    extract([capture], tmp_path / "want.parquet", spec)
    monkeypatch.setattr(module, "BATCH_PACKETS", 20)
    monkeypatch.setattr(module, "STEP_PACKETS", 100)
    real, calls = module.flow_table, []

    def stopped(*given):
        calls.append(1)
        if len(calls) == 18:
            raise KeyboardInterrupt
        return real(*given)

    monkeypatch.setattr(module, "flow_table", stopped)
    with pytest.raises(KeyboardInterrupt):
        module.extract_stream([capture], tmp_path / "f.parquet", spec, work)
    monkeypatch.setattr(module, "flow_table", real)
    assert not (tmp_path / "f.parquet").exists()
    hurt = [p for p in work.iterdir() if damage and damage in p.name]
    for path in hurt:
        path.write_bytes(path.read_bytes()[:-3] + b"{{{")
    if damage == "flows":
        with pytest.raises(DataError, match="remove it, start again"):
            module.extract_stream([capture], tmp_path / "f.parquet", spec, work)
        return
    extraction = module.extract_stream([capture], tmp_path / "f.parquet", spec, work)
    assert extraction.passed == (0 if damage else 300)
    assert packets(tmp_path / "f.parquet") == packets(tmp_path / "want.parquet")
    assert not work.exists()


@pytest.mark.slow
def test_an_extraction_may_be_stopped_more_than_once(tmp_path, monkeypatch):
    capture, work = tmp_path / "c.pcap", tmp_path / "work"
    capture.write_bytes(labelled_capture(60)[0])
    spec = standard_spec(packets=5)
    extract([capture], tmp_path / "want.parquet", spec)
    monkeypatch.setattr(module, "BATCH_PACKETS", 20)
    monkeypatch.setattr(module, "STEP_PACKETS", 100)
    real, left = module.flow_table, [0]

    def stopped(*given):
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt
        return real(*given)

    monkeypatch.setattr(module, "flow_table", stopped)
    for _ in range(2):
        left[0] = 8  # the sixth batch begins a second step
        with pytest.raises(KeyboardInterrupt):
            module.extract_stream([capture], tmp_path / "f.parquet", spec, work)
    extraction = module.extract_stream([capture], tmp_path / "f.parquet", spec, work)
    assert extraction.passed == 200
    assert packets(tmp_path / "f.parquet") == packets(tmp_path / "want.parquet")


def test_another_capture_begins_anew(tmp_path, monkeypatch):
    capture, work = tmp_path / "c.pcap", tmp_path / "work"
    capture.write_bytes(labelled_capture(60)[0])
    monkeypatch.setattr(module, "BATCH_PACKETS", 20)
    monkeypatch.setattr(module, "STEP_PACKETS", 100)
    monkeypatch.setattr(module, "write_rows", lambda tables, *rest: [*tables] and 1 / 0)
    with pytest.raises(ZeroDivisionError):
        module.extract_stream([capture], tmp_path / "f.parquet", standard_spec(), work)
    monkeypatch.undo()
    capture.write_bytes(labelled_capture(60, seed=1)[0])
    extraction = module.extract_stream([capture], tmp_path / "f.parquet", standard_spec(), work)
    extract([capture], tmp_path / "want.parquet", standard_spec())
    assert extraction.passed == 0
    assert packets(tmp_path / "f.parquet") == packets(tmp_path / "want.parquet")


@pytest.fixture
def pieces(tmp_path):
    """A capture of 540 packets or so in three files."""
    whole = labelled_capture(60)[0]
    head, frames, at = whole[:24], [], 24
    while at < len(whole):
        size = 16 + int.from_bytes(whole[at + 8 : at + 12], "little")
        frames.append(whole[at : at + size])
        at += size
    paths = [tmp_path / f"{name}.pcap" for name in "abc"]
    for path, part in zip(paths, (frames[:150], frames[150:390], frames[390:]), strict=True):
        path.write_bytes(head + b"".join(part))
    return paths


def stop_after(monkeypatch, batches):
    """From now on an extraction is stopped when so many batches are metered."""
    real, left = module.flow_table, [batches]

    def stopped(*given):
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt
        return real(*given)

    monkeypatch.setattr(module, "BATCH_PACKETS", 20)
    monkeypatch.setattr(module, "STEP_PACKETS", 100)
    monkeypatch.setattr(module, "flow_table", stopped)


@pytest.mark.first_case
@pytest.mark.parametrize(
    ("batches", "capture", "packets_of_it", "parts"),
    [(5, 0, 0, 0), (7, 0, 100, 1), (12, 1, 60, 2), (18, 1, 160, 3), (25, 2, 20, 4)],
)
def test_an_extraction_goes_on_in_the_capture_in_which_it_was_stopped(
    pieces, tmp_path, monkeypatch, batches, capture, packets_of_it, parts
):
    spec, work = standard_spec(packets=5), tmp_path / "work"
    want = extract(pieces, tmp_path / "want.parquet", spec, one_stream=True)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        stop_after(patch, batches)
        module.extract_stream(pieces, tmp_path / "f.parquet", spec, work)
    if parts:
        state = json.loads(progress_in(work).read_bytes())
        assert (state["capture"], state["packets"], state["parts"]) == (
            capture,
            packets_of_it,
            parts,
        )
    extraction = module.extract_stream(pieces, tmp_path / "f.parquet", spec, work)
    passed = packets_of_it + (0, 150, 390)[capture]
    assert (extraction.flows, extraction.passed, extraction.damaged) == (want.flows, passed, ())
    assert (extraction.counters["packets"], extraction.counters["late"]) == (
        want.packets,
        want.late,
    )
    assert packets(tmp_path / "f.parquet") == packets(tmp_path / "want.parquet")


@pytest.mark.first_case
@pytest.mark.parametrize("steps", [0, 1, 2, 3])
def test_a_state_remains_until_the_next_one_is_complete(pieces, tmp_path, monkeypatch, steps):
    work, real, done = tmp_path / "work", module.write_atomic, []

    def stopped(path, data):
        if path.suffix == ".progress":
            if len(done) == steps:
                raise KeyboardInterrupt
            done.append(path)
        real(path, data)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        stop_after(patch, 99)
        patch.setattr(module, "write_atomic", stopped)
        module.extract_stream(pieces, tmp_path / "f.csv", standard_spec(), work)
    stream = module.StreamSteps(sources_of(pieces), standard_spec(), work)
    assert (stream.progress.parts, bool(stream.state)) == (steps, steps > 0)


def test_captures_that_are_no_parts_of_one_are_an_error(pieces, tmp_path, monkeypatch):
    spec, work = standard_spec(), tmp_path / "work"
    header = bytearray(pieces[2].read_bytes())
    header[20] = 101
    pieces[2].write_bytes(header)
    with pytest.raises(DataError, match=r"c\.pcap: its link type is 101 \(RAW\), the first"):
        module.extract_stream(pieces, tmp_path / "f.csv", spec, work)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        stop_after(patch, 12)
        module.extract_stream(pieces, tmp_path / "f.csv", spec, work)
    progress = progress_in(work)
    progress.write_text(
        json.dumps({**json.loads(progress.read_bytes()), "packets": 241, "offset": -1})
    )
    monkeypatch.setattr(module, "BATCH_PACKETS", 20)
    with pytest.raises(DataError, match=r"b\.pcap: shorter than when it was read before"):
        module.extract_stream(pieces, tmp_path / "f.csv", spec, work)
    assert not (tmp_path / "f.csv").exists()


@pytest.mark.first_case
@pytest.mark.parametrize("wrong", [True, 1.0, "1", None])
@pytest.mark.parametrize("name", ["capture", "packets", "offset", "parts"])
def test_progress_in_other_than_whole_numbers_is_not_sound(
    pieces, tmp_path, monkeypatch, name, wrong
):
    work = tmp_path / "work"
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        stop_after(patch, 12)
        module.extract_stream(pieces, tmp_path / "f.csv", standard_spec(), work)
    progress = progress_in(work)
    progress.write_text(json.dumps({**json.loads(progress.read_bytes()), name: wrong}))
    steps = module.StreamSteps(sources_of(pieces), standard_spec(), work)
    assert (steps.progress.packets, steps.state) == (0, b"")


@pytest.mark.first_case
@pytest.mark.parametrize("packed", [False, True])
def test_packets_before_a_state_are_read_again_only_where_the_capture_is_packed(
    pieces, tmp_path, monkeypatch, packed
):
    if packed:
        for path in pieces:
            path.write_bytes(gzip.compress(path.read_bytes()))
    read, real = [], Capture.dispatch

    def dispatch(capture, *given):
        read.append(Path(capture.name).name)
        return real(capture, *given)

    extract(pieces, tmp_path / "want.parquet", standard_spec(), one_stream=True)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        stop_after(patch, 12)
        extract(pieces, tmp_path / "f.parquet", standard_spec(), one_stream=True)
    monkeypatch.setattr(Capture, "dispatch", dispatch)
    extraction = extract(pieces, tmp_path / "f.parquet", standard_spec(), one_stream=True)
    # 60 of its 240 packets are behind it: a look more where they are passed over
    assert read == ["b.pcap"] * (3 if packed else 2) + ["c.pcap"] * 2
    assert (tmp_path / "f.parquet").read_bytes() == (tmp_path / "want.parquet").read_bytes()
    assert (extraction.captures, [*tmp_path.glob("*.parts")]) == (3, [])


@pytest.mark.first_case
@pytest.mark.parametrize("damaged", [True, False])
def test_damage_and_link_types_of_earlier_captures_are_told_after_an_interruption(
    pieces, tmp_path, monkeypatch, damaged
):
    if damaged:
        pieces[0].write_bytes(pieces[0].read_bytes()[:-7])
    for path in () if damaged else pieces:  # USER0, which is not read: each frame is counted
        content = bytearray(path.read_bytes())
        content[20] = 147
        path.write_bytes(content)
    monkeypatch.setattr(extracting, "require_read", lambda *given: None)

    def extraction_to(out):
        with pytest.warns(N3icWarning):
            return extract(pieces, tmp_path / out, standard_spec(), one_stream=True)

    want = extraction_to("want.csv")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        stop_after(patch, 22)
        extract(pieces, tmp_path / "f.csv", standard_spec(), one_stream=True)
    assert progress_in(tmp_path / "f.csv.parts")
    extraction = extraction_to("f.csv")
    assert want.links == ({} if damaged else {"147 (USER0)": want.packets})
    assert (extraction.links, extraction.damaged, extraction.packets) == (
        want.links,
        want.damaged,
        want.packets,
    )
    assert len(extraction.damaged) == damaged


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::n3ic.errors.N3icWarning")
def test_a_worker_that_is_lost_leaves_its_steps_to_another(tmp_path):
    """Flows cross the cuts between pieces and between steps, and the table does not show it."""
    distributed = pytest.importorskip("distributed")
    frames = generated_frames(600_000)
    pieces = [tmp_path / f"{n}.pcap" for n in range(3)]
    for n, path in enumerate(pieces):
        rows = slice(n * 200_000, (n + 1) * 200_000)
        write_pcap(path, 1, Frames(frames.data, *(column[rows] for column in frames.columns)))
    spec = standard_spec()
    want = extract(pieces, tmp_path / "want.parquet", spec, one_stream=True)
    with (
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            dashboard_address=None,
            local_directory=tmp_path / "w",
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        client.run(small_steps)
        pids = client.run(os.getpid)
        (tmp_path / "far").mkdir()
        out = tmp_path / "far" / "f.parquet"
        killed = []

        def kill_once_it_kept_a_step():
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline and not killed:
                busy = [w for w, tasks in client.processing().items() if tasks]
                if busy and [*out.with_name("f.parquet.parts").glob("*.progress")]:
                    os.kill(pids[busy[0]], signal.SIGKILL)
                    killed.extend(busy)

        killer = threading.Thread(target=kill_once_it_kept_a_step)
        killer.start()
        extraction = extract(pieces, out, spec, one_stream=True, dask=cluster.scheduler_address)
        killer.join()
    assert killed
    assert (extraction.flows, extraction.packets, extraction.captures) == (
        want.flows,
        want.packets,
        3,
    )
    assert out.read_bytes() == (tmp_path / "want.parquet").read_bytes()
    assert [*out.parent.iterdir()] == [out]


def small_steps():
    """A step of few packets, slowly: time to lose a worker in the middle."""
    from n3ic.meter import stream

    real = stream.flow_table

    def slow(*given):
        time.sleep(0.05)
        return real(*given)

    stream.BATCH_PACKETS, stream.STEP_PACKETS, stream.flow_table = 5_000, 20_000, slow
