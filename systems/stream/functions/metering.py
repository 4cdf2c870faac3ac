# SPDX-License-Identifier: Apache-2.0
"""The function ``meter``: meters packets in shared memory, and classifies their flows."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from n3ic.api import load
from n3ic.errors import UsageError
from n3ic.meter.compiled import CompiledMeter, Records
from n3ic.meter.packet import LINK_ETHERNET
from n3ic.meter.rows import key_table, texts_of
from n3ic.runs.folder import models_of
from n3ic.systems.stream.batch import FlowBatch, decided, features_read
from n3ic.systems.stream.followed_model import FollowedModel
from n3ic.systems.stream.functions.options import only, open_output, path_of
from n3ic.systems.stream.functions.packets import DROP, PASS, PacketFunction, PacketView
from n3ic.systems.stream.json_rows import json_lines

if TYPE_CHECKING:
    import pyarrow as pa

_BURST = 64  # METER_BURST
_UNDECIDED, _RECORD, _ASIDE = 0, 0x80000000, 0xFFFFFFFF  # MARK_
_FRAME = np.dtype(
    [("data", np.uint64), ("captured", np.uint32), ("length", np.uint32), ("time", np.uint64)],
    align=True,
)
_AT_END = 1024  # flows that are ended at a time


class MeterFunction(PacketFunction):
    """Meters packets, classifies flows with ``model``, and appends a JSON line for each to ``out``.

    ``verdicts`` maps the verdict of a packet's flow (a class, ``shunt``, ``undecided`` or
    ``aside``) to ``drop``, ``pass`` or one of the function's routes. With ``follow``, a new model
    decides the next flows whenever the file of ``model`` is replaced.
    """

    meters = True
    option_names: ClassVar[tuple[str, ...]] = ("model", "out", "task", "verdicts", "follow")

    def __init__(self, *words: Any) -> None:
        super().__init__(*words)
        only(self.options, *self.option_names)
        path, task = path_of(self.options, "model"), str(self.options.get("task", ""))
        self.model = load(path, task)
        files = models_of(path)
        file = files[task] if task else next(iter(files.values()))
        self._followed = FollowedModel(file) if self._follows() else None
        if self.model.meter is None:
            raise UsageError(f"{self.options['model']}: the model has no meter")
        self.spec = self.model.meter
        self.meter = CompiledMeter(self.spec, LINK_ETHERNET, live=True)
        self.actions = self._actions(self.options.get("verdicts", {}))
        self.out = open_output(path_of(self.options, "out"))

    def _actions(self, verdicts: Any) -> NDArray[np.uint8] | None:
        """An action for each verdict: undecided, classes, shunt, aside; None if all pass."""
        names = ("undecided", *self.model.classes, "shunt", "aside")
        if not isinstance(verdicts, Mapping) or not {*verdicts} <= {*names}:
            raise UsageError(f"options.verdicts: expected a table of {', '.join(names)}")
        actions = {"pass": PASS, "drop": DROP, **{name: self.route(name) for name in self.routes}}
        for name, to in verdicts.items():
            if to not in actions:
                expected = ", ".join(actions)
                raise UsageError(f"options.verdicts.{name}: expected {expected}, got {to!r}")
        values = (actions[verdicts.get(name, "pass")] for name in names)
        return np.fromiter(values, np.uint8) if verdicts else None

    def on_batch(self, view: PacketView) -> Any:
        """Count packets in place, and write the decided flows."""
        if self._followed and (successor := self._followed.successor(self.model)):
            self.model = successor
        if self.actions is None:
            self.meter.count_frames(view.frames(self.spec.tick_ns))
            self._handle_records(self.meter.records())
            return None
        return self.actions[self._verdicts(view)]

    def _follows(self) -> bool:
        follow = self.options.get("follow", False)
        if not isinstance(follow, bool):
            raise UsageError(f"options.follow: expected true or false, got {follow!r}")
        return follow

    def on_end(self) -> None:
        """Decide the remaining flows."""
        self._end_flows()
        self.out.close()

    def _end_flows(self) -> None:
        more = True
        while more:
            more = self.meter.end(_AT_END)
            self.shared.alive()
            self._handle_records(self.meter.records())
        self.meter.close()

    def _verdicts(self, view: PacketView) -> NDArray[np.int64]:
        """The verdict of each packet's flow when it was counted, as an index into the actions."""
        library, meter = self.meter.library, self.meter.pointer
        frames = np.zeros(len(view), dtype=_FRAME)
        frames["data"] = view.offset + np.uint64(view.data.ctypes.data)
        frames["captured"], frames["length"] = view.captured, view.length
        frames["time"] = view.frames(self.spec.tick_ns).time
        marks = np.zeros(len(view), dtype=np.uint32)
        out = np.zeros(len(view), dtype=np.int64)
        for at in range(0, len(view), _BURST):
            n = min(_BURST, len(view) - at)
            part, burst_marks = frames[at : at + n], marks[at : at + n]
            library.meter_burst(
                meter, ctypes.c_size_t(n), ctypes.c_void_p(part.ctypes.data),
                ctypes.c_void_p(burst_marks.ctypes.data),
            )  # fmt: skip
            record_marks = self._handle_records(self.meter.records())
            for record, mark in enumerate(record_marks.tolist()):
                library.meter_mark(meter, ctypes.c_size_t(record), ctypes.c_uint32(mark))
            by_record = (burst_marks >= _RECORD) & (burst_marks != _ASIDE)
            out[at : at + n] = np.where(
                burst_marks == _ASIDE, len(self.model.classes) + 2, burst_marks
            )
            out[at : at + n][by_record] = record_marks[burst_marks[by_record] - _RECORD]
        return out

    def _handle_records(self, records: Records) -> NDArray[np.int64]:
        """Write a line for each record; return a mark for each flow: its verdict plus 1."""
        if not len(records):
            return np.zeros(0, dtype=np.int64)
        verdicts, columns = self.decided(self._batch(records))
        table = key_table(records, self.spec, "").drop_columns(["capture"])
        for name, column in columns.items():
            table = table.append_column(name, column)
        self.out.write(json_lines(table))
        self.out.flush()
        marks: NDArray[np.int64] = np.where(verdicts < 0, len(self.model.classes), verdicts) + 1
        return marks

    def _batch(self, records: Records) -> FlowBatch:
        features = features_read(self.model, self.spec.feature_names, records)
        return decided(self.model, records, features)

    def decided(self, batch: FlowBatch) -> tuple[NDArray[np.int64], dict[str, pa.Array]]:
        """The verdicts of flows, and the fields of their lines after the key."""
        return batch.verdicts, {
            "verdict": texts_of(batch.verdicts, self.model.verdict_names),
            "class": texts_of(batch.classes, self.model.classes),
            **score_columns(batch),
        }


def score_columns(batch: FlowBatch) -> dict[str, pa.Array]:
    """The margin and the list of scores of each flow."""
    import pyarrow as pa

    scores = pa.array(batch.scores.ravel())
    lists = pa.FixedSizeListArray.from_arrays(scores, batch.scores.shape[1])
    return {"margin": pa.array(batch.margins), "scores": lists.cast(pa.list_(scores.type))}
