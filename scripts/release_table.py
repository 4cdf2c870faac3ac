#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The table of accuracies of docs/explanation/accuracy.md, on seeds to which nobody tuned.

The seeds of a release come from the digest of the commit whose code trains, which is known only
once that code is final. The test rows are used once for each seed:

    python scripts/release_table.py --data UNSW_NB15_FOLDER --out runs/release

trains the recipes ``default`` and ``published`` for each seed and prints the table as Markdown.
Existing runs are kept, so an interrupted call resumes. ``--commit`` takes the commit of an earlier
release, to reproduce its table with its own code.
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
MODELS: Mapping[str, tuple[str, ...]] = {
    "binary": (),
    "tables": ("--family", "tables"),
}
TEST: tuple[str, ...] = ("test",)
SHIFTS = tuple(f"times x {by}, rates x {rate}" for by, rate in ((0.1, 10), (0.5, 2), (10, 0.1)))
ROWS: Mapping[str, tuple[str, tuple[str, ...]]] = {  # the model's run, and the way to the figures
    "**binary network**": ("binary", TEST),
    **{f"the same, {shift}": ("binary", ("shifts", "rows", shift)) for shift in SHIFTS},
    "look-up tables (`--family tables`)": ("tables", TEST),
    **{f"these tables, {shift}": ("tables", ("shifts", "rows", shift)) for shift in SHIFTS},
    "float MLP of the same shape on the same 256 bits": ("binary", ("baselines", "float_mlp")),
    "random forest, 60 trees, on the columns": ("binary", ("baselines", "random_forest")),
    "gradient boosting, 200 rounds, on the columns": (
        "binary",
        ("baselines", "hist_gradient_boosting"),
    ),
    "best-first tree of equally many cuts, on the columns": (
        "binary",
        ("baselines", "tree_same_cuts"),
    ),
    "decision tree of depth 9 on the same 256 bits": ("binary", ("baselines", "tree_depth_9")),
}
FIGURES = ("accuracy", "accuracy_unseen", "fpr", "bytes")
RARE = 0.001
NAMES = {"false_alarms": "fpr"}


def seeds_of(commit: str, count: int = SEEDS) -> list[int]:
    """Draw distinct five-digit seeds from a commit's digest.

    Args:
        commit: the full digest, in hexadecimal digits.
        count: number of seeds.

    Raises:
        ValueError: ``commit`` is not the digest of a commit.
    """
    if len(commit) not in (40, 64) or set(commit) - set("0123456789abcdef"):
        raise ValueError(f"expected the 40 or 64 hexadecimal digits of a commit, got {commit!r}")
    seeds: dict[int, None] = {}
    attempt = 0
    while len(seeds) < count:
        digest = hashlib.sha256(f"{commit} {attempt}".encode()).digest()
        seeds[10_000 + int.from_bytes(digest[:8], "big") % 90_000] = None
        attempt += 1
    return list(seeds)


def head() -> str:
    """The digest of the commit that is checked out, if its files are unchanged.

    Raises:
        SystemExit: A file differs from the commit.
    """

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", *words], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.strip()

    if changed := git("status", "--porcelain", "--untracked-files=no"):
        raise SystemExit(f"expected the files of a commit, these were changed:\n{changed}")
    return git("rev-parse", "HEAD")


def figure(metrics: Mapping[str, Any], way: Sequence[str], name: str) -> float | None:
    """A figure of a run, in per cent or bytes; None if the run has none of that name."""
    part: Any = metrics
    for key in way:
        if isinstance(part, list):
            part = next((row for row in part if row["shift"] == key), {})
        else:
            part = (part or {}).get(key, {})
    value: float | None
    if name == "bytes":  # of the model, or of a packed baseline
        value = metrics["memory"]["total_bytes"] if way == TEST else part.get("bytes")
        return value
    value = {NAMES.get(k, k): v for k, v in part.items()}.get(name)
    return None if value is None else 100 * value


def cell(values: Sequence[float | None], name: str) -> str:
    """The mean, for accuracies with the deviation; empty if a run lacks the figure."""
    there = [value for value in values if value is not None]
    if not there or len(there) < len(values):
        return ""
    mean = statistics.mean(there)
    if name == "bytes":
        return f"{mean / 1000:,.0f} kB" if mean >= 100_000 else f"{mean:,.0f}"
    deviates = name != "fpr" and len(there) > 1
    return f"{mean:.1f}±{statistics.stdev(there):.1f}" if deviates else f"{mean:.1f}"


Runs = Mapping[str, Sequence[Mapping[str, Any]]]


def table(recipes: Mapping[str, Runs]) -> str:
    """The table as Markdown.

    Args:
        recipes: for each recipe, the metrics of each seed by model.
    """
    title = ["classifier"]
    for recipe in recipes:
        title += [f"`{recipe}`: test", "without duplicates", "FPR", "bytes"]
    lines = [title, ["---", *["---:"] * (len(title) - 1)]]
    for label, (model, way) in ROWS.items():
        cells = [
            cell([figure(run, way, name) for run in runs.get(model, ())], name)
            for runs in recipes.values()
            for name in FIGURES
        ]
        if any(cells):
            lines.append([label, *cells])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def precisions(recipes: Mapping[str, Runs]) -> str:
    """A sentence on the precision of each recipe's models where attacks are rare.

    Args:
        recipes: for each recipe, the metrics of each seed by model.
    """
    parts = []
    for recipe, runs in recipes.items():
        for model, metrics_of in runs.items():
            rates = [one for run in metrics_of for one in run["base_rates"]["rates"]]
            rare = [
                100 * one["precision"]
                for one in rates
                if one["prevalence"] == RARE and one["precision"] is not None
            ]
            parts.append(f"{cell(rare, 'precision')} (`{recipe}`, {model})")
    return f"Precision in per cent where {RARE:.1%} of the flows are attacks: {', '.join(parts)}."


def train(data: Path, recipe: str, seed: int, words: Sequence[str], out: Path) -> None:
    """Train a model of the anomaly use case."""
    subprocess.run(
        [sys.executable, "-m", "n3ic", "train", "anomaly", "--data", data, "--recipe", recipe,
         "--seed", str(seed), "--out", out, *words],
        check=True,
    )  # fmt: skip


def main() -> None:
    """Train the missing models, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="the rows of UNSW-NB15")
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--commit", help="draw the seeds from this digest; default: HEAD's")
    arguments = parser.parse_args()
    commit = arguments.commit or head()
    seeds = seeds_of(commit)
    recipes: dict[str, dict[str, list[Any]]] = {}
    for recipe in RECIPES:
        recipes[recipe] = {model: [] for model in MODELS}
        for seed in seeds:
            for model, words in MODELS.items():
                out = arguments.out / f"{recipe}-{model}-{seed}"
                if not (out / "metrics.json").exists():
                    train(arguments.data, recipe, seed, words, out)
                metrics = json.loads((out / "metrics.json").read_text(encoding="utf-8"))
                recipes[recipe][model].append(metrics)
    print(f"\ncommit {commit}, seeds {', '.join(map(str, seeds))}\n")
    print(table(recipes))
    print(f"\n{precisions(recipes)}")


if __name__ == "__main__":
    main()
