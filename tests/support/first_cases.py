# SPDX-License-Identifier: Apache-2.0
"""Tests of which only some cases run: those with the marks ``first_case`` and ``sampled``."""

from collections import Counter
from collections.abc import Iterable

import pytest


def mark_further_cases(items: Iterable[pytest.Item]) -> None:
    """Mark every case of such a test slow but the first that is not slow by itself.

    What is exhaustive is slow, too. Of a sampled test, two of three slow cases are exhaustive.
    """
    begun: set[str] = set()
    slow: Counter[str] = Counter()  # cases of each sampled test
    for item in items:
        if item.get_closest_marker("exhaustive"):
            item.add_marker("slow")
        name = item.nodeid.partition("[")[0]
        if item.get_closest_marker("first_case"):
            if name in begun:
                item.add_marker("slow")
            elif not item.get_closest_marker("slow"):
                begun.add(name)
        if item.get_closest_marker("sampled") and item.get_closest_marker("slow"):
            if slow[name] % 3:
                item.add_marker("exhaustive")
            slow[name] += 1
