# SPDX-License-Identifier: Apache-2.0
"""The demonstration of a stream: the loop as a person watches it."""

import json
import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from n3ic.errors import MissingDependencyError
from n3ic.exporters.xdp.layout import event_type
from n3ic.exporters.xdp.network.structure import structure_of
from n3ic.meter.compiled import CompiledMeter
from scripts.stream_demo import __main__
from scripts.stream_demo.__main__ import main
from scripts.stream_demo.loop import LoopFigures, _Loop, learn_settings
from scripts.stream_demo.traffic import METER, flows, trained
from tests.support.xdp_machine import clang, kernel, pins, run_folder

__all__ = ["clang", "kernel", "pins", "run_folder"]


def test_without_root_it_says_so(monkeypatch, capsys):
    monkeypatch.setattr(__main__.os, "geteuid", lambda: 1000)
    with pytest.raises(SystemExit, match="4"):
        main([])
    assert "needs root" in capsys.readouterr().err


def test_what_is_missing_is_told(monkeypatch, capsys):
    def gone(*_):
        raise MissingDependencyError("needs clang")

    monkeypatch.setattr(__main__.os, "geteuid", lambda: 0)
    monkeypatch.setattr(__main__, "run_loop", gone)
    assert main(["--json"]) == 4
    assert capsys.readouterr() == ("", "needs clang\n")


def test_what_it_learns_does_not_depend_on_the_clock():
    rng = np.random.default_rng(1)
    card, host = trained(rng)
    clients = flows(rng, 10_000, 200, changed=False)
    frames = [frame for client in clients for frame in client.frames]
    with CompiledMeter(METER, 1) as meter:
        records = meter.count([(data, len(data), i * 10) for i, data in enumerate(frames)])
    label = np.array([client.label for client in clients])
    events = np.zeros(len(records), event_type(METER, structure_of([card])))
    for name in ("source", "destination", "source_port", "address_bytes", "features"):
        events[name] = records[name]
    learned = []
    for minute in range(2):
        events["first"] = events["last"] = minute * 60_000_000_000 // METER.tick_ns
        rows = []
        learning = SimpleNamespace(
            add_rows=rows.append,
            decisions=[],
            learner=SimpleNamespace(running=card, settings=learn_settings(3)),
        )
        loop = _Loop(card, host, learning, LoopFigures(len(events)), 1)
        loop.process_batch(events, label)
        loop.finish()
        learned.append(np.concatenate([part.block for part in rows]))
    assert len(learned[0]) == len(events) == len({*learned[0].tolist()})
    assert (learned[0] == learned[1]).all()


@pytest.mark.exhaustive
def test_a_model_in_the_kernel_recovers_after_a_change(
    tmp_path, monkeypatch, capsys, clang, kernel, run_folder
):
    if os.geteuid():
        pytest.skip("needs root")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert main(["--flows", "4800", "--json"]) == 0
    loop = json.loads(capsys.readouterr().out)
    assert loop["flows"] >= 0.9 * 4800  # a busy machine may lose packets
    assert not loop["lost"] and not loop["unlike"] and not loop["failed"]
    first, after, last = (
        loop["summary"][name] for name in ("before the change", "after it", "at the end")
    )
    assert first["card"] > 0.9 and first["both"] > 0.9
    assert after["card"] < 0.7
    assert last["card"] > after["card"] + 0.2 and last["both"] > after["both"] + 0.2
    assert last["pushes"] >= 1 and last["kernel"] != first["kernel"]
    assert 0 < first["shunted"] < 0.5 and last["rest"] > 0.6
    links = [path.name for path in Path("/sys/class/net").iterdir()]
    assert not [name for name in links if name.startswith("n3icdemo")]
    assert not [*tmp_path.glob("n3ic-*")] and not [*(tmp_path / "run").glob("*/*")]
