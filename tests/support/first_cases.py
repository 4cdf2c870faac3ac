# SPDX-License-Identifier: Apache-2.0
"""Tests of which scripts/test runs one case: those with the mark ``first_case``."""

from collections.abc import Iterable

import pytest


def mark_further_cases(items: Iterable[pytest.Item]) -> None:
    """Mark every case of such a test slow but the first that is not slow by itself.

    What is exhaustive is slow, too.
    """
    begun: set[str] = set()
    for item in items:
        if item.get_closest_marker("exhaustive"):
            item.add_marker("slow")
        name = item.nodeid.partition("[")[0]
        if not item.get_closest_marker("first_case"):
            continue
        if name in begun:
            item.add_marker("slow")
        elif not item.get_closest_marker("slow"):
            begun.add(name)
