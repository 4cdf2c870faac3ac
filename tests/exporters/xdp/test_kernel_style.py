# SPDX-License-Identifier: Apache-2.0
"""The C of an export reads as the kernel's people write it, and bpftool makes skeletons of it."""

import re
import shutil
import subprocess

import pytest

from n3ic.exporters.xdp.kernel_style import kernel_style
from n3ic.targets.directory import export
from tests.support.family_models import metered_model

PROGRAMS = ("answer", "meter")
# A macro that is an attribute cannot stand in parentheses; the kernel's own are in its headers.
ATTRIBUTE = re.compile(
    r"#define (inline|__always_inline) inline __attribute__\(\(always_inline\)\)"
)


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    path = tmp_path_factory.mktemp("export") / "xdp"
    return export(metered_model("binary-network"), "xdp", path, verify=False).path


def sources(directory):
    return sorted(file for name in PROGRAMS for file in (directory / name).glob("*.[ch]"))


def test_sources_follow_the_rules_of_checkpatch(directory):
    """Those that it calls errors: tabs, braces, white space, macros, and the licence's line."""
    files = sources(directory)
    assert len(files) > 12
    for file in files:
        lines = file.read_text().splitlines()
        slashes = "// " if file.suffix == ".c" else "/* "
        assert lines[0].startswith(f"{slashes}SPDX-License-Identifier: "), file
        for number, line in enumerate(lines, 1):
            place = f"{file.name}:{number}: {line}"
            assert not re.match(r"\t* {8}| +\t", line), place
            assert not re.match(r" {2,}[^*]", line), place
            assert line == line.rstrip(), place
            assert number == 1 or "//" not in line, place
            assert not re.match(r"[a-z].*\) \{$", line), place
            assert not re.match(r"static .* = (0|NULL);$", line), place


def test_a_style_changes_no_token():
    text = """// SPDX-License-Identifier: Apache-2.0
#define TWICE(x) \\
    do { \\
        f(x); \\
    } while (0)
/* A comment
 * of lines (with an open parenthesis. */
static int sum(int first,
               int second) {
    /*
     * Inside.
     */
    if (first) {
        return g("(", ')',
                 second);
    }

    return 0;
}

enum two { A, B };

int none(void) {
    return 1;
}
"""
    written = kernel_style({"a.h": text})["a.h"]
    assert written.split()[1:] == text.replace("Apache-2.0", "Apache-2.0 */", 1).split()[1:]
    lines = written.splitlines()
    assert lines[0] == "/* SPDX-License-Identifier: Apache-2.0 */"
    assert lines[5:17] == [
        "/* A comment",
        " * of lines (with an open parenthesis. */",
        "static int sum(int first,",
        "\t\tint second)",
        "{",
        "\t/*",
        "\t * Inside.",
        "\t */",
        "\tif (first) {",
        "\t\treturn g(\"(\", ')',",
        "\t\t\t\tsecond);",
        "\t}",
    ]
    assert lines[-4:] == ["int none(void)", "{", "\treturn 1;", "}"]


def test_checkpatch_finds_no_error(directory):
    """The kernel's own script, where it is installed as ``checkpatch.pl``."""
    script = shutil.which("checkpatch.pl")
    if script is None:
        pytest.skip("needs checkpatch.pl of the kernel's sources on the PATH")
    for file in sources(directory):
        done = subprocess.run(
            [script, "--no-tree", "--terse", "--show-types", "-f", str(file)],
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode in (0, 1), done.stderr
        lines = file.read_text().splitlines()
        errors = [
            line
            for line in done.stdout.splitlines()
            if ": ERROR:" in line and not ATTRIBUTE.fullmatch(lines[int(line.split(":")[1]) - 1])
        ]
        assert errors == []


@pytest.mark.slow
def test_bpftool_makes_a_skeleton_of_each_program(directory, tmp_path):
    """As the README says; a C program includes both skeletons, and opens them without root."""
    for tool in ("bpftool", "clang", "gcc", "make"):
        if shutil.which(tool) is None:
            pytest.skip(f"needs {tool}")
    copy = tmp_path / "copy"
    shutil.copytree(directory, copy)
    subprocess.run(["make", "skeletons"], cwd=copy, check=True, timeout=600, capture_output=True)
    opened = "".join(
        f"    struct n3ic_{name} *{name} = n3ic_{name}__open();\n\n"
        f"    if (!{name} || !{name}->progs.n3ic_{name})\n        return 1;\n"
        f"    n3ic_{name}__destroy({name});\n"
        for name in PROGRAMS
    )
    (copy / "main.c").write_text(
        '#include <stdint.h>\n\n#include "meter/state.h"\n\n#include "meter/n3ic_meter.skel.h"\n'
        f'#include "answer/n3ic_answer.skel.h"\n\nint main(void) {{\n{opened}    return 0;\n}}\n'
    )
    build = ["gcc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-DNETWORK_KEEP_ROWS", "main.c"]
    subprocess.run([*build, "-lbpf", "-lelf", "-lz"], cwd=copy, check=True, timeout=300)
    subprocess.run([copy / "a.out"], check=True, timeout=60)
