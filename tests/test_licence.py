# SPDX-License-Identifier: Apache-2.0
"""Every source says its licence, and so does every source that an export writes."""

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from n3ic.errors import MissingDependencyError
from n3ic.model.random_models import random_model
from n3ic.plugins import names
from n3ic.targets.directory import export

LINE = "SPDX-License-Identifier: Apache-2.0"
FROZEN = {"tomography.cc"}  # its digest stands in the bundled trace that it made
SOURCE = re.compile(r".*\.(py|sh|v|c|h|cc|cpp|p4|js|css|lua|lark)(\.j2)?|Makefile(\.j2)?")


def unmarked(files):
    """Sources whose first three lines do not say the licence."""
    return [
        str(path)
        for path in files
        if SOURCE.fullmatch(path.name)
        and path.name not in FROZEN
        and LINE not in "".join(path.read_text(encoding="utf-8").splitlines(True)[:3])
    ]


def test_every_source_says_its_licence(repository):
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=repository, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("needs a checkout")
    files = [repository / name for name in listed.stdout.split("\0") if name]
    assert len(files) > 500
    assert unmarked(path for path in files if path.is_file()) == []


@pytest.mark.parametrize("target", names("n3ic.exporters"))
def test_every_source_of_an_export_says_its_licence(tmp_path: Path, target):
    model = random_model((24, 6, 2), np.random.default_rng(0))
    try:
        export(model, target, tmp_path / "out", verify=False)
    except MissingDependencyError as error:
        pytest.skip(str(error))
    assert unmarked((tmp_path / "out").rglob("*")) == []
