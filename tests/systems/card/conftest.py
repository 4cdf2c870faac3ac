# SPDX-License-Identifier: Apache-2.0
"""Cards whose tasks say what they need: no exporter is asked."""

import pytest

from n3ic.systems.card import resources
from n3ic.systems.card.parser import parse_card

TASK = """
[[tasks]]
name = "{name}"
kind = "verilog"
sources = ["{name}.v"]
top = "{name}"
needs = {{ units = 1 }}
rate = "10 Gb/s"
latency_ns = 200
"""
GRAPH = """
[[tenants]]
name = "{name}"
[[tenants.graphs]]
name = "graph"
uid = {uid}
wants = "{wants} Gb/s"
packet_bytes = 500
flow = {flow}
needs = {{ memory = {memory} }}
"""


def two_tenants(first=8.0, second=14.0):
    """SuperNIC's figure 4: six units in three regions; four tasks of one unit and 10 Gb/s."""
    head = "[device]\nresources = { units = 6, memory = 10 }\nregions = 3\nscheduling_ns = 64\n"
    tasks = "".join(TASK.format(name=f"nt{i}") for i in (1, 2, 3, 4))
    u1 = GRAPH.format(name="u1", uid=1, wants=first, memory=1, flow='["nt1", "nt2", "nt3", "nt4"]')
    u2 = GRAPH.format(name="u2", uid=2, wants=second, memory=2, flow='["nt2", "nt4"]')
    return parse_card(head + tasks + u1 + u2)


@pytest.fixture(name="two_tenants")
def two_tenants_fixture():
    return two_tenants


@pytest.fixture(scope="session", autouse=True)
def reports_of_networks_are_made_once():
    """A target's report of a network is simulated once, for all cards that hold the network."""
    report, made = resources._report, {}

    def reported(tool, model, task):
        key = tool.name, model.digest, tuple(task.options.items())
        if key not in made:
            made[key] = report(tool, model, task)
        return made[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resources, "_report", reported)
        yield
