# SPDX-License-Identifier: Apache-2.0
"""A small network on times, rates and sizes, trained within a second, and its table."""

import numpy as np
import pytest

from n3ic.data.table import Feature, FlowTable
from n3ic.runs.experiment import train
from n3ic.runs.experiment_spec import Experiment
from n3ic.training.recipe import Recipe, Training

pytest.importorskip("torch")


def feature(name, unit):
    return Feature(name, name, unit, unit, 1.0, 32, True, "")


CATALOGUE = (
    feature("rtt", "us"),
    feature("load", "kbit/s"),
    feature("bytes", "byte"),
    feature("noise", "byte"),
)


def flows(rows=3000, seed=0, share=0.5, slower=1.0):
    """Flows whose attacks answer fast and are small; a slower site has longer times."""
    rng = np.random.default_rng(seed)
    label = (rng.random(rows) < share).astype(np.int64)
    rtt = np.where(label, rng.gamma(4, 100, rows), rng.gamma(4, 250, rows)) * slower
    size = np.where(label, rng.gamma(3, 300, rows), rng.gamma(3, 700, rows))
    columns = {
        "rtt": rtt,
        "load": 8000 * size / (rtt + 1),
        "bytes": size,
        "noise": rng.integers(0, 1000, rows),
    }
    category = np.where(label, np.where(rtt < 350 * slower, "flood", "probe"), "none")
    return FlowTable(
        "flows", {n: np.rint(v).astype(np.int64) for n, v in columns.items()}, CATALOGUE, label,
        ("benign", "attack"), False, f"sha{seed}{rows}{share}{slower}", category=category,
        time_order=True,
    )  # fmt: skip


RECIPE = Recipe(
    "small", "a small one", encoding="quantile", bits=32, training=Training(hidden=(12,), epochs=6)
)


def trained(table, seed=0, **changed):
    experiment = Experiment(table, RECIPE.with_options(changed), seed=seed, with_baselines=False)
    return train(experiment).model
