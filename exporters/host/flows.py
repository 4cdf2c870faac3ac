"""``flow-exec`` of an export: built, run on a capture, and what it says."""

from __future__ import annotations

import csv
import io
import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

from n3ic.errors import MissingDependencyError, VerifyError
from n3ic.kernel import build
from n3ic.model.network import BinaryModel
from n3ic.targets.base import Metered
from n3ic.util.process import run_tool

_C = ("flow_exec.c", "capture.c", "live.c", "meter.c", "bnn.c")
_SOURCES = (*_C, "bnn.h", "capture.h", "live.h", "meter.h", "flow.h", "packet.h", "flow_names.h")
_TIMEOUT_S = 600
_CLASS = 10  # the column
_COUNTERS = {
    r"(\d+) packets, \d+ flows decided": "packets",
    r"after the end of their flow: (\d+) packets": "late",
    r"evicted: (\d+) flows, whose cache was full": "evicted",
}
_ASIDE = re.compile(r"put aside: (\d+) packets \((.*)\)")


def run_flow_exec(directory: Path, model: BinaryModel, capture: Path) -> Metered:
    """Flows and counters of a capture, as an export's ``flow-exec`` tells them.

    Raises:
        MissingDependencyError: there is no C compiler.
        VerifyError: the program does not compile, run, or say what is expected.
    """
    with program(read_sources(directory)) as path:
        try:
            done = run_tool([str(path), "-r", "-f", "-b", str(capture)], seconds=_TIMEOUT_S)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise VerifyError(f"flow-exec: {error}") from error
    said = done.stderr.decode(errors="replace")
    if done.returncode:
        raise VerifyError(f"flow-exec ended {done.returncode}: {said[-500:].strip()}")
    table = csv.reader(io.StringIO(done.stdout.decode(errors="replace"), newline=""))
    next(table, None)
    names = {_cell(name): name for name in model.verdict_names}
    flows = tuple(
        tuple(names.get(cell, cell) if i == _CLASS else cell for i, cell in enumerate(row))
        for row in table
    )
    return Metered(flows, dict(_counters(said)))


def read_sources(directory: Path) -> tuple[bytes, ...]:
    """What ``flow-exec`` is built from, for :func:`program`.

    Raises:
        VerifyError: a file cannot be read.
    """
    try:
        return tuple((directory / name).read_bytes() for name in _SOURCES)
    except OSError as error:
        raise VerifyError(f"cannot read {error.filename}: {error.strerror or error}") from error


def _cell(name: str) -> str:
    """A class's name as it stands in the program's table."""
    text = name.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
    return f"'{text}" if text.startswith(tuple("=+-@\t\r")) else text


def _counters(said: str) -> Iterator[tuple[str, int]]:
    for line in said.splitlines():
        text = line.removeprefix("flow-exec: ")
        aside = _ASIDE.fullmatch(text)
        if aside:
            yield aside[2], int(aside[1])
        for pattern, name in _COUNTERS.items():
            found = re.fullmatch(pattern, text)
            if found:
                yield name, int(found[1])


@contextmanager
def program(sources: tuple[bytes, ...]) -> Iterator[Path]:
    """The program as a file that can be run; built on first use."""
    with tempfile.TemporaryDirectory(prefix="n3ic-flows-") as name:
        path = Path(name) / "flow-exec"
        path.write_bytes(_built(sources, build.FLAGS))
        path.chmod(0o700)
        yield path


@lru_cache(maxsize=4)  # one export meters several captures
def _built(sources: tuple[bytes, ...], flags: tuple[str, ...]) -> bytes:
    try:
        compiler = build.find_compiler()
        with tempfile.TemporaryDirectory(prefix="n3ic-flows-") as name:
            scratch = Path(name)
            for file, content in zip(_SOURCES, sources, strict=True):
                (scratch / file).write_bytes(content)
            out = scratch / "flow-exec"
            build.compile_program(compiler, [scratch / file for file in _C], out)
            return out.read_bytes()
    except build.NoCompilerError as error:
        raise MissingDependencyError(
            "the host target runs compiled C: install a C compiler (gcc or clang), "
            "or name one in CC"
        ) from error
    except build.BuildError as error:
        raise VerifyError(f"flow-exec does not compile: {str(error)[:2000]}") from error
