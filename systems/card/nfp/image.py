# SPDX-License-Identifier: Apache-2.0
"""A card on the NFP: each region of the plan is an island with its networks in CLS."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import cast

from n3ic.errors import CardError
from n3ic.exporters.nfp import blob
from n3ic.model.bits import word_count
from n3ic.model.network import BinaryModel
from n3ic.systems.card.compile import SoftwareCard
from n3ic.systems.card.description import NetworkTask
from n3ic.systems.card.plan import CardPlan
from n3ic.targets.device import Device

_CYCLES_A_TICK = 16  # cycles per tick of a micro-engine's timestamp
_LARGEST_BURST = (1 << 31) - 1  # bytes: in units of 2^-32 bytes it still fits 64 bits


@dataclass(frozen=True)
class Island:
    """An island of the NFP.

    Attributes:
        index: index of the island, from 0.
        networks: names of the tasks whose networks are in its CLS.
        threads: number of contexts that serve each network.
    """

    index: int
    networks: tuple[str, ...]
    threads: tuple[int, ...]

    def serves(self) -> list[int]:
        """Return the network of each serving context, in the order of contexts."""
        return [n for n, count in enumerate(self.threads) for _ in range(count)]


@dataclass(frozen=True)
class Bucket:
    """A tenant's token bucket as micro-C fills it.

    Attributes:
        burst: size of the bucket in bytes.
        step: tokens per tick in units of 2^-32 bytes, rounded down.
        full: number of ticks that fill the bucket.
    """

    burst: int
    step: int
    full: int


@dataclass(frozen=True, eq=False)
class NfpCardImage:
    """A card on the NFP.

    Attributes:
        card: tenants and graphs of the card.
        islands: islands that hold networks.
        contexts: contexts per island.
        all_islands: number of islands of the device.
        tick_hz: ticks per second of a micro-engine's timestamp.
    """

    card: SoftwareCard
    islands: tuple[Island, ...]
    contexts: int
    all_islands: int
    tick_hz: int

    @property
    def buckets(self) -> list[Bucket]:
        """Token bucket of each tenant."""
        # Rounded down, so a bucket never passes more than its rate; at least 1, so it fills at all.
        steps = [max(1, (t.rate << 32) // self.tick_hz) for t in self.card.tenants]
        return [
            Bucket(t.burst, step, -(-(t.burst << 32) // step))
            for t, step in zip(self.card.tenants, steps, strict=True)
        ]

    @property
    def models(self) -> list[BinaryModel]:
        """All networks."""
        return list(self.card.networks.values())

    @property
    def branches(self) -> int:
        """Largest number of networks of a graph."""
        return max(len(g.branches) for g in self.card.graphs)

    @property
    def max_words(self) -> int:
        """Words of the widest layer's input; at least two, so that compilers accept the bounds."""
        return max(2, *(layer.n_words for m in self.models for layer in m.layers))

    @property
    def ask_words(self) -> int:
        """Words of the longest request."""
        return max(max(m.input.n_words, len(m.input.features)) for m in self.models)

    @property
    def classes(self) -> int:
        """Largest number of classes of a network."""
        return max(len(m.classes) for m in self.models)

    @property
    def hidden_words(self) -> int:
        """Largest number of hidden words of a network; at least one."""
        return max(1, *(sum(word_count(y.n_outputs) for y in m.hidden) for m in self.models))


def image_of(plan: CardPlan, card: SoftwareCard, device: Device) -> NfpCardImage:
    """Make the image of a plan.

    Raises:
        CardError: The firmware does not support a graph, or an island is too small.
    """
    for graph in card.graphs:
        if graph.rules:
            raise CardError(
                f"{graph.name}: target nfp has no policy: the data plane decides what "
                "happens to a packet"
            )
    limits = device.limits
    count, contexts = (
        int(limits["islands"]),
        int(limits["mes_per_island"] * limits["threads_per_me"]),
    )
    used = [r for r in plan.regions if any(name in card.networks for name in r.chain)]
    if any(r.index >= count for r in used):
        raise CardError(
            f"{plan.card.source}: {device.name} has {count} islands, expected at most as many "
            "regions"
        )
    loads = _loads(plan)
    islands = []
    for region in used:
        names = tuple(n for n in region.chain if n in card.networks)
        threads = divide([loads[region.index, n] for n in names], contexts)
        islands.append(Island(region.index, names, threads))
    for tenant in card.tenants:
        if tenant.burst > _LARGEST_BURST:
            raise CardError(
                f"{plan.card.source}: tenant {tenant.name!r}: a burst of {tenant.burst:,} bytes, "
                f"expected at most {_LARGEST_BURST:,}"
            )
    tick_hz = round(device.clock_mhz * 1e6) // _CYCLES_A_TICK
    image = NfpCardImage(card, tuple(islands), contexts, count, tick_hz)
    _check_room(plan, image, device)
    return image


def divide(loads: list[float], contexts: int) -> tuple[int, ...]:
    """Divide contexts in proportion to loads, at least one each, by largest remainders.

    Args:
        loads: planned thread-seconds per second of each network.
        contexts: number of contexts.

    Raises:
        CardError: the networks outnumber the contexts.
    """
    if len(loads) > contexts:
        raise CardError(f"{len(loads)} networks in an island of {contexts} contexts")
    total = sum(loads)
    weights = [x / total for x in loads] if total else [1 / len(loads)] * len(loads)
    # One context each is set aside first: a network without a context would never answer.
    free = contexts - len(loads)
    shares = [free * w for w in weights]
    out = [1 + int(s) for s in shares]
    order = sorted(range(len(loads)), key=lambda i: (int(shares[i]) - shares[i], i))
    for i in order[: contexts - sum(out)]:
        out[i] += 1
    return tuple(out)


def _loads(plan: CardPlan) -> dict[tuple[int, str], float]:
    """Compute thread-seconds per second of each task in each region, at the guaranteed rates."""
    loads: dict[tuple[int, str], float] = defaultdict(float)
    for graph in plan.graphs:
        for path in graph.paths:
            for stage in path.stages:
                for visit in stage:
                    for name in visit.tasks:
                        amount = plan.costs[name].needs.get("threads")
                        loads[visit.region, name] += path.rate * (amount.value if amount else 0.0)
    return loads


def _check_room(plan: CardPlan, image: NfpCardImage, device: Device) -> None:
    """Check that the CLS of each island holds its networks beside the contexts' state."""
    features = max((len(m.input.features) for m in image.models), default=0)
    # Each context keeps the input and output of a layer, the scores and the features, in words.
    state = 4 * image.contexts * (2 * image.max_words + image.classes + features)
    tables = 4 * image.contexts
    room = device.memory("cls").bytes - int(device.limits["reserve_cls"]) - state - tables
    for island in image.islands:
        need = sum(blob.build(image.card.networks[n]).size + 4 for n in island.networks)
        if need > room:
            tasks = [cast(NetworkTask, plan.card.tasks[n]) for n in island.networks]
            raise CardError(
                f"{plan.card.source}:{tasks[0].line}: island {island.index}: networks of {need:,} "
                f"bytes, CLS has {room:,} besides the state of {image.contexts} contexts"
            )
