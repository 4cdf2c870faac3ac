# SPDX-License-Identifier: Apache-2.0

r"""Accuracy against input bits, bytes and LUT sites, beside trees, boosting and float networks.

Each point is a separate training whose test rows are used once; its figures are one line of
``points.jsonl``. Points that are already there are not trained again, so an interrupted call
resumes. The picture and the tables are drawn from all points:

    python scripts/accuracy_curves.py anomaly curves --recipe published default \
        --data UNSW_NB15_testing-set.csv --seeds 101 202 303 404 505
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from n3ic.exporters.netfpga.unrolled.size import estimate
from n3ic.families.binary.packed_trees import (
    FOREST,
    FOREST_TREES,
    TREE,
    packed,
    random_forest,
    split_tree,
    trees_within,
)
from n3ic.model.network import binary_network
from n3ic.model.passes import simplify
from n3ic.options import parse_options
from n3ic.runs.experiment import train_prepared
from n3ic.runs.pictures import SizePoint, draw_accuracy
from n3ic.runs.preparation import Experiment, Prepared, prepare
from n3ic.runs.progress import TrainingProgress
from n3ic.training.baselines import best_first_tree, float_mlp
from n3ic.training.recipe import Recipe, Training
from n3ic.training.recipes import VOTING_TREES
from n3ic.usecases.base import UseCase, use_case
from n3ic.usecases.request import TrainRequest
from n3ic.util.markdown import table
from n3ic.util.pictures import legend, new_page, plain, save, styled

BITS = (4, 8, 16, 32, 64, 128, 256)
BYTES = (100, 200, 400, 800, 1100, 2000)  # in total
FORESTS = ("1x50", "1x200", "1x400", "3x400", "7x400")  # trees x leaves
AXES = {"bits": "input bits", "bytes": "bytes in total", "sites": "trees x leaves"}
SERIES = {
    "binary": "binary network",
    "tree": TREE,
    "voting": FOREST,
    "forest": "trees in look-up tables",
    "tree_same_cuts": "tree of as many cuts",
    "float_mlp": "float network",
    "random_forest": f"random forest of {FOREST_TREES} trees",
    "hist_gradient_boosting": "boosted trees",
}
LEVELS = ("random_forest", "hist_gradient_boosting")
Point = dict[str, Any]
KEY = ("recipe", "axis", "asked", "seed")
Key = tuple[Any, ...]


def main() -> int:
    """Train what is missing, then draw."""
    arguments = _arguments()
    arguments.out.mkdir(parents=True, exist_ok=True)
    log = arguments.out / "points.jsonl"
    points = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    with log.open("a", encoding="utf-8") as file:
        for point in measure(arguments, {_key(p): p for p in points}):
            points.append(point)
            file.write(json.dumps(point) + "\n")
            file.flush()
    text = "\n".join(
        line
        for name in arguments.recipe
        for axis in AXES
        for line in summary([p for p in points if p["recipe"] == name], name, axis)
    )
    (arguments.out / "curves.md").write_text(text, encoding="utf-8")
    titles = dict(zip(arguments.recipe, arguments.titles or arguments.recipe, strict=True))
    save(figure(points, titles), arguments.out, "curves")
    print(text)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("use_case")
    parser.add_argument("out", type=Path, help="folder of points.jsonl, curves.md and curves.png")
    parser.add_argument(
        "--recipe", nargs="+", default=["default"], help="recipes; each is a column of pictures"
    )
    parser.add_argument("--titles", nargs="+", help="of these columns")
    parser.add_argument("--data")
    parser.add_argument("--dataset")
    parser.add_argument("--task", default="", help="one of the use case's networks, by name")
    parser.add_argument("--protocol", default="random")
    parser.add_argument("--bits", type=int, nargs="*", default=BITS)
    parser.add_argument("--bytes", type=int, nargs="*", default=BYTES)
    parser.add_argument("--forests", nargs="*", default=FORESTS, metavar="TREESxLEAVES")
    parser.add_argument("--seeds", type=int, nargs="+", default=(101, 202, 303, 404, 505))
    parser.add_argument("--float-seeds", type=int, default=5, help="so many have a float network")
    return parser.parse_args()


def _key(point: Point) -> Key:
    return tuple(point[name] for name in KEY)


def measure(arguments: argparse.Namespace, points: Mapping[Key, Point]) -> Iterator[Point]:
    """Measure the missing points, seed by seed; boosted trees are fitted once per seed."""
    case = use_case(arguments.use_case)
    options = parse_options(case.options, {}, case.name)
    rows = case.tasks(case.load(arguments.data, arguments.dataset, options, print), options)[
        arguments.task
    ]
    values: list[tuple[str, Any]] = [("bits", n) for n in arguments.bits]
    values += [("bytes", n) for n in arguments.bytes] + [("sites", n) for n in arguments.forests]
    for name, seed in ((name, seed) for seed in arguments.seeds for name in arguments.recipe):
        with_float = seed in arguments.seeds[: arguments.float_seeds]
        before: Prepared | None = None
        same: list[tuple[Recipe, Point]] = []
        for axis, value in values:
            recipe = chosen_recipe(case, name, axis, value, len(rows.classes))
            key = name, axis, value, seed
            if key in points:
                same.append((recipe, points[key]))
                continue
            point = next((p for r, p in same if r == recipe), None)
            if point is None:
                print(f"{name}, seed {seed}: {value} {axis}", file=sys.stderr, flush=True)
                budget = int(value) if axis == "bytes" else 0
                experiment = Experiment(
                    rows, recipe, arguments.protocol, seed, with_baselines=False, budget=budget
                )
                before = _prepared(experiment, before)
                largest = budget == max(arguments.bytes, default=0)
                point = _point(before, axis == "bits", with_float, with_levels=largest)
                same.append((recipe, point))
            yield point | dict(zip(KEY, key, strict=True))


def chosen_recipe(case: UseCase, name: str, axis: str, value: int | str, n_classes: int) -> Recipe:
    """The recipe for a value on an axis, as ``n3ic train`` chooses it."""
    recipe = TrainRequest(
        case.name,
        recipe=name,
        overrides={"bits": value} if axis == "bits" else {},
        budget_bytes=int(value) if axis == "bytes" else None,
    ).chosen_recipe(case, n_classes)
    if axis != "sites":
        return recipe
    trees, leaves = map(int, str(value).split("x"))
    forest = replace(VOTING_TREES.training, trees=trees, leaves=leaves)
    return replace(VOTING_TREES, columns=recipe.columns, training=forest)


def _prepared(experiment: Experiment, before: Prepared | None) -> Prepared:
    """Prepare rows and bits; forests share them, and networks of a seed share boosted trees."""
    if before and experiment.recipe.training.method == "trees":
        last, plain = before.experiment.recipe, Training()
        if replace(last, training=plain) == replace(experiment.recipe, training=plain):
            return replace(before, experiment=experiment)
    return prepare(experiment, lambda _: None, before.trees if before else None)


def _point(
    prepared: Prepared, with_others: bool, with_float: bool, with_levels: bool = False
) -> Point:
    """A network's size, its accuracy, and the accuracies of the baselines."""
    result = train_prepared(prepared, TrainingProgress())
    model = binary_network(result.model)
    test, seed = prepared.test, prepared.experiment.seed
    forest = prepared.experiment.recipe.training.method == "trees"

    def accuracies(predicted: NDArray[np.int64]) -> list[float | None]:
        right = predicted == test.label
        unseen = right[prepared.unseen]
        return [float(right.mean()), float(unseen.mean()) if len(unseen) else None]

    test_accuracies = {
        "forest" if forest else "binary": accuracies(result.test_scores["model"].argmax(1))
    }
    simple = simplify(model).model  # drops the cuts at which no tree splits
    point: Point = {
        "shape": list(model.shape),
        "bytes": {"forest" if forest else "binary": model.total_bytes},
        "kept": result.model.provenance.get("weights", "trained"),
        "cuts": (simple if forest else model).input.n_cuts,
        "sites": estimate(simple).lut_sites,
        "validation": result.validation.accuracy,
        "test": test_accuracies,
    }
    train, hidden = prepared.train, prepared.experiment.recipe.training.hidden
    n_classes, size = len(prepared.experiment.table.classes), point["bytes"]
    if budget := prepared.experiment.budget:
        for name, trees in trees_within(prepared, budget):
            of = "tree" if name == TREE else "voting"
            test_accuracies[of] = accuracies(trees.votes(test.columns).argmax(axis=1))
            size[of] = len(trees.data)
    if with_levels:
        trees = random_forest(train.columns, train.label, n_classes, seed)
        test_accuracies["random_forest"] = accuracies(trees.votes(test.columns).argmax(axis=1))
        size["random_forest"] = len(trees.data)
    if prepared.trees is not None and (with_others or with_levels):
        boosted = prepared.trees.predict(test.columns)
        test_accuracies["hist_gradient_boosting"] = accuracies(boosted)
    if not with_others:
        return point
    cuts = prepared.spec.n_cuts  # if a tree was kept as the network, it may need fewer
    tree = best_first_tree(train.columns, train.label, cuts, seed)
    test_accuracies["tree_same_cuts"] = accuracies(tree.predict(test.columns))
    classes = tree.classes_
    grown = split_tree(tree.tree_, lambda share: classes[share.argmax(axis=1)])
    size["tree_same_cuts"] = len(packed([grown], n_classes).data)
    if with_float:
        mlp = float_mlp(train, prepared.validation, test, n_classes, hidden, seed)
        test_accuracies["float_mlp"] = accuracies(mlp.predicted)
        size["float_mlp"] = model.float_weight_bytes + model.input_bytes
    return point


def _spread(values: Iterable[float | None]) -> tuple[float, float] | None:
    numbers = [100 * v for v in values if v is not None]
    if not numbers:
        return None
    return float(np.mean(numbers)), float(np.std(numbers, ddof=1)) if len(numbers) > 1 else 0.0


def summary(points: Sequence[Point], recipe: str, axis: str) -> list[str]:
    """A Markdown table of means and deviations over the seeds, on all and on unseen test rows."""
    mine = [p for p in points if p["axis"] == axis]
    names = [name for name in SERIES if any(name in p["test"] for p in mine)]
    head = [f"{recipe}: {AXES[axis]}", "shape", "bytes", "cuts", "sites", "seeds"]
    lines = []
    for value in sorted({p["asked"] for p in mine}, key=lambda v: [*map(int, str(v).split("x"))]):
        group = [p for p in mine if p["asked"] == value]
        cells = []
        for name in names:
            accuracies = [p["test"][name] for p in group if name in p["test"]]
            both = [_spread(accuracy[i] for accuracy in accuracies) for i in (0, 1)]
            deviates = len(accuracies) > 1
            cell = " / ".join(f"{s[0]:.2f}" + f" +- {s[1]:.2f}" * deviates for s in both if s)
            cells.append(cell + f" (of {len(accuracies)})" * (0 < len(accuracies) < len(group)))
        shapes = Counter("-".join(map(str, p["shape"])) for p in group)
        shape = shapes.most_common(1)[0][0] if axis != "sites" else ""
        own = [p["bytes"]["forest" if axis == "sites" else "binary"] for p in group]
        others = ([p[of] for p in group] for of in ("cuts", "sites"))
        sizes = [f"{np.mean(of):,.0f}" for of in (own, *others)]
        lines.append([str(value), shape, *sizes, str(len(group)), *cells])
    return [*table([*head, *(SERIES[n] for n in names)], lines), ""] if lines else []


@styled
def figure(points: Sequence[Point], titles: Mapping[str, str]) -> Figure:
    """Draw accuracy on the test rows against bits, bytes and sites, a column per recipe."""
    rows = 1 + (len({p["axis"] for p in points}) > 1) * 2
    page = new_page(7.0 * len(titles), 14 if rows > 1 else 5.6)
    grid = page.subplots(rows, len(titles), squeeze=False, sharey="col")
    for column, (recipe, title) in zip(grid.T, titles.items(), strict=True):
        _column(column, [p for p in points if p["recipe"] == recipe])
        column[0].set_title(plain(title, 60))
    for axes in grid[:, 0]:
        axes.set_ylabel("accuracy on the test rows, %")
    legend(page)
    return page


def _column(pictures: Sequence[Axes], points: Sequence[Point]) -> None:
    bits, budgets, forests = ([p for p in points if p["axis"] == axis] for axis in AXES)
    level = {}
    for name in LEVELS:
        if accuracies := [p["test"][name][0] for p in points if name in p["test"]]:
            level[SERIES[name]] = float(np.mean(accuracies))
    curves = [name for name in SERIES if name not in LEVELS]
    by_bits = [s for name in curves for s in _sized(bits, name, lambda p, _: p["asked"])]
    by_bytes = [
        s
        for of, names in ((budgets, ("binary", "tree", "voting")), (bits, ("float_mlp",)))
        for name in names
        for s in _sized(of, name, lambda p, name: p["bytes"][name])
    ]
    by_sites = [s for of, name in ((budgets, "binary"), (forests, "forest"))
                for s in _sized(of, name, lambda p, _: p["sites"])]  # fmt: skip
    places: tuple[tuple[list[SizePoint], dict[str, float], str], ...] = (
        (by_bits, {}, "input bits (comparisons)"),
        (by_bytes, level, "bytes in total, cuts included"),
        (by_sites, level, "LUT sites, unrolled (estimated)"),
    )
    order = tuple(SERIES.values())
    shown_places = [place for place in places if place[0]]
    for axes, (sizes, levels, name) in zip(pictures, shown_places, strict=False):
        draw_accuracy(axes, sizes, "size", levels=levels, order=order)
        axes.set_xlabel(name)


def _sized(
    points: Sequence[Point], name: str, at: Callable[[Point, str], float]
) -> list[SizePoint]:
    """The points of a kind of network, grouped over the seeds, at their mean size."""
    out = []
    for value in dict.fromkeys(p["asked"] for p in points):
        mine = [p for p in points if p["asked"] == value and name in p["test"]]
        if mine:
            size = float(np.mean([at(p, name) for p in mine]))
            accuracies = tuple(p["test"][name][0] for p in mine)
            out.append(SizePoint({"size": size}, accuracies, SERIES[name]))
    return out


if __name__ == "__main__":
    sys.exit(main())
