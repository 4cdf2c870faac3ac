#!/usr/bin/env python
# SPDX-License-Identifier: Apache-2.0
"""Accuracy by packets and by bytes: binary networks and look-up tables compared with trees.

    python scripts/sequence_table.py --packets 4,8,16,30 --bytes 200,400,1000,0 --seeds 10

Each seed draws its own rows for training, validation and test; all columns of a line use the same
rows and features. A number of bytes is the most that a model may take, cuts included; 0 means the
recipe `default` without a limit. The forest of 200 trees, boosting and the tree of depth 9 are
scikit-learn's, with its default settings.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.metrics import accuracy_score, f1_score
from sklearn.tree import DecisionTreeClassifier

from n3ic.data.split import split
from n3ic.data.table import FlowTable
from n3ic.errors import UsageError
from n3ic.runs.experiment import train
from n3ic.runs.preparation import Experiment
from n3ic.training.recipe import recipe_values
from n3ic.usecases.base import use_case
from n3ic.usecases.request import TrainRequest

FAMILIES = ("binary", "tables")
TREES: Mapping[str, Callable[[int], Any]] = {
    "forest of 200": lambda seed: RandomForestClassifier(200, random_state=seed),
    "boosting": lambda seed: HistGradientBoostingClassifier(random_state=seed),
    "tree of depth 9": lambda seed: DecisionTreeClassifier(max_depth=9, random_state=seed),
}


def figures(right: NDArray[np.int64], predicted: NDArray[np.int64]) -> tuple[float, float]:
    """Accuracy and macro F1 in per cent."""
    f1 = f1_score(right, predicted, average="macro", zero_division=0)
    return 100 * accuracy_score(right, predicted), 100 * f1


def of_model(
    table: FlowTable, packets: str, family: str, size: int, seed: int, overrides: Mapping[str, Any]
) -> tuple[float, float, int]:
    """Accuracy, macro F1 and bytes of a network on its test rows."""
    case = use_case("classification")
    request = TrainRequest(
        case.name,
        overrides={"family": family, **overrides},
        budget_bytes=size or None,
        options={"packets": packets},
    )
    recipe = request.chosen_recipe(case, len(table.classes))
    experiment = Experiment(table, recipe, seed=seed, with_baselines=False, budget=size)
    result = train(experiment)
    return 100 * result.test.accuracy, 100 * result.test.macro_f1, sum(result.model.memory.values())


def of_trees(table: FlowTable, name: str, seed: int) -> tuple[float, float]:
    """Accuracy and macro F1 of trees, trained and tested on the same rows as a network."""
    parts = split(table, "random", seed)
    columns = np.stack([*table.features.values()], axis=1)
    model = TREES[name](seed)
    model.fit(columns[parts.train], table.label[parts.train])
    return figures(table.label[parts.test], model.predict(columns[parts.test]))


def cell(figures_of_seeds: Sequence[tuple[float, ...]]) -> str:
    """Mean and deviation over the seeds, with the largest number of bytes if there is one."""
    accuracy, f1 = (np.array([one[i] for one in figures_of_seeds]) for i in (0, 1))
    size = (
        f" ({max(one[2] for one in figures_of_seeds):,.0f} B)"
        if len(figures_of_seeds[0]) > 2
        else ""
    )
    return f"{accuracy.mean():.1f} ± {accuracy.std():.1f} / {f1.mean():.1f} ± {f1.std():.1f}{size}"


def lines(arguments: argparse.Namespace) -> Iterator[str]:
    """Yield the table in Markdown, each line as soon as it is known."""
    case = use_case("classification")
    seeds = range(arguments.seed, arguments.seed + arguments.seeds)
    texts = dict(one.split("=", 1) for one in arguments.set)
    overrides = {name: recipe_values()[name].parse(text) for name, text in texts.items()}
    families = arguments.family.split(",")
    yield f"| packets | bytes | {' | '.join((*families, *TREES))} |"
    yield "|---:|---:|" + "---:|" * (len(families) + len(TREES))
    for packets in arguments.packets.split(","):
        table = case.load(arguments.data, arguments.dataset, _options(packets), lambda _: None)
        trees = [cell([of_trees(table, name, seed) for seed in seeds]) for name in TREES]
        for size in map(int, arguments.bytes.split(",")):
            cells = []
            for family in families:
                try:
                    runs = [of_model(table, packets, family, size, s, overrides) for s in seeds]
                except UsageError as error:
                    cells.append(str(error))
                else:
                    cells.append(cell(runs))
            yield f"| {packets} | {size or 'default'} | {' | '.join((*cells, *trees))} |"


def _options(packets: str) -> dict[str, str]:
    return {"positive": "", "label": "", "packets": packets}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", default=None, help="a file of packet sequences")
    parser.add_argument("--dataset", default="doh-tunnels")
    parser.add_argument("--packets", default="4,8,16,30")
    parser.add_argument("--bytes", default="200,400,1000,0")
    parser.add_argument("--family", default=",".join(FAMILIES))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE",
                        help="another value of the recipe, such as density=0.5")  # fmt: skip
    for line in lines(parser.parse_args()):
        print(line, flush=True)


if __name__ == "__main__":
    main()
