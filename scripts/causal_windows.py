#!/usr/bin/env python3
"""What causal windows win back of the counters of UNSW-NB15 that include later rows.

``scripts/causal_windows.py RAW_FILE`` prints the table as Markdown: boosted trees, five folds.
"""

from __future__ import annotations

import argparse
import sys

from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import RepeatedStratifiedKFold, cross_val_score

from n3ic.datasets.unsw_nb15 import DATASET
from n3ic.datasets.unsw_nb15.meter import WINDOWS
from n3ic.errors import N3icError
from n3ic.util.markdown import percent


def main() -> int:
    """Print the table for the file of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", help="rows of the raw files, in the order of their last times")
    try:
        table = DATASET.load(parser.parse_args().data)
    except N3icError as e:
        print(f"causal_windows: {e}", file=sys.stderr)
        return 1
    windows = [name for name in table.features if name in WINDOWS]
    if not windows:
        print("causal_windows: these rows have no addresses and times", file=sys.stderr)
        return 1
    one_tap = [name for name in table.usable if name not in WINDOWS]
    later = [f.name for f in table.catalogue if f.tap == "not causal"]
    folds = RepeatedStratifiedKFold(n_splits=5, n_repeats=2, random_state=0)
    trees = HistGradientBoostingClassifier(max_iter=60, random_state=0)
    print(f"{len(table):,} rows, {table.label.sum():,} attacks\n")
    print("| columns | accuracy |\n|---|---|")
    for name, columns in (
        ("one tap", one_tap),
        ("one tap and causal windows", [*one_tap, *windows]),
        ("one tap and the published counters", [*one_tap, *later]),
    ):
        accuracy = cross_val_score(trees, table.matrix(columns), table.label, cv=folds)
        print(f"| {name} | {percent(accuracy.mean(), 2)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
