# SPDX-License-Identifier: Apache-2.0
"""What tasks take: from reports, from ``card.toml``, and clear errors where neither says it."""

import numpy as np
import pytest

from n3ic import plugins
from n3ic.errors import CardError
from n3ic.model.random_models import random_model
from n3ic.systems.card.parser import parse_card
from n3ic.systems.card.planner import plan_card
from n3ic.systems.card.resources import budget_of, costs_of
from n3ic.targets.base import exporter

CARD = """
[device]
target = "{target}"
[[tenants]]
name = "t"
[[tenants.tasks]]
name = "net"
kind = "network"
model = "m.n3ic"
[[tenants.tasks]]
name = "act"
kind = "policy"
rules = [{{ action = "drop" }}]
[[tenants.graphs]]
name = "g"
uid = 1
wants = "100000 inferences/s"
flow = ["net", "act"]
"""


@pytest.fixture(name="folder", scope="module")
def folder_with_a_model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    random_model((40, 16, 8, 2), np.random.default_rng(1)).save(folder / "m.n3ic")
    return folder


def card(folder, target, old="", new=""):
    return parse_card(CARD.format(target=target).replace(old, new), "c.toml", folder)


@pytest.mark.first_case
@pytest.mark.parametrize(
    ("target", "needed"),
    [
        ("host", {"l2", "cycles"}),
        ("nfp", {"cls", "threads"}),
        ("p4", {"tables", "table_entries", "stages", "phv"}),
        ("netfpga", {"lut_sites", "ff", "bram36"}),
        ("p4-netfpga", {"luts", "brams"}),
    ],
)
def test_a_networks_resources_come_from_its_report(folder, target, needed):
    described = card(folder, target)
    budget = budget_of(described)
    cost = costs_of(described, budget)["t/net"]
    assert cost.needs.keys() == needed
    assert all(a.value > 0 and a.source for a in cost.needs.values())
    assert {a.kind for a in cost.needs.values()} <= {"measured", "simulated", "estimated"}
    assert budget.regions == exporter(target).device.card.regions
    planned = plan_card(described)
    assert planned.problems == ()
    assert any("no figure is known: t/act" in note for note in planned.notes)


def test_cycles_are_those_of_the_reports_rate(folder):
    described = card(folder, "host")
    tool = exporter("host")
    budget = budget_of(described)
    cost = costs_of(described, budget)["t/net"]
    assert cost.rate is None  # bounded by the cycles that there are
    cycles = next(r for r in budget.resources if r.name == "cycles")
    assert cycles.per == "packet" and cycles.capacity == tool.device.clock_mhz * 1e6
    # a core serves what the report says of one
    planned = plan_card(card(folder, "host", "100000 inf", "1e12 inf"))
    served = planned.graphs[0].guaranteed
    assert served == pytest.approx(4 * cycles.capacity / cost.needs["cycles"].value, rel=1e-3)


def test_what_the_card_says_goes_before_the_report(folder):
    stated = 'model = "m.n3ic"\nneeds = { l2 = 7 }\nrate = "5 packets/s"\nlatency_ns = 9'
    described = card(folder, "host", 'model = "m.n3ic"', stated)
    cost = costs_of(described, budget_of(described))["t/net"]
    assert [(n, a.value, a.kind, a.source) for n, a in cost.needs.items()] == [
        ("l2", 7.0, "estimated", "c.toml:6")
    ]
    assert (cost.rate.value, cost.latency_ns.value) == (5, 9)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("m.n3ic", "none.n3ic", r"c.toml:6: task 't/net': .*none.n3ic"),
        ('"m.n3ic"', '"m.n3ic"\nnetwork = "q7"', r"c.toml:6: task 't/net': .* no network 'q7'"),
        ('"m.n3ic"', '"m.n3ic"\noptions = { x = 1 }', r"c.toml:6: .* no option --x"),
        ('"m.n3ic"', '"m.n3ic"\nneeds = { lut = 1 }', r"c.toml:6: t/net needs 'lut', expected one"),
        (
            '{ action = "drop" }',
            '{ action = "drop", classes = ["class7"] }',
            r"c.toml:10: task 't/act': no network before it has a class 'class7', .*class0, class1",
        ),
        (
            'kind = "network"',
            'kind = "meter"',
            r"c.toml:6: task 't/net': expected a model with a meter, .*m.n3ic has none",
        ),
        ("[[tenants]]", "regions = 2\nspare = 2\n[[tenants]]", r"fewer spare ones, got 2"),
    ],
)
def test_errors_name_the_line(folder, old, new, message):
    with pytest.raises(CardError, match=message):
        plan_card(card(folder, "host", old, new))


def test_a_target_that_says_nothing_of_sharing(folder):
    with pytest.raises(
        CardError, match=r"no sharing is defined for .*: expected \[device.resources\]"
    ):
        plan_card(card(folder, "onnx"))


def test_a_damaged_model(folder, tmp_path):
    data = bytearray((folder / "m.n3ic").read_bytes())
    data[len(data) // 2] ^= 255
    (tmp_path / "m.n3ic").write_bytes(data)
    with pytest.raises(CardError, match=r"c.toml:6: task 't/net'"):
        plan_card(card(tmp_path, "host"))


@pytest.mark.parametrize("target", plugins.names("n3ic.exporters"))
def test_shared_resources_are_figures_of_the_targets_report(target):
    """A device's amounts are of its own memories and limits, and regions are at least one."""
    layout = exporter(target).device.card
    if layout is None:
        return
    assert layout.regions >= 1 and layout.source
    assert len({r.name for r in layout.resources}) == len(layout.resources)
    assert all(r.capacity is None or r.capacity > 0 for r in layout.resources)
