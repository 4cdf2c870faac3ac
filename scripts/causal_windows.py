#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How much causal windows recover of the UNSW-NB15 counters, which include later rows.

``scripts/causal_windows.py RAW_FILE`` prints two tables as Markdown. The first is of boosted trees,
five folds twice, on several sets of columns. The second is of the same trees if flows are spread
over the cores of a data plane, each with its own rings.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import RepeatedStratifiedKFold, cross_val_score

from n3ic.data.table import FlowTable
from n3ic.datasets.unsw_nb15 import DATASET
from n3ic.datasets.unsw_nb15.meter import WINDOWS
from n3ic.datasets.unsw_nb15.windows import causal_windows
from n3ic.errors import N3icError
from n3ic.util.markdown import percent

CORES = (1, 2, 4, 8)
KEY = ("srcip", "dstip", "proto", "sport", "dsport")
FOLDS = RepeatedStratifiedKFold(n_splits=5, n_repeats=2, random_state=0)
TREES = HistGradientBoostingClassifier(max_iter=60, random_state=0)


def spread(table: FlowTable, cores: int) -> Mapping[str, NDArray[np.int64]]:
    """Windows if each 5-tuple is assigned to a random core, and each core has its own rings."""
    flow = np.unique(table.matrix(KEY), axis=0, return_inverse=True)[1].reshape(-1)
    core = np.random.default_rng(0).integers(0, cores, flow.max() + 1)[flow]
    out = {name: np.zeros(len(table), dtype=np.int64) for name in WINDOWS}
    for own in (core == c for c in range(cores)):
        for name, counts in causal_windows({n: v[own] for n, v in table.features.items()}).items():
            out[name][own] = counts
    return out


def columns_table(table: FlowTable, one_tap: list[str]) -> None:
    """Print the accuracy on several sets of columns."""
    later = [f.name for f in table.catalogue if f.tap == "not causal"]
    print("| columns | accuracy |\n|---|---|")
    for name, columns in (
        ("one tap", one_tap),
        ("one tap and causal windows", [*one_tap, *WINDOWS]),
        ("one tap and the published counters", [*one_tap, *later]),
    ):
        accuracy = cross_val_score(TREES, table.matrix(columns), table.label, cv=FOLDS)
        print(f"| {name} | {percent(accuracy.mean(), 2)} |")


def cores_table(table: FlowTable, one_tap: list[str]) -> None:
    """Print the accuracy of trees, trained with one order of flows, on windows of several cores."""
    taps, single = table.matrix(one_tap), table.matrix([*WINDOWS])
    print("\n| cores | windows as on one core | accuracy |\n|---|---|---|")
    one_order = np.hstack([taps, single])
    models = [
        (clone(TREES).fit(one_order[train], table.label[train]), test)
        for train, test in FOLDS.split(taps, table.label)
    ]
    for cores in CORES:
        windows = np.stack([*spread(table, cores).values()], axis=1)
        both = np.hstack([taps, windows])
        accuracy = np.mean([model.score(both[test], table.label[test]) for model, test in models])
        print(f"| {cores} | {percent((windows == single).mean())} | {percent(accuracy, 2)} |")


def main() -> int:
    """Print the tables for the file of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", help="rows of the raw files")
    try:
        table = DATASET.load(parser.parse_args().data)
    except N3icError as e:
        print(f"causal_windows: {e}", file=sys.stderr)
        return 1
    if not {*WINDOWS} <= {*table.features}:
        print("causal_windows: these rows have no addresses and times", file=sys.stderr)
        return 1
    one_tap = [name for name in table.usable if name not in WINDOWS]
    print(f"{len(table):,} rows, {table.label.sum():,} attacks\n")
    columns_table(table, one_tap)
    cores_table(table, one_tap)
    return 0


if __name__ == "__main__":
    sys.exit(main())
