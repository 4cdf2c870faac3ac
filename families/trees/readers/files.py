# SPDX-License-Identifier: Apache-2.0
"""Model files of XGBoost (``.json``, ``.ubj``) and LightGBM (``.txt``) as integer models."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from n3ic.errors import ModelError, needed
from n3ic.families.trees.network import TreesModel
from n3ic.families.trees.readers.columns import read_columns
from n3ic.families.trees.readers.conversion import converted
from n3ic.families.trees.readers.ensemble import Ensemble, FittedTrees, Floats, Ints
from n3ic.families.trees.readers.estimators import refuse_zeros, short
from n3ic.families.trees.readers.treelite_ensembles import ensemble_of
from n3ic.model.file import read_file

LIGHTGBM, XGBOOST = (".txt",), (".json", ".ubj")
SUFFIXES = (*XGBOOST, *LIGHTGBM)


def read_trees_file(path: Path) -> TreesModel:
    """Read a model file that XGBoost or LightGBM saved.

    Columns hold integers. Classes are named by their numbers. If the library is installed, the
    classes are compared with its own, as :func:`n3ic.from_sklearn` does.

    Args:
        path: the file; its suffix tells the library.

    Raises:
        ModelError: the file cannot be read, or holds no classifier by trees.
        MissingDependencyError: Treelite is not installed.

    Warns:
        N3icWarning: rows have another class than the library gives them; says how many and why.
    """
    data = read_file(path)
    with needed("n3ic import"):
        import treelite
    load = _lightgbm if path.suffix.lower() in LIGHTGBM else _xgboost
    try:
        ensemble, names, library, predict = load(path, data)
    except treelite.TreeliteError as error:
        raise ModelError(f"{path}: Treelite does not read it: {short(error)}") from error
    classes = [str(i) for i in range(ensemble.n_classes)]
    own_names = names if len({*names}) == ensemble.n_columns else []
    source = FittedTrees(ensemble, library, predict)
    columns = read_columns(None, None, own_names, ensemble.n_columns)
    return converted(source, columns, classes, name="imported", kind=library)


_Loaded = tuple[Ensemble, list[str], str, Callable[[Floats], Ints] | None]


def _xgboost(path: Path, data: bytes) -> _Loaded:
    import treelite

    ensemble = ensemble_of(treelite.frontend.load_xgboost_model(path), np.float32)
    try:
        import xgboost
    except ModuleNotFoundError:
        return ensemble, [], "xgboost", None
    booster = xgboost.Booster(model_file=str(path))

    def answers(rows: Floats) -> Any:
        return booster.inplace_predict(rows, validate_features=False)

    return ensemble, [*(booster.feature_names or ())], "xgboost", _classes(answers)


def _lightgbm(path: Path, data: bytes) -> _Loaded:
    import treelite

    text = data.decode("utf-8", "replace")
    refuse_zeros(text)
    ensemble = ensemble_of(treelite.frontend.load_lightgbm_model(path), np.float64)
    named = re.search(r"^feature_names=(.*)$", text, re.MULTILINE)
    names = named[1].split() if named else []
    try:
        import lightgbm
    except ModuleNotFoundError:
        return ensemble, names, "lightgbm", None
    booster = lightgbm.Booster(model_file=str(path))
    return ensemble, names, "lightgbm", _classes(booster.predict)


def _classes(answers: Callable[[Floats], Any]) -> Callable[[Floats], Ints]:
    """Classes of a library's probabilities: of the second of two classes, or of each."""

    def predict(rows: Floats) -> Ints:
        scores = np.asarray(answers(rows))
        if scores.ndim > 1:
            return np.asarray(scores.argmax(axis=1), dtype=np.int64)
        return np.asarray(scores > 0.5, dtype=np.int64)

    return predict
