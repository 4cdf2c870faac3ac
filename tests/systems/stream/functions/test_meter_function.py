# SPDX-License-Identifier: Apache-2.0
"""The function ``meter`` goes on with a new model when the model's file is replaced."""

import json
import warnings
from dataclasses import replace

import numpy as np
import pytest

from n3ic.errors import N3icWarning, UsageError
from n3ic.meter.capture import Capture
from n3ic.meter.standard import standard_spec
from n3ic.systems.stream import followed_model
from n3ic.systems.stream.functions.metering import MeterFunction
from n3ic.systems.stream.functions.packets import PacketView
from n3ic.systems.stream.functions.process import write_warnings
from tests.support.predicted_rows import predicted
from tests.support.stream_models import binary
from tests.support.traffic import labelled_capture

MODEL, NEXT = binary(1), binary(3)


class Shared:
    """Stands for a manager."""

    def alive(self):
        pass


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.setattr(followed_model, "EVERY_S", 0)
    (tmp_path / "c.pcap").write_bytes(labelled_capture(60)[0])
    MODEL.save(tmp_path / "now.n3ic")
    return tmp_path / "c.pcap"


def views_of(path):
    """Views of 16 packets each."""
    with Capture(path) as capture:
        packets = [*capture.packets()]
    for start in range(0, len(packets), 16):
        part = packets[start : start + 16]
        captured = np.array([len(data) for data, _, _ in part], dtype=np.uint32)
        offset = np.cumsum(captured, dtype=np.uint64) - captured
        data = np.frombuffer(b"".join(data for data, _, _ in part), dtype=np.uint8)
        length = np.array([length for _, length, _ in part], dtype=np.uint32)
        time = np.array([time for _, _, time in part], dtype=np.uint64)
        yield PacketView(data, offset, offset, captured, length, time, np.zeros_like(length))


@pytest.mark.parametrize("verdicts", [{}, {"a": "drop"}])
def test_open_flows_go_on_with_the_next_model(path, verdicts):
    """Also where packets go by the verdicts of their flows."""
    folder = path.parent
    options = {"model": str(folder / "now.n3ic"), "out": str(folder / "out"), "follow": True}
    function = MeterFunction({**options, "verdicts": verdicts}, (), Shared())
    pushes = {5: replace(NEXT, meter=standard_spec(packets=5)), 10: NEXT}
    begin = 0
    for number, view in enumerate(views_of(path)):
        if number in pushes:
            pushes[number].save(folder / "now.n3ic")
        if number == 5:
            with pytest.warns(N3icWarning, match=r"has another meter, .* goes on"):
                function.on_batch(view)
            continue
        if number == 10:
            begin = len((folder / "out").read_bytes().splitlines())
        function.on_batch(view)
    function.on_end()
    written = [json.loads(line) for line in (folder / "out").read_bytes().splitlines()]
    of_first, of_next = predicted(MODEL, path), predicted(NEXT, path)
    assert 0 < begin < len(of_first) == len(written)
    assert of_first[begin:] != of_next[begin:]
    for line, row in zip(written, of_first[:begin] + of_next[begin:], strict=True):
        scores = [row[f"score_{name}"] for name in MODEL.classes]
        assert (line["verdict"], line["margin"], line["scores"]) == (
            row["class"], row["margin"], scores,
        )  # fmt: skip
        assert all(line[name] == row[name] for name in ("source", "first_us", "packets"))


def test_a_refused_model_is_a_line_of_the_function(path, capsys):
    options = {"model": str(path.parent / "now.n3ic"), "out": str(path.parent / "out")}
    function = MeterFunction({**options, "follow": True}, (), Shared())
    (path.parent / "now.n3ic").write_bytes(b"")
    with warnings.catch_warnings():
        write_warnings("one")
        for view in views_of(path):
            function.on_batch(view)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("function one: ")
    assert line.endswith(f"the model {MODEL.digest[:12]} goes on")


def test_a_wrong_option_is_refused(path):
    options = {"model": str(path.parent / "now.n3ic"), "out": str(path.parent / "out")}
    with pytest.raises(UsageError, match=r"options.follow: expected true or false, got 'yes'"):
        MeterFunction({**options, "follow": "yes"}, (), Shared())
