# SPDX-License-Identifier: Apache-2.0
"""What the decoder makes of each node: a line in one popcount, a layer, or a refusal."""

from types import SimpleNamespace

import numpy as np
import pytest

from n3ic.errors import VerifyError
from n3ic.exporters.onnx import decode as decoder
from n3ic.exporters.onnx.decode import _Reader, cuts_of, decode, shunt_of
from n3ic.model.inputs import Field, InputSpec

WEIGHTS = [[1, -1, 1], [-1, -1, 1]]  # two inputs, three neurons
SPARSE = [[1, 0, -1], [-1, 0, 1]]


def node(op, *inputs, to="t", attributes=()):
    named = [SimpleNamespace(name=name) for name in attributes]
    return SimpleNamespace(
        op_type=op, input=list(inputs), output=[to], attribute=named, name=f"{op}_{to}"
    )


def read(*nodes, source="signs", **constants):
    """A reader that has seen some nodes."""
    reader = _Reader({name: np.array(c, np.float64) for name, c in constants.items()}, source)
    for seen in nodes:
        reader.visit(seen)
    return reader


def line(reader, name="t"):
    affine = reader.lines[name]
    return affine.slope, affine.offset.tolist()


def test_the_input_is_bits_or_signs():
    assert line(read(source="bits"), "bits") == line(read(source="features"), "bits") == (1, [0])
    assert line(read(source="signs"), "signs") == (2, [-1])
    assert [*read(source="bits").lines] == ["bits"] and [*read().lines] == ["signs"]


@pytest.mark.parametrize(
    ("op", "slope_and_offset"),
    [("Add", (2, [3])), ("Sub", (2, [-5])), ("Mul", (8, [-4])), ("Div", (0.5, [-0.25]))],
)
def test_a_line_is_moved_and_scaled(op, slope_and_offset):
    assert line(read(node(op, "signs", "c"), c=[4])) == slope_and_offset


def test_a_line_is_moved_by_channel_but_scaled_by_one_factor():
    assert line(read(node("Sub", "signs", "c"), c=[[3], [4]])) == (2, [-4, -5])
    with pytest.raises(ValueError, match="too many values"):
        read(node("Mul", "signs", "c"), c=[3, 4])


def test_a_cast_changes_nothing_and_other_tensors_are_not_followed():
    assert line(read(node("Cast", "signs", to="u"), node("Cast", "u"))) == (2, [-1])
    assert [*read(node("Erf", "features")).lines] == ["signs"]
    with pytest.raises(ValueError, match="n3ic writes no such node"):
        read(node("Erf", "signs"))
    after = read(node("Cast", "signs", to="scores"), node("Erf", "scores"))
    assert [*after.lines] == ["signs", "scores"]


def test_a_product_counts_the_agreements_of_weights():
    affine = read(node("MatMul", "signs", "w"), w=WEIGHTS).lines["t"]
    assert (affine.slope, affine.offset.tolist(), affine.mask) == (2, [-2, -2, -2], None)
    assert affine.weights.tolist() == [[True, False], [False, False], [True, True]]
    affine = read(node("MatMul", "signs", "w"), w=SPARSE).lines["t"]
    assert (affine.slope, affine.offset.tolist()) == (2, [-2, 0, -2])
    assert affine.weights.tolist() == [[True, False], [False, False], [False, True]]
    assert affine.mask.tolist() == [[True, True], [False, False], [True, True]]
    bits = read(node("XnorPopcountMatMul", "bits", "w"), source="bits", w=[[1, 0], [0, 0], [1, 1]])
    affine = bits.lines["t"]
    assert (affine.slope, affine.offset.tolist(), affine.mask) == (1, [0, 0], None)
    assert affine.weights.tolist() == [[True, False, True], [False, False, True]]


PRODUCTS = {"signs": "MatMul", "bits": "XnorPopcountMatMul"}


@pytest.mark.parametrize("source", PRODUCTS)
def test_a_product_takes_the_input_of_its_kind(source):
    product = PRODUCTS[source]
    other = PRODUCTS["bits" if source == "signs" else "signs"]
    wrong = "not -1 or 1" if other == "MatMul" else "not 0 or 1"
    with pytest.raises(ValueError, match=wrong):
        read(node(other, source, "w"), source=source, w=[[1]])
    for step in (node("Add", source, "c"), node("Mul", source, "two"), node("Add", source, "v")):
        with pytest.raises(ValueError, match="its input is not"):
            read(step, node(product, "t", "w"), source=source, w=[[1]], c=[1], two=[2], v=[0, 1])


def test_popcounts_are_no_input_of_a_product():
    """Two times a popcount less 1 looks like signs, but is not."""
    first = node("MatMul", "signs", "w", to="n")
    with pytest.raises(ValueError, match="its input is not a bit"):
        read(first, node("MatMul", "n", "w"), w=[[1]])


@pytest.mark.parametrize(
    ("source", "wrong"), [("signs", 2), ("signs", -2), ("bits", -1), ("bits", 2)]
)
def test_what_is_no_weight_is_told(source, wrong):
    with pytest.raises(ValueError, match=f"constant 'w': {wrong} is not a weight"):
        read(node(PRODUCTS[source], source, "w"), source=source, w=[[1, 1], [1, wrong]])


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (0.5, "is not an integer"),
        (np.inf, "is not an integer"),
        (np.nan, "is not an integer"),
        (-0.0, "is a negative 0"),
    ],
)
def test_constants_are_integers(value, message):
    with pytest.raises(ValueError, match=f"constant 'c' {message}"):
        read(node("Add", "signs", "c"), c=[1, 0, value, 0])


NEURONS = node("MatMul", "signs", "w", to="n")


def test_a_sign_fires_half_a_step_above_its_level():
    """Of two inputs, sums of -2, 0 and 2: above 1 are 2 agreements, above -1 is 1, above 3 none."""
    reader = read(
        NEURONS, node("Sub", "n", "c", to="d"), node("Sign", "d"), w=WEIGHTS, c=[1, -1, 3]
    )
    assert line(reader) == (2, [-1]) and reader.lines["t"].weights is None
    (layer,) = reader.layers
    assert layer.limits.tolist() == [2, 1, 3] and layer.mask is None
    assert layer.weights.tolist() == [[True, False], [False, False], [True, True]]


def test_a_bipolar_quantiser_is_a_sign_of_scale_1_and_passes_constants():
    of_a_line = (NEURONS, node("Sub", "n", "c", to="d"), node("BipolarQuant", "d", "one"))
    constants = {"w": WEIGHTS, "c": [1, -1, 3]}
    reader = read(*of_a_line, **constants, one=[1, 1, 1])
    assert line(reader) == (2, [-1]) and reader.layers[0].limits.tolist() == [2, 1, 3]
    with pytest.raises(ValueError, match="constant 'one' is not 1"):
        read(*of_a_line, **constants, one=[1, 2, 1])
    of_weights = node("BipolarQuant", "u", "one", to="w")
    reader = read(of_weights, NEURONS, u=WEIGHTS, one=[1])
    assert reader.lines["n"].weights.tolist() == [[True, False], [False, False], [True, True]]


def test_a_multithreshold_gives_bits_from_its_level_on():
    def thresholds(*levels, attributes=("out_dtype",)):
        cut = node("MultiThreshold", "n", "c", attributes=attributes)
        return read(NEURONS, cut, w=WEIGHTS, c=[[level] for level in levels])

    reader = thresholds(0, 2, -2)
    assert line(reader) == (1, [0]) and reader.lines["t"].weights is None
    assert reader.layers[0].limits.tolist() == [1, 2, 0]
    assert thresholds(0, 2, -2, attributes=()).layers[0].limits.tolist() == [1, 2, 0]
    with pytest.raises(ValueError, match="scaled"):
        thresholds(0, 2, -2, attributes=("out_dtype", "out_scale"))
    with pytest.raises(ValueError, match="its threshold is not a popcount"):
        thresholds(0, 1, -2)
    one = (node("MatMul", "signs", "w", to="n"), node("MultiThreshold", "n", "c"))
    with pytest.raises(ValueError, match="its threshold is not a popcount"):
        read(*one, w=[[1], [1]], c=[[0], [2]])


@pytest.mark.parametrize("factor", [-1, 0])
def test_only_rising_popcounts_of_neurons_fire(factor):
    with pytest.raises(ValueError, match="it does not follow neurons"):
        read(NEURONS, node("Mul", "n", "c", to="d"), node("Sign", "d"), w=WEIGHTS, c=[factor])
    with pytest.raises(ValueError, match="it does not follow neurons"):
        read(node("Sign", "signs"))
    flat = (NEURONS, node("Div", "n", "c", to="d"), node("MultiThreshold", "d", "l"))
    assert read(*flat, w=WEIGHTS, c=[2], l=[0, 0, 1]).layers[0].limits.tolist() == [1, 1, 2]


class Graph:
    """A file whose graph has some nodes and constants."""

    def __init__(self, monkeypatch, nodes, source="signs", outputs=("scores",), **constants):
        onnx = pytest.importorskip("onnx")
        named = [
            onnx.numpy_helper.from_array(np.array(value, np.float64), name)
            for name, value in constants.items()
        ]
        inputs = [SimpleNamespace(name=source)] if source else []
        graph = SimpleNamespace(
            node=nodes,
            input=inputs,
            output=[SimpleNamespace(name=name) for name in outputs],
            initializer=named,
        )
        monkeypatch.setattr(decoder.model_proto, "read", lambda path: SimpleNamespace(graph=graph))

    def decoded(self, tmp_path):
        return decode(tmp_path / "x.onnx", InputSpec.raw(2))


SCORES = (NEURONS, node("Div", "n", "half", to="h"), node("Add", "h", "c", to="scores"))


def test_scores_are_agreements_and_a_bias(monkeypatch, tmp_path):
    decoded = Graph(monkeypatch, SCORES, w=WEIGHTS, half=[2], c=[1, 8, -3]).decoded(tmp_path)
    (layer,) = decoded.layers
    assert (decoded.artefact, decoded.cuts, decoded.shunt) == ("x.onnx", None, 0)
    assert layer.limits.tolist() == [0, 7, -4]
    assert layer.weights.tolist() == [[True, False], [False, False], [True, True]]


@pytest.mark.parametrize(
    ("nodes", "constants", "message"),
    [
        (SCORES[:2], {"half": [2]}, "the scores do not count agreements"),
        (SCORES, {"half": [1], "c": [0, 0, 0]}, "the scores do not count agreements"),
        ([node("Cast", "signs", to="scores")], {}, "the scores do not count agreements"),
        (
            [node("Mul", "signs", "c", to="scores")],
            {"c": [0.5]},
            "the scores do not count agreements",
        ),
        (SCORES, {"half": [2]}, "node 'Add_scores' .Add. cannot be read back"),
    ],
)
def test_other_scores_are_refused(monkeypatch, tmp_path, nodes, constants, message):
    with pytest.raises(VerifyError, match=message):
        Graph(monkeypatch, nodes, w=WEIGHTS, **constants).decoded(tmp_path)


def test_a_graph_without_an_input_and_a_bias_between_integers_are_refused(monkeypatch, tmp_path):
    with pytest.raises(VerifyError, match="the scores do not count agreements"):
        Graph(monkeypatch, SCORES, source="", w=WEIGHTS).decoded(tmp_path)
    sparse = {"w": SPARSE, "half": [2], "c": [0, 0, 0], "one": [1]}
    uneven = [NEURONS, node("Add", "n", "odd", to="o"), node("Div", "o", "half", to="scores")]
    with pytest.raises(VerifyError, match="a bias is not an integer"):
        Graph(monkeypatch, uneven, **sparse, odd=[2, 1, 0]).decoded(tmp_path)


def verdict(choice=("Where", "below", "none", "class"), test=("Less", "margin", "shunt"), **more):
    nodes = []
    if choice:
        nodes.append(node(*choice, to="verdict"))
    if test:
        nodes.append(node(*test, to="below"))
    graph = SimpleNamespace(node=nodes, output=[SimpleNamespace(name="verdict")])
    constants = {"shunt": np.array([3]), "none": np.array([-1]), "one": np.array([1])} | {
        name: np.array(value) for name, value in more.items()
    }
    return shunt_of(SimpleNamespace(graph=graph), constants)


def test_the_threshold_is_that_of_the_verdict():
    assert verdict() == 3
    assert verdict(shunt=[1]) == 1
    assert verdict(shunt=7) == 7
    plain = SimpleNamespace(node=[], output=[SimpleNamespace(name="scores")])
    assert shunt_of(SimpleNamespace(graph=plain), {}) == 0


@pytest.mark.parametrize(
    "change",
    [
        {"choice": None},
        {"choice": ("If", "below", "none", "class")},
        {"choice": ("Where", "below", "none")},
        {"choice": ("Where", "below", "none", "class", "class")},
        {"choice": ("Where", "below", "one", "class")},
        {"choice": ("Where", "below", "absent", "class")},
        {"choice": ("Where", "below", "none", "scores")},
        {"test": None},
        {"test": ("LessOrEqual", "margin", "shunt")},
        {"test": ("Less", "scores", "shunt")},
        {"test": ("Less", "margin", "absent")},
        {"shunt": [0]},
        {"shunt": [-3]},
        {"shunt": [2.5]},
        {"shunt": [3, 3]},
        {"none": [-2]},
        {"none": [0]},
        {"none": [-1, -1]},
    ],
    ids=str,
)
def test_another_verdict_is_refused(change):
    with pytest.raises(VerifyError, match="the graph's verdict must be its class"):
        verdict(**change)


SPEC = InputSpec(
    (Field.thermometer("a", (3, 70)), Field("b", "binary", 3, 6), Field.binary("a", 1))
)
STAGE: dict[str, list[int]] = {
    "index": [0, 0, 1, 1, 1, 0],
    "clamp": [SPEC.fields[0].clamp] * 2 + [6] * 3 + [SPEC.fields[2].clamp],
    "thermometer": [True, True, False, False, False, False],
    "step": [1, 1, 1, 2, 4, 1],
    "cut": [3, 70, 0, 0, 0, 0],
}


def cuts(**change):
    arrays = {
        name: np.array(value) for name, value in (STAGE | change).items() if value is not None
    }
    return cuts_of(arrays, SPEC)


def test_cuts_are_those_of_each_field():
    assert cuts() == ((3, 70), (), ())
    assert cuts(cut=[3, 71, 0, 5, 0, 0]) == ((3, 71), (0, 5, 0), ())
    assert cuts(cut=None) == ((), (), ())


@pytest.mark.parametrize("name", ["index", "clamp", "thermometer", "step"])
@pytest.mark.parametrize(("bit", "feature"), [(0, "a"), (1, "a"), (2, "b"), (4, "b"), (5, "a")])
def test_another_comparison_of_the_input_stage_is_refused(name, bit, feature):
    changed = list(STAGE[name])
    changed[bit] = not changed[bit] if name == "thermometer" else changed[bit] + 1
    message = f"input field '{feature}': constant '{name}' is not its own"
    with pytest.raises(VerifyError, match=message):
        cuts(**{name: changed})
    for other in (None, [*STAGE[name], 0], STAGE[name][:-1]):
        with pytest.raises(VerifyError, match=f"constant '{name}' is not its own"):
            cuts(**{name: other})
