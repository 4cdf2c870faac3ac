# SPDX-License-Identifier: Apache-2.0
"""Extracts the flows of a long capture, or of the pieces of one; resumes after an interruption.

At intervals, the flows so far are written to a part (:mod:`n3ic.meter.checkpoints`), and the
meter's state to a file beside it. A later run reads the newest state, skips the packets that it
covers, and gives the same table.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from n3ic.errors import DataError
from n3ic.meter.capture import Capture, link_text
from n3ic.meter.checkpoints import read_checkpoint, write_checkpoint
from n3ic.meter.compiled import CompiledMeter
from n3ic.meter.rows import flow_table, write_rows
from n3ic.meter.source import meter_source
from n3ic.model.meter_spec import MeterSpec
from n3ic.util.files import work_folder, write_atomic
from n3ic.util.json_text import json_text

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_PACKETS = 1 << 16
STEP_PACKETS = 1 << 24
"""Packets between two saved states: some seconds of work at 5 million packets a second."""
_PROGRESS, _STATE = "progress.json", "state"
_OWN = re.compile(r"[0-9a-f]{64}\.(flows|counted)|progress\.json|state-[01]")


@dataclass(frozen=True)
class _Progress:
    """Progress of an extraction.

    Attributes:
        key: digest of captures, specification and code.
        capture: index of the current capture.
        packets: packets of that capture that were counted.
        parts: number of written parts.
        state: SHA-256 of the meter's state.
    """

    key: str
    capture: int = 0
    packets: int = 0
    parts: int = 0
    state: str = ""


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
        folder: folder of parts and states, made if missing and removed at the end. States in it
            are trusted, so nobody else may be able to write there.

    Raises:
        DataError: a capture cannot be read or has changed, or the captures have different link
            types.
        UsageError: another process uses the same folder.
        MissingDependencyError: libpcap or a C compiler is missing.
        N3icError: a file cannot be written.
    """
    with work_folder(folder, _OWN) as place:
        steps = _Steps(captures, spec, place)
        with ExitStack() as stack:
            flows = write_rows(steps.tables(stack), out, spec)
        return StreamExtraction(flows, steps.counters, tuple(steps.damaged), steps.passed)


class _Steps:
    """The tables of an extraction, those of its parts first."""

    def __init__(self, captures: Sequence[Path], spec: MeterSpec, place: Path) -> None:
        self.captures, self.spec, self.place = captures, spec, place
        self.damaged: list[str] = []
        self.counters: dict[str, int] = {}
        self.key = _key(captures, spec)
        self.progress, self.state = self._earlier_progress()
        self.passed: int

    def tables(self, stack: ExitStack) -> Iterator[pa.Table]:
        """Yield all tables; parts are written on the way."""
        pending: list[pa.Table] = []
        meter: CompiledMeter | None = None
        for number, path in enumerate(self.captures):
            if number < self.progress.capture:
                continue
            with Capture(path, self.damaged.append) as capture:
                if meter is None:
                    meter = stack.enter_context(CompiledMeter(self.spec, capture.link))
                    if self.state:
                        meter.restore(self.state)
                    self.passed = counted = meter.counters()["packets"]
                if capture.link != meter.link:
                    raise DataError(
                        f"{path}: its link type is {link_text(capture.link)}, the first capture "
                        f"has {link_text(meter.link)}; they are not parts of one capture"
                    )
                before = self._pass_over(capture, meter, number)
                start = meter.counters()["packets"] - before
                handler = _handler(meter, "meter_packet")
                while capture.dispatch(handler, meter.pointer, BATCH_PACKETS):
                    pending.append(flow_table(meter.records(), self.spec, path.name))
                    total = meter.counters()["packets"]
                    if total - counted >= STEP_PACKETS:
                        self._step(meter, number, total - start, pending)
                        counted, pending = total, []
            last = number
        if meter is not None:
            pending.append(flow_table(meter.finish(), self.spec, self.captures[last].name))
            self.counters = meter.counters()
        for i in range(self.progress.parts):
            part = read_checkpoint(self._part(i))
            if part is None:
                raise DataError(f"{self.place} is damaged; remove it, start again")
            yield from part.tables()
        yield from pending

    def _pass_over(self, capture: Capture, meter: CompiledMeter, number: int) -> int:
        """Skip the packets of a capture that the state covers; return their number."""
        packets = self.progress.packets if number == self.progress.capture else 0
        handler, remaining = _handler(meter, "meter_skip"), packets
        while remaining:
            batch = min(remaining, BATCH_PACKETS)
            if not capture.dispatch(handler, meter.pointer, batch):
                raise DataError(f"{capture.name}: shorter than when it was read before")
            remaining -= batch
        return packets

    def _step(
        self, meter: CompiledMeter, number: int, packets: int, pending: list[pa.Table]
    ) -> None:
        """Write the flows since the last step and the meter's state, and last the progress."""
        # Until the progress is written, a later run starts from the step before.
        parts, state = self.progress.parts, meter.save()
        write_checkpoint(self._part(parts), iter(pending), lambda: (meter.counters(), ""))
        parts += 1
        write_atomic(self._state(parts), state)
        digest = hashlib.sha256(state).hexdigest()
        self.progress = _Progress(self.key, number, packets, parts, digest)
        write_atomic(self.place / _PROGRESS, json_text(vars(self.progress)))

    def _part(self, number: int) -> Path:
        name = hashlib.sha256(f"{self.key} {number}".encode()).hexdigest()
        return self.place / f"{name}.flows"

    def _state(self, number: int) -> Path:
        return self.place / f"{_STATE}-{number % 2}"  # keeps the last one until this is complete

    def _earlier_progress(self) -> tuple[_Progress, bytes]:
        """The progress of an earlier run and its state; a fresh start if they are not valid."""
        with suppress(OSError, ValueError, TypeError, RecursionError):
            progress = _Progress(**json.loads((self.place / _PROGRESS).read_bytes()))
            whole = all(
                type(n) is int for n in (progress.capture, progress.packets, progress.parts)
            )
            if whole and progress.key == self.key:
                state = self._state(progress.parts).read_bytes()
                if hashlib.sha256(state).hexdigest() == progress.state:
                    return progress, state
        return _Progress(self.key), b""


def _handler(meter: CompiledMeter, name: str) -> Any:
    return ctypes.cast(getattr(meter.library, name), ctypes.c_void_p)


def _key(captures: Sequence[Path], spec: MeterSpec) -> str:
    """Digest of the captures (path, size, modification time), the specification and the code."""
    facts: list[Any] = [spec.to_json(), sorted(meter_source(spec).items())]
    for path in captures:
        status = path.stat()
        facts.append([str(path.resolve()), status.st_size, status.st_mtime_ns])
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()
