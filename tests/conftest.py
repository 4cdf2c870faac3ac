"""Fixtures for all tests: real data where it is, and an environment that is the tests' own."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data sets, which are never part of the repository."""
    folder = Path(os.environ.get("N3IC_DATA", ROOT.parent / "shared" / "data"))
    if not (folder / "unsw_nb15").is_dir():
        pytest.skip(f"no real data in {folder} (set N3IC_DATA to a folder that has unsw_nb15/)")
    return folder


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the repository."""
    return ROOT
