# SPDX-License-Identifier: Apache-2.0
"""Tests of which only some cases run: by default the first, in the gate every third slow one."""

from collections import Counter
from collections.abc import Iterable

import pytest


def mark_further_cases(items: Iterable[pytest.Item]) -> None:
    """Mark what the default tests and the gate leave out.

    Every case of a ``first_case`` is slow but the first that is not slow by itself. What is
    exhaustive is slow, too. Of the other slow cases of a test, two of three are exhaustive.
    """
    begun: set[str] = set()
    slow: Counter[str] = Counter()  # cases of each test
    for item in items:
        name = item.nodeid.partition("[")[0]
        if item.get_closest_marker("first_case"):
            if name in begun:
                item.add_marker("slow")
            elif not any(map(item.get_closest_marker, ("slow", "exhaustive"))):
                begun.add(name)
        if item.get_closest_marker("exhaustive"):
            item.add_marker("slow")
        elif item.get_closest_marker("slow"):
            if slow[name] % 3:
                item.add_marker("exhaustive")
            slow[name] += 1
