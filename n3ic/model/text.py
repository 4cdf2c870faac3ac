# SPDX-License-Identifier: Apache-2.0
"""Which text a model may carry: what every target can write and every terminal can show."""

from __future__ import annotations

from n3ic.errors import ModelError
from n3ic.util.plain_data import shown

MAX_NAME = 256


def check_text(where: str, value: object, *, least: int = 1, most: int = MAX_NAME) -> None:
    """Refuse text that is unprintable or too long.

    Control characters (such as NUL and line ends) and lone surrogates are unprintable.

    Raises:
        ModelError: the value is not such a text.
    """
    if not (isinstance(value, str) and least <= len(value) <= most and value.isprintable()):
        raise ModelError(
            f"{where}: expected {least} to {most:,} printable characters, got {shown(value)}"
        )
