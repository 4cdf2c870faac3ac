# SPDX-License-Identifier: Apache-2.0
"""Sum-product networks as C: every kernel, rows in blocks and alone, programs, and faults."""

from __future__ import annotations

import csv
import io
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from n3ic.errors import MissingDependencyError, N3icWarning
from n3ic.exporters.host import runner
from n3ic.exporters.host.graph import EXPORTER
from n3ic.exporters.host.graph.program import CACHE_BYTES, program
from n3ic.families.spn.arithmetic import Arithmetic, LinearArithmetic, LogArithmetic
from n3ic.families.spn.network import CONSTANT, SpnModel
from n3ic.families.spn.nodes import Leaf, Product, Sum
from n3ic.families.spn.random_models import random_spn
from n3ic.families.spn.vectors import spn_vectors
from n3ic.kernel import build
from n3ic.meter.capture import libpcap
from n3ic.meter.standard import standard_spec
from n3ic.model import passes
from n3ic.model.bits import pack
from n3ic.model.classifier import margins_of
from n3ic.model.family import graph_of
from n3ic.model.inputs import Field, InputSpec
from n3ic.model.verification_vectors import boundary_features
from n3ic.targets.directory import export
from n3ic.targets.verification import verify_artefacts, verify_directory
from tests.support.flow_programs import compiled

pytestmark = pytest.mark.usefixtures("quick_build")  # tests/e2e/test_every_model.py optimises
OPTIONS = EXPORTER.parse_options({}, verify=True)
ARITHMETICS: list[Arithmetic] = [
    LogArithmetic.of(6),
    LogArithmetic.of(0),
    LinearArithmetic(30),
    LinearArithmetic(12),
]


def shunting(model: SpnModel) -> SpnModel:
    """The model with a threshold that about half of all margins reach."""
    margins = margins_of(model.scores(spn_vectors(model, 200)))
    return model.with_shunt(max(1, int(np.median(margins))))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arithmetic", "classes"),
    [
        pytest.param(a, n, id=f"{a.name}-{a.fraction}", marks=[] if n > 1 else [pytest.mark.slow])
        for a, n in zip(ARITHMETICS, (1, 3, 2, 1), strict=True)
    ],
)
def test_every_kernel_gives_the_scores_and_verdicts(
    compiler: build.CCompiler, tmp_path: Path, arithmetic: Arithmetic, classes: int
) -> None:
    rng = np.random.default_rng(classes)
    model = random_spn(rng, features=5, cuts=40, classes=classes, arithmetic=arithmetic)
    exported = export(shunting(model), "host", tmp_path / "e")
    assert exported.verification is not None
    assert exported.verification.ok, exported.verification
    assert exported.verification.edges
    measured = {f.name for f in exported.verification.figures if f.kind == "measured"}
    assert "throughput" in measured and any(name.startswith("time.") for name in measured)
    if arithmetic is not ARITHMETICS[0]:  # one is enough to see that it repeats
        return
    again = export(shunting(model), "host", tmp_path / "again")
    files = [p.relative_to(again.path) for p in again.path.rglob("*") if p.is_file()]
    assert Path("report.json") in files
    for file in files:
        assert (exported.path / file).read_bytes() == (again.path / file).read_bytes(), file


def test_blocks_of_every_length(compiler: build.CCompiler, tmp_path: Path) -> None:
    model = random_spn(np.random.default_rng(4), features=4)
    EXPORTER.write(model, OPTIONS, tmp_path)
    library, _ = runner.compile_library(tmp_path)
    net = runner.load(library, None, tmp_path)
    rows = program(graph_of(model)).block
    words = spn_vectors(model, 3 * rows)
    wanted = model.scores(words)
    for kernel in library.kernels:
        net.use_kernel(kernel)
        for count in (0, 1, 2, rows - 1, rows, rows + 1, 3 * rows):
            assert (net.scores(words[:count]) == wanted[:count]).all()


def test_a_field_of_many_cuts_is_searched(compiler: build.CCompiler, tmp_path: Path) -> None:
    """Fields that cross words, and more cuts than are compared one by one."""
    rng = np.random.default_rng(5)
    cuts = (sorted(rng.choice(np.arange(1, 10**6), n, False).tolist()) for n in (33, 1, 150, 32))
    spec = InputSpec(tuple(Field.thermometer(f"f{i}", c) for i, c in enumerate(cuts)))
    log = LogArithmetic.of(8)
    leaves = [
        Leaf(i % 4, log.leaf(rng.dirichlet(np.ones(spec.fields[i % 4].width + 1)) + 1e-6))
        for i in range(8)
    ]
    nodes = (*leaves, Product((0, 1, 2, 3)), Product((4, 5, 6, 7)), Sum((8, 9), [-256, -300]))
    model = SpnModel(spec, nodes, log, (10, CONSTANT), [0, -4000], ("normal", "odd"))
    EXPORTER.write(model, OPTIONS, tmp_path)
    verification = verify_artefacts(tmp_path, EXPORTER, passes.unchanged(model), OPTIONS, 500)
    assert verification.ok, verification


def test_a_table_that_is_read_twice_and_scores_of_one_value(
    compiler: build.CCompiler, tmp_path: Path
) -> None:
    spec = InputSpec((Field.thermometer("a", (5, 9)), Field.thermometer("b", (5,))))
    nodes = (Leaf(0, [-1, -2, -3]), Leaf(1, [-4, -9]), Product((0, 1)), Leaf(0, [-7, -7, -7]))
    model = SpnModel(
        spec, nodes, LogArithmetic.of(0), (2, 0, 3, CONSTANT), [0, -3, 0, -7], ("w", "x", "y", "z")
    )
    EXPORTER.write(model, OPTIONS, tmp_path)
    assert verify_artefacts(tmp_path, EXPORTER, passes.unchanged(model), OPTIONS, 100).ok


@pytest.mark.slow
@pytest.mark.parametrize("arithmetic", ARITHMETICS[::2], ids=lambda a: a.name)
def test_an_entry_that_is_a_step_off_is_found(
    compiler: build.CCompiler, tmp_path: Path, arithmetic: Arithmetic
) -> None:
    model = random_spn(np.random.default_rng(6), features=2, depth=1, arithmetic=arithmetic)
    directory = export(model, "host", tmp_path / "e").path
    path = directory / "bnn.c"
    head, mark, tail = path.read_text().partition("static const spn_value tables[] = {\n")
    number, rest = tail.strip().split(",", 1)
    path.write_text(f"{head}{mark}{int(number) + (arithmetic.one or 1)},{rest}")
    assert "bnn.c is not what n3ic writes" in str(verify_directory(directory))
    with pytest.warns(N3icWarning, match="not what n3ic writes"):
        verification = verify_directory(directory, run_changed=True)
    assert any("lacks a look-up of" in failure for failure in verification.failures), verification


def test_values_of_a_block_stay_in_a_first_level_cache() -> None:
    made = program(graph_of(random_spn(np.random.default_rng(7), features=20, cuts=8, depth=4)))
    assert made.scratch_bytes(made.block) <= CACHE_BYTES
    assert len(made.tables) < 20 * len(made.steps)


def test_tables_of_eight_entries_are_read_in_a_register() -> None:
    model = random_spn(np.random.default_rng(7), features=9, cuts=12, depth=2)
    made = program(graph_of(model))
    sizes = [len(leaf.table) for leaf in model.leaves]
    assert min(sizes) <= 8 < max(sizes)
    small = [step for step in made.steps if step.kind.endswith("LOOKUP_8")]
    assert 0 < len(small) < len([step for step in made.steps if "LOOKUP" in step.kind])
    assert all(step.by + 8 <= len(made.tables) for step in small)
    linear = program(
        graph_of(random_spn(np.random.default_rng(7), arithmetic=LinearArithmetic(20)))
    )
    assert not [step for step in linear.steps if step.kind.endswith("_8")]


@pytest.fixture(scope="module")
def built(
    compiler: build.CCompiler, sanitize: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory
) -> tuple[SpnModel, Path]:
    """A model that shunts, and its ``bnn-exec`` with the sanitizers."""
    directory = tmp_path_factory.mktemp("spn")
    model = shunting(random_spn(np.random.default_rng(8), features=4, classes=3))
    model = replace(model, classes=('"q",', "\\0%s", "z"))
    EXPORTER.write(model, OPTIONS, directory)
    sources = [directory / name for name in ("bnn.c", "bnn_exec.c")]
    return model, compiled(compiler, directory / "bnn-exec", sources, *sanitize)


def answers(path: Path, *arguments: str) -> list[list[str]]:
    """Lines of the program's table: class, name, margin and scores."""
    done = subprocess.run([path, *arguments, "-s"], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return list(csv.reader(io.StringIO(done.stdout, newline="")))[1:]


@pytest.mark.slow
def test_the_program_reads_packed_words_and_tables(
    built: tuple[SpnModel, Path], tmp_path: Path
) -> None:
    model, path = built
    stray = pack(np.random.default_rng(0).random((50, model.input.n_bits)) < 0.5)
    words = np.concatenate([spn_vectors(model, 300), stray])
    (tmp_path / "words").write_bytes(words.astype("<u4").tobytes())
    wanted = model.infer(words)
    assert wanted.verdicts is not None
    assert (wanted.verdicts == -1).any()
    got = answers(path, "-p", str(tmp_path / "words"))
    names = [model.verdict_names[v] for v in wanted.verdicts]
    assert [row[1] for row in got] == names
    numbers = np.array([[row[0], *row[2:]] for row in got], dtype=int)
    assert (numbers == np.column_stack([wanted.verdicts, wanted.margins, wanted.scores])).all()

    rows = boundary_features(model.input)
    table = np.column_stack(list(rows.values()))
    np.savetxt(tmp_path / "t.csv", table, "%d", ",", header=",".join(rows), comments="")
    got = answers(path, "-u", "nic", str(tmp_path / "t.csv"))
    scores = np.array([row[3:] for row in got], dtype=int)
    assert (scores == model.scores(model.encode(rows))).all()


@pytest.mark.slow
def test_there_is_no_file_of_weights(built: tuple[SpnModel, Path], tmp_path: Path) -> None:
    (tmp_path / "w").write_bytes(b"N3HO")
    done = subprocess.run([built[1], "-w", tmp_path / "w"], capture_output=True, text=True)
    assert done.returncode == 1
    assert "compiled in" in done.stderr


@pytest.mark.slow
def test_flow_exec_meters_packets_for_the_network(
    compiler: build.CCompiler, tmp_path: Path
) -> None:
    try:
        libpcap()
    except MissingDependencyError as error:
        pytest.skip(str(error))
    spec = standard_spec(packets=6)
    rng = np.random.default_rng(9)
    fields = []
    for name in spec.feature_names:
        cuts = sorted({*(1 << rng.integers(0, 32, 6)).tolist()})
        fields.append(Field.thermometer(name, cuts, unit=spec.units[name]))
    log = LogArithmetic.of(6)
    leaves = tuple(
        Leaf(i, log.leaf(rng.dirichlet(np.ones(f.width + 1)) + 1e-4)) for i, f in enumerate(fields)
    )
    every = Product(tuple(range(len(leaves))))
    threshold = int(sum(leaf.table.mean() for leaf in leaves))
    model = SpnModel(
        InputSpec(tuple(fields)), (*leaves, every), log, (len(leaves), CONSTANT),
        [0, threshold], ("normal", "anomaly"), meter=spec,
    )  # fmt: skip
    EXPORTER.write(model, OPTIONS, tmp_path)
    verification = verify_artefacts(tmp_path, EXPORTER, passes.unchanged(model), OPTIONS, 300)
    assert verification.ok, verification
    assert verification.flows > 20
