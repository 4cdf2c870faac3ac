# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from n3ic.errors import MissingDependencyError, UsageError, VerifyError
from n3ic.exporters.host.exporter import EXPORTER
from n3ic.kernel import blob
from n3ic.kernel.library import KernelLibrary
from n3ic.model.difference import first_difference
from n3ic.model.network import BinaryModel
from n3ic.model.random_models import random_model
from n3ic.model.verification_vectors import verification_vectors
from tests.support.kernel_models import flip, limits_at, put_word, small_model, weights_at, word

pytestmark = pytest.mark.usefixtures("quick_build")

MODEL = small_model()
OPTIONS = EXPORTER.parse_options({}, verify=True)


def export(model: BinaryModel, out: Path) -> Path:
    out.mkdir()
    EXPORTER.write(model, EXPORTER.parse_options({}), out)
    return out


def bake(directory: Path, weights: bytes) -> None:
    """Put other weights into ``bnn.c``, as an edit of it would."""
    text = (directory / "bnn.c").read_text()
    values = ", ".join(f"0x{byte:02x}" for byte in weights)
    changed = re.sub(r"(baked\[\d+\] = \{)[^}]*\}", rf"\g<1>{values}}}", text)
    assert changed != text
    (directory / "bnn.c").write_text(changed)


@pytest.fixture
def copy(export_directory: Path, tmp_path: Path) -> Path:
    return shutil.copytree(export_directory, tmp_path / "copy")


def test_the_same_model_gives_the_same_files(tmp_path: Path) -> None:
    a, b = export(MODEL, tmp_path / "a"), export(small_model(), tmp_path / "b")
    names = sorted(p.name for p in a.iterdir())
    sources = ["bnn.c", "bnn.h", "bnn_exec.c", "n3ic.pc.in", "weights.bin"]
    assert names == ["CMakeLists.txt", "Makefile", "README.md", *sources]
    for name in names:
        assert (a / name).read_bytes() == (b / name).read_bytes()
        assert str(tmp_path) not in (a / name).read_text("latin-1")


@pytest.mark.first_case
@pytest.mark.parametrize(
    ("shape", "density"),
    [((70, 33, 9, 3), None), ((1, 2), None), ((33, 1, 2), 0.4), ((256, 32, 16, 2), None)],
)
def test_every_kernel_runs_and_agrees(
    compiler: object, tmp_path: Path, shape: tuple[int, ...], density: float | None
) -> None:
    model = random_model(shape, np.random.default_rng(5), density=density)
    directory = export(model, tmp_path / "out")
    words = verification_vectors(model, 300)
    outcome = EXPORTER.run(directory, model, OPTIONS, words)
    assert first_difference(model, outcome.inference, words) is None
    assert "portable" in outcome.executor
    assert len(outcome.inference.hidden) == len(model.hidden)
    assert {f.kind for f in outcome.figures} == {"measured"}


def test_the_input_stage_is_the_models(compiler: object, export_directory: Path) -> None:
    rng = np.random.default_rng(1)
    columns = {name: rng.integers(0, 2**32, 200) for name in MODEL.input.features}
    got = EXPORTER.encode(export_directory, MODEL, OPTIONS, columns)
    assert np.array_equal(got, MODEL.encode(columns))


def edges(model: BinaryModel) -> dict[str, np.ndarray]:
    """Every feature at each of its cuts and clamps, one below, one above, and at both ends."""
    spec = model.input
    near = {c + d for f in spec.fields for c in (*f.cuts, f.clamp) for d in (-1, 0, 1)}
    values = np.array(sorted({0, 1, 2**32 - 1, *near}))
    return {name: np.roll(values, 7 * i) for i, name in enumerate(spec.features)}


@pytest.mark.parametrize("density", [None, 0.5])
def test_the_input_stage_is_exact_at_every_cut(
    compiler: object, tmp_path: Path, density: float | None
) -> None:
    base = random_model(MODEL.shape, np.random.default_rng(5), density=density)
    model = replace(base, input=MODEL.input)
    directory = export(model, tmp_path / "out")
    rows = edges(model)
    assert np.array_equal(EXPORTER.encode(directory, model, OPTIONS, rows), model.encode(rows))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new"),
    [("v[k] >= g->cuts[c]", "v[k] > g->cuts[c]"), ("(pairs[i].cut - 1)", "(pairs[i].cut)")],
)
def test_a_wrong_way_around_the_bits_is_found(
    compiler: object, library: KernelLibrary, copy: Path, old: str, new: str
) -> None:
    if "avx2" not in library.kernels and "pairs" in old:
        pytest.skip("needs a CPU with avx2")
    text = (copy / "bnn.c").read_text()
    assert old in text
    (copy / "bnn.c").write_text(text.replace(old, new))
    with pytest.raises(VerifyError, match="bnn_run_batch: kernel"):
        EXPORTER.encode(copy, MODEL, OPTIONS, edges(MODEL))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "feature"),
    [
        ("n += value >= cuts[k];", "n += value > cuts[k];", ""),
        pytest.param("v < c->clamp ? v : c->clamp", "v", "", marks=pytest.mark.slow),
        pytest.param(
            "v < c->clamp ? v : c->clamp",
            "v < c->clamp ? v : c->clamp - 1",
            "",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "_mm512_cmpge_epu32_mask", "_mm512_cmpgt_epu32_mask", "avx512", marks=pytest.mark.slow
        ),
        pytest.param(
            "_mm512_cmpge_epu32_mask", "_mm512_cmpge_epi32_mask", "avx512", marks=pytest.mark.slow
        ),
        pytest.param(
            "_mm256_max_epu32(v, b), v)",
            "_mm256_min_epu32(v, b), v)",
            "avx2",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_wrong_input_stage_is_found(
    compiler: object, library: KernelLibrary, copy: Path, old: str, new: str, feature: str
) -> None:
    if feature and feature not in library.kernels:
        pytest.skip(f"needs a CPU with {feature}")
    text = (copy / "bnn.c").read_text()
    assert old in text
    (copy / "bnn.c").write_text(text.replace(old, new))
    rows = edges(MODEL)
    try:
        got = EXPORTER.encode(copy, MODEL, OPTIONS, rows)
    except VerifyError as error:
        assert re.search("bnn_(encode|run_batch): kernel", str(error))
    else:
        assert not np.array_equal(got, MODEL.encode(rows))


@pytest.mark.parametrize(("layer", "neuron"), [pytest.param(0, 4, marks=pytest.mark.slow), (1, 8)])
def test_a_flipped_weight_is_found_and_named(
    compiler: object, copy: Path, layer: int, neuron: int
) -> None:
    weights = (copy / "weights.bin").read_bytes()
    at = weights_at(MODEL, layer) + neuron * MODEL.layers[layer].n_words
    wrong = flip(weights, at, 3)
    words = verification_vectors(MODEL, 2000)
    bake(copy, wrong)
    with pytest.raises(VerifyError, match=rf"weights.bin differ .* layer {layer}, neuron {neuron}"):
        EXPORTER.run(copy, MODEL, OPTIONS, words)
    (copy / "weights.bin").write_bytes(wrong)
    difference = first_difference(MODEL, EXPORTER.run(copy, MODEL, OPTIONS, words).inference, words)
    assert difference is not None
    assert (difference.layer, difference.neuron) == (layer, neuron)


@pytest.mark.first_case
@pytest.mark.parametrize("layer", [0, 2])
def test_a_changed_threshold_or_bias_is_found(compiler: object, copy: Path, layer: int) -> None:
    weights = (copy / "weights.bin").read_bytes()
    at = limits_at(MODEL, layer) + 1
    wrong = put_word(weights, at, word(weights, at) + (1 if layer == 2 else -1))
    (copy / "weights.bin").write_bytes(wrong)
    bake(copy, wrong)
    words = verification_vectors(MODEL, 2000)
    difference = first_difference(MODEL, EXPORTER.run(copy, MODEL, OPTIONS, words).inference, words)
    assert difference is not None
    assert (difference.layer, difference.neuron) == (layer, 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        # The bit order of one kernel's input, and of its output.
        pytest.param(
            "x[2 * i] | (uint64_t)x[2 * i + 1] << 32",
            "x[2 * i + 1] | (uint64_t)x[2 * i] << 32",
            "",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "(count >= layer->limit[j + i]) << i",
            "(count >= layer->limit[j + i]) << (31 - i)",
            "",
            marks=pytest.mark.slow,
        ),
        # A threshold that is passed, not reached.
        ("(count >= layer->limit[j + i])", "(count > layer->limit[j + i])", "layer 0, neuron"),
    ],
)
def test_a_wrong_kernel_is_found(
    compiler: object, copy: Path, old: str, new: str, words: str
) -> None:
    text = (copy / "bnn.c").read_text()
    assert old in text
    (copy / "bnn.c").write_text(text.replace(old, new))
    vectors = verification_vectors(MODEL, 500)
    # The portable kernel and its like are wrong; the others still give the model's scores.
    try:
        trace = EXPORTER.run(copy, MODEL, OPTIONS, vectors).inference
    except VerifyError as error:
        assert "differ" in str(error)
        assert words in str(error)
    else:
        assert first_difference(MODEL, trace, vectors) is not None


@pytest.mark.slow
def test_a_wrong_tie_rule_is_found(compiler: object, tmp_path: Path) -> None:
    model = random_model((40, 9, 3), np.random.default_rng(2), extremes=False)
    directory = export(model, tmp_path / "out")
    text = (directory / "bnn.c").read_text()
    assert "if (score > best->first)" in text
    changed = text.replace("if (score > best->first)", "if (score >= best->first)")
    (directory / "bnn.c").write_text(changed)
    words = verification_vectors(model, 1000)
    difference = first_difference(
        model, EXPORTER.run(directory, model, OPTIONS, words).inference, words
    )
    assert difference is not None
    assert "lowest index wins a tie" in str(difference)


@pytest.mark.slow
def test_damaged_artefacts_are_errors(compiler: object, copy: Path) -> None:
    words = verification_vectors(MODEL, 50)
    weights = (copy / "weights.bin").read_bytes()
    (copy / "weights.bin").write_bytes(weights[:-8])
    with pytest.raises(VerifyError, match=r"weights.bin: .*cut short"):
        EXPORTER.run(copy, MODEL, OPTIONS, words)
    other = random_model((70, 31, 9, 2), np.random.default_rng(0))
    (copy / "weights.bin").write_bytes(weights)
    bake(copy, blob.dump(other))
    with pytest.raises(VerifyError):
        EXPORTER.run(copy, MODEL, OPTIONS, words)
    (copy / "bnn.c").write_text("int main(void) { return oops; }\n")
    with pytest.raises(VerifyError, match="does not compile"):
        EXPORTER.run(copy, MODEL, OPTIONS, words)
    (copy / "bnn.c").write_text("int nothing;\n")
    with pytest.raises(VerifyError, match="working library"):
        EXPORTER.run(copy, MODEL, OPTIONS, words)


def test_without_a_compiler_it_says_what_to_install(
    export_directory: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(MissingDependencyError, match="install a C compiler"):
        EXPORTER.run(export_directory, MODEL, OPTIONS, verification_vectors(MODEL, 10))


def test_an_unknown_kernel_is_refused(compiler: object, export_directory: Path) -> None:
    options = EXPORTER.parse_options({"kernel": "sse9"}, verify=True)
    with pytest.raises(VerifyError, match="these do: portable"):
        EXPORTER.run(export_directory, MODEL, options, verification_vectors(MODEL, 10))
    with pytest.raises(UsageError):
        EXPORTER.parse_options({"colour": "red"})


def test_check_refuses_too_many_layers() -> None:
    model = random_model((*[2] * 70,), np.random.default_rng(0))
    fit = EXPORTER.check(model, {})
    assert not fit.ok
    assert "64" in str(fit.problems[0])
    assert EXPORTER.check(MODEL, {}).placements[0].memory == "l1d"


def test_report_labels_every_figure(export_directory: Path) -> None:
    report = EXPORTER.report(MODEL, {}, export_directory)
    by_name = {f.name: f for f in report.figures}
    assert by_name["memory.blob"].value == (export_directory / "weights.bin").stat().st_size
    assert by_name["latency"].kind == "estimated"
    assert by_name["throughput"].kind == "estimated"


@pytest.mark.slow
@pytest.mark.parametrize("command", ["gcc", "clang"])
def test_artefacts_compile_without_warnings(
    command: str, export_directory: Path, tmp_path: Path
) -> None:
    if not shutil.which(command):
        pytest.skip(f"needs {command}")
    flags = ["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    # What of its warnings gcc finds in the flow of data, it finds as it optimises; clang does not.
    flags.append("-O1" if command == "gcc" else "-fsyntax-only")
    for name in ("bnn.c", "bnn_exec.c"):
        done = subprocess.run(
            [command, *flags, "-c", export_directory / name, "-o", tmp_path / "x.o"],
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_neon_kernel_under_emulation(export_directory: Path, tmp_path: Path) -> None:
    for tool in ("aarch64-linux-gnu-gcc", "qemu-aarch64"):
        if not shutil.which(tool):
            pytest.skip(f"needs {tool}")
    program = tmp_path / "bnn-exec"
    flags = ["-std=c11", "-O2", "-static", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    sources = [export_directory / "bnn.c", export_directory / "bnn_exec.c"]
    subprocess.run(
        ["aarch64-linux-gnu-gcc", *flags, *sources, "-o", program], check=True, timeout=600
    )
    for shape, density in [((256, 32, 16, 2), None), ((1100, 50, 20, 17), 0.5), ((1, 1, 2), None)]:
        model = random_model(shape, np.random.default_rng(8), density=density)
        (tmp_path / "w.bin").write_bytes(blob.dump(model))
        words = verification_vectors(model, 200)
        done = subprocess.run(
            ["qemu-aarch64", program, "-p", "-s", "-k", "neon", "-w", tmp_path / "w.bin"],
            input=words.astype("<u4").tobytes(),
            capture_output=True,
            check=True,
            timeout=600,
        )
        rows = [line.split(",")[3:] for line in done.stdout.decode().splitlines()[1:]]
        assert np.array_equal(np.array(rows, dtype=np.int64), model.scores(words))


@pytest.mark.slow
def test_makefile_builds(compiler: object, copy: Path) -> None:
    if not shutil.which("make"):
        pytest.skip("needs make")
    done = subprocess.run(
        ["make", "-s", "CFLAGS=-O0"], cwd=copy, capture_output=True, text=True, timeout=600
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert (copy / "libbnn.a").is_file()
    text = (copy / "README.md").read_text()
    assert "int x;" in text  # the name is shown, as one line of code
    assert "\n`#`" not in text
