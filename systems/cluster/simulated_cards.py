# SPDX-License-Identifier: Apache-2.0
"""Nodes of a ring that are simulated cards, started by their target."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from n3ic.errors import ClusterError
from n3ic.plugins import Plugin, find
from n3ic.systems.cluster.launch import RingWork
from n3ic.systems.cluster.udp import Address


@dataclass(frozen=True)
class SimulatedCard:
    """A running card.

    Attributes:
        address: IPv4 address and UDP port of the card.
        predecessor: address on which its predecessor must listen.
        successor: address on which its successor must listen.
        counters: filled when the card has stopped: datagrams that it resent (``resent``), dropped
            (``dropped``), and lost on purpose (``lost``).
    """

    address: Address
    predecessor: Address
    successor: Address
    counters: dict[str, int] = field(default_factory=dict)


class CardSimulator(Plugin, ABC):
    """Simulates the cards of a target as nodes of a ring.

    Simulators are found in the entry-point group ``n3ic.simulated_cards``.
    """

    @abstractmethod
    def run(
        self, work: RingWork[Any], node: int, *, loss: float, seed: int
    ) -> AbstractContextManager[SimulatedCard]:
        """Run a node's card while the context is entered.

        Args:
            work: work of the ring.
            node: number of the card's node.
            loss: fraction of its datagrams to discard on purpose.
            seed: seed of that choice.

        Raises:
            ClusterError: The card cannot hold what the work gives it.
            MissingDependencyError: A tool that the card needs is missing.
        """


class SimulatedCards:
    """The simulated cards of a ring.

    Attributes:
        cards: running and stopped cards, by node.
        neighbours: addresses on which their neighbours must listen, by node.
    """

    def __init__(self) -> None:
        self.cards: dict[int, SimulatedCard] = {}
        self.neighbours: dict[int, Address] = {}

    @property
    def addresses(self) -> dict[int, Address]:
        """Addresses of the cards, by node."""
        return {node: card.address for node, card in self.cards.items()}

    @property
    def counters(self) -> dict[int, dict[str, int]]:
        """Counters of the cards, by node, once they have stopped."""
        none = {"resent": 0, "dropped": 0, "lost": 0}
        return {node: none | card.counters for node, card in self.cards.items()}

    def add(self, node: int, card: SimulatedCard, nodes: int) -> None:
        """Add a card to a ring of ``nodes`` nodes.

        Raises:
            ClusterError: The card shares a neighbour with another card.
        """
        self.cards[node] = card
        # A card's neighbours are configured with fixed addresses, and a process has one socket
        # only.
        for neighbour, address in ((node - 1, card.predecessor), (node + 1, card.successor)):
            if self.neighbours.setdefault(neighbour % (nodes + 1), address) != address:
                raise ClusterError(
                    f"node {neighbour % (nodes + 1)} is between two simulated cards, but can "
                    "listen for only one of them; put one more process between them"
                )


@contextmanager
def simulated_cards(
    work: RingWork[Any],
    targets: Mapping[int, str],
    *,
    loss: float = 0.0,
    seed: int = 0,
) -> Iterator[SimulatedCards]:
    """Run some nodes of a ring as simulated cards.

    Args:
        work: work of the ring.
        targets: target of each node that is a card.
        loss: fraction of its datagrams that each card discards on purpose.
        seed: seed of that choice.

    Raises:
        ClusterError: A node is not in the ring, is next to a card, or cannot hold its share.
        UsageError: No target of that name has simulated cards.
        MissingDependencyError: A tool that a card needs is missing.
    """
    cards = SimulatedCards()
    with ExitStack() as stack:
        for node, target in sorted(targets.items()):
            if not 1 <= node <= work.nodes:
                raise ClusterError(f"node {node}: the ring has nodes 1 to {work.nodes}")
            if node + 1 in targets:
                raise ClusterError(
                    f"nodes {node} and {node + 1} are simulated cards, and no network connects "
                    "them; put a process between them"
                )
            simulator: CardSimulator = find("n3ic.simulated_cards", target, CardSimulator)
            # Each card gets a seed of its own, or all would lose the same datagrams.
            running = simulator.run(work, node, loss=loss, seed=seed + node)
            cards.add(node, stack.enter_context(running), work.nodes)
        yield cards
