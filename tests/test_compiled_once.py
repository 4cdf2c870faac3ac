# SPDX-License-Identifier: Apache-2.0
"""The compilers of the tests: what they hand out is what the compiler would have made."""

import shutil
import subprocess
import sys

import pytest

PROGRAM = '#include <stdio.h>\n#include "said.h"\nint main(void) { puts(SAID); return 0; }\n'


@pytest.fixture
def compiled(repository, compiler, tmp_path):
    """Compiles ``PROGRAM`` in a folder that is made for it; gives its output, and what was kept."""
    real = shutil.which(compiler.command[0])
    script, cache = repository / "scripts" / "compiled_once.py", tmp_path / "kept"

    def compile_(folder, header, *options, program=PROGRAM):
        where = tmp_path / folder
        where.mkdir()
        (where / "said.h").write_text(header)
        (where / "main.c").write_text(program)
        words = [*options, str(where / "main.c"), "-o", str(where / "main")]
        command = [sys.executable, "-IS", str(script), str(cache), real, *words]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            return None, done.stderr
        ran = subprocess.run([where / "main"], capture_output=True, text=True, check=True)
        return ran.stdout.strip(), sorted(path.name for path in cache.glob("*"))

    return compile_


def test_the_same_text_is_compiled_once(compiled):
    output, first = compiled("a", '#define SAID "one"\n')
    assert output == "one" and len(first) == 1
    assert compiled("b", '#define SAID "one"\n') == ("one", first)


@pytest.mark.first_case
@pytest.mark.parametrize("name", ["gcc", "clang"])
def test_a_library_is_compiled_once_by_either_compiler(repository, tmp_path, name):
    real = shutil.which(name)
    if real is None:
        pytest.skip(f"needs {name}")
    script, cache = repository / "scripts" / "compiled_once.py", tmp_path / "kept"
    (tmp_path / "a.c").write_text("int one;")
    words = ["-O0", "-fPIC", "-shared", "a.c", "-o", "a.so", "-lm"]
    command = [sys.executable, "-IS", str(script), str(cache), real, *words]
    for _ in range(2):
        subprocess.run(command, cwd=tmp_path, check=True)
        assert len(list(cache.iterdir())) == 1


def test_what_is_kept_is_handed_out(compiled, tmp_path):
    _, (name,) = compiled("a", '#define SAID "one"\n')
    other, _ = compiled("other", '#define SAID "other"\n')
    assert other == "other"
    shutil.copy(tmp_path / "other" / "main", tmp_path / "kept" / name)
    assert compiled("b", '#define SAID "one"\n')[0] == "other"


@pytest.mark.first_case
@pytest.mark.parametrize(
    ("header", "options"),
    [
        ('#define SAID "two"\n', []),
        ('#define SAID "one"\n', ["-O1"]),
        ('#ifdef X\n#define SAID "two"\n#else\n#define SAID "one"\n#endif\n', ["-DX"]),
    ],
    ids=["header", "option", "macro"],
)
def test_another_text_or_option_is_compiled(compiled, header, options):
    _, first = compiled("a", '#define SAID "one"\n')
    output, files = compiled("b", header, *options)
    assert output == ("two" if "two" in header else "one")
    assert len(files) == len(first) + 1


def test_a_text_that_names_its_folder_is_that_folders(compiled, tmp_path):
    for folder in ("a", "b"):
        assert compiled(folder, "#define SAID __FILE__\n")[0] == str(tmp_path / folder / "main.c")


def test_debug_information_is_not_kept(compiled):
    assert compiled("a", '#define SAID "one"\n', "-g") == ("one", [])


@pytest.mark.slow
def test_debug_information_without_its_folder_is_kept_with_the_text_it_shows(repository, tmp_path):
    clang = shutil.which("clang")
    if clang is None:
        pytest.skip("needs clang")
    script, cache = repository / "scripts" / "compiled_once.py", tmp_path / "kept"

    def count(folder, text):
        where = tmp_path / folder
        where.mkdir()
        (where / "a.c").write_text(text)
        words = ["-g", "-fdebug-compilation-dir=.", "-c", "a.c", "-o", "a.o"]
        command = [sys.executable, "-IS", str(script), str(cache), clang, *words]
        subprocess.run(command, cwd=where, check=True)
        assert (where / "a.o").is_file()
        return len(list(cache.iterdir()))

    assert count("a", "int one; // a\n") == count("b", "int one; // a\n") == 1
    assert count("c", "int one; // b\n") == 2
    assert count("d", "\nint one; // a\n") == 3


@pytest.mark.slow
def test_warnings_and_errors_are_said_each_time(compiled):
    warned = "int main(void) { int unused; return 0; }"
    for folder in ("a", "b"):
        assert compiled(folder, "", "-Wall", program=warned) == ("", [])
    for folder in ("c", "d"):
        output, why = compiled(folder, "", program="int main(void) { return nothing; }")
        assert output is None and "nothing" in why
