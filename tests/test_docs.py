# SPDX-License-Identifier: Apache-2.0
"""The tutorial and the how-tos do what they say."""

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from tests.support.command_line import n3ic

NUMBER = re.compile(r" *[\d,.]+")


def blocks(page: Path, language: str) -> list[str]:
    return [text for _, text in blocks_of(page, language)]


def blocks_of(page: Path, languages: str) -> list[tuple[str, str]]:
    """Language and text of the blocks of some languages (a regular expression), in their order."""
    pattern = rf"^```({languages})\n(.*?)^```"
    return re.findall(pattern, page.read_text(), re.DOTALL | re.MULTILINE)


def run_python(text: str, folder: Path, *, alone: bool = False) -> None:
    """Run a block as a user does, or within this process, which has the libraries imported."""
    if alone:
        subprocess.run([sys.executable, "-c", text], cwd=folder, check=True, timeout=900)
        return
    with contextlib.chdir(folder), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(text, "block", "exec"), {"__name__": "__main__"})


@pytest.mark.slow
@pytest.mark.usefixtures("small_baselines", "quick_build", "forked_nodes")
@pytest.mark.parametrize(
    ("name", "commands"),
    [
        ("explanation/mathematics.md", 0),
        ("how-to/your-own-flows.md", 7),
        ("how-to/dataframes.md", 2),
        ("how-to/your-own-network.md", 3),
        ("how-to/shunting.md", 8),
        ("how-to/stream-learning.md", 6),
        ("how-to/card.md", 5),
        ("how-to/cluster.md", 7),
        ("how-to/spn.md", 7),
        ("how-to/stream-messages.md", 4),
    ],
)
def test_a_page_works_as_written(repository, tmp_path, name, commands):
    ran, started = 0, False
    for language, block in blocks_of(repository / "docs" / name, "sh|python"):
        if language == "python":
            # The first block that starts processes, which import it all, does so as users' do.
            alone = "__main__" in block and not started
            run_python(block, tmp_path, alone=alone)
            started |= alone
            continue
        for line in block.replace("\\\n", "").splitlines():
            words = shlex.split(line)
            if words[:2] == ["python", "-c"]:
                run_python(words[2], tmp_path)
            elif words[:1] != ["n3ic"] or any("path/to/" in w for w in words):
                continue  # setting up, and the reader's own data
            else:
                n3ic(*words[1:], cwd=tmp_path)
            ran += 1
    assert ran >= commands


@pytest.mark.slow
@pytest.mark.usefixtures("small_baselines")
@pytest.mark.parametrize(
    ("name", "languages", "commands"),
    [("README.md", "console", 7), ("docs/tutorial/first-network.md", "console|python", 14)],
)
def test_the_terminal_of_a_page_is_real(
    repository, tmp_path, monkeypatch, name, languages, commands
):
    """One command is a process of its own, the others have their libraries imported."""
    if shutil.which("verilator") is None:
        pytest.skip("needs verilator")
    for variable, value in (("NO_COLOR", "1"), ("COLUMNS", "90"), ("OMP_NUM_THREADS", "1")):
        monkeypatch.setenv(variable, value)
    ran = 0
    for language, block in blocks_of(repository / name, languages):
        if language == "python":
            run_python(block, tmp_path)  # it goes on with the files of the commands above it
            continue
        for command in block.strip().removeprefix("$ ").split("\n$ "):
            typed, *shown = command.splitlines()
            own = dict(os.environ) if " predict " in typed else None
            done = n3ic(*shlex.split(typed)[1:], cwd=tmp_path, env=own)
            said = [alike(line) for line in (done.stdout + done.stderr).splitlines()]
            assert [line for line in shown if not is_among(line, said)] == [], typed
            ran += 1
    assert ran == commands


def alike(line: str) -> str:
    """A line without what differs from machine to machine: figures, versions, the columns' widths.

    Small baselines choose other bits, and so a network of fewer neurons.
    """
    return " ".join(NUMBER.sub("N", line).replace(" asN-N-N-N:", ":").split())


def is_among(line: str, said: list[str]) -> bool:
    """Whether a line of a page was said; one that ends in ``...`` is its beginning."""
    if line.endswith(" ..."):
        start = alike(line.removesuffix(" ..."))
        return any(other.startswith(start) for other in said)
    return alike(line) in said


@pytest.mark.slow
@pytest.mark.usefixtures("small_baselines")
def test_the_notebook_of_the_readme_does_what_the_demo_does(repository, tmp_path, capsys):
    (block,) = blocks(repository / "README.md", "python")
    home = repository / "docs" / "index.md"
    assert blocks(home, "python") == [block]
    run_python(block, tmp_path)
    said = capsys.readouterr().out.splitlines()
    (shown,) = blocks(home, "text")
    assert all(is_among(line, [alike(s) for s in said]) for line in shown.splitlines())
    accuracy, verified = said
    assert float(accuracy) > 0.9 and "equal scores on" in verified
    assert (tmp_path / "runs/anomaly/model.n3ic").is_file()


def test_links_between_pages_lead_somewhere(repository):
    pages = [repository / "README.md", *(repository / "docs").rglob("*.md")]
    broken = [
        f"{page.name}: {target}"
        for page in pages
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text())
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert broken == []
