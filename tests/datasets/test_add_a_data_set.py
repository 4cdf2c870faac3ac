"""The page "Add a data set", followed as written."""

import os
import re
import subprocess
import sys

import pytest

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"\A(?:# |<!-- )file: ([\w./]+)(?: -->)?\n")


def n3ic(site, folder, *arguments):
    """Run ``n3ic`` where the toy package is installed."""
    code = "import sys; from n3ic.cli.main import main; sys.argv[0] = 'n3ic'; sys.exit(main())"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=folder,
        env=os.environ
        | {"PYTHONPATH": str(site), "NO_COLOR": "1", "COLUMNS": "200", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture(scope="module")
def blocks(repository):
    page = (repository / "docs" / "how-to" / "add-a-data-set.md").read_text("utf-8")
    return BLOCK.findall(page)


@pytest.fixture(scope="module")
def site(blocks, tmp_path_factory):
    """The toy package of the page, built and installed into a folder of its own."""
    source = tmp_path_factory.mktemp("lamp")
    for _, text in blocks:
        if name := FILE.match(text):
            path = source / name[1]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text[name.end() :] if path.suffix == ".md" else text, "utf-8")
    target = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"),
            *("--no-build-isolation", "--disable-pip-version-check", "--target", str(target)),
            str(source),
        ],
        capture_output=True,
        text=True,
        timeout=300,
    )
    if "No module named pip" in done.stderr or "No module named 'setuptools'" in done.stderr:
        pytest.skip("needs pip and setuptools to install the toy package")
    assert done.returncode == 0, done.stderr
    return target


def test_page_has_the_files_and_the_commands(blocks):
    names = {m[1] for _, text in blocks if (m := FILE.match(text))}
    assert names == {"pyproject.toml", "lamp_flows/card.md", "lamp_flows/__init__.py"}
    commands = next(text for language, text in blocks if language == "sh").split("\n")
    assert commands[1:4] == ["n3ic data list", "n3ic data show lamp-flows", "n3ic train lamp"]


def test_commands_of_the_page(site, tmp_path):
    listed = n3ic(site, tmp_path, "data", "list")
    assert listed.returncode == 0, listed.stderr
    assert "flows of a smart lamp, by who switched it" in listed.stdout
    assert "unsw-nb15-synthetic" in listed.stdout
    shown = n3ic(site, tmp_path, "data", "show", "lamp-flows")
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.startswith("# Lamp flows")
    trained = n3ic(site, tmp_path, "train", "lamp")
    assert trained.returncode == 0, trained.stdout + trained.stderr
    assert list(tmp_path.rglob("model.n3ic"))


def test_files_are_read_whole_or_refused(site, tmp_path):
    good = tmp_path / "good.csv"
    good.write_text("pkts,dur,port,label\n5,0.25,9999,0\n9,1.5,9999,1\n")
    found = n3ic(site, tmp_path, "data", "check", "--dataset", "lamp-flows", str(good))
    assert found.returncode == 0, found.stderr
    assert "2 rows" in found.stdout
    bad = tmp_path / "bad.csv"
    bad.write_text("pkts,dur,port,label\n5,long,9999,0\n")
    refused = n3ic(site, tmp_path, "data", "check", "--dataset", "lamp-flows", str(bad))
    assert refused.returncode == 1
    assert "bad.csv, line 2, column 'dur': expected a finite number, got 'long'" in (
        refused.stderr.replace("\n", " ")
    )
    assert "Traceback" not in refused.stderr
