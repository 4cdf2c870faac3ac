# SPDX-License-Identifier: Apache-2.0
"""Both P4 targets against the reference: random networks, damage, packets, formats."""

import base64
import contextlib
import json
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from n3ic.errors import ExportError, N3icWarning, UsageError, VerifyError
from n3ic.exporters.p4.exporter import EXPORTER as P4
from n3ic.exporters.p4.interpreter import P4Error, Switch
from n3ic.exporters.p4.interpreter.tables import RuntimeTable
from n3ic.exporters.p4.run.execute import LoadedProgram
from n3ic.exporters.p4.shared.options import packet_layout
from n3ic.exporters.p4.waiting import waiting_tables
from n3ic.exporters.p4_netfpga.exporter import EXPORTER as NETFPGA
from n3ic.model.bits import Words
from n3ic.model.difference import first_difference
from n3ic.model.inputs import InputSpec
from n3ic.model.layers import HiddenLayer, OutputLayer
from n3ic.model.network import BinaryModel, Inference
from n3ic.model.random_models import random_model
from n3ic.model.verification_vectors import verification_vectors
from n3ic.targets.base import Exporter
from n3ic.targets.directory import export
from n3ic.targets.packets import FIELD_BITS, PacketResult
from n3ic.targets.verification import verify_directory

BOTH = pytest.mark.parametrize("target", [P4, NETFPGA], ids=lambda t: t.name)


def write(target: Exporter, model: BinaryModel, out: Path, **given: str) -> dict[str, object]:
    options = target.parse_options({k.replace("_", "-"): v for k, v in given.items()}, verify=True)
    out.mkdir(parents=True, exist_ok=True)
    target.write(model, options, out)
    return dict(options)


def difference(target: Exporter, model: BinaryModel, out: Path, options, count: int = 40) -> str:
    words = verification_vectors(model, count)
    difference_at = first_difference(model, target.run(out, model, options, words).inference, words)
    return "" if difference_at is None else str(difference_at)


def small(shape=(20, 5, 3), seed=3, density=None) -> BinaryModel:
    return random_model(shape, np.random.default_rng(seed), density=density)


shapes = st.lists(st.integers(1, 40), min_size=1, max_size=3).flatmap(
    lambda body: st.integers(2, 5).map(lambda classes: (*body, classes))
)


@pytest.mark.slow
@BOTH
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    shape=shapes,
    seed=st.integers(0, 2**32 - 1),
    density=st.sampled_from([None, 0.0, 0.5]),
    output=st.sampled_from(["class", "scores", "both"]),
)
def test_random_networks_give_the_reference_scores(
    target, tmp_path_factory, shape, seed, density, output
) -> None:
    model = random_model(shape, np.random.default_rng(seed), density=density)
    out = tmp_path_factory.mktemp("out")
    options = write(target, model, out, output=output)
    assert difference(target, model, out, options) == ""


@BOTH
def test_the_papers_shape_gives_the_reference_scores(target: Exporter, tmp_path: Path) -> None:
    model = small((256, 32, 16, 2))
    options = write(target, model, tmp_path)
    assert difference(target, model, tmp_path, options, 150) == ""


@pytest.mark.first_case
@BOTH
@pytest.mark.parametrize("field", FIELD_BITS)
def test_inputs_from_header_fields(target: Exporter, tmp_path: Path, field: str) -> None:
    for bits in (33, 64):
        model = small((bits, 4, 2))
        options = write(target, model, tmp_path, input="field", field=field)
        assert difference(target, model, tmp_path, options) == ""


@BOTH
def test_bits_of_the_field_that_the_network_does_not_read_do_not_count(target, tmp_path) -> None:
    model = small((33, 4, 2))
    options = write(target, model, tmp_path, input="field", field="ipv6.dst")
    read = "(bit<33>) hdr.ipv6.dst_addr"
    change(tmp_path / "n3ic.p4", read, f"({read}) | (bit<33>) (hdr.ipv6.dst_addr >> 64)")
    assert "layer 0" in difference(target, model, tmp_path, options)


@pytest.mark.first_case
@BOTH
@pytest.mark.parametrize(
    "given",
    [
        {"input": "field", "field": "ipv6.dst", "output": "class", "ethertype": "0x1234"},
        {"input": "field", "field": "udp.payload", "udp-port": "77", "output": "scores"},
    ],
)
def test_verify_runs_the_options_of_the_export(target: Exporter, tmp_path: Path, given) -> None:
    model = small((33, 4, 2))
    export(model, target.name, tmp_path / "out", options=given)
    result = verify_directory(tmp_path / "out", vectors=40)
    assert result.ok, str(result)
    assert result.decoded == (
        ("commands.txt", "p4runtime.json", "p4runtime-1.txtpb", "bfrt.py", "runtime.json")
        if target is P4
        else ("n3ic.p4",)
    )


def test_every_tie_and_margin_is_the_reference_s(tmp_path: Path) -> None:
    # Scores are the biases plus one bit each: all orders of four classes, ties included.
    rng = np.random.default_rng(0)
    biases = [tuple(b) for b in np.ndindex(3, 3, 3, 3)]
    extreme = (1 << 24) - 1
    biases += [(-extreme, extreme, -extreme, extreme), (extreme, 0, 0, extreme), (-extreme,) * 4]
    weights = rng.random((4, 1)) < 0.5
    output = OutputLayer(weights, bias=np.array(biases[0], dtype=np.int32))
    model = BinaryModel(InputSpec.raw(1), (), output, tuple("abcd"))
    options = write(P4, model, tmp_path)
    program = LoadedProgram(
        (tmp_path / "n3ic.p4").read_text(),
        (tmp_path / "commands.txt").read_text(),
        packet_layout(model, options),
        (),
    )
    running = program.switch()
    words = np.array([[0], [1]], dtype=np.uint32)
    for bias in biases:
        other = OutputLayer(weights, bias=np.array(bias, dtype=np.int32))
        changed = BinaryModel(InputSpec.raw(1), (), other, tuple("abcd"))
        numbers = " ".join(f"{b % (1 << 32):#x}" for b in bias)
        running.load(f"table_set_default l0_biases l0_set_biases {numbers}")
        trace = changed.infer(words)
        for row, request in enumerate(program.requests(words)):
            result = program.packets.result(running.process(request, 1).packet)
            assert result.scores is not None
            assert result.scores.tolist() == trace.scores[row].tolist()
            assert (result.class_id, result.margin) == (trace.classes[row], trace.margins[row])


def test_weights_change_while_the_switch_runs(tmp_path: Path) -> None:
    first, second = small(seed=1), small(seed=2)
    options = write(P4, first, tmp_path / "first")
    write(P4, second, tmp_path / "second")
    # The program is the shape, the masked layers and the options; the entries are the network.
    source = (tmp_path / "first" / "n3ic.p4").read_text()
    assert source == (tmp_path / "second" / "n3ic.p4").read_text()
    packets = packet_layout(first, options)
    program = LoadedProgram(
        source, (tmp_path / "first" / "commands.txt").read_text(), packets, (5,)
    )
    running = program.switch()
    words = verification_vectors(first, 30)
    for model, name in ((first, "first"), (second, "second")):
        running.load((tmp_path / name / "commands.txt").read_text())
        results = [packets.result(running.process(r, 1).packet) for r in program.requests(words)]
        assert [r.class_id for r in results] == model.infer(words).classes.tolist()
        assert {f"{r.model:08x}" for r in results} == {model.digest[:8]}


def answers_of(running: Switch, program: LoadedProgram, words: Words) -> list[PacketResult]:
    return [
        program.packets.result(running.process(request, 1).packet)
        for request in program.requests(words)
    ]


def assert_honest(result: PacketResult, row: int, known: dict[int, Inference]) -> None:
    """An answer that names a model has that model's scores."""
    if result.model:
        assert result.scores is not None
        assert result.scores.tolist() == known[result.model].scores[row].tolist()
        assert result.class_id == known[result.model].classes[row]


def loaded(out: Path, model: BinaryModel, options: dict[str, object]) -> LoadedProgram:
    return P4.program(out, model, options)


@pytest.fixture
def pair(tmp_path: Path) -> tuple[LoadedProgram, list[str], Words, dict[int, Inference]]:
    """The program with its first network, a second network's entries, inputs, all scores."""
    models = [small((12, 3, 2), seed) for seed in (1, 2)]
    for model, name in zip(models, ("first", "second"), strict=True):
        options = write(P4, model, tmp_path / name)
    words = verification_vectors(models[0], 12)
    known = {int(model.digest[:8], 16): model.infer(words) for model in models}
    entries = (tmp_path / "second" / "commands.txt").read_text().splitlines()
    return loaded(tmp_path / "first", models[0], options), entries, words, known


def test_between_any_two_entries_of_a_reload_answers_name_the_model_or_none(pair) -> None:
    program, entries, words, known = pair
    running = program.switch()
    models = []
    for entry in ["", *entries]:
        running.load(entry)
        results = answers_of(running, program, words)
        for row, result in enumerate(results):
            assert_honest(result, row, known)
        models.append({result.model for result in results})
    old, new = known
    assert models == [{old}, *[{0}] * (len(entries) - 1), {new}]


def test_a_reload_while_a_packet_is_under_way_names_no_wrong_model(pair, monkeypatch) -> None:
    program, entries, words, known = pair
    rng = np.random.default_rng(0)
    schedule: list[str] = []  # entries to load; an empty one lets the packet on to its next table
    plain = RuntimeTable.apply

    def apply(table: RuntimeTable, frame: list) -> None:
        while schedule and (entry := schedule.pop(0)):
            running.load(entry)
        plain(table, frame)

    monkeypatch.setattr(RuntimeTable, "apply", apply)
    named = dict.fromkeys((0, *known), 0)
    running = program.switch()
    for pause in np.tile([0.5, 5, 50], 20):  # mean number of tables between two entries
        schedule.clear()
        running.load(program.commands)
        for entry in entries:
            schedule += ["" for _ in range(rng.poisson(pause))] + [entry]
        for row, result in enumerate(answers_of(running, program, words)):
            assert_honest(result, row, known)
            named[result.model] += 1
    assert all(named.values()), named


@pytest.mark.parametrize(
    ("shape", "density"), [((12, 3, 2), 0.5), ((12, 3, 3, 2), None), ((13, 3, 2), None)]
)
def test_entries_of_another_program_leave_answers_without_a_model(
    tmp_path: Path, shape: tuple[int, ...], density: float | None
) -> None:
    model, other = small((12, 3, 2), 1), small(shape, 2, density)
    options = write(P4, model, tmp_path / "right")
    write(P4, other, tmp_path / "wrong")
    assert (tmp_path / "right" / "n3ic.p4").read_text() != (
        tmp_path / "wrong" / "n3ic.p4"
    ).read_text()
    program = loaded(tmp_path / "right", model, options)
    running = program.switch()
    for entry in (tmp_path / "wrong" / "commands.txt").read_text().splitlines():
        with contextlib.suppress(P4Error):  # simple_switch_CLI goes on after what is refused
            running.load(entry)
    words = verification_vectors(model, 5)
    assert {result.model for result in answers_of(running, program, words)} == {0}
    # By number, too: P4Runtime knows no names.
    ids = [
        {
            update["entity"]["tableEntry"]["action"]["action"]["actionId"]
            for update in json.loads((tmp_path / name / "p4runtime.json").read_text())[2]["updates"]
        }
        for name in ("right", "wrong")
    ]
    assert not ids[0] & ids[1]


def test_a_switch_without_entries_says_so(tmp_path: Path) -> None:
    model = small()
    options = write(P4, model, tmp_path)
    (tmp_path / "commands.txt").write_text("")
    with pytest.raises(VerifyError, match="vector 0: the result's model is 0"):
        P4.run(tmp_path, model, options, verification_vectors(model, 3))


# --- damage ----------------------------------------------------------------------------------


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) == 1, (old, text.count(old))
    path.write_text(text.replace(old, new))


def line_of(path: Path, start: str) -> str:
    return next(line for line in path.read_text().splitlines() if line.strip().startswith(start))


def plain_model() -> BinaryModel:
    rng = np.random.default_rng(5)
    hidden = HiddenLayer(rng.random((4, 20)) < 0.5, thresholds=np.full(4, 10, dtype=np.int32))
    weights = rng.random((3, 4)) < 0.5
    weights[2] = weights[0]  # the first and the last class always tie
    output = OutputLayer(weights, bias=np.zeros(3, dtype=np.int32))
    return BinaryModel(InputSpec.raw(20), (hidden,), output, ("a", "b", "c"))


def test_one_weight_bit_of_an_entry_is_named(tmp_path: Path) -> None:
    model = plain_model()
    options = write(P4, model, tmp_path)
    commands = tmp_path / "commands.txt"
    line = line_of(commands, "table_set_default l0_weights0")
    words = line.split()
    words[-1] = f"{int(words[-1], 16) ^ (1 << (2 * 32 + 7)):#x}"  # a lane of 32 bits a neuron
    change(commands, line, " ".join(words))
    text = difference(P4, model, tmp_path, options, 400)
    assert "layer 0" in text
    assert "neuron 2" in text


def test_a_changed_export_is_told_with_file_and_place(tmp_path: Path) -> None:
    model = plain_model()
    exported = export(model, "p4", tmp_path / "out")
    assert exported.verification is not None
    assert exported.verification.ok
    assert verify_directory(tmp_path / "out", vectors=50).ok
    commands = tmp_path / "out" / "commands.txt"
    line = line_of(commands, "table_set_default l0_thresholds")
    change(commands, line, line.replace("0x0a", "0x0c", 1))
    with pytest.warns(N3icWarning, match="your rights"):
        failures = verify_directory(tmp_path / "out", vectors=50, run_changed=True).failures
    assert any("commands.txt is not what n3ic writes" in f for f in failures)
    assert any("layer 0" in f and "neuron 0" in f for f in failures)


def test_one_weight_bit_of_a_program_is_named(tmp_path: Path) -> None:
    model = plain_model()
    options = write(NETFPGA, model, tmp_path)
    program = tmp_path / "n3ic.p4"
    line = line_of(program, "user_metadata.l0_v3 = ~")
    weights = line.split("20w")[1].split(")")[0]
    change(program, line, line.replace(weights, f"{int(weights, 16) ^ 1:#x}"))
    text = difference(NETFPGA, model, tmp_path, options, 400)
    assert "layer 0" in text
    assert "neuron 3" in text


def test_one_threshold_is_named(tmp_path: Path) -> None:
    model = plain_model()
    options = write(P4, model, tmp_path / "p4")
    commands = tmp_path / "p4" / "commands.txt"
    line = line_of(commands, "table_set_default l0_thresholds")
    change(commands, line, line.replace("0x0a 0x0a ", "0x0a 0x0b ", 1))
    text = difference(P4, model, tmp_path / "p4", options)
    assert "layer 0" in text
    assert "neuron 1" in text
    options = write(NETFPGA, model, tmp_path / "sume")
    program = tmp_path / "sume" / "n3ic.p4"
    line = line_of(program, "user_metadata.l0_f1 = ((bit<4>)")
    change(program, line, line.replace("w10)", "w9)"))
    text = difference(NETFPGA, model, tmp_path / "sume", options)
    assert "layer 0" in text
    assert "neuron 1" in text


@BOTH
def test_one_bias_is_named(target: Exporter, tmp_path: Path) -> None:
    model = plain_model()
    options = write(target, model, tmp_path)
    if target is P4:
        line = line_of(tmp_path / "commands.txt", "table_set_default l1_biases")
        other = line.replace("0x00000000 0x00000000 ", "0x00000000 0x00000001 ", 1)
        change(tmp_path / "commands.txt", line, other)
    else:
        line = line_of(tmp_path / "n3ic.p4", "user_metadata.score1 =")
        change(tmp_path / "n3ic.p4", line, line.replace("0x00000000", "0x00000001"))
    text = difference(target, model, tmp_path, options)
    assert "score" in text
    assert "vector" in text


@BOTH
def test_another_bit_order_is_found(target: Exporter, tmp_path: Path) -> None:
    model = plain_model()
    options = write(target, model, tmp_path)
    meta = "meta" if target is P4 else "user_metadata"
    change(
        tmp_path / "n3ic.p4",
        f"{meta}.x = hdr.query.x;",
        f"{meta}.x = (hdr.query.x << 10) | (hdr.query.x >> 10);",
    )
    assert "layer 0" in difference(target, model, tmp_path, options)


@BOTH
def test_another_tie_rule_is_found(target: Exporter, tmp_path: Path) -> None:
    model = plain_model()
    options = write(target, model, tmp_path)
    meta = "meta" if target is P4 else "user_metadata"
    # best - score - 1 is negative at a tie, too: the highest index would win.
    change(
        tmp_path / "n3ic.p4",
        f"(({meta}.best - {meta}.score2) >> 31)",
        f"((({meta}.best - {meta}.score2) - 1) >> 31)",
    )
    text = difference(target, model, tmp_path, options, 200)
    assert "class" in text


def test_a_wrong_popcount_mask_is_found(tmp_path: Path) -> None:
    model = plain_model()
    options = write(P4, model, tmp_path)
    mask = "L0_MASK3 = 128w0x" + "0f" * 15  # four lanes of 32 bits
    change(tmp_path / "n3ic.p4", f"{mask}0f;", f"{mask}0e;")
    assert "layer 0" in difference(P4, model, tmp_path, options)


def test_a_missing_or_cut_program_is_one_clear_error(tmp_path: Path) -> None:
    model = plain_model()
    options = write(P4, model, tmp_path)
    words = verification_vectors(model, 3)
    program = tmp_path / "n3ic.p4"
    program.write_text(program.read_text()[:4000])
    with pytest.raises(VerifyError, match="syntax error"):
        P4.run(tmp_path, model, options, words)
    program.unlink()
    with pytest.raises(VerifyError, match=r"cannot read n3ic\.p4"):
        P4.run(tmp_path, model, options, words)


# --- packets ---------------------------------------------------------------------------------


@pytest.mark.first_case
@BOTH
@pytest.mark.parametrize("field", ["", *FIELD_BITS])
def test_other_and_short_packets_go_through_untouched(target, tmp_path: Path, field: str) -> None:
    model = small((40, 3, 2))
    given = {"input": "field", "field": field} if field else {}
    options = write(target, model, tmp_path, **given)
    commands = (tmp_path / "commands.txt").read_text() if target is P4 else ""
    packets = packet_layout(model, options)
    program = LoadedProgram((tmp_path / "n3ic.p4").read_text(), commands, packets, (3,))
    running = program.switch()
    request = packets.request(0x123456789A)
    crossed = 0 if target is P4 else 2
    for size in range(len(request)):
        outcome = running.process(request[:size], 1)
        assert (outcome.port, outcome.packet) == (crossed, request[:size])
    for ethertype in ("0806", "0800", "86dd", "8100", "2323"):
        if field and ethertype == ("86dd" if field.startswith("ipv6") else "0800"):
            continue
        if not field and ethertype == "2323":
            continue
        packet = request[:12] + bytes.fromhex(ethertype) + request[14:] + b"more"
        assert running.process(packet, 1).packet == packet
    assert running.process(request, 1).packet != request


def test_udp_that_is_not_for_the_network_goes_through(tmp_path: Path) -> None:
    model = small((40, 3, 2))
    options = write(P4, model, tmp_path, input="field", field="udp.payload", udp_port="5000")
    packets = packet_layout(model, options)
    commands = (tmp_path / "commands.txt").read_text()
    running = LoadedProgram((tmp_path / "n3ic.p4").read_text(), commands, packets, (3,)).switch()
    request = bytearray(packets.request(5))
    assert request[36:38] == (5000).to_bytes(2, "big")
    assert running.process(bytes(request), 1).packet != bytes(request)
    for at, value in ((36, 0), (23, 6), (14, 0x46), (21, 1)):  # port, TCP, options, fragment
        other = bytearray(request)
        other[at] = value
        assert running.process(bytes(other), 1).packet == bytes(other)


def test_packets_are_forwarded(tmp_path: Path) -> None:
    model = small()
    options = write(P4, model, tmp_path)
    commands = (tmp_path / "commands.txt").read_text()
    packets = packet_layout(model, options)
    running = LoadedProgram((tmp_path / "n3ic.p4").read_text(), commands, packets, (5,)).switch()
    packet = packets.request(1)
    assert [running.process(packet, port).port for port in (0, 1, 2, 3)] == [1, 0, 3, 2]
    running.load("table_add forward to_port 02:00:00:00:00:01 => 7")
    assert running.process(packet, 0).port == 7
    running.load("table_add forward drop_packet 02:00:00:00:00:09 =>")
    assert running.process(bytes.fromhex("020000000009") + packet[6:], 0).port is None


# --- artefacts -------------------------------------------------------------------------------


def test_the_source_grows_linearly_with_the_weights(tmp_path: Path) -> None:
    sizes = {}
    for neurons in (16, 32, 64, 128):
        for target in (P4, NETFPGA):
            out = tmp_path / f"{target.name}{neurons}"
            write(target, small((64, neurons, 2)), out)
            sizes[target.name, neurons] = sum(f.stat().st_size for f in out.iterdir())
    for target in (P4, NETFPGA):
        steps = [(sizes[target.name, 2 * n] - sizes[target.name, n]) / n for n in (16, 32, 64)]
        assert max(steps) < 1.2 * min(steps), steps  # the same bytes a neuron at every size


def test_p4runtime_holds_the_same_entries(tmp_path: Path) -> None:
    model = small(density=0.5)
    write(P4, model, tmp_path)
    commands = [c.split() for c in (tmp_path / "commands.txt").read_text().splitlines()]
    requests = json.loads((tmp_path / "p4runtime.json").read_text())
    # A server may reorder the updates of one request: what needs an order is in three of them.
    updates = [update for request in requests for update in request["updates"]]
    assert [len(request["updates"]) for request in requests] == [2, len(updates) - 4, 2]
    tutorial = json.loads((tmp_path / "runtime.json").read_text())["table_entries"]
    source = (tmp_path / "n3ic.p4").read_text()
    assert len(updates) == len(tutorial) == len(commands)
    for update, named, (_, table, action, *data) in zip(updates, tutorial, commands, strict=True):
        entry = update["entity"]["tableEntry"]
        chosen = entry["action"]["action"]
        assert update["type"] == "MODIFY"
        assert entry["isDefaultAction"] is True
        assert f'@name(".{table}") @id({entry["tableId"]:#010x})' in source
        assert f'@name(".{action}") @id({chosen["actionId"]:#010x})' in source
        values = [base64.b64decode(p["value"], validate=True) for p in chosen["params"]]
        assert [int.from_bytes(v, "big") for v in values] == [int(d, 16) for d in data]
        assert all(len(v) == 1 or v[0] for v in values)  # the canonical, shortest form
        assert [p["paramId"] for p in chosen["params"]] == list(range(1, len(data) + 1))
        assert (named["table"], named["action_name"]) == (table, action)
        assert list(named["action_params"].values()) == [int(d, 16) for d in data]
        assert all(isinstance(v, int) for v in named["action_params"].values())
    ids = [u["entity"]["tableEntry"]["tableId"] for u in updates]
    assert len(set(ids)) == len(ids) - 2  # those of the model are cleared and set
    assert {i >> 24 for i in ids} == {2}


HOSTILE = ('*/ #include "/etc/passwd"', "a|b`c ## d", "${x} {{ 7*7 }} %{", "naïve ☃ */")


@BOTH
def test_hostile_names_stay_out_of_the_code(target: Exporter, tmp_path: Path) -> None:
    plain = plain_model()
    output = OutputLayer(
        np.tile(plain.output.weights[:1], (4, 1)), bias=np.zeros(4, dtype=np.int32)
    )
    hostile = BinaryModel(plain.input, plain.hidden, output, HOSTILE, name=HOSTILE[0])
    options = write(target, hostile, tmp_path / "hostile")
    friendly = BinaryModel(plain.input, plain.hidden, output, tuple("abcd"), name="m")
    write(target, friendly, tmp_path / "friendly")

    def body(name: str) -> list[str]:
        text = (tmp_path / name / "n3ic.p4").read_text()
        # The model's digest differs, as it holds the names.
        return [line for line in text.splitlines() if "model" not in line]

    assert body("hostile") == body("friendly")
    readme = (tmp_path / "hostile" / "README.md").read_text()
    rows = [line for line in readme.splitlines() if line.startswith("| ") and line[2].isdigit()]
    assert len(rows) == 4
    assert all(row.count("|") == 3 for row in rows)
    assert difference(target, hostile, tmp_path / "hostile", options) == ""


@BOTH
def test_the_same_model_gives_the_same_bytes(target: Exporter, tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(target, small(), tmp_path / name)
    for file in (tmp_path / "a").iterdir():
        assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes()


# --- limits and reports ------------------------------------------------------------------------


def fit(target: Exporter, shape: tuple[int, ...], **given: str):
    options = target.parse_options(given)
    return target.check(small(shape), options)


def test_bmv2_refuses_what_p4c_cannot_take() -> None:
    assert fit(P4, (256, 32, 16, 2)).ok
    assert fit(P4, (256, 256, 256, 10)).ok
    wide = fit(P4, (4096, 16, 2)).problems
    assert "layer 0 needs a field of 4096 bits, p4c allows 2048" in str(wide[0])
    assert wide[0].nearest == "2048-16-2"
    large = fit(P4, (1024, 1024, 2)).problems
    assert "popcount statements" in str(large[0])
    assert fit(P4, tuple(int(n) for n in large[0].nearest.split("-"))).ok


def test_netfpga_refuses_128_neurons_as_the_paper_found() -> None:
    assert fit(NETFPGA, (256, 32, 16, 2)).ok
    assert fit(NETFPGA, (256, 64, 2)).ok
    problems = fit(NETFPGA, (152, 128, 64, 2)).problems
    assert len(problems) == 1
    assert "layer 0 has 128 neurons" in str(problems[0])
    assert problems[0].layer == 0
    assert problems[0].nearest == "152-64-64-2"
    assert fit(NETFPGA, (152, 64, 64, 2)).ok
    many = fit(NETFPGA, (2048, 64, 64, 2)).problems
    assert "LUTs estimated, the device has 433,200" in str(many[0])
    assert fit(NETFPGA, tuple(int(n) for n in many[0].nearest.split("-"))).ok


def test_a_field_must_hold_the_input(tmp_path: Path) -> None:
    given = {"input": "field", "field": "ipv6.dst"}
    problems = fit(P4, (129, 4, 2), **given).problems
    assert "129 input bits do not fit the 128 bits of ipv6.dst" in str(problems[0])
    assert problems[0].nearest == "128-4-2"
    with pytest.raises(ExportError, match="do not fit the 128 bits"):
        write(P4, small((129, 4, 2)), tmp_path, **given)


@BOTH
def test_options_are_checked(target: Exporter) -> None:
    for name, value in (("ethertype", "0x100"), ("output", "all"), ("field", "x"), ("gone", "1")):
        with pytest.raises(UsageError, match=f"--{name}"):
            target.parse_options({name: value})
    with pytest.raises(UsageError, match="belongs to IP"):
        target.check(small(), target.parse_options({"ethertype": "0x800"}))


@BOTH
@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ({"field": "ipv6.dst"}, "--field applies only with --input field"),
        ({"udp-port": "5"}, "--udp-port applies only with --input field and --field udp.payload"),
        ({"input": "field", "udp-port": "5"}, "--field udp.payload"),
    ],
)
def test_options_that_do_not_apply_are_refused(target: Exporter, given, missing) -> None:
    with pytest.raises(UsageError, match=missing):
        target.parse_options(given)


def test_a_forced_export_still_runs(tmp_path: Path) -> None:
    model = small((2100, 2, 2))
    options = write(P4, model, tmp_path)
    assert not P4.check(model, options).ok
    assert difference(P4, model, tmp_path, options, 5) == ""
    assert P4.report(model, options, tmp_path).figures


@pytest.mark.parametrize(
    "shape", [(15_000, 2), pytest.param((3, 2049, 2), marks=pytest.mark.exhaustive)]
)
def test_no_number_is_wider_than_a_field_of_p4c(tmp_path: Path, shape: tuple[int, ...]) -> None:
    model = small(shape)
    options = write(P4, model, tmp_path)
    numbers = re.findall(r"0x([0-9a-f]+)", (tmp_path / "commands.txt").read_text())
    assert 4 * max(map(len, numbers)) <= 2048
    assert difference(P4, model, tmp_path, options, 3) == ""
    assert {each.digest for each in P4.decode(tmp_path, model, options)} == {model.digest}


@pytest.mark.parametrize("shape", [(2100, 1, 2), (600, 3, 2)])
def test_no_shift_is_wider_than_p4c_takes(tmp_path: Path, shape: tuple[int, ...]) -> None:
    """Where a word of counters is wider, bits are taken from it by slices."""
    model = small(shape)
    options = write(P4, model, tmp_path)
    text = (tmp_path / "n3ic.p4").read_text()
    assert max(int(amount) for amount in re.findall(r">> (\d+)", text)) <= 256
    assert re.search(r"meta\.x\[\d{3,}:\d{3,}\]", text)
    assert difference(P4, model, tmp_path, options, 3) == ""
    assert {each.digest for each in P4.decode(tmp_path, model, options)} == {model.digest}


@BOTH
def test_no_latency_is_below_a_clock(target: Exporter, tmp_path: Path) -> None:
    model = small((2, 2))
    options = write(target, model, tmp_path)
    figures = {f.name: f for f in target.report(model, options, tmp_path).figures}
    assert figures["latency"].value == 5
    assert "at least one clock of 5 ns" in figures["latency"].source


@BOTH
def test_reports_label_every_figure(target: Exporter, tmp_path: Path) -> None:
    model = small((256, 32, 16, 2))
    options = write(target, model, tmp_path)
    figures = {f.name: f for f in target.report(model, options, tmp_path).figures}
    assert figures["memory.weights"].value == 1092
    # On bmv2 the input passes in four parts of 64 bits, of which 32 lanes fill a field of p4c.
    assert figures["stages.popcount"].value == (8 + 5 + 4 if target is NETFPGA else 4 * 6 + 5 + 4)
    assert figures["phv"].value >= 32 * (256 if target is NETFPGA else 64)
    assert figures["latency"].value == pytest.approx(2000)
    assert figures["latency"].kind == "estimated"
    if target is NETFPGA:
        assert figures["resources.lut"].value == 144_500
        assert figures["resources.bram"].value == 518
    else:
        # Half of the 121 tables and 9,840 bits of a table and a copy of the input a neuron.
        assert figures["tables"].value == (4 * 7 + 2) + (6 + 2) + (5 + 1) + 8 == 52
        assert figures["phv"].value == 4128
        assert figures["table.entries"].value == (4 + 1) + 2 + 2 + 2
        assert figures["memory.thresholds"].value == 32 * 2 + 16
        assert figures["memory.biases"].value == 2 * 4
        # XNOR and popcounts of each part, the last counts and signs of a layer, arg max of two
        # classes, and what loads the input and writes the result.
        waiting = (4 * (1 + 5) + 2) + ((1 + 4) + 2) + ((1 + 3) + 1) + 3 + 2
        assert figures["tofino2.stages"].value == 100 * waiting / 20
        assert figures["tofino2.tables"].value == round(100 * figures["tables"].value / 320, 1)
        assert figures["tofino2.phv"].value == round(100 * figures["phv"].value / 3072, 1)
    assert all(f.source for f in figures.values())
    # No compiler ran: bytes of files and their entries alone are measured.
    for name in ("phv", "tables"):
        assert figures[name].source.startswith("counted in n3ic's reading of the program")
    assert {figures[name].kind for name in ("phv", "tables", "stages.popcount")} == {"estimated"}
    assert {f.kind for name, f in figures.items() if name.startswith("tofino2.")} <= {"estimated"}


def test_tables_of_which_none_needs_another_do_not_wait(tmp_path: Path) -> None:
    """A table waits for one that writes what it reads or writes, and for no other."""
    write(P4, small((4, 3, 2)), tmp_path)
    source = (tmp_path / "n3ic.p4").read_text()
    first, second = (1 + 1) + 2, (1 + 1) + 1  # weights, popcount, counts; the first has signs
    assert waiting_tables(source) == 1 + first + second + 3 + 1
    alone = source.replace("meta.l0_y = ", "meta.other = ")  # so the second waits for nothing
    assert alone != source
    assert waiting_tables(alone) == second + 3 + 1  # not for the input, either
    same = source.replace("meta.l1_v0 = ", "meta.l0_v0 = ").replace("meta.l1_v0", "meta.l0_v0")
    assert waiting_tables(same) == waiting_tables(source)  # they write what they read anyway
