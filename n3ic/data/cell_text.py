# SPDX-License-Identifier: Apache-2.0
"""How tables spell numbers, missing numbers, addresses and dates."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Sequence

_NAN, _NONE = ("nan", "-nan", "NaN", "NAN"), ("null", "NULL", "None", "none")
NO_NUMBER = frozenset(("", "-", "?", "\\N", "NA", "N/A", "n/a", *_NAN, *_NONE))
"""What tables write in place of a missing number."""
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)  # no 1_0, inf, nan
_WHOLE = re.compile(r"[+-]?\d{1,15}(\.0*)?", re.ASCII)  # 15 digits are exact as a float
_MAC = re.compile(r"([0-9a-f]{2}[:-]){5}[0-9a-f]{2}", re.IGNORECASE)
_CLOCK = r"\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?( ?[ap]m)?"
_WHEN = re.compile(
    rf"\d{{1,4}}[-/.]\d{{1,2}}[-/.]\d{{1,4}}([ T_]+{_CLOCK}.*)?|{_CLOCK}|\d{{4}}-\d{{2}}"
    rf"|([a-z]{{3,9}},? +){{1,2}}\d{{1,2}},? .*{_CLOCK}.*",
    re.ASCII | re.IGNORECASE,
)


def is_ip(text: str) -> bool:
    """Whether a text is an IP address."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def is_address(text: str) -> bool:
    """Whether a text is an IP or a hardware address."""
    return bool(_MAC.fullmatch(text)) or is_ip(text)


def is_date(text: str) -> bool:
    """Whether a text is a date, with or without a time of day, or a time of day."""
    return bool(_WHEN.fullmatch(text))


def same_spelling(texts: Sequence[str], known: Collection[str] = ()) -> list[str]:
    """Classes with whole numbers in one spelling: ``1.0`` is ``1``.

    Beside other texts, a number stays as it is, except where its spelling is a known class.
    """
    whole = {t: str(int(float(t))) for t in texts if _WHOLE.fullmatch(t)}
    every = all(t in whole for t in texts if t)
    return [whole[t] if t in whole and (every or whole[t] in known) else t for t in texts]
