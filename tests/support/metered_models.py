# SPDX-License-Identifier: Apache-2.0
"""Random networks that carry a meter, for whatever meters packets and classifies their flows."""

from dataclasses import replace

import numpy as np

from n3ic.model.inputs import Field, InputSpec
from n3ic.model.random_models import random_model


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
