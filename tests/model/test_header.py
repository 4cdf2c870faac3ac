# SPDX-License-Identifier: Apache-2.0
"""Whatever stands in the header of a model file: one line that names the key, or a whole model."""

import json
from dataclasses import replace

import numpy as np
import pytest

from n3ic.errors import ModelError
from n3ic.families.spn.random_models import random_spn
from n3ic.model.columns import ColumnRule, TableRules
from n3ic.model.file import pack_file, unpack_file
from n3ic.model.inputs import Field, InputSpec
from n3ic.model.load import parse_model
from n3ic.model.meter_spec import MeteredFeature, MeterSpec, Register, Step, Window
from n3ic.model.random_models import random_model

METER = MeterSpec(
    (Register("n", "count"), Register("octets", "sum", "wire_length")),
    (
        MeteredFeature("n", "n", unit="packet"),
        MeteredFeature("mean", program=(Step("quotient", "octets", "n", 1),)),
    ),
    windows=(Window("near", 100, ("source",)),),
)
TABLE = TableRules(
    {"n": ColumnRule(), "near": ColumnRule("category", values=("a",)), "mean": ColumnRule(bits=9)},
    "label",
)


def binary():
    fields = (
        Field.thermometer("mean", (60, 1500)),
        Field.binary("n", 4, unit="packet"),
        Field.thermometer("near", (2, 50), unit="flow"),
    )
    spec = InputSpec(fields).with_rates(np.eye(8, dtype=bool))
    model = random_model((spec.n_bits, 3, 2), np.random.default_rng(0), extremes=False)
    header = {"name": "m", "provenance": {"seed": "1"}}
    return replace(model, input=spec, meter=METER, table=TABLE, **header).with_shunt(1)


def sum_product():
    model = random_spn(np.random.default_rng(0), features=2, cuts=2, depth=1)
    return replace(model, provenance={"seed": "1"})


MODELS = {"binary": binary(), "sum-product": sum_product()}


def parts(model):
    header, tensors = unpack_file(model.to_bytes(), "model")
    return header, tensors._left


def leaves(data, path=()):
    """Paths to every value of nested data, containers included."""
    yield from [path] * bool(path)
    keys = data if isinstance(data, dict) else range(len(data) if isinstance(data, list) else 0)
    for key in keys:
        yield from leaves(data[key], (*path, key))


def changed(model, path, change):
    """The file of a model whose header says something else at a path."""
    header, tensors = parts(model)
    *before, last = path
    at = header
    for key in before:
        at = at[key]
    change(at, last)
    return pack_file(model.family, header, tensors, header["version"])


def put(value):
    return lambda at, key: at.__setitem__(key, value)


def one_line(error):
    text = str(error.value)
    assert text.isprintable() and len(text) < 700, text
    return text


SURROGATE = "\ud800"
FIELD = ("input", "fields", 0)
LONG = "x" * 10_000_000


@pytest.mark.first_case
@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("name",), 5, "name: expected text, got 5"),
        (("name",), SURROGATE, r"name: expected 0 to 256 printable characters, got '\\ud800'"),
        (("name",), LONG, "name: expected 0 to 256 printable .* of 10,000,000 characters"),
        (("classes",), "ab", "classes: expected a list, got 'ab'"),
        (("classes", 0), "a\0", r"class's name: expected 1 to 256 printable .*, got 'a\\x00'"),
        (("classes", 0), "a\nb", "class's name: expected"),
        (("classes", 0), "a\u202eb", r"class's name: expected .* got 'a\\u202eb'"),
        (("classes", 0), "", "class's name: expected 1 to 256"),
        (("provenance",), [], "provenance: expected an object, got a list"),
        (("provenance", "seed"), 1, "provenance.seed: expected text, got 1"),
        (("provenance", "seed"), LONG, "provenance: seed: expected 0 to 4,096 printable"),
        (("provenance", SURROGATE), "1", "a key of the provenance: expected 1 to 256"),
        (("provenance",), {str(i): "" for i in range(65)}, "65 facts, at most 64 expected"),
        (("more",), 1, "more: unknown key, expected name, classes"),
        ((SURROGATE,), 1, r"'\\ud800': unknown key"),
        (("input",), None, "InputSpec: expected an object, got None"),
        (("input", "more"), 1, "more: unknown key, expected fields"),
        (("input", "fields"), {}, "fields: expected a list, got an object"),
        ((*FIELD, "more"), 1, r"fields\[0\].more: unknown key"),
        ((*FIELD, "feature"), SURROGATE, r"feature's name: expected .* got '\\ud800'"),
        ((*FIELD, "feature"), "a\0b", r"feature's name: expected .* got 'a\\x00b'"),
        ((*FIELD, "kind"), "float", r"fields\[0\].kind: expected binary, thermometer, got 'float'"),
        ((*FIELD, "width"), 2.0, r"fields\[0\].width: expected an integer, got 2.0"),
        ((*FIELD, "width"), True, r"fields\[0\].width: expected an integer, got True"),
        ((*FIELD, "cuts", 0), "1", r"fields\[0\].cuts\[0\]: expected an integer, got '1'"),
        ((*FIELD, "unit"), 7, r"fields\[0\].unit: expected text, got 7"),
        ((*FIELD, "unit"), "\x1b[2J", "unit: expected 0 to 256 printable"),
        ((*FIELD, "rates"), "x", r"fields\[0\].rates: expected a list, got 'x'"),
        ((*FIELD, "scale"), 1e308, r"scale: expected 1e-18 to 1e\+18, got 1e\+308"),
        ((*FIELD, "scale"), 5e-324, r"scale: expected 1e-18 to 1e\+18"),
        ((*FIELD, "scale"), 10**400, r"scale: expected a finite number, got an integer of 1,329"),
        ((*FIELD, "scale"), float("inf"), "scale: expected a finite number, got inf"),
        ((*FIELD, "scale"), "1", "scale: expected a finite number, got '1'"),
    ],
)
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_the_key_is_named_and_what_was_expected(model, path, value, message):
    data = changed(model, path, put(value))
    with pytest.raises(ModelError, match=message) as error:
        parse_model(data, "m")
    one_line(error)


@pytest.mark.parametrize(
    ("name", "path", "value", "message"),
    [
        ("binary", ("shape",), "8-3-2", "shape: expected a list of two positive integers"),
        ("binary", ("shape", 0), 1 << 400, "bits, but|expected|shape"),
        ("binary", ("shunt",), "1", "shunt: expected an integer, got '1'"),
        ("binary", ("sizes",), {}, "sizes: unknown key"),
        ("binary", ("table",), None, "not the rules of a table"),
        ("binary", ("table", "more"), 1, "'more': unknown key"),
        ("binary", ("table", "label"), SURROGATE, r"label: expected a short text, got '\\ud800'"),
        ("binary", ("table", "columns", "a\0"), {"kind": "number"}, "column's name: expected"),
        ("binary", ("table", "columns", "n", "scale"), 1e308, "scale: expected 1e-18"),
        ("binary", ("table", "columns", "n", "unit"), "\n", "unit: expected 0 to 1,024 printable"),
        ("binary", ("meter", "more"), 1, "more: unknown key"),
        ("binary", ("meter", "version"), 1.0, "version 1.0, this n3ic reads 1"),
        (
            "binary",
            ("meter", "registers", 0, "width"),
            "8",
            r"registers\[0\].width: expected an",
        ),
        ("binary", ("meter", "registers", 0, "guard", "x"), 1, r"registers\[0\].guard.x: unknown"),
        ("binary", ("meter", "decision", "repeat"), 1, "decision.repeat: expected true or false"),
        ("binary", ("meter", "features", 0, "name"), SURROGATE, "feature's name: expected 1 to"),
        (
            "binary",
            ("meter", "features", 0, "program"),
            [{"operation": "add", "left": "n"}] * 65,
            "a register or a program|at most 64 steps",
        ),
        ("sum-product", ("arithmetic",), "float", "arithmetic: expected log, linear, got 'float'"),
        ("sum-product", ("fraction",), 2.0, "fraction: expected an integer, got 2.0"),
        ("sum-product", ("sizes", "roots"), "2", "sizes.roots: expected an integer, got '2'"),
        ("sum-product", ("sizes", "more"), 2, "sizes: unknown tensor 'more'"),
        ("sum-product", ("sizes", "roots"), -1, "tensor roots: expected"),
        ("sum-product", ("shape",), [1, 2], "shape: unknown key"),
    ],
)
def test_what_a_family_has_alone_is_named_too(name, path, value, message):
    with pytest.raises(ModelError, match=message) as error:
        parse_model(changed(MODELS[name], path, put(value)), "m")
    one_line(error)


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("key", ["name", "classes", "input", "provenance"])
def test_a_key_that_is_missing_is_named(model, key):
    data = changed(model, (key,), lambda at, key: at.pop(key))
    with pytest.raises(ModelError, match=f"{key}: expected .*, got nothing"):
        parse_model(data, "m")


ODD = (
    None, -1, 0, 2**70, 10**300, 1.5, float("nan"), 1e308, True, "", "x\n", "\0", "\ud800",
    "x" * 300, [], {}, [[]], {"x": 1},
)  # fmt: skip


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_whatever_stands_in_the_header_is_one_line_or_a_model(model):
    header, _ = parts(model)
    refused = loaded = 0
    inside = (p for p in leaves(header) if p[0] not in ("format", "version", "family", "checksum"))
    for i, path in enumerate(inside):
        for odd in ODD[i % 5 :: 5]:
            data = changed(model, path, put(odd))
            try:
                parsed_model = parse_model(data, "m")
            except ModelError as error:
                assert str(error).isprintable() and len(str(error)) < 700, (path, odd, str(error))
                refused += 1
                continue
            loaded += 1
            again = parse_model(parsed_model._serialise(), "again")
            assert again == parsed_model
            assert not json.dumps([*parsed_model.classes, parsed_model.name]).count("\\u0000")
            str(parsed_model.view()).encode()
    assert refused > 5 * loaded


def test_a_header_beyond_any_models_is_not_parsed():
    with pytest.raises(ModelError, match="its header is too large"):
        parse_model((17 << 20).to_bytes(8, "little") + b" " * (17 << 20), "m")
