# SPDX-License-Identifier: Apache-2.0
"""Large frames at XDP, and the meter at tcx, where a host sees both directions."""

import random
import socket
import struct

import pytest
from metering import load, network
from wires import ip, link, wire

from n3ic.errors import UsageError
from n3ic.exporters.xdp import libbpf, source
from n3ic.exporters.xdp.exporter import read_program
from n3ic.exporters.xdp.network.structure import structure_of
from n3ic.exporters.xdp.replay import counter_difference, difference, replay, replayable, traffic
from n3ic.meter.standard import standard_spec
from n3ic.systems.xdp import deployment
from n3ic.systems.xdp.program_record import Interface
from n3ic.systems.xdp.status import status
from n3ic.systems.xdp.terminal import lines
from n3ic.targets.directory import export

SPEC = standard_spec(packets=8)

pytestmark = pytest.mark.usefixtures("clang", "kernel")


@pytest.fixture(scope="module")
def image(clang, kernel):
    files = source.meter_program(SPEC, structure_of([network(SPEC)]), per_cpu=False)
    return source.compiled(files, source.METER)


@pytest.fixture(scope="module")
def exported(tmp_path_factory, clang):
    out = tmp_path_factory.mktemp("hooks") / "export"
    export(network(SPEC), "xdp", out, verify=False)
    (out / "meter/meter.o").write_bytes(
        source.compiled(read_program(out / "meter"), source.METER)
    )
    return out


def packet(size, host, port, tags=b"", protocol=6):
    """A frame of `size` bytes without tags, from 10.0.0.`host`."""
    ports = (port, 443) if host == 1 else (443, port)
    ends = bytes([10, 0, 0, host, 10, 0, 0, 3 - host])
    head = struct.pack(">BBHHHBBH", 0x45, 0, size - 14, 0, 0, 64, protocol, 0)
    if protocol == 6:
        above = struct.pack(">HHIIBBHI", *ports, 0, 0, 0x50, 0x10, 512, 0)
    else:
        above = struct.pack(">HHHH", *ports, size - 34, 0)
    return (bytes(12) + tags + b"\x08\x00" + head + ends + above).ljust(size + len(tags), b"x")


def large_frames(count, seed):
    r = random.Random(seed)
    frames = []
    for i in range(count):
        size = r.choice([60, 1514, 3400, 3600, 4082, 4110, 7000, 9000])
        tags = r.choice([b"", b"", b"\x81\x00\x20\x05", b"\x88\xa8\x00\x07\x81\x00\x00\x05"])
        protocol = r.choice([6, 6, 17])
        frame = packet(size, r.choice([1, 2]), 1000 + r.randrange(4), tags, protocol)
        frames.append((frame, len(frame), 1000 * i))
    return frames


@pytest.mark.parametrize("mode", ["native", "generic"])
def test_large_frames_are_exact(image, in_namespace, mode):
    frames = large_frames(300, 1)

    def check():
        link("n3a", "n3b", mtu=9100)
        model = network(SPEC)
        with load(model, image=image) as programs, wire("n3a") as sender:
            libbpf.attach(socket.if_nametoindex("n3b"), programs.program, mode)
            events = replay(programs, frames, sender.send)
            assert difference(model, SPEC, frames, events) == ""
            assert counter_difference(SPEC, frames, programs.counters()) == ""
            assert programs.counters()["bytes"] == sum(len(frame) for frame, _, _ in frames)

    in_namespace(check)


def test_large_frames_run_in_the_driver(exported, in_namespace, tmp_path, monkeypatch):
    monkeypatch.setenv("N3IC_RUN", str(tmp_path))

    def check():
        link("n3a", "n3b", mtu=9000)
        interface = Interface.named("n3b")
        loaded = deployment.load(interface, exported)
        assert (loaded.record.mode, loaded.note) == ("native", "")
        with wire("n3a") as sender, wire("n3b") as taker:
            sender.send(packet(9000, 1, 1000))
            assert taker.recv(10000) == packet(9000, 1, 1000)
        assert status(interface).bytes == 9000
        deployment.unload(interface)

    in_namespace(check)


def test_a_driver_that_takes_no_pieces_runs_the_plain_program(
    exported, in_namespace, tmp_path, monkeypatch
):
    monkeypatch.setenv("N3IC_RUN", str(tmp_path))
    asked = []
    attach = libbpf.attach

    def refuse_first(*given, **named):
        asked.append(given[2])
        if len(asked) == 1:
            raise libbpf.BpfError("no frames in pieces", 95)
        attach(*given, **named)

    monkeypatch.setattr(deployment, "attach", refuse_first)

    def check():
        link("n3a", "n3b", mtu=1500)
        interface = Interface.named("n3b")
        loaded = deployment.load(interface, exported)
        assert asked == ["native", "native"]
        assert (loaded.record.mode, loaded.record.frags) == ("native", False)
        assert status(interface).frags is False
        assert "without frames in several pieces" in lines(status(interface))[0]
        # Such a program is refused where frames are large: it is the plain one indeed.
        deployment.unload(interface)
        asked.clear()
        for name in ("n3a", "n3b"):
            ip("set", name, "mtu", "9000")
        assert deployment.load(interface, exported).record.mode == "generic"
        assert asked == ["native", "native", "generic"]
        deployment.unload(interface)

    in_namespace(check)


# --- tcx -----------------------------------------------------------------------------------------


def load_tcx(model, image, **given):
    programs = load(model, image=image, hook="tcx", **given)
    libbpf.attach(socket.if_nametoindex("n3b"), programs.program, "tcx")
    return programs


def check_both_directions(image, frames):
    """Frames to and from the interface of a host, whose program knows their times."""
    model = network(SPEC)
    link("n3a", "n3b", mtu=9100)
    with wire("n3a") as far, wire("n3b") as near, load_tcx(model, image) as programs:

        def send(frame):
            (near if b"\x0a\x00\x00\x01" in frame[26:54] else far).send(frame)

        events = replay(programs, frames, send)
        assert difference(model, SPEC, frames, events) == ""
        assert counter_difference(SPEC, frames, programs.counters()) == ""
        assert libbpf.tcx_programs(socket.if_nametoindex("n3b")) == [programs.program.id]
        libbpf.detach(socket.if_nametoindex("n3b"), "tcx", programs.program)
        assert libbpf.tcx_programs(socket.if_nametoindex("n3b")) == []
    return events


def test_both_directions_at_tcx_are_exact(image, in_namespace):
    frames = replayable(traffic(SPEC, 1500, seed=8))
    events = in_namespace(lambda: check_both_directions(image, frames))
    assert set(events["vlan"].tolist()) > {5, 7, 4096}


def test_large_frames_at_tcx_are_exact(image, in_namespace):
    frames = large_frames(200, 2)
    in_namespace(lambda: check_both_directions(image, frames))
