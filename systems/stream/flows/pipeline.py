# SPDX-License-Identifier: Apache-2.0
"""A stream: one thread reads, one meters and decides, one writes, with bounded queues between them.

A commit passes through the queues just as flows do. The deciding thread saves the meter and notes
the source's position. When the commit reaches the writing thread, that thread has already given all
earlier flows to the sinks; it makes them durable, then replaces the whole state. So the state
always describes a single point of the stream.

A model takes another's place between two batches, after a commit. So the flows of a state since the
one before are all of one model, which the state holds.
"""

from __future__ import annotations

import ctypes
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from n3ic.errors import DataError, N3icError, UsageError
from n3ic.meter.compiled import CompiledMeter, Records, record_type
from n3ic.model.load import parse_model
from n3ic.systems.stream.batch import FlowBatch, counted
from n3ic.systems.stream.flows.channel import Channel, ChannelEnded
from n3ic.systems.stream.flows.decide import StreamModel, rows_type
from n3ic.systems.stream.flows.figures import StreamFigures
from n3ic.systems.stream.flows.sink import Offset, StreamSink
from n3ic.systems.stream.flows.source import FrameBatch, Source
from n3ic.systems.stream.flows.state import (
    StreamPoint,
    StreamState,
    Successor,
    state_folder,
    stream_id,
)
from n3ic.systems.stream.followed_model import FollowedModel, refusal
from n3ic.util.signals import check

QUEUE = 8  # batches between two threads
MOST_FLOWS = 1 << 16  # most flows between two commits, if sinks wait for commits
END_FLOWS = 1 << 14  # flows of a batch, once the source has ended
_POLL_S = 0.25
_JOIN_S = 10.0


@dataclass(frozen=True)
class StreamSettings:
    """How a stream is run.

    Attributes:
        state: folder of the state; None keeps no state.
        commit_s: seconds between two states.
        replace: whether a new stream may replace existing output.
        seconds: time limit in seconds; None for no limit.
        follow: the model's file, whose successors take its place; None if the model stays.
    """

    state: Path | None = None
    commit_s: float = 5.0
    replace: bool = False
    seconds: float | None = None
    follow: Path | None = None


@dataclass(frozen=True, eq=False)
class _Decided:
    batch: FlowBatch
    first: int
    came_ns: int


@dataclass(frozen=True, eq=False)
class _Commit:
    state: StreamState


@dataclass(frozen=True, eq=False)
class _Swap:
    model: StreamModel


class FlowStream:
    """A stream from its source to its sinks.

    Args:
        source: the source; closed at the end.
        model: the model.
        sinks: the sinks; closed at the end.
        settings: how to run.

    Attributes:
        figures: the counts so far.

    Raises:
        UsageError: The source gives packets, but the model carries no meter. Or the model is to be
            followed, but the source gives rows, which are encoded for one model.
        MissingDependencyError: hdrhistogram is not installed.
    """

    def __init__(
        self,
        source: Source,
        model: StreamModel,
        sinks: Sequence[StreamSink],
        settings: StreamSettings | None = None,
    ) -> None:
        if source.link is not None and model.model.meter is None:
            raise UsageError(
                f"{source.name} gives packets, and this model was trained on a table that names no "
                "meter: train it on a table that n3ic data extract wrote"
            )
        if source.link is None and settings and settings.follow:
            raise UsageError(
                f"--follow: {source.name} gives rows, which are for one model; expected packets"
            )
        self.figures = StreamFigures()
        self._source, self._model, self._sinks = source, model, tuple(sinks)
        self._settings = settings or StreamSettings()
        source.checked = self._settings.state is not None
        self._of = stream_id(
            model.model,
            source.name,
            source.link,
            tuple(sink.name for sink in sinks),
            model.with_features,
        )
        self._type = rows_type(model.model) if source.link is None else record_type(model.spec)
        self._frames: Channel[FrameBatch] = Channel(QUEUE)
        self._flows: Channel[_Decided | _Commit | _Swap] = Channel(QUEUE)
        self._followed = FollowedModel(follow) if (follow := self._settings.follow) else None
        self._folder: Path | None = None
        self._offsets: dict[StreamSink, Offset] = {}
        self._ended = self._stopped = False  # whether the source ended by itself, or was stopped
        self._errors: list[BaseException] = []

    def run(self, watch: Callable[[StreamFigures], object] = lambda _: None) -> StreamFigures:
        """Run until the source ends, the time limit is reached, or Ctrl-C.

        At Ctrl-C, everything that was read is decided, written and committed. Without a state, open
        flows end too.

        Args:
            watch: called with the figures a few times a second.

        Raises:
            N3icError: A sink failed, and the last state remains valid. Or the source failed, and
                everything before the failure is committed.
        """
        with ExitStack() as stack:
            stack.callback(self._source.close)
            for sink in self._sinks:
                stack.callback(sink.close)
            if self._settings.state is not None:
                self._folder = stack.enter_context(state_folder(self._settings.state))
            state = self._begin()
            point = state.point
            self._count(point)
            if point.finished:
                return self.figures
            meter: CompiledMeter | None = None
            if self._source.link is not None:
                meter = stack.enter_context(
                    CompiledMeter(self._model.spec, self._source.link, live=self._source.live)
                )
            if meter and state.meter:
                meter.restore(state.meter)
            self._run_threads(meter, point, watch)
            if not (self._ended or self._folder or self.figures.flows):
                for sink in self._sinks:
                    sink.discard()
        return self.figures

    # --- begin and go on -----------------------------------------------------------------------

    def _begin(self) -> StreamState:
        """Read or begin the state, and open the sinks at its offsets."""
        state = StreamState.read(self._folder) if self._folder else None
        if state is None:
            offsets = tuple(sink.begin(self._settings.replace) for sink in self._sinks)
            point = StreamPoint(self._of, secrets.token_hex(8), offsets=offsets)
            state = StreamState(point, model=self._model.model.to_bytes())
            if self._folder:
                state.write(self._folder)  # before any output, so that the output is known as ours
        else:
            self._go_on_from(state)
        pending = np.frombuffer(state.pending, dtype=self._type)
        flows = state.point.flows
        for sink, offset in zip(self._sinks, state.point.offsets, strict=True):
            self._offsets[sink] = offset
            again = 0 if sink.cuts else len(pending)
            sink.use(self._model)
            sink.open(offset, flows - again, state.point.id if self._folder else "")
            if again:
                sink.write(self._decide_records(pending), flows - again)
                self._offsets[sink] = sink.flush()
            if state.point.finished:  # the stream may have been killed before it finished the sink
                sink.finish(more=False)
        return state

    def _go_on_from(self, state: StreamState) -> None:
        """Check that a state is of this stream, and go on with its model.

        Raises:
            DataError: It is of another stream.
        """
        point, given = state.point, self._model.model
        running = given
        # The file of a followed model may be replaced at any time, so the state's model goes on.
        if self._followed and state.model:
            running = parse_model(state.model, f"the model in {self._settings.state}")
        difference = refusal(running, given) if running is not given else ""
        expected = replace(point.of, model=point.running)
        difference = difference or expected.difference(replace(self._of, model=running.digest))
        if difference:
            raise DataError(
                f"{self._settings.state}: the state of another stream: {difference}; give what it "
                "was begun with, or another --state"
            )
        self._model = replace(self._model, model=running)

    def _count(self, point: StreamPoint) -> None:
        f = self.figures
        f.packets, f.flows, f.commits = point.packets, point.flows, point.commits
        f.classes, f.lost = Counter(point.classes), point.lost
        f.models = _models(point)

    # --- threads -------------------------------------------------------------------------------

    def _run_threads(
        self,
        meter: CompiledMeter | None,
        point: StreamPoint,
        watch: Callable[[StreamFigures], object],
    ) -> None:
        reader, *others = (
            threading.Thread(target=self._guarded, args=(function, *arguments), daemon=True)
            for function, *arguments in (
                (self._read, point),
                (self._decide, meter, point),
                (self._write,),
            )
        )

        def interruptible(figures: StreamFigures) -> None:
            check()
            watch(figures)

        self.figures.began = time.monotonic()
        for thread in (reader, *others):
            thread.start()
        try:
            with suppress(KeyboardInterrupt):
                self._wait([reader, *others], interruptible, self._settings.seconds)
            self._stop_source()
            # Do not wait for a reader that is blocked on a pipe, only for one that waits for room.
            while reader.is_alive():
                self._wait([reader], watch, _POLL_S)
                if not len(self._frames):
                    break
            self._frames.close()
            self._wait(others, watch, None)
        finally:
            self._frames.stop()
            self._flows.stop()
            for thread in others:
                thread.join(_JOIN_S)  # after an error, a sink may still wait for its peer
            self.figures.tick()
        if self._errors:
            raise self._errors[0]
        self.figures.lost = Counter(point.lost) + Counter(self._lost())  # by the last write, too
        watch(self.figures)

    def _wait(
        self,
        threads: Sequence[threading.Thread],
        watch: Callable[[StreamFigures], object],
        seconds: float | None,
    ) -> None:
        """Wait for threads to end, for at most ``seconds``."""
        end = None if seconds is None else time.monotonic() + seconds
        while alive := [thread for thread in threads if thread.is_alive()]:
            wait_s = _POLL_S if end is None else min(_POLL_S, end - time.monotonic())
            if wait_s <= 0:
                return
            alive[0].join(wait_s)
            self.figures.waiting = {
                name: (len(c), c.highest, c.room)
                for name, c in (("packets", self._frames), ("flows", self._flows))
            }
            self.figures.tick()
            watch(self.figures)

    def _lost(self) -> dict[str, int]:
        refused = {f"sink {sink.name}: not taken": sink.lost for sink in self._sinks if sink.lost}
        return {**self._source.lost(), **refused}

    def _stop_source(self) -> None:
        self._stopped = True
        self._source.stop()

    def _guarded(self, function: Callable[..., None], *arguments: Any) -> None:
        """Run a thread; an error ends the others, and the stream raises it."""
        try:
            function(*arguments)
        except ChannelEnded:
            return
        except BaseException as error:  # noqa: BLE001 - raised again by the main thread
            self._errors.append(error)
            self._stop_source()
            self._frames.stop()
            self._flows.stop()

    def _read(self, point: StreamPoint) -> None:
        try:
            for batch in () if point.ending else self._source.batches(point.position):
                self._frames.put(batch)
        except N3icError as error:
            # Everything before the error is decided, written and committed, as at Ctrl-C.
            self._errors.append(error)
            self._stopped = True
        self._ended = not self._source.live and not self._stopped
        self._frames.close()

    def _decide(self, meter: CompiledMeter | None, point: StreamPoint) -> None:
        f, before = self.figures, Counter(point.lost)
        committed, flows = time.monotonic(), point.flows
        waits = any(not sink.cuts for sink in self._sinks)

        def give(records: Records, came_ns: int) -> None:
            if len(records):
                batch = self._decide_records(records)
                f.decided.add(time.monotonic_ns() - came_ns, len(batch))
                f.classes.update(counted(self._model.model, batch.verdicts))
                self._flows.put(_Decided(batch, f.flows, came_ns))
                f.flows += len(batch)

        def commit(finished: bool) -> None:
            nonlocal point, committed, flows
            f.lost = before + Counter(self._lost())
            point = replace(
                point, finished=finished, commits=point.commits + 1, flows=f.flows,
                classes=dict(f.classes), packets=f.packets, lost=dict(f.lost),
            )  # fmt: skip
            saved = meter.save() if self._folder and meter and not finished else b""
            state = StreamState(point, saved, model=self._model.model.to_bytes())
            self._flows.put(_Commit(state))
            committed, flows = time.monotonic(), f.flows

        def commit_in_time() -> None:
            waited = time.monotonic() - committed > self._settings.commit_s
            if waited or (waits and f.flows - flows >= MOST_FLOWS):
                commit(finished=False)

        def swap_in_time() -> None:
            nonlocal point
            running = self._model.model
            if self._followed and (model := self._followed.successor(running)):
                if self._folder:  # a state's records are all of one model
                    commit(finished=False)
                self._model = replace(self._model, model=model)
                point = replace(
                    point, successors=(*point.successors, Successor(model.digest, f.flows))
                )
                f.models = _models(point)
                self._flows.put(_Swap(self._model))

        for batch in self._frames:
            swap_in_time()
            give(self._records(meter, batch), batch.came_ns)
            point = replace(point, position=batch.position)
            commit_in_time()
        if meter and (self._ended or not self._folder):
            point = replace(point, ending=True)
            more = True
            while more:
                swap_in_time()
                came_ns = time.monotonic_ns()
                more = meter.end(END_FLOWS)
                give(meter.records(), came_ns)
                commit_in_time()
            f.meter = meter.counters()
        commit(finished=self._ended)
        self._flows.close()

    def _records(self, meter: CompiledMeter | None, batch: FrameBatch) -> Records:
        """The flows that are due for a decision after a batch."""
        f, tick_ns = self.figures, self._model.spec.tick_ns
        if batch.rows is not None:
            f.read += len(batch.rows)
            f.packets += len(batch.rows)
            return batch.rows
        assert meter is not None  # noqa: S101 - the source gives packets
        if (frames := batch.frames) is not None:
            f.read += len(frames.time)
            f.packets += len(frames.time)
            f.frame_bytes += int(frames.length.sum())
            meter.count_frames(replace(frames, time=frames.time // tick_ns))
            batch.counted()
        if batch.quiet_ns:
            _expire(meter, batch.quiet_ns // tick_ns)
        f.meter = meter.counters()
        return meter.records()

    def _write(self) -> None:
        f, pending = self.figures, list[_Decided]()
        waits = self._folder is not None and any(not sink.cuts for sink in self._sinks)

        def give(sinks: Sequence[StreamSink], item: _Decided) -> None:
            for sink in sinks:
                sink.write(item.batch, item.first)

        now = [sink for sink in self._sinks if sink.cuts or not self._folder]
        later = [sink for sink in self._sinks if sink not in now]
        for item in self._flows:
            if isinstance(item, _Decided):
                give(now, item)
                if waits:
                    pending.append(item)
                else:
                    f.written.add(time.monotonic_ns() - item.came_ns, len(item.batch))
                continue
            if isinstance(item, _Swap):
                for sink in self._sinks:
                    sink.use(item.model)
                continue
            self._offsets.update((sink, sink.flush()) for sink in now)
            if self._folder:
                self._committed(item.state, pending)
            for one in pending:
                give(later, one)
                f.written.add(time.monotonic_ns() - one.came_ns, len(one.batch))
            self._offsets.update((sink, sink.flush()) for sink in later)
            pending.clear()
            f.commits = item.state.point.commits
        for sink in self._sinks:
            sink.finish(more=self._folder is not None and not self._ended)

    def _committed(self, state: StreamState, pending: list[_Decided]) -> None:
        assert self._folder is not None  # noqa: S101 - the caller asked
        point = replace(state.point, offsets=tuple(self._offsets[s] for s in self._sinks))
        records = b"".join(item.batch.records.tobytes() for item in pending)
        replace(state, point=point, pending=records).write(self._folder)

    def _decide_records(self, records: Records) -> FlowBatch:
        if self._source.link is None:
            return self._model.of_rows(records)
        return self._model.of_records(records)


def _models(point: StreamPoint) -> tuple[Successor, ...]:
    """The models of a stream, in their order, each with the first flow that it decides."""
    return Successor(point.of.model, 0), *point.successors


def _expire(meter: CompiledMeter, time_: int) -> None:
    function = meter.library.meter_expire
    function.restype, function.argtypes = None, [ctypes.c_void_p, ctypes.c_uint64]
    function(meter.pointer, time_)
