# SPDX-License-Identifier: Apache-2.0
"""The function ``messages``: messages of many packets, from shared memory to a PyTorch module."""

from __future__ import annotations

import json
import time
from collections import Counter, deque
from contextlib import ExitStack, closing
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import UsageError
from n3ic.systems.stream.functions.chain import MOST_TICKETS
from n3ic.systems.stream.functions.options import only, open_output, path_of
from n3ic.systems.stream.functions.packets import (
    HOLD,
    PASS,
    PacketFunction,
    PacketPayloads,
    PacketView,
    PayloadKind,
)
from n3ic.systems.stream.messages.assembly import AssemblyLimits
from n3ic.systems.stream.messages.batches import BatchOutcome, MessageBatches
from n3ic.systems.stream.messages.buffers import PacketBuffers
from n3ic.systems.stream.messages.devices import open_device
from n3ic.systems.stream.messages.models import message_model
from n3ic.systems.stream.messages.protocol import HEADER, HEADER_BYTES
from n3ic.systems.stream.messages.service import described
from n3ic.systems.stream.messages.transfers import transfer_named

_BUSY_US = 1000  # between two checks of the device's progress
_COMPUTING_S = 0.5  # between two heartbeats
_Number = TypeVar("_Number", int, float)


class MessagesFunction(PacketFunction):
    """Runs ``model`` on UDP messages to ``port``, and appends a JSON line for each to ``out``.

    A packet of a message is held until the device has its bytes, then passed on. All other packets
    are passed on at once.
    """

    def __init__(self, *words: Any) -> None:
        super().__init__(*words)
        names = ("model", "out", "way", "device", "port", "rows", "timeout", "seed", "counts")
        only(self.options, *names)
        self.port = self._number("port", 9700, 1, 65_535)
        rows = self._number("rows", 8, 1, 1 << 16)
        timeout = self._number("timeout", 2.0, 0.001, 86_400.0)
        way = transfer_named(str(self.options.get("way", "pull")))
        self.counts_path = path_of(self.options, "counts") if "counts" in self.options else None
        model = message_model(
            str(path_of(self.options, "model")), self._number("seed", 0, 0, 1 << 62)
        )
        self.shared.alive()
        self.limits = AssemblyLimits(
            model.message_bytes, per_sender=max(1, rows - 1), timeout_s=timeout
        )
        with ExitStack() as stack:
            self.out = stack.enter_context(open_output(path_of(self.options, "out")))
            device = stack.enter_context(closing(open_device(str(self.options.get("device", "")))))
            self.batches = stack.enter_context(
                MessageBatches(
                    PacketBuffers.of_frames(self.shared.data),
                    *(device, way, model.on(device), self.limits),
                    packets=MOST_TICKETS,
                    batches=rows,
                )
            )
            self._stack = stack.pop_all()
        self.others: Counter[PayloadKind] = Counter()
        self._in_place: deque[NDArray[np.uint64]] = deque()  # descriptors, in the order of placing
        self._holding = 0

    def _number(self, name: str, default: _Number, least: _Number, most: _Number) -> _Number:
        value = self.options.get(name, default)
        if isinstance(value, bool) or not isinstance(value, (int, type(default))):
            raise UsageError(f"options.{name}: expected a number, got {value!r}")
        if not least <= value <= most:
            raise UsageError(f"options.{name}: expected {least} to {most}, got {value}")
        return value

    def on_batch(self, view: PacketView) -> NDArray[np.uint8]:
        """Hold packets of messages, and start their transfer to the device."""
        payloads = view.payloads(self.port)
        for kind, count in zip(*np.unique(payloads.kind, return_counts=True), strict=True):
            self.others[PayloadKind(int(kind))] += int(count)
        ours = payloads.kind == PayloadKind.WHOLE
        self._place(view, payloads, np.flatnonzero(ours))
        self._go_on()
        return np.where(ours, HOLD, PASS).astype(np.uint8)

    def on_idle(self) -> None:
        """Give back packets that the device has read."""
        self._go_on()

    def on_end(self) -> None:
        """Wait for complete messages, and give back the packets of incomplete ones."""
        while self.batches.computing:
            self._write_outcomes(self.batches.computed(_COMPUTING_S))
            self.shared.alive()
        self.batches.expire(time.monotonic_ns() + int(2e9 * self.limits.timeout_s))
        while self.batches.in_use:
            self.batches.release(block=True)
        self._give_back()
        self._stack.close()
        if self.counts_path:
            others = {k.name.lower(): self.others[k] for k in PayloadKind if k}
            counts = self.batches.counts.to_dict() | {"not_messages": others}
            self.counts_path.write_text(json.dumps(counts) + "\n", "utf-8")

    def _place(self, view: PacketView, payloads: PacketPayloads, index: NDArray[np.int64]) -> None:
        """Place packets, only as many messages at a time as there are free rows.

        If all rows are being computed, it waits: then tickets run out and no message is lost.
        """
        if not len(index):
            return
        start, sender = payloads.start[index], payloads.sender[index]
        # Copies headers, not payloads. A payload shorter than a header may end where memory ends.
        bytes_at = np.minimum(start[:, None] + np.arange(HEADER_BYTES), len(view.data) - 1)
        headers = view.data[bytes_at].view(HEADER)[:, 0]
        changes = (np.diff(headers["message"]) != 0) | (np.diff(sender) != 0)
        run_ends = np.append(np.flatnonzero(changes) + 1, len(index))
        first = run = 0
        while run < len(run_ends):
            while not self.batches.free_rows and self.batches.computing:
                self._write_outcomes(self.batches.computed(_COMPUTING_S))
                self.shared.alive()
            run += max(1, self.batches.free_rows)
            end = int(run_ends[min(run, len(run_ends)) - 1])
            part = slice(first, end)
            self._in_place.append(view.descriptors[index[part]])
            self._holding += end - first
            self.batches.place(
                *(headers[part], payloads.length[index[part]], sender[part], start[part]),
                time.monotonic_ns(),
            )
            first = end

    def _go_on(self) -> None:
        """Give back packets, expire messages and write results, without waiting."""
        self.batches.release()
        self.batches.expire(time.monotonic_ns())
        self._give_back()
        self._write_outcomes(self.batches.computed())
        busy = self.batches.in_use or self.batches.computing
        self.wait_us = _BUSY_US if busy else PacketFunction.wait_us

    def _give_back(self) -> None:
        """Pass on the oldest packets, those no longer in use."""
        while self._in_place and self._holding - len(self._in_place[0]) >= self.batches.in_use:
            descriptors = self._in_place.popleft()
            self._holding -= len(descriptors)
            self.shared.give_back(descriptors, np.full(len(descriptors), PASS, dtype=np.uint8))

    def _write_outcomes(self, outcomes: list[BatchOutcome]) -> None:
        """Write a line for each message."""
        for outcome in outcomes:
            self.out.write(json.dumps(described(outcome)).encode() + b"\n")
        if outcomes:
            self.out.flush()
