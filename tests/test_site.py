# SPDX-License-Identifier: Apache-2.0
"""The documentation site: built without a warning, complete, and whole without a network."""

import ast
import html.parser
import importlib
import json
import os
import re
import subprocess
import sys
from typing import Any

import pytest
import typer

import n3ic
from n3ic import plugins
from n3ic.cli.main import command_line
from n3ic.usecases.base import use_case

LOADING = {"script": "src", "img": "src", "iframe": "src", "source": "srcset", "link": "href"}
WIDE = """<script>addEventListener("load", () => setTimeout(() => {
  parent.postMessage([innerWidth, document.documentElement.scrollWidth,
    document.querySelectorAll(".md-search-result__item").length].join("|"), "*");
}, 2000));</script></body>"""
# A browser's window is no narrower than it likes; a frame in it is as narrow as it is told.
FRAME = """<!DOCTYPE html><iframe src="{page}?q=popcount" width="{width}" height="900"
  style="border: 0"></iframe>
<script>addEventListener("message", told => { document.title = told.data; });</script>"""


class Loads(html.parser.HTMLParser):
    """What a page loads, and the identifiers in it."""

    def __init__(self, text):
        super().__init__()
        self.loads, self.ids = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        by_name = dict(attributes)
        self.ids.add(by_name.get("id"))
        if tag in LOADING and by_name.get("rel") not in ("canonical", "next", "prev", "alternate"):
            self.loads.append(by_name.get(LOADING[tag]) or "")


@pytest.fixture(name="site_pages")
def made_pages(repository, monkeypatch):
    """The hooks that make pages."""
    pytest.importorskip("mkdocs", reason="needs mkdocs (pip install 'n3ic[docs]')")
    monkeypatch.syspath_prepend(str(repository / "scripts"))
    return importlib.import_module("site_pages")


@pytest.fixture(scope="module")
def site(repository, made_once):
    """The site, built as ``scripts/docs`` builds it; every warning is an error."""
    pytest.importorskip("mkdocs", reason="needs mkdocs (pip install 'n3ic[docs]')")

    def make(out):
        done = subprocess.run(
            [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)],
            cwd=repository,
            env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "WARNING" not in done.stderr

    return made_once("site", make)


@pytest.mark.exhaustive
def test_no_page_loads_anything_from_another_host(site):
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 80
    outside = {
        f"{page.name}: {load}"
        for page in pages
        for load in Loads(page.read_text("utf-8")).loads
        if "//" in load.partition(",")[0] and not load.startswith("data:")
    }
    assert outside == set()
    for sheet in site.rglob("*.css"):
        text = sheet.read_text("utf-8")
        assert "url(http" not in text, sheet
        assert "@import" not in text, sheet


@pytest.mark.exhaustive
def test_every_command_has_a_page_with_the_options_of_plugins(site):
    group: Any = typer.main.get_command(command_line(["--help"]))
    for name in group.commands:
        assert (site / f"reference/command-line/{name}.html").is_file(), name
    options = {"export": "--style", "train": "--gce-q", "decide": "--epochs", "data": "--flows"}
    for name, option in options.items():
        assert option in (site / f"reference/command-line/{name}.html").read_text("utf-8"), name
    assert "n3ic card plan" in (site / "reference/command-line/card.html").read_text("utf-8")


def test_the_page_of_a_command_shows_the_values_of_its_recipe(site_pages):
    """As ``n3ic recipes show`` does, also for a switch, whose value depends on the recipe."""
    pages = {made.uri.rpartition("/")[2]: made.text for made in site_pages.command_pages()}
    recipe = use_case("flows").recipes["default"]
    for name in ("train", "sweep", "decide"):
        for option, value in {
            "`--bits VALUE`": str(recipe.bits),
            "`--hidden VALUE`": ",".join(map(str, recipe.training.hidden)),
            "`--batch-norm / --no-batch-norm`": str(recipe.training.batch_norm).lower(),
            "`--loss squared_hinge": recipe.training.loss,
        }.items():
            (line,) = [x for x in pages[f"{name}.md"].splitlines() if x.startswith(f"* {option}")]
            assert line.endswith(f"[{value}]"), line


@pytest.mark.slow
def test_what_python_offers_is_in_the_reference(site):
    for name in n3ic.__all__:
        module = getattr(n3ic, name).__module__
        page = (site / f"reference/python/{module}.html").read_text("utf-8")
        assert f"{module}.{name}" in Loads(page).ids, name
        assert ":class:" not in page


def test_notebooks_import_what_the_reference_documents(site_pages, repository):
    documented = {f"n3ic.{name}" for name in n3ic.__all__} | {"n3ic"}
    for made in site_pages.python_pages():
        documented |= set(re.findall(r"^::: (\S+)$", made.text, re.MULTILINE))
    unknown = {
        f"{path.stem}: {name}"
        for path in (repository / "notebooks").glob("*.ipynb")
        for module, name in imports(path)
        if module.partition(".")[0] == "n3ic"
        and name not in documented
        and (module not in documented - {"n3ic"} or name.startswith(f"{module}._"))
    }
    assert unknown == set()


def imports(path):
    """Module and full name of each import of a notebook."""
    for cell in json.loads(path.read_text("utf-8"))["cells"]:
        if cell["cell_type"] != "code":
            continue
        lines = "".join(cell["source"]).splitlines()
        for node in ast.walk(
            ast.parse("\n".join(x for x in lines if not x.startswith(("%", "!"))))
        ):
            if isinstance(node, ast.Import):
                yield from ((alias.name, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield from ((node.module, f"{node.module}.{alias.name}") for alias in node.names)


@pytest.mark.slow
def test_every_data_set_and_every_target_has_its_pages(site, repository):
    how_to = repository / "docs" / "how-to"
    sections = (how_to / "data-sets.md").read_text("utf-8")
    for name in plugins.names("n3ic.datasets"):
        assert (site / f"reference/data-cards/{name}.html").is_file()
        assert f"](../../datasets/{plugins.load('n3ic.datasets', name).folder.name}/" in sections
        assert f"n3ic data show {name}\n" in sections
    pages = [page.read_text("utf-8") for page in how_to.glob("*.md")]
    for name in plugins.names("n3ic.exporters"):
        command = re.compile(rf"n3ic export .*(--target|-t) {name} ")
        assert any(command.search(page) for page in pages), name


@pytest.mark.slow
def test_notebooks_are_pages_with_their_outputs(site, repository):
    for path in (repository / "notebooks").glob("*.ipynb"):
        page = (site / f"notebooks/{path.stem}.html").read_text("utf-8")
        assert "IPython.core.display" not in page
        if '"image/png"' in path.read_text("utf-8"):
            assert f'src="{path.stem}-1.png"' in page
            assert (site / f"notebooks/{path.stem}-1.png").read_bytes()[1:4] == b"PNG"


@pytest.mark.slow
def test_links_into_the_repository_lead_to_what_is_made_of_the_file(site):
    page = (site / "reference/meter.html").read_text("utf-8")
    assert 'href="data-cards/unsw-nb15.html#from-packets"' in page
    home = (site / "index.html").read_text("utf-8")
    reference = ("command-line/train", "python/n3ic.api", "data-cards/unsw-nb15")
    for made in ("notebooks/", *(f"reference/{name}.html" for name in reference)):
        assert f'href="{made}' in home, made
    assert "n3ic[train]" in home
    assert "../../" not in page.replace('"../..', "")


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 360])
def test_a_page_fits_and_is_searched_from_disk(site, browser, tmp_path, width):
    page = site / "how-to" / "data-sets.html"
    probe, frame = (page.with_name(f"{name}-{width}.html") for name in ("probe", "frame"))
    probe.write_text(page.read_text("utf-8").replace("</body>", WIDE), "utf-8")
    frame.write_text(FRAME.replace("{page}", probe.name).replace("{width}", str(width)), "utf-8")
    done = subprocess.run(
        [
            *(browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
            *(f"--user-data-dir={tmp_path}", "--window-size=1400,900", "--dump-dom"),
            *("--virtual-time-budget=20000", frame.as_uri()),
        ],
        capture_output=True,
        text=True,
        timeout=600,
    )
    title = re.search(r"<title>(\d+)\|(\d+)\|(\d+)</title>", done.stdout)
    assert title, done.stdout[:2000] + done.stderr[-2000:]
    inner, scrolled, results = map(int, title.groups())
    assert scrolled <= inner == width
    assert results > 0


@pytest.mark.slow
def test_the_search_knows_what_the_pages_say(site):
    index = json.loads((site / "search" / "search_index.json").read_text("utf-8"))
    locations = {entry["location"].partition("#")[0] for entry in index["docs"]}
    assert {"explanation/folding.html", "reference/command-line/export.html"} <= locations
