# SPDX-License-Identifier: Apache-2.0
"""One small model of each installed family, and of one that exists in tests only."""

from __future__ import annotations

import numpy as np

from n3ic import plugins
from n3ic.meter.standard import standard_spec
from n3ic.model.classifier import Classifier
from n3ic.model.family import family
from n3ic.model.inputs import Field, InputSpec
from n3ic.model.meter_spec import MeterSpec
from tests.support.random_graphs import GraphModel, graph_model

FAMILIES = (*plugins.names(plugins.FAMILIES), GraphModel.family)
SPEC = standard_spec(packets=4)


def small_model(name: str, seed: int = 0) -> Classifier:
    """A random model of a family; with the one of tests, :func:`graph_family` must be entered."""
    if name == GraphModel.family:
        return graph_model(seed, operations=12, depth=4, classes=2, fields=5, cuts=8)
    return family(name).random(np.random.default_rng(seed))


def metered_model(name: str, seed: int = 0, spec: MeterSpec = SPEC) -> Classifier:
    """The same on features of a meter, each with the cuts of a feature of the random model."""
    model = small_model(name, seed)
    fields = [
        _named(field, feature, spec.units[feature])
        for field, feature in zip(model.input.fields, spec.feature_names, strict=False)
    ]
    return model.with_input(InputSpec(tuple(fields)), meter=spec)


def _named(field: Field, feature: str, unit: str) -> Field:
    if field.kind == "thermometer":
        return Field.thermometer(feature, field.cuts, unit=unit)
    return Field.binary(feature, field.width, unit=unit)
