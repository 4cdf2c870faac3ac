# SPDX-License-Identifier: Apache-2.0
"""A network that is trained anew and keeps the input and the shape of another one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import n3ic
from n3ic.data.table import Feature, FlowTable
from n3ic.datasets.ns3_tomography import DATASET
from n3ic.errors import UsageError
from n3ic.exporters.netfpga.core import CorePorts
from n3ic.exporters.netfpga.sequential.update import read_update
from n3ic.exporters.xdp.network.structure import structure_of
from n3ic.exporters.xdp.network.values import layout, value_bytes
from n3ic.meter.standard import standard_spec
from n3ic.model.inputs import InputSpec
from n3ic.model.network import BinaryModel
from n3ic.model.random_models import random_model
from n3ic.runs.experiment import train
from n3ic.runs.preparation import Experiment
from n3ic.studies.sweep.request import SweepRequest
from n3ic.systems.card.changes import change_of
from n3ic.systems.card.parser import parse_card
from n3ic.training.kept_input import kept_input, kept_recipe
from n3ic.training.recipe import Recipe, Training
from n3ic.usecases.request import TrainRequest
from n3ic.usecases.training import train_use_case

QUICK = Recipe("quick", "", "quantile", 24, training=Training(hidden=(8,), epochs=2, batch_size=64))
NAMES = ("left", "middle", "right")
CARD = """
[device]
target = "netfpga"
[[tenants]]
name = "soc"
[[tenants.tasks]]
name = "net"
kind = "network"
model = "one.n3ic"
[[tenants.graphs]]
name = "own"
uid = 1
wants = "1 packets/s"
flow = ["net"]
"""


def flows(seed: int, scale: float) -> FlowTable:
    """Flows of two classes whose values are ``scale`` times larger than those of another."""
    rng = np.random.default_rng(seed)
    rows = (rng.gamma(2, 300, (240, 3)) * scale).astype(np.int64)
    label = (rows[:, 0] + rows[:, 1] > 1200 * scale).astype(np.int64)
    return FlowTable(
        name=f"flows-{seed}",
        features=dict(zip(NAMES, rows.T, strict=True)),
        catalogue=tuple(Feature(n, n, "", "", 1.0, 32, True, "counted") for n in NAMES),
        label=label,
        classes=("mail", "web"),
        synthetic=True,
        sha256=f"{seed}",
    )


def write_csv(path: Path, table: FlowTable) -> None:
    rows = zip(*table.features.values(), table.label, strict=True)
    lines = [",".join(map(str, [*row, table.classes[label]])) for *row, label in rows]
    path.write_text("\n".join([",".join([*table.features, "app"]), *lines, ""]))


def trained(table: FlowTable, keeps: BinaryModel | None = None) -> BinaryModel:
    model = train(Experiment(table, QUICK, keeps=keeps, with_baselines=False)).model
    assert isinstance(model, BinaryModel)
    return model


@pytest.fixture(scope="module")
def models():
    """A network, one of other rows that keeps its input, and one of these rows that does not."""
    one, rows = trained(flows(1, 1)), flows(2, 1.7)
    return one, trained(rows, one), trained(rows)


def test_weights_alone_are_new(models):
    one, two, _ = models
    assert two.digest != one.digest
    assert (two.input, two.shape, two.classes) == (one.input, one.shape, one.classes)
    assert two.input.fields[0].rates != one.input.fields[0].rates  # those of its own rows
    assert two.provenance["input_of"] == f"{one.name} {one.digest}"


def test_models_of_a_kept_input_export_for_one_executor(models, tmp_path):
    memories = []
    for i, model in enumerate(models[:2]):
        top = tmp_path / str(i)
        n3ic.export(model, "netfpga", top, simplify=False, verify=False)
        memories.append({p.name: p.stat().st_size for p in (top / "mem").iterdir()})
    assert memories[0] == memories[1]
    core = CorePorts.load(tmp_path / "0")  # refuses what was written for another executor
    assert read_update(tmp_path / "1" / "mem" / "update.hex", core).writes


def test_what_runs_takes_it_and_names_the_option_where_it_does_not(models, tmp_path):
    one, two, free = models
    structure = structure_of([one])
    assert len(value_bytes(structure, two)) == layout(structure).bytes
    for name, model in zip(("one", "two", "free"), models, strict=True):
        model.save(tmp_path / f"{name}.n3ic")
    card = parse_card(CARD, "card.toml", tmp_path)
    change = change_of(card, "replace", "soc", tmp_path / "two.n3ic")
    assert change.networks["soc/net"].digest == two.digest
    assert free.input != one.input
    with pytest.raises(UsageError, match="n3ic train --input-of"):
        change_of(card, "replace", "soc", tmp_path / "free.n3ic")


@pytest.fixture
def folder(models, tmp_path):
    """A network in a file and another table of flows as CSV."""
    models[0].save(tmp_path / "one.n3ic")
    write_csv(tmp_path / "b.csv", flows(2, 1.7))
    return tmp_path


def asked(folder, table="b.csv", **more):
    return n3ic.train(
        "flows",
        data=folder / table,
        options={"label": "app"},
        input_of=folder / "one.n3ic",
        out=folder / "run",
        **more,
    )


@pytest.mark.slow
def test_the_command_of_a_run_gives_the_same_network(folder, models):
    run = asked(folder, overrides={"epochs": 2})
    assert n3ic.load(run.path).input == models[0].input
    options = json.loads((run.path / "options.json").read_text())
    assert options["input_of"] == {"": models[0].digest}
    assert f"--input-of={folder / 'one.n3ic'}" in options["command"]
    again = n3ic.train(config=run.path / "options.json", out=folder / "again")
    assert (again.path / "model.n3ic").read_bytes() == (run.path / "model.n3ic").read_bytes()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"overrides": {"bits": 32, "encoding": "tree"}}, "leave bits and encoding out"),
        ({"overrides": {"hidden": (4,)}}, "leave hidden out"),
        ({"budget_bytes": 64}, "leave budget_bytes out"),
        ({"overrides": {"density": 0.5}}, "has no masks of connections; leave density out"),
        ({"recipe": "voting-trees"}, "decision trees choose"),
        ({"overrides": {"family": "spn"}}, "family spn chooses"),
    ],
)
def test_what_contradicts_it_is_refused(folder, more, message):
    with pytest.raises(UsageError, match=message):
        asked(folder, **more)
    assert not (folder / "run").exists()


def test_tables_that_are_not_its_own_are_refused(folder):
    text = (folder / "b.csv").read_text()
    (folder / "columns.csv").write_text(text.replace("right", "other"))
    with pytest.raises(UsageError, match="lacks columns that its input reads: right"):
        asked(folder, "columns.csv")
    (folder / "classes.csv").write_text(text.replace("mail", "chat"))
    with pytest.raises(UsageError, match=r"expected its classes mail, web in .*, got chat, web"):
        asked(folder, "classes.csv")


def test_another_meter_and_another_unit_are_refused(models):
    spec = standard_spec(packets=4)
    names = [name for name in spec.feature_names if spec.units[name] == "byte"][:3]
    table = flows(1, 1)
    table = replace(
        table,
        features=dict(zip(names, table.features.values(), strict=True)),
        catalogue=tuple(
            replace(f, name=n, unit="byte") for f, n in zip(table.catalogue, names, strict=True)
        ),
        meter=spec,
    )
    inputs = InputSpec(
        tuple(
            replace(f, feature=n, unit="byte")
            for f, n in zip(models[0].input.fields, names, strict=True)
        )
    )
    model = models[0].changed(input=inputs, meter=spec)
    assert kept_input(table, model) == inputs
    with pytest.raises(UsageError, match=r"the meter that it carries, .* has another one"):
        kept_input(replace(table, meter=standard_spec(packets=5)), model)
    with pytest.raises(UsageError, match=r"the meter that it carries, .* has no meter"):
        kept_input(replace(table, meter=None), model)
    with pytest.raises(UsageError, match=r"it carries no meter, and .* was metered"):
        kept_input(table, model.changed(meter=None))
    steps = tuple(replace(f, scale=8.0) for f in table.catalogue)
    with pytest.raises(UsageError, match=f"expected {names[0]} in units of byte"):
        kept_input(replace(table, catalogue=steps), model)


def test_a_meter_of_further_features_is_kept(models):
    """Another layout of the same data set has more columns, of the same meter."""
    larger = standard_spec(packets=4)
    names = [name for name in larger.feature_names if larger.units[name] == "byte"][:3]
    smaller = larger.only(names)
    table = flows(1, 1)
    table = replace(
        table,
        features=dict(zip(names, table.features.values(), strict=True)),
        catalogue=tuple(
            replace(f, name=n, unit="byte") for f, n in zip(table.catalogue, names, strict=True)
        ),
    )
    experiment = Experiment(replace(table, meter=smaller), QUICK, with_baselines=False)
    narrow_model = train(experiment).model
    assert narrow_model.meter == smaller != larger
    again = replace(experiment, table=replace(table, meter=larger), keeps=narrow_model)
    assert train(again).model.meter == smaller


def test_networks_of_a_run_keep_those_of_their_names(tmp_path, models):
    (tmp_path / "models").mkdir()
    for name in ("else", "other"):
        models[0].save(tmp_path / "models" / f"{name}.n3ic")
    rows = DATASET.load().rows(np.arange(400))
    request = TrainRequest(
        "tomography", table=rows, options={"queue": "0,1"}, input_of=tmp_path, out=tmp_path / "run"
    )
    with pytest.raises(UsageError, match=r"a network for each of .*; it holds else, other"):
        train_use_case(request)
    two = random_model((24, 4, 2), np.random.default_rng(0))
    with pytest.raises(UsageError, match="same hidden layers, got 4, 8"):
        kept_recipe(QUICK, (), [models[0], two], 2)


def test_a_sweep_keeps_no_input():
    with pytest.raises(UsageError, match="--input-of keeps both"):
        SweepRequest(TrainRequest("anomaly", input_of="run"))
