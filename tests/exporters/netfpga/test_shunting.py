# SPDX-License-Identifier: Apache-2.0
"""Class or shunt: margins around the threshold, what is read back, registers and packets."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from n3ic.errors import (
    ExportError,
    MissingDependencyError,
    N3icWarning,
    UsageError,
    VerifyError,
)
from n3ic.exporters.netfpga.core import CorePorts
from n3ic.exporters.netfpga.exporter import EXPORTER
from n3ic.exporters.netfpga.packet.nic_simulation import LEAST_ASKS, CardTrafficCounts, check_card
from n3ic.exporters.netfpga.sequential import layout as sequential_layout
from n3ic.exporters.netfpga.sequential import memory_contents as sequential_memory
from n3ic.exporters.netfpga.sequential.layout import plan_with
from n3ic.exporters.netfpga.sequential.update import read_update
from n3ic.exporters.netfpga.tools import simulate, synth
from n3ic.exporters.netfpga.unrolled import design as unrolled_design
from n3ic.exporters.netfpga.unrolled import write as unrolled_write
from n3ic.exporters.netfpga.unrolled.decode import decode_core
from n3ic.model.difference import first_difference
from n3ic.model.network import SHUNT, BinaryModel
from n3ic.model.passes import simplify
from n3ic.model.random_models import random_model
from n3ic.options import Options
from n3ic.targets.decoding import decoding_difference
from n3ic.targets.directory import export
from n3ic.targets.verification import verify_directory
from tests.support.synthesised import run_netlist

needs_icarus = pytest.mark.skipif(shutil.which("iverilog") is None, reason="needs iverilog")
needs_verilator = pytest.mark.skipif(shutil.which("verilator") is None, reason="needs verilator")

STYLES = [
    {},
    {"modules": "3"},
    {"style": "unrolled"},
    {"style": "unrolled", "outputs": "class", "pipeline": "2"},
]
styles = pytest.mark.parametrize("given", STYLES, ids=str)


def written(folder: Path, model: BinaryModel, given: dict[str, str]) -> Options:
    options = EXPORTER.parse_options(given)
    folder.mkdir(exist_ok=True)
    EXPORTER.write(model, options, folder)
    return options


def complaint(folder: Path, model: BinaryModel, options: Options) -> str:
    """What decoding finds; empty where the artefacts hold the model."""
    try:
        decoded = EXPORTER.decode(folder, model, options)
    except VerifyError as error:
        return str(error)
    assert decoded, "the network is decidable"
    assert all(each.shunt is not None for each in decoded)
    return "; ".join(filter(None, (decoding_difference(model, each) for each in decoded)))


# --- the core --------------------------------------------------------------------------------


@pytest.mark.first_case
@needs_icarus
@styles
@pytest.mark.parametrize("classes", [2, 3, pytest.param(5, marks=pytest.mark.slow)])
def test_margins_around_the_threshold(tmp_path, at_the_threshold, given, classes):
    model, words = at_the_threshold(classes)
    written(tmp_path, model, given)
    seen = simulate.run_core(tmp_path, model, words, "icarus").inference
    assert first_difference(model, seen, words) is None
    shunted = seen.margins < model.shunt
    assert 0 < shunted.sum() < len(words)
    np.testing.assert_array_equal(seen.verdicts, np.where(shunted, SHUNT, seen.classes))


@pytest.mark.slow
@needs_verilator
def test_verilator_says_the_same(tmp_path, at_the_threshold):
    model, words = at_the_threshold(3)
    written(tmp_path, model, {})
    seen = simulate.run_core(tmp_path, model, words, "verilator")
    assert first_difference(model, seen.inference, words) is None


@pytest.mark.first_case
@needs_icarus
@styles
def test_a_core_of_another_threshold_is_found(tmp_path, at_the_threshold, given):
    model, words = at_the_threshold(3)
    written(tmp_path, model.with_shunt(3), given)
    seen = simulate.run_core(tmp_path, model, words, "icarus")
    difference = str(first_difference(model, seen.inference, words))
    assert "margin 2, shunting threshold 2: verdict" in difference
    assert difference.endswith("expected, got shunt")


@pytest.mark.slow
@needs_icarus
@pytest.mark.parametrize(
    "given", [STYLES[0], pytest.param(STYLES[3], marks=pytest.mark.slow)], ids=str
)
def test_an_export_is_verified_and_a_changed_threshold_is_refused(
    tmp_path, at_the_threshold, given
):
    model, _ = at_the_threshold(2)
    done = export(model, "netfpga", tmp_path / "out", options=given, simplify=False)
    verification = done.verification
    assert verification.ok and verification.at_shunt and verification.below_shunt, str(verification)
    other = tmp_path / "other"
    written(other, model.with_shunt(4), given)
    for file in ("rtl/n3ic_core.v", "rtl/n3ic_cells.v", "mem/shunting.mem"):
        if (other / file).exists():
            (done.path / file).write_bytes((other / file).read_bytes())
    with pytest.warns(N3icWarning, match="your rights"):
        result = verify_directory(done.path, vectors=100, run_changed=True, record=False)
    assert any("verdict" in failure for failure in result.failures), result.failures
    assert any(re.search("shunts margins below [34]", f) for f in result.failures)


@pytest.mark.first_case
@needs_icarus
@needs_verilator
@styles
def test_verilog_has_no_warning(tmp_path, at_the_threshold, given):
    model, _ = at_the_threshold(3)
    written(tmp_path, model, {**given, "shunt-port": "2"})
    files = sorted(str(p) for p in (tmp_path / "rtl").glob("*.v"))
    for command in (
        ["verilator", "--lint-only", "-Wall", "--top-module", "n3ic_top", *files],
        ["verilator", "--lint-only", "-Wall", "-DN3IC_TRACE", "--top-module", "n3ic_top", *files],
        ["iverilog", "-Wall", "-g2005", "-s", "n3ic_top", "-o", str(tmp_path / "x"), *files],
    ):
        memory = tmp_path / "mem"
        done = subprocess.run(
            command,
            cwd=memory if memory.is_dir() else tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stdout + done.stderr) == (0, ""), command[:3]


def test_a_class_core_without_hidden_layers_shows_its_scores(tmp_path):
    if shutil.which("iverilog") is None:
        pytest.skip("needs iverilog")
    model = random_model((33, 2), np.random.default_rng(1))
    done = export(
        model, "netfpga", tmp_path / "out", options={"style": "unrolled", "outputs": "class"}
    )
    assert done.verification.ok, str(done.verification)


@pytest.mark.exhaustive
@needs_icarus
def test_the_netlist_gives_classes_and_verdicts(tmp_path, at_the_threshold):
    """Of classes alone; the scores of a netlist are in test_synth_yosys.py."""
    try:
        synth._tool(synth.YOSYS)
    except MissingDependencyError as error:
        pytest.skip(str(error))
    model, words = at_the_threshold(2)
    written(tmp_path, model, STYLES[-1])
    seen = run_netlist(tmp_path, model, words, "icarus")
    truth = model.infer(words)
    np.testing.assert_array_equal(seen.inference.classes, truth.classes)
    np.testing.assert_array_equal(seen.inference.verdicts == SHUNT, truth.margins < 2)
    assert seen.interval == 1


# --- what is read back -----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["shunting.mem", "shunting.coe", "update.hex"])
@pytest.mark.parametrize("bank", [0, 1])
def test_the_threshold_of_each_artefact_is_read_back(tmp_path, at_the_threshold, name, bank):
    model, _ = at_the_threshold(3)
    options = written(tmp_path, model, {})
    assert complaint(tmp_path, model, options) == ""
    written(tmp_path / "other", model.with_shunt(3), {})
    file = tmp_path / "mem" / name
    if name == "update.hex":
        file.write_bytes((tmp_path / "other" / "mem" / name).read_bytes())
    else:
        rows = re.findall(r"00000002", file.read_text())
        assert len(rows) == 2
        parts = file.read_text().split("00000002")
        banks = ["00000002", "00000002"]
        banks[bank] = "00000003"
        file.write_text(parts[0] + banks[0] + parts[1] + banks[1] + parts[2])
    assert "shunts margins below 3, the model below 2" in complaint(tmp_path, model, options)


def test_a_missing_or_second_threshold_of_an_update_is_found(tmp_path, at_the_threshold):
    model, _ = at_the_threshold(3)
    options = written(tmp_path, model, {})
    file = tmp_path / "mem" / "update.hex"
    head, body = file.read_text().split("\n")[:5], file.read_text().split("\n")[5:-1]
    threshold = next(line for line in body[-2:] if line.endswith(" 00000002"))
    assert body[-2] == threshold, "behind the weights, before the id"
    for changed, message in (
        ([*body[:-2], body[-1]], "a word of shunting is not written"),
        ([*body[:-1], *body[-2:]], "is written twice"),
    ):
        lines = [*head[:4], *changed]
        file.write_text("\n".join([*head[:4], _checksum(lines), *changed]) + "\n")
        assert message in complaint(tmp_path, model, options)


def _checksum(lines: list[str]) -> str:

    return (
        f"# sha256 {hashlib.sha256(''.join(f'{x}{chr(10)}' for x in lines).encode()).hexdigest()}"
    )


@pytest.mark.first_case
@pytest.mark.parametrize("outputs", unrolled_design.OUTPUTS)
@pytest.mark.parametrize(
    ("classes", "threshold"),
    [
        pytest.param(c, t, marks=[] if (c, t) in ((2, 1), (3, 2), (5, 3)) else pytest.mark.slow)
        for c in (2, 3, 5)
        for t in (1, 2, 3)
    ],
)
def test_every_threshold_is_read_back_from_the_logic(at_the_threshold, outputs, classes, threshold):
    model = simplify(at_the_threshold(classes)[0].with_shunt(threshold)).model
    texts = unrolled_write.generate(model, outputs=outputs)
    core, cells = texts[unrolled_write.FILE], texts[unrolled_write.CELLS]
    decoded = decode_core(core, cells, model)
    assert decoded is not None and decoded.shunt == threshold

    def core_complaint(wanted: BinaryModel, text: str) -> str:
        try:
            other = decode_core(text, cells, wanted)
        except VerifyError as error:
            return str(error)
        return "" if other is None else decoding_difference(wanted, other)

    for other in {threshold - 1, threshold + 1} - {0}:
        assert core_complaint(model.with_shunt(other), core), other
    inverted = core.replace("assign out_shunt = {", "assign out_shunt = {!").replace("{!!", "{")
    assert inverted != core and core_complaint(model, inverted)
    assert "has 2 bits" in core_complaint(
        model, core.replace("out_shunt = {", "out_shunt = {1'b0, ")
    )
    constant = re.sub(r"(assign out_shunt = \{).*?\}", r"\g<1>1'b0}", core)
    assert "shunts margins below" in core_complaint(model, constant)


def test_thresholds_that_no_margin_tells_apart_are_one():
    """Two classes of all connections: margins are even here, so 3 and 4 are the same logic."""
    model = simplify(
        random_model((20, 6, 2), np.random.default_rng(3), extremes=False).with_shunt(4)
    ).model
    margins = set(model.infer(np.arange(1 << 12, dtype=np.uint32)[:, None]).margins.tolist())
    assert margins <= {0, 2, 4, 6, 8, 10, 12}
    for outputs in unrolled_design.OUTPUTS:
        texts = unrolled_write.generate(model, outputs=outputs)
        for threshold in (3, 4):
            decoded = decode_core(
                texts[unrolled_write.FILE], texts[unrolled_write.CELLS], model.with_shunt(threshold)
            )
            assert decoded is not None
            assert outputs == "scores" or decoded.shunt == threshold


# --- the register ----------------------------------------------------------------------------


def test_thresholds_are_loaded_with_the_model(tmp_path, at_the_threshold):
    model, _ = at_the_threshold(3)
    first, second = tmp_path / "first", tmp_path / "second"
    written(first, model, {})
    written(second, model.with_shunt(5), {})
    update = read_update(second / "mem" / "update.hex", CorePorts.load(first))
    words = [word for _, word in update.writes]
    assert words[-2:] == [5, int(model.with_shunt(5).digest[:8], 16)]
    for file in sorted((first / "rtl").glob("*.v")):
        one, other = (
            (folder / "rtl" / file.name)
            .read_text()
            .replace(m.digest, "DIGEST")
            .replace(m.digest[:8], "MODEL")
            for folder, m in ((first, model), (second, model.with_shunt(5)))
        )
        assert one == other, "a core does not depend on the threshold"


def test_a_core_without_the_register_takes_no_threshold(tmp_path, at_the_threshold):
    shunting, _ = at_the_threshold(3)
    plain = shunting.with_shunt(0)
    folders = {name: tmp_path / name for name in ("plain", "ready", "shunting")}
    written(folders["plain"], plain, {})
    written(folders["ready"], plain, {"shunting": "all"})
    written(folders["shunting"], shunting, {})
    update = folders["shunting"] / "mem" / "update.hex"
    assert read_update(update, CorePorts.load(folders["ready"])).model == shunting.digest
    with pytest.raises(UsageError, match=r"made for the executor .* shunting, this one"):
        read_update(update, CorePorts.load(folders["plain"]))
    # Nor the other way: the threshold of the model before would stay.
    with pytest.raises(UsageError, match="made for the executor"):
        read_update(folders["plain"] / "mem" / "update.hex", CorePorts.load(folders["shunting"]))
    layout = sequential_layout.plan(plain, packing="balanced", modules=1, tables=False)
    with pytest.raises(ExportError, match="--shunting all"):
        sequential_memory.writes(shunting, layout)
    options = EXPORTER.parse_options({"shunting": "all"})
    assert complaint(folders["ready"], plain, options) == ""


def test_a_model_without_a_threshold_has_no_register(tmp_path, at_the_threshold):
    model, _ = at_the_threshold(3)
    for given in STYLES:
        folder = tmp_path / str(len(given))
        written(folder, model.with_shunt(0), given)
        texts = [p.read_text() for p in folder.rglob("*") if p.is_file()]
        assert not any("shunt" in text for text in texts)
    assert EXPORTER.check(model, EXPORTER.parse_options({})).ok


# --- packets ---------------------------------------------------------------------------------

CARDS = [
    {},
    {"shunt-port": "2"},
    {"shunt-port": "8", "result": "both", "match": "udp", "modules": "3"},
    {"style": "unrolled", "outputs": "class", "shunt-port": "2"},
    {"style": "unrolled", "result": "tuser", "input": "side"},
]


def card(
    folder: Path, model: BinaryModel, given: dict[str, str], old: str, new: str
) -> CardTrafficCounts:
    options = written(folder, model, given)
    if old:
        (file,) = (f for f in folder.glob("rtl/*") if old in f.read_text())
        file.write_text(file.read_text().replace(old, new, 1))
    sequential = options["style"] == "sequential"
    another = sequential_memory.another
    other = partial(another, model, plan_with(model, options)) if sequential else None
    return check_card(folder, model, options, other, "icarus", LEAST_ASKS)


@pytest.mark.first_case
@needs_icarus
@pytest.mark.parametrize("given", CARDS, ids=str)
def test_shunted_packets_say_so_and_go_to_their_port(tmp_path, at_the_threshold, given):
    seen = card(tmp_path, at_the_threshold(3)[0], given, "", "")
    assert seen.asked == LEAST_ASKS


@pytest.mark.first_case
@needs_icarus
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("out_margin < thresholds[out_bank]", "out_margin <= thresholds[out_bank]"),
        pytest.param(
            "out_margin < thresholds[out_bank]",
            "out_margin < thresholds[0]",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "thresholds[write_bank] <= write_data",
            "thresholds[!write_bank] <= write_data",
            marks=pytest.mark.slow,
        ),
        ("if (write_addr[0]) thresholds", "if (!write_addr[0]) thresholds"),
        ("answer_shunt ? 16'hffff", "answer_shunt ? 16'h7fff"),
        ("shunted ? 8'd2", "shunted ? 8'd1"),
        pytest.param("shunted ? 8'd2", "!shunted ? 8'd2", marks=pytest.mark.slow),
        ("out_user[80] && ", ""),
        ("& ~(128'd1 << 80)", ""),
    ],
)
def test_a_changed_card_is_noticed(tmp_path, at_the_threshold, old, new):
    with pytest.raises(VerifyError, match="the card"):
        card(tmp_path, at_the_threshold(3)[0], {"shunt-port": "2"}, old, new)


def test_a_port_for_what_is_never_shunted_is_refused(tmp_path, at_the_threshold):
    plain = replace(at_the_threshold(2)[0], shunt=0)
    with pytest.raises(UsageError, match="no shunting threshold"):
        written(tmp_path / "a", plain, {"shunt-port": "2"})
    written(tmp_path / "b", plain, {"shunt-port": "2", "shunting": "all"})
