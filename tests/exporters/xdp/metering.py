"""Models over metered features, and their programs, for the tests of the metering program."""

from dataclasses import replace

import numpy as np

from n3ic.exporters.xdp import source
from n3ic.exporters.xdp.network.structure import structure_of
from n3ic.exporters.xdp.network.values import value_bytes
from n3ic.exporters.xdp.program import MeterPrograms
from n3ic.exporters.xdp.replay import counter_difference, difference, replay, replayable
from n3ic.model.inputs import Field, InputSpec
from n3ic.model.random_models import random_model


def network(spec, seed=0, shunt=0):
    """A random network that reads every feature of a specification, with cuts of all sizes."""
    rng = np.random.default_rng(seed)
    cuts = [sorted({*(1 << rng.integers(0, 32, 6)).tolist()}) for _ in spec.feature_names]
    fields = [
        Field.thermometer(name, c, unit=spec.units[name])
        for name, c in zip(spec.feature_names, cuts, strict=True)
    ]
    inputs = InputSpec(tuple(fields))
    model = random_model((inputs.n_bits, 16, 3), rng, extremes=False)
    model = replace(model, input=inputs, meter=spec, classes=("a", "b", "c"))
    return model.with_shunt(shunt) if shunt else model


def load(model, *, per_cpu=False, clock="trailer", flows=4096, image=None, table="lru", seed=None):
    """The metering program of a model, loaded, the model in slot 0."""
    structure = structure_of([model])
    files = source.meter_program(model.meter, structure, per_cpu=per_cpu, table=table)
    image = image or source.compiled(files, source.METER)
    programs = MeterPrograms(
        image, "meter.o", model.meter, structure, clock=clock, flows=flows, table=table, seed=seed
    )
    programs.set_model(0, value_bytes(structure, model))
    return programs


def replayed(programs, model, frames, **given):
    """Events of frames, after a check that they are the reference meter's and the model's."""
    frames = replayable(frames)
    events = replay(programs, frames)
    spec = replace(model.meter, cache_flows=1 << 20) if given.get("room", True) else model.meter
    assert difference(model, spec, frames, events) == ""
    assert counter_difference(spec, frames, programs.counters()) == ""
    return events
