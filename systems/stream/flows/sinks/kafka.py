# SPDX-License-Identifier: Apache-2.0
"""``kafka://HOST:PORT[,HOST:PORT]/TOPIC``: flows as JSON in a Kafka topic.

``?NAME=VALUE&...`` are settings of librdkafka, such as ``?security.protocol=SSL``. A message's key
is the stream's identifier and the flow's number in the stream.

With a state, the flows between two states are one transaction, so a consumer that reads committed
messages sees all of them or none. A stream that resumes first aborts the transaction of the killed
process. It then reads the topic after the last offsets in the state, and does not send again the
flows that it finds there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

from n3ic.errors import N3icError, UsageError, needed
from n3ic.systems.stream.batch import FlowBatch
from n3ic.systems.stream.flows.decide import StreamModel
from n3ic.systems.stream.flows.sink import Offset, StreamSink
from n3ic.systems.stream.json_rows import json_rows

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message, Producer, TopicPartition

SECONDS = 60.0  # the stream ends if a broker does not answer within this time
_AGAIN = "with --state, the same command goes on when the broker is back"


class KafkaTopic(StreamSink):
    """A Kafka topic.

    Args:
        topic: the topic.
        settings: settings of librdkafka.
        model: the model.
    """

    def __init__(self, topic: str, settings: dict[str, str], model: StreamModel) -> None:
        self.name = f"kafka topic {topic}"
        self._topic, self._model = topic, model
        self._settings: dict[str, Any] = {"log_level": 0, **settings}
        self._stream = ""
        self._behind: dict[str, int] = {}  # offset after the last flow, by partition
        self._there: frozenset[int] = frozenset()  # flows after it, which a killed process sent
        self._sending = False  # whether a transaction is open
        self._refused: list[str] = []
        self._producer: Producer | None = None

    def begin(self, replace: bool) -> Offset:
        """Return the ends of the topic's partitions.

        Raises:
            N3icError: No broker answers.
            MissingDependencyError: confluent-kafka is not installed.
        """
        with self._consumer() as reader:
            for where in self._partitions(reader):
                _, end = reader.get_watermark_offsets(where, SECONDS)
                self._behind[str(where.partition)] = end
        return dict(self._behind)

    def open(self, offset: Offset, first: int, stream: str) -> None:
        """Connect, and find this stream's flows after the offset.

        Raises:
            N3icError: No broker answers.
            MissingDependencyError: confluent-kafka is not installed.
        """
        from confluent_kafka import Producer

        self._stream, self._behind = stream, {name: int(end) for name, end in offset.items()}
        own = {
            "enable.idempotence": True,
            "message.timeout.ms": int(SECONDS * 500),
            **({"transactional.id": f"n3ic-{stream}"} if stream else {}),
        }
        with self._errors():
            self._producer = Producer({**self._settings, **own}, error_cb=_quiet)
            if not stream:
                return
            self._producer.init_transactions(SECONDS)  # fences off the killed process
        with self._consumer() as reader:
            self._there = frozenset(self._rows(reader))

    def write(self, batch: FlowBatch, first: int) -> None:
        """See :meth:`StreamSink.write`; skips flows that the topic already has."""
        assert self._producer is not None  # noqa: S101 - it is open
        with self._errors():
            for number, row in enumerate(json_rows(self._model.table(batch, first)), first):
                if number in self._there:
                    continue
                if self._stream and not self._sending:
                    self._producer.begin_transaction()
                    self._sending = True
                self._send(f"{self._stream or 'n3ic'}:{number}", row)

    def flush(self) -> Offset:
        """See :meth:`StreamSink.flush`."""
        assert self._producer is not None  # noqa: S101 - it is open
        with self._errors():
            unanswered = self._producer.flush(SECONDS)
            if unanswered or self._refused:
                failures = [
                    *self._refused,
                    f"{unanswered:,} flows without an answer within {SECONDS:g} s",
                ]
                raise N3icError(f"sink {self.name}: {failures[0]}; {_AGAIN}")
            if self._sending:
                self._producer.commit_transaction(SECONDS)
                self._sending = False
        return dict(self._behind)

    def close(self) -> None:
        """Drop waiting messages; an open transaction is never committed."""
        if self._producer is not None:
            self._producer.purge()

    @contextmanager
    def _consumer(self) -> Iterator[Consumer]:
        with needed("a sink in Kafka"):
            from confluent_kafka import Consumer

        own = {
            "group.id": "n3ic",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
        with self._errors():
            reader = Consumer({**self._settings, **own}, error_cb=_quiet)
            try:
                yield reader
            finally:
                reader.close()

    def _partitions(self, reader: Consumer) -> list[TopicPartition]:
        """The topic's partitions, at the known offsets; empty if the topic does not exist yet."""
        from confluent_kafka import TopicPartition

        partitions = reader.list_topics(self._topic, SECONDS).topics[self._topic].partitions
        return [TopicPartition(self._topic, n, self._behind.get(str(n), 0)) for n in partitions]

    def _rows(self, reader: Consumer) -> Iterator[int]:
        """The numbers of this stream's flows after the known offsets."""
        where = self._partitions(reader)
        reader.assign(where)
        ended: set[int] = set()
        while len(ended) < len(where):
            message = reader.poll(SECONDS)
            if message is None:
                raise N3icError(f"sink {self.name}: no answer within {SECONDS:g} s; {_AGAIN}")
            if message.error() is not None:
                ended.add(self._end_of(message))
                continue
            stream, _, number = (message.key() or b"").decode(errors="replace").partition(":")
            if stream == self._stream:
                yield int(number)

    def _end_of(self, message: Message) -> int:
        from confluent_kafka import KafkaError, KafkaException

        error = message.error()
        if error is None or error.code() != KafkaError._PARTITION_EOF:
            raise KafkaException(error)
        return message.partition() or 0

    def _send(self, key: str, row: bytes) -> None:
        assert self._producer is not None  # noqa: S101 - it is open
        while True:
            try:
                self._producer.produce(self._topic, row, key, on_delivery=self._delivered)
                self._producer.poll(0)
                return
            except BufferError:  # the producer's queue is full
                self._producer.poll(0.1)

    def _delivered(self, error: object, message: Message) -> None:
        if error is not None:
            self._refused.append(str(error))
            return
        partition, offset = str(message.partition()), message.offset() or 0
        self._behind[partition] = max(self._behind.get(partition, 0), offset + 1)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        from confluent_kafka import KafkaError, KafkaException

        try:
            yield
        except KafkaException as error:
            reason = error.args[0] if error.args else None
            if not isinstance(reason, KafkaError):
                raise N3icError(f"sink {self.name}: {error}; {_AGAIN}") from error
            if reason.code() == KafkaError._INVALID_ARG:
                raise UsageError(f"sink {self.name}: {reason.str()}") from error
            raise N3icError(f"sink {self.name}: {reason.str()}; {_AGAIN}") from error


def _quiet(error: object) -> None:
    """Ignore an error of a connection: librdkafka reconnects until the time is over."""


def open_sink(text: str, model: StreamModel) -> StreamSink:
    """Open a topic by its URL.

    Raises:
        UsageError: The URL names no broker or no topic.
    """
    url = urlsplit(text)
    topic = url.path.strip("/")
    if not url.netloc or not topic or "/" in topic:
        raise UsageError(f"sink {text!r}: expected kafka://HOST:PORT/TOPIC")
    settings = {"bootstrap.servers": url.netloc, **dict(parse_qsl(url.query))}
    return KafkaTopic(topic, settings, model)
