# SPDX-License-Identifier: Apache-2.0
"""The small network of the tests of evaluation."""

from tests.evaluation.conftest import model, table

__all__ = ["model", "table"]
