# SPDX-License-Identifier: Apache-2.0
"""Class or shunt in both P4 targets: margins around the threshold, entries, ports, what is read."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from n3ic.errors import UsageError, VerifyError
from n3ic.exporters.p4.exporter import EXPORTER as P4
from n3ic.exporters.p4.interpreter import P4Error
from n3ic.exporters.p4_netfpga.exporter import EXPORTER as NETFPGA
from n3ic.model.difference import first_difference
from n3ic.model.inputs import InputSpec
from n3ic.model.layers import OutputLayer
from n3ic.model.network import SHUNT, BinaryModel
from n3ic.options import Options
from n3ic.targets.base import Exporter
from n3ic.targets.decoding import decoding_difference
from n3ic.targets.directory import export
from n3ic.targets.packets import SHUNTED

TARGETS = [P4, NETFPGA]
BOTH = pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)


def written(target: Exporter, model: BinaryModel, out: Path, **given: str) -> Options:
    options = target.parse_options({k.replace("_", "-"): v for k, v in given.items()}, verify=True)
    out.mkdir(parents=True, exist_ok=True)
    target.check(model, options)
    target.write(model, options, out)
    return options


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.mark.first_case
@BOTH
@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"output": "class", "input": "field", "field": "udp.payload"},
        {"output": "scores", "shunt_port": "8"},
    ],
    ids=str,
)
def test_margins_around_the_threshold(target, tmp_path, at_the_threshold, classes, given):
    model, words = at_the_threshold(classes)
    options = written(target, model, tmp_path, **given)
    seen = target.run(tmp_path, model, options, words).inference
    assert first_difference(model, seen, words) is None
    assert 0 < (seen.verdicts == SHUNT).sum() < len(words)


@pytest.mark.first_case
@BOTH
def test_every_margin_and_tie_of_four_classes(target, tmp_path):
    """Scores are biases alone but for one bit: all orders, and the largest scores there are."""
    extreme = (1 << 24) - 1
    rows = [(2, 1, 0, 2), (0, 3, 1, 2), (1, 1, 1, 1), (5, 0, 0, 3), (0, 0, 0, 2), (3, 3, 0, 6)]
    rows += [(-extreme, extreme, -extreme, extreme), (extreme, 0, 0, -extreme)]
    words = np.array([[0], [1]], dtype=np.uint32)
    weights = np.array([[1], [0], [1], [0]], dtype=bool)
    for number, bias in enumerate(rows):
        output = OutputLayer(weights, bias=np.array(bias, dtype=np.int32))
        model = BinaryModel(InputSpec.raw(1), (), output, tuple("abcd"))
        for shunt in {1, 2, 3, model.largest_margin + 1} - {0}:
            if shunt > model.largest_margin + 1:
                continue
            shunting = model.with_shunt(shunt)
            out = tmp_path / f"{number}-{shunt}"
            options = written(target, shunting, out)
            seen = target.run(out, shunting, options, words).inference
            assert first_difference(shunting, seen, words) is None, (bias, shunt)


@BOTH
def test_a_shunted_answer_says_so_and_leaves_through_its_port(target, tmp_path, at_the_threshold):
    model, words = at_the_threshold(3)
    options = written(target, model, tmp_path, shunt_port="8")
    program = target.program(tmp_path, model, options)
    running = program.switch()
    for request, want in zip(program.requests(words), model.infer(words).verdicts, strict=True):
        outcome = running.process(request, 1)
        result = program.packets.result(outcome.packet)
        assert result.class_id == (SHUNTED if want == SHUNT else want)
        assert outcome.port == (8 if want == SHUNT else target.crossed)
        # Another type of packet is no flow, whatever came before it.
        other = request[:12] + b"\x08\x06" + request[14:]
        outcome = running.process(other, 1)
        assert (outcome.port, outcome.packet) == (target.crossed, other)


@BOTH
def test_another_threshold_is_found(target, tmp_path, at_the_threshold):
    model, words = at_the_threshold(3)
    options = written(target, model.with_shunt(3), tmp_path)
    seen = target.run(tmp_path, model, options, words)
    text = str(first_difference(model, seen.inference, words))
    assert "margin 2, shunting threshold 2: verdict" in text


@BOTH
def test_a_packet_through_the_wrong_port_is_found(target, tmp_path, at_the_threshold):
    model, words = at_the_threshold(3)
    options = written(target, model, tmp_path, shunt_port="8")
    if target is P4:
        change(tmp_path / "commands.txt", "shunt_to 0x008", "shunt_to 0x009")
    else:
        change(tmp_path / "n3ic.p4", "8w0x08 &", "8w0x09 &")
    with pytest.raises(VerifyError, match=r"leaves through port 9, 8 expected"):
        target.run(tmp_path, model, options, words)
    with pytest.raises(VerifyError, match=r"9.*export's"):
        target.decode(tmp_path, model, options)


def complaint(target: Exporter, model: BinaryModel, out: Path, options: Options) -> str:
    try:
        decoded = target.decode(out, model, options)
    except VerifyError as error:
        return str(error)
    return "; ".join(filter(None, (decoding_difference(model, each) for each in decoded)))


@pytest.mark.parametrize(
    ("target", "name", "old", "new"),
    [
        (P4, "commands.txt", "shunt_below 0x00000002", "shunt_below 0x00000003"),
        (P4, "runtime.json", '"threshold": 2\n', '"threshold": 3\n'),
        (P4, "p4runtime.json", '"value": "Ag=="', '"value": "Aw=="'),
        (P4, "bfrt.py", "shunt_below(threshold=0x00000002", "shunt_below(threshold=0x00000003"),
        (NETFPGA, "n3ic.p4", "32w0x00000002) >> 31", "32w0x00000003) >> 31"),
    ],
    ids=["commands", "runtime", "p4runtime", "bfrt", "program"],
)
def test_the_threshold_of_each_artefact_is_read_back(
    target, name, old, new, tmp_path, at_the_threshold
):
    model, _ = at_the_threshold(3)
    model = replace(
        model,
        output=OutputLayer(
            model.output.weights, mask=model.output.mask, bias=np.zeros(3, np.int32)
        ),
    )
    options = written(target, model, tmp_path)
    assert complaint(target, model, tmp_path, options) == ""
    assert [each.shunt for each in target.decode(tmp_path, model, options)] == (
        [2] * 5 if target is P4 else [2]
    )
    text = (tmp_path / name).read_text()
    at = text.rindex(old)
    (tmp_path / name).write_text(text[:at] + new + text[at + len(old) :])
    expected = f"{name}: shunts margins below 3, the model below 2"
    assert complaint(target, model, tmp_path, options) == expected


def test_missing_doubled_and_foreign_entries_of_the_threshold_are_found(tmp_path, at_the_threshold):
    model, _ = at_the_threshold(2)
    options = written(P4, model, tmp_path)
    file = tmp_path / "commands.txt"
    lines = file.read_text().splitlines(keepends=True)
    at = next(i for i, line in enumerate(lines) if " shunting " in line)
    for changed, message in (
        ([*lines[:at], *lines[at + 1 :]], "does not end with the model's number"),
        ([*lines[: at + 1], *lines[at:]], "is set twice"),
        (
            [*lines[:at], lines[at].replace("shunt_below", "shunt_to"), *lines[at + 1 :]],
            "no action shunt_to",
        ),
        ([*lines[:at], lines[at].replace(" 0x", " 0x1 0x"), *lines[at + 1 :]], "got 2"),
    ):
        file.write_text("".join(changed))
        assert message in complaint(P4, model, tmp_path, options)


def test_entries_with_a_threshold_and_programs_without_one(tmp_path, at_the_threshold):
    model, words = at_the_threshold(3)
    plain = model.with_shunt(0)
    written(P4, plain, tmp_path / "plain")
    options = written(P4, plain, tmp_path / "ready", shunting="all")
    written(P4, model, tmp_path / "shunting")
    entries = (tmp_path / "shunting" / "commands.txt").read_text()
    assert "_24_9_3s" not in (tmp_path / "plain" / "n3ic.p4").read_text()
    ready = P4.program(tmp_path / "ready", plain, options)
    seen = P4.run(tmp_path / "ready", plain, options, words).inference
    assert first_difference(plain, seen, words) is None
    running = ready.switch()
    running.load(entries)
    for request, want in zip(ready.requests(words), model.infer(words).verdicts, strict=True):
        assert ready.packets.result(running.process(request, 1).packet).verdict == want
    # The threshold alone changes while packets flow.
    running.load("table_set_default shunting shunt_below 0x0")
    answers = [ready.packets.result(running.process(r, 1).packet) for r in ready.requests(words)]
    assert [a.verdict for a in answers] == model.infer(words).classes.tolist()
    options = P4.parse_options({})
    switch = P4.program(tmp_path / "plain", plain, options).switch()
    with pytest.raises(P4Error, match="no table shunting"):
        switch.load(entries)
    source = (tmp_path / "plain" / "n3ic.p4").read_text()
    assert "shunt" not in source


def test_the_program_does_not_depend_on_the_threshold(tmp_path, at_the_threshold):
    model, _ = at_the_threshold(3)
    for shunt in (2, 5):
        written(P4, model.with_shunt(shunt), tmp_path / str(shunt))
    assert (tmp_path / "2" / "n3ic.p4").read_text() == (tmp_path / "5" / "n3ic.p4").read_text()


def test_p4runtime_numbers_the_threshold_s_table_and_action(tmp_path, at_the_threshold):
    model, _ = at_the_threshold(3)
    written(P4, model, tmp_path, shunt_port="64")
    source = (tmp_path / "n3ic.p4").read_text()
    updates = json.loads((tmp_path / "p4runtime.json").read_text())[1]["updates"][-2:]
    for update, table, action in zip(
        updates, ("shunting", "shunt_port"), ("shunt_below", "shunt_to"), strict=True
    ):
        entry = update["entity"]["tableEntry"]
        number = entry["action"]["action"]["actionId"]
        assert f'@name(".{table}") @id({entry["tableId"]:#010x})' in source
        assert f'@name(".{action}") @id({number:#010x})' in source
    every = re.findall(r"@id\((0x[0-9a-f]{8})\)", source)
    assert len(set(every)) == len(every)


@BOTH
def test_options_that_mean_nothing_are_refused(target, tmp_path, at_the_threshold):
    model, _ = at_the_threshold(2)
    with pytest.raises(UsageError, match="no shunting threshold"):
        written(target, model.with_shunt(0), tmp_path, shunt_port="2")
    with pytest.raises(UsageError, match="does not tell which packets are shunted"):
        written(target, model, tmp_path, output="scores")


@BOTH
def test_a_model_without_a_threshold_has_no_word_of_it(target, tmp_path, at_the_threshold):
    model, _ = at_the_threshold(2)
    done = export(model.with_shunt(0), target.name, tmp_path / "out", verify=False)
    for file in done.path.iterdir():
        assert b"shunt" not in file.read_bytes(), file.name


@BOTH
def test_an_export_is_verified_at_the_threshold(target, tmp_path, at_the_threshold):
    model, _ = at_the_threshold(3)
    verification = export(model, target.name, tmp_path / "out").verification
    assert verification.ok and verification.shunt == 2
    assert verification.at_shunt >= 8 and verification.below_shunt >= 8
