# SPDX-License-Identifier: Apache-2.0
"""The whole card in traffic: packets of all kinds, back-pressure, both banks, swaps."""

import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from n3ic.errors import VerifyError
from n3ic.exporters.netfpga.exporter import EXPORTER
from n3ic.exporters.netfpga.packet import nic_simulation as card_traffic
from n3ic.exporters.netfpga.packet.nic_simulation import (
    LEAST_ASKS,
    Another,
    CardTrafficCounts,
    check_card,
)
from n3ic.exporters.netfpga.packet.traffic import Frame, is_request, traffic
from n3ic.exporters.netfpga.packet.wrapper import packet_format
from n3ic.exporters.netfpga.sequential.layout import plan_with
from n3ic.exporters.netfpga.sequential.memory_contents import another
from n3ic.model.inputs import Field, InputSpec
from n3ic.model.network import BinaryModel
from n3ic.model.random_models import random_model
from n3ic.options import Options

needs_icarus = pytest.mark.skipif(shutil.which("iverilog") is None, reason="needs iverilog")
needs_verilator = pytest.mark.skipif(shutil.which("verilator") is None, reason="needs verilator")

SPEC = InputSpec(
    (
        Field.thermometer("bytes", (1, 7, 30, 33, 2**31, 2**32 - 1)),
        Field.binary("packets", 16),
        Field("rate", "binary", 8, 200),
        Field.thermometer("packets", (2, 5, 60)),
        Field.binary("gap", 7),
    )
)
CASES = [
    {},
    {"input-stage": "features", "match": "udp", "result": "both", "modules": "3"},
    {"input": "side", "result": "tuser", "packing": "full", "masks": "all"},
    {"style": "unrolled", "input": "side", "input-stage": "features", "result": "both"},
    {"style": "unrolled", "outputs": "class", "pipeline": "3", "match": "udp", "offset": "80"},
    {"data-width": "512", "style": "unrolled", "match": "udp", "result": "both"},
    {"data-width": "512", "input-stage": "features", "shunt-port": "4", "shunting": "all"},
    {"data-width": "512", "input": "side", "result": "tuser", "modules": "3"},
]


def model(shape: tuple[int, ...] = (40, 8, 4, 3), *, features: bool = False) -> BinaryModel:
    base = random_model(shape, np.random.default_rng(1), extremes=False)
    spec = SPEC if features else base.input
    return BinaryModel(spec, base.hidden, base.output, base.classes)


def other(network: BinaryModel, options: Options) -> Another | None:
    """What makes another network for a sequential core."""
    sequential = options["style"] == "sequential"
    return partial(another, network, plan_with(network, options)) if sequential else None


def card(
    folder: Path, given: dict[str, str], old: str = "", new: str = "", **more: str
) -> CardTrafficCounts:
    """Export, replace a text in one file of ``rtl``, and run the card."""
    # A slow network where the card is to be held up.
    shape = (200, 24, 4, 3) if old else (40, 8, 4, 3)
    network = model(shape, features=given.get("input-stage") == "features")
    options = EXPORTER.parse_options(given)
    EXPORTER.write(network, options, folder)
    if old:
        (file,) = (f for f in folder.glob("rtl/*") if old in f.read_text())
        file.write_text(file.read_text().replace(old, new, 1))
    simulator = more.get("simulator", "icarus")
    return check_card(folder, network, options, other(network, options), simulator, LEAST_ASKS)


@pytest.mark.first_case
@needs_icarus
@pytest.mark.parametrize("given", CASES, ids=str)
def test_a_card_with_any_options_does_what_it_should(tmp_path: Path, given: dict[str, str]) -> None:
    seen = card(tmp_path, given)
    assert seen.asked == LEAST_ASKS
    assert seen.packets > seen.asked
    assert seen.swaps == (0 if given.get("style") == "unrolled" else 3)


@needs_verilator
@pytest.mark.slow
def test_verilator_says_the_same(tmp_path: Path) -> None:
    assert "Verilator" in card(tmp_path, CASES[1], simulator="verilator").simulator


@pytest.mark.slow
@needs_icarus
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("assign out_model = models[out_bank];", "assign out_model = models[0];"),
        ("== 2'd3) models[write_bank] <=", "== 2'd3) models[!write_bank] <="),
        ("wire swap   = wr_swap && !wr_busy", "wire swap   = wr_swap"),
        ("write_bank <= !bank;", "write_bank <= bank;"),
        ("asked_bank <= bank;", "asked_bank <= !bank;"),
        ("frame[8*13 +: 8]} == VALUE", "frame[8*13 +: 8]} != VALUE"),
        ("s_axis_tkeep[(NEED-1)%BEAT] && match", "match"),
        ("(desc_match && TO_PACKET != 0)", "(TO_PACKET != 0)"),
        ("out_valid <= read || (out_valid && !out_ready);", "out_valid <= read;"),
        ("in_valid && !full) begin", "in_valid) begin"),
        ("&& !ask_level[ASKS_W] && ask_level[ASKS_W-1:2] != {(ASKS_W - 2) {1'b1}}", ""),
        ("result_model, {(16 - CLASS_W)", "MODEL, {(16 - CLASS_W)"),
        ("m_axis_tkeep <= beat_keep;", "m_axis_tkeep <= 32'hffffffff;"),
        ("assign bits       = ask_data;", "assign bits       = ~ask_data;"),
    ],
)
def test_a_changed_card_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str
) -> None:
    monkeypatch.setattr(card_traffic, "IDLE", 20_000)  # an answer takes some hundred clocks
    with pytest.raises(VerifyError, match="the card"):
        card(tmp_path, {}, old, new)


@needs_icarus
def test_the_second_bank_is_run_as_it_was_initialised(tmp_path: Path) -> None:
    network, options = model(), EXPORTER.parse_options({})
    EXPORTER.write(network, options, tmp_path)
    file = tmp_path / "mem" / "layer0_weights.mem"
    rows = file.read_text().split()
    half = len(rows) // 2
    flipped = [f"{int(r, 16) ^ (1 << 4 * len(r)) - 1:0{len(r)}x}" for r in rows[half:]]
    file.write_text("\n".join([*rows[:half], *flipped]) + "\n")
    with pytest.raises(VerifyError, match=r"the card: packet \d+.*expected model"):
        check_card(tmp_path, network, options, other(network, options), "icarus", LEAST_ASKS)


@pytest.mark.parametrize("given", CASES, ids=str)
def test_traffic_has_what_asks_and_what_only_looks_like_it(given: dict[str, str]) -> None:
    network = model(features=given.get("input-stage") == "features")
    form = packet_format(network, EXPORTER.parse_options(given))
    inputs = [bytes(form.input_bytes)] * 48
    frames = list(traffic(form, inputs, np.random.default_rng(1)))
    assert sum(is_request(frame, form) for frame in frames) == len(inputs)
    others = [frame for frame in frames if not is_request(frame, form)]
    assert any(frame.hole >= 0 for frame in others)
    assert any(len(frame.data) == form.need - 1 for frame in others)
    assert {len(f.data) - form.need for f in frames if is_request(f, form)} >= {0, 1, 31, 32, 33}
    asking = next(f for f in frames if is_request(f, form))
    assert not is_request(Frame(asking.data[: form.need - 1]), form)
