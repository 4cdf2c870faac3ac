# SPDX-License-Identifier: Apache-2.0
"""The XDP network's C, compiled for the host: the model's scores on and beside every cut."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from n3ic.errors import ExportError, VerifyError
from n3ic.exporters.xdp.network.groups import input_groups
from n3ic.exporters.xdp.network.host import HostNetwork
from n3ic.exporters.xdp.network.kernel_run import BpfNetwork
from n3ic.exporters.xdp.network.rows import bit_counts, bits_of, row_starts
from n3ic.exporters.xdp.network.source import network_source
from n3ic.exporters.xdp.network.structure import structure_of
from n3ic.exporters.xdp.network.sums import as_bits, hidden_sums, layer_groups
from n3ic.exporters.xdp.network.values import layout, value_bytes
from n3ic.model.bits import pack
from n3ic.model.columns import ColumnRule, TableRules
from n3ic.model.inputs import UINT32_MAX, Field, InputSpec
from n3ic.model.layers import HiddenLayer, OutputLayer
from n3ic.model.network import BinaryModel
from n3ic.model.random_models import random_model
from n3ic.model.verification_vectors import boundary_features, verification_vectors

pytestmark = pytest.mark.usefixtures("compiler")

TOPS = (1, 3, 200, 255, 256, (1 << 15) - 1, 1 << 15, (1 << 31) - 1, 1 << 31, UINT32_MAX)


def random_spec(rng, n_fields, most=12, tops=TOPS, raw=0.2):
    """Fields of all kinds and sizes; some read a feature that another one reads, too."""
    fields = []
    for i in range(n_fields):
        name = f"f{int(rng.integers(i)) if i and rng.random() < 0.2 else i}"
        if rng.random() < raw:
            width = int(rng.integers(1, 33))
            clamp = int(rng.integers(1, 1 << width)) if rng.random() < 0.5 else (1 << width) - 1
            fields.append(Field(name, "binary", width, clamp))
        else:
            top = int(rng.choice(tops))
            cuts = np.unique(rng.integers(1, top, int(rng.integers(1, most + 1)), endpoint=True))
            cuts[-1] = top
            fields.append(Field.thermometer(name, np.unique(cuts).tolist()))
    return InputSpec(tuple(fields))


def model_of(spec, hidden, rng, **kwargs):
    model = random_model((spec.n_bits, *hidden), rng, **kwargs)
    return replace(model, input=spec)


def hard_features(spec, rows=2000, seed=0):
    """Each cut, one below and one above, the edges of all ranges; drawn at random together."""
    rng = np.random.default_rng(seed)
    edges = np.array([0, 1, 255, 256, 32767, 32768, (1 << 31) - 1, 1 << 31, UINT32_MAX])
    return {
        name: np.concatenate([values, rng.choice(np.concatenate([values, edges]), rows)])
        for name, values in boundary_features(spec, seed).items()
    }


def same(model, structure, host=None, features=None):
    """The program computes the model; gives what it computed."""
    host = host or HostNetwork.build(structure)
    source = as_bits(model) if structure.bits else model
    if features is None:
        features = hard_features(source.input)
    rows = len(next(iter(features.values())))
    features = {n: features.get(n, np.arange(rows) * 77_777) for n in structure.features}
    got = host.run(value_bytes(structure, model), features)
    words = source.encode(features)
    want = model.infer(words)
    assert np.array_equal(got.scores[:, : len(model.classes)], want.scores)
    assert np.array_equal(got.classes, want.classes)
    assert np.array_equal(got.margins, want.margins)
    assert np.array_equal(got.verdicts, want.verdicts)
    assert np.array_equal(pack(bits_of(structure, model, got.selected)), words)
    return got


@pytest.mark.first_case
@pytest.mark.parametrize(
    ("hidden", "density"),
    [
        pytest.param(hidden, density, marks=[pytest.mark.slow] if density != quick else [])
        for hidden, quick in {
            (32, 16, 2): None,
            (16, 8, 2): 1,
            (8, 2): 1,
            (5, 3): 0.3,
            (24, 7, 5): 1,
            (2,): None,
            (3,): 0.3,
            (40, 20, 7): 0.3,
            (128, 64, 2): None,
        }.items()
        for density in (None, 0.3)
    ],
)
def test_every_shape_gives_the_models_scores(hidden, density):
    rng = np.random.default_rng(len(hidden) + hidden[0])
    model = model_of(random_spec(rng, 24), hidden, rng, density=density)
    same(model, structure_of([model]))
    bits = structure_of([model], bits=True)
    words = verification_vectors(model, 2000)
    same(model, bits, features={f"x{i}": column for i, column in enumerate(words.T)})


def test_bits_of_a_network_that_reads_a_table_are_no_columns_of_it():
    rng = np.random.default_rng(4)
    model = model_of(random_spec(rng, 5), (6, 3), rng)
    model = model.changed(table=TableRules({f: ColumnRule() for f in model.input.features}, "app"))
    assert as_bits(model).table is None
    words = verification_vectors(model, 500)
    columns = {f"x{i}": column for i, column in enumerate(words.T)}
    same(model, structure_of([model], bits=True), features=columns)


@pytest.mark.first_case
@pytest.mark.parametrize("classes", [2, 5])
def test_flows_of_small_margin_are_shunted(classes):
    model = random_model((60, 20, classes), np.random.default_rng(3), extremes=False)
    for shunt in (2, 4, model.largest_margin + 1):
        shunting = replace(model, shunt=shunt)
        words = verification_vectors(shunting, 1000)
        features = {f"x{i}": column for i, column in enumerate(words.T)}
        got = same(shunting, structure_of([shunting]), features=features)
        assert (got.verdicts == -1).any()


@st.composite
def models(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    spec = random_spec(
        rng, draw(st.integers(1, 30)), draw(st.sampled_from([1, 3, 12, 60])), raw=draw(rates)
    )
    layers = draw(st.lists(st.integers(1, 70), min_size=0, max_size=3))
    density = draw(st.sampled_from([None, None, 0.02, 0.5]))
    model = model_of(spec, (*layers, draw(st.integers(2, 9))), rng, density=density)
    return replace(model, shunt=draw(st.integers(0, min(4, model.largest_margin))))


rates = st.sampled_from([0.0, 0.2, 1.0])
relaxed = {"deadline": None, "suppress_health_check": list(HealthCheck)}


@pytest.mark.slow
@settings(max_examples=5, **relaxed)
@given(models())
def test_any_network_is_exact(model):
    same(model, structure_of([model]))


@pytest.mark.slow
@settings(max_examples=8, **relaxed)
@given(models(), models())
def test_any_two_networks_share_a_program_or_say_why(one, other):
    same(one, structure_of([one], bits=True))
    if len(one.layers) != len(other.layers):
        with pytest.raises(ExportError, match="layers"):
            structure_of([one, other])
        return
    structure = structure_of([one, other])
    host = HostNetwork.build(structure)
    same(one, structure, host)
    same(other, structure, host)


def test_all_forms_are_chosen():
    cuts = {
        "table": [3, 9, 255],
        "lanes16": range(100, 32767, 4000),
        "lanes32": range(9, 2**31, 2**28),
        "cuts": [1, 2**32 - 1],
    }
    fields = [Field.thermometer(name, list(values)) for name, values in cuts.items()]
    spec = InputSpec((*fields, Field.binary("bits", 6)))
    model = model_of(spec, (9, 2), np.random.default_rng(0))
    structure = structure_of([model])
    chosen = {(structure.features[s.feature], s.form) for s in structure.selectors}
    assert chosen == {(name, name) for name in (*cuts, "bits")}
    same(model, structure)


def with_hidden(model, **changes):
    return replace(model, hidden=(replace(model.hidden[0], **changes), *model.hidden[1:]))


@pytest.mark.first_case
@pytest.mark.parametrize(
    ("threshold", "cuts"),
    [
        *((0, 249), (249, 249), (250, 249)),
        *((threshold, 256) for threshold in (1, 128, 255, 256, 257)),
        *(pytest.param(t, 249, marks=pytest.mark.slow) for t in (1, 2, 128, 130, 248)),
        *(pytest.param(t, 256, marks=pytest.mark.slow) for t in (0, 2, 130, 248, 249, 250, 254)),
    ],
)
def test_extreme_thresholds_and_ranges(threshold, cuts):
    """Neurons of equal signs on a whole feature have the widest sums."""
    threshold = min(threshold, cuts + 1)
    rng = np.random.default_rng(threshold)
    spec = InputSpec((Field.thermometer("a", range(7, 7 + cuts)),))
    weights = np.repeat([[True], [False]], cuts, axis=1).repeat(8, axis=0)
    weights[4:8] = rng.random((4, cuts)) < 0.5
    hidden = HiddenLayer(weights, thresholds=np.full(16, threshold))
    output = OutputLayer(rng.random((2, 16)) < 0.5, bias=np.array([-2, 3]))
    same(model := BinaryModel(spec, (hidden,), output, ("a", "b")), structure_of([model]))
    bits = structure_of([model], bits=True)
    words = verification_vectors(model, 1000)
    same(model, bits, features={f"x{i}": column for i, column in enumerate(words.T)})


@pytest.mark.slow
def test_bytes_are_used_where_they_are_proven_enough_and_only_there():
    rng = np.random.default_rng(0)
    expected = [(100, 0, False), (250, 2, True), (256, 2, True), (500, 2, False), (4096, 17, False)]
    for seed, (width, segments, halves) in enumerate(expected):
        model = random_model((width, 32, 2), np.random.default_rng(seed), extremes=False)
        structure = structure_of([model])
        assert len(structure.layers[0].segments) == segments
        assert structure.layers[0].halves == halves
        words = verification_vectors(model, 400)
        features = {f"x{i}": column for i, column in enumerate(words.T)}
        same(model, structure, features=features)
    # The largest sum of 250 bits that starts at 128 less a threshold of 130 is not a byte's.
    model = random_model((250, 1, 2), rng)
    for threshold, enough in [(128, True), (129, False), (123, True), (122, False), (0, True)]:
        changed = with_hidden(model, thresholds=np.array([threshold]), mask=None)
        assert (structure_of([changed]).layers[0].segments == ()) == enough
    layer = structure_of([with_hidden(model, thresholds=np.array([129]))]).layers[0]
    assert (
        list(layer.segments) == [32, 31] and layer.halves
    )  # eight nibbles of seven words, and seven of the last


def test_fields_of_one_feature_are_merged():
    fields = [Field.thermometer("a", cuts) for cuts in ([5, 9, 70_000], [9, 12], [5])]
    model = model_of(InputSpec(tuple(fields)), (4, 2), np.random.default_rng(0))
    (group,) = input_groups(model.input)
    assert group.cuts == (5, 9, 12, 70_000)
    structure = structure_of([model])
    assert [s.rows for s in structure.selectors] == [5]
    same(model, structure)


def test_more_cuts_than_a_byte_counts():
    cuts = [Field.thermometer("a", range(1, 601)), Field.thermometer("a", range(300, 700))]
    model = model_of(InputSpec(tuple(cuts)), (20, 2), np.random.default_rng(0))
    structure = structure_of([model])
    assert len(structure.selectors) == 4
    assert all(s.cuts <= 255 for s in structure.selectors)
    same(model, structure)
    # One cut, more often than a byte counts.
    fields = tuple(Field.thermometer("a", [4_000_000_000]) for _ in range(300))
    model = model_of(InputSpec(fields), (3, 2), np.random.default_rng(1))
    same(model, structure_of([model]))


def retrained(model, rng):
    """The same features with other cuts, fewer here and there, and other weights."""
    fields = []
    for f in model.input.fields:
        if f.kind == "thermometer":
            cuts = sorted(set(rng.choice(f.cuts, rng.integers(1, len(f.cuts) + 1))))
            f = Field.thermometer(f.feature, [max(1, c - int(rng.integers(2))) for c in cuts])
        fields.append(f)
    return model_of(InputSpec(tuple(fields)), model.shape[1:], rng)


def test_a_retrained_network_swaps_in_the_map():
    rng = np.random.default_rng(5)
    spec = random_spec(rng, 30, most=7, tops=(500, 1 << 20, 1 << 30), raw=0.1)
    fields = (
        Field.thermometer(f.feature, [2 * c for c in f.cuts]) if f.cuts else f for f in spec.fields
    )
    model = model_of(InputSpec(tuple(fields)), (32, 16, 2), rng)
    structure = structure_of([model])
    host = HostNetwork.build(structure)
    for _ in range(4):
        other = retrained(model, rng)
        assert len(value_bytes(structure, other)) == layout(structure).bytes
        same(other, structure, host)


def test_networks_of_other_features_share_a_program_that_was_made_for_both():
    rng = np.random.default_rng(6)
    a = model_of(random_spec(rng, 20), (32, 16, 2), rng)
    b = model_of(random_spec(rng, 35), (20, 40, 5), rng)
    names = tuple(replace(f, feature=f"g{f.feature}") for f in b.input.fields[:10])
    b = replace(b, input=InputSpec((*names, *b.input.fields[10:])))
    structure = structure_of([a, b])
    assert set(structure.features) == {*a.input.features, *b.input.features}
    host = HostNetwork.build(structure)
    same(a, structure, host)
    same(b, structure, host)


def refused(structure, model, match):
    with pytest.raises(ExportError, match=match):
        value_bytes(structure, model)


@pytest.mark.slow
def test_a_network_that_does_not_fit_is_refused_with_the_reason():
    rng = np.random.default_rng(7)
    small = InputSpec((Field.thermometer("a", [3, 5, 90]), Field.binary("b", 4)))
    model = model_of(small, (8, 2), rng)
    structure = structure_of([model])

    def other(*fields, hidden=(8, 2)):
        return model_of(InputSpec(fields), hidden, rng)

    a, b = small.fields
    refused(structure, other(a, b, hidden=(8, 8, 2)), "3 layers, the program 2")
    refused(structure, other(a, b, hidden=(9, 2)), "layer 0: 9 outputs.*room for 8")
    refused(structure, other(a, b, hidden=(8, 3)), "layer 1: 3 outputs")
    refused(structure, other(replace(a, feature="z"), b), "does not read 'z'")
    refused(structure, other(Field.thermometer("a", range(1, 20)), b), "'a': 19 cuts.*8")
    refused(structure, other(Field.thermometer("a", [256]), b), "cut of 256.*below 256")
    refused(structure, other(a, Field.binary("b", 5)), "does not read 'b'")
    big = replace(model, output=replace(model.output, bias=np.array([0, 1 << 23])))
    same(big, structure)  # 32 bits hold it
    wide = InputSpec((Field.thermometer("a", range(1, 250)),))
    half = model_of(wide, (4, 2), rng, extremes=False)
    half = with_hidden(half, weights=np.ones((4, 249)), thresholds=np.full(4, 120))
    refused(structure_of([with_hidden(half, thresholds=np.full(4, 125))]), half, "do not fit")
    with pytest.raises(ExportError, match="at least one"):
        structure_of([])
    with pytest.raises(ExportError, match="instructions"):
        structure_of([random_model((30_000, 64, 2), rng)])
    with pytest.raises(ExportError, match="32,767"):
        structure_of([random_model((1 << 15, 2, 2), rng)])


def test_every_neuron_of_a_fitting_layer_is_checked():
    """The proof is of each neuron: one that breaks it makes the sums wide."""
    model = random_model((200, 32, 2), np.random.default_rng(1), extremes=False)
    structure = structure_of([model])
    groups = layer_groups(structure, None, model.input)
    assert hidden_sums(model.hidden[0], groups, structure.layers[0]).fits_bytes
    thresholds = model.hidden[0].thresholds.copy()
    thresholds[17] = 129
    assert structure_of([with_hidden(model, thresholds=thresholds)]).layers[0].segments


def test_counts_of_rows_are_counts_of_bits():
    rng = np.random.default_rng(8)
    model = model_of(random_spec(rng, 12), (8, 2), rng)
    structure = structure_of([model])
    features = hard_features(model.input)
    got = same(model, structure, features=features)
    starts = np.array(row_starts(structure))
    counts = np.bincount((starts + got.selected).ravel(), minlength=600)
    wanted = model.input.encode(features).sum(axis=0)
    assert bit_counts(structure, model, counts).tolist() == wanted.tolist()


def test_the_same_network_gives_the_same_bytes():
    def parts():
        rng = np.random.default_rng(9)
        model = model_of(random_spec(rng, 20), (32, 16, 2), rng)
        structure = structure_of([model])
        return network_source(structure, prefix="other"), value_bytes(structure, model)

    source, value = parts()
    assert (source, value) == parts()
    assert set(source) == {"network_rows.h", "other.h"}
    assert "other_run(" in source["other.h"] and "NETWORK_H" not in source["other.h"]


def test_a_value_of_another_size_is_not_run():
    model = random_model((20, 4, 2), np.random.default_rng(0))
    structure = structure_of([model])
    host = HostNetwork.build(structure)
    with pytest.raises(VerifyError, match="bytes"):
        host.run(value_bytes(structure, model) + bytes(8), {"x0": [1]})
    broken = network_source(structure) | {"network.h": "nonsense"}
    with pytest.raises(VerifyError, match="compile"):
        HostNetwork.build(structure, broken)


def structured(model, structure, rng):
    """Another network that fits the structure."""
    while True:
        other = model_of(model.input, model.shape[1:], rng, extremes=False)
        try:
            value_bytes(structure, other)
        except ExportError:
            continue
        return other


@pytest.mark.first_case
@pytest.mark.parametrize(
    ("hidden", "bits"),
    [
        ((32, 16, 2), True),
        ((128, 64, 2), False),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (((32, 16, 2), False), ((128, 64, 2), True))
        ),
        *(
            pytest.param(hidden, bits, marks=pytest.mark.slow)
            for hidden in ((7, 3), (40, 20, 28))
            for bits in (False, True)
        ),
    ],
)
def test_the_kernel_computes_the_same(kernel, compile_bpf, hidden, bits):
    rng = np.random.default_rng(len(hidden))
    model = replace(model_of(random_spec(rng, 40), hidden, rng), shunt=2)
    structure = structure_of([model], bits=bits)
    inputs = 2048
    with BpfNetwork.load(structure, inputs) as loaded:
        assert loaded.program.verified < 50_000
        assert loaded.program.instructions < structure.instructions + 150  # a frame, three maps
        for network in (model, structured(model, structure, rng)):
            if bits:
                words = verification_vectors(network, inputs)[:inputs]
                features = {f"x{i}": column for i, column in enumerate(words.T)}
            else:
                features = hard_features(network.input, inputs)
                features = {name: values[-inputs:] for name, values in features.items()}
            same(network, structure, loaded, features)


def test_a_last_feature_with_cuts_side_by_side_stays_within_the_value(kernel, compile_bpf):
    """The verifier takes the zeros below its row number for anything."""
    rng = np.random.default_rng(0)
    fields = [
        Field.thermometer(f"f{i}", sorted(map(int, rng.choice(3000, 17, replace=False) + 300)))
        for i in range(8)
    ]
    model = replace(random_model((136, 32, 4), rng), input=InputSpec(tuple(fields)))
    structure = structure_of([model])
    with BpfNetwork.load(structure, 256) as loaded:
        features = {name: v[-256:] for name, v in hard_features(model.input, 256).items()}
        same(model, structure, loaded, features)


def test_objects_of_the_same_network_are_the_same(compile_bpf):
    from n3ic.exporters.xdp.clang import compile_bpf as compiled

    source = {"a.c": "int f(int a) { return a + 1; }"}
    # Each option makes another command, so that both are compiled, in folders of two names.
    assert compiled(source, "a.c", ["-DFIRST"]) == compiled(source, "a.c", ["-DSECOND"])
    with pytest.raises(VerifyError, match=r"does not compile.*expected"):
        compiled({"a.c": "int f("}, "a.c")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "cuts"),
    [
        ((256, 512, 2), 0),
        ((4096, 32, 16, 2), 80),
        ((250, 256, 128, 28), 5),
    ],
)
def test_large_networks_stay_within_the_stack(kernel, compile_bpf, shape, cuts):
    rng = np.random.default_rng(0)
    model = random_model(shape, rng)
    if cuts:
        counts = [*[cuts] * (shape[0] // cuts), *filter(None, [shape[0] % cuts])]
        spread = (rng.choice(1 << 20, count, replace=False) + 1 for count in counts)
        fields = (Field.thermometer(f"f{i}", sorted(map(int, c))) for i, c in enumerate(spread))
        model = replace(model, input=InputSpec(tuple(fields)))
    structure = structure_of([model])
    with BpfNetwork.load(structure, 256) as loaded:
        assert loaded.program.instructions < structure.instructions + 150
        assert loaded.program.verified < 100_000
        features = {name: v[-256:] for name, v in hard_features(model.input, 256).items()}
        same(model, structure, loaded, features)
