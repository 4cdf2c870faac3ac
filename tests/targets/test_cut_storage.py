# SPDX-License-Identifier: Apache-2.0
"""Each target that stores cuts says in its report how many bytes they take there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from n3ic.model.family import family
from n3ic.model.inputs import Field, InputSpec
from n3ic.model.random_models import random_model
from n3ic.targets.directory import export

SPEC = InputSpec(
    (
        Field.thermometer("a", [1, 9, 200]),
        Field.thermometer("b", [7, 300]),
        Field.thermometer("c", [5, 70_000]),
        Field.thermometer("a", [9]),  # a copy
    )
)
NARROW = (1 + 3 * 1) + (1 + 2 * 2) + (1 + 2 * 4) + 1
COPIED = replace(random_model((8, 5, 2), np.random.default_rng(1)), input=SPEC)


@pytest.mark.parametrize(
    ("target", "options", "name", "size"),
    [
        ("host", {"style": "plain"}, "memory.cuts", NARROW),
        ("host", {}, "memory.cuts", 8 * 4),
        ("nfp", {}, "memory.cuts", 8 * 4),
        ("onnx", {"input": "features"}, "memory.cuts", 8 * 8),
        ("onnx", {"input": "bits"}, "memory.cuts", None),
    ],
)
def test_a_report_says_what_the_cuts_take_there(
    tmp_path: Path, target: str, options: dict[str, str], name: str, size: int | None
) -> None:
    assert COPIED.input_bytes == NARROW
    exported = export(COPIED, target, tmp_path / "e", options=options, verify=False, simplify=False)
    sizes = {f.name: f.value for f in exported.report.figures}
    assert sizes.get(name) == size


@pytest.mark.parametrize("name", ["look-up-tables", "decision-trees", "sum-product-network"])
def test_the_plain_c_of_every_family_stores_what_is_counted(tmp_path: Path, name: str) -> None:
    model = family(name).random(np.random.default_rng(2))
    options = {"style": "plain"}
    exported = export(model, "host", tmp_path / "e", options=options, verify=False, simplify=False)
    sizes = {f.name: f.value for f in exported.report.figures}
    assert all(f.cuts for f in model.input.fields)
    assert sizes["memory.cuts"] == model.input_bytes
