# SPDX-License-Identifier: Apache-2.0
"""PyTorch modules as users have them become integer networks of the same class, or are refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import n3ic
from n3ic.errors import ModelError
from n3ic.model.bits import pack


class Sign(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.where(x >= 0, 1.0, -1.0)

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class BinaryLinear(nn.Linear):
    """Weights by a sign of its own, times a scale."""

    def __init__(self, inputs, outputs, *, bias=False, scale=1.0):
        super().__init__(inputs, outputs, bias=bias)
        self.scale = scale

    def forward(self, x):
        weight = Sign.apply(self.weight).to(x.dtype)
        return nn.functional.linear(x, weight * self.scale, self.bias)


class Step(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.how = how

    def forward(self, x):
        return self.how(x)


def masked(x):
    out = torch.zeros_like(x)
    out[x >= 0] = 1
    out[x < 0] = -1
    return out


def doubled(x):
    return (x >= 0).float() * 2 - 1


def in_place(x):
    return x.clone().ge_(0).mul_(2).sub_(1)


def of_data(x):
    out = x.clone()
    out.data = out.data.sign()
    return out


def through_a_view(x):
    out = x.clone()
    out.detach().unsqueeze(1).sign_()
    return out


SIGNS = {
    "autograd": Sign.apply,
    "where": lambda x: torch.where(x >= 0, 1.0, -1.0),
    "where of tensors": lambda x: torch.where(x < 0, -torch.ones_like(x), torch.ones_like(x)),
    "sign": torch.sign,
    "sign of a tie": lambda x: torch.sign(torch.sign(x) + 0.1),
    "comparison": doubled,
    "mask": masked,
    "in place": in_place,
    "hard": lambda x: torch.sign(nn.functional.hardtanh(x) + 1e-3),
    "new": lambda x: torch.where(x > 0, x.new_ones(x.shape), x.new_full(x.shape, -1.0)),
    "data": of_data,
    "view": through_a_view,
    "sign bit": lambda x: 1 - 2 * torch.signbit(x).float(),
    "leaky": lambda x: torch.sign(nn.functional.leaky_relu(x) + 1e-3),
    "two bits": lambda x: torch.clamp(torch.round(x), -2, 1),
}


def network(*parts):
    return nn.Sequential(*parts).eval()


def norm(width, rng, **kwargs):
    """A batch norm with statistics, some of its gains negative."""
    made = nn.BatchNorm1d(width, **kwargs)
    made.running_mean.copy_(torch.from_numpy(rng.normal(0, 2, width)))
    made.running_var.copy_(torch.from_numpy(rng.uniform(0.1, 9, width)))
    if made.affine:
        with torch.no_grad():
            made.weight.copy_(torch.from_numpy(rng.normal(0, 1, width)))
            made.bias.copy_(torch.from_numpy(rng.normal(0, 0.5, width)))
    return made


def every(width):
    return ((np.arange(1 << width)[:, None] >> np.arange(width)) & 1).astype(np.bool_)


def decides_alike(module, width, values=(-1, 1), **kwargs):
    """The model of a module, which has the module's class on all inputs."""
    model = n3ic.from_torch(module, width, values=values, **kwargs)
    bits = every(width)
    rows = torch.from_numpy(np.where(bits, values[1], values[0])).float()
    with torch.no_grad():
        expected = module.eval()(rows).reshape(len(bits), -1)
    best = expected.argmax(dim=1) if expected.shape[1] > 1 else (expected[:, 0] > 0).long()
    order = np.array([int(name.removeprefix("class")) for name in model.classes])
    assert np.array_equal(order[model.infer(pack(bits)).classes], best.numpy())
    return model


# --- modules that are binary networks -----------------------------------------------------------


@pytest.mark.first_case
@pytest.mark.parametrize("values", [(-1, 1), (0, 1), (1, -1)])
@pytest.mark.parametrize("how", SIGNS)
def test_signs_of_every_kind(how, values):
    rng = np.random.default_rng(3)
    torch.manual_seed(1)
    for normed in (True, False):
        behind = norm(7, rng) if normed else nn.Identity()
        module = network(
            BinaryLinear(9, 7), behind, Step(SIGNS[how]), nn.Dropout(0.3), BinaryLinear(7, 3)
        )
        model = decides_alike(module, 9, values)
        assert model.provenance["compared"] == "class equal on 512 of 512 inputs"


@pytest.mark.parametrize("seed", range(12))
def test_scales_biases_and_norms_of_any_network(seed):
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    classes = int(rng.integers(2, 6))
    widths = [int(w) for w in rng.integers(1, 9, 2)]
    scale = float(rng.choice([1.0, 0.1, 1e-30, 3e7, 0.7331]))
    module = network(
        BinaryLinear(8, widths[0], bias=bool(seed % 2), scale=scale),
        norm(widths[0], rng, affine=bool(seed % 3)),
        Step(SIGNS["where"]),
        BinaryLinear(widths[0], widths[1], bias=True, scale=0.25),
        Step(SIGNS["autograd"]),
        BinaryLinear(widths[1], classes, bias=True, scale=0.37),
    )
    decides_alike(module, 8)


def test_classes_whose_scores_differ_by_less_than_a_popcount_come_in_another_order():
    torch.manual_seed(0)
    last = BinaryLinear(6, 4, bias=True, scale=0.5)
    with torch.no_grad():
        last.bias.copy_(torch.tensor([0.0, 0.2, 0.7, 0.5]))
    model = decides_alike(network(last), 6, classes=["class0", "class1", "class2", "class3"])
    assert model.classes != ("class0", "class1", "class2", "class3")
    assert model.classes[0] == "class0"
    assert model.provenance["class_order"].startswith("classes 0, ")


def set_norm(part, gain, bias, mean=0.0, variance=1.0):
    with torch.no_grad():
        part.weight.fill_(gain)
        part.bias.fill_(bias)
        part.running_mean.fill_(mean)
        part.running_var.fill_(variance)


@pytest.mark.parametrize(
    ("gain", "bias"),
    [(-1, 0), (0, 0), (0, -1), (0, 1), (1e30, -1e30), (1e-30, 0), (-1e-30, 1e-30), (1, -3), (1, 3)],
)
@pytest.mark.parametrize("how", ["where", "sign", "comparison"])
def test_gains_and_biases_at_the_edge(gain, bias, how):
    torch.manual_seed(5)
    part = nn.BatchNorm1d(5, eps=0.0)
    set_norm(part, gain, bias)
    decides_alike(network(BinaryLinear(7, 5), part, Step(SIGNS[how]), BinaryLinear(5, 3)), 7)


@pytest.mark.parametrize("scale", [0.1, 0.7e-30, 1 / 3])
def test_ties_of_float_sums_are_counted(scale):
    """Exactly, the sums of six inputs are 0 on some rows; in floats they may be beside it."""
    torch.manual_seed(2)
    module = network(BinaryLinear(6, 9, scale=scale), Step(SIGNS["where"]), BinaryLinear(9, 2))
    model = n3ic.from_torch(module, 6)
    assert "9 neurons" in model.provenance["rounding"]
    assert "rounding may decide on" in model.provenance["compared"]
    exact = network(BinaryLinear(6, 9), Step(SIGNS["where"]), BinaryLinear(9, 2))
    exact.load_state_dict(module.state_dict())
    sure = n3ic.from_torch(exact, 6)
    assert "rounding" not in sure.provenance
    assert np.array_equal(sure.scores(pack(every(6))), model.scores(pack(every(6))))


def test_a_bias_that_falls_exactly_on_a_popcount():
    layer = BinaryLinear(4, 3, bias=True)
    with torch.no_grad():
        layer.weight.fill_(1.0)
        layer.bias.copy_(torch.tensor([0.0, 2.0, -2.0]))
    model = decides_alike(network(layer, Step(SIGNS["where"]), BinaryLinear(3, 2)), 4)
    assert model.hidden[0].thresholds.tolist() == [2, 1, 3]
    assert "rounding" not in model.provenance


def test_a_bias_beside_a_tie_may_round_as_kernels_add_it():
    """PyTorch adds a bias before, behind or between the inputs: 3.9999998 + 300 is 304."""
    layer, sums = BinaryLinear(512, 8, bias=True), (254, 2, 256)
    with torch.no_grad():
        layer.weight.fill_(1.0)
        layer.bias.copy_(torch.tensor([4 - 2**-22, 4, 4.5, 0, -4, 0.1, 5, 3 + 2**-22]))
    rows = np.zeros((64, 512), np.bool_)
    rows[:, : sums[0]] = True  # their sum is -4
    tie = n3ic.from_torch(network(layer, Step(SIGNS["where"]), BinaryLinear(8, 2)), 512, rows=rows)
    assert tie.hidden[0].thresholds.tolist()[:2] == [255, 254]
    assert "1 of 4,104 popcounts, of 1 neurons" in tie.provenance["rounding"]
    assert tie.provenance["compared"].endswith("rounding may decide on 64")
    away = n3ic.from_torch(
        network(layer, Step(SIGNS["where"]), BinaryLinear(8, 2)), 512, rows=~rows
    )
    assert away.provenance["compared"] == "class equal on 64 of 64 inputs"


def test_scores_that_are_equal_but_for_their_bias_keep_the_order_of_the_module():
    """They differ by less than the worst rounding of 64 inputs, but PyTorch's is far from it."""
    last = BinaryLinear(64, 3, bias=True)
    with torch.no_grad():
        last.weight.fill_(1.0)
        last.bias.copy_(torch.tensor([0.1, 0.10001, 0.10002]))
    model = n3ic.from_torch(network(last), 64)
    assert model.classes == ("class0", "class2", "class1")
    assert model.provenance["compared"].startswith("class equal on 4,096 of 4,096 inputs")


def test_a_layer_that_is_called_twice_on_one_input_is_one_layer():
    def hidden(m, x):
        return m.last(torch.where(m.first(x) + 0.5 > -m.first(x), 1.0, -1.0))

    torch.manual_seed(3)
    once = Forward(lambda m, x: m.last(torch.where(m.first(x) >= 0, 1.0, -1.0)))
    torch.manual_seed(3)
    twice = Forward(lambda m, x: hidden(m, x) + hidden(m, x))
    (ours,), (theirs,) = decides_alike(twice, 6).hidden, decides_alike(once, 6).hidden
    assert np.array_equal(ours.weights, theirs.weights)
    assert np.array_equal(ours.thresholds, theirs.thresholds)
    other = BinaryLinear(6, 6)
    for joined in (
        lambda m, x: m.last(torch.sign(m.first(x) + m.first(-x))),
        lambda m, x: m.last(torch.sign(m.first(x) + other(x))),
    ):
        with pytest.raises(ModelError, match=r"joins different layers.* leave them out"):
            n3ic.from_torch(Forward(joined), 6)


def test_zeros_of_sign_are_absent_connections():
    class Ternary(nn.Linear):
        def forward(self, x):
            return nn.functional.linear(x, torch.sign(self.weight))

    torch.manual_seed(1)
    layer = Ternary(6, 5, bias=False)
    with torch.no_grad():
        layer.weight[0, :3] = 0.0
    model = decides_alike(network(layer, Step(SIGNS["where"]), BinaryLinear(5, 2)), 6)
    assert model.hidden[0].fan_in.tolist() == [3, 6, 6, 6, 6]


def test_a_last_layer_of_few_bits_counts_copies_of_neurons():
    class Quantized(nn.Linear):
        def forward(self, x):
            levels = torch.clamp(torch.round(self.weight * 8), -3, 3)
            return nn.functional.linear(x, levels * 0.37, self.bias)

    torch.manual_seed(4)
    module = network(BinaryLinear(8, 6), Step(SIGNS["where"]), Quantized(6, 3))
    assert decides_alike(module, 8).hidden[0].n_outputs > 6


def test_one_score_is_two_classes():
    torch.manual_seed(4)
    for bias in (True, False):
        body = (BinaryLinear(8, 5), Step(SIGNS["where"]), BinaryLinear(5, 1, bias=bias))
        model = decides_alike(network(*body), 8)
        assert model.shape == (8, 5, 2)
        flat = network(*body, Step(lambda x: torch.sigmoid(x.squeeze(1))))
        assert n3ic.from_torch(flat, 8).changed(provenance={}) == model.changed(provenance={})


@pytest.mark.parametrize(
    "reader",
    [
        nn.Softmax(dim=1),
        nn.LogSoftmax(dim=1),
        Step(lambda x: x.argmax(dim=1)),
        Step(lambda x: x.max(1).indices),
        Step(lambda x: x.softmax(1).topk(2, 1).indices[:, 0]),
        Step(lambda x: 2 * x.softmax(1).argmax(1, keepdim=True).float()),
    ],
    ids=["softmax", "log_softmax", "argmax", "max", "topk", "number"],
)
def test_a_softmax_behind_the_scores_is_left_out(reader):
    torch.manual_seed(4)
    body = (BinaryLinear(8, 5), Step(SIGNS["where"]), BinaryLinear(5, 3))
    model = decides_alike(network(*body), 8)
    with_softmax = n3ic.from_torch(network(*body, reader), 8)
    assert with_softmax.changed(provenance={}) == model.changed(provenance={})


@pytest.mark.parametrize("threshold", [0.2, 0.5, 0.9])
@pytest.mark.parametrize("how", ["gt", "ge", "lt", "le", "score", "round"])
def test_one_score_is_compared_as_the_module_does(how, threshold):
    decide = {
        "score": lambda x: x > threshold,
        "round": lambda x: torch.sigmoid(x).round(),
    }.get(how, lambda x: getattr(torch.sigmoid(x), how)(threshold))
    torch.manual_seed(4)
    body = (BinaryLinear(8, 6), Step(SIGNS["where"]), BinaryLinear(6, 1, scale=0.5))
    model = decides_alike(network(*body, Step(decide)), 8)
    assert 0 < model.infer(pack(every(8))).classes.mean() < 1


def test_the_probability_of_the_second_of_two_classes():
    torch.manual_seed(4)
    body = (BinaryLinear(8, 5), Step(SIGNS["where"]), BinaryLinear(5, 2))
    with_probability = n3ic.from_torch(network(*body, Step(lambda x: x.softmax(1)[:, 1])), 8)
    assert with_probability.changed(provenance={}) == decides_alike(network(*body), 8).changed(
        provenance={}
    )


class Replacing(nn.Linear):
    """Writes signs over its weights and over its input, and keeps the floats beside."""

    def __init__(self, inputs, outputs, *, first=False):
        super().__init__(inputs, outputs)
        self.first = first

    def forward(self, x):
        if not self.first:
            x.data = x.data.sign()
        if not hasattr(self.weight, "org"):
            self.weight.org = self.weight.data.clone()  # type: ignore[attr-defined]
        self.weight.data = self.weight.org.sign()  # type: ignore[attr-defined]
        out = nn.functional.linear(x, self.weight)
        out += self.bias.view(1, -1).expand_as(out)
        return out


def test_layers_that_replace_their_data():
    torch.manual_seed(4)
    rng = np.random.default_rng(1)
    decides_alike(
        network(
            Replacing(9, 6, first=True),
            norm(6, rng),
            nn.Hardtanh(),
            Replacing(6, 5),
            Replacing(5, 3),
        ),
        9,
    )


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.enable_grad])
def test_modes_within_forward(mode):
    torch.manual_seed(4)
    body = network(
        BinaryLinear(8, 5),
        norm(5, np.random.default_rng(1)),
        Step(SIGNS["where"]),
        nn.Dropout(0.9),
        BinaryLinear(5, 3),
        nn.Softmax(dim=1),
    )

    class Within(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = body

        def forward(self, x):
            with mode():
                return self.body(x)

    expected = decides_alike(body, 8)
    assert n3ic.from_torch(Within(), 8).changed(provenance={}) == expected.changed(provenance={})


@pytest.mark.slow  # the compiler takes seconds to load
def test_compiled_modules_run_as_they_were_written():
    torch.manual_seed(4)
    body = network(BinaryLinear(8, 5), Step(SIGNS["where"]), BinaryLinear(5, 3))
    expected = decides_alike(body, 8)
    assert n3ic.from_torch(torch.compile(body), 8) == expected
    body[0].compile()
    assert n3ic.from_torch(body, 8) == expected


def test_the_input_may_be_made_signs_by_the_module():
    torch.manual_seed(4)
    first = Step(lambda x: torch.where(x > 0.5, 1.0, -1.0))
    body = (first, nn.Flatten(), BinaryLinear(8, 5), Step(SIGNS["sign"]), BinaryLinear(5, 3))
    assert decides_alike(network(*body), 8, (0, 1)) == decides_alike(network(*body), 8)


def test_a_module_in_training_mode_and_in_double_precision():
    torch.manual_seed(4)
    parts = (BinaryLinear(8, 5), nn.BatchNorm1d(5), Step(SIGNS["sign"]), nn.Dropout(0.9))
    module = nn.Sequential(*parts, BinaryLinear(5, 3)).train()
    model = n3ic.from_torch(module, 8)
    assert module.training
    assert module[1].training
    double = n3ic.from_torch(module.double(), 8)
    assert double.changed(provenance={}) == model.changed(provenance={})


def test_inputs_are_features():
    torch.manual_seed(4)
    module = network(BinaryLinear(6, 5), Step(SIGNS["where"]), BinaryLinear(5, 2))
    asked = {"dur": [10, 100, 1000, 5000], "flags": 2}
    model = n3ic.from_torch(module, asked, ["good", "bad"], name="mine")
    assert (model.name, model.classes) == ("mine", ("good", "bad"))
    assert model.input.fields == (
        n3ic.Field.thermometer("dur", [10, 100, 1000, 5000]),
        n3ic.Field.binary("flags", 2),
    )
    assert n3ic.from_torch(module, model.input).hidden[0].n_inputs == 6
    assert n3ic.from_torch(module, list("abcdef")).input.features == tuple("abcdef")
    assert n3ic.predict(model, {"dur": [7, 7000], "flags": [0, 3]}).classes.shape == (2,)


# --- modules that are none ----------------------------------------------------------------------


def scaled(width):
    """A batch norm with gains and shifts of its own for each channel."""
    return norm(width, np.random.default_rng(1))


class Forward(nn.Module):
    def __init__(self, forward, net=None):
        super().__init__()
        self.net = net
        self.first = BinaryLinear(6, 6)
        self.last = BinaryLinear(6, 2)
        self._forward = forward

    def forward(self, x):
        return self._forward(self, x)


def spoilt(name, value):
    module = network(
        BinaryLinear(6, 5), nn.BatchNorm1d(5), Step(SIGNS["where"]), BinaryLinear(5, 2)
    )
    module.get_parameter(name).data[0] = value
    return module


REFUSED = {
    "float weights": (
        lambda: network(nn.Linear(6, 5), nn.BatchNorm1d(5), Step(torch.sign), BinaryLinear(5, 2)),
        r"0 \(Linear\): .*weight .* is not \+-1 times .*Binarize",
    ),
    "a float last layer": (
        lambda: network(BinaryLinear(6, 5), Step(torch.sign), nn.Linear(5, 2)),
        r"^2 \(Linear\): weight .*quantize",
    ),
    "a float activation": (
        lambda: network(BinaryLinear(6, 5), nn.Tanh(), BinaryLinear(5, 2)),
        r"^1 \(Tanh\): neuron 0 gives .* 7 values; 2 \(BinaryLinear\).* Put a sign .* in its place",
    ),
    "a norm, then ReLU": (
        lambda: network(BinaryLinear(6, 5), scaled(5), nn.ReLU(), BinaryLinear(5, 2)),
        r"^2 \(ReLU\): neuron . gives .* Put a sign .* in its place",
    ),
    "ReLU, then a norm": (
        lambda: network(BinaryLinear(6, 5), nn.ReLU(), scaled(5), BinaryLinear(5, 2)),
        r"^1 \(ReLU\), then 2 \(BatchNorm1d\): .* in its place",
    ),
    "hardtanh": (
        lambda: network(BinaryLinear(6, 5), scaled(5), nn.Hardtanh(-1, 1), BinaryLinear(5, 2)),
        r"^2 \(Hardtanh\): .* in its place",
    ),
    "sigmoid in between": (
        lambda: network(BinaryLinear(6, 5), nn.Sigmoid(), BinaryLinear(5, 2)),
        r"^1 \(Sigmoid\): .* in its place",
    ),
    "GELU": (
        lambda: network(BinaryLinear(6, 5), nn.GELU(), BinaryLinear(5, 2)),
        r"^1 \(GELU\): an activation that is no sign; put one there",
    ),
    "an activation of its own": (
        lambda: Forward(lambda m, x: m.last(torch.tanh(m.first(x)))),
        r"^the module, tanh: .* last \(BinaryLinear\).* in its place",
    ),
    "no activation": (
        lambda: network(
            BinaryLinear(6, 30), Step(torch.sign), BinaryLinear(30, 9), network(BinaryLinear(9, 2))
        ),
        r"^2 \(BinaryLinear\), mm: .* values; 3.0 .* Put a sign .* where no activation is",
    ),
    "a norm and no activation": (
        lambda: network(BinaryLinear(6, 5), scaled(5), BinaryLinear(5, 2)),
        r"^1 \(BatchNorm1d\): .* Put a sign .* behind it, where no activation is",
    ),
    "a norm before the first layer": (
        lambda: network(scaled(6), BinaryLinear(6, 5), Step(torch.sign), BinaryLinear(5, 2)),
        r"^0 \(BatchNorm1d\): input bit 0 is .* or .*, and input bit 1 is .* Leave it out",
    ),
    "a norm behind the sign": (
        lambda: network(BinaryLinear(6, 5), Step(SIGNS["where"]), scaled(5), BinaryLinear(5, 2)),
        r"^2 \(BatchNorm1d\): neuron 0 is .* Put it in front of the sign",
    ),
    "ReLU behind the scores": (
        lambda: network(BinaryLinear(6, 5), Step(torch.sign), BinaryLinear(5, 2), nn.ReLU()),
        r"^3 \(ReLU\): score 0 neither grows nor falls.*return the scores before it",
    ),
    "a module within a module": (
        lambda: Forward(
            lambda m, x: m.net(x),
            net=network(BinaryLinear(6, 5), nn.Tanh(), network(BinaryLinear(5, 2))),
        ),
        r"^net.1 \(Tanh\): .* net.2.0 \(BinaryLinear\)",
    ),
    "double": (
        lambda: network(BinaryLinear(6, 5), Step(SIGNS["where"]), scaled(5)).double(),
        r"0.weight is torch.float64: convert the module with module.float\(\)",
    ),
    "no module": (lambda: network(BinaryLinear(6, 2)).state_dict(), "load_state_dict"),
    "NaN": (lambda: spoilt("1.weight", float("nan")), "1.weight holds a value that is not finite"),
    "infinity": (lambda: spoilt("1.bias", float("inf")), "1.bias holds a value that is not finite"),
    "overflow": (
        lambda: network(BinaryLinear(6, 2, scale=3e38), Step(lambda x: x * 2)),
        "not finite",
    ),
    "scales of classes": (
        lambda: network(BinaryLinear(6, 2), Step(lambda x: x * torch.tensor([1.0, 3.0]))),
        "give all classes one scale",
    ),
    "branches": (
        lambda: Forward(lambda m, x: m.last(x) if x.sum() > 0 else m.first(x)),
        "sum: it computes over the channels",
    ),
    "numbers read": (
        lambda: Forward(lambda m, x: m.last(x) if x[0, 0] > 0 else m.first(x)),
        "stays as it is|branches",
    ),
    "residual": (
        lambda: Forward(lambda m, x: m.last(torch.sign(m.first(x) + x))),
        "joins different layers",
    ),
    "joined": (lambda: Forward(lambda m, x: m.last(torch.cat([x, x], 1))), "chain of layers"),
    "dropout in evaluation": (
        lambda: Forward(lambda m, x: m.last(nn.functional.dropout(x))),
        "dropout that is active in evaluation",
    ),
    "statistics of the batch": (
        lambda: network(
            BinaryLinear(6, 2), nn.BatchNorm1d(2, track_running_stats=False), Step(torch.sign)
        ),
        "track_running_stats=True",
    ),
    "layer norm": (lambda: network(BinaryLinear(6, 2), nn.LayerNorm(2)), "use BatchNorm1d"),
    "convolution": (
        lambda: Forward(lambda m, x: nn.functional.conv1d(x.unsqueeze(1), torch.ones(1, 1, 6))),
        "torch.nn.Linear",
    ),
    "another width": (lambda: network(BinaryLinear(7, 2)), "takes 7 inputs, and 6 come"),
    "half": (lambda: network(BinaryLinear(6, 2)).half(), r"module.float\(\)"),
    "a tuple": (lambda: Forward(lambda m, x: (m.last(x), x)), "returns tuple"),
    "a constant": (lambda: Forward(lambda m, x: torch.ones(2, 2)), "its input does not change"),
    "the input alone": (lambda: Forward(lambda m, x: x), "no layer with weights"),
    "max of all": (lambda: Forward(lambda m, x: m.last(x).argmax()), "dim=1"),
    "scores in between": (
        lambda: Forward(lambda m, x: m.last(torch.sign(m.first(x).softmax(1) - 0.5))),
        "the last that a module may compute with",
    ),
    "less than the highest": (
        lambda: Forward(lambda m, x: m.first(x) - m.first(x).max(1, keepdim=True).values),
        "the last that a module may compute with",
    ),
    "scores turned around": (
        lambda: Forward(lambda m, x: (m.last(x).softmax(1) * -1).argmax(1)),
        "the last that a module may compute with",
    ),
    "the smallest": (
        lambda: Forward(lambda m, x: m.last(x).topk(1, 1, False).indices),
        "takes the highest",
    ),
    "the highest score": (
        lambda: Forward(lambda m, x: m.last(x).max(1).values),
        "does not tell the class",
    ),
    "the second best": (
        lambda: Forward(lambda m, x: m.last(x).topk(2, 1).indices[:, 1]),
        "does not tell the class",
    ),
    "some of the classes": (
        lambda: Forward(lambda m, x: m.first(x).softmax(1)[:, 1:]),
        "does not tell the class",
    ),
    "weighted classes": (
        lambda: Forward(lambda m, x: m.last(x).softmax(1) * torch.tensor([1.0, 9.0])),
        "the last that a module may compute with",
    ),
    "a threshold of many classes": (
        lambda: Forward(lambda m, x: m.first(x).argmax(1) > 2),
        "the last that a module may compute with",
    ),
    "the best row": (
        lambda: Forward(lambda m, x: m.last(x).softmax(1).argmax(0)),
        "dim=1",
    ),
    "softmax of one": (
        lambda: network(BinaryLinear(6, 1), nn.Softmax(dim=1)),
        "one score is always the highest",
    ),
    "bfloat16": (
        lambda: Forward(lambda m, x: m.last(torch.sign(m.first(x).bfloat16()).float())),
        "torch.bfloat16; let the module compute in torch.float32",
    ),
    "bits of floats": (
        lambda: Forward(lambda m, x: m.last((m.first(x).view(torch.int32) >= 0) * 2.0 - 1)),
        "reads the bits of a float",
    ),
    "a column": (
        lambda: Forward(lambda m, x: m.last(torch.sign(m.first(x) + torch.ones(6, 1)))),
        r"a constant of shape \(6, 1\) for 6 channels",
    ),
    "two shapes": (
        lambda: Forward(lambda m, x: m.first(x) + m.first(x).unsqueeze(2)),
        "different shapes|joins different layers",
    ),
    "some rows": (lambda: Forward(lambda m, x: m.last(x)[:2]), "cannot compute 64 rows"),
    "two types": (
        lambda: Forward(lambda m, x: nn.functional.linear(x, m.last.weight.sign().double())),
        "cannot compute 64 rows: .*same dtype",
    ),
    "asserts": (lambda: Forward(lambda m, x: m.last(x) if (x.abs() == 1).all() else x), "branches"),
    "a vector": (lambda: Forward(lambda m, x: x @ m.last.weight[0].sign()), "torch.nn.Linear"),
    "no values": (lambda: network(BinaryLinear(6, 2)).to("meta"), "cannot be copied to the CPU"),
    "lazy": (lambda: network(nn.LazyLinear(2)), "run the module once"),
    "scripted": (
        lambda: torch.jit.trace(network(BinaryLinear(6, 2)), torch.ones(1, 6)),
        "pass the Python module",
    ),
    "numpy": (lambda: Forward(lambda m, x: torch.from_numpy(x.numpy())), "the module"),
    "its own error": (lambda: Forward(lambda m, x: 1 / 0), "division by zero"),
}


@pytest.mark.first_case
@pytest.mark.parametrize("what", REFUSED)
def test_the_reason_says_what_to_change(what):
    torch.manual_seed(0)
    module, reason = REFUSED[what]
    with pytest.raises(ModelError, match=reason) as caught:
        n3ic.from_torch(module(), 6)
    assert "\n" not in str(caught.value)


def test_a_float_activation_of_many_levels():
    module = network(BinaryLinear(40, 5), nn.ReLU(), BinaryLinear(5, 2))
    with pytest.raises(ModelError, match=r"neuron 0 gives .* 21 values; .* Put a sign"):
        n3ic.from_torch(module, 40)


def test_a_constant_input_asks_for_other_values():
    module = network(Step(SIGNS["where"]), BinaryLinear(6, 2))
    decides_alike(module, 6)
    with pytest.raises(ModelError, match="whatever the input bits are; they may have other values"):
        n3ic.from_torch(module, 6, values=(0, 1))


def test_a_module_that_answers_by_chance():
    chance = Step(lambda x: x + torch.randn(1) * 6 * torch.tensor([1.0, 0.0]))
    torch.manual_seed(0)
    with pytest.raises(ModelError, match="the same each time"):
        n3ic.from_torch(network(BinaryLinear(6, 2), chance), 6)


@pytest.mark.parametrize("wrong", [0, True, "abc", 3.5, None])
def test_inputs_that_are_none(wrong):
    with pytest.raises(ModelError, match="inputs"):
        n3ic.from_torch(network(BinaryLinear(3, 2)), wrong)
    with pytest.raises(ModelError, match=r"2 classes, 3 names"):
        n3ic.from_torch(network(BinaryLinear(3, 2)), 3, "abc")
    with pytest.raises(ModelError, match="two different numbers"):
        n3ic.from_torch(network(BinaryLinear(3, 2)), 3, values=(1, 1))
    with pytest.raises(ModelError, match=r"expected bits, 0 and 1"):
        n3ic.from_torch(network(BinaryLinear(3, 2)), 3, rows=np.full((4, 3), -1))
    with pytest.raises(ModelError, match=r"shape \(rows, 3\), got \(0, 3\)"):
        n3ic.from_torch(network(BinaryLinear(3, 2)), 3, rows=np.zeros((0, 3)))
    with pytest.raises(ModelError, match=r"torch.nn.Module, got int"):
        n3ic.from_torch(3, 3)
