# SPDX-License-Identifier: Apache-2.0
"""Networks that people have: as integers they are near the module, and the same on every ring."""

from itertools import chain, combinations, pairwise, product

import networkx as nx
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from n3ic.errors import ClusterError
from n3ic.systems.cluster.launch import RingOptions
from n3ic.systems.cluster.link import LinkTiming
from n3ic.systems.cluster.networks.compile import compile_module
from n3ic.systems.cluster.networks.network import IntegerNetwork, NetworkStep
from n3ic.systems.cluster.networks.operations import (
    Aggregate,
    Convolution,
    Dense,
    Integers,
    Rescale,
)
from n3ic.systems.cluster.networks.pipeline import NetworkFlow, NetworkPipeline, plan_pipeline
from n3ic.systems.cluster.networks.ring import network_ring
from n3ic.systems.cluster.udp import FaultInjection
from scripts.fcsn.networks import (
    GraphConvolution,
    GraphSage,
    mobilenet,
    random_graph,
    resnet,
    settled,
    vgg11,
)
from tests.support.integer_networks import PipelineRing, integers

IMAGES = (12, 3, 32, 32)
KARATE = torch.tensor(sorted(nx.karate_club_graph().to_directed().edges)).T


def _module(name, small=True):
    """A module with random weights, and examples for it."""
    torch.manual_seed(1)
    if name == "karate":
        return GraphConvolution(KARATE, 34, 34, 8, 2), torch.eye(34)
    if name in ("gcn", "sage"):
        vertices, edges = (60, 150) if small else (2708, 5278)
        kind = GraphConvolution if name == "gcn" else GraphSage
        features = 20 if small else 1433
        module = kind(random_graph(vertices, edges), vertices, features, 16, 7)
        return module.eval(), (torch.rand(vertices, features) < 0.1).float()
    if name == "signs":
        layers = [nn.Linear(40, 30), nn.BatchNorm1d(30), Sign(), nn.Linear(30, 5)]
        return settled(nn.Sequential(*layers), (200, 40)), torch.randn(50, 40)
    make, width = {
        "vgg": (vgg11, 4 if small else 64),
        "resnet": (lambda w: resnet(w, 1 if small else 3), 4 if small else 16),
        "mobilenet": (mobilenet, 4 if small else 16),
    }[name]
    return settled(make(width), IMAGES), torch.randn(IMAGES)


class Sign(nn.Module):
    """-1, 0 or 1."""

    def forward(self, values):
        return torch.sign(values)


SMALL = ("karate", "gcn", "sage", "signs", "vgg", "resnet", "mobilenet")


@pytest.fixture(scope="module", params=SMALL)
def small(request):
    """A small module, its examples, and its integers."""
    module, examples = _module(request.param)
    return request.param, module, examples, compile_module(module, examples)


def test_integers_are_near_the_module(small):
    name, module, examples, network = small
    items = examples if network.values[0].shape == examples.shape[1:] else examples[None]
    scores = np.ldexp(network.scores(network.encode(items)).astype(float), -network.score_bits)
    with torch.no_grad():
        real = module(examples).numpy().reshape(scores.shape)
    error = np.sqrt(np.mean((scores - real) ** 2)) / real.std()
    # Each value of 8 bits is off by half a step; signs turn a small difference into a large one.
    assert error < (0.3 if name == "signs" else 0.15)


def test_a_ring_gives_the_scores_of_one_process(small):
    _, _, _, network = small
    items = integers(network, 5)
    nodes = min(4, len(network.steps))
    pipeline = NetworkPipeline((*range(nodes), len(network.steps)))
    ring = PipelineRing(network, pipeline, tile_bytes=1400, seed=2, loss=0.01, jitter=0.001)
    assert np.array_equal(ring.scores(items), network.scores(items))


def test_compiling_again_gives_the_same_integers():
    module, examples = _module("signs")
    assert compile_module(module, examples).digest == compile_module(module, examples).digest


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL[1:])
def test_whole_networks_run_on_processes_with_losses(name):
    module, examples = _module(name, small=False)
    network = compile_module(module, examples)
    items = integers(network, 12)
    options = RingOptions(timing=LinkTiming(limit=60.0), faults=FaultInjection(0.01, 2))
    with network_ring(network, 3, options=options) as ring:
        assert np.array_equal(ring.session.scores(items), network.scores(items))


def test_batch_norm_and_activations_are_part_of_a_layer():
    network = compile_module(*_module("vgg"))
    kinds = [type(step.operation) for step in network.steps]
    assert kinds.count(Convolution) == 8
    assert kinds.count(Rescale) == 8
    assert kinds.count(Dense) == 1
    for step, value in zip(network.steps, network.values[1:], strict=True):
        if isinstance(step.operation, Rescale):
            assert (value.low, value.high) == (0, 255)


def test_edges_stay_sparse():
    network = compile_module(*_module("karate"))
    sums = [s.operation for s in network.steps if isinstance(s.operation, Aggregate)]
    assert [len(operation.weights) for operation in sums] == [KARATE.shape[1] + 34] * 2


class Functions(nn.Module):
    """What is written as functions, in place, or with constants."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(2, 6, 3, padding="same")
        self.norm = nn.BatchNorm2d(6)
        self.weight = nn.Parameter(torch.randn(6, 4))

    def forward(self, images):
        out = functional.relu_(self.first(images))
        out = self.norm(functional.max_pool2d(out, 2))  # not beside a convolution
        out = out.add_(functional.hardtanh(out))
        out = functional.avg_pool2d(out, 3, 1).mean((2, 3))
        return out.view(out.size(0), -1) @ self.weight


def test_functions_in_place_and_constants_are_captured():
    torch.manual_seed(3)
    module = settled(Functions(), (50, 2, 8, 8))
    examples = torch.randn(20, 2, 8, 8)
    network = compile_module(module, examples)
    scores = np.ldexp(network.scores(network.encode(examples)).astype(float), -network.score_bits)
    with torch.no_grad():
        real = module(examples).numpy()
    assert np.abs(scores - real).max() < 0.2 * real.std()


class Written(nn.Module):
    """Writes to a value through another view of it."""

    def forward(self, rows):
        doubled = rows + rows
        view = doubled.view(-1, 2, 4)
        doubled.relu_()
        return view.reshape(-1, 8) + rows


class Branch(nn.Module):
    """Looks at values."""

    def forward(self, rows):
        return rows + rows if rows.sum() > 0 else rows


REFUSED = [
    (nn.Sequential(nn.Linear(8, 4), nn.GELU()), r"^gelu \(1: GELU\): .* not compute gelu"),
    (nn.Sequential(nn.Linear(8, 4), nn.LogSoftmax(1)), r"^log_softmax .*: leave it out"),
    (nn.Sequential(nn.Unflatten(1, (2, 4)), nn.Conv1d(2, 1, 2)), r"^conv1d \(1: Conv1d\)"),
    (
        nn.Sequential(nn.Unflatten(1, (1, 2, 4)), nn.Conv2d(1, 1, 2, dilation=1, padding=2),
                      nn.Conv2d(1, 1, 2, dilation=2)),
        r"^conv2d_1 \(2: Conv2d\): .*expected dilation=1",
    ),
    (nn.Sequential(nn.Unflatten(1, (1, 2, 4)), nn.AdaptiveAvgPool2d((2, 3))), "equal windows"),
    (nn.Sequential(nn.Unflatten(1, (1, 2, 4)), nn.MaxPool2d(2, ceil_mode=True)), "ceil_mode=False"),
    (nn.Flatten(0), r"^flatten: its first axis counts \(400,\), expected the 50 items"),
    (nn.BatchNorm1d(8, track_running_stats=False), "expected running statistics"),
    (Written(), "Written: its layers give other scores than the module"),
    (Branch(), "torch.export cannot capture Branch"),
    (nn.Bilinear(8, 8, 3), "torch.export cannot capture Bilinear"),
]  # fmt: skip


@pytest.mark.parametrize(("module", "text"), REFUSED, ids=[text[:12] for _, text in REFUSED])
def test_what_a_cluster_does_not_compute_is_refused_by_its_node(module, text):
    with pytest.raises(ClusterError, match=text):
        compile_module(module.eval(), torch.randn(50, 8))


def test_nodes_that_hold_a_whole_network_take_its_items_in_turn():
    network = compile_module(*_module("vgg"))
    steps = len(network.steps)
    pipeline = plan_pipeline(network, 3, [1.0] * steps)
    assert (pipeline.ends, pipeline.replicas) == ((0, steps), (3,))
    assert {pipeline.taker(0, row) for row in range(6)} == {1, 2, 3}


def test_parts_that_fit_a_node_are_as_fast_as_the_best_division():
    network = compile_module(*_module("vgg"))
    steps, nodes = len(network.steps), 3
    seconds = np.random.default_rng(0).random(steps)
    held = np.cumsum([0, *(step.bytes for step in network.steps)])
    most = int(held[-1]) - 1

    def bottlenecks():
        for cuts in chain(combinations(range(1, steps), 1), combinations(range(1, steps), 2)):
            parts = list(pairwise((0, *cuts, steps)))
            if all(held[b] - held[a] <= most for a, b in parts):
                for counts in product((1, 2), repeat=len(parts)):
                    if sum(counts) == nodes:
                        zipped = zip(parts, counts, strict=True)
                        yield max(seconds[a:b].sum() / count for (a, b), count in zipped)

    pipeline = plan_pipeline(network, nodes, seconds, node_bytes=most)
    assert all(held[b] - held[a] <= most for a, b in pairwise(pipeline.ends))
    assert pipeline.nodes == nodes
    # Activations on the wire cost a little.
    assert pipeline.bottleneck_s < min(bottlenecks()) + 0.01


def test_a_network_that_does_not_fit_its_nodes_is_refused():
    network = compile_module(*_module("vgg"))
    seconds = [1.0] * len(network.steps)
    widest = max(step.bytes for step in network.steps)
    with pytest.raises(ClusterError, match=rf"{widest:,} bytes of weights: a node holds"):
        plan_pipeline(network, 3, seconds, node_bytes=widest - 1)
    with pytest.raises(ClusterError, match=r"1 nodes of .* bytes: expected at least [2-9] for"):
        plan_pipeline(network, 1, seconds, node_bytes=widest)
    with pytest.raises(ClusterError, match="0 nodes: expected at least 1"):
        plan_pipeline(network, 0, seconds)


@pytest.mark.parametrize(
    ("items", "rows"),
    [(24, [4] * 6), (23, [4, 4, 4, 4, 4, 3]), (2, [1, 1]), (1, [1]), (11, [3, 3, 3, 2])],
)
def test_items_are_divided_evenly_over_nodes_that_take_them_in_turn(items, rows):
    network = IntegerNetwork(
        Integers((3,), 0, 9), [NetworkStep(Dense(np.eye(3), np.zeros(3)), (0,))]
    )
    pipeline = NetworkPipeline((0, 1), (0.021,), (2,))  # at most four or five items a tile
    flow = NetworkFlow(network, pipeline, 40_000)
    flow.slots = 64
    flow.submit(np.zeros((items, 3), np.uint8), lambda first, scores: None)
    tiles = flow.admit()
    assert [tile.rows for tile in tiles] == rows
    assert [tile.destination for tile in tiles] == [2, 1, 2, 1, 2, 1][: len(rows)]
