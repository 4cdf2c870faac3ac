# SPDX-License-Identifier: Apache-2.0
"""Models behind messages."""

from contextlib import closing

import numpy as np
import pytest
import torch
from torch import nn

from n3ic.errors import UsageError
from n3ic.model.family import family
from n3ic.model.random_models import random_model
from n3ic.model.simplified import unchanged
from n3ic.systems.stream.messages.devices import TransferDevice
from n3ic.systems.stream.messages.models import (
    ClassifierModule,
    MessageModel,
    message_model,
    tiny_yolo,
    vgg11,
)
from tests.support.family_models import FAMILIES, small_model
from tests.support.random_graphs import graph_family


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "side", "parameters", "out"),
    [(vgg11, 224, 132_863_336, (1, 1000)), (tiny_yolo, 416, 15_861_773, (1, 125, 13, 13))],
)
def test_the_image_networks_have_the_published_shapes(make, side, parameters, out):
    with torch.device("meta"):
        network = make().eval()
        assert network(torch.zeros(1, 3, side, side)).shape == out
    assert sum(p.numel() for p in network.parameters()) == parameters


def rows_of(values, padded):
    """Rows of bytes with padding behind, as a pipeline hands them over."""
    rows = torch.zeros(len(values), padded, dtype=torch.uint8)
    size = values[0].nbytes
    rows[:, :size] = torch.from_numpy(values.view(np.uint8).reshape(len(values), -1))
    return rows[:, :size]


def test_a_module_reads_a_row_where_it_lies():
    seen = []

    class Sum(nn.Module):
        def forward(self, x):
            seen.append(x)
            return x.sum(dim=(1, 2))

    model = MessageModel("sum", Sum(), (2, 3))
    values = np.arange(6, dtype=np.float32).reshape(1, 6)
    rows = rows_of(values, 64)
    with closing(TransferDevice()) as device:
        assert model.on(device)(rows, []).tolist() == [15.0]
    assert seen[0].shape == (1, 2, 3)
    assert seen[0].data_ptr() == rows.data_ptr()
    both = rows_of(np.arange(12, dtype=np.float32).reshape(2, 6), 64)
    assert Sum()(model.tensor(both)).tolist() == [15.0, 51.0]


def test_a_model_of_the_product_gives_its_own_scores():
    rng = np.random.default_rng(1)
    model = random_model((256, 32, 16, 2), rng)
    words = rng.integers(0, 2**32, (3, 64, 8), dtype=np.uint32)
    out = ClassifierModule(model)(torch.from_numpy(words.view(np.int32)))
    assert out.shape == (3, 64, 2)
    assert (out.numpy()[1] == model.scores(words[1])).all()


@pytest.mark.parametrize("name", FAMILIES)
def test_a_model_file_of_any_family_is_a_model(name, tmp_path):
    with graph_family():
        model = small_model(name)
        model.save(tmp_path / "m.n3ic")
        file_model = message_model(str(tmp_path / "m.n3ic"))
        assert file_model.shape == (64, model.input.n_words)
        assert file_model.module.model == model
        words = family(name).vectors(unchanged(model), 64, 0)[:64]
        out = file_model.module(torch.from_numpy(words.view(np.int32))[None])
        assert (out.numpy()[0] == model.scores(words)).all()


def test_messages_of_a_model_file_are_64_rows_of_words(tmp_path):
    random_model((40, 8, 2), np.random.default_rng(0)).save(tmp_path / "m.n3ic")
    assert message_model(str(tmp_path / "m.n3ic")).message_bytes == 512


def test_weights_follow_the_seed():
    first, again, other = (message_model("flow-mlp", seed).module for seed in (1, 1, 2))
    assert torch.equal(first[0].weight, again[0].weight)
    assert not torch.equal(first[0].weight, other[0].weight)


def test_an_unknown_model_is_refused():
    with pytest.raises(UsageError, match="vgg11, tiny-yolo, flow-mlp, binary or a model file"):
        message_model("resnet")
