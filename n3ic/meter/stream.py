# SPDX-License-Identifier: Apache-2.0
"""Meters a long capture, or the pieces of one, in steps; resumes after an interruption.

A step ends after a number of packets or flows. Its flows are then written to a part
(:mod:`n3ic.meter.checkpoints`), and the meter's state to a file beside it. A later run, on any
machine that sees the folder, reads the newest state, passes over the packets that it covers, and
gives the same flows.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from n3ic.errors import DataError
from n3ic.meter.capture import Capture, link_text
from n3ic.meter.checkpoints import (
    CaptureSource,
    CaptureStream,
    read_checkpoint,
    stream_key,
    write_checkpoint,
)
from n3ic.meter.compiled import CompiledMeter
from n3ic.meter.records import counters_of
from n3ic.meter.rows import flow_table, write_rows
from n3ic.model.meter_spec import MeterSpec
from n3ic.util.files import work_folder, write_atomic
from n3ic.util.json_text import json_text

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_PACKETS = 1 << 16
STEP_PACKETS = 1 << 24
"""Packets between two saved states: some seconds of work at 5 million packets a second."""
STEP_FLOWS = 1 << 20
"""Flows between two saved states, which bound the memory where each packet is a flow."""
STEP_FILE = re.compile(r"[0-9a-f]{64}\.(flows|counted|progress|state-[01])")


@dataclass(frozen=True)
class _Progress:
    """Progress of a stream of captures.

    Attributes:
        key: digest of captures, specification and code.
        capture: index of the current capture.
        packets: packets of that capture that were counted.
        offset: where the next packet of that capture is in its file, in bytes; -1 if unknown.
        parts: number of written parts.
        state: SHA-256 of the meter's state.
        unread: frames of the captures before it whose link type is not read, by link type.
        damaged: a line about each of the captures before it that ends early.
    """

    key: str
    capture: int = 0
    packets: int = 0
    offset: int = -1
    parts: int = 0
    state: str = ""
    unread: Mapping[str, int] = field(default_factory=dict)
    damaged: Sequence[str] = ()

    @property
    def is_whole(self) -> bool:
        """Whether all values are of their types; they come from a file."""
        numbers = (self.capture, self.packets, self.offset, self.parts, *self.unread.values())
        texts = all(isinstance(line, str) for line in self.damaged)
        return texts and all(type(n) is int for n in numbers)


class StreamSteps:
    """The flows of captures that follow each other, metered in steps.

    Args:
        captures: pieces of one capture, in the order of their packets; a capture alone is one.
        spec: the meter's specification.
        folder: folder of parts and states, which is there; None to keep none. States in it are
            trusted, so nobody else may be able to write there.

    Attributes:
        damaged: a line about each capture that ends early, so far.
        counters: see :func:`.records.counters_of`; so far.
        capture: index of the capture that is read.
        passed: packets that an earlier run counted.
    """

    def __init__(self, captures: CaptureStream, spec: MeterSpec, folder: Path | None) -> None:
        self.captures, self.spec = captures, spec
        self.key = stream_key(captures, spec) if folder else ""
        self.place, self.keeps = folder or Path(), folder is not None
        self.progress, self.state = self._earlier_progress()
        self.damaged = [*self.progress.damaged]
        self.counters: dict[str, int] = {}
        self.capture = self.passed = 0

    def tables(self) -> Iterator[pa.Table]:
        """Yield the flows batch by batch, one capture's each, in the order of their decision.

        Steps are written on the way.

        Raises:
            DataError: a capture cannot be read or has changed, or the captures have different link
                types; or the folder is damaged.
            MissingDependencyError: libpcap or a C compiler is missing.
            N3icError: a file cannot be written.
        """
        begun, state = self.progress, self.state
        for number in range(begun.parts):
            part = read_checkpoint(self._part(number))
            if part is None:
                raise DataError(f"{self.place} is damaged; remove it, start again")
            yield from part.tables()
        unread = Counter({int(link): count for link, count in begun.unread.items()})
        meter: CompiledMeter | None = None
        pending: list[pa.Table] = []

        def metered(meter: CompiledMeter, now: Mapping[int, int]) -> pa.Table:
            table = flow_table(meter.records(), self.spec, self.captures[self.capture].name)
            self.counters = counters_of(meter, now)
            if self.keeps:
                pending.append(table)
            return table

        try:
            for number in range(begun.capture, len(self.captures)):
                self.capture = number
                path = self.captures[self.capture].path
                earlier = tuple(self.damaged)
                with Capture(path, self.damaged.append) as capture:
                    if meter is None:
                        meter = CompiledMeter(self.spec, capture.link)
                        if state:
                            meter.restore(state)
                        self.passed = counted = meter.counters()["packets"]
                    if capture.link != meter.link:
                        raise DataError(
                            f"{path}: its link type is {link_text(capture.link)}, the first "
                            f"capture has {link_text(meter.link)}; they are not parts of one "
                            "capture"
                        )
                    before = self._pass_over(capture, meter) if self.capture == begun.capture else 0
                    start = meter.counters()["packets"] - before
                    handler = _handler(meter, "meter_packet")
                    while capture.dispatch(handler, meter.pointer, BATCH_PACKETS):
                        yield metered(meter, unread + capture.unread)
                        total = self.counters["packets"]
                        due = total - counted >= STEP_PACKETS
                        if pending and (due or sum(map(len, pending)) >= STEP_FLOWS):
                            at = _Progress(
                                self.key,
                                self.capture,
                                total - start,
                                capture.position,
                                unread={str(link): count for link, count in unread.items()},
                                damaged=earlier,
                            )
                            self._step(at, meter.save(), pending)
                            counted = total
                            pending.clear()
                    unread += capture.unread
            left = meter is not None
            while meter is not None and left:
                left = meter.end(BATCH_PACKETS)
                yield metered(meter, unread)
        finally:
            if meter is not None:
                meter.close()

    def remove(self) -> None:
        """Remove what the steps wrote."""
        for number in range(self.progress.parts):
            for suffix in (".flows", ".counted"):
                self._part(number).with_suffix(suffix).unlink(missing_ok=True)
        for path in (self._state(0), self._state(1), self._progress):
            path.unlink(missing_ok=True)

    def _pass_over(self, capture: Capture, meter: CompiledMeter) -> int:
        """Pass over the packets of a capture that the state covers; return their number."""
        packets = remaining = self.progress.packets
        if packets and self.progress.offset >= 0 and capture.go_to(self.progress.offset, packets):
            return packets
        handler = _handler(meter, "meter_skip")
        while remaining:
            batch = min(remaining, BATCH_PACKETS)
            if not capture.dispatch(handler, meter.pointer, batch):
                raise DataError(f"{capture.name}: shorter than when it was read before")
            remaining -= batch
        return packets

    def _step(self, at: _Progress, state: bytes, pending: Sequence[pa.Table]) -> None:
        """Write the flows since the last step and the meter's state, and last the progress."""
        # Until the progress is written, a later run starts from the step before.
        parts = self.progress.parts
        write_checkpoint(self._part(parts), iter(pending), lambda: (self.counters, ()))
        parts += 1
        write_atomic(self._state(parts), state)
        digest = hashlib.sha256(state).hexdigest()
        self.progress = _Progress(**{**vars(at), "parts": parts, "state": digest})
        write_atomic(self._progress, json_text(vars(self.progress)))

    @property
    def _progress(self) -> Path:
        return self.place / f"{self.key}.progress"

    def _part(self, number: int) -> Path:
        name = hashlib.sha256(f"{self.key} {number}".encode()).hexdigest()
        return self.place / f"{name}.flows"

    def _state(self, number: int) -> Path:
        # Two in turn: the last one remains until the next is complete.
        return self.place / f"{self.key}.state-{number % 2}"

    def _earlier_progress(self) -> tuple[_Progress, bytes]:
        """The progress of an earlier run and its state; a fresh start if they are not valid."""
        with suppress(OSError, ValueError, TypeError, AttributeError, RecursionError):
            if not self.keeps:
                return _Progress(self.key), b""
            progress = _Progress(**json.loads(self._progress.read_bytes()))
            if progress.is_whole and progress.key == self.key:
                state = self._state(progress.parts).read_bytes()
                if hashlib.sha256(state).hexdigest() == progress.state:
                    return progress, state
        return _Progress(self.key), b""


@dataclass(frozen=True)
class StreamExtraction:
    """Results of an extraction.

    Attributes:
        flows: number of rows written.
        counters: see :meth:`~n3ic.meter.compiled.CompiledMeter.counters`.
        damaged: a line about each capture that ends early.
        passed: packets that an earlier run counted.
    """

    flows: int
    counters: dict[str, int]
    damaged: tuple[str, ...]
    passed: int


def extract_stream(
    captures: Sequence[Path], out: str | Path, spec: MeterSpec, folder: str | Path
) -> StreamExtraction:
    """Write a table of the flows of captures that follow each other.

    Args:
        captures: pieces of one capture, in the order of their packets.
        out: a CSV file, or a Parquet file if the name ends in ``.parquet``.
        spec: the meter's specification.
        folder: see :class:`StreamSteps`; made if missing and removed at the end.

    Raises:
        DataError: see :meth:`StreamSteps.tables`.
        UsageError: another process uses the same folder.
        MissingDependencyError: libpcap or a C compiler is missing.
        N3icError: a file cannot be written.
    """
    with work_folder(folder, STEP_FILE) as place:
        steps = StreamSteps(tuple(CaptureSource(str(p), p.name) for p in captures), spec, place)
        flows = write_rows(steps.tables(), out, spec)
        return StreamExtraction(flows, steps.counters, tuple(steps.damaged), steps.passed)


def _handler(meter: CompiledMeter, name: str) -> Any:
    return ctypes.cast(getattr(meter.library, name), ctypes.c_void_p)
