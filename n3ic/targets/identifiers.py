# SPDX-License-Identifier: Apache-2.0
"""Names from models, made safe for generated code and comments."""

from __future__ import annotations

import re

_RESERVED = frozenset(
    re.findall(
        r"\w+",
        """auto break case char const continue default do double else enum extern float for goto if
        inline int long register restrict return short signed sizeof static struct switch typedef
        union unsigned void volatile while main action apply bit bool control header match parser
        state table transition wire reg module input output begin end always assign""",
    )
)


def identifier(name: str, *, prefix: str = "n_") -> str:
    """A name as an identifier of C, P4 and Verilog: letters, digits and ``_``, 48 at most.

    Other characters become ``_``. Distinct names may become equal, so generated code uses
    :func:`unique_identifiers` for a set of names.
    """
    text = re.sub(r"[^0-9A-Za-z]+", "_", name).strip("_")[:48]
    if not text or text[0].isdigit() or text.lower() in _RESERVED:
        text = f"{prefix}{text}"
    return text


def unique_identifiers(names: list[str] | tuple[str, ...], *, prefix: str = "n_") -> list[str]:
    """Distinct identifiers for distinct names, in order."""
    used: set[str] = set()
    out = []
    for name in names:
        base = identifier(name, prefix=prefix)
        candidate, i = base, 2
        while candidate in used:
            candidate, i = f"{base}_{i}", i + 1
        used.add(candidate)
        out.append(candidate)
    return out


def c_string(text: str) -> str:
    """A C string literal of the text, in printable ASCII; other bytes become octal escapes."""
    out = []
    for byte in text.encode("utf-8", "replace"):
        char = chr(byte)
        if char in '"\\?':
            out.append("\\" + char)
        elif 32 <= byte < 127:
            out.append(char)
        else:
            out.append(f"\\{byte:03o}")
    return '"' + "".join(out) + '"'


def comment(text: str) -> str:
    """Text that is safe inside a comment of C, P4 or Verilog: one line of printable ASCII."""
    ascii_text = "".join(c if 32 <= ord(c) < 127 else "?" for c in text)
    return ascii_text.replace("*/", "* /").replace("/*", "/ *").rstrip("\\").replace("??/", "? ?/")
