# SPDX-License-Identifier: Apache-2.0
"""The page of a run: what it says, that it stands alone, and that no name breaks it."""

import html
import json
import re
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from n3ic.data.table import Feature, FlowTable
from n3ic.errors import UsageError
from n3ic.evaluation.held_out import held_out
from n3ic.evaluation.importance import FeatureImportance
from n3ic.model.inputs import Field, InputSpec
from n3ic.model.random_models import random_model
from n3ic.targets.overview import SourcedNumber, TargetRow
from n3ic.usecases.evaluation import LabelledFlows
from n3ic.usecases.html_report import page
from n3ic.usecases.html_report.charts import (
    calibration_figure,
    importance_chart,
    importance_figure,
    roc_figure,
)
from n3ic.usecases.html_report.flows import confidence, explained_flows, margins
from n3ic.usecases.html_report.page import Verdict, accuracy_bars, bits_table, html_report, verdict
from n3ic.util.pictures import png
from tests.support.pages import Page

pytest.importorskip("sklearn")
MEASURE = """<!DOCTYPE html><iframe id="f" width="{width}" height="800" srcdoc="{page}"></iframe>
<script>
document.getElementById("f").onload = function () {{
  const page = this.contentDocument, root = page.documentElement;
  const small = [...page.querySelectorAll("a, summary")].filter(e => e.offsetParent)
    .filter(e => !e.className && e.getBoundingClientRect().height < 16);
  const seen = page.querySelector("nav a");
  seen.focus();
  const first = page.querySelector("#answers").getBoundingClientRect().bottom;
  page.querySelectorAll("details").forEach(e => e.open = true);
  const boxes = [...page.querySelectorAll(".wide")];
  document.title = [root.scrollWidth, root.clientWidth, small.length,
    this.contentWindow.getComputedStyle(page.body).backgroundColor,
    page.activeElement === seen, page.querySelectorAll("table").length, Math.ceil(first),
    boxes.filter(e => e.scrollWidth > e.clientWidth).length,
    Math.max(...boxes.map(e => e.getBoundingClientRect().right))].join("|");
}};
</script>"""
NAME = "<script>alert(1)</script>\"'>&"  # what a model may be called
EVIL = f"{NAME}\x1b"
ROWS = (
    TargetRow(
        "host", 1, 1, None, 20, SourcedNumber(21.9, "ns", "estimated"), None, (), ("tested",), ()
    ),
    TargetRow("card", 1, 0, None, None, None, None, (), (), (f"refused: {EVIL}",)),
)


def make_model():
    spec = InputSpec((Field.thermometer(NAME, range(1, 21)), Field.binary("bytes", 20)))
    model = random_model((40, 8, 2), np.random.default_rng(0))
    return model.changed(
        input=spec, classes=("fine", NAME), name=NAME, provenance={"data_sha256": "other"}
    )


def make_flows(model, rows=200):
    rng = np.random.default_rng(1)
    columns = {NAME: rng.integers(0, 30, rows), "bytes": rng.integers(0, 1 << 20, rows)}
    catalogue = tuple(Feature(n, EVIL, "", EVIL, 1.0, 32, True, EVIL) for n in columns)
    label = rng.integers(0, 2, rows)
    table = FlowTable(EVIL, columns, catalogue, label, model.classes, False, "own")
    return LabelledFlows(model, table, label, 1, ())


def written_run(folder):
    """A run folder with metrics of hostile names."""
    (folder / "plots").mkdir(parents=True)
    model = make_model()
    model.save(folder / "model.n3ic")
    figures = {"accuracy": 0.75, "confusion": [[70, 30], [20, 80]], "fpr": 0.3}
    metrics = {
        "version": 1, "use_case": EVIL, "recipe": EVIL, "test": figures, "no_better_than": EVIL,
        "baselines": {EVIL: {"accuracy": 0.5}},
        "data": {"name": EVIL, "synthetic": True, "notes": [EVIL]},
    }  # fmt: skip
    return folder, model, metrics


@pytest.fixture
def run(tmp_path):
    return written_run(tmp_path / "run")


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder, model, metrics = written_run(tmp_path_factory.mktemp("written") / "run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page, "labelled_flows", lambda *_: {"": make_flows(model)})
        return html_report(folder, {"": model}, metrics, ROWS)


def test_the_page_loads_nothing_else_and_no_name_breaks_it(written):
    document = Page(written)
    assert document.wrong == []
    assert "script" not in {tag for tag, _ in document.tags}
    assert not any(name.startswith("on") for _, attrs in document.tags for name in attrs)
    targets = [a[k] for _, a in document.tags for k in ("src", "href", "data", "action") if k in a]
    assert all(t.startswith(("#", "data:image/png;base64,")) for t in targets)
    ids = [a["id"] for _, a in document.tags if "id" in a]
    assert len(ids) == len(set(ids)) and {t[1:] for t in targets if t[0] == "#"} <= set(ids)
    assert "url(" not in written and "@import" not in written
    policy = [a["content"] for a in document.all("meta") if "http-equiv" in a]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'; img-src data:"]
    assert "<script>alert(1)</script>" in document.text and "\\x1b" in document.text


def test_the_page_shows_the_figures_and_targets_of_the_run(written):
    text = Page(written).text
    for figure in (
        "75.0 %", "70 (70.0%)", "80 (80.0%)", "No better than always saying", "generator made",
        "host", "21.9 ns e", "refused: ", "tested", "bytes (in steps of 1)", "speaks",
        "ROC of class", "margin at least", "Calibration of the margin", "95% interval",
        "points of accuracy lost", "count it", "the surest error", "least lead",
    ):  # fmt: skip
        assert figure in text, figure
    assert len(Page(written).all("img")) == 3
    assert len(written) < 400_000


def test_each_class_has_its_precision_and_recall(run, monkeypatch):
    """Of a matrix with true classes down, those that are found least first."""
    folder, model, metrics = run
    metrics["test"]["confusion"] = [[90, 10], [2, 0]]
    monkeypatch.setattr(page, "labelled_flows", lambda *_: {})
    text = html_report(folder, {"": model}, metrics, ROWS)
    caption = "Precision and recall of each class on the test rows"
    (table,) = re.findall(rf"<caption>{caption}.*?</table>", text, re.DOTALL)
    rows = [re.findall(r">([^<>\n]+)</t[hd]>", row) for row in table.split("<tr>")[2:]]
    assert [row[-4:] for row in rows] == [
        ["2", "2.0 %", "0.0 %", "0.0 %"],
        ["100", "98.0 %", "97.8 %", "90.0 %"],
    ]
    metrics["test"]["confusion"] = [[100, 0], [2, 0]]
    assert "98.0 %</td>" in html_report(folder, {"": model}, metrics, ROWS)


class Folds(HTMLParser):
    """Captions of tables, and whether each table lies in a part that is folded."""

    def __init__(self, text):
        super().__init__()
        self.tables, self._deep, self._caption = {}, 0, False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self._deep += tag == "details"
        self._caption |= tag == "caption"
        assert (tag, "open") not in [(tag, name) for name, _ in attrs]

    def handle_endtag(self, tag):
        self._deep -= tag == "details"
        self._caption &= tag != "caption"

    def handle_data(self, data):
        if self._caption:
            self.tables.setdefault(data.strip(), self._deep > 0)


def test_the_answers_come_first_and_tables_are_folded(written):
    text = Page(written).text
    order = ["75.0 %", " B", "1 of 2", "Right on test rows", "21.9 ns e", "What it was trained on"]
    places = [text.index(heading) for heading in order]
    assert places == sorted(places)
    assert "best baseline 50.0 %" in text
    unfolded = [name for name, folded in Folds(written).tables.items() if not folded]
    assert unfolded == [
        "Right on test rows, beside its baselines",
        "Targets",
        "(m measured, s simulated, e estimated)",
    ]
    assert len(Folds(written).tables) > 10
    bars = [a["style"] for tag, a in Page(written).tags if tag == "div" and "style" in a]
    assert bars == ["width: 75.00%", "width: 50.00%"]


@pytest.mark.parametrize(
    ("changes", "good", "word", "why"),
    [
        ({}, True, "verified", "20 B, 21.9 ns e"),
        ({"shown": ("checked", "tested"), "bytes": None}, True, "verified", "21.9 ns e"),
        ({"shown": ("FAILED",)}, False, "differs from the model", "20 B, 21.9 ns e"),
        ({"shown": ("not run",), "remarks": ("no verilator",)}, None, "not run", "no verilator"),
        ({"shown": ("not verified",)}, None, "not verified", "20 B, 21.9 ns e"),
        ({"fitting": 0, "shown": (), "remarks": ("shunts",)}, False, "refused", "shunts"),
        ({"fitting": 0, "remarks": ("a", "b")}, False, "does not fit", "a; b"),
        (
            {"networks": 2, "fitting": 2, "together": False},
            False,
            "does not fit",
            "20 B, 21.9 ns e",
        ),
        ({"networks": 2, "fitting": 2, "together": True}, True, "verified", "20 B, 21.9 ns e"),
    ],
)
def test_a_verdict_is_what_is_known(changes, good, word, why):
    row = replace(ROWS[0], **changes)
    assert verdict(row) == Verdict("host", good, word, why)


def test_bars_are_of_what_is_a_share():
    odd: list[Any] = [{"accuracy": 7.0}, {}, {"accuracy": "x"}, {"accuracy": float("nan")}, []]
    baselines = {"majority": {"accuracy": 0.5}, "a_b": {"accuracy": 0.75}}
    baselines |= {str(i): part for i, part in enumerate(odd)}
    bars = accuracy_bars({"test": {"accuracy": 0.75}, "baselines": baselines})
    assert [(bar.name, bar.text, bar.own) for bar in bars] == [
        ("binary network", "75.0 %", True), ("a b", "75.0 %", False), ("majority", "50.0 %", False)
    ]  # fmt: skip
    assert accuracy_bars({}) == ()


@pytest.mark.slow
def test_the_roc_of_a_run_is_shown_beside_its_baselines_where_the_rows_are_the_runs(
    run, monkeypatch
):
    folder, model, metrics = run
    (folder / "plots" / "roc.png").write_bytes(b"\x89PNG\r\n\x1a\nrest")
    other = make_flows(model)
    mine = replace(other, model=model.changed(provenance={
        "data_sha256": other.table.sha256, "protocol": "random", "seed": "0"}))  # fmt: skip
    for flows, own in ((other, 1), (mine, 0)):
        monkeypatch.setattr(page, "labelled_flows", lambda *_, flows=flows: {"": flows})
        text = Page(html_report(folder, {"": model}, metrics, ROWS)).text
        assert text.count("ROC of class") == own
        assert "ROC beside its baselines" in text


def test_the_page_is_read_by_keyboard_and_by_screen_reader(written):
    document = Page(written)
    assert document.all("html")[0]["lang"] == "en"
    assert any(a.get("name") == "viewport" for a in document.all("meta"))
    levels = [int(tag[1]) for tag, _ in document.tags if re.fullmatch("h[1-6]", tag)]
    assert levels.count(1) == 1 and levels[0] == 1
    assert all(b - a <= 1 for a, b in pairwise(levels))
    assert all(a.get("scope") in ("col", "row") for a in document.all("th"))
    assert len(document.all("caption")) == len(document.all("table"))
    assert all(a["alt"] for a in document.all("img"))
    scrolled = [a for a in document.all("div") if a.get("class") == "wide"]
    assert scrolled and all(a["tabindex"] == "0" and a["aria-label"] for a in scrolled)


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_the_colours_of_the_page_have_the_contrast_of_wcag(written):
    """1.4.3, level AA: 4.5 to 1 of text, on light and on dark."""
    schemes = [
        dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", block))
        for block in re.findall(r":root \{(.*?)\}", written, re.S)
    ]
    assert len(schemes) == 2
    for colours in schemes:
        for ink, paper in (
            ("ink", "paper"), ("soft", "paper"), ("accent", "paper"), ("ink", "shade"),
            ("good", "paper"), ("bad", "paper"),
        ):  # fmt: skip
            pair = sorted((luminance(colours[ink]), luminance(colours[paper])), reverse=True)
            assert (pair[0] + 0.05) / (pair[1] + 0.05) >= 4.5, (ink, paper)
    assert luminance(schemes[0]["paper"]) > 0.9 and luminance(schemes[1]["paper"]) < 0.02


@pytest.mark.slow
def test_the_same_run_gives_the_same_page(run, monkeypatch):
    folder, model, metrics = run
    monkeypatch.setattr(page, "labelled_flows", lambda *_: {"": make_flows(model)})
    first, second = (html_report(folder, {"": model}, metrics, ROWS) for _ in range(2))
    assert first == second


def test_without_flows_it_says_why_and_shows_the_runs_picture(run):
    folder, model, metrics = run
    (folder / "plots" / "roc.png").write_bytes(b"\x89PNG\r\n\x1a\nrest")
    (folder / "metrics.json").write_text(json.dumps(metrics))
    document = Page(html_report(folder, {"": model}, metrics, ROWS))
    assert document.wrong == [] and "No flows to look at: " in document.text
    assert document.all("img")[0]["src"].startswith("data:image/png;base64,")
    (folder / "plots" / "roc.png").write_bytes(b"<svg onload=alert(1)>")
    assert Page(html_report(folder, {"": model}, metrics, ROWS)).all("img") == []
    with pytest.raises(UsageError):
        html_report(folder, {"": model}, metrics, ROWS, dataset="no-such-data")


@pytest.mark.parametrize(
    "metrics",
    [None, {}, {"test": 5, "data": []}, {"test": {"confusion": [[1, 2], [3, "<b>"]]}},
     {"test": {"confusion": [[1, 2, 3], [1, 2]]}}],
)  # fmt: skip
def test_foreign_metrics_break_nothing(run, metrics):
    folder, model, _ = run
    document = Page(html_report(folder, {"": model}, metrics, ()))
    assert document.wrong == [] and "Confusion on" not in document.text


@pytest.mark.slow
def test_a_set_has_a_part_for_each_network(run, monkeypatch):
    folder, model, metrics = run
    models = {"a": model, NAME: model}
    per_task = {task: {"test": {"accuracy": 0.5 + i / 8}} for i, task in enumerate(models)}
    flows = {task: make_flows(model) for task in models}
    monkeypatch.setattr(page, "labelled_flows", lambda *_: flows)
    document = Page(html_report(folder, models, metrics | {"queue": per_task}, ROWS))
    assert document.wrong == [] and "50.0 %" in document.text and "62.5 %" in document.text
    assert len(document.all("img")) == 6 and "script" not in {tag for tag, _ in document.tags}


def test_the_flows_are_those_that_they_are_said_to_be():
    flows = make_flows(make_model())
    of = held_out(flows.model, flows.table, positive=flows.positive)
    right, margin = of.inference.classes == of.label, of.inference.margins
    shown = explained_flows(of, 10)
    assert len(shown) == 4
    assert f"by a margin of {margin[~right].max()}" in shown[0].title and "but is" in shown[0].title
    assert f"by a margin of {margin[right].min()}" in shown[1].title
    assert len(explained_flows(of, 1)) == 1
    table = margins(of)
    assert table.rows[0][1] == "200" and table.rows[0][3] == f"{100 * right.mean():.1f} %"
    charts, (importance, calibration, _) = confidence(of)
    assert [c.title for c in charts] == [
        "ROC", "Calibration of the margin", "What the accuracy rests on"
    ]  # fmt: skip
    assert "area 0." in charts[0].words and f"1 of {(of.label == 0).sum()} " in charts[0].words
    assert {row[0] for row in importance.rows} == {NAME, "bytes"}
    assert sum(int(row[1]) for row in calibration.rows) == 200


def test_charts_show_the_rows_that_they_are_of():
    of = held_out(*flows_of(make_flows(make_model(), 60)))
    axes = roc_figure(of.roc).axes[0]
    assert axes.get_xlim() == pytest.approx((of.roc.least, 1)) and axes.get_xscale() == "log"
    fpr, tpr = of.roc.steps(200)
    assert np.allclose(axes.lines[0].get_xydata(), np.column_stack([fpr, 100 * tpr]))
    groups = of.calibration()
    drawn: Any = calibration_figure(groups).axes[0].containers[0]
    bars = drawn.lines[2]
    spans = [[tuple(end) for end in line] for bar in bars for line in bar.get_segments()]
    for g in groups:
        upright = ((g.least + g.most) / 2, 100 * g.low), ((g.least + g.most) / 2, 100 * g.high)
        assert any(np.allclose(span, upright) for span in spans)
    names = [t.get_text() for t in importance_figure(of.importance()).axes[0].get_yticklabels()]
    assert any("…" in name for name in names) and "bytes" in names


def test_charts_keep_to_their_canvas():
    of = held_out(*flows_of(make_flows(make_model(), 60)))
    for figure in (
        roc_figure(of.roc), calibration_figure(of.calibration()),
        importance_figure(of.importance()),
    ):  # fmt: skip
        png(figure)  # lays it out
        whole = figure.bbox
        for axes in figure.axes:
            box = axes.get_tightbbox()
            assert whole.x0 <= box.x0 and box.x1 <= whole.x1, axes.get_xlabel()
            assert whole.y0 <= box.y0 and box.y1 <= whole.y1, axes.get_xlabel()
        under = [t.get_window_extent() for a in figure.axes for t in a.get_xticklabels()]
        under.sort(key=lambda box: box.x0)
        assert all(a.x1 < b.x0 for a, b in pairwise(b for b in under if b.width))


def test_labels_of_neighbours_do_not_touch():
    """Nor names that begin alike, of which the longest takes the room of the bars."""
    importances = [
        FeatureImportance(f"{'W' * 30}_{i}", 1, 0.17 - 0.01 * i, 0, 0, 0, 9.0, 0.87, i)
        for i in range(3)
    ]
    figure = importance_figure(importances)
    png(figure)
    left, right = (axes.xaxis.label.get_window_extent() for axes in figure.axes)
    assert left.x1 + 4 < right.x0
    names = [t.get_text() for t in figure.axes[0].get_yticklabels()]
    assert len({*names}) == 3


def test_certain_groups_are_not_cut_at_the_top():
    of = held_out(*flows_of(make_flows(make_model(), 60)))
    (axes,) = calibration_figure(of.calibration()).axes
    assert axes.get_ylim()[1] > 100


@pytest.mark.first_case
@pytest.mark.parametrize("sign", [1, -1, 0])
def test_bars_go_the_way_of_their_figures(sign):
    importances = [
        FeatureImportance(str(i), 1, sign * (0.3 - 0.1 * i), 0, 0, 0, 9.0, 0.9, i) for i in range(3)
    ]
    both: Any = importance_figure(importances).axes
    lost, phi2_axes = both
    assert [bar.get_width() for bar in lost.patches] == pytest.approx(
        [30 * sign, 20 * sign, 10 * sign]
    )
    assert [bar.get_width() for bar in phi2_axes.patches] == [0.9] * 3
    assert importance_chart(importances, "words") == importance_chart(importances, "words")


def flows_of(flows):
    return flows.model, flows.table


def test_the_bits_in_words_have_their_rates():
    spec = make_model().input
    rates = np.zeros((4, 40), dtype=np.bool_)
    rates[:1, 3] = True
    rows = bits_table(spec.with_rates(rates)).rows
    assert len(rows) == 40 and rows[3][0] == "bit 3" and rows[3][2] == "25.0 %"
    assert rows[3][1] == f"{NAME} >= 4" and bits_table(spec).rows[3][2] == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("width", "scheme", "paper"),
    [
        (1280, 1, "rgb(255, 255, 255)"),
        (390, 0, "rgb(21, 23, 27)"),
        (390, 1, "rgb(255, 255, 255)"),
        (1280, 0, "rgb(21, 23, 27)"),
    ],
)
def test_the_page_fits_the_window_and_has_its_colours(
    browser, tmp_path, monkeypatch, width, scheme, paper
):
    model = make_model()
    model.save(tmp_path / "model.n3ic")
    monkeypatch.setattr(page, "labelled_flows", lambda *_: {"": make_flows(model)})
    rest = {f"tree_depth_{i}": {"accuracy": 0.9 - i / 99} for i in range(7)}
    metrics = {"test": {"accuracy": 0.95}, "baselines": rest}
    targets = [replace(ROWS[0], target=f"target-{i}") for i in range(8)]
    text = page.html_report(tmp_path / "model.n3ic", {"": model}, metrics, targets)
    frame = tmp_path / "frame.html"
    frame.write_text(MEASURE.format(width=width, page=html.escape(text, quote=True)))
    done = subprocess.run(
        [
            browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1400,900", "--dump-dom",
            f"--blink-settings=preferredColorScheme={scheme}", frame.as_uri(),
        ],
        capture_output=True, text=True, timeout=600, check=True,
    )  # fmt: skip
    measures = re.search("<title>(.*?)</title>", done.stdout)[1].split("|")
    assert int(measures[0]) <= int(measures[1]) <= width
    assert measures[2:5] == ["0", paper, "true"] and int(measures[5]) > 10
    # A laptop's first screen, a telephone's.
    assert int(measures[6]) <= (900 if width > 500 else 844)
    assert float(measures[8]) <= width  # what is wider than the page scrolls in its box
    assert width > 500 or int(measures[7]) > 0
