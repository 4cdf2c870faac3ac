# SPDX-License-Identifier: Apache-2.0
"""A Verilated card without a network: frames over a socket that keeps them apart.

And a ring of stations in this process around it.
"""

import signal
import socket
import struct
import subprocess
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from n3ic.systems.cluster.binary import parts_of
from n3ic.systems.cluster.coordinator import Coordinator, RowFlow
from n3ic.systems.cluster.dense import GemmFlow
from n3ic.systems.cluster.endpoint import CARD, Endpoint
from n3ic.systems.cluster.link import LinkTiming
from n3ic.systems.cluster.netfpga.image import EndpointAddress, node_image
from n3ic.systems.cluster.netfpga.matrix_image import matrix_image
from n3ic.systems.cluster.netfpga.simulation import build
from n3ic.systems.cluster.netfpga.tap import NodeCounters
from n3ic.systems.cluster.node import Node
from tests.support.rings import by_row, has_work

HOST_MAC = bytes.fromhex("020000000a01")
CARD_MAC = bytes.fromhex("020000000a02")
HOST, CARD_IP, PORT = "10.9.9.1", "10.9.9.2", 5999
ETHERNET, IPV4 = 14, 20


def checksum(data):
    """The Internet checksum of RFC 1071."""
    words = np.frombuffer(data + b"\0" * (len(data) % 2), dtype=">u2")
    total = int(words.sum(dtype=np.uint64))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def frame(payload, source=(HOST, 6000), target=(CARD_IP, PORT), macs=CARD_MAC + HOST_MAC):
    """An Ethernet frame with a UDP datagram, all checksums right."""
    addresses = socket.inet_aton(source[0]) + socket.inet_aton(target[0])
    length = 8 + len(payload)
    udp = struct.pack(">HHHH", source[1], target[1], length, 0) + payload
    check = checksum(addresses + struct.pack(">HH", 17, length) + udp) or 0xFFFF
    head = struct.pack(">BBHHHBBH", 0x45, 0, IPV4 + length, 0, 0x4000, 64, 17, 0) + addresses
    head = head[:10] + struct.pack(">H", checksum(head)) + head[12:]
    return macs + b"\x08\x00" + head + udp[:6] + struct.pack(">H", check) + payload


def opened(data):
    """UDP port and payload of a frame that the card sent; everything in it is checked."""
    assert data[:12] == HOST_MAC + CARD_MAC
    assert data[12:15] == b"\x08\x00\x45"
    assert checksum(data[14:34]) == 0
    assert data[26:34] == socket.inet_aton(CARD_IP) + socket.inet_aton(HOST)
    length = int.from_bytes(data[38:40], "big")
    assert int.from_bytes(data[16:18], "big") == IPV4 + length
    assert int.from_bytes(data[34:36], "big") == PORT
    datagram = data[34 : 34 + length]
    assert len(data) == max(60, 34 + length)
    assert checksum(data[26:34] + struct.pack(">HH", 17, length) + datagram) == 0
    return int.from_bytes(data[36:38], "big"), datagram[8:]


class Rig:
    """A card's process; frames go in and come out."""

    def __init__(self, image, folder: Path):
        self.near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        far.setblocking(False)
        file = folder / "image.hex"
        file.write_text(image.text)
        self.log = folder / "log.txt"
        self.process = subprocess.Popen(
            [str(build(image.size)), str(far.fileno()), str(file), "0", "0", str(self.log)],
            pass_fds=[far.fileno()],
            stdout=subprocess.PIPE,
            text=True,
        )
        far.close()
        assert self.process.stdout.readline() == "ready\n"

    def send(self, data):
        self.near.send(data)

    def receive(self, seconds=60.0):
        """The next frame; None where none comes."""
        self.near.settimeout(seconds)
        try:
            return self.near.recv(65536)
        except TimeoutError:
            return None

    def stop(self):
        """Its counters."""
        self.near.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        text, _ = self.process.communicate(timeout=600)
        counters = NodeCounters.parse(text)
        assert counters is not None
        return counters


def endpoints(placement, node):
    """Addresses of the card and its neighbours, which have port 6000 + their number."""
    return neighbours_of(node, placement.nodes)


def neighbours_of(node, nodes):
    size = nodes + 1
    return {
        "own": EndpointAddress(CARD_MAC, CARD_IP, PORT),
        "predecessor": EndpointAddress(HOST_MAC, HOST, 6000 + (node - 1) % size),
        "successor": EndpointAddress(HOST_MAC, HOST, 6000 + (node + 1) % size),
    }


class CardRing:
    """Stations of this process and one card; datagrams are lost, repeated, damaged and late."""

    def __init__(
        self,
        image,
        digest,
        nodes,
        card,
        flow,
        folder,
        *,
        seed=0,
        loss=0.0,
        repeat=0.0,
        damage=0.0,
        late=0.0,
    ):
        self.rng = np.random.default_rng(seed)
        self.loss, self.repeat, self.damage, self.late = loss, repeat, damage, late
        self.waiting = []  # when to deliver what
        self.card, self.flow = card, flow
        self.rig = Rig(image, folder)
        self.home = Coordinator(nodes, digest, flow.accept_data)
        timing = LinkTiming(limit=120)  # a busy machine simulates slowly
        others = [n for n in range(1, nodes + 1) if n != card]
        handlers: list[Any] = [self.home]
        handlers += [Node(n, self.parts_of(n), digest) for n in others]
        self.stations = {}
        for handler in handlers:
            before = handler.number == (card - 1) % (nodes + 1)
            session = 7 if handler.number == 0 else None
            self.stations[handler.number] = Endpoint(
                handler,
                nodes,
                timing=timing,
                successor=CARD if before else None,
                session=session,
            )

    def parts_of(self, node):
        """What a process holds."""
        raise NotImplementedError

    def check(self):
        """Check what the nodes report."""
        raise NotImplementedError

    def _arrives(self, data):
        """The bytes that a receiver gets of a datagram, none, one or two times."""
        if self.rng.random() < self.loss:
            return
        for _ in range(1 + (self.rng.random() < self.repeat)):
            raw = bytearray(data)
            if self.rng.random() < self.damage:
                raw[self.rng.integers(len(raw))] ^= 1 << self.rng.integers(8)
            yield bytes(raw)

    def _pass(self, now, deliver, *what):
        """Deliver a datagram, now or later than those behind it."""
        if self.late and self.rng.random() < self.late:
            self.waiting.append((now + 0.05 * self.rng.random(), partial(deliver, *what)))
        else:
            deliver(*what)

    def _receive(self, number, data):
        self.stations[number].receive(data, time.monotonic())

    def step(self):
        now = time.monotonic()
        due = [deliver for at, deliver in self.waiting if at <= now]
        self.waiting = [(at, deliver) for at, deliver in self.waiting if at > now]
        for deliver in due:
            deliver()
        for number, station in self.stations.items():
            while has_work(station):
                station.work()
            for node, data in station.outgoing(now):
                for raw in self._arrives(data):
                    if node == self.card:
                        self._pass(now, self.rig.send, frame(raw, (HOST, 6000 + number)))
                    else:
                        self._pass(now, self._receive, node, raw)
        while (data := self.rig.receive(0.002)) is not None:
            port, payload = opened(data)
            for raw in self._arrives(payload):
                self._pass(now, self._receive, port - 6000, raw)

    def until(self, condition, seconds=600):
        end = time.monotonic() + seconds
        while not condition() and not self.home.error:
            self.step()
            assert time.monotonic() < end, "the ring stands still"
        if self.home.error:
            raise self.home.error

    def start(self):
        self.stations[0].send([self.home.start()])
        self.until(lambda: self.home.started)
        self.check()
        self.flow.slots = self.home.slots

    def run(self, words):
        scores = {}
        self.flow.submit(words, by_row(scores))
        self.stations[0].send(self.flow.admit())
        self.until(lambda: self.flow.idle)
        return np.array([scores[i] for i in range(len(words))])


class MixedRing(CardRing):
    """A binary model over processes and a card."""

    def __init__(self, model, placement, card, folder, **faults):
        self.model, self.placement = model, placement
        image = node_image(model, placement, card, **endpoints(placement, card))
        flow = RowFlow(placement)
        super().__init__(image, model.digest, placement.nodes, card, flow, folder, **faults)

    def parts_of(self, node):
        return parts_of(self.model, self.placement, node)

    def check(self):
        self.home.check(self.placement)


class MatrixRing(CardRing):
    """A kernel with a matrix over processes and a card."""

    def __init__(self, kernel, nodes, card, folder, columns=4, **faults):
        self.kernel, self.nodes = kernel, nodes
        image = matrix_image(kernel, nodes, card, columns=columns, **neighbours_of(card, nodes))
        flow = GemmFlow(
            kernel.array, kernel.whole_matrix.matrix.shape[1], kernel.whole_matrix.windows
        )
        super().__init__(image, kernel.digest, nodes, card, flow, folder, **faults)

    def parts_of(self, node):
        return self.kernel.arrays_of(node, self.nodes)

    def check(self):
        self.home.check_shares(self.kernel.expected_shares(self.nodes), "array")

    def result(self, operand):
        return self.kernel.result(self.run(self.kernel.rows(operand)))
