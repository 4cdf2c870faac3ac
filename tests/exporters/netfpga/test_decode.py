# SPDX-License-Identifier: Apache-2.0
"""What the artefacts hold is read back, and a single flipped bit of any of them is found."""

import hashlib
import re
from pathlib import Path

import numpy as np
import pytest

from n3ic.errors import VerifyError
from n3ic.exporters.netfpga.exporter import EXPORTER
from n3ic.exporters.netfpga.packet.decode import _compared
from n3ic.exporters.netfpga.packet.wrapper import at_least
from n3ic.exporters.netfpga.sequential.decode import _connections, _layer, _memories, _Memory
from n3ic.model.inputs import Field, InputSpec
from n3ic.model.network import BinaryModel
from n3ic.model.random_models import random_model
from n3ic.options import Options
from n3ic.targets.decoding import decoding_difference

CASES = [
    ((256, 32, 16, 2), None, {}),
    ((152, 20, 9, 2), None, {"packing": "full"}),
    ((300, 6, 3), 0.4, {"modules": "2"}),
    ((530, 5, 40, 10), None, {"packing": "full", "masks": "all"}),
    ((5, 2), None, {}),
    ((140, 6, 3), 0.5, {"row-bits": "64"}),
]


def decoding_message(folder: Path, model: BinaryModel, options: Options) -> str:
    """The first difference that decoding finds, empty for none."""
    try:
        return next(
            filter(
                None,
                (decoding_difference(model, d) for d in EXPORTER.decode(folder, model, options)),
            ),
            "",
        )
    except VerifyError as error:
        return str(error)


def made(
    folder: Path, shape: tuple[int, ...], density: float | None, given: dict[str, str]
) -> tuple[BinaryModel, Options]:
    model = random_model(shape, np.random.default_rng(1), density=density)
    options = EXPORTER.parse_options(given)
    folder.mkdir(exist_ok=True)
    EXPORTER.write(model, options, folder)
    return model, options


@pytest.mark.parametrize(("shape", "density", "given"), CASES, ids=str)
def test_artefacts_hold_the_model(
    tmp_path: Path, shape: tuple[int, ...], density: float | None, given: dict[str, str]
) -> None:
    model, options = made(tmp_path, shape, density, given)
    decoded = EXPORTER.decode(tmp_path, model, options)
    assert [d.artefact for d in decoded] == [
        "mem/*.mem, bank 0", "mem/*.mem, bank 1", "mem/*.coe, bank 0", "mem/*.coe, bank 1",
        "mem/update.hex",
    ]  # fmt: skip
    assert decoding_message(tmp_path, model, options) == ""
    other = random_model(shape, np.random.default_rng(2), density=density)
    assert all(decoding_difference(other, d) for d in decoded)


@pytest.mark.first_case
@pytest.mark.parametrize(("shape", "density", "given"), CASES[1:], ids=str)
def test_a_flipped_bit_is_found(
    tmp_path: Path, shape: tuple[int, ...], density: float | None, given: dict[str, str]
) -> None:
    model, options = made(tmp_path, shape, density, given)
    rng = np.random.default_rng(3)
    for file in sorted((tmp_path / "mem").iterdir()):
        if density and "weights" in file.name:
            continue  # weights of absent connections do not count
        whole = file.read_bytes()
        for at in rng.integers(0, len(whole), 12).tolist():
            damaged = bytearray(whole)
            damaged[at] ^= 1 << int(rng.integers(0, 8))
            file.write_bytes(bytes(damaged))
            assert decoding_message(tmp_path, model, options), (file.name, at)
        file.write_bytes(whole)


def test_a_weight_bit_is_named(tmp_path: Path) -> None:
    model, options = made(tmp_path, (256, 8, 4, 2), None, {})
    file = tmp_path / "mem" / "layer1_weights.mem"
    rows = file.read_text().split()
    last = f"{int(rows[2], 16) ^ 1 << 5:08x}"  # neuron 2 of layer 1, input 5, bank 0
    file.write_text("\n".join([*rows[:2], last, *rows[3:]]) + "\n")
    expected = "mem/*.mem, bank 0, layer 1, neuron 2, input 5: weight"
    assert decoding_message(tmp_path, model, options).startswith(expected)


def test_an_update_that_lacks_or_repeats_a_word_is_found(tmp_path: Path) -> None:
    model, options = made(tmp_path, (40, 8, 3), None, {})
    file = tmp_path / "mem" / "update.hex"
    lines = file.read_text().split("\n")[:-1]
    for changed, wrong in (
        ([*lines[:7], *lines[8:]], "is not written"),
        ([*lines[:8], *lines[7:]], "is written twice"),
        ([*lines[:7], "7ff 00000000", *lines[7:]], "is not an address"),
        (lines[:-1], "is not the id"),
        ([*lines[:5], *lines[6:]], "does not clear the bank's id"),
        ([*lines[:-1], f"{int(lines[-1][:3], 16) + 1:03x}{lines[-1][3:]}"], "is not the id"),
        ([line for line in lines if not line.startswith("# model")], "is not the id"),
        ([*lines[:-1], lines[-1][:-1]], "is not the id"),
        ([*lines[:7], lines[7][:-1], *lines[8:]], "is not an address and a word"),
        ([*lines[:-1], lines[-1].replace(model.digest[:8], "00000000")], "is not the id"),
    ):
        file.write_text(summed(changed))
        assert wrong in decoding_message(tmp_path, model, options)
    file.write_text(summed(lines)[:-1])
    assert "its checksum does not match" in decoding_message(tmp_path, model, options)
    file.write_text(summed(lines) + summed(lines).split("\n")[0] + "\n")
    assert "its checksum does not match" in decoding_message(tmp_path, model, options)


def summed(lines: list[str]) -> str:
    """An update of some lines, with its checksum."""
    rest = [line for line in lines if not line.startswith("# sha256")]
    digest = hashlib.sha256("".join(f"{line}\n" for line in rest).encode()).hexdigest()
    return "\n".join([f"# sha256 {digest}", *rest]) + "\n"


@pytest.mark.parametrize(("shape", "density"), [((40, 8, 3), None), ((70, 5, 4, 2), 0.5)])
def test_an_address_of_an_update_is_that_of_a_word(
    tmp_path: Path, shape: tuple[int, ...], density: float | None
) -> None:
    """Every address beside a written one: of a row or word behind the last, of no layer or kind."""
    model, options = made(tmp_path, shape, density, {})
    file = tmp_path / "mem" / "update.hex"
    lines = file.read_text().split("\n")[:-1]
    body = [line for line in lines if not line.startswith("#")]
    written = {int(line.split()[0], 16) for line in body}
    bits = max(written).bit_length() + 1
    beside = {address ^ 1 << k for address in written for k in range(bits)}
    beside |= {address + step for address in written for step in (-1, 1)} - {-1}
    executor = (tmp_path / "rtl" / "n3ic_executor.v").read_text()
    (low,) = re.findall(r"wr_row = wr_addr\[\d+:(\d+)\]", executor)
    behind = {address + (1 << int(low)) for address in written} - written
    digits = len(body[0].split()[0])
    taken = sorted(beside)[:: max(1, len(beside) // 30)]
    for address in {*taken, *sorted(behind)[:8], *sorted(behind)[-4:]}:
        line = f"{address:0{digits}x} 00000000"
        file.write_text(summed([*lines[:-1], line, lines[-1]]))
        twice = address in written - {int(body[-1].split()[0], 16)}
        wrong = "is written twice" if twice else "is not an address of a memory"
        assert wrong in decoding_message(tmp_path, model, options), line


@pytest.mark.parametrize("pad", [True, False])
def test_every_bit_of_the_rows_is_a_connection_or_beside_them(pad: bool) -> None:
    """Five neurons in lanes of two, of 70 inputs in chunks of 40: three rows of two chunks."""
    block: dict[str, int | str] = {"M": 5, "N": 70, "LANES": 2, "CHUNKS": 2, "PART": 40}
    plain = np.full((6, 4), 0xFFFFFFFF if pad else 0, dtype=np.uint32)
    seen = set()
    for at in range(plain.size * 32):
        words = plain.copy()
        words.reshape(-1)[at // 32] ^= np.uint32(1 << at % 32)
        row, column = divmod(at, 128)
        lane, place = divmod(column, 64)
        neuron, source = row // 2 * 2 + lane, row % 2 * 40 + place
        if neuron < 5 and place < 40 and source < 70:
            connections = _connections("here", block, words, pad=pad)
            assert np.argwhere(connections != pad).tolist() == [[neuron, source]]
            seen.add((neuron, source))
        else:
            kind = "weight" if pad else "mask"
            wrong = f"here: a {kind} bit beside the connections is {int(not pad)}"
            with pytest.raises(VerifyError, match=wrong):
                _connections("here", block, words, pad=pad)
    assert len(seen) == 5 * 70


# Three neurons of five inputs, in two groups of two lanes.
BLOCK: dict[str, int | str] = {
    "M": 3, "N": 5, "LANES": 2, "CHUNKS": 1, "PART": 5, "GROUPS": 2, "GROUP_W": 2, "ROW_W": 3,
    "MASKED": 0, "WEIGHTS": "weights", "MASKS": "masks",
}  # fmt: skip


def test_the_memories_of_a_layer_follow_from_its_parameters() -> None:
    hidden = BLOCK | {"THRESHOLDS": "thresholds"}
    weights = _Memory("weights", 4, 0, 2, 2, 8)
    assert [*_memories(4, hidden)] == [weights, _Memory("thresholds", 4, 2, 2, 2, 4)]
    wide = hidden | {"MASKED": 1, "PART": 33, "CHUNKS": 3}
    assert [*_memories(4, wide)] == [
        _Memory("weights", 4, 0, 4, 6, 8),
        _Memory("masks", 4, 1, 4, 6, 8),
        _Memory("thresholds", 4, 2, 2, 2, 4),
    ]
    assert next(_memories(1, wide | {"PART": 32})).words == 2
    assert [*_memories(0, BLOCK | {"BIASES": "biases"})][-1].file == "biases"


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("kind", ["THRESHOLDS", "BIASES"])
def test_biases_have_a_sign_and_thresholds_have_none(kind: str, masked: bool) -> None:
    rows = {
        0: np.full((2, 2), 0xFFFFFFFF, dtype=np.uint32),
        1: np.array([[0b10101, 0b00010], [0b11111, 0]], dtype=np.uint32),
        2: np.array([[0x7FFFFFFF, 0x80000000], [0xFFFFFFFF, 0]], dtype=np.uint32),
    }
    block = BLOCK | {kind: "side", "MASKED": int(masked)}
    layer = _layer("here", 0, block, lambda memory: rows[memory.kind].copy())
    signed = [2**31 - 1, -(2**31), -1]
    assert layer.limits is not None
    assert layer.limits.tolist() == (signed if kind == "BIASES" else [n % 2**32 for n in signed])
    assert layer.weights.tolist() == [[True] * 5] * 3
    mask = [[1, 0, 1, 0, 1], [0, 1, 0, 0, 0], [1, 1, 1, 1, 1]]
    assert (None if layer.mask is None else layer.mask.tolist()) == (mask if masked else None)
    rows[2][1, 1] = 1
    with pytest.raises(VerifyError, match="here: side: a word that no neuron uses is not 0"):
        _layer("here", 0, block, lambda memory: rows[memory.kind].copy())


@pytest.mark.parametrize(
    ("old", "new", "wrong"),
    [
        (".PART(256),", "", "layer 0 lacks parameters"),
        (', .THRESHOLDS("layer0_thresholds.mem")', "", "layer 0 lacks parameters"),
        (', .BIASES("layer1_biases.mem")', "", "layer 1 lacks parameters"),
        (") rows1 (", ") rows3 (", "its layers are not numbered from 0"),
    ],
)
def test_an_executor_of_other_layers_is_told(
    tmp_path: Path, old: str, new: str, wrong: str
) -> None:
    model, options = made(tmp_path, (300, 6, 3), None, {})
    file = tmp_path / "rtl" / "n3ic_executor.v"
    assert file.read_text().count(old) == 1
    file.write_text(file.read_text().replace(old, new))
    assert decoding_message(tmp_path, model, options) == f"rtl/n3ic_executor.v: {wrong}"


def test_memory_files_have_their_form(tmp_path: Path) -> None:
    model, options = made(tmp_path, (40, 6, 3), None, {})
    name = "layer0_weights"
    rows = (tmp_path / "mem" / f"{name}.mem").read_text()
    digits = rows.index("\n")
    table = (tmp_path / "mem" / f"{name}.coe").read_text()

    def wrong(name: str, text: str) -> str:
        file = tmp_path / "mem" / name
        whole = file.read_text()
        file.write_text(text)
        difference = decoding_message(tmp_path, model, options)
        file.write_text(whole)
        return difference

    assert "its last line is cut off" in wrong(f"{name}.mem", rows[:-1])
    count = rows.count("\n")
    more = f"{count + 1} rows, its memory has {count}"
    assert more in wrong(f"{name}.mem", rows + "0" * digits + "\n")
    assert f"row 0: not {digits} hex" in wrong(f"{name}.mem", rows[1:])
    assert f"row 1: not {digits} hex" in wrong(
        f"{name}.mem", rows[: digits + 1] + rows[digits + 2 :]
    )
    assert "row 0: not" in wrong(f"{name}.mem", "g" + rows[1:])
    assert "not a memory of radix 16" in wrong(f"{name}.coe", table.replace("16", "10"))
    assert "not a memory of radix 16" in wrong(f"{name}.coe", table[:-1])
    for bank in (0, 1):
        row = (bank + 1) * count // 2 - 1  # a bank has more rows than neurons
        last = [*rows.split("\n")]
        last[row] = "0" * (digits - 1) + "1"
        assert f"{name}.mem, bank {bank}: a row that no neuron uses" in wrong(
            f"{name}.mem", "\n".join(last)
        )


@pytest.mark.parametrize("cut", [1, 2, 5, 96, 2**31 - 1, 2**31, 2**31 + 6, 2**32 - 2, 2**32 - 1])
def test_a_comparison_by_runs_is_exact(cut: int) -> None:
    # All runs as Python computes them: |x is any bit, &x all of them.
    text = at_least("v", cut)
    text = re.sub(r"\|v\[(\d+):(\d+)\]", r"(part(\1, \2) > 0)", text)
    text = re.sub(r"&v\[(\d+):(\d+)\]", r"(part(\1, \2) == (2 << \1 - \2) - 1)", text)
    near = [cut + d for d in range(-3, 4)] + [cut ^ 1 << bit for bit in range(32)]
    for value in (v for v in near if 0 <= v < 2**32):
        verdict = eval(text, {"part": lambda a, b, v=value: v >> b & (2 << a - b) - 1})
        assert verdict == (value >= cut), value


SPEC = InputSpec(
    (
        Field.thermometer("a", (1, 7, 30, 2**31, 2**32 - 1)),
        Field.binary("b", 16),
        Field("c", "binary", 8, 200),
        Field.thermometer("b", (2, 5, 60)),
        Field.binary("d", 32),
    )
)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("feature0[31:5] | (&feature0[4:1])", "feature0[31:5] | (&feature0[4:0])"),
        ("feature0[31:5] | (&feature0[4:1])", "feature0[31:5] & (&feature0[4:1])"),
        ("feature0[31:5] | (&feature0[4:1])", "feature0[31:5] | (|feature0[4:1])"),
        ("feature0[31:5] | (&feature0[4:1])", "feature0[30:5] | (&feature0[4:1])"),
        ("feature0[31:5] | (&feature0[4:1])", "feature0[31:4] | (&feature0[4:1])"),
        ("feature0[31:5] | (&feature0[4:1])", "feature0[31:5] | (&feature1[4:1])"),
        ("feature0[31:5] | (&feature0[4:1])", "feature0[31:5] | (&feature0[4:1] | clk)"),
        ("|feature0[31:5]", "&feature0[31:5]"),
        ("|feature1[31:2]", "|feature0[31:2]"),
        ("> 32'd200", "> 32'd201"),
        ("? 32'd200", "? 32'd201"),
        ("in_values[127:96]", "in_values[95:64]"),
        ("clamped2[7:0]", "clamped1[7:0]"),
        ("assign bits[0] = ", "assign bits[99] = "),
    ],
)
def test_a_changed_input_stage_is_found(tmp_path: Path, old: str, new: str) -> None:
    base = random_model((SPEC.n_bits, 4, 2), np.random.default_rng(1))
    model = BinaryModel(SPEC, base.hidden, base.output, base.classes)
    options = EXPORTER.parse_options({"input-stage": "features"})
    EXPORTER.write(model, options, tmp_path)
    assert decoding_message(tmp_path, model, options) == ""
    file = tmp_path / "rtl" / "n3ic_features.v"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new, 1))
    assert decoding_message(tmp_path, model, options)


def test_a_bit_that_nothing_compares_is_named(tmp_path: Path) -> None:
    base = random_model((SPEC.n_bits, 4, 2), np.random.default_rng(1))
    model = BinaryModel(SPEC, base.hidden, base.output, base.classes)
    options = EXPORTER.parse_options({"input-stage": "features"})
    EXPORTER.write(model, options, tmp_path)
    file = tmp_path / "rtl" / "n3ic_features.v"
    last = SPEC.fields[0].width - 1
    text = file.read_text()
    file.write_text(text.replace(f"assign bits[{last}] = ", "assign bits[99] = "))
    name = SPEC.fields[0].feature
    assert f"bits 0 to {last} do not compare {name} with cuts" in decoding_message(
        tmp_path, model, options
    )


@pytest.mark.parametrize(
    "formula",
    [
        "", "clk", "feature0[31:0]", "|feature0[30:5] | (&feature0[4:0])", "|feature0[31:0]",
        "&feature0[31:5] | (&feature0[4:0])", "&feature0[31:5] & (&feature1[4:0])",
        "|feature0[31:5] | (&feature0[4:0]", "|feature0[31:5] | (&feature0[3:4])",
    ],
)  # fmt: skip
def test_what_is_no_comparison_names_no_feature(formula: str) -> None:
    assert _compared(formula) == (-1, -1)
