# SPDX-License-Identifier: Apache-2.0
"""Kernels as tasks: the work is that of the kernel, whoever does it."""

from dataclasses import replace
from itertools import pairwise

import pytest

from n3ic.errors import UsageError
from scripts.fcsn.workloads import (
    GRAPHS,
    KERNELS,
    SPARSE,
    KernelProblem,
    Travels,
    non_zeros,
    workload,
)

SMALL = KernelProblem(
    "gemm", size=192, outputs=100, shape=(96, 64, 10), batch=6, columns=20, density=0.05
)
G = GRAPHS["cora"]
OPERATIONS = {
    "binary": 6 * 100 * 1,  # 192 inputs are one slice
    "gemm": 192**3,
    "spmv": round(192**2 * 0.05),
    "spgemm": round(192**2 * 0.05) * 192 * 0.05,
    "aggregation": G.edges * 20,
    "conv2d": 192 * 192 * 9,
    "mlp": 6 * sum(a * b for a, b in pairwise((96, 64, 10))),
    "gnn": G.nodes * G.features * 16 + G.edges * (16 + 7) + G.nodes * 16 * 7,
}


WAYS = [(k, t) for k in KERNELS for t in (Travels if k in SPARSE else [Travels.OPERAND])]


@pytest.mark.parametrize("nodes", [1, 3, 8])
@pytest.mark.parametrize(("kernel", "travels"), WAYS)
def test_both_models_do_all_of_the_kernel_on_any_number_of_nodes(kernel, travels, nodes):
    work = workload(replace(SMALL, kernel=kernel, travels=travels), nodes)
    assert work.operations == pytest.approx(OPERATIONS[kernel])
    tasks = sum(o for s in work.stages if s.name != "sums" for f in s.flows for _, o in f.work)
    assert tasks == pytest.approx(OPERATIONS[kernel])
    for stage in work.stages:
        assert len(stage.local) == nodes + 1
        assert all(0 <= to <= nodes for f in stage.flows for to, _ in f.work)


@pytest.mark.parametrize("kernel", [k for k in KERNELS if k != "spgemm"])
def test_weak_scaling_grows_the_work_with_the_nodes(kernel):
    problem = replace(SMALL, kernel=kernel)
    grown = workload(problem.grown(8), 8).operations
    assert grown == pytest.approx(8 * workload(problem, 8).operations, rel=0.02)


def test_non_zeros_are_as_many_as_the_density_says_and_even():
    columns = non_zeros(replace(SMALL, kernel="spmv"), 4).sum(axis=0)
    assert columns.sum() == round(192**2 * 0.05)
    assert columns.max() < 1.15 * columns.mean()


def test_each_number_travels_as_often_as_the_way_says():
    packets = {}
    for travels in Travels:
        flows = [f for s in workload(replace(SMALL, kernel="spmv", travels=travels), 4).stages
                 for f in s.flows]  # fmt: skip
        packets[travels] = [f.packets for f in flows if f.packets]
        fetched = [p for f in flows for _, p in f.fetch]
        assert fetched == ([4] * 12 if travels is Travels.REQUESTED else [])
    # 48 rows of the operand or of the result fill 4 packets
    assert packets[Travels.OPERAND] == [4] * 4
    assert packets[Travels.REQUESTED] == []
    assert packets[Travels.SUMS] == [4] * 12
    assert sum(packets[Travels.NONZEROS]) - 48 >= round(192**2 * 0.05) / 4


def test_an_unknown_kernel_is_refused():
    with pytest.raises(UsageError, match="expected one of binary, gemm"):
        workload(replace(SMALL, kernel="fft"), 2)
