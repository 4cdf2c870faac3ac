# SPDX-License-Identifier: Apache-2.0
"""What a ring cannot compute is refused before a process starts."""

import numpy as np
import pytest

import n3ic
from n3ic.errors import ClusterError
from n3ic.model.layered import in_layers
from n3ic.systems.cluster.fcsn_api import check_computable
from n3ic.systems.cluster.launch import RingOptions
from tests.support.command_line import typed
from tests.support.family_models import FAMILIES, small_model
from tests.support.random_graphs import graph_family, layered_model

NOWHERE = RingOptions(dask="tcp://127.0.0.1:9")  # a ring that is started fails with another error


def refusal(model):
    module = pytest.importorskip("n3ic.systems.cluster.module")
    with pytest.raises(ClusterError) as refused, module.on_cluster(model, 2, options=NOWHERE):
        pass
    text = str(refused.value)
    assert "computes the fully connected binary layers of a BinaryModel" in text
    assert "GemmKernel" in text
    return text


def test_a_pytorch_module_is_refused_with_its_layer():
    nn = pytest.importorskip("torch").nn
    deep = nn.Sequential(nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU()), nn.Linear(8, 2))
    assert "Sequential, whose layer '0.0' is Conv2d(1, 2, kernel_size=(3, 3)" in refusal(deep)
    assert "cannot compute Linear, the layer Linear(in_features=8" in refusal(nn.Linear(8, 2))


def test_other_models_are_refused():
    pytest.importorskip("torch")
    assert "cannot compute str;" in refusal("model.n3ic")


@pytest.mark.parametrize("name", [n for n in FAMILIES if n != "binary-network"])
def test_models_without_layers_are_refused_by_their_operations(name, tmp_path):
    with graph_family():
        model = small_model(name)
        model.save(tmp_path / "m.n3ic")
        message = f"layers of a binary network, got a model of family {name}"
        message += " of operations .*(choice|log-add|look-up)"
        ways = (
            lambda: check_computable(model),
            lambda: n3ic.plan_cluster(model, nodes=2),
            lambda: n3ic.run_cluster(model, nodes=2),
            lambda: n3ic.run_cluster(tmp_path / "m.n3ic", nodes=2),
        )
        for way in ways:
            with pytest.raises(ClusterError, match=message):
                way()
        for words in ("plan", "run"):
            done = typed(f"cluster {words} m.n3ic --nodes 2", tmp_path, expect=1)
            assert f"got a model of family {name}" in done.stderr


def test_layers_of_any_family_are_spread_over_a_ring(tmp_path):
    with graph_family():
        model = layered_model(1, (20,))
        model.save(tmp_path / "m.n3ic")
        check_computable(model)
        plan = n3ic.plan_cluster(model, nodes=2)
        network = in_layers(model)
        assert plan.placement.shape == network.shape
        assert plan.placement.model == network.digest
        done = typed("cluster plan m.n3ic --nodes 2", tmp_path)
        assert "where the layers lie" in done.stdout


@pytest.mark.slow
def test_a_ring_computes_layers_of_any_family():
    pytest.importorskip("distributed")
    with graph_family():
        model = layered_model(1, (20, 12))
        assert n3ic.run_cluster(model, nodes=2, rows=20).model == in_layers(model)


def test_a_cluster_loads_none_of_them_either():
    with pytest.raises(ClusterError, match="a ring cannot compute ndarray"):
        check_computable(np.zeros((3, 3)))
