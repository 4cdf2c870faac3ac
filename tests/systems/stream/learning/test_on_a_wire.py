# SPDX-License-Identifier: Apache-2.0
"""The loop, closed: packets, XDP, shunted flows, second stage, late labels, a model swapped in."""

import queue
import socket
import threading
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from framed_traffic import CLASSES, METER, NAMES, flows, label_line, trained
from xdp_machine import clang, in_namespace, kernel, run

from n3ic.meter.labels import Labelled
from n3ic.model.classifier import SHUNT
from n3ic.systems.stream.batch import FlowBatch, features_read
from n3ic.systems.stream.flows.source import open_source
from n3ic.systems.stream.learning.late_labels import LabelFile, LabelJoin, record_key
from n3ic.systems.stream.learning.learner import LearnSettings
from n3ic.systems.stream.learning.live import learn_live
from n3ic.systems.stream.learning.pushes import push_to
from n3ic.systems.stream.learning.second_stage import second_verdicts
from n3ic.systems.stream.learning.session import LearningFolder
from n3ic.systems.stream.learning.stream import LiveLearner
from n3ic.systems.xdp import deployment
from n3ic.systems.xdp.program_record import Interface
from n3ic.targets.directory import export

__all__ = ["clang", "in_namespace", "kernel"]
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("clang", "kernel")]

FLOWS, ONE, OTHER = 60, "slearn0", "slearn1"
ENOUGH = 0.9  # of the flows: a link without pacing may lose packets on a busy machine


def of_events(model, events):
    """Flows that the card decided, with the scores that it computed."""
    return FlowBatch(
        events,
        features_read(model, METER.feature_names, events),
        events["scores"].astype(np.int32),
        events["class"].astype(np.int64),
        events["margin"].astype(np.int32),
        events["verdict"].astype(np.int64),
    )


def received():
    """Packets that the interface with the program has received."""
    lines = Path("/proc/thread-self/net/dev").read_text().splitlines()
    return next(int(line.split()[2]) for line in lines if line.strip().startswith(f"{ONE}:"))


class PacedSocket:
    """A socket of frames, which waits for the other end: its ring holds 256 packets."""

    def __init__(self):
        self._out = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
        self._out.bind((OTHER, 0))
        self._before, self._sent = received(), 0

    def send(self, frames):
        end = time.monotonic() + 5
        while self._sent - (received() - self._before) > 64 and time.monotonic() < end:
            time.sleep(0.0005)
        for data in frames:
            self._out.send(data)
        self._sent += len(frames)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._out.close()


def sending(batches, sent):
    """Send batches of frames; what is sent next waits until a batch was taken."""
    with PacedSocket() as out:
        for batch in batches:
            for frames, _ in batch:
                out.send(frames)
            sent.put(batch)
    sent.put(None)


def check_the_loop(folder):
    rng = np.random.default_rng(1)
    card, host = trained(rng)
    export(card, "xdp", folder / "export", verify=False)
    run("ip", "link", "add", ONE, "type", "veth", "peer", "name", OTHER)
    for name in (ONE, OTHER):
        run("sysctl", "-qw", f"net.ipv6.conf.{name}.disable_ipv6=1")
        run("ip", "link", "set", name, "arp", "off", "up")
    interface = Interface.named(ONE)
    deployment.load(interface, folder / "export")
    LearningFolder.begin(folder / "learned", card, LearnSettings(every=240))
    learning = LearningFolder(folder / "learned", push_to(f"xdp:{ONE}"))
    models = {card.digest[:16]: card}
    join = LabelJoin(card)
    batches = [
        flows(rng, 10_000 + i * FLOWS, FLOWS, changed=i >= 8) for i in range(40)
    ]  # fmt: skip
    # Of all batches: two processors may take packets of one batch after some of the next.
    truth = {frames[0][26:30]: label for batch in batches for frames, label in batch}
    sent = queue.Queue(maxsize=2)
    sender = threading.Thread(target=sending, args=(batches, sent), daemon=True)
    shares, late = [], []
    with deployment.opened(interface) as (_, programs, _):
        sender.start()
        left = np.empty(0, programs.events().dtype)
        while (batch := sent.get(timeout=60)) is not None:
            left = np.concatenate([left, programs.events()])
            silent = 0  # a busy machine may lose packets on the way
            while len(left) < len(batch) and silent < 3:
                silent = 0 if len(new := programs.events(1000)) else silent + 1
                left = np.concatenate([left, new])
            events, left = left[: len(batch)], left[len(batch) :]
            found = of_events(card, events)
            for digest in {bytes(d).hex() for d in events["model"]}:
                rows = [bytes(d).hex() == digest for d in events["model"]]
                model = models[digest]
                words = model.encode(dict(zip(NAMES, found.features[rows].T, strict=True)))
                assert np.array_equal(model.scores(words), found.scores[rows])
            label = np.array([truth[bytes(r["source"][:4])] for r in events])
            decided = found.verdicts != SHUNT
            both = second_verdicts(host, found, METER)
            shares.append(((found.verdicts == label)[decided].mean(), (both == label).mean()))
            late.append(
                [(record_key(r), Labelled(CLASSES[c])) for r, c in zip(events, label, strict=True)]
            )
            learning.take(join.flows(found))
            if len(late) > 2:  # labels come three batches late, the last ones first
                learning.take(join.labels(late.pop(0)[::-1]))
            running = learning.learner.running
            models[running.digest[:16]] = running
        lost = programs.counters()["events_lost"]
    deployment.unload(interface)
    return np.array(shares), lost, learning.decisions, models


def test_accuracy_recovers_after_a_change_of_traffic(
    in_namespace, tmp_path, monkeypatch, record_property
):
    monkeypatch.setenv("N3IC_RUN", str(tmp_path / "run"))
    shares, lost, decisions, models = in_namespace(lambda: check_the_loop(tmp_path))
    parts = slice(0, 8), slice(8, 11), slice(-6, None)
    before, after, last = (shares[part].mean(axis=0) for part in parts)
    record_property("shares", f"before {before}, after the change {after}, at the end {last}")
    assert lost == 0
    assert [d["error"] for d in decisions if d["what"] == "push"].count("") >= 1
    assert len(models) > 1
    assert before[0] > 0.9
    assert after[0] < 0.7
    assert last[0] > after[0] + 0.2


def check_the_command(folder):
    """What ``n3ic stream learn xdp:INTERFACE --labels FILE --push xdp:INTERFACE`` does."""
    rng = np.random.default_rng(2)
    card = trained(rng)[0]
    card = card.changed(shunt=card.largest_margin + 1)  # the host gets every flow
    export(card, "xdp", folder / "export", verify=False)
    run("ip", "link", "add", ONE, "type", "veth", "peer", "name", OTHER)
    for name in (ONE, OTHER):
        run("sysctl", "-qw", f"net.ipv6.conf.{name}.disable_ipv6=1")
        run("ip", "link", "set", name, "arp", "off", "up")
    interface = Interface.named(ONE)
    deployment.load(interface, folder / "export")
    LearningFolder.begin(folder / "learned", card, LearnSettings(every=240))
    learning = LearningFolder(folder / "learned", push_to(f"xdp:{ONE}"))
    join, labels = LabelJoin(card), folder / "labels.jsonl"
    batches = [flows(rng, 10_000 + i * FLOWS, FLOWS, changed=i >= 8) for i in range(40)]
    learned, came = 0, threading.Condition()
    ended = threading.Event()

    def has_learned(flows):
        return learned >= flows

    def send():
        with PacedSocket() as out, labels.open("w") as said:
            for number, batch in enumerate(batches):
                with came:  # few packets ahead: nobody paces them, and a busy machine loses some
                    enough = ENOUGH * (number - 1) * FLOWS
                    came.wait_for(partial(has_learned, enough), 60)
                for frames, label in batch:
                    out.send(frames)
                    said.write(label_line(frames, label))
                said.flush()
        ended.set()

    def tell(done):
        nonlocal learned
        with came:
            learned = done.flows
            came.notify()

    def stop_at_the_end(figures, stopped=[]):  # noqa: B006 - a person types it once
        if ended.is_set() and figures.flows >= ENOUGH * len(batches) * FLOWS and not stopped:
            stopped.append(True)
            raise KeyboardInterrupt

    sender = threading.Thread(target=send, daemon=True)
    source = open_source(f"xdp:{ONE}", card)
    sender.start()
    learner = LiveLearner(LabelFile(labels), learning, join)
    figures = learn_live(source, card, learner, tell, 120, stop_at_the_end)
    sender.join(60)
    running = learning.learner.running.digest[:16]
    with PacedSocket() as out:
        for frames, _ in flows(rng, 90_000, 8, changed=True):
            out.send(frames)
    with deployment.opened(interface) as (_, programs, _):
        events = np.concatenate([programs.events(1000) for _ in range(3)])
    deployment.unload(interface)
    return (
        figures,
        join.counts,
        learning.decisions,
        running,
        {bytes(d).hex() for d in events["model"]},
    )


def test_one_command_learns_from_what_a_card_shunts(in_namespace, tmp_path, monkeypatch):
    """Flows of the ring buffer, labels of a growing file, and the card runs what was learned."""
    monkeypatch.setenv("N3IC_RUN", str(tmp_path / "run"))
    figures, counts, decisions, running, now = in_namespace(lambda: check_the_command(tmp_path))
    assert 40 * FLOWS >= figures.flows == counts["flows labelled"] >= ENOUGH * 40 * FLOWS
    assert not any(figures.lost.values())
    assert [d["error"] for d in decisions if d["what"] == "push"].count("") >= 1
    assert now == {running}
