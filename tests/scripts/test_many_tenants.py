# SPDX-License-Identifier: Apache-2.0
"""What a card with many tenants takes."""

import shutil

import pytest

from scripts import many_tenants

pytest.importorskip("scipy", reason="needs n3ic[card]")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_each_step_has_its_time_and_memory(capsys: pytest.CaptureFixture[str]) -> None:
    many_tenants.main(["host", "--tenants", "3", "--networks", "2"])
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
    assert [(row[0], row[1]) for row in rows] == [
        ("| host", "plan"),
        ("| host", "export"),
        ("| host", "verify"),
    ]
    assert all(row[2].endswith(" s") and row[3].endswith(" MiB |") for row in rows)
