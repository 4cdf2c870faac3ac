# SPDX-License-Identifier: Apache-2.0
"""Look-up tables in memories of the NetFPGA: read back, replaced while running, and refused."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from n3ic.errors import ExportError, UsageError, VerifyError
from n3ic.exporters.netfpga.core import CorePorts
from n3ic.exporters.netfpga.exporter import EXPORTER as OF_THE_TARGET
from n3ic.exporters.netfpga.graph.bit_tables import sequential
from n3ic.exporters.netfpga.graph.bit_tables.exporter import EXPORTER
from n3ic.exporters.netfpga.sequential.update import compose, read_update
from n3ic.families.tables.network import Table, TablesModel
from n3ic.families.tables.random_models import random_tables
from n3ic.options import Options
from n3ic.targets.directory import export
from n3ic.targets.manifest import read_manifest
from tests.support.random_graphs import graph_family, graph_model

simulated = pytest.mark.skipif(not shutil.which("iverilog"), reason="needs Icarus Verilog")
# Classes, lanes, shunting threshold, largest number of index bits.
CASES = [(2, 4, 9, 5), (3, 5, 0, 5), (5, 16, 4, 3), (2, 1, 0, 8)]
NAMES = [f"{c}-{n}-{t}-{d}" for c, n, t, d in CASES]
Case = tuple[int, int, int, int]


def model_of(case: Case, seed: int = 0) -> TablesModel:
    rng = np.random.default_rng(seed)
    made = random_tables(rng, classes=case[0], inputs=(1, case[3]), widths=(1, 6))
    return made.with_shunt(case[2])


def options_of(case: Case, **more: str) -> Options:
    return EXPORTER.parse_options({"style": "sequential", "modules": case[1], **more}, verify=True)


def other_entries(model: TablesModel, seed: int = 5) -> TablesModel:
    """The natural retraining: the same indices, other entries."""
    rng = np.random.default_rng(seed)
    tables = tuple(
        Table(t.bits, rng.permutation(t.entries.reshape(-1)).reshape(t.entries.shape), t.width)
        for t in model.tables
    )
    return replace(model, tables=tables, bias=model.bias + 3)


@pytest.mark.first_case
@simulated
@pytest.mark.parametrize("case", CASES[:2], ids=NAMES[:2])
def test_a_core_computes_the_scores_while_banks_are_swapped(tmp_path: Path, case: Case) -> None:
    model = model_of(case)
    given = {"style": "sequential", "modules": case[1]}
    exported = export(model, "netfpga", tmp_path / "e", options=given)
    assert exported.verification is not None
    assert exported.verification.ok, exported.verification
    assert "3 swaps of banks" in exported.verification.executor
    assert exported.verification.decoded[-1] == "mem/update.hex"
    figures = {f.name: f.value for f in exported.report.figures}
    layout = sequential.plan(model, case[1])
    assert figures["interval.clocks"] == layout.turns == -(-12 // case[1])
    assert figures["latency.clocks"] == layout.latency


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_every_entry_is_read_back_from_every_artefact(tmp_path: Path, case: Case) -> None:
    model, options = model_of(case), options_of(case)
    EXPORTER.write(model, options, tmp_path)
    decoded = EXPORTER.decode(tmp_path, model, options)
    assert len(decoded) == 5
    for t in (0, len(model.tables) - 1):
        entries = model.tables[t].entries.copy()
        entries[-1, -1] += 1 if entries[-1, -1] < 0 else -1
        tables = list(model.tables)
        tables[t] = replace(tables[t], entries=entries)
        differs = rf"bank 0: the score of class {case[0] - 1} (lacks a look-up|adds other)"
        with pytest.raises(VerifyError, match=differs):
            EXPORTER.decode(tmp_path, replace(model, tables=tuple(tables)), options)
    bias = model.bias.copy()
    bias[-1] -= 1
    with pytest.raises(VerifyError, match=rf"bank 0: the score of class {case[0] - 1} adds other"):
        EXPORTER.decode(tmp_path, replace(model, bias=bias), options)
    tables = list(model.tables)
    last = next(t for t in reversed(range(len(tables))) if len(tables[t].bits) > 1)
    tables[last] = replace(tables[last], bits=tables[last].bits[::-1])
    with pytest.raises(VerifyError, match="indices are not the model's"):
        EXPORTER.decode(tmp_path, replace(model, tables=tuple(tables)), options)
    if model.shunt:
        with pytest.raises(VerifyError, match="shunts margins below"):
            EXPORTER.decode(tmp_path, model.with_shunt(model.shunt + 1), options)


def test_a_bias_of_all_bits_of_a_score_is_read_back(tmp_path: Path) -> None:
    for sign in (-1, 1):
        model = replace(model_of(CASES[1]), bias=np.array([sign << 20, 0, -sign << 20]))
        directory = tmp_path / str(sign)
        directory.mkdir()
        EXPORTER.write(model, options_of(CASES[1]), directory)
        assert len(EXPORTER.decode(directory, model, options_of(CASES[1]))) == 5


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (r"(?<=\.INIT\(\"lane1_sum)0", "3", "the memories are not those of 3 sums"),
        (
            r"(?<=readmemh\(\"biases)1(\.mem\", biases)1",
            r"3\g<1>3",
            "the memories are not those of 3 sums",
        ),
        (r"wr_kind = wr_addr", "wr_kin = wr_addr", "the fields of a write's address"),
        (r"index0;", "index;", "no index"),
        (r"(?s)case \(turn\).*endcase", "", "no index"),
        (r"out_margin,", "out_margins,", "no margin"),
        (r"(?<=\{)1'b0, (?=x\[)", "1'b0, 1'b1, ", "an index of lane 0 is not wired to inputs"),
        (r"(?<=1'b0, )x(?=\[)", "y", "an index of lane 0 is not wired to inputs"),
        (r"1'd0: index0", "1'd1: index0", "the turns of lane 0 are not in order"),
        (r"default: index0", "1'd1: index0", "the turns of lane 0 are not in order"),
    ],
)
def test_an_executor_with_other_wires_is_refused(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    """Four tables in two lanes, so each index has a first and a default turn."""
    model = random_tables(np.random.default_rng(2), classes=3, tables=4, inputs=(1, 3))
    options = EXPORTER.parse_options({"style": "sequential", "modules": 2}, verify=True)
    EXPORTER.write(model, options, tmp_path)
    path = tmp_path / "rtl" / "n3ic_executor.v"
    text = path.read_text()
    changed = re.sub(old, new, text, count=1)
    assert changed != text
    path.write_text(changed)
    with pytest.raises(VerifyError, match=message):
        EXPORTER.decode(tmp_path, model, options)


@pytest.mark.parametrize("name", ["lane1_sum0.mem", "lane1_sum0.coe", "biases0.mem"])
@pytest.mark.parametrize("bank", [0, 1])
def test_a_wrong_row_of_a_memory_is_found(tmp_path: Path, name: str, bank: int) -> None:
    model, options = model_of(CASES[0]), options_of(CASES[0])
    EXPORTER.write(model, options, tmp_path)
    path = tmp_path / "mem" / name
    lines = path.read_text().split("\n")
    first = 2 if name.endswith("coe") else 0
    at = first + bank * ((len(lines) - 1 - first) // 2)
    end = "," if first else ""
    lines[at] = f"{int(lines[at].removesuffix(end), 16) ^ 1:x}{end}"
    path.write_text("\n".join(lines))
    with pytest.raises(VerifyError, match=f"bank {bank}"):
        EXPORTER.decode(tmp_path, model, options)


@pytest.mark.parametrize(("name", "row"), [("lane1_sum0.mem", r"\d+"), ("biases0.mem", "0")])
def test_a_memory_of_half_its_rows_has_half_a_bank(tmp_path: Path, name: str, row: str) -> None:
    """The second half of what is left belongs to the other bank."""
    model, options = model_of(CASES[0]), options_of(CASES[0])
    EXPORTER.write(model, options, tmp_path)
    path = tmp_path / "mem" / name
    lines = path.read_text().split()
    path.write_text("\n".join(lines[: len(lines) // 2]))
    with pytest.raises(VerifyError, match=f"mem/{name}: no row {row} in bank 0"):
        EXPORTER.decode(tmp_path, model, options)


def test_an_update_is_of_the_model(tmp_path: Path) -> None:
    model, options = model_of(CASES[0]), options_of(CASES[0])
    EXPORTER.write(model, options, tmp_path)
    other = replace(model, classes=("another", "class"))
    with pytest.raises(VerifyError, match=f"holds model {model.digest}, not {other.digest}"):
        EXPORTER.decode(tmp_path, other, options)


def test_an_update_clears_the_id_first(tmp_path: Path) -> None:
    model, options = model_of(CASES[0]), options_of(CASES[0])
    EXPORTER.write(model, options, tmp_path)
    layout = sequential.plan(model, CASES[0][1])
    updates = sequential.writes(model, layout)[1:]
    text = compose(layout.text, model.digest, layout.address_map.width, updates)
    (tmp_path / "mem" / "update.hex").write_text(text)
    with pytest.raises(VerifyError, match="does not clear the bank's id first"):
        EXPORTER.decode(tmp_path, model, options)


def test_new_entries_are_an_update_of_a_running_core(tmp_path: Path) -> None:
    model, options = model_of(CASES[0]), options_of(CASES[0])
    new = other_entries(model)
    for name, each in (("old", model), ("new", new)):
        (tmp_path / name).mkdir()
        EXPORTER.write(each, options, tmp_path / name)
    core = CorePorts.load(tmp_path / "old")
    assert core == CorePorts.load(tmp_path / "new")
    assert read_update(tmp_path / "new" / "mem" / "update.hex", core).model == new.digest
    for file in (tmp_path / "old" / "rtl").glob("*.v"):
        texts = [(tmp_path / n / "rtl" / file.name).read_text() for n in ("old", "new")]
        assert (
            texts[0].replace(model.digest, new.digest).replace(model.digest[:8], new.digest[:8])
            == texts[1]
        ), file.name


def test_an_update_with_other_indices_is_refused(tmp_path: Path) -> None:
    model, options = model_of(CASES[0]), options_of(CASES[0])
    last = next(t for t in range(12) if len(model.tables[t].bits) > 1)
    listed = list(model.tables)
    listed[last] = replace(listed[last], bits=listed[last].bits[::-1])
    other = replace(model, tables=tuple(listed))
    for name, each in (("old", model), ("new", other)):
        (tmp_path / name).mkdir()
        EXPORTER.write(each, options, tmp_path / name)
    with pytest.raises(UsageError, match="wiring="):
        read_update(tmp_path / "new" / "mem" / "update.hex", CorePorts.load(tmp_path / "old"))
    with pytest.raises(ExportError, match="--input-of"):
        sequential.writes(other, sequential.plan(model, 4))


def test_entries_that_do_not_fit_are_refused() -> None:
    model = model_of(CASES[3])
    layout = sequential.plan(model, 1)
    wide = tuple(replace(t, width=8) for t in model.tables)
    with pytest.raises(ExportError, match="entries of 8 bits"):
        sequential.writes(replace(model, tables=wide), layout)
    with pytest.raises(ExportError, match="--shunting all"):
        sequential.writes(model.with_shunt(3), layout)
    sequential.writes(model.with_shunt(3), sequential.plan(model, 1, shunting=True))


@pytest.mark.first_case
@pytest.mark.skipif(not shutil.which("verilator"), reason="needs Verilator")
@pytest.mark.parametrize("case", CASES[:3], ids=NAMES[:3])
def test_the_verilog_has_no_warning(tmp_path: Path, case: Case) -> None:
    EXPORTER.write(model_of(case), options_of(case), tmp_path)
    sources = sorted(map(str, (tmp_path / "rtl").glob("*.v")))
    for top in ("n3ic_core", "n3ic_top"):
        command = ["verilator", "--lint-only", "-Wall", "--top-module", top, *sources]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=600, cwd=tmp_path / "mem"
        )
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("classes", [2, 4])
def test_another_family_whose_graph_adds_up_look_ups_has_this_core(
    tmp_path: Path, classes: int
) -> None:
    with graph_family():
        model = graph_model(3, operations=8, bits=4, classes=classes, cuts=9)
        tool = OF_THE_TARGET.for_family(model.family)
        options = tool.parse_options({"style": "sequential"})
        assert tool.check(model, options).ok
        tool.write(model, options, tmp_path)
        assert [d.artefact for d in tool.decode(tmp_path, model, options)][-1] == "mem/update.hex"
        other = graph_model(4, operations=8, bits=4, classes=classes, cuts=9)
        with pytest.raises(VerifyError, match="the indices are not the model's"):
            tool.decode(tmp_path, replace(other, input=model.input), options)


@pytest.mark.slow
@simulated
def test_a_core_of_another_family_computes_its_scores(tmp_path: Path) -> None:
    with graph_family():
        model = graph_model(3, operations=8, bits=4, classes=3, cuts=9).with_shunt(5)
        exported = export(model, "netfpga", tmp_path / "e", options={"style": "sequential"})
    assert exported.verification is not None
    assert exported.verification.ok, exported.verification
    assert "3 swaps of banks" in exported.verification.executor


def test_graphs_that_entries_in_block_ram_do_not_compute_are_refused(tmp_path: Path) -> None:
    with graph_family():
        for model, given, message in (
            (
                graph_model(3, operations=8, bits=4, classes=2, sums=2),
                {"style": "sequential"},
                "the first of two classes is a sum of look-up tables",
            ),
            (
                graph_model(3, operations=8, depth=3),
                {"style": "sequential"},
                r"step \d+, an? \w+.*: --style sequential is for scores that add up look-ups",
            ),
            (graph_model(3, operations=8, depth=3), {"pipeline": 2}, r"--pipeline 2 is for scores"),
        ):
            with pytest.raises(ExportError, match=message):
                export(model, "netfpga", tmp_path / "e", options=given)


def test_a_manifest_records_the_options_of_the_models_core(tmp_path: Path) -> None:
    with graph_family():
        tables = graph_model(3, operations=2, bits=2, classes=2, fields=2, cuts=2)
        trees = graph_model(3, operations=2, depth=2, classes=2, fields=2, cuts=2)
        recorded = [
            read_manifest(export(model, "netfpga", tmp_path / name, verify=False).path)["options"]
            for name, model in (("tables", tables), ("trees", trees))
        ]
    own = {"style": "unrolled", "pipeline": 1, "outputs": "scores"}
    assert recorded[0] == recorded[1] | own
    assert not recorded[1].keys() & own.keys()
