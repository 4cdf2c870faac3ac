# SPDX-License-Identifier: Apache-2.0
"""Verdicts on a capture whose packets are lost, and how many flows a day its table has."""

from dataclasses import replace

import numpy as np
import pytest

import n3ic
from n3ic.errors import UsageError
from n3ic.evaluation.flow_rate import flows_a_day
from n3ic.meter.extract import extract
from n3ic.meter.records import meter_capture
from n3ic.meter.standard import standard_spec
from n3ic.studies.robustness.lost_packets import KEPT, capture_rows, metered
from n3ic.targets.fuzz_traffic import fuzz_captures
from tests.support.metered_models import metered_network
from tests.support.small_flows import CATALOGUE, feature, flows

SPEC = standard_spec(packets=6)


@pytest.fixture(scope="module")
def capture(tmp_path_factory):
    made = next(fuzz_captures(SPEC, 2, 3000))
    path = tmp_path_factory.mktemp("capture") / made.name
    path.write_bytes(made.data)
    return path


@pytest.mark.slow
def test_without_loss_the_flows_are_those_of_the_capture(capture):
    want = np.concatenate([records for records, _ in meter_capture(capture, SPEC)])
    columns = metered(capture, SPEC, 1.0, 0)
    assert len(columns) == len(want) > 200
    for name in ("first", "last", "packets", "features"):
        assert np.array_equal(columns[name], want[name])


def test_lost_packets_are_counted_by_nobody(capture):
    want = sum(int(r["packets"].sum()) for r, _ in meter_capture(capture, SPEC))
    packets = int(metered(capture, SPEC, 0.1, 0)["packets"].sum())
    assert 0.05 * want < packets < 0.2 * want
    again = metered(capture, SPEC, 0.1, 0)
    assert int(again["packets"].sum()) == packets


def test_rows_say_who_keeps_the_verdict(capture):
    model = metered_network(SPEC, extremes=False, classes=("a", "b"))
    whole, *lost = capture_rows(model, capture, 1)
    assert whole.shift == "whole capture" and whole.same == 1.0 and whole.accuracy is None
    classes = n3ic.predict(model, capture).classes
    assert (whole.rows, whole.called) == (len(classes), np.mean(classes == 1))
    assert [row.shift for row in lost] == [*KEPT]
    assert lost[1].same < 1.0 and lost[0].same > lost[1].same
    assert lost[1].rows < whole.rows
    empty = capture.with_name("empty.pcap")
    empty.write_bytes(capture.read_bytes()[:24])
    with pytest.raises(UsageError, match="no flow"):
        [*capture_rows(model, empty, 1)]


@pytest.mark.filterwarnings("ignore::n3ic.errors.N3icWarning")  # its times jump
def test_a_metered_table_says_its_flows_a_day(capture, tmp_path):
    out = tmp_path / "flows.parquet"
    extract([capture], out, SPEC)
    records = np.concatenate([r for r, _ in meter_capture(capture, SPEC)])
    seconds = np.ptp(records["first"].astype(np.int64)) * SPEC.tick_ns / 1e9
    flows_per_day = flows_a_day(flows(10), out)
    assert flows_per_day == pytest.approx(len(records) / seconds * 86_400, rel=1e-7)


def test_a_column_of_times_says_it_and_without_times_nothing_is_known():
    began = 1_500_000_000 + np.arange(100) * 10
    table = flows(100)
    assert flows_a_day(table) is None
    timed = replace(
        table,
        features={**table.features, "stime": began},
        catalogue=(*CATALOGUE, feature("stime", "s")),
    )
    assert flows_a_day(timed) == pytest.approx(100 / 990 * 86_400)
