# SPDX-License-Identifier: Apache-2.0
"""The micro-C that is exported for the NFP computes the model's scores."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from n3ic.errors import VerifyError
from n3ic.exporters.nfp.blob import build
from n3ic.exporters.nfp.exporter import EXPORTER, MODELLED
from n3ic.kernel import blob as host_blob
from n3ic.model.difference import first_difference
from n3ic.model.inputs import Field, InputSpec
from n3ic.model.layers import OutputLayer
from n3ic.model.network import BinaryModel
from n3ic.model.random_models import random_model
from n3ic.model.verification_vectors import verification_vectors
from n3ic.options import Options
from n3ic.targets.directory import export
from n3ic.targets.verification import verify_directory

pytestmark = [
    pytest.mark.skipif(
        not (shutil.which("gcc") or shutil.which("clang")), reason="needs gcc or clang"
    ),
    pytest.mark.usefixtures("quick_micro_c"),
]


def options(**given: object) -> Options:
    return EXPORTER.parse_options({k.replace("_", "-"): v for k, v in given.items()})  # type: ignore[misc]


def write(model: BinaryModel, out: Path, chosen: Options) -> Path:
    if out.exists():
        shutil.rmtree(out)
    out.mkdir(parents=True)
    EXPORTER.write(model, chosen, out)
    return out


def difference(model: BinaryModel, out: Path, chosen: Options, count: int = 200) -> str:
    words = verification_vectors(model, count)
    return str(
        first_difference(model, EXPORTER.run(out, model, chosen, words).inference, words) or ""
    )


@pytest.mark.first_case
@pytest.mark.parametrize(
    ("shape", "density", "given_options"),
    [
        ((256, 32, 16, 2), None, {}),
        ((152, 128, 64, 2), None, {"memory": "imem"}),
        ((1, 1, 2), None, {}),
        ((1, 1, 2), None, {"mode": "model"}),
        ((33, 2), None, {"mode": "model", "executors": 5}),
        ((32, 32, 2), 0.0, {}),
        ((100, 70, 33, 65, 5), 0.3, {"memory": "ctm", "state": "lmem"}),
        ((100, 70, 33, 65, 5), 0.3, {"mode": "model", "executors": 3}),
        pytest.param(
            (70, 20, 3), None, {"mode": "model", "executors": 300}, marks=pytest.mark.slow
        ),
    ],
)
def test_equal_scores(tmp_path, shape, density, given_options):
    model = random_model(shape, np.random.default_rng(7), density=density)
    chosen = options(**given_options)
    assert difference(model, write(model, tmp_path / "out", chosen), chosen) == ""


@settings(max_examples=3, deadline=None)
@given(
    shape=st.lists(st.integers(1, 70), min_size=1, max_size=3),
    classes=st.integers(2, 5),
    seed=st.integers(0, 2**32 - 1),
    density=st.one_of(st.none(), st.floats(0, 1)),
    mode=st.sampled_from(["data", "model"]),
)
def test_equal_scores_of_drawn_models(tmp_path_factory, shape, classes, seed, density, mode):
    model = random_model((*shape, classes), np.random.default_rng(seed), density=density)
    chosen = options(mode=mode)
    out = write(model, tmp_path_factory.mktemp("nfp") / "out", chosen)
    assert difference(model, out, chosen) == ""


def test_the_core_exports_and_verifies(tmp_path):
    model = random_model((256, 32, 16, 2), np.random.default_rng(3))
    export(model, "nfp", tmp_path / "out")
    result = verify_directory(
        tmp_path / "out",
        vectors=300,
        rows={f"x{i}": np.arange(40) * 77_777_777 % 2**32 for i in range(8)},
    )
    assert result.ok, str(result)
    assert result.encoded == 40
    report = (tmp_path / "out" / "report.md").read_text()
    assert MODELLED in report


def test_same_model_same_bytes(tmp_path):
    model = random_model((40, 33, 2), np.random.default_rng(3))
    first = write(model, tmp_path / "a", options())
    second = write(model, tmp_path / "b", options())
    names = sorted(p.relative_to(first) for p in first.rglob("*") if p.is_file())
    assert names == sorted(p.relative_to(second) for p in second.rglob("*") if p.is_file())
    assert all((first / n).read_bytes() == (second / n).read_bytes() for n in names)
    assert all(str(tmp_path) not in (first / n).read_text("latin-1") for n in names)


# --- weights.bin -----------------------------------------------------------------------------


def independent_scores(blob: bytes, bits: list[int]) -> list[int]:
    """Class scores from weights.bin alone: what another program would write."""
    words = struct.unpack(f"<{len(blob) // 4}I", blob)
    magic, version, total, layers, inputs, _fields, _at, _features = words[:8]
    assert (magic, version, total, inputs) == (0x464E334E, 1, len(words), len(bits))
    for layer in range(layers):
        n, m, row, masked = words[16 + 4 * layer : 20 + 4 * layer]
        assert n == len(bits)
        span = (n + 31) // 32
        values = []
        for _ in range(m):
            first = words[row]
            count = 0
            for i in range(n):
                weight = words[row + 1 + i // 32] >> (i % 32) & 1
                counts = words[row + 1 + span + i // 32] >> (i % 32) & 1 if masked else 1
                count += counts and weight == bits[i]
            if layer == layers - 1:
                values.append(count + struct.unpack("<i", struct.pack("<I", first))[0])
            else:
                values.append(int(count >= first))
            row += 1 + span * (2 if masked else 1)
        bits = values
    return bits


@pytest.mark.parametrize("density", [None, 0.4])
def test_another_program_reads_the_blob(tmp_path, density):
    rng = np.random.default_rng(11)
    model = random_model((45, 37, 33, 3), rng, density=density)
    out = write(model, tmp_path / "out", options())
    blob = (out / "weights.bin").read_bytes()
    bits = rng.random((20, 45)) < 0.5
    words = np.array(
        [
            [sum(int(b) << i for i, b in enumerate(row[32 * w : 32 * w + 32])) for w in range(2)]
            for row in bits
        ],
        dtype=np.uint32,
    )
    want = model.scores(words).tolist()
    assert [independent_scores(blob, [int(b) for b in row]) for row in bits] == want


def test_header_holds_the_words_of_the_blob(tmp_path):
    model = random_model((45, 37, 3), np.random.default_rng(1), density=0.5)
    out = write(model, tmp_path / "out", options())
    text = (out / "n3ic_weights.h").read_text()
    header = [int(w, 16) for w in re.findall(r"0x([0-9a-f]{8})", text)]
    blob = (out / "weights.bin").read_bytes()
    assert header == list(struct.unpack(f"<{len(blob) // 4}I", blob))


def test_offsets_in_the_readme_are_those_of_the_blob(tmp_path):
    model = random_model((45, 37, 3), np.random.default_rng(1))
    out = write(model, tmp_path / "out", options())
    built, readme = build(model), (out / "README.md").read_text()
    assert f"| {4 * built.rows[1]} | {4 * built.input_start} | layer 1" in readme
    assert f"| {4 * built.input_start} | {built.size} | input stage" in readme


# --- input stage -----------------------------------------------------------------------------


def test_input_stage(tmp_path):
    fields = (
        Field.binary("port", 16),
        Field.thermometer("gap", [1, 10, 4_000_000_000]),
        Field("size", "binary", 11, 1500),
        Field.thermometer("port", list(range(5, 80, 2))),
        Field.binary("wide", 32),
        Field.thermometer("one", [1]),
    )
    rng = np.random.default_rng(5)
    spec = InputSpec(fields)
    base = random_model((spec.n_bits, 20, 2), rng)
    model = replace(base, input=spec)
    chosen = options()
    out = write(model, tmp_path / "out", chosen)
    edges = np.array([0, 1, 2, 9, 10, 11, 79, 80, 1499, 1500, 1501, 2047, 65535, 65536, 2**32 - 1])
    rows = {name: rng.permutation(np.resize(edges, 60)) for name in spec.features}
    rows["gap"] = np.resize([0, 1, 9, 10, 3_999_999_999, 4_000_000_000, 2**40, -5], 60)
    got = EXPORTER.encode(out, model, chosen, rows)
    assert np.array_equal(got, model.encode(rows))


EDGES = InputSpec(
    (
        Field.thermometer("gap", [1, 2, 10, 2**31, 2**32 - 1]),
        Field("size", "binary", 11, 1500),
        Field.thermometer("port", range(5, 39, 2)),
        Field.binary("wide", 32),  # from bit 33
        Field("size", "thermometer", 2, 4000, (64, 1500)),
    )
)


@pytest.mark.first_case
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", ""),
        (">= n3ic_words[n3ic_words[field + 4] + k]", "> n3ic_words[n3ic_words[field + 4] + k]"),
        ("if (value > n3ic_words[field + 3])", "if (value > n3ic_words[field + 3] + 1)"),
        pytest.param(
            "value = n3ic_words[field + 3];",
            "value = n3ic_words[field + 3] - 1;",
            marks=pytest.mark.slow,
        ),
        ("value >> (32 - bit % 32)", "value >> (31 - bit % 32)"),
        pytest.param("bit % 32 + width > 32", "bit % 32 + width > 33", marks=pytest.mark.slow),
    ],
)
def test_the_input_stage_is_exact_at_every_cut(tmp_path, old, new):
    """Each cut, one below and one above, clamps, both ends; and a wrong source is found there."""
    base = random_model((EDGES.n_bits, 5, 2), np.random.default_rng(5))
    model = replace(base, input=EDGES)
    out = write(model, tmp_path / "out", options())
    text = (out / "n3ic_input.h").read_text()
    assert not old or text.count(old) == 1
    (out / "n3ic_input.h").write_text(text.replace(old, new) if old else text)
    near = {c + d for f in EDGES.fields for c in (*f.cuts, f.clamp) for d in (-1, 0, 1)}
    values = np.array(sorted({0, 2**32 - 1, 2**40, -5, *near}))
    rows = {name: np.roll(values, 5 * i) for i, name in enumerate(EDGES.features)}
    got = EXPORTER.encode(out, model, options(), rows)
    assert np.array_equal(got, model.encode(rows)) == (not old)


def test_names_of_a_model_are_harmless(tmp_path):
    evil = ["*/ int x;", '"; system("id"); //', "a #error b", "naïve ☃", "int", "a b", "a_b", "\\"]
    spec = InputSpec(tuple(Field.binary(name, 4) for name in evil))
    base = random_model((spec.n_bits, 5, 4), np.random.default_rng(2))
    model = replace(
        base,
        input=spec,
        classes=("*/ #error", '"', "x\\", "??/ #error"),
        name="*/ #error #error",
    )
    out = write(model, tmp_path / "out", options())
    assert difference(model, out, options()) == ""
    for path in out.glob("*.h"):
        assert not re.search(r"^\s*#error", path.read_text(), re.MULTILINE)


# --- mutations: a changed artefact is found, and the place is named ---------------------------


@pytest.fixture
def exported(tmp_path):
    # Ties are common: two classes with equal weights would tie always, these tie often.
    rng = np.random.default_rng(9)
    base = random_model((64, 32, 8, 3), rng, extremes=False)
    weights = base.output.weights.copy()
    weights[2] = weights[1]
    model = replace(base, output=OutputLayer(weights, bias=np.zeros(3, np.int32)))
    return model, write(model, tmp_path / "out", options())


def change_word(out: Path, word: int, flip: int) -> None:
    blob = np.frombuffer((out / "weights.bin").read_bytes(), "<u4").copy()
    blob[word] ^= np.uint32(flip)
    (out / "weights.bin").write_bytes(blob.tobytes())
    body = ",\n".join(f"    0x{w:08x}" for w in blob.tolist())
    text = (out / "n3ic_weights.h").read_text()
    (out / "n3ic_weights.h").write_text(
        re.sub(r"= \{\n.*?\n\};", f"= {{\n{body}\n}};", text, flags=re.DOTALL)
    )


def test_a_flipped_weight_bit_is_named(exported):
    model, out = exported
    built = build(model)
    change_word(out, built.rows[0] + 5 * built.strides[0] + 2, 1 << 7)
    assert "layer 0, neuron 5" in difference(model, out, options(), 1000)


def test_a_changed_threshold_is_named(exported):
    model, out = exported
    built = build(model)
    change_word(out, built.rows[1] + 3 * built.strides[1], 1)
    assert "layer 1, neuron 3" in difference(model, out, options(), 1000)


def test_a_changed_bias_is_named(exported):
    model, out = exported
    built = build(model)
    change_word(out, built.rows[2] + 2 * built.strides[2], 1)
    assert "layer 2, class 2" in difference(model, out, options(), 1000)


def test_blob_and_header_must_agree(exported):
    model, out = exported
    built = build(model)
    blob = bytearray((out / "weights.bin").read_bytes())
    blob[4 * (built.rows[0] + 5 * built.strides[0] + 1)] ^= 1
    (out / "weights.bin").write_bytes(bytes(blob))
    with pytest.raises(VerifyError, match="layer 0, neuron 5, weight or mask word 0"):
        difference(model, out, options())


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("n3ic_serve.h", "scores[i] > scores[best]", "scores[i] >= scores[best]", "lowest index"),
        ("n3ic_neuron.h", "(uint32_t)1 << bit", "(uint32_t)1 << (31 - bit)", "layer 0, neuron"),
        ("n3ic_neuron.h", ">= n3ic_words[row]", "> n3ic_words[row]", "layer 0, neuron"),
        ("n3ic_serve.h", "scores[best] - scores[i]", "scores[best] - scores[i] + 1", "margin"),
    ],
)
def test_changed_code_is_found(exported, file, old, new, message):
    model, out = exported
    text = (out / file).read_text()
    assert text.count(old) == 1
    (out / file).write_text(text.replace(old, new))
    assert message in difference(model, out, options(), 1000)


def test_weights_for_the_host_are_refused(exported):
    model, out = exported
    (out / "weights.bin").write_bytes(host_blob.dump(model))
    with pytest.raises(
        VerifyError, match=r"weights\.bin is of the host target; expected that of n3ic"
    ):
        difference(model, out, options())
    with pytest.raises(VerifyError, match=r"weights\.bin: not weights for the NFP"):
        EXPORTER.decode(out, model, options())


def test_the_artefacts_name_their_model(exported):
    model, out = exported
    assert (out / "weights.bin").read_bytes()[32:64].hex() == model.digest


def test_no_word_of_weights_that_change_under_running_threads(exported):
    """There is one bank, and another network's masks or cuts do not fit its place."""
    _, out = exported
    text = (out / "README.md").read_text()
    assert "while the program runs" not in text
    assert "To change the network, export again" in text


def test_broken_code_is_a_clear_error(exported):
    model, out = exported
    (out / "n3ic_app.c").write_text("#error broken\n")
    with pytest.raises(VerifyError, match=r"does not compile: .*broken"):
        difference(model, out, options())


# --- what a user of the folder does -----------------------------------------------------------


@pytest.mark.skipif(not shutil.which("make"), reason="needs make")
def test_the_folder_builds_as_its_readme_says(tmp_path):
    model = random_model((40, 33, 2), np.random.default_rng(3))
    out = write(model, tmp_path / "out", options())
    subprocess.run(["make"], cwd=out, check=True, capture_output=True, timeout=600)
    done = subprocess.run(
        ["build/n3ic_host", "bits", "weights.bin"],
        cwd=out,
        input=bytes(8),
        capture_output=True,
        check=True,
        timeout=600,
    )
    answer = np.frombuffer(done.stdout, np.int32)
    want = model.infer(np.zeros((1, 2), np.uint32))
    assert answer[0] == want.classes[0]
    assert answer[2:4].tolist() == want.scores[0].tolist()


def test_a_data_plane_calls_the_network(tmp_path):
    model = random_model((40, 33, 2), np.random.default_rng(3))
    out = write(model, tmp_path / "out", options())
    (tmp_path / "plane.c").write_text(
        """
        #define N3IC_NO_MAIN
        #include "out/n3ic_app.c"
        int main(void)
        {
            uint32_t features[N3IC_FEATURES] = {0}, x[N3IC_MAX_WORDS], y[N3IC_MAX_WORDS];
            int32_t scores[N3IC_CLASSES], margin;
            n3ic_encode(features, x);
            return (int) (16 * n3ic_classify(0, x, y, scores, &margin)) + margin;
        }
        """
    )
    program = tmp_path / "plane"
    command = ["gcc" if shutil.which("gcc") else "clang", "-Wall", "-Werror", "-o", str(program)]
    # A data plane has no mailbox to serve; the shim's signals are unused then.
    subprocess.run([*command, "-Wno-unused", str(tmp_path / "plane.c")], check=True, timeout=600)
    want = model.infer(np.zeros((1, 2), np.uint32))
    done = subprocess.run([str(program)], timeout=600, check=False)
    assert done.returncode == 16 * want.classes[0] + want.margins[0]
    assert out.is_dir()


def test_micro_c_keeps_to_the_words_of_the_language():
    folder = EXPORTER.folder / "micro_c"
    for path in folder.glob("n3ic_*"):
        code = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.DOTALL)
        assert not re.search(r"\b(malloc|long long|uint64_t|double|float|bool)\b", code), path
        assert "//" not in code, path
    port = (folder / "n3ic_port.h").read_text()
    vendor = port[: port.index("#else")]
    for word in ("pop_count1", "pop_count2", "pop_count3", "interthread_signal", "mem_test_set"):
        assert word in vendor


def test_the_firmware_is_built_with_the_library_of_its_intrinsics(tmp_path: Path) -> None:
    """``mem_test_set``, ``ctx`` and ``sleep`` are defined in ``libnfp.c``, not in the compiler."""
    model = random_model((40, 8, 4, 2), np.random.default_rng(0))
    export(model, "nfp", tmp_path / "e", verify=False)
    library = tmp_path / "me" / "lib" / "nfp" / "libnfp.c"

    def make() -> subprocess.CompletedProcess[str]:
        words = ["make", "nfp", f"FLOWENV={tmp_path / 'me'}", "NFCC=echo", "NFLD=echo"]
        return subprocess.run(
            words, cwd=tmp_path / "e", capture_output=True, text=True, timeout=60, check=False
        )

    done = make()
    assert done.returncode != 0
    assert f"no {library}: give the folder by FLOWENV=" in done.stderr
    library.parent.mkdir(parents=True)
    library.touch()
    done = make()
    assert done.returncode == 0, done.stderr
    assert f"n3ic_app.c {library} /opt/netronome/components" in done.stdout
