# SPDX-License-Identifier: Apache-2.0
"""C programs for tests: any, and ``flow-exec`` of networks that carry a meter."""

import subprocess

import pytest

from n3ic.exporters.host.exporter import EXPORTER

C = ("flow_exec.c", "domain.c", "capture.c", "live.c", "meter.c", "bnn.c")


def exported(model, out):
    out.mkdir()
    EXPORTER.write(model, EXPORTER.parse_options({}), out)
    return out


def compiled(compiler, out, sources, *flags):
    """A program of C files; skips where the sanitizers are missing."""
    done = subprocess.run(
        [*compiler.command, *flags, *sources, "-lm", "-o", out],
        capture_output=True,
        text=True,
        timeout=300,
    )
    if done.returncode and "cannot find" in done.stderr:
        pytest.skip("needs the compiler's sanitizer libraries (libasan, libubsan)")
    assert done.returncode == 0, done.stderr
    return out


def compiled_flows(compiler, model, out, *flags):
    """An export's ``flow-exec``."""
    folder = exported(model, out)
    sources = [folder / name for name in C]
    return compiled(compiler, out / "flow-exec", sources, *flags)
