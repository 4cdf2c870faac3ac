# SPDX-License-Identifier: Apache-2.0
"""Training on the stream: a receiver whose model takes a step with each batch."""

import numpy as np
import pytest
import torch

from n3ic.data.dataset import data_set
from n3ic.data.split import split
from n3ic.families.binary.binary_mlp import BinaryMLP
from n3ic.families.binary.fold import fold
from n3ic.model.bits import unpack
from n3ic.systems.stream.messages.api import (
    MessageReceiver,
    MessageSender,
    ReceiverOptions,
    StreamTrainer,
)
from n3ic.systems.stream.messages.devices import DeviceMemoryError, TransferDevice
from n3ic.systems.stream.messages.training import weights_digest
from n3ic.systems.stream.messages.transfers import TRANSFERS
from n3ic.training.input_choice import choose_input
from n3ic.training.loop import deterministic, signs
from n3ic.training.recipe import Recipe, Training

pytest.importorskip("sklearn")
RNG = np.random.default_rng(0)
ROWS = RNG.standard_normal((60, 6)).astype("<f4")
LABEL = (ROWS[:, 0] > 0).astype("<i4")
TRAINING = Training(hidden=(16,))


def messages_of(label, rows):
    head = np.ascontiguousarray(label, "<i4").view(np.uint8).reshape(len(label), 4)
    return np.concatenate([head, np.ascontiguousarray(rows).view(np.uint8)], axis=1)


def as_floats(rows):
    return rows.view(torch.float32).clone()


def small_network():
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))


def trained(trainer, messages, batch, way="pull"):
    """Send messages one after the other, each when a row is free; the receiver's losses."""
    options = ReceiverOptions(way=way, rows=2, batch=batch, timeout_s=60, messages=len(messages))
    losses = []
    with MessageReceiver(trainer, TransferDevice, options) as receiver:
        sender = MessageSender(*receiver.address, part=64)
        for number, payload in enumerate(messages):
            while not receiver._pipeline.free_rows:
                losses += receiver._pipeline.step(0.05)
            sender.send(number, payload)
            while receiver.counts.ended <= number:
                losses += receiver._pipeline.step(0.05)
        losses += receiver
        sender.close()
        assert receiver.counts.computed == len(messages)
    return [outcome.result for outcome in losses]


@pytest.mark.parametrize("way", TRANSFERS)
def test_every_way_gives_the_weights_of_plain_training(way):
    with deterministic(3):
        trainer = StreamTrainer(small_network(), 24, as_floats)
        losses = trained(trainer, messages_of(LABEL, ROWS), 20, way)
    assert trainer.steps == len(losses) == 3
    with deterministic(3):
        network = small_network()
        optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
        for start in range(0, 60, 20):
            x, y = (torch.from_numpy(a[start : start + 20].copy()) for a in (ROWS, LABEL))
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(network(x), y.long()).backward()
            optimizer.step()
    assert weights_digest(network) == weights_digest(trainer.network)


def test_the_last_messages_of_a_stream_are_a_smaller_batch():
    trainer = StreamTrainer(small_network(), 24, as_floats)
    assert len(trained(trainer, messages_of(LABEL, ROWS)[:50], 20)) == trainer.steps == 3
    alone = StreamTrainer(small_network(), 24, as_floats)
    assert trained(alone, messages_of(LABEL, ROWS)[:1], 20) == [0.0] and not alone.steps


def test_a_binary_network_of_flows_is_the_exported_one():
    table = data_set("doh-tunnels").load()
    parts = split(table, "random", 0)
    recipe = Recipe("stream", "for one epoch", encoding="quantile", training=TRAINING)
    train, test = table.rows(parts.train), table.rows(parts.test)
    spec, _ = choose_input(train, recipe, seed=0)

    def inputs(rows):
        bits = (rows.view(torch.int32).unsqueeze(-1) >> torch.arange(32)) & 1
        return bits.flatten(1)[:, : spec.n_bits].float() * 2 - 1

    words = spec.encode_words(train.features).astype("<u4")
    assert torch.equal(inputs(torch.from_numpy(words).view(torch.uint8)),
                       signs(unpack(words, spec.n_bits)))  # fmt: skip
    with deterministic(0):
        network = BinaryMLP(spec.n_bits, len(table.classes), TRAINING)
        trainer = StreamTrainer(
            network, words.shape[1] * 4, inputs, after_step=BinaryMLP.clip_weights
        )
        trained(trainer, messages_of(train.label, words), 60)
    model = fold(network, spec, table.classes, name="stream")
    test_words = spec.encode_words(test.features)
    classes = model.scores(test_words).argmax(axis=1)
    assert (classes == test.label).mean() > 0.4  # of four classes
    logits = network.eval()(signs(unpack(test_words, spec.n_bits)))
    assert (logits.argmax(dim=1).numpy() == classes).all()


def test_a_device_that_is_too_small_trains_nothing():
    trainer = StreamTrainer(small_network(), 24, as_floats)
    with (
        pytest.raises(DeviceMemoryError, match="the device may hold 100 bytes"),
        MessageReceiver(trainer, lambda: TransferDevice(100)),
    ):
        pass
