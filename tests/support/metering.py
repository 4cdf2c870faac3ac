# SPDX-License-Identifier: Apache-2.0
"""Models over metered features, and their programs, for the tests of the metering program."""

from dataclasses import replace

import numpy as np

from n3ic.exporters.xdp import source
from n3ic.exporters.xdp.network.structure import structure_of
from n3ic.exporters.xdp.network.values import value_bytes
from n3ic.exporters.xdp.program import MeterPrograms, policy_index, policy_value
from n3ic.exporters.xdp.replay import counter_difference, difference, replay, replayable
from n3ic.model.layers import HiddenLayer
from tests.support.metered_models import metered_network


def network(spec, seed=0, shunt=0):
    """A random network over all features of a specification, which shunts below a margin."""
    model = metered_network(spec, seed, classes=("a", "b", "c"), extremes=False)
    return model.with_shunt(shunt) if shunt else model


def with_needless_parts(model):
    """The network with neurons that always or never fire, and a feature that nothing reads."""
    (layer,) = model.hidden
    thresholds, mask = layer.thresholds, np.ones_like(layer.weights)
    start, field = model.input.offsets[0], model.input.fields[0]
    mask[:, start : start + field.width] = False
    thresholds = np.minimum(thresholds, mask[0].sum())
    thresholds[:5], thresholds[5:9] = 0, mask[0].sum() + 1
    hidden = HiddenLayer(layer.weights & mask, mask=mask, thresholds=thresholds)
    return replace(model, hidden=(hidden,))


def set_policy(programs, verdict, *given, **named):
    """Set what is done with packets of flows with a verdict: see `policy_value`."""
    index = policy_index(verdict, programs.structure.classes)
    programs.maps["policies"].update(index, policy_value(*given, **named))


def load(
    model,
    *,
    per_cpu=False,
    clock="trailer",
    flows=4096,
    image=None,
    table="lru",
    **given,
):
    """The metering program of a model, loaded, the model in slot 0."""
    structure = structure_of([model])
    files = source.meter_program(model.meter, structure, per_cpu=per_cpu, table=table)
    image = image or source.compile_program(files, source.METER)
    programs = MeterPrograms(
        image,
        "meter.o",
        model.meter,
        structure,
        clock=clock,
        flows=flows,
        table=table,
        **given,
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
