# SPDX-License-Identifier: Apache-2.0
"""What a verification says of a target that computes something else, or nothing."""

from dataclasses import replace

import numpy as np
import pytest

from n3ic.errors import MissingDependencyError, VerifyError
from n3ic.model.bits import pack
from n3ic.model.classifier import margins_of
from n3ic.model.inputs import Field, InputSpec
from n3ic.model.passes import simplify
from n3ic.model.random_models import random_model
from n3ic.model.verification_vectors import boundary_features
from n3ic.targets import verification
from n3ic.targets.base import Execution, Exporter
from n3ic.targets.capabilities import VerificationDefaults
from n3ic.targets.decoding import Decoded, DecodedLayer
from n3ic.targets.figures import Figure, Report
from n3ic.targets.meter_verification import Metering
from n3ic.targets.verification import (
    Verification,
    _beside_threshold,
    _not_run,
    verify_artefacts,
)

SPEC = InputSpec((Field.thermometer("a", (3, 70, 900), unit="us"), Field.binary("b", 31)))
MODEL = replace(
    random_model((34, 6, 3), np.random.default_rng(1), density=0.7, extremes=False), input=SPEC
)
NETWORK = simplify(MODEL)


class Honest(Exporter):
    """Computes what the model computes."""

    name = "honest"
    summary = "a target"
    verification = VerificationDefaults(vectors=100)

    def check(self, model, options):
        raise NotImplementedError

    def write(self, model, options, out):
        raise NotImplementedError

    def report(self, model, options, directory):
        raise NotImplementedError

    def run(self, directory, model, options, words):
        return Execution(model.infer(words), "python")

    def encode(self, directory, model, options, features):
        return NETWORK.inputs(NETWORK.source.encode(features))

    def decode(self, directory, model, options):
        layers = zip(model.layers, [model.hidden[0].thresholds, model.output.bias], strict=True)
        return (Decoded("a.bin", tuple(DecodedLayer(x.weights, y, x.mask) for x, y in layers)),)


def verify(tool, tmp_path, network=NETWORK, vectors=100, **more):
    return verify_artefacts(tmp_path, tool, network, {}, vectors, **more)


def test_a_target_that_computes_the_same_is_equal(tmp_path):
    outcome = verify(Honest(), tmp_path)
    assert outcome.ok and outcome.failures == ()
    assert (outcome.executor, outcome.decoded, outcome.rows) == ("python", ("a.bin",), 0)
    assert outcome.vectors >= 100
    edges = {0, 1, 2, 3, 4, 69, 70, 71, 899, 900, 901, 2**32 - 1}
    assert outcome.edges >= len(edges)
    assert outcome.weight_bits == sum(int(x.fan_in.sum()) for x in NETWORK.model.layers)
    assert outcome.decided_bits <= outcome.weight_bits
    assert (outcome.shunt, outcome.at_shunt, outcome.below_shunt) == (0, 0, 0)
    assert outcome.to_dict()["ok"] is True


def test_as_many_vectors_as_asked_for_are_those_of_seed_0(tmp_path):
    class Seen(Honest):
        def run(self, directory, model, options, words):
            self.words = words
            return super().run(directory, model, options, words)

    def words(**more):
        tool = Seen()
        assert verify(tool, tmp_path, vectors=1000, **more).vectors == len(tool.words) == 1000
        return tool.words

    assert np.array_equal(words(), words(seed=0))
    assert not np.array_equal(words(), words(seed=1))


def test_margins_at_the_threshold_are_among_as_many_as_asked_for(tmp_path):
    class Shunting(Honest):
        def run(self, directory, model, options, words):
            self.words = words
            return super().run(directory, model, options, words)

        def decode(self, directory, model, options):
            (decoded,) = super().decode(directory, model, options)
            return (replace(decoded, shunt=2),)

    tool, network = Shunting(), simplify(MODEL.with_shunt(2))
    outcome = verify(tool, tmp_path, network, vectors=1000)
    assert outcome.ok and outcome.vectors == len(tool.words) == 1000
    margins = margins_of(network.model.scores(tool.words[:64]))
    assert (margins == 2).sum() >= 16 and (margins == 1).sum() >= 16


def test_the_trained_network_is_the_reference(tmp_path):
    """A target that computes what was exported fails where that decides otherwise."""
    bias = NETWORK.model.output.bias + np.array([0, 1, 0], np.int32)
    other = replace(NETWORK.model, output=replace(NETWORK.model.output, bias=bias))
    outcome = verify(Honest(), tmp_path, replace(NETWORK, model=other))
    assert len(outcome.failures) == 1 and not outcome.ok
    count = outcome.vectors
    assert outcome.failures[0].startswith(f"{count:,} of {count:,} vectors differ; first vector 0")
    assert "class 1 (class1): score" in outcome.failures[0]
    assert outcome.weight_bits == sum(int(x.fan_in.sum()) for x in other.layers)


def test_captures_that_were_given_and_not_metered_are_said_and_no_others(tmp_path, monkeypatch):
    asked = []

    def metered(tool, directory, network, options, **more):
        asked.append(more)
        return Metering(packets=7, flows=3, failures=("a flow",), missing="no tool")

    monkeypatch.setattr(verification, "check_metering", metered)
    captures = (tmp_path / "a.pcap",)
    assert verify(Honest(), tmp_path, vectors=300).unmetered == ""
    outcome = verify(Honest(), tmp_path, vectors=300, captures=captures, seed=4)
    assert (outcome.packets, outcome.flows, outcome.failures) == (7, 3, ("a flow",))
    assert outcome.unmetered == "no tool"
    assert asked == [
        {"packets": 300, "seed": 0, "captures": ()},
        {"packets": 300, "seed": 4, "captures": captures},
    ]


def test_rows_go_through_the_input_stage_behind_its_edges(tmp_path):
    class Asked(Honest):
        def encode(self, directory, model, options, features):
            self.features = features
            return super().encode(directory, model, options, features)

    tool = Asked()
    outcome = verify(tool, tmp_path, rows={"a": np.array([3, 69]), "b": np.array([1, 2])})
    assert {name: values[-2:].tolist() for name, values in tool.features.items()} == {
        "a": [3, 69], "b": [1, 2],
    }  # fmt: skip
    assert [len(values) for values in tool.features.values()] == [outcome.edges + 2] * 2
    assert (outcome.packets, outcome.flows, outcome.unmetered) == (0, 0, "")


def test_given_rows_are_run_and_counted(tmp_path):
    rows = {"a": np.array([3, 69, 5]), "b": np.array([1, 2, 3]), "other": np.array([9])}
    outcome = verify(Honest(), tmp_path, rows=rows)
    assert (outcome.rows, outcome.encoded) == (3, 3)

    class Bare(Honest):
        def encode(self, directory, model, options, features):
            return None

    outcome = verify(Bare(), tmp_path, rows=rows)
    assert (outcome.rows, outcome.encoded, outcome.edges) == (3, 0, 0)
    assert outcome.ok


def test_of_several_wrong_bits_the_first_is_named(tmp_path):
    class Wrong(Honest):
        def encode(self, directory, model, options, features):
            words = super().encode(directory, model, options, features)
            words[1:, 0] ^= np.uint32(1 << 2 | 1 << 7)
            words[1:, 1] ^= np.uint32(1)
            self.asked = int(features["a"][1])
            return words

    tool = Wrong()
    network = replace(NETWORK, model=MODEL, source=MODEL, source_bits=tuple(range(34)))
    (failure,) = verify(tool, tmp_path, network).failures
    assert failure.startswith(f"input stage: a = {tool.asked}, {SPEC.explain(2)}: ")


@pytest.mark.parametrize("expected", [0, 1])
@pytest.mark.parametrize("bit", [0, 2, 3, 31, 33])
def test_a_wrong_bit_of_the_input_stage_is_named(tmp_path, bit, expected):
    class Wrong(Honest):
        def encode(self, directory, model, options, features):
            words = super().encode(directory, model, options, features)
            bits = words[:, bit // 32] >> np.uint32(bit % 32) & np.uint32(1)
            row = int(np.flatnonzero(bits == expected)[-1])
            words[row, bit // 32] ^= np.uint32(1 << bit % 32)
            self.asked = {name: int(values[row]) for name, values in features.items()}
            return words

    tool = Wrong()
    network = replace(NETWORK, model=MODEL, source=MODEL, source_bits=tuple(range(34)))
    outcome = verify(tool, tmp_path, network)
    (failure,) = outcome.failures
    assert outcome.edges == len(boundary_features(SPEC)["a"])
    feature = "a" if bit < 3 else "b"
    assert failure == (
        f"input stage: {feature} = {tool.asked[feature]}, {SPEC.explain(bit)}: expected {expected}"
    )


def test_a_pad_bit_and_another_shape_are_told(tmp_path):
    first = NETWORK.model.input.n_bits

    class Padded(Honest):
        bit = 63

        def encode(self, directory, model, options, features):
            words = super().encode(directory, model, options, features)
            words[2, -1] |= np.uint32(1 << self.bit % 32)
            return words

    class PaddedFirst(Padded):
        bit = first

    class Narrow(Honest):
        def encode(self, directory, model, options, features):
            return super().encode(directory, model, options, features)[:, :1]

    assert verify(Padded(), tmp_path).failures == ("input stage: row 2, pad bit 63 is not 0",)
    failure = f"input stage: row 2, pad bit {first} is not 0"
    assert verify(PaddedFirst(), tmp_path).failures == (failure,)
    (failure,) = verify(Narrow(), tmp_path).failures
    assert failure.startswith("input stage: shape (") and failure.endswith(", 1)")
    rows = {"a": np.array([3]), "b": np.array([1])}
    for tool in (Padded(), Narrow()):  # what failed went through the stage, too
        outcome = verify(tool, tmp_path, rows=rows)
        assert (outcome.rows, outcome.encoded) == (1, 1) and outcome.edges > 0


def test_a_wrong_score_and_a_wrong_weight_fail(tmp_path):
    class Wrong(Honest):
        place: tuple = ()

        def run(self, directory, model, options, words):
            inference = model.infer(words)
            scores = inference.scores.copy()
            scores[3, 1] += 1
            return Execution(replace(inference, scores=scores), "python")

        def decode(self, directory, model, options):
            (decoded,) = super().decode(directory, model, options)
            weights = decoded.layers[0].weights.copy()
            weights[self.place] ^= True
            other = replace(decoded.layers[0], weights=weights)
            return (replace(decoded, layers=(other, decoded.layers[1])),)

    tool = Wrong()
    tool.place = j, k = tuple(np.argwhere(NETWORK.model.hidden[0].mask)[-1].tolist())
    failures = verify(tool, tmp_path).failures
    assert len(failures) == 2
    assert failures[0].startswith(f"a.bin, layer 0, neuron {j}, input {k}: weight ")
    assert "score" in failures[1]


def test_artefacts_that_cannot_be_read_back_fail(tmp_path):
    class Damaged(Honest):
        def decode(self, directory, model, options):
            raise VerifyError("a.bin: damaged")

    outcome = verify(Damaged(), tmp_path)
    assert outcome == Verification("honest", "", 0, failures=("a.bin: damaged",))
    assert not outcome.ok


def test_what_was_not_counted_is_0():
    counts = Verification("host", "gcc", 5).to_dict()
    numbers = {name: n for name, n in counts.items() if isinstance(n, int) and n is not True}
    assert {name for name, n in numbers.items() if n} == {"vectors"}
    assert len(numbers) == 12


def test_what_lacks_a_tool_is_not_run(tmp_path):
    class Lacking(Honest):
        def run(self, directory, model, options, words):
            raise MissingDependencyError("no gcc")

    outcome = verify(Lacking(), tmp_path)
    assert outcome == Verification("honest", "", 0, missing="no gcc")
    assert not outcome.ok and str(outcome) == "honest: not run: no gcc"


def test_what_differs_is_read_back_and_not_run(tmp_path):
    class Damaged(Honest):
        def decode(self, directory, model, options):
            raise VerifyError("a.bin: damaged")

    class Lacking(Honest):
        def decode(self, directory, model, options):
            raise MissingDependencyError("no onnx")

    changed = "the export is not what n3ic writes and was not run (--run-changed runs it)"
    for tool, failures, decoded in (
        (Honest(), (changed,), ("a.bin",)),
        (Damaged(), ("a.bin: damaged", changed), ()),
        (Lacking(), (changed,), ()),
    ):
        outcome = _not_run(tmp_path, tool, NETWORK.model, {})
        assert outcome == Verification("honest", "", 0, failures=failures, decoded=decoded)


def test_a_view_has_the_counts_above_0_and_what_a_reader_needs():
    figure = Figure("latency", 5, "us", "measured", "source")
    own_outcome = replace(
        GOOD, rows=5000, weight_bits=3, decided_bits=2, decoded=("a", "b"), undecided=("one",),
        note="n", figures=(figure,),
    )  # fmt: skip
    view = own_outcome.view()
    assert view.line == str(own_outcome) and view.notes == ("one", "n")
    assert view.tables[0].title == "verification"
    assert view.tables[0].rows == (
        ("outcome", "equal"),
        ("executor", "gcc"),
        ("vectors", "1,234"),
        ("rows of a table", "5,000"),
        ("weight bits that the vectors decide", "2"),
        ("weight bits of the model", "3"),
        ("read back and compared", "a, b"),
    )
    assert view.tables[1:] == (Report((figure,)).table,)
    for change, outcome in (({"failures": ("a",)}, "failed"), ({"missing": "a"}, "not run")):
        view = replace(GOOD, **change).view()
        assert (view.tables[0].rows[0], view.notes) == (("outcome", outcome), ("a",))
        assert len(view.tables) == 1


def test_an_artefact_of_a_shunting_model_holds_a_threshold(tmp_path):
    network = simplify(MODEL.with_shunt(2))
    (failure,) = verify(Honest(), tmp_path, network).failures
    assert failure == "a.bin: no shunting threshold, the model's is 2"

    class TwoArtefacts(Honest):
        def decode(self, directory, model, options):
            (decoded,) = super().decode(directory, model, options)
            return (decoded, replace(decoded, artefact="b.bin", shunt=2))

    outcome = verify(TwoArtefacts(), tmp_path, network)
    assert outcome.ok and outcome.shunt == 2
    assert outcome.at_shunt > 0 and outcome.below_shunt > 0


@pytest.mark.parametrize("threshold", [1, 2, 3, 5, 7])
def test_inputs_beside_the_threshold_are_counted(threshold):
    model = MODEL.with_shunt(threshold)
    words = pack(np.random.default_rng(2).random((200, 34)) < 0.5)
    margins = margins_of(model.scores(words)).tolist()
    decided = [m for m in margins if m >= threshold]
    shunted = [m for m in margins if m < threshold]
    assert _beside_threshold(model, words) == (
        decided.count(min(decided)) if decided else 0,
        shunted.count(max(shunted)) if shunted else 0,
    )
    assert _beside_threshold(MODEL, words) == (0, 0)


GOOD = Verification("host", "gcc", 1234)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({}, "host: equal scores on 1,234 vectors (gcc)"),
        ({"rows": 5000}, "host: equal scores on 1,234 vectors and 5,000 rows (gcc)"),
        (
            {"edges": 1000},
            "host: equal scores on 1,234 vectors, input stage included (1,000 rows of edges) (gcc)",
        ),
        (
            {"weight_bits": 9000, "decided_bits": 9000},
            "host: equal scores on 1,234 vectors, which would show an error in any of "
            "9,000 weight bits (gcc)",
        ),
        (
            {"weight_bits": 30_000, "decided_bits": 29_999},
            "host: equal scores on 1,234 vectors, which would show an error in 99.99 % of "
            "30,000 weight bits (gcc)",
        ),
        (
            {"weight_bits": 3, "decided_bits": 2, "note": "n"},
            "host: equal scores on 1,234 vectors, which would show an error in 66.66 % of "
            "3 weight bits (gcc); n",
        ),
        (
            {"shunt": 4, "at_shunt": 32, "below_shunt": 1000},
            "host: equal scores and verdicts on 1,234 vectors, 32 at the shunting threshold 4 and "
            "1,000 just below (gcc)",
        ),
        (
            {"packets": 2000, "flows": 30},
            "host: equal scores on 1,234 vectors, and on 30 flows that it metered from 2,000 "
            "packets (gcc)",
        ),
        (
            {"unmetered": "why"},
            "host: equal scores on 1,234 vectors, captures not metered: why (gcc)",
        ),
        ({"missing": "no gcc"}, "host: not run: no gcc"),
        ({"missing": "no gcc", "failures": ("a", "b")}, "host: FAILED: a; b"),
    ],
)
def test_one_line_says_what_was_verified(change, message):
    outcome = replace(GOOD, **change)
    assert str(outcome) == message
    assert outcome.ok == ("equal" in message)
