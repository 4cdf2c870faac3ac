# SPDX-License-Identifier: Apache-2.0
"""The baseline computes what numpy and scipy compute, on any number of ranks."""

import shutil
from dataclasses import replace

import numpy as np
import pytest

from n3ic.errors import MissingDependencyError
from scripts.fcsn import mpi_baseline as baseline
from scripts.fcsn.mpi_baseline import Messages, measure, on_cores
from scripts.fcsn.mpi_kernels import sparse_matrix
from scripts.fcsn.workloads import KERNELS, GraphSize, KernelProblem, workload

SIZES = KernelProblem(
    "gemm",
    size=96,
    outputs=40,
    shape=(64, 48, 10),
    batch=5,
    density=0.05,
    graph=GraphSize(300, 2000, 20, 4),
)
ALL = tuple(replace(SIZES, kernel=k) for k in KERNELS)


def random(rng, *shape):
    return rng.integers(-4, 4, shape, endpoint=True, dtype=np.int8).astype(np.int64)


def reference(problem):
    """Sum of the result, in 64-bit integers."""
    n, rng = problem.size, np.random.default_rng(problem.seed)
    match problem.kernel:
        case "gemm":
            return (random(rng, n, n) @ random(rng, n, n)).sum()
        case "spmv":
            vector = random(np.random.default_rng(problem.seed + 1), n, 1)
            return (sparse_matrix(problem).astype(np.int64) @ vector).sum()
        case "spgemm":
            matrix = sparse_matrix(problem).astype(np.int64)
            return (matrix @ matrix).sum()
        case "aggregation":
            rows = random(np.random.default_rng(problem.seed + 1), problem.graph.nodes, 16)
            return (sparse_matrix(problem).astype(np.int64) @ rows).sum()
        case "conv2d":
            image, kernel = np.pad(random(rng, n, n), 1), random(rng, 3, 3)
            windows = np.lib.stride_tricks.sliding_window_view(image, (3, 3))
            return (windows * kernel).sum()
        case "binary":
            weights, bits = rng.random((problem.outputs, n)) < 0.5, rng.random((5, n)) < 0.5
            return ((weights[:, None] == bits[None]).sum(axis=2) >= n / 2).sum()
    return None


@pytest.fixture(scope="module")
def runs():
    pytest.importorskip("mpi4py")
    if shutil.which("mpiexec") is None:
        pytest.skip("mpiexec is not installed (Debian: openmpi-bin)")
    return {ranks: measure(ALL, ranks, repeats=1) for ranks in (1, 2, 3)}


@pytest.mark.exhaustive
def test_results_are_exact_and_the_same_on_any_number_of_ranks(runs):
    for problem, *measurements in zip(ALL, *(r.kernels for r in runs.values()), strict=True):
        sums = {m.checksum for m in measurements}
        assert len(sums) == 1, problem.kernel
        wanted = reference(problem)
        assert wanted is None or sums == {wanted}, problem.kernel
        assert all(m.seconds > 0 for m in measurements)
    assert runs[1].messages is None
    assert runs[2].messages.latency > 0
    assert runs[2].messages.bytes_per_s > 0


@pytest.mark.slow
def test_a_network_in_parts_has_the_scores_of_one_process():
    pytest.importorskip("mpi4py")
    if shutil.which("mpiexec") is None:
        pytest.skip("mpiexec is not installed (Debian: openmpi-bin)")
    from scripts.fcsn.network_runs import compiled, random_items, scores_digest

    network = compiled("mlp")
    ends = [0, 2, len(network.steps)]
    request = {"network": "mlp", "ends": ends, "replicas": [], "rows": 7, "items": 20, "repeats": 1}
    answer = baseline.run_ranks("mpi_networks", request, 2)
    assert answer["scores"] == scores_digest(network.scores(random_items(network, 20)))
    assert len(answer["seconds"]) == 1


def test_without_mpi_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr(baseline.shutil, "which", lambda _: None)
    with pytest.raises(MissingDependencyError, match=r"openmpi-bin|pip install mpi4py"):
        measure(ALL[:1], 2)


def test_more_cores_divide_the_work_and_add_messages():
    messages = Messages(1e-6, 5e9)
    problem = KernelProblem("gemm", size=256)
    times = [sum(on_cores(workload(problem, p), 1.0, p, messages)) for p in (1, 2, 16)]
    assert times[0] == pytest.approx(1.0)
    assert times[0] > times[1] > times[2] > 1 / 16
    computing, waiting = on_cores(workload(problem, 16), 1.0, 16, Messages(1e-3, 1e6))
    assert computing == pytest.approx(1 / 16)
    # an exchange by doubling and two barriers, 4 messages each; 15 parts of the right matrix
    assert waiting == pytest.approx(12e-3 + 15 * 256 * 256 / 16 * 4 / 1e6)
