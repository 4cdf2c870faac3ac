"""The rooms of the core stand on floors, and imports run downwards only."""

import ast
from itertools import chain

FLOORS = (
    {"errors", "__version__"},
    {"util", "options", "plugins"},
    {"model"},
    {"kernel"},
    {"data"},
    {"evaluation", "meter", "training"},
    {"targets", "runs"},
    {"card", "cluster"},
    {"usecases"},
    {"api"},
    {"cli"},
)
FLOOR_OF = {room: i for i, rooms in enumerate(FLOORS) for room in rooms}


def imported(tree):
    """Rooms of n3ic that a module imports, those for type checkers included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "n3ic":
            names = [a.name for a in node.names] if node.module == "n3ic" else []
            yield from names or [node.module.split(".")[1]]
        elif isinstance(node, ast.Import):
            yield from (a.name.split(".")[1] for a in node.names if a.name.startswith("n3ic."))


def test_imports_run_downwards(repository):
    core = repository / "n3ic"
    wrong = []
    for path in core.rglob("*.py"):
        room = path.relative_to(core).with_suffix("").parts[0]
        if room in ("__init__", "__main__"):
            continue  # the face and the entry point show what lies below
        wrong += [
            f"{path.relative_to(repository)} imports {other}"
            for other in imported(ast.parse(path.read_text(encoding="utf-8")))
            if other != room and FLOOR_OF.get(other, 0) >= FLOOR_OF[room]
        ]
    assert wrong == []


def test_the_core_names_no_data_set_and_no_target(repository):
    """Except in examples of help texts and docstrings."""
    plug_ins = [
        p.name
        for p in chain((repository / "datasets").iterdir(), (repository / "exporters").iterdir())
        if p.is_dir() and p.name != "__pycache__"
    ]
    assert len(plug_ins) > 5
    found = [
        f"{path.relative_to(repository)}: {name}"
        for path in (repository / "n3ic").rglob("*.py")
        for room in ("datasets", "exporters")
        for name in plug_ins
        if f"n3ic.{room}.{name}" in path.read_text(encoding="utf-8")
    ]
    assert found == []
