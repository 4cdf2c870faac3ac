# SPDX-License-Identifier: Apache-2.0
"""How tables spell numbers, missing numbers, addresses and dates."""

from __future__ import annotations

import ipaddress
import re

_NAN, _NONE = ("nan", "-nan", "NaN", "NAN"), ("null", "NULL", "None", "none")
NO_NUMBER = frozenset(("", "-", "?", "\\N", "NA", "N/A", "n/a", *_NAN, *_NONE))
"""What tables write in place of a missing number."""
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)  # no 1_0, inf, nan
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
