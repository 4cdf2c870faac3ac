# SPDX-License-Identifier: Apache-2.0
"""A reader of IPFIX messages (RFC 7011, types of RFC 5610), for what n3icd sends."""

import struct
from dataclasses import dataclass, field

VARIABLE = 65535


@dataclass
class Collector:
    """Templates and records of one exporter's messages.

    Attributes:
        templates: pairs of element (enterprise or 0, number) and size, by template.
        names: names of the enterprise's elements, by element.
        records: records, by element.
        expected: sequence number of the next message.
        gaps: records that were lost, by the sequence numbers.
    """

    templates: dict[int, list] = field(default_factory=dict)
    names: dict[tuple[int, int], str] = field(default_factory=dict)
    records: list[dict] = field(default_factory=list)
    expected: int | None = None
    gaps: int = 0

    def take(self, message):
        """Read a message; returns the observation domain."""
        version, size, _, sequence, domain = struct.unpack_from(">HHIII", message)
        assert (version, size) == (10, len(message))
        if self.expected is not None:
            self.gaps += sequence - self.expected
        at, count = 16, 0
        while at < size:
            kind, length = struct.unpack_from(">HH", message, at)
            assert length >= 4
            assert at + length <= size
            body = message[at + 4 : at + length]
            if kind in (2, 3):
                self.template(body, options=kind == 3)
            else:
                assert kind >= 256
                count += self.data(kind, body)
            at += length
        assert at == size
        self.expected = sequence + count
        return domain

    def template(self, body, options):
        at = 0
        while at < len(body):
            number, count = struct.unpack_from(">HH", body, at)
            at += 4
            if options:
                (scope,) = struct.unpack_from(">H", body, at)
                assert 0 < scope <= count
                at += 2
            elements = []
            for _ in range(count):
                element, size = struct.unpack_from(">HH", body, at)
                at += 4
                enterprise = 0
                if element & 0x8000:
                    (enterprise,) = struct.unpack_from(">I", body, at)
                    at += 4
                elements.append(((enterprise, element & 0x7FFF), size))
            assert self.templates.setdefault(number, elements) == elements
        assert at == len(body)

    def data(self, kind, body):
        at = count = 0
        while at < len(body):
            record = {}
            for element, size in self.templates[kind]:
                if size == VARIABLE:
                    size = body[at]
                    at += 1
                    assert size < 255
                record[element] = body[at : at + size]
                assert len(record[element]) == size
                at += size
            count += 1
            if (0, 341) in record:
                of = tuple(int.from_bytes(record[0, i], "big") for i in (346, 303))
                self.names[of] = record[0, 341].decode()
            else:
                self.records.append(record)
        assert at == len(body)
        return count


def number(record, element, enterprise=0):
    return int.from_bytes(record[enterprise, element], "big")
