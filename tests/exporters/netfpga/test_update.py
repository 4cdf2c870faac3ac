# SPDX-License-Identifier: Apache-2.0
"""``update.hex``: what it carries, and that it is refused where it does not belong."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from n3ic.errors import ExportError, UsageError
from n3ic.exporters.netfpga.core import CorePorts
from n3ic.exporters.netfpga.exporter import EXPORTER
from n3ic.exporters.netfpga.sequential import layout as sequential_layout
from n3ic.exporters.netfpga.sequential import memory_contents as sequential_memory
from n3ic.exporters.netfpga.sequential.update import read_update
from n3ic.model.layers import OutputLayer
from n3ic.model.network import BinaryModel
from n3ic.model.random_models import random_model

SHAPE = (40, 8, 4, 3)


def made(folder: Path, model: BinaryModel, **options: str) -> Path:
    folder.mkdir()
    given = {name.replace("_", "-"): value for name, value in options.items()}
    EXPORTER.write(model, EXPORTER.parse_options(given), folder)
    return folder


def model(seed: int = 1, *, density: float | None = None, bias: int | None = None) -> BinaryModel:
    base = random_model(SHAPE, np.random.default_rng(seed), density=density)
    if bias is None:
        return base
    biases = np.array([bias, -bias, 0], dtype=np.int32)
    return replace(base, output=OutputLayer(base.output.weights, bias=biases))


def test_a_core_does_not_depend_on_the_biases(tmp_path: Path) -> None:
    a = made(tmp_path / "a", model(1, bias=0))
    b = made(tmp_path / "b", model(2, bias=2000))
    assert CorePorts.load(a) == CorePorts.load(b)
    for file in (a / "rtl").glob("*.v"):
        texts = [(folder / "rtl" / file.name).read_text() for folder in (a, b)]
        for i, which in enumerate((model(1, bias=0), model(2, bias=2000))):
            texts[i] = texts[i].replace(which.digest, "DIGEST").replace(which.digest[:8], "MODEL")
        assert texts[0] == texts[1], file.name
    update = read_update(b / "mem" / "update.hex", CorePorts.load(a))
    assert update.model == model(2, bias=2000).digest
    assert update.writes[-1][1] == int(update.model[:8], 16)


def test_biases_that_the_scores_do_not_hold_are_refused(tmp_path: Path) -> None:
    wide = model(1, bias=2048)
    fit = EXPORTER.check(wide, EXPORTER.parse_options({}))
    assert "--score-bits 13" in str(fit.problems[0])
    with pytest.raises(ExportError, match="need scores of 13 bits"):
        made(tmp_path / "a", wide)
    assert EXPORTER.check(wide, EXPORTER.parse_options({"score-bits": "13"})).ok


def test_mask_memory_by_option(tmp_path: Path) -> None:
    plain = made(tmp_path / "plain", model(1))
    ready = made(tmp_path / "ready", model(1), masks="all")
    masked = made(tmp_path / "masked", model(2, density=0.5))
    update = masked / "mem" / "update.hex"
    assert read_update(update, CorePorts.load(ready)).model == model(2, density=0.5).digest
    with pytest.raises(UsageError, match=r"masks=1,1,1.*masks=0,0,0.*--masks all"):
        read_update(update, CorePorts.load(plain))


@pytest.mark.parametrize(
    ("other", "options"),
    [
        (random_model((40, 8, 5, 3), np.random.default_rng(1)), {}),
        (model(), {"score_bits": "20"}),
        (model(), {"packing": "full"}),
        (model(), {"row_bits": "64"}),
    ],
    ids=["shape", "width", "packing", "rows"],
)
def test_an_update_for_another_core_is_refused(
    tmp_path: Path, other: BinaryModel, options: dict[str, str]
) -> None:
    core = CorePorts.load(made(tmp_path / "a", model()))
    file = made(tmp_path / "b", other, **options) / "mem" / "update.hex"
    with pytest.raises(UsageError, match="made for the executor"):
        read_update(file, core)


def test_a_damaged_update_is_refused(tmp_path: Path) -> None:
    folder = made(tmp_path / "a", model())
    core, file = CorePorts.load(folder), folder / "mem" / "update.hex"
    whole = file.read_bytes()
    rng = np.random.default_rng(0)
    for at in rng.integers(0, len(whole), 150).tolist():
        damaged = bytearray(whole)
        damaged[at] ^= 1 << int(rng.integers(0, 8))
        file.write_bytes(bytes(damaged))
        with pytest.raises(UsageError):
            read_update(file, core)
    for text in (b"", whole[: len(whole) // 2], whole + b"000 00000000\n", b"\xff" * 40):
        file.write_bytes(text)
        with pytest.raises(UsageError, match=r"not an update|damaged"):
            read_update(file, core)
    with pytest.raises(UsageError, match="not an update"):
        read_update(tmp_path / "none", core)


def test_the_old_form_without_a_head_is_refused(tmp_path: Path) -> None:
    folder = made(tmp_path / "a", model())
    file = folder / "mem" / "update.hex"
    file.write_text("".join(line for line in file.open() if not line.startswith("#")))
    with pytest.raises(UsageError, match="not an update of format 2"):
        read_update(file, CorePorts.load(folder))


def test_the_id_is_cleared_first_and_written_last() -> None:
    layout = sequential_layout.plan(model(), packing="balanced", modules=1, tables=False)
    first, *_, last = sequential_memory.writes(model(), layout)
    begin, end = (layout.address_map.address(0, 3, row, 0) for row in (1, 0))
    assert (first, last) == ((begin, 0), (end, int(model().digest[:8], 16)))


def test_an_update_that_does_not_clear_the_id_is_refused(tmp_path: Path) -> None:
    """Version 1 had no such line: the card would ignore its words."""
    folder = made(tmp_path / "a", model())
    file = folder / "mem" / "update.hex"
    file.write_text(file.read_text().replace("# n3ic-update 2", "# n3ic-update 1"))
    with pytest.raises(UsageError, match="not an update of format 2"):
        read_update(file, CorePorts.load(folder))
