# SPDX-License-Identifier: Apache-2.0
"""The command line in a folder of the test's own."""

from functools import partial

import pytest

from tests.support.command_line import typed
from tests.support.xdp_machine import clang, in_namespace, kernel, pins, run_folder

__all__ = ["clang", "in_namespace", "kernel", "pins", "run_folder"]


@pytest.fixture(name="n3ic")
def typed_in_a_folder(tmp_path):
    """``n3ic`` of a line of text, run in ``tmp_path``; see :func:`command_line.typed`."""
    return partial(typed, cwd=tmp_path)
