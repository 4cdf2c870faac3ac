# SPDX-License-Identifier: Apache-2.0
"""The page "Add a data set", followed as written."""

import pytest

from tests.support.page_packages import blocks_of, files_of, install, n3ic


@pytest.fixture(scope="module")
def blocks(repository):
    return blocks_of(repository / "docs" / "how-to" / "add-a-data-set.md")


@pytest.fixture(scope="module")
def site(blocks, tmp_path_factory):
    return install(files_of(blocks), tmp_path_factory.mktemp("lamp"))


def test_page_has_the_files_and_the_commands(blocks):
    assert set(files_of(blocks)) == {
        "pyproject.toml",
        "lamp_flows/card.md",
        "lamp_flows/__init__.py",
    }
    commands = next(text for language, text in blocks if language == "sh").split("\n")
    assert commands[1:4] == ["n3ic data list", "n3ic data show lamp-flows", "n3ic train lamp"]


@pytest.mark.slow
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


@pytest.mark.slow
def test_files_are_read_whole(site, tmp_path):
    good = tmp_path / "good.csv"
    good.write_text("pkts,dur,port,label\n5,0.25,9999,0\n9,1.5,9999,1\n")
    completed = n3ic(site, tmp_path, "data", "check", "--dataset", "lamp-flows", str(good))
    assert completed.returncode == 0, completed.stderr
    assert "2 rows" in completed.stdout


@pytest.mark.slow
def test_what_is_no_number_is_refused(site, tmp_path):
    bad = tmp_path / "bad.csv"
    bad.write_text("pkts,dur,port,label\n5,long,9999,0\n")
    refused = n3ic(site, tmp_path, "data", "check", "--dataset", "lamp-flows", str(bad))
    assert refused.returncode == 1
    assert "bad.csv, line 2, column 'dur': expected a finite number, got 'long'" in (
        refused.stderr.replace("\n", " ")
    )
    assert "Traceback" not in refused.stderr
