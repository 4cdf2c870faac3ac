# SPDX-License-Identifier: Apache-2.0
"""Frames of flows whose classes depend on their sizes, until the traffic changes."""

import json
import struct

import numpy as np

from n3ic.families.tables.learner import TablesTraining
from n3ic.families.tables.train import fit_tables
from n3ic.meter.compiled import CompiledMeter
from n3ic.meter.standard import standard_spec
from n3ic.model.inputs import Field, InputSpec
from n3ic.systems.stream.learning.host_models import HostTrees
from n3ic.training.input_bits import boosted_trees

METER = standard_spec(packets=4)
NAMES = ("smaxlen", "sminlen", "dmaxlen", "dminlen")
SPEC = InputSpec(
    tuple(Field.thermometer(n, range(100, 1300, 100), unit=METER.units[n]) for n in NAMES)
)
CLASSES = ("benign", "attack")


def frame(client, server, there, size):
    body = struct.pack(">HHHH", *there, 8 + size, 0) + bytes(size)
    head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(body), 0, 0, 64, 17, 0)
    return bytes(12) + b"\x08\0" + head + client + server + body


def flows(rng, start, count, *, changed):
    """Frames of flows of four packets, and whether each is an attack.

    Its questions are large, and after the change its answers are.
    """
    made = []
    for number in range(start, start + count):
        client, server = struct.pack(">I", (10 << 24) + number), bytes([10, 255, 0, 1])
        sizes = rng.integers(30, 1250, 4)
        mark = sizes[2:] if changed else sizes[:2]
        frames = [frame(client, server, (1024, 53), int(size)) for size in sizes[:2]]
        frames += [frame(server, client, (53, 1024), int(size)) for size in sizes[2:]]
        made.append((frames, int(mark.max() > 800)))
    return made


def metered(made):
    """Features of flows, as the compiled meter computes them."""
    frames = [data for each, _ in made for data in each]
    with CompiledMeter(METER, 1) as meter:
        found = meter.count([(data, len(data), i * 10) for i, data in enumerate(frames)])
    return found["features"], np.array([label for _, label in made])


def trained_for_a_card(rng):
    """A model of flows before the change, their features and their labels."""
    features, label = metered(flows(rng, 0, 900, changed=False))
    columns = dict(zip(METER.feature_names, features.astype(np.int64).T, strict=True))
    settings = TablesTraining(tables=8, table_bits=3)
    bits = SPEC.encode(columns)
    card = fit_tables(bits, np.eye(2)[label], SPEC, CLASSES, settings, name="flows")
    return card.changed(meter=METER, shunt=4), columns, label


def trained(rng):
    """A model for the card and one for the host, of flows before the change."""
    card, columns, label = trained_for_a_card(rng)
    own = {name: columns[name] for name in NAMES}
    trees = boosted_trees(own, label, rounds=40)
    return card, HostTrees.of_boosted(trees, NAMES, CLASSES)


def label_line(frames, label):
    """The line of a file of labels that names a flow by its first frame."""
    client, server = (".".join(map(str, frames[0][at : at + 4])) for at in (26, 30))
    line = {"source": client, "source_port": 1024, "destination": server, "destination_port": 53}
    return json.dumps(line | {"protocol": 17, "label": CLASSES[label]}) + "\n"
