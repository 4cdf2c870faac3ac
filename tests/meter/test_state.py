# SPDX-License-Identifier: Apache-2.0
"""A meter that goes on from the state of another one says what one that was not stopped says."""

import random

import pyarrow.parquet as pq
import pytest
from generated import random_frames, random_spec
from traffic import labelled_capture

from n3ic.datasets.upc_aau import extract_stream
from n3ic.errors import DataError, N3icError
from n3ic.meter.compiled import CompiledMeter
from n3ic.meter.extract import extract
from n3ic.meter.packet import LINK_ETHERNET
from n3ic.meter.standard import standard_spec


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


def packets(path):
    return pq.read_table(path).to_pylist()


@pytest.mark.parametrize("damage", ["", "progress.json", "state", "flows"])
def test_an_extraction_goes_on_and_never_from_what_is_damaged(tmp_path, monkeypatch, damage):
    capture, work = tmp_path / "c.pcap", tmp_path / "work"
    capture.write_bytes(labelled_capture(60)[0])
    spec = standard_spec(packets=5)
    extract([capture], tmp_path / "want.parquet", spec)
    monkeypatch.setattr(extract_stream, "BATCH_PACKETS", 20)
    monkeypatch.setattr(extract_stream, "STEP_PACKETS", 100)
    real, calls = extract_stream.flow_table, []

    def stopped(*given):
        calls.append(1)
        if len(calls) == 18:
            raise KeyboardInterrupt
        return real(*given)

    monkeypatch.setattr(extract_stream, "flow_table", stopped)
    with pytest.raises(KeyboardInterrupt):
        extract_stream.extract_stream([capture], tmp_path / "f.parquet", spec, work)
    monkeypatch.setattr(extract_stream, "flow_table", real)
    assert not (tmp_path / "f.parquet").exists()
    hurt = [p for p in work.iterdir() if damage and damage in p.name]
    for path in hurt:
        path.write_bytes(path.read_bytes()[:-3] + b"{{{")
    if damage == "flows":
        with pytest.raises(DataError, match="remove it, start again"):
            extract_stream.extract_stream([capture], tmp_path / "f.parquet", spec, work)
        return
    found = extract_stream.extract_stream([capture], tmp_path / "f.parquet", spec, work)
    assert found.passed == (0 if damage else 300)
    assert packets(tmp_path / "f.parquet") == packets(tmp_path / "want.parquet")
    assert not work.exists()


def test_an_extraction_may_be_stopped_more_than_once(tmp_path, monkeypatch):
    capture, work = tmp_path / "c.pcap", tmp_path / "work"
    capture.write_bytes(labelled_capture(60)[0])
    spec = standard_spec(packets=5)
    extract([capture], tmp_path / "want.parquet", spec)
    monkeypatch.setattr(extract_stream, "BATCH_PACKETS", 20)
    monkeypatch.setattr(extract_stream, "STEP_PACKETS", 100)
    real, left = extract_stream.flow_table, [0]

    def stopped(*given):
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt
        return real(*given)

    monkeypatch.setattr(extract_stream, "flow_table", stopped)
    for _ in range(2):
        left[0] = 8  # the sixth batch begins a second step
        with pytest.raises(KeyboardInterrupt):
            extract_stream.extract_stream([capture], tmp_path / "f.parquet", spec, work)
    found = extract_stream.extract_stream([capture], tmp_path / "f.parquet", spec, work)
    assert found.passed == 200
    assert packets(tmp_path / "f.parquet") == packets(tmp_path / "want.parquet")


def test_another_capture_begins_anew(tmp_path, monkeypatch):
    capture, work = tmp_path / "c.pcap", tmp_path / "work"
    capture.write_bytes(labelled_capture(60)[0])
    monkeypatch.setattr(extract_stream, "BATCH_PACKETS", 20)
    monkeypatch.setattr(extract_stream, "STEP_PACKETS", 100)
    monkeypatch.setattr(extract_stream, "write_rows", lambda tables, *rest: [*tables] and 1 / 0)
    with pytest.raises(ZeroDivisionError):
        extract_stream.extract_stream([capture], tmp_path / "f.parquet", standard_spec(), work)
    monkeypatch.undo()
    capture.write_bytes(labelled_capture(60, seed=1)[0])
    found = extract_stream.extract_stream([capture], tmp_path / "f.parquet", standard_spec(), work)
    extract([capture], tmp_path / "want.parquet", standard_spec())
    assert found.passed == 0
    assert packets(tmp_path / "f.parquet") == packets(tmp_path / "want.parquet")
