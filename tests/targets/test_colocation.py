# SPDX-License-Identifier: Apache-2.0
"""Several networks on one device: how they run there, what they take, and what is too much."""

import numpy as np
import pytest

from n3ic import plugins
from n3ic.exporters.nfp import blob
from n3ic.exporters.nfp.placement import spread
from n3ic.model.random_models import random_model
from n3ic.targets.base import exporter
from n3ic.targets.batch import ExportItem, export_item
from n3ic.targets.colocation import CoLocatedNetwork
from n3ic.targets.colocation_report import set_markdown, set_summary
from n3ic.targets.device import Device, Fit, Memory, Placement
from n3ic.targets.figures import Figure, Report

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
    return [CoLocatedNetwork(model, parsed, of.check(model, parsed), Report(figures))] * count


def blob_bytes(shape=SHAPE):
    return blob.build(random_model(shape, np.random.default_rng(1))).size


def test_networks_on_the_nfp_run_side_by_side_over_the_islands():
    together = exporter("nfp").colocate(members("nfp", 17))
    assert together.way == "side by side, a thread each, 9 + 8 networks in 2 islands"
    assert together.latency_ns == 2000
    assert together.problems == ()
    one = exporter("nfp").colocate(members("nfp", 1))
    # the threads' state and the mailbox are there once, however many networks there are
    assert together.memory["cls"] - one.memory["cls"] == 16 * blob_bytes()
    assert together.memory["imem"] == one.memory["imem"] > 0


def test_more_networks_than_the_islands_hold_are_too_much():
    assert exporter("nfp").colocate(members("nfp", 45)).problems == ()
    (problem,) = exporter("nfp").colocate(members("nfp", 46)).problems
    assert problem == (
        f"46 networks of {46 * blob_bytes():,} bytes in all do not fit 5 islands of 42,624 bytes "
        "of CLS and 96 threads each"
    )


def test_a_network_wants_a_thread_of_its_island():
    few = exporter("nfp").colocate(members("nfp", 17, threads=20))
    assert few.way == "side by side, a thread each, 4 + 4 + 4 + 4 + 1 networks in 5 islands"
    (problem,) = exporter("nfp").colocate(members("nfp", 21, threads=20)).problems
    assert problem.endswith("bytes of CLS and 4 threads each")


def test_state_in_local_memory_leaves_cls_to_weights():
    placement = exporter("nfp").colocate(members("nfp", 2, state="lmem", threads=60))
    assert placement.memory["cls"] == 2 * blob_bytes()
    assert placement.memory["lmem"] > 0


def test_weights_in_ctm_are_spread_too():
    together = exporter("nfp").colocate(members("nfp", 20, memory="ctm"))
    room = 262_144 - 196_608
    each = room // blob_bytes()
    assert together.way.endswith(f"{each} + {20 - each} networks in 2 islands")
    assert together.memory["ctm"] == 20 * blob_bytes()


def test_weights_in_a_shared_memory_leave_room_for_its_reserve_and_the_mailbox():
    together = exporter("nfp").colocate(members("nfp", 2, memory="imem"))
    mailbox = exporter("nfp").colocate(members("nfp", 2)).memory["imem"]
    assert together.memory["imem"] == 2 * blob_bytes() + mailbox
    room = 4_194_304 - 2_097_152 - mailbox
    most = room // blob_bytes()
    assert exporter("nfp").colocate(members("nfp", most, memory="imem")).problems == ()
    (problem,) = exporter("nfp").colocate(members("nfp", most + 1, memory="imem")).problems
    needed = (most + 1) * blob_bytes()
    assert problem == f"{needed:,} bytes of IMEM for weights, there is room for {room:,}"


@pytest.mark.slow
def test_networks_of_a_chain_take_turns_on_one_chain_and_reach_dram():
    wide = (4096, 2048, 2)
    together = exporter("nfp").colocate(members("nfp", 4, wide, mode="model"))
    assert together.way == "one after the other in one chain of threads"
    assert together.latency_ns == 4 * 2000
    assert together.memory["emem"] == 4 * blob_bytes(shape=wide) > 3_145_728
    assert together.problems == ()
    one = exporter("nfp").colocate(members("nfp", 1, wide, mode="model"))
    assert together.memory["cls"] == one.memory["cls"]


def test_a_chain_and_threads_share_a_card():
    mixed = members("nfp", 2) + members("nfp", 3, (4096, 2048, 2), mode="model")
    together = exporter("nfp").colocate(mixed)
    assert together.way == (
        "side by side, a thread each, one after the other in one chain of threads, "
        "2 networks in 1 island"
    )
    assert together.latency_ns == 3 * 2000
    assert together.problems == ()


@pytest.mark.parametrize(
    ("sizes", "room", "islands", "threads", "expected"),
    [
        ((5, 5, 5), 10, 2, 8, (2, 1)),
        ((6, 6, 4, 4), 10, 2, 8, (2, 2)),
        ((6, 6, 6), 10, 2, 8, None),
        ((11,), 10, 5, 8, None),
        ((1, 1, 1), 10, 2, 2, (2, 1)),
        ((1, 1, 1), 10, 2, 1, None),
        ((), 10, 5, 8, ()),
    ],
)
def test_networks_are_spread_over_islands(sizes, room, islands, threads, expected):
    assert spread(sizes, room, islands, threads) == expected


def test_cores_of_a_netfpga_share_its_luts():
    together = exporter("netfpga").colocate(members("netfpga", 12))
    assert together.latency_ns == 2000
    assert together.latency_kind == "simulated"
    assert together.resources == {"lut_sites": 360_000, "ff": 12_000, "bram36": 60}
    assert together.problems == ()
    more = exporter("netfpga").colocate(members("netfpga", 13))
    assert more.problems == ("390,000 lut_sites, there is room for 383,800",)


def test_what_no_report_tells_is_not_said_to_be_nothing():
    silent = [
        CoLocatedNetwork(m.model, m.options, m.fit, Report(())) for m in members("netfpga", 2)
    ]
    assert exporter("netfpga").colocate(silent).resources == {}


def test_p4_networks_share_a_pipeline_beside_one_nic():
    of = exporter("p4-netfpga")
    one, two = (of.colocate(members("p4-netfpga", n, (64, 32, 2))) for n in (1, 2))
    for what, nic in (("luts", 49_400), ("brams", 194)):
        assert two.resources[what] - nic == pytest.approx(2 * (one.resources[what] - nic))
    assert two.latency_ns == 4000
    many = of.colocate(members("p4-netfpga", 60, (64, 32, 2)))
    assert many.problems[0].endswith(" luts, there is room for 433,200")


def test_p4_networks_are_one_program_that_must_compile():
    of = exporter("p4")
    one, many = (of.colocate(members("p4", n)) for n in (1, 80))
    assert one.problems == ()
    assert many.resources["tables"] == 80 * one.resources["tables"]
    assert [p.split()[1] for p in many.problems] == ["statements,", "tables,"]
    assert many.problems[1].endswith("there is room for 4,096")


def test_a_host_runs_one_after_the_other_from_the_cache_that_holds_all():
    few, many = (exporter("host").colocate(members("host", n)) for n in (2, 17))
    assert few.way == "one after the other on one core, weights in L1D"
    assert many.way == (
        "one after the other on one core, weights in L2 (the latency is that of weights in L1D)"
    )
    assert many.latency_ns == 17 * 2000
    assert list(many.memory) == ["l2"]
    assert many.problems == ()


def test_a_host_has_so_much_memory():
    fit = Fit((Placement("weights", "dram", 2**29),))
    member = members("host", 1)[0]
    large = CoLocatedNetwork(member.model, member.options, fit, member.report)
    assert exporter("host").colocate([large] * 2).problems == ()
    (problem,) = exporter("host").colocate([large] * 3).problems
    assert problem == "1,610,612,736 bytes of main memory, there is room for 1,073,741,824"


@pytest.mark.parametrize("target", plugins.names("n3ic.exporters"))
def test_a_network_without_a_latency_leaves_the_set_without(target):
    of = exporter(target)
    silent = [CoLocatedNetwork(m.model, m.options, m.fit, Report(())) for m in members(target, 2)]
    assert of.colocate(silent).latency_ns is None
    assert of.colocate(silent).latency_kind is None


def test_memories_are_added_up_and_compared_with_their_sizes():
    of = exporter("onnx")
    of.__dict__["device"] = Device("board", 0, (Memory("flash", 1500),), {}, {}, "made up")
    try:
        fit = Fit((Placement("weights", "flash", 600), Placement("cuts", "flash", 100)))
        model = random_model((8, 4, 2), np.random.default_rng(0))
        member = CoLocatedNetwork(model, of.parse_options({}), fit, Report(()))
        assert of.colocate([member] * 2).memory == {"flash": 1400}
        assert of.colocate([member] * 2).problems == ()
        (problem,) = of.colocate([member] * 3).problems
        assert problem == "2,100 bytes of flash, there is room for 1,500"
    finally:
        del of.__dict__["device"]


@pytest.mark.slow
def test_what_does_not_fit_alone_does_not_fit_together(tmp_path):
    model = random_model((64, 128, 2), np.random.default_rng(0), extremes=False)
    outcomes = [
        export_item(
            ExportItem(model, task, "p4-netfpga", tmp_path / task, {}), verify=False, force=True
        )
        for task in ("a", "b")
    ]
    summary = set_summary(outcomes)["p4-netfpga"]
    assert summary["networks"] == 2
    (problem,) = summary["together"]["problems"]
    assert "layer 0 has 128 neurons" in problem


def test_refusals_of_one_reason_are_one_line(tmp_path):
    models = {
        str(i): random_model((64, 128, 2), np.random.default_rng(i), extremes=False)
        for i in range(3)
    }
    outcomes = [
        export_item(ExportItem(m, task, "p4-netfpga", tmp_path / task, {}), verify=False)
        for task, m in models.items()
    ]
    summary = set_summary(outcomes)
    assert summary["p4-netfpga"]["networks"] == 0
    assert summary["p4-netfpga"]["together"] is None
    assert list(summary["p4-netfpga"]["refused"].values()) == [3]
    page = set_markdown(summary, {})
    assert page.count("layer 0 has 128 neurons") == 1
    assert "p4-netfpga, 3 networks: " in page
