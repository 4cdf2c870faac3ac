# SPDX-License-Identifier: Apache-2.0
"""Which cases of a test scripts/test runs."""

from types import SimpleNamespace

import pytest

from tests.support.first_cases import mark_further_cases


def case(name, *given):
    marks = list(given)
    return SimpleNamespace(
        nodeid=name,
        add_marker=marks.append,
        get_closest_marker=lambda mark: mark if mark in marks else None,
    )


def test_what_is_exhaustive_is_slow():
    further = case("t.py::v", "exhaustive")
    mark_further_cases([further])
    assert further.get_closest_marker("slow")


@pytest.mark.parametrize(
    ("slow", "run"),
    [((), ["0"]), ((0,), ["1"]), ((0, 1), ["2"]), ((1,), ["0"]), ((0, 1, 2), [])],
)
def test_the_first_case_that_is_not_slow_is_a_default_test(slow, run):
    """Also where the first of all is slow by itself: no test is lost by its two marks."""
    cases = [
        case(f"t.py::t[{i}]", "first_case", *(["slow"] if i in slow else [])) for i in range(3)
    ]
    others = [case("t.py::u[0]"), case("t.py::u[1]")]
    mark_further_cases([*cases, *others])
    assert [c.nodeid[-2] for c in cases if not c.get_closest_marker("slow")] == run
    assert not any(c.get_closest_marker("slow") for c in others)


def test_the_gate_runs_every_third_slow_case():
    marks = [["slow"], ["slow"], [], ["exhaustive"], ["slow"], ["slow"], ["slow"]]
    cases = [case(f"t.py::t[{i}]", *given) for i, given in enumerate(marks)]
    others = [case("t.py::u[0]", "slow"), case("t.py::v", "slow")]
    mark_further_cases([*cases, *others])
    gate = [c.nodeid for c in [*cases, *others] if not c.get_closest_marker("exhaustive")]
    assert gate == ["t.py::t[0]", "t.py::t[2]", "t.py::t[5]", "t.py::u[0]", "t.py::v"]
