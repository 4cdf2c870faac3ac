# SPDX-License-Identifier: Apache-2.0
"""Joins labels that come late and in any order with their flows, by key and time."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import DataError
from n3ic.meter.flow_keys import Key, flow_key
from n3ic.meter.labels import MAX_LINE, SLACK_US, Labelled
from n3ic.model.classifier import Classifier
from n3ic.systems.stream.batch import FlowBatch
from n3ic.systems.stream.learning.blocks import DEFAULT, block_hashes, record_key
from n3ic.systems.stream.learning.rows import LabelledRows

_COLUMNS = ("source", "source_port", "destination", "destination_port", "protocol")
_READ = 1 << 20  # bytes read from the file at a time
_FOREVER = 1 << 62
Item = TypeVar("Item")


class LabelFile:
    """A growing file of labels: lines of JSON, or CSV with a header.

    A line has source, source_port, destination, destination_port, protocol, label, and optionally
    start and end (seconds since 1970). An unfinished line waits; an unreadable one is counted and
    skipped.

    Args:
        path: the file; it need not exist yet. CSV if its name ends in ``.csv``.

    Attributes:
        unread: number of lines that could not be read.
        first_fault: what was wrong with the first of them.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.unread = 0
        self.first_fault = ""
        self._at = self._line = 0
        self._partial_line = b""
        self._header: list[str] = []

    def news(self) -> list[tuple[Key, Labelled]]:
        """The labels of the next mebibyte that holds any; none once the file is read to its end.

        Raises:
            DataError: The file has become shorter, a line is too long, or a CSV lacks a column.
        """
        while data := self._added():
            if labels := self._labels(data):
                return labels
        return []

    def _added(self) -> bytes:
        """At most a mebibyte that was added after what has been read."""
        try:
            with self.path.open("rb") as stream:
                if stream.seek(0, io.SEEK_END) < self._at:
                    raise DataError(
                        f"{self.path}: the file has become shorter, expected only new labels"
                    )
                stream.seek(self._at)
                data = stream.read(_READ)
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise DataError(f"{self.path}: cannot be read: {error.strerror or error}") from error
        self._at += len(data)
        return data

    def _labels(self, data: bytes) -> list[tuple[Key, Labelled]]:
        """The labels of the lines that end in some data; the last line may wait for its end."""
        *lines, self._partial_line = (self._partial_line + data).split(b"\n")
        if max(map(len, [*lines, self._partial_line])) > MAX_LINE:
            raise DataError(
                f"{self.path}: expected lines of at most {MAX_LINE:,} bytes, got a longer one"
            )
        labels = []
        for line in lines:
            self._line += 1
            try:
                entry = self._entry(line.decode("utf-8").strip())
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                self.unread += 1
                self.first_fault = self.first_fault or f"{self.path}, line {self._line}: {error}"
                continue
            if entry is not None:
                labels.append(entry)
        return labels

    def _entry(self, text: str) -> tuple[Key, Labelled] | None:
        if not text:
            return None
        if self.path.suffix.lower() == ".csv":
            cells = next(csv.reader([text]))
            if not self._header:
                self._header = [cell.strip() for cell in cells]
                if missing := {*_COLUMNS, "label"} - {*self._header}:
                    raise DataError(f"{self.path}: column {min(missing)!r} is missing")
                return None
            fields: Mapping[str, Any] = dict(zip(self._header, cells, strict=True))
        else:
            fields = json.loads(text)
        return entry_of(fields)


def entry_of(fields: Mapping[str, Any]) -> tuple[Key, Labelled]:
    """Parse a label from plain data; see :class:`LabelFile`.

    Raises:
        ValueError: A value is invalid.
        KeyError: A value is missing.
        TypeError: The data are not a mapping.
    """
    key = flow_key(*(str(fields[name]).strip() for name in _COLUMNS))
    label = fields["label"]
    if not isinstance(label, str) or not label:
        raise ValueError(f"expected a name as label, got {label!r}"[:120])
    start, end = (round(float(fields.get(name) or 0) * 1e6) for name in ("start", "end"))
    return key, Labelled(label, start, end or _FOREVER)


@dataclass(eq=False)
class _Flow:
    """A flow that waits for its label."""

    key: Key
    first: int
    last: int
    features: NDArray[np.uint32]
    block: int

    def label(self, entries: Iterable[Labelled]) -> str | None:
        """The label that holds at the flow's time; empty if labels disagree, None if none holds."""
        labels = {
            entry.label
            for entry in entries
            if entry.start - SLACK_US <= self.last and entry.end + SLACK_US >= self.first
        }
        return None if not labels else labels.pop() if len(labels) == 1 else ""


class LabelJoin:
    """Flows that wait for their labels, and labels that wait for their flows.

    Args:
        model: the model, which defines the classes and the meter's unit of time.
        room: the most flows that wait, and the most stored labels; the oldest make room.
        seed: seed of the hashes of blocks.
        block: what flows of a block have in common; see
            :class:`~n3ic.systems.stream.learning.learner.LearnSettings`.

    Attributes:
        counts: flows by what became of them, and labels of unknown classes.
    """

    def __init__(
        self, model: Classifier, room: int = 100_000, seed: int = 0, block: str = DEFAULT
    ) -> None:
        self._classes = {name: i for i, name in enumerate(model.classes)}
        self._width = len(model.input.features)
        self._tick = model.meter.tick_ns if model.meter else 1000
        self._room, self._seed, self._block = room, seed, block
        self._flows = _ByKey[_Flow]()
        self._labels = _ByKey[Labelled]()
        self.counts: Counter[str] = Counter()

    def flows(self, batch: FlowBatch) -> LabelledRows:
        """Add flows; returns those whose labels have already come."""
        labelled = []
        for flow in self._flows_of(batch):
            label = flow.label(self._labels.of(flow.key).values())
            if label is None:
                self._flows.add(flow.key, flow)
            else:
                labelled.append((flow, label))
        self.counts["flows left unlabelled"] += self._flows.shrink(self._room)
        return self._rows(labelled)

    def labels(self, entries: Iterable[tuple[Key, Labelled]]) -> LabelledRows:
        """Add labels; returns the waiting flows that they label, in the order of their arrival."""
        keys: dict[Key, None] = {}
        for key, entry in entries:
            if entry.label in self._classes:
                self._labels.add(key, entry)
                keys[key] = None
            else:
                self.counts["labels of unknown classes"] += 1
        labelled = {}
        for key in keys:
            entries_of_key = self._labels.of(key)
            for number, flow in [*self._flows.of(key).items()]:
                label = flow.label(entries_of_key.values())
                if label is not None:
                    labelled[number] = self._flows.pop(number), label
        self._labels.shrink(self._room)
        return self._rows([labelled[number] for number in sorted(labelled)])

    def _flows_of(self, batch: FlowBatch) -> Iterator[_Flow]:
        times = [
            (batch.records[name].astype(np.int64) * self._tick // 1000).tolist()
            for name in ("first", "last")
        ]
        blocks = block_hashes(batch.records, self._tick, self._block, self._seed).tolist()
        parts = zip(batch.records, *times, batch.features, blocks, strict=True)
        for record, first, last, features, block in parts:
            yield _Flow(record_key(record), first, last, features, block)

    def _rows(self, labelled: Sequence[tuple[_Flow, str]]) -> LabelledRows:
        agreed = [(flow, label) for flow, label in labelled if label]
        self.counts["flows labelled"] += len(agreed)
        self.counts["flows with contradicting labels"] += len(labelled) - len(agreed)
        if not agreed:
            return LabelledRows.none(self._width)
        return LabelledRows(
            np.stack([flow.features for flow, _ in agreed]),
            np.array([self._classes[label] for _, label in agreed], np.int64),
            np.array([flow.block for flow, _ in agreed], np.uint64),
        )


class _ByKey(Generic[Item]):
    """Items in the order of their arrival, found by a flow's key."""

    def __init__(self) -> None:
        self._items: OrderedDict[int, tuple[Key, Item]] = OrderedDict()
        self._of: dict[Key, dict[int, Item]] = {}
        self._next = 0

    def add(self, key: Key, item: Item) -> None:
        """Add an item."""
        self._items[self._next] = key, item
        self._of.setdefault(key, {})[self._next] = item
        self._next += 1

    def of(self, key: Key) -> dict[int, Item]:
        """The items of a key, by their numbers."""
        return self._of.get(key, {})

    def pop(self, number: int) -> Item:
        """Remove an item."""
        key, item = self._items.pop(number)
        del self._of[key][number]
        if not self._of[key]:
            del self._of[key]
        return item

    def shrink(self, room: int) -> int:
        """Remove the oldest items until ``room`` are left; return how many were removed."""
        surplus = max(0, len(self._items) - room)
        for _ in range(surplus):
            self.pop(next(iter(self._items)))
        return surplus
