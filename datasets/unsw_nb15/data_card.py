# SPDX-License-Identifier: Apache-2.0
"""Fills data cards with tables made from the catalogue, so that the two cannot drift apart."""

from __future__ import annotations

from n3ic.data.catalogue import feature_table
from n3ic.datasets.unsw_nb15.behaviours import BEHAVIOURS
from n3ic.datasets.unsw_nb15.catalogue import COLUMNS, DERIVED, WINDOWS
from n3ic.datasets.unsw_nb15.official import PARTITIONS
from n3ic.util.markdown import percent, table


def fill(card: str) -> str:
    """Replace the ``{{...}}`` marks of a card by tables."""
    for mark, text in (
        ("{{columns}}", feature_table(COLUMNS)),
        ("{{derived}}", feature_table([*(d.feature for d in DERIVED), *WINDOWS])),
        ("{{files}}", _files()),
        ("{{behaviours}}", _behaviours()),
    ):
        card = card.replace(mark, text)
    return card


def _lines(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join(table(head, rows, "l"))


def _files() -> str:
    return (
        _lines(
            ["file", "rows", "bytes", "MD5, as published", "SHA-256"],
            [
                [
                    f"{p.partition} partition",
                    f"{p.rows:,}",
                    f"{p.size:,}",
                    f"`{p.md5}`",
                    f"`{p.sha256}`" if p.sha256 else "not known here",
                ]
                for p in PARTITIONS
            ],
        )
        + "\n\n"
        + _lines(
            ["category", *(f"{p.partition} partition" for p in PARTITIONS)],
            [
                [name, *(f"{p.categories[name]:,}" for p in PARTITIONS)]
                for name in PARTITIONS[0].categories
            ],
        )
    )


def _behaviours() -> str:
    whole = sum(b.share for b in BEHAVIOURS)
    return _lines(
        ["behaviour", "category", "share", "protocol", "service"],
        [[b.name, b.category, percent(b.share / whole), b.proto, b.service] for b in BEHAVIOURS],
    )
