# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from pathlib import Path

import pytest

from n3ic.kernel import build

SANITIZE = (
    "-std=c11",
    "-O0",
    "-Wall",
    "-Wextra",
    "-Wpedantic",
    "-Werror",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
)


@pytest.fixture(scope="session")
def sanitize() -> tuple[str, ...]:
    """Flags of the compiler for programs with sanitizers."""
    return SANITIZE


@pytest.fixture(scope="session")
def export_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Artefacts of a small network with both kinds of fields and awkward names."""
    from n3ic.exporters.host.exporter import EXPORTER
    from tests.support.kernel_models import small_model

    directory = tmp_path_factory.mktemp("export")
    EXPORTER.write(small_model(), EXPORTER.parse_options({}), directory)
    return directory


@pytest.fixture(scope="session")
def bnn_exec(
    compiler: build.CCompiler, export_directory: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """``bnn-exec`` of that network, with the address and undefined-behaviour sanitizers."""
    from tests.support.flow_programs import compiled

    out = tmp_path_factory.mktemp("exec") / "bnn-exec"
    sources = [export_directory / name for name in ("bnn.c", "bnn_exec.c")]
    return compiled(compiler, out, sources, *SANITIZE)
