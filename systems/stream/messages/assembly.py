# SPDX-License-Identifier: Apache-2.0
"""Assigns packets to messages; its state has a bounded size, and no packet can corrupt it.

Nothing here touches a payload. It tells where each accepted packet belongs, and counts the refused
ones by reason.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from n3ic.systems.stream.messages.protocol import (
    FAULT_TEXTS,
    HEADER_BYTES,
    PacketFault,
    faults_of,
    parts_of,
)

MessageKey = tuple[int, int]
"""The sender and the number of a message."""


@dataclass(frozen=True)
class AssemblyLimits:
    """The limits of an assembly.

    Attributes:
        message_bytes: size of the largest message in bytes; with ``exact``, of every message.
        exact: whether all messages must have exactly that size, as a model's input does.
        per_sender: the most incomplete messages of one sender.
        timeout_s: the most seconds from a message's first packet to its last.
        remembered: how many ended messages are remembered, so that late packets do not open them
            again.
    """

    message_bytes: int
    exact: bool = True
    per_sender: int = 64
    timeout_s: float = 2.0
    remembered: int = 4096


@dataclass(eq=False)
class PartialMessage:
    """A message whose packets are coming.

    Attributes:
        sender: port and address of the sender, ``port << 32 | address``.
        number: the sender's number for the message.
        row: row of the tensor that it fills.
        size: its size in bytes.
        part: bytes of the message in each packet but the last.
        received: which packets have come, bool, shape ``(packets,)``.
        missing: how many packets have not come.
        first_ns: time of arrival of the first packet, by :func:`time.monotonic_ns`.
        last_ns: time of arrival of the last packet; 0 until then.
    """

    sender: int
    number: int
    row: int
    size: int
    part: int
    received: NDArray[np.bool_]
    missing: int
    first_ns: int
    last_ns: int = 0

    @property
    def key(self) -> MessageKey:
        """Sender and number."""
        return self.sender, self.number


@dataclass(frozen=True, eq=False)
class PlacedPackets:
    """Where accepted packets go; int64 arrays of shape ``(packets,)``.

    Attributes:
        index: indices of the accepted packets among those that were added.
        rows: the row of the tensor for each packet.
        offsets: the first byte of each packet's part in that row.
        lengths: bytes of the message in each packet.
        complete: the messages that have become complete.
    """

    index: NDArray[np.int64]
    rows: NDArray[np.int64]
    offsets: NDArray[np.int64]
    lengths: NDArray[np.int64]
    complete: list[PartialMessage]


@dataclass
class MessageCounts:
    """Received and refused packets and messages, and their cost.

    Attributes:
        packets: received packets.
        accepted: packets that were accepted, including those of messages that expired later.
        refused: packets that were refused, by reason; also accepted ones of expired messages.
        kernel_refused: datagrams for which the socket's buffer was full.
        complete: messages that became complete.
        expired: messages that did not become complete in time.
        no_room: messages for which no row was free.
        device_memory: messages for which the device's memory did not suffice.
        computed: messages that were computed.
        transfer_cpu_ns: CPU time of the receiving thread for transfers.
        receive_cpu_ns: CPU time of that thread for everything else.
    """

    packets: int = 0
    accepted: int = 0
    refused: Counter[PacketFault] = field(default_factory=Counter)
    kernel_refused: int = 0
    complete: int = 0
    expired: int = 0
    no_room: int = 0
    device_memory: int = 0
    computed: int = 0
    transfer_cpu_ns: int = 0
    receive_cpu_ns: int = 0

    @property
    def ended(self) -> int:
        """Messages that are complete or lost."""
        return self.complete + self.expired + self.no_room

    def lines(self) -> list[tuple[str, int]]:
        """The losses that occurred, in words, with their counts."""
        pairs = [(f"packets: {FAULT_TEXTS[f]}", n) for f, n in sorted(self.refused.items())]
        pairs += [
            ("packets: the socket's buffer was full", self.kernel_refused),
            ("messages: incomplete in time", self.expired),
            ("messages: no room", self.no_room),
            ("messages: the device's memory did not suffice", self.device_memory),
        ]
        return [(text, count) for text, count in pairs if count]

    def to_dict(self) -> dict[str, Any]:
        """The counts as plain data."""
        ends = ("complete", "computed", "expired", "no_room", "device_memory")
        return {
            "packets": self.packets,
            "accepted": self.accepted,
            "messages": {name: getattr(self, name) for name in ends},
            "refused": {f.name.lower(): n for f, n in sorted(self.refused.items())},
            "refused_by_kernel": self.kernel_refused,
        }


class MessageAssembly:
    """Assembles messages from any number of senders.

    Args:
        limits: the limits.
        take_row: returns a row for a new message, or None if no row is free.
        give_back: frees the row of a message that has expired.

    Attributes:
        counts: received and refused packets and messages.
    """

    def __init__(
        self,
        limits: AssemblyLimits,
        take_row: Callable[[], int | None],
        give_back: Callable[[int], None],
    ) -> None:
        self.limits = limits
        self.counts = MessageCounts()
        self._take_row, self._give_back = take_row, give_back
        self._open: dict[MessageKey, PartialMessage] = {}  # in the order of their first packets
        self._of_sender: Counter[int] = Counter()
        self._ended: OrderedDict[MessageKey, PacketFault] = OrderedDict()

    def __len__(self) -> int:
        """Number of incomplete messages."""
        return len(self._open)

    def add(
        self,
        headers: NDArray[np.void],
        lengths: NDArray[np.int64],
        senders: NDArray[np.uint64],
        now_ns: int,
    ) -> PlacedPackets:
        """Take packets in the order of their arrival; arrays have the shape ``(packets,)``.

        Args:
            headers: headers of dtype :data:`~n3ic.systems.stream.messages.protocol.HEADER`.
            lengths: bytes of each packet, header included.
            senders: the sender of each packet, ``port << 32 | address``.
            now_ns: current time of :func:`time.monotonic_ns`.
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
        """End the messages whose time is over, and free their rows."""
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
            self.counts.refused[PacketFault.EXPIRED] += len(message.received) - message.missing
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
        """Store consecutive packets of one message."""
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
        fresh = ~message.received[number]
        if (np.diff(number) <= 0).any():  # a packet may have come twice in this run
            only = np.zeros(len(number), dtype=np.bool_)
            only[np.unique(number, return_index=True)[1]] = True
            fresh &= only
        fault[run[~fresh]] = PacketFault.DOUBLED
        message.received[number[fresh]] = True
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
        row = self._take_row() if self._of_sender[key[0]] < self.limits.per_sender else None
        if row is None:
            # Remember it, so that its other packets do not open it once a row is free again.
            self.counts.no_room += 1
            self._remember(key, PacketFault.NO_ROOM)
            return None
        packets = int(header["packets"])
        message = PartialMessage(
            *(key[0], key[1], row, int(header["size"]), part),
            received=np.zeros(packets, dtype=np.bool_),
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
