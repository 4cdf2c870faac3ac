# SPDX-License-Identifier: Apache-2.0
"""Every target computes exactly the scores of the network: for drawn networks, on every target.

One test per claim: equality on all targets, and that a changed artefact is found on each of them.
"""

import json
import re

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from n3ic import plugins
from n3ic.errors import ExportError, N3icWarning
from n3ic.model.inputs import Field, InputSpec
from n3ic.model.layers import HiddenLayer, OutputLayer
from n3ic.model.network import BinaryModel
from n3ic.model.passes import simplify, unchanged
from n3ic.model.random_models import random_model
from n3ic.targets.base import exporter
from n3ic.targets.directory import export
from n3ic.targets.verification import verify_artefacts, verify_directory
from n3ic.util.files import sha256_file
from n3ic.util.json_text import json_text
from tests.support.family_models import metered_model
from tests.support.markdown_texts import markdown_tags, markdown_texts

quickly = pytest.mark.usefixtures("quick_build")  # one of the edges is built as users build it
TARGETS = plugins.names("n3ic.exporters")

# Building Verilog and interpreting P4 take seconds a network.
EXAMPLES = 2  # the long tests draw two more

SHAPES = st.lists(st.integers(1, 70), min_size=1, max_size=3).flatmap(
    lambda head: st.integers(2, 4).map(lambda classes: (*head, classes))
)


def tied(model: BinaryModel) -> BinaryModel:
    """The network with classes that always tie, but for their order."""
    weights = np.tile(model.output.weights[:1], (len(model.classes), 1))
    mask = model.output.mask
    output = OutputLayer(
        weights,
        mask=None if mask is None else np.tile(mask[:1], (len(model.classes), 1)),
        bias=np.zeros(len(model.classes), np.int32),
    )
    return BinaryModel(model.input, model.hidden, output, model.classes, "tied")


def assert_equal(model, target, folder, vectors=60, *, simplify=False):
    done = export(model, target, folder, verify=False, force=True, simplify=simplify)
    result = verify_directory(done.path, vectors=vectors)
    if result.missing:
        pytest.skip(result.missing)
    assert result.ok, str(result)
    assert result.vectors >= vectors


DRAWN = [
    *((target, EXAMPLES) for target in TARGETS),
    *(pytest.param(target, EXAMPLES + 2, marks=pytest.mark.slow) for target in TARGETS),
]


@pytest.mark.slow
@quickly
@pytest.mark.parametrize(("target", "examples"), DRAWN)
def test_drawn_networks_score_the_same(target, examples, tmp_path_factory):
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(SHAPES, st.integers(0, 2**31), st.sampled_from([None, None, 0.5]), st.booleans())
    def check(shape, seed, density, ties):
        model = random_model(shape, np.random.default_rng(seed), density=density)
        if exporter(target).shunts and seed % 2:
            model = model.with_shunt(seed // 2 % (model.largest_margin + 2))
        folder = tmp_path_factory.mktemp(target) / "out"
        assert_equal(tied(model) if ties else model, target, folder)

    check()


@pytest.mark.first_case
@pytest.mark.parametrize(
    "target",
    # dpdk computes with the sources of host
    [pytest.param(t, marks=pytest.mark.slow) if t == "dpdk" else t for t in TARGETS],
)
def test_the_edges_score_the_same(target, tmp_path, request):
    """One layer alone, one neuron, thresholds 0 and K + 1, widths that are no whole words."""
    rng = np.random.default_rng(3)
    alone = random_model((33, 3), rng)
    assert_equal(alone, target, tmp_path / "alone")
    request.getfixturevalue("quick_build")  # the first was built as users build it
    base = random_model((37, 1, 1, 2), rng)
    hidden = tuple(
        HiddenLayer(layer.weights, thresholds=np.array([threshold]))
        for layer, threshold in zip(base.hidden, (38, 0), strict=True)
    )
    model = BinaryModel(base.input, hidden, base.output, base.classes)
    assert_equal(model, target, tmp_path / "thresholds")


# Margins in Verilog have tests of their own, in tests/exporters/netfpga/test_shunting.py; DPDK's
# network is the host's.
THRESHOLDS = [
    pytest.param(
        target,
        shunt,
        marks=pytest.mark.slow if (target not in ("host", "onnx") and shunt != 4) else [],
    )
    for shunt in (1, 4, "every")
    for target in TARGETS
    if shunt == 4 or target not in ("dpdk", "netfpga")
]


@pytest.mark.slow
@quickly
@pytest.mark.parametrize(("target", "shunt"), THRESHOLDS)
def test_a_threshold_gives_class_or_shunt_or_is_refused(target, shunt, tmp_path):
    """Three classes with masks: margins are even and odd. The last threshold shunts every flow."""
    base = random_model((40, 9, 14, 3), np.random.default_rng(11), density=0.8, extremes=False)
    model = base.with_shunt(base.largest_margin + 1 if shunt == "every" else shunt)
    tool = exporter(target)
    if not tool.shunts:
        with pytest.raises(ExportError, match=f"{target} would decide them all"):
            export(model, target, tmp_path / "out", force=True)
        return
    done = export(model, target, tmp_path / "out", verify=False, force=True, simplify=False)
    verification = verify_directory(done.path, vectors=200)
    if verification.missing:
        pytest.skip(verification.missing)
    assert verification.ok, str(verification)
    assert verification.shunt == model.shunt
    if shunt == 4:
        assert verification.at_shunt >= 8 and verification.below_shunt >= 8
    # The artefacts of one threshold are not those of another: vectors, and what is read back.
    given = json.loads((done.path / "manifest.json").read_text())["options"]
    options = tool.parse_options(given, verify=True)
    others = {model.shunt - 1, min(model.shunt + 1, model.largest_margin + 1)} - {model.shunt}
    # Verification is the same for all targets; on the host, both neighbours are looked at.
    for other in others if target == "host" else {max(others)}:
        wanted = unchanged(model.with_shunt(other))
        failures = verify_artefacts(done.path, tool, wanted, options, 200).failures
        assert failures, f"a threshold of {model.shunt} was taken for {other}"
        if shunt != "every" and other:
            assert "verdict" in failures[-1], failures


@pytest.mark.first_case
@quickly
@pytest.mark.parametrize("target", TARGETS)
def test_what_makes_no_difference_is_left_out(target, tmp_path):
    """Constant and equal neurons are not written, and the trained network's scores stay."""
    base = random_model((40, 9, 5, 2), np.random.default_rng(7), extremes=False)
    weights, thresholds = base.hidden[0].weights.copy(), base.hidden[0].thresholds.copy()
    thresholds[:2] = 0, 41
    weights[4], thresholds[4] = ~weights[3], 41 - thresholds[3]
    hidden = (HiddenLayer(weights, thresholds=thresholds), base.hidden[1])
    model = BinaryModel(base.input, hidden, base.output, base.classes)
    shape = simplify(model).model.shape
    assert shape[1] in (5, 6, 7)
    assert_equal(model, target, tmp_path / "out", simplify=True)
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["exported"]["shape"] == list(shape)
    assert manifest["model"] == {"name": "model", "sha256": model.digest, "shape": [40, 9, 5, 2]}
    assert "2 constant neurons removed" in (tmp_path / "out" / "report.md").read_text()


@pytest.mark.first_case
@quickly
@pytest.mark.parametrize("target", TARGETS)
def test_features_that_nothing_reads_are_not_asked_for(target, tmp_path):
    rng = np.random.default_rng(8)
    spec = InputSpec(
        (
            Field.thermometer("size", range(5, 25)),
            Field.thermometer("idle", range(5, 15)),
            Field.binary("ports", 8),
        )
    )
    base = random_model((38, 6, 2), rng, density=0.9, extremes=False)
    mask = base.hidden[0].mask.copy()
    mask[:, [3, *range(20, 30)]] = False
    hidden = HiddenLayer(base.hidden[0].weights, mask=mask, thresholds=np.full(6, 12))
    model = BinaryModel(spec, (hidden,), base.output, base.classes)
    done = export(model, target, tmp_path / "out", verify=False, force=True, simplify=True)
    assert done.network.model.input.features == ("size", "ports")
    assert done.network.model.input.n_bits == 27
    assert "no longer read: idle" in (done.path / "report.md").read_text()
    rows = {name: rng.integers(0, 300, 50) for name in spec.features}
    result = verify_directory(done.path, vectors=40, rows=rows)
    if result.missing:
        pytest.skip(result.missing)
    assert result.ok, str(result)
    options = {o.name: o for o in exporter(target).options}
    if "input-stage" in options:
        done = export(
            model, target, tmp_path / "stage", verify=False, options={"input-stage": "features"}
        )
        result = verify_directory(done.path, vectors=40, rows=rows)
        assert result.ok, str(result)
        assert result.encoded == 50


@pytest.mark.first_case
@pytest.mark.parametrize("target", TARGETS)
def test_the_same_model_gives_the_same_bytes(target, tmp_path):
    model = random_model((40, 8, 2), np.random.default_rng(0))
    first = export(model, target, tmp_path / "a", verify=False).path
    again = export(model, target, tmp_path / "b", verify=False).path
    names = sorted(p.relative_to(first) for p in first.rglob("*") if p.is_file())
    assert names == sorted(p.relative_to(again) for p in again.rglob("*") if p.is_file())
    for name in names:
        assert (first / name).read_bytes() == (again / name).read_bytes(), name


@pytest.mark.first_case
@pytest.mark.parametrize("target", TARGETS)
def test_a_bill_of_materials_names_files_options_and_tools(target, tmp_path):
    """SPDX's own reader takes it; every file is listed with the digest that it has."""
    parsing = pytest.importorskip("spdx_tools.spdx.parser.parse_anything")
    validation = pytest.importorskip("spdx_tools.spdx.validation.document_validator")
    model = random_model((40, 8, 2), np.random.default_rng(0))
    path = export(model, target, tmp_path / "out", verify=False).path
    document = parsing.parse_file(str(path / "sbom.spdx.json"))
    assert validation.validate_full_spdx_document(document) == []
    manifest = json.loads((path / "manifest.json").read_text())
    listed = {
        file.name.removeprefix("./"): next(
            sum_.value for sum_ in file.checksums if sum_.algorithm.name == "SHA256"
        )
        for file in document.files
    }
    assert listed == {n: d for n, d in manifest["files"].items() if n != "sbom.spdx.json"}
    assert listed["model.n3ic"] == model.digest
    packages = {package.name: package for package in document.packages}
    assert json.loads(packages[f"n3ic-{target}"].comment)["options"] == manifest["options"]
    assert packages["numpy"].version == np.__version__
    assert f"n3ic {packages['n3ic'].version}" == manifest["tool"]


STEERING = ['*/ system("x"); /*', "../../x #include </etc/passwd>", "int"]
LONG = ['"' * 256, "☃" * 256, "\\" * 256]


@pytest.mark.first_case
@quickly
@pytest.mark.parametrize("target", TARGETS)
def test_hostile_names_stay_names(target, tmp_path):
    """Names of features and classes never leave their place in code or paths."""
    names = [*STEERING, *LONG]
    base = random_model((44, 6, 4), np.random.default_rng(0), extremes=False)
    spec = InputSpec(
        (
            Field.thermometer(names[0], range(5, 15)),
            Field.binary(names[1], 8),
            Field.thermometer(names[0], range(3, 8)),  # the same feature twice, cut elsewhere
            Field.binary(names[2], 1),
            Field.thermometer(names[3], range(5, 12)),
            Field.binary(names[4], 12),
            Field.binary(names[5], 1),
        )
    )
    classes = (names[0], "`rm -rf` %s", names[3], names[5])
    model = BinaryModel(spec, base.hidden, base.output, classes, names[1])
    done = export(model, target, tmp_path / "out", verify=False)
    rng = np.random.default_rng(1)
    rows = {name: rng.integers(0, 40, 30) for name in names}
    result = verify_directory(done.path, vectors=40, rows=rows)
    if result.missing:
        pytest.skip(result.missing)
    assert result.ok, str(result)
    assert {p.name for p in tmp_path.iterdir()} == {"out"}


MARKED = ("a|b", "<img src=x>&lt;", "x`y`z *s*", "正常 🦊")
NO_CLASSES = ("nfp", "dpdk")  # without a meter, dpdk has no application and so no classes
STAGES = {"netfpga": {"input-stage": "features"}, "onnx": {"input": "features"}, "host": {}}


@pytest.mark.parametrize("target", TARGETS)
def test_a_readme_shows_names_as_they_are(target, tmp_path):
    """No name is a tag, ends a cell or loses a letter on a forge's page."""
    fields = tuple(Field.thermometer(f"{name[:2]}f{name[2:]}", [3, 70, 900]) for name in MARKED)
    base = random_model((12, 8, len(MARKED)), np.random.default_rng(3), extremes=False)
    model = BinaryModel(InputSpec(fields), base.hidden, base.output, MARKED, "<b>m|n</b>")
    options = STAGES.get(target, {})
    done = export(model, target, tmp_path / "out", verify=False, options=options)
    for name in ("README.md", "report.md"):
        page = (done.path / name).read_text("utf-8")
        assert not {"img", "b", "em", "i"} & {*markdown_tags(page)}, name
    shown = "\n".join(markdown_texts((done.path / "README.md").read_text("utf-8")))
    listed = [*(() if target in NO_CLASSES else MARKED)]
    listed += [field.feature for field in fields if target in STAGES]
    assert [name for name in listed if name not in shown] == []


PAGE_LINES = 100
PAGES = [
    *((target, False) for target in TARGETS),
    *(pytest.param(target, True, marks=pytest.mark.slow) for target in TARGETS),
]


@pytest.mark.parametrize(("target", "every_family"), PAGES)
def test_a_readme_is_one_page_of_the_same_parts(target, every_family, tmp_path):
    """What it is, a diagram, how to build, check and update it: for each kind of model."""
    layered = random_model((256, 32, 16, 2), np.random.default_rng(0), extremes=False)
    metered = [metered_model(name) for name in exporter(target).families if every_family]
    models = metered or [layered]
    for index, model in enumerate(models):
        try:
            done = export(model, target, tmp_path / str(index), verify=False, force=True)
        except ExportError as error:
            assert model.family == "sum-product-network" and "log-add" in str(error)
            continue
        page = (done.path / "README.md").read_text("utf-8")
        assert len(page.splitlines()) <= PAGE_LINES
        heads = [line.removeprefix("## ") for line in page.splitlines() if line.startswith("## ")]
        for part in ("Build", "Check", "Update"):
            assert [head for head in heads if head.startswith(part)], f"{part} of {heads}"
        assert re.search(r"^```text\n[^`]*->", page, re.MULTILINE), "no diagram"
        assert "\n\n\n" not in page


@pytest.mark.first_case
@pytest.mark.parametrize("target", TARGETS)
def test_reports_label_every_figure(target, tmp_path):
    model = random_model((256, 32, 16, 2), np.random.default_rng(0), extremes=False)
    done = export(model, target, tmp_path / "out", verify=False)
    report = json.loads((done.path / "report.json").read_text())
    assert report["figures"]
    for figure in report["figures"]:
        assert figure["kind"] in ("measured", "simulated", "estimated")
        assert figure["source"]
    page = (done.path / "README.md").read_text()
    command = r"`n3ic verify|^```|^    \S"  # in line, fenced, or indented
    assert re.search(command, page, re.MULTILINE), "a README names the next command"
    if target == "nfp":
        text = (done.path / "report.md").read_text()
        assert "modelled syntax, not compiled by the vendor's compiler" in text


@pytest.mark.first_case
@quickly
@pytest.mark.parametrize("target", TARGETS)
def test_a_swapped_model_is_found(target, tmp_path):
    """Artefacts of another network beside this model: the place is named."""
    rng = np.random.default_rng(5)
    model = random_model((40, 8, 5, 2), rng, extremes=False)
    weights = model.hidden[0].weights.copy()
    weights[3, 17] ^= True
    changed = HiddenLayer(weights, thresholds=model.hidden[0].thresholds)
    other = BinaryModel(
        model.input, (changed, model.hidden[1]), model.output, model.classes, model.name
    )
    right = export(model, target, tmp_path / "right", verify=False).path
    wrong = export(other, target, tmp_path / "wrong", verify=False).path
    for name in ("model.n3ic", "manifest.json"):
        (wrong / name).write_bytes((right / name).read_bytes())
    with pytest.warns(N3icWarning, match="your rights"):
        result = verify_directory(wrong, vectors=400, run_changed=True)
    if result.missing:
        pytest.skip(result.missing)
    assert not result.ok
    assert any("is not what n3ic writes" in f for f in result.failures)
    assert any(re.search(r"layer 0, neuron 3\b", f) for f in result.failures), result.failures


@pytest.mark.first_case
@pytest.mark.parametrize("target", TARGETS)
def test_every_file_is_compared_and_no_other_is_run(target, tmp_path, monkeypatch):
    """Each file changed or taken away, with the digests in the manifest made to agree."""
    model = random_model((40, 6, 2), np.random.default_rng(0), extremes=False)
    tool = plugins.load("n3ic.exporters", target)
    path = export(model, target, tmp_path / "out", verify=False).path
    monkeypatch.setattr(tool, "run", lambda *a: pytest.fail("it was run"))
    manifest = json.loads((path / "manifest.json").read_text())
    names = sorted(set(manifest["files"]) - {"model.n3ic", "report.json"})

    def outcome():
        files = {n: sha256_file(path / n) for n in manifest["files"] if (path / n).exists()}
        (path / "manifest.json").write_text(json_text(manifest | {"files": files}))
        result = verify_directory(path, record=False)
        assert "was not run" in str(result)
        return result.failures

    for name in names:
        (path / name).write_bytes((path / name).read_bytes() + b" ")
    failures = outcome()
    assert [n for n in names if not any(f.startswith(f"{n} is not") for f in failures)] == []
    for name in names:
        (path / name).unlink()
    failures = outcome()
    assert [n for n in names if f"{n} is missing" not in failures] == []


@pytest.mark.slow
@quickly
@pytest.mark.parametrize(
    ("target", "options", "name", "old", "new"),
    [
        ("host", {}, "bnn.c", "n += value >= cuts[k];", "n += value > cuts[k];"),
        ("nfp", {}, "n3ic_input.h", "if (value >= n3ic_words", "if (value > n3ic_words"),
        ("netfpga", {"input-stage": "features"}, "rtl/n3ic_features.v", "[6:6]", "[6:5]"),
        ("onnx", {"input": "features"}, "model.onnx", "GreaterOrEqual", "Greater"),
    ],
)
def test_input_stages_are_verified_without_a_table(target, options, name, old, new, tmp_path):
    """A comparison that is wrong where a value equals its cut, or is a little above it."""
    model = random_model((40, 6, 2), np.random.default_rng(0), extremes=False)
    spec = InputSpec(
        (Field.thermometer("a", range(10**6, 36 * 10**6, 10**6)), Field.binary("b", 5))
    )
    model = BinaryModel(spec, model.hidden, model.output, model.classes)
    path = export(model, target, tmp_path / "out", options=options, verify=False).path
    result = verify_directory(path, vectors=50)
    if result.missing:
        pytest.skip(result.missing)
    assert result.ok and result.edges > 100, str(result)
    if name.endswith(".onnx"):
        onnx = pytest.importorskip("onnx")
        graph = onnx.load(path / name)
        for node in graph.graph.node:
            node.op_type = new if node.op_type == old else node.op_type
        onnx.save(graph, path / name)
    else:
        text = (path / name).read_text()
        assert old in text
        (path / name).write_text(text.replace(old, new))
    with pytest.warns(N3icWarning, match="your rights"):
        result = verify_directory(path, vectors=50, run_changed=True)
    assert re.search(
        r"input stage: a = \d+00000[01], |bnn_encode: kernel|compare a with cuts", str(result)
    )
