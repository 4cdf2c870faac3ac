# SPDX-License-Identifier: Apache-2.0
"""flow-exec tells another traffic by the rule of n3ic predict."""

import re
import subprocess

import numpy as np
import pytest

from n3ic.evaluation.out_of_distribution import OodMonitor
from n3ic.meter.standard import standard_spec
from n3ic.meter.verdicts import capture_features
from n3ic.model.inputs import RATE_UNIT, Field, InputSpec
from n3ic.targets.fuzz_traffic import fuzz_captures
from tests.support.flow_programs import compiled_flows
from tests.support.metered_models import metered_network


@pytest.fixture(scope="module")
def capture(tmp_path_factory):
    made = next(fuzz_captures(standard_spec(packets=6), 1, 4000))
    path = tmp_path_factory.mktemp("capture") / made.name
    path.write_bytes(made.data)
    return path


def known(model, capture, *, like):
    """The model, as trained on flows like the capture's, or on quite others."""
    columns = {n: v.astype(np.int64) for n, v in capture_features(model, capture).items()}
    rows = len(next(iter(columns.values())))
    if not like:
        columns = {n: v // 7 for n, v in columns.items()}
    label = np.arange(rows) % 3
    many = {n: np.tile(v, 9) for n, v in columns.items()}  # so many that they have a span
    bits = model.input.encode(many)
    return model.changed(input=model.input.with_rates(bits, np.tile(label, 9), many))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("like", "checked"),
    [(True, False), (False, False), pytest.param(False, True, marks=pytest.mark.slow)],
)
def test_the_program_warns_of_the_domain_as_predict_does(
    compiler, sanitize, tmp_path, capture, like, checked
):
    model = known(metered_network(standard_spec(packets=6)), capture, like=like)
    flags = sanitize if checked else ("-O0",)
    program = compiled_flows(compiler, model, tmp_path / "out", *flags)
    done = subprocess.run([program, capture], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0 and "runtime error" not in done.stderr, done.stderr
    watch = OodMonitor(model.input)
    columns = capture_features(model, capture)
    for start in range(0, len(next(iter(columns.values()))), 1000):  # of so few, it looks at all
        watch.add({n: v[start : start + 1000] for n, v in columns.items()})
    report = watch.report()
    assert report.rows > 400 and len(report.mixture) == 3
    assert report.traffic == ("same" if like else "another")
    warning_lines = [line for line in done.stderr.splitlines() if "not the traffic" in line]
    assert len(warning_lines) == len(report.lines())
    if not like:
        of = len({d.feature for d in report.drift})
        counted = re.search(
            r"(\d+) of (\d+) features have moved \(largest PSI ([\d.]+)", warning_lines[0]
        )
        assert (int(counted[1]), int(counted[2])) == (len(report.moved), of)
        assert float(counted[3]) == pytest.approx(report.drift[0].psi, abs=0.006)
        outside = re.search(
            r"([\d.]+)% of (\d+) flows are outside .*\(([\d.]+)% are", warning_lines[0]
        )
        assert int(outside[2]) == report.rows
        assert float(outside[1]) == pytest.approx(100 * report.outside, abs=0.06)
        assert float(outside[3]) == pytest.approx(100 * report.outside_bound, abs=0.06)


@pytest.mark.slow
@pytest.mark.parametrize("packets", [pytest.param(12, marks=pytest.mark.slow), 120])
def test_of_few_flows_the_program_says_what_predict_says(compiler, tmp_path, capture, packets):
    """Those that are unlike every class, or that they are too few to say."""
    model = known(metered_network(standard_spec(packets=6)), capture, like=False)
    program = compiled_flows(compiler, model, tmp_path / "out", "-Wall", "-Wextra", "-Werror")
    short = tmp_path / "short.pcap"
    data, end = capture.read_bytes(), 24
    for _ in range(packets):
        end += 16 + int.from_bytes(data[end + 8 : end + 12], "little")
    short.write_bytes(data[:end])
    done = subprocess.run([program, short], capture_output=True, text=True, timeout=600)
    watch = OodMonitor(model.input)
    watch.add(capture_features(model, short))
    report = watch.report()
    assert 0 < report.rows < 200
    warning_lines = [line for line in done.stderr.splitlines() if "traffic of the training" in line]
    assert len(warning_lines) == len(report.lines()) == 1
    assert (
        ("too few" in warning_lines[0])
        == ("too few" in report.lines()[0])
        == (report.traffic == "unknown")
    )
    counted = re.search(r"(\d+) of (\d+) features of (\d+) flows are unlike", warning_lines[0])
    expected = (len(report.unlike), len({d.feature for d in report.drift}), report.rows)
    assert (tuple(map(int, counted.groups())) if counted else (0, *expected[1:])) == expected


@pytest.mark.slow
def test_a_model_that_knows_no_rows_says_nothing(compiler, tmp_path, capture):
    model = metered_network(standard_spec(packets=6))
    program = compiled_flows(compiler, model, tmp_path / "out", "-Wall", "-Wextra", "-Werror")
    done = subprocess.run([program, capture], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0 and "traffic" not in done.stderr


def test_rates_of_other_numbers_of_classes_are_left_out():
    """A file may say anything."""
    one = Field("a", "thermometer", 1, 5, (5,), rates=(RATE_UNIT // 2,), class_rates=((9,), (3,)))
    other = Field("a", "thermometer", 1, 7, (7,), rates=(RATE_UNIT // 4,))
    watch = OodMonitor(InputSpec((one, other)))
    watch.add({"a": np.arange(400) % 10})
    assert watch.report().mixture == (1.0,)
