# SPDX-License-Identifier: Apache-2.0
"""A model that knows how its features are computed from packets, and its file."""

import hashlib
import json
from dataclasses import replace

import numpy as np
import pytest

from n3ic.errors import ModelError
from n3ic.meter.source import meter_source
from n3ic.meter.table import catalogue_of
from n3ic.model.columns import ColumnRule, TableRules
from n3ic.model.file import pack_file, unpack_file
from n3ic.model.inputs import Field, InputSpec
from n3ic.model.meter_spec import Decision, Guard, MeteredFeature, MeterSpec, Register, Step, Window
from n3ic.model.network import BinaryModel
from n3ic.model.passes import simplify
from n3ic.model.random_models import random_model

SPEC = MeterSpec(
    (Register("n", "count"), Register("octets", "sum", "wire_length")),
    (MeteredFeature("n", "n", unit="packet"), MeteredFeature("octets", "octets", unit="byte")),
    windows=(Window("near", 100, ("source",)),),
    decision=Decision(8, 2_000_000),
)


def metered(*fields):
    fields = fields or (
        Field.thermometer("octets", (60, 1500), unit="byte"),
        Field.binary("n", 4, unit="packet"),
        Field.thermometer("near", (2, 50), unit="flow"),
    )
    spec = InputSpec(fields)
    model = random_model((spec.n_bits, 3, 2), np.random.default_rng(0))
    return replace(model, input=spec, meter=SPEC)


def rewritten(model, change):
    """The file of a model whose header was changed, its checksum right."""
    header, tensors = unpack_file(model.to_bytes(), "model")
    change(header)
    family = header.pop("family")
    return pack_file(family, header, tensors._left)


def test_the_meter_survives_the_file_and_the_passes():
    model = metered()
    again = BinaryModel.from_bytes(model.to_bytes())
    assert again.meter == SPEC
    assert again == model
    assert again.to_bytes() == model.to_bytes()
    assert replace(model, meter=None) != model
    assert simplify(model).model.meter == SPEC


def test_another_input_takes_meter_and_table_with_it():
    read = TableRules({name: ColumnRule() for name in ("n", "octets", "near")}, "label")
    model = metered().changed(table=read).with_shunt(1)
    raw = InputSpec.raw(model.input.n_bits)
    with pytest.raises(ModelError, match="'x0', which its meter"):
        model.changed(input=raw)
    with pytest.raises(ModelError, match="'x0', which its table"):
        model.changed(input=raw, meter=None)
    other = model.with_input(raw)
    assert (other.meter, other.table, other.shunt) == (None, None, 1)
    assert other.with_input(model.input, meter=SPEC, table=read) == model


def test_the_file_of_a_model_without_a_meter_has_no_word_of_it():
    model = random_model((70, 33, 9, 3), np.random.default_rng(0))
    header, _ = unpack_file(model.to_bytes(), "model")
    assert "meter" not in header
    assert hashlib.sha256(model.to_bytes()).hexdigest() == (
        "9b5ae913d440fc3c032bea94bae4f7e1e673d73430110ae1949ba4be118db484"
    )


@pytest.mark.parametrize(
    ("field", "message"),
    [
        (Field.binary("ttl", 8), "reads 'ttl', which its meter does not compute"),
        (Field.binary("octets", 8, unit="kB"), "'octets' in kB, but its meter gives it in byte"),
        (Field.binary("near", 8), "'near' in no unit, but its meter gives it in flow"),
    ],
)
def test_every_feature_is_one_of_the_meter_in_the_same_unit(field, message):
    with pytest.raises(ModelError, match=message):
        metered(field)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda h: h.update(meter=None), "not a meter's specification"),
        (lambda h: h["meter"].update(version=2), "version 2, this n3ic reads 1"),
        (lambda h: h["meter"]["features"][0].update(unit="octet"), "in packet, but its meter"),
        (lambda h: h["meter"]["features"][0].update(name="x"), "'n', which its meter does not"),
        (lambda h: h["meter"]["features"][0].update(name="a\nb"), "printable"),
        (lambda h: h["meter"]["features"][0].update(unit="\x1b[2J"), "printable"),
        (lambda h: h["meter"]["decision"].update(packets=10**400), r"0\.\.2\^48-1"),
    ],
)
def test_a_damaged_or_foreign_meter_is_one_error(change, message):
    data = rewritten(metered(), change)
    with pytest.raises(ModelError, match=message):
        BinaryModel.from_bytes(data)


def test_a_specification_is_one_line_of_json_with_a_digest():
    text = SPEC.to_json()
    assert "\n" not in text
    assert MeterSpec.from_json(text, "x") == SPEC
    assert SPEC.digest == hashlib.sha256(text.encode()).hexdigest()
    assert str(SPEC) == (
        "flows by five-tuple, 2 registers, 3 features, "
        "decided at packet 8, after 2 s, at the end, idle time-out 60 s"
    )
    for damaged in (text[:-5], "[" * 100_000, b"\xff", json.dumps([1])):
        with pytest.raises(ModelError, match=r"^x: not a meter"):
            MeterSpec.from_json(damaged, "x")


def leaves(data, path=()):
    """Paths to every value of nested data, containers included."""
    yield path
    keys = data if isinstance(data, dict) else range(len(data) if isinstance(data, list) else 0)
    for key in keys:
        yield from leaves(data[key], (*path, key))


ODD = (None, -1, 0, 2**70, 1.5, float("nan"), True, "", "x\n", "*/", "\ud800", [], {}, [[]], [None])


def test_whatever_stands_in_the_meter_is_one_error_or_a_meter():
    data = json.loads(
        replace(
            SPEC,
            registers=(*SPEC.registers, Register("gap", "max", "gap", Guard(protocols=(6,)))),
            features=(
                *SPEC.features,
                MeteredFeature(
                    "mean", program=(Step("shift", "n", amount=1), Step("quotient", "n", "$0", 8))
                ),
            ),
        ).to_json()
    )
    refused = 0
    for *path, last in (path for path in leaves(data) if path):
        for odd in ODD:
            changed = json.loads(json.dumps(data))
            at = changed
            for key in path:
                at = at[key]
            at[last] = odd
            try:
                spec = MeterSpec.from_json(json.dumps(changed), "model")
            except ModelError:
                refused += 1
                continue
            assert MeterSpec.from_json(spec.to_json(), "again") == spec
            hash(spec), str(spec).encode(), catalogue_of(spec)
            "".join(meter_source(spec).values()).encode("ascii")
    assert refused > 600
