# SPDX-License-Identifier: Apache-2.0
"""The page "Add a family of models", followed as written."""

import subprocess
import sys

import pytest

from n3ic.model.graph.builder import GraphBuilder
from tests.support.page_packages import blocks_of, files_of, install, n3ic

TARGETS = ("host", "onnx", "netfpga", "p4")


@pytest.fixture(scope="module")
def blocks(repository):
    return blocks_of(repository / "docs" / "how-to" / "add-a-family.md")


@pytest.fixture(scope="module")
def site(blocks, tmp_path_factory):
    return install(files_of(blocks), tmp_path_factory.mktemp("scorecard"))


@pytest.fixture(scope="module")
def made(site, blocks, tmp_path_factory):
    """The folder where the page's script has made its model."""
    folder = tmp_path_factory.mktemp("made")
    code = f"import sys; sys.path.insert(0, {str(site)!r})\n" + files_of(blocks)["make.py"]
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


def test_the_page_has_the_files_the_commands_and_the_operations(blocks, repository):
    assert set(files_of(blocks)) == {"pyproject.toml", "scorecard/__init__.py", "make.py"}
    assert files_of(blocks)["scorecard/__init__.py"].count("\n") < 85
    commands = next(text for language, text in blocks if language == "sh").splitlines()
    exported = [c.split()[3] for c in commands if c.startswith("n3ic export")]
    assert exported == [*TARGETS]
    page = (repository / "docs" / "how-to" / "add-a-family.md").read_text("utf-8")
    methods = {n for n in vars(GraphBuilder) if not n.startswith("_")} - {"build"}
    assert {n for n in methods if f"`{n}(" in page} == methods


@pytest.mark.exhaustive
def test_the_commands_of_the_page(site, blocks, made):
    commands = next(text for language, text in blocks if language == "sh").splitlines()
    for command in commands[2:]:
        words = command.split()[1:]
        done = n3ic(site, made, *words)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        if words[0] == "inspect":
            assert "scorecard of 3 features" in done.stdout
        else:
            assert "equal scores on " in done.stdout, done.stdout
    assert (made / "out-host" / "bnn.c").is_file()
    assert (made / "out-onnx" / "model.onnx").is_file()
    assert (made / "out-netfpga" / "rtl" / "n3ic_core.v").is_file()
    assert (made / "out-p4" / "commands.txt").is_file()


def export(site, folder, target, out):
    words = ("export", "--target", target, "--model", "card.n3ic", "--out", out)
    return n3ic(site, folder, *words)


@pytest.mark.slow
def test_a_wrong_entry_is_found(site, made):
    assert export(site, made, "host", "o").returncode == 0
    path = made / "o" / "bnn.c"
    text = path.read_text()
    assert text.count("0, 3, 9, 25") == 1
    path.write_text(text.replace("0, 3, 9, 25", "0, 3, 8, 25"))
    refused = n3ic(site, made, "verify", "o")
    assert refused.returncode == 3
    assert "bnn.c" in refused.stdout


@pytest.mark.slow
def test_a_target_that_writes_no_graphs_refuses_it(site, made):
    done = export(site, made, "qonnx", "q")
    assert done.returncode == 1
    assert "takes no model of family scorecard" in done.stderr.replace("\n", " ")
    assert "Traceback" not in done.stderr
