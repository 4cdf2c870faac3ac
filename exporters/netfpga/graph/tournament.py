# SPDX-License-Identifier: Apache-2.0
"""The tournament of scores, whose matches are blocks ``n3ic_best.v``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

BLOCK = Path(__file__).resolve().parent / "rtl" / "n3ic_best.v"


def pair_scores(count: int, score_w: int, class_w: int) -> tuple[list[dict[str, Any]], str]:
    """Pair scores in a tournament, neighbours first; return the matches and the last name."""
    nothing = f"{score_w}'d0"
    groups = [
        {"best": f"key{c}", "second": nothing, "class": f"{class_w}'d{c}"} for c in range(count)
    ]
    nobody = {"best": nothing, "second": nothing, "class": f"{class_w}'d0"}
    matches: list[dict[str, Any]] = []
    while len(groups) > 1:
        groups += [nobody] * (len(groups) % 2)
        names = [f"match{len(matches) + k}" for k in range(len(groups) // 2)]
        matches += [
            {"name": name, "a": a, "b": b}
            for name, a, b in zip(names, groups[::2], groups[1::2], strict=True)
        ]
        groups = [
            {"best": f"{name}_best", "second": f"{name}_second", "class": f"{name}_class"}
            for name in names
        ]
    return matches, matches[-1]["name"]
