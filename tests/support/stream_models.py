# SPDX-License-Identifier: Apache-2.0
"""Models of several families with a small meter, and what streams of a test share."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np

from n3ic.families.spn.random_models import random_spn
from n3ic.meter.standard import standard_spec
from n3ic.model.inputs import Field, InputSpec
from n3ic.model.random_models import random_model
from n3ic.systems.stream.flows.decide import StreamModel
from n3ic.systems.stream.flows.pipeline import FlowStream, StreamSettings
from n3ic.systems.stream.flows.sink import StreamSink, open_sink
from n3ic.systems.stream.flows.source import open_source

SPEC = standard_spec(packets=4, cache_flows=256)


CUTS = (1, 2, 3, 5, 40, 80, 150, 300, 600, 1200, 20_000, 60_000, 120_000, 1 << 20)


def binary(seed=1):
    """A random network that reads every feature, with cuts among the values of a test's traffic."""
    rng = np.random.default_rng(seed)
    fields = tuple(
        Field.thermometer(name, sorted(rng.choice(CUTS, 4, False)), unit=SPEC.units[name])
        for name in SPEC.feature_names
    )
    model = random_model((4 * len(fields), 16, 3), rng, extremes=False)
    return replace(model, input=InputSpec(fields), meter=SPEC, classes=("a", 'b,"c', "d"))


def spn(seed=2):
    """A random sum-product network of the same kind that reads some features."""
    rng = np.random.default_rng(seed)
    model = random_spn(rng, features=4, cuts=5)
    names = [name for name in SPEC.feature_names if name in ("dur", "sbytes", "dbytes", "spkts")]
    fields = tuple(
        Field.thermometer(name, sorted(rng.choice(CUTS, f.width, False)), unit=SPEC.units[name])
        for name, f in zip(names, model.input.fields, strict=True)
    )
    return replace(model, input=InputSpec(fields), meter=SPEC)


MODELS = {"binary": binary, "spn": spn, "shunts": lambda: binary().changed(shunt=1)}


def stream(source, model, *places, **settings):
    """Run a stream to places or sinks, and give its figures."""
    chosen = StreamModel(model)
    sinks = [p if isinstance(p, StreamSink) else open_sink(str(p), chosen) for p in places]
    flow_source = open_source(str(source), model) if isinstance(source, str | Path) else source
    return FlowStream(flow_source, chosen, sinks, StreamSettings(**settings)).run()


def lines(path):
    return [json.loads(line) for line in path.read_bytes().splitlines()]
