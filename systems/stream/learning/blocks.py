# SPDX-License-Identifier: Apache-2.0
"""Blocks: flows that one incident, such as a scan or a flood, may have caused together.

Flows of an incident are alike in features and label, so a test that counts each of them as new
evidence errs far more often than it says. The tests of this package let a block count once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import UsageError
from n3ic.meter.compiled import Records
from n3ic.meter.flow_keys import Key, ends_of
from n3ic.systems.stream.learning.rows import LabelledRows, key_hash

DEFAULT = "source,minute"
FLOW = "flow"
_PARTS = ("source", "destination", "minute")
_MINUTE_NS = 60_000_000_000
_OPEN = 50  # held-out flows from the first of a block to its bet
_REMEMBERED = 100_000  # as many as the flows that may wait for their labels


def block_parts(block: str) -> tuple[str, ...]:
    """What flows of one block have in common.

    Raises:
        UsageError: It is neither ``flow`` nor some of source, destination and minute.
    """
    parts = tuple(block.split(","))
    if parts != (FLOW,) and (not {*parts} <= {*_PARTS} or len({*parts}) < len(parts)):
        raise UsageError(
            f"block: expected flow, or some of {', '.join(_PARTS)} joined by commas, got {block!r}"
        )
    return parts


def block_hashes(records: Records, tick_ns: int, block: str, seed: int) -> NDArray[np.uint64]:
    """A hash of each flow's block.

    Args:
        records: keys and times of the flows, shape ``(flows,)``.
        tick_ns: unit of the records' times in nanoseconds.
        block: see :func:`block_parts`; ``flow`` joins both directions of a key. A source is the
            sender of a flow's first packet, a minute that of this packet.
        seed: seed of the hash, so that no sender can choose whether its flows are held out.

    Returns:
        uint64, shape ``(flows,)``.
    """
    parts = block_parts(block)
    minutes = (records["first"].astype(np.int64) * tick_ns // _MINUTE_NS).tolist()
    return np.array(
        [
            key_hash(_block_of(record, minute, parts), seed)
            for record, minute in zip(records, minutes, strict=True)
        ],
        np.uint64,
    )


def record_key(record: np.void) -> Key:
    """The key of a flow's record, which is the same for both directions."""
    one, other = (
        (_address(record, side), int(record[f"{side}_port"])) for side in ("source", "destination")
    )
    return ends_of(one, other), int(record["protocol"])


def _block_of(record: np.void, minute: int, parts: tuple[str, ...]) -> object:
    if parts == (FLOW,):
        return record_key(record)
    return tuple(minute if part == "minute" else _address(record, part) for part in sorted(parts))


def _address(record: np.void, side: str) -> bytes:
    return bytes(record[side].tobytes()[: int(record["address_bytes"])])


def block_starts(block: NDArray[np.uint64]) -> NDArray[np.int64]:
    """The first row of each block, for rows of which those of one block lie together."""
    return np.flatnonzero(np.r_[True, block[1:] != block[:-1]][: len(block)])


def first_blocks(rows: LabelledRows, most: int) -> LabelledRows:
    """The rows of at most so many blocks at the beginning."""
    return rows.select(slice(0, [*block_starts(rows.block), len(rows)][: most + 1][-1]))


def last_blocks(rows: LabelledRows, most: int) -> LabelledRows:
    """The rows of at most so many blocks at the end."""
    return rows.select(slice([0, *block_starts(rows.block)][-most:][0], None))


class RecentBlocks:
    """The latest blocks that were added, a bounded number of them.

    Args:
        most: number of blocks that are told from new ones.
    """

    def __init__(self, most: int = _REMEMBERED) -> None:
        self._most = most
        self._blocks: dict[int, None] = {}

    def __iter__(self) -> Iterator[int]:
        """The blocks in their order."""
        return iter(self._blocks)

    def __contains__(self, block: int) -> bool:
        return block in self._blocks

    def add(self, block: int) -> bool:
        """Remember a block; return whether it is new."""
        if block in self._blocks:
            return False
        self._blocks[block] = None
        if len(self._blocks) > self._most:
            del self._blocks[next(iter(self._blocks))]
        return True

    def first_flows(self, block: NDArray[np.uint64]) -> NDArray[np.int64]:
        """The indices of the flows whose block is new, with which it is remembered.

        Args:
            block: hash of each flow's block, shape ``(flows,)``.
        """
        return np.flatnonzero([self.add(each) for each in block.tolist()])


class OpenBlocks:
    """Held-out flows that wait until their block closes, so that each block is judged once.

    A block closes when ``most`` held-out flows have come from its first one on, whatever their
    blocks. It is judged by what was labelled until then. Flows of a closed block are counted as
    late and not used. The latest closed blocks are remembered, ``remembered`` of them.

    Args:
        features: number of features of a flow.
        most: flows from the first of a block to its end.
        remembered: closed blocks that are told from new ones.

    Attributes:
        late: number of flows whose block was closed.
    """

    def __init__(self, features: int, most: int = _OPEN, remembered: int = _REMEMBERED) -> None:
        self.late = 0
        self._none = LabelledRows.none(features)
        self._most, self._flows = most, 0
        self._open: dict[int, tuple[int, list[LabelledRows]]] = {}  # by the first flow's number
        self._closed = RecentBlocks(remembered)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, from which :meth:`restore` makes the same blocks."""
        opened = [(first, [row.to_dict() for row in own]) for first, own in self._open.values()]
        counts = {"late": self.late, "flows": self._flows}
        return {**counts, "open": opened, "closed": [*self._closed]}

    def restore(self, data: Mapping[str, Any], read: Callable[[Any], LabelledRows]) -> None:
        """Take over what :meth:`to_dict` gave; ``read`` gives the flows of plain data."""
        self.late, self._flows = data["late"], data["flows"]
        for first, own in data["open"]:
            rows = [*map(read, own)]
            self._open[int(rows[0].block[0])] = first, rows
        for block in data["closed"]:
            self._closed.add(block)

    def add(self, rows: LabelledRows) -> LabelledRows:
        """Take flows; return those of the blocks that they close, block after block."""
        closed = [self._none]
        for number, block in enumerate(rows.block.tolist()):
            if block in self._closed:
                self.late += 1
            else:
                _, own = self._open.setdefault(block, (self._flows, []))
                own.append(rows.select(slice(number, number + 1)))
            self._flows += 1
            closed += self._ended()
        return LabelledRows.joined(*closed)

    def _ended(self) -> list[LabelledRows]:
        """Close the block that has been open long enough; flow by flow, there is one at most."""
        block = next(iter(self._open), None)
        if block is None or self._flows - self._open[block][0] < self._most:
            return []
        self._closed.add(block)
        return self._open.pop(block)[1]
