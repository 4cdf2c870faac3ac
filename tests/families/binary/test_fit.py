# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest
import torch

from n3ic.errors import UsageError
from n3ic.families.binary.fit import fit_network, generalized_cross_entropy
from n3ic.families.binary.fold import fold
from n3ic.model.bits import pack
from n3ic.model.inputs import InputSpec
from n3ic.training.loop import batch_rows
from n3ic.training.recipe import Recipe, Training


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    bits = rng.random((3000, 64)) < 0.5
    weights = np.sign(rng.normal(size=64))
    label = ((2.0 * bits - 1) @ weights > 0).astype(np.int64)
    return bits, label


def train(rows, config, seed=0, **more):
    bits, label = rows
    validation = (bits[:500], label[:500])
    trained = fit_network(
        bits[500:], label[500:], 2, config, seed=seed, validation=validation, **more
    )
    return trained, fold(trained.network, InputSpec.raw(64), ("a", "b"))


CONFIGS = {
    "default": Training(hidden=(16,), epochs=6, batch_size=64),
    "paper": Training(
        hidden=(16, 8),
        epochs=6,
        batch_size=64,
        batch_norm=False,
        output_bias=False,
        loss="squared_hinge",
        dropout=0.25,
        ste="clip",
        schedule="constant",
    ),
    "adamw": Training(hidden=(16,), epochs=6, batch_size=64, optimizer="adamw"),
    "bounded": Training(hidden=(16,), epochs=6, batch_size=64, loss="generalized_cross_entropy"),
    "balanced": Training(
        hidden=(), epochs=6, batch_size=64, class_weight="balanced", label_smoothing=0.1
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name == "default" else pytest.mark.slow) for name in CONFIGS],
)
def test_training_learns_and_repeats(rows, name):
    first, model = train(rows, CONFIGS[name])
    torch.manual_seed(1234)  # the caller's generator must not matter, nor its threads
    threads = torch.get_num_threads()
    torch.set_num_threads(3 - min(threads, 2))
    try:
        _, again = train(rows, CONFIGS[name])
    finally:
        torch.set_num_threads(threads)
    assert model.to_bytes() == again.to_bytes()
    assert first.history[-1].number == 6
    right = (model.infer(pack(rows[0])).classes == rows[1]).mean()
    assert right > 0.75
    _, other = train(rows, CONFIGS[name], seed=1)
    assert other.to_bytes() != model.to_bytes()


def test_a_loss_that_is_bounded():
    logits = torch.tensor([[0.0, 0.0], [20.0, -20.0], [-20.0, 20.0], [1.0, 0.0]])
    y = torch.tensor([0, 0, 0, 1])
    logits.requires_grad_()
    rows = generalized_cross_entropy(logits, y, 0.7, reduction="none")
    own = logits.detach().softmax(dim=1)[range(4), y]
    assert rows.tolist() == pytest.approx(((1 - own**0.7) / 0.7).tolist(), abs=1e-6)
    assert generalized_cross_entropy(logits, y, 0.7).item() == pytest.approx(rows.mean().item())
    rows.sum().backward()
    bounded = logits.grad.clone()
    logits.grad = None
    torch.nn.functional.cross_entropy(logits, y, reduction="sum").backward()
    assert torch.allclose(bounded, logits.grad * own[:, None] ** 0.7, atol=1e-6)
    assert bounded[2].abs().max() < 1e-6  # the network is sure that this label is wrong


def test_the_epoch_is_chosen_by_the_loss_that_is_trained(rows):
    bits, label = rows
    config = Training(hidden=(16,), epochs=6, batch_size=64, loss="generalized_cross_entropy")
    trained, _ = train(rows, config)
    least_loss = min(epoch.validation_loss for epoch in trained.history)
    with torch.no_grad():
        logits = trained.network(torch.from_numpy(2.0 * bits[:500] - 1).float())
    again = generalized_cross_entropy(logits, torch.from_numpy(label[:500]), 0.7)
    assert again.item() == pytest.approx(least_loss, abs=1e-6)


@pytest.mark.slow
def test_density_is_exact_at_the_end(rows):
    _, model = train(rows, Training(hidden=(16, 8), epochs=10, batch_size=64, density=0.25))
    assert set(model.hidden[0].fan_in.tolist()) == {16}
    assert set(model.hidden[1].fan_in.tolist()) == {4}
    assert model.output.mask is None
    assert (model.infer(pack(rows[0])).classes == rows[1]).mean() > 0.6


@pytest.mark.slow
def test_early_stopping_keeps_the_best_epoch(rows):
    trained, _ = train(rows, Training(hidden=(16,), epochs=60, batch_size=64, patience=3))
    losses = [e.validation_loss for e in trained.history]
    assert len(losses) < 60
    assert min(losses) == losses[-4]


def test_distillation_needs_a_teacher(rows):
    with pytest.raises(UsageError, match="teacher"):
        train(rows, Training(distill=0.5, epochs=1))
    teacher = np.eye(2)[rows[1][500:]]
    _, model = train(
        rows, Training(hidden=(8,), distill=0.9, epochs=6, batch_size=64), teacher=teacher
    )
    assert (model.infer(pack(rows[0])).classes == rows[1]).mean() > 0.7


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"epochs": 0}, "epochs"),
        ({"hidden": (0,)}, "hidden"),
        ({"density": 0.0}, "density"),
        ({"ste": "magic"}, "ste"),
        ({"nope": 1}, "no option nope"),
    ],
)
def test_recipes_are_checked(given, message):
    with pytest.raises(UsageError, match=message):
        Recipe("r", "").with_options(given)


def test_recipe_options_reach_both_levels():
    recipe = Recipe("r", "").with_options({"bits": 64, "epochs": 3, "hidden": None})
    assert (recipe.bits, recipe.training.epochs, recipe.training.hidden) == (64, 3, (32, 16))


@pytest.mark.parametrize(
    ("rows", "wanted", "expected"),
    [
        (100_000, 512, 512),
        (16_384, 512, 512),
        (16_000, 512, 500),  # 32 steps
        (720, 512, 22),
        (300, 512, 16),  # batch norm bears no less
        (10, 512, 10),
        (2_000, 8, 8),  # as asked for
        (2_000, 1, 1),
    ],
)
def test_few_rows_get_smaller_batches_and_never_larger_ones(rows, wanted, expected):
    assert batch_rows(rows, wanted) == expected
