# SPDX-License-Identifier: Apache-2.0
"""The ten classes that the N3IC paper takes from UPC-AAU."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

CLASSES: Mapping[str, int] = {
    "bittorrent-all-encrypted": 25_000,
    "bittorrent-outgoing-non-encrypted": 25_000,
    "emule-outgoing-non-obfuscated": 10_960,
    "pandmediabooster": 12_070,
    "rdp": 25_000,
    "web-browser": 24_914,
    "dns": 10_761,
    "new-samba-session-service": 25_000,
    "ntp": 17_834,
    "ssh": 25_000,
}
"""Flows of each class, in the order of the paper's Table 4; none has more than 25,000."""

FLOWS_PER_CLASS = max(CLASSES.values())


@lru_cache(maxsize=1 << 12)
def class_name(text: str) -> str:
    """Spell a label like a class: lower case, words separated by dashes."""
    return "-".join(text.strip().lower().replace("_", " ").replace("-", " ").split())
