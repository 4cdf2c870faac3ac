# SPDX-License-Identifier: Apache-2.0
"""What is asked of a training, and the command that asks for it again."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from n3ic import plugins
from n3ic.datasets.ns3_tomography import DATASET
from n3ic.errors import UsageError
from n3ic.families.binary.sizing import fitted
from n3ic.model.inputs import Field, InputSpec
from n3ic.model.layers import HiddenLayer, OutputLayer
from n3ic.model.network import BinaryModel
from n3ic.training.recipe import Recipe
from n3ic.usecases.base import load_table, use_case
from n3ic.usecases.request import TrainRequest, command_words


def words(request):
    case = use_case(request.use_case)
    return command_words(request, case, request.chosen_recipe(case), request.options, "random")


def test_every_changed_value_is_in_the_command():
    request = TrainRequest(
        "anomaly",
        data="-flows.csv",
        recipe="paper",
        overrides={
            "hidden": (16, 8),
            "batch_norm": True,
            "output_bias": False,
            "columns": ("sbytes", "ct_*"),
            "distill": 0.25,
            "label_smoothing": 0.1,
            "epochs": 20,
            "bits": None,
        },
        options={"queue": "0,1"},
        seed=3,
        seeds=2,
    )
    assert words(request) == [
        "n3ic", "train", "anomaly", "--recipe=paper", "--data=-flows.csv",
        "--columns=sbytes,ct_*", "--hidden=16,8", "--batch-norm", "--label-smoothing=0.1",
        "--distill=0.25", "--queue=0,1", "--protocol=random", "--seed=3", "--seeds=2",
    ]  # fmt: skip


def test_another_data_set_is_in_the_command():
    request = TrainRequest("classification", dataset="cic-ids2017", options={"positive": "Bot"})
    assert {"--dataset=cic-ids2017", "--positive=Bot"} <= {*words(request)}
    table = load_table(use_case("classification"), request.data, request.dataset)
    assert (table.name, len(table)) == ("cic-ids2017", 9000)


def test_a_recipe_of_ones_own_is_told_by_what_differs():
    own = replace(use_case("anomaly").recipes["default"], bits=64)
    assert "--bits=64" in words(TrainRequest("anomaly", recipe=own))


def test_what_no_command_line_can_say_has_no_command():
    assert words(TrainRequest("anomaly", recipe=Recipe("mine", ""))) is None
    table = DATASET.load().rows(np.arange(100))
    assert words(TrainRequest("tomography", table=table)) is None


@pytest.mark.parametrize(
    "seeds", [{"seed": -1}, {"seed": 2**32}, {"seed": 2**32 - 1, "seeds": 2}, {"seeds": 0}]
)
def test_seeds_that_are_none_are_refused(seeds):
    with pytest.raises(UsageError, match="seeds"):
        TrainRequest("anomaly", **seeds)


def test_an_unknown_protocol_and_recipe_are_refused():
    with pytest.raises(UsageError, match="unknown protocol 'monthly'"):
        TrainRequest("anomaly", protocol="monthly")
    with pytest.raises(UsageError, match="has no recipe 'nope'; it has default"):
        TrainRequest("anomaly", recipe="nope").chosen_recipe(use_case("anomaly"))


def test_few_bits_bring_their_encoding_and_shape_and_the_command_says_no_more():
    few = TrainRequest("anomaly", overrides={"bits": 8})
    recipe = few.chosen_recipe(use_case("anomaly"))
    assert (recipe.encoding, recipe.bits) == ("greedy", 8)
    assert (recipe.training.method, recipe.training.loss) == ("prototypes", "cross_entropy")
    assert recipe.training.polish > use_case("anomaly").recipes["default"].training.polish
    assert [word for word in words(few) if word.startswith("--bits")] == ["--bits=8"]
    assert not {w.partition("=")[0] for w in words(few)} & {"--encoding", "--hidden", "--polish"}


@pytest.mark.parametrize(
    ("given", "tree"),
    [
        ({"bits": 8}, 3072),
        ({"bits": 128}, 3072),
        ({"bits": 8, "tree_bytes": 0}, 0),
        ({"bits": 8, "hidden": (9,)}, 0),
        ({"bits": 8, "loss": "squared_hinge"}, 0),
        ({"bits": 8, "encoding": "tree"}, 0),
        ({"bits": 256}, 0),
        ({}, 0),
    ],
)
def test_a_tree_to_fall_back_on_comes_with_few_bits_of_which_nothing_else_is_asked(given, tree):
    case = use_case("anomaly")
    request = TrainRequest("anomaly", overrides=given)
    assert request.chosen_recipe(case).tree_bytes == tree
    again = {w.partition("=")[0]: w.partition("=")[2] for w in words(request)[3:]}
    option = again.get("--tree-bytes")
    assert option == (str(tree) if given.get("bits", 256) <= 128 and tree == 0 else None)


def test_a_budget_of_bytes_bounds_the_tree_too():
    case = use_case("anomaly")
    for given, tree in (({}, 64), ({"tree_bytes": 0}, 0), ({"loss": "squared_hinge"}, 0)):
        request = TrainRequest("anomaly", budget_bytes=64, overrides=given)
        assert request.chosen_recipe(case).tree_bytes == tree
    paper = TrainRequest("anomaly", recipe="paper", budget_bytes=1092)
    assert paper.chosen_recipe(case).tree_bytes == 0


def test_what_is_given_beside_the_bits_is_kept_and_in_the_command():
    usual = use_case("anomaly").recipes["default"].training.hidden
    given = {"bits": 8, "hidden": usual, "encoding": "weighted", "polish": 3}
    request = TrainRequest("anomaly", overrides=given)
    recipe = request.chosen_recipe(use_case("anomaly"))
    assert (recipe.encoding, recipe.training.hidden) == ("weighted", usual)
    assert recipe.training.method == "gradient"  # of two hidden layers
    assert {"--bits=8", "--encoding=weighted", "--polish=3"} <= {*words(request)}


@pytest.mark.parametrize(
    ("use", "given", "n_classes", "hidden"),
    [
        ("classification", {}, 10, (32,)),
        ("classification", {"bits": 256}, 10, (32,)),
        ("classification", {"bits": 128}, 10, (64,)),
        ("classification", {"bits": 64}, 10, (128,)),
        ("classification", {"bits": 64, "hidden": (24, 16)}, 10, (24, 16)),
        ("anomaly", {"bits": 128}, 2, (60, 16)),
        ("anomaly", {"bits": 256}, 2, (32, 16)),
    ],
)
def test_no_narrow_second_layer_stands_before_many_classes(use, given, n_classes, hidden):
    request = TrainRequest(use, overrides=given)
    assert request.chosen_recipe(use_case(use), n_classes).training.hidden == hidden


def test_encodings_that_learn_no_labels_stay_with_other_bits():
    request = TrainRequest("anomaly", recipe="paper", overrides={"bits": 512})
    case = use_case("anomaly")
    assert request.chosen_recipe(case) == replace(case.recipes["paper"], bits=512)


@pytest.mark.parametrize("given", [{"epochs": 5}, {"density": 0.5}, {"distill": 0.5}, {"trees": 3}])
def test_what_is_about_gradients_keeps_them(given):
    request = TrainRequest("anomaly", overrides={"bits": 8, **given})
    training = request.chosen_recipe(use_case("anomaly")).training
    assert training.method == "gradient"
    name, value = next(iter(given.items()))
    assert getattr(training, name) == value


def cuts_of(recipe, step):
    """An input of as many bits as the recipe has, a feature for each five of them."""
    if recipe.encoding == "binary":
        return InputSpec.raw(recipe.bits)
    starts = range(0, recipe.bits, 5)
    ends = [min(start + 5, recipe.bits) for start in starts]
    return InputSpec(
        Field.thermometer(f"x{a}", range(step, step * (b - a + 1), step))
        for a, b in zip(starts, ends, strict=True)
    )


def largest(recipe, n_classes, spec):
    """A network of the recipe whose thresholds and biases are as large as they get."""
    shape = [recipe.bits, *recipe.training.hidden, n_classes]
    layers = [np.ones((b, a), dtype=bool) for a, b in pairwise(shape)]
    masked = recipe.training.density < 1
    hidden = [
        HiddenLayer(w, mask=w if masked else None, thresholds=np.full(len(w), w.shape[1] + 1))
        for w in layers[:-1]
    ]
    output = OutputLayer(layers[-1], bias=np.full(n_classes, -shape[-2]))
    return BinaryModel(spec, tuple(hidden), output, tuple(map(str, range(n_classes))))


@pytest.mark.parametrize("density", [1.0, 0.5])
@pytest.mark.parametrize("n_classes", [2, 10])
@pytest.mark.parametrize("step", [1, 1000, 100_000])
def test_a_budget_bounds_all_bytes_and_more_never_give_fewer_bits(n_classes, density, step):
    """Cuts of 1, 2 or 4 bytes, which are known only once they are chosen, change the layers."""
    case, bits = use_case("anomaly"), 0
    for budget in (50, 64, 100, 256, 600, 700, 900, 1400, 1700, 2200, 4096, 16384):
        request = TrainRequest("anomaly", budget_bytes=budget, overrides={"density": density})
        recipe = request.chosen_recipe(case, n_classes)
        spec = cuts_of(recipe, step)
        own = fitted(recipe, budget, n_classes, spec.memory_bytes)
        assert 0.8 * budget <= largest(own, n_classes, spec).total_bytes <= budget
        assert bits <= recipe.bits <= case.recipes["default"].bits
        bits = recipe.bits


def test_a_network_whose_cuts_alone_exceed_a_budget_keeps_its_layers():
    recipe = TrainRequest("anomaly", budget_bytes=64).chosen_recipe(use_case("anomaly"))
    assert fitted(recipe, 64, 2, 64) == recipe
    trees = recipe.with_options({"method": "trees"})
    assert fitted(trees, 5000, 2, 64) == trees


def test_a_network_without_cuts_and_thresholds_is_all_weights():
    case = use_case("anomaly")
    request = TrainRequest("anomaly", recipe="paper", budget_bytes=1092)
    assert request.chosen_recipe(case, 2).training.hidden == (32, 16)
    few = TrainRequest("anomaly", recipe="paper", budget_bytes=64)
    with pytest.raises(UsageError, match=r"64 bytes hold no network .*; take 65 bytes"):
        few.chosen_recipe(case, 2)
    enough = TrainRequest("anomaly", recipe="paper", budget_bytes=65)
    assert enough.chosen_recipe(case, 2).training.hidden == (2,)


def test_bits_beside_a_budget_are_kept_and_hidden_layers_refused():
    case = use_case("anomaly")
    request = TrainRequest("anomaly", budget_bytes=512, overrides={"bits": 24})
    assert request.chosen_recipe(case).bits == 24
    for given, message in (({"hidden": (8,)}, "chooses the hidden"), ({"bits": 256}, "fewer bits")):
        request = TrainRequest("anomaly", budget_bytes=48, overrides=given)
        with pytest.raises(UsageError, match=message):
            request.chosen_recipe(case)


def test_trees_stay_trees_with_few_bits_and_have_no_budget_of_bytes():
    case = use_case("anomaly")
    few = TrainRequest("anomaly", recipe="voting-trees", overrides={"bits": 8}).chosen_recipe(case)
    assert (few.training.method, few.encoding) == ("trees", "greedy")
    for request in (
        TrainRequest("anomaly", recipe="voting-trees", budget_bytes=512),
        TrainRequest("anomaly", overrides={"trees": 3}, budget_bytes=512),
    ):
        with pytest.raises(UsageError, match="trees take a number"):
            request.chosen_recipe(case, 2)


@pytest.mark.parametrize("name", plugins.names("n3ic.usecases"))
def test_no_recipe_has_the_name_of_a_family(name):
    """`--recipe tables` would train what `--family tables` does not."""
    families = plugins.names("n3ic.learners")
    assert not {*use_case(name).recipes} & {*families}


def test_up_to_128_bits_are_different_cuts_of_boosted_trees_or_of_one():
    request = TrainRequest("anomaly", overrides={"bits": 128})
    case = use_case("anomaly")
    assert request.chosen_recipe(case, 2).encoding == "boosted"
    assert request.chosen_recipe(case, 10).encoding == "tree"


def test_more_bits_are_chosen_jointly_for_two_classes_than_for_many():
    request = TrainRequest("anomaly", overrides={"bits": 64})
    case = use_case("anomaly")
    two, ten = (request.chosen_recipe(case, n) for n in (2, 10))
    assert (two.encoding, two.training.method) == ("greedy", "gradient")
    assert (ten.encoding, ten.training.method) == ("tree", "gradient")
    for recipe, n in ((two, 2), (ten, 10)):
        command = command_words(request, case, recipe, {}, "random", n) or []
        assert "--bits=64" in command and not any(word.startswith("--encoding") for word in command)
