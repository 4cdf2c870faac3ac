# SPDX-License-Identifier: Apache-2.0
"""The values of a recipe as keywords of :func:`n3ic.train`, for editors and type checkers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from n3ic.training.recipe import Encoding, Loss, Method, Optimizer, Schedule, Ste


class RecipeValues(TypedDict, total=False):
    """Values of :class:`~n3ic.Recipe` and :class:`~n3ic.Training`, which describe them.

    The values of other families are keywords, too, but the core does not know their names.
    """

    encoding: Encoding
    bits: int
    features: int
    field_bits: int
    columns: Sequence[str]
    tree_bytes: int
    augment: float
    hidden: int | Sequence[int]
    method: Method
    ste: Ste
    batch_norm: bool
    output_bias: bool
    loss: Loss
    gce_q: float
    dropout: float
    optimizer: Optimizer
    learning_rate: float
    schedule: Schedule
    epochs: int
    batch_size: int
    label_smoothing: float
    distill: float
    class_weight: str | Mapping[Any, float]
    false_alarms: float
    density: float
    patience: int
    polish: int
    trees: int
    leaves: int
