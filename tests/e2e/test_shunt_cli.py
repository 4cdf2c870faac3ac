# SPDX-License-Identifier: Apache-2.0
"""``n3ic shunt`` as a person types it, and what the other commands make of the model it writes."""

import csv
import json
from dataclasses import replace

import numpy as np
import pytest

from n3ic.data.dataset import data_set
from n3ic.model.inputs import Field, InputSpec
from n3ic.model.network import BinaryModel
from n3ic.model.random_models import random_model
from tests.support.command_line import typed as n3ic

pytest.importorskip("sklearn")

DATA = "unsw-nb15-synthetic"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with flows and a network of random weights that names their data set."""
    folder = tmp_path_factory.mktemp("place")
    data_set(DATA).generate_file(folder / "flows.csv", {"rows": 1500})
    table = data_set(DATA).load(folder / "flows.csv")
    fields = []
    for name in table.usable[:8]:
        cuts = np.unique(np.quantile(table.features[name], np.linspace(0.1, 0.9, 12)).astype(int))
        cuts = [int(cut) for cut in cuts if cut > 0]
        if cuts:
            unit, scale = table.feature(name).unit, table.feature(name).scale
            fields.append(Field.thermometer(name, cuts, unit=unit, scale=scale))
    spec = InputSpec(tuple(fields))
    base = random_model((spec.n_bits, 24, 16, 2), np.random.default_rng(0), extremes=False)
    model = replace(base, input=spec, classes=table.classes, provenance={"data": DATA})
    model.save(folder / "model.n3ic")
    return folder


@pytest.mark.slow
def test_from_the_curve_to_a_verified_export(place):
    shown = n3ic("shunt --model model.n3ic --data flows.csv", place).stdout
    assert "rows it was not trained on" in shown and "choose a threshold with" in shown
    done = n3ic(
        "shunt --model model.n3ic --data flows.csv --host-load 0.5 --write sure.n3ic "
        "--csv points.csv --json",
        place,
    )
    curve = json.loads(done.stdout)[""]
    model = BinaryModel.load(place / "sure.n3ic")
    assert model.shunt == curve["threshold"] > 0
    assert model.digest == curve["model"]["sha256"]
    assert f"wrote sure.n3ic: margins below {model.shunt} are shunted" in done.stderr
    with (place / "points.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == len(curve["validation"]) + len(curve["test"])
    assert f"margins below {model.shunt} " in n3ic("inspect sure.n3ic", place).stdout
    assert json.loads(n3ic("inspect sure.n3ic --json", place).stdout)[""]["shunt"] == model.shunt
    counts = json.loads(n3ic("predict flows.csv --model sure.n3ic --json", place).stdout)
    n3ic("predict flows.csv --model sure.n3ic --out classes.csv", place)
    with (place / "classes.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    shunted = [row for row in rows if row["class"] == "shunt"]
    assert len(shunted) == counts["classes"]["shunt"] > 0
    assert all((int(row["margin"]) < model.shunt) == (row["class"] == "shunt") for row in rows)
    completed = n3ic("evaluate flows.csv --model sure.n3ic", place)
    assert (
        "the model shunts flows: these figures count its class for every flow" in completed.stderr
    )
    n3ic("export --model sure.n3ic --target onnx --out out", place)
    text = n3ic("verify out --vectors 300", place).stdout
    assert "equal scores and verdicts" in text


@pytest.mark.slow
def test_the_model_is_replaced_in_place_only_when_asked(place):
    (place / "own.n3ic").write_bytes((place / "model.n3ic").read_bytes())
    words = "shunt --model own.n3ic --data flows.csv --margin 4 --write own.n3ic"
    assert "add --replace" in n3ic(words, place, expect=2).stderr
    assert BinaryModel.load(place / "own.n3ic").shunt == 0
    assert "replaced own.n3ic" in n3ic(f"{words} --replace", place).stderr
    assert BinaryModel.load(place / "own.n3ic").shunt == 4


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--write x.n3ic", "--write needs a threshold"),
        ("--accuracy 0.9 --margin 3", "only one of them"),
        ("--host-load 7", "a share from 0 to 1"),
        ("--margin 100000", "the largest margin of this network is"),
        ("--task x", "no network 'x'; it holds a single one"),
        ("--csv flows.csv", "exists"),
    ],
)
def test_mistakes_are_one_line(place, words, message):
    code = 1 if "100000" in words else 2  # the model's error, or the command's
    done = n3ic(f"shunt --model model.n3ic --data flows.csv {words}", place, expect=code)
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
