# SPDX-License-Identifier: Apache-2.0
"""Imports run downwards only: between packages of the core, roots, systems, and files.

The tables are those of docs/explanation/architecture.md.
"""

import ast
import re
import tomllib
from functools import cache
from graphlib import CycleError, TopologicalSorter
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
    *("file", "shunt", "stream", "tables", "trees"),
}
"""Names of plug-ins that are words of the field, too, and those of the core's own family."""
NAMED = {
    ("n3ic/cli/data.py", "upc-aau"),  # labels are written like those of that data set
    ("n3ic/meter/labels.py", "upc-aau"),
    ("n3ic/studies/sweep/api.py", "netfpga"),  # estimates sizes before an export, by default
    ("n3ic/studies/sweep/request.py", "netfpga"),
}
FACES = ("__init__", "__main__")  # the face and the entry point show what lies below
OUTER_FACES = {Path("n3ic", f"{name}.py") for name in FACES}


def rows(page, head):
    """Rows of the table of a page that begins with a head, as lists of cells."""
    text = page.partition(head)[2].partition("\n\n")[0]
    return [[c.strip() for c in line.strip("|").split("|")] for line in text.splitlines()[2:]]


def tables(repository):
    """Packages of the core from the ground up, and what each root and each system may import."""
    page = (repository / "docs/explanation/architecture.md").read_text("utf-8")
    packages = [
        (int(layer), re.fullmatch(r"`n3ic/(\w+)(?:/|\.py)`", package)[1])
        for layer, package, _ in rows(page, "| layer | package | subject |")
    ]
    may = {
        root.strip("`/"): {*re.findall(r"`(\w+)/`", other)}
        for root, _, other in rows(page, "| root | holds | may import |")
    }
    systems = {system: between for system, _, between in systems_of(page)}
    return packages[::-1], may, systems


def systems_of(page):
    """Each system of the page's table: its name, its aims, and the systems that it may import."""
    for system, aims, _, others in rows(page, "| system | aims | subject | may import |"):
        name = re.fullmatch(r"`systems/(\w+)(?:/|\.py)`", system)[1]
        yield name, [*map(int, aims.split(","))], {*re.findall(r"`(\w+)`", others)}


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
    statements = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in statements
        ):
            yield node.value


@cache  # several tests read the same trees
def modules(repository, root):
    """Path below the repository, dotted name and tree of each module of a root."""
    package_modules = []
    for path in sorted((repository / root).rglob("*.py")):
        below = path.relative_to(repository)
        dotted = ".".join(below.with_suffix("").parts)
        tree = ast.parse(path.read_text("utf-8"))
        package_modules.append((below, dotted if root == "n3ic" else f"n3ic.{dotted}", tree))
    return package_modules


@cache
def imports(repository, root):
    """Path below the repository and dotted names of what is imported, of each module of a root."""
    return [(p, [*imported(tree, dotted)]) for p, dotted, tree in modules(repository, root)]


@cache
def imports_of_files(repository):
    """The files that each file imports, as paths below the repository.

    An import of a name counts as one of the file that defines it or, for a package's name, of its
    ``__init__``. The faces of n3ic count neither as importers nor as imported.
    """
    roots = ("n3ic", *ROOTS)
    files = {d.removesuffix(".__init__"): p for r in roots for p, d, _ in modules(repository, r)}
    graph = {path: set() for path in files.values() if path not in OUTER_FACES}
    for path, names in (each for root in roots for each in imports(repository, root)):
        for name in names if path in graph else ():
            while name and name not in files:
                name = name.rpartition(".")[0]
            graph[path] |= {files[name]} & graph.keys() - {path} if name else set()
    return graph


def imports_of_folders(graph):
    """The same for systems, between the folders and files that lie side by side in a folder."""
    sides = {}
    for path, others in graph.items():
        for other in others:
            if path.parts[0] == other.parts[0] == "systems":
                pairs = zip(path.parts, other.parts, strict=False)
                fork = 1 + next(i for i, (a, b) in enumerate(pairs) if a != b)
                mine, theirs = Path(*path.parts[:fork]), Path(*other.parts[:fork])
                sides.setdefault(mine, set()).add(theirs)
    return sides


def circle(graph):
    """Nodes of one circle of a graph, the first of them once more at the end; empty without one."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return [*map(str, error.args[1])]
    return []


def wrong_arrows(repository, packages, may, systems):
    """Imports that no table allows, in words."""
    height = {package: i for i, (_, package) in enumerate(packages)}
    arrows = []
    for root in may:
        for path, names in imports(repository, root):
            own = path.with_suffix("").parts[1]  # a package, a folder, or a file beside them
            if root == "n3ic" and own in FACES:
                continue
            for name in names:
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
                elif root == "systems":
                    ok = parts[2] == own or parts[2] in systems.get(own, ())
                else:
                    ok = parts[2] == own
                if not ok:
                    arrows.append(f"{path} imports {name}")
    return arrows


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
    mentions = []
    for path, _, tree in modules(repository, "n3ic"):
        if path.stem in FACES:
            continue
        for text in texts(tree):
            known = text in names - ORDINARY and (path.as_posix(), text) not in NAMED
            if known or below.search(text):
                mentions.append(f"{path} says {text!r}")
    return mentions


def test_every_arrow_is_in_the_tables(repository):
    packages, may, systems = tables(repository)
    assert set(may) == {"n3ic", *ROOTS}
    assert [layer for layer, _ in packages] == sorted(layer for layer, _ in packages)
    assert max(layer for layer, _ in packages) <= 6
    assert {package for _, package in packages} == {
        p.stem
        for p in (repository / "n3ic").glob("[!_]*")
        if p.suffix == ".py" or (p.is_dir() and not p.is_symlink())  # links are the other roots
    }
    assert {*systems} == {
        p.stem for p in (repository / "systems").glob("[!_]*") if p.suffix == ".py" or p.is_dir()
    }
    assert wrong_arrows(repository, packages, may, systems) == []


def test_every_system_serves_an_aim(repository):
    page = (repository / "docs/explanation/architecture.md").read_text("utf-8")
    aims = re.findall(r"^(\d)\. ", page.partition("## The way of the data")[0], re.MULTILINE)
    assert aims == [*map(str, range(1, len(aims) + 1))] and len(aims) > 5
    for system, served, _ in systems_of(page):
        assert served and {*map(str, served)} <= {*aims}, system


def test_no_file_imports_itself_through_others(repository):
    graph = imports_of_files(repository)
    assert len(graph) > 700 and sum(map(len, graph.values())) > 2000
    assert circle(graph) == []


def test_no_folder_of_systems_imports_itself_through_its_neighbours(repository):
    folders = imports_of_folders(imports_of_files(repository))
    assert Path("systems/stream/flows") in folders[Path("systems/stream/learning")]
    assert circle(folders) == []


CIRCLES = {
    "of two": {
        "n3ic/model/a.py": "from n3ic.model.b import x",
        "n3ic/model/b.py": "import n3ic.model.a",
    },
    "in a function": {
        "exporters/host/a.py": "from n3ic.exporters.host import b",
        "exporters/host/b.py": "def f():\n    from n3ic.exporters.host.a import x",
    },
    "for type checkers": {
        "systems/card/a.py": "from n3ic.systems.card.b import x",
        "systems/card/b.py": "if TYPE_CHECKING:\n    from .a import X",
    },
    "through the face of a package": {
        "n3ic/model/passes/__init__.py": "from n3ic.model.passes.a import x",
        "n3ic/model/passes/a.py": "from n3ic.model.passes import y",
    },
    "of three": {
        "families/spn/a.py": "from n3ic.families.spn.b import x",
        "families/spn/b.py": "from n3ic.families.spn.c import x",
        "families/spn/c.py": "import importlib\nimportlib.import_module('n3ic.families.spn.a')",
    },
    "by the face of all": {
        "n3ic/__init__.py": "",
        "n3ic/api.py": "from n3ic.runs.a import x",
        "n3ic/runs/a.py": "from n3ic import train",
    },
}


@pytest.mark.parametrize("what", CIRCLES)
def test_a_planted_circle_is_seen(what, tmp_path):
    for path, code in CIRCLES[what].items():
        plant(tmp_path, path, code)
    graph = imports_of_files(tmp_path)
    assert len({*circle(graph)}) == len(graph)


def test_a_package_and_its_parts_are_no_circle(tmp_path):
    plant(tmp_path, "n3ic/__init__.py", "from typing import TYPE_CHECKING\nimport n3ic.api")
    plant(tmp_path, "n3ic/api.py", "from n3ic import __version__\nfrom n3ic.model import a")
    plant(tmp_path, "n3ic/model/__init__.py", "from n3ic.model import a")
    plant(tmp_path, "n3ic/model/a.py", "from . import b\nimport numpy")
    plant(tmp_path, "n3ic/model/b.py", "import n3ic.data")
    assert circle(imports_of_files(tmp_path)) == []


def test_a_planted_circle_of_folders_is_seen(tmp_path):
    plant(tmp_path, "systems/stream/flows/a.py", "from n3ic.systems.stream.learning import b")
    plant(tmp_path, "systems/stream/flows/b.py", "")
    plant(tmp_path, "systems/stream/learning/a.py", "from n3ic.systems.stream.flows import b")
    plant(tmp_path, "systems/stream/learning/b.py", "")
    graph = imports_of_files(tmp_path)
    assert circle(graph) == []
    assert {*circle(imports_of_folders(graph))} == {
        "systems/stream/flows",
        "systems/stream/learning",
    }


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
    missing = []
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
                missing.append(path if full or folder else f"{name}: in which folder?")
    return missing


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
    "a system from another one": ("systems/card/a.py", "from n3ic.systems.xdp import status"),
    "a target from another one": ("exporters/nfp/a.py", "from n3ic.exporters.p4 import entries"),
}


@pytest.mark.parametrize("what", PLANTED)
def test_the_guard_sees_a_planted_arrow(what, repository, tmp_path):
    path, code = PLANTED[what]
    rules = tables(repository)
    plant(tmp_path, path, code)
    assert len(wrong_arrows(tmp_path, *rules)) == 1


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("n3ic/model/a.py", "from n3ic import __version__\nfrom n3ic.util.files import free_path"),
        ("n3ic/cli/a.py", "import n3ic\nfrom n3ic import plugins, train"),
        ("n3ic/data/a.py", "from n3ic.kernel.prediction import csv_lines\nfrom . import split"),
        ("exporters/qonnx/a.py", "from n3ic.exporters.onnx import model_proto"),
        ("systems/card/a.py", "from n3ic.exporters.p4 import entries\nimport n3ic.cli.outputs"),
        ("systems/stream/a.py", "from n3ic.systems.xdp.status import read_status"),
    ],
)
def test_the_guard_lets_allowed_arrows_be(path, code, repository, tmp_path):
    rules = tables(repository)
    plant(tmp_path, path, code)
    assert wrong_arrows(tmp_path, *rules) == []


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
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(code, "utf-8")
