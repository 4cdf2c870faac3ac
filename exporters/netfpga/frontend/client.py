# SPDX-License-Identifier: Apache-2.0
"""A client of a card's front end: sends rows over UDP or TCP and checks each result."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import N3icError, UsageError, VerifyError
from n3ic.exporters.netfpga.frontend.messages import (
    FAULT,
    FAULTS,
    HEADER,
    PORT,
    RESULTS,
    VERDICT_BYTES,
    Message,
    MessageError,
    bit_rows,
    feature_rows,
    message_bytes,
    read_message,
    read_results,
    request,
    result_bytes,
    results_body,
)
from n3ic.model.classifier import Classifier

PAYLOAD = 1472  # bytes of a datagram on Ethernet: MTU 1500 less 28 of IPv4 and UDP headers
_WRONG_MODEL, _WRONG_ROW, _WRONG_ROWS = 4, 5, 6
InputStage = Literal["bits", "features"]


class ClientError(N3icError):
    """The card does not answer, or answers with an error."""


@dataclass(frozen=True)
class ClientOptions:
    """Settings of a client.

    Attributes:
        tcp: whether to use one TCP connection instead of datagrams.
        batch: rows per request; 0 for as many as fit a datagram.
        window: maximum number of requests in flight.
        timeout: seconds until a datagram is sent again, or a connection is given up.
        tries: maximum number of datagrams sent for a request.
    """

    tcp: bool = False
    batch: int = 0
    window: int = 8
    timeout: float = 1.0
    tries: int = 5


@dataclass(frozen=True, eq=False)
class ClientRun:
    """Results of a batch of requests.

    Attributes:
        model: the network that the card computes.
        verdicts: class of each row, or ``SHUNT``, int64, shape ``(rows,)``; equal to the model's.
        full: whether class, margin and scores were also received and compared.
        requests: number of requests.
        resent: number of datagrams that were sent again.
        seconds: time from the first request to the last answer, in seconds.
        latencies: seconds from each request's first datagram to its answer, float64, shape
            ``(requests,)``.
    """

    model: Classifier
    verdicts: NDArray[np.int64]
    full: bool
    requests: int
    resent: int
    seconds: float
    latencies: NDArray[np.float64]


class _Line(Protocol):
    """A connection to a card."""

    def send(self, data: bytes) -> None:
        """Send a message."""

    def receive(self, seconds: float) -> Message | None:
        """Return the next message, or None after ``seconds`` seconds."""


class _Datagrams:
    def __init__(self, port: socket.socket) -> None:
        self._port = port

    def send(self, data: bytes) -> None:
        self._port.send(data)

    def receive(self, seconds: float) -> Message | None:
        end = time.monotonic() + seconds
        while (seconds_left := end - time.monotonic()) > 0:
            self._port.settimeout(seconds_left)
            try:
                return read_message(self._port.recv(65535))
            except TimeoutError:
                break
            except MessageError:
                continue  # a datagram of another sender: not an inference message
        return None


class _Stream:
    def __init__(self, port: socket.socket) -> None:
        self._port = port
        self._bytes = b""

    def send(self, data: bytes) -> None:
        self._port.sendall(data)

    def receive(self, seconds: float) -> Message | None:
        self._port.settimeout(seconds)
        while len(self._bytes) < HEADER.size or len(self._bytes) < message_bytes(self._bytes):
            try:
                more = self._port.recv(65535)
            except TimeoutError:
                return None
            if not more:
                raise ClientError("the card closed the connection")
            self._bytes += more
        size = message_bytes(self._bytes)
        message, self._bytes = self._bytes[:size], self._bytes[size:]
        return read_message(message)


def parse_address(text: str) -> tuple[str, int]:
    """Parse ``HOST``, ``HOST:PORT`` or ``[HOST]:PORT`` to host and port.

    Raises:
        UsageError: the port is not a number from 1 to 65535.
    """
    host, colon, port = text.rpartition(":")
    if not colon:
        return text, PORT
    if not (port.isascii() and port.isdecimal() and 0 < int(port) < 65536 and host):
        raise UsageError(f"{text!r}: expected HOST or HOST:PORT with a port from 1 to 65535")
    return host.strip("[]"), int(port)


def query_card(
    address: tuple[str, int],
    models: Sequence[Classifier],
    features: Mapping[str, Any],
    manner: ClientOptions = ClientOptions(),
    input_stage: InputStage = "bits",
) -> ClientRun:
    """Send rows to a card and compare each result with the model's.

    Args:
        address: host and port of the card.
        models: candidate networks; the card must compute one of them.
        features: integer features by name, each an array of shape ``(rows,)``.
        manner: settings of the client.
        input_stage: content of a row: ``bits`` or ``features``.

    Raises:
        ClientError: no answer arrived, or the answer is an error.
        VerifyError: a result differs from the model's.
        UsageError: no rows were given.
    """
    if not len(next(iter(features.values()), ())):
        raise UsageError("the table has no rows to send")
    with _line(address, manner) as line:
        model, rows, words, most = _agree(line, models, features, manner, input_stage)
    batch = manner.batch or min(most, (PAYLOAD - HEADER.size) // rows.shape[1]) or 1
    digest = int(model.digest[:8], 16)
    batches = [words[at : at + batch] for at in range(0, len(words), batch)]
    messages = [
        request(number, digest, rows[at : at + batch]).to_bytes()
        for number, at in enumerate(range(0, len(rows), batch), start=1)
    ]
    started = time.monotonic()
    with _line(address, manner) as line:
        answers, latencies, resent = _exchange(line, messages, manner)
    seconds = time.monotonic() - started
    verdicts, full = [], False
    for index, (answer, inputs) in enumerate(zip(answers, batches, strict=True)):
        _compare(model, answer, inputs, index * batch)
        full = answer.size != VERDICT_BYTES
        verdicts.append(read_results(answer, len(model.classes)).verdicts)
    return ClientRun(
        model, np.concatenate(verdicts), full, len(messages), resent, seconds, latencies
    )


def _agree(
    line: _Line,
    models: Sequence[Classifier],
    features: Mapping[str, Any],
    manner: ClientOptions,
    input_stage: InputStage,
) -> tuple[Classifier, NDArray[np.uint8], NDArray[np.uint32], int]:
    """Agree with the card on the network, the form of the rows, and the rows of a request."""
    fault = None
    for model in models:
        words = model.encode(features)
        if input_stage == "features":
            rows = feature_rows(np.stack([features[f] for f in model.input.features], axis=1))
        else:
            rows = bit_rows(words, model.input.n_bits)
        probe = request(0, int(model.digest[:8], 16), rows[:1]).to_bytes()
        (answer,), _, _ = _exchange(line, [probe], manner, faults=True)
        if answer.kind == RESULTS and answer.model == int(model.digest[:8], 16):
            return model, rows, words, (PAYLOAD - HEADER.size) // answer.size
        if answer.kind == RESULTS or answer.fault[0] == _WRONG_MODEL:
            fault = f"the card computes the model {answer.model:08x}"
        elif answer.fault[0] == _WRONG_ROW:
            fault = (
                f"the card takes rows of {answer.size} bytes, these have {rows.shape[1]} "
                "(--input-stage says whether rows hold bits or features)"
            )
        else:
            raise _fault(answer)
        if manner.tcp:
            break  # over TCP a card closes the connection after its first error
    known = " or ".join(m.digest[:8] for m in models)
    raise ClientError(f"{fault}; asked for {known}")


def _exchange(
    line: _Line, messages: Sequence[bytes], manner: ClientOptions, *, faults: bool = False
) -> tuple[list[Message], NDArray[np.float64], int]:
    """Send requests within a window and collect their answers in any order."""
    first = int(HEADER.unpack_from(messages[0])[3])
    answers: dict[int, Message] = {}
    begun: dict[int, float] = {}
    due: dict[int, float] = {}  # requests in flight: when each is sent again
    tries = dict.fromkeys(range(len(messages)), 0)
    latencies = np.zeros(len(messages))
    resent = following = 0
    while len(answers) < len(messages):
        while len(due) < manner.window and following < len(messages):
            now = time.monotonic()
            line.send(messages[following])
            begun[following], due[following] = now, now + manner.timeout
            tries[following] = 1
            following += 1
        answer = line.receive(max(0.001, min(due.values()) - time.monotonic()))
        now = time.monotonic()
        if answer is not None:
            index = answer.number - first
            if answer.kind == FAULT and (not faults or answer.number not in (first, 0)):
                raise _fault(answer)
            if index in due:  # a request that was sent again may be answered twice
                answers[index] = answer
                latencies[index] = now - begun[index]
                del due[index]
        for index in [i for i, at in due.items() if at <= now]:
            if manner.tcp or tries[index] >= manner.tries:
                raise ClientError(
                    f"no answer within {manner.timeout:g} s"
                    + ("" if manner.tcp else f" to each of {tries[index]} datagrams")
                )
            line.send(messages[index])
            tries[index] += 1
            resent += 1
            due[index] = now + manner.timeout
    return [answers[i] for i in range(len(messages))], latencies, resent


def _compare(model: Classifier, answer: Message, inputs: NDArray[np.uint32], first: int) -> None:
    """Compare an answer with the model's results."""
    digest = int(model.digest[:8], 16)
    if answer.model != digest:
        raise VerifyError(f"row {first}: the model {answer.model:08x} answered, not {digest:08x}")
    full = answer.size != VERDICT_BYTES
    expected = results_body(model, inputs, full=full)
    if answer.body == expected:
        return
    size = result_bytes(len(model.classes), full=full)
    if len(answer.body) != len(expected):
        raise VerifyError(
            f"rows from {first}: {len(answer.body)} bytes of results, {len(expected)} expected"
        )
    wrong = next(
        i
        for i in range(len(inputs))
        if answer.body[i * size :][:size] != expected[i * size :][:size]
    )
    raise VerifyError(
        f"row {first + wrong}: the card answered {answer.body[wrong * size :][:size].hex(' ')}, "
        f"the model gives {expected[wrong * size :][:size].hex(' ')}"
    )


def _fault(answer: Message) -> ClientError:
    code, most = answer.fault
    text = f"the card refused the request: it is {FAULTS.get(code, f'wrong (code {code})')}"
    return ClientError(text + (f", it takes {most}: --batch {most}" if code == _WRONG_ROWS else ""))


@contextmanager
def _line(address: tuple[str, int], manner: ClientOptions) -> Iterator[_Line]:
    """Open a connection to the card for a ``with`` block."""
    where = f"{address[0]}:{address[1]}"
    try:
        if manner.tcp:
            with socket.create_connection(address, manner.timeout) as port:
                port.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                yield _Stream(port)
            return
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as port:
            port.connect(address)
            yield _Datagrams(port)
    except TimeoutError as error:
        raise ClientError(f"{where}: no connection within {manner.timeout:g} s") from error
    except OSError as error:
        raise ClientError(f"{where}: {error.strerror or error}") from error
