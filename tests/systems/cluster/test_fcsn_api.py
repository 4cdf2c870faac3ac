# SPDX-License-Identifier: Apache-2.0
"""FCsN's calls and the PyTorch module, on rings of processes."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from n3ic.errors import ClusterError, ModelError
from n3ic.model.bits import unpack
from n3ic.model.random_models import random_model
from n3ic.systems.cluster.fcsn_api import initialise
from n3ic.systems.cluster.kernels import GemmKernel, SparseKernel
from n3ic.systems.cluster.launch import RingOptions
from n3ic.systems.cluster.link import LinkTiming
from n3ic.systems.cluster.measurement import rows_to_compare
from n3ic.systems.cluster.placement import LayerSplit, even_placement
from n3ic.systems.cluster.replacement import lasting_ring
from n3ic.systems.cluster.udp import FaultInjection

pytest.importorskip("distributed")
sparse = pytest.importorskip("scipy.sparse")
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forked_nodes")]  # starts processes

MODEL = random_model((300, 130, 40, 3), np.random.default_rng(0))
FAULTS = FaultInjection(loss=0.01, seed=3)
# A busy machine is silent for seconds, too: a short limit would take a living node for dead.
OPTIONS = RingOptions(timing=LinkTiming(limit=60), faults=FAULTS)


@pytest.fixture(scope="module")
def cluster():
    with initialise(2, OPTIONS) as started:
        yield started


def test_kernels_are_loaded_started_and_synchronised(cluster):
    rng = np.random.default_rng(1)
    matrix = sparse.random_array((50, 40), density=0.1, rng=rng, data_sampler=None)
    matrix = (matrix * 100).astype(np.int64)
    vector = rng.integers(-9, 9, (40, 1))
    first, second = rng.integers(-9, 9, (6, 30)), rng.integers(-9, 9, (30, 11))
    cluster.load("classify", MODEL, even_placement(MODEL, 2, (LayerSplit.INPUT,) * 3))
    cluster.load("spmv", SparseKernel((50, 40)))
    cluster.load("gemm", GemmKernel(second))
    words = rows_to_compare(MODEL, 30, seed=0)
    for task_id in ("classify", "spmv", "gemm"):
        cluster.check_kernel(task_id)
    started = [
        cluster.start("classify", words),
        cluster.start("spmv", matrix, vector),
        cluster.start("gemm", first),
        cluster.start("spmv", matrix, -vector),
    ]
    scores, product, dense, negative = map(cluster.synchronise, started)
    assert np.array_equal(scores, MODEL.scores(words))
    assert np.array_equal(product, matrix @ vector)
    assert np.array_equal(dense, first @ second)
    assert np.array_equal(negative, -product)
    with pytest.raises(ClusterError, match="'gemm' is already loaded"):
        cluster.load("gemm", GemmKernel(second))
    with pytest.raises(ClusterError, match="'other' is not loaded; loaded: classify, gemm, spmv"):
        cluster.check_kernel("other")
    with pytest.raises(ClusterError, match="the first matrix: expected integers of shape"):
        cluster.start("gemm", first[:, 1:])


def test_a_module_gives_exact_scores_in_batches_that_overlap(cluster):
    torch = pytest.importorskip("torch")
    from n3ic.systems.cluster.module import ClusterModule

    cluster.load("module", MODEL)
    module = ClusterModule(cluster, "module", 300)
    words = rows_to_compare(MODEL, 40, seed=0)
    bits = torch.from_numpy(unpack(words, 300))
    want = torch.from_numpy(MODEL.scores(words))
    assert module(bits).dtype == torch.int32
    assert torch.equal(module(bits), want)
    assert torch.equal(torch.nn.Sequential(module)(2.0 * bits - 1), want)
    streamed = list(module.stream(bits.float().split(7)))
    assert len(streamed) == 6
    assert torch.equal(torch.cat(streamed), want)
    with pytest.raises(ModelError, match=r"expected 0 and 1, or -1 and \+1; got \[0.5"):
        module(bits * 0.5 + 0.5)
    with pytest.raises(ModelError, match="of shape"):
        module(bits[:, 1:])
    assert not list(module.parameters())


def test_one_call_takes_a_model_there_and_a_killed_node_is_named():
    torch = pytest.importorskip("torch")
    from n3ic.systems.cluster.module import on_cluster

    words = rows_to_compare(MODEL, 10, seed=0)
    bits = torch.from_numpy(unpack(words, 300))
    options = RingOptions(timing=LinkTiming(limit=10), faults=FAULTS)
    with on_cluster(MODEL, 2, options=options) as module:
        assert np.array_equal(module(bits).numpy(), MODEL.scores(words))
        os.kill(module._cluster.process_ids("model")[2], signal.SIGKILL)
        with pytest.raises(ClusterError, match="node 2 is dead or cut off"):
            module(bits)
        with pytest.raises(ClusterError, match="node 2 is dead or cut off"):
            module._cluster.check_kernel("model")


def test_a_killed_process_is_replaced_while_rows_are_on_their_way():
    words = rows_to_compare(MODEL, 3000, seed=0)
    options = RingOptions(timing=LinkTiming(limit=2.0), replacements=1)
    with lasting_ring(MODEL, even_placement(MODEL, 3), options) as ring:
        batches = [ring.submit(words[at : at + 50]) for at in range(0, 1500, 50)]
        os.kill(ring.running.process_ids()[2], signal.SIGKILL)
        batches += [ring.submit(words[at : at + 50]) for at in range(1500, 3000, 50)]
        scores = np.concatenate([batch.result(240) for batch in batches])
        assert len(ring.lost) == 1
        assert "node 2 is dead or cut off" in ring.lost[0]
    assert np.array_equal(scores, MODEL.scores(words))


def test_a_ring_needs_no_pytorch():
    code = (
        "import sys; import n3ic.systems.cluster.fcsn_api, n3ic.systems.cluster.commands; "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
