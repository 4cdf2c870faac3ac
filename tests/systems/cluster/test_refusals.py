# SPDX-License-Identifier: Apache-2.0
"""What a ring cannot compute is refused before a process starts."""

import numpy as np
import pytest

from n3ic.errors import ClusterError
from n3ic.families.spn.random_models import random_spn
from n3ic.systems.cluster.fcsn_api import check_computable
from n3ic.systems.cluster.launch import RingOptions

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
    spn = random_spn(np.random.default_rng(0))
    assert "cannot compute a sum-product network" in refusal(spn)
    assert "cannot compute str;" in refusal("model.n3ic")


def test_a_cluster_loads_none_of_them_either():
    with pytest.raises(ClusterError, match="a ring cannot compute ndarray"):
        check_computable(np.zeros((3, 3)))
