# SPDX-License-Identifier: Apache-2.0
"""Real frames through the Verilated card, between two network namespaces."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from n3ic.errors import MissingDependencyError, N3icError, UsageError
from n3ic.exporters.netfpga.packet.tap import VirtualNic
from n3ic.exporters.netfpga.tools import tap
from n3ic.model.bits import pack
from n3ic.model.network import BinaryModel
from n3ic.model.random_models import random_model
from n3ic.targets.directory import export

PEER = Path(__file__).with_name("tap_peer.py")
MACS = bytes.fromhex("020000000001020000000002")
SHAPE = (40, 8, 4, 3)


def _can_run() -> str:
    try:
        tap.require()
        name = f"n3t{os.getpid()}"
        tap.ip("netns", "add", name)
        tap.ip("netns", "del", name)
    except N3icError as error:
        return str(error)
    return ""


@pytest.fixture(scope="module", params=["256", "512"])
def card(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[VirtualNic, Path]]:
    missing = _can_run()
    if missing:
        pytest.skip(missing)
    directory = tmp_path_factory.mktemp("card") / "export"
    model = random_model(SHAPE, np.random.default_rng(28), extremes=False)
    export(model, "netfpga", directory, verify=False, options={"data-width": request.param})
    a, b = f"n3a{os.getpid()}", f"n3b{os.getpid()}"
    made = VirtualNic(directory, tap=f"{a}t", peer=f"{b}t", tap_netns=a, peer_netns=b)
    with made as plugged:
        yield plugged, directory
    assert made.counters is not None
    assert made.counters.dropped == 0
    assert made.counters.tap_in == made.counters.peer_out > 0
    assert made.counters.peer_in == made.counters.tap_out > 0
    names = subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout
    assert a not in names
    assert b not in names
    assert not (Path("/sys/class/net") / f"{a}t").exists()


def inside(namespace: str, *arguments: str) -> subprocess.Popen[str]:
    command = ["ip", "netns", "exec", namespace, sys.executable, str(PEER), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def ask(
    nic: VirtualNic, model: BinaryModel, rng: np.random.Generator, file: Path, ways: int = 2
) -> None:
    """Ask the card with random inputs; every answer is the model's and bears its id."""
    bits = rng.random((64, SHAPE[0])) < 0.5
    trace = model.infer(pack(bits))
    frames, wanted = [], []
    for i, row in enumerate(bits):
        value = sum(1 << k for k in np.flatnonzero(row).tolist())
        head = MACS + b"\x23\x23\x08\x00"
        tail = value.to_bytes(SHAPE[0] // 8, "big") + rng.bytes(30 + i)
        answer = bytes.fromhex(model.digest[:8])
        answer += int(trace.classes[i]).to_bytes(2, "big") + int(trace.margins[i]).to_bytes(
            4, "big"
        )
        frames.append((head + bytes(10) + tail).hex())
        wanted.append((head + answer + tail).hex())
    file.write_text("\n".join(frames))
    for source, target in ((0, 1), (1, 0))[:ways]:  # both ways through the card
        arguments = ("receive", nic.devices[target], "0x2323", str(len(frames)))
        receiver = inside(nic.namespaces[target], *arguments)
        assert line(receiver) == "ready"
        sender = inside(nic.namespaces[source], "send", nic.devices[source], str(file))
        assert sender.wait(60) == 0
        text, _ = receiver.communicate(timeout=600)
        assert text.split() == wanted
    assert len(set(trace.classes.tolist())) > 1


@pytest.mark.slow
def test_verdicts_come_back(card: tuple[VirtualNic, Path], tmp_path: Path) -> None:
    model = random_model(SHAPE, np.random.default_rng(28), extremes=False)
    ask(card[0], model, np.random.default_rng(7), tmp_path / "frames.hex")


@pytest.mark.slow
def test_another_model_is_loaded(card: tuple[VirtualNic, Path], tmp_path: Path) -> None:
    plugged, directory = card
    other = random_model(SHAPE, np.random.default_rng(26), extremes=False)
    export(other, "netfpga", tmp_path / "other", verify=False)
    export(other, "netfpga", tmp_path / "wide", verify=False, options={"score-bits": "16"})
    with pytest.raises(UsageError, match="made for the executor"):
        plugged.load(tmp_path / "wide" / "mem" / "update.hex")
    rng = np.random.default_rng(8)
    for model, folder in (
        (other, tmp_path / "other"),
        (random_model(SHAPE, np.random.default_rng(28), extremes=False), directory),
    ):
        plugged.load(folder / "mem" / "update.hex")
        ask(plugged, model, rng, tmp_path / "frames.hex", ways=1)


@pytest.mark.slow
def test_other_traffic_passes(card: tuple[VirtualNic, Path]) -> None:
    """ARP and TCP of the kernels at both ends: the card is a wire to them."""
    nic_, _ = card
    server = inside(nic_.namespaces[1], "echo", "7777")
    assert line(server) == "ready"
    client = inside(nic_.namespaces[0], "ask", "10.23.23.2", "7777")
    assert client.communicate(timeout=600)[0].strip() == "equal"
    server.communicate(timeout=600)


@pytest.mark.slow
def test_a_name_in_use_leaves_nothing_behind(card: tuple[VirtualNic, Path]) -> None:
    nic_, directory = card
    a = f"n3c{os.getpid()}"
    made = VirtualNic(directory, tap=f"{a}t", tap_netns=a, peer_netns=nic_.namespaces[1])
    with pytest.raises(N3icError, match="netns add"), made:
        pass
    names = subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout
    assert a not in names
    assert not made.running


def test_names_are_checked(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a device name"):
        VirtualNic(tmp_path, tap="a b")
    with pytest.raises(UsageError, match="two names"):
        VirtualNic(tmp_path, tap="a", peer="a")


def test_missing_things_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "verilator" else name)
    with pytest.raises(MissingDependencyError, match="apt install verilator"):
        tap.require()
    monkeypatch.setattr(shutil, "which", lambda name: name)
    monkeypatch.setattr(tap, "TUN", Path("/nowhere/tun"))
    with pytest.raises(MissingDependencyError, match="modprobe tun"):
        tap.require()
    monkeypatch.setattr(tap, "TUN", Path("/"))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(N3icError, match="root"):
        tap.require()
