# SPDX-License-Identifier: Apache-2.0
"""``ipfix://HOST:PORT`` and ``FILE.ipfix``: flows as IPFIX (RFC 7011; in files RFC 5655).

Templates and elements are those of n3icd (``exporters/xdp/daemon/ipfix.h``), so one collector can
read both. ``?domain=N&enterprise=N`` sets the observation domain and the private enterprise number.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from n3ic.errors import N3icError, UsageError
from n3ic.meter.compiled import ENDS
from n3ic.systems.stream.batch import FlowBatch
from n3ic.systems.stream.flows.decide import StreamModel
from n3ic.systems.stream.flows.sink import FileSink, Offset, StreamSink

ENTERPRISE = 32473  # reserved for examples (RFC 5612); n3icd uses it too
TEMPLATE_4, TEMPLATE_6, TEMPLATE_NAMES = 256, 257, 258
TEMPLATES_S = 60.0  # over UDP, templates are repeated: a collector may have missed them
MTU = 1432  # bytes of a message with several records
FEATURES_FROM = 256
_HEADER = struct.Struct(">HHIII")
_VARIABLE = 65535
_NAME = 254  # most bytes of a name, so that its length takes one byte
# Ports, protocol, interface, VLAN; first, last, packets, reason, packets; when it was decided.
_COMMON = (
    *((7, 2), (11, 2), (4, 1), (10, 4), (58, 2)),
    *((152, 8), (153, 8), (86, 8), (136, 1), (2, 8), (258, 8)),
)
_RECORD = struct.Struct(">HHBIHQQQBQQ")
# flowEndReason of RFC 5102.
_REASONS = {"idle": 1, "packets": 2, "after": 2, "active": 2, "fin": 3, "rst": 3, "evicted": 5}
_FORCED = 4


class IpfixMessages:
    """Writes IPFIX messages about the flows of a model.

    Args:
        model: the model.
        domain: observation domain.
        enterprise: private enterprise number of the model's elements.

    Attributes:
        model: the model; another one of the same features and verdicts may take its place.
        sequence: number of data records so far, which goes into the next message's header.
    """

    def __init__(self, model: StreamModel, domain: int, enterprise: int) -> None:
        self.sequence = 0
        self.model, self._domain, self._enterprise = model, domain, enterprise
        classes = len(model.model.classes)
        # As in n3icd, a feature's element number follows from its place among the meter's.
        among = model.spec.feature_names if model.metered else list(model.features)
        self._features = {name: FEATURES_FROM + among.index(name) for name in model.features}
        # Class, verdict, margin, the model's digest, scores.
        self._own = ((1, _VARIABLE), (2, 4), (3, 4), (4, 8), (5, 4 * classes))
        self._tail = struct.Struct(f">iI8s{classes}i{len(self._features)}I")

    def templates(self) -> list[bytes]:
        """The messages that carry the templates and the names of the elements (RFC 5610)."""
        sets = [_set(2, self._template(number)) for number in (TEMPLATE_4, TEMPLATE_6)]
        names = ((346, 4), (303, 2), (339, 1), (344, 1), (341, _VARIABLE))
        options = struct.pack(">HHH", TEMPLATE_NAMES, len(names), 2)
        options += b"".join(struct.pack(">HH", *name) for name in names)
        # Types of RFC 5610: 13 string, 7 signed32, 3 unsigned32, 0 octetArray.
        types = [(1, 13, 0, "n3icClass"), (2, 7, 4, "n3icVerdict"), (3, 3, 1, "n3icMargin")]
        types += [(4, 0, 4, "n3icModel"), (5, 0, 0, "n3icScores")]
        types += [(element, 3, 1, name) for name, element in self._features.items()]
        records = [
            struct.pack(">IHBB", self._enterprise, *type_) + _text(name) for *type_, name in types
        ]
        return [
            *(self._message(s, 0) for s in sets),
            self._message(_set(3, options), 0),
            *self._messages(TEMPLATE_NAMES, records),
        ]

    def flows(self, batch: FlowBatch) -> Iterator[tuple[bytes, int]]:
        """Yield messages about flows, each with the number of flows in it."""
        waiting: dict[int, list[bytes]] = {TEMPLATE_4: [], TEMPLATE_6: []}
        for size, record in self._records(batch):
            waiting[TEMPLATE_4 if size == 4 else TEMPLATE_6].append(record)
        for number, records in waiting.items():
            for group in _fitting(records):
                yield self._message(_set(number, b"".join(group)), len(group)), len(group)

    def _template(self, number: int) -> bytes:
        six = number == TEMPLATE_6
        ends = ((27, 16), (28, 16)) if six else ((8, 4), (12, 4))
        own = (*self._own, *((element, 4) for element in self._features.values()))
        return b"".join(
            (
                struct.pack(">HH", number, len(ends) + len(_COMMON) + len(own)),
                *(struct.pack(">HH", *e) for e in (*ends, *_COMMON)),
                *(struct.pack(">HHI", e | 0x8000, size, self._enterprise) for e, size in own),
            )
        )

    def _records(self, batch: FlowBatch) -> Iterator[tuple[int, bytes]]:
        names = [_text(name) for name in self.model.model.verdict_names]
        digest = bytes.fromhex(self.model.model.digest)[:8]
        tick_ns, now_ms = self.model.spec.tick_ns, time.time_ns() // 10**6
        columns = batch.verdicts, batch.margins, batch.scores, batch.features
        results = (column.tolist() for column in columns)
        for r, verdict, margin, scores, values in zip(batch.records, *results, strict=True):
            size, packets = int(r["address_bytes"]), int(r["packets"])
            times = (int(r[name]) * tick_ns // 10**6 for name in ("first", "last"))
            why = _REASONS.get(ENDS[int(r["why"])], _FORCED)
            key = int(r["source_port"]), int(r["destination_port"]), int(r["protocol"])
            yield (
                size,
                b"".join(
                    (
                        r["source"][:size].tobytes(),
                        r["destination"][:size].tobytes(),
                        _RECORD.pack(*key, 0, 0, *times, packets, why, packets, now_ms),
                        names[verdict],
                        self._tail.pack(verdict, margin, digest, *scores, *values),
                    )
                ),
            )

    def _messages(self, number: int, records: list[bytes]) -> Iterator[bytes]:
        for group in _fitting(records):
            yield self._message(_set(number, b"".join(group)), len(group))

    def _message(self, body: bytes, records: int) -> bytes:
        size = _HEADER.size + len(body)
        head = _HEADER.pack(10, size, int(time.time()), self.sequence & 0xFFFFFFFF, self._domain)
        self.sequence += records
        return head + body


def _set(number: int, body: bytes) -> bytes:
    return struct.pack(">HH", number, 4 + len(body)) + body


def _text(name: str) -> bytes:
    data = name.encode()[:_NAME].decode(errors="ignore").encode()
    return bytes([len(data)]) + data


def _fitting(records: list[bytes]) -> Iterator[list[bytes]]:
    """Group records to fit messages of :data:`MTU` bytes; a larger record is a group by itself."""
    group: list[bytes] = []
    size = room = MTU - _HEADER.size - 4
    for record in records:
        if group and len(record) > size:
            yield group
            group, size = [], room
        group.append(record)
        size -= len(record)
    if group:
        yield group


class IpfixFile(FileSink):
    """IPFIX messages in a file."""

    def __init__(self, path: Path, messages: IpfixMessages) -> None:
        super().__init__(path)
        self._messages = messages

    def begin(self, replace: bool) -> Offset:
        """See :meth:`StreamSink.begin`."""
        return {**super().begin(replace), "sequence": 0}

    def open(self, offset: Offset, first: int, stream: str) -> None:
        """See :meth:`StreamSink.open`."""
        self._messages.sequence = int(offset["sequence"])
        super().open(offset, first, stream)

    def head(self) -> bytes:
        """The templates."""
        return b"".join(self._messages.templates())

    def write(self, batch: FlowBatch, first: int) -> None:
        """See :meth:`StreamSink.write`."""
        self.append(b"".join(message for message, _ in self._messages.flows(batch)))

    def use(self, model: StreamModel) -> None:
        """See :meth:`StreamSink.use`: each flow names its model."""
        self._messages.model = model

    def flush(self) -> Offset:
        """See :meth:`StreamSink.flush`."""
        return {**super().flush(), "sequence": self._messages.sequence}


class IpfixCollector(StreamSink):
    """IPFIX messages to a collector over UDP, which does not acknowledge them."""

    name = "ipfix collector"

    def __init__(self, address: tuple[str, int], messages: IpfixMessages) -> None:
        self._messages = messages
        self._told_s: float | None = None
        self._unanswered = 0  # flows of the message before, which a collector that is gone refuses
        try:
            family, kind, _, _, place = socket.getaddrinfo(*address, type=socket.SOCK_DGRAM)[0]
            self._socket = socket.socket(family, kind)
            self._socket.connect(place)
        except OSError as error:
            raise N3icError(f"ipfix://{address[0]}: {error.strerror or error}") from error

    def open(self, offset: Offset, first: int, stream: str) -> None:
        """Begin a transport session; its sequence begins at the number of the next flow."""
        self._messages.sequence = first

    def write(self, batch: FlowBatch, first: int) -> None:
        """See :meth:`StreamSink.write`."""
        if self._told_s is None or time.monotonic() - self._told_s > TEMPLATES_S:
            self._told_s = time.monotonic()
            for message in self._messages.templates():
                self._send(message, 0)
        for message, flows in self._messages.flows(batch):
            self._send(message, flows)

    def use(self, model: StreamModel) -> None:
        """See :meth:`StreamSink.use`: each flow names its model."""
        self._messages.model = model

    def flush(self) -> Offset:
        """See :meth:`StreamSink.flush`."""
        if self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._lose(0)
        return super().flush()

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _send(self, message: bytes, flows: int) -> None:
        try:
            self._socket.send(message)
        except ConnectionRefusedError:  # of the message before; this one was not sent
            self._lose(flows)
        except OSError:  # a full buffer
            self.lost += flows
        else:
            self._unanswered = flows

    def _lose(self, flows: int) -> None:
        self.lost += flows + self._unanswered
        self._unanswered = 0


def open_sink(text: str, model: StreamModel) -> StreamSink:
    """Open a collector by its URL, or a file.

    Raises:
        UsageError: The URL names no host and port, or has an unknown option.
        N3icError: The host is unknown.
    """
    url = urlsplit(text if "://" in text else "")
    try:
        pairs = parse_qsl(url.query, strict_parsing=bool(url.query))
        options = {name: int(value) for name, value in pairs}
        host, port = url.hostname, url.port
    except ValueError as error:
        raise UsageError(f"sink {text!r}: {error}") from error
    domain, enterprise = options.pop("domain", 0), options.pop("enterprise", ENTERPRISE)
    if options or not (0 <= domain < 1 << 32 and 0 < enterprise < 1 << 32):
        raise UsageError(f"sink {text!r}: expected ?domain=N&enterprise=N, 32 bits each")
    messages = IpfixMessages(model, domain, enterprise)
    if "://" not in text:
        return IpfixFile(Path(text), messages)
    if not host or not port:
        raise UsageError(f"sink {text!r}: expected ipfix://HOST:PORT")
    return IpfixCollector((host, port), messages)
