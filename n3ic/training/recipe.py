# SPDX-License-Identifier: Apache-2.0
"""Recipes: all choices that determine which network is trained on given data."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any, Literal, get_args

from n3ic import plugins
from n3ic.errors import UsageError
from n3ic.training.values import Value, values_of

Encoding = Literal["binary", "quantile", "boosted", "weighted", "tree", "greedy"]
ENCODINGS: tuple[str, ...] = get_args(Encoding)
Ste = Literal["identity", "clip", "approx"]
Loss = Literal["squared_hinge", "cross_entropy", "generalized_cross_entropy"]
LOSSES: tuple[str, ...] = get_args(Loss)
Optimizer = Literal["adam", "adamw", "sgd"]
Schedule = Literal["constant", "cosine"]
Method = Literal["gradient", "prototypes", "trees"]
_WEIGHT = r"[^,]+=\d*[1-9]\d*(\.\d+)?|[^,]+=\d*\.\d*[1-9]\d*"
_WEIGHTS = re.compile(rf"none|balanced|({_WEIGHT})(,({_WEIGHT}))*", re.ASCII)
MOST_AUGMENT = 1000
BINARY = "binary"
"""The family of models that the core itself has."""


@dataclass(frozen=True)
class Training:
    """How a binarized MLP is trained.

    Attributes:
        hidden: neurons of each hidden layer.
        method: how weights are found: by ``gradient`` descent; for few input bits and one hidden
            layer as ``prototypes``, chosen one by one, for which options of gradients and epochs
            have no effect; or as ``trees`` that vote, whose leaves and answers are the hidden
            neurons, and for which only ``distill``, ``trees`` and ``leaves`` have an effect.
        ste: straight-through estimator of the activations: ``identity`` passes the gradient,
            ``clip`` passes it within [-1, 1] (Courbariaux et al. 2016), ``approx`` is the
            derivative of a piecewise quadratic (ApproxSign, Liu et al. 2018).
        batch_norm: whether batch norm precedes each sign; without it every threshold is half the
            fan-in, as in the paper.
        output_bias: whether each class has an integer bias.
        loss: ``squared_hinge`` (paper), ``cross_entropy`` or ``generalized_cross_entropy``, which
            is bounded, so that rows whose label contradicts all others cost little (Zhang and
            Sabuncu, NeurIPS 2018). Polishing also lowers it; otherwise the cross-entropy.
        gce_q: the q of the generalized cross-entropy ``(1 - p^q) / q``. Its authors take 0.7. A
            smaller q is closer to the cross-entropy, and makes margins more informative.
        dropout: share of the hidden activations that are dropped while training.
        optimizer: ``adam``, ``adamw`` or ``sgd``.
        learning_rate: the step at the start.
        schedule: ``constant``, or ``cosine`` down to zero over the epochs.
        epochs: number of times that training reads all rows.
        batch_size: rows per step; fewer, but at least 16, if an epoch would have under 32 steps.
        label_smoothing: share of the label that is spread over all classes (cross-entropy).
        distill: weight of the teacher's probabilities against the labels; 0 for no teacher.
        class_weight: weight of each row: ``none``, ``balanced`` for the inverse of its class's
            share, or ``CLASS=WEIGHT,...``, with 1 for classes that are not named.
        false_alarms: largest share of the other classes' validation flows that may be called the
            positive class, at any of their decisions; its bias is the highest within that share.
            0 keeps the learned bias.
        density: share of the hidden layers' connections that are kept, pruned while training.
        patience: epochs without a better validation loss before training stops; 0 for never.
        polish: rounds of discrete search on the integer network after training.
        trees: number of decision trees that vote.
        leaves: largest number of leaves of one tree.
    """

    hidden: tuple[int, ...] = (32, 16)
    method: Method = "gradient"
    ste: Ste = "approx"
    batch_norm: bool = True
    output_bias: bool = True
    loss: Loss = "cross_entropy"
    gce_q: float = 0.7
    dropout: float = 0.0
    optimizer: Optimizer = "adam"
    learning_rate: float = 5e-3
    schedule: Schedule = "cosine"
    epochs: int = 40
    batch_size: int = 512
    label_smoothing: float = 0.0
    distill: float = 0.0
    class_weight: str = "none"
    false_alarms: float = 0.0
    density: float = 1.0
    patience: int = 0
    polish: int = 0
    trees: int = 3
    leaves: int = 400

    @property
    def for_accuracy(self) -> bool:
        """Whether all rows count equally, so that training aims at accuracy."""
        return self.class_weight == "none" and not self.false_alarms

    @property
    def bounded_by(self) -> float:
        """The q of the generalized cross-entropy; 0 for other losses."""
        return self.gce_q if self.loss == "generalized_cross_entropy" else 0.0

    def __post_init__(self) -> None:
        def require(ok: bool, name: str, rule: str) -> None:
            if not ok:
                raise UsageError(f"{name} must be {rule}, got {getattr(self, name)!r}")

        require(all(0 < h <= 65536 for h in self.hidden), "hidden", "numbers in 1..65536")
        require(self.method in get_args(Method), "method", " or ".join(get_args(Method)))
        if self.method == "prototypes":
            require(len(self.hidden) == 1, "hidden", "one layer for prototypes")
            require(self.density == 1, "density", "1 for prototypes")
            require(self.distill == 0, "distill", "0 for prototypes")
        require(self.ste in ("identity", "clip", "approx"), "ste", "identity, clip or approx")
        require(self.loss in LOSSES, "loss", " or ".join(LOSSES))
        require(0 < self.gce_q <= 1, "gce_q", "in (0, 1]")
        require(self.optimizer in ("adam", "adamw", "sgd"), "optimizer", "adam, adamw or sgd")
        require(self.schedule in ("constant", "cosine"), "schedule", "constant or cosine")
        weighed = _WEIGHTS.fullmatch(self.class_weight) is not None
        require(weighed, "class_weight", "none, balanced or CLASS=WEIGHT,... above 0")
        require(0 <= self.false_alarms < 1, "false_alarms", "in [0, 1)")
        require(0 <= self.dropout < 1, "dropout", "in [0, 1)")
        require(0 < self.learning_rate < 10, "learning_rate", "in (0, 10)")
        require(0 < self.epochs <= 100_000, "epochs", "in 1..100000")
        require(self.batch_size > 0, "batch_size", "positive")
        require(0 <= self.label_smoothing < 1, "label_smoothing", "in [0, 1)")
        require(0 <= self.distill <= 1, "distill", "in [0, 1]")
        require(0 < self.density <= 1, "density", "in (0, 1]")
        require(self.patience >= 0, "patience", "0 or more")
        require(self.polish >= 0, "polish", "0 or more")
        require(0 < self.trees <= 1000, "trees", "in 1..1000")
        require(2 <= self.leaves <= 65536, "leaves", "in 2..65536")


@dataclass(frozen=True)
class Recipe:
    """How a table becomes a network: which columns become which bits, and how it is trained.

    Attributes:
        name: as in ``--recipe NAME``.
        summary: one line.
        encoding: ``binary`` (raw bits of integers), or thermometer fields whose cuts are
            quantiles (``quantile``), the best of gradient-boosted trees (``boosted``), the same
            with as many copies as a network with real weights earns each (``weighted``), those of
            one tree grown best-first (``tree``), or chosen jointly (``greedy``).
        bits: total budget of input bits.
        features: how many features chi-squared keeps; 0 for all of the columns.
        field_bits: bits of one ``binary`` field.
        columns: the features to choose from, or patterns such as ``owd_*``; empty for all that
            a NIC can compute and that do not leak the capture set-up. A pattern after ``!`` leaves
            columns out.
        tree_bytes: largest size, everything counted, of a decision tree that has as many cuts as
            the network (or fills a budget of bytes), is written as a network, and is kept instead
            if it is right on more validation rows; 0 for no tree.
        augment: largest factor of another site's times: each training row has a copy whose times
            are multiplied, and rates divided, by a random factor of 1/augment to augment; 1 for no
            copies. Columns scale whose unit is a time or a rate.
        family: what is trained: ``binary`` networks, or models of a plug-in.
        training: how a binary network is trained.
        settings: how a model of another family is trained, see
            :attr:`~n3ic.runs.learner.Learner.settings`; None for the family's defaults.
    """

    name: str
    summary: str
    encoding: Encoding = "boosted"
    bits: int = 256
    features: int = 0
    field_bits: int = 16
    columns: tuple[str, ...] = ()
    tree_bytes: int = 0
    augment: float = 1.0
    family: str = BINARY
    training: Training = Training()
    settings: Any = None

    def __post_init__(self) -> None:
        if self.encoding not in ENCODINGS:
            raise UsageError(f"encoding must be {', '.join(ENCODINGS)}, got {self.encoding!r}")
        own = settings_of(self.family)
        if own is not None and self.settings is None:
            object.__setattr__(self, "settings", own())
        if type(self.settings) is not (own or type(None)):
            raise UsageError(f"settings {self.settings!r:.60} are not of family {self.family}")
        if self.bits < 1 or self.features < 0 or not 1 <= self.field_bits <= 32:
            raise UsageError("bits must be positive, features 0 or more, field_bits in 1..32")
        if not 1 <= self.augment <= MOST_AUGMENT:
            raise UsageError(f"augment must be in 1..{MOST_AUGMENT}, got {self.augment!r}")
        if self.tree_bytes < 0:
            raise UsageError(f"tree_bytes must be 0 or more, got {self.tree_bytes}")

    def with_options(self, replacements: Mapping[str, Any]) -> Recipe:
        """The recipe with some values replaced, including those of its parts.

        Raises:
            UsageError: an option is unknown, or a value is invalid.
        """
        values = {k: v for k, v in replacements.items() if v is not None}
        known = _own_values()
        if not values.keys() <= known.keys():
            known = recipe_values()
        if unknown := set(values) - set(known):
            raise UsageError(f"a recipe has no option {', '.join(sorted(unknown))}")

        def of(kind: type) -> dict[str, Any]:
            return {k: v for k, v in values.items() if known[k].owner is kind}

        family = values.get("family", self.family)
        kind = settings_of(family)
        settings: Any = self.settings if family == self.family else kind and kind()
        for owner in {known[name].owner for name in values} - {Recipe, Training}:
            if owner is kind:
                settings = replace(settings, **of(owner))
            else:
                owner(**of(owner))  # values of another family have no effect, but are checked
        training = replace(self.training, **of(Training))
        return replace(self, training=training, settings=settings, **of(Recipe))

    def value(self, name: str) -> Any:
        """A value of the recipe or of one of its parts; see :func:`recipe_values`."""
        known = _own_values()
        owner = (known if name in known else recipe_values())[name].owner
        parts = (self, self.training, self.settings)
        return getattr(next((p for p in parts if type(p) is owner), None) or owner(), name)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; settings of another family are stored under the family's name."""
        fields = asdict(self)
        settings = fields.pop("settings")
        return fields if settings is None else {**fields, self.family: settings}


_LEARNERS = "n3ic.learners"
_IDENTITY = ("name", "summary", "training", "settings")


def settings_of(family: str) -> type | None:
    """The dataclass of a family's own values; None for binary networks, which use ``Training``.

    Raises:
        UsageError: no family has that name.
    """
    if family == BINARY:
        return None
    if family not in plugins.names(_LEARNERS):
        known = " or ".join(plugins.names(_LEARNERS))
        raise UsageError(f"family must be {known}, got {family!r}")
    settings: type = plugins.load(_LEARNERS, family).settings
    return settings


@cache
def _own_values() -> Mapping[str, Value]:
    """Values of a recipe that every family has."""
    values = {v.name: v for v in (*values_of(Recipe, _IDENTITY), *values_of(Training))}
    families: Any = plugins.names(_LEARNERS)
    return {**values, "family": replace(values["family"], kind=Literal[families])}


@cache
def recipe_values() -> Mapping[str, Value]:
    """The values that a recipe may replace, by name: its own, then those of the families.

    Raises:
        UsageError: two families have a value of the same name.
    """
    values = dict(_own_values())
    for family in plugins.names(_LEARNERS):
        settings = settings_of(family)
        for value in () if settings is None else values_of(settings):
            if value.name in values:
                raise UsageError(f"family {family}: a recipe has a value {value.name} already")
            values[value.name] = value
    return values
