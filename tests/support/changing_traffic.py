# SPDX-License-Identifier: Apache-2.0
"""Flows whose classes depend on their features, until the traffic changes."""

import json
from ipaddress import ip_address

import numpy as np

from n3ic.data.table_meter import meter_file
from n3ic.families.tables.settings import TablesTraining
from n3ic.families.tables.train import fit_tables
from n3ic.meter.spec_file import write_spec
from n3ic.meter.standard import standard_spec
from n3ic.model.inputs import Field, InputSpec
from n3ic.model.random_models import random_model
from n3ic.runs.refresh import columns_of, refreshed
from n3ic.systems.stream.learning.replay import ReplayedFlows, numbered
from n3ic.systems.stream.learning.rows import LabelledRows

METER = standard_spec(packets=8)
NAMES = ("sminlen", "smaxlen", "smean", "dminlen", "dmaxlen", "dmean")
FEATURES = len(NAMES)
CLASSES = ("benign", "attack")
SPEC = InputSpec(
    tuple(Field.thermometer(name, range(10, 100, 10), unit=METER.units[name]) for name in NAMES)
)


def traffic(rows, seed=0, *, changed=False, noise=0.05, start=0):
    """Flows: an attack has large sums of three features; after the change, of three others."""
    rng = np.random.default_rng(seed)
    features = rng.integers(0, 110, (rows, FEATURES)).astype(np.uint32)
    part = features[:, 3:] if changed else features[:, :3]
    label = (part.sum(axis=1) > 165).astype(np.int64)
    label ^= rng.random(rows) < noise
    return ReplayedFlows(features, label, numbered(rows, start))


def labelled(flows, seed=0):
    """The flows with their labels, in order, each a block of its own."""
    block = np.random.default_rng(seed).integers(0, 1 << 63, len(flows), dtype=np.uint64) * 2
    return LabelledRows(flows.features, flows.label, block)


def network(seed=0, rows=1500):
    """A binary network that was trained before the change."""
    model = random_model((SPEC.n_bits, 16, 2), np.random.default_rng(seed))
    model = model.with_input(SPEC).changed(classes=CLASSES, name="flows", meter=METER)
    flows = traffic(rows, seed + 100)
    return refreshed(model, flows.features, flows.label, np.ones(2), rounds=4, seed=seed).changed(
        provenance={}
    )


def tables(seed=0, rows=1500):
    """Look-up tables that were trained before the change."""
    flows = traffic(rows, seed + 100)
    model = random_model((SPEC.n_bits, 16, 2), np.random.default_rng(seed)).with_input(SPEC)
    bits = SPEC.encode(columns_of(model, flows.features))
    settings = TablesTraining(tables=12, table_bits=3)
    tables_model = fit_tables(bits, np.eye(2)[flows.label], SPEC, CLASSES, settings, name="flows")
    return tables_model.changed(meter=METER)


def key_fields(record):
    """The addresses, ports and protocol of a record, as in a line of labels."""
    size = int(record["address_bytes"])
    out = {}
    for side in ("source", "destination"):
        out[side] = str(ip_address(record[side].tobytes()[:size]))
        out[f"{side}_port"] = int(record[f"{side}_port"])
    return {**out, "protocol": int(record["protocol"])}


def write_table(path, flows, *, labels=True):
    """The flows as ``n3ic data extract`` writes them, with their keys and times."""
    head = ["source", "source_port", "destination", "destination_port", "protocol"]
    every, end = METER.feature_names, ["label"] if labels else []
    lines = [",".join([*head, "first_us", "last_us", *every, *end])]
    for record, features, label in zip(flows.records, flows.features, flows.label, strict=True):
        key, known = key_fields(record), dict(zip(NAMES, features, strict=True))
        cells = [*(key[name] for name in head), record["first"], record["last"]]
        cells += [*(known.get(name, 0) for name in every), *([CLASSES[label]] if labels else [])]
        lines.append(",".join(map(str, cells)))
    path.write_text("\n".join(lines) + "\n")
    write_spec(METER, meter_file(path))


def label_lines(flows, order):
    """Lines of JSON with the labels of some flows, in that order."""
    return "".join(
        json.dumps({**key_fields(flows.records[i]), "label": CLASSES[flows.label[i]]}) + "\n"
        for i in order
    )
