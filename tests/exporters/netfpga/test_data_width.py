# SPDX-License-Identifier: Apache-2.0
"""Beats of 256 and 512 bits: inputs and results across beats, and what has no such width."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from n3ic.errors import UsageError, VerifyError
from n3ic.exporters.netfpga.exporter import EXPORTER
from n3ic.exporters.netfpga.graph.bit_tables.exporter import EXPORTER as TABLES_EXPORTER
from n3ic.exporters.netfpga.graph.exporter import EXPORTER as GRAPH_EXPORTER
from n3ic.exporters.netfpga.packet import nic_simulation, wrapper
from n3ic.exporters.netfpga.packet.nic_simulation import LEAST_ASKS, check_card
from n3ic.exporters.netfpga.packet.wrapper import PacketFormat, data_width, packet_format
from n3ic.families.tables.random_models import random_tables
from n3ic.families.trees.random_models import random_trees
from n3ic.model.classifier import Classifier
from n3ic.model.random_models import random_model
from n3ic.options import Options, OptionValue
from n3ic.targets.base import Exporter

needs_icarus = pytest.mark.skipif(shutil.which("iverilog") is None, reason="needs iverilog")
UNROLLED: dict[str, OptionValue] = {"style": "unrolled"}
MODEL = random_model((40, 6, 4, 3), np.random.default_rng(2), extremes=False).with_shunt(2)


def options_of(width: int | str, **given: OptionValue) -> Options:
    names = {name.replace("_", "-"): value for name, value in given.items()}
    return EXPORTER.parse_options({**UNROLLED, "data-width": str(width), **names})


def card_of(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    width: int,
    places: tuple[int, int],
    match: str = "ethertype",
    change: tuple[str, str] = ("", ""),
) -> None:
    """Run a card whose input and result begin at any two bytes, with a changed n3ic_axis."""
    offset, result_at = places
    options = options_of(width, match=match)

    def placed(model: Classifier, given: Options) -> PacketFormat:
        return replace(packet_format(model, given), offset=offset, result_at=result_at)

    for module in (wrapper, nic_simulation):
        monkeypatch.setattr(module, "packet_format", placed)
    EXPORTER.write(MODEL, options, folder)
    file = folder / "rtl" / "n3ic_axis.v"
    assert change[0] in file.read_text()
    file.write_text(file.read_text().replace(*change))
    assert check_card(folder, MODEL, options, None, "icarus", LEAST_ASKS).asked == LEAST_ASKS


@needs_icarus
@pytest.mark.parametrize(
    ("width", "places"), [(256, (61, 27)), (512, (61, 16)), (512, (124, 57))], ids=str
)
def test_what_is_read_and_written_may_lie_in_two_beats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: int, places: tuple[int, int]
) -> None:
    card_of(tmp_path, monkeypatch, width, places)


@pytest.mark.slow
@needs_icarus
@pytest.mark.parametrize("input_first", [True, False])
@pytest.mark.parametrize("match", ["ethertype", "udp"])
@pytest.mark.parametrize("width", [256, 512])
def test_every_place_about_the_ends_of_a_beat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: int, match: str, input_first: bool
) -> None:
    """Results that begin 10 to 0 bytes before byte 64, inputs of five bytes before or about 128."""
    for step in range(11):
        at = (49 if input_first else 123) - step % 6 + (0 if input_first else 5)
        (tmp_path / str(step)).mkdir()
        card_of(tmp_path / str(step), monkeypatch, width, (at, 54 + step), match)


@pytest.mark.slow
@needs_icarus
@pytest.mark.parametrize(
    "change",
    [
        ("(RESULT_AT + k) / BEAT", "RESULT_AT / BEAT"),
        ("== 40 / BEAT", "== 1"),
        ("head[DATA_W*b +: DATA_W]", "head[256*b +: 256]"),
        ("(NEED-1)%BEAT", "(NEED-1)%32"),
    ],
    ids=str,
)
def test_a_changed_packet_path_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: tuple[str, str]
) -> None:
    with pytest.raises(VerifyError, match="the card: packet"):
        card_of(tmp_path, monkeypatch, 512, (157, 57), "udp", change)


@pytest.mark.parametrize(
    ("given", "refused"),
    [
        ({"data-width": "64"}, "the packet path has beats of 256 or 512 bits"),
        ({"data-width": "256", "shell": "opennic"}, "--shell opennic has beats of 512 bits"),
        ({"data-width": "256", "shell": "corundum"}, "--shell corundum has beats of 512 bits"),
        ({"data-width": "256", "front-end": "tcp"}, "--front-end tcp has beats of 64 or 512 bits"),
        ({"data-width": "128"}, "not one of auto, 64, 256, 512"),
    ],
    ids=str,
)
def test_a_width_that_there_is_not_is_refused(
    tmp_path: Path, given: dict[str, str], refused: str
) -> None:
    with pytest.raises(UsageError, match=refused):
        EXPORTER.write(MODEL, EXPORTER.parse_options(given), tmp_path)


def test_each_place_has_its_own_width() -> None:
    for given, width in (
        ({}, 256), ({"shell": "opennic"}, 512), ({"shell": "corundum"}, 512),
        ({"front-end": "udp"}, 512), ({"front-end": "udp", "data-width": "64"}, 64),
        ({"data-width": "512"}, 512), ({"shell": "opennic", "data-width": "512"}, 512),
    ):  # fmt: skip
        assert data_width(EXPORTER.parse_options(given)) == width


@pytest.mark.parametrize("width", [256, 512])
@pytest.mark.parametrize("family", ["binary", "tables", "trees"])
def test_a_damaged_width_is_refused(tmp_path: Path, width: int, family: str) -> None:
    tool: Exporter[Any] = EXPORTER
    model: Classifier = MODEL
    if family == "trees":
        tool, model = GRAPH_EXPORTER, random_trees(np.random.default_rng(2), trees=3, depth=2)
    elif family == "tables":
        tool, model = TABLES_EXPORTER, random_tables(np.random.default_rng(2), tables=4)
    options = tool.parse_options({"data-width": str(width)})
    tool.write(model, options, tmp_path)
    tool.decode(tmp_path, model, options)
    other = 768 - width
    with pytest.raises(VerifyError, match=rf"rtl/n3ic_top\.v: .* not of {other} bits"):
        tool.decode(tmp_path, model, {**options, "data-width": str(other)})
    for name in ("n3ic_top.v", "n3ic_axil_top.v"):
        file = tmp_path / "rtl" / name
        text = file.read_text()
        marks = [f"[{width - 1}:0] s_axis_tdata", f"[{width - 1}:0] m_axis_tdata"]
        marks += ["s_axis_tkeep,\n", "m_axis_tkeep,\n"]
        if name == "n3ic_top.v":
            marks.append(f".DATA_W({width})")
        for mark in marks:
            assert text.count(mark) == 1
            damaged = mark.replace(str(width), str(other)).replace(str(width - 1), str(other - 1))
            damaged = damaged.replace("keep,", "kept,")
            file.write_text(text.replace(mark, damaged))
            with pytest.raises(VerifyError, match=rf"{name}: the streams are not of {width} bits"):
                tool.decode(tmp_path, model, options)
        file.write_text(text)


@pytest.mark.parametrize(
    ("clocks", "width", "match", "wide"),
    [
        (60, 512, "udp", 6), (61, 512, "udp", 7), (200, 512, "udp", 8),
        (200, 256, "udp", 6), (200, 256, "ethertype", 8),
    ],
)  # fmt: skip
def test_all_inferences_of_a_deep_core_have_room(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    clocks: int,
    width: int,
    match: str,
    wide: int,
) -> None:
    """Where requests of one beat come: of 59 bytes over UDP, of 31 by EtherType."""
    monkeypatch.setattr(wrapper, "pipeline_clocks", lambda *_: clocks)
    EXPORTER.write(MODEL, options_of(width, match=match), tmp_path)
    text = (tmp_path / "rtl" / "n3ic_top.v").read_text()
    assert (f".RESULTS_W({wide})" in text) == ("RESULTS_W" in text) == (wide > 6)
