# SPDX-License-Identifier: Apache-2.0
"""Runs that are interrupted and asked for again, as a person does."""

import shutil
from importlib.resources import as_file, files

import numpy as np
import pytest

from n3ic.datasets import ns3_tomography
from n3ic.datasets.ns3_tomography.trace import ProbeTrace, read
from tests.support.command_line import interrupted, typed

pytestmark = pytest.mark.slow  # trains networks and calls the command line


def content(folder):
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def same_in_the_end(words, cwd, parts):
    """Interrupt a run after its first part, go on, and compare with one that ran through."""
    err = interrupted(*words.split(), cwd=cwd, once=".run.n3ic-parts/*.part")
    assert "kept in .run.n3ic-parts; the same command resumes from there" in err
    assert not (cwd / "run").exists()
    parts_before = sorted(p.name for p in (cwd / ".run.n3ic-parts").iterdir())
    assert 1 <= len(parts_before) < parts
    assert f"{len(parts_before)} of {parts} parts were trained before" in typed(words, cwd).stderr
    run_files = content(cwd / "run")
    assert not (cwd / ".run.n3ic-parts").exists()
    shutil.rmtree(cwd / "run")
    typed(words, cwd)
    assert content(cwd / "run") == run_files


@pytest.mark.exhaustive
def test_several_seeds_go_on(tmp_path):
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 1000, (300, 3))
    names = np.where(rows[:, 0] + rng.integers(0, 200, 300) > 550, "web", "mail")
    lines = [f"{a},{b},{c},{app}" for (a, b, c), app in zip(rows, names, strict=True)]
    (tmp_path / "flows.csv").write_text("\n".join(["a,b,c,app", *lines, ""]))
    words = (
        "train --data flows.csv --label app --encoding quantile --bits 8 --hidden 4 --polish 0 "
        "--epochs 30 --seeds 2 --out run"
    )
    same_in_the_end(words, tmp_path, 2)


@pytest.mark.exhaustive
def test_the_queues_of_tomography_go_on(tmp_path):
    with as_file(files(ns3_tomography).joinpath(ns3_tomography.BUNDLED)) as path:
        whole = read(path).trace
    run = whole.header["runs"][0] | {"rows": 1500}
    part = ProbeTrace(whole.header | {"runs": [run]}, whole.delays[:1500], whole.occupancy[:1500])
    part.save(tmp_path / "short.tomo.xz")
    words = (
        "train tomography --data short.tomo.xz --queue 0,5 --encoding quantile --distill 0 "
        "--epochs 5 --hidden 8 --shapes own --jobs 1 --out run"
    )
    same_in_the_end(words, tmp_path, 4)
