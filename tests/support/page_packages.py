# SPDX-License-Identifier: Apache-2.0
"""The packages that pages of the documentation build, built and installed from the pages."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"\A(?:# |<!-- |\{# )file: ([\w./]+)(?: -->| #\})?\n")


def blocks_of(page: Path) -> list[tuple[str, str]]:
    """Language and text of each code block."""
    return BLOCK.findall(page.read_text("utf-8"))


def files_of(blocks: list[tuple[str, str]]) -> dict[str, str]:
    """The files that blocks name in their first line, without that line."""
    return {name[1]: text[name.end() :] for _, text in blocks if (name := FILE.match(text))}


def install(files: dict[str, str], folder: Path) -> Path:
    """Install a package of these files; returns the folder for PYTHONPATH."""
    source, target = folder / "source", folder / "site"
    for name, text in files.items():
        path = source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"),
            *("--no-build-isolation", "--disable-pip-version-check", "--target", str(target)),
            str(source),
        ],
        capture_output=True,
        text=True,
        timeout=600,
    )
    if "No module named pip" in done.stderr or "No module named 'setuptools'" in done.stderr:
        pytest.skip("needs pip and setuptools to install the page's package")
    assert done.returncode == 0, done.stderr
    return target


def n3ic(site: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ``n3ic`` where the page's package is installed."""
    code = "import sys; from n3ic.cli.main import main; sys.argv[0] = 'n3ic'; sys.exit(main())"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=folder,
        env=os.environ
        | {"PYTHONPATH": str(site), "NO_COLOR": "1", "COLUMNS": "200", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
