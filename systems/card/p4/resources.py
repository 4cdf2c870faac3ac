# SPDX-License-Identifier: Apache-2.0
"""Resources of networks in a card's program, where networks of one shape share stages."""

from __future__ import annotations

from n3ic.exporters.p4.interpreter import Switch
from n3ic.exporters.p4.lanes import lane_layers
from n3ic.systems.card.p4.image import P4CardImage, ShapeGroup, graph_entries_of, network_entries_of
from n3ic.systems.card.p4.write import program_of
from n3ic.systems.card.resources import Amount

_TOLD = (
    "part of the card's program, counted in n3ic's reading of it: a shape's by its networks, the "
    "rest by all"
)
_COUNTED = "entries of commands.txt, counted"


def joint_needs(image: P4CardImage) -> dict[str, dict[str, Amount]]:
    """Compute the tables, entries, popcount stages and PHV bits of each network, by task name.

    The sums over all networks are those of the program. Resources of a shape or a graph are divided
    among its networks, and common resources among all networks.
    """
    # A limit on fields would refuse a wide card here; the check of the export reports it better.
    program = Switch(program_of(image), field_bits=1 << 20)
    totals = {"tables": len(program.tables), "phv": program.metadata_bits + program.header_bits}
    needs: dict[str, dict[str, float]] = {}
    for group in image.groups:
        own = {"tables": _tables(group), "phv": _phv(group), "stages": _stages(group)}
        for slot, task in enumerate(group.tasks, 1):
            needs[task] = {name: amount / len(group.tasks) for name, amount in own.items()}
            needs[task]["table_entries"] = len(list(network_entries_of(group, slot)))
        # What no shape accounts for is common to the whole program.
        totals = {name: amount - own[name] for name, amount in totals.items()}
    for name, amount in totals.items():
        for task in needs:
            needs[task][name] += amount / len(needs)
    for graph in image.card.graphs:
        entries = len(list(graph_entries_of(image, graph)))
        for branch in graph.branches:
            needs[branch.task]["table_entries"] += entries / len(graph.branches)
    return {
        task: {
            name: Amount(amount, "measured", _COUNTED)
            if name == "table_entries"
            else Amount(amount, "estimated", _TOLD)
            for name, amount in sorted(own.items())
        }
        for task, own in needs.items()
    }


def _tables(group: ShapeGroup) -> int:
    """Count the tables of a shape.

    They are those of the layers, and those that load the input, read the model twice, shunt, and
    find the best class.
    """
    network = group.network
    layers = sum(y.tables for y in lane_layers(network.layers))
    return layers + 3 + network.shunts + 2 * network.classes - 1


def _stages(group: ShapeGroup) -> int:
    return sum(y.popcount_stages for y in lane_layers(group.network.layers))


def _phv(group: ShapeGroup) -> int:
    """Count the PHV bits of the input, the counters, and the hidden layers."""
    network = group.network
    layers = sum(y.phv_bits for y in lane_layers(network.layers))
    return network.input_bits + layers
