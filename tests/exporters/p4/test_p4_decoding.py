# SPDX-License-Identifier: Apache-2.0
"""Networks read back from the artefacts of both P4 targets: every bit counts."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from n3ic.errors import VerifyError
from n3ic.exporters.p4.decoding import (
    DecodedEntry,
    decode_entries,
    from_bfrt,
    from_commands,
    from_tutorial,
    popcount_field,
)
from n3ic.exporters.p4.exporter import EXPORTER as P4
from n3ic.exporters.p4.shared.decoding import digest_of_numbers, signed
from n3ic.exporters.p4.shared.target import compile_switch
from n3ic.exporters.p4_netfpga.decoding import decode_program, model_numbers, shunting_of
from n3ic.exporters.p4_netfpga.exporter import EXPORTER as NETFPGA
from n3ic.model.layers import HiddenLayer, OutputLayer
from n3ic.model.network import BinaryModel
from n3ic.model.random_models import random_model
from n3ic.targets.base import Exporter
from n3ic.targets.decoding import decoding_difference

ARTEFACTS = [
    (P4, "commands.txt"),
    (P4, "p4runtime.json"),
    (P4, "p4runtime-1.txtpb"),
    (P4, "bfrt.py"),
    (P4, "runtime.json"),
    (NETFPGA, "n3ic.p4"),
]


MESSAGE = "# proto-file: p4/v1/p4runtime.proto\n# proto-message: p4.v1.WriteRequest\n"

PIPE = "# SPDX-License-Identifier: Apache-2.0\np4 = bfrt.n3ic.pipe\n"


def drawn(shape=(20, 5, 3), seed=3, density=None) -> BinaryModel:
    return random_model(shape, np.random.default_rng(seed), density=density)


def written(target: Exporter, model: BinaryModel, out: Path) -> Path:
    out.mkdir(parents=True, exist_ok=True)
    target.write(model, target.parse_options({}), out)
    return out


def complaint(target: Exporter, model: BinaryModel, out: Path) -> str:
    """What decoding finds in an export directory; empty where it holds the model."""
    try:
        decoded = target.decode(out, model, target.parse_options({}))
    except VerifyError as error:
        return str(error)
    return "; ".join(filter(None, (decoding_difference(model, each) for each in decoded)))


@pytest.mark.first_case
@pytest.mark.parametrize("target", [P4, NETFPGA], ids=lambda t: t.name)
@pytest.mark.parametrize(
    ("shape", "density"),
    [((20, 5, 3), None), ((20, 5, 3), 0.5), ((1, 2), None), ((256, 32, 16, 2), None)],
)
def test_what_is_written_is_read_back(target: Exporter, tmp_path: Path, shape, density) -> None:
    for seed in range(3):
        model = drawn(shape, seed, density)
        out = written(target, model, tmp_path / str(seed))
        decoded = target.decode(out, model, target.parse_options({}))
        assert [each.artefact for each in decoded] == [n for t, n in ARTEFACTS if t is target]
        assert complaint(target, model, out) == ""
        assert {each.digest for each in decoded} == {model.digest}
        assert all(
            each.weight_bits == sum(w.weights.size for w in model.layers) for each in decoded
        )


@pytest.mark.first_case
@pytest.mark.parametrize(("target", "name"), ARTEFACTS, ids=lambda v: getattr(v, "name", v))
@pytest.mark.parametrize("density", [None, 0.5])
def test_a_change_of_any_bit_of_the_network_is_found(
    target: Exporter, name: str, density: float | None, tmp_path: Path
) -> None:
    """Each weight, mask bit, threshold and bias changed in the model: the old artefact tells."""
    model = drawn((9, 3, 2), density=density)
    out = written(target, model, tmp_path)
    parts = [model.hidden[0], model.output]
    for index, layer in enumerate(parts):
        for place in np.ndindex(layer.weights.shape):
            if layer.mask is None or layer.mask[place]:
                weights = layer.weights.copy()
                weights[place] ^= True
                assert f"layer {index}, neuron {place[0]}, input {place[1]}" in decoding_message(
                    target, model, out, name, index, weights=weights
                )
            if layer.mask is not None:
                mask = layer.mask.copy()
                mask[place] ^= True
                limits = {} if index else {"thresholds": np.minimum(1, mask.sum(axis=1))}
                assert f"layer {index}, neuron {place[0]}, input {place[1]}" in decoding_message(
                    target, model, out, name, index, mask=mask, **limits
                )
        for neuron in range(layer.n_outputs):
            values = np.array(model.output.bias if index else model.hidden[0].thresholds)
            values[neuron] += -1 if values[neuron] > 0 else 1
            changed = {"bias" if index else "thresholds": values}
            assert f"layer {index}, neuron {neuron}: " in decoding_message(
                target, model, out, name, index, **changed
            )


def decoding_message(
    target: Exporter, model: BinaryModel, out: Path, name: str, index: int, **changed
) -> str:
    """What decoding an artefact says beside a model of which one layer was changed."""
    layer = (model.hidden[0], model.output)[index]
    given = {
        "weights": layer.weights,
        "mask": layer.mask,
        **({"bias": model.output.bias} if index else {"thresholds": model.hidden[0].thresholds}),
    } | changed
    made = (OutputLayer if index else HiddenLayer)(**given)
    hidden, output = ((model.hidden[0],), made) if index else ((made,), model.output)
    other = BinaryModel(model.input, hidden, output, model.classes, model.name)
    options = target.parse_options({})
    artefacts = {each.artefact: each for each in target.decode(out, model, options)}
    return decoding_difference(other, artefacts[name])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "name"),
    [*ARTEFACTS, (P4, "p4runtime-2.txtpb"), (P4, "p4runtime-3.txtpb")],
    ids=lambda v: getattr(v, "name", v),
)
def test_flipped_bits_of_the_file_are_found(target: Exporter, name: str, tmp_path: Path) -> None:
    """In files of entries any bit, in the program those of the network's lines and masks."""
    model = drawn((9, 3, 2))
    out = written(target, model, tmp_path)
    path = out / name
    plain = path.read_bytes()
    pattern = {
        "commands.txt": rb".+",
        "p4runtime-1.txtpb": rb".+",
        "p4runtime-2.txtpb": rb".+",
        "p4runtime-3.txtpb": rb".+",
        "bfrt.py": rb".+",
        "p4runtime.json": rb"[^ \n]+",
        "runtime.json": rb"[^ \n]+",
        "n3ic.p4": rb"user_metadata\.l\d_v\d = \(?~.+|const bit<\d+> L\d_MASK.+|score\d = \(\(.+"
        rb"|\.model = 32w.+|(?<= - \dw)\d+(?=\) >>)",
    }[name]
    places = [i for match in re.finditer(pattern, plain) for i in range(*match.span())]
    rng = np.random.default_rng(0)
    missed = []
    for place in rng.choice(places, min(150, len(places)), replace=False):
        bit = 1 << int(rng.integers(7))
        path.write_bytes(plain[:place] + bytes([plain[place] ^ bit]) + plain[place + 1 :])
        if complaint(target, model, out) == "":
            missed.append((int(place), bit, plain[max(0, place - 30) : place + 10]))
    assert missed == []


def test_the_order_of_the_entries_is_part_of_what_is_read(tmp_path: Path) -> None:
    model = drawn()
    out = written(P4, model, tmp_path)
    commands = (out / "commands.txt").read_text().splitlines(keepends=True)
    for order in (
        commands[2:],  # the old model's number stays
        commands[:-1],
        [*commands[-2:], *commands[:-2]],
        [*commands[:3], *commands[-2:], *commands[3:-2]],
        [*commands[:4], commands[3], *commands[4:]],  # a table twice
    ):
        (out / "commands.txt").write_text("".join(order))
        assert "commands.txt" in complaint(P4, model, out)
    (out / "commands.txt").write_text("".join(commands))
    requests = json.loads((out / "p4runtime.json").read_text())
    together = [{**requests[0], "updates": [u for r in requests for u in r["updates"]]}]
    (out / "p4runtime.json").write_text(json.dumps(together))
    assert "need an order" in complaint(P4, model, out)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("commands.txt", ""),
        ("commands.txt", "\x00"),
        ("commands.txt", "table_add l0_weights0 l0_xnor0 1 => 0x1\n"),
        ("p4runtime.json", "[" * 100_000),
        ("p4runtime.json", '{"updates": 5}'),
        ("p4runtime.json", '[{"updates": [1, 2]}]'),
        ("p4runtime.json", "5"),
        ("runtime.json", "null"),
        ("runtime.json", '{"table_entries": [[]]}'),
        ("runtime.json", '{"table_entries": 1' + "0" * 5000 + "}"),
        (
            "runtime.json",
            '{"target": "bmv2", "p4info": "n3ic.p4info.txt", "bmv2_json": "n3ic.json", '
            '"table_entries": [{"table": "model", "action_name": "x", "action_params": [1]}]}',
        ),
        ("p4runtime-2.txtpb", ""),
        ("p4runtime-2.txtpb", f"{MESSAGE}updates {{\n"),
        ("p4runtime-2.txtpb", f"{MESSAGE}device_id: 0\ndevice_id: 0\n"),
        ("p4runtime-2.txtpb", f"{MESSAGE}}}\n"),
        ("p4runtime-2.txtpb", f"{MESSAGE}device_id: 1\n"),
        ("p4runtime-2.txtpb", f"{MESSAGE} device_id: 0\n"),
        ("bfrt.py", ""),
        ("bfrt.py", f"{PIPE}import os\nbfrt.complete_operations()\n"),
        ("bfrt.py", f"{PIPE}p4.l0_weights0.clear()\nbfrt.complete_operations()\n"),
        ("n3ic.p4", ""),
        ("n3ic.p4", "const bit<1" + "0" * 5000 + "> L0_MASK1 = 1" + "0" * 5000 + "w0x1;"),
    ],
)
def test_what_is_no_such_file_is_one_clear_error(name: str, text: str, tmp_path: Path) -> None:
    model = drawn()
    out = written(P4, model, tmp_path)
    (out / name).write_text(text)
    assert complaint(P4, model, out).startswith((name, "n3ic.p4", "p4runtime"))


@pytest.mark.parametrize("target", [P4, NETFPGA], ids=lambda t: t.name)
def test_a_shunting_threshold_is_read_back(target: Exporter, tmp_path: Path) -> None:
    model = drawn((9, 40, 2)).with_shunt(27)
    out = written(target, model, tmp_path)
    assert complaint(target, model, out) == ""
    decoded = target.decode(out, model, target.parse_options({}))
    assert {each.shunt for each in decoded} == {27}


def test_a_digest_is_told_by_its_first_eight_digits() -> None:
    model = drawn()
    start = int(model.digest[:8], 16)
    assert digest_of_numbers([start, start], model) == model.digest
    assert digest_of_numbers([start, 5], model) == "00000005"


@pytest.mark.parametrize(
    ("name", "what"), [("commands.txt", "command"), ("p4runtime-1.txtpb", "line")]
)
def test_the_line_that_n3ic_does_not_write_is_named(name: str, what: str, tmp_path: Path) -> None:
    model = drawn()
    out = written(P4, model, tmp_path)
    lines = (out / name).read_text().split("\n")
    lines[4] += " "
    (out / name).write_text("\n".join(lines))
    assert complaint(P4, model, out) == f"{name}, line 5: not a {what} that n3ic writes there"


@pytest.mark.parametrize("number", [-(2**31), 1 - 2**31, -1, 0, 1, 2**31 - 1])
def test_a_number_of_32_bits_has_a_sign(number: int) -> None:
    assert signed(number % 2**32) == number
    assert signed(np.array([number % 2**32, 7])).tolist() == [number, 7]


@pytest.mark.parametrize("change", [{"default_action": False}, {"priority": 1}])
def test_an_entry_that_is_no_default_action_is_refused(tmp_path: Path, change) -> None:
    model = drawn()
    out = written(P4, model, tmp_path)
    data = json.loads((out / "runtime.json").read_text())
    data["table_entries"][3] |= change
    (out / "runtime.json").write_text(json.dumps(data))
    assert complaint(P4, model, out).endswith("has no default action")


def test_a_constant_of_no_neuron_is_one_clear_error(tmp_path: Path) -> None:
    model = drawn()
    out = written(NETFPGA, model, tmp_path)
    program = out / "n3ic.p4"
    source = program.read_text()
    line = next(each for each in source.splitlines() if "l0_v3 = ~" in each)
    many = line.replace("l0_v3", "l" + "9" * 5000 + "_v3")
    for other in (
        many,
        line.replace("l0_v3", "l9_v3"),
        f"{line}\n{line}",
        line.replace(".x ^", ".y ^"),
    ):
        program.write_text(source.replace(line, other))
        assert complaint(NETFPGA, model, out).startswith("n3ic.p4")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (r"(l1_v0 = \(?~\(user_metadata\.)l0_y", "x", "layer 1, neuron 0 reads x"),
        (r"(l0_v0 = \(?~\(user_metadata\.)x", "l0_y", "layer 0, neuron 0 reads l0_y"),
        (r"(l2_v0 = \(?~\(user_metadata\.)l1_y", "l0_y", "layer 2, neuron 0 reads l0_y"),
        (r"(l0_v1 = .*& )20w", "21w", "layer 0, neuron 1 reads x"),
        (r"(l0_f3 = .*l0_v)3", "2", "layer 0, neuron 3 reads another's counter"),
        (r"(l1_f3 = .*l)1_v", "0_v", "layer 1, neuron 3 reads another's counter"),
        (r"(score1 = .*l2_v)1", "0", "score 1 reads the counter of 0"),
        (r"(l0_v3 = .*~.*;\n)", r"\1", "weights of layer 0, neuron 3 is duplicated"),
        (r"(l1_f1 = .*;\n)", r"\1", "limit of layer 1, neuron 1 is duplicated"),
        (r"(score2 = .*;\n)", r"\1", "limit of layer 2, neuron 2 is duplicated"),
    ],
)
def test_a_program_computes_each_neuron_from_its_own_counter(
    old: str, new: str, message: str, tmp_path: Path
) -> None:
    model = drawn((20, 5, 4, 3), density=0.5)
    source = (written(NETFPGA, model, tmp_path) / "n3ic.p4").read_text()
    assert decoding_difference(model, decode_program(source, model)) == ""
    line = re.compile(rf"^ +user_metadata\.{old}", re.MULTILINE)
    if new.startswith("\\1"):  # the line twice
        text, changes = line.subn(r"\g<0>\g<0>", source)
    else:
        text, changes = line.subn(
            lambda match: match[0][: match.end(1) - match.start()] + match.expand(new), source
        )
    assert changes == 1
    with pytest.raises(VerifyError, match=rf"^n3ic\.p4: {message}"):
        decode_program(text, model)


SHUNTED = (
    "    user_metadata.shunted = 32w0 - (((user_metadata.best - user_metadata.second)"
    " - 32w0x{:08x}) >> 31);\n"
)
PORT = "    sume_metadata.dst_port = (x | (8w0x{:02x} & y));\n"


def test_a_program_shunts_by_one_threshold_to_one_port() -> None:
    two, three, four = SHUNTED.format(2), SHUNTED.format(3), PORT.format(4)
    assert shunting_of("", None) is None
    assert shunting_of(three, None) == 3
    assert shunting_of(three + four, 4) == 3
    assert shunting_of(four, 4) is None
    for source, port in (
        (two + three, None), (three + three, None), (three, 4), (three + four, None),
        (three + four, 5), (three + four + four, 4), (two + three + four, 4),
    ):  # fmt: skip
        with pytest.raises(VerifyError, match=rf"the export's port {port} are expected"):
            shunting_of(source, port)


def test_a_program_writes_the_models_number_twice() -> None:
    header, message = "hdr.n3ic.model = 32w0x{:08x};", "digest_data.model = 32w0x{:08x};"
    assert model_numbers(header.format(17) + message.format(18)) == [17, 18]
    for source, count in (
        ("", 0), (header.format(1), 1), (message.format(1), 1),
        (header.format(1) * 2 + message.format(1), 3),
    ):  # fmt: skip
        with pytest.raises(VerifyError, match=f"number is written {count} times, not twice"):
            model_numbers(source)


# --- entries, one by one --------------------------------------------------------------------------


@pytest.fixture(scope="module", name="masked")
def masked_fixture(tmp_path_factory) -> tuple[BinaryModel, Path]:
    """A network with masks and a threshold, whose shunted packets have a port of their own."""
    model, out = drawn((9, 3, 2), density=0.5).with_shunt(2), tmp_path_factory.mktemp("masked")
    P4.write(model, P4.parse_options({"shunt-port": "8"}), out)
    return model, out


Entries = list[DecodedEntry]


def changed(table: str, /, **fields: Any) -> Callable[[Entries], Entries]:
    """The last entry of a table with other fields."""

    def change(entries: Entries) -> Entries:
        at = max(i for i, entry in enumerate(entries) if entry.table == table)
        return [*entries[:at], replace(entries[at], **fields), *entries[at + 1 :]]

    return change


def twice(table: str) -> Callable[[Entries], Entries]:
    def change(entries: Entries) -> Entries:
        at = next(i for i, entry in enumerate(entries[2:-2], 2) if entry.table == table)
        return [*entries[:at], entries[at], *entries[at:]]

    return change


def without(table: str) -> Callable[[Entries], Entries]:
    return lambda entries: [
        *entries[:2],
        *(e for e in entries[2:-2] if e.table != table),
        *entries[-2:],
    ]


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        (lambda entries: entries, ""),
        (lambda entries: [entries[1], entries[0], *entries[2:-2], entries[-1], entries[-2]], ""),
        (lambda entries: [], "go to port None"),
        (lambda entries: entries[:1], "go to port None"),
        (lambda entries: entries[:2], "no such entry|go to port None"),
        (lambda entries: [entries[0], entries[0], *entries[2:]], "does not begin by clearing"),
        (
            lambda entries: [replace(entries[0], data=(1,)), *entries[1:]],
            "does not begin by clearing",
        ),
        (lambda entries: [*entries[:-1], entries[-2]], "does not end with the model's number"),
        (changed("model", data=()), "does not end with the model's number"),
        (changed("model", data=(1, 2)), "does not end with the model's number"),
        (changed("model_again", data=()), "does not end with the model's number"),
        (changed("model_again", data=(1, 2)), "does not end with the model's number"),
        (
            changed("model", action="set_model_lanes_9_3m_2m"),
            "does not end with the model's number",
        ),
        (changed("model", data=(7,)), "model"),
        (changed("model_again", data=(7,)), "model"),
        (changed("shunting", action="shunt_to"), "no such entry: shunting with shunt_to"),
        (changed("shunting", data=()), "no such entry: shunting"),
        (changed("shunting", data=(2, 2)), "no such entry: shunting"),
        (changed("shunting", data=(3,)), "shunts margins below 3"),
        (twice("shunting"), "shunting is set twice"),
        (without("shunting"), "does not end with the model's number for lanes_9_3m_2m$"),
        (changed("shunt_port", data=(9,)), "go to port 9, the export's is 8"),
        (changed("shunt_port", data=(8, 8)), "no such entry: shunt_port"),
        (without("shunt_port"), "go to port None, the export's is 8"),
        (changed("l0_weights0", table="l0_weight"), "no such entry: l0_weight"),
        (changed("l0_weights0", action="l0_xnor1"), "no such entry: l0_weights0"),
        (changed("l0_weights0", action="l1_xnor0"), "no such entry: l0_weights0"),
        (changed("l0_weights0", action="l0_set_weights0"), "no such entry: l0_weights0"),
        (changed("l0_thresholds", action="l0_set_biases"), "no such entry: l0_thresholds"),
        (changed("l0_weights0", data=()), "l0_weights0 has 0 values, not 2"),
        (changed("l0_weights0", data=(1, 2, 3)), "l0_weights0 has 3 values, not 2"),
        (changed("l0_weights0", data=(1,)), "l0_weights0 has 1 values, not 2"),
        (changed("l0_thresholds", data=()), "l0_thresholds has 0 values, not 3"),
        (changed("l0_thresholds", data=(1, 2)), "l0_thresholds has 2 values, not 3"),
        (changed("l1_biases", data=(1, 2, 3)), "l1_biases has 3 values, not 2"),
        (
            changed("l0_thresholds", table="l0_biases", action="l0_set_biases"),
            "l0_thresholds is missing",
        ),
        (
            changed("l1_biases", table="l1_thresholds", action="l1_set_thresholds"),
            "l1_biases is missing",
        ),
        (changed("l0_weights0", table="l0_weights1", action="l0_xnor1"), "l0_weights0 is missing"),
        (changed("l0_weights0", data=(1 << 48, 0)), "l0_weights0 has a value wider than 48 bits"),
        (changed("l0_weights0", data=(-1, 0)), "l0_weights0 has a value wider than 48 bits"),
        # Three lanes of 16 bits, of which nine are inputs.
        (changed("l0_weights0", data=(0xFE00FE00FC00, 0)), "counts a bit that is no input"),
        (changed("l0_weights0", data=((1 << 48) - 1, 1 << 9)), "counts a bit that is no input"),
        (twice("l0_weights0"), "l0_weights0 is set twice"),
        (twice("l0_thresholds"), "l0_thresholds is set twice"),
        (twice("l1_biases"), "l1_biases is set twice"),
        (changed("l0_thresholds", data=(1, 1 << 32, 1)), "limit .* wider than 32 bits"),
        (changed("l1_biases", data=(1 << 32, 0)), "limit .* wider than 32 bits"),
        (changed("l1_biases", data=(0, -1)), "limit .* wider than 32 bits"),
        (without("l0_weights0"), "l0_weights0 is missing"),
        (without("l1_biases"), "l1_biases is missing"),
        (
            lambda entries: [
                *entries[:2],
                replace(entries[3], table="l0_weights1", action="l0_xnor1"),
                *entries[2:],
            ],
            "the network has no l0_weights1",
        ),
    ],
)
def test_entries_are_those_of_the_network(masked, change, wrong) -> None:
    model, out = masked
    entries = from_tutorial((out / "runtime.json").read_text(), "runtime.json")
    try:
        message = decoding_difference(model, decode_entries("file", change(entries), model, 8))
    except VerifyError as error:
        message = str(error)
    assert re.search(wrong, message) and bool(wrong) == bool(message), message


def test_packets_are_shunted_where_the_export_says(masked) -> None:
    model, out = masked
    entries = from_tutorial((out / "runtime.json").read_text(), "runtime.json")
    with pytest.raises(VerifyError, match="go to port 8, the export's is None"):
        decode_entries("file", entries, model)
    for short in ([], entries[:1], entries[:2], entries[:3]):
        with pytest.raises(VerifyError, match=r"does not (begin by clearing|end with) the model's"):
            decode_entries("file", short, model)
    assert decode_entries("file", without("shunt_port")(entries), model).shunt == 2


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("(threshold0=", "(bias0="),
        ("p4.l0_thresholds.set_default_with_l0_set", "p4.l0_threshold.set_default_with_l0_set"),
        ("p4.l0_thresholds.set_default", "p4.l0_thresholds.add"),
        ("p4.shunting.set_default_with_shunt_below(", "p4.shunting.clear() # ("),
        ("p4.l0_thresholds.set_default_with_l0_set", "p4.l0_thresholds.set_default_with_no_set"),
    ],
)
def test_a_call_of_another_table_action_or_parameter_is_refused(masked, old, new) -> None:
    model, out = masked
    source = (out / "n3ic.p4").read_text()
    text = (out / "bfrt.py").read_text()
    assert text.count(old) == 1
    line = text[: text.index(old)].count("\n") + 1
    with pytest.raises(VerifyError, match=rf"^bfrt\.py, line {line}: "):
        from_bfrt(text.replace(old, new), "bfrt.py", compile_switch(source, model))


def test_calls_begin_with_the_program_and_end_with_their_completion(masked) -> None:
    model, out = masked
    program = compile_switch((out / "n3ic.p4").read_text(), model)
    text = (out / "bfrt.py").read_text()
    end = "bfrt.complete_operations()\n"
    assert text.startswith(PIPE) and text.endswith(end)
    entries = from_bfrt(text, "bfrt.py", program)
    assert entries == from_commands((out / "commands.txt").read_text(), "commands.txt", program)
    for other in (
        text.removeprefix(PIPE), text[1:], text.replace("n3ic.pipe", "n4ic.pipe"),
        text.removesuffix(end), text[:-1], text + "\n", text + end,
    ):  # fmt: skip
        with pytest.raises(VerifyError, match=r"^bfrt\.py(: does not begin|, line)"):
            from_bfrt(other, "bfrt.py", program)


ENTRY = 3  # the first layer's weights and masks


@pytest.mark.parametrize(
    ("parameters", "wrong"),
    [
        ({"mask0": 1, "weights0": 2}, "has the parameters"),
        ({"weights0": 1, "masks0": 2}, "has the parameters"),
        ({"weights0": 1, "mask0": 2, "more0": 3}, "has the parameters"),
        ({"weights0": 1, "mask1": 2}, "has the parameters"),
        ({"weights1": 1, "weights0": 2}, "has the parameters"),
        ({"weights0": 1, "mask0": True}, "has a value that is not an integer"),
        ({"weights0": "1", "mask0": 2}, "has a value that is not an integer"),
        ({"weights0": 1.0, "mask0": 2}, "has a value that is not an integer"),
        ({"weights0": None, "mask0": None}, "has a value that is not an integer"),
    ],
    ids=str,
)
def test_parameters_have_their_names_and_are_integers(masked, parameters, wrong) -> None:
    data = json.loads((masked[1] / "runtime.json").read_text())
    data["table_entries"][ENTRY]["action_params"] = parameters
    with pytest.raises(VerifyError, match=f"^file: l0_weights0 {wrong}"):
        from_tutorial(json.dumps(data), "file")


@pytest.mark.parametrize("table", ["model", "shunting", "shunt_port"])
def test_a_parameter_of_a_single_entry_has_its_name(masked, table) -> None:
    data = json.loads((masked[1] / "runtime.json").read_text())
    entry = [each for each in data["table_entries"] if each["table"] == table][-1]
    entry["action_params"] = {"number": 1}
    with pytest.raises(VerifyError, match=f"^file: {table} has the parameters"):
        from_tutorial(json.dumps(data), "file")


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"target": "tofino"}, "target or files are not those of this export"),
        ({"p4info": "other"}, "target or files are not those of this export"),
        ({"more": 1}, "target or files are not those of this export"),
    ],
    ids=str,
)
def test_a_runtime_file_is_for_this_export(masked, change, wrong) -> None:
    data = json.loads((masked[1] / "runtime.json").read_text()) | change
    with pytest.raises(VerifyError, match=wrong):
        from_tutorial(json.dumps(data), "file")


def parameters_of(update: Any) -> Any:
    return update["entity"]["tableEntry"]["action"]["action"]["params"]


def numbered(update: Any, table: int, action: int) -> None:
    entry = update["entity"]["tableEntry"]
    entry["tableId"] += table
    entry["action"]["action"]["actionId"] += action


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        (lambda u: u.update(type="INSERT"), "sets neither a default action nor one entry"),
        (lambda u: u.update(more=1), "sets neither a default action nor one entry"),
        (
            lambda u: u["entity"]["tableEntry"].update(isDefaultAction=False),
            "sets neither a default action nor one entry",
        ),
        (
            lambda u: u["entity"]["tableEntry"].update(match=[{"exact": {"value": "AQ=="}}]),
            "sets neither a default action nor one entry",
        ),
        (lambda u: numbered(u, 1000, 0), "n3ic.p4 has no table"),
        (lambda u: numbered(u, 0, 1000), "n3ic.p4 has no table"),
        (lambda u: parameters_of(u).reverse(), "has parameters out of order"),
        (lambda u: parameters_of(u).pop(0), "has parameters out of order"),
        (lambda u: parameters_of(u)[1].update(paramId=3), "has parameters out of order"),
        (lambda u: parameters_of(u)[1].update(more=3), "has parameters out of order"),
        (lambda u: parameters_of(u)[1].update(value="mg="), "a value is not base64"),
        (lambda u: parameters_of(u)[1].update(value="m g=="), "a value is not canonical base64"),
        (lambda u: parameters_of(u)[1].update(value="mh=="), "a value is not canonical base64"),
        (lambda u: parameters_of(u)[1].update(value=7), "not P4Runtime requests"),
    ],
)
def test_an_update_sets_one_default_action(masked, change, wrong) -> None:
    model, out = masked
    path = out / "p4runtime.json"
    plain = path.read_text()
    requests = json.loads(plain)
    change(requests[1]["updates"][ENTRY - 2])
    path.write_text(json.dumps(requests))
    try:
        with pytest.raises(VerifyError, match=wrong):
            P4.decode(out, model, P4.parse_options({"shunt-port": "8"}))
    finally:
        path.write_text(plain)


@pytest.mark.parametrize(
    ("inputs", "outputs", "field"),
    [
        (2048, 16, (16 * 128, 6)),  # as wide as 16 lanes of a field allow
        (1000, 3, (3 * 512, 8)),
        (256, 32, (32 * 64, 5)),  # at least 64 bits
        (100, 40, (20 * 64, 5)),  # in two fields
    ],
)
def test_neurons_share_a_field_of_2048_bits(inputs: int, outputs: int, field) -> None:
    assert popcount_field(inputs, outputs) == field
