# SPDX-License-Identifier: Apache-2.0
"""Measure what the default tests find: break one token at a time, and count what they notice.

A mutant is the source with one comparison, operator, constant, argument, slice or returned value
changed. It is killed if a test that executes its line fails, and survives otherwise. No file is
changed: a separate process gets the mutant in place of the file that it imports or reads.

    python scripts/mutants.py                      300 mutants; fails if fewer than 95 % are killed
    python scripts/mutants.py --only evaluation    those of files whose path contains the word
    python scripts/mutants.py --slow               those that survive meet the slow tests, too
    python scripts/mutants.py --list               name the mutants, run nothing

First, each test runs once to learn which lines it executes and how long it takes. This is kept in
build/mutants/ until the test's file changes, or a mutated file that it imports. Each mutant then
meets the tests of its line: first the fast tests in files about its module, then one test of each
other file in turn. Tests marked slow are left out without ``--slow``, and a file that no fast test
executes is an error. ``mutants_equivalent.toml`` names the mutants that compute the same, and says
why. The last line has the seed, the numbers and the share.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import contextlib
import copy
import hashlib
import importlib
import importlib.machinery
import io
import json
import multiprocessing
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, NamedTuple

import coverage
import pytest

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "build" / "mutants"
EQUIVALENT = Path(__file__).with_name("mutants_equivalent.toml")
SLOWEST = 2.0  # CPU seconds; a slower test runs after the others
SLOWEST_OF_ALL = 20.0  # CPU seconds; a slower test is left out
NEEDED = 0.95  # share of the mutants that must be killed
EQUIVALENTS = 0.03  # share of the mutants that may be declared equivalent
MOST = 20.0  # CPU seconds for the tests of one mutant; the slowest are left out
MOST_OF_TEXT = 40.0  # the same in another language, where a line does not select tests
MOST_OF_REST = 40.0  # the same for tests of other subjects, for mutants that are still alive
MOST_OF_SLOW = 120.0  # the same for slow tests of the files about a mutant, run until one fails
SLOW_FILES = 4  # of tests, those with the most tests that execute a mutant's line
BATCH = 12  # the fastest tests of a line run first; most mutants need no others

# What is mutated, and the tests about it. A glob that finds nothing is an error.
MUTATED = (
    "n3ic/model/**/*.py",
    "families/binary/coverage.py",
    "families/binary/family.py",
    "families/binary/fold.py",
    "families/spn/arithmetic.py",
    "families/spn/family.py",
    "families/spn/fold.py",
    "families/spn/network.py",
    "families/spn/nodes.py",
    "families/spn/graph.py",
    "families/spn/vectors.py",
    "families/tables/graph.py",
    "families/trees/arrays.py",
    "families/trees/family.py",
    "families/trees/graph.py",
    "families/trees/network.py",
    "families/trees/rounding.py",
    "families/trees/simplify.py",
    "families/trees/vectors.py",
    "n3ic/evaluation/*.py",
    "n3ic/meter/*.py",
    "n3ic/meter/c/*.j2",
    "n3ic/meter/c/*.h",
    "exporters/**/decod*.py",
    "n3ic/targets/verification.py",
    "n3ic/targets/decoding.py",
    "n3ic/targets/integrity.py",
    "n3ic/targets/verification_record.py",
)
# Code that makes up test inputs: a change of it only gives other inputs.
NOT_MUTATED = (
    "n3ic/model/random_models.py",
    "n3ic/targets/fuzz_traffic.py",
)
TESTS = (
    "tests/model/**/test_*.py",
    "tests/families/**/test_*.py",
    "tests/evaluation/test_*.py",
    "tests/meter/test_*.py",
    "tests/targets/test_*.py",
    "tests/util/test_display.py",
    "tests/exporters/**/test_*decod*.py",
    "tests/exporters/**/test_*graph*.py",
    "tests/kernel/test_*.py",
    "tests/exporters/onnx/test_*.py",
    "tests/exporters/**/test_*spn*.py",
    "tests/exporters/**/test_*shunt*.py",
    "tests/exporters/**/test_*tables*.py",
    "tests/exporters/p4/test_p4_export.py",
    "tests/exporters/nfp/test_nfp_export.py",
    "tests/exporters/netfpga/test_unrolled*.py",
    "tests/exporters/netfpga/test_update.py",
    "tests/exporters/xdp/test_exporter.py",
    "tests/exporters/host/test_firmware.py",
    "tests/exporters/host/test_host_export.py",
    "tests/exporters/host/test_host_flows.py",
)
REST = ("tests/**/test_*.py",)  # the default suite
# Lines of C that a test executes are unknown: the tests of the Python file that reads it count.
TEXT_READ_BY = {"n3ic/meter/c/": "n3ic/meter/source.py"}
# Those of them that compare C with Python run first.
TEXT_COMPARED_BY = tuple(
    f"tests/meter/test_{name}.py" for name in ("compiled", "flow_hash", "tunnels")
)
# Arguments of speed, or of a check that cannot fail: no result depends on them.
UNMUTATED_ARGUMENTS = {"strict", "copy", "maxsize", "stacklevel"}
# Calls whose arguments have no order, in the graphs of a model too.
COMMUTATIVE = {"min", "max", "gcd", "lcm", "np.minimum", "np.maximum", "np.array_equal"}
COMMUTATIVE |= {"Add", "LogAdd", "Times"}
# Imported once, before the first process is forked.
WARM = (
    *("hypothesis", "jinja2", "numpy", "pyarrow.parquet", "rich.console", "safetensors.numpy"),
    *("scipy.stats", "sklearn.ensemble", "sklearn.metrics", "torch", "typer.testing", "xdist"),
    *("onnx", "onnxruntime", "brevitas.nn", "lark", "_pytest.assertion.rewrite"),
)

COMPARED: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
CALCULATED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
}
PAIRS = (
    *(("min", "max"), ("any", "all"), ("minimum", "maximum"), ("floor", "ceil")),
    *(("argmin", "argmax"), ("packbits", "unpackbits"), ("cumsum", "cumprod")),
)
NAMES = {a: b for pair in PAIRS for a, b in (pair, pair[::-1])}
C_TOKENS = {
    old: new
    for pair in ("< <=", "> >=", "== !=", "+ -", "&& ||", "<< >>", "& |", "+= -=", "|= &=", "++ --")
    for old, new in (pair.split(), pair.split()[::-1])
}
C_TOKEN = re.compile(r"(?<= )(?:[<>=!]=|<<|>>|&&|\|\||\+=|\|=|[<>+\-&|])(?= )|\+\+")
C_NUMBER = re.compile(r"(?<![\w.\"])\d+(?=u?[;,)\] ])")
C_TRUTH = re.compile(r"(?:return|[\w>.-]+ =) 1;")
C_PROSE = re.compile(r"^\s*(?:\*[ /\n]|#|{%).*|//.*|/\*.*|{{.*?}}|\"[^\"]*\"", re.DOTALL)


class Mutant(NamedTuple):
    """One change of one file.

    Attributes:
        path: the file, from the repository's root.
        line: first line of the statement, or of its head.
        end: its last line; 0 if it runs on import, so no particular test executes it.
        number: index of the change in the file.
        inside: qualified name of the function or class around it; the line's text for C.
        before: the original text.
        after: the changed text.
    """

    path: str
    line: int
    end: int
    number: int
    inside: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line} ({self.inside})\n    - {self.before}\n    + {self.after}"


# --- mutants ---------------------------------------------------------------------------------


def mutants(path: str) -> Iterator[Mutant]:
    """All mutants of a file."""
    source = (ROOT / path).read_text(encoding="utf-8")
    changes = _python(source) if path.endswith(".py") else _text(source)
    for number, (line, end, inside, before, after, _) in enumerate(changes):
        yield Mutant(path, line, end, number, inside, before, after)


def source_of(mutant: Mutant) -> str | ast.Module:
    """The file with the mutant's change; a syntax tree for Python."""
    source = (ROOT / mutant.path).read_text(encoding="utf-8")
    changes = _python(source) if mutant.path.endswith(".py") else _text(source)
    for number, change in enumerate(changes):
        if number == mutant.number:
            return change[5]()
    raise SystemExit(f"{mutant.path} changed while its mutants ran; run it again")


Change = tuple[int, int, str, str, str, Callable[[], str | ast.Module]]


def _text(source: str) -> Iterator[Change]:
    lines = source.splitlines(keepends=True)
    for i, line in enumerate(lines):
        code = C_PROSE.sub(lambda prose: " " * len(prose.group()), line)
        for pattern in (C_TOKEN, C_NUMBER):
            for token in pattern.finditer(code):
                old = token.group()
                new = str(int(old) + 1) if pattern is C_NUMBER else C_TOKENS[old]
                if C_TRUTH.fullmatch(code.strip()):  # of which 2 is another
                    new = "0"
                changed = line[: token.start()] + new + line[token.end() :]
                text = "".join([*lines[:i], changed, *lines[i + 1 :]])
                yield i + 1, i + 1, old, line.strip(), changed.strip(), partial(str, text)


class _Place(NamedTuple):
    """Where a node is: ``field`` of ``parent``, at index ``at`` if that is a list."""

    parent: ast.AST
    field: str
    at: int | None
    inside: str
    lines: tuple[int, int]

    def put(self, node: ast.AST) -> None:
        if self.at is None:
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.at] = node


def _python(source: str) -> Iterator[Change]:
    tree = ast.parse(source)
    for place, node in list(_places(tree, "", (1, 1))):
        for changed in _changes(node, place.field):

            def mutated(
                place: _Place = place, node: ast.AST = node, changed: ast.AST = changed
            ) -> ast.Module:
                place.put(ast.copy_location(changed, node))
                return ast.fix_missing_locations(tree)

            before, after = ast.unparse(node), ast.unparse(changed)
            if before == after:  # two equal arguments
                continue
            yield *place.lines, place.inside, before, after, mutated


def _places(
    node: ast.AST, inside: str, lines: tuple[int, int], called: bool = False
) -> Iterator[tuple[_Place, ast.AST]]:
    """Every node whose value may matter, the outermost first."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        inside = f"{inside}.{node.name}".lstrip(".")
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "exc", "cause", "msg"):
            continue  # types, and the text of an error
        for index, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if not isinstance(child, ast.AST) or _is_prose(child) or _is_any_size(node, child):
                continue
            if isinstance(child, ast.stmt):
                lines = _head(child)
            called = called or (isinstance(node, ast.FunctionDef) and field == "body")
            place = _Place(node, field, index, inside, lines if called else (lines[0], 0))
            yield place, child
            yield from _places(child, inside, lines, called)


def _is_prose(node: ast.AST) -> bool:
    return (
        (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        or (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
        or (isinstance(node, ast.keyword) and node.arg in UNMUTATED_ARGUMENTS)
        or (isinstance(node, ast.Call) and ast.unparse(node.func) in ("cast", "TypeVar"))
    )


def _is_any_size(node: ast.AST, child: ast.AST) -> bool:
    """Whether a child is the -1 of a ``reshape``, which any negative number is to numpy."""
    reshapes = isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".reshape")
    return reshapes and ast.unparse(child) == "-1"


def _head(node: ast.stmt) -> tuple[int, int]:
    """The lines of a statement, without those of nested statements."""
    body = getattr(node, "body", None)
    last = (body[0].lineno - 1) if body else (node.end_lineno or node.lineno)
    return node.lineno, max(node.lineno, last)


def _changes(node: ast.AST, field: str) -> Iterator[ast.AST]:
    """Yield replacements for a node in that field of its parent."""

    def like(**fields: Any) -> ast.AST:
        changed = copy.copy(node)
        for name, value in fields.items():
            setattr(changed, name, value)
        return changed

    if field == "test" and isinstance(node, ast.Name | ast.Attribute | ast.Call):
        yield ast.UnaryOp(op=ast.Not(), operand=node)
    if isinstance(node, ast.Compare):
        for i, op in enumerate(node.ops):
            for other in COMPARED[type(op)]:
                yield like(ops=[*node.ops[:i], other(), *node.ops[i + 1 :]])
    elif isinstance(node, ast.BinOp | ast.AugAssign):
        if (other_op := CALCULATED.get(type(node.op))) is not None:
            yield like(op=other_op())
    elif isinstance(node, ast.BoolOp):
        yield like(op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
    elif isinstance(node, ast.UnaryOp):
        yield node.operand
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield like(value=not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield like(value=node.value + 1)
        if node.value >= 1:
            yield like(value=node.value - 1)
    elif isinstance(node, ast.Name) and node.id in NAMES:
        yield like(id=NAMES[node.id])
    elif isinstance(node, ast.Attribute) and node.attr in NAMES:
        yield like(attr=NAMES[node.attr])
    elif isinstance(node, ast.Call):
        args = [] if ast.unparse(node.func) in COMMUTATIVE else node.args
        for i in range(len(args) - 1):
            if not any(isinstance(a, ast.Starred) for a in args[i : i + 2]):
                yield like(args=[*args[:i], args[i + 1], args[i], *args[i + 2 :]])
    elif isinstance(node, ast.Slice):
        yield from (like(**{end: None}) for end in ("lower", "upper") if getattr(node, end))
    elif isinstance(node, ast.Return) and ast.unparse(node) not in ("return", "return None"):
        yield like(value=ast.Constant(value=None))


# --- tests, each run in a forked process -----------------------------------------------------


class Forked(NamedTuple):
    """A running process, and its deadline."""

    process: multiprocessing.process.BaseProcess
    key: Any
    folder: Path
    until: float


def run_forked(
    tasks: Sequence[tuple[Any, Callable[[Path], int], float]], jobs: int
) -> Iterator[tuple[Any, int | None, Path]]:
    """Run each task in a separate process, ``jobs`` at a time.

    Args:
        tasks: for each task, a key, what to do in an empty folder, and its limit in CPU seconds.
        jobs: number of processes.

    Yields:
        The key, the status that the task returned (None if it took too long or crashed), and its
        folder, which is removed afterwards.
    """
    context = multiprocessing.get_context("fork")
    queue, running = list(reversed(tasks)), list[Forked]()
    try:
        while queue or running:
            while queue and len(running) < jobs:
                key, task, seconds = queue.pop()
                folder = Path(tempfile.mkdtemp(prefix="n3ic-mutant-"))
                process = context.Process(target=_in_child, args=(task, folder, seconds))
                process.start()
                running.append(Forked(process, key, folder, time.monotonic() + 60 + 8 * seconds))
            wait([f.process.sentinel for f in running], timeout=1)
            for f in [f for f in running if not f.process.is_alive() or time.monotonic() > f.until]:
                _end(f)
                running.remove(f)
                code = f.process.exitcode
                yield f.key, code if code is not None and code >= 0 else None, f.folder
                shutil.rmtree(f.folder, ignore_errors=True)
    finally:
        for f in running:
            _end(f)
            shutil.rmtree(f.folder, ignore_errors=True)


def _end(forked: Forked) -> None:
    """End a process and everything that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(forked.process.pid or 0, signal.SIGKILL)
    forked.process.join()


def _in_child(task: Callable[[Path], int], folder: Path, seconds: float) -> None:
    os.setsid()
    log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    limit = int(10 + 5 * seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = str(folder / "hypothesis")
    os.environ["XDG_CACHE_HOME"] = str(KEPT / "cache")  # keeps mutants out of the user's cache
    os._exit(task(folder))


def _pytest(folder: Path, files: Sequence[str], plugins: Sequence[object], *options: str) -> int:
    os.chdir(ROOT)
    fixed = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:cov", "--no-header")
    quiet = ("-W", "ignore::pytest.PytestAssertRewriteWarning", "--hypothesis-seed=0")
    own = (f"--basetemp={folder / 't'}", *options)
    return int(pytest.main([*fixed, *quiet, *own, *files], plugins))


class Marked:
    """A pytest plug-in that leaves out tests marked slow, or the others.

    Args:
        slow: whether the slow ones run.
    """

    def __init__(self, *, slow: bool) -> None:
        self.slow = slow

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Leave out tests."""
        items[:] = [i for i in items if (i.get_closest_marker("slow") is not None) == self.slow]


class Learn:
    """A pytest plug-in that learns which lines each test executes, and how long it takes."""

    def __init__(self, files: Sequence[str]) -> None:
        include = [str(ROOT / file) for file in files]
        self.coverage = coverage.Coverage(data_file=None, config_file=False, include=include)
        self.seconds: dict[str, float] = {}
        self.fixtures: dict[str, set[str]] = {}
        self.good: set[str] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Iterator[None]:
        """Record a test's lines and seconds."""
        before = os.times()
        self.coverage.switch_context(item.nodeid)
        self.now = item.nodeid
        result = yield
        self.coverage.switch_context("")
        after = os.times()
        self.seconds[item.nodeid] = sum(after[:4]) - sum(before[:4])
        self.fixtures[item.nodeid] = {f"fixture {name}" for name in item.fixturenames}
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        """Attribute what a shared fixture executes to all tests that use it."""
        if fixturedef.scope == "function":
            return (yield)
        self.coverage.switch_context(f"fixture {fixturedef.argname}")
        try:
            return (yield)
        finally:
            self.coverage.switch_context(self.now)

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Record tests that pass."""
        if report.when == "call" and report.passed:
            self.good.add(report.nodeid)

    def write(self, path: Path, digests: Mapping[str, str]) -> None:
        """Write the imported files, and each test's seconds and executed lines of each file."""
        data = self.coverage.get_data()
        lines: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        for file in data.measured_files():
            name = str(Path(file).relative_to(ROOT))
            for line, contexts in data.contexts_by_lineno(file).items():
                for context in contexts:
                    lines[context][name].append(line)
        tests = []
        for test in sorted(self.good):
            covered: dict[str, set[int]] = defaultdict(set)
            for context in (test, *self.fixtures[test]):
                for name, executed in lines.get(context, {}).items():
                    covered[name].update(executed)
            lists = {name: sorted(executed) for name, executed in covered.items()}
            tests.append({"test": test, "seconds": self.seconds[test], "lines": lists})
        imported = {str(Path(file).relative_to(ROOT)) for file in data.measured_files()}
        read = {f for f in digests for start, by in TEXT_READ_BY.items()
                if f.startswith(start) and by in imported}  # fmt: skip
        files = {file: digests[file] for file in sorted(imported | read)}
        path.write_text(json.dumps({"files": files, "tests": tests}))


class FirstFailure:
    """A pytest plug-in that writes which test fails first."""

    def __init__(self, failed: Path) -> None:
        self.failed = failed

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Write the first test that fails."""
        if report.failed and not self.failed.exists():
            self.failed.write_text(report.nodeid)


class Chosen(FirstFailure):
    """A pytest plug-in that runs chosen tests in their order, and writes which one fails."""

    def __init__(self, tests: Sequence[str], failed: Path) -> None:
        super().__init__(failed)
        self.rank = {test: i for i, test in enumerate(tests)}

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Choose and order the tests."""
        picked = (item for item in items if item.nodeid in self.rank)
        items[:] = sorted(picked, key=lambda item: self.rank[item.nodeid])


Learnt = Mapping[str, Any]  # a test, its seconds, and the lines that it executes of each file


def learn(files: Sequence[str], jobs: int) -> list[dict[str, Any]]:
    """Learn each test's seconds and the lines that it executes; the fastest come first."""
    tests = list(dict.fromkeys(t for glob in (*TESTS, *REST) for t in sorted(_named([glob]))))
    digests = {file: _digest([file]) for file in files}
    names = hashlib.sha256("\0".join(files).encode()).hexdigest()[:8]
    record_of = {test: KEPT / f"{names}-{_digest([test])[:16]}.json" for test in tests}
    KEPT.mkdir(parents=True, exist_ok=True)
    for old in {*KEPT.glob("*-*.json")} - {*record_of.values()}:
        old.unlink()

    def task(test: str) -> Callable[[Path], int]:
        def run(folder: Path) -> int:
            plugin = Learn(files)
            plugin.coverage.start()
            status = _pytest(folder, [test], [Marked(slow=False), plugin])
            plugin.coverage.stop()
            plugin.write(folder / "learnt.json", digests)
            return status

        return run

    learnt = {test: _learnt(path, digests) for test, path in record_of.items()}
    missing = [(t, task(t), 120.0) for t in tests if learnt[t] is None]
    for i, (test, status, folder) in enumerate(run_forked(missing, jobs)):
        print(f"\rlearning {i + 1}/{len(missing)} {test:70}", end="", file=sys.stderr, flush=True)
        if status in (0, 1, 5):  # all tests passed, some failed, there are none
            shutil.move(folder / "learnt.json", record_of[test])
            learnt[test] = _learnt(record_of[test], digests)
        if status not in (0, 5):
            log = (folder / "log").read_text(errors="replace")[-2000:]
            print(f"\nfails without a mutant, and is left out:\n{log}", file=sys.stderr)
    all_learnt = [t for some in learnt.values() for t in some or ()]
    return sorted(
        (t for t in all_learnt if t["seconds"] <= SLOWEST_OF_ALL), key=lambda t: t["seconds"]
    )


def _learnt(path: Path, digests: Mapping[str, str]) -> list[dict[str, Any]] | None:
    """What is known about a file of tests; None if nothing is, or if a file has changed."""
    if not path.exists():
        return None
    record = json.loads(path.read_text())
    same = all(digests[file] == digest for file, digest in record["files"].items())
    tests_learnt: list[dict[str, Any]] = record["tests"]
    return tests_learnt if same else None


def _digest(files: Sequence[str]) -> str:
    every = hashlib.sha256()
    for file in files:
        every.update(file.encode() + b"\0" + hashlib.sha256((ROOT / file).read_bytes()).digest())
    return every.hexdigest()


def rest_of(mutant: Mutant, tests: Sequence[Learnt], met: Sequence[Learnt]) -> list[Learnt]:
    """The further tests that execute a mutant's lines, taking one of each file in turn."""
    names = {t["test"] for t in met}
    turns = Counter[str]()
    rest = []
    for test in executing(mutant, tests):
        if test["test"] not in names:
            turns[_file_of(test)] += 1
            rest.append((turns[_file_of(test)], test))
    rest.sort(key=lambda entry: entry[0])
    return _within([test for _, test in rest], MOST_OF_REST)


def concerned(mutant: Mutant, tests: Sequence[Learnt]) -> list[Learnt]:
    """The tests that execute a mutant's lines, within the time limit of a mutant."""
    near = executing(mutant, tests)
    compared = not mutant.path.endswith(".py") or mutant.path in TEXT_READ_BY.values()
    if compared:  # tests that compare the text with Python also cover the code that writes it
        near.sort(key=lambda t: _file_of(t) not in TEXT_COMPARED_BY)
    return _within(near, MOST_OF_TEXT if compared else MOST)


def executing(mutant: Mutant, tests: Sequence[Learnt]) -> list[Learnt]:
    """The tests that execute a mutant's lines, or all tests of its file if lines do not tell.

    A test that executes nothing of the file may still read what runs on import, so the other tests
    in the same test files are added.
    """
    readers = [reader for start, reader in TEXT_READ_BY.items() if mutant.path.startswith(start)]
    path = readers[0] if readers else mutant.path
    lines = set(range(mutant.line, mutant.end + 1))
    executed = [t for t in tests if lines.intersection(t["lines"].get(path, ()))]
    if readers or not executed:
        executed = [t for t in tests if path in t["lines"]]
    if not mutant.end:
        beside = {_file_of(t) for t in executed}
        executed = [t for t in tests if _file_of(t) in beside]
    return executed


def _within(tests: Sequence[Learnt], most: float) -> list[Learnt]:
    """The first tests that together take no longer than ``most`` seconds."""
    so_far = accumulate(t["seconds"] for t in tests)
    return [t for t, seconds in zip(tests, so_far, strict=True) if seconds <= most]


def _file_of(test: Learnt) -> str:
    return str(test["test"]).partition("::")[0]


def untested(files: Sequence[str], tests: Sequence[Learnt]) -> list[str]:
    """The files that no fast test executes: their tests are missing from the table, or missing."""
    executed = {path for test in tests if test["seconds"] <= SLOWEST for path in test["lines"]}
    readers = {f: by for f in files for start, by in TEXT_READ_BY.items() if f.startswith(start)}
    return [file for file in files if readers.get(file, file) not in executed]


def task_of(mutant: Mutant, tests: Sequence[str]) -> Callable[[Path], int]:
    """The task of a mutant's process, which returns pytest's status of the tests."""
    files = sorted({test.partition("::")[0] for test in tests})
    return _task(mutant, files, lambda failed: [Marked(slow=False), Chosen(tests, failed)])


def slow_task_of(mutant: Mutant, files: Sequence[str]) -> Callable[[Path], int]:
    """The same with the slow tests of files."""
    return _task(mutant, files, lambda failed: [Marked(slow=True), FirstFailure(failed)])


def slow_files(mutant: Mutant, tests: Sequence[Learnt]) -> list[str]:
    """The files of tests that are about a mutant's line, those with the most such tests first."""
    files = Counter(map(_file_of, executing(mutant, tests)))
    about = _named(TESTS)
    return sorted(files, key=lambda f: (f not in about, -files[f], f))[:SLOW_FILES]


def _task(
    mutant: Mutant, files: Sequence[str], plugins: Callable[[Path], Sequence[object]]
) -> Callable[[Path], int]:
    def run(folder: Path) -> int:
        changed, target = source_of(mutant), str(ROOT / mutant.path)
        if isinstance(changed, str):
            _read_instead(target, changed)
        else:
            _import_instead(target, compile(changed, target, "exec"))
        return _pytest(folder, files, plugins(folder / "failed"), "-x")

    return run


def _import_instead(target: str, code: Any) -> None:
    loader: Any = importlib.machinery.SourceFileLoader
    read = loader.get_code

    def get_code(self: importlib.machinery.SourceFileLoader, fullname: str) -> Any:
        same = os.path.realpath(self.get_filename(fullname)) == target
        return code if same else read(self, fullname)

    loader.get_code = get_code


def _read_instead(target: str, text: str) -> None:
    read = io.open

    def opened(file: Any, mode: str = "r", *args: Any, **more: Any) -> Any:
        if not isinstance(file, int) and os.path.realpath(file) == target:
            return io.BytesIO(text.encode()) if "b" in mode else io.StringIO(text)
        return read(file, mode, *args, **more)

    io.open = builtins.open = opened


# --- the measurement -------------------------------------------------------------------------


class Outcome(NamedTuple):
    """A mutant and its outcome: the test that failed, ``timeout``, or None if it survived."""

    mutant: Mutant
    killer: str | None
    tests: int


def measure(
    mutants_drawn: Sequence[Mutant], tests: Sequence[Any], jobs: int, *, slow: bool = False
) -> list[Outcome]:
    """Run the tests of each mutant: first the fastest about it, then the slower ones, the rest.

    With ``slow``, those that are still alive meet the slow tests about them.
    """
    about = _named(TESTS)
    fast = [t for t in tests if _file_of(t) in about and t["seconds"] <= SLOWEST]
    near = {m: concerned(m, fast) for m in mutants_drawn}
    rest = {m: rest_of(m, tests, near[m]) for m in mutants_drawn}
    outcomes = {m: Outcome(m, None, len(near[m]) + len(rest[m])) for m in mutants_drawn}
    for part in range(3):
        tasks = []
        for m in mutants_drawn:
            some = (near[m][:BATCH], near[m][BATCH:], rest[m])[part]
            if outcomes[m].killer is None and some:
                seconds = sum(t["seconds"] for t in some)
                tasks.append((m, task_of(m, [t["test"] for t in some]), seconds))
        for m, killer in _killers(tasks, jobs):
            outcomes[m] = Outcome(m, killer, outcomes[m].tests)
    alive = [m for m in mutants_drawn if outcomes[m].killer is None] if slow else []
    tasks = [(m, slow_task_of(m, slow_files(m, tests)), MOST_OF_SLOW / 5) for m in alive]
    for m, killer in _killers(tasks, jobs):
        if killer != "timeout":  # there are more such tests than the time allows
            outcomes[m] = Outcome(m, killer, outcomes[m].tests)
    return [outcomes[m] for m in mutants_drawn]


def _killers(
    tasks: Sequence[tuple[Mutant, Callable[[Path], int], float]], jobs: int
) -> Iterator[tuple[Mutant, str | None]]:
    """Each mutant and the test that failed, ``timeout``, or None."""
    for i, (m, status, folder) in enumerate(run_forked(tasks, jobs)):
        killer = None
        if status is None:
            killer = "timeout"
        elif status not in (0, 5):  # neither all passed nor none was found
            failed = folder / "failed"
            killer = failed.read_text() if failed.exists() else f"status {status}"
        done = f"{i + 1}/{len(tasks)} {m.path}:{m.line} {killer or 'alive'}"
        print(f"\r{done:110.110}", end="", file=sys.stderr, flush=True)
        yield m, killer


def equivalents() -> list[dict[str, str]]:
    """The reviewed table of mutants that compute the same."""
    entries: list[dict[str, str]] = tomllib.loads(EQUIVALENT.read_text()).get("equivalent", [])
    return entries


def is_equivalent(m: Mutant, table: Sequence[Mapping[str, str]]) -> bool:
    """Whether the table names a mutant."""
    own = {"file": m.path, "inside": m.inside, "before": m.before, "after": m.after}
    matches = [entry for entry in table if all(entry[key] == own[key] for key in own)]
    if any("above" in entry for entry in matches):
        lines = (ROOT / m.path).read_text(encoding="utf-8").splitlines()[: m.line - 1]
        own["above"] = next(filter(None, map(str.strip, reversed(lines))), "")
    return any(entry.get("above") in (None, own.get("above")) for entry in matches)


def report(outcomes: Sequence[Outcome], seed: int) -> bool:
    """Print killed and total per file, the survivors and the share; return whether it suffices."""
    table = equivalents()
    same = [o for o in outcomes if o.killer is None and is_equivalent(o.mutant, table)]
    alive = [o for o in outcomes if o.killer is None and o not in same]
    total = Counter(o.mutant.path for o in outcomes)
    lost = Counter(o.mutant.path for o in alive)
    print("killed  total  file")
    for path in sorted(total):
        print(f"{total[path] - lost[path]:6}  {total[path]:5}  {path}")
    for o in alive:
        print(f"survived {o.tests} tests: {o.mutant}")
    for o in same:
        print(f"equivalent: {o.mutant}")
    killed, all_of_them = len(outcomes) - len(alive) - len(same), len(outcomes)
    counted = all_of_them - len(same)
    share = killed / counted if counted else 1.0
    if too_many := len(same) > EQUIVALENTS * all_of_them:
        print(f"more than {100 * EQUIVALENTS:.0f} % are argued to be equivalent")
    print(
        f"seed {seed}: {all_of_them} mutants, {len(same)} equivalent, {len(alive)} survived, "
        f"{killed} of {counted} killed: {100 * share:.1f} %"
    )
    return share >= NEEDED and not too_many


def _named(globs: Sequence[str]) -> set[str]:
    """The files that globs match, from the repository's root."""
    files = {glob: [str(p.relative_to(ROOT)) for p in ROOT.glob(glob)] for glob in globs}
    for glob, files_of in files.items():
        if not files_of:
            raise SystemExit(f"{glob} names no file; put right the tables in {Path(__file__).name}")
    return {file for files_of in files.values() for file in files_of}


def main() -> None:
    """Choose the mutants, run their tests, print what survived."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=300, help="number of mutants")
    parser.add_argument("--seed", type=int, default=0, help="which mutants are drawn")
    parser.add_argument("--only", default="", metavar="WORD", help="files with this in their path")
    parser.add_argument("--jobs", type=int, default=2, help="number of processes")
    parser.add_argument("--slow", action="store_true", help="slow tests for those that survive")
    parser.add_argument("--list", action="store_true", help="name the mutants and run nothing")
    parser.add_argument("--kills", action="store_true", help="name the test that killed each")
    arguments = parser.parse_args()
    files = sorted(_named(MUTATED) - _named(NOT_MUTATED))
    every = [m for file in files if arguments.only in file for m in mutants(file)]
    draw = random.Random(arguments.seed)  # noqa: S311 - the same mutants for the same seed
    mutants_drawn = sorted(draw.sample(every, min(arguments.count, len(every))))
    if arguments.list:
        print(*mutants_drawn, sep="\n")
        print(f"{len(mutants_drawn)} of {len(every)} mutants")
        return
    os.environ["OMP_NUM_THREADS"] = "1"
    sys.path.insert(0, str(ROOT))  # as `python -m pytest` does
    for module in WARM:
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    start = time.monotonic()
    tests = learn(files, arguments.jobs)
    if without := untested(sorted({m.path for m in mutants_drawn}), tests):
        sys.exit(f"no fast test executes {', '.join(without)}; write one, or put right TESTS")
    outcomes = measure(mutants_drawn, tests, arguments.jobs, slow=arguments.slow)
    print(file=sys.stderr)
    if arguments.kills:
        for o in outcomes:
            print(f"{o.killer or 'alive'}: {o.mutant}")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(
        f"{time.monotonic() - start:.0f} s in {arguments.jobs} processes, "
        f"{used.ru_utime + used.ru_stime:.0f} s of a processor"
    )
    sys.exit(0 if report(outcomes, arguments.seed) else 1)


if __name__ == "__main__":
    main()
