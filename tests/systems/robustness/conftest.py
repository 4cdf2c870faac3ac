# SPDX-License-Identifier: Apache-2.0
"""One small network for all tests of the folder."""

import pytest

from tests.support import small_flows

pytest.importorskip("torch")


@pytest.fixture(scope="session")
def table():
    return small_flows.flows()


@pytest.fixture(scope="session")
def model(table):
    return small_flows.trained(table)
