"""Which clock each look-up table works in, and how many registers that takes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from n3ic.exporters.netfpga.unrolled.netlist import TRUE, Netlist

_PASSES = 4


@dataclass(frozen=True)
class Schedule:
    """A pipeline.

    Attributes:
        depth: clocks from an input to its result.
        stage: for each table that is kept the clock that it works in, from 1.
        delays: for each signal how many clocks it is kept after its own, the trace aside.
        traced: the same in a debug build.
        core: the tables that the outputs need; the other kept ones are for the trace.
    """

    depth: int
    stage: dict[int, int]
    delays: dict[int, int]
    traced: dict[int, int]
    core: frozenset[int]

    @property
    def registers(self) -> int:
        """Registers of data bits, the trace aside."""
        return sum(self.delays.values())


def schedule(net: Netlist, outputs: Iterable[int], traced: Iterable[int], levels: int) -> Schedule:
    """Cut a netlist into stages of at most ``levels`` tables in a row.

    A table may work later than it could, where that saves registers.
    """
    outputs, traced = tuple(outputs), tuple(traced)
    core = _tables(net, net.live(outputs))
    kept = sorted({*core, *_tables(net, net.live((*outputs, *traced)))})
    last = max((net.level(2 * node) for node in core), default=1)
    depth = -(-last // levels)
    # Only tables at stages of one level may move: inside longer ones the level counts, too.
    slot = {node: net.level(2 * node) for node in kept}
    if levels == 1:
        _settle(net, core, outputs, slot, depth)
    # What is for the trace alone does not make the pipeline longer.
    stage = {node: min(-(-level // levels), depth) for node, level in slot.items()}
    every = (*outputs, *traced)
    return Schedule(
        depth,
        stage,
        _delays(net, core, outputs, stage, depth),
        _delays(net, kept, every, stage, depth),
        frozenset(core),
    )


def _tables(net: Netlist, nodes: Iterable[int]) -> list[int]:
    return sorted(node for node in nodes if net.is_table(node))


def _settle(
    net: Netlist, core: list[int], outputs: tuple[int, ...], slot: dict[int, int], depth: int
) -> None:
    """Move tables between their earliest and latest clock to where fewest bits wait."""
    users: dict[int, list[int]] = defaultdict(list)
    everyone: dict[int, list[int]] = defaultdict(list)
    for node in sorted(slot):
        for x in net.table(node).inputs:
            everyone[x].append(node)
    for node in core:
        for x in net.table(node).inputs:
            users[x].append(node)
    final = {literal >> 1 for literal in outputs}

    def last_use(signal: int, without: int) -> int:
        uses = [slot[user] for user in users[signal] if user != without]
        return max([depth + 1] if signal in final else uses, default=0)

    for turn in range(_PASSES):
        for node in core if turn % 2 else reversed(core):
            inputs = net.table(node).inputs
            low = 1 + max(slot.get(x, 0) for x in inputs)
            high = min([slot[user] for user in everyone[node]] + [depth + 1]) - 1
            if low >= high:
                continue
            others = [last_use(x, node) for x in inputs]
            # Bits that wait at each clock, less those that wait anyway; the earliest of the best.
            waiting = {
                at: sum(max(0, at - other) for other in others) - at for at in range(low, high + 1)
            }
            slot[node] = min((bits, at) for at, bits in waiting.items())[1]


def _delays(
    net: Netlist,
    kept: Iterable[int],
    outputs: tuple[int, ...],
    stage: dict[int, int],
    depth: int,
) -> dict[int, int]:
    """Clocks that each signal waits for its last use; inputs come in the first stage."""
    delays: dict[int, int] = defaultdict(int)
    for node in kept:
        for x in net.table(node).inputs:
            delays[x] = max(delays[x], stage[node] - stage.get(x, 1))
    for literal in outputs:
        if literal > TRUE:
            node = literal >> 1
            delays[node] = max(delays[node], depth + 1 - stage.get(node, 1))
    return {node: count for node, count in sorted(delays.items()) if count}
