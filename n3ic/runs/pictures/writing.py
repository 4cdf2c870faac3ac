# SPDX-License-Identifier: Apache-2.0
"""The pictures of a run folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from n3ic.evaluation.held_out import HeldOut
from n3ic.evaluation.importance import FeatureImportance
from n3ic.evaluation.metrics import against_rest
from n3ic.evaluation.roc import RocCurve, roc_curve
from n3ic.model.classifier import family_text
from n3ic.runs.experiment import TrainingResult
from n3ic.runs.pictures.confusion import confusion_figure
from n3ic.runs.pictures.importance import importance_figure
from n3ic.runs.pictures.margins import calibration_figure
from n3ic.runs.pictures.roc import roc_figure
from n3ic.runs.pictures.training import training_figure
from n3ic.util.pictures import save


def write_pictures(
    directory: Path,
    result: TrainingResult,
    sample: HeldOut,
    importance: Sequence[FeatureImportance],
) -> None:
    """Draw a result's pictures as PNG files into a folder.

    Args:
        directory: the folder, made if missing.
        result: a trained network and its figures.
        sample: the network's answers on its test rows.
        importance: importance of its features on these rows.
    """
    directory.mkdir(parents=True, exist_ok=True)
    save(confusion_figure(result.test.confusion, result.model.classes, sample.origin), directory,
         "confusion")  # fmt: skip
    if curves := roc_curves(result):
        positive = "" if result.positive is None else result.model.classes[result.positive]
        save(roc_figure(curves, sample.origin, positive), directory, "roc")
    if result.history:  # families without epochs, such as prototypes, have none
        save(training_figure(result.history, sample.table.name), directory, "training")
    save(calibration_figure(sample.calibration(), sample.origin), directory, "calibration")
    save(importance_figure(importance, sample.origin), directory, "features")


def roc_curves(result: TrainingResult) -> dict[str, RocCurve]:
    """ROC on the test rows of the network and of the baselines that have scores, by name.

    Empty without a positive class, or if all test rows are of one kind.
    """
    if result.positive is None:
        return {}
    is_positive = result.test_label == result.positive
    if is_positive.all() or not is_positive.any():
        return {}
    own_name = family_text(result.model.family)
    return {
        own_name if name == "model" else name.replace("_", " "): roc_curve(
            is_positive, against_rest(scores, result.positive)
        )
        for name, scores in result.test_scores.items()
    }
