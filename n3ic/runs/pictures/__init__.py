# SPDX-License-Identifier: Apache-2.0
"""Pictures of a run and of its network's answers on held-out rows.

Each function takes figures and returns a matplotlib figure, which a notebook shows and
:func:`n3ic.util.pictures.save` writes. Only answers on held-out rows are drawn;
:func:`n3ic.evaluation.held_out.held_out` selects the rows::

    sample = held_out(model, table)  # the test rows of its training
    margins_figure(sample)
    calibration_figure(sample.calibration(), sample.origin)
    importance_figure(sample.importance(), sample.origin)
    roc_figure({"binary network": sample.roc}, sample.origin)
"""

from n3ic.runs.pictures.accuracy import SizePoint, accuracy_against, draw_accuracy
from n3ic.runs.pictures.confusion import confusion_figure
from n3ic.runs.pictures.importance import importance_figure
from n3ic.runs.pictures.margins import calibration_figure, margins_figure
from n3ic.runs.pictures.roc import roc_figure
from n3ic.runs.pictures.training import training_figure

__all__ = [
    "SizePoint",
    "accuracy_against",
    "calibration_figure",
    "confusion_figure",
    "draw_accuracy",
    "importance_figure",
    "margins_figure",
    "roc_figure",
    "training_figure",
]
