from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from n3ic.kernel import build
from n3ic.kernel.library import Library

# The helper module beside the tests; importlib mode leaves their folder off the path.
sys.path.insert(0, str(Path(__file__).parent))

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
def library(compiler: build.CCompiler, tmp_path_factory: pytest.TempPathFactory) -> Library:
    """The kernel without weights."""
    out = tmp_path_factory.mktemp("kernel") / "bnn.so"
    build.compile_shared(compiler, build.SOURCE, out)
    return Library.open(out)


@pytest.fixture(scope="session")
def export_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Artefacts of a small network with both kinds of fields and awkward names."""
    from host_models import small_model

    from n3ic.exporters.host import EXPORTER

    directory = tmp_path_factory.mktemp("export")
    EXPORTER.write(small_model(), EXPORTER.parse_options({}), directory)
    return directory


@pytest.fixture(scope="session")
def bnn_exec(
    compiler: build.CCompiler, export_directory: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """``bnn-exec`` of that network, with the address and undefined-behaviour sanitizers."""
    out = tmp_path_factory.mktemp("exec") / "bnn-exec"
    sources = [str(export_directory / name) for name in ("bnn.c", "bnn_exec.c")]
    done = subprocess.run(
        [*compiler.command, *SANITIZE, *sources, "-o", str(out)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    if done.returncode and "cannot find" in done.stderr:
        pytest.skip("needs the compiler's sanitizer libraries (libasan, libubsan)")
    assert done.returncode == 0, done.stderr
    return out
