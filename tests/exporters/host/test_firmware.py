# SPDX-License-Identifier: Apache-2.0
"""``--style plain``: what firmware engineers ask of a source, and that it computes the model."""

import re
import shutil
import subprocess
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import n3ic
from n3ic.errors import VerifyError
from n3ic.exporters.host.exporter import EXPORTER
from n3ic.exporters.host.firmware.decode import _arithmetic, _depth, _trees, decode_directory
from n3ic.exporters.host.firmware.runner import PROCESSORS, SMALL, loaded_bytes
from n3ic.exporters.host.firmware.writer import memory_of
from n3ic.exporters.host.forms import form_of
from n3ic.exporters.host.graph.readback import CNode
from n3ic.families.tables.random_models import random_tables
from n3ic.model.family import family, graph_of
from n3ic.model.graph.arithmetic import FixedPoint, Logarithms
from n3ic.model.inputs import Field, InputSpec
from n3ic.model.network import BinaryModel
from n3ic.model.random_models import random_model
from n3ic.targets.decoding import decoding_difference
from tests.support.kernel_models import small_model
from tests.support.random_graphs import ARITHMETICS, graph_family, graph_model

STRICT = (
    *("-pedantic", "-Wall", "-Wextra", "-Wconversion", "-Wsign-conversion", "-Wshadow"),
    *("-Wstrict-prototypes", "-Wmissing-prototypes", "-Wcast-qual", "-Wundef", "-Werror"),
)

# Checks of clang-tidy near MISRA's and CERT's. Left out: products of indices that are below the
# size of an array, and numbers of 8 bits, which one check takes for characters.
TIDY = (
    *("-*", "bugprone-*", "cert-*", "clang-analyzer-*", "misc-*", "performance-*", "portability-*"),
    *("readability-braces-around-statements", "readability-misleading-indentation"),
    *("readability-redundant-*", "-bugprone-easily-swappable-parameters"),
    *("-bugprone-implicit-widening-of-multiplication-result", "-bugprone-signed-char-misuse"),
    "-cert-str34-c",
)


def thermometers(seed=1, shunt=0):
    """The paper's shape, whose input bits compare features with cuts."""
    rng = np.random.default_rng(seed)
    fields = [
        Field.thermometer(f"f{i}", np.sort(rng.choice(9000, 32, replace=False)).tolist())
        for i in range(8)
    ]
    model = random_model((256, 32, 16, 2), rng, extremes=False)
    return replace(model, input=InputSpec(fields)).with_shunt(shunt)


# Cuts of every width, and bits at the end that repeat others.
REPEATED = InputSpec(
    (
        Field.thermometer("b", [3, 250]),
        Field.thermometer("a", [9, 300, 65_535]),
        Field.thermometer("c", [7, 70_000, 2**32 - 1]),
        Field.thermometer("b", [3, 200]),  # it does not only repeat
        Field.thermometer("a", [9, 65_535]),
        Field.thermometer("c", [70_000]),
        Field.thermometer("a", [300]),
    )
)


MODELS = {
    "paper": lambda: thermometers(shunt=3),
    "repeated cuts": lambda: replace(
        random_model((14, 8, 3), np.random.default_rng(4)), input=REPEATED
    ),
    "masks and numbers": small_model,
    # The bits that are changed below are of connections that are there.
    "masks": lambda: random_model((40, 9, 3), np.random.default_rng(18), density=0.5),
    "tables": lambda: random_tables(np.random.default_rng(3)),
    "tables of three classes": lambda: random_tables(np.random.default_rng(5), classes=3),
    "sum-product network": lambda: family("sum-product-network").random(np.random.default_rng(2)),
    "trees": lambda: family("decision-trees").random(np.random.default_rng(2)),
    **{f"graph of {name}": partial(graph_model, 2, name) for name in ARITHMETICS},
    "one word": lambda: random_model((5, 2), np.random.default_rng(6)),
}


@pytest.fixture(scope="module", autouse=True)
def family_of_graphs():
    with graph_family():
        yield


@pytest.fixture(params=MODELS)
def exported(request, tmp_path, compiler):
    model = MODELS[request.param]()
    return model, n3ic.export(model, "host", tmp_path / "out", style="plain", simplify=False).path


@pytest.mark.first_case
def test_the_source_computes_the_model_and_reads_back(exported):
    model, path = exported
    assert {p.name for p in path.iterdir()} >= {"n3ic_model.c", "n3ic_model.h", "README.md"}
    rows = np.random.default_rng(0).integers(0, 10_000, (300, len(model.input.features)))
    features = dict(zip(model.input.features, rows.T, strict=True))
    result = n3ic.verify(path, rows=features, vectors=500)
    assert result.ok and result.encoded and result.decoded == ("n3ic_model.c",)
    figures = {figure.name: figure.value for figure in result.figures}
    assert figures["time.plain"] > 0


@pytest.mark.parametrize("name", MODELS)
def test_the_count_of_cuts_is_what_the_source_stores(tmp_path, name):
    model = MODELS[name]()
    if all(field.cuts for field in model.input.fields):
        assert memory_of(model)["cuts"] == model.input_bytes
    plain = form_of(EXPORTER.for_family(model.family), {"style": "plain"})
    sizes = {c.part: c.bytes for c in plain.check(model, {}).placements}
    assert sizes == memory_of(model)
    plain.write(model, {}, tmp_path)
    arrays = re.findall(
        r"^static const u?int(\d+)_t \w+\[(\d+)\]", (tmp_path / "n3ic_model.c").read_text(), re.M
    )
    assert sum(sizes.values()) == sum(int(bits) // 8 * int(count) for bits, count in arrays)


@pytest.mark.slow
def test_the_papers_network_fits_four_kilobytes_of_small_processors(compiler, tmp_path):
    if not shutil.which("clang"):
        pytest.skip("needs clang")
    path = n3ic.export(thermometers(), "host", tmp_path / "out", style="plain").path
    figures = {f.name: f.value for f in n3ic.verify(path, vectors=10).figures}
    for name in PROCESSORS:
        assert 1092 < figures[f"code.{name}"] <= 4096
    source = (path / "n3ic_model.c").read_text()
    assert len(source.splitlines()) < 150
    code = re.sub(r"/\*.*?\*/", "", source, flags=re.S)
    assert re.findall(r"#include (.*)", code) == ['"n3ic_model.h"']
    assert re.findall(r"#include (.*)", (path / "n3ic_model.h").read_text()) == ["<stdint.h>"]
    assert not re.search(r"\b(float|double|malloc|free|long)\b", code)


@pytest.mark.slow
@pytest.mark.parametrize("command", [["gcc", "-std=c99"], ["g++", "-x", "c++"], ["clang"]])
def test_no_compiler_warns_of_the_plain_source(exported, tmp_path, command):
    if not shutil.which(command[0]):
        pytest.skip(f"needs {command[0]}")
    _, path = exported
    flags = [f for f in STRICT if "prototypes" not in f] if command[0] == "g++" else STRICT
    words = [*command, *flags, "-O2", "-c", path / "n3ic_model.c", "-o", tmp_path / "n.o"]
    subprocess.run(words, check=True, timeout=120)
    symbols = subprocess.run(["nm", "-u", tmp_path / "n.o"], capture_output=True, check=True)
    assert symbols.stdout == b""  # no library function


@pytest.mark.first_case
def test_a_repeated_cut_of_another_feature_is_found(tmp_path):
    """Though the other feature has an equal cut."""
    fields = (Field.thermometer(name, [3, 9]) for name in "aba")
    model = replace(
        random_model((6, 4, 2), np.random.default_rng(7)), input=InputSpec(tuple(fields))
    )
    form_of(EXPORTER.for_family(model.family), {"style": "plain"}).write(model, {}, tmp_path)
    path = tmp_path / "n3ic_model.c"
    text, changes = re.subn(r"(repeated_bit\[2\] = \{0u, )1u", r"\g<1>3u", path.read_text())
    assert changes == 1
    path.write_text(text)
    with pytest.raises(VerifyError, match="field 2: it does not repeat cuts of one feature"):
        decode_directory(tmp_path, model)


@pytest.mark.parametrize(
    ("pattern", "change", "message"),
    [
        (r"(model [0-9a-f]{64}\. Generated by n3ic export)", r"\1 \1", "the name of one model"),
        (r"(Generated by) (n3ic export)", r"\1 \1", "the name of one model"),
        (r"( second < 3\) \{\n +return N3IC_SHUNT;)", r"\1 scores[best] -\1", "one margin"),
        (r"(uint8_t \w+\[\d+\] = \{\s*)\d+", r"\g<1>256", "does not fit its type"),
        (r"(uint8_t \w+\[)(\d+)(\] = \{\s*\d+u?,)", r"\g<1>\2\3 1,", "expected one array"),
    ],
)
def test_a_source_of_another_form_is_refused(tmp_path, pattern, change, message):
    model = MODELS["paper"]()
    form_of(EXPORTER.for_family(model.family), {"style": "plain"}).write(model, {}, tmp_path)
    path = tmp_path / "n3ic_model.c"
    text, changes = re.subn(pattern, change, path.read_text(), count=1)
    assert changes == 1
    path.write_text(text)
    with pytest.raises(VerifyError, match=message):
        decode_directory(tmp_path, model)


@pytest.mark.parametrize("bits", [0, 9])
def test_a_table_whose_index_has_no_bit_or_nine_is_refused(tmp_path, bits):
    model = MODELS["tables"]()
    form_of(EXPORTER.for_family(model.family), {"style": "plain"}).write(model, {}, tmp_path)
    path = tmp_path / "n3ic_model.c"
    text, changes = re.subn(r"(index_bits\[\d+\] = \{\s*)\d", rf"\g<1>{bits}", path.read_text())
    assert changes == 1
    path.write_text(text)
    with pytest.raises(VerifyError, match="an index of 1 to 8 bits"):
        decode_directory(tmp_path, model)


# --- trees and arithmetic in the source ---------------------------------------------------------

LEAVES = "while (node_bin[at] != 2u)"  # above every bin of two cuts
# A comparison of a step, a tree of two comparisons, and a tree that is a leaf.
NODES = [(1, 0, 0), (0, 1, 1), (0, 2, 0), (1, 0, 3), (0, 2, 1), (0, 2, 0), (0, 2, 2)]
FIRSTS, VALUES = [1, 6], [-4, 7, 9]


def spec_model(**fields):
    spec = InputSpec(tuple(Field.thermometer(name, cuts) for name, cuts in fields.items()))
    return replace(random_model((spec.n_bits, 2), np.random.default_rng(0)), input=spec)


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_trees_are_read_from_their_nodes(order):
    """Whichever field has the most cuts."""
    cuts = {"a": (3, 9), "b": (5,)}
    a, b = order.index("a"), order.index("b")
    nodes = [
        ((a if field == 0 else b) if above != 2 else 0, above, to) for field, above, to in NODES
    ]
    model = spec_model(**{name: cuts[name] for name in order})
    read, trees = _trees(LEAVES, model, nodes, FIRSTS, VALUES)
    assert read == [
        CNode(b, 5, 0),
        CNode(a, 9, 1), CNode(0, None, 1, -4), CNode(b, 5, 3), CNode(0, None, 3, 7),
        CNode(0, None, 4, -4), CNode(0, None, 0, 9),
    ]  # fmt: skip
    assert trees == [(1, 2), (6, 0)]
    small = LEAVES.replace("2u", "1u")
    with pytest.raises(VerifyError, match="a bin may be 1, which marks leaves"):
        _trees(small, model, [(a, 0, 0)], [0], [])


def test_without_trees_all_nodes_are_comparisons_and_nothing_marks_leaves():
    model = spec_model(a=(3, 9), b=(5,))
    assert _trees("", model, NODES[:2], [], []) == ([CNode(1, 5, 0), CNode(0, 9, 1)], [])
    assert _trees("", model, [], [], []) == ([], [])


@pytest.mark.parametrize(
    ("at", "node", "message"),
    [
        (2, (0, 2, 3), "a leaf has value 3 of 3"),
        (0, (0, 2, 0), "a leaf has value 0 of 3"),  # of no tree
        (0, (2, 0, 0), "a node compares field 2 with bin 0"),
        (0, (1, 1, 0), "a node compares field 1 with bin 1"),
        (1, (0, 3, 1), "a node compares field 0 with bin 3"),
        (6, (0, 2, 1), "are not those of the nodes"),
        (3, (1, 0, 0), "a tree has a circle"),
    ],
)
def test_a_node_of_no_tree_is_refused(at, node, message):
    model = spec_model(a=(3, 9), b=(5,))
    nodes = [*NODES[:at], node, *NODES[at + 1 :]]
    with pytest.raises(VerifyError, match=message):
        _trees(LEAVES, model, nodes, FIRSTS, VALUES)


@pytest.mark.parametrize(
    ("text", "firsts", "leaves", "message"),
    [
        (LEAVES, [6, 1], VALUES, "are not those of the nodes"),
        (LEAVES, [1, 1, 6], VALUES, "are not those of the nodes"),
        (LEAVES, FIRSTS, [*VALUES, 1], "are not those of the nodes"),
        ("", FIRSTS, VALUES, "expected one mark of leaves"),
        (LEAVES + LEAVES, FIRSTS, VALUES, "expected one mark of leaves"),
    ],
)
def test_trees_in_another_order_or_values_that_no_leaf_has_are_refused(
    text, firsts, leaves, message
):
    with pytest.raises(VerifyError, match=message):
        _trees(text, spec_model(a=(3, 9), b=(5,)), NODES, firsts, leaves)


def test_a_tree_may_be_as_deep_as_it_has_nodes():
    """Nodes beyond the last do not count; that they are missing is found elsewhere."""
    assert _depth([CNode(0, 3, 1)], 0) == 1
    chain = [CNode(0, 3, k + 1) for k in range(4)]
    assert _depth(chain, 0) == 4 and _depth(chain, 4) == 0
    with pytest.raises(VerifyError, match="a tree has a circle"):
        _depth([CNode(0, 3, 0)], 0)


LOG, FIXED = "(k < 2u ? log_add[k] : 0);", "to = (*a * *b + 8) >> 4;"


@pytest.mark.parametrize(
    ("kind", "text", "table", "expected"),
    [
        # Where nothing depends on it, it is the model's.
        ("log", "", [], "own"), ("fixed", "", [], "own"), ("integers", "", [], None),
        ("log", LOG, [3, 1], (3, 1)), ("log", LOG + LOG, [3, 1], (3, 1)),
        ("log", "", [3, 1], (3, 1)),
        ("fixed", LOG, [3, 1], None), ("integers", LOG, [3, 1], None),
        ("fixed", FIXED, [], 4), ("fixed", FIXED + "to = (*a + 8) >> 4;", [], 4),
        ("fixed", "to = (*a + 1) >> 1;", [], 1),
    ],
)  # fmt: skip
def test_what_log_adds_and_roundings_depend_on_is_read(kind, text, table, expected):
    model = graph_model(2, kind)
    own = graph_of(model).arithmetic
    if expected == "own":
        assert own is not None
        expected = own
    elif isinstance(expected, tuple):
        expected = Logarithms(own.fraction, expected)
    elif expected is not None:
        expected = FixedPoint(expected)
    assert _arithmetic(text, table, model) == expected


@pytest.mark.parametrize(
    ("text", "table", "message"),
    [
        (LOG, [3], "not of one kind"),
        (LOG, [3, 2, 1], "not of one kind"),
        (LOG + LOG.replace("2u", "3u"), [3, 1], "not of one kind"),
        (LOG + FIXED, [3, 1], "not of one kind"),
        (FIXED, [3, 1], "not of one kind"),
        (FIXED + FIXED.replace("4;", "5;"), [], "not of one kind"),
        (FIXED.replace("4;", "3;"), [], "rounds by 8 and 3 bits"),
        (FIXED.replace("4;", "5;"), [], "rounds by 8 and 5 bits"),
        (FIXED.replace("8", "0").replace("4;", "0;"), [], "n3ic_model.c: negative shift"),
        (FIXED.replace("8", str(1 << 60)).replace("4;", "61;"), [], "n3ic_model.c: .*fraction"),
        ("", [-1], "n3ic_model.c: .*log-add"),
    ],
)
def test_log_adds_or_roundings_of_two_kinds_are_refused(text, table, message):
    with pytest.raises(VerifyError, match=message):
        _arithmetic(text, table, graph_model(2, "log"))


@pytest.mark.parametrize("name", MODELS)
def test_every_changed_number_is_found(tmp_path, name):
    """Of each array the first and the last, by one bit; and the margin."""
    model = MODELS[name]()
    tool = form_of(EXPORTER.for_family(model.family), {"style": "plain"})
    tool.write(model, {}, tmp_path)
    path = tmp_path / "n3ic_model.c"
    text = path.read_text()

    def difference():
        try:
            decoded = decode_directory(tmp_path, model)
        except VerifyError as error:
            return str(error)
        # Only binary networks are not compared by their reader, which raises.
        is_binary = isinstance(model, BinaryModel)
        return decoding_difference(model, decoded[0]) if is_binary else ""

    assert difference() == ""
    arrays = re.findall(r"^static const \w+ (\w+)\[\d+\] = \{\s*(.*?)\s*\};", text, re.M | re.S)
    assert len(arrays) >= 4
    for array, body in arrays:
        for number in {re.findall(r"-?\w+", body)[i] for i in (0, -1)}:
            suffix = "u" * number.endswith("u")
            changed = int(number.rstrip("u"), 0) ^ 1
            other = body.replace(number, f"{changed}{suffix}", 1)
            path.write_text(text.replace(body, other, 1))
            assert difference(), (array, number)
    if model.shunt:
        path.write_text(text.replace(f"second < {model.shunt})", f"second < {model.shunt + 1})"))
        assert "shunts margins below" in difference()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("qemu", "flags"),
    [
        ("qemu-arm", ("--target=armv6-linux-gnueabi", "-mthumb", "-mcpu=cortex-m0plus")),
        ("qemu-riscv32", PROCESSORS["rv32imc"]),
    ],
)
def test_it_runs_without_a_library_on_small_processors(exported, tmp_path, request, qemu, flags):
    for tool in ("clang", "ld.lld", qemu):
        if not shutil.which(tool):
            pytest.skip(f"needs {tool}")
    model, path = exported
    if "graph of fixed-qemu-arm" in request.node.name:
        pytest.skip("products of 64 bits need the compiler's own library")
    rng = np.random.default_rng(1)
    cuts = [cut for f in model.input.fields for cut in f.cuts] or [1 << 31]
    near = np.array([[c - 1, c, c + 1] for c in cuts]).clip(0).ravel()
    rows = rng.choice([*near, 0, 2**32 - 1], (200, len(model.input.features))).astype(np.uint32)
    body = ",\n".join("{" + ",".join(f"{n}u" for n in row) + "}" for row in rows.tolist())
    (tmp_path / "rows.h").write_text(
        f"#define ROWS {len(rows)}\n"
        f"static const uint32_t features[ROWS][N3IC_FEATURES] = {{\n{body}\n}};\n"
    )
    here = ["tests/exporters/host/firmware.c", path / "n3ic_model.c"]
    small = [flag for flag in SMALL if flag != "-c"]
    where = ["-I", path, "-I", tmp_path, "-o", tmp_path / "firmware"]
    link = ["-nostdlib", "-static", "-fuse-ld=lld"]
    subprocess.run(["clang", *flags, *small, *where, *link, *here], check=True, timeout=120)
    done = subprocess.run([qemu, tmp_path / "firmware"], capture_output=True, timeout=60)
    values = np.frombuffer(done.stdout, "<i4").reshape(len(rows), -1)
    columns = dict(zip(model.input.features, rows.T.astype(np.int64), strict=True))
    expected = model.infer(model.encode(columns))
    assert (values[:, :-1] == expected.scores).all()
    assert (values[:, -1] == expected.verdicts).all()


def test_sections_that_are_loaded_are_counted(tmp_path):
    if not shutil.which("clang"):
        pytest.skip("needs clang")
    (tmp_path / "a.c").write_text("const char here[300] = {1}; int n; int f(void) { return n; }\n")
    for flags in PROCESSORS.values():
        words = ["clang", *flags, *SMALL, tmp_path / "a.c", "-o", tmp_path / "a.o"]
        subprocess.run(words, check=True, timeout=60)
        assert 304 < loaded_bytes((tmp_path / "a.o").read_bytes()) < 340


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["paper", "tables of three classes", "graph of log"])
def test_clang_tidy_has_nothing_to_say(kind, tmp_path):
    if shutil.which("clang-tidy") is None:
        pytest.skip("needs clang-tidy")
    model = MODELS[kind]()
    path = n3ic.export(model, "host", tmp_path / "out", style="plain", verify=False).path
    command = ["clang-tidy", "--quiet", f"--checks={','.join(TIDY)}", "--warnings-as-errors=*"]
    command += [str(path / "n3ic_model.c"), "--", "-std=c99"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stdout
