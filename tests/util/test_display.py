# SPDX-License-Identifier: Apache-2.0
"""What objects show of themselves: a short line in a terminal, tables in a notebook."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from n3ic.data.table import Feature, FlowTable, SourceFile
from n3ic.evaluation.metrics import Evaluation
from n3ic.families.spn.arithmetic import LogArithmetic
from n3ic.families.spn.network import SpnModel
from n3ic.families.spn.nodes import Leaf
from n3ic.model.inputs import Field, InputSpec
from n3ic.model.passes import unchanged
from n3ic.model.random_models import random_model
from n3ic.runs.folder import Run
from n3ic.studies.shunt.points import ShuntPoint
from n3ic.studies.shunt.result import ShuntStudy, ThresholdObjective
from n3ic.systems.card.parser import parse_card
from n3ic.systems.card.planner import plan_card
from n3ic.systems.cluster.nodes import equal_nodes
from n3ic.systems.cluster.planner import plan_cluster
from n3ic.targets.device import Fit, Placement, Problem
from n3ic.targets.directory import Exported
from n3ic.targets.figures import Figure, Report
from n3ic.targets.verification import Verification
from n3ic.util.display import Displayed, TextTable, View, facts, listed
from tests.support.pages import Page

NAME = "<script>alert(1)</script>\"'&"  # what a model may be called
EVIL = f"{NAME}\x1b[2J\u202e"


def hostile_model():
    model = random_model((64, 8, 2), np.random.default_rng(0))
    spec = InputSpec((Field.thermometer(NAME, range(1, 33)), Field.binary("bytes", 32, unit=NAME)))
    classes = (NAME, "b")
    return model.changed(input=spec, classes=classes, name=NAME, provenance={NAME: NAME})


def hostile_spn():
    spec = InputSpec((Field.thermometer(NAME, [2, 4, 8]),))
    leaf = Leaf(0, [0, -1, -2, -3])
    return SpnModel(spec, (leaf,), LogArithmetic.of(0), (0, -1), [0, 0], (NAME, "b"), NAME)


def hostile_table():
    feature = Feature(EVIL, EVIL, "s", EVIL, 1.0, 32, True, EVIL)
    columns = {EVIL: np.arange(4, dtype=np.int64)}
    label = np.array([0, 1, 1, 1])
    source = SourceFile(EVIL, "0", 4, EVIL)
    return FlowTable(
        EVIL, columns, (feature,), label, (EVIL, "b"), True, "0", sources=(source,), notes=(EVIL,)
    )


def hostile_run():
    figures = {"accuracy": 0.5, "macro_f1": "<b>", "fpr": None}
    metrics = {"use_case": EVIL, "recipe": EVIL, "test": figures, "baselines": {EVIL: figures}}
    return Run(Path(EVIL), metrics | {"data": {"name": EVIL}}, {EVIL: Path(EVIL)})


def hostile_report():
    return Report((Figure(EVIL, 12.5, EVIL, "estimated", EVIL, 3.0),), (EVIL,))


def hostile_verification():
    figures = hostile_report().figures
    return Verification(EVIL, EVIL, 10, failures=(EVIL,), decoded=(EVIL,), figures=figures)


def hostile_export():
    fit = Fit((Placement(EVIL, EVIL, 7),), (Problem(EVIL),))
    network = unchanged(hostile_model())
    checked = hostile_verification()
    return Exported(Path(EVIL), EVIL, network, fit, hostile_report(), checked)


def study(chosen=2):
    points = tuple(ShuntPoint(t, 50, 0.5, None, 0.9, 0.5, 0.8, 0.7, None) for t in range(90))
    figures = {"card": Evaluation(9, 0.9, None, 0.9, None, None, ((1,),))}
    rows = {"validation": 9, "test": 9}
    return ShuntStudy(
        hostile_model(),
        ThresholdObjective(margin=2),
        "random",
        0,
        True,
        (EVIL,),
        rows,
        points,
        points,
        chosen,
        figures,
    )


def card_plan():
    graph = '[[tenants]]\nname = "t"\n[[tenants.graphs]]\nname = "g"\nuid = 1\nwants = "1 Gb/s"\n'
    task = '[[tasks]]\nname = "nt"\nkind = "verilog"\nsources = ["a.v"]\ntop = "nt"\n'
    task += 'needs = { units = 1 }\nrate = "10 Gb/s"\nlatency_ns = 200\n'
    head = "[device]\nresources = { units = 6 }\nregions = 3\nscheduling_ns = 64\n"
    return plan_card(parse_card(head + task + graph + 'packet_bytes = 500\nflow = ["nt"]\n'))


def hostile_card_plan():
    planned = card_plan()
    share = replace(planned.shares[0], tenant=EVIL)
    return replace(planned, shares=(share,), notes=(EVIL,), problems=(EVIL,))


def hostile_cluster_plan():
    plan = plan_cluster((256, 32, 2), equal_nodes(2, "nfp"))
    nodes = tuple(replace(n, name=EVIL) for n in plan.cluster.nodes)
    return replace(plan, cluster=replace(plan.cluster, nodes=nodes), goal=EVIL)


SHOWN = [
    hostile_model, hostile_spn, lambda: hostile_model().input, hostile_table, hostile_run,
    hostile_report, hostile_verification, hostile_export, study, lambda: study(None),
    hostile_card_plan, hostile_cluster_plan,
]  # fmt: skip


@pytest.mark.parametrize("make", SHOWN, ids=lambda f: f.__name__)
def test_a_line_in_a_terminal_and_tables_in_a_notebook(make):
    shown = make()
    line = repr(shown)
    assert line.startswith(f"<{type(shown).__name__} ") and line.endswith(">")
    assert len(line) < 240 and line.isprintable()
    page = Page(shown._repr_html_())
    assert page.wrong == []
    assert {tag for tag, _ in page.tags} <= {
        *("div", "p", "b", "ul", "li"),
        *("table", "caption", "thead", "tbody", "tfoot", "tr", "th", "td"),
    }
    assert page.all("table") and all("scope" in th for th in page.all("th"))
    assert all(c.isprintable() or c in "\n\t" for c in page.text)
    styles = " ".join(a.get("style", "") for _, a in page.tags)
    assert "background" not in styles and "color:" not in styles  # those of the page


def test_names_are_there_as_text():
    text = "".join(Page(make()._repr_html_()).text for make in (hostile_model, hostile_run))
    assert "<script>alert(1)</script>" in text and "\\x1b[2J" in text and "\\u202e" in text


def test_long_tables_are_cut_and_say_so():
    class Long(Displayed):
        def view(self):
            rows = tuple((str(i), "x") for i in range(1000))
            return View("y" * 500, (TextTable("t", ("a", "b"), rows),))

    html = Long()._repr_html_()
    assert len(Page(html).all("tr")) == 62 and "and 940 more" in html
    assert repr(Long()).endswith("y…>")


def test_the_display_of_a_model_has_its_facts():
    model = random_model((256, 32, 16, 2), np.random.default_rng(0), extremes=False)
    line = repr(model)
    assert "256-32-16-2, 1,092 bytes of weights, " in line
    assert f"{model.total_bytes:,} in total, classes class0, class1" in line
    rows = {row[0]: row for row in model.memory_table.rows}
    assert rows["0"][1:5] == ("256", "32", "8,192", "1,024")
    assert sum(int(row[5]) for row in rows.values()) == model.threshold_bytes
    assert "margins below 3 are shunted" in repr(model.with_shunt(3))


def test_a_study_shows_its_threshold_and_few_of_the_others():
    result = study()
    assert "threshold 2: 50.0 %" in repr(result)
    points, stages = result.tables
    assert len(points.rows) < 30 and sum(r[0] == "* 2" for r in points.rows) == 1
    assert stages.rows[0][0] == "card alone"
    assert len(study(None).tables) == 1


def test_an_empty_table_of_flows_shows_itself():
    table = hostile_table().rows(np.zeros(4, dtype=np.bool_))
    assert "0 flows" in repr(table) and Page(table._repr_html_()).wrong == []


@pytest.mark.parametrize("metrics", [{}, {"test": 5, "baselines": [], "data": None}])
def test_a_run_of_foreign_metrics_shows_itself(metrics):
    run = Run(Path("runs/x"), metrics, {"": Path("m")})
    assert "runs/x" in repr(run) and "runs/x" not in Page(run._repr_html_()).wrong


def test_facts_leave_out_what_is_not_known():
    assert facts("t", [("a", None), ("b", ""), ("c", 0)]).rows == (("c", "0"),)
    assert listed("abc", 2) == "a, b and 1 more" and listed("ab") == "a, b"
