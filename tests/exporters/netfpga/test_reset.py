# SPDX-License-Identifier: Apache-2.0
"""What a reset leaves: at every operation of an update, an answer's name is that of its scores."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from n3ic.exporters.netfpga.core import CorePorts
from n3ic.exporters.netfpga.exporter import EXPORTER
from n3ic.exporters.netfpga.graph.bit_tables import sequential as tables_sequential
from n3ic.exporters.netfpga.graph.bit_tables.exporter import EXPORTER as TABLES_EXPORTER
from n3ic.exporters.netfpga.graph.exporter import EXPORTER as SPN_EXPORTER
from n3ic.exporters.netfpga.sequential import layout as binary_layout
from n3ic.exporters.netfpga.sequential import memory_contents, write
from n3ic.exporters.netfpga.tools import simulate
from n3ic.families.spn.random_models import random_spn
from n3ic.families.tables.random_models import random_tables
from n3ic.model.bits import pack, unpack
from n3ic.model.classifier import Classifier
from n3ic.model.random_models import random_model

pytestmark = pytest.mark.skipif(shutil.which("iverilog") is None, reason="needs iverilog")

WRITE, SWAP, RESET, RESET_AND_WRITE, ASK, WAIT, IDLE, PHASE = range(8)
VECTORS = 16
UNDER_WAY = VECTORS - 1  # vector of the inferences that a reset may drop
ASKED = 3  # inputs of a phase
SETTLED = 120  # clocks in which all inputs of a phase are answered
Writes = list[tuple[int, int]]
Program = list[tuple[int, int, int]]


@dataclass(frozen=True)
class WritableCore:
    """A core that holds the first of some models, and the writes of each."""

    directory: Path
    models: list[Classifier]
    writes: list[Writes]
    model_w: int = 0


def binary(folder: Path, **options: str) -> WritableCore:
    rng = np.random.default_rng(3)
    models = [random_model((20, 5, 3), rng) for _ in range(3)]
    chosen = EXPORTER.parse_options(options)
    EXPORTER.write(models[0], chosen, folder)
    layout = binary_layout.plan_with(models[0], chosen)
    return WritableCore(folder, [*models], [memory_contents.writes(m, layout) for m in models])


def shunting(folder: Path) -> WritableCore:
    return binary(folder, shunting="all", modules="3")


def tables(folder: Path) -> WritableCore:
    rng = np.random.default_rng(3)
    first = random_tables(rng, classes=3, tables=4, inputs=(1, 3), widths=(3, 3)).with_shunt(4)
    options = TABLES_EXPORTER.parse_options({"style": "sequential", "modules": 2})
    TABLES_EXPORTER.write(first, options, folder)
    layout = tables_sequential.plan(first, 2)
    others = [tables_sequential.another(first, layout, rng) for _ in range(2)]
    writes = [tables_sequential.writes(first, layout), *(w for _, w in others)]
    return WritableCore(folder, [first, *(m for m, _ in others)], writes)


def shared(folder: Path) -> WritableCore:
    """A core of a card that several networks share; the last one is written."""
    rng = np.random.default_rng(4)
    models = [random_model((20, 5, 3), rng) for _ in range(4)]
    each = [binary_layout.plan(m, packing="balanced", modules=1, tables=False) for m in models[:2]]
    layout = binary_layout.shared(each)
    ports = write.write(models[0], layout, folder, models[1:2])
    CorePorts(
        style="sequential",
        n_in=20,
        n_classes=3,
        sources=tuple(f"rtl/{p.name}" for p in sorted((folder / "rtl").glob("*.v"))),
        **ports,
    ).save(folder)
    own = models[1:]
    return WritableCore(folder, [*own], [memory_contents.writes(m, layout) for m in own], 1)


WRITABLE = [binary, shunting, tables, shared]


def run(
    directory: Path, model: Classifier, words: np.ndarray, program: Program, model_w: int = 0
) -> list[tuple[int, int, int, tuple[int, ...]]]:
    """Run a program; return the phase, the vector, the model's id and the scores of each answer."""
    core = CorePorts.load(directory)
    work = directory / "bench"
    work.mkdir()
    bits = unpack(words, core.n_in)
    digits = -(-core.n_in // 4)
    numbers = [sum(1 << i for i in np.flatnonzero(row).tolist()) for row in bits]
    (work / "vectors.txt").write_text("".join(f"{n:0{digits}x}\n" for n in numbers))
    (work / "program.txt").write_text("".join(f"{o:x} {a:x} {b:x}\n" for o, a, b in program))
    parameters = {
        "N_IN": core.n_in,
        "SCORES": core.score_w * core.n_classes,
        "WR_AW": max(1, core.wr_aw),
        "MODEL_W": max(1, model_w),
        "VECTORS": len(words),
    }
    defines = ["N3IC_WRITE_PORT"] if core.write_port else []
    defines += ["N3IC_MODELS"] if model_w else []
    bench = Path(__file__).with_name("reset_tb.v")
    command = [
        "iverilog", "-g2005", "-s", "reset_tb", "-o", str(work / "bench.vvp"),
        *(f"-D{d}" for d in defines), *(f"-Preset_tb.{k}={v}" for k, v in parameters.items()),
        str(bench), *(str(directory / source) for source in core.sources),
    ]  # fmt: skip
    simulate.call(command, work, 120, "the build")
    plus = [f"+{k}={work / f'{k}.txt'}" for k in ("program", "vectors", "out")]
    memory = directory / "mem"
    at = memory if memory.is_dir() else work
    simulate.call(["vvp", "-n", str(work / "bench.vvp"), *plus], at, 120, "the bench")
    mask, sign = (1 << core.score_w) - 1, 1 << core.score_w - 1
    answers = []
    for line in (work / "out.txt").read_text().splitlines():
        phase, tag, name, packed = line.split()
        number = int(packed, 16)
        scores = (number >> core.score_w * c & mask for c in range(core.n_classes))
        signed = tuple((s ^ sign) - sign for s in scores)
        answers.append((int(phase), int(tag, 16), int(name, 16), signed))
    return answers


def asks(phase: int) -> Program:
    """Ask some vectors in a phase of their own, and wait for the answers."""
    return [
        (PHASE, phase, 0),
        *((ASK, (phase + i) % UNDER_WAY, 0) for i in range(ASKED)),
        (WAIT, SETTLED, 0),
    ]


def vectors_of(model: Classifier) -> np.ndarray:
    rng = np.random.default_rng(9)
    return pack(rng.integers(0, 2, (VECTORS, model.input.n_bits)).astype(bool))


def update(writes: Writes) -> Program:
    return [(IDLE, 0, 0), *((WRITE, a, w) for a, w in writes), (SWAP, 0, 0), (IDLE, 0, 0)]


Disturbance = Callable[[Sequence[tuple[int, int, int]], int], Program]


def reset_before(writes: Sequence[tuple[int, int, int]], at: int) -> Program:
    """A reset while the driver pauses; it knows nothing of it and goes on."""
    return [*writes[:at], (RESET, 1, 0), *writes[at:]]


def long_reset(writes: Sequence[tuple[int, int, int]], at: int) -> Program:
    return [*writes[:at], (RESET, 9, 0), *writes[at:]]


def reset_at(writes: Sequence[tuple[int, int, int]], at: int) -> Program:
    """A reset in the very clock of a write."""
    _, address, word = writes[at]
    return [*writes[:at], (RESET_AND_WRITE, address, word), *writes[at + 1 :]]


def abort(writes: Sequence[tuple[int, int, int]], at: int) -> Program:
    """The driver ends in the middle."""
    return list(writes[:at])


def abort_by_reset(writes: Sequence[tuple[int, int, int]], at: int) -> Program:
    return [*writes[:at], (RESET, 1, 0)]


DISTURBANCES = [reset_before, long_reset, reset_at, abort, abort_by_reset]


@pytest.mark.first_case
@pytest.mark.parametrize("disturbance", DISTURBANCES)
@pytest.mark.parametrize("core_of", WRITABLE)
def test_an_answer_never_has_the_name_of_another_model(
    tmp_path: Path,
    core_of: Callable[[Path], WritableCore],
    disturbance: Disturbance,
) -> None:
    """Three models in turn, so that the bank to write never holds the model that is written."""
    core = core_of(tmp_path)
    words = vectors_of(core.models[0])
    program: Program = []
    expected: dict[int, set[int]] = {}
    ids = [int(m.digest[:8], 16) for m in core.models]
    phase = used = 0
    for at in range(len(core.writes[0])):
        new = (used + 1) % len(ids)
        writes = [(WRITE, a, w) for a, w in core.writes[new]]
        phase += 1
        program += [(PHASE, phase, 0), (ASK, UNDER_WAY, 0)]
        expected[phase] = {ids[used]}
        program += [(IDLE, 0, 0), *disturbance(writes, at)]
        program += asks(phase := phase + 1)
        expected[phase] = {ids[used]}
        program += [(SWAP, 0, 0), *asks(phase := phase + 1)]
        expected[phase] = {ids[used]} if at else set(ids)  # before the first write, nothing is lost
        program += [*update(core.writes[new]), *asks(phase := phase + 1)]
        expected[phase] = {ids[new]}
        used = new
    answers = run(tmp_path, core.models[0], words, program, core.model_w)
    scores = dict(zip(ids, (m.scores(words) for m in core.models), strict=True))
    for number, vector, name, got in answers:
        assert name in expected[number], (number, vector)
        assert got == tuple(scores[name][vector].tolist()), (number, vector, f"{name:08x}")
    counted = Counter(number for number, vector, *_ in answers if vector != UNDER_WAY)
    assert [p for p in expected if p % 4 != 1 and counted[p] != ASKED] == []


@pytest.mark.parametrize("core_of", WRITABLE)
def test_a_refused_write_voids_its_update(
    tmp_path: Path, core_of: Callable[[Path], WritableCore]
) -> None:
    """A driver that does not wait for `wr_busy` loses its first writes, and then the update."""
    core = core_of(tmp_path)
    words = vectors_of(core.models[0])
    ids = [int(m.digest[:8], 16) for m in core.models]
    hasty = [(WRITE, a, w) for a, w in core.writes[2]]
    lost = 0
    program = [
        *((WRITE, a, w) for a, w in core.writes[1]),
        (PHASE, 1, 0),
        *((ASK, i, 0) for i in range(4)),
        (SWAP, 0, 0),
        *hasty,
        (SWAP, 0, 0),
        *asks(2),
        *update(core.writes[2]),
        *asks(3),
    ]
    scores = dict(zip(ids, (m.scores(words) for m in core.models), strict=True))
    for number, vector, name, got in run(tmp_path, core.models[0], words, program, core.model_w):
        assert got == tuple(scores[name][vector].tolist()), (number, vector, f"{name:08x}")
        assert name == ids[2] or number != 3
        lost += name != ids[2] and number == 2
    assert lost == ASKED


def spn(folder: Path) -> Classifier:
    model = random_spn(np.random.default_rng(2), features=3, depth=2)
    SPN_EXPORTER.write(model, SPN_EXPORTER.parse_options({}), folder)
    return model


def unrolled(folder: Path) -> Classifier:
    model = random_model((20, 5, 3), np.random.default_rng(2))
    EXPORTER.write(model, EXPORTER.parse_options({"style": "unrolled"}), folder)
    return model


def unrolled_tables(folder: Path) -> Classifier:
    model = random_tables(np.random.default_rng(2), classes=3, tables=4, inputs=(1, 3))
    TABLES_EXPORTER.write(model, TABLES_EXPORTER.parse_options({}), folder)
    return model


@pytest.mark.slow
@pytest.mark.parametrize("core_of", [spn, unrolled, unrolled_tables])
def test_a_core_without_a_write_port_keeps_its_model(
    tmp_path: Path, core_of: Callable[[Path], Classifier]
) -> None:
    """A reset in every clock of an inference: nothing of it comes out beside a later input."""
    model = core_of(tmp_path)
    words = vectors_of(model)
    program: Program = []
    for clocks in range(60):
        program += [
            (PHASE, 2 * clocks + 1, 0),
            (ASK, UNDER_WAY, 0),
            (WAIT, clocks, 0),
            (RESET, 1, 0),
        ]
        program += asks(2 * clocks + 2)
    scores = model.scores(words)
    answers = run(tmp_path, model, words, program)
    for number, vector, _, got in answers:
        assert got == tuple(scores[vector].tolist()), (number, vector)
    counted = Counter(number for number, vector, *_ in answers if vector != UNDER_WAY)
    assert all(counted[2 * clocks + 2] == ASKED for clocks in range(60))
