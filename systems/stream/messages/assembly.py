# SPDX-License-Identifier: Apache-2.0
"""Which packets make which message: state of bounded size that no packet can break.

Nothing here touches a payload. It says where each accepted packet belongs, and counts the others
by reason.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from n3ic.systems.stream.messages.protocol import (
    HEADER_BYTES,
    PacketFault,
    faults_of,
    parts_of,
)

MessageKey = tuple[int, int]
"""Sender and number of a message."""


@dataclass(frozen=True)
class AssemblyLimits:
    """What an assembly takes at most.

    Attributes:
        message_bytes: bytes of a message; with ``exact``, of every message.
        exact: whether all messages have just that size, as a model's input has.
        per_sender: messages of one sender that may be incomplete.
        timeout_s: seconds from a message's first packet to its last.
        remembered: numbers of ended messages that are kept, so that late packets open none.
    """

    message_bytes: int
    exact: bool = True
    per_sender: int = 64
    timeout_s: float = 2.0
    remembered: int = 4096


@dataclass(eq=False)
class PartialMessage:
    """A message, while its packets come.

    Attributes:
        sender: port and address of the sender.
        number: the sender's number for it.
        row: row of the tensor that it fills.
        size: its bytes.
        part: bytes of it in each packet but the last.
        seen: which packets came, bool array.
        missing: how many did not.
        first_ns: when the first came, by :func:`time.monotonic_ns`.
        last_ns: when the last came; 0 before.
    """

    sender: int
    number: int
    row: int
    size: int
    part: int
    seen: NDArray[np.bool_]
    missing: int
    first_ns: int
    last_ns: int = 0

    @property
    def key(self) -> MessageKey:
        """Sender and number."""
        return self.sender, self.number


@dataclass(frozen=True, eq=False)
class PlacedPackets:
    """Where accepted packets go; arrays of shape ``(packets,)``, int64.

    Attributes:
        index: which packets of those that were added.
        rows: row of the tensor.
        offsets: byte of that row.
        lengths: bytes of the message in the packet.
        complete: messages that are complete now.
    """

    index: NDArray[np.int64]
    rows: NDArray[np.int64]
    offsets: NDArray[np.int64]
    lengths: NDArray[np.int64]
    complete: list[PartialMessage]


@dataclass
class AssemblyCounts:
    """What came and what was refused.

    Attributes:
        packets: packets that came.
        accepted: packets that were accepted; those of a message that expires later are among them.
        refused: packets that were refused, by reason; accepted ones of expired messages too.
        complete: messages that became complete.
        expired: messages that did not in time.
        no_room: messages for which no row was free.
    """

    packets: int = 0
    accepted: int = 0
    refused: Counter[PacketFault] = field(default_factory=Counter)
    complete: int = 0
    expired: int = 0
    no_room: int = 0

    @property
    def ended(self) -> int:
        """Messages that are complete or lost."""
        return self.complete + self.expired + self.no_room


class MessageAssembly:
    """Assembles messages of any number of senders.

    Args:
        limits: what it takes.
        take: gives a row for a message that begins, or None.
        give_back: takes the row of a message that expired.

    Attributes:
        counts: what came and what was refused.
    """

    def __init__(
        self,
        limits: AssemblyLimits,
        take: Callable[[], int | None],
        give_back: Callable[[int], None],
    ) -> None:
        self.limits = limits
        self.counts = AssemblyCounts()
        self._take, self._give_back = take, give_back
        self._open: dict[MessageKey, PartialMessage] = {}  # in the order of their first packets
        self._of_sender: Counter[int] = Counter()
        self._ended: OrderedDict[MessageKey, PacketFault] = OrderedDict()

    def __len__(self) -> int:
        """Messages that are incomplete."""
        return len(self._open)

    def add(
        self,
        headers: NDArray[np.void],
        lengths: NDArray[np.int64],
        senders: NDArray[np.uint64],
        now_ns: int,
    ) -> PlacedPackets:
        """Take packets in the order of their arrival.

        Args:
            headers: of :data:`~n3ic.systems.stream.messages.protocol.HEADER`.
            lengths: bytes of each packet, header included.
            senders: who sent each.
            now_ns: time of :func:`time.monotonic_ns`.
        """
        limits, counts = self.limits, self.counts
        fault = faults_of(headers, lengths, limits.message_bytes)
        if limits.exact:
            other = headers["size"] != limits.message_bytes
            fault[(fault == PacketFault.NONE) & other] = PacketFault.WRONG_SIZE
        part = parts_of(headers, lengths)
        rows = np.zeros(len(headers), dtype=np.int64)
        complete: list[PartialMessage] = []
        index = np.flatnonzero(fault == PacketFault.NONE)
        if len(index):
            numbers = headers["message"][index]
            changes = (np.diff(numbers) != 0) | (np.diff(senders[index]) != 0)
            for run in np.split(index, np.flatnonzero(changes) + 1):
                self._run(headers, part, senders, run, now_ns, fault, rows, complete)
        ok = np.flatnonzero(fault == PacketFault.NONE)
        counts.packets += len(headers)
        counts.accepted += len(ok)
        for reason, times in zip(*np.unique(fault, return_counts=True), strict=True):
            if reason:
                counts.refused[PacketFault(int(reason))] += int(times)
        offsets = headers["offset"][ok].astype(np.int64)
        return PlacedPackets(ok, rows[ok], offsets, lengths[ok] - HEADER_BYTES, complete)

    def expire(self, now_ns: int) -> list[PartialMessage]:
        """End the messages whose time is over, and give their rows back."""
        born = now_ns - int(1e9 * self.limits.timeout_s)
        over = []
        for message in self._open.values():  # the oldest first
            if message.first_ns >= born:
                break
            over.append(message)
        for message in over:
            self._end(message, PacketFault.EXPIRED)
            self._give_back(message.row)
            self.counts.expired += 1
            self.counts.refused[PacketFault.EXPIRED] += len(message.seen) - message.missing
        return over

    def _run(
        self,
        headers: NDArray[np.void],
        part: NDArray[np.int64],
        senders: NDArray[np.uint64],
        run: NDArray[np.int64],
        now_ns: int,
        fault: NDArray[np.uint8],
        rows: NDArray[np.int64],
        complete: list[PartialMessage],
    ) -> None:
        """Take packets of one message that came one after the other."""
        first = run[0]
        key = int(senders[first]), int(headers["message"][first])
        if key in self._ended:
            refused = self._ended[key] == PacketFault.NO_ROOM
            fault[run] = PacketFault.NO_ROOM if refused else PacketFault.LATE
            return
        message = self._open.get(key) or self._begin(key, headers[first], int(part[first]), now_ns)
        if message is None:
            fault[run] = PacketFault.NO_ROOM
            return
        number = headers["number"][run].astype(np.int64)
        same = (headers["size"][run] == message.size) & (part[run] == message.part)
        fault[run[~same]] = PacketFault.CONFLICTING
        run, number = run[same], number[same]
        fresh = ~message.seen[number]
        if (np.diff(number) <= 0).any():  # one may have come twice in this run
            only = np.zeros(len(number), dtype=np.bool_)
            only[np.unique(number, return_index=True)[1]] = True
            fresh &= only
        fault[run[~fresh]] = PacketFault.DOUBLED
        message.seen[number[fresh]] = True
        message.missing -= int(fresh.sum())
        rows[run] = message.row
        if not message.missing:
            message.last_ns = now_ns
            self._end(message, PacketFault.LATE)
            self.counts.complete += 1
            complete.append(message)

    def _begin(
        self, key: MessageKey, header: np.void, part: int, now_ns: int
    ) -> PartialMessage | None:
        row = self._take() if self._of_sender[key[0]] < self.limits.per_sender else None
        if row is None:
            # Remembered, so that its other packets do not open it when a row is free again.
            self.counts.no_room += 1
            self._remember(key, PacketFault.NO_ROOM)
            return None
        packets = int(header["packets"])
        message = PartialMessage(
            *(key[0], key[1], row, int(header["size"]), part),
            seen=np.zeros(packets, dtype=np.bool_),
            missing=packets,
            first_ns=now_ns,
        )
        self._open[key] = message
        self._of_sender[key[0]] += 1
        return message

    def _end(self, message: PartialMessage, how: PacketFault) -> None:
        del self._open[message.key]
        self._of_sender[message.sender] -= 1
        if not self._of_sender[message.sender]:
            del self._of_sender[message.sender]
        self._remember(message.key, how)

    def _remember(self, key: MessageKey, how: PacketFault) -> None:
        self._ended[key] = how
        while len(self._ended) > self.limits.remembered:
            self._ended.popitem(last=False)
