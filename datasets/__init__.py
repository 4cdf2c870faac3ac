# SPDX-License-Identifier: Apache-2.0
"""Data sets and their use cases, one folder each; found through entry points.

They import only the core and modules of their own folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

__all__ = ["load"]


def load(
    name: str,
    path: str | Path | None = None,
    *,
    as_frame: bool = True,
    return_X_y: bool = False,
    seed: int = 0,
) -> Any:
    """Load a data set as scikit-learn's ``fetch_*`` do.

    Args:
        name: name of the data set as in ``n3ic data list``, such as ``unsw-nb15``.
        path: path of its files; None for the embedded sample.
        as_frame: whether to return pandas objects instead of numpy arrays.
        return_X_y: whether to return only ``data`` and ``target``.
        seed: seed of the splits.

    Returns:
        The pair ``(data, target)`` if ``return_X_y`` is set, otherwise a bunch.

        ``data`` holds the features as the integers that a NIC has, int64 of shape
        ``(rows, features)``. ``target`` holds the class of each row: its name in pandas, its index
        in numpy. ``frame`` joins both; it is None without ``as_frame``. ``splits`` maps each
        protocol to the row indices ``train``, ``validation`` and ``test``, int64 arrays. The bunch
        also has ``feature_names``, ``target_names``, the data card ``DESCR`` and the
        :class:`n3ic.FlowTable` ``table``.

    Raises:
        DataError: the files cannot be read.
        MissingDependencyError: scikit-learn or pandas is not installed.
        UsageError: there is no such data set, or nothing is embedded in it.
    """
    from n3ic.data.dataset import data_set
    from n3ic.data.split import protocols_of, split
    from n3ic.errors import MissingDependencyError

    try:
        from sklearn.utils import Bunch

        if as_frame:
            import pandas as pd
    except ImportError as error:
        raise MissingDependencyError(
            f"loading a bunch needs scikit-learn and pandas: pip install 'n3ic[train]' ({error})"
        ) from error
    owner = data_set(name)
    table = owner.load(path)
    names = list(table.features)
    frame = None
    data: Any
    target: Any
    if as_frame:
        codes = pd.Categorical.from_codes(table.label, categories=list(table.classes))
        frame = pd.DataFrame(dict(table.features)).assign(target=codes)
        data, target = frame[names], frame["target"]
    else:
        data, target = table.matrix(names), table.label
    if return_X_y:
        return data, target
    splits = {which: vars(split(table, which, seed)) for which in protocols_of(table)}
    return Bunch(
        data=data,
        target=target,
        frame=frame,
        feature_names=names,
        target_names=list(table.classes),
        DESCR=owner.card,
        splits=splits,
        table=table,
    )
