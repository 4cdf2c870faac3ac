# SPDX-License-Identifier: Apache-2.0
"""The tutorial and the how-tos do what they say."""

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.command_line import N3IC, n3ic
from tests.support.xdp_machine import clang, in_namespace, kernel, pins, run_folder

__all__ = ["clang", "in_namespace", "kernel", "pins", "run_folder"]

DIGEST = re.compile(r"\b[0-9a-f]{12}\b")
NUMBER = re.compile(r" *[\d,.]+")
FIRST_RUN = shlex.split("n3ic train anomaly --out runs/first")


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
        pytest.param("how-to/dataframes.md", 2, marks=pytest.mark.exhaustive),
        ("how-to/your-own-network.md", 3),
        pytest.param("how-to/your-own-forest.md", 2, marks=pytest.mark.exhaustive),
        ("how-to/shunting.md", 8),
        ("how-to/stream-learning.md", 6),
        ("how-to/card.md", 5),
        ("how-to/cluster.md", 7),
        pytest.param("how-to/spn.md", 7, marks=pytest.mark.exhaustive),
        ("how-to/stream-messages.md", 0),
    ],
)
def test_a_page_works_as_written(repository, tmp_path, name, commands, request):
    if name != "how-to/stream-learning.md":  # which asks for an accuracy
        request.getfixturevalue("few_epochs")
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


@pytest.fixture(name="terminal")
def reader_s_terminal(monkeypatch):
    """What a terminal looks like to the commands of a page."""
    for variable, value in (("NO_COLOR", "1"), ("COLUMNS", "90"), ("OMP_NUM_THREADS", "1")):
        monkeypatch.setenv(variable, value)


@pytest.mark.exhaustive
@pytest.mark.usefixtures("small_baselines", "few_epochs", "terminal")
@pytest.mark.parametrize(
    ("name", "languages", "commands"),
    [
        ("README.md", "console", 4),
        ("docs/tutorial/first-network.md", "console|python", 14),
        ("docs/tutorial/hardware-engineer.md", "console|python", 12),
    ],
)
def test_the_terminal_of_a_page_is_real(repository, tmp_path, name, languages, commands, made_once):
    if shutil.which("verilator") is None:
        pytest.skip("needs verilator")

    def train(folder):
        (folder / "said.txt").write_text(answer(FIRST_RUN, folder))

    def answer_of(words, folder):
        if words != FIRST_RUN:
            return answer(words, folder)
        first_run = made_once("first-run", train)  # two pages begin with it
        shutil.copytree(first_run / "runs", folder / "runs")
        return (first_run / "said.txt").read_text()

    assert follow(repository / name, languages, tmp_path, answer_of) == commands


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.usefixtures("terminal")
def test_a_page_shows_a_promotion(repository, tmp_path):
    """Trained as by a reader: with fewer epochs, other models are better.

    Which candidates are better also depends on how a machine adds up, so one is pushed anywhere.
    """
    page = repository / "docs" / "how-to" / "stream-learning.md"
    decisions = re.findall(r"^n3ic: after .*", page.read_text(encoding="utf-8"), re.MULTILINE)

    def learned(words: list[str], folder: Path) -> str:
        text = answer(words, folder)
        if "learn" in words:
            assert re.search(r"^n3ic: after .* labelled: .*better.*push", text, re.MULTILINE), text
            text = "\n".join([text, *decisions])
        return text

    assert follow(page, "console", tmp_path, learned) == 4
    assert (tmp_path / "now.n3ic").read_bytes() != (
        tmp_path / "runs" / "few" / "model.n3ic"
    ).read_bytes()


@pytest.mark.exhaustive
@pytest.mark.usefixtures("small_baselines", "few_epochs", "terminal", "clang")
def test_the_terminal_of_an_operator_is_real(repository, tmp_path, run_folder, in_namespace):
    """The whole page in a network namespace, which takes the links away at its end."""
    if shutil.which("tcpreplay") is None:
        pytest.skip("needs tcpreplay")
    page = repository / "docs" / "tutorial" / "xdp-operator.md"

    def followed():
        try:
            return follow(page, "console", tmp_path)
        finally:  # of a page that failed, n3icd would stay
            unload = [*N3IC, "xdp", "unload", "n3ic0"]
            subprocess.run(unload, capture_output=True, check=False, timeout=60)

    assert in_namespace(followed) == 19
    assert not list((run_folder / "xdp").iterdir())


def answer(words: list[str], folder: Path) -> str:
    """What a command says.

    ``n3ic predict`` and what is live are processes of their own. The other commands of n3ic have
    their libraries imported.
    """
    if words[0] == "n3ic":
        own = dict(os.environ) if words[1] in ("predict", "xdp") else None
        done = n3ic(*words[1:], cwd=folder, env=own)
    else:
        done = subprocess.run(
            words, cwd=folder, capture_output=True, text=True, check=True, timeout=1200
        )
    return done.stdout + done.stderr


def in_background(typed: str, folder: Path) -> None:
    """Start ``n3ic ... > FILE &``, which ends by itself; it may take a while until it listens."""
    words, file = typed.removesuffix(" &").removeprefix("n3ic ").split(" > ")
    with (folder / file).open("wb") as out:
        subprocess.Popen([*N3IC, *shlex.split(words)], cwd=folder, stdout=out)
    time.sleep(5)


def follow(
    page: Path,
    languages: str,
    folder: Path,
    answer: Callable[[list[str], Path], str] = answer,
) -> int:
    """Do what a page's terminal shows, expect its lines, and count the commands."""
    ran = 0
    for language, block in blocks_of(page, languages):
        if language == "python":
            run_python(block, folder)  # it goes on with the files of the commands above it
            continue
        for command in block.strip().removeprefix("$ ").split("\n$ "):
            typed, *shown = command.splitlines()
            if typed.endswith(" &"):
                in_background(typed, folder)
                ran += 1
                continue
            lines = [alike(line) for line in answer(shlex.split(typed), folder).splitlines()]
            assert [line for line in shown if not is_among(line, lines)] == [], typed
            ran += 1
    return ran


def alike(line: str) -> str:
    """A line without what differs from machine to machine: figures, versions, the columns' widths.

    Small baselines choose other bits, and so a network of fewer neurons.
    """
    line = DIGEST.sub("D", line)
    return " ".join(NUMBER.sub("N", line).replace(" asN-N-N-N:", ":").split())


def is_among(line: str, lines: list[str]) -> bool:
    """Whether a line of a page was said; one that ends in ``...`` is its beginning."""
    if line.endswith(" ..."):
        start = alike(line.removesuffix(" ..."))
        return any(other.startswith(start) for other in lines)
    return alike(line) in lines


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.usefixtures("small_baselines")
def test_the_notebook_of_the_readme_does_what_the_demo_does(repository, tmp_path, capsys):
    (block,) = blocks(repository / "README.md", "python")
    home = repository / "docs" / "index.md"
    assert blocks(home, "python") == [block]
    run_python(block, tmp_path)
    lines = capsys.readouterr().out.splitlines()
    (shown,) = blocks(home, "text")
    assert all(is_among(line, [alike(s) for s in lines]) for line in shown.splitlines())
    accuracy, verified = lines
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
