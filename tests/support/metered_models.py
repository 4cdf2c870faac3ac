# SPDX-License-Identifier: Apache-2.0
"""Random networks that carry a meter, for whatever meters packets and classifies their flows."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np

from n3ic.model.inputs import Field, InputSpec
from n3ic.model.layers import OutputLayer
from n3ic.model.network import BinaryModel
from n3ic.model.random_models import random_model

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "under-attack.md"


def page_schedule():
    """The packets at which the page on attacks decides flows."""
    typed = re.search(r"--packets (\S+),end ", PAGE.read_text(encoding="utf-8"))
    return tuple(map(int, typed[1].split(",")))


def metered_network(spec, seed=0, *, classes=("=a", 'b,"c', "d"), extremes=True):
    """A random network that reads every feature of a specification, with cuts of all sizes.

    Its classes need quotes in CSV; ``extremes`` are neurons that always or never fire.
    """
    rng = np.random.default_rng(seed)
    fields = []
    for name in spec.feature_names:
        cuts = sorted({*(1 << rng.integers(0, 32, 6)).tolist()})
        fields.append(Field.thermometer(name, cuts, unit=spec.units[name]))
    inputs = InputSpec(tuple(fields))
    model = random_model((inputs.n_bits, 16, len(classes)), rng, extremes=extremes)
    return replace(model, input=inputs, meter=spec, classes=classes)


def counting_network(spec, cuts, classes=("honest", "attack"), *, bias=(0, 0), shunt=0):
    """Reads the packets of a flow's first direction.

    From each cut on they speak for the second class, or for the first where the cut is negative.
    """
    numbers = np.array(cuts)
    cells = Field.thermometer("spkts", np.abs(numbers).tolist(), unit=spec.units["spkts"])
    inputs = InputSpec((cells,))
    output = OutputLayer(np.stack([numbers < 0, numbers > 0]), bias=np.array(bias))
    return BinaryModel(inputs, (), output, classes, meter=spec, shunt=shunt)


def unsure_later(spec, cut):
    """Sure of an attack before a packet, and unsure of all from there on."""
    return counting_network(spec, [cut], ("attack", "honest"), bias=(1, 0), shunt=2)
