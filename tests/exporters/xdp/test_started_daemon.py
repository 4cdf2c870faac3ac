# SPDX-License-Identifier: Apache-2.0
"""``n3ic xdp load``: n3icd in the background, from its start to nothing left."""

import json
import os
import shutil
import signal
import socket
import subprocess
import time
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from n3ic.errors import ExportError, MissingDependencyError, UsageError
from n3ic.exporters.xdp import libbpf
from n3ic.systems.stream.flows.sources.xdp_events import XdpEventSource
from n3ic.systems.xdp import daemon_start, deployment
from n3ic.systems.xdp.program_record import Interface
from n3ic.systems.xdp.status import status
from n3ic.targets.directory import export
from tests.support.metering import network
from tests.support.n3icd import Reader, decided, flows, frame, n3ic, send


@pytest.fixture
def link(veth, run_folder):
    """A link's two ends that say nothing by themselves."""
    for name in veth:
        Path(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6").write_text("1")
    yield veth
    deployment.unload(Interface.named(veth[0]))


def folder_of(interface):
    return daemon_start.daemon_folder(Interface.named(interface))


def test_it_runs_until_it_is_unloaded(link, built, daemon_model, pins):
    one, other = link
    output = n3ic("load", one, built, "--policy", "benign=block:host,ttl=600")
    assert "native XDP, model in slot 0, room for" in output
    assert "n3icd runs in the background, and ends idle flows" in output
    folder = folder_of(one)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "control").stat().st_mode & 0o777 == 0o600
    reader = Reader(folder / "socket")
    n3ic("allow", one, "192.0.2.0/24")
    send(other, flows(range(1000, 1010)))
    assert {flow["model"] for flow in reader.lines(10)} == {daemon_model.digest[:16]}
    figures = status(Interface.named(one))
    assert (figures.started, decided(figures.slots[0]), figures.allowed) == (10, 10, 40)
    with pytest.raises(UsageError, match="has loaded program"):
        n3ic("load", one, built)
    assert "unloaded" in n3ic("unload", one)
    assert libbpf.query(socket.if_nametoindex(one)) is None
    assert not folder.exists() and not any(path.is_dir() for path in pins.glob("n3ic-*/*"))
    assert "nothing of n3ic" in n3ic("unload", one)


def test_one_that_does_not_start_leaves_nothing(link, built, tmp_path):
    one, _ = link
    card = shutil.copytree(built, tmp_path / "card")
    (card / "meter" / "meter.o").write_bytes(b"no object")
    with pytest.raises(UsageError, match=r"did not start: .*libbpf cannot read this object file"):
        n3ic("load", one, card)
    assert libbpf.query(socket.if_nametoindex(one)) is None
    with pytest.raises(UsageError, match="loaded nothing there"):
        n3ic("status", one)
    n3ic("load", one, built)


def test_without_a_compiler_a_line_says_what_to_install(link, daemon_model, tmp_path, monkeypatch):
    one, _ = link
    export(daemon_model, "xdp", tmp_path / "card", verify=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(MissingDependencyError, match="apt-get install make gcc clang"):
        n3ic("load", one, tmp_path / "card")


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """A folder of compiled daemons."""
    return tmp_path_factory.mktemp("cache")


@pytest.mark.slow
@pytest.mark.parametrize("frags", [True, False])
def test_a_network_of_another_structure_brings_an_n3icd_that_keeps_the_flows(
    link, daemon_model, tmp_path, monkeypatch, cache, request, frags
):
    """In the form of the program before, whose maps no other one may have."""
    one, other = link
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    if not frags:
        request.getfixturevalue("refuse_frags")
    export(daemon_model, "xdp", tmp_path / "card", verify=False)
    policies = [f"--policy={name}=drop" for name in daemon_model.classes[:1]]
    output = n3ic("load", one, tmp_path / "card", *policies, "--max-blocked", 77)
    assert ("without frames in several pieces" in output) != frags
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    n3ic("block", one, "192.0.2.9")
    send(other, [*flows([1], 2), *flows([2], 4), frame(3, source=9)])
    before = status(Interface.named(one))
    assert (before.started, before.flows, before.blocked) == (2, 2, 1)
    assert (before.mode, before.frags) == ("native", frags)
    wide = network(daemon_model.meter, 7)
    wide.save(tmp_path / "wide.n3ic")
    with pytest.raises(ExportError, match=r"policies of .* are for the classes"):
        n3ic("update", one, tmp_path / "wide.n3ic")
    named = replace(wide, classes=daemon_model.classes)
    named.save(tmp_path / "wide.n3ic")
    n3ic("update", one, tmp_path / "wide.n3ic")
    after = status(Interface.named(one))
    assert (after.program_id != before.program_id, after.frags) == (True, frags)
    assert (after.flows, after.started, after.packets) == (2, 2, before.packets)
    assert (after.max_blocked, after.slots[0].digest) == (77, named.digest)
    reader = Reader(folder_of(one) / "socket")
    send(other, [frame(3, source=9), *flows([1], 2)])  # the fourth packet of a flow from before
    line = reader.line()
    assert line["model"] == named.digest[:16]
    assert line["features"]["ct_src"] == 2  # the flow that the network before decided counts
    state = status(Interface.named(one))
    assert (state.blocked, state.started, decided(state.slots[0])) == (2, 2, 1)
    n3ic("unload", one)
    assert libbpf.query(socket.if_nametoindex(one)) is None


@pytest.mark.slow
def test_a_program_of_another_meter_is_not_succeeded(daemon, hasty, built, veth):
    """Neither its flows nor its program are touched, and its own n3icd takes it over again."""
    first = daemon().start()
    number = libbpf.query(socket.if_nametoindex(veth[0])).program_id
    assert first.end() == 0
    other = daemon(hasty)
    done = other.run("--succeed")
    assert done.returncode == 1 and "another meter, flow table or number of classes" in done.stderr
    again = daemon(built).start()
    assert libbpf.query(socket.if_nametoindex(veth[0])).program_id == number
    assert again.end() == 0


@pytest.mark.slow
def test_its_end_detaches_but_a_kill_does_not(link, built):
    one, other = link
    n3ic("load", one, built)
    n3ic("block", one, "192.0.2.1")
    process = _process(folder_of(one))
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    send(other, [frame(1)] * 5)
    for command in (["status"], ["list"], ["watch"], ["unblock", "192.0.2.1"]):
        with pytest.raises(UsageError, match=f"not running; n3ic xdp load {one} EXPORT starts it"):
            n3ic(command[0], one, *command[1:])
    n3ic("load", one, built)
    assert status(Interface.named(one)).blocked == 5
    process = _process(folder_of(one))
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    n3ic("unload", one)
    assert libbpf.query(socket.if_nametoindex(one)) is None
    n3ic("load", one, built)
    process = _process(folder_of(one))
    os.kill(process, signal.SIGTERM)
    assert os.waitpid(process, 0)[1] == 0
    assert libbpf.query(socket.if_nametoindex(one)) is None
    n3ic("load", one, built)


def _process(folder):
    numbers = []
    for path in Path("/proc").glob("[0-9]*/exe"):
        with suppress(FileNotFoundError, ProcessLookupError):  # others end meanwhile
            if path.readlink() == folder / "n3icd":
                numbers.append(int(path.parent.name))
    (number,) = numbers
    return number


@pytest.mark.slow
@pytest.mark.parametrize("killed", [False, True])
def test_an_interface_that_goes_takes_its_n3icd_along(link, built, pins, killed):
    """One that was killed before is removed by the next load."""
    one, _ = link
    extra, peer = f"{one}x", f"{one}y"
    subprocess.run(["ip", "link", "add", extra, "type", "veth", "peer", "name", peer], check=True)
    try:
        n3ic("load", extra, built)
        folder = folder_of(extra)
        process = _process(folder)
        if killed:
            os.kill(process, signal.SIGKILL)
    finally:
        subprocess.run(["ip", "link", "del", extra], check=True)
    os.waitpid(process, 0)
    assert folder.exists() and len(list(pins.glob(f"n3ic-*/{extra}"))) == killed
    assert json.loads(n3ic("load", one, built, "--json"))["mode"] == "native"
    assert not folder.exists() and not list(pins.glob(f"n3ic-*/{extra}"))


def test_a_stream_takes_what_n3icd_shunts(link, built, daemon_model, tmp_path):
    """Beside another reader; with the times, keys and features that n3icd reports."""
    one, other = link
    unsure = replace(daemon_model, shunt=daemon_model.largest_margin + 1)
    unsure.save(tmp_path / "unsure.n3ic")
    n3ic("load", one, built, "--model", tmp_path / "unsure.n3ic")
    reader = Reader(folder_of(one) / "socket")
    with closing(XdpEventSource(one, daemon_model)) as source:
        before = time.time()
        send(other, flows(range(1000, 1010)))
        flow_lines = reader.lines(10)
        rows = _rows(source, 10)
        assert not any(source.lost().values())
    for flow, row in zip(flow_lines, rows, strict=True):
        assert flow["verdict"] == "shunt"
        assert row["source"][:4].tolist() == [192, 0, 2, 1] and row["address_bytes"] == 4
        assert (row["source_port"], row["packets"]) == (flow["source_port"], 4)
        assert row["features"].tolist() == [
            flow["features"][n] for n in daemon_model.input.features
        ]
        first, last = (
            int(row[name]) * daemon_model.meter.tick_ns / 1e9 for name in ("first", "last")
        )
        assert before - 1 < first <= last < time.time() + 1
        assert abs(first - flow["first"]) < 1e-5


def _rows(source, count):
    rows = []
    for batch in source.batches(None):
        rows += list(batch.rows)
        if len(rows) >= count:
            return rows
    return rows
