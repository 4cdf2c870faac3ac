# SPDX-License-Identifier: Apache-2.0
"""BinaryMLPClassifier: a binarized MLP behind scikit-learn's interface."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from n3ic.errors import ArgumentError, UsageError
from n3ic.families.binary.fit import fit_network
from n3ic.families.binary.fold import fold
from n3ic.model.bits import Bits, pack
from n3ic.model.inputs import UINT32_MAX, Field, InputSpec
from n3ic.model.network import BinaryModel
from n3ic.training.loop import EpochCallback
from n3ic.training.recipe import Training
from n3ic.training.values import values_of


def _layers(sizes: Any) -> tuple[int, ...]:
    """Neurons of each hidden layer.

    Raises:
        ArgumentError: they are not whole numbers.
    """
    several = isinstance(sizes, Iterable) and not isinstance(sizes, str)
    counts = [*sizes] if several else [sizes]
    whole = all(isinstance(n, Integral) and not isinstance(n, bool) for n in counts)
    if not whole or min(counts, default=1) < 1:
        raise ArgumentError(
            f"hidden_layer_sizes: expected numbers of neurons, such as (32, 16), got {sizes!r:.60}"
        )
    return tuple(int(n) for n in counts)


def _no_number(X: Any) -> ArgumentError:
    """The error that names the first column of a table that holds no numbers."""
    names = getattr(X, "columns", None)
    cells = np.asarray(X, dtype=object)
    texts = [[c for c in column if isinstance(c, str) and not _is_number(c)] for column in cells.T]
    i = next((i for i, column_texts in enumerate(texts) if column_texts), 0)
    problem = f"got {texts[i][0][:40]!r}" if texts[i] else "not objects"
    return ArgumentError(
        f"X: expected numbers, {problem} in column {i if names is None else names[i]!r}: put a "
        "OneHotEncoder or an OrdinalEncoder in front of the classifier, or use n3ic.train, which "
        "takes categories (could not convert string to float)"
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


class BinaryMLPClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A multi-layer perceptron with binary weights, activations and inputs.

    Inputs of 0 and 1 are the network's input bits. A thermometer code turns other numbers into
    bits; its cuts are quantiles of the training rows. If all numbers are unsigned 32-bit integers,
    the cuts are integers too and become the input stage of ``model_``, which reads the columns by
    name. Exports then take the same numbers. Otherwise ``model_`` reads the bits, as features
    ``x0``, ``x1``, ... of 32 bits each.

    Args:
        hidden_layer_sizes: neurons of each hidden layer; a number stands for one layer.
        thermometer_bits: number of bits of each feature that is not 0 or 1.
        ste: straight-through estimator, ``identity``, ``clip`` or ``approx``.
        batch_norm: whether a batch norm precedes each sign; it folds into thresholds.
        output_bias: whether each class has an integer bias.
        loss: ``squared_hinge``, ``cross_entropy`` or ``generalized_cross_entropy``.
        dropout: share of the hidden activations that training drops.
        optimizer: ``adam``, ``adamw`` or ``sgd``.
        learning_rate: initial learning rate.
        schedule: ``constant`` or ``cosine``.
        epochs: number of times that training reads all rows.
        batch_size: rows per step; ``auto`` is a fiftieth of the rows, between 16 and 512.
        label_smoothing: share of the label that is spread over all classes.
        class_weight: weight per class, ``balanced``, or None.
        density: share of the hidden layers' connections that are kept.
        validation_fraction: share of the rows that choose the epoch; 0 keeps the last epoch.
        patience: epochs without a better validation loss before training stops; 0 for never.
        random_state: seed or generator.

    Attributes:
        classes_: class labels, shape ``(n_classes,)``.
        model_: the integer network (:class:`n3ic.BinaryModel`) that predicts.
        logit_scale_: factor from scores to logits.
        history_: loss and validation figures of each epoch.
        n_features_in_: number of features seen by ``fit``.
        feature_names_in_: names of the columns seen by ``fit``, if they had names.
        cuts_: thresholds of each feature, ascending, of its own type; None for inputs of bits.

    References:
        M. Courbariaux et al., "Binarized Neural Networks", NeurIPS 2016.
    """

    def __init__(
        self,
        hidden_layer_sizes: int | Sequence[int] = (32, 16),
        *,
        thermometer_bits: int = 16,
        ste: str = "approx",
        batch_norm: bool = True,
        output_bias: bool = True,
        loss: str = "cross_entropy",
        dropout: float = 0.0,
        optimizer: str = "adam",
        learning_rate: float = 5e-3,
        schedule: str = "cosine",
        epochs: int = 40,
        batch_size: int | Literal["auto"] = "auto",
        label_smoothing: float = 0.0,
        class_weight: Mapping[Any, float] | Literal["balanced"] | None = None,
        density: float = 1.0,
        validation_fraction: float = 0.0,
        patience: int = 0,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.hidden_layer_sizes = hidden_layer_sizes
        self.thermometer_bits = thermometer_bits
        self.ste = ste
        self.batch_norm = batch_norm
        self.output_bias = output_bias
        self.loss = loss
        self.dropout = dropout
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.schedule = schedule
        self.epochs = epochs
        self.batch_size = batch_size
        self.label_smoothing = label_smoothing
        self.class_weight = class_weight
        self.density = density
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.random_state = random_state

    def _config(self, rows: int) -> Training:
        batch = min(512, max(16, rows // 50)) if self.batch_size == "auto" else self.batch_size
        return Training(
            hidden=_layers(self.hidden_layer_sizes),
            ste=self.ste,  # type: ignore[arg-type]
            batch_norm=self.batch_norm,
            output_bias=self.output_bias,
            loss=self.loss,  # type: ignore[arg-type]
            dropout=self.dropout,
            optimizer=self.optimizer,  # type: ignore[arg-type]
            learning_rate=self.learning_rate,
            schedule=self.schedule,  # type: ignore[arg-type]
            epochs=self.epochs,
            batch_size=batch,
            label_smoothing=self.label_smoothing,
            density=self.density,
            patience=self.patience,
        )

    def _check_values(self) -> None:
        """Check the values of the constructor, before any training.

        Raises:
            ArgumentError: a value is not allowed.
        """
        try:
            for value in values_of(Training):
                argument = getattr(self, value.name, None)
                if value.name != "class_weight" and argument not in (None, "auto"):
                    value.from_python(argument)
            self._config(1)
        except UsageError as error:
            raise ArgumentError(str(error)) from None

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        input_spec: InputSpec | None = None,
        teacher: NDArray[np.floating] | None = None,
        validation: tuple[Bits, NDArray[np.int64]] | None = None,
        progress: EpochCallback | None = None,
    ) -> Self:
        """Train on rows of bits or numbers.

        Args:
            X: array of shape ``(rows, features)``.
            y: labels, shape ``(rows,)``, two classes or more.
            sample_weight: weight of each row in the loss, shape ``(rows,)``, 0 or more; only
                their ratios matter. Rows of weight 0 do not affect the cuts. None for equal
                weights.
            input_spec: the meaning of the bits, for the model; it has their width.
            teacher: class probabilities of shape ``(rows, classes)``; labels and teacher count
                half each.
            validation: bits and class indices that choose the epoch, instead of a share of
                the rows.
            progress: called after every epoch.

        Raises:
            ValueError: the arrays are not finite numbers of matching shapes, the labels have only
                one class, or a value of the constructor is not allowed (ArgumentError).
        """
        rows_in: NDArray[Any]
        try:
            rows_in, y = validate_data(self, X, y)
            numbers = rows_in.dtype.kind in "biuf"  # a table of categories may become texts
        except ValueError as error:
            if "could not convert" not in str(error):
                raise
            numbers = False
        if not numbers:
            raise _no_number(X)
        check_classification_targets(y)
        self.classes_, label = np.unique(y, return_inverse=True)
        weight: NDArray[np.float64] = _check_sample_weight(sample_weight, rows_in, dtype=np.float64)
        if (weight < 0).any():
            raise ValueError(
                "Negative values in data passed to `sample_weight`; 0 or more expected"
            )
        counted = np.unique(label[weight > 0])
        if len(counted) < 2:
            raise ValueError(
                f"{type(self).__name__} needs samples of at least 2 classes, "
                f"but the data contains only one class: {self.classes_[counted].tolist()!r}"
            )
        self._check_values()
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        spec = self._fit_encoder(rows_in[weight > 0])
        bits = self._bits(rows_in)
        training_index, validation_rows = np.arange(len(bits)), validation
        if validation_rows is None and self.validation_fraction:
            stratify = label if np.bincount(label).min() >= 2 else None
            training_index, chosen = train_test_split(
                training_index,
                test_size=self.validation_fraction,
                random_state=seed,
                stratify=stratify,
            )
            validation_rows = (bits[chosen], label[chosen])
        rows, label, weight = (
            bits[training_index],
            label[training_index],
            weight[training_index] / weight[training_index].mean(),
        )
        if self.class_weight is not None:
            weight = weight * compute_sample_weight(self.class_weight, self.classes_[label])
        trained = fit_network(
            rows,
            label,
            len(self.classes_),
            self._config(len(rows)),
            seed=seed,
            validation=validation_rows,
            teacher=None if teacher is None else teacher[training_index],
            sample_weight=None if (weight == 1).all() else weight,
            progress=progress,
        )
        self.logit_scale_ = 2.0 * float(trained.network.log_scale.detach().exp())
        self.history_ = trained.history
        self.model_: BinaryModel = fold(
            trained.network,
            (input_spec or spec or InputSpec.raw(bits.shape[1])).with_rates(rows),
            tuple(str(c) for c in self.classes_),
        )
        return self

    def _fit_encoder(self, X: NDArray[Any]) -> InputSpec | None:
        """Choose the cuts; return the input stage with them, or None if they are not integers."""
        self.cuts_: list[NDArray[Any]] | None = None
        if np.isin(X, (0, 1)).all():
            return None
        shares = np.linspace(0, 1, self.thermometer_bits + 2)[1:-1]
        if not ((X >= 0) & (X <= UINT32_MAX) & (np.rint(X) == X)).all():
            # An interpolated quantile is a float, which does not hold every 64-bit integer.
            exact = X.dtype.kind in "iu"
            method: Literal["higher", "linear"] = "higher" if exact else "linear"
            wide = X if exact else X.astype(np.float64)
            self.cuts_ = [np.quantile(column, shares, method=method) for column in wide.T]
            return None
        # An integer reaches a fractional cut iff it reaches the next integer above the cut.
        whole = np.ceil(np.quantile(X.astype(np.float64), shares, axis=0)).astype(np.int64)
        self.cuts_ = [np.unique(np.maximum(cuts, 1)) for cuts in whole.T]
        names = [str(name) for name in getattr(self, "feature_names_in_", ())]
        if len({*names}) < len(self.cuts_):
            names = [f"x{i}" for i in range(len(self.cuts_))]
        fields = zip(names, self.cuts_, strict=True)
        return InputSpec(tuple(Field.thermometer(name, cuts.tolist()) for name, cuts in fields))

    def _bits(self, X: NDArray[Any]) -> Bits:
        if self.cuts_ is None:
            return np.asarray(X, dtype=np.float64) > 0.5
        columns = zip(X.T, self.cuts_, strict=True)
        return np.concatenate([x[:, None] >= cuts for x, cuts in columns], axis=1)

    def scores(self, X: ArrayLike) -> NDArray[np.int32]:
        """Compute the integer scores of the folded network, shape ``(rows, classes)``."""
        check_is_fitted(self)
        rows: NDArray[Any] = validate_data(self, X, reset=False)
        return self.model_.scores(pack(self._bits(rows)))

    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """Compute the score difference of two classes, shape ``(rows,)``, or the scores of more."""
        scores: NDArray[np.float64] = self.scores(X).astype(np.float64)
        if len(self.classes_) == 2:
            return np.asarray(scores[:, 1] - scores[:, 0])
        return scores

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Predict class labels, shape ``(rows,)``; the first class wins a tie."""
        winner = np.argmax(self.scores(X), axis=1)
        return np.asarray(self.classes_[winner])

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Compute the softmax of the scores at the trained scale, shape ``(rows, classes)``."""
        scores = self.scores(X).astype(np.float64)
        logits = scores * self.logit_scale_
        logits -= logits.max(axis=1, keepdims=True)
        odds = np.exp(logits)
        return np.asarray(odds / odds.sum(axis=1, keepdims=True))
