# SPDX-License-Identifier: Apache-2.0
"""Sweeps: which networks are asked for, what is kept of them, and which are worth their cost."""

import csv
import io
import json
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from n3ic import sweep
from n3ic.cli.console import show_table
from n3ic.datasets.ns3_tomography import DATASET
from n3ic.datasets.ns3_tomography.table import queue_tables
from n3ic.errors import UsageError
from n3ic.evaluation.study import csv_text, page_text
from n3ic.runs.progress import TrainingProgress
from n3ic.studies.sweep import training
from n3ic.studies.sweep.commands import _options, _whole_numbers, swept
from n3ic.studies.sweep.folder import SweepFolder
from n3ic.studies.sweep.request import BUDGETS, SweepNetwork, SweepRequest, sweep_networks
from n3ic.studies.sweep.result import SeedFigures, Sweep, points_of
from n3ic.usecases.base import use_case
from n3ic.usecases.request import TrainRequest
from n3ic.usecases.training_data import TrainingData

QUICK = {"encoding": "quantile", "distill": 0.0, "epochs": 1}


@pytest.fixture(scope="module")
def table(small_baselines):
    return DATASET.load().rows(np.arange(600))


def material(table):
    case = use_case("tomography")
    tasks = queue_tables(table, "0")
    return TrainingData(case, {"queue": "0"}, table, tasks, ("time", "random"))


def networks(table, axes, **more):
    request = SweepRequest(TrainRequest("tomography", data="x.tomo.xz", **more), axes)
    return sweep_networks(request, material(table))


def test_values_are_tried_with_one_another(table):
    candidates, refused = networks(table, {"density": (1.0, 0.5), "hidden": ((8,), (16, 8))})
    assert refused == []
    assert [(n.recipe.training.density, n.recipe.training.hidden) for n in candidates] == [
        (1.0, (8,)),
        (1.0, (16, 8)),
        (0.5, (8,)),
        (0.5, (16, 8)),
    ]
    assert {"--density=0.5", "--hidden=16,8", "--seed=0"} <= {*candidates[3].command}


def test_equal_networks_are_trained_once_and_what_cannot_be_is_said(table):
    recipe = use_case("tomography").recipes["default"]
    candidates, _ = networks(table, {"hidden": (recipe.training.hidden,), "epochs": (7, 7)})
    assert len(candidates) == 1
    candidates, refused = networks(table, {"budget_bytes": (8, 512), "bits": (64,)})
    assert len(candidates) == 1
    assert refused[0].startswith("left out budget bytes 8, bits 64: 8 bytes hold no network")
    with pytest.raises(UsageError, match="none of these networks is possible; left out"):
        networks(table, {"budget_bytes": (8,), "bits": (64,)})
    with pytest.raises(UsageError, match="not choose the size of family spn"):
        networks(table, {"budget_bytes": (512,), "family": ("spn",)})


def test_budgets_are_tried_where_nothing_is_named():
    def grid(axes, **base):
        return SweepRequest(TrainRequest("anomaly", **base), axes).grid

    assert grid({"epochs": (3,)}) == {"budget_bytes": BUDGETS, "epochs": (3,)}
    for axes in ({"density": (0.5, 1.0)}, {"bits": (8,)}, {"hidden": ((8,),)}):
        assert grid(axes) == axes
    with pytest.raises(UsageError, match="'seed' cannot be swept; expected one of recipe"):
        grid({"seed": (1, 2)})
    with pytest.raises(UsageError, match="hidden has no value"):
        grid({"hidden": ()})
    with pytest.raises(UsageError, match="40,000 networks; expected at most"):
        grid({"epochs": range(1, 201), "polish": range(200)})


def test_lists_are_typed_with_commas_and_shapes_with_dashes():
    typed = {"hidden": "32,64-16", "density": "1, .5,1", "columns": "a,b", "batch-norm": True}
    axes, fixed = swept(typed)
    assert axes == {"hidden": ((32,), (64, 16)), "density": (1.0, 0.5)}
    assert fixed == {"columns": ("a", "b"), "batch_norm": True}
    for typed, message in (
        ({"hidden": "32,x"}, "numbers such as"),
        ({"bits": ","}, "no value to try"),
        ({"density": "1,x"}, "not of type float"),
    ):
        with pytest.raises(UsageError, match=message):
            swept(typed)


def test_other_lists_are_checked_too():
    assert _whole_numbers("budget-bytes", "256, 512,256") == (256, 512)
    for text in ("", "0", "256,x", "9" * 5000, "-1", "\u0663"):
        with pytest.raises(UsageError, match="--budget-bytes: numbers such as 256,512 expected"):
            _whole_numbers("budget-bytes", text)
    assert _options("style=unrolled,pipeline=2") == {"style": "unrolled", "pipeline": "2"}
    with pytest.raises(UsageError, match="expected, got 'style'"):
        _options("style")


def made(*points):
    """A sweep of points, each given as (bytes of weights, sites, latency, validation, test)."""
    done = []
    for i, (weights, sites, latency, validation, test) in enumerate(points):
        runs = tuple(
            SeedFigures(
                (8, 2), "ab", {"weight_bytes": weights, "total_bytes": weights + 5}, sites, latency,
                v, t, {"tree, packed": (weights + 3, v - 0.1)},
            )
            for v, t in zip(validation, test, strict=True)
        )  # fmt: skip
        done.append(
            (
                SweepNetwork({"bits": i, "seed": "$x|<i>"}, None, ("n3ic", "train", f"{i} x")),
                {"": runs},
            )
        )
    return Sweep("s", "title", points_of(done), "target t", ("left out x",))


def test_fronts_are_chosen_on_validation_rows_and_test_rows_told_of_them_alone():
    sweep_result = made(
        (100, 50, None, (0.8, 0.9), (0.1, 0.2)),
        (200, 40, None, (0.8, 0.8), (1.0, 1.0)),
        (10, 60, None, (0.5, 0.7), (0.3, 0.3)),
        (300, 70, None, (0.8, 0.9), (0.99, 0.99)),
    )
    assert [p.values["bits"] for p in sweep_result.points] == [2, 0, 1, 3]  # by bytes
    assert [p.costs["bytes"] for p in sweep_result.points] == [15, 105, 205, 305]
    assert "latency_ns" not in sweep_result.points[0].costs
    fronts = {c: [p.values["bits"] for p in front] for c, front in sweep_result.fronts.items()}
    assert fronts == {"bytes": [2, 0], "sites": [1, 0], "latency_ns": []}
    by_bits = {p["values"]["bits"]: p for p in sweep_result.to_dict()["points"]}
    assert by_bits[3]["test"] is None
    assert by_bits[3]["front"] == []
    assert by_bits[1]["test"]["mean"] == 1.0
    spread = by_bits[0]["validation"]
    assert spread["values"] == [0.8, 0.9]
    assert (spread["mean"], spread["std"]) == pytest.approx((0.85, 0.05 * 2**0.5))
    tree = by_bits[0]["beside"]["tree, packed"]
    assert tree["bytes"] == 103 and tree["validation"]["mean"] == pytest.approx(0.75)
    assert "103 B: 75.00 +- 7.07" in page_text(sweep_result)
    lines = csv_text(sweep_result).decode()
    assert "99.00" not in lines + sweep_result._repr_html_() + page_text(sweep_result)
    rows = list(csv.DictReader(io.StringIO(lines)))
    assert [r["command"] for r in rows] == [f"n3ic train '{i} x'" for i in (2, 0, 1, 3)]
    assert (rows[3]["test_mean"], rows[1]["front"]) == ("", "bytes sites")


def test_a_sweep_stands_in_80_columns_and_names_are_escaped():
    sweep_result = made(*[(10**6 + i, 10**6, 1e6, (0.8, 1.0), (0.5, 0.6)) for i in range(12)])
    out = io.StringIO()
    screen = Console(file=out, width=80, force_terminal=True, color_system=None)
    for each in sweep_result.tables:
        show_table(each, screen)
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert any("1,000,005*" in line for line in lines)
    assert "<i>" not in sweep_result._repr_html_()
    assert repr(sweep_result).startswith("<Sweep title, 12 networks, 1 on fronts")


def test_several_networks_add_up_and_their_median_counts():
    figures = SeedFigures((8, 2), "ab", {"total_bytes": 8}, 5.0, 10.0, 0.5, 0.6)
    runs = {"a": (figures,), "b": (replace(figures, latency_ns=30.0, validation=0.9),)}
    (point,) = points_of([(SweepNetwork({"bits": 1}, None, None), runs)])
    assert point.costs == {"bytes": 16, "sites": 10, "latency_ns": 30}
    assert point.validation == (0.7,)


def asked(table, out, axes=None, **more):
    notes = []
    sweep_result = sweep(
        "tomography",
        axes or {"hidden": ((8,), (4,))},
        data=table,
        options={"queue": "0"},
        overrides=QUICK,
        jobs=1,
        out=out,
        progress=TrainingProgress(note=notes.append),
        **more,
    )
    return sweep_result, notes


def content(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir()}


@pytest.mark.slow
def test_a_sweep_goes_on_where_it_was_and_ends_the_same(table, tmp_path, monkeypatch):
    measure = training.measure
    calls: list[object] = []

    def once(*arguments):
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return measure(*arguments)

    monkeypatch.setattr(training, "parallel_map", lambda f, c, **_: enumerate(once(*a) for a in c))
    with pytest.raises(KeyboardInterrupt):
        asked(table, tmp_path / "new" / "sweep")
    files = content(tmp_path / "new" / "sweep")
    assert sorted(files)[1:] == ["sweep.json"]
    point = next(name for name in files if name.startswith("point-"))
    sweep_result, notes = asked(table, tmp_path / "new" / "sweep")
    assert notes == ["1 of 2 networks were trained before; going on"]
    assert len(calls) == 3
    assert content(tmp_path / "new" / "sweep")[point] == files[point]
    calls[:] = [None, None]
    whole, _ = asked(table, tmp_path / "whole")
    assert content(tmp_path / "whole") == content(tmp_path / "new" / "sweep")
    assert whole.to_dict() == sweep_result.to_dict()
    assert sweep_result.points[0].costs["sites"] > 0
    assert sweep_result.points[0].costs["latency_ns"] > 0
    assert sweep_result.points[0].command is None  # of a table in memory

    # damaged points are trained again, and those of others are not taken
    digest = point.removeprefix("point-").removesuffix(".json")
    for damage in (
        b"[1]",
        files[point].replace(b'"digest": "', b'"digest": "0'),
        files[point].replace(b'"shape": [', b'"shape": ["x", '),
        files[point].replace(b'"memory": {', b'"memory": {"weight_bytes": "x", "x": {'),
        b"{",
    ):
        (tmp_path / "whole" / point).write_bytes(damage)
        assert SweepFolder(tmp_path / "whole", {}).find(digest) is None
    calls[:] = [None, None]
    asked(table, tmp_path / "whole")
    assert len(calls) == 3
    assert content(tmp_path / "whole") == content(tmp_path / "new" / "sweep")

    # another sweep's folder is refused with what differs
    before = content(tmp_path / "whole")
    with pytest.raises(UsageError) as refused:
        asked(table, tmp_path / "whole", seed=1)
    assert "holds another sweep (seed 0 there, 1 asked for): name another" in str(refused.value)
    with pytest.raises(UsageError, match=r"swept .*\[8\].* there, .*\[9\].* asked for"):
        asked(table, tmp_path / "whole", {"hidden": ((9,),)})
    with pytest.raises(UsageError, match=r"data .* there"):
        asked(table.rows(np.arange(599)), tmp_path / "whole")
    assert content(tmp_path / "whole") == before
    (tmp_path / "whole" / "sweep.json").write_text("{")
    with pytest.raises(UsageError, match=r"holds a damaged sweep\.json"):
        asked(table, tmp_path / "whole")
    calls[:] = [None, None]
    asked(table, tmp_path / "whole", {"hidden": ((8,),)}, replace=True)
    document = json.loads((tmp_path / "whole" / "sweep.json").read_bytes())
    assert document["swept"] == {"hidden": [[8]]}
    assert len([p for p in content(tmp_path / "whole") if p.startswith("point-")]) == 1


def test_a_folder_with_other_files_is_left_alone(table, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"holds notes\.txt, which n3ic did not write"):
        asked(table, tmp_path, replace=True)
    assert content(tmp_path) == {"notes.txt": b"mine"}


def test_a_target_that_estimates_nothing_is_refused(table, tmp_path):
    with pytest.raises(UsageError, match="target nfp cannot estimate"):
        asked(table, tmp_path / "x", target="nfp")
    assert list(tmp_path.iterdir()) == []
