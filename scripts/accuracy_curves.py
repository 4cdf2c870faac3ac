# SPDX-License-Identifier: Apache-2.0

r"""Accuracy against input bits, bytes and LUT sites, beside trees, boosting and float networks.

Each point is a training of its own whose test rows are looked at once; its figures are one line of
``points.jsonl``. What is there already is not trained again, so that an interrupted call goes on
where it was. The picture and the tables are drawn from all points:

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
from n3ic.model.network import binary_network
from n3ic.model.passes import simplify
from n3ic.options import parse_options
from n3ic.runs.experiment import train_prepared
from n3ic.runs.pictures import SizePoint, draw_accuracy
from n3ic.runs.preparation import Experiment, Prepared, prepare
from n3ic.runs.progress import TrainingProgress
from n3ic.training.baselines import best_first_tree, float_mlp
from n3ic.training.recipe import Recipe, Training
from n3ic.training.recipes import TABLES
from n3ic.usecases.base import UseCase, use_case
from n3ic.usecases.request import TrainRequest
from n3ic.util.markdown import table
from n3ic.util.pictures import legend, new_page, plain, save, styled

BITS = (4, 8, 16, 32, 64, 128, 256)
BYTES = (16, 32, 64, 128, 256, 512, 1092, 4096)
FORESTS = ("1x50", "1x200", "1x400", "3x400", "7x400")  # trees x leaves
AXES = {"bits": "input bits", "bytes": "bytes asked for", "sites": "trees x leaves"}
SERIES = {
    "binary": "binary network",
    "forest": "trees in look-up tables",
    "tree_same_cuts": "tree of as many cuts",
    "float_mlp": "float network",
    "hist_gradient_boosting": "boosted trees",
}
FLOAT, CUT = 32, 4  # times the bytes of as many weights of one bit; bytes of a cut
Point = dict[str, Any]
KEY = ("recipe", "axis", "asked", "seed")
Key = tuple[Any, ...]


def main() -> int:
    """Train what is missing, then draw."""
    asked = _asked()
    asked.out.mkdir(parents=True, exist_ok=True)
    log = asked.out / "points.jsonl"
    points = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    with log.open("a", encoding="utf-8") as file:
        for point in measured(asked, {_key(p): p for p in points}):
            points.append(point)
            file.write(json.dumps(point) + "\n")
            file.flush()
    text = "\n".join(
        line
        for name in asked.recipe
        for axis in AXES
        for line in summary([p for p in points if p["recipe"] == name], name, axis)
    )
    (asked.out / "curves.md").write_text(text, encoding="utf-8")
    titles = dict(zip(asked.recipe, asked.titles or asked.recipe, strict=True))
    save(figure(points, titles), asked.out, "curves")
    print(text)
    return 0


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("use_case")
    parser.add_argument("out", type=Path, help="folder of points.jsonl, curves.md and curves.png")
    parser.add_argument(
        "--recipe", nargs="+", default=["default"], help="a column of pictures each"
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


def measured(asked: argparse.Namespace, done: Mapping[Key, Point]) -> Iterator[Point]:
    """Points that are not done yet, seed by seed; boosted trees are fitted once a seed."""
    case = use_case(asked.use_case)
    options = parse_options(case.options, {}, case.name)
    rows = case.tasks(case.load(asked.data, asked.dataset, options, print), options)[asked.task]
    wanted: list[tuple[str, Any]] = [("bits", n) for n in asked.bits]
    wanted += [("bytes", n) for n in asked.bytes] + [("sites", n) for n in asked.forests]
    for name, seed in ((name, seed) for seed in asked.seeds for name in asked.recipe):
        with_float = seed in asked.seeds[: asked.float_seeds]
        before: Prepared | None = None
        same: list[tuple[Recipe, Point]] = []
        for axis, value in wanted:
            recipe = chosen(case, name, axis, value, len(rows.classes))
            key = name, axis, value, seed
            if key in done:
                same.append((recipe, done[key]))
                continue
            point = next((p for r, p in same if r == recipe), None)
            if point is not None:  # a budget whose network is that of a number of bits
                point = point | {"test": {"binary": point["test"]["binary"]}}
            else:
                print(f"{name}, seed {seed}: {value} {axis}", file=sys.stderr, flush=True)
                this = Experiment(rows, recipe, asked.protocol, seed, with_baselines=False)
                before = _prepared(this, before)
                point = _point(before, axis == "bits", with_float)
                same.append((recipe, point))
            yield point | dict(zip(KEY, key, strict=True))


def chosen(case: UseCase, name: str, axis: str, value: int | str, n_classes: int) -> Recipe:
    """What is trained for a place on an axis, as ``n3ic train`` chooses it."""
    recipe = TrainRequest(
        case.name,
        recipe=name,
        overrides={"bits": value} if axis == "bits" else {},
        budget_bytes=int(value) if axis == "bytes" else None,
    ).chosen_recipe(case, n_classes)
    if axis != "sites":
        return recipe
    trees, leaves = map(int, str(value).split("x"))
    forest = replace(TABLES.training, trees=trees, leaves=leaves)
    return replace(TABLES, columns=recipe.columns, training=forest)


def _prepared(this: Experiment, before: Prepared | None) -> Prepared:
    """Rows and bits; forests share them, and all networks of a seed the boosted trees."""
    if before and this.recipe.training.method == "trees":
        last, plain = before.experiment.recipe, Training()
        if replace(last, training=plain) == replace(this.recipe, training=plain):
            return replace(before, experiment=this)
    return prepare(this, lambda _: None, before.trees if before else None)


def _point(prepared: Prepared, with_others: bool, with_float: bool) -> Point:
    """A network's size, its accuracy, and that of what it is compared with."""
    result = train_prepared(prepared, TrainingProgress())
    model = binary_network(result.model)
    test, seed = prepared.test, prepared.experiment.seed
    forest = prepared.experiment.recipe.training.method == "trees"

    def accuracies(predicted: NDArray[np.int64]) -> list[float | None]:
        right = predicted == test.label
        unseen = right[prepared.unseen]
        return [float(right.mean()), float(unseen.mean()) if len(unseen) else None]

    found = {"forest" if forest else "binary": accuracies(result.test_scores["model"].argmax(1))}
    simple = simplify(model).model  # without the cuts that no tree splits at
    point: Point = {
        "shape": list(model.shape),
        "weight_bytes": model.weight_bytes + model.mask_bytes,
        "cuts": (simple if forest else model).input.n_cuts,
        "sites": estimate(simple).lut_sites,
        "validation": result.validation.accuracy,
        "test": found,
    }
    if not with_others:
        return point
    train, hidden = prepared.train, prepared.experiment.recipe.training.hidden
    cuts = prepared.spec.n_cuts  # a tree that was kept as the network may need fewer
    tree = best_first_tree(train.columns, train.label, cuts, seed)
    found["tree_same_cuts"] = accuracies(tree.predict(test.columns))
    point["tree_bytes"] = tree_bytes(cuts, int(tree.get_n_leaves()))
    if with_float:
        parts = train, prepared.validation, test
        mlp = float_mlp(*parts, len(prepared.experiment.table.classes), hidden, seed)
        found["float_mlp"] = accuracies(mlp.predicted)
    if prepared.trees is not None:
        boosted = prepared.trees.predict(test.columns)
        found["hist_gradient_boosting"] = accuracies(boosted)
    return point


def tree_bytes(cuts: int, leaves: int) -> int:
    """Bytes of a tree's splits, tightly packed: which cut, and where the farther child lies."""
    return -(-(leaves - 1) * ((cuts - 1).bit_length() + (2 * leaves - 2).bit_length()) // 8)


def _spread(values: Iterable[float | None]) -> tuple[float, float] | None:
    numbers = [100 * v for v in values if v is not None]
    if not numbers:
        return None
    return float(np.mean(numbers)), float(np.std(numbers, ddof=1)) if len(numbers) > 1 else 0.0


def summary(points: Sequence[Point], recipe: str, axis: str) -> list[str]:
    """A Markdown table: mean and deviation over the seeds, all test rows and those unseen."""
    mine = [p for p in points if p["axis"] == axis]
    names = [name for name in SERIES if any(name in p["test"] for p in mine)]
    head = [f"{recipe}: {AXES[axis]}", "shape", "weights, masks B", "cuts", "sites", "seeds"]
    lines = []
    for value in sorted({p["asked"] for p in mine}, key=lambda v: [*map(int, str(v).split("x"))]):
        group = [p for p in mine if p["asked"] == value]
        cells = []
        for name in names:
            found = [p["test"][name] for p in group if name in p["test"]]
            both = [_spread(accuracy[i] for accuracy in found) for i in (0, 1)]
            deviates = len(found) > 1
            cell = " / ".join(f"{s[0]:.2f}" + f" +- {s[1]:.2f}" * deviates for s in both if s)
            cells.append(cell + f" (of {len(found)})" * (0 < len(found) < len(group)))
        shapes = Counter("-".join(map(str, p["shape"])) for p in group)
        shape = shapes.most_common(1)[0][0] if axis != "sites" else ""
        sizes = [
            f"{np.mean([p[of] for p in group]):,.0f}" for of in ("weight_bytes", "cuts", "sites")
        ]
        lines.append([str(value), shape, *sizes, str(len(group)), *cells])
    return [*table([*head, *(SERIES[n] for n in names)], lines), ""] if lines else []


@styled
def figure(points: Sequence[Point], titles: Mapping[str, str]) -> Figure:
    """Accuracy on the test rows against bits, bytes and sites; a column of pictures a recipe."""
    drawn = new_page(7.0 * len(titles), 14)
    grid = drawn.subplots(3, len(titles), squeeze=False, sharey="col")
    for column, (recipe, title) in zip(grid.T, titles.items(), strict=True):
        _column(column, [p for p in points if p["recipe"] == recipe])
        column[0].set_title(plain(title, 60))
    for axes in grid[:, 0]:
        axes.set_ylabel("accuracy on the test rows, %")
    legend(drawn)
    return drawn


def _column(pictures: Sequence[Axes], points: Sequence[Point]) -> None:
    bits, budgets, forests = ([p for p in points if p["axis"] == axis] for axis in AXES)
    boosted = [p["test"]["hist_gradient_boosting"][0] for p in bits
               if "hist_gradient_boosting" in p["test"]]  # fmt: skip
    level = {SERIES["hist_gradient_boosting"]: float(np.mean(boosted))} if boosted else {}
    by_bits = [s for name in SERIES for s in _sized(bits, name, lambda p: p["asked"])]
    by_bytes = [
        *_sized(budgets, "binary", lambda p: p["weight_bytes"] + CUT * p["cuts"]),
        *_sized(bits, "tree_same_cuts", lambda p: p["tree_bytes"] + CUT * p["cuts"]),
        *_sized(bits, "float_mlp", lambda p: FLOAT * p["weight_bytes"] + CUT * p["cuts"]),
    ]
    by_sites = [s for of, name in ((budgets, "binary"), (forests, "forest"))
                for s in _sized(of, name, lambda p: p["sites"])]  # fmt: skip
    places: tuple[tuple[list[SizePoint], dict[str, float], str], ...] = (
        (by_bits, {}, "input bits (comparisons)"),
        (by_bytes, level, "bytes of weights (a tree: of splits) and cuts"),
        (by_sites, level, "LUT sites, unrolled (estimated)"),
    )
    order = tuple(SERIES.values())
    for axes, (found, levels, name) in zip(pictures, places, strict=True):
        if found:
            draw_accuracy(axes, found, "size", levels=levels, order=order)
        axes.set_xlabel(name)


def _sized(points: Sequence[Point], name: str, at: Callable[[Point], float]) -> list[SizePoint]:
    """The points of a kind of network, those of several seeds together, at their mean size."""
    out = []
    for asked in dict.fromkeys(p["asked"] for p in points):
        mine = [p for p in points if p["asked"] == asked and name in p["test"]]
        if mine:
            size = float(np.mean([at(p) for p in mine]))
            accuracies = tuple(p["test"][name][0] for p in mine)
            out.append(SizePoint({"size": size}, accuracies, SERIES[name]))
    return out


if __name__ == "__main__":
    sys.exit(main())
