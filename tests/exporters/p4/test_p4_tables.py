# SPDX-License-Identifier: Apache-2.0
"""Look-up tables on both P4 targets: exact, read back, changed at run time, refused."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from n3ic.errors import ExportError, UsageError, VerifyError
from n3ic.exporters.p4.exporter import EXPORTER as P4
from n3ic.exporters.p4.interpreter import P4Error, Switch
from n3ic.exporters.p4.interpreter.tables import RuntimeTable
from n3ic.exporters.p4.run import bmv2
from n3ic.exporters.p4.run.cli import CLI, change
from n3ic.exporters.p4.run.execute import LoadedProgram
from n3ic.exporters.p4_netfpga.exporter import EXPORTER as NETFPGA
from n3ic.families.tables.network import Table, TablesModel
from n3ic.families.tables.random_models import random_tables
from n3ic.families.tables.vectors import tables_vectors
from n3ic.model.bits import Words
from n3ic.model.classifier import margins_of
from n3ic.model.difference import first_difference
from n3ic.model.inputs import Field, InputSpec
from n3ic.options import Options
from n3ic.targets.base import Exporter
from n3ic.targets.directory import export
from n3ic.targets.packets import PacketResult
from n3ic.targets.verification import verify_directory
from tests.support.p4_stand_ins import needs_namespaces

FAMILY = TablesModel.family
TARGETS: dict[str, Exporter[Any]] = {t.name: t.for_family(FAMILY) for t in (P4, NETFPGA)}
BOTH = pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
FILES = (
    "commands.txt",
    "p4runtime.json",
    "p4runtime-1.txtpb",
    "bfrt.py",
    "p4runtime_update.json",
)
RAW = InputSpec((Field.binary("port", 16), Field("mark", "binary", 3, 5, ())))
CASES: dict[str, dict[str, Any]] = {
    "ragged": {"inputs": (1, 6), "widths": (1, 8)},
    "widest": {"features": 8, "tables": 4, "inputs": (8, 8), "widths": (8, 8), "classes": 3},
    "least": {"features": 1, "cuts": 1, "tables": 1, "inputs": (1, 1), "widths": (1, 1), "seed": 3},
    "classes": {"classes": 20, "tables": 6},
    "raw bits": {"spec": RAW, "inputs": (2, 7), "classes": 4},
}


def some_tables(seed: int = 0, **how: Any) -> TablesModel:
    return random_tables(np.random.default_rng(seed), **how)


def small(seed: int = 0, **how: Any) -> TablesModel:
    given = {"features": 4, "cuts": 2, "tables": 5, "inputs": (1, 3), "widths": (3, 3)} | how
    return some_tables(seed, **given)


def retrained(model: TablesModel, seed: int) -> TablesModel:
    """Other entries and biases, of the same indices, sums and widths."""
    rng = np.random.default_rng(seed)

    def drawn(table: Table) -> Table:
        half = 1 << (table.width - 1)
        entries = rng.integers(-half, half, table.entries.shape, dtype=np.int8)
        return replace(table, entries=np.where(table.held, entries, 0).astype(np.int8))

    bias = rng.integers(-9, 9, len(model.bias), dtype=np.int32)
    return replace(model, tables=tuple(map(drawn, model.tables)), bias=bias)


def write(target: Exporter[Any], model: TablesModel, out: Path, **given: str) -> Options:
    options = target.parse_options({k.replace("_", "-"): v for k, v in given.items()}, verify=True)
    out.mkdir(parents=True, exist_ok=True)
    target.write(model, options, out)
    return options


def sparse(model: TablesModel) -> TablesModel:
    """Some columns of some tables set to 0: those tables add nothing to these sums."""
    tables = []
    for t, table in enumerate(model.tables):
        entries = table.entries.copy()
        entries[:, [s for s in range(entries.shape[1]) if (t + s) % 3]] = 0
        entries[:, -1] = 0
        tables.append(replace(table, entries=entries))
    return replace(model, tables=tuple(tables))


# --- scores ------------------------------------------------------------------------------------


@pytest.mark.first_case
@BOTH
@pytest.mark.parametrize("case", CASES)
def test_programs_give_scores_and_verdicts(
    target: Exporter[Any], tmp_path: Path, case: str
) -> None:
    model = some_tables(**CASES[case])
    margins = margins_of(model.scores(tables_vectors(model, 60)))
    model = model.with_shunt(max(1, int(np.median(margins))))
    # Not simplified, so that indices and entries have the sizes of the case.
    export(model, target.name, tmp_path / "e", verify=False, simplify=False)
    verification = verify_directory(tmp_path / "e", vectors=40)
    assert verification.ok, verification
    assert verification.weight_bits == verification.decided_bits > 0
    assert verification.decoded == (FILES if target.name == "p4" else ("n3ic.p4",))
    assert verification.at_shunt or verification.below_shunt


@BOTH
def test_a_sum_to_which_no_table_adds_is_its_bias(target: Exporter[Any], tmp_path: Path) -> None:
    model = sparse(small(classes=4))
    options = write(target, model, tmp_path)
    words = tables_vectors(model, 40)
    assert target.decode(tmp_path, model, options)
    inference = target.run(tmp_path, model, options, words).inference
    assert first_difference(model, inference, words) is None
    assert (inference.scores[:, 3] == model.bias[3]).all()


@pytest.mark.first_case
@BOTH
@pytest.mark.parametrize(
    "given",
    [
        {"input": "field", "field": "ipv6.dst", "output": "class", "ethertype": "0x1234"},
        {"input": "field", "field": "udp.payload", "udp_port": "77", "output": "scores"},
        {"shunt_port": "4"},
    ],
)
def test_packets_are_those_of_binary_networks(
    target: Exporter[Any], tmp_path: Path, given: Mapping[str, str]
) -> None:
    model = small(classes=3)
    if "shunt_port" in given:
        model = model.with_shunt(3)
    options = write(target, model, tmp_path, **given)
    words = tables_vectors(model, 40)
    assert target.decode(tmp_path, model, options)
    assert (
        first_difference(model, target.run(tmp_path, model, options, words).inference, words)
        is None
    )


@BOTH
def test_largest_biases_keep_their_order(target: Exporter[Any], tmp_path: Path) -> None:
    most = 1 << 29
    bias = np.array([-most, most, most], dtype=np.int32)
    model = replace(small(classes=3, widths=(8, 8)), bias=bias)
    options = write(target, model, tmp_path)
    words = tables_vectors(model, 40)
    inference = target.run(tmp_path, model, options, words).inference
    assert first_difference(model, inference, words) is None
    assert set(inference.classes.tolist()) == {1, 2}


# --- entries changed at run time ---------------------------------------------------------------


def loaded(out: Path, model: TablesModel, options: Options) -> LoadedProgram:
    program: LoadedProgram = TARGETS["p4"].program(out, model, options)  # type: ignore[attr-defined]
    return program


def answers(running: Switch, program: LoadedProgram, words: Words) -> list[PacketResult]:
    return [
        program.packets.result(running.process(request, 1).packet)
        for request in program.requests(words)
    ]


def test_entries_are_replaced_while_the_switch_runs(tmp_path: Path) -> None:
    first = small(1, classes=3)
    second = retrained(first, 2)
    options = write(TARGETS["p4"], first, tmp_path / "first")
    write(TARGETS["p4"], second, tmp_path / "second")
    sources = {(tmp_path / name / "n3ic.p4").read_text() for name in ("first", "second")}
    assert len(sources) == 1
    program = loaded(tmp_path / "first", first, options)
    running = program.switch()
    words = tables_vectors(first, 12)
    known = {int(m.digest[:8], 16): m.scores(words) for m in (first, second)}
    old, new = known
    models = []
    lines = (tmp_path / "second" / "commands.txt").read_text().splitlines()
    # Only the answers around the first and last lines and around some in between.
    watched = {0, 1, 2, len(lines) - 2, len(lines) - 1, len(lines), *range(3, len(lines), 7)}
    for i, line in enumerate(["", *lines]):
        running.load(line)
        if i not in watched:
            continue
        results = answers(running, program, words)
        models.append({result.model for result in results})
        for row, result in enumerate(results):
            if result.model:
                assert result.scores is not None
                assert result.scores.tolist() == known[result.model][row].tolist()
    assert models == [{old}, *[{0}] * (len(models) - 2), {new}]
    assert (known[old] != known[new]).any()


def sent(running: Switch, lines: Sequence[str]) -> list[str]:
    """Send commands as simple_switch_CLI does, which goes on after one that is refused.

    Returns:
        The commands that were refused.
    """
    refused = []
    for line in lines:
        try:
            running.load(line)
        except P4Error:
            refused.append(line)
    return refused


@pytest.mark.parametrize("state", ["nothing", "the same", "another", "half of another"])
def test_the_commands_give_their_model_whatever_the_switch_holds(
    tmp_path: Path, state: str
) -> None:
    model = small(1, classes=3).with_shunt(2)
    options = write(TARGETS["p4"], model, tmp_path / "model")
    write(TARGETS["p4"], retrained(model, 2), tmp_path / "another")
    program = loaded(tmp_path / "model", model, options)
    running = Switch(program.source)
    other = (tmp_path / "another" / "commands.txt").read_text().splitlines()
    lines = program.commands.splitlines()
    before = {
        "nothing": [],
        "the same": lines,
        "another": other,
        "half of another": other[: len(other) // 2],
    }
    assert sent(running, before[state]) == []
    assert sent(running, lines) == []
    words = tables_vectors(model, 20)
    results = answers(running, program, words)
    assert {result.model for result in results} == {int(model.digest[:8], 16)}
    assert [result.scores.tolist() for result in results] == model.scores(words).tolist()


def test_a_switch_that_lost_entries_names_no_model(tmp_path: Path) -> None:
    model = small(classes=3)
    options = write(TARGETS["p4"], model, tmp_path)
    program = loaded(tmp_path, model, options)
    words = tables_vectors(model, 4)
    for table in range(len(model.tables)):
        running = program.switch()
        running.load(f"table_clear t{table}")
        assert {result.model for result in answers(running, program, words)} == {0}


@pytest.mark.slow
def test_a_load_of_the_same_file_under_a_packet_names_no_wrong_scores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A packet may find the number before and behind the load, and a table that is cleared."""
    model = small(1, classes=3)
    options = write(TARGETS["p4"], model, tmp_path)
    program = loaded(tmp_path, model, options)
    lines = program.commands.splitlines()
    words = tables_vectors(model, 20)
    scores = model.scores(words)
    rng = np.random.default_rng(0)
    schedule: list[str] = []  # commands; an empty one lets the packet on to its next table
    plain = RuntimeTable.apply

    def apply(table: RuntimeTable, frame: list[Any]) -> None:
        while schedule and (line := schedule.pop(0)):
            running.load(line)
        plain(table, frame)

    monkeypatch.setattr(RuntimeTable, "apply", apply)
    running = program.switch()
    named = dict.fromkeys((0, int(model.digest[:8], 16)), 0)
    for _ in range(20):
        for row, request in enumerate(program.requests(words)):
            # The whole load takes place under this packet, in at most six pauses of its tables.
            cuts = sorted(rng.integers(0, len(lines), 6))
            schedule[:] = ["", ""]
            for start, end in zip([0, *cuts], [*cuts, len(lines)], strict=True):
                schedule += [*lines[start:end], ""]
            result = program.packets.result(running.process(request, 1).packet)
            sent(running, [line for line in schedule if line])
            schedule.clear()
            named[result.model] += 1
            if result.model:
                assert result.scores is not None
                assert result.scores.tolist() == scores[row].tolist()
    assert all(named.values()), named


@pytest.mark.parametrize("other", ["bits", "order", "width", "classes", "threshold"])
def test_entries_of_another_program_leave_answers_without_a_model(
    tmp_path: Path, other: str
) -> None:
    model = small(1, classes=3, inputs=(2, 2))
    bits = model.tables[0].bits
    free = next(b for b in range(model.input.n_bits) if b not in bits)
    table = {
        "bits": replace(model.tables[0], bits=(bits[0], free)),
        "order": replace(model.tables[0], bits=bits[::-1]),
        "width": replace(model.tables[0], width=4),
    }.get(other, model.tables[0])
    changed = replace(model, tables=(table, *model.tables[1:]))
    if other == "classes":
        changed = small(1, classes=4, inputs=(2, 2))
    if other == "threshold":
        changed = model.with_shunt(1)
    options = write(TARGETS["p4"], model, tmp_path / "right")
    write(TARGETS["p4"], changed, tmp_path / "wrong")
    program = loaded(tmp_path / "right", model, options)
    running = program.switch()
    assert sent(running, (tmp_path / "wrong" / "commands.txt").read_text().splitlines())
    words = tables_vectors(model, 3)
    assert {result.model for result in answers(running, program, words)} == {0}
    # By number, too: P4Runtime knows no names.
    numbers = [
        {
            update["entity"]["tableEntry"]["action"]["action"]["actionId"]
            for update in json.loads((tmp_path / n / "p4runtime.json").read_text())[2]["updates"]
        }
        for n in ("right", "wrong")
    ]
    assert not numbers[0] & numbers[1]


@pytest.mark.slow
@needs_namespaces
def test_entries_of_a_running_switch_are_changed_and_confirmed(
    tmp_path: Path, stand_ins: Path
) -> None:
    """The switch, its compiler and its command line are stand-ins: their plumbing is real."""
    first = small(1, tables=3)
    options = write(TARGETS["p4"], first, tmp_path / "first", with_bmv2="yes")
    write(TARGETS["p4"], retrained(first, 2), tmp_path / "second")
    words = tables_vectors(first, 20)
    execution = TARGETS["p4"].run(tmp_path / "first", first, options, words)
    assert execution.executor.startswith("simple_switch 0.0.0-stand-in")
    assert first_difference(first, execution.inference, words) is None
    program, log = loaded(tmp_path / "first", first, options), tmp_path / "log"
    entries = sum(len(t.entries) for t in first.tables)
    update = (tmp_path / "second" / "commands.txt").read_text()
    with bmv2.network_namespace() as namespace:
        compiled = bmv2.compile_program(program.source, tmp_path)
        with bmv2.running_switch(namespace, compiled, log) as process:
            # The offsets and both readings of the model's number are default actions.
            assert bmv2.load_entries(namespace, program, process, log) == entries + 3
            line = namespace.command(CLI, "--thrift-port", str(bmv2.THRIFT_PORT))
            assert change(line, program.switch(), update) == entries + 3


# --- read back ---------------------------------------------------------------------------------


def decoding_error(target: Exporter[Any], model: TablesModel, out: Path, options: Options) -> str:
    try:
        target.decode(out, model, options)
    except VerifyError as error:
        return str(error)
    return ""


@BOTH
def test_any_other_model_is_told_from_what_was_written(
    target: Exporter[Any], tmp_path: Path
) -> None:
    """Each entry, bias and bit of an index changed in the model: the artefacts tell."""
    model = small(classes=3, tables=3, inputs=(1, 2))
    options = write(target, model, tmp_path)
    assert decoding_error(target, model, tmp_path, options) == ""
    others = []
    for t, table in enumerate(model.tables):
        for place in np.ndindex(table.entries.shape):
            entries = table.entries.copy()
            entries[place] ^= 1
            others.append((place[1], t, replace(table, entries=entries)))
        bits = [(b + 1) % model.input.n_bits for b in table.bits]
        others.append((0, t, replace(table, bits=tuple(bits))))
    for c, t, changed in others:
        tables = (*model.tables[:t], changed, *model.tables[t + 1 :])
        text = decoding_error(target, replace(model, tables=tables), tmp_path, options)
        assert f"the score of class {c} " in text
    bias = model.bias + np.array([0, 0, 1], dtype=np.int32)
    assert "the score of class 2 adds other values" in decoding_error(
        target, replace(model, bias=bias), tmp_path, options
    )
    assert "of model" in decoding_error(target, replace(model, name="another"), tmp_path, options)


@BOTH
def test_a_threshold_and_a_port_are_read_back(target: Exporter[Any], tmp_path: Path) -> None:
    model = small().with_shunt(3)
    options = write(target, model, tmp_path, shunt_port="4")
    assert decoding_error(target, model, tmp_path, options) == ""
    path = tmp_path / ("p4runtime_update.json" if target.name == "p4" else "n3ic.p4")
    text = path.read_text()
    path.write_text(
        text.replace('"value": "Aw=="', '"value": "Ag=="')  # 3 becomes 2
        if target.name == "p4"
        else text.replace("- 32w0x00000003) >>", "- 32w0x00000002) >>")
    )
    assert path.read_text() != text
    assert decoding_error(target, model, tmp_path, options) != ""
    other = target.parse_options({"shunt-port": "2"}, verify=True)
    path.write_text(text)
    assert "port" in decoding_error(target, model, tmp_path, other) or "shunting" in decoding_error(
        target, model, tmp_path, other
    )


def numbers_of(text: str) -> list[tuple[int, int]]:
    """Places of the digits of the values of a file, in any of its forms."""
    matches = re.finditer(
        r"0x([0-9a-f]+)|\"value\": \"([A-Za-z0-9+/=]+)\"|\\([0-7]{3})|_id: (\d+)", text
    )
    return [m.span(m.lastindex or 0) for m in matches]


@pytest.mark.first_case
@pytest.mark.parametrize(
    "name", [*(name.replace("-1.", "-2.") for name in FILES), "n3ic.p4", "sume n3ic.p4"]
)
def test_a_change_of_any_number_is_told(tmp_path: Path, name: str) -> None:
    """A digit of any value of an entry, or of the program's indices and sums, changed."""
    target = TARGETS["p4-netfpga" if name.startswith("sume") else "p4"]
    model = small(tables=3, inputs=(1, 2)).with_shunt(2)
    options = write(target, model, tmp_path)
    path = tmp_path / name.removeprefix("sume ")
    text = path.read_text()
    lines = text.splitlines(keepends=True)
    index = re.compile(r"_index = |_s0 = .* \+ |_v0 = |score1 = \(\(bit<32>\)")
    is_program = name.endswith("n3ic.p4")
    changed = 0
    at = 0
    for line in lines:
        if not is_program or index.search(line):
            places = (
                [m.span() for m in re.finditer(r"(?<=>> )\d+|(?<=w0x)[0-9a-f]+", line)]
                if is_program
                else numbers_of(line)
            )
            for start, end in places:
                digit = line[start]
                other = "1" if digit == "0" else "B" if name.endswith("json") else "0"
                if other == digit:
                    continue
                path.write_text(text[: at + start] + other + text[at + start + 1 :])
                assert decoding_error(target, model, tmp_path, options), (line, start, end)
                changed += 1
        at += len(line)
    assert changed > 5


def changed(text: str, old: str, new: str) -> str:
    """The text with its first match of a pattern replaced."""
    new_text = re.sub(old, new, text, count=1, flags=re.MULTILINE)
    assert new_text != text
    return new_text


ENTRIES = "are not selected by its index"


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("p4", r"(\.set_model_again_)\w", r"\1x", "number is not set by two matching actions"),
        ("p4", r"\.set_model_again_", ".set_model_", "number is not set by two matching actions"),
        ("p4", "^ +action add_offsets", "    action add", "0 actions add the offsets"),
        ("p4", "key = { meta.t0", "key = { meta.t1", "not looked up by its own index"),
        ("p4", r"(meta.t0_s0 = \(bit<\d>\) entry)0", r"\g<1>1", "keep the entries of its own"),
        ("p4", r"^ +(meta\.t1_s0 = \(bit)", r"    x\1", "keep the entries of its own table"),
        ("p4", r"(meta.score1 = .* meta\.)t0_s0", r"\1t1_s0", "score 1 is not the sum"),
        ("p4", r"(t0_s0 = meta.t0_s0 \+ meta.)t1", r"\1t0", "adds an entry twice"),
        ("p4", r"(t0_s0 = )meta.t0_s0", r"\1meta.t1_s0", "adds an entry twice"),
        ("p4", r"(meta.score)0 = 0", r"\g<1>1 = 0", "score 1 is computed twice"),
        ("p4", "meta.score0 = 0", "meta.score0 = 1", "first of two classes is not 0"),
        ("p4", "meta.t1_index = ", "meta.t0_index = ", "index of table 0 is made twice"),
        ("p4", "meta.t1_index = ", "meta.t2_index = ", "2 indices do not belong to consecutive"),
        ("p4", r"(_index = .*)3w0x1\)", r"\g<1>3w0x2)", "bit 0 of the index of table"),
        ("p4", r"(_index = .*)3w0x1\)", r"\g<1>4w0x1)", "bit 0 of the index of table"),
        ("p4", r"(_index = \(\(\(bit<3>\)) meta.x\)", r"\1 meta.x) << 1)", "made of input bits"),
        ("p4", r"(_index = )", r"\1" + "(((bit<9>) meta.x) & 9w0x1) | " * 6, "not in place"),
        ("p4-netfpga", r"^( +)(user_metadata\.t0_v0 = \(12w0x.*)$", r"\1\2\n\1\2", "two halves"),
        ("p4-netfpga", r"(t0_v0 = .*)12(w0x\w+ & \()", r"\g<1>13\2", "are not two halves"),
        ("p4-netfpga", r"(t0_v0 = .*)0x", r"\1x", "entries are not taken once each"),
        ("p4-netfpga", r"t0_s0 = (\(bit<4>\) .*)t0_v0", r"t0_s0 = \1t1_v0", "takes the entry of"),
        ("p4-netfpga", r"^( +)(.*t0_s0 = \(bit.*)$", r"\1\2\n\1\2", "are not taken once each"),
        ("p4-netfpga", r"^ +.*t0_s0 = \(bit.*$", "", "entries are not taken once each"),
        ("p4-netfpga", r"t0_v0 (= \(\w+\.t0_v0 &)", r"t1_v0 \1", "is not selected by a bit"),
        ("p4-netfpga", r"^ +.*t0_v0 = \(\w+\.t0_v0 &.*$", "", ENTRIES),
        ("p4-netfpga", r"(t0_v0 >> )6", r"\g<1>3", ENTRIES),
        # The lower half is longer, by a digit that the upper half has at its place.
        ("p4-netfpga", r"(t0_v0 = \(12w0x)(\w{3} & .* \(12w0x..)(\w)", r"\1\3\2\3", ENTRIES),
    ],
)
def test_a_program_that_wires_its_tables_otherwise_is_told(
    tmp_path: Path, name: str, old: str, new: str, message: str
) -> None:
    target, model = TARGETS[name], small(tables=2, inputs=(3, 3))
    options = write(target, model, tmp_path)
    path = tmp_path / "n3ic.p4"
    path.write_text(changed(path.read_text(), old, new))
    assert message in decoding_error(target, model, tmp_path, options)


def test_an_entry_of_a_sum_that_is_not_there_is_told(tmp_path: Path) -> None:
    target, model = TARGETS["p4"], small(tables=2, inputs=(3, 3))
    options = write(target, model, tmp_path)
    path = tmp_path / "n3ic.p4"
    text = path.read_text().replace("t0_s0", "t0_s1")
    path.write_text(changed(text, r"(t0_entry\(.*)entry0(.*\n.*)entry0", r"\1entry1\2entry1"))
    calls = tmp_path / "bfrt.py"
    calls.write_text(re.sub(r"(p4\.t0\.add.*)entry0=", r"\1entry1=", calls.read_text()))
    assert "table t0 has entries of sum 1" in decoding_error(target, model, tmp_path, options)


@pytest.mark.parametrize(("old", "new"), [("t0_{}0", "t0_{}1"), ("t1_{}0", "t2_{}0")])
def test_constants_of_the_next_sum_or_table_are_refused(tmp_path: Path, old: str, new: str) -> None:
    """The model has two tables and one sum, so sum 1 and table 2 do not exist."""
    target, model = TARGETS["p4-netfpga"], small(tables=2, inputs=(3, 3))
    options = write(target, model, tmp_path)
    path = tmp_path / "n3ic.p4"
    text = path.read_text()
    for kind in "vs":
        text = text.replace(old.format(kind), new.format(kind))
    path.write_text(text)
    assert "table or sum that is not there" in decoding_error(target, model, tmp_path, options)


@pytest.mark.parametrize("name", FILES)
def test_lines_that_are_missing_or_in_another_order_are_told(tmp_path: Path, name: str) -> None:
    target, model = TARGETS["p4"], small(tables=2, inputs=(1, 2))
    options = write(target, model, tmp_path)
    path = tmp_path / name
    if name.endswith("json"):
        steps = json.loads(path.read_text())
        first, body, last = steps
        update = {**body, "updates": body["updates"][1:]}
        kind = {**body, "updates": [{**body["updates"][0], "type": "DELETE"}, *body["updates"][1:]]}
        others = [[first, update, last], [body, first, last], [first, last, body], [], {}]
        texts = [json.dumps(each) for each in [*others, [first, kind, last]]]
    elif name.endswith("txtpb"):
        second = (tmp_path / "p4runtime-2.txtpb").read_text()
        texts = ["", second, second.replace("updates {", "updates {\n  type: DELETE", 1)]
    else:
        start, *lines, end = ["", *path.read_text().splitlines(), ""]
        clear = "table_clear {}"
        if name == "bfrt.py":
            first, second, *lines, end = lines
            start = f"{first}\n{second}"
            clear = "p4.{}.clear()"
        assert lines[2:4] == [clear.format("t0"), clear.format("t1")]
        others_of = [
            lines[1:],
            [*lines[:2], *lines[3:]],  # a switch that holds entries refuses those of t0
            [*lines[:4], *lines[5:]],
            [*lines[-2:], *lines[:-2]],
            [*lines[2:4], *lines[:2], *lines[4:]],  # a packet would find the model, and no entry
            [*lines[:3], lines[2], *lines[3:]],
            [*lines[:-2], lines[2], *lines[-2:]],
            [*lines[:4], clear.format("forward"), *lines[4:]],
            [*lines[:4], lines[5], lines[4], *lines[6:]],
            [*lines[:5], lines[4], *lines[5:]],
        ]
        texts = ["\n".join((start, *each, end)).strip() + "\n" for each in others_of]
    for text in texts:
        path.write_text(text)
        assert decoding_error(target, model, tmp_path, options), text[:300]


# --- what does not fit -------------------------------------------------------------------------


def refusal(target: Exporter[Any], model: TablesModel, out: Path, **given: str) -> str:
    with pytest.raises(ExportError) as error:
        export(model, target.name, out, options=given, verify=False, simplify=False)
    assert not out.exists()
    return str(error.value)


@pytest.mark.slow
def test_what_does_not_fit_is_refused_with_the_reason(tmp_path: Path) -> None:
    p4, sume = TARGETS["p4"], TARGETS["p4-netfpga"]
    many = small(tables=2100, inputs=(3, 3))
    assert "8,400 bits of indices and additions" in refusal(p4, many, tmp_path / "a")
    tables = small(tables=4096, inputs=(1, 1))
    assert "tables, p4c compiles 4,096" in refusal(p4, tables, tmp_path / "b")
    classes = small(classes=300, tables=2, inputs=(1, 1))
    assert "300 classes, at most 256" in refusal(p4, classes, tmp_path / "c")
    wide = some_tables(spec=InputSpec.raw(2049), tables=2)
    for target in (p4, sume):
        assert "2049 input bits" in refusal(target, wide, tmp_path / "d")
    heavy = some_tables(features=8, tables=120, inputs=(8, 8), widths=(8, 8), classes=3)
    assert "LUTs estimated" in refusal(sume, heavy, tmp_path / "e")
    narrow = some_tables(spec=InputSpec.raw(65), tables=2)
    given = {"input": "field", "field": "ipv4.src_dst"}
    assert "do not fit the 64 bits" in refusal(p4, narrow, tmp_path / "f", **given)


@BOTH
def test_options_that_do_not_apply_are_refused(target: Exporter[Any], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no shunting threshold"):
        write(target, small(), tmp_path, shunt_port="2")


@BOTH
def test_reports_count_entries_phv_and_stages(target: Exporter[Any], tmp_path: Path) -> None:
    model = small(classes=3)
    options = write(target, model, tmp_path)
    figures = {f.name: f.value for f in target.report(model, options, tmp_path).figures}
    entries = sum(len(t.entries) for t in model.tables)
    if target.name == "p4":
        # The entries, the offsets, and both readings of the model's number.
        assert figures["table.entries"] == entries + 3
        assert figures["memory.entries"] == 3 * entries  # a byte a sum
        kernel = TARGETS["p4"].kernel(model)  # type: ignore[attr-defined]
        assert figures["tables"] == kernel.needs(kernel.pipeline(model))["tables"] + 1
    else:
        assert figures["memory.entries"] == -(-3 * 3 * entries // 8) + 3 * 4
        assert figures["resources.lut"] > 49_400
    assert figures["stages.sum"] == 4  # of five tables: three levels, and the offsets
    assert figures["phv"] > model.input.n_bits
    sources = {f.name: f for f in target.report(model, options, tmp_path).figures}
    assert all(f.source for f in sources.values())
    for name in ("phv", "tables"):
        assert sources[name].source.startswith("counted in n3ic's reading of the program")
    assert {sources[name].kind for name in ("phv", "tables", "stages.sum")} == {"estimated"}


@BOTH
def test_hostile_names_stay_out_of_the_code(target: Exporter[Any], tmp_path: Path) -> None:
    hostile = '*/ #include "/etc/passwd"'
    plain = small()
    model = replace(plain, name=hostile, classes=(hostile, "${x} {{ 7*7 }} %{"))
    write(target, model, tmp_path / "a")
    write(target, plain, tmp_path / "b")

    def body(name: str) -> str:
        text = (tmp_path / name / "n3ic.p4").read_text()
        return re.sub(r"0x[0-9a-f]{8}", "", text)

    assert body("a") == body("b")
