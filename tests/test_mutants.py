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
    Add(a, b).reshape(-1)
    return max(a[1:], b)
'''


def test_each_operator_constant_and_value_is_changed_in_turn():
    changes = [(line, inside, before, after) for line, _, inside, before, after, _ in
             mutants._python(SOURCE)]  # fmt: skip
    assert changes == [
        (3, "", "3", "4"),
        (3, "", "3", "2"),
        (7, "f", "a and (not b < LIMIT)", "a or not b < LIMIT"),
        (7, "f", "not b < LIMIT", "b < LIMIT"),
        (7, "f", "b < LIMIT", "b <= LIMIT"),
        (7, "f", "b < LIMIT", "b >= LIMIT"),
        (9, "f", "zip(a, b, strict=True)", "zip(b, a, strict=True)"),
        (11, "f", "return max(a[1:], b)", "return None"),
        (11, "f", "max", "min"),
        (11, "f", "1:", ":"),
        (11, "f", "1", "2"),
        (11, "f", "1", "0"),
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
    changes = [(line, before, after) for line, _, _, before, after, _ in mutants._text(source)]
    line = "if (a < 3 && *b) // 4"
    assert changes == [
        (2, line, "if (a <= 3 && *b) // 4"),
        (2, line, "if (a < 3 || *b) // 4"),
        (2, line, "if (a < 4 && *b) // 4"),
    ]


def test_every_glob_of_the_tables_names_files():
    for table in (mutants.MUTATED, mutants.NOT_MUTATED, mutants.TESTS, mutants.TEXT_COMPARED_BY):
        assert mutants._named(table)
    with pytest.raises(SystemExit, match="names no file"):
        mutants._named(["n3ic/nowhere/*.py"])


@pytest.mark.slow
def test_every_equivalent_mutant_is_one_and_says_why():
    for entry in mutants.equivalents():
        assert len(entry["why"]) > 20
        assert any(mutants.is_equivalent(m, [entry]) for m in mutants.mutants(entry["file"])), entry


def test_an_equivalent_mutant_of_a_repeated_line_is_the_one_below_the_line_above():
    packet = [m for m in mutants.mutants("n3ic/meter/c/packet.h") if m.after == "return 1;"]
    entries = [e for e in mutants.equivalents() if e["after"] == "return 1;"]
    source = (mutants.ROOT / "n3ic/meter/c/packet.h").read_text().splitlines()
    for entry in entries:
        (match,) = [m for m in packet if mutants.is_equivalent(m, [entry])]
        assert source[match.line - 2].strip() == entry["above"]
    assert len(packet) > 9 > len(entries) > 0


def learnt(name, seconds, **lines):
    return {"test": name, "seconds": seconds, "lines": {f"{k}.py": v for k, v in lines.items()}}


def test_a_mutant_meets_the_tests_of_its_line():
    tests = [
        learnt("a.py::reads", 0.1),
        learnt("b.py::other_file", 0.1, other=[7]),
        learnt("a.py::line", 0.2, some=[7]),
        learnt("a.py::other_line", 0.3, some=[9]),
        learnt("a.py::slow", mutants.MOST, some=[7]),
    ]
    meets = {
        (7, 8): ["a.py::line"],
        (5, 6): ["a.py::line", "a.py::other_line"],  # no test is known: all of the file's
        (1, 0): ["a.py::reads", "a.py::line", "a.py::other_line"],  # on import, for all beside it
    }
    for (line, end), names in meets.items():
        mutant = mutants.Mutant("some.py", line, end, 0, "", "", "")
        assert [t["test"] for t in mutants.concerned(mutant, tests)] == names


def test_what_is_left_alive_meets_the_rest_one_of_each_file_in_turn():
    tests = [
        learnt("a.py::met", 0.1, some=[7]),
        learnt("b.py::first", 0.2, some=[7]),
        learnt("b.py::other_line", 0.3, some=[9]),
        learnt("b.py::second", 0.4, some=[7]),
        learnt("c.py::slow", 5.0, some=[7]),
        learnt("d.py::too_slow", mutants.MOST_OF_REST, some=[7]),
    ]
    mutant = mutants.Mutant("some.py", 7, 7, 0, "", "", "")
    others = mutants.rest_of(mutant, tests, tests[:1])
    assert [t["test"] for t in others] == ["b.py::first", "c.py::slow"]


def test_text_of_another_language_meets_the_tests_of_who_reads_it():
    reader = mutants.TEXT_READ_BY["n3ic/meter/c/"].removesuffix(".py")
    compares = f"{mutants.TEXT_COMPARED_BY[0]}::y"
    tests = [learnt("a::x", 0.1, **{reader: [1]}), learnt(compares, 30.0, **{reader: [2]})]
    mutant = mutants.Mutant("n3ic/meter/c/key.h", 3, 3, 0, "", "", "")
    assert mutants.concerned(mutant, tests) == tests[::-1]


def test_a_file_that_no_test_executes_is_named():
    tests = [learnt("a::x", 0.1, some=[1], **{"n3ic/meter/source": [1]})]
    files = ["some.py", "n3ic/meter/c/key.h", "other.py"]
    assert mutants.untested(files, tests) == ["other.py"]
