# SPDX-License-Identifier: Apache-2.0
"""The published UNSW-NB15 files, recognised by their bytes and rows, never by their names.

On public copies the two partition files bear each other's names, so a name proves nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from n3ic.data.files import Content


@dataclass(frozen=True)
class OfficialFile:
    """A published partition file.

    Attributes:
        partition: ``train`` or ``test``.
        rows: number of flows.
        size: size of the decompressed file in bytes.
        md5: MD5 of the decompressed bytes, as published.
        categories: number of flows of each category.
        sha256: SHA-256 of the decompressed bytes; empty if unknown.
    """

    partition: str
    rows: int
    size: int
    md5: str
    categories: Mapping[str, int]
    sha256: str = ""

    def matches(self, content: Content) -> bool:
        """Whether these are the published bytes."""
        if len(content.data) != self.size:
            return False
        return content.sha256 == self.sha256 if self.sha256 else content.md5 == self.md5


PARTITIONS = (
    OfficialFile(
        "train",
        175_341,
        32_293_018,
        "e55caabaa6cd4a8f1c06a227bcfababc",
        {
            "Normal": 56_000,
            "Generic": 40_000,
            "Exploits": 33_393,
            "Fuzzers": 18_184,
            "DoS": 12_264,
            "Reconnaissance": 10_491,
            "Analysis": 2_000,
            "Backdoor": 1_746,
            "Shellcode": 1_133,
            "Worms": 130,
        },
    ),
    OfficialFile(
        "test",
        82_332,
        15_380_800,
        "e0beea40262e46168cdb81476dbc27b4",
        {
            "Normal": 37_000,
            "Generic": 18_871,
            "Exploits": 11_132,
            "Fuzzers": 6_062,
            "DoS": 4_089,
            "Reconnaissance": 3_496,
            "Analysis": 677,
            "Backdoor": 583,
            "Shellcode": 378,
            "Worms": 44,
        },
        "734fe6642edf758f7c94d7d9149426b49d202fe8e7bf0bef47392489c3c0a559",
    ),
)

RAW_ROWS = (700_001, 440_044)
"""Rows of the published raw files: the first of ``UNSW-NB15_1`` to ``_3``, the last of ``_4``."""

NOT_FLOWS = {
    ("no.", "name"): "the list of columns, no flows",
    ("attack category", "attack subcategory"): "the counts of events, no flows",
    ("start time", "last time"): "the ground truth of attacks, no flows",
}
"""First two header cells, in lower case, of the tables that are published beside the flows."""


def identify(
    content: Content, layout: str, rows: int, categories: Mapping[str, int]
) -> tuple[str, str]:
    """Identify a file.

    Args:
        content: the file.
        layout: ``partition`` or ``raw``.
        rows: number of flows in the file.
        categories: number of flows of each category.

    Returns:
        A description of the file, and its partition: ``train``, ``test`` or an empty string.
    """
    for known in PARTITIONS:
        if rows != known.rows:
            continue
        if known.matches(content):
            return f"official {known.partition} partition, byte for byte", known.partition
        if dict(categories) == dict(known.categories):
            return (
                f"official {known.partition} partition by its rows and the rows of each "
                "category, in other bytes than published",
                known.partition,
            )
        return (
            f"as many rows as the official {known.partition} partition, but other categories: "
            "not that file",
            "",
        )
    if layout == "raw":
        like = "; as many rows as a published raw file" if rows in RAW_ROWS else ""
        return f"raw layout, 49 columns{like}", ""
    return "partition layout, not a published file", ""
