# SPDX-License-Identifier: Apache-2.0

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from n3ic.targets.identifiers import c_string, comment, identifier, unique_identifiers
from n3ic.util.names import path_component

HOSTILE = [
    "",
    "*/ system(1); /*",
    "../../etc/passwd",
    "a\nb",
    "int",
    "9x",
    '"; x',
    "ü",
    "\\",
    "??/",
]


@pytest.mark.slow
@given(st.one_of(st.text(), st.sampled_from(HOSTILE)))
def test_names_cannot_leave_their_place(name):
    assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", identifier(name))
    shown = comment(name)
    assert "*/" not in shown
    assert "/*" not in shown
    assert "\n" not in shown
    assert not shown.endswith("\\")
    part = path_component(name)
    assert part not in ("", ".", "..")
    assert "/" not in part
    assert not part.startswith(".")


@given(st.lists(st.text(max_size=4), max_size=8))
def test_distinct_names_stay_distinct(names):
    out = unique_identifiers(names)
    assert len(set(out)) == len(names)


@given(st.text())
def test_c_strings_hold_the_bytes(text):
    literal = c_string(text)
    assert literal.isascii()
    assert "\n" not in literal
    inner = literal[1:-1]
    decoded = bytearray()
    i = 0
    while i < len(inner):
        if inner[i] != "\\":
            decoded.append(ord(inner[i]))
            i += 1
        elif inner[i + 1].isdigit():
            decoded.append(int(inner[i + 1 : i + 4], 8))
            i += 4
        else:
            decoded.append(ord(inner[i + 1]))
            i += 2
    assert bytes(decoded) == text.encode("utf-8", "replace")


def test_keywords_are_no_identifiers():
    assert identifier("int") == "n_int"
    assert identifier("table") == "n_table"
