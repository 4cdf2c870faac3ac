# SPDX-License-Identifier: Apache-2.0
"""The one training loop, and the one rule by which every network's epoch is chosen."""

import numpy as np
import pytest
import torch
from torch import nn

from n3ic.training import float_mlp
from n3ic.training.loop import Passes, deterministic, run_epochs


@pytest.mark.slow
def test_the_float_mlp_keeps_the_epoch_of_the_least_validation_loss(monkeypatch):
    rng = np.random.default_rng(1)
    bits = rng.random((900, 24)) < 0.5
    label = (bits[:, :5].sum(axis=1) + rng.normal(0, 1.5, 900) > 2.5).astype(np.int64)
    seen = []

    def recorded(*given, **named):
        seen.extend(run_epochs(*given, **named))

    monkeypatch.setattr(float_mlp, "run_epochs", recorded)
    validation = bits[600:], label[600:]
    odds = float_mlp.fit_float_mlp(
        (bits[:600], label[:600]), validation, validation[0], 2, (32, 16), 0
    )
    losses = [epoch.validation_loss for epoch in seen]
    accuracies = [epoch.validation_accuracy for epoch in seen]
    assert np.argmin(losses) != np.argmax(accuracies)  # else the rule would make no difference
    least_loss = float(-np.log(odds[np.arange(300), validation[1]]).mean())
    assert least_loss == pytest.approx(min(losses), abs=1e-6)


def trained(rows, passes, *, sign=1.0, **more):
    """Batches, figures of each epoch, network and optimizer of a linear network."""
    with deterministic(0):
        network = nn.Linear(4, 2)
        x, y = torch.randn(rows, 4), torch.randint(2, (rows,))
        batches = []

        def loss(index):
            batches.append(len(index))
            return sign * nn.functional.cross_entropy(network(x[index]), y[index])

        optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
        history = run_epochs(network, optimizer, loss, rows, passes, **more)
    return batches, history, network, optimizer


def test_every_row_is_passed_over_once_but_for_too_small_a_batch():
    batches, history, *_ = trained(21, Passes(2, 10))
    assert batches == [10, 10, 1] * 2
    assert [e.number for e in history] == [1, 2]
    assert all(np.isnan(e.validation_loss) for e in history)
    assert trained(21, Passes(2, 10, least_batch=2))[0] == [10, 10] * 2
    assert trained(29, Passes(1, 10, least_batch=10))[0] == [10, 10]


@pytest.mark.parametrize(("rows", "least"), [(29, 10), (21, 2), (30, 10), (29, 1)])
def test_the_loss_is_the_mean_of_the_rows_that_were_trained_on(rows, least):
    network = nn.Linear(1, 2)

    def loss(index):
        return network.weight.sum() * 0 + torch.ones(())

    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    passes = Passes(2, 10, least_batch=least)
    history = run_epochs(network, optimizer, loss, rows, passes)
    assert [epoch.loss for epoch in history] == [1.0, 1.0]
    assert np.isnan(run_epochs(network, optimizer, loss, least - 1, passes)[0].loss)


@pytest.mark.parametrize("least", [1, 2, 10])
def test_the_cosine_ends_at_zero(least):
    *_, optimizer = trained(21, Passes(3, 10, least_batch=least))
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0, abs=1e-12)


def test_the_best_of_the_epochs_that_may_be_kept_is_kept():
    validation_rows = torch.randn(50, 4), torch.randint(2, (50,))
    begun = []
    _, history, network, _ = trained(
        40,
        Passes(12, 10, choose_from=6, patience=2),
        sign=-1.0,  # the loss rises from the first epoch
        validation=validation_rows,
        before_epoch=begun.append,
    )
    losses = [e.validation_loss for e in history]
    assert losses == sorted(losses)
    assert begun == list(range(len(history))) == list(range(9))
    with torch.no_grad():
        loss = float(nn.functional.cross_entropy(network(validation_rows[0]), validation_rows[1]))
    assert loss == losses[6]
