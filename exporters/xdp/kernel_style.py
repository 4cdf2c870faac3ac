# SPDX-License-Identifier: Apache-2.0
"""C as the Linux kernel's people write it: only white space and the licence's comment change.

The sources share their C with other targets, in the style of this project. Source: the kernel's
``Documentation/process/coding-style.rst``, which ``scripts/checkpatch.pl`` checks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_NO_CODE = re.compile(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])+\'|//[^\n]*|/\*.*?\*/', re.DOTALL)
_STEP = 4  # spaces of a level of the sources


def kernel_style(files: Mapping[str, str]) -> dict[str, str]:
    """Indent by tabs, and put a function's brace on a line of its own.

    Args:
        files: C by file name; the compiler reads the same tokens before and after.
    """
    return {name: _in_style(name, text) for name, text in files.items()}


def _in_style(name: str, text: str) -> str:
    lines: list[str] = []
    depth = base = 0  # open parentheses, and the tabs of the line that opened the first
    codes = _NO_CODE.sub(lambda match: "\n" * match[0].count("\n"), text).splitlines()
    for line, code in zip(text.splitlines(), codes, strict=True):
        body = line.lstrip(" ")
        spaces = len(line) - len(body)
        tabs, rest = (base + 2, 0) if depth else divmod(spaces, _STEP)
        if not depth:
            base = tabs
        depth = max(0, depth + code.count("(") - code.count(")"))
        macro = bool(lines) and lines[-1].endswith("\\")
        # A comment's inner lines keep their star below the first one's.
        indent = "\t" * tabs + " " * rest if body else ""
        if re.fullmatch(r"[^#\s{}=][^{}=]*\) \{", line) or (not macro and _ends_head(lines, line)):
            lines += [indent + body[:-2], "{"]
        else:
            lines.append(indent + body)
    licence = "// SPDX-License-Identifier: "
    if name.endswith(".h") and lines and lines[0].startswith(licence):
        lines[0] = f"/* {lines[0].removeprefix('// ')} */"
    return "\n".join(lines) + "\n"


def _ends_head(lines: list[str], line: str) -> bool:
    """Whether a line ends the head of a function that began on an earlier line."""
    if not line.endswith(") {") or not line.startswith(" "):
        return False
    for earlier in reversed(lines):
        if earlier[:1] not in ("\t", " ", ""):
            return not earlier.startswith(("#", "}", "{")) and not earlier.endswith((";", "}", "{"))
        if earlier.rstrip().endswith((";", "}", "{")) or not earlier:
            return False
    return False
