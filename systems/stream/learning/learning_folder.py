# SPDX-License-Identifier: Apache-2.0
"""A folder that learns: its log, its models, and the learner that they restore.

The log holds what the learner was given (rows, anchors, rollbacks), written before the learner acts
on it, and what it decided. When a folder is opened, the learner is given the same input again and
must decide the same. If the process died before the last decisions were logged, they are made then.

Once the log has grown by a mebibyte, the learner's state is written to a file that is named by its
digest, and the log begins anew with a line that names it. Models that cannot run any more go.
"""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import DataError, N3icError, UsageError
from n3ic.model.classifier import Classifier
from n3ic.model.family import family
from n3ic.model.load import load_model
from n3ic.runs.refresh import refreshed
from n3ic.systems.stream.learning.learner import LearnSettings, OnlineLearner
from n3ic.systems.stream.learning.log import STATE, ChainedLog
from n3ic.systems.stream.learning.rows import LabelledRows
from n3ic.util.files import write_atomic
from n3ic.util.plain_data import from_plain

LOG, MODELS, STATES = "log.jsonl", "models", "states"
_GIVEN = ("begin", STATE, "anchors", "rows", "rollback")
_ASIDE = ("at",)  # facts that may differ when a decision is repeated
_LOG_BYTES = 1 << 20  # after which the log begins anew
_DECISIONS = 1000  # the most that a state keeps


class LearningFolder:
    """A learner whose history is in a folder.

    Args:
        folder: the folder, made by :meth:`begin`.
        push: swaps the model of a target; None only records the swap.
        now: returns the time as text, for people; no decision depends on it.
        retrain: whether to train the logged models again and compare their digests; otherwise
            they are read from their files.
        log_bytes: bytes of the log that a start reads at most, but for the last rows.

    Attributes:
        folder: the folder.
        decisions: the decisions in the log, and the last 1,000 before it.

    Raises:
        UsageError: The folder is not a learning folder.
        DataError: The log is damaged, or the learner decides otherwise than the log says.
    """

    def __init__(
        self,
        folder: str | Path,
        push: Callable[[Classifier], None] | None = None,
        *,
        now: Callable[[], str] = str,
        retrain: bool = False,
        log_bytes: int = _LOG_BYTES,
    ) -> None:
        self.folder = Path(folder)
        if not (self.folder / LOG).is_file():
            raise UsageError(f"{folder}: expected a folder of n3ic stream learn, with {LOG}")
        self._swap, self._now, self._retrain = push, now, retrain
        self._log = ChainedLog(self.folder / LOG)
        self._ahead: deque[dict[str, Any]] = deque()
        self._learner: OnlineLearner | None = None
        self._log_bytes = log_bytes
        self._began = ""  # digest of the first model
        self.decisions: list[dict[str, Any]] = []
        with self.up_to_date():
            pass

    @classmethod
    def begin(cls, folder: str | Path, model: Classifier, settings: LearnSettings) -> None:
        """Make a folder in which a model begins to learn.

        Raises:
            UsageError: The folder already exists, or models of the family are not trained further.
        """
        family(model.family).refuse_further_training(model)
        path = Path(folder)
        if (path / LOG).exists():
            raise UsageError(f"{folder} exists: leave the model out to go on there")
        (path / MODELS).mkdir(parents=True, exist_ok=True)
        model.save(path / MODELS / f"{model.digest}.n3ic")
        log = ChainedLog(path / LOG)
        with log.alone():
            if not next(log.news(), None):
                log.append("begin", {"model": model.digest, "settings": asdict(settings)})
        log.close()

    @property
    def learner(self) -> OnlineLearner:
        """The learner; after an error, :meth:`up_to_date` must restore it first."""
        if self._learner is None:
            raise DataError(f"{self._log.path}: expected a log that begins with a model")
        return self._learner

    def close(self) -> None:
        """Close the log."""
        self._log.close()

    @contextmanager
    def up_to_date(self) -> Iterator[None]:
        """Lock other processes out during the block, after reading what they wrote."""
        with self._log.alone():
            try:
                self._ahead.extend(self._log.news())
                while self._ahead:
                    self._repeat(self._ahead.popleft())
                yield
            except BaseException:
                # The learner may be ahead of what the log could store: the log counts.
                self._log.rewind()
                self._learner = None
                self._ahead.clear()
                self.decisions.clear()
                raise

    def anchor(self, rows: LabelledRows) -> None:
        """Give the learner flows of the training, with trusted labels."""
        with self.up_to_date():
            self._note("anchors", rows.to_dict())
            self.learner.anchor(rows)

    def add_rows(self, rows: LabelledRows) -> None:
        """Give the learner flows whose labels have come.

        Raises:
            N3icError: The log cannot be written; decisions that are not in it are undone.
        """
        if len(rows):
            with self.up_to_date():
                self._note("rows", rows.to_dict())
                self.learner.add_rows(rows)
                if self._log.size > self._log_bytes:
                    self._sum_up()

    def roll_back(self, reason: str = "asked for") -> None:
        """Replace the running model by the former one.

        Raises:
            UsageError: No model ran before, or the push failed.
        """
        with self.up_to_date():
            if not self.learner.former:
                raise UsageError(f"{self.folder}: no former model to go back to")
            self._note("rollback", {"reason": reason})
            self.learner.roll_back(reason)
            if push_error := self.decisions[-1]["error"]:
                raise UsageError(f"the push failed; it is retried with the next rows: {push_error}")

    def model_file(self, digest: str) -> Path:
        """The file of a model of this folder."""
        return self.folder / MODELS / f"{digest}.n3ic"

    # --- what the log says -----------------------------------------------------------------

    def _note(self, what: str, facts: dict[str, Any]) -> None:
        self._log.append(what, {**facts, "at": self._now()})

    def _repeat(self, entry: dict[str, Any]) -> None:
        """Give the learner again what it was given before."""
        what = entry["what"]
        where = f"{self._log.path}, line {entry['n'] + 1}"
        begins = what in ("begin", STATE)
        if what not in _GIVEN or (begins != (self._learner is None) and what != STATE):
            raise DataError(f"{where}: {what!r} does not follow from the lines before it")
        if what == "begin":
            self._begin(entry.get("model", ""), entry.get("settings"), where)
        elif what == STATE:
            self._restore(entry, where)
        elif what == "rollback":
            self.learner.roll_back(str(entry.get("reason")))
        else:
            rows = self.learner.read_rows(entry)
            (self.learner.add_rows if what == "rows" else self.learner.anchor)(rows)

    def _begin(self, model: str, plain: Any, where: str) -> None:
        if isinstance(plain, dict):
            if "block" not in plain:
                raise DataError(
                    f"{where}: written before flows were judged by blocks: begin a new folder"
                )
            if plain.get("teacher"):
                raise DataError(f"{where}: a float network taught its models: begin a new folder")
            plain = {name: value for name, value in plain.items() if name != "teacher"}
        try:
            settings = from_plain(LearnSettings, plain, strict=True)
        except (ValueError, UsageError) as error:
            raise DataError(f"{where}: damaged settings: {error}") from error
        self._began = model
        self._learner = OnlineLearner(
            self._read(model),
            settings,
            train=self._train,
            push=self._push,
            record_decision=self._record_decision,
        )

    def _sum_up(self) -> None:
        """Write the learner's state, begin the log anew with it, and remove what it leaves out.

        After a kill at any step, the log names a state that is there, with all of its models.
        """
        plain = {
            "began": self._began,
            "settings": asdict(self.learner.settings),
            "learner": self.learner.to_dict(),
            "decisions": self.decisions[-_DECISIONS:],
            "n": self._log.lines,
            "previous": self._log.last,
        }
        data = json.dumps(plain, sort_keys=True).encode()
        digest = hashlib.sha256(data).hexdigest()
        (self.folder / STATES).mkdir(exist_ok=True)
        write_atomic(self._state_file(digest), data)
        self._log.cut({"state": digest, "at": self._now()})
        digests = {self._began, digest, *(model.digest for model in self.learner.models)}
        for folder in (STATES, MODELS):
            for file in (self.folder / folder).iterdir():
                if file.stem not in digests:
                    file.unlink()

    def _restore(self, entry: dict[str, Any], where: str) -> None:
        """Take over the state that the first line of the log names."""
        digest = str(entry.get("state"))
        file = self._state_file(digest)
        try:
            data = file.read_bytes()
        except OSError as error:
            raise DataError(f"{where}: {file}: {error.strerror or error}") from error
        if hashlib.sha256(data).hexdigest() != digest:
            raise DataError(f"{file}: damaged: its digest is not its name")
        try:
            plain = json.loads(data)
            if any(entry[name] != plain[name] for name in ("n", "previous")):
                raise DataError(f"{where}: it does not follow from the lines before {file.name}")
            self._begin(plain["began"], plain["settings"], where)
            self.learner.restore(plain["learner"], self._read)
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise DataError(f"{file}: of another version of n3ic: {error}") from error
        self.decisions[:] = plain["decisions"]

    def _state_file(self, digest: str) -> Path:
        return self.folder / STATES / f"{_checked(digest, self._log.path)}.json"

    def _read(self, digest: str) -> Classifier:
        model = load_model(self.model_file(_checked(digest, self._log.path)))
        if model.digest != digest:
            raise DataError(f"{self.model_file(digest)}: its digest is {model.digest}")
        return model

    def _train(
        self,
        model: Classifier,
        features: NDArray[np.uint32],
        label: NDArray[np.int64],
        class_weight: NDArray[np.float64],
    ) -> Classifier:
        entry = self._ahead[0] if self._ahead else {}
        if entry.get("what") == "candidate" and not self._retrain:
            with suppress(N3icError):  # if its file is missing, train it again
                return self._read(str(entry.get("model")))
        settings = self.learner.settings
        new = refreshed(
            model, features, label, class_weight, rounds=settings.rounds, seed=settings.seed
        )
        if not self._ahead:
            new.save(self.model_file(new.digest))
        return new

    def _push(self, model: Classifier) -> str:
        entry = self._ahead[0] if self._ahead else {}
        if entry.get("what") == "push":
            return str(entry.get("error"))
        if self._swap is None:
            return ""
        try:
            self._swap(model)
        except (N3icError, OSError) as error:
            return str(error) or type(error).__name__
        return ""

    def _record_decision(self, what: str, **facts: Any) -> None:
        """Append a decision, or compare it with what the log says."""
        self.decisions.append({"what": what, **facts})
        if not self._ahead:
            self._note(what, facts)
            return
        entry = self._ahead.popleft()
        logged = {k: v for k, v in entry.items() if k not in (*_ASIDE, "n", "previous")}
        if logged != {"what": what, **facts}:
            raise DataError(
                f"{self._log.path}, line {entry['n'] + 1}: it says {logged}, "
                f"but the rows before it give { ({'what': what, **facts}) }"
            )


def time_text() -> str:
    """The time in UTC, for a log that people read."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _checked(digest: object, where: Path) -> str:
    """A digest that a log names, as part of a file's name."""
    if not (isinstance(digest, str) and len(digest) == 64 and digest.isalnum()):
        raise DataError(f"{where}: {str(digest)[:80]!r} is no digest")
    return digest
