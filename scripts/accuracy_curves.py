r"""Accuracy against input bits and bytes of weights, beside trees, boosting and float networks.

Each point is a training of its own whose test rows are looked at once; its figures are one line of
``points.jsonl``. What is there already is not trained again, so that an interrupted call goes on
where it was. The picture and the tables are drawn from all points:

    python scripts/accuracy_curves.py anomaly curves --recipe published \
        --data UNSW_NB15_testing-set.csv --seeds 101 202 303 404 505
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from n3ic.options import parse_options
from n3ic.runs.experiment import train_prepared
from n3ic.runs.plots import save
from n3ic.runs.preparation import Experiment, Prepared, prepare
from n3ic.runs.progress import TrainingProgress
from n3ic.usecases.base import use_case
from n3ic.usecases.request import TrainRequest
from n3ic.util.markdown import table

BITS = (4, 8, 16, 32, 64, 128, 256)
BYTES = (16, 32, 64, 128, 256, 512, 1092, 4096)
# Names, and colours (Okabe and Ito), marks and dashes that tell them apart in grey, too.
SERIES = {
    "binary": ("binary network", "#0072B2", "o", "-"),
    "tree_same_cuts": ("tree of as many cuts", "#E69F00", "s", "--"),
    "float_mlp": ("float network of that shape", "#009E73", "^", "-."),
    "hist_gradient_boosting": ("gradient boosting", "#CC79A7", "D", ":"),
}
Point = dict[str, Any]


def main() -> int:
    """Train what is missing, then draw."""
    asked = _asked()
    asked.out.mkdir(parents=True, exist_ok=True)
    log = asked.out / "points.jsonl"
    points = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    with log.open("a", encoding="utf-8") as file:
        for point in measured(asked, {_key(p) for p in points}):
            points.append(point)
            file.write(json.dumps(point) + "\n")
            file.flush()
    order = {"bits": 0, "bytes": 1}
    points.sort(key=lambda p: (order[p["axis"]], p["asked"], p["seed"]))
    text = "\n".join(line for axis in order for line in summary(points, axis))
    (asked.out / "curves.md").write_text(text + "\n", encoding="utf-8")
    save(figure(points, asked.title or asked.use_case), asked.out, "curves")
    print(text)
    return 0


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("use_case")
    parser.add_argument("out", type=Path, help="folder of points.jsonl, curves.md and curves.png")
    parser.add_argument("--recipe", default="default")
    parser.add_argument("--data")
    parser.add_argument("--dataset")
    parser.add_argument("--task", default="", help="one of the use case's networks, by name")
    parser.add_argument("--protocol", default="random")
    parser.add_argument("--bits", type=int, nargs="*", default=BITS)
    parser.add_argument("--bytes", type=int, nargs="*", default=BYTES)
    parser.add_argument("--seeds", type=int, nargs="+", default=(101, 202, 303, 404, 505))
    parser.add_argument("--float-seeds", type=int, default=5, help="so many have a float network")
    parser.add_argument("--title", default="")
    return parser.parse_args()


def _key(point: Point) -> tuple[str, int, int]:
    return point["axis"], point["asked"], point["seed"]


def measured(asked: argparse.Namespace, done: set[tuple[str, int, int]]) -> Iterator[Point]:
    """Points that are not done yet, seed by seed; boosted trees are fitted once a seed."""
    case = use_case(asked.use_case)
    options = parse_options(case.options, {}, case.name)
    rows = case.tasks(case.load(asked.data, asked.dataset, options, print), options)[asked.task]
    wanted = [("bits", n) for n in asked.bits] + [("bytes", n) for n in asked.bytes]
    for place, seed in enumerate(asked.seeds):
        before: Prepared | None = None
        for axis, value in wanted:
            if (axis, value, seed) in done:
                continue
            print(f"seed {seed}: {value} {axis}", file=sys.stderr, flush=True)
            request = TrainRequest(
                case.name,
                recipe=asked.recipe,
                overrides={"bits": value} if axis == "bits" else {},
                budget_bytes=value if axis == "bytes" else None,
            )
            recipe = request.chosen_recipe(case, len(rows.classes))
            this = Experiment(rows, recipe, asked.protocol, seed)
            before = prepare(this, lambda _: None, before.trees if before else None)
            with_float = axis == "bits" and place < asked.float_seeds
            this = replace(this, with_baselines=with_float)
            result = train_prepared(replace(before, experiment=this), TrainingProgress())
            found = {"binary": result.test, **result.baselines}
            yield {
                "axis": axis,
                "asked": value,
                "seed": seed,
                "shape": list(result.model.shape),
                "weight_bytes": result.model.weight_bytes,
                "cuts": result.model.input.n_cuts,
                "validation": result.validation.accuracy,
                "test": {n: [e.accuracy, e.accuracy_unseen] for n, e in found.items()},
            }


def _spread(values: Iterable[float | None]) -> tuple[float, float] | None:
    numbers = [100 * v for v in values if v is not None]
    if not numbers:
        return None
    return float(np.mean(numbers)), float(np.std(numbers, ddof=1)) if len(numbers) > 1 else 0.0


def summary(points: Sequence[Point], axis: str) -> list[str]:
    """A Markdown table: mean and deviation over the seeds, all test rows and those unseen."""
    of = {"bits": "input bits", "bytes": "bytes asked for"}[axis]
    head = [of, "shape", "weights B", "cuts", "seeds"]
    head += [label for label, *_ in SERIES.values()]
    lines = []
    for value in sorted({p["asked"] for p in points if p["axis"] == axis}):
        mine = [p for p in points if (p["axis"], p["asked"]) == (axis, value)]
        cells = []
        for name in SERIES:
            both = [_spread(p["test"][name][i] for p in mine if name in p["test"]) for i in (0, 1)]
            cells.append(" / ".join(f"{s[0]:.2f} +- {s[1]:.2f}" for s in both if s is not None))
        shape = "-".join(map(str, mine[0]["shape"]))
        sizes = [str(value), shape, f"{mine[0]['weight_bytes']:,}", str(mine[0]["cuts"])]
        lines.append([*sizes, str(len(mine)), *cells])
    return table(head, lines) if lines else []


def figure(points: Sequence[Point], title: str) -> Figure:
    """Accuracy on the test rows against input bits and against bytes of weights."""
    drawn = Figure(figsize=(11, 4.5), layout="constrained")
    left, right = drawn.subplots(1, 2, sharey=True)
    bits = [p for p in points if p["axis"] == "bits"]
    for name in SERIES:
        _curve(left, bits, "asked", name)
    for name in ("binary", "tree_same_cuts"):
        _curve(right, points, "weight_bytes", name)  # networks of so many bits have bytes, too
    left.set_xlabel("input bits (comparisons)")
    right.set_xlabel("bytes of weights")
    left.set_ylabel("accuracy on the test rows, %")
    left.legend(fontsize="small", loc="lower right")
    for axes in (left, right):
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(lambda x, _: f"{x:,.0f}")
        axes.grid(alpha=0.3)
    drawn.suptitle(title.replace("$", r"\$"))
    return drawn


def _curve(axes: Axes, points: Sequence[Point], at: str, name: str) -> None:
    """Mean over the seeds, and a bar of one deviation either way."""
    label, colour, mark, dashes = SERIES[name]
    places = []
    for group in {(p["axis"], p["asked"]) for p in points}:
        mine = [p for p in points if (p["axis"], p["asked"]) == group and name in p["test"]]
        spread = _spread(p["test"][name][0] for p in mine)
        if spread is not None:
            places.append((float(np.mean([p[at] for p in mine])), *spread))
    if places:
        x, y, deviation = zip(*sorted(places), strict=True)
        style: dict[str, Any] = {"color": colour, "marker": mark, "linestyle": dashes}
        axes.errorbar(x, y, yerr=deviation, label=label, capsize=3, markersize=5, **style)


if __name__ == "__main__":
    sys.exit(main())
