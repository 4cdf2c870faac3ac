"""n3icd on links of its own: traffic, readers, kills, packs, and what is wrong with them."""

import json
import shutil
import signal
import socket
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from metering import network
from n3icd import Daemon, Reader, frame, free_port, mount, send, unmount

from n3ic.meter.standard import standard_spec
from n3ic.model.random_models import random_model
from n3ic.targets.directory import export

CLASSES = ("benign", 'a "quoted]\\ class', "größer=%n{}")
CHECKED = "-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all"
SECOND = 10**6  # in units of the meter


@pytest.fixture(scope="module")
def model():
    spec = replace(standard_spec(packets=4), idle_timeout=SECOND, cache_flows=8192)
    return replace(network(spec), classes=CLASSES, name='net "0"')


@pytest.fixture(scope="module")
def built(model, tmp_path_factory, clang):
    if not shutil.which("gcc") or not Path("/usr/include/bpf/libbpf.h").exists():
        pytest.skip("needs gcc and libbpf's headers (apt-get install gcc libbpf-dev)")
    out = tmp_path_factory.mktemp("daemon") / "export"
    export(model, "xdp", out, verify=False)
    command = [
        "make",
        "-s",
        "-C",
        str(out),
        f"HOST_FLAGS={CHECKED}",
        "daemon/n3icd",
        "meter/meter.o",
    ]
    subprocess.run(command, check=True)
    return out


@pytest.fixture(scope="module")
def pins(tmp_path_factory):
    place = tmp_path_factory.mktemp("bpffs") / "bpf"
    if not mount(place):
        pytest.skip("needs the right to mount a BPF file system")
    yield place
    unmount(place)


@pytest.fixture
def daemon(built, pins, veth, tmp_path):
    """A function that makes daemons; what is left of them goes at the end."""
    made = []
    for name in veth:
        Path(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6").write_text("1")

    def make(**settings):
        made.append(Daemon(built, veth[0], tmp_path, pins, **settings))
        return made[-1]

    yield make
    for one in made:
        one.remove()


def flows(ports, packets=4):
    return [frame(port) for port in ports for _ in range(packets)]


def test_two_readers_see_every_flow(daemon, veth, model):
    running = daemon().start()
    readers = [running.reader(), running.reader()]
    assert readers[0].greeting["interface"] == veth[0]
    assert readers[0].greeting["index"] == socket.if_nametoindex(veth[0])
    send(veth[1], flows(range(1000, 1050)))
    one, other = (reader.lines(50) for reader in readers)
    assert one == other
    assert sorted(flow["source_port"] for flow in one) == list(range(1000, 1050))
    for flow in one:
        best = sorted(flow["scores"], reverse=True)
        assert flow["verdict"] == CLASSES[flow["scores"].index(best[0])]
        assert flow["margin"] == best[0] - best[1]
        assert list(flow["features"]) == model.meter.feature_names
        assert list(flow["registers"]) == [r.name for r in model.meter.registers]
        assert (flow["packets"], flow["why"], flow["vlan"]) == (4, "packets", None)
        assert (flow["source"], flow["destination"]) == ("192.0.2.1", "192.0.2.2")
        assert flow["interface"] == veth[0]
        assert 0 < flow["first"] <= flow["last"] <= flow["decided"]
        assert flow["registers"]["spkts"] == 4
        assert flow["model"] == model.digest[:16]
    assert running.end() == 0


def test_a_kill_loses_no_flow(daemon, veth):
    port = free_port()
    running = daemon(prometheus=f"127.0.0.1:{port}").start()
    first = running.reader()
    send(veth[1], flows(range(1000, 1010)) + flows(range(2000, 2010), 2))
    assert len(first.lines(10)) == 10
    running.end(signal.SIGKILL)
    send(veth[1], flows(range(2000, 2010), 2) + flows(range(3000, 3010), 2))
    running.start()  # on the socket that the kill left
    assert "took over" in running.log[-1]
    # What was decided meanwhile is read before anybody can connect, but counted.
    figures = running.figures()
    name = f'{{interface="{veth[0]}"}}'
    assert figures[f"n3ic_xdp_packets_total{name}"] >= 100
    assert figures[f"n3ic_xdp_flows_started_total{name}"] == 30
    assert figures[f'n3ic_xdp_decisions_total{{interface="{veth[0]}",reason="packets"}}'] == 20
    assert figures[f"n3ic_xdp_n3icd_events_total{name}"] == 10
    reader = running.reader()
    send(veth[1], flows(range(3000, 3010), 2))
    assert [flow["packets"] for flow in reader.lines(10)] == [4] * 10
    assert running.end() == 0


def test_idle_flows_end(daemon, veth):
    running = daemon().start()
    reader = running.reader()
    send(veth[1], flows(range(1000, 1100), 2))
    found = reader.lines(100)
    assert {flow["why"] for flow in found} == {"idle"}
    assert [flow["last"] for flow in found] == sorted(flow["last"] for flow in found)
    assert all(flow["decided"] - flow["last"] > 1 for flow in found)
    assert running.end() == 0
