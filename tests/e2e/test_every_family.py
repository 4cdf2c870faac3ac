# SPDX-License-Identifier: Apache-2.0
"""Every command and verb that takes a model, with a small model of every family.

Each gives the family's own scores, or refuses the model by a line of ``REFUSALS``. A family that
is installed is covered without a line here; a new command must find its place in ``CASES``,
``ELSEWHERE`` or ``WITHOUT_MODEL``.
"""

from __future__ import annotations

import csv
import json
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.main import get_command

import n3ic
from n3ic import plugins
from n3ic.cli.main import command_line
from n3ic.data.dataset import data_set
from n3ic.data.split import split
from n3ic.data.table import FlowTable
from n3ic.errors import ExportError, N3icError, N3icWarning
from n3ic.families.trees.network import TreesModel
from n3ic.model.classifier import Classifier, Inference, family_text
from n3ic.model.family import Family, family, graph_of
from n3ic.model.graph.operations import LogAdd
from n3ic.model.network import BinaryModel
from n3ic.systems.card.export import card_target
from n3ic.targets.base import exporter
from tests.support.command_line import typed
from tests.support.family_models import FAMILIES, metered_model
from tests.support.random_graphs import GraphModel, graph_family
from tests.support.traffic import labelled_capture

CLASSES = ("bulk", "question", "other")
SEED = 1


@dataclass(frozen=True)
class Place:
    """A folder with a model of a family, packets, and their labelled flows."""

    folder: Path
    model: Classifier
    table: FlowTable

    @property
    def answers(self) -> Inference:
        """What the family's own scores say of all flows."""
        return self.model.infer(self.model.encode(self.table.features))

    def accuracy(self, rows: np.ndarray) -> float:
        """Of the model, on rows of the table."""
        names = np.array(self.model.classes)[self.answers.classes[rows]]
        return float((names == np.array(self.table.classes)[self.table.label[rows]]).mean())


@pytest.fixture(scope="module", name="places")
def a_place_of_each_family(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("families")
    capture, labels = labelled_capture(200, 1)
    (folder / "c.pcap").write_bytes(capture)
    (folder / "labels.csv").write_bytes(labels)
    typed("data extract c.pcap --out flows.parquet --labels labels.csv --packets 4", folder)
    table = data_set("metered").load(folder / "flows.parquet")

    @cache
    def of(name: str) -> Place:
        own = folder / name
        own.mkdir()
        for shared in ("c.pcap", "labels.csv", "flows.parquet"):
            (own / shared).symlink_to(folder / shared)
        model = metered_model(name)
        known = {
            "data": "metered", "data_sha256": table.sha256, "protocol": "random", "seed": str(SEED),
        }  # fmt: skip
        model = model.changed(classes=CLASSES[: len(model.classes)], provenance=known)
        model.save(own / "m.n3ic")
        return Place(own, model, table)

    with graph_family():
        yield of


# --- what is checked of an answer ---------------------------------------------------------------


def predicted(place: Place, output: str) -> None:
    rows, own = list(csv.DictReader(output.splitlines())), place.answers
    assert [int(r["margin"]) for r in rows] == own.margins.tolist()
    assert [r["class"] for r in rows] == [place.model.classes[c] for c in own.classes]
    scores = [[int(r[f"score_{c}"]) for c in place.model.classes] for r in rows]
    assert scores == own.scores.tolist()


def evaluated(place: Place, output: str) -> None:
    (figures,) = json.loads(output)["networks"].values()
    assert figures["accuracy"] == pytest.approx(place.accuracy(np.arange(len(place.table))))


def false_alarms(place: Place, output: str) -> None:
    changed = n3ic.load(place.folder / "fa.n3ic")
    rows = split(place.table, "random", SEED).validation
    inputs = {n: place.table.features[n][rows] for n in place.model.input.features}
    others = np.array(place.table.classes)[place.table.label[rows]] != CLASSES[1]
    called = changed.infer(changed.encode(inputs)).classes[others] == 1
    assert called.mean() <= 0.05 and changed.family == place.model.family


def shunted(place: Place, output: str) -> None:
    (curve,) = json.loads(output).values()
    model = n3ic.load(place.folder / "sure.n3ic")
    assert curve["threshold"] == 2 and model.digest == curve["model"]["sha256"]
    assert model == place.model.with_shunt(2).changed(provenance=model.provenance)
    test = split(place.table, "random", SEED).test
    decided = next(p["decided"] for p in curve["test"] if p["threshold"] == 2)
    assert decided == int((place.answers.margins[test] >= 2).sum())


def streamed(place: Place, output: str) -> None:
    lines = [json.loads(x) for x in (place.folder / "out.jsonl").read_text().splitlines()]
    of_file = list(csv.DictReader(typed("predict c.pcap --model m.n3ic", place.folder)
                                  .stdout.splitlines()))  # fmt: skip
    assert [(x["class"], x["margin"]) for x in lines] == [
        (x["class"], int(x["margin"])) for x in of_file
    ]
    margins = sorted(x["margin"] for x in lines)
    assert margins == sorted(place.answers.margins.tolist())


def learned(place: Place, output: str) -> None:
    report = json.loads(output)
    assert report["began"] == place.model.digest
    right = sum(x["right"] for x in report["accuracy"])
    seen = sum(x["flows"] for x in report["accuracy"])
    assert seen == len(place.table) and 0 < right <= seen


def inspected(place: Place, output: str) -> None:
    (description,) = json.loads(output).values()
    assert (
        description["family"] == place.model.family and description["sha256"] == place.model.digest
    )


def encoded(place: Place, output: str) -> None:
    units, *lines = (place.folder / "f.csv").read_text().splitlines()
    rows = list(csv.DictReader(lines))
    assert units.startswith("#")
    bits = np.array([[int(r[k]) for k in r if k.startswith("bit_")] for r in rows], dtype=bool)
    assert np.array_equal(bits, place.model.input.encode(place.table.features))


def reported(place: Place, output: str) -> None:
    assert place.model.shape_text in output
    page = (place.folder / "r.html").read_text()
    assert place.model.shape_text in page and "ROC" in page


def verified(place: Place, output: str) -> None:
    assert "equal in scores" in output


def drift_of_it(place: Place, output: str) -> None:
    report = json.loads(output)
    assert report["reference"] == 100 and 0 < report["flows"] <= len(place.table) - 100


def staged(place: Place, output: str) -> None:
    test = split(place.table, "random", SEED).test
    assert f"{len(test)} test rows" in output and (place.folder / "second.st").exists()


def packed(place: Place, output: str) -> None:
    assert place.model.digest[:12] in output


def equal(place: Place, output: str) -> None:
    assert all(verification["ok"] for verification in json.loads(output))


# --- the matrix ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """Words after ``n3ic``, the check of what is printed, and whether the test is slow."""

    words: str
    check: Callable[[Place, str], None]
    slow: bool = True
    before: str = ""

    @property
    def command(self) -> str:
        """The command of the words."""
        return next(c for c in sorted(commands(), key=len, reverse=True)
                    if self.words.startswith(c))  # fmt: skip


def commands() -> list[str]:
    """All commands of ``n3ic``, plug-ins' included."""

    def walk(command: Any, words: tuple[str, ...]) -> Iterator[str]:
        inner = getattr(command, "commands", None)
        if not inner:
            yield " ".join(words)
        for name, each in (inner or {}).items():
            yield from walk(each, (*words, name))

    out: list[str] = []
    for name in get_command(command_line(["--help"])).commands:  # type: ignore[attr-defined]
        one = get_command(command_line([name]))
        out += walk(getattr(one, "commands", {}).get(name, one), (name,))
    return out


CASES = (
    Case("inspect m.n3ic --json", inspected),
    Case("features flows.parquet --model m.n3ic --bits --out f.csv", encoded),
    Case("predict flows.parquet --model m.n3ic", predicted, slow=False),
    Case("evaluate flows.parquet --model m.n3ic --json", evaluated),
    Case(
        "evaluate flows.parquet --model m.n3ic --prevalence 0.01 --false-alarms 0.05 "
        "--write-model fa.n3ic",
        false_alarms,
        slow=False,
    ),
    Case("shunt --model m.n3ic --data flows.parquet --margin 2 --write sure.n3ic --json",
         shunted),
    Case("report m.n3ic --data flows.parquet --html r.html", reported),
    Case("verify host --vectors 40 --json", equal,
         before="export --target host --model m.n3ic --out host --no-verify"),
    Case("stream run c.pcap --model m.n3ic --sink out.jsonl", streamed, slow=False),
    Case("stream drift flows.parquet --model m.n3ic --reference-flows 100 --block flow --json",
         drift_of_it),
    Case("stream learn flows.parquet --model m.n3ic --folder learned --delay 10 --block flow "
         "--json", learned, slow=False),
    Case("stream second-stage --model m.n3ic --data flows.parquet --write second.st",
         staged),
    Case("cluster plan m.n3ic --nodes 2", lambda p, output: None, slow=False),
    Case("cluster run m.n3ic --nodes 2 --rows 20 --limit 60", lambda p, output: None),
    Case("card init m.n3ic --target netfpga --out card.toml", lambda p, output: None),
    Case("card plan nf.toml", lambda p, output: None, before="card init m.n3ic --out nf.toml"),
    Case("card plan p4.toml", lambda p, output: None,
         before="card init m.n3ic --target p4 --out p4.toml"),
    Case("card export host.toml --out card", verified,
         before="card init m.n3ic --target host --out host.toml"),
    Case("card simulate sim.toml --seconds 0.001", lambda p, output: None,
         before="card init m.n3ic --target host --out sim.toml"),
    Case("xdp pack xdp --out packed", packed,
         before="export --target xdp --model m.n3ic --out xdp --no-verify"),
)  # fmt: skip


def layerless(model: Classifier) -> bool:
    return not isinstance(model, BinaryModel)


def without_bias(model: Classifier) -> bool:
    return type(model).favouring is Classifier.favouring


def several_classes(model: Classifier) -> bool:
    return len(model.classes) > 2


def not_trained_further(model: Classifier) -> bool:
    return type(family(model.family)).trained_further is Family.trained_further


def logarithms(model: Classifier) -> bool:
    return LogAdd in graph_of(model).kinds


@dataclass(frozen=True)
class Refusal:
    """What a command refuses, by which words, and the reason."""

    words: str
    of: Callable[[Classifier], bool]
    message: str
    reason: str


REFUSALS = (
    Refusal("cluster", layerless, "layers of a binary network, got a model of family",
            "a ring spreads layers, and only binary networks have some"),
    Refusal("card plan nf.toml", layerless, "netfpga computes models of family binary-network",
            "the card's executors are those of binary networks"),
    Refusal("card plan p4.toml", layerless, "p4 (computes|takes no) model",
            "the card's stages are those of binary networks"),
    Refusal("evaluate flows.parquet --model m.n3ic --prevalence", without_bias,
            "kept by a bias, and models of family .* have none", "there is nothing to change"),
    Refusal("evaluate flows.parquet --model m.n3ic --prevalence", several_classes,
            "several classes have no single threshold", "no class is the one to detect"),
    Refusal("stream learn", not_trained_further, "whose models are not trained further",
            "no search over the family's parameters exists"),
    Refusal("xdp pack", logarithms, "this target writes no log-add",
            "a log-add looks up a table, which the verifier bounds poorly"),
)  # fmt: skip

ELSEWHERE = {
    "ask": "tests/exporters/netfpga/frontend",
    "decide": "tests/studies/decide",
    "train": "tests/usecases",
    "bench": "tests/exporters/host",
    "sweep": "tests/studies/sweep",
    "replay": "tests/e2e/test_tomography.py",
    "import": "tests/e2e/test_cli.py",
    "export": "tests/e2e/test_every_model.py",
    "simulate": "tests/exporters/netfpga",
    "card load": "tests/systems/card/test_card_families.py",
    "card replace": "tests/systems/card/test_card_families.py",
    "card remove": "tests/systems/card/test_card_families.py",
    "card run": "tests/systems/card/control/test_run.py",
    "card verify": "tests/systems/card/test_card_families.py",
    "cluster simulate": "tests/systems/cluster/simulation",
    "xdp load": "tests/e2e/test_every_model.py",
    "xdp update": "tests/exporters/xdp/test_tables.py",
    "stream receive": "tests/systems/stream/messages/test_models.py",
    "stream functions run": "tests/systems/stream/functions",
}
"""Commands that need a device, a peer or a training: by the tests that have them."""
WITHOUT_MODEL = (
    "data ", "recipes ", "targets", "xdp ", "stream functions ", "stream history",
    "stream rollback", "stream send",
)  # fmt: skip


def refusals(case: str, model: Classifier) -> list[Refusal]:
    return [r for r in REFUSALS if case.startswith(r.words) and r.of(model)]


# The default tests take one family, that of which the fewest other tests are.
EVERY_FAMILY = [
    pytest.param(name, marks=[] if name == TreesModel.family else [pytest.mark.slow])
    for name in FAMILIES
]


@pytest.mark.parametrize("name", EVERY_FAMILY)
@pytest.mark.parametrize(
    "case", [pytest.param(c, id=c.words, marks=[pytest.mark.slow] if c.slow else []) for c in CASES]
)
def test_a_command_gives_the_familys_own_scores_or_refuses(
    places: Any, case: Case, name: str
) -> None:
    place = places(name)
    refused = refusals(case.words, place.model)
    code = 0
    for words in filter(None, (case.before, case.words)):
        out, code = called(words, place.folder)
        if code:
            break
    if refused:
        assert code in (1, 2), out.stdout
        assert any(_matches(r.message, out.stderr) for r in refused), out.stderr
        return
    assert code == 0, out.stderr
    case.check(place, out.stdout)


def called(words: str, folder: Path) -> tuple[Any, int]:
    from tests.support.command_line import _called

    done = _called(shlex.split(words), folder, "")
    assert "Traceback" not in done.stderr, done.stderr
    return done, done.returncode


def _matches(pattern: str, text: str) -> bool:
    import re

    return re.search(pattern, " ".join(text.split())) is not None


@pytest.mark.slow
def test_every_command_has_its_place() -> None:
    placed = {case.command for case in CASES} | {*ELSEWHERE}
    rest = [c for c in commands() if c not in placed and not f"{c} ".startswith(WITHOUT_MODEL)]
    assert not rest
    root = Path(__file__).parents[2]
    assert all((root / where).exists() for where in ELSEWHERE.values())
    assert {*ELSEWHERE} <= {*commands()}


def test_every_refusal_is_met() -> None:
    with graph_family():
        models = [metered_model(name) for name in FAMILIES]
    with graph_family():
        for refusal in REFUSALS:
            assert any(map(refusal.of, models)), refusal.reason
            assert any(case.words.startswith(refusal.words) for case in CASES)


# --- the verbs ----------------------------------------------------------------------------------


def by_prediction(place: Place, tmp_path: Path) -> None:
    inference = n3ic.predict(place.model, place.table.features)
    assert np.array_equal(inference.scores, place.answers.scores)
    assert np.array_equal(place.model.predict(place.table).margins, place.answers.margins)
    assert place.model.shape_text in place.model._repr_html_()


def by_evaluation(place: Place, tmp_path: Path) -> None:
    with pytest.warns(N3icWarning, match="was trained on some of these flows"):
        (evaluation,) = n3ic.evaluate(place.model, place.folder / "flows.parquet").values()
    assert evaluation.accuracy == pytest.approx(place.accuracy(np.arange(len(place.table))))


def by_shunting(place: Place, tmp_path: Path) -> None:
    (study,) = n3ic.shunt(
        place.folder / "m.n3ic", place.folder / "flows.parquet", margin=2
    ).values()
    test = split(place.table, "random", SEED).test
    assert study.test[0].accuracy == pytest.approx(place.accuracy(test))
    sure = next(p for p in study.test if p.threshold == 2)
    assert sure.decided == int((place.answers.margins[test] >= 2).sum())


def by_export(place: Place, tmp_path: Path) -> None:
    done = n3ic.export(place.model, "onnx", tmp_path / "onnx")
    assert done.verification is None or done.verification.ok
    assert n3ic.verify(tmp_path / "onnx", place.model, vectors=30, record=False).ok


def by_stream(place: Place, tmp_path: Path) -> None:
    class MarginSink:
        margins: list[int] = []  # noqa: RUF012

        def write(self, batch: Any) -> None:
            self.margins += batch.margins.tolist()

    sink = MarginSink()
    n3ic.stream(place.folder / "c.pcap", place.model, sink)
    assert sorted(sink.margins) == sorted(place.answers.margins.tolist())


def by_learning(place: Place, tmp_path: Path) -> None:
    done = n3ic.learn(
        place.folder / "flows.parquet", tmp_path / "l", place.model, delay=10, block="flow"
    )
    assert done is not None


def by_bench(place: Place, tmp_path: Path) -> None:
    if isinstance(place.model, BinaryModel):
        pytest.skip("minutes: tests/exporters/host/test_host_bench.py")
    measurement = n3ic.bench("host", place.model)  # it raises if a score differs
    assert place.model.shape_text in str(measurement)


def by_plan(place: Place, tmp_path: Path) -> None:
    assert n3ic.plan_cluster(place.model, nodes=2).to_dict()


VERBS: dict[str, tuple[Callable[[Place, Path], None], bool]] = {
    "predict": (by_prediction, False),
    "evaluate": (by_evaluation, True),
    "shunt": (by_shunting, True),
    "export": (by_export, True),
    "stream": (by_stream, True),
    "learn": (by_learning, True),
    "bench": (by_bench, True),
    "plan_cluster": (by_plan, False),
}
ELSEWHERE_IN_PYTHON = {
    "verify": "export", "run_cluster": "plan_cluster", "run_card": "command card",
    "plan_card": "command card", "export_card": "command card", "simulate_card": "command card",
    "verify_card": "command card", "shifts": "command evaluate --shift",
}  # fmt: skip
NO_MODEL = {
    "load", "train", "extract", "audit", "decide", "domains", "sweep", "from_sklearn", "from_torch",
    "compile_cluster",
}  # fmt: skip
SAME_AS = {"learn": "stream learn", "plan_cluster": "cluster plan"}


@pytest.mark.parametrize("name", EVERY_FAMILY)
@pytest.mark.parametrize(
    "verb", [pytest.param(v, marks=[pytest.mark.slow] if slow else []) for v, (_, slow) in
             VERBS.items()],
)  # fmt: skip
def test_a_verb_gives_the_familys_own_scores_or_refuses(
    places: Any, verb: str, name: str, tmp_path: Path
) -> None:
    place = places(name)
    refused = refusals(SAME_AS.get(verb, verb), place.model)
    if refused:
        with pytest.raises(N3icError, match=refused[0].message):
            VERBS[verb][0](place, tmp_path)
        return
    VERBS[verb][0](place, tmp_path)


def test_every_verb_has_its_place() -> None:
    verbs = {n for n in n3ic.__all__ if n == n.lower()}
    assert verbs == {*VERBS} | {*ELSEWHERE_IN_PYTHON} | NO_MODEL


# --- the page -----------------------------------------------------------------------------------


def taken(model: Classifier) -> dict[str, str]:
    """What each system says of models of a family, in the words of the page."""

    def word(takes: bool) -> str:
        return "yes" if takes else "no"

    def on_card(target: str) -> bool:
        families = card_target(target).families
        tool = exporter(target)
        try:
            own = tool.for_family(model.family)
        except ExportError:
            return False
        fits = not own.check(model, own.parse_options({})).problems
        return fits and (not families or model.family in families)

    assert on_card("p4") == on_card("netfpga")  # they share a column
    return {
        "streams, studies": "yes",
        "`stream learn`": word(not not_trained_further(model)),
        "`--false-alarms`": word(not without_bias(model)),
        "card: host": word(on_card("host")),
        "card: XDP": word(on_card("xdp")),
        "card: P4, NetFPGA": word(on_card("netfpga")),
        "cluster": word(not layerless(model)),
    }


def test_the_page_says_which_system_takes_which_family() -> None:
    page = Path(__file__).parents[2] / "docs" / "how-to" / "your-own-forest.md"
    lines = page.read_text().partition("## Systems")[2].strip().splitlines()
    cells = [[c.strip() for c in line.strip("|").split("|")] for line in lines if "|" in line]
    head, _, *rows = cells
    names = [name for name in plugins.names(plugins.FAMILIES) if name != GraphModel.family]
    for name in names:
        words = family_text(name).removesuffix("s") + "s"
        (row,) = (r for r in rows if words.endswith(r[0]))
        assert dict(zip(head[1:], row[1:], strict=True)) == taken(metered_model(name)), name
    assert len(rows) == len(names)
