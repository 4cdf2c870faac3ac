# SPDX-License-Identifier: Apache-2.0
"""Builds an export's ``flow-exec``, runs it on a capture and reads its output."""

from __future__ import annotations

import csv
import io
import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from n3ic.errors import VerifyError
from n3ic.exporters.host.compilation import find_compiler, flow_program
from n3ic.kernel import build
from n3ic.model.classifier import Classifier
from n3ic.targets.capabilities import MeteredCapture, TargetMeter
from n3ic.util.process import run_tool

NETWORK = ("bnn.c", "bnn.h")
_FLOW = (
    *("flow_exec.c", "domain.c", "lines.c", "capture.c", "live.c", "meter.c"),
    *("domain.h", "domain_rows.h", "flow_names.h", "lines.h", "capture.h", "live.h"),
    *("meter.h", "flow.h", "key.h", "packet.h"),
)
_TIMEOUT_S = 600
_CLASS = 10  # index of the column that holds the class
_COUNTERS = {
    r"(\d+) packets, \d+ flows decided": "packets",
    r"after the end of their flow: (\d+) packets": "late",
    r"evicted: (\d+) flows, whose cache was full": "evicted",
    r"forgotten: (\d+) sources, whose places others took": "forgotten",
    r"time stamps: (\d+) packets earlier .*": "back",
    r"time stamps: .*, (\d+) more than an hour ahead, .*": "ahead",
    r"time stamps: .*, (\d+) times the clock was set back": "steps",
}
_ASIDE = re.compile(r"put aside: (\d+) packets \((.*)\)")


def run_flow_exec(directory: Path, model: Classifier, capture: Path) -> MeteredCapture:
    """Return the flows and counters of a capture, as an export's ``flow-exec`` prints them.

    Raises:
        MissingDependencyError: no C compiler is installed.
        VerifyError: the program does not compile, fails, or prints something unexpected.
    """
    from n3ic.meter.compiled import STAMPS

    with program(directory) as path:
        try:
            done = run_tool([str(path), "-r", "-f", "-b", str(capture)], seconds=_TIMEOUT_S)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise VerifyError(f"flow-exec: {error}") from error
    output = done.stderr.decode(errors="replace")
    if done.returncode:
        raise VerifyError(f"flow-exec ended {done.returncode}: {output[-500:].strip()}")
    counters = dict.fromkeys(STAMPS, 0) | dict(_counters(output))
    return MeteredCapture(flow_rows(model, done.stdout), counters)


def flow_rows(model: Classifier, lines: bytes) -> tuple[tuple[str, ...], ...]:
    """Convert the flows that ``lines.c`` prints to rows of a ``MeteredCapture``."""
    # newline="": a quoted name may hold line ends, which StringIO would translate.
    table = csv.reader(io.StringIO(lines.decode(errors="replace"), newline=""))
    next(table, None)
    names = {_cell(name): name for name in model.verdict_names}
    return tuple(
        tuple(names.get(cell, cell) if i == _CLASS else cell for i, cell in enumerate(row))
        for row in table
    )


def _cell(name: str) -> str:
    """A class's name as the program prints it: no zero byte, and no spreadsheet formula."""
    text = name.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
    return f"'{text}" if text.startswith(tuple("=+-@\t\r")) else text


def _counters(output: str) -> Iterator[tuple[str, int]]:
    for line in output.splitlines():
        text = line.removeprefix("flow-exec: ")
        aside = _ASIDE.fullmatch(text)
        if aside:
            yield aside[2], int(aside[1])
        for pattern, name in _COUNTERS.items():
            match = re.fullmatch(pattern, text)
            if match:
                yield name, int(match[1])


def _of_sources(directory: Path) -> tuple[str, ...]:
    """The header of a meter that has features by source."""
    return ("sources.h",) if (directory / "sources.h").exists() else ()


@contextmanager
def program(directory: Path) -> Iterator[Path]:
    """Compile an export's ``flow-exec`` and yield the path of the program.

    Raises:
        MissingDependencyError: no C compiler is installed.
        VerifyError: the program does not compile.
    """
    compiler = find_compiler()
    try:
        network, flow = (
            tuple((name, (directory / name).read_bytes()) for name in names)
            for names in (NETWORK, (*_FLOW, *_of_sources(directory)))
        )
        built = flow_program(network, flow, compiler, build.FLAGS)
    except (build.BuildError, OSError) as error:
        raise VerifyError(f"flow-exec does not compile: {str(error)[:2000]}") from error
    with tempfile.TemporaryDirectory(prefix="n3ic-flows-") as name:
        path = Path(name) / "flow-exec"
        path.write_bytes(built)
        path.chmod(0o700)
        yield path


FLOW_EXEC = TargetMeter(
    lambda directory, model, options, capture: run_flow_exec(directory, model, capture)
)
"""The meter of every export for hosts."""
