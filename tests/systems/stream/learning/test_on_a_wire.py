# SPDX-License-Identifier: Apache-2.0
"""``n3ic stream learn`` on what a card shunts; the demonstration has a test of its own."""

import threading
from contextlib import closing
from functools import partial

import numpy as np
import pytest

from n3ic.exporters.xdp.links import add_link
from n3ic.systems.stream.flows.source import open_source
from n3ic.systems.stream.learning.late_labels import LabelFile, LabelJoin
from n3ic.systems.stream.learning.learner import LearnSettings
from n3ic.systems.stream.learning.learning_folder import LearningFolder
from n3ic.systems.stream.learning.pushes import push_to
from n3ic.systems.stream.learning.run import learn_live
from n3ic.systems.stream.learning.stream import LiveLearner
from n3ic.systems.xdp import deployment
from n3ic.systems.xdp.flow_reader import FlowReader
from n3ic.systems.xdp.program_record import Interface
from n3ic.targets.directory import export
from scripts.stream_demo.traffic import PacedSocket, flows, trained
from tests.support.framed_traffic import label_line
from tests.support.xdp_machine import clang, in_namespace, kernel, pins, run_folder

__all__ = ["clang", "in_namespace", "kernel", "pins", "run_folder"]
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("clang", "kernel")]

FLOWS, ONE, OTHER = 60, "slearn0", "slearn1"
ENOUGH = 0.9  # of the flows: a link without pacing may lose packets on a busy machine


def check_the_command(folder):
    """What ``n3ic stream learn xdp:INTERFACE --labels FILE --push xdp:INTERFACE`` does."""
    rng = np.random.default_rng(2)
    card = trained(rng)[0]
    card = card.changed(shunt=card.largest_margin + 1)  # the host gets every flow
    export(card, "xdp", folder / "export", verify=False)
    add_link(ONE, OTHER)
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
        with PacedSocket(OTHER, ONE) as out, labels.open("w") as label_lines:
            for number, batch in enumerate(batches):
                with came:  # few packets ahead: nobody paces them, and a busy machine loses some
                    enough = ENOUGH * (number - 1) * FLOWS
                    came.wait_for(partial(has_learned, enough), 60)
                for frames, label in batch:
                    out.send(frames)
                    label_lines.write(label_line(frames, label))
                label_lines.flush()
        ended.set()

    def count(done):
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
    file = LabelFile(labels)
    learner = LiveLearner(lambda _: file.news(), learning, join)
    figures = learn_live(source, card, learner, count, 600, stop_at_the_end)
    sender.join(60)
    running = learning.learner.running.digest[:16]
    with PacedSocket(OTHER, ONE) as out, closing(FlowReader(interface)) as reader:
        for frames, _ in flows(rng, 90_000, 8, changed=True):
            out.send(frames)
        last = [flow for _ in range(3) for flow in reader.read(1)]
    deployment.unload(interface)
    return (
        figures,
        join.counts,
        learning.decisions,
        running,
        {flow["model"] for flow in last},
    )


def test_one_command_learns_from_what_a_card_shunts(in_namespace, tmp_path, run_folder):
    """Flows that n3icd reports, labels of a growing file, and the card runs what was learned."""
    figures, counts, decisions, running, now = in_namespace(lambda: check_the_command(tmp_path))
    assert 40 * FLOWS >= figures.flows == counts["flows labelled"] >= ENOUGH * 40 * FLOWS
    assert not any(figures.lost.values())
    assert [d["error"] for d in decisions if d["what"] == "push"].count("") >= 1
    assert now == {running}
