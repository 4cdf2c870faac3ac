# SPDX-License-Identifier: Apache-2.0
"""Captures over veth pairs, through the program in the driver and in the stack."""

import ctypes
import mmap
import random
import socket
import struct
import time

import numpy as np
import pytest

from n3ic.exporters.xdp import libbpf, source
from n3ic.exporters.xdp.answer_program import AnswerProgram
from n3ic.exporters.xdp.network.structure import structure_of
from n3ic.exporters.xdp.network.values import value_bytes
from n3ic.exporters.xdp.replay import counter_difference, difference, replay, replayable, traffic
from n3ic.meter.capture import Capture
from n3ic.meter.standard import standard_spec
from n3ic.model.random_models import random_model
from n3ic.model.verification_vectors import verification_vectors
from n3ic.targets.packets import PacketLayout, inputs_of
from tests.support.metering import load, network, set_policy
from tests.support.wires import link, wire

SPEC = standard_spec(packets=8)
CAPTURES = ("443-git.pcap", "6in4tunnel.pcap", "fuzz-2006-09-29-28586.pcap", "dnscrypt-v2-doh.pcap")

pytestmark = pytest.mark.usefixtures("clang", "kernel")


@pytest.fixture(scope="module")
def image(clang, kernel):
    files = source.meter_program(SPEC, structure_of([network(SPEC)]), per_cpu=False)
    return source.compile_program(files, source.METER)


def frames_of(path):
    with Capture(path) as capture:
        return replayable((f, n, t // SPEC.tick_ns) for f, n, t in capture.packets())


def check_on_the_wire(image, frames, mode):
    model = network(SPEC)
    link("n3a", "n3b")
    with load(model, image=image, flows=1 << 14) as programs, wire("n3a") as sender:
        libbpf.attach(socket.if_nametoindex("n3b"), programs.program, mode)
        events = replay(programs, frames, sender.send)
        assert difference(model, SPEC, frames, events) == ""
        assert counter_difference(SPEC, frames, programs.counters()) == ""
        assert programs.counters()["events_lost"] == 0
    return len(events)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["native", pytest.param("generic", marks=pytest.mark.slow)])
def test_traffic_on_a_wire_is_exact(image, in_namespace, mode):
    frames = replayable(traffic(SPEC, 1500, seed=8))
    assert in_namespace(lambda: check_on_the_wire(image, frames, mode)) > 50


@pytest.mark.first_case
@pytest.mark.parametrize("name", CAPTURES)
def test_captures_on_a_wire_are_exact(image, in_namespace, real_data, name):
    frames = frames_of(real_data / "pcaps" / name)[:4000]
    in_namespace(lambda: check_on_the_wire(image, frames, "native"))


def counted(programs, packets):
    """The counters, once so many packets came, or none came for a minute."""
    counters, limit = programs.counters(), time.monotonic() + 60
    while counters["packets"] < packets and time.monotonic() < limit:
        time.sleep(0.001)
        counters = programs.counters()
    return counters


def test_noise_is_taken_and_counted(image, in_namespace):
    """Noise of every length is taken, and what comes behind it is counted."""

    def check():
        link("n3a", "n3b")
        r = random.Random(1)
        with load(network(SPEC), image=image, clock="kernel") as programs, wire("n3a") as sender:
            libbpf.attach(socket.if_nametoindex("n3b"), programs.program, "native")
            for i in range(2000):
                noise = r.randbytes(r.randint(14, 2000))
                kind = r.choice([b"\x08\x00\x45", b"\x86\xdd\x60", b"\x81\x00", noise[12:14]])
                sender.send((noise[:12] + kind + noise[14:])[: max(14, len(noise))])
                if i % 64 == 63:  # a link has room for few
                    counted(programs, i + 1)
            counters = counted(programs, 2000)
            assert counters["packets"] == 2000
            aside = sum(counters[name] for name in ("not IP", "IP header damaged"))
            assert aside > 500

    in_namespace(check)


@pytest.mark.first_case
@pytest.mark.parametrize("mode", ["native", "generic"])
def test_verdicts_decide_where_packets_go(image, in_namespace, mode):
    """Undecided flows pass, decided ones leave by another interface, or not at all."""
    body = b"\x13\x88\x00\x35" + bytes(40)
    head = bytes([0x45, 0, 0, 64, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2])
    frame = b"\xff" * 6 + bytes(6) + b"\x08\x00" + head + body
    last = b"\xff" * 12 + b"\x88\xb5" + bytes(50)  # no IP: passes every program

    def came(receiver):
        """Frames that came before the last one of all, which each receiver gets."""
        got = 0
        while receiver.recv(4096) != last:
            got += 1
        return got

    def check():
        link("n3a", "n3b")
        link("n3c", "n3d")
        # A veth end takes redirected frames in the driver where its peer runs a program, too.
        with (
            load(network(SPEC), image=image, clock="kernel") as programs,
            wire("n3a") as sender, wire("n3b") as passed, wire("n3d") as redirected,
            wire("n3c") as beside,
        ):  # fmt: skip
            if mode == "native":
                libbpf.attach(
                    socket.if_nametoindex("n3d"), programs.object.programs["n3ic_pass"], mode
                )
            libbpf.attach(socket.if_nametoindex("n3b"), programs.program, mode)
            programs.maps["interfaces"].update(0, socket.if_nametoindex("n3c"))
            for verdict in (0, 1, 2):
                set_policy(programs, verdict, "interface", 0)
            for _ in range(20):
                sender.send(frame)
            assert [redirected.recv(4096) for _ in range(13)] == [frame] * 13
            for end in (sender, beside):
                end.send(last)
            assert (came(passed), came(redirected)) == (7, 0)
            for verdict in (0, 1, 2):
                set_policy(programs, verdict, "drop")
            for _ in range(20):
                sender.send(frame)
            for end in (sender, beside):
                end.send(last)
            assert (came(passed), came(redirected)) == (0, 0)

    in_namespace(check)


@pytest.mark.first_case
@pytest.mark.parametrize("mode", ["native", "generic"])
def test_requests_are_answered_on_a_wire(clang, in_namespace, mode):
    model = random_model((40, 8, 3), np.random.default_rng(1), extremes=False)
    structure = structure_of([model], bits=True)
    packets = PacketLayout(40, 3, "both", "", 0x2323, 0)
    image = source.compile_program(source.answer_program(structure, packets), source.ANSWER)
    words = verification_vectors(model, 100, 0)

    def check():
        link("n3a", "n3b")
        with (
            AnswerProgram(image, "answer.o", packets) as program,
            load(network(SPEC), clock="kernel") as other,
            wire("n3a") as client,
        ):
            program.set_model(0, value_bytes(structure, model))
            if mode == "native":
                peer = other.object.programs["n3ic_pass"]
                libbpf.attach(socket.if_nametoindex("n3a"), peer, mode)
            libbpf.attach(socket.if_nametoindex("n3b"), program.program, mode)
            scores = []
            for x in inputs_of(words):
                request = packets.request(x, b"n3ic")
                client.send(request)
                answer = client.recv(4096)
                assert answer[:12] == request[6:12] + request[:6]
                scores.append(packets.result(answer).scores)
            assert np.array_equal(scores, model.infer(words).scores)
            assert program.counters()["answered"] == 100

    in_namespace(check)


class XdpSocket:
    """An AF_XDP socket on queue 0 of an interface, with room for 64 frames in its own memory."""

    def __init__(self, interface):
        self.c = ctypes.CDLL(None, use_errno=True)
        self.memory = mmap.mmap(-1, 64 * 4096)
        self.socket = socket.socket(44, socket.SOCK_RAW)  # AF_XDP
        start = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        area = struct.pack("=QQIIII", start, len(self.memory), 4096, 0, 0, 0)
        self.set(4, area)  # XDP_UMEM_REG
        for ring in (5, 6, 2):  # XDP_UMEM_FILL_RING, XDP_UMEM_COMPLETION_RING, XDP_RX_RING
            self.set(ring, struct.pack("=I", 64))
        fields = struct.unpack("=16Q", self.socket.getsockopt(283, 1, 128))  # XDP_MMAP_OFFSETS
        self.received = self.ring(0, fields[2] + 64 * 16)
        self.rx = fields[:4]  # offsets of producer, consumer, descriptors and flags
        filled = self.ring(0x100000000, fields[10] + 64 * 8)
        for i in range(64):
            struct.pack_into("=Q", filled, fields[10] + 8 * i, 4096 * i)
        struct.pack_into("=I", filled, fields[8], 64)  # the producer, after what it tells of
        address = struct.pack("=HHIII", 44, 1 << 1, socket.if_nametoindex(interface), 0, 0)
        if self.c.bind(self.socket.fileno(), address, len(address)):  # XDP_COPY
            raise OSError(ctypes.get_errno(), "binding an AF_XDP socket")

    def set(self, option, value):
        self.socket.setsockopt(283, option, value)  # SOL_XDP

    def ring(self, offset, size):
        shared = mmap.MAP_SHARED | mmap.MAP_POPULATE
        return mmap.mmap(self.socket.fileno(), size, shared, offset=offset)

    def frames(self):
        (count,) = struct.unpack_from("=I", self.received, self.rx[0])
        for i in range(count):
            at, size, _ = struct.unpack_from("=QII", self.received, self.rx[2] + 16 * i)
            yield self.memory[at : at + size]


@pytest.mark.first_case
@pytest.mark.parametrize("mode", ["native", "generic"])
def test_a_socket_takes_the_packets_of_a_verdict(image, in_namespace, mode):
    head = bytes([0x45, 0, 0, 64, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2])
    frames = [
        b"\xff" * 6 + bytes(6) + b"\x08\x00" + head + b"\x13\x88\x00\x35" + bytes([i] * 40)
        for i in range(20)
    ]

    def check():
        link("n3a", "n3b")
        with load(network(SPEC), image=image, clock="kernel") as programs, wire("n3a") as sender:
            try:
                taker = XdpSocket("n3b")
            except OSError as error:
                pytest.skip(f"no AF_XDP sockets here: {error}")
            programs.maps["sockets"].update(0, taker.socket.fileno())
            libbpf.attach(socket.if_nametoindex("n3b"), programs.program, mode)
            for verdict in (0, 1, 2):
                set_policy(programs, verdict, "socket")
            for frame in frames:
                sender.send(frame)
            limit = time.monotonic() + 60
            while len(got := list(taker.frames())) < 13 and time.monotonic() < limit:
                time.sleep(0.01)
            assert got == frames[7:]

    in_namespace(check)
