# SPDX-License-Identifier: Apache-2.0
"""Large frames at XDP, and the meter at tcx, where a host sees both directions."""

import random
import socket
import struct
from contextlib import suppress

import pytest

from n3ic.errors import UsageError
from n3ic.exporters.xdp import libbpf, source
from n3ic.exporters.xdp.network.structure import structure_of
from n3ic.exporters.xdp.plan import Choices
from n3ic.exporters.xdp.replay import counter_difference, difference, replay, replayable, traffic
from n3ic.exporters.xdp.verdict_lists import Limits
from n3ic.meter.packet import LINK_ETHERNET, parse
from n3ic.meter.reference import ReferenceMeter
from n3ic.meter.standard import standard_spec
from n3ic.systems.xdp import deployment
from n3ic.systems.xdp.program_record import Interface
from n3ic.systems.xdp.status import status
from n3ic.systems.xdp.terminal import lines
from tests.support.metering import load, network
from tests.support.n3icd import build
from tests.support.wires import Tap, host, ip, link, ping, wire

SPEC = standard_spec(packets=8)

pytestmark = pytest.mark.usefixtures("clang", "kernel")


@pytest.fixture(scope="module")
def image(clang, kernel):
    files = source.meter_program(SPEC, structure_of([network(SPEC)]), per_cpu=False)
    return source.compile_program(files, source.METER)


@pytest.fixture(scope="module")
def exported(tmp_path_factory, clang):
    return build(tmp_path_factory.mktemp("hooks"), network(SPEC))


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


@pytest.mark.slow
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


@pytest.mark.slow
def test_large_frames_run_in_the_driver(exported, in_namespace, run_folder):

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


@pytest.mark.slow
def test_both_directions_at_tcx_are_exact(image, in_namespace):
    frames = replayable(traffic(SPEC, 1500, seed=8))
    events = in_namespace(lambda: check_both_directions(image, frames))
    assert set(events["vlan"].tolist()) > {5, 7, 4096}


def test_large_frames_at_tcx_are_exact(image, in_namespace):
    frames = large_frames(200, 2)
    in_namespace(lambda: check_both_directions(image, frames))


@pytest.mark.slow
def test_a_host_sees_both_directions_of_its_own_flows(image, in_namespace):
    """Echo and TCP with a neighbour: registers are those of a capture here."""
    spec = standard_spec(packets=10_000)
    model = network(spec)
    timed = ("dur", "t_", "gap")

    def sizes(record):
        named = zip(spec.registers, record, strict=False)
        return {r.name: v for r, v in named if not any(part in r.name for part in timed)}

    def check():
        with host("n3b", ("10.77.0.1", "10.77.0.2")) as exchange:
            tap = Tap("n3b")
            with load_tcx(model, None, clock="kernel") as programs:
                ping("10.77.0.2")
                assert len(exchange(bytes(100_000))) == 50_000
                programs.end_all()
                events, counters = programs.events(), programs.counters()
                libbpf.detach(socket.if_nametoindex("n3b"), "tcx", programs.program)
            frames = list(tap.frames())
        meter = ReferenceMeter(spec)
        parsed = (parse(LINK_ETHERNET, f, len(f), i) for i, f in enumerate(frames))
        wanted = {
            (r.key.source, r.key.source_port, r.key.protocol): sizes(r.registers)
            for r in meter.run(parsed)
        }
        flow_sizes = {
            (bytes(e["source"][:4]), int(e["source_port"]), int(e["protocol"])): sizes(
                e["registers"].tolist()
            )
            for e in events
        }
        assert len(flow_sizes) == 2
        assert flow_sizes == wanted
        assert all(one["spkts"] and one["dpkts"] for one in flow_sizes.values())
        assert (counters["packets"], counters["bytes"]) == (len(frames), sum(map(len, frames)))
        large = [f for f in frames if len(f) > 1518]
        assert counters["super"] == len(large) > 0
        # Each of them carries as many bytes as its packets do on the wire.
        payload = [parse(LINK_ETHERNET, f, len(f), 0).payload_length for f in large]
        assert counters["segments"] == sum(-(-n // 1448) for n in payload)

    in_namespace(check)


def arrived(taker):
    """Frames of UDP that a socket took so far."""
    taker.settimeout(0)
    got = []
    try:
        while True:
            frame, place = taker.recvfrom(10000)
            if place[2] != socket.PACKET_OUTGOING and frame[23:24] == b"\x11":
                got.append(frame)
    except BlockingIOError:
        return got


@pytest.fixture
def tcx(exported, in_namespace, run_folder):
    """A function that loads with policies at tcx of n3b, and calls another one with its links."""

    def run(check, *policies, dry_run=False):
        def inside():
            link("n3a", "n3b")
            link("n3c", "n3d")
            interface = Interface.named("n3b")
            choices = Choices(policies=policies, limits=Limits(dry_run))
            deployment.load(interface, exported, choices, mode="tcx")
            try:
                with wire("n3a") as far, wire("n3b") as near, wire("n3d") as third:
                    check(interface, far, near, third)
            finally:
                deployment.unload(interface)
                assert libbpf.tcx_programs(interface.index) == []

        in_namespace(inside)

    return run


def send_out(near, frame):
    with suppress(OSError):  # the stack says where a packet is dropped
        near.send(frame)


UDP = packet(100, 2, 1000, protocol=17)
BACK = packet(100, 1, 1000, protocol=17)


@pytest.mark.first_case
@pytest.mark.parametrize(
    ("policy", "dry_run", "out", "third", "counter"),
    [
        pytest.param("undecided=pass", False, 3, 0, "spared", marks=pytest.mark.slow),
        ("undecided=drop", False, 0, 0, "dropped"),
        pytest.param("undecided=drop", True, 3, 0, "spared", marks=pytest.mark.slow),
        ("undecided=interface:n3c", False, 0, 6, "dropped"),
        ("undecided=mirror:n3c", False, 3, 6, "mirrored"),
        ("undecided=mirror:n3c", True, 3, 0, "spared"),
    ],
)
def test_policies_hold_in_both_directions(tcx, policy, dry_run, out, third, counter):
    def check(interface, far, near, other):
        for _ in range(3):
            far.send(UDP)
            send_out(near, BACK)
        assert len(arrived(far)) == out
        frames = arrived(other)
        assert frames.count(UDP) == frames.count(BACK) == third // 2
        state = status(interface)
        wanted = 0 if "pass" in policy or "interface" in policy else 6
        assert (state.packets, getattr(state, counter)) == (6, wanted)
        assert state.started == 1

    tcx(check, policy, dry_run=dry_run)


def test_a_rate_holds_for_what_goes_out(tcx):
    def check(interface, far, near, other):
        deployment.put_verdict(interface, "10.0.0.2", "rate-limit", 10**9, None)
        for _ in range(5):
            send_out(near, UDP)
        assert len(arrived(far)) == 1
        assert status(interface).limited == 4

    tcx(check)


def test_marks_are_those_of_the_stack(exported, in_namespace, run_folder):

    def check():
        ip("set", "lo", "up")
        interface = Interface.named("lo")
        deployment.load(interface, exported, Choices(policies=("undecided=mark:77",)), mode="tcx")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taker:
            taker.bind(("127.0.0.1", 0))
            taker.setsockopt(socket.SOL_SOCKET, 75, 1)  # SO_RCVMARK
            taker.settimeout(60)
            taker.sendto(b"x", taker.getsockname())
            _, control_messages, _, _ = taker.recvmsg(10, 100)
        assert [struct.unpack("=I", data)[0] for *_, data in control_messages] == [77]
        deployment.unload(interface)

    in_namespace(check)


@pytest.mark.slow
def test_a_new_program_takes_over_both_directions(tcx, exported):
    def check(interface, far, near, other):
        (number, *_) = libbpf.tcx_programs(interface.index)
        with pytest.raises(UsageError, match="has loaded program"):
            deployment.load(interface, exported)
        with pytest.raises(UsageError, match="has loaded program"):
            deployment.load(interface, exported, mode="tcx")
        far.send(UDP)
        deployment.update(interface, network(SPEC, 1))  # of another structure
        (following,) = libbpf.tcx_programs(interface.index)
        assert following != number
        state = status(interface)
        assert (state.mode, state.packets) == ("tcx", 1)
        assert "tcx, both directions" in lines(state)[0]

    tcx(check)


def test_hooks_refuse_what_they_cannot_do(exported, in_namespace, run_folder):

    def check():
        link("n3a", "n3b")
        interface = Interface.named("n3b")
        for mode, policy, message in (
            ("auto", "undecided=mirror:n3a", "--hook tcx"),
            ("tcx", "undecided=socket:0", "only XDP"),
            ("tcx", "undecided=cpu:0", "only XDP"),
            ("tcx", "undecided=mirror:n3b", "without end"),
        ):
            with pytest.raises(UsageError, match=message):
                deployment.load(interface, exported, Choices(policies=(policy,)), mode=mode)
            assert libbpf.query(interface.index) is None

    in_namespace(check)


@pytest.mark.parametrize("mode", ["auto", "native", "generic", "tcx"])
def test_an_interface_without_ethernet_headers_is_refused(exported, tun, run_folder, mode):
    index = socket.if_nametoindex(tun)
    with pytest.raises(
        UsageError, match=f"^{tun}: its packets have no Ethernet header.*n3ic stream {tun}"
    ):
        deployment.load(Interface.named(tun), exported, mode=mode)
    assert libbpf.query(index) is None
    assert libbpf.tcx_programs(index) == []


def test_xdp_sends_nothing_to_an_interface_without_ethernet_headers(
    exported, veth, tun, run_folder
):
    choices = Choices(policies=(f"a=interface:{tun}",))
    with pytest.raises(UsageError, match=f"interface:{tun}: XDP sends whole Ethernet frames"):
        deployment.load(Interface.named(veth[0]), exported, choices)
    assert libbpf.query(socket.if_nametoindex(veth[0])) is None
