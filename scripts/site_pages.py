# SPDX-License-Identifier: Apache-2.0
"""MkDocs hooks that make pages of the documentation site from the source.

``mkdocs.yml`` names this file. The pages of the command line come from its commands, those of the
Python reference from what ``import n3ic`` offers, the data cards from the data sets, and the
notebooks from ``notebooks/``. None of them is committed.

The links of ``docs/`` are those of the repository, so its pages also work on a forge. On the site,
a link out of ``docs/`` leads to the page made from that file, or becomes text if there is none.
"""

from __future__ import annotations

import base64
import json
import posixpath
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from typer.cli import get_docs_for_click

import n3ic
from n3ic import plugins
from n3ic.cli.main import command_line
from n3ic.data.dataset import DataSet, data_set
from n3ic.usecases.base import UseCase

ROOT = Path(__file__).resolve().parent.parent
# Typed after a command, so that its help shows the options of all plug-ins.
WORDS = {"export": ("--target", "all"), "data": ("generate",)}
WORDS |= dict.fromkeys(("train", "sweep", "decide"), ("--help-recipe",))
# Modules that are shown whole, in addition to what `import n3ic` offers: what writers of plug-ins
# and of notebooks need.
FURTHER = (
    *("n3ic.options", "n3ic.targets.device", "n3ic.targets.figures", "n3ic.evaluation.metrics"),
    *("n3ic.evaluation.held_out", "n3ic.runs.pictures", "n3ic.meter.spec_file", "n3ic.errors"),
    *("n3ic.datasets", "n3ic.data.dataset", "n3ic.data.split", "n3ic.usecases.base"),
    *("n3ic.training.input_choice", "n3ic.families.binary.fit", "n3ic.families.binary.fold"),
    *("n3ic.evaluation.sensitivity", "n3ic.meter.standard", "n3ic.meter.labels"),
    *("n3ic.meter.extract", "n3ic.meter.verdicts"),
)
PROJECT = {
    "changelog": "CHANGELOG.md",
    "contributing": "CONTRIBUTING.md",
    "security": "SECURITY.md",
}
# Where a link to a part of the source leads of which several pages are made.
FIRST = {
    "n3ic/cli": "reference/command-line/train.md",
    "n3ic/api.py": "reference/python/n3ic.api.md",
    "datasets": "reference/data-cards/unsw-nb15.md",
}
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)#\s]*)(#[^)\s]*)?\)")
ROLE = re.compile(r":(?:attr|class|const|data|exc|func|meth|mod):<code>[~.]?([^<]*)</code>")


@dataclass(frozen=True)
class Made:
    """A page made from the source.

    Attributes:
        uri: its path below ``docs/``.
        text: Markdown.
        source: the file in the repository to which its links are relative; empty for none.
        pictures: contents of PNG files beside it, by name.
    """

    uri: str
    text: str
    source: str = ""
    pictures: Mapping[str, bytes] = field(default_factory=dict)


def command_pages() -> Iterator[Made]:
    """A page per command of the command line, including the commands of groups."""
    every: Any = typer.main.get_command(command_line(["--help"]))
    for name in sorted(every.commands):
        group: Any = typer.main.get_command(command_line([name, *WORDS.get(name, ())]))
        command, context = group.commands[name], typer.Context(group, info_name="n3ic")
        text = get_docs_for_click(obj=command, ctx=context, name=name, call_prefix="n3ic")
        yield Made(f"reference/command-line/{name}.md", text)


def python_pages() -> Iterator[Made]:
    """A page per public module, which mkdocstrings fills."""
    offered: dict[str, list[str]] = {}
    for name in n3ic.__all__:
        module = getattr(n3ic, name).__module__
        if module not in FURTHER:
            offered.setdefault(module, []).append(name)
    for module, names in [("n3ic.api", offered.pop("n3ic.api")), *sorted(offered.items())]:
        blocks = "".join(f"::: {module}.{name}\n\n" for name in names)
        yield Made(f"reference/python/{module}.md", f"# `{module}`\n\n{blocks}")
    for module in FURTHER:
        yield Made(f"reference/python/{module}.md", f"# `{module}`\n\n::: {module}\n")


def card_pages() -> Iterator[Made]:
    """The card of each data set, under the commands that use it."""
    cases: list[UseCase] = [
        plugins.find("n3ic.usecases", name, UseCase) for name in plugins.names("n3ic.usecases")
    ]
    for name in plugins.names("n3ic.datasets"):
        dataset: DataSet = data_set(name)
        commands = [f"n3ic data show {name}", f"n3ic data show {name} --features"]
        commands += [f"n3ic train {c.name}" for c in cases if c.default == name]
        title, _, rest = dataset.card.partition("\n")
        text = "\n".join([title, "", "```sh", *commands, "```", rest])
        # two data sets of one folder have a card each
        files = [f for f in dataset.folder.glob("*.md") if f.read_text("utf-8").startswith(title)]
        source = f"datasets/{dataset.folder.name}/{files[0].name}"
        yield Made(f"reference/data-cards/{name}.md", text, source)


def project_pages() -> Iterator[Made]:
    """The pages from the root of the repository."""
    for name, file in PROJECT.items():
        yield Made(f"project/{name}.md", (ROOT / file).read_text("utf-8"), file)


def notebook_pages() -> Iterator[Made]:
    """The notebooks, with their stored outputs."""
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        parts: list[str] = []
        pictures: dict[str, bytes] = {}
        for cell in json.loads(path.read_text("utf-8"))["cells"]:
            source = "".join(cell["source"])
            parts.append(source if cell["cell_type"] == "markdown" else _fenced("python", source))
            for output in cell.get("outputs", ()):
                data = output.get("data", {"text/plain": output.get("text", "")})
                if "image/png" in data:
                    name = f"{path.stem}-{len(pictures) + 1}.png"
                    pictures[name] = base64.b64decode("".join(data["image/png"]))
                    parts.append(f"![What the cell above draws]({name})")
                elif "text/html" in data:
                    lines = "".join(data["text/html"]).splitlines()
                    parts.append("\n".join(line for line in lines if line.strip()))
                elif "text/markdown" in data:
                    parts.append("".join(data["text/markdown"]))
                else:
                    parts.append(_fenced("text", "".join(data["text/plain"])))
        yield Made(
            f"notebooks/{path.stem}.md",
            "\n\n".join(parts),
            path.relative_to(ROOT).as_posix(),
            pictures,
        )


def _fenced(language: str, text: str) -> str:
    return f"````{language}\n{text.rstrip()}\n````"


@cache
def made_pages() -> tuple[Made, ...]:
    """All pages made from the source."""
    makers = (command_pages, python_pages, card_pages, notebook_pages, project_pages)
    return tuple(page for make in makers for page in make())


@event_priority(50)  # before mkdocstrings, which reads its paths then
def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the made pages where the navigation names their folder."""
    config.nav = _expanded(config.nav)
    python = config.plugins["mkdocstrings"].config["handlers"]["python"]
    python["paths"] = [_laid_out(Path(_packages().name))]
    return config


@cache
def _packages() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="n3ic-site-")  # removed when the process ends


def _laid_out(folder: Path) -> str:
    """Lay out copies of the modules as installed, because mkdocstrings does not follow links."""
    for name in ("n3ic", "datasets", "exporters", "families", "systems"):
        for path in (ROOT / name).rglob("*.py"):
            inside = folder / "n3ic" / path.relative_to(ROOT / "n3ic" if name == "n3ic" else ROOT)
            inside.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, inside)
    return str(folder)


def _expanded(entry: Any) -> list[Any]:
    """Expand ``folder/*`` in an entry of the navigation."""
    if isinstance(entry, list):
        return [expanded for part in entry for expanded in _expanded(part)]
    if isinstance(entry, str):
        if not entry.endswith("/*"):
            return [entry]
        return [page.uri for page in made_pages() if posixpath.dirname(page.uri) == entry[:-2]]
    ((title, value),) = entry.items()
    plain = isinstance(value, str) and not value.endswith("/*")
    return [entry if plain else {title: _expanded(value)}]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the made pages."""
    for made in made_pages():
        files.append(File.generated(config, made.uri, content=made.text))
        for name, content in made.pictures.items():
            uri = posixpath.join(posixpath.dirname(made.uri), name)
            files.append(File.generated(config, uri, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links to files of the repository to the pages made from them."""
    sources = {made.uri: made.source for made in made_pages() if made.source}
    uris = FIRST | {source: uri for uri, source in sources.items()}
    for source, uri in list(uris.items()):
        uris.setdefault(posixpath.dirname(source), uri)  # a folder: the first page of it
    here = page.file.src_uri
    folder = posixpath.dirname(sources.get(here, f"docs/{here}"))

    def lead(link: re.Match[str]) -> str:
        mark, text, target, anchor = link[1], link[2], link[3], link[4] or ""
        if not target or "://" in target:
            return link[0]
        path = posixpath.normpath(posixpath.join(folder, target))
        if mark and not folder.startswith("docs"):
            return link[0]  # a picture of the page's own
        uri = uris.get(path) or path.removeprefix("docs/")
        if uri == path:
            return text  # a file that the site does not show
        return f"{mark}[{text}]({posixpath.relpath(uri, posixpath.dirname(here) or '.')}{anchor})"

    return LINK.sub(lead, markdown)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Show Sphinx roles in docstrings as code."""
    return ROLE.sub(r"<code>\1</code>", html)
