# SPDX-License-Identifier: Apache-2.0
"""One Verilated card, and a predecessor and a successor that say what they like."""

from collections import deque

import numpy as np

from n3ic.model.random_models import random_model
from n3ic.systems.cluster.netfpga.image import node_image
from n3ic.systems.cluster.placement import LayerPlacement, LayerSplit, ModelPlacement, Share
from n3ic.systems.cluster.protocol import (
    BY_RANGE,
    ControlId,
    Datagram,
    PacketType,
    TaskId,
    TaskPacket,
    bits_packets,
)
from tests.support.card_rig import Rig, endpoints, frame, opened

MODEL = random_model((1000, 700, 90, 5), np.random.default_rng(3))
CARD = 2


def placement(first, second, third):
    """Three nodes, with the shares of each layer as (split, shares, reducers)."""
    layers = [
        LayerPlacement(split, tuple(Share(*s) for s in shares), tuple(Share(*r) for r in sums))
        for split, shares, sums in (first, second, third)
    ]
    return ModelPlacement(MODEL.digest, MODEL.shape, 3, tuple(layers))


OTHERS = (
    (LayerSplit.OUTPUT, [(1, 0, 256), (3, 256, 700)], ()),
    (LayerSplit.OUTPUT, [(3, 0, 32), (1, 32, 90)], ()),
    (LayerSplit.OUTPUT, [(1, 0, 5)], ()),
)
PLACED = {
    "neurons": (
        (LayerSplit.OUTPUT, [(1, 0, 64), (2, 64, 544), (3, 544, 700)], ()),
        *OTHERS[1:],
    ),
    "neurons-to-inputs": (
        (LayerSplit.OUTPUT, [(1, 0, 64), (2, 64, 700)], ()),
        (LayerSplit.INPUT, [(1, 0, 160), (3, 160, 700)], [(1, 0, 64), (3, 64, 90)]),
        OTHERS[2],
    ),
    "inputs": (
        OTHERS[0],
        (LayerSplit.INPUT, [(1, 0, 96), (2, 96, 512), (3, 512, 700)], [(3, 0, 90)]),
        OTHERS[2],
    ),
    "last-inputs": (
        OTHERS[0],
        (LayerSplit.INPUT, [(1, 0, 96), (2, 96, 700)], [(3, 0, 90)]),
        OTHERS[2],
    ),
    "scores": (*OTHERS[:2], (LayerSplit.OUTPUT, [(2, 0, 5)], ())),
    "nothing": OTHERS,
    "before-replicas": (
        (LayerSplit.OUTPUT, [(1, 0, 64), (2, 64, 700)], ()),
        (LayerSplit.REPLICATED, [(1, 0, 90), (3, 0, 90)], ()),
        (LayerSplit.REPLICATED, [(3, 0, 5), (1, 0, 5)], ()),
    ),
    "replicated": (*OTHERS[:2], (LayerSplit.REPLICATED, [(1, 0, 5), (2, 0, 5), (3, 0, 5)], ())),
}


START = TaskPacket(PacketType.CONTROL, ControlId.START, BY_RANGE, 0, 0, 0)


# What STATUS says: layer, range, first input word; kind, row slots, input words, shares.
STATUS = {"neurons": (0, 64, 544, 0, 1, 16, 32, 1), "inputs": (1, 96, 512, 3, 2, 16, 13, 1)}


class Alone:
    """The card of a placement, or of an image, between a predecessor and a successor."""

    def __init__(
        self,
        folder,
        name="neurons",
        model=MODEL,
        placed=None,
        status=None,
        image=None,
        digest=None,
    ):
        placed = placed or placement(*PLACED[name])
        self.digest, self.status = digest or model.digest, status or STATUS[name]
        self.rig = Rig(image or node_image(model, placed, CARD, **endpoints(placed, CARD)), folder)
        self.inbox = {1: deque(), 3: deque()}
        self.session = 9
        self.sequence = self.expected = 0

    def raw(self, *packets, **fields):
        """A datagram of the predecessor's, with other fields at will."""
        base = {"session": self.session, "sender": 1, "receiver": CARD, "sequence": self.sequence}
        return Datagram(**{**base, "packets": packets, **fields}).encode()

    def next(self, receiver):
        """The next datagram to a neighbour."""
        while not self.inbox[receiver]:
            data = self.rig.receive()
            assert data is not None, "nothing came"
            port, payload = opened(data)
            datagram = Datagram.decode(payload)
            assert (datagram.session, datagram.sender) == (self.session, CARD)
            assert port == 6000 + datagram.receiver
            self.inbox[datagram.receiver].append(datagram)
        return self.inbox[receiver].popleft()

    def send_packet(self, packet, **fields):
        """A packet in sequence; it must be acknowledged."""
        self.rig.send(frame(self.raw(packet, **fields)))
        self.sequence += 1
        self.acknowledged()

    def acknowledged(self):
        """The next datagram to the predecessor acknowledges all that was told."""
        assert self.next(1) == Datagram(self.session, CARD, 1, acknowledge=self.sequence)

    def packet(self):
        """The next packet to the successor, which it acknowledges."""
        while (datagram := self.next(3)).sequence < self.expected:
            pass  # sent again before the acknowledgement came
        assert datagram.sequence == self.expected
        assert datagram.begin == (self.expected == 0)
        self.expected += 1
        answer = Datagram(self.session, 3, CARD, acknowledge=self.expected)
        self.rig.send(frame(answer.encode()))
        (packet,) = datagram.packets
        return packet

    def begin(self):
        """A session, with the answer to it."""
        self.sequence = self.expected = 0
        self.send_packet(START, begin=True)
        assert self.packet() == START
        status = self.packet()
        assert (status.identifier, status.row) == (ControlId.STATUS, CARD)
        numbers = [int.from_bytes(status.body[at : at + 4], "big") for at in (32, 36, 40, 44)]
        assert (status.array, status.start, status.end, status.offset, *numbers) == self.status
        assert status.body[:32] == bytes.fromhex(self.digest)

    def quiet(self):
        """Nothing leaves the card for a while."""
        assert self.rig.receive(0.3) is None


INPUT = np.arange(1, 33, dtype=np.uint32)  # 1,000 bits; the last word has eight


def bits(row):
    """The three input packets of a row of layer 0."""
    return list(bits_packets(INPUT[None], task=TaskId.BITS, array=0, row=row, outputs=700))
