"""Recipes: everything that decides which network comes out of which data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal, get_args

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


@dataclass(frozen=True)
class Training:
    """How a binarized MLP is trained.

    Attributes:
        hidden: neurons of each hidden layer.
        method: how weights are found: by ``gradient`` descent, or, for few input bits and one
            hidden layer, as ``prototypes`` that are chosen one by one; what is said of gradients
            and epochs does not matter then. ``trees`` are decision trees that vote, whose leaves
            and answers are the hidden neurons; only ``distill``, ``trees`` and ``leaves`` matter.
        ste: straight-through estimator of the activations: ``identity`` passes the gradient,
            ``clip`` passes it within [-1, 1] (Courbariaux et al. 2016), ``approx`` is the
            derivative of a piecewise quadratic (ApproxSign, Liu et al. 2018).
        batch_norm: whether batch norm stands before each sign; without it every threshold is
            half the fan-in, as in the paper.
        output_bias: whether each class has an integer bias.
        loss: ``squared_hinge`` (paper), ``cross_entropy`` or ``generalized_cross_entropy``, which
            is bounded, so that rows whose label contradicts all others cost little (Zhang and
            Sabuncu, NeurIPS 2018). Polishing lowers it, too, else the cross-entropy.
        gce_q: the q of the generalized cross-entropy ``(1 - p^q) / q``. Its authors take 0.7; the
            less, the nearer it is to the cross-entropy, and the more margins say.
        dropout: share of the hidden activations that are dropped while training.
        optimizer: ``adam``, ``adamw`` or ``sgd``.
        learning_rate: the step at the start.
        schedule: ``constant``, or ``cosine`` down to zero over the epochs.
        epochs: passes over the training rows.
        batch_size: rows a step; fewer, but not below 16, where an epoch would have under 32
            steps.
        label_smoothing: share of the label that is spread over all classes (cross-entropy).
        distill: weight of the teacher's probabilities against the labels; 0 for no teacher.
        class_weight: ``none``, or ``balanced`` to weigh classes by the inverse of their share.
        density: share of the hidden layers' connections that are kept, pruned while training.
        patience: epochs without a better validation loss before training stops; 0 for never.
        polish: rounds of discrete search on the integer network after training.
        trees: how many of them vote.
        leaves: most leaves of one tree.
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
    class_weight: Literal["none", "balanced"] = "none"
    density: float = 1.0
    patience: int = 0
    polish: int = 0
    trees: int = 3
    leaves: int = 400

    @property
    def bounded_by(self) -> float:
        """The q of the loss where it is the generalized cross-entropy, else 0."""
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
        require(self.class_weight in ("none", "balanced"), "class_weight", "none or balanced")
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
class SpnTraining:
    """How a sum-product network is learned and folded.

    Attributes:
        spn_task: ``anomaly`` learns what is normal, and what is less likely than a threshold is an
            anomaly; ``classes`` learns each class and says the likeliest.
        leaf_cuts: most cuts of a feature.
        min_rows: rows below which features count as independent; 0 for a fiftieth of all.
        dependence: mutual information, in bits, above which two features depend on each other.
        clusters: terms of a sum, at most.
        depth: sums from the root to a leaf, at most.
        smoothing: rows that are added to each bin, so that none is impossible.
        arithmetic: ``log`` or ``linear``.
        error: largest distance of a score from the real one that the width must keep: in bits of
            the logarithm, or as a probability; 0 for 1 bit, or 1e-7.
        false_positives: share of the normal validation rows that the threshold may take for
            anomalies.
    """

    spn_task: Literal["anomaly", "classes"] = "anomaly"
    leaf_cuts: int = 7
    min_rows: int = 0
    dependence: float = 0.15
    clusters: int = 4
    depth: int = 5
    smoothing: float = 0.1
    arithmetic: Literal["log", "linear"] = "log"
    error: float = 0.0
    false_positives: float = 0.05

    def __post_init__(self) -> None:
        def require(ok: bool, name: str, rule: str) -> None:
            if not ok:
                raise UsageError(f"{name} must be {rule}, got {getattr(self, name)!r}")

        require(self.spn_task in ("anomaly", "classes"), "spn_task", "anomaly or classes")
        require(1 <= self.leaf_cuts <= 255, "leaf_cuts", "in 1..255")
        require(self.min_rows >= 0, "min_rows", "0 or more")
        require(self.dependence >= 0, "dependence", "0 or more")
        require(2 <= self.clusters <= 64, "clusters", "in 2..64")
        require(0 <= self.depth <= 64, "depth", "in 0..64")
        require(0 < self.smoothing <= 1000, "smoothing", "in (0, 1000]")
        require(self.arithmetic in ("log", "linear"), "arithmetic", "log or linear")
        require(self.error >= 0, "error", "0 or more")
        require(0 <= self.false_positives < 1, "false_positives", "in [0, 1)")

    @property
    def largest_error(self) -> float:
        """The error that the width keeps, also where none was asked for."""
        return self.error or (1.0 if self.arithmetic == "log" else 1e-7)


@dataclass(frozen=True)
class Recipe:
    """From a table to a network: which columns become which bits, and how it is trained.

    Attributes:
        name: as in ``--recipe NAME``.
        summary: one line.
        encoding: ``binary`` (raw bits of integers), or thermometer fields whose cuts are
            quantiles (``quantile``), are chosen by gradient-boosted trees (``boosted``), are
            those, each as often as a network with real weights values it (``weighted``), are
            those of one tree grown best-first (``tree``), or are chosen jointly, for what
            they tell together (``greedy``).
        bits: total budget of input bits.
        features: how many features chi-squared keeps; 0 for all of the columns.
        field_bits: bits of one ``binary`` field.
        columns: the features to choose from, or patterns such as ``owd_*``; empty for all that
            a NIC can compute and that do not leak the capture set-up.
        tree_bytes: most bytes of weights and masks of a decision tree that has as many cuts as the
            network and is kept instead where it is right on more validation rows; 0 for none.
        family: ``binary`` networks, or ``spn``: sum-product networks.
        training: how a binary network is trained.
        spn: how a sum-product network is learned.
    """

    name: str
    summary: str
    encoding: Encoding = "boosted"
    bits: int = 256
    features: int = 0
    field_bits: int = 16
    columns: tuple[str, ...] = ()
    tree_bytes: int = 0
    family: Literal["binary", "spn"] = "binary"
    training: Training = Training()
    spn: SpnTraining = SpnTraining()

    def __post_init__(self) -> None:
        if self.encoding not in ENCODINGS:
            raise UsageError(f"encoding must be {', '.join(ENCODINGS)}, got {self.encoding!r}")
        if self.family not in ("binary", "spn"):
            raise UsageError(f"family must be binary or spn, got {self.family!r}")
        if self.bits < 1 or self.features < 0 or not 1 <= self.field_bits <= 32:
            raise UsageError("bits must be positive, features 0 or more, field_bits in 1..32")
        if self.tree_bytes < 0:
            raise UsageError(f"tree_bytes must be 0 or more, got {self.tree_bytes}")

    def with_options(self, given: Mapping[str, Any]) -> Recipe:
        """The recipe with some values replaced; those of its parts are reached by name, too.

        Raises:
            UsageError: a value is not one that the option can have.
        """
        known = recipe_values()
        values = {k: v for k, v in given.items() if v is not None}
        if unknown := set(values) - set(known):
            raise UsageError(f"a recipe has no option {', '.join(sorted(unknown))}")

        def of(kind: type) -> dict[str, Any]:
            return {k: v for k, v in values.items() if known[k].owner is kind}

        parts = {part: replace(getattr(self, part), **of(kind)) for part, kind in _PARTS.items()}
        return replace(self, **parts, **of(Recipe))

    def value(self, name: str) -> Any:
        """A value of the recipe or of one of its parts; see :func:`recipe_values`."""
        owner = recipe_values()[name].owner
        part = next((getattr(self, p) for p, kind in _PARTS.items() if kind is owner), self)
        return getattr(part, name)


_PARTS: Mapping[str, type] = {"training": Training, "spn": SpnTraining}
_IDENTITY = ("name", "summary")


@cache
def recipe_values() -> Mapping[str, Value]:
    """What may be replaced in a recipe, by name: its own values, then those of its parts."""
    own = values_of(Recipe, (*_IDENTITY, *_PARTS))
    parts = (value for kind in _PARTS.values() for value in values_of(kind))
    return {value.name: value for value in (*own, *parts)}
