# SPDX-License-Identifier: Apache-2.0
"""Look-up tables as C: every kernel, blocks of every length, raw bits, and faults."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from n3ic.errors import N3icWarning
from n3ic.exporters.host import runner
from n3ic.exporters.host.tables import EXPORTER
from n3ic.exporters.host.tables.exporter import BLOCK
from n3ic.families.tables.network import TablesModel
from n3ic.families.tables.random_models import random_tables
from n3ic.families.tables.vectors import tables_vectors
from n3ic.kernel import build
from n3ic.meter.standard import standard_spec
from n3ic.model import passes
from n3ic.model.classifier import margins_of
from n3ic.model.inputs import Field, InputSpec
from n3ic.targets.directory import export
from n3ic.targets.verification import verify_artefacts, verify_directory

pytestmark = pytest.mark.usefixtures("quick_build")  # tests/e2e/test_every_model.py optimises
OPTIONS = EXPORTER.parse_options({}, verify=True)


def shunting(model: TablesModel) -> TablesModel:
    """The model with a threshold that about half of all margins reach."""
    margins = margins_of(model.scores(tables_vectors(model, 200)))
    return model.with_shunt(max(1, int(np.median(margins))))


@pytest.mark.parametrize("classes", [2, 3])
def test_every_kernel_gives_the_scores_and_verdicts(
    compiler: build.CCompiler, tmp_path: Path, classes: int
) -> None:
    rng = np.random.default_rng(classes)
    model = random_tables(rng, cuts=40, tables=60, classes=classes, inputs=(1, 8), widths=(1, 8))
    found = export(shunting(model), "host", tmp_path / "e")
    assert found.verification is not None
    assert found.verification.ok, found.verification
    assert found.verification.edges
    assert found.verification.decided_bits == found.verification.weight_bits > 1000
    again = export(shunting(model), "host", tmp_path / "again")
    assert (found.path / "bnn.c").read_bytes() == (again.path / "bnn.c").read_bytes()


def test_blocks_of_every_length(compiler: build.CCompiler, tmp_path: Path) -> None:
    # More small tables than 16 bits hold the sums of, of extreme entries, then larger ones.
    rng = np.random.default_rng(4)
    small = random_tables(rng, tables=600, features=9, inputs=(1, 5), widths=(8, 8))
    large = random_tables(rng, tables=9, spec=small.input, inputs=(6, 8))
    least = [replace(t, entries=np.full_like(t.entries, -128)) for t in small.tables[:300]]
    model = replace(small, tables=(*least, *small.tables[300:], *large.tables))
    EXPORTER.write(model, OPTIONS, tmp_path)
    library, _ = runner.compiled(tmp_path)
    net = runner.load(library, None, tmp_path)
    words = tables_vectors(model, 3 * BLOCK)
    wanted = model.scores(words)
    for kernel in library.kernels:
        net.use_kernel(kernel)
        for count in (0, 1, 2, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK):
            assert (net.scores(words[:count]) == wanted[:count]).all()


def test_raw_bits_several_fields_of_a_feature_and_many_cuts(
    compiler: build.CCompiler, tmp_path: Path
) -> None:
    rng = np.random.default_rng(5)
    many = sorted(rng.choice(np.arange(1, 10**6), 60, False).tolist())
    spec = InputSpec(
        (
            Field.thermometer("a", many),
            Field.binary("b", 11),
            Field.thermometer("a", many[7:9]),
            Field.thermometer("c", (1, 2**32 - 1)),
        )
    )
    model = random_tables(rng, spec=spec, tables=40, inputs=(2, 6))
    EXPORTER.write(model, OPTIONS, tmp_path)
    found = verify_artefacts(tmp_path, EXPORTER, passes.unchanged(model), OPTIONS, 500)
    assert found.ok, found
    only_raw = random_tables(rng, spec=InputSpec.raw(40), tables=9, classes=4)
    EXPORTER.write(only_raw, OPTIONS, tmp_path)
    assert verify_artefacts(tmp_path, EXPORTER, passes.unchanged(only_raw), OPTIONS, 200).ok


@pytest.mark.parametrize(
    ("array", "change"),
    [
        ("int8_t entries[]", lambda n: n + 1),
        ("uint16_t bits[]", lambda n: n ^ 1),
        ("uint32_t part_cuts[]", lambda n: n + 1),
        ("uint64_t marks[][INDEX_WORDS]", None),
    ],
)
def test_a_number_that_is_wrong_is_found(
    compiler: build.CCompiler, tmp_path: Path, array: str, change: object
) -> None:
    model = random_tables(np.random.default_rng(6), features=2, tables=9, inputs=(2, 2))
    directory = export(model, "host", tmp_path / "e").path
    path = directory / "bnn.c"
    head, mark, tail = path.read_text().partition(f"static const {array} = {{")
    assert mark
    if change is None:  # the intervals of one feature set a bit more
        tail = tail.replace("0x0000000000000000u", "0x0000000000000001u", 1)
        path.write_text(head + mark + tail)
    else:
        number, rest = tail.strip().split(",", 1)
        value = number.rstrip("u")
        path.write_text(f"{head}{mark}{change(int(value))}{number[len(value) :]},{rest}")
    assert "bnn.c is not what n3ic writes" in str(verify_directory(directory))
    with pytest.warns(N3icWarning, match="not what n3ic writes"):
        found = verify_directory(directory, run_changed=True)
    assert found.failures, found


def test_memory_counts_the_arrays_of_the_c(compiler: build.CCompiler, tmp_path: Path) -> None:
    model = random_tables(np.random.default_rng(8), tables=11)
    EXPORTER.write(model, OPTIONS, tmp_path)
    text = (tmp_path / "bnn.c").read_text()

    def numbers(array: str) -> int:
        return text.partition(f"{array} = {{")[2].partition("};")[0].split("*/")[-1].count(",")

    held = EXPORTER.memory(model)
    assert held["entries"] == numbers("int8_t entries[]")
    assert held["index_bits"] == (
        numbers("uint8_t sizes[TABLES]")
        + 2 * numbers("uint16_t bits[]")
        + 4 * numbers("uint32_t starts[TABLES + 1]")
    )


def test_metered_packets_reach_the_tables(compiler: build.CCompiler, tmp_path: Path) -> None:
    meter = standard_spec()
    names = meter.feature_names[:6]
    units = meter.units
    rng = np.random.default_rng(9)
    fields = tuple(
        Field.thermometer(n, sorted(rng.choice(np.arange(1, 2000), 4, False)), unit=units[n])
        for n in names
    )
    model = random_tables(rng, spec=InputSpec(fields)).changed(meter=meter)
    found = export(model, "host", tmp_path / "e")
    assert found.verification is not None and found.verification.ok, found.verification
    assert found.verification.flows
