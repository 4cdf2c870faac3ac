"""The tutorial and the how-tos do what they say."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "commands"),
    [
        ("tutorial/first-network.md", 10),
        ("how-to/your-own-flows.md", 7),
        ("how-to/shunting.md", 8),
        ("how-to/card.md", 5),
        ("how-to/cluster.md", 7),
        ("how-to/spn.md", 7),
    ],
)
def test_a_page_works_as_written(repository, tmp_path, name, commands):
    page = repository / "docs" / name
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    }
    ran = 0
    for block in blocks(page, "sh"):
        for line in block.replace("\\\n", "").splitlines():
            words = shlex.split(line)
            if words[:1] == ["python"]:
                words[0] = sys.executable
            elif words[:1] != ["n3ic"] or any("path/to/" in w for w in words):
                continue  # setting up, and the reader's own data
            done = subprocess.run(
                words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=900
            )
            assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
            ran += 1
    assert ran >= commands
    for block in blocks(page, "python"):
        subprocess.run([sys.executable, "-c", block], cwd=tmp_path, check=True, timeout=900)


def test_links_between_pages_lead_somewhere(repository):
    pages = [repository / "README.md", *(repository / "docs").rglob("*.md")]
    broken = [
        f"{page.name}: {target}"
        for page in pages
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text())
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert broken == []
