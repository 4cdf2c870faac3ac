"""The parts of the data cards that are made from the catalogue, so that they cannot drift."""

from __future__ import annotations

from n3ic.data.table import Feature
from n3ic.datasets.unsw_nb15.behaviours import BEHAVIOURS
from n3ic.datasets.unsw_nb15.catalogue import COLUMNS, DERIVED
from n3ic.datasets.unsw_nb15.official import PARTITIONS


def fill(card: str) -> str:
    """A card with its ``{{...}}`` marks replaced by tables."""
    for mark, table in (
        ("{{columns}}", _features(list(COLUMNS))),
        ("{{derived}}", _features([d.feature for d in DERIVED])),
        ("{{files}}", _files()),
        ("{{behaviours}}", _behaviours()),
    ):
        card = card.replace(mark, table)
    return card


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(c.replace("|", "\\|") for c in row) + " |" for row in lines)


def _features(features: list[Feature]) -> str:
    def unit(f: Feature) -> str:
        if f.scale == 1:
            return f.unit
        return f"{f.unit} ({f.source_unit} x {f.scale:,.10g})"

    return _table(
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
        _table(
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
        + _table(
            ["category", *(f"{p.partition} partition" for p in PARTITIONS)],
            [
                [name, *(f"{p.categories[name]:,}" for p in PARTITIONS)]
                for name in PARTITIONS[0].categories
            ],
        )
    )


def _behaviours() -> str:
    whole = sum(b.share for b in BEHAVIOURS)
    return _table(
        ["behaviour", "category", "share", "protocol", "service"],
        [[b.name, b.category, f"{b.share / whole:.1%}", b.proto, b.service] for b in BEHAVIOURS],
    )
