# SPDX-License-Identifier: Apache-2.0
"""C programs for tests: any, and ``flow-exec`` of networks that carry a meter."""

import os
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from n3ic.exporters.host.exporter import EXPORTER

WEIGHTS = b"/* --- weights, compiled in ---"
HEADER = b'#include "bnn.h"\n#include <stdint.h>\n'
C = ("flow_exec.c", "domain.c", "lines.c", "capture.c", "live.c", "meter.c", "bnn.c")


def exported(model, out):
    out.mkdir()
    EXPORTER.write(model, EXPORTER.parse_options({}), out)
    return out


def compiled(compiler, out, sources, *flags):
    """A program of C files; skips where the sanitizers are missing.

    Sources are compiled one at a time and kept: most are the same in every export, and so is the
    kernel of ``bnn.c`` without its weights.
    """
    command, parts = _quick(compiler), []
    for source in sources:
        kernel, mark, weights = source.read_bytes().partition(WEIGHTS)
        parts.append((source.parent, kernel))
        if mark:
            parts.append((source.parent, HEADER + mark + weights))
    includes = tuple(flag for flag in flags if flag.startswith("-I"))
    rest = tuple(flag for flag in flags if flag not in includes)
    objects = []
    for number, (folder, text) in enumerate(parts):
        shown = run([*command, "-E", *flags, "-I.", "-x", "c", "-"], folder, text)
        objects.append(out.parent / f"{out.name}-{number}.o")
        objects[-1].write_bytes(_object(command, shown, rest))
    run([*command, *rest, *objects, "-lm", "-o", out], out.parent)
    return out


@lru_cache
def _quick(compiler):
    """Clang's command where it has the sanitizers: it takes half as long as gcc."""
    clang = shutil.which("clang")
    if clang is None or "CC" in os.environ:
        return compiler.command
    with TemporaryDirectory() as folder:
        tried = [clang, "-fsanitize=address,undefined", "-x", "c", "-", "-o", "x"]
        given = b"int main(void) { return 0; }"
        done = subprocess.run(tried, input=given, cwd=folder, capture_output=True)
    return compiler.command if done.returncode else (clang,)


@lru_cache(maxsize=32)
def _object(command, text, flags):
    with TemporaryDirectory() as folder:
        run([*command, *flags, "-c", "-x", "cpp-output", "-", "-o", "x.o"], folder, text)
        return (Path(folder) / "x.o").read_bytes()


def run(command, folder, given=b""):
    done = subprocess.run(command, input=given, cwd=folder, capture_output=True, timeout=600)
    if done.returncode and b"cannot find" in done.stderr:
        pytest.skip("needs the compiler's sanitizer libraries (libasan, libubsan)")
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def compiled_flows(compiler, model, out, *flags):
    """An export's ``flow-exec``."""
    folder = exported(model, out)
    sources = [folder / name for name in C]
    return compiled(compiler, out / "flow-exec", sources, *flags)
