# SPDX-License-Identifier: Apache-2.0
"""Fitted estimators of scikit-learn, XGBoost and LightGBM as integer models."""

from __future__ import annotations

import copy
import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from n3ic.errors import ModelError, needed
from n3ic.families.trees.network import TreesModel
from n3ic.families.trees.readers.columns import Inputs, read_columns
from n3ic.families.trees.readers.conversion import converted
from n3ic.families.trees.readers.ensemble import Ensemble, FittedTrees, Floats, Ints

_FORESTS = ("RandomForestClassifier", "ExtraTreesClassifier")
_TREES = ("DecisionTreeClassifier", "ExtraTreeClassifier")
_SCALERS = ("StandardScaler", "MinMaxScaler", "MaxAbsScaler", "RobustScaler")
"""Steps in front of the trees that keep the order of each column by itself."""
_TAKEN = (
    "scikit-learn's decision trees, random forests, extra trees, gradient and histogram gradient "
    "boosting; XGBClassifier and XGBRFClassifier; LGBMClassifier"
)
_ZERO_IS_MISSING = 1  # LightGBM's kinds of missing values, bits 2 and 3 of a node's decision type


def from_sklearn(
    fitted: Any,
    rows: Any = None,
    *,
    inputs: Inputs | None = None,
    classes: Sequence[str] | None = None,
    name: str = "imported",
    leaf_bits: int | None = None,
) -> TreesModel:
    """Turn a fitted tree, forest or boosted trees into an integer model that decides as they do.

    Thresholds become the least integers on their right side, by asking the library's own
    comparison. Leaf values become integers by one scale, the coarsest of some at which the class is
    that of ``fitted.predict`` on the given rows and on rows at every cut, one below and one above.
    The provenance says what was compared, and what rounding can change elsewhere.

    Args:
        fitted: a classifier of scikit-learn (decision tree, random forest, extra trees, gradient
            boosting, histogram gradient boosting), XGBoost or LightGBM; a pipeline of scalers that
            ends in one; or a search for one.
        rows: rows like those of the fit: a table with named columns, an array of shape
            ``(rows, columns)``, or a FlowTable. They give names, units and a meter, and are
            compared. Without rows, columns hold integers.
        inputs: names of the columns in order; or names with the integer units in one unit of the
            rows, such as ``{"duration": 1e6}`` for seconds read as microseconds. None for the names
            of the rows or of the fit, and the fewest decimal places in which the rows are whole.
        classes: names of the classes in the order of ``fitted.classes_``; None for their texts.
        name: the model's name.
        leaf_bits: bits of the largest leaf value, 2 to 32; None for as many as the rows need.

    Raises:
        ModelError: the estimator is no such classifier or is not fitted, splits by categories or
            takes zeros for missing, the rows have blanks, or the trees are too large.
        MissingDependencyError: Treelite is not installed.

    Warns:
        N3icWarning: rows have another class than ``fitted.predict`` gives; says how many and why.
    """
    if leaf_bits is not None and not (isinstance(leaf_bits, int) and 2 <= leaf_bits <= 32):
        raise ModelError(f"leaf_bits: expected 2 to 32, got {leaf_bits!r:.60}")
    whole = _chosen(fitted)
    scalers, estimator = _steps(whole)
    ensemble = _ensemble(estimator)
    known = np.asarray(estimator.classes_)
    own_names = [str(n) for n in getattr(whole, "feature_names_in_", ())]
    columns = read_columns(rows, inputs, own_names, ensemble.n_columns)
    frame = _framed(rows, ensemble.n_columns)

    def predict(values: Floats) -> Ints:
        with _quiet():
            labels = np.asarray(whole.predict(frame(values)))
        index = np.searchsorted(known, labels)
        if not (known[np.minimum(index, len(known) - 1)] == labels).all():
            raise ModelError(f"{type(estimator).__name__}.predict gives labels that are no class")
        return index.astype(np.int64)

    def seen(values: Floats) -> Floats:
        with _quiet():
            for scaler in scalers:
                values = np.asarray(scaler.transform(values))
        return values

    kind = type(estimator).__name__
    library = type(estimator).__module__.partition(".")[0]
    source = FittedTrees(ensemble, f"{kind}.predict", predict, seen if scalers else np.asarray)
    return converted(
        source,
        columns,
        _class_names(classes, known),
        name=name,
        kind=f"{'scikit-learn' if library == 'sklearn' else library} {kind}",
        leaf_bits=leaf_bits,
    )


def _chosen(fitted: Any) -> Any:
    """What a search has found, or the estimator itself.

    Raises:
        ModelError: it is no fitted estimator.
    """
    if isinstance(fitted, type):
        raise ModelError(f"{fitted.__name__} is a class: make one, and fit it to rows")
    while hasattr(fitted, "best_estimator_"):
        fitted = fitted.best_estimator_
    if hasattr(fitted, "model_"):
        raise ModelError(f"a {type(fitted).__name__} has its integer model as model_")
    if not hasattr(fitted, "predict"):
        raise ModelError(f"expected a fitted classifier, got {type(fitted).__name__}: {_TAKEN}")
    return fitted


def _steps(fitted: Any) -> tuple[list[Any], Any]:
    """The scalers of a pipeline, and the estimator behind them.

    Raises:
        ModelError: a step is no scaler that keeps the order of each column.
    """
    steps = getattr(fitted, "steps", None)
    if steps is None:
        return [], fitted
    scalers = []
    for step, transformer in steps[:-1]:
        if transformer in (None, "passthrough"):
            continue
        if type(transformer).__name__ not in _SCALERS:
            raise ModelError(
                f"step {step!r} of the pipeline is a {type(transformer).__name__}, behind which "
                "trees do not compare the columns themselves; expected scalers: "
                f"{', '.join(_SCALERS)}, or trees that are fitted to the columns"
            )
        scalers.append(transformer)
    return scalers, _chosen(steps[-1][1])


def _ensemble(estimator: Any) -> Ensemble:
    """The trees of a fitted estimator.

    Raises:
        ModelError: it is no classifier by trees, or is not fitted.
        MissingDependencyError: Treelite is not installed.
    """
    kinds = {base.__name__: base.__module__.partition(".")[0] for base in type(estimator).__mro__}
    reader = next(
        (read for kind, (library, read) in _READERS.items() if kinds.get(kind) == library), None
    )
    if reader is None:
        raise ModelError(f"a {type(estimator).__name__} is not read: expected {_TAKEN}")
    if not hasattr(estimator, "classes_"):
        raise ModelError(f"{type(estimator).__name__} is not fitted: call its fit(X, y) first")
    if getattr(estimator, "n_outputs_", 1) != 1:
        raise ModelError(f"{type(estimator).__name__} has several outputs; expected one")
    if len(estimator.classes_) < 2:
        raise ModelError(f"{type(estimator).__name__} was fitted to one class; expected two")
    with needed("n3ic.from_sklearn"):
        import treelite
    try:
        return reader(estimator)
    except (treelite.TreeliteError, NotImplementedError, AssertionError) as error:
        raise ModelError(
            f"{type(estimator).__name__}: Treelite does not read it: {short(error)}"
        ) from error


def _forest(estimator: Any) -> Ensemble:
    import treelite

    from n3ic.families.trees.readers.treelite_ensembles import ensemble_of

    grown = copy.copy(estimator)
    grown.n_estimators = len(estimator.estimators_)
    return ensemble_of(treelite.sklearn.import_model(grown), np.float32)


def _tree(estimator: Any) -> Ensemble:
    """A single tree, which Treelite reads as a forest of one."""
    from sklearn.ensemble import RandomForestClassifier

    forest = RandomForestClassifier(n_estimators=1)
    forest.estimators_ = [estimator]
    for fact in ("n_features_in_", "n_outputs_", "n_classes_", "classes_"):
        setattr(forest, fact, getattr(estimator, fact))
    return _forest(forest)


def _boosted(estimator: Any) -> Ensemble:
    import treelite

    from n3ic.families.trees.readers.treelite_ensembles import ensemble_of

    grown = copy.copy(estimator)
    grown.n_estimators = len(estimator.estimators_)  # fewer than asked for if it stopped early
    # Its predict takes the second class from a sum of 0 on.
    return ensemble_of(treelite.sklearn.import_model(grown), np.float32, second_wins=True)


def _histogram(estimator: Any) -> Ensemble:
    import treelite

    from n3ic.families.trees.readers.treelite_ensembles import ensemble_of

    return ensemble_of(treelite.sklearn.import_model(estimator), np.float64)


def _xgboost(estimator: Any) -> Ensemble:
    import treelite

    from n3ic.families.trees.readers.treelite_ensembles import ensemble_of

    missing = getattr(estimator, "missing", np.nan)
    if missing is not None and not np.isnan(missing):
        raise ModelError(
            f"{type(estimator).__name__} takes {missing!r} for a missing value; a NIC has none: "
            "expected missing=nan"
        )
    booster = estimator.get_booster()
    best = getattr(estimator, "best_iteration", None) if booster.attr("best_iteration") else None
    if best is not None:  # predict reads the trees up to the best round
        booster = booster[: best + 1]
    return ensemble_of(treelite.frontend.from_xgboost(booster), np.float32)


def _lightgbm(estimator: Any) -> Ensemble:
    import treelite

    from n3ic.families.trees.readers.treelite_ensembles import ensemble_of

    refuse_zeros(estimator.booster_.model_to_string())
    return ensemble_of(treelite.frontend.from_lightgbm(estimator.booster_), np.float64)


def refuse_zeros(text: str) -> None:
    """Check that LightGBM's trees do not take zeros for missing values.

    Args:
        text: its model as text.

    Raises:
        ModelError: they do.
    """
    lines = re.findall(r"^decision_type=(.*)$", text, re.MULTILINE)
    kinds = [int(kind) for line in lines for kind in line.split()]
    if any((kind >> 2) & 3 == _ZERO_IS_MISSING for kind in kinds):
        raise ModelError(
            "LightGBM takes zeros for missing values here; a NIC has none: expected "
            "zero_as_missing=False"
        )


def short(error: Exception) -> str:
    """What Treelite says, without times and places in its sources."""
    return re.sub(r"\[\d\d:\d\d:\d\d\] \S+: ", "", " ".join(str(error).split()))[:300]


_READERS: dict[str, tuple[str, Callable[[Any], Ensemble]]] = {
    **dict.fromkeys(_FORESTS, ("sklearn", _forest)),
    **dict.fromkeys(_TREES, ("sklearn", _tree)),
    "GradientBoostingClassifier": ("sklearn", _boosted),
    "HistGradientBoostingClassifier": ("sklearn", _histogram),
    "XGBClassifier": ("xgboost", _xgboost),
    "LGBMClassifier": ("lightgbm", _lightgbm),
}


def _framed(rows: Any, count: int) -> Callable[[Floats], Any]:
    """Rows as the fitted model takes them: a table of pandas if the given rows are one."""
    columns = getattr(rows, "columns", None)
    if hasattr(rows, "iloc") and columns is not None and len(columns) == count:
        return lambda values: type(rows)(values, columns=columns)
    return lambda values: values


class _quiet(warnings.catch_warnings):  # noqa: N801 - a context, as its base
    """Without remarks that an array has no names of columns."""

    def __enter__(self) -> Any:
        out = super().__enter__()
        warnings.filterwarnings("ignore", message=".*feature names.*")
        return out


def _class_names(classes: Sequence[str] | None, known: Any) -> tuple[str, ...]:
    if classes is None:
        return tuple(str(c) for c in known)
    if isinstance(classes, str) or len(classes) != len(known):
        raise ModelError(f"classes: expected {len(known)} names, got {classes!r:.60}")
    return tuple(map(str, classes))
