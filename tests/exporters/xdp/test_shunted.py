# SPDX-License-Identifier: Apache-2.0
"""Packets of shunted flows, which a program takes by AF_XDP with what is known of their flows."""

import signal
import socket
import struct
import subprocess
from itertools import count

import numpy as np
import pytest

from n3ic.exporters.xdp import layout, libbpf, source
from n3ic.exporters.xdp.network.structure import structure_of
from n3ic.meter.capture import Capture
from n3ic.meter.standard import standard_spec
from tests.support.metering import load, network, set_policy
from tests.support.wires import link, wire

SPEC = standard_spec(packets=4)
RECORD = np.dtype(
    [
        ("size", np.uint32),
        ("length", np.uint32),
        ("time", np.uint64),
        ("key", layout.KEY),
        ("number", np.uint64),
        ("packets", np.uint64),
        ("verdict", np.int32),
        ("class", np.uint32),
        ("margin", np.uint32),
        ("vlan", np.uint16),
        ("slot", np.uint8),
        ("reverse", np.uint8),
        ("pad", np.uint32),
        ("known", np.uint32),
    ]
)

pytestmark = pytest.mark.usefixtures("clang", "kernel")


@pytest.fixture(scope="module")
def model():
    """A network that shunts about half of the flows below."""
    return network(SPEC, 5, shunt=1)


@pytest.fixture(scope="module")
def image(model):
    files = source.meter_program(SPEC, structure_of([model]), per_cpu=False)
    return source.compile_program(files, source.METER)


def frames_of(flows, *, large=False):
    """Eight packets of each flow in turn; sizes and bytes tell them from each other."""
    out = []
    for turn in range(8):
        for flow in range(flows):
            size = 70 + 13 * turn + 40 * flow + (6000 if large and flow % 2 else 0)
            head = struct.pack(">BBHHHBBH", 0x45, 0, size - 14, 0, 0, 64, 17, 0)
            ends = bytes([10, 0, 0, 1, 10, 0, 0, 2])
            udp = struct.pack(">HHHH", 1000 + flow, 53, size - 34, 0)
            body = bytes([turn, flow]) * (size // 2)
            out.append((bytes(12) + b"\x08\x00" + head + ends + udp + body)[:size])
    return out


class Consumer:
    def __init__(self, built, *place):
        command = [built / "shunted" / "shunted", "n3b", "1", *place]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
        line = self.process.stderr.readline()
        if b"Operation not supported" in line or b"Address family" in line:
            pytest.skip(f"no AF_XDP sockets here: {line.decode()}")
        assert b"1 queues" in line, line + self.process.stderr.read()

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        output = self.process.communicate(timeout=600)[1].decode()
        assert self.process.returncode == 0, output
        words = output.split()
        return tuple(int(words[i]) for i in (1, 3, 5))


def records(reader, number):
    for _ in range(number):
        data = reader.recv(1 << 17)
        head = np.frombuffer(data[: RECORD.itemsize], RECORD)[0]
        assert head["size"] == len(data)
        assert head["length"] == len(data) - RECORD.itemsize
        yield head, data[RECORD.itemsize :]


def with_program(in_namespace, model, image, mode, check, mtu=3000):
    def inside():
        link("n3a", "n3b", mtu=mtu)
        with load(model, image=image) as programs, wire("n3a") as sender:
            libbpf.attach(socket.if_nametoindex("n3b"), programs.program, mode)
            set_policy(programs, "shunted", "socket")
            clock = count(0, 1000)  # with the packets, so that the same flows are shunted each time
            check(
                programs,
                lambda f: sender.send(programs.replayed(f, len(f), next(clock))),
            )
            libbpf.detach(socket.if_nametoindex("n3b"), mode, programs.program)

    in_namespace(inside)


def shunted(programs):
    """Records of the flows that are shunted, by source port."""
    events = programs.events()
    return {int(e["source_port"]): e for e in events if e["verdict"] == layout.SHUNTED}, len(events)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("large", "mode"),
    [
        (False, "native"),
        (False, "generic"),
        (True, "native"),
        pytest.param(True, "generic", marks=pytest.mark.slow),
    ],
)
def test_shunted_packets_arrive_and_nothing_else(
    in_namespace, model, image, built, tmp_path, mode, large
):
    frames = frames_of(12, large=large)
    place = str(tmp_path / "shunted.sock")

    def check(programs, send):
        consumer = Consumer(built, place)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as reader:
            reader.connect(place)
            reader.settimeout(60)
            for frame in frames:
                send(frame)
            flows, decided = shunted(programs)
            assert 0 < len(flows) < decided == 12
            # The deciding packet and all behind it.
            port = slice(34, 36)
            wanted = [f for f in frames[36:] if int.from_bytes(f[port], "big") in flows]
            got = list(records(reader, len(wanted)))
            assert [frame for _, frame in got] == wanted
            for head, frame in got:
                flow = flows[int.from_bytes(frame[port], "big")]
                assert head["verdict"] == layout.SHUNTED
                for name in ("class", "margin", "slot", "number"):
                    assert head[name] == flow[name]
                for name in ("source", "destination", "source_port", "destination_port"):
                    assert np.array_equal(head["key"][name], flow[name])
                assert (head["vlan"], head["reverse"]) == (4096, 0)
            assert [int(head["packets"]) for head, _ in got] == sorted(
                int(head["packets"]) for head, _ in got
            )
            assert {int(head["packets"]) for head, _ in got} == {4, 5, 6, 7, 8}
            assert consumer.end() == (len(wanted), 0, 0)
            reader.setblocking(False)
            assert reader.recv(10) == b""  # nothing more
        assert programs.counters()["no_socket"] == 0

    with_program(in_namespace, model, image, mode, check, 9000 if large else 3000)


def test_without_a_consumer_they_pass_and_are_counted(in_namespace, model, image, built, tmp_path):
    frames = frames_of(12)

    def check(programs, send):
        with wire("n3b") as stack:
            Consumer(built, str(tmp_path / "s.sock")).end()  # it came and went
            for frame in frames:
                send(frame)
            flows, _ = shunted(programs)
            assert [stack.recv(4096) for _ in frames] == frames
            assert programs.counters()["no_socket"] == 5 * len(flows) > 0

    with_program(in_namespace, model, image, "native", check)


def test_what_nobody_reads_is_bounded_and_counted(in_namespace, model, image, built, tmp_path):
    """A reader that does not read, and none at all."""
    place = str(tmp_path / "shunted.sock")

    def check(programs, send):
        consumer = Consumer(built, place)
        for frame in frames_of(12):
            send(frame)
        flows, _ = shunted(programs)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as reader:
            reader.connect(place)
            for _ in range(40):
                for frame in frames_of(12):
                    send(frame)
            taken, dropped, lost = consumer.end()
        assert taken + dropped + lost == len(flows) * (5 + 40 * 8)
        assert dropped + lost > 5 * len(flows)

    with_program(in_namespace, model, image, "native", check)


def test_a_capture_holds_the_frames(in_namespace, model, image, built, tmp_path):
    path = tmp_path / "shunted.pcap"

    def check(programs, send):
        consumer = Consumer(built, str(path))
        frames = frames_of(12)
        for frame in frames:
            send(frame)
        flows, _ = shunted(programs)
        taken, _, _ = consumer.end()
        with Capture(path) as capture:
            captured_frames = [frame for frame, _, _ in capture.packets()]
        assert len(captured_frames) == taken == 5 * len(flows)
        assert captured_frames == [
            f for f in frames[36:] if int.from_bytes(f[34:36], "big") in flows
        ]

    with_program(in_namespace, model, image, "native", check)
