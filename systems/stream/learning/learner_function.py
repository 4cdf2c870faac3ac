# SPDX-License-Identifier: Apache-2.0
"""The function ``learner``: refreshes a model on flows whose labels come late, and pushes it."""

from __future__ import annotations

import json
import queue
import threading
from dataclasses import fields
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import UsageError
from n3ic.meter.compiled import Records
from n3ic.model.classifier import SHUNT
from n3ic.systems.stream.batch import FlowBatch
from n3ic.systems.stream.functions.metering import MeterFunction
from n3ic.systems.stream.functions.options import path_of
from n3ic.systems.stream.functions.packets import PacketView
from n3ic.systems.stream.learning.late_labels import LabelFile, LabelJoin
from n3ic.systems.stream.learning.learner import LearnSettings
from n3ic.systems.stream.learning.learning_folder import LOG, LearningFolder, time_text
from n3ic.systems.stream.learning.pushes import push_to
from n3ic.systems.stream.learning.stream import LearnedBatch, LiveLearner
from n3ic.util.plain_data import from_plain

_ROOM = 64  # batches of flows that may wait while a model is trained
_WAIT_S = 0.1
_SETTINGS = tuple(f.name for f in fields(LearnSettings))


class LearnerFunction(MeterFunction):
    """Meters packets with the meter of ``model``, and learns from their flows.

    Labels come from the growing file ``labels``. Log and models are in ``folder``, from which a
    restarted function resumes. ``push`` names what runs the model. With ``shunted``, it learns only
    from flows that ``model`` shunts. Further options are those of
    :class:`~n3ic.systems.stream.learning.learner.LearnSettings`. ``out`` gets a JSON line for each
    decision, and one at the end. A separate thread learns; while it trains, first flows wait, then
    packets.

    Raises:
        UsageError: An option is missing or wrong, or the folder belongs to another model or has
            other settings.
    """

    option_names: ClassVar[tuple[str, ...]] = (
        *("model", "out", "task", "labels", "folder", "push", "shunted"),
        *_SETTINGS,
    )

    def __init__(self, *words: Any) -> None:
        super().__init__(*words)
        self.shunted = self.options.get("shunted", False)
        if not isinstance(self.shunted, bool):
            raise UsageError(f"options.shunted: expected true or false, got {self.shunted!r}")
        if self.shunted and not self.model.shunt:
            raise UsageError("options.shunted: the model shunts nothing; see n3ic shunt --write")
        self.labels = LabelFile(path_of(self.options, "labels"))
        self.learning = self._opened(self._settings())
        settings = self.learning.learner.settings
        self.join = LabelJoin(self.model, seed=settings.seed, block=settings.block)
        self._learner = LiveLearner(lambda _: self.labels.news(), self.learning, self.join)
        self._flows: queue.Queue[FlowBatch | None] = queue.Queue(_ROOM)
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._learn, daemon=True)
        self._thread.start()

    def on_batch(self, view: PacketView) -> Any:
        """Count packets in place; decided flows go to the learner."""
        self._check()
        return super().on_batch(view)

    def on_idle(self) -> None:
        """Look for labels."""
        self._check()
        self._handle_records(self.meter.records())

    def on_end(self) -> None:
        """Learn from the remaining flows and labels."""
        self._end_flows()
        self._give(None)
        while self._thread.is_alive():
            self._thread.join(_WAIT_S)
            self.shared.alive()
        self.learning.close()
        self.out.close()
        self._check()

    def _settings(self) -> LearnSettings:
        values = {name: self.options[name] for name in _SETTINGS if name in self.options}
        try:
            return from_plain(LearnSettings, values, strict=True)
        except ValueError as error:
            raise UsageError(f"options.{error}") from error

    def _opened(self, settings: LearnSettings) -> LearningFolder:
        folder = path_of(self.options, "folder")
        push = push_to(str(self.options["push"])) if "push" in self.options else None
        if not (folder / LOG).exists():
            LearningFolder.begin(folder, self.model, settings)
        opened = LearningFolder(folder, push, now=time_text)
        if not opened.model_file(self.model.digest).exists():
            raise UsageError(
                f"options.folder: {folder} learns from another model, "
                f"expected {self.model.digest[:12]}"
            )
        if opened.learner.settings != settings:
            raise UsageError(
                f"options.folder: {folder}: expected {settings}, got {opened.learner.settings}"
            )
        return opened

    def _handle_records(self, records: Records) -> NDArray[np.int64]:
        """Hand flows to the learner, waiting for room; an empty batch makes it look for labels."""
        if len(records) or self._flows.empty():
            batch = self._batch(records)
            self._give(batch.select(batch.verdicts == SHUNT) if self.shunted else batch)
        return np.zeros(len(records), dtype=np.int64)

    def _give(self, batch: FlowBatch | None) -> None:
        while self._thread.is_alive():
            try:
                self._flows.put(batch, timeout=_WAIT_S)
                return
            except queue.Full:
                self.shared.alive()

    def _check(self) -> None:
        if self._error:
            raise self._error

    # --- the learner's thread ------------------------------------------------------------------

    def _learn(self) -> None:
        try:
            while (batch := self._flows.get()) is not None:
                learned = self._learner.learn(batch)
                if learned.decisions:
                    self._write(learned)
            self._write(self._learner.finish(), **self._counts())
        except BaseException as error:  # noqa: BLE001 - raised again by the function
            self._error = error

    def _write(self, learned: LearnedBatch, **more: Any) -> None:
        figures = {"flows": learned.flows, "labelled": learned.labelled, "running": learned.running}
        line = {**figures, "decisions": [*learned.decisions], **more}
        self.out.write(json.dumps(line).encode() + b"\n")
        self.out.flush()

    def _counts(self) -> dict[str, Any]:
        late = self.learning.learner.blocks.late
        counts = {**self.join.counts, "late for their block": late}
        unread = {"unread labels": self.labels.unread, "first fault": self.labels.first_fault}
        return {"counts": counts, **(unread if self.labels.unread else {})}
