# SPDX-License-Identifier: Apache-2.0
"""One small network for all tests of the folder."""

import pytest

small = pytest.importorskip("small")
pytest.importorskip("torch")


@pytest.fixture(scope="session")
def table():
    return small.flows()


@pytest.fixture(scope="session")
def model(table):
    return small.trained(table)
