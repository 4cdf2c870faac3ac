# SPDX-License-Identifier: Apache-2.0
"""A network that was trained on images of digits, as integers: accuracy, and the ring's scores."""

import os
import signal
import subprocess
import sys
from contextlib import ExitStack

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

from n3ic.systems.cluster.launch import RingOptions
from n3ic.systems.cluster.link import LinkTiming
from n3ic.systems.cluster.networks.compile import compile_module
from n3ic.systems.cluster.networks.pipeline import NetworkPipeline, plan_pipeline
from n3ic.systems.cluster.networks.ring import lasting_network_ring, network_ring
from n3ic.systems.cluster.udp import FaultInjection
from tests.support.integer_networks import PipelineRing

TRAINED = 1200


@pytest.fixture(scope="module")
def digits():
    """Images of shape ``(rows, 64)``, their digits, a trained module, and its integers."""
    images, labels = (torch.from_numpy(a) for a in load_digits(return_X_y=True))
    images = images.float()
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Linear(64, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Linear(48, 32), nn.ReLU6(),
        nn.Linear(32, 10),
    )  # fmt: skip
    optimizer = torch.optim.Adam(module.parameters(), 1e-2)
    for _ in range(60):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(module(images[:TRAINED]), labels[:TRAINED])
        loss.backward()
        optimizer.step()
    module.eval()
    return images, labels.numpy(), module, compile_module(module, images[:200])


def test_integers_classify_as_well_as_the_module(digits):
    images, labels, module, network = digits
    with torch.no_grad():
        real = module(images[TRAINED:]).argmax(1).numpy()
    whole = network.scores(network.encode(images[TRAINED:].numpy())).argmax(1)
    right = np.mean(real == labels[TRAINED:])
    assert right > 0.85
    assert np.mean(whole == labels[TRAINED:]) > right - 0.02
    assert np.mean(whole == real) > 0.96


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(
    "pipeline",
    [
        NetworkPipeline((0, 5)),
        NetworkPipeline((0, 2, 5)),
        NetworkPipeline((0, 1, 2, 3, 5), seconds=(0.01,) * 4),
        NetworkPipeline((0, 5), seconds=(0.002,), replicas=(3,)),
        NetworkPipeline((0, 1, 3, 5), seconds=(0.002,) * 3, replicas=(2, 1, 3)),
    ],
    ids=lambda pipeline: f"{pipeline.ends}{pipeline.replicas}",
)
def test_a_ring_gives_the_scores_of_one_process(digits, pipeline, shared):
    images, _, _, network = digits
    items = network.encode(images[:150].numpy())
    faults = {"seed": 3, "loss": 0.1, "repeat": 0.1, "damage": 0.1, "jitter": 0.01}
    ring = PipelineRing(network, pipeline, shared=shared, **faults)
    assert np.array_equal(ring.scores(items), network.scores(items))
    assert np.array_equal(ring.scores(items[::-1]), network.scores(items[::-1]))


@pytest.mark.slow
def test_processes_give_the_scores_of_one_process_with_losses(digits):
    images, _, _, network = digits
    items = network.encode(images.numpy())
    options = RingOptions(timing=LinkTiming(limit=60.0), faults=FaultInjection(0.01, 1))
    pipeline = plan_pipeline(network, 2)
    with network_ring(network, pipeline=pipeline, options=options) as ring:
        assert np.array_equal(ring.session.scores(items), network.scores(items))


@pytest.mark.slow
def test_a_lost_process_is_replaced_by_a_plan_for_those_that_are_left(digits, tmp_path):
    """Nobody starts anything again: the parts are divided anew, and every item has its scores."""
    distributed = pytest.importorskip("distributed")
    images, _, _, network = digits
    items = np.concatenate([network.encode(images.numpy())] * 2)
    with (
        distributed.LocalCluster(n_workers=0, dashboard_address=None) as cluster,
        ExitStack() as stack,
    ):
        command = [sys.executable, "-m", "dask", "worker", cluster.scheduler_address]
        for _ in range(3):  # without a nanny, which would start the lost one again
            worker = subprocess.Popen(
                [*command, "--no-nanny", "--no-dashboard", "--nthreads", "1"],
                cwd=tmp_path,
                stderr=subprocess.DEVNULL,
            )
            stack.callback(worker.wait)
            stack.callback(worker.kill)
        with distributed.Client(cluster) as client:
            client.wait_for_workers(3, timeout=120)
        options = RingOptions(
            dask=cluster.scheduler_address, timing=LinkTiming(limit=3.0), replacements=1
        )
        with lasting_network_ring(network, 3, options) as ring:
            assert len(ring.running.processes) == 3
            batches = [ring.submit(items[at : at + 50]) for at in range(0, 1500, 50)]
            os.kill(ring.running.process_ids()[2], signal.SIGKILL)
            batches += [ring.submit(items[at : at + 50]) for at in range(1500, len(items), 50)]
            scores = np.concatenate([batch.result(240) for batch in batches])
            assert len(ring.running.processes) == 2
            assert ["node 2 is dead or cut off" in text for text in ring.lost] == [True]
    assert np.array_equal(scores, network.scores(items))
