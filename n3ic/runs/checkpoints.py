# SPDX-License-Identifier: Apache-2.0
"""Finished trainings of a run, kept beside its folder until the run is written.

An interrupted run of several seeds, networks or protocols resumes: finished trainings are read and
only the rest is trained. A digest of everything that determines a training (rows, recipe, seed,
...) names its file, so results of other data or of another recipe are never reused.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from n3ic import __version__
from n3ic.data.table import FlowTable
from n3ic.errors import ModelError
from n3ic.evaluation.metrics import Evaluation
from n3ic.model.file import Tensors, pack_file, read_file, unpack_file
from n3ic.model.load import parse_model
from n3ic.runs.experiment import TrainingResult
from n3ic.runs.learner import Candidate
from n3ic.runs.preparation import Experiment
from n3ic.util.files import report_kept_work, work_folder, write_atomic

if TYPE_CHECKING:
    from numpy.typing import NDArray

Shape = tuple[int, ...]
FAMILY = "training-part"
_OWN = re.compile(r"[0-9a-f]{64}\.part")


@dataclass(frozen=True)
class TrainingCheckpoints:
    """A folder of finished trainings."""

    folder: Path

    def find(
        self, experiment: Experiment, shapes: tuple[Shape, ...]
    ) -> dict[Shape, TrainingResult] | None:
        """The results of an experiment, by hidden layers; None if none were kept.

        Args:
            experiment: the experiment, whose hidden layers are replaced by ``shapes``.
            shapes: hidden layers of its networks, which are trained together.
        """
        path = self._path(experiment, shapes)
        if not path.exists():
            return None
        try:
            header, tensors = unpack_file(read_file(path), str(path))
            if header["family"] != FAMILY:
                return None
            return {
                shape: _result(experiment, record, tensors, f"{i}.")
                for i, (shape, record) in enumerate(zip(shapes, header["results"], strict=True))
            }
        except (ModelError, LookupError, TypeError, ValueError):
            return None  # damaged, so it is trained again

    def write(
        self,
        experiment: Experiment,
        shapes: tuple[Shape, ...],
        results: Mapping[Shape, TrainingResult],
    ) -> None:
        """Write the results of an experiment atomically."""
        records = []
        tensors: dict[str, NDArray[Any]] = {}
        for i, shape in enumerate(shapes):
            plain, arrays = _plain(results[shape])
            records.append(plain)
            tensors |= {f"{i}.{name}": array for name, array in arrays.items()}
        write_atomic(
            self._path(experiment, shapes), pack_file(FAMILY, {"results": records}, tensors)
        )

    def _path(self, experiment: Experiment, shapes: tuple[Shape, ...]) -> Path:
        return self.folder / f"{experiment_digest(experiment, shapes)}.part"


@contextmanager
def training_checkpoints(run: Path, note: Callable[[str], object]) -> Iterator[TrainingCheckpoints]:
    """The finished trainings of a run that is being written; removed unless the block fails.

    Args:
        run: the run's folder, beside which they are kept.
        note: called with their folder if the block fails.

    Raises:
        UsageError: another process uses the folder, or it holds other files.
    """
    folder = run.with_name(f".{run.name}.n3ic-parts")
    with (
        work_folder(folder, _OWN) as place,
        report_kept_work(place, "*.part", "trained part", note),
    ):
        yield TrainingCheckpoints(place)


def experiment_digest(
    experiment: Experiment, shapes: tuple[Shape, ...] = (), rows: str = ""
) -> str:
    """SHA-256 of everything that determines an experiment's results: rows, recipe, split, seed.

    Args:
        experiment: the experiment.
        shapes: hidden layers of its networks; empty for its recipe's.
        rows: digest of its table; empty to compute it.
    """
    identity = [
        __version__,  # another version may train differently
        rows or table_digest(experiment.table),
        experiment.recipe.to_dict(),
        [experiment.protocol, experiment.seed, experiment.name, experiment.positive],
        [experiment.with_baselines, shapes, experiment.keeps and experiment.keeps.digest],
        [experiment.budget, [recipe.to_dict() for recipe in experiment.rivals]],
        *([] if experiment.sites is None else [asdict(experiment.sites)]),
    ]
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()


def table_digest(table: FlowTable) -> str:
    """SHA-256 of everything that training reads from a table."""
    identity = [
        [table.name, table.sha256, table.synthetic, table.time_order, table.classes],
        [asdict(f) for f in table.catalogue],
        None if table.meter is None else table.meter.digest,
        None if table.rules is None else table.rules.to_dict(),
        [*table.features],
    ]
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode())
    known = (table.label, table.partition, table.conversation, table.flow, table.point)
    for column in (*known, *table.features.values()):
        if column is not None:
            # Bytes do not determine a column: int64 zeros equal twice as many int32 zeros.
            digest.update(f"{column.dtype.str} {column.shape} ".encode())
            digest.update(column.tobytes())
    return digest.hexdigest()


def _plain(result: TrainingResult) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """A result as data for JSON, and its arrays by name; lists of pairs keep mappings' order."""
    record = {
        "positive": result.positive,
        "test": result.test.to_dict(),
        "validation": result.validation.to_dict(),
        "train_accuracy": result.train_accuracy,
        "twin_share": result.twin_share,
        "baselines": [(name, e.to_dict()) for name, e in result.baselines.items()],
        "history": [list(asdict(epoch).values()) for epoch in result.history],
        "feature_scores": list(result.feature_scores.items()),
        "scores": [(n, s.dtype.str, s.shape) for n, s in result.test_scores.items()],
        "rows": list(result.rows.items()),
        "notes": list(result.notes),
        "family": result.recipe.family,
        "hidden": list(result.recipe.training.hidden),  # a budget may have chosen it in training
        "baseline_bytes": list(result.baseline_bytes.items()),
        "candidates": [asdict(c) for c in result.candidates],
        "model_bytes": len(result.model.to_bytes()),
    }
    arrays: dict[str, NDArray[Any]] = {
        "model": np.frombuffer(result.model.to_bytes(), np.uint8),
        "label": result.test_label,
        **{f"scores.{name}": array for name, array in result.test_scores.items()},
    }
    return record, arrays


def _result(
    experiment: Experiment, record: Mapping[str, Any], tensors: Tensors, prefix: str
) -> TrainingResult:
    """The inverse of :func:`_plain`."""
    from n3ic.training.loop import Epoch

    rows = dict(record["rows"])
    recipes = (experiment.recipe, *experiment.rivals)
    recipe = next(recipe for recipe in recipes if recipe.family == record["family"])
    model = tensors.take(f"{prefix}model", np.uint8, (record["model_bytes"],))
    return TrainingResult(
        model=parse_model(model.tobytes(), "a trained part"),
        protocol=experiment.protocol,
        recipe=recipe.with_options({"hidden": tuple(record["hidden"])}),
        positive=record["positive"],
        test=_evaluation(record["test"]),
        validation=_evaluation(record["validation"]),
        train_accuracy=record["train_accuracy"],
        twin_share=record["twin_share"],
        baselines={name: _evaluation(figures) for name, figures in record["baselines"]},
        history=tuple(Epoch(*values) for values in record["history"]),
        feature_scores=dict(record["feature_scores"]),
        test_label=tensors.take(f"{prefix}label", np.int64, (rows["test"],)),
        test_scores={
            name: tensors.take(f"{prefix}scores.{name}", np.dtype(kind).type, tuple(size))
            for name, kind, size in record["scores"]
        },
        rows=rows,
        notes=tuple(record["notes"]),
        baseline_bytes=dict(record["baseline_bytes"]),
        candidates=tuple(Candidate(**c) for c in record["candidates"]),
    )


def _evaluation(record: Mapping[str, Any]) -> Evaluation:
    confusion = tuple(tuple(row) for row in record["confusion"])
    return replace(Evaluation(**record), confusion=confusion)
