# SPDX-License-Identifier: Apache-2.0
"""``kafka://HOST:PORT[,HOST:PORT]/TOPIC``: flows that other streams wrote, possibly on many hosts.

They are messages of the sink ``kafka://`` with ``--features``, or any JSON objects with an integer
``feature_NAME`` for each feature of the model. Addresses, ports, protocol, times and packets are
optional. Settings after ``?`` are those of librdkafka and two of this source: ``partitions=0,3``
reads only these partitions, so that several consumers can share a topic, and ``until=now`` ends
after the messages that the topic holds when the source opens.

The position is one offset per partition. It is kept in the stream's state, not in a consumer group.
"""

from __future__ import annotations

import json
import re
import socket
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

import numpy as np

from n3ic.errors import DataError, UsageError, needed
from n3ic.meter.compiled import ENDS, Records
from n3ic.meter.standard import standard_spec
from n3ic.model.classifier import Classifier
from n3ic.model.inputs import UINT32_MAX
from n3ic.systems.stream.flows.decide import row_records
from n3ic.systems.stream.flows.source import FrameBatch, Position, Source

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message, TopicPartition

MESSAGES = 4096  # most messages of a batch
_SECONDS = 60.0  # longest wait for an answer about the topic
_WAIT_S = 0.1
_LARGEST = 1 << 20  # bytes of a message
_MOST = {"source_port": 0xFFFF, "destination_port": 0xFFFF, "protocol": 0xFF} | dict.fromkeys(
    ("packets", "first_us", "last_us"), 1 << 53
)  # largest values of the fields that are read beside the features


class TopicSource(Source):
    """The flows of a topic.

    Args:
        name: the URL without its settings.
        topic: the topic.
        settings: settings of librdkafka.
        partitions: the partitions to read; empty for all.
        ends: whether the source ends after the messages that the topic holds now.
        model: the model whose features the flows have.

    Raises:
        MissingDependencyError: confluent-kafka is not installed.
        DataError: No broker answers, or the topic lacks a partition.
    """

    live = False

    def __init__(
        self,
        name: str,
        topic: str,
        settings: Mapping[str, str],
        partitions: tuple[int, ...],
        *,
        ends: bool,
        model: Classifier,
    ) -> None:
        with needed("a source in Kafka"):
            from confluent_kafka import Consumer

        which = ",".join(map(str, partitions))
        self.name = f"{name}?partitions={which}" if partitions else name
        self._topic, self._model = topic, model
        self._features = [f"feature_{feature}" for feature in model.input.features]
        self._ticks = 1000 / (model.meter or standard_spec()).tick_ns  # ticks per microsecond
        self._refused: Counter[str] = Counter()
        own = {
            "group.id": "n3ic",  # librdkafka requires one, but no offsets are kept in it
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
        }
        configuration = {"log_level": 0, **settings, **own}
        self._reader: Consumer = self._answer(partial(Consumer, configuration, error_cb=_quiet))
        try:
            there = sorted(self._answer(self._list_partitions))
            if missing := sorted({*partitions} - {*there}):
                raise DataError(f"{self.name}: no partition {missing[0]}; it has {len(there)}")
            self._ends = {
                number: self._answer(self._bounds, number) for number in partitions or there
            }
        except BaseException:
            self._reader.close()
            raise
        self._until_now = ends

    def batches(self, position: Position) -> Iterator[FrameBatch]:
        """Yield batches of flows after a position.

        Raises:
            DataError: The topic no longer holds that position, or a broker refuses.
        """
        from confluent_kafka import TopicPartition

        at: dict[str, int] = {}
        for number, (begin, _) in self._ends.items():
            offset = position.get(str(number))
            if offset is not None and offset < begin:
                raise DataError(
                    f"{self.name}: partition {number} begins at {begin:,}, the state is at "
                    f"{offset:,}: flows were deleted before they were read; begin with another "
                    "--state"
                )
            at[str(number)] = begin if offset is None else offset
        self._reader.assign([TopicPartition(self._topic, int(n), o) for n, o in at.items()])
        while not self._stopped and not (self._until_now and self._is_at_end(at)):
            messages = self._answer(self._reader.consume, MESSAGES, _WAIT_S)
            if not messages:
                self._pass_marks(at)
                continue
            records = self._records(messages)
            for message in messages:
                at[str(message.partition())] = int(message.offset() or 0) + 1
            yield FrameBatch(dict(at), rows=records)

    def lost(self) -> Mapping[str, int]:
        """The number of messages that are not flows of the model, by reason."""
        return {f"{self.name}: {reason}": n for reason, n in self._refused.items()}

    def close(self) -> None:
        """Disconnect from the brokers."""
        self._reader.close()

    def _is_at_end(self, at: Mapping[str, int]) -> bool:
        return all(at[str(number)] >= end for number, (_, end) in self._ends.items())

    def _pass_marks(self, at: dict[str, int]) -> None:
        """Advance past transaction markers, which take offsets but are not messages."""
        for where in self._reader.position(self._reader.assignment()):
            if where.offset >= 0:
                at[str(where.partition)] = max(at[str(where.partition)], where.offset)

    def _list_partitions(self) -> list[int]:
        topic = self._reader.list_topics(self._topic, _SECONDS).topics[self._topic]
        if topic.error is not None or not topic.partitions:
            raise DataError(f"{self.name}: no such topic")
        return list(topic.partitions)

    def _bounds(self, number: int) -> tuple[int, int]:
        from confluent_kafka import TopicPartition

        where: TopicPartition = TopicPartition(self._topic, number)
        begin, end = self._reader.get_watermark_offsets(where, _SECONDS)
        return int(begin), int(end)

    def _answer(self, function: Any, *arguments: Any) -> Any:
        from confluent_kafka import KafkaException

        try:
            return function(*arguments)
        except KafkaException as error:
            reason = error.args[0] if error.args else None
            text = reason.str() if reason is not None and hasattr(reason, "str") else str(error)
            raise DataError(f"{self.name}: {text}") from error

    def _records(self, messages: list[Message]) -> Records:
        """Convert the messages that are flows of the model to records; count the others."""
        flows = []
        for message in messages:
            if (error := message.error()) is not None:
                raise DataError(f"{self.name}: {error.str()}")
            try:
                flows.append(self._flow(message.value() or b""))
            except _NotAFlowError as refused:
                self._refused[str(refused)] += 1
        features = np.array([f for f, _ in flows], dtype=np.uint32)
        records = row_records(self._model, features.reshape(len(flows), len(self._features)))
        for record, (_, fields) in zip(records, flows, strict=True):
            for name, value in fields.items():
                record[name] = value
        return records

    def _flow(self, text: bytes) -> tuple[list[int], dict[str, Any]]:
        """Parse a flow into its features and the other fields of its record."""
        if len(text) > _LARGEST:
            raise _NotAFlowError("message too long")
        try:
            row = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise _NotAFlowError("not JSON") from error
        if not isinstance(row, dict):
            raise _NotAFlowError("not a flow")
        if any(name not in row for name in self._features):
            raise _NotAFlowError("a feature is missing")
        features = [_number(row[name], UINT32_MAX) for name in self._features]
        ends = {name: _packed(row.get(name)) for name in ("source", "destination")}
        fields: dict[str, Any] = {
            name: np.frombuffer(packed.ljust(16, b"\0"), np.uint8) for name, packed in ends.items()
        }
        if len(sizes := {len(packed) for packed in ends.values() if packed}) > 1:
            raise _NotAFlowError("an address is wrong")
        fields["address_bytes"] = max(sizes, default=4)
        for name, most in _MOST.items():
            value = _number(row.get(name, 0), most)
            fields[name.removesuffix("_us")] = (
                round(value * self._ticks) if "_us" in name else value
            )
        why = row.get("decided")
        fields["why"] = ENDS.index(why) if why in ENDS else 0
        return features, fields


class _NotAFlowError(Exception):
    """Why a message is not a flow of the model."""


def _number(value: object, most: int) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise _NotAFlowError("a value is out of range")
    return value


def _packed(text: object) -> bytes:
    if text is None or text == "":
        return b""
    if not isinstance(text, str):
        raise _NotAFlowError("an address is wrong")
    try:
        return socket.inet_pton(socket.AF_INET6 if ":" in text else socket.AF_INET, text)
    except (OSError, ValueError) as error:
        raise _NotAFlowError("an address is wrong") from error


def _quiet(error: object) -> None:
    """Ignore an error of a connection: librdkafka reconnects."""


def open_source(rest: str, model: Classifier) -> TopicSource:
    """Open a topic by its URL without ``kafka:``.

    Raises:
        UsageError: The URL names no broker or no topic, or a setting is wrong.
    """
    url = urlsplit(f"kafka:{rest}")
    topic = url.path.strip("/")
    if not url.netloc or not topic or "/" in topic:
        raise UsageError(f"source 'kafka:{rest}': expected kafka://HOST:PORT/TOPIC")
    settings = dict(parse_qsl(url.query))
    numbers, until = settings.pop("partitions", ""), settings.pop("until", "")
    if numbers and not re.fullmatch(r"\d{1,5}(,\d{1,5})*", numbers, re.ASCII):
        raise UsageError(f"partitions: expected numbers such as 0,3, got {numbers!r:.80}")
    if until not in ("", "now"):
        raise UsageError(f"until: expected now, got {until!r:.80}")
    settings["bootstrap.servers"] = url.netloc
    return TopicSource(
        f"kafka://{url.netloc}/{topic}",
        topic,
        settings,
        tuple(sorted({int(number) for number in numbers.split(",")} if numbers else ())),
        ends=until == "now",
        model=model,
    )
