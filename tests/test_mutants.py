# SPDX-License-Identifier: Apache-2.0
"""The script that measures the tests makes the mutants that it says, and each is a program."""

import ast
import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "scripts" / "mutants.py"
_spec = importlib.util.spec_from_file_location("mutants", SCRIPT)
mutants = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(mutants)

SOURCE = '''
"""Prose is not mutated: 1 < 2."""
LIMIT: int = 3

def f(a: int | None, b: int) -> int:
    """Nor is this."""
    if a and not b < LIMIT:
        raise ValueError(f"{a + 1} words of errors are not")
    zip(a, b, strict=True)
    return max(a[1:], b)
'''


def test_each_operator_constant_and_value_is_changed_in_turn():
    found = [(line, inside, before, after) for line, _, inside, before, after, _ in
             mutants._python(SOURCE)]  # fmt: skip
    assert found == [
        (3, "", "3", "4"),
        (3, "", "3", "2"),
        (7, "f", "a and (not b < LIMIT)", "a or not b < LIMIT"),
        (7, "f", "not b < LIMIT", "b < LIMIT"),
        (7, "f", "b < LIMIT", "b <= LIMIT"),
        (7, "f", "b < LIMIT", "b >= LIMIT"),
        (9, "f", "zip(a, b, strict=True)", "zip(b, a, strict=True)"),
        (10, "f", "return max(a[1:], b)", "return None"),
        (10, "f", "max", "min"),
        (10, "f", "1:", ":"),
        (10, "f", "1", "2"),
        (10, "f", "1", "0"),
    ]


def test_a_mutant_is_the_source_with_one_change():
    same = ast.unparse(ast.parse(SOURCE)).splitlines()
    for number in range(len(list(mutants._python(SOURCE)))):
        *_, made = list(mutants._python(SOURCE))[number]
        changed = ast.unparse(made()).splitlines()
        assert sum(a != b for a, b in zip(same, changed, strict=True)) == 1, changed


def test_a_mutant_of_c_is_a_line_with_one_token_changed():
    source = (
        "/* a < b */\n    if (a < 3 && *b) // 4\n * < prose\n{% if 1 < 2 %}\nx = {{ a | b }};\n"
    )
    found = [(line, before, after) for line, _, _, before, after, _ in mutants._text(source)]
    line = "if (a < 3 && *b) // 4"
    assert found == [
        (2, line, "if (a <= 3 && *b) // 4"),
        (2, line, "if (a < 3 || *b) // 4"),
        (2, line, "if (a < 4 && *b) // 4"),
    ]


def test_every_glob_of_the_tables_names_files():
    for table in (mutants.MUTATED, mutants.NOT_MUTATED, mutants.TESTS):
        assert mutants._named(table)
    with pytest.raises(SystemExit, match="names no file"):
        mutants._named(["n3ic/nowhere/*.py"])


def test_every_equivalent_mutant_is_one_and_says_why():
    for entry in mutants.equivalents():
        assert len(entry["why"]) > 20
        assert any(mutants.is_equivalent(m, [entry]) for m in mutants.mutants(entry["file"])), entry
