"""The parts of the data cards that are made from the catalogue, so that they cannot drift."""

from __future__ import annotations

from n3ic.data.table import Feature
from n3ic.datasets.unsw_nb15.behaviours import BEHAVIOURS
from n3ic.datasets.unsw_nb15.catalogue import COLUMNS, DERIVED
from n3ic.datasets.unsw_nb15.official import PARTITIONS
from n3ic.util.markdown import percent, table


def fill(card: str) -> str:
    """A card with its ``{{...}}`` marks replaced by tables."""
    for mark, text in (
        ("{{columns}}", _features(list(COLUMNS))),
        ("{{derived}}", _features([d.feature for d in DERIVED])),
        ("{{files}}", _files()),
        ("{{behaviours}}", _behaviours()),
    ):
        card = card.replace(mark, text)
    return card


def _lines(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join(table(head, rows, "l"))


def _features(features: list[Feature]) -> str:
    def unit(f: Feature) -> str:
        if f.scale == 1:
            return f.unit
        return f"{f.unit} ({f.source_unit} x {f.scale:,.10g})"

    return _lines(
        ["column", "meaning", "integer unit", "bits", "a NIC can", "leaks the set-up"],
        [
            [
                f"`{f.name}`",
                f.meaning,
                unit(f),
                str(f.bits),
                f"{'yes' if f.nic else 'no'}: {f.nic_reason}",
                f"yes: {f.leak_reason}" if f.leaks else "no",
            ]
            for f in features
        ],
    )


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
