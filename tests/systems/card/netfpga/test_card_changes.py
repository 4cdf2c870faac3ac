# SPDX-License-Identifier: Apache-2.0
"""Networks and tenants that come, change and go while others' packets flow."""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from n3ic.errors import ExportError, UsageError
from n3ic.model.inputs import Field, InputSpec
from n3ic.model.network import BinaryModel
from n3ic.systems.card.changes import CardChange
from n3ic.systems.card.frames import HOST, FrameResult, words_of
from n3ic.systems.card.netfpga import control, simulation
from n3ic.systems.card.netfpga.bounds import added_latency
from n3ic.systems.card.netfpga.changes import change_text, operations_of
from n3ic.systems.card.netfpga.image import (
    CardGraph,
    CardRegion,
    CardTenant,
    CoreTask,
    HardwarePass,
    NetfpgaCardImage,
    UserTask,
)
from n3ic.systems.card.netfpga.traffic import TrafficPacket, outcome, result_of
from n3ic.systems.card.netfpga.write import write_card
from tests.support import small_cards as cards

needs_icarus = pytest.mark.skipif(shutil.which("iverilog") is None, reason="needs iverilog")

STUCK = """
// Answers packets until one begins with 0xff, then never again until it is reset.
module stuck (
    input wire aclk, input wire aresetn,
    input wire [63:0] s_axis_tdata, input wire s_axis_tvalid, output wire s_axis_tready,
    input wire s_axis_tlast,
    output wire [63:0] m_axis_tdata, output wire m_axis_tvalid, input wire m_axis_tready,
    output wire m_axis_tlast
);
    reg dead;
    wire kills = s_axis_tvalid && s_axis_tdata[63:56] == 8'hff;
    always @(posedge aclk) dead <= aresetn && (dead || kills);
    assign m_axis_tdata  = s_axis_tdata;
    assign m_axis_tvalid = s_axis_tvalid && !dead && !kills;
    assign m_axis_tlast  = s_axis_tlast;
    assign s_axis_tready = m_axis_tready && !dead && !kills;
endmodule
"""


def run_both(
    tmp_path: Path,
    image: NetfpgaCardImage,
    packets: Sequence[TrafficPacket],
    program: Sequence[simulation.Operation],
) -> tuple[simulation.SimulationLog, simulation.SimulationLog]:
    """The same packets without and with a program of the control plane."""
    write_card(image, tmp_path)
    quiet = simulation.run(tmp_path, image, packets, trace=False)
    return quiet, simulation.run(tmp_path, image, packets, program, trace=False)


def mine(
    image: NetfpgaCardImage, packets: Sequence[TrafficPacket], graphs: Sequence[int]
) -> list[int]:
    uids = {image.graphs[g].uid for g in graphs}
    return [n for n, p in enumerate(packets) if int.from_bytes(p.frame.data[18:20], "big") in uids]


@pytest.mark.slow
@needs_icarus
def test_a_network_is_replaced(tmp_path: Path) -> None:
    """One of three networks in an executor: the others keep every bit and every clock."""
    image = cards.two_tenants()
    rng = np.random.default_rng(2)
    packets = [cards.ask(image, int(rng.integers(4)), rng, gap=14) for _ in range(90)]
    new = cards.net((24, 8, 2), 77)
    leg = image.graphs[1].branches[0][0]
    program = [simulation.wait_sent(30), *control.load_network(image, leg, new)]
    quiet, log = run_both(tmp_path, image, packets, program)
    replaced = mine(image, packets, [1])
    others = [n for n in range(len(packets)) if n not in replaced]
    assert log.latencies(others) == quiet.latencies(others)
    seen = {p.number: p.data for p in log.departures}
    assert len(seen) == len(packets)
    assert all(seen[n] == outcome(image, packets[n]).data for n in others)
    by_new = []
    for n in replaced:
        packet = packets[n]
        words = words_of(new, [packet.frame.data[image.offset :]], features=False)
        expected_frame = outcome(image, packet, [result_of(new, words)]).data
        by_new.append(seen[n] == expected_frame)
        assert by_new[-1] or seen[n] == outcome(image, packet).data
    assert by_new == sorted(by_new)  # first the old one, then the new one
    assert {False, True} == set(by_new)


def test_a_network_that_does_not_fit_is_refused() -> None:
    image = cards.two_tenants()
    with pytest.raises(ExportError, match="the executor computes 24-8-2"):
        control.load_network(image, image.graphs[0].branches[0][0], cards.net((24, 6, 2), 1))


def test_what_the_control_plane_writes_is_told_in_words() -> None:
    image = cards.two_tenants()
    gone = control.listing(control.remove_graphs(image, [3])).splitlines()
    assert gone == [
        "register 0x0018 = 0x01ff0009",  # closed: bit 31 is clear
        "wait 64 clocks",
        "wait until register 0x300d is what register 0x3008 is now, or beyond",
        "register 0x2008 = 0x00000003",
        "wait until register 0x2008 & 0x00000020 == 0x00000020",
    ]
    loaded = control.load_network(image, image.graphs[2].branches[0][0], cards.net((24, 8, 2), 7))
    lines = control.listing(loaded).splitlines()
    assert lines[0] == lines[-1] == "wait until wr_busy of region 0 is 0"
    assert lines[1] == "network 2 of region 0: word 0x001c = 0x00000000"  # its id is cleared
    assert lines[2].startswith("network 2 of region 0: word 0x0000 = 0x")
    assert lines[-2] == "network 2 of region 0: swap"


def named() -> NetfpgaCardImage:
    """The card of two tenants, as a plan names its networks."""
    image = cards.two_tenants()
    names = tuple(f"alpha/n{i}" for i in range(3)), ("beta/net",)
    regions = tuple(
        CardRegion((replace(region.tasks[0], names=each),))
        for region, each in zip(image.regions, names, strict=True)
    )
    return replace(image, regions=regions)


@pytest.mark.slow
@needs_icarus
def test_the_file_of_a_change_changes_the_card(tmp_path: Path) -> None:
    """What is written for the device, and read again, replaces the one network that it names."""
    image = named()
    new = cards.net((24, 8, 2), 77)
    change = CardChange("replace", (), {"alpha/n1": new})
    text = change_text(image, change, operations_of(image, change, 400))
    assert "# change replace alpha/n1\n" in text
    path = tmp_path / "change.txt"
    path.write_text(text)
    rng = np.random.default_rng(2)
    packets = [cards.ask(image, int(rng.integers(4)), rng, gap=14) for _ in range(60)]
    write_card(image, tmp_path)
    program = [simulation.wait_sent(20), *cards.read_change(path)]
    log = simulation.run(tmp_path, image, packets, program, trace=False)
    seen = {p.number: p.data for p in log.departures}
    digests = {int(model.digest[:8], 16): model for model in (new,)}
    replaced = mine(image, packets, [1])
    for n in range(len(packets)):
        model = digests.get(int.from_bytes(seen[n][image.result_at :][:4], "big"))
        words = words_of(new, [packets[n].frame.data[image.offset :]], features=False)
        results = [result_of(new, words)] if model else None
        assert (n in replaced) or model is None
        assert seen[n] == outcome(image, packets[n], results).data
    assert int(new.digest[:8], 16) == int.from_bytes(
        seen[replaced[-1]][image.result_at :][:4], "big"
    )


def test_the_file_of_a_change_names_its_operations(tmp_path: Path) -> None:
    image = named()
    change = CardChange("remove", ("beta/net",), {})
    path = tmp_path / "change.txt"
    path.write_text(change_text(image, change, operations_of(image, change, 400)))
    assert cards.read_change(path) == control.remove_graphs(image, [3])


def test_what_a_card_cannot_be_changed_to_is_refused() -> None:
    image = named()

    def refused(name: str, model: BinaryModel, message: str, on: NetfpgaCardImage = image) -> None:
        with pytest.raises(UsageError, match=message):
            operations_of(on, CardChange("replace", (), {name: model}), 400)

    refused("alpha/n1", cards.net((24, 6, 2), 1), "alpha/n1: .*the executor computes 24-8-2")
    same = cards.net((24, 8, 2), 1)
    clamped = InputSpec((Field("x0", "binary", 24, 7),))
    other = BinaryModel(clamped, same.hidden, same.output, same.classes)
    refused("alpha/n1", other, "the card keeps its input stage")
    unrolled = CoreTask((same,), style="unrolled", names=("beta/net",))
    fixed = replace(image, regions=(image.regions[0], CardRegion((unrolled,))))
    refused("beta/net", cards.net((24, 8, 2), 2), "its weights are logic", fixed)
    # What stands in its bitstream anyhow comes with it.
    come = CardChange("load", ("beta/net",), {"beta/net": same})
    assert operations_of(fixed, come, 400) == control.bring_graphs(fixed, [3], [], 400)


@pytest.mark.slow
@needs_icarus
def test_a_third_tenant_comes_and_goes(tmp_path: Path) -> None:
    """Its region is reconfigured and its network loaded while the others' packets flow."""
    two = cards.two_tenants()
    late = HardwarePass((2,))
    third = CardGraph("gamma/net", 2, 20, 4, ((late,),), on=False)
    image = replace(
        two,
        tenants=(*two.tenants, CardTenant("gamma")),
        graphs=(*two.graphs, third),
        regions=(*two.regions, CardRegion((cards.core(cards.net((32, 8, 2), 5)),), in_reset=True)),
    )
    rng = np.random.default_rng(4)
    packets = [cards.ask(image, int(rng.integers(5)), rng, gap=14) for _ in range(200)]
    new = cards.net((32, 8, 2), 6)
    program = [
        simulation.wait_sent(20),
        *control.bring_graphs(image, [4], [(late, new)], clocks=400),
        simulation.wait_sent(130),
        *control.remove_graphs(image, [4]),
    ]
    quiet, log = run_both(tmp_path, image, packets, program)
    late_ones = mine(image, packets, [4])
    others = [n for n in range(len(packets)) if n not in late_ones]
    seen = {p.number: p.data for p in log.departures}
    assert len(seen) == len(packets)
    assert all(seen[n] == outcome(image, packets[n]).data for n in others)
    bound = max(added_latency(image, graph, longest=2) for graph in two.graphs)
    pairs = zip(quiet.latencies(others), log.latencies(others), strict=True)
    assert max(after - before for before, after in pairs) <= bound
    for tenant in range(2):
        ours = [p.number for p in log.departures if p.number in others]
        ours = [n for n in ours if outcome(image, packets[n]).tenant == tenant]
        assert ours == sorted(ours)
        assert quiet.counters[tenant] == log.counters[tenant]
    answered = []
    opened = replace(image, graphs=(*two.graphs, replace(third, on=True)))
    for n in late_ones:
        words = words_of(new, [packets[n].frame.data[image.offset :]], features=False)
        expected_frame = outcome(opened, packets[n], [result_of(new, words)]).data
        answered.append(seen[n] == expected_frame)
        assert answered[-1] or seen[n] == packets[n].frame.data  # as it came
    first, last = answered.index(True), len(answered) - answered[::-1].index(True)
    assert all(answered[first:last])
    assert 0 < first < last < len(answered)
    assert log.counters[2]["left"] == sum(answered) > 5


@pytest.mark.slow
@needs_icarus
def test_who_shares_a_region_goes_and_comes_without_the_others_noticing(tmp_path: Path) -> None:
    image = cards.guarded(shared=True)
    image = replace(image, graphs=(*image.graphs[:3], replace(image.graphs[3], sources=0xFF)))
    rng = np.random.default_rng(8)
    packets = [cards.ask(image, int(rng.integers(4)), rng, gap=14) for _ in range(80)]
    program = [
        simulation.wait_sent(20),
        *control.remove_graphs(image, [3]),
        simulation.wait_sent(50),
        *control.bring_graphs(image, [3], [], clocks=400),
    ]
    quiet, log = run_both(tmp_path, image, packets, program)
    seen = {p.number: p.data for p in log.departures}
    assert len(seen) == len(packets)
    others = mine(image, packets, [0, 1, 2])
    assert all(seen[n] == outcome(image, packets[n]).data for n in others)
    assert quiet.counters[0] == log.counters[0]
    answered = [seen[n] == outcome(image, packets[n]).data for n in mine(image, packets, [3])]
    assert answered[0] and answered[-1] and not all(answered)
    # The others named no graph while theirs was closed, and were within their guarantee.
    assert log.counters[1]["admitted"] == quiet.counters[1]["admitted"] - answered.count(False)
    assert log.counters[2]["admitted"] == answered.count(False)
    assert log.counters[1]["beyond"] == 0


@pytest.mark.slow
@needs_icarus
def test_a_stuck_task_is_cut_off(tmp_path: Path) -> None:
    """Its packets are decided by the host, the other tenant's go on, and it can be restarted."""
    two = cards.two_tenants()
    task = UserTask("stuck", (("stuck.v", STUCK),), bits=64, limit=150)
    graphs = (*two.graphs[:3], CardGraph("beta/user", 1, 9, 8, ((HardwarePass((1,)),),)))
    regions = (two.regions[0], CardRegion((task,)))
    image = replace(two, graphs=graphs, regions=regions)
    rng = np.random.default_rng(6)
    packets = [cards.ask(image, int(rng.choice([0, 3])), rng, gap=14) for _ in range(120)]
    users = mine(image, packets, [3])
    for n in users:  # one of them kills the task
        frame = packets[n].frame
        first = b"\xff" if n == users[10] else b"\x01"
        data = frame.data[: image.offset] + first + frame.data[image.offset + 1 :]
        packets[n] = replace(packets[n], frame=replace(frame, data=data))
    restart = simulation.set_register(simulation.register(simulation.REGION, 1), 4)
    program = [simulation.wait_sent(users[40]), restart]
    write_card(image, tmp_path)
    log = simulation.run(tmp_path, image, packets, program, trace=False)
    seen = {p.number: p.data for p in log.departures}
    assert len(seen) == len(packets)
    failed = []
    for n in users:
        field = int.from_bytes(packets[n].frame.data[image.offset :][:8], "big")
        answer = FrameResult(0, field & 0xFFFF, field >> 16 & (1 << image.margin_w) - 1)
        failed.append(seen[n] == outcome(image, packets[n], [FrameResult(0, HOST, 0)]).data)
        assert failed[-1] or seen[n] == outcome(image, packets[n], [answer]).data
    assert failed.index(True) == 10
    assert not failed[-1]
    assert log.counters[1]["cut_off"] == sum(failed)
    others = mine(image, packets, [0])
    assert all(seen[n] == outcome(image, packets[n]).data for n in others)
    latency = log.latencies(others)
    assert max(latency) - min(latency) <= added_latency(image, image.graphs[0], longest=2)
