#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The README's table of accuracies, on seeds that nobody can have tuned to.

The seeds of a release come from a beacon: the digest of the commit whose code trains, which is
known only when nothing of it changes any more. Test rows are looked at once for each of them:

    python scripts/release_table.py --data UNSW_NB15_FOLDER --out runs/release

trains the recipes ``default`` and ``published`` for each seed and prints the table as Markdown.
Runs that are there are kept, so that an interrupted call goes on where it was. ``--commit`` takes
the commit of an earlier release, whose table is to be made again on its own code.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SEEDS = 5
RECIPES = ("default", "published")
ROWS: Mapping[str, tuple[str, ...]] = {
    "**binary**": ("test",),
    "the same network where every time is half and every rate double": ("shifts", "rows", "1"),
    "float MLP of the same shape on the same bits": ("baselines", "float_mlp"),
    "gradient boosting, 200 rounds, on the columns": ("baselines", "hist_gradient_boosting"),
    "best-first tree of equally many cuts, on the columns": ("baselines", "tree_same_cuts"),
    "decision tree of depth 9 on the same bits": ("baselines", "tree_depth_9"),
}
FIGURES = ("accuracy", "accuracy_unseen", "fpr")
NAMES = {"false_alarms": "fpr"}


def seeds_of(commit: str, count: int = SEEDS) -> list[int]:
    """Different seeds of five digits that a commit's digest decides.

    Args:
        commit: the whole digest, in hexadecimal digits.
        count: number of seeds.

    Raises:
        ValueError: it is no digest of a commit.
    """
    if len(commit) not in (40, 64) or set(commit) - set("0123456789abcdef"):
        raise ValueError(f"expected the 40 or 64 hexadecimal digits of a commit, got {commit!r}")
    found: dict[int, None] = {}
    turn = 0
    while len(found) < count:
        digest = hashlib.sha256(f"{commit} {turn}".encode()).digest()
        found[10_000 + int.from_bytes(digest[:8], "big") % 90_000] = None
        turn += 1
    return list(found)


def head() -> str:
    """The digest of the commit that is checked out, whose files nobody changed.

    Raises:
        SystemExit: a file differs from the commit.
    """

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", *words], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.strip()

    if changed := git("status", "--porcelain", "--untracked-files=no"):
        raise SystemExit(f"expected the files of a commit, these were changed:\n{changed}")
    return git("rev-parse", "HEAD")


def figure(metrics: Mapping[str, Any], way: Sequence[str], name: str) -> float | None:
    """A figure of a run in per cent; None if the run has none of that name."""
    found: Any = metrics
    for key in way:
        if isinstance(found, list):
            found = found[int(key)] if int(key) < len(found) else {}
        else:
            found = (found or {}).get(key, {})
    found = {NAMES.get(k, k): v for k, v in found.items()}
    value = found.get(name)
    return None if value is None else 100 * value


def cell(values: Sequence[float | None], digits: bool) -> str:
    """Mean and deviation; empty if a run has no such figure."""
    there = [value for value in values if value is not None]
    if not there or len(there) < len(values):
        return ""
    mean = f"{statistics.mean(there):.1f}"
    return f"{mean}±{statistics.stdev(there):.1f}" if digits and len(there) > 1 else mean


def table(runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """The table as Markdown.

    Args:
        runs: the metrics of each seed, by recipe.
    """
    title = ["classifier"]
    for recipe in runs:
        title += [f"`{recipe}`: test", "without duplicates", "FPR"]
    lines = [title, ["---", *["---:"] * (len(title) - 1)]]
    for name, way in ROWS.items():
        cells = [
            cell([figure(run, way, key) for run in each], key != "fpr")
            for each in runs.values()
            for key in FIGURES
        ]
        if any(cells):
            lines.append([name, *cells])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    """Train what is not there, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="the rows of UNSW-NB15")
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--commit", help="draw the seeds from this digest; default: HEAD's")
    given = parser.parse_args()
    commit = given.commit or head()
    seeds = seeds_of(commit)
    runs: dict[str, list[Any]] = {recipe: [] for recipe in RECIPES}
    for seed in seeds:
        for recipe in RECIPES:
            out = given.out / f"{recipe}-{seed}"
            if not (out / "metrics.json").exists():
                subprocess.run(
                    [sys.executable, "-m", "n3ic", "train", "anomaly", "--data", given.data,
                     "--recipe", recipe, "--seed", str(seed), "--out", out],
                    check=True,
                )  # fmt: skip
            runs[recipe].append(json.loads((out / "metrics.json").read_text(encoding="utf-8")))
    print(f"\ncommit {commit}, seeds {', '.join(map(str, seeds))}\n")
    print(table(runs))


if __name__ == "__main__":
    main()
