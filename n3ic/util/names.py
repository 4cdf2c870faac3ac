# SPDX-License-Identifier: Apache-2.0
"""Names from models and files, made safe for paths and terminals."""

from __future__ import annotations

import re

_LINE_ENDS = str.maketrans("", "", "\n\t")


def path_component(name: str) -> str:
    """A name as one component of a path: never empty or hidden, and without separators."""
    text = re.sub(r"[^0-9A-Za-z._-]+", "_", name).lstrip(".-")[:100]
    return text or "unnamed"


def visible(text: str) -> str:
    """Text without control characters: names from files must not move a terminal's cursor.

    Line ends and tabs stay; other characters that are not printable are shown as escapes.
    """
    if text.translate(_LINE_ENDS).isprintable():  # at once, as the text may be long
        return text
    return "".join(
        c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode("ascii")
        for c in text
    )
