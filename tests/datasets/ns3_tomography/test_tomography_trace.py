# SPDX-License-Identifier: Apache-2.0
"""The trace's format, what a missing delay is, and the tables that are made of it."""

import json
import lzma
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from n3ic.data.split import split
from n3ic.datasets.ns3_tomography import BUNDLED, DATASET, USECASE
from n3ic.datasets.ns3_tomography import trace as traces
from n3ic.datasets.ns3_tomography.table import load, queue_tables
from n3ic.errors import DataError, N3icWarning, UsageError
from n3ic.training.input_choice import choose_input


@pytest.fixture(scope="module")
def table():
    return DATASET.load()


def stream(delays, occupied, interval=10_000_000, link=100.0):
    """What the simulator would write: two probes of one path, a kept one of another."""
    paths = [["tor0_server0"], ["tor0_server0"], ["tor1_agg0", "agg0_tor0", "tor0_server0"]]
    header = {
        "stream": traces.STREAM, "intervals": len(delays), "duration_s": 1, "warmup_s": 1,
        "link_mbps": link, "load": 0.5, "incast": 4, "queue_packets": 64, "queue_bytes": 96128,
        "packet_bytes": 1502, "answer_bytes": 1000, "other_pod": 0.8, "other_tor": 0.1,
        "focus": 1, "interval_ns": interval, "propagation_us": 2, "seed": 1, "run": 1,
        "sampled_at": 0.05, "queues": ["tor0_server0", "tor1_agg0", "agg0_tor0"],
        "probes": [
            {"server": i + 1, "source_port": 20000, "kept": i != 1, "path": p}
            for i, p in enumerate(paths)
        ],
    }  # fmt: skip
    records = np.concatenate([delays, occupied], axis=1).astype("<u4")
    return json.dumps(header).encode() + b"\n" + records.tobytes()


def small(rows=60, seed=0, **more):
    rng = np.random.default_rng(seed)
    delays = rng.integers(0, 10_000_000, (rows, 3))
    return traces.from_stream(stream(delays, rng.integers(0, 96128, (rows, 3)), **more))


def test_missing_and_late_delays_are_255_and_nothing_lies_between():
    interval = 10_000_000
    given_ns = np.array([0, 39_999, 40_000, interval - 1, interval, 0xFFFFFFFF], dtype=np.uint32)
    units = traces.quantise_delays(given_ns, interval)
    assert units.tolist() == [0, 0, 1, 249, 255, 255]


@pytest.mark.parametrize("interval", [1_000_000, 100_000, 12_345])
def test_delays_scale_with_the_interval(interval):
    last = traces.quantise_delays(np.array([interval - 1], dtype=np.uint32), interval)
    assert last.tolist() == [249]


@given(st.integers(0, 96128), st.integers(0, 64))
def test_a_whole_threshold_is_compared_exactly(occupied, packets):
    quarters = traces.quantise_occupancy(np.array([occupied], dtype=np.uint32), 1502)
    assert (quarters[0] > packets * traces.QUARTERS) == (occupied > packets * 1502)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_bytes_survive_the_file(rows, seed):
    trace = small(rows, seed)
    again = traces.parse(trace.to_bytes())
    assert np.array_equal(again.delays, trace.delays)
    assert np.array_equal(again.occupancy, trace.occupancy)
    assert again.header == json.loads(json.dumps(trace.header))


def test_only_the_kept_probes_become_columns():
    trace = small()
    assert trace.paths == ("owd_tor0", "owd_tor1_agg0")
    assert trace.delays.shape == (60, 2)
    assert trace.occupancy.shape == (60, 3)


@pytest.mark.parametrize(
    ("damage", "word"),
    [
        (lambda b: b[:-1], "bytes of columns"),
        (lambda b: b + b"x", "bytes of columns"),
        (lambda b: b"other\n" + b, "first line"),
        (lambda b: traces.MAGIC + b"{}\n", "header"),
        (lambda b: traces.MAGIC + b"[" * 100, "does not end"),
        (lambda b: b.replace(b'"rows": 60', b'"rows": 61', 1), "contradicts"),
        (lambda b: b.replace(b'"u1"', b'"f8"', 1), "contradicts"),
    ],
)
def test_damage_is_named(damage, word):
    with pytest.raises(DataError, match=word):
        traces.parse(damage(small().to_bytes()))


def test_delays_that_the_code_does_not_have_are_refused():
    data = bytearray(small().to_bytes())
    body = len(data) - 60 * 2 - 60 * 3 * (2 if b'"u2"' in data else 1)
    data[body] = 252
    with pytest.raises(DataError, match="255 where it is missing"):
        traces.parse(bytes(data))


def test_files_are_refused_that_are_cut_or_foreign(tmp_path):
    whole = small().save(tmp_path / "a.tomo.xz").read_bytes()
    for name, data in {
        "cut": whole[:-20],
        "long": whole + b"abc",
        "plain": b"time,delay\n1,2\n",
    }.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(DataError, match=name):
            traces.read(tmp_path / name)
    (tmp_path / "bomb").write_bytes(lzma.compress(b"\n" + bytes(1000)))
    with pytest.raises(DataError, match="first line"):
        traces.read(tmp_path / "bomb")
    with pytest.raises(DataError, match="cannot be read"):
        traces.read(tmp_path / "absent")


def test_a_folder_of_runs_is_one_table_and_other_simulations_do_not_mix(tmp_path):
    small(seed=1).save(tmp_path / "1.tomo.xz")
    small(seed=2).save(tmp_path / "2.tomo.xz")
    joined = load(tmp_path)
    assert len(joined) == 120
    assert [r["rows"] for r in joined.trace_header["runs"]] == [60, 60]
    small(seed=3, link=1000.0).save(tmp_path / "3.tomo.xz")
    with pytest.raises(DataError, match="options differ"):
        load(tmp_path)


def test_other_link_speeds_have_their_own_unit(tmp_path):
    path = small(interval=1_000_000, link=1000.0).save(tmp_path / "fast.tomo.xz")
    assert {f.unit for f in load(path).catalogue} == {"x 4 us"}


def test_the_bundled_trace_is_the_one_of_the_card(table):
    assert len(table) == 30_000
    assert len([n for n in table.features if n.startswith("owd_")]) == 19
    assert len(table.queues) == 17
    assert table.sha256 in DATASET.card
    assert BUNDLED in DATASET.card
    assert table.time_order
    assert table.synthetic


def test_every_path_is_distinct_and_covers_the_queues(table):
    paths = [tuple(p["path"]) for p in table.trace_header["paths"]]
    assert len(set(paths)) == 19
    assert {q for p in paths for q in p} == set(table.queues)
    others = [tuple(p["path"]) for p in table.trace_header["other_probes"]]
    assert len(others) == 12
    assert set(others) <= set(paths)


def test_the_least_delay_through_a_queue_is_a_feature_where_several_probes_cross_it(table):
    paths = {p["name"]: p["path"] for p in table.trace_header["paths"]}
    crossing = {q: [n for n, path in paths.items() if q in path] for q in table.queues}
    shared = {q: names for q, names in crossing.items() if len(names) > 1}
    assert set(table.features) - set(paths) == {f"least_{q}" for q in shared}
    assert len(crossing["tor0_server0"]) == 19
    for queue, names in shared.items():
        least = table.matrix(names).min(axis=1)
        assert np.array_equal(table.features[f"least_{queue}"], least)


def test_the_papers_recipe_reads_the_19_delays_as_they_are(table):
    (queue,) = queue_tables(table, "0").values()
    spec, _ = choose_input(queue, USECASE.recipes["paper"])
    assert [f.feature for f in spec.fields] == [n for n in table.features if n.startswith("owd_")]
    assert spec.n_bits == 152


def test_the_test_rows_of_the_time_split_are_a_run_of_their_own(table):
    (tab,) = queue_tables(table, "0").values()
    borders = np.cumsum([r["rows"] for r in table.trace_header["runs"]])
    parts = split(tab, "time", 0)
    assert parts.test[0] in borders
    assert max(parts.train[-1], parts.validation[-1]) < parts.test[0]


def test_labels_follow_the_threshold(table):
    low, high = (queue_tables(table, "tor1_agg0", t)["tor1_agg0"].label for t in (5, 20))
    assert ((table.occupancy["tor1_agg0"] > 20) == low).all()
    assert (high <= low).all()
    assert high.sum() < low.sum()


def test_every_queue_is_worth_learning_at_the_default(table):
    tables = USECASE.tasks(table, {o.name: o.default for o in USECASE.options})
    assert len(tables) == 17
    assert all(0.1 < t.label.mean() < 0.5 for t in tables.values())


def test_queues_are_named_or_numbered_and_wrong_ones_listed(table):
    assert list(queue_tables(table, "2,tor0_server0")) == ["agg0_tor0", "tor0_server0"]
    with pytest.raises(UsageError, match=r"0\.\.16"):
        queue_tables(table, "17")


def test_queues_that_cannot_be_learned_are_left_out_with_a_word(table):
    changed_table = replace(table, occupancy=dict(table.occupancy) | {"tor1_agg0": 0 * table.label})
    with pytest.warns(N3icWarning, match="tor1_agg0"):
        assert len(queue_tables(changed_table)) == 16
    with pytest.raises(UsageError, match="threshold"):
        queue_tables(changed_table, "tor1_agg0")


def test_a_queue_that_fills_in_the_test_rows_alone_cannot_be_learned(table):
    late = np.zeros(len(table), dtype=np.int64)
    late[-3000:] = 100
    changed_table = replace(table, occupancy=dict(table.occupancy) | {"tor1_agg0": late})
    with pytest.raises(UsageError, match="tor1_agg0 holds more than 10 packets in 0 of the first"):
        queue_tables(changed_table, "tor1_agg0")


def test_rows_keep_the_occupancy(table):
    part = table.rows(np.arange(7))
    assert len(part) == 7
    assert all(len(v) == 7 for v in part.occupancy.values())
