# SPDX-License-Identifier: Apache-2.0
"""Networks of a ``card-exec`` that runs come, change and go by command, traffic flowing."""

import os
import shutil
import struct
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest

from n3ic.errors import N3icError, UsageError, VerifyError
from n3ic.model.random_models import random_model
from n3ic.systems.card.changes import change_of
from n3ic.systems.card.compile import software_card
from n3ic.systems.card.export import change_card, export_card
from n3ic.systems.card.frames import RequestFrame, joined, results_of, traffic, words_of
from n3ic.systems.card.host import changes
from tests.support import software_cards as cards

pytest.importorskip("scipy", reason="needs n3ic[card]")
pytestmark = [
    pytest.mark.skipif(not shutil.which("make"), reason="needs make"),
    pytest.mark.usefixtures("quick_build"),
]
FRAMES = 30  # of each graph, a phase of the traffic


@pytest.fixture(autouse=True)
def busy_machine(monkeypatch):
    """An answer may take a minute where others use the processors."""
    monkeypatch.setattr(changes, "_PATIENCE", 60.0)


@pytest.fixture(name="folder", scope="module")
def folder_fixture(tmp_path_factory) -> Path:
    """Models, a card without a policy and ``card-exec``."""
    folder = tmp_path_factory.mktemp("card")
    cards.models(folder)
    plan = cards.plan(folder, cards.text("host", beta='"input", "b"'))
    export_card(plan, folder / "card", verify=False)
    subprocess.run(["make", "-s", "-C", folder / "card", "card-exec", "CFLAGS=-O0"], check=True)
    return folder


@pytest.fixture(name="plan", scope="module")
def plan_fixture(folder):
    return cards.plan(folder, cards.text("host", beta='"input", "b"'))


class Running:
    """A ``card-exec``; frames go in and answers come out while it runs."""

    def __init__(self, directory: Path, fifo: Path) -> None:
        self.process = subprocess.Popen(
            [directory / "card-exec", "-t", "2", "-c", fifo],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.out = b""
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        self.sent: list[RequestFrame] = []
        self._write(struct.pack("=IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))

    def _read(self) -> None:
        self.out = self.process.stdout.read()

    def _write(self, data: bytes) -> None:
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def send(self, asked: RequestFrame) -> None:
        """A frame a second, so that no bucket is empty; its number stands behind its input."""
        frame = asked.frame + struct.pack(">I", len(self.sent))
        self._write(struct.pack("=IIII", len(self.sent), 0, len(frame), len(frame)) + frame)
        self.sent.append(asked)

    def keep_sending(self, frames: Sequence[RequestFrame], ended: threading.Event) -> None:
        """Frames until an event is set."""
        while not ended.wait(0.001):
            self.send(frames[len(self.sent) % len(frames)])

    def end(self) -> list[bytes]:
        """Ends the capture; all frames that left."""
        self.process.stdin.close()
        self._reader.join()
        self.process.wait()
        out, at = [], 24
        while at < len(self.out):
            size = struct.unpack_from("=I", self.out, at + 8)[0]
            out.append(self.out[at + 16 : at + 16 + size])
            at += 16 + size
        return out


@contextmanager
def running(folder: Path, tmp_path: Path) -> Iterator[tuple[Running, str]]:
    fifo = tmp_path / "control"
    os.mkfifo(fifo)
    program = Running(folder / "card", fifo)
    try:
        yield program, str(fifo)
    finally:
        program.process.kill()
        program._reader.join()
        for stream in (program.process.stdin, program.process.stdout, program.process.stderr):
            stream.close()


@pytest.mark.slow
def test_a_tenant_changes_comes_and_goes_while_anothers_frames_flow(folder, plan, tmp_path):
    """Alpha's answers are all there, in their order and right to the bit; beta's are as told."""
    card = software_card(plan, "host")
    old = card.networks["beta/b"]
    new = replace(random_model((23, 8, 2), np.random.default_rng(77)), input=old.input)
    new.save(tmp_path / "new.n3ic")
    asked = traffic(card, FRAMES)
    alpha, beta = ([a for a in asked if card.graphs[a.graph].tenant == t] for t in (0, 1))
    phases = (
        None,
        ("replace", "beta", tmp_path / "new.n3ic"),
        ("remove", "beta/attacks", None),
        ("load", "beta", None),
    )
    with running(folder, tmp_path) as (card_exec, fifo):
        for phase in phases:
            if phase is not None:
                ended = threading.Event()
                flow = threading.Thread(target=card_exec.keep_sending, args=(alpha, ended))
                flow.start()
                try:
                    change = change_of(plan.card, *phase)
                    report = change_card(plan, folder / "card", change, fifo)
                finally:
                    ended.set()
                    flow.join()
                assert report == f"{fifo}: 1 networks changed ({phase[0]})"
            for one, other in zip(alpha, beta, strict=True):
                card_exec.send(one)
                card_exec.send(other)
        left = card_exec.end()

    def answers(each: RequestFrame, model=None) -> bytes:
        graph = card.graphs[each.graph]
        results = each.results
        if model is not None:
            words = words_of(model, [each.frame[card.offset :][: graph.input_bytes]], features=True)
            results = (results_of(model, words)[0][1],)
        text = joined(graph.join, results)[0].text.ljust(card.offset - card.result_at, b"\0")
        return each.frame[: card.result_at] + text + each.frame[card.offset :]

    seen = {int.from_bytes(frame[-4:], "big"): frame[:-4] for frame in left}
    assert len(seen) == len(left)
    of_alpha = [n for n, each in enumerate(card_exec.sent) if each.graph == 0]
    assert len(of_alpha) > len(phases) * FRAMES  # some came while something changed
    assert [n for n in seen if n in set(of_alpha)] == of_alpha  # none is lost or before its turn
    assert all(seen[n] == answers(card_exec.sent[n]) for n in of_alpha)
    became = []
    for n, each in enumerate(card_exec.sent):
        if each.graph == 1:
            states = {None: "none", answers(each): "old", answers(each, new): "new"}
            became.append(states[seen.get(n)])
    assert [state for state, _ in groupby(became)] == ["old", "new", "none", "old"]


@pytest.mark.slow
def test_the_frames_of_an_export_are_answered(folder):
    with (folder / "card" / "frames.pcap").open("rb") as stream:
        done = subprocess.run(
            [folder / "card" / "card-exec"], stdin=stream, capture_output=True, check=True
        )
    log = done.stderr.decode()
    assert "alpha,3,3,0,0,0,0,0,0,0" in log and "beta,3,3,0,0,0,0,0,0,0" in log


def test_what_a_running_card_cannot_do_is_said(folder, plan, tmp_path):
    card = plan.card
    with pytest.raises(UsageError, match="is not a FIFO"):
        change_card(plan, folder / "card", change_of(card, "remove", "beta"), str(folder))
    with pytest.raises(UsageError, match="No such file"):
        change_card(plan, folder / "card", change_of(card, "remove", "beta"), "nowhere")
    with running(folder, tmp_path) as (_, fifo):
        change = change_of(card, "remove", "beta")
        bad = replace(
            change,
            verb="load",
            networks={"beta/no": software_card(plan, "host").networks["beta/b"]},
        )
        with pytest.raises(N3icError, match="card-exec: load beta/no: no such network"):
            change_card(plan, folder / "card", bad, fifo)
        assert "1 networks" in change_card(plan, folder / "card", change, fifo)


def test_an_export_of_another_card_is_not_changed(folder, tmp_path):
    other = cards.plan(folder, cards.text("host"))
    with pytest.raises(VerifyError, match="not what n3ic"):
        change_card(other, folder / "card", change_of(other.card, "remove", "beta"), "nowhere")
