# SPDX-License-Identifier: Apache-2.0
"""Graphs of integer operations in XDP programs: the model's scores, swaps, refusals, decoding."""

import random
import re
import shutil
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from n3ic.errors import ExportError, VerifyError
from n3ic.exporters.xdp.exporter import EXPORTER
from n3ic.exporters.xdp.graph import structure
from n3ic.exporters.xdp.graph.decode import decode_directory
from n3ic.exporters.xdp.network.host import HostNetwork
from n3ic.exporters.xdp.network.kernel_run import BpfNetwork
from n3ic.exporters.xdp.network.rows import bits_of
from n3ic.exporters.xdp.network.structure import structure_of
from n3ic.exporters.xdp.network.sums import input_of
from n3ic.exporters.xdp.network.values import layout, value_bytes
from n3ic.exporters.xdp.packing import repack, unpack
from n3ic.exporters.xdp.plan import Choices
from n3ic.families.trees.random_models import random_trees
from n3ic.meter.standard import standard_spec
from n3ic.model.bits import pack
from n3ic.model.family import family
from n3ic.model.inputs import UINT32_MAX, Field, InputSpec
from n3ic.model.passes import unchanged
from n3ic.model.random_models import random_model
from n3ic.model.verification_vectors import boundary_features
from n3ic.systems.xdp import deployment
from n3ic.systems.xdp.packs import write_pack
from n3ic.systems.xdp.program_record import Interface
from n3ic.systems.xdp.status import status
from n3ic.targets import forest
from n3ic.targets.directory import export
from tests.support.generated import large_spec, random_frames
from tests.support.metered_models import metered_network
from tests.support.metering import load, replayed
from tests.support.n3icd import (
    build,
    check_a_retrained_model,
    decided,
    flows,
    mount,
    send,
)
from tests.support.random_graphs import GraphModel, Recorder, graph_family, graph_model

CUTS = (3, 200, 255, 256, (1 << 15) - 1, 1 << 15, (1 << 31) - 1, 1 << 31, UINT32_MAX)
NETWORK = "answer/network.bin"


@pytest.fixture(autouse=True)
def installed():
    with graph_family():
        yield


def inputs(seed=0):
    """Raw bits, two fields of one feature, small cuts, cuts of all sizes, and more than 252."""
    rng = np.random.default_rng(seed)
    fields = [
        Field("raw", "binary", 11, 1500),
        Field.thermometer("f0", CUTS),
        Field.thermometer("f0", (2, 200, 1000)),
        Field.thermometer("small", sorted(rng.choice(np.arange(1, 250), 9, False).tolist())),
        Field.thermometer("many", range(5, 1305, 5)),
        Field.thermometer("one", (77,)),
    ]
    return InputSpec(tuple(fields))


@dataclass(frozen=True, eq=False, repr=False)
class Lookups(GraphModel):
    """Sums of look-ups by each field of the input, without choices."""

    def ask(self, kind):
        builder = kind(self.input)
        rng = np.random.default_rng(self.drawn[0])
        sums = []
        for _ in self.classes:
            total = builder.constant(7)
            for i, each in enumerate(self.input.fields):
                if each.kind == "thermometer":
                    table = rng.integers(-99, 99, each.width + 1).tolist()
                    total = builder.add(total, builder.lookup(i, table))
            sums.append(total)
        return builder.build(sums)


@dataclass(frozen=True, eq=False, repr=False)
class Doubled(GraphModel):
    """A choice that is doubled again and again, as it is asked for: a sum of as many trees."""

    def ask(self, kind):
        builder = Recorder(self.input)
        total = builder.choose(0, builder.constant(0), builder.lookup(0, (2, 2, 2)))
        for _ in range(self.drawn[0]):
            total = builder.add(total, total)
        return builder.build([builder.constant(0), total])


@dataclass(frozen=True, eq=False, repr=False)
class Leaves(GraphModel):
    """Two trees whose leaves are far apart: their sum fits 32 bits, but not each."""

    def ask(self, kind):
        builder = kind(self.input)
        far = builder.choose(0, builder.constant(1 << 40), builder.constant((1 << 40) + 1))
        back = builder.choose(1, builder.constant(-(1 << 40)), builder.constant(1 - (1 << 40)))
        return builder.build([builder.constant(0), builder.add(far, back)])


@dataclass(frozen=True, eq=False, repr=False)
class Chain(GraphModel):
    """One tree, as deep as is drawn."""

    def ask(self, kind):
        builder = kind(self.input)
        tree = builder.constant(1)
        for bit in range(self.drawn[0]):
            tree = builder.choose(bit, tree, builder.constant(bit + 2))
        return builder.build([builder.constant(0), tree])


def small(seed=0, kind=GraphModel, spec=None, classes=("a", "b", "c")):
    return kind(spec or inputs(seed), (seed, 0, 30, 0), classes)


def trees(seed=0, **given):
    given = {"trees": 9, "depth": 5, "classes": 3, "spec": inputs(seed)} | given
    return random_trees(np.random.default_rng(seed), **given)


NARROW = InputSpec(inputs().fields[:4])  # no field of more cuts than are counted
MODELS = {
    "trees": trees(),
    "two-classes": trees(1, classes=2).with_shunt(40),
    "many-classes": trees(2, classes=17, trees=3, depth=2, largest=1 << 25),
    "stumps": trees(3, depth=1, trees=30),
    "deep": trees(4, depth=11, trees=1),
    "constant": trees(6, depth=0),
    "doubled": small(4, Doubled, InputSpec((Field.thermometer("a", (5, 9)),)), ("a", "b")),
    "choices-of-sums": small(5, spec=NARROW),
    "sums-of-choices": replace(graph_model(2, operations=4, depth=6), shunt=3),
    "look-ups": small(7, Lookups, NARROW),
    "look-ups-of-21-bits": small(7, Lookups, InputSpec(NARROW.fields[1:])),  # not in fours
}


def at_cuts(model, rows=1024):
    """Features on and beside every cut, drawn at random together."""
    rng = np.random.default_rng(0)
    return {name: rng.choice(c, rows) for name, c in boundary_features(model.input).items()}


def columns(words):
    return {f"x{i}": column for i, column in enumerate(words.T)}


def same(got, model, words):
    """The results are the model's for packed inputs."""
    want = model.infer(words)
    for name in ("scores", "classes", "margins", "verdicts"):
        assert np.array_equal(getattr(got, name), getattr(want, name)), name


def computed(model, made, runner, features):
    """A program computes the model on some features."""
    got = runner.run(value_bytes(made, model), features)
    words = input_of(made, model).encode_words(features)
    same(got, model, words)
    assert np.array_equal(pack(bits_of(made, model, got.selected)), words)


def vectors(model, rows):
    return family(model.family).vectors(unchanged(model), rows, 0)[:rows]


@pytest.mark.first_case
@pytest.mark.parametrize("name", MODELS)
def test_scores_and_verdicts_are_the_models(compiler, name):
    model = MODELS[name]
    made = structure_of([model])
    computed(model, made, HostNetwork.build(made), at_cuts(model))
    made = structure_of([model], bits=True)
    computed(model, made, HostNetwork.build(made), columns(vectors(model, 700)))


def test_look_ups_count_bits_that_no_input_stage_gives(compiler):
    model = MODELS["look-ups"]
    bits = np.random.default_rng(0).random((500, model.input.n_bits)) < 0.5
    made = structure_of([model], bits=True)
    computed(model, made, HostNetwork.build(made), columns(pack(bits)))


def test_scores_of_32_bits_are_compared(compiler):
    """The best two of three classes, and their margin, beyond 30 bits."""
    spec = InputSpec((Field.thermometer("a", (5, 9)),))
    model = trees(1, spec=spec, trees=1, depth=2, largest=5)
    far = np.where(model.leaves > 0, (1 << 30) - 40, -(1 << 30) + 40).astype(np.int32)
    far[:, 1] //= 2
    model = replace(model, leaves=far)
    made = structure_of([model])
    computed(model, made, HostNetwork.build(made), at_cuts(model))


def test_a_program_takes_other_trees_and_cuts(compiler):
    model = trees(trees=20, depth=4)
    made = structure_of([model])
    host, features = HostNetwork.build(made), at_cuts(model)
    fields = [
        replace(f, cuts=tuple(c - 1 for c in f.cuts)) if f.cuts and f.cuts[0] > 1 else f
        for f in model.input.fields
    ]
    for other in (
        trees(8, trees=20, depth=4, spec=model.input),
        trees(9, trees=3, depth=2, spec=model.input),
        replace(model, input=InputSpec(tuple(fields)), bias=model.bias + 9),
        trees(10, trees=1, depth=0, spec=model.input),
    ):
        computed(other, made, host, features)


def test_several_models_share_a_program(compiler):
    both = trees(trees=3, depth=6), trees(1, trees=12, depth=2, spec=inputs())
    made = structure_of(both)
    for model in both:
        computed(model, made, HostNetwork.build(made), at_cuts(model))


def test_what_does_not_fit_a_program_is_refused():
    model = trees(trees=4, depth=3)
    made = structure_of([model])
    spec = model.input
    for other, text in (
        (trees(1, trees=5, depth=3, spec=spec), "class 0: 5 trees, the program has room for 4"),
        (trees(1, trees=4, depth=6, spec=spec), r"a tree of depth \d, the program has room for 3"),
        (trees(1, classes=2, spec=spec), "2 classes, the program has 3"),
        (random_model((spec.n_bits, 8, 3), np.random.default_rng(0)), "program is for graphs"),
    ):
        with pytest.raises(ExportError, match=text):
            value_bytes(made, other)
    chain = small(64, Chain, InputSpec((Field.binary("a", 32), Field.binary("b", 32))), ("a", "b"))
    full = structure_of([chain])
    assert full.entries == 8 * 256
    with pytest.raises(ExportError, match=r"\d+ entries, the program has room for 256"):
        value_bytes(full, small(8, Full, chain.input, ("a", "b")))
    nine = InputSpec((Field.thermometer("a", range(1, 10)), Field.binary("r", 2)))
    two = InputSpec((Field.thermometer("a", (1, 2)), Field.binary("r", 9)))
    made = structure_of([small(1, Lookups, nine)], bits=True)
    with pytest.raises(ExportError, match="a look-up by 'a', whose set bits the program does not"):
        value_bytes(made, small(2, Lookups, two))


@dataclass(frozen=True, eq=False, repr=False)
class Full(GraphModel):
    """A full tree."""

    def ask(self, kind):
        builder = kind(self.input)

        def grow(depth, leaf):
            if depth == self.drawn[0]:
                return builder.constant(leaf)
            zero, one = (grow(depth + 1, 2 * leaf + side) for side in (0, 1))
            return builder.choose(depth, zero, one)

        return builder.build([builder.constant(0), grow(0, 1)])


def problems(model):
    tool = EXPORTER.for_family(model.family)
    return [p.message for p in tool.check(model, tool.parse_options({})).problems]


def test_limits_are_told_before_anything_is_written(monkeypatch, tmp_path):
    with pytest.raises(ExportError, match=r"step \d+, a log-add.*writes no log-add"):
        export(graph_model(4, "log"), "xdp", tmp_path / "e")
    raw = InputSpec(tuple(Field.binary(f"x{i}", 32) for i in range(9)))
    (text,) = problems(small(257, Chain, raw, ("a", "b")))
    assert text.startswith("step ")
    assert "257 choices below each other, 256 are allowed" in text
    assert problems(small(256, Chain, raw, ("a", "b"))) == []
    (text,) = problems(small(0, Leaves, raw, ("a", "b")))
    assert "a leaf of 1,099,511,627,776: 32 bits are allowed" in text
    spec = InputSpec((Field.thermometer("a", (5, 9)),))
    (text,) = problems(small(28, Doubled, spec, ("a", "b")))
    assert re.match(r"step \d+, a sum: a sum of more than 16,384 trees", text)
    many = Field.thermometer("many", range(1, 300))
    (text,) = problems(small(0, Lookups, InputSpec((many,))))
    assert "a look-up by 'many': 299 cuts, XDP programs count 252" in text
    monkeypatch.setattr(structure, "MAX_STEPS", 12)
    text = problems(trees(trees=5, depth=3))[0]
    assert "walks down 15 trees take 45 steps, the verifier follows 12" in text
    forest.forest_of.cache_clear()
    monkeypatch.setattr(forest, "MAX_NODES", 12)
    (text,) = problems(MODELS["trees"])
    assert "more than 12 nodes of trees" in text
    forest.forest_of.cache_clear()


def test_more_intervals_than_a_cpu_counts_are_refused():
    spec = standard_spec(packets=4)
    fields = tuple(
        Field.thermometer(name, range(1, 251), unit=spec.units[name])
        for name in spec.feature_names[:20]
    )
    model = replace(trees(spec=InputSpec(fields)), meter=spec)
    assert any("intervals, whose decisions a CPU counts" in text for text in problems(model))


@pytest.mark.slow
def test_walks_and_windows_share_what_the_verifier_follows():
    spec = large_spec(
        random.Random(2), "five-tuple", registers=2, features=2, windows=20, flows=1000
    )
    features = metered_network(spec).input

    def stumps(count):
        return trees(spec=features, trees=count, depth=1, classes=2, largest=1000)

    assert problems(replace(stumps(2000), meter=spec)) == []
    more = stumps(8000)
    (text,) = problems(replace(more, meter=spec))
    assert "instructions of walks and 600,000 of 20 windows: 770,000 are allowed" in text
    assert problems(more) == []


@pytest.mark.parametrize("name", MODELS)
def test_the_graph_is_read_back(tmp_path, name):
    model = MODELS[name]
    (tmp_path / NETWORK).parent.mkdir()
    (tmp_path / NETWORK).write_bytes(value_bytes(structure_of([model], bits=True), model))
    (decoded,) = decode_directory(tmp_path, model)
    assert (decoded.digest, decoded.shunt) == (model.digest, model.shunt)


@pytest.mark.parametrize("name", ["choices-of-sums", "look-ups", "two-classes"])
def test_a_changed_bit_of_the_value_is_found(tmp_path, name):
    model = MODELS[name]
    made = structure_of([model], bits=True)
    data, where = value_bytes(made, model), layout(made)
    (tmp_path / NETWORK).parent.mkdir()
    start, entries = where.offset("start"), where.offset("entries")
    used = 8 * len(np.flatnonzero(np.frombuffer(data[entries:], "<u8")))
    rng = np.random.default_rng(0)
    places = [0, where.offset("shunt"), start, start + 8 * len(model.classes) - 1]
    for at in [*places, *(entries + rng.integers(0, used, 40)).tolist()]:
        damaged = bytearray(data)
        damaged[at] ^= 1 << int(rng.integers(8))
        (tmp_path / NETWORK).write_bytes(damaged)
        with pytest.raises(VerifyError, match=r"answer/network\.bin: "):
            decode_directory(tmp_path, model)


def test_a_value_behind_the_last_is_not_read(tmp_path):
    model = MODELS["look-ups"]
    made = structure_of([model], bits=True)
    data, start = bytearray(value_bytes(made, model)), layout(made).offset("entries")
    entries = np.frombuffer(data, "<u4", offset=start).reshape(-1, 2)
    node = int(np.flatnonzero(entries[:, 1] & 255)[0])  # a leaf's lowest byte is 0
    behind = -(-model.input.n_bits // 4) * 4 + len(made.counted)
    entries[node, 0] = behind
    (tmp_path / NETWORK).parent.mkdir()
    (tmp_path / NETWORK).write_bytes(data)
    with pytest.raises(VerifyError, match=f"entry {node} reads a value that does not exist"):
        decode_directory(tmp_path, model)


# --- in the kernel -------------------------------------------------------------------------------


def in_kernel(model, bits=False):
    made = structure_of([model], bits=bits)
    with BpfNetwork.load(made) as loaded:
        assert loaded.program.verified < 300_000
        features = at_cuts(model)
        if bits:
            words = vectors(model, 1024)
            features = {k: np.resize(column, 1024) for k, column in columns(words).items()}
        computed(model, made, loaded, features)


def test_the_kernel_computes_the_models_scores(clang, kernel):
    in_kernel(MODELS["trees"])


@pytest.mark.slow
@pytest.mark.parametrize("bits", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_the_kernel_computes_every_graph(clang, kernel, name, bits):
    in_kernel(MODELS[name], bits)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_the_kernel_computes_random_graphs(clang, kernel, seed):
    in_kernel(graph_model(seed, operations=25, classes=2 + seed % 2))
    in_kernel(trees(seed, trees=40, depth=1 + seed, classes=2 + seed % 2), seed % 2 == 0)


@pytest.mark.slow
def test_as_many_steps_as_are_allowed_load(clang, kernel):
    raw = InputSpec(tuple(Field.binary(f"x{i}", 32) for i in range(8)))
    in_kernel(
        random_trees(np.random.default_rng(0), spec=raw, trees=structure.MAX_STEPS // 2, depth=2)
    )


def metered(seed=0, **given):
    """Trees over the features of the standard meter."""
    spec = standard_spec(packets=4)
    source = metered_network(spec)
    model = trees(seed, **({"spec": source.input, "trees": 12} | given))
    return replace(model, meter=spec, name=f"trees{seed}")


@pytest.mark.slow
@pytest.mark.parametrize("table", ["buckets", "lru"])
def test_flows_are_classified_in_the_metering_program(clang, kernel, table):
    model = metered()
    model = replace(model, meter=replace(model.meter, cache_flows=4000)).with_shunt(30)
    with load(model, table=table) as programs:
        events = replayed(programs, model, random_frames(random.Random(1), 300))
        assert len(events) > 10
        assert len({*events["verdict"].tolist()}) > 1
        rows = programs.tally(0)["row"].sum()
        assert rows == len(events) * len(programs.structure.selectors)


@pytest.mark.slow
def test_an_export_is_verified_in_the_kernel(clang, kernel, tmp_path):
    for model in (metered(1).with_shunt(9), MODELS["choices-of-sums"]):
        artefact = export(model, "xdp", tmp_path / model.name)
        assert artefact.verification.ok


@pytest.fixture(scope="module")
def exported(tmp_path_factory, clang):
    return build(tmp_path_factory.mktemp("graph"), metered())


@pytest.mark.slow
def test_a_pack_holds_trees_and_takes_retrained_ones(exported, tmp_path):
    model = write_pack(exported, tmp_path / "pack", Choices())
    assert model == metered()
    data, again = (tmp_path / "pack").read_bytes(), metered(2)
    assert unpack(repack(data, 0, again)).networks.keys() == {model.digest, again.digest}
    with pytest.raises(ExportError, match="13 trees, the program has room for 12"):
        repack(data, 0, metered(3, trees=13))


@pytest.mark.slow
def test_trees_are_replaced_on_a_link_while_flows_stay(exported, kernel, veth, run_folder):
    for name in veth:
        Path(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6").write_text("1")
    link, other = Interface.named(veth[0]), veth[1]
    model, retrained = metered(), metered(2, trees=7, depth=3)
    try:
        deployment.load(link, exported, Choices())
        send(other, flows(range(10)))
        first = status(link)
        assert decided(first.slots[0]) == 10
        assert first.slots[0].digest == model.digest

        assert deployment.update(link, retrained).note == ""
        send(other, flows(range(10, 13)))
        second = status(link)
        assert second.program_id == first.program_id
        assert second.flows == 13
        assert decided(second.slots[0]) == 3
    finally:
        deployment.unload(link)


@pytest.mark.slow
def test_a_daemon_tells_the_models_scores_and_takes_retrained_trees(
    exported, kernel, veth, tmp_path, tmp_path_factory
):
    if not shutil.which("gcc") or not Path("/usr/include/bpf/libbpf.h").exists():
        pytest.skip("needs gcc and libbpf's headers (apt-get install gcc libbpf-dev)")
    for name in veth:
        Path(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6").write_text("1")
    built, pins = tmp_path / "export", tmp_path_factory.mktemp("bpffs") / "bpf"
    shutil.copytree(exported, built)
    subprocess.run(["make", "-s", "-C", built, "daemon/n3icd", "meter/meter.o"], check=True)
    if not mount(pins):
        pytest.skip("needs the right to mount a BPF file system")
    check_a_retrained_model(built, veth, tmp_path, pins, (metered(), metered(3, trees=5)))


@pytest.mark.slow
def test_a_packet_has_room_for_the_cuts_of_a_forest(clang, kernel, tmp_path):
    spec = InputSpec(tuple(Field.thermometer(f"f{i}", range(9, 265)) for i in range(40)))
    model = trees(spec=spec, trees=5, depth=4, classes=2)
    assert model.input.n_bits == 10_240
    tool = EXPORTER.for_family(model.family)
    options = tool.parse_options({})
    tool.write(model, options, tmp_path)
    words = vectors(model, 100)
    same(tool.run(tmp_path, model, options, words).inference, model, words)
    more = replace(spec, fields=(*spec.fields, Field.thermometer("g", (1,))))
    (text,) = problems(trees(spec=more, trees=5, depth=4, classes=2))
    assert "10,241 input bits, an inference packet has room for 10,240" in text
