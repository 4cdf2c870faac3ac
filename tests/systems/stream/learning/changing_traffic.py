# SPDX-License-Identifier: Apache-2.0
"""Flows whose classes depend on their features, until the traffic changes."""

import numpy as np

from n3ic.families.tables.learner import TablesTraining
from n3ic.families.tables.train import fit_tables
from n3ic.model.inputs import Field, InputSpec
from n3ic.model.random_models import random_model
from n3ic.systems.stream.learning.refresh import columns_of, refreshed
from n3ic.systems.stream.learning.replay import ReplayedFlows, numbered
from n3ic.systems.stream.learning.rows import LabelledRows

FEATURES = 6
CLASSES = ("benign", "attack")
SPEC = InputSpec(tuple(Field.thermometer(f"f{i}", range(10, 100, 10)) for i in range(FEATURES)))


def traffic(rows, seed=0, *, changed=False, noise=0.05, start=0):
    """Flows: an attack has large sums of three features; after the change, of three others."""
    rng = np.random.default_rng(seed)
    features = rng.integers(0, 110, (rows, FEATURES)).astype(np.uint32)
    part = features[:, 3:] if changed else features[:, :3]
    label = (part.sum(axis=1) > 165).astype(np.int64)
    label ^= rng.random(rows) < noise
    return ReplayedFlows(features, label, numbered(rows, start))


def labelled(flows, seed=0):
    """The flows with their labels, in order."""
    key = np.random.default_rng(seed).integers(0, 1 << 63, len(flows), dtype=np.uint64) * 2
    return LabelledRows(flows.features, flows.label, key)


def network(seed=0, rows=1500):
    """A binary network that was trained before the change."""
    model = random_model((SPEC.n_bits, 16, 2), np.random.default_rng(seed))
    model = model.with_input(SPEC).changed(classes=CLASSES, name="flows")
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
    return fit_tables(bits, np.eye(2)[flows.label], SPEC, CLASSES, settings, name="flows")
