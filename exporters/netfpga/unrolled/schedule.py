# SPDX-License-Identifier: Apache-2.0
"""Assigns each look-up table to a pipeline stage, and counts the registers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from n3ic.exporters.netfpga.unrolled.netlist import TRUE, Netlist

_PASSES = 4


@dataclass(frozen=True)
class Schedule:
    """A pipeline schedule.

    Attributes:
        depth: clocks from an input to its result.
        stage: for each table that is kept, its stage, from 1.
        delays: for each signal, the clocks that it is kept after its own stage, without the trace.
        traced: the same delays in a debug build.
        core: the tables that the outputs need; the other tables serve the trace.
    """

    depth: int
    stage: dict[int, int]
    delays: dict[int, int]
    traced: dict[int, int]
    core: frozenset[int]

    @property
    def registers(self) -> int:
        """Number of data registers, without the trace."""
        return sum(self.delays.values())


def schedule(net: Netlist, outputs: Iterable[int], traced: Iterable[int], levels: int) -> Schedule:
    """Cut a netlist into stages of at most ``levels`` tables in series.

    A table is moved to a later stage if that saves registers.
    """
    outputs, traced = tuple(outputs), tuple(traced)
    core = _tables(net, net.live(outputs))
    tables = sorted({*core, *_tables(net, net.live((*outputs, *traced)))})
    last = max((net.level(2 * node) for node in core), default=1)
    depth = -(-last // levels)
    # Moving a table within a longer stage would change its level, so only stages of one level move.
    slot = {node: net.level(2 * node) for node in tables}
    if levels == 1:
        _settle(net, core, outputs, slot, depth)
    # Tables of the trace alone must not make the pipeline longer.
    stage = {node: min(-(-level // levels), depth) for node, level in slot.items()}
    every = (*outputs, *traced)
    return Schedule(
        depth,
        stage,
        _delays(net, core, outputs, stage, depth),
        _delays(net, tables, every, stage, depth),
        frozenset(core),
    )


def _tables(net: Netlist, nodes: Iterable[int]) -> list[int]:
    return sorted(node for node in nodes if net.is_table(node))


def _settle(
    net: Netlist, core: list[int], outputs: tuple[int, ...], slot: dict[int, int], depth: int
) -> None:
    """Move tables between their earliest and latest stage such that the fewest bits are delayed."""
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
            # Moving to `at` delays an input by at - (its other last use) more clocks, and its own
            # output by `at` fewer clocks. The earliest of the best places is taken.
            waiting = {
                at: sum(max(0, at - other) for other in others) - at for at in range(low, high + 1)
            }
            slot[node] = min((bits, at) for at, bits in waiting.items())[1]


def _delays(
    net: Netlist,
    tables: Iterable[int],
    outputs: tuple[int, ...],
    stage: dict[int, int],
    depth: int,
) -> dict[int, int]:
    """Clocks that each signal is delayed until its last use; inputs arrive in stage 1."""
    delays: dict[int, int] = defaultdict(int)
    for node in tables:
        for x in net.table(node).inputs:
            delays[x] = max(delays[x], stage[node] - stage.get(x, 1))
    for literal in outputs:
        if literal > TRUE:
            node = literal >> 1
            delays[node] = max(delays[node], depth + 1 - stage.get(node, 1))
    return {node: count for node, count in sorted(delays.items()) if count}
