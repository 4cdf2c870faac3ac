# SPDX-License-Identifier: Apache-2.0
"""Weights read back from the unrolled Verilog: exact, and every changed literal is found."""

from __future__ import annotations

import re
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from n3ic.errors import VerifyError
from n3ic.exporters.netfpga.unrolled import design as unrolled_design
from n3ic.exporters.netfpga.unrolled import write as unrolled_write
from n3ic.exporters.netfpga.unrolled.decode import (
    EquationSystem,
    Lead,
    LinearForm,
    Undecidable,
    _agree,
    _comparison,
    _cubes_of,
    _equal_threshold,
    _fixed,
    _hidden,
    _known,
    _lead,
    _output,
    _sums,
    _value,
    decode_core,
    equal_tests,
    only,
    score_literals,
    shunt_of_lead,
    shunt_of_margin,
    unwrapped,
)
from n3ic.exporters.netfpga.unrolled.decode import (
    ThresholdTest as Comparison,
)
from n3ic.exporters.netfpga.unrolled.syntax import (
    Literal,
    Module,
    ParsedCore,
    ParsedInstance,
)
from n3ic.model.layers import HiddenLayer, OutputLayer
from n3ic.model.network import BinaryModel
from n3ic.model.passes import simplify
from n3ic.model.random_models import random_model
from n3ic.targets.decoding import DecodedLayer, decoding_difference
from n3ic.targets.directory import export


def written(model: BinaryModel, **options) -> tuple[str, str]:
    texts = unrolled_write.generate(model, **options)
    return texts[unrolled_write.FILE], texts[unrolled_write.CELLS]


def fault(model: BinaryModel, core: str, cells: str) -> str:
    """What is found wrong with a core; empty where nothing is."""
    try:
        decoded = decode_core(core, cells, model)
    except VerifyError as error:
        return str(error)
    assert decoded, "the network is decidable"
    return decoding_difference(model, decoded)


@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    shape=st.lists(st.integers(1, 28), min_size=1, max_size=3),
    classes=st.integers(2, 4),
    density=st.sampled_from([None, 0.7, 0.3]),
    seed=st.integers(0, 2**32 - 1),
    outputs=st.sampled_from(unrolled_design.OUTPUTS),
    pipeline=st.integers(1, 4),
)
def test_every_weight_is_read_back(shape, classes, density, seed, outputs, pipeline):
    model = random_model((*shape, classes), np.random.default_rng(seed), density=density)
    model = simplify(model).model
    decoded = decode_core(*written(model, outputs=outputs, pipeline=pipeline), model)
    if decoded:  # else a neuron is constant, or two share a wire
        assert not decoding_difference(model, decoded)
        assert not any((x.weights & ~x.mask).any() for x in decoded.layers if x.mask is not None)


def small(seed: int = 3) -> BinaryModel:
    return random_model((20, 5, 4, 2), np.random.default_rng(seed), extremes=False)


@pytest.mark.parametrize("options", [{}, {"pipeline": 3}, {"outputs": "scores"}])
def test_no_weight_of_a_dense_network_is_left_out(options):
    assert not fault(small(), *written(small(), **options))


def test_a_changed_literal_is_found():
    model = small()
    core, cells = written(model)
    end = core.index("--- results ---")
    places = [m.start(1) for m in re.finditer(r"[{ ](!?)(?:in|l\d|class)\w*[\[,}]", core[:end])]
    inputs = [at for at in places if ".in({" in core[core.rindex(";", 0, at) : at]]
    assert len(inputs) > 90
    for at in np.random.default_rng(1).choice(inputs, 25, replace=False):
        changed = core[:at] + (core[at + 1 :] if core[at] == "!" else "!" + core[at:])
        assert fault(model, changed, cells), core[at - 60 : at + 30]


def test_changed_cells_clocks_and_outputs_are_found():
    model = small()
    core, cells = written(model)
    table = re.search(r"'h([0-9a-f])", cells)
    digit = f"{int(table[1], 16) ^ 1:x}"
    assert "is wrong" in fault(model, core, cells[: table.start(1)] + digit + cells[table.end(1) :])
    assert "is wrong" in fault(model, core, cells.replace("in[0] & in[1]", "in[0] | in[1]", 1))
    late = re.search(r"l0_c\d+_b\d+_d\[(1)\]", core)
    assert "clock" in fault(model, core[: late.start(1)] + "2" + core[late.end(1) :], cells) or (
        "drives" in fault(model, core[: late.start(1)] + "2" + core[late.end(1) :], cells)
    )
    swapped = re.sub(r"(assign out_trace = \{)([^,]+), ([^,]+),", r"\1\3, \2,", core)
    assert "neuron" in fault(model, swapped, cells)
    inverted = core.replace("assign out_class = {", "assign out_class = {!").replace("{!!", "{")
    assert fault(model, inverted, cells)
    assert "not understood" in fault(
        model, core.replace("    wire", "    initial x; wire", 1), cells
    )


def test_the_debug_build_may_not_differ():
    model = small()
    core, cells = written(model)
    honest = re.search(r"assign out_class = \{(.*?)\};", core)[0]
    cheating = f"`ifdef N3IC_TRACE\n{honest}\n`else\nassign out_class = {{1'b0}};\n`endif\n"
    assert "debug build" in fault(model, core.replace(honest, cheating), cells)


def test_what_the_logic_does_not_tell_is_not_decoded():
    row = np.random.default_rng(0).random(9) < 0.5
    hidden = HiddenLayer(np.array([row, row, ~row]), thresholds=np.array([4, 4, 10]))
    last = OutputLayer(np.array([[1, 1, 0], [0, 1, 0]]), bias=np.zeros(2, int))
    model = BinaryModel(small().input.raw(9), (hidden,), last, ("a", "b"))
    assert decode_core(*written(model), model) is None


@pytest.mark.parametrize("outputs", unrolled_design.OUTPUTS)
def test_a_tournament_whose_sums_meet_again_is_read(outputs):
    """Five classes: the parity of some differences is a bit that they were made of."""
    model = random_model((24, 9, 5), np.random.default_rng(5), density=0.7, extremes=False)
    model = simplify(model).model
    assert not fault(model, *written(model, outputs=outputs))


def test_an_input_of_a_neuron_counts_once():
    class Neuron(Solved):
        def multiplied_out(self, bit, below, most):
            return None

    def read(terms):
        return _hidden(Neuron(terms, 1), ((1, 0), (2, 1)), ((9, 0),), 0, set(), {})

    row = read({1: 1, 2: 1})
    # The second wire is the inverted input: weight bits 1 and 0, of which one agrees.
    assert (row.weights.tolist(), row.limits.tolist()) == ([[True, False]], [1])
    for terms in ({1: 2, 2: 1}, {1: 1, 2: -2}, {1: 2}):
        with pytest.raises(VerifyError, match="layer 0, neuron 0: an input counts more than once"):
            read(terms)


@pytest.mark.parametrize("seed", range(30))
def test_two_comparisons_agree_if_they_do_on_every_input(seed):
    rng = np.random.default_rng(seed)
    rows = np.array(list(product((0, 1), repeat=4)))
    one = rng.integers(-3, 4, 4)
    other = rng.integers(1, 3) * one + rng.integers(-1, 2, 4) * (rng.random(4) < 0.4)
    for bound, limit in product(range(-3, 4), range(-5, 6)):
        same = np.array_equal(rows @ one >= bound, rows @ other >= limit)
        assert equal_tests(one, bound, other, limit) == (same and one.any() and other.any())


def test_up_to_twelve_coefficients_that_differ_are_tried():
    """One bit decides; the others count 1 in one comparison and 2 in the other."""
    for count in (11, 12, 13):
        one, other = np.array([99] + count * [1]), np.array([99] + count * [2])
        assert equal_tests(one, 99, other, 99) == (count <= 12)
        assert not equal_tests(one, 1, other, 99)


def test_a_comparison_of_no_input_equals_none():
    nothing, one = np.array([0, 0]), np.array([1, 1])
    assert equal_tests(nothing, 1, one, 3) is False
    assert equal_tests(one, 3, nothing, 1) is False
    assert equal_tests(nothing, 1, nothing, 1) is False


def test_comparisons_that_agree():
    two = np.array([2, 2, 2])
    assert equal_tests(np.array([1, 1, 1]), 2, two, 3)
    assert not equal_tests(np.array([1, 1, 1]), 2, two, 5)
    assert equal_tests(np.array([2, 2, 1]), 3, two, 4)
    assert not equal_tests(np.array([2, 2, 1]), 4, two, 4)


@pytest.mark.first_case
@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"outputs": "class"}, marks=pytest.mark.slow),
        {"outputs": "class", "pipeline": 2},
        {"pipeline": 4},
    ],
)
def test_exports_are_decoded_and_run(tmp_path, options):
    model = small(5)
    done = export(model, "netfpga", tmp_path / "card", options={"style": "unrolled", **options})
    if done.verification.missing:
        pytest.skip(done.verification.missing)
    assert done.verification.ok, str(done.verification)
    assert done.verification.decoded == ("rtl/n3ic_core.v",)


class Summed:
    """Equations whose scores are a known form; literals are their own bits."""

    def __init__(self, *forms: LinearForm) -> None:
        self.forms = iter(forms)
        self.asked: list[list[tuple[Literal, Fraction]]] = []

    def bit(self, literal: Literal) -> Literal:
        return literal

    def solve(self, bits, known, modulus):
        assert known == {1, 2, 3} and modulus == 16
        self.asked.append(bits)
        return next(self.forms)


WIRES = ((1, 0), (2, 1), (3, 0))  # the second input is the inverted wire


def form_of(constant, terms, low=0, high=0):
    return LinearForm(
        {v: Fraction(t) for v, t in terms.items()},
        Fraction(constant),
        Fraction(low),
        Fraction(high),
    )


@pytest.mark.parametrize("signs", [*product((-1, 0, 1), repeat=3)])
def test_a_score_of_four_bits_is_a_bias_and_the_inputs_that_agree(signs):
    """Of all constants modulo 16, on all inputs; a score that leaves -8 to 7 is refused."""
    rows = np.array(list(product((0, 1), repeat=3)))
    for constant in range(-8, 24):
        terms = {v: t % 16 for v, t in enumerate(signs, 1) if t}
        scores = constant + rows @ signs
        scores -= (scores.min() + 8) // 16 * 16  # the lowest is -8 at least
        system = Summed(form_of(constant, terms))
        literals = [("s", k) for k in range(4)]
        if scores.max() > 7:
            with pytest.raises(VerifyError, match="the score of class 0 exceeds its 4 bits"):
                _output(system, WIRES, [literals])
            continue
        output = _output(system, WIRES, [literals])
        inputs = rows ^ np.array([0, 1, 0])
        agree = (inputs == output.weights) & output.mask
        assert np.array_equal(agree.sum(axis=1) + output.limits[0], scores)
        assert not (output.weights & ~output.mask).any()
        assert system.asked == [[(("s", k), Fraction(1 << k)) for k in range(4)]]


def test_each_class_has_its_own_bits():
    system = Summed(form_of(1, {1: 1}), form_of(2, {2: 15}))
    core = ParsedCore(3, (), {"out_scores": tuple(("s", k) for k in range(8))})
    output = _output(system, WIRES, score_literals(core, 2))
    assert [[bit for bit, _ in asked] for asked in system.asked] == [
        [("s", k) for k in range(4)],
        [("s", k) for k in range(4, 8)],
    ]
    for classes in (3, 5):
        with pytest.raises(VerifyError, match=f"^the core has 8 bits of {classes} scores$"):
            score_literals(core, classes)
    assert (output.mask.tolist(), output.limits.tolist()) == (
        [[True, False, False], [False, True, False]],
        [1, 1],  # 2 - y is 1 and the inverted y
    )


@pytest.mark.parametrize(
    ("form", "message"),
    [
        (
            form_of(0, {1: 1}, low=-1),
            "the score of class 1 is not shown to be a sum of hidden bits",
        ),
        (
            form_of(0, {1: 1}, high=1),
            "the score of class 1 is not shown to be a sum of hidden bits",
        ),
        (form_of(0, {1: 1, 2: Fraction(1, 2)}), "class 1 is not shown"),
        (form_of(Fraction(1, 2), {1: 1}), "class 1 is not shown"),
        (form_of(0, {1: 2, 2: 1}), "the score of class 1 counts an input more than once"),
        (form_of(0, {1: 1, 2: 14}), "the score of class 1 counts an input more than once"),
        (form_of(0, {1: 8}), "the score of class 1 counts an input more than once"),
    ],
)
def test_a_score_that_is_no_exact_sum_is_refused(form, message):
    with pytest.raises(VerifyError, match=message):
        _output(Summed(form_of(0, {1: 1}), form), WIRES, [[("s", k) for k in range(4)]] * 2)


def test_a_constant_is_the_one_that_keeps_the_least_sum_inside_its_bits():
    for half, low, constant in product((4, 8), range(-9, 1), range(-20, 20)):
        unwrapped_constant = unwrapped(constant, half, low)
        assert (unwrapped_constant - constant) % (2 * half) == 0
        assert -half <= unwrapped_constant + low < half
        assert unwrapped(constant, half) == unwrapped(constant, half, 0)


@pytest.mark.parametrize("outputs", unrolled_design.OUTPUTS)
@pytest.mark.parametrize("threshold", [0, 3])
def test_a_core_without_an_output_is_refused(outputs, threshold):
    model = small().with_shunt(threshold)
    core, cells = written(model, outputs=outputs)
    missing = {
        "out_trace": "the core shows 0 hidden bits, not 9",
        "out_scores": "the core has no out_scores",
        **({"out_class": "the core has no out_class"} if outputs == "class" else {}),
        **({"out_margin": "no out_margin"} if outputs == "scores" and threshold else {}),
        **({"out_shunt": "no shunting threshold, the model's is 3"} if threshold else {}),
    }
    for name, message in missing.items():
        changed = re.sub(rf"assign {name} = \{{.*?\}};", "", core, flags=re.DOTALL)
        assert message in fault(model, changed, cells), name


def test_an_output_of_one_bit_has_one():
    for count, bits in ((1, "1 bit"), (0, "0 bits"), (2, "2 bits")):
        core = ParsedCore(1, (), {"out_class": tuple(("x", k) for k in range(count))})
        if count == 1:
            assert only(core, "out_class") == ("x", 0)
            continue
        with pytest.raises(VerifyError, match=f"^out_class has {bits}, not one$"):
            only(core, "out_class")


def test_the_neurons_that_are_ands():
    """A limit of as many as are connected; an AND of inverted inputs has them inverted."""
    weights = np.array([[1, 0, 1], [0, 1, 0], [1, 1, 1]], dtype=bool)
    mask = np.array([[1, 1, 0], [1, 1, 1], [0, 1, 1]], dtype=bool)
    layer = DecodedLayer(weights, np.array([2, 2, 2]), mask)
    assert _cubes_of(layer, WIRES) == {
        frozenset({(1, 0), (2, 0)}): 0,  # x, and not the inverted y
        frozenset({(2, 1), (3, 0)}): 2,
    }
    assert _cubes_of(DecodedLayer(weights, None, mask), WIRES) == {}
    assert _cubes_of(DecodedLayer(weights, np.array([2, 2, 2]), None), WIRES) == {}


class Solved:
    """Equations whose one bit is a known comparison, or a constant."""

    def __init__(self, terms=None, bound=0):
        self.terms, self.bound = terms, bound

    def test(self, bit, known):
        if self.terms is None:
            raise Undecidable
        assert set(self.terms) <= known
        return Comparison(self.terms, self.bound)


UP, DOWN = ((1, 0), (2, 0), (3, 0)), ((1, 1), (2, 1))  # a margin of 0 to 7, and one of 3 to 0


@pytest.mark.parametrize(
    ("margin", "terms", "bound", "thresholds"),
    [
        (UP, {1: 1, 2: 2, 3: 4}, 3, {0: 3, 3: 3, 9: 3}),
        (UP, {1: 3, 2: 6, 3: 12}, 8, {0: 3}),  # the same in thirds
        (UP, {2: 1, 3: 2}, 1, {0: 2, 9: 2}),  # the lowest bit does not matter for 2
        (UP, {3: 1}, 1, {0: 4}),
        (DOWN, {1: -1, 2: -2}, -1, {0: 2, 3: 2}),
        (DOWN, {2: -1}, 0, {0: 2}),
        (((1, 0), (0, 0), (2, 0)), {1: 1, 2: 4}, 3, {0: 3, 9: 3}),
        (((1, 0), (0, 1)), {1: 1}, 1, {0: 3, 9: 3}),
        (((1, 0), (1, 0), (2, 0)), {1: 3, 2: 4}, 5, {0: 5, 9: 5}),
    ],
)
def test_a_threshold_is_read_from_a_comparison_of_the_margin(margin, terms, bound, thresholds):
    for wanted, threshold in thresholds.items():
        assert shunt_of_margin(Solved(terms, bound), (9, 0), margin, wanted) == threshold


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("shared", [False, True])
def test_a_threshold_is_right_for_every_margin(seed, shared):
    """Of margins whose bits are turned, shared or constant, and of comparisons of all their bits.

    One that reads the bits as the margin has them, but perhaps not the lowest, is always read.
    """
    rng = np.random.default_rng(seed)
    of = rng.integers(0, 4, 3) if shared else rng.permutation(3) + 1
    margin = [(int(v), int(rng.integers(2))) for v in of]
    values = np.array([(0, *row) for row in product((0, 1), repeat=3)])
    margins = sum((values[:, v] ^ inverted) << k for k, (v, inverted) in enumerate(margin))
    own = {v: int((margins @ (2 * values[:, v] - 1)) // 4) for v in {v for v, _ in margin} - {0}}
    least = int(rng.choice([1, 2, 4]))
    for bound in range(-9, 10):
        like = rng.random() < 0.6
        scale = int(rng.integers(1, 4))
        terms = {
            v: scale * w // least if like and abs(w) >= least else 0 if like else w + scale - 2
            for v, w in own.items()
        }
        terms = {v: c for v, c in terms.items() if c}
        decided = sum((values[:, v] * c for v, c in terms.items()), values[:, 0]) >= bound
        if not terms or len(set(decided.tolist())) == 1:
            continue
        right = [t for t in range(-20, 30) if np.array_equal(margins >= t, decided)]
        for wanted in (0, 1, 2, 3, 5, 9):
            try:
                threshold = shunt_of_margin(Solved(terms, bound), (9, 0), margin, wanted)
            except VerifyError as error:
                assert str(error) == "out_shunt is not a comparison of the margin"
                assert not right or shared or not like
            else:
                assert threshold in right
                assert shared or not like or threshold == wanted or wanted not in right


@pytest.mark.parametrize("low", [0, 1])
@pytest.mark.parametrize(
    ("inverted", "thresholds"),
    [(0, {0: 0, 1: 1, 2: 2, 3: 2, 9: 2}), (1, {0: 4, 4: 4, 5: 5, 9: 9})],
)
def test_a_threshold_of_a_constant_is_any_that_no_margin_reaches(inverted, thresholds, low):
    """Margins of 2 and 3: up to 2 all are decided, from 4 on none is."""
    for wanted, threshold in thresholds.items():
        assert shunt_of_margin(Solved(), (0, inverted), ((1, low), (0, 1)), wanted) == threshold


@pytest.mark.parametrize(
    ("margin", "terms", "bound"),
    [
        (UP, {1: 1, 2: 1}, 1),
        (UP, {1: -1, 2: -2, 3: -4}, -2),
        (DOWN, {1: 1, 2: 2}, 2),
        (UP, {1: 1}, 1),
    ],
)
def test_another_comparison_is_no_threshold(margin, terms, bound):
    with pytest.raises(VerifyError, match="out_shunt is not a comparison of the margin"):
        shunt_of_margin(Solved(terms, bound), (9, 0), margin, 0)


@pytest.mark.parametrize("seed", range(12))
def test_a_threshold_near_the_scaled_bound_is_found(seed):
    """The wanted one, or one at most 2 from the bound in the margin's scale, the lowest first."""
    rng = np.random.default_rng(seed)
    rows = np.array(list(product((0, 1), repeat=3)))
    own = np.array([1, 2, 4]) * rng.choice([1, 1, -1], 3)
    if seed % 2:
        read = rng.integers(1, 16, 3) * np.sign(own)
    else:
        read = own * rng.integers(1, 4) + rng.integers(-1, 2, 3)
        read[read == 0] = 1
    constant = int(rng.integers(-4, 5))
    margins, sums = constant + rows @ own, rows @ read
    for bound in range(int(sums.min()), int(sums.max()) + 2):
        right = [t for t in range(-40, 40) if np.array_equal(margins >= t, sums >= bound)]
        near = constant + bound * 4 // int(np.abs(read).max())
        test = Comparison({v: int(c) for v, c in enumerate(read, 1)}, bound)
        weights = {v: int(c) for v, c in enumerate(own, 1)}
        for wanted in (2, 30):
            tried = (wanted, *range(near - 2, near + 3))
            expected = next((t for t in tried if t in right), None)
            if expected is None:
                with pytest.raises(VerifyError, match="out_shunt is not a comparison"):
                    _equal_threshold(weights, constant, test, wanted)
            else:
                assert _equal_threshold(weights, constant, test, wanted) == expected


class Decided:
    """Equations of one bit that tells whether the lead of two classes reaches a threshold."""

    def __init__(self, bit, parts):
        self.parts = {(10 + k, 0): test for k, test in enumerate(parts)}
        if len(parts) == 1:
            self.parts[bit] = parts[0]
        self.bit = bit

    def test(self, bit, known):
        assert known == {1, 2, 3}
        if bit not in self.parts:
            raise VerifyError("no comparison")
        return self.parts[bit]

    def alternatives(self, bit):
        assert bit == self.bit
        return tuple(part for part in self.parts if part != bit) if len(self.parts) == 2 else ()


@pytest.mark.parametrize("seed", range(16))
def test_the_threshold_of_a_lead_decides_every_input_alike(seed):
    """Of two comparisons in any order, of one where none reaches the other, and of constants."""
    rng = np.random.default_rng(seed)
    rows = np.array(list(product((0, 1), repeat=3)))
    row, constant = rng.integers(-2, 3, 3), int(rng.integers(-3, 4))
    leads = constant + rows @ row
    signs = np.array([1, -1, 1])  # the second input is the inverted wire

    def compared(sign, threshold):
        """``sign * lead >= threshold`` of the wires."""
        terms = {v: int(c) for v, c in enumerate(sign * row * signs, 1) if c}
        return Comparison(terms, threshold - sign * (constant + int(row[1])))

    def decoded(parts, constantly, wanted):
        bit = (9, seed % 2) if parts else (0, 1 - constantly)
        system = Decided((bit[0], 1 - bit[1]), parts)
        return shunt_of_lead(system, bit, WIRES, Lead(row, constant), wanted)

    for threshold in range(int(np.abs(leads).max()) + 3):
        decided = np.abs(leads) >= threshold
        right = [t for t in range(12) if np.array_equal(np.abs(leads) >= t, decided)]
        reached = [sign for sign in (1, -1) if (sign * leads).max() >= threshold]
        parts = [compared(sign, threshold) for sign in reached]
        if len(set(decided.tolist())) == 1:
            parts = []
        for wanted in range(6):
            tried = (wanted, *sorted({*np.abs(leads).tolist()}), int(np.abs(leads).max()) + 1)
            expected = next(t for t in tried if t in right)
            assert decoded(parts, int(decided[0]), wanted) == expected
            assert decoded(parts[::-1], int(decided[0]), wanted) == expected
        for k, sign in enumerate(reached if parts else ()):
            # One side of another threshold: it decides no input alike, or is none.
            other = [*parts[:k], compared(sign, threshold + 1), *parts[k + 1 :]]
            sides = [leads >= threshold + (sign > 0), -leads >= threshold + (sign < 0)]
            alike = [
                t for t in range(12) if np.array_equal(np.abs(leads) >= t, sides[0] | sides[1])
            ]
            if (sign * leads).max() <= threshold:
                continue
            if alike:
                assert decoded(other, 0, 0) in alike
            else:
                with pytest.raises(VerifyError, match="not whether the margin is below a thresh"):
                    decoded(other, 0, 0)


def test_a_lead_is_the_second_score_less_the_first():
    weights = np.array([[1, 0, 1], [0, 0, 1]], dtype=bool)
    mask = np.array([[1, 1, 1], [1, 0, 1]], dtype=bool)
    layer = DecodedLayer(weights, np.array([5, 9]), mask)
    lead = _lead(layer)
    # first: x - y + z + 5 + 1, second: -x + z + 9 + 1
    assert (lead.row.tolist(), lead.constant) == ([-2, 1, 0], 4)
    row, bound = lead.reaches(1)
    assert (row.tolist(), bound) == ([-2, 1, 0], -3)
    turned = lead.turned()
    assert (turned.row.tolist(), turned.constant) == ([2, -1, 0], -4)
    assert _lead(DecodedLayer(weights, None, mask)) is None
    assert _lead(DecodedLayer(weights, np.array([5, 9]), None)) is None
    three = np.ones((3, 3), dtype=bool)
    assert _lead(DecodedLayer(three, np.zeros(3), three)) is None


@pytest.mark.parametrize(
    ("row", "bound", "comparison", "agree"),
    [
        ([1, 2], 2, ([2, 4], 4), True),
        ([1, 2], 2, ([0, 1], 1), True),
        ([1, 2], 2, ([1, 0], 1), False),
        ([1, 2], 4, ([0, 0], 1), True),  # never
        ([1, 2], 3, ([0, 0], 1), False),
        ([1, -2], -2, ([0, 0], 0), True),  # always
        ([1, -2], -1, ([0, 0], 0), False),
    ],
)
def test_comparisons_that_always_agree(row, bound, comparison, agree):
    other = (np.array(comparison[0]), comparison[1])
    assert _agree((np.array(row), bound), other) == agree
    assert not _agree((np.array(row), bound), None)


def test_sums_of_some_coefficients():
    assert _sums(np.array([1, 2, -4])) == {0, 1, 2, 3, -4, -3, -2, -1}


@pytest.mark.parametrize(
    ("name", "bits", "outputs"),
    [
        ("n3ic_add3", (1, 0, 1), (0, 1)),
        ("n3ic_add3", (1, 1, 1), (1, 1)),
        ("n3ic_add3", (0, 1, 0), (1, 0)),
        ("n3ic_add5", (1, 1, 1, 0, 1), (0, 1)),  # the sum bit of three, and two more
        ("n3ic_add5", (1, 1, 0, 0, 1), (1, 0)),
        ("n3ic_add32", (1, 1, 0, 0, 1), (0, 1)),  # the carry of three, and two more
        ("n3ic_add32", (1, 0, 0, 0, 1), (1, 0)),
        ("n3ic_parity6", (1, 1, 0, 0, 1, 0), (1,)),
        ("n3ic_parity6", (1, 1, 0, 0, 1, 1), (0,)),
        ("n3ic_mux", (0, 1, 0), (1,)),
        ("n3ic_mux", (1, 1, 0), (0,)),
    ],
)
def test_modules_of_fixed_function(name, bits, outputs):
    assert tuple(_fixed(name, i, bits) for i in range(len(outputs))) == outputs


def test_a_bit_that_does_not_vary_is_no_input_of_a_layer():
    assert _known([(3, 0), (5, 1)]) == {3, 5}
    for bits in ([(0, 0), (5, 0)], [(3, 0), (3, 1)]):
        with pytest.raises(Undecidable):
            _known(bits)


def test_a_constant_reaches_the_bound_0_or_1():
    inputs = ((1, 0), (2, 0))

    def compared(solved, bit, inputs):
        comparison = _comparison(solved, bit, inputs)
        assert comparison is not None
        return comparison[0].tolist(), comparison[1]

    for bit, bound in (((0, 0), 1), ((0, 1), 0)):
        assert compared(Solved(), bit, inputs) == ([0, 0], bound)
    assert _comparison(Solved(), (9, 0), inputs) is None
    # x - 3 y, where the second wire is not y
    assert compared(Solved({1: 1, 2: -3}, 2), (9, 0), ((1, 0), (2, 1))) == ([1, 3], 5)


def test_a_bit_that_is_added_twice_is_left_out_of_a_parity():
    """x + y + z, and y + z once more: the sum bit is x, and no new variable."""
    module = Module("n3ic_add3", 3, {})
    x, y, z = (((f"in_bits[{i}]"), 0) for i in range(3))
    first = ParsedInstance(module, (x, y, z), {"s": "s", "k": "k"})
    again = ParsedInstance(module, (("s", 0), y, ("in_bits[2]", 1)), {"s": "t", "k": "l"})
    system = EquationSystem(ParsedCore(3, (first, again), {}))
    variable, inverted = system.bit(x)
    assert system.bit(("t", 0)) == (variable, inverted ^ 1)


def test_a_sum_of_several_adders_is_solved_by_the_lowest():
    """x + y + z at once leaves one carry; x + y first, and then z, leaves two."""
    module = Module("n3ic_add3", 3, {})
    x, y, z = ((f"in_bits[{i}]", 0) for i in range(3))
    cells = (
        ParsedInstance(module, (x, y, ("", 0)), {"s": "p", "k": "k0"}),
        ParsedInstance(module, (("p", 0), z, ("", 0)), {"s": "t", "k": "k1"}),
        ParsedInstance(module, (x, y, z), {"s": "u", "k": "k2"}),
    )
    system = EquationSystem(ParsedCore(3, cells, {}))
    known = {system.bit(bit)[0] for bit in (x, y, z)}
    assert system.bit(("t", 0)) == system.bit(("u", 0))
    form = system.solve([(system.bit(("t", 0)), Fraction(1))], known)
    assert form == LinearForm(
        dict.fromkeys(known, Fraction(1)), Fraction(0), Fraction(-2), Fraction(0)
    )


def test_an_equation_is_above_all_that_solve_its_inputs():
    """The sum of x, y and z is read before a higher adder gives it once more."""
    module = Module("n3ic_add3", 3, {})
    x, y, z, a = ((f"in_bits[{i}]", 0) for i in range(4))
    cells = (
        ParsedInstance(module, (x, y, z), {"s": "t", "k": "k0"}),
        ParsedInstance(module, (("t", 0), a, ("", 0)), {"s": "e", "k": "k1"}),
        ParsedInstance(module, (x, y, ("", 0)), {"s": "p", "k": "k2"}),
        ParsedInstance(module, (("p", 0), z, ("", 0)), {"s": "u", "k": "k3"}),
    )
    system = EquationSystem(ParsedCore(4, cells, {}))
    assert system.levels == [1, 3, 1, 2]


def test_only_an_adder_has_a_sum_bit_and_only_a_comparison_a_bound():
    module = Module("n3ic_parity6", 6, {})
    inputs = tuple((f"in_bits[{i}]", i & 1) for i in range(6))
    system = EquationSystem(ParsedCore(6, (ParsedInstance(module, inputs, {"s": "s"}),), {}))
    (equation,) = system.equations
    assert (equation.kind, equation.total, equation.bound) == ("parity", (0, 0), 0)
    assert (equation.formula, equation.table) == ("", 0)
    assert equation.inputs == tuple(((i + 1, i & 1), 1) for i in range(6))


def adder(first: Literal) -> EquationSystem:
    """A core of one adder of ``first`` and two inputs, with its sum ``s`` and carry ``k``."""
    module = Module("n3ic_add3", 3, {})
    inputs = (first, ("in_bits[1]", 0), ("in_bits[2]", 0))
    cell = ParsedInstance(module, inputs, {"s": "s", "k": "k"})
    return EquationSystem(ParsedCore(3, (cell,), {}))


@pytest.mark.parametrize("first", [("", 0), ("", 1), ("in_bits[0]", 0), ("in_bits[0]", 1)])
@pytest.mark.parametrize(
    ("weights", "modulus", "rest"), [((1, 0), 0, 2), ((1, 2), 0, 0), ((4, -8), 16, 0)]
)
def test_a_weighted_sum_and_carry_lie_in_the_solved_range(first, weights, modulus, rest):
    """A sum bit alone leaves its carry as a rest; of 4 sum - 8 carry nothing is left modulo 16."""
    system = adder(first)
    known = [system.bit((f"in_bits[{i}]", 0)) for i in range(3)]
    asked = [(system.bit((wire, 0)), Fraction(w)) for wire, w in zip("sk", weights, strict=True)]
    form = system.solve(asked, {v for v, _ in known}, modulus)
    assert form.high - form.low == rest
    for values in product((0, 1), repeat=3):
        given_bit = values[0] if first[0] else 0
        count = (given_bit ^ first[1]) + values[1] + values[2]
        wanted = weights[0] * (count & 1) + weights[1] * (count >> 1)
        solved = form.constant + sum(
            form.terms.get(v, 0) * x for (v, _), x in zip(known, values, strict=True)
        )
        if modulus:
            assert (solved - wanted) % modulus == 0
        else:
            assert form.low <= wanted - solved <= form.high


def test_the_largest_value_of_a_linear_form():
    terms = {1: Fraction(2), 2: Fraction(-3), 3: Fraction(5)}
    assert LinearForm(terms, Fraction(1), Fraction(-1), Fraction(4)).most == 1 + 4 + 2 + 5


@pytest.mark.parametrize(
    ("formula", "ones"),
    [("a01", {3, 7}), ("o01", {1, 2, 3, 5, 6, 7}), ("n0", {0, 2, 4, 6}), ("m012", {2, 5, 6, 7}),
     ("ao012", {5, 6, 7}), ("an01", {2, 6})],
)  # fmt: skip
def test_formulas_in_prefix_order(formula, ones):
    """Input k is bit k of the row; ``m`` takes its third operand where the first is 1."""
    values = {
        row for row in range(8) if _value(iter(formula), tuple(row >> k & 1 for k in range(3)))
    }
    assert values == ones
