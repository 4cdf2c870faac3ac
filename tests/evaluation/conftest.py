# SPDX-License-Identifier: Apache-2.0
"""One small network for all tests of this folder, and of studies at another site."""

import pytest


@pytest.fixture(scope="session")
def table():
    from tests.support import small_flows  # skips without PyTorch

    return small_flows.flows()


@pytest.fixture(scope="session")
def model(table):
    from tests.support import small_flows

    return small_flows.trained(table)
