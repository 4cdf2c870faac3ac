# SPDX-License-Identifier: Apache-2.0
"""The command line in a folder of the test's own, as for systems."""

from tests.systems.conftest import typed_in_a_folder

__all__ = ["typed_in_a_folder"]
