"""Several networks on one device: how they run there, what they take, and what is too much."""

import numpy as np
import pytest

from n3ic import plugins
from n3ic.export import Figure, Fit, Member, Placement, Report
from n3ic.exporters.nfp.placement import spread
from n3ic.exporting import exporter
from n3ic.model import random_model
from n3ic.sets import Item, export_item, set_markdown, set_summary

SHAPE = (152, 128, 64, 2)


def members(target, count, shape=SHAPE, **options):
    """Networks as they come from an export, with figures that need no simulator."""
    of = exporter(target)
    parsed = of.parse_options(options)
    model = random_model(shape, np.random.default_rng(1))
    figures = (
        Figure("latency", 2.0, "us", "simulated", "made up"),
        Figure("lut_sites", 30_000, "LUT6", "estimated", "made up"),
        Figure("ff", 1_000, "FF", "estimated", "made up"),
        Figure("bram36", 5, "BRAM36", "estimated", "made up"),
        Figure("resources.lut", 100_000, "LUT", "estimated", "made up"),
        Figure("resources.bram", 300, "BRAM", "estimated", "made up"),
    )
    return [Member(model, parsed, of.check(model, parsed), Report(figures))] * count


def test_networks_on_the_nfp_run_side_by_side_over_the_islands():
    together = exporter("nfp").together(members("nfp", 17))
    assert together.way == "side by side, a thread each, 9 + 8 networks in 2 islands"
    assert together.latency_ns == 2000
    assert together.problems == ()
    one = exporter("nfp").together(members("nfp", 1))
    blob = together.memory["cls"] - one.memory["cls"]
    assert blob % 16 == 0  # the threads' state is there once, however many networks there are
    assert blob // 16 > 3472


def test_more_networks_than_the_islands_hold_are_too_much():
    together = exporter("nfp").together(members("nfp", 46))
    assert "5 islands" in together.problems[0]
    assert exporter("nfp").together(members("nfp", 45)).problems == ()


def test_networks_of_a_chain_take_turns():
    together = exporter("nfp").together(members("nfp", 3, mode="model"))
    assert together.way == "one after the other"
    assert together.latency_ns == 6000


@pytest.mark.parametrize(
    ("sizes", "room", "islands", "expected"),
    [
        ((5, 5, 5), 10, 2, (2, 1)),
        ((6, 6, 4, 4), 10, 2, (2, 2)),
        ((6, 6, 6), 10, 2, None),
        ((11,), 10, 5, None),
        ((), 10, 5, ()),
    ],
)
def test_networks_are_spread_over_islands(sizes, room, islands, expected):
    assert spread(sizes, room, islands) == expected


def test_cores_of_a_netfpga_share_its_luts():
    together = exporter("netfpga").together(members("netfpga", 12))
    assert together.latency_ns == 2000
    assert together.latency_kind == "simulated"
    assert together.resources == {"lut_sites": 360_000, "ff": 12_000, "bram36": 60}
    assert together.problems == ()
    more = exporter("netfpga").together(members("netfpga", 13))
    assert more.problems == ("390,000 lut_sites, there is room for 383,800",)


def test_p4_networks_share_a_pipeline_beside_one_nic():
    together = exporter("p4-netfpga").together(members("p4-netfpga", 2))
    assert together.resources == {"luts": 49_400 + 2 * 50_600, "brams": 194 + 2 * 106}
    assert together.latency_ns == 4000
    assert exporter("p4-netfpga").together(members("p4-netfpga", 8)).problems


def test_a_host_runs_one_after_the_other_from_the_cache_that_holds_all():
    few, many = (exporter("host").together(members("host", n)) for n in (2, 17))
    assert few.way == "one after the other on one core, weights in L1D"
    assert many.way == "one after the other on one core, weights in L2"
    assert many.latency_ns == 17 * 2000
    assert list(many.memory) == ["l2"]


@pytest.mark.parametrize("target", plugins.names("n3ic.exporters"))
def test_a_network_without_a_latency_leaves_the_set_without(target):
    of = exporter(target)
    silent = [Member(m.model, m.options, m.fit, Report(())) for m in members(target, 2)]
    assert of.together(silent).latency_ns is None
    assert of.together(silent).latency_kind is None


def test_memories_are_added_up_and_compared_with_their_sizes():
    of = exporter("onnx")
    fit = Fit((Placement("weights", "flash", 600), Placement("cuts", "flash", 100)))
    model = random_model((8, 4, 2), np.random.default_rng(0))
    together = of.together([Member(model, of.parse_options({}), fit, Report(()))] * 2)
    assert together.memory == {"flash": 1400}
    assert together.problems == ()


def test_refusals_of_one_reason_are_one_line(tmp_path):
    models = {str(i): random_model((64, 128, 2), np.random.default_rng(i)) for i in range(3)}
    outcomes = [
        export_item(Item(m, task, "p4-netfpga", tmp_path / task, {}), verify=False)
        for task, m in models.items()
    ]
    summary = set_summary(outcomes)
    assert summary["p4-netfpga"]["networks"] == 0
    assert summary["p4-netfpga"]["together"] is None
    assert list(summary["p4-netfpga"]["refused"].values()) == [3]
    page = set_markdown(summary, {})
    assert page.count("layer 0 has 128 neurons") == 1
    assert "p4-netfpga, 3 networks: " in page
