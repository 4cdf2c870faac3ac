# SPDX-License-Identifier: Apache-2.0
"""Models of the how-to pages on every target that is installed: exported, verified, reported on.

A page with another kind of model adds a line to ``MODELS``; targets are those that are installed.
"""

import csv
import json
import pickle
import random
import zipfile
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import accuracy_score, f1_score, recall_score
from typer.testing import CliRunner

import n3ic
from n3ic import plugins
from n3ic.cli.main import command_line
from n3ic.data.flows import write_features
from n3ic.data.user_table import describe
from n3ic.errors import ExportError
from n3ic.evaluation.false_alarms import with_false_alarms
from n3ic.families.trees.random_models import random_trees
from n3ic.meter.standard import standard_spec
from n3ic.model.bits import pack
from n3ic.model.inputs import Field, InputSpec
from n3ic.model.random_models import random_model
from n3ic.runs.experiment import train
from n3ic.runs.preparation import Experiment
from n3ic.systems.xdp.deployment import load
from n3ic.systems.xdp.program_record import Interface
from n3ic.targets.base import exporter
from n3ic.targets.directory import export
from n3ic.training.recipe import Recipe
from tests.support.xdp_machine import run

TARGETS = plugins.names("n3ic.exporters")
OPTIMISED = {"own", "metered", "spn"}  # the kinds of C that the host target writes
ROWS = 240
SHEET = "proto,dur,bytes,app\n" + 9 * "tcp,0.25,400,web\nudp,0.015,80,dns\ntcp,1.5,900,web\n"
APPS = 30


@pytest.fixture(scope="session")
def own_file(tmp_path_factory):
    """A table of somebody's own, of a few classes: text and numbers, below 0 and not whole, too."""
    draw = random.Random(1)
    path = tmp_path_factory.mktemp("own") / "flows.csv"
    with path.open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["Proto", "dur", "Src Bytes", "pkts", "jitter", "app"])
        for _ in range(ROWS):
            k = draw.randrange(4)
            size, packets = draw.randrange(100, 900) * (k + 1), draw.randrange(1, 9) + 3 * k
            duration, jitter = round(draw.random() * (k + 1), 3), draw.randrange(-9, 99)
            lines.writerow([("tcp", "udp", "sctp")[k % 3], duration, size, packets, jitter, k])
    return path


@pytest.fixture(scope="session")
def own_table(own_file):
    own, _ = describe(own_file, label="app")
    return own.load(own_file)


@pytest.fixture(scope="session")
def wider_file(own_file):
    """The rows of that table in a Parquet file, its columns in another order and between others."""
    table = pa_csv.read_csv(own_file)
    table = table.select(table.column_names[::-1])
    table = table.add_column(1, "span", pa.array([1] * ROWS, pa.duration("s")))
    table = table.append_column("note", pa.array([f'a, "{i}"' for i in range(ROWS)]))
    pq.write_table(table, own_file.with_name("wider.parquet"))
    return own_file.with_name("wider.parquet")


@cache
def trained(table, name="own", **options):
    """A network of the table, with its columns, as a run has it."""
    recipe = Recipe(name, "small", encoding="quantile").with_options(options)
    model = train(Experiment(table, recipe, name=name, with_baselines=False)).model
    assert model.table is not None
    return model


def own(table):
    return trained(table, hidden=(6,), epochs=2, bits=24)


def many_classes(table):
    base = own(table)
    model = random_model((base.input.n_bits, 9, APPS), np.random.default_rng(1), extremes=False)
    return model.with_input(base.input, table=base.table)


def few_bits(table):
    return trained(table, "few", encoding="greedy", bits=6, method="prototypes", hidden=(4,))


def tree_shaped(table):
    return trained(table, "tables", method="trees", trees=1, leaves=6, bits=24)


def shunting(table):
    return own(table).with_shunt(2)


def false_alarms(table):
    """A bias that was chosen for a wanted rate, far from what the network learned."""
    base = many_classes(table)
    scores = base.scores(pack(base.input.encode(table.features)))
    often = int(np.bincount(scores.argmax(axis=1)).argmax())
    shifted_model = with_false_alarms(base, scores, table.label, often, 0.02)
    assert not np.array_equal(shifted_model.output.bias, base.output.bias)
    return shifted_model


def sum_product(table):
    recipe = Recipe("spn", "small", family="spn", columns=("dur", "pkts"))
    return train(Experiment(table, recipe, name="spn", with_baselines=False)).model


def metered(table):
    spec = standard_spec()
    names = spec.feature_names[:4]
    fields = tuple(Field.thermometer(f, (3, 70, 900), unit=spec.units[f]) for f in names)
    model = random_model((3 * len(names), 7, 2), np.random.default_rng(2), extremes=False)
    return model.with_input(InputSpec(fields), meter=spec)


def metered_shunting(table):
    return metered(table).with_shunt(2)


def imported_qonnx(table):
    """A graph of few bits a weight that a tool of QONNX wrote."""
    pytest.importorskip("onnx")
    graphs = Path(__file__).parents[1] / "exporters" / "onnx" / "graphs"
    return exporter("onnx").importer.read(graphs / "qonnx-few-bits.onnx")


def queues(table):
    """Networks of several queues that read the same delays."""
    rng = np.random.default_rng(3)
    spec = InputSpec(tuple(Field.binary(f"delay{i}", 8) for i in range(4)))
    return {
        f"queue{i}": random_model((32, 8, 2), rng, extremes=False).with_input(spec)
        for i in range(2)
    }


def imported(table, tmp_path_factory):
    """An ONNX graph that was read back."""
    pytest.importorskip("onnx")
    folder = tmp_path_factory.mktemp("onnx") / "out"
    return exporter("onnx").importer.read(
        export(own(table), "onnx", folder, verify=False).path / "model.onnx"
    )


def brevitas_layers(table, last):
    """A module of stock Brevitas layers, trained a little on the bits of a table, and its model."""
    import torch
    from brevitas import nn as quantized
    from brevitas.quant import SignedBinaryActPerTensorConst, SignedBinaryWeightPerTensorConst

    spec = own(table).input
    torch.manual_seed(1)
    module = torch.nn.Sequential(
        quantized.QuantLinear(
            spec.n_bits, 9, bias=False, weight_quant=SignedBinaryWeightPerTensorConst
        ),
        torch.nn.BatchNorm1d(9),
        quantized.QuantIdentity(act_quant=SignedBinaryActPerTensorConst),
        torch.nn.Dropout(0.1),
        last(quantized, SignedBinaryWeightPerTensorConst),
    )
    signs = torch.from_numpy(np.where(spec.encode(table.features), 1.0, -1.0)).float()
    labels = torch.from_numpy(table.label.astype(np.int64))
    steps = torch.optim.Adam(module.parameters(), 0.01)
    for _ in range(30):
        steps.zero_grad()
        torch.nn.functional.cross_entropy(module(signs), labels).backward()
        steps.step()
    model = n3ic.from_torch(module, spec, table.classes, name="mine")
    with torch.no_grad():
        classes = module.eval()(signs).argmax(dim=1).numpy()
    predictions = n3ic.predict(model, table.features).classes
    assert [model.classes[i] for i in predictions] == [table.classes[i] for i in classes]
    return model


def brevitas(table):
    """All weights have one bit; real biases."""
    return brevitas_layers(table, lambda nn, quant: nn.QuantLinear(9, 4, weight_quant=quant))


def brevitas_of_three_bits(table):
    """Weights of the last layer have three bits: copies of neurons, connections that are absent."""
    model = brevitas_layers(table, lambda nn, _: nn.QuantLinear(9, 4, weight_bit_width=3))
    assert model.has_masks
    return model


def metered_forest(table):
    base = metered(table)
    trees = random_trees(np.random.default_rng(4), spec=base.input, trees=9, depth=4)
    return trees.changed(meter=base.meter, name="forest")


def forest(table):
    """A forest that scikit-learn fitted to the columns of a table."""
    pytest.importorskip("treelite")
    fitted = RandomForestClassifier(7, max_depth=4, random_state=1)
    fitted.fit(np.stack([*table.features.values()], axis=1), np.array(table.classes)[table.label])
    return n3ic.from_sklearn(fitted, table)


MODELS = {
    "own": own,
    "many classes": many_classes,
    "few bits": few_bits,
    "trees": tree_shaped,
    "shunting": shunting,
    "spn": sum_product,
    "forest": forest,
    "metered forest": metered_forest,
    "metered": metered,
    "metered, shunting": metered_shunting,
    "queues": queues,
    "imported": imported,
    "imported QONNX": imported_qonnx,
    "brevitas": brevitas,
    "brevitas, three bits": brevitas_of_three_bits,
    "false alarms": false_alarms,
}


def typed(*words):
    """What ``n3ic`` prints, expected to do what it should."""
    words = tuple(map(str, words))
    done = CliRunner().invoke(command_line(words), words)
    assert done.exit_code == 0, (words, done.output, done.exception)
    return done.stdout


def refused(target, models):
    """Whether a target says of itself that it takes no such models."""
    first, tool = next(iter(models.values())), exporter(target)
    if first.family not in tool.families or (first.shunt > 0 and not tool.shunts):
        return True
    if first.family == "binary-network":
        return False
    own = tool.for_family(first.family)
    problems = own.check(first, own.parse_options({})).problems
    return any("writes no" in str(problem) for problem in problems)  # an operation of its graph


@pytest.fixture(scope="session")
def exported(own_table, tmp_path_factory):
    """By the name of a model: its networks, its file or run, and its exports for all targets."""

    @cache
    def of(name):
        more = (tmp_path_factory,) if name == "imported" else ()
        value = MODELS[name](own_table, *more)
        models = value if isinstance(value, dict) else {"": value}
        folder = tmp_path_factory.mktemp(name.replace(" ", "-"))
        (folder / "models").mkdir()
        for task, model in models.items():
            model.save(folder / "models" / f"{task}.n3ic" if task else folder / "model.n3ic")
        source = folder if "" not in models else folder / "model.n3ic"
        words = ("export", "--target", "all", "--model", source, "--no-verify", "--json")
        exports = json.loads(typed(*words, "--out", folder / "exports"))
        return models, source, folder / "exports", exports

    return of


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_every_target_writes_the_model_or_refuses_it(exported, name):
    models, _, out, exports = exported(name)
    assert [(t["target"], t["task"]) for t in exports] == [(t, k) for t in TARGETS for k in models]
    for each in exports:
        assert ("error" in each) == refused(each["target"], models), each
        assert (out / each["target"] / each["task"]).exists() != ("error" in each)


# Networks of the shape of another one, with other numbers.
ALIKE = ("imported", "brevitas", "false alarms", "metered, shunting")


@pytest.mark.slow  # the default tests of each target verify its exports
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.exhaustive if n in ALIKE else ()) for n in MODELS]
)
def test_what_was_written_computes_the_models_scores(exported, request, name, target):
    if name not in OPTIMISED:
        request.getfixturevalue("quick_build")
    models, source, out, _ = exported(name)
    if refused(target, models):
        done = CliRunner().invoke(
            command_line(["export"]),
            ["export", "-t", target, "--model", str(source), "--out", str(out)],
        )
        assert done.exit_code == 1
        assert target in str(done.exception) or "writes no" in str(done.exception)
        return
    words = ("verify", str(out / target), "--vectors", "40", "--no-record", "--json")
    done = CliRunner().invoke(command_line(words), words)
    results = json.loads(done.stdout)
    if any(r["missing"] for r in results):
        pytest.skip(results[0]["missing"])
    assert done.exit_code == 0, [r["failures"] for r in results]
    assert len(results) == len(models) and all(r["ok"] for r in results)


REPORTED = ("own", "spn", "queues", "imported QONNX")


@pytest.mark.first_case
@pytest.mark.parametrize(
    "name", [n if n in REPORTED else pytest.param(n, marks=pytest.mark.slow) for n in MODELS]
)
def test_the_report_has_a_row_a_target(exported, name, tmp_path):
    models, source, _, _ = exported(name)
    page = tmp_path / "page.html"
    lines = typed("report", source, "--exports", tmp_path / "none", "--html", page).splitlines()
    text = page.read_text()
    for target in TARGETS:
        (row,) = (line.split() for line in lines if line.startswith(f"{target} "))
        fits = f"{len(models)}/{len(models)}" if len(models) > 1 else "yes"
        assert row[1] == ("no" if refused(target, models) else fits), row
        assert f">{target}</" in text
    refusals = sum(line.startswith("  refused: ") for line in lines)
    assert refusals == sum(refused(target, models) for target in TARGETS)


@pytest.mark.parametrize(
    "name",
    [n if n in ("own", "spn") else pytest.param(n, marks=pytest.mark.slow) for n in MODELS],
)
def test_predict_classifies_a_parquet_file(exported, own_table, wider_file, name, tmp_path):
    """The user's table with more columns in another order, or the features as a NIC has them."""
    models, source, _, _ = exported(name)
    for task, model in models.items():
        path, features = wider_file, own_table.features
        if model.table is None:
            path, rng = tmp_path / f"{task}.parquet", np.random.default_rng(5)
            high = [1 << (f.width if f.kind == "binary" else 10) for f in model.input.fields]
            features = {
                f: rng.integers(0, h, 40)
                for f, h in zip((f.feature for f in model.input.fields), high, strict=True)
            }
            write_features(path, dict(reversed(features.items())))
        words = ("predict", path, "--model", source, *(("--task", task) if task else ()))
        rows = list(csv.DictReader(typed(*words).splitlines()))
        want = model.infer(model.encode(features))
        assert [r["class"] for r in rows] == [model.verdict_names[v] for v in want.verdicts]
        assert [int(r["margin"]) for r in rows] == want.margins.tolist()
        got = [[int(r[f"score_{c}"]) for c in model.classes] for r in rows]
        assert got == want.scores.tolist()


@pytest.mark.first_case
@pytest.mark.parametrize("name", MODELS)
def test_xdp_load_attaches_what_meters_and_says_why_not(exported, name, request):
    models, _, out, _ = exported(name)
    model = next(iter(models.values()))
    if refused("xdp", models):
        return  # there is nothing to load: the export was refused
    where = out / "xdp" / next(iter(models))
    if model.meter is None:
        with pytest.raises(ExportError, match="no meter: train it on a table of"):
            load(Interface.named("lo"), where)
        return
    for machine in ("clang", "kernel", "run_folder"):
        request.getfixturevalue(machine)

    def loaded():
        run("ip", "link", "add", "n3e", "type", "veth", "peer", "name", "n3f")
        return json.loads(typed("xdp", "load", "n3f", where, "--json"))["mode"], typed(
            "xdp", "unload", "n3f"
        )

    mode, gone = request.getfixturevalue("in_namespace")(loaded)
    assert mode in ("native", "generic") and "n3f: unloaded" in gone


def test_figures_of_a_brevitas_module_are_those_of_scikit_learn(exported, own_table, own_file):
    """Of classes that are the module's own; see ``brevitas_layers``."""
    model = exported("brevitas")[0][""]
    model = model.with_input(model.input, table=own_table.rules)
    (figures,) = n3ic.evaluate(model, own_file).values()
    rows = pa_csv.read_csv(own_file)
    true, predicted = [*map(str, rows["app"].to_pylist())], model.predict(rows)["class"].to_pylist()
    assert figures.accuracy == pytest.approx(accuracy_score(true, predicted))
    assert figures.macro_f1 == pytest.approx(f1_score(true, predicted, average="macro"))
    recall = [of["recall"] for of in figures.of_classes(model.classes).values()]
    assert recall == pytest.approx(list(recall_score(true, predicted, average=None)))


@pytest.mark.slow
def test_a_run_of_ones_own_parquet_is_evaluated_and_reported(own_file, wider_file, tmp_path, n3ic):
    """As the CSV file is, by a table with more columns in another order."""
    n3ic(
        f"train --data {wider_file} --label app --encoding quantile --hidden 6 --epochs 2 --out run"
    )
    evaluations = [
        json.loads(n3ic(f"evaluate {path} --model run --json").stdout)
        for path in (own_file, wider_file)
    ]
    assert evaluations[0] == evaluations[1]
    n3ic(f"report run --html page.html --data {wider_file}")
    assert "test rows of flows" in (tmp_path / "page.html").read_text()  # told by its digest


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("flows.xlsx", None, "office document; save the table as CSV"),
        ("flows.xls", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(64), "old Excel workbook"),
        ("flows.json", b'[ {"bytes": 1, "label": "a"} ]', "JSON"),
        ("flows.json", b'{"bytes": 1, "label": "a"}\n{"bytes": 2, "label": "b"}\n', "JSON"),
        ("flows.pkl", pickle.dumps({"bytes": [1, 2]}), "pickle, which is never read"),
        ("flows", "folder", "no table in this folder; expected files that end in .csv"),
    ],
)
def test_what_is_no_table_of_flows_is_one_line(name, content, why, tmp_path, n3ic):
    path = tmp_path / name
    if content == "folder":
        path.mkdir()
    elif content is None:
        with zipfile.ZipFile(path, "w") as book:
            book.writestr("[Content_Types].xml", "<Types/>")
            book.writestr("xl/workbook.xml", "<workbook/>")
    else:
        path.write_bytes(content)
    line = f"train --data {name} --label label --out run"
    *_, error = n3ic(line, expect=1).stderr.splitlines()
    assert error.startswith(f"n3ic: error: {name}: ") and why in error
    assert not (tmp_path / "run").exists()


def test_a_parquet_file_of_ones_own_is_the_table_of_the_csv(tmp_path):
    csv_file, parquet = tmp_path / "flows.csv", tmp_path / "flows.parquet"
    csv_file.write_text(SHEET)
    pq.write_table(pa_csv.read_csv(csv_file), parquet)
    tables = [describe(path, label="app")[0].load(path) for path in (csv_file, parquet)]
    assert tables[0].classes == tables[1].classes == ("dns", "web")
    assert {**tables[0].features}.keys() == {**tables[1].features}.keys()
    for name, column in tables[0].features.items():
        assert np.array_equal(column, tables[1].features[name]), name
    assert np.array_equal(tables[0].label, tables[1].label)
