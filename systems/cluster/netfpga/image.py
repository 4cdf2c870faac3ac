# SPDX-License-Identifier: Apache-2.0
"""The image that the driver writes into a card: addresses, STATUS packet of the share, weights.

Words have 32 bits. Bits 31:28 of the address say what is written:

==  ==============================================================================
0   address 0-15 a setting, 16-31 the words of the STATUS packet, 32-47 the nodes
    that take the rows of the next layer in turn
1   weights: bits 27:4 row, 3:0 word; rows of 512 weights, neuron by neuron
2   thresholds, or biases of the last layer: bits 27:4 neuron
3   masks, laid out as weights
==  ==============================================================================

The settings are:

- 0-2: MAC, IPv4 address and UDP port of the card as 96 bits, highest word first
- 3-5 and 6-8: the same of the predecessor and of the successor
- 9: numbers of node, predecessor and successor, one byte each from the top
- 10: milliseconds until a packet is resent
- 11: identifier, destination and array of leaving packets; then 0 for bits, 1 for scores, 2 for
  partial popcounts
- 12: neurons of the next layer
- 13: neurons that the card computes
- 14: mask of the pad bits in the last input word
- 15: number of nodes that take the next layer's rows in turn; 0 if it is not replicated
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import ClusterError
from n3ic.model.bits import WORD_BITS, Bits, Words, pack, pad_mask
from n3ic.model.layers import Connections, HiddenLayer
from n3ic.model.network import BinaryModel
from n3ic.systems.cluster.binary import layer_input
from n3ic.systems.cluster.placement import LayerSplit, ModelPlacement, Share
from n3ic.systems.cluster.protocol import BY_RANGE, HOME, ControlId, PacketType, TaskId, TaskPacket

SLICE_WORDS = 16
"""Words in a row of weights; the card reads one row per clock."""
MAX_REPLICAS = 16
"""Maximum number of replicas of the layer that follows a card's."""
LEAVING_BITS, LEAVING_SCORES, LEAVING_SUMS = 0, 1, 2
_MAC_BYTES = 6


@dataclass(frozen=True)
class EndpointAddress:
    """Address of an endpoint of the ring.

    Attributes:
        mac: six bytes: address of its Ethernet port, or of the router before it.
        ip: IPv4 address.
        port: UDP port.
    """

    mac: bytes
    ip: str
    port: int

    @property
    def words(self) -> list[int]:
        """The 96 bits as words, in the card's order."""
        octets = self.mac + ipaddress.IPv4Address(self.ip).packed + self.port.to_bytes(2, "big")
        if len(self.mac) != _MAC_BYTES:
            raise ValueError(f"a MAC address has {_MAC_BYTES} bytes, got {len(self.mac)}")
        return [int.from_bytes(octets[at : at + 4], "big") for at in (0, 4, 8)]


@dataclass(frozen=True)
class NodeSize:
    """Sizes of a card's memories, as binary logarithms.

    Attributes:
        row_w: rows of 512 weights.
        neuron_w: thresholds.
        slot_w: rows of the batch in flight at once.
        words_w: input words of a share; at least 5.
        queue_w: packets that wait for the successor.
        masked: 1 if the card has a memory for masks, else 0; not a logarithm.
    """

    row_w: int = 12
    neuron_w: int = 10
    slot_w: int = 4
    words_w: int = 7
    queue_w: int = 8
    masked: int = 0

    @property
    def parameters(self) -> dict[str, int]:
        """Parameters of ``n3ic_cluster_node``."""
        return {
            "ROW_W": self.row_w,
            "NEURON_W": self.neuron_w,
            "SLOT_W": self.slot_w,
            "WORDS_W": self.words_w,
            "QUEUE_W": self.queue_w,
            "MASKED": self.masked,
        }


@dataclass(frozen=True, eq=False)
class NodeImage:
    """Contents of a card.

    Attributes:
        size: the smallest memories that hold the contents, at least the default ones.
        neurons: neurons that the card computes for a row.
        slices: slices of a neuron's weights; each takes one clock.
        writes: address and word of each write, uint32 array of shape ``(n, 2)``.
    """

    size: NodeSize
    neurons: int
    slices: int
    writes: NDArray[np.uint32]

    @property
    def text(self) -> str:
        """The writes in hexadecimal, one per line."""
        return "".join(f"{address:x} {word:x}\n" for address, word in self.writes.tolist())


def node_image(
    model: BinaryModel,
    placement: ModelPlacement,
    node: int,
    *,
    own: EndpointAddress,
    predecessor: EndpointAddress,
    successor: EndpointAddress,
    resend_ms: int = 20,
) -> NodeImage:
    """Make the image of a node of a placement.

    Args:
        model: the placed model.
        placement: placement of the model.
        node: number of the card's node.
        own: address of the card.
        predecessor: address of the endpoint that sends tasks to the card.
        successor: address of the endpoint that the card sends to.
        resend_ms: milliseconds until an unacknowledged packet is resent.

    Raises:
        ClusterError: The card subset of the protocol cannot hold what the placement gives it.
    """
    placement.check_model(model)
    links = link_settings(node, placement.nodes, own, predecessor, successor, resend_ms)
    place = _only_share(placement, node)
    if place is None:
        return relay_image(links, model.digest, node)
    array, share = place
    placed = placement.layers[array]
    layer = model.layers[array]
    by_inputs = placed.split is LayerSplit.INPUT
    cut = np.s_[:, share.start : share.end] if by_inputs else np.s_[share.start : share.end]
    mask = None if layer.mask is None else layer.mask[cut]
    part = Connections(layer.weights[cut], mask=mask)
    if by_inputs:
        # Partial popcounts leave without a threshold: the reducer adds them and applies it.
        limits = np.zeros(part.n_outputs, dtype=np.int32)
    else:
        limits = layer.thresholds if isinstance(layer, HiddenLayer) else model.output.bias
        limits = limits[share.start : share.end]
    slices = -(-part.n_words // SLICE_WORDS)
    size = NodeSize(
        # At least the defaults: cards that differ only in content then share one compiled program.
        row_w=max(NodeSize.row_w, address_bits(part.n_outputs * slices)),
        neuron_w=max(NodeSize.neuron_w, address_bits(part.n_outputs)),
        words_w=max(NodeSize.words_w, address_bits(slices * SLICE_WORDS)),
        masked=int(mask is not None),
    )
    leaving, out_end, replicas = _leaving(placement, array, node)
    # The card refuses a packet that sets one of these pad bits, which would be counted as inputs.
    pad = ~int(pad_mask(part.n_inputs)[-1]) & 0xFFFFFFFF
    settings = [*links, leaving, out_end, part.n_outputs, pad, len(replicas)]
    # The card counts whole words, so a share of inputs ends with its last word.
    end = share.start + WORD_BITS * part.n_words if by_inputs else share.end
    offset = share.start // WORD_BITS if by_inputs else 0
    kind = (2 if by_inputs else 1, 1 << size.slot_w, part.n_words, 1)
    status = card_status(model.digest, node, (array, share.start, end, offset), kind)
    rows = np.arange(part.n_outputs * slices * SLICE_WORDS)
    writes = [
        setting_writes(settings, status, replicas),
        writes_of(1, rows, _rows(part.weights, slices)),
        writes_of(2, np.arange(part.n_outputs) << 4, limits.astype(np.uint32)),
    ]
    if mask is not None:
        writes.append(writes_of(3, rows, _rows(mask, slices)))
    return NodeImage(size, part.n_outputs, slices, np.concatenate(writes))


def link_settings(
    node: int,
    nodes: int,
    own: EndpointAddress,
    predecessor: EndpointAddress,
    successor: EndpointAddress,
    resend_ms: int,
) -> list[int]:
    """Return settings 0 to 10 of a card in a ring of ``nodes`` nodes."""
    previous, following = (node - 1) % (nodes + 1), (node + 1) % (nodes + 1)
    return [
        *own.words,
        *predecessor.words,
        *successor.words,
        node << 24 | previous << 16 | following << 8,
        resend_ms,
    ]


def relay_image(links: Sequence[int], digest: str, node: int) -> NodeImage:
    """Make the image of a node without a share: it passes on all packets, its STATUS is empty."""
    relay = card_status(digest, node, (0, 0, 0, 0), (0, 1 << NodeSize.slot_w, 0, 1))
    return NodeImage(NodeSize(), 0, 0, setting_writes([*links, 0, 0, 0, 0, 0], relay, ()))


def setting_writes(
    settings: Sequence[int], status: TaskPacket, replicas: Sequence[int]
) -> NDArray[np.uint32]:
    """Return the writes of settings, STATUS packet and replicas."""
    words = np.frombuffer(status.encode(), dtype=">u4")
    everything = np.array([*settings, *words, *replicas], dtype=np.uint32)
    # Settings, STATUS packet and replicas have fixed addresses, one after the other.
    return writes_of(0, np.arange(len(everything)), everything)


def _only_share(placement: ModelPlacement, node: int) -> tuple[int, Share] | None:
    """Return the layer and the share that a card holds; None if it holds nothing."""
    shares = [
        (array, share)
        for array, layer in enumerate(placement.layers)
        for share in layer.shares
        if share.node == node
    ]
    adds = any(share.node == node for layer in placement.layers for share in layer.reducers)
    if len(shares) > 1 or adds:
        raise ClusterError(
            f"node {node}: a card holds one share of one layer and adds no partial sums; the plan "
            f"gives it {len(shares)} shares{' and sums to add' if adds else ''}; place one layer "
            "on it, or run the node as a process"
        )
    return shares[0] if shares else None


def _leaving(placement: ModelPlacement, array: int, node: int) -> tuple[int, int, tuple[int, ...]]:
    """Return setting 11, the neurons of the next layer, and the replicas of that layer."""
    if placement.layers[array].split is LayerSplit.INPUT:
        return TaskId.SUMS << 24 | BY_RANGE << 16 | array << 8 | LEAVING_SUMS, 0, ()
    if array == len(placement.layers) - 1:
        return LEAVING_SCORES, 0, ()
    following = layer_input(placement, array + 1)
    if len(following.replicas) > MAX_REPLICAS:
        raise ClusterError(
            f"node {node}: a card sends to at most {MAX_REPLICAS} replicas; layer "
            f"{array + 1} has {len(following.replicas)}; split it, or run the node as a process"
        )
    # The destination is by range here; with replicas the card itself replaces it, row by row.
    head = following.task << 24 | BY_RANGE << 16 | following.array << 8 | LEAVING_BITS
    return head, following.outputs, following.replicas


def _rows(bits: Bits, slices: int) -> Words:
    """Pack rows of 512 bits, neuron by neuron: uint32 array of shape ``(words,)``."""
    # Weights pad with 1 and inputs with 0, so XNOR of the pad is 0 and adds nothing.
    padded = np.ones((len(bits), slices * SLICE_WORDS * WORD_BITS), dtype=np.bool_)
    padded[:, : bits.shape[1]] = bits
    return pack(padded).ravel()


def card_status(
    digest: str,
    node: int,
    place: tuple[int, int, int, int],
    numbers: tuple[int, int, int, int],
) -> TaskPacket:
    """Make ``STATUS``: array, start, end, offset; then kind, row slots, input words, shares."""
    array, start, end, offset = place
    return TaskPacket(
        PacketType.CONTROL,
        ControlId.STATUS,
        HOME,
        array,
        start,
        end,
        row=node,
        offset=offset,
        body=bytes.fromhex(digest) + b"".join(n.to_bytes(4, "big") for n in numbers),
    )


def writes_of(
    kind: int, addresses: NDArray[np.int64], words: NDArray[np.uint32]
) -> NDArray[np.uint32]:
    """Return the writes of words of one kind."""
    return np.stack([addresses.astype(np.uint32) | np.uint32(kind << 28), words], axis=1)


def address_bits(count: int) -> int:
    """Return the address bits of a memory with ``count`` entries."""
    return (count - 1).bit_length()
