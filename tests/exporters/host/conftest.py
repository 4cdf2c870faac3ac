from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from n3ic.kernel import build

sys.path.insert(0, str(Path(__file__).parent))  # modules that tests share
sys.path.insert(0, str(Path(__file__).parents[2] / "meter"))

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
    from kernel_models import small_model

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
