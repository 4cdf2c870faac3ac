# SPDX-License-Identifier: Apache-2.0
"""Imports run downwards only, between packages of the core and between the roots.

Both tables are those of docs/explanation/architecture.md.
"""

import ast
import re
import tomllib
from pathlib import Path

import pytest

import n3ic

ROOTS = ("datasets", "exporters", "families", "systems")
BETWEEN_TARGETS = {
    *(("qonnx", "onnx"), ("host", "onnx"), ("p4_netfpga", "p4"), ("xdp", "host")),
    ("dpdk", "host"),
}
ORDINARY = {
    *("binary", "binary-network", "card", "cluster", "flows", "host", "label", "meter", "metered"),
    *("file", "shunt", "stream", "tables"),
}
"""Names of plug-ins that are words of the field, too, and those of the core's own family."""
NAMED = {
    ("n3ic/cli/data.py", "upc-aau"),  # labels are written like those of that data set
    ("n3ic/meter/labels.py", "upc-aau"),
    ("n3ic/studies/sweep/api.py", "netfpga"),  # estimates sizes before an export, by default
    ("n3ic/studies/sweep/request.py", "netfpga"),
}
FACES = ("__init__", "__main__")  # the face and the entry point show what lies below


def rows(page, head):
    """Rows of the table of a page that begins with a head, as lists of cells."""
    text = page.partition(head)[2].partition("\n\n")[0]
    return [[c.strip() for c in line.strip("|").split("|")] for line in text.splitlines()[2:]]


def tables(repository):
    """Packages of the core from the ground up, and what each root may import."""
    page = (repository / "docs/explanation/architecture.md").read_text("utf-8")
    packages = [
        (int(layer), re.fullmatch(r"`n3ic/(\w+)(?:/|\.py)`", package)[1])
        for layer, package, _ in rows(page, "| layer | package | subject |")
    ]
    may = {
        root.strip("`/"): {*re.findall(r"`(\w+)/`", other)}
        for root, _, other in rows(page, "| root | holds | may import |")
    }
    return packages[::-1], may


def imported(tree, module):
    """Dotted names that a module imports, in whatever way, those for type checkers included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                # the face alone: its verbs are those of the api
                yield "n3ic.api" if alias.name == "n3ic" else alias.name
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = module.split(".")[: -node.level]
                base = ".".join([*parts, *filter(None, [base])])
            for alias in node.names:
                if base == "n3ic":
                    yield f"{n3ic._MODULE_OF.get(alias.name, f'n3ic.{alias.name}')}"
                else:
                    yield f"{base}.{alias.name}"
        elif isinstance(node, ast.Call) and node.args:
            called = node.func.attr if isinstance(node.func, ast.Attribute) else node.func
            called = called.id if isinstance(called, ast.Name) else called
            first = node.args[0]
            if called in ("import_module", "__import__") and isinstance(first, ast.Constant):
                name = str(first.value)
                yield "n3ic.api" if name == "n3ic" else name


def texts(tree):
    """Strings that a module has, without docstrings."""
    said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said:
            yield node.value


def modules(repository, root):
    """Path below the repository, dotted name and tree of each module of a root."""
    for path in sorted((repository / root).rglob("*.py")):
        below = path.relative_to(repository)
        dotted = ".".join(below.with_suffix("").parts)
        tree = ast.parse(path.read_text("utf-8"))
        yield below, dotted if root == "n3ic" else f"n3ic.{dotted}", tree


def wrong_arrows(repository, packages, may):
    """Imports that no table allows, in words."""
    height = {package: i for i, (_, package) in enumerate(packages)}
    found = []
    for root in may:
        for path, dotted, tree in modules(repository, root):
            own = path.with_suffix("").parts[1]
            if root == "n3ic" and own in FACES:
                continue
            for name in imported(tree, dotted):
                parts = name.split(".")
                if parts[0] != "n3ic" or len(parts) < 2 or parts[1] == "__version__":
                    continue
                other = parts[1] if parts[1] in ROOTS else "n3ic"
                if other == root == "n3ic":
                    ok = parts[1] == own or height.get(parts[1], 99) < height[own]
                elif other != root:
                    ok = other in may[root]
                elif root == "exporters":
                    ok = parts[2] == own or (own, parts[2]) in BETWEEN_TARGETS
                else:
                    ok = root == "systems" or parts[2] == own
                if not ok:
                    found.append(f"{path} imports {name}")
    return found


def plug_ins(repository):
    """Names of data sets, targets, systems and families, as folders and as they are typed.

    Those of the core's own evaluations and studies are not plug-ins to it.
    """
    points = tomllib.loads((repository / "pyproject.toml").read_text("utf-8"))
    groups = points["project"]["entry-points"].values()
    folders = {p.name for r in ROOTS for p in (repository / r).glob("[!_]*") if p.is_dir()}
    outside = tuple(f"n3ic.{root}." for root in ROOTS)
    typed = {n for group in groups for n, place in group.items() if place.startswith(outside)}
    return typed | folders


def names_of_plug_ins(repository, names):
    """Where the core says the name of a plug-in, as a string of its own or of a module."""
    below = re.compile(rf"\bn3ic[./]({'|'.join(ROOTS)})[./]\w")
    found = []
    for path, _, tree in modules(repository, "n3ic"):
        if path.stem in FACES:
            continue
        for text in texts(tree):
            known = text in names - ORDINARY and (path.as_posix(), text) not in NAMED
            if known or below.search(text):
                found.append(f"{path} says {text!r}")
    return found


def test_every_arrow_is_in_the_tables(repository):
    packages, may = tables(repository)
    assert set(may) == {"n3ic", *ROOTS}
    assert [layer for layer, _ in packages] == sorted(layer for layer, _ in packages)
    assert max(layer for layer, _ in packages) <= 6
    assert {package for _, package in packages} == {
        p.stem
        for p in (repository / "n3ic").glob("[!_]*")
        if p.suffix == ".py" or (p.is_dir() and not p.is_symlink())  # links are the other roots
    }
    assert wrong_arrows(repository, packages, may) == []


def test_the_core_names_no_plug_in(repository):
    """Except in docstrings and within longer texts, such as examples of the help."""
    names = plug_ins(repository)
    assert {"netfpga", "unsw-nb15", "spn", "sum-product-network"} <= names
    assert names_of_plug_ins(repository, names) == []
    for path, name in NAMED:  # no exception outlives its reason
        assert name in {*texts(ast.parse((repository / path).read_text("utf-8")))}


def missing_files(repository, text):
    """Files that a table's cells name and that are not there, in words.

    A bare name, such as ``scores.py``, lies in the folder named before it in the same cell.
    """
    roots = "|".join(("n3ic", "scripts", "tests", *ROOTS))
    found = []
    for cell in re.split(r"[|\n]", text):
        folder = None
        for name in re.findall(rf"`((?:{roots})/[\w./]*|[\w./*]+\.(?:py|c))`", cell):
            full = re.match(rf"(?:{roots})/", name)
            if full:
                path = name.replace("NAME", "*")
                folder = path.rstrip("/") if name.endswith("/") else path.rpartition("/")[0]
            else:
                path = f"{folder}/{name}"
            if not [*repository.glob(path.rstrip("/"))]:
                found.append(path if full or folder else f"{name}: in which folder?")
    return found


def test_files_that_the_architecture_names_are_there(repository):
    page = (repository / "docs/explanation/architecture.md").read_text("utf-8")
    named = re.findall(rf"`((?:n3ic|scripts|tests|{'|'.join(ROOTS)})/[\w./]*)`", page)
    assert len(named) > 60
    assert len(re.findall(r"`[\w*]+\.(?:py|c)`", page)) > 15
    assert missing_files(repository, page) == []


@pytest.mark.parametrize(
    ("cell", "missing"),
    [
        ("`n3ic/data/files.py`, `asking.py`", "n3ic/data/asking.py"),
        ("`systems/stream/functions/`: `c/asking.c`", "systems/stream/functions/c/asking.c"),
        ("`n3ic/data/asking.py`", "n3ic/data/asking.py"),
        ("`exporters/NAME/asking.py`", "exporters/*/asking.py"),
        ("`n3ic/data/` | `files.py`", "files.py: in which folder?"),
    ],
)
def test_a_file_that_is_not_there_is_found(cell, missing, repository):
    assert missing_files(repository, f"| topic | {cell} |\n") == [missing]


PLANTED = {
    "the face from below": ("n3ic/model/a.py", "from n3ic import train"),
    "the face as a whole": ("n3ic/data/a.py", "import n3ic"),
    "a package above": ("n3ic/model/a.py", "from n3ic.targets.base import Exporter"),
    "a package above, by the parent": ("n3ic/model/a.py", "from n3ic import targets"),
    "a package above, relatively": ("n3ic/model/a.py", "from ..targets import base"),
    "a package above on the same layer": ("n3ic/kernel/a.py", "import n3ic.data.table"),
    "by its name": ("n3ic/util/a.py", "import importlib as i\ni.import_module('n3ic.model.bits')"),
    "by its name, in full": ("n3ic/util/a.py", "__import__('n3ic.model.bits')"),
    "for type checkers": (
        "n3ic/util/a.py",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from n3ic.model.bits import Bits",
    ),
    "in a function": ("n3ic/util/a.py", "def f():\n    from n3ic.model import bits"),
    "a target from the core": ("n3ic/cli/a.py", "from n3ic.exporters import host"),
    "a study from evaluation": ("n3ic/evaluation/a.py", "from n3ic.studies.shunt import points"),
    "a target from a study": ("n3ic/studies/a.py", "from n3ic.exporters.xdp import plan"),
    "a system from a study": ("n3ic/studies/a.py", "from n3ic.systems.stream import flows"),
    "a system from the core": ("n3ic/cli/a.py", "import n3ic.systems.card"),
    "a family from the core": ("n3ic/model/a.py", "from n3ic.families.spn.network import SpnModel"),
    "a system from a target": ("exporters/host/a.py", "from n3ic.systems.card import plan"),
    "a system from a data set": ("datasets/flows/a.py", "from n3ic.systems import card"),
    "a system from a family": ("families/spn/a.py", "from n3ic.systems.card import plan"),
    "a target from a family": ("families/spn/a.py", "import n3ic.exporters.host.exporter"),
    "a family from a family": ("families/spn/a.py", "from n3ic.families.binary import fold"),
    "a target from another one": ("exporters/nfp/a.py", "from n3ic.exporters.p4 import entries"),
}


@pytest.mark.parametrize("what", PLANTED)
def test_the_guard_sees_a_planted_arrow(what, repository, tmp_path):
    path, code = PLANTED[what]
    packages, may = tables(repository)
    plant(tmp_path, path, code)
    assert len(wrong_arrows(tmp_path, packages, may)) == 1


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("n3ic/model/a.py", "from n3ic import __version__\nfrom n3ic.util.files import free_path"),
        ("n3ic/cli/a.py", "import n3ic\nfrom n3ic import plugins, train"),
        ("n3ic/data/a.py", "from n3ic.kernel.prediction import csv_lines\nfrom . import split"),
        ("exporters/qonnx/a.py", "from n3ic.exporters.onnx import graph"),
        ("systems/card/a.py", "from n3ic.exporters.p4 import entries\nimport n3ic.systems.cluster"),
    ],
)
def test_the_guard_lets_allowed_arrows_be(path, code, repository, tmp_path):
    packages, may = tables(repository)
    plant(tmp_path, path, code)
    assert wrong_arrows(tmp_path, packages, may) == []


@pytest.mark.parametrize(
    "code",
    ["X = 'netfpga'", "f(kind='spn')", "X = 'n3ic.exporters.host'", "X = {'unsw-nb15': 1}"],
)
def test_the_guard_sees_a_planted_name(code, repository, tmp_path):
    plant(tmp_path, "n3ic/runs/a.py", code)
    assert len(names_of_plug_ins(tmp_path, plug_ins(repository))) == 1


def test_docstrings_and_examples_may_say_names(repository, tmp_path):
    plant(tmp_path, "n3ic/runs/a.py", '"""netfpga"""\nHELP = "a target such as netfpga"\n')
    assert names_of_plug_ins(tmp_path, plug_ins(repository)) == []


def plant(folder, path, code):
    """One module in an otherwise empty tree."""
    file = folder / Path(path)
    file.parent.mkdir(parents=True)
    file.write_text(code, "utf-8")
