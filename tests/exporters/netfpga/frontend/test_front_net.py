# SPDX-License-Identifier: Apache-2.0
"""The kernel's network stack, its tools and ``n3ic ask`` against the simulated card."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from n3ic.errors import N3icError, UsageError
from n3ic.exporters.netfpga.frontend import messages as m
from n3ic.exporters.netfpga.frontend.tap import VirtualFront
from n3ic.exporters.netfpga.tools import tap as wire
from n3ic.model.network import BinaryModel
from n3ic.model.random_models import random_model
from n3ic.targets.directory import export

pytestmark = pytest.mark.slow
SHAPE = (48, 8, 4, 3)
ROWS = 300


@dataclass
class Plugged:
    """A card in a namespace of its own, its export and a table of flows."""

    front: VirtualFront
    directory: Path
    flows: Path
    model: BinaryModel

    def inside(self, *command: str, text: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            ["ip", "netns", "exec", self.front.netns, *command],
            input=text, capture_output=True, timeout=600, check=False,
        )  # fmt: skip

    def ask(self, *more: str) -> dict[str, Any]:
        done = self.inside(
            sys.executable, "-m", "n3ic", "ask", "10.23.23.2", str(self.flows),
            "--model", str(self.directory), "--json", *more,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr.decode()
        return dict(json.loads(done.stdout))

    def disturb(self, how: str) -> None:
        """What the cable does to frames towards the card; nothing for an empty text."""
        tc = ("tc", "-n", self.front.netns, "qdisc")
        where = ("dev", self.front.tap, "root")
        subprocess.run([*tc, "del", *where], capture_output=True, check=False)
        if how:
            done = subprocess.run([*tc, "add", *where, "netem", *how.split()], check=False)
            if done.returncode:
                pytest.skip("this kernel has no tc netem")


def plug(folder: Path, name: str, bad_cable: int = 0) -> VirtualFront:
    return VirtualFront(folder / "card", tap=f"{name}t", netns=name, bad_cable=bad_cable)


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plugged]:
    name = f"n3f{os.getpid()}"
    try:
        wire.require()
        wire.ip("netns", "add", name)
        wire.ip("netns", "del", name)
    except N3icError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("front")
    rng = np.random.default_rng(3)
    model = random_model(SHAPE, rng, extremes=False)
    options = {"front-end": "tcp", "style": "unrolled", "data-width": "64"}
    export(model, "netfpga", folder / "card", verify=False, options=options)
    names = model.input.features
    table = rng.integers(0, 2**16, size=(ROWS, len(names)))
    lines = [",".join(names), *(",".join(str(v) for v in row) for row in table)]
    (folder / "flows.csv").write_text("\n".join(lines) + "\n")
    with plug(folder, name) as front:
        yield Plugged(front, folder / "card", folder / "flows.csv", model)
    assert front.counters is not None
    assert front.counters.dropped == 0
    names_left = subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout
    assert name not in names_left


def test_ping(card: Plugged) -> None:
    done = card.inside("ping", "-c", "3", "-i", "0.2", "-s", "300", "-W", "60", "10.23.23.2")
    assert b" 3 received" in done.stdout, done.stdout


def test_nc(card: Plugged) -> None:
    if shutil.which("nc") is None:
        pytest.skip("needs nc: apt install netcat-openbsd")
    words = np.array([[5, 7], [9, 0]], dtype=np.uint32)
    data = m.request(77, 0, m.bit_rows(words, 48)).to_bytes()
    nc = ("nc", "-u", "-W", "1", "-w", "20", "10.23.23.2", "8995")
    message = m.read_message(card.inside(*nc, text=data).stdout)
    assert message.number == 77
    assert message.body == m.results_body(card.model, words)
    message = m.read_message(card.inside(*nc, text=b"hello").stdout)
    assert (message.kind, message.fault[0]) == (m.FAULT, 1)


def test_ask_over_udp(card: Plugged) -> None:
    report = card.ask("--timeout", "20")
    assert (report["rows"], report["compared"], report["transport"]) == (ROWS, "scores", "udp")
    assert sum(report["verdicts"].values()) == ROWS
    one_by_one = card.ask("--batch", "1", "--window", "64", "--timeout", "20")
    assert (one_by_one["requests"], one_by_one["verdicts"]) == (ROWS, report["verdicts"])


def test_ask_over_tcp(card: Plugged) -> None:
    over_udp = card.ask("--timeout", "20")
    report = card.ask("--tcp", "--timeout", "20")
    assert (report["rows"], report["compared"], report["transport"]) == (ROWS, "scores", "tcp")
    assert report["verdicts"] == over_udp["verdicts"]
    one_by_one = card.ask("--tcp", "--batch", "1", "--window", "64", "--timeout", "20")
    assert (one_by_one["requests"], one_by_one["verdicts"]) == (ROWS, report["verdicts"])


def test_nc_over_tcp(card: Plugged) -> None:
    if shutil.which("nc") is None:
        pytest.skip("needs nc: apt install netcat-openbsd")
    words = np.array([[5, 7], [9, 0]], dtype=np.uint32)
    data = m.request(78, 0, m.bit_rows(words, 48)).to_bytes()
    out = card.inside("nc", "-N", "-w", "20", "10.23.23.2", "8995", text=3 * data).stdout
    size = m.message_bytes(out)
    for i in range(3):
        message = m.read_message(out[i * size : (i + 1) * size])
        assert (message.number, message.body) == (78, m.results_body(card.model, words))
    assert len(out) == 3 * size
    # what is no message is answered by an error, and the card ends the connection
    out = card.inside("nc", "-w", "20", "10.23.23.2", "8995", text=b"hello, who is there?").stdout
    assert m.read_message(out).fault[0] == 2


def test_ask_through_a_bad_cable(card: Plugged) -> None:
    card.disturb("delay 2ms 2ms loss 15% duplicate 15% reorder 30% corrupt 5%")
    try:
        report = card.ask("--batch", "9", "--timeout", "1", "--tries", "30")
        assert card.ask("--tcp", "--batch", "9", "--timeout", "60")["rows"] == ROWS
    finally:
        card.disturb("")
    assert report["rows"] == ROWS
    assert report["resent"] > 0


def test_ask_though_frames_are_lost_doubled_and_overtaken(card: Plugged) -> None:
    """As with ``netem``, by the simulation itself, for kernels without it."""
    with plug(card.directory.parent, f"n3g{os.getpid()}", bad_cable=10) as front:
        bad = Plugged(front, card.directory, card.flows, card.model)
        report = bad.ask("--batch", "9", "--timeout", "1", "--tries", "30")
        assert report["rows"] == ROWS
        assert report["resent"] > 0
        over_tcp = bad.ask("--tcp", "--batch", "9", "--timeout", "60")
        assert over_tcp["verdicts"] == report["verdicts"]
    assert front.counters is not None
    assert front.counters.card["dropped"] > 0  # out of order


def refused(card: Plugged, *more: str) -> str:
    done = card.inside(sys.executable, "-m", "n3ic", "ask", *more, "--timeout", "2", "--tries", "2")
    assert done.returncode == 1
    assert b"Traceback" not in done.stderr
    return done.stderr.decode()


def test_ask_says_what_is_wrong(card: Plugged, tmp_path: Path) -> None:
    other = random_model(SHAPE, np.random.default_rng(4), extremes=False)
    other.save(tmp_path / "other.n3ic")
    flows, directory = str(card.flows), ("--model", str(card.directory))
    wrong = refused(card, "10.23.23.2", flows, "--model", str(tmp_path / "other.n3ic"))
    assert f"computes the model {card.model.digest[:4]}" in wrong or "rows of" in wrong
    assert "--input-stage" in refused(
        card, "10.23.23.2", flows, *directory, "--input-stage", "features"
    )
    assert "it takes 72: --batch 72" in refused(
        card, "10.23.23.2", flows, *directory, "--batch", "73"
    )
    assert "no answer within 2 s to each of 2" in refused(card, "10.23.23.2:9", flows, *directory)
    wire.ip("-n", card.front.netns, "link", "set", "lo", "up")
    for where, more in (("10.23.23.1:9", ()), ("10.23.23.2:9", ("--tcp",))):
        error = refused(card, where, flows, *directory, *more)
        assert f"{where}: Connection refused" in error


def test_names_and_addresses_are_checked(tmp_path: Path) -> None:
    for wrong in ("10.0.0", "::1", "10.0.0.0", "10.0.0.255", "224.0.0.1"):
        with pytest.raises(UsageError, match="address"):
            VirtualFront(tmp_path, address=wrong)
    with pytest.raises(UsageError, match="not a device name"):
        VirtualFront(tmp_path, tap="a b")
    assert str(VirtualFront(tmp_path, address="10.0.0.1").host) == "10.0.0.2"
