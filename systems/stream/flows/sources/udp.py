# SPDX-License-Identifier: Apache-2.0
"""``udp:ADDRESS:PORT``: rows of features or of input bits, in the same messages that a card takes.

A datagram is a request as in ``docs/reference/formats.md`` (inference messages). Its rows hold the
model's features, 32 bits each, or its input bits; their size tells which. A flow's key is the
sender and this socket, its times are the time of arrival, and its number of packets is 1.
"""

from __future__ import annotations

import ipaddress
import socket
import struct
import time
from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np

from n3ic.errors import DataError, UsageError
from n3ic.exporters.netfpga.frontend.messages import REQUEST, Message, MessageError, read_message
from n3ic.meter.compiled import ENDS, Records
from n3ic.meter.standard import standard_spec
from n3ic.model.bits import pack
from n3ic.model.classifier import Classifier
from n3ic.systems.stream.flows.decide import row_records, rows_type
from n3ic.systems.stream.flows.source import FrameBatch, Position, Source

BUFFER = 1 << 25  # bytes of the kernel's buffer
ROWS = 1 << 14  # rows of a batch, roughly
_LARGEST = 1 << 16
_WAIT_S = 0.1
_OVERFLOW = 40  # SO_RXQ_OVFL: the kernel reports how many datagrams it had no room for


class DatagramSource(Source):
    """Rows in datagrams.

    Args:
        address: address to listen on.
        port: port to listen on; 0 for any free port.
        model: the model whose rows they are.

    Attributes:
        place: address and port that it listens on.

    Raises:
        UsageError: The address is not one of this machine, or the port is in use.
    """

    def __init__(self, address: str, port: int, model: Classifier) -> None:
        self._model = model
        self._refused: Counter[str] = Counter()
        self._numbers: dict[tuple[str, int], int] = {}  # the next expected number, by sender
        self._overflow = self._rows = 0
        self._tick_ns = (model.meter or standard_spec()).tick_ns
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_DGRAM)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
            self._socket.setsockopt(socket.SOL_SOCKET, _OVERFLOW, 1)
            self._socket.bind((address, port))
        except OSError as error:
            self._socket.close()
            raise UsageError(f"udp:{address}:{port}: {error.strerror or error}") from error
        self._socket.settimeout(_WAIT_S)
        self.place: tuple[str, int] = self._socket.getsockname()[:2]
        self.name = f"udp:{address}:{port}"

    def batches(self, position: Position) -> Iterator[FrameBatch]:
        """Yield batches of rows as they come."""
        while not self._stopped:
            rows: list[Records] = []
            count = 0
            while count < ROWS and (records := self._next(wait=not rows)) is not None:
                if len(records):
                    rows.append(records)
                    count += len(records)
            if rows:
                yield FrameBatch({}, rows=np.concatenate(rows))

    def lost(self) -> Mapping[str, int]:
        """Datagrams lost or refused, by reason, including gaps in the numbers of messages."""
        return {
            f"{self.name}: buffer full": self._overflow,
            **{f"{self.name}: {reason}": n for reason, n in self._refused.items()},
        }

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _next(self, wait: bool) -> Records | None:
        """The rows of the next datagram, empty if it is refused; None if no datagram has come."""
        flags = 0 if wait else socket.MSG_DONTWAIT
        try:
            data, about, _, sender = self._socket.recvmsg(_LARGEST, socket.CMSG_SPACE(4), flags)
        except (TimeoutError, BlockingIOError):
            return None
        except OSError as error:
            raise DataError(f"{self.name}: {error.strerror or error}") from error
        for level, kind, value in about:
            if level == socket.SOL_SOCKET and kind == _OVERFLOW:
                (self._overflow,) = struct.unpack("=I", value[:4])
        try:
            message = read_message(data)
        except MessageError:
            return self._refuse("not an inference message")
        own = int.from_bytes(bytes.fromhex(self._model.digest)[:4], "big")
        if message.kind != REQUEST:
            return self._refuse("no request")
        if message.model not in (0, own):
            return self._refuse("of another model")
        self._count_gap(sender[:2], message.number)
        return self._rows_of(message, sender)

    def _refuse(self, reason: str) -> Records:
        self._refused[reason] += 1
        return np.empty(0, dtype=rows_type(self._model))

    def _count_gap(self, sender: tuple[str, int], number: int) -> None:
        """Count the messages of a sender that are missing; a lower number is late or repeated."""
        gap = (number - self._numbers.get(sender, number)) & 0xFFFFFFFF
        if gap < 1 << 31:
            self._refused["missing by their numbers"] += gap
            self._numbers[sender] = (number + 1) & 0xFFFFFFFF
        if len(self._numbers) > 1 << 12:  # forged senders must not fill the memory
            del self._numbers[next(iter(self._numbers))]

    def _rows_of(self, message: Message, sender: tuple[str, int]) -> Records:
        spec = self._model.input
        body = np.frombuffer(message.body, dtype=np.uint8).reshape(message.rows, message.size)
        if message.size == 4 * len(spec.features):
            values = np.ascontiguousarray(body).view(">u4").astype(np.uint32)
            records = row_records(self._model, values)
        elif message.size == -(-spec.n_bits // 8):
            bits = np.unpackbits(body[:, ::-1], axis=1, bitorder="little")
            if bits[:, spec.n_bits :].any():
                return self._refuse("bits behind those of the model")
            records = row_records(self._model, None, pack(bits[:, : spec.n_bits].astype(bool)))
        else:
            return self._refuse("rows of another size")
        for side, (address, port) in (("source", sender[:2]), ("destination", self.place)):
            packed = ipaddress.ip_address(address.partition("%")[0]).packed
            records[side][:, : len(packed)] = np.frombuffer(packed, dtype=np.uint8)
            records[f"{side}_port"], records["address_bytes"] = port, len(packed)
        records["protocol"], records["packets"] = socket.IPPROTO_UDP, 1
        records["why"] = ENDS.index("packets")
        records["first"] = records["last"] = time.time_ns() // self._tick_ns
        records["number"] = np.arange(self._rows, self._rows + len(records))
        self._rows += len(records)
        return records


def open_source(rest: str, model: Classifier) -> DatagramSource:
    """Listen at ``ADDRESS:PORT``.

    Raises:
        UsageError: ``rest`` is not an address and a port, or listening there fails.
    """
    address, _, port = rest.rpartition(":")
    try:
        ipaddress.ip_address(address.strip("[]"))
        if not 0 <= int(port) < 1 << 16:
            raise ValueError(port)
    except ValueError as error:
        raise UsageError(f"udp:{rest}: expected udp:ADDRESS:PORT, such as 0.0.0.0:9000") from error
    return DatagramSource(address.strip("[]"), int(port), model)
