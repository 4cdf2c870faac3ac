# SPDX-License-Identifier: Apache-2.0
"""Ports of DPDK as a source of a stream: by its own drivers, and AF_XDP by its driver for that."""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from dataclasses import replace
from pathlib import Path
from threading import Event

import numpy as np
import pytest

from n3ic.errors import DataError, MissingDependencyError, UsageError
from n3ic.exporters.dpdk.application import require_dpdk
from n3ic.meter.capture import Capture
from n3ic.meter.packet import LINK_ETHERNET
from n3ic.model.inputs import Field, InputSpec
from n3ic.model.random_models import random_model
from n3ic.systems.stream.flows.decide import StreamModel
from n3ic.systems.stream.flows.pipeline import FlowStream, StreamSettings
from n3ic.systems.stream.flows.sink import StreamSink
from n3ic.systems.stream.flows.source import open_source
from n3ic.systems.stream.flows.sources import af_xdp, dpdk
from n3ic.systems.stream.flows.sources.dpdk import DpdkSource
from n3ic.targets.fuzz_traffic import pcap
from tests.support.command_line import N3IC
from tests.support.predicted_rows import predicted
from tests.support.stream_models import CUTS, MODELS, SPEC, lines, stream
from tests.support.traffic import labelled_capture
from tests.support.xdp_machine import tun

__all__ = ["tun"]

MODEL = MODELS["binary"]()
NULL = "net_null0,size=60"
TIMEOUT_S = 60


@pytest.fixture
def installed():
    try:
        require_dpdk()
    except MissingDependencyError as error:
        pytest.skip(str(error))


def whole_frames(path, flows):
    """A capture of whole frames, which have their lengths on the wire; returns the frames."""
    path.write_bytes(labelled_capture(flows)[0])
    with Capture(path) as capture:
        stamped = [(data, len(data), time_ns // 1000) for data, _, time_ns in capture.packets()]
    path.write_bytes(pcap(LINK_ETHERNET, stamped, 1000, "<"))
    return [data for data, _, _ in stamped]


@pytest.mark.parametrize("text", ["dpdk:", "dpdk:eth0", "dpdk:net_null0:x", "dpdk:0000:01:00"])
def test_what_is_no_device_is_refused(text):
    with pytest.raises(UsageError, match="expected a device of DPDK, such as net_af_packet0"):
        open_source(text, MODEL)


def test_an_interface_that_is_not_there_is_refused():
    with pytest.raises(UsageError, match="af_xdp:none0,start_queue=1: no such network interface"):
        open_source("af_xdp:none0,start_queue=1", MODEL)


def test_several_queues_are_warned_of(tmp_path, monkeypatch):
    """AF_XDP reads one, and the kernel gets the packets of the others."""
    for queue in ("rx-0", "rx-1", "tx-0"):
        (tmp_path / queue).mkdir()
    monkeypatch.setattr(af_xdp, "_QUEUES", str(tmp_path))
    monkeypatch.setattr(af_xdp, "DpdkSource", lambda *given: given)
    with pytest.warns(match="one of its 2 queues is read.*ethtool -L lo combined 1"):
        assert open_source("af_xdp:lo", MODEL) == ("net_af_xdp0,iface=lo", "af_xdp:lo")


def test_af_xdp_refuses_packets_without_ethernet_headers(tun):
    with pytest.raises(UsageError, match=f"^{tun}: its packets have no Ethernet .*n3ic stream"):
        open_source(f"af_xdp:{tun}", MODEL)


def test_dpdk_refuses_packets_without_ethernet_headers(tun, installed, capfd):
    with pytest.raises(DataError, match="see DPDK's own messages above"):
        open_source(f"dpdk:net_af_packet0,iface={tun}", MODEL)
    assert f"packets of {tun} have no Ethernet header" in capfd.readouterr().err


def test_without_dpdk_what_to_install_is_said(n3ic, tmp_path, monkeypatch):
    MODEL.save(tmp_path / "model.n3ic")
    monkeypatch.setenv("PATH", str(tmp_path))
    error = n3ic(f"stream dpdk:{NULL} --model model.n3ic --sink out.jsonl", expect=4).stderr
    assert "apt-get install dpdk dpdk-dev" in error and not (tmp_path / "out.jsonl").exists()


def test_a_device_that_dpdk_does_not_open_is_an_error(installed, capfd):
    with pytest.raises(DataError, match=r"dpdk:net_nothing0: .*see DPDK's own messages above"):
        open_source("dpdk:net_nothing0", MODEL)
    assert "net_nothing0" in capfd.readouterr().err


@pytest.mark.slow
def test_a_capture_through_dpdk_is_what_predict_says(tmp_path, installed):
    path, out = tmp_path / "c.pcap", tmp_path / "out.jsonl"
    frames, source = whole_frames(path, 60), f"dpdk:net_pcap0,rx_pcap={path}"
    figures = stream(source, MODEL, out, state=tmp_path / "state", commit_s=0)
    assert lines(out) == predicted(MODEL, path)
    assert figures.packets == len(frames) and figures.flows == 60
    assert not any(figures.lost.values())


def test_a_wait_for_packets_ends_idle_flows_of_a_link_and_none_of_a_capture(tmp_path, installed):
    """A capture has times of its own, which the clock says nothing of."""
    whole_frames(tmp_path / "c.pcap", 5)
    quiet = []
    for device in (f"net_pcap0,rx_pcap={tmp_path / 'c.pcap'}", NULL):
        source = DpdkSource(device)
        try:
            nothing = source._shared.receive(0)  # packets come once they are asked for
            quiet.append(source._batch(nothing, {}).quiet_ns)
        finally:
            source.close()
    assert quiet[0] == 0 < quiet[1] <= time.time_ns()


def test_a_capture_through_dpdk_is_not_gone_on_with(tmp_path, installed):
    whole_frames(tmp_path / "c.pcap", 20)
    source = DpdkSource(f"net_pcap0,rx_pcap={tmp_path / 'c.pcap'}")
    try:
        position = next(source.batches({})).position
        with pytest.raises(DataError, match="only from its start; give n3ic stream the file"):
            next(source.batches(position))
    finally:
        source.close()


class SlowSink(StreamSink):
    """Takes a while for flows, and forgets them."""

    name = "slow"

    def write(self, batch, first):
        time.sleep(0.02)


@pytest.mark.slow
def test_what_comes_while_the_stream_is_behind_is_counted(tmp_path, installed, monkeypatch):
    """Buffers run out behind a slow sink; what was received is read, or counted as lost."""
    monkeypatch.setattr(dpdk, "TICKETS", 512)
    monkeypatch.setattr(dpdk, "BATCH", 64)
    whole_frames(tmp_path / "c.pcap", 60)
    source = DpdkSource(f"net_pcap0,rx_pcap={tmp_path / 'c.pcap'},infinite_rx=1")
    full, interrupted = f"{source.name}: ring full", []

    def interrupt_once_behind(figures):
        if figures.packets > 1000 and source.lost()[full] and not interrupted:
            interrupted.append(True)
            raise KeyboardInterrupt

    settings = StreamSettings(seconds=TIMEOUT_S)
    stream = FlowStream(source, StreamModel(MODEL), [SlowSink()], settings)
    figures = stream.run(interrupt_once_behind)
    received = source.status["received"]
    assert figures.packets > 1000 and figures.lost[full] > 0
    assert received == figures.packets + sum(figures.lost.values())
    assert source.status["balance"]["unaccounted"] == 0


def test_a_manager_that_is_killed_ends_the_stream_with_an_error(installed):
    """What came before it is decided."""
    source = DpdkSource(NULL)
    killed = []

    def kill(figures):
        if figures.packets and not killed:
            killed.append(os.kill(source._manager._process.pid, signal.SIGKILL))

    with pytest.raises(
        DataError, match="dpdk:net_null0,size=60: the manager has ended; the packets"
    ):
        FlowStream(source, StreamModel(MODEL), [SlowSink()], StreamSettings()).run(kill)
    assert killed


# --- links ---------------------------------------------------------------------------------------


@pytest.fixture
def namespace():
    """Runs a script of Python in a network namespace of its own, with a link, and what it said."""
    if not shutil.which("ip"):
        pytest.skip("needs ip (apt-get install iproute2)")
    name = f"n3src-{uuid.uuid4().hex[:8]}"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True).returncode:
        pytest.skip("needs the right to make network namespaces")
    run = ["ip", "netns", "exec", name]
    try:
        for words in (
            "ip link add n3one type veth peer name n3two",
            "sysctl -qw net.ipv6.conf.n3one.disable_ipv6=1 net.ipv6.conf.n3two.disable_ipv6=1",
            "ip link set n3one arp off up",
            "ip link set n3two arp off up",
        ):
            subprocess.run([*run, *words.split()], check=True)
        yield run
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)


STREAM = """
import json, socket, sys, threading, time
from n3ic.meter.capture import Capture
from n3ic.model.load import load_model
from n3ic.systems.stream.flows.decide import StreamModel
from n3ic.systems.stream.flows.pipeline import FlowStream, StreamSettings
from n3ic.systems.stream.flows.sink import open_sink
from n3ic.systems.stream.flows.source import open_source

name, state, first, last = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
model = StreamModel(load_model("model.n3ic"))
settings = StreamSettings(state or None, seconds=300.0)
source, sink = open_source(name, model.model), open_sink("out.jsonl", model)
stream = FlowStream(source, model, [sink], settings)
with Capture("c.pcap") as capture:
    frames = [data for data, _, _ in capture.packets()][first:last]

def send():
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as out:
        out.bind(("n3one", 0))
        for number, data in enumerate(frames):
            out.send(data)
            while stream.figures.read < number - 64:  # the rings are short
                time.sleep(0.001)

def interrupt_at_the_end(figures, interrupted=[]):
    if figures.read >= len(frames) and not interrupted:
        interrupted.append(True)
        raise KeyboardInterrupt

threading.Thread(target=send, daemon=True).start()
print(json.dumps(stream.run(interrupt_at_the_end).to_dict()))
"""
TIMELESS = ("byte", "packet", "hop", "")


def timeless():
    """A random network that reads nothing of times, which are others on a link."""
    names = [name for name in SPEC.feature_names if SPEC.units[name] in TIMELESS]
    rng = np.random.default_rng(3)
    fields = tuple(
        Field.thermometer(n, sorted(rng.choice(CUTS, 4, False)), unit=SPEC.units[n]) for n in names
    )
    model = random_model((4 * len(fields), 16, 3), rng, extremes=False)
    return replace(model, input=InputSpec(fields), meter=SPEC, classes=("a", "b", "d"))


KEYS = ("source", "source_port", "destination", "destination_port", "protocol", "packets", "class")
SOURCES = ["dpdk:net_af_packet0,iface=n3two", "af_xdp:n3two"]


def run_on_a_link(namespace, folder, source, state, part):
    """A stream of a source to which packets of a capture are sent; gives its figures."""
    words = [sys.executable, "-c", STREAM, source, state, *map(str, part)]
    done = subprocess.run([*namespace, *words], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def verdict_keys(rows):
    return sorted(tuple(row[k] for k in (*KEYS, "margin")) for row in rows)


@pytest.mark.slow
@pytest.mark.parametrize("source", SOURCES)
def test_flows_of_a_link_are_those_of_predict(source, tmp_path, installed, namespace):
    frames, model = whole_frames(tmp_path / "c.pcap", 80), timeless()
    model.save(tmp_path / "model.n3ic")
    figures = run_on_a_link(namespace, tmp_path, source, "", (0, len(frames)))
    assert figures["packets"] == len(frames) and not figures["dropped"]
    want = verdict_keys(predicted(model, tmp_path / "c.pcap"))
    assert verdict_keys(lines(tmp_path / "out.jsonl")) == want and len(want) == 80


@pytest.mark.slow
@pytest.mark.parametrize("source", SOURCES)
def test_a_stream_of_a_link_goes_on_with_its_flows(source, tmp_path, installed, namespace):
    """The first ends amid the flows."""
    frames, model = whole_frames(tmp_path / "c.pcap", 80), timeless()
    model.save(tmp_path / "model.n3ic")
    half = len(frames) // 2
    for part in ((0, half), (half, len(frames))):
        figures = run_on_a_link(namespace, tmp_path, source, "state", part)
        assert figures["packets"] == part[1] and not figures["dropped"]
    got, want = (
        verdict_keys(lines(tmp_path / "out.jsonl")),
        verdict_keys(predicted(model, tmp_path / "c.pcap")),
    )
    assert {*got} <= {*want} and len({*got}) == len(got) == figures["flows"] > 30


FLOOD = (
    STREAM.partition("def send")[0]
    + """
def send():
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as out:
        out.bind(("n3one", 0))
        for number in range(20_000):
            out.send(frames[number % len(frames)])
            while stream.figures.read < number - 64 < 1100:  # the flood comes once it reads
                time.sleep(0.001)
    time.sleep(1)
    source.stop()

threading.Thread(target=send, daemon=True).start()
print(json.dumps(stream.run().to_dict()))
"""
)


@pytest.mark.slow
@pytest.mark.parametrize("source", [*SOURCES, "dpdk:net_pcap0,iface=n3two"])
def test_every_packet_of_a_flood_is_read_or_lost_at_a_place(source, tmp_path, installed, namespace):
    whole_frames(tmp_path / "c.pcap", 60)
    timeless().save(tmp_path / "model.n3ic")
    words = [sys.executable, "-c", FLOOD, source, "", "0", "1000"]
    done = subprocess.run([*namespace, *words], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    lost = {place: n for place, n in figures["dropped"].items() if not place.startswith("meter")}
    assert figures["packets"] + sum(lost.values()) == 20_000 and figures["packets"] > 1000


def process_name(pid):
    """The name of a process; empty where it has ended meanwhile."""
    try:
        return Path("/proc", pid, "comm").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


@pytest.mark.slow
@pytest.mark.parametrize("before", ["off", "on"])
@pytest.mark.parametrize("source", SOURCES)
def test_a_killed_stream_leaves_no_manager_and_its_interface_as_it_was(
    source, before, tmp_path, installed, namespace, monkeypatch, request
):
    own = tempfile.TemporaryDirectory(prefix="n3", dir="/tmp")
    request.addfinalizer(own.cleanup)
    monkeypatch.setenv("TMPDIR", own.name)  # the manager's folder is left there
    subprocess.run([*namespace, "ip", "link", "set", "n3two", "promisc", before], check=True)
    timeless().save(tmp_path / "model.n3ic")
    words = [*N3IC, "stream", source, "--model", "model.n3ic", "--sink", "out.jsonl"]
    with subprocess.Popen([*namespace, *words], cwd=tmp_path) as process:
        try:
            while not (tmp_path / "out.jsonl").exists() and process.poll() is None:
                Event().wait(0.05)
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
            names = {int(pid): process_name(pid) for pid in children.split()}
            (manager,) = (pid for pid, name in names.items() if name.startswith("manager"))
            handle = os.pidfd_open(manager)
        finally:
            process.kill()
    assert select.select([handle], [], [], TIMEOUT_S)[0], "the manager runs on"
    os.close(handle)
    link = subprocess.run([*namespace, "ip", "link", "show", "n3two"], capture_output=True).stdout
    assert b"xdp" not in link and (b"PROMISC" in link) == (before == "on")
