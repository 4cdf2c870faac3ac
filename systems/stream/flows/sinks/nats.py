# SPDX-License-Identifier: Apache-2.0
"""``nats://HOST:PORT/SUBJECT``: flows as JSON in the NATS JetStream stream of the subject.

A message's id (``Nats-Msg-Id``) is the identifier of this n3ic stream and the flow's number in it.
With a state, a stream that resumes reads the subject after the last message in the state, and does
not send again the flows that it finds there. A message of a killed process may reach the server
even later; within the duplicate window of its stream, the server recognises the id and keeps one
copy.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from n3ic.errors import N3icError, UsageError, needed
from n3ic.systems.stream.batch import FlowBatch
from n3ic.systems.stream.flows.decide import StreamModel
from n3ic.systems.stream.flows.sink import Offset, StreamSink
from n3ic.systems.stream.json_rows import json_rows

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.js import JetStreamContext

SECONDS = 30.0  # the stream ends if the server does not answer within this time
AT_ONCE = 256  # messages that may wait for an answer
T = TypeVar("T")


class NatsSubject(StreamSink):
    """A NATS JetStream subject.

    Args:
        server: URL of the server.
        subject: the subject.
        model: the model.
    """

    def __init__(self, server: str, subject: str, model: StreamModel) -> None:
        self.name = f"nats subject {subject}"
        self._server, self._subject, self._model = server, subject, model
        self._stream = ""
        self._sequence = 0  # sequence number of the last flow in the server's stream
        self._there: frozenset[int] = frozenset()  # flows after it, which a killed process sent
        self._loop: asyncio.AbstractEventLoop | None = None
        self._client: Client | None = None
        self._jetstream: JetStreamContext | None = None

    def begin(self, replace: bool) -> Offset:
        """Return the end of the server's stream.

        Raises:
            N3icError: No server answers, or no stream takes the subject.
            MissingDependencyError: nats-py is not installed.
        """
        self._connect()
        return {"sequence": self._done(self._end())}

    def open(self, offset: Offset, first: int, stream: str) -> None:
        """Connect, and find this stream's flows after the offset.

        Raises:
            N3icError: No server answers, or no stream takes the subject.
            MissingDependencyError: nats-py is not installed.
        """
        self._connect()
        self._stream, self._sequence = stream, int(offset["sequence"])
        if stream:
            self._there = frozenset(self._done(self._rows()))

    def write(self, batch: FlowBatch, first: int) -> None:
        """See :meth:`StreamSink.write`; skips flows that the subject already has."""
        rows = enumerate(json_rows(self._model.table(batch, first)), first)
        missing = [(number, row) for number, row in rows if number not in self._there]
        for start in range(0, len(missing), AT_ONCE):
            self._done(self._publish(missing[start : start + AT_ONCE]))

    def flush(self) -> Offset:
        """See :meth:`StreamSink.flush`; the server has already acknowledged every flow."""
        return {"sequence": self._sequence}

    def close(self) -> None:
        """Close the connection."""
        if self._loop is not None:
            if self._client is not None:
                asyncio.run_coroutine_threadsafe(self._client.close(), self._loop).result(SECONDS)
            self._loop.call_soon_threadsafe(self._loop.stop)

    def _connect(self) -> None:
        if self._client is not None:
            return
        with needed("a sink in NATS"):
            import nats

        self._loop = asyncio.new_event_loop()
        # A thread of its own, so that the client can answer the server's pings at any time.
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self._client = self._done(
            nats.connect(
                self._server,
                allow_reconnect=False,
                max_reconnect_attempts=1,  # counts for the first connection too
                reconnect_time_wait=0,
                connect_timeout=SECONDS,
                error_cb=_quiet,
            )
        )
        self._jetstream = self._client.jetstream(timeout=SECONDS)

    async def _publish(self, rows: list[tuple[int, bytes]]) -> None:
        assert self._jetstream is not None  # noqa: S101 - it is open
        sent = await asyncio.gather(
            *(
                self._jetstream.publish(self._subject, row, headers=self._id(number))
                for number, row in rows
            )
        )
        self._sequence = max(self._sequence, *(answer.seq for answer in sent))

    def _id(self, number: int) -> dict[str, str] | None:
        return {"Nats-Msg-Id": f"{self._stream}:{number}"} if self._stream else None

    async def _end(self) -> int:
        assert self._jetstream is not None  # noqa: S101 - it is open
        name = await self._jetstream.find_stream_name_by_subject(self._subject)
        return (await self._jetstream.stream_info(name)).state.last_seq

    async def _rows(self) -> list[int]:
        """The numbers of this stream's flows after the known sequence number."""
        from nats.js.errors import NotFoundError

        assert self._jetstream is not None  # noqa: S101 - it is open
        name = await self._jetstream.find_stream_name_by_subject(self._subject)
        numbers: list[int] = []
        behind = self._sequence
        while True:
            try:
                message = await self._jetstream.get_msg(
                    name, behind + 1, subject=self._subject, next=True
                )
            except NotFoundError:
                return numbers
            behind = message.seq or behind + 1
            stream, _, number = (message.headers or {}).get("Nats-Msg-Id", "").partition(":")
            if stream == self._stream:
                numbers.append(int(number))

    def _done(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine of the client, and return its result."""
        from nats.errors import Error
        from nats.js.errors import NotFoundError

        assert self._loop is not None  # noqa: S101 - it is open
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop).result(2 * SECONDS)
        except NotFoundError as error:
            raise N3icError(
                f"sink {self.name}: no JetStream stream takes the subject; make one: nats stream "
                f"add --subjects {self._subject}"
            ) from error
        except (Error, OSError, TimeoutError) as error:
            reason = str(error) or type(error).__name__
            raise N3icError(
                f"sink {self.name}: {reason}; with --state, the same command goes on when the "
                "server is back"
            ) from error


async def _quiet(error: Exception) -> None:
    """Ignore an error of the connection: the call in progress raises it too."""


def open_sink(text: str, model: StreamModel) -> StreamSink:
    """Open a subject by its URL.

    Raises:
        UsageError: The URL names no server or no subject.
    """
    url = urlsplit(text)
    subject = url.path.strip("/")
    if not url.netloc or not subject or "/" in subject or {*subject} & {*"*> "}:
        raise UsageError(f"sink {text!r}: expected nats://HOST:PORT/SUBJECT, one subject")
    return NatsSubject(f"nats://{url.netloc}", subject, model)
