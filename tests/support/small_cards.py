# SPDX-License-Identifier: Apache-2.0
"""Small cards, and the comparison of what leaves them with what must."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from n3ic.exporters.netfpga.packet.traffic import Frame
from n3ic.exporters.netfpga.sequential import layout as sequential_layout
from n3ic.model.inputs import Field, InputSpec
from n3ic.model.network import BinaryModel
from n3ic.model.random_models import random_model
from n3ic.systems.card.frames import FrameResult, words_of
from n3ic.systems.card.netfpga import changes, simulation, traffic
from n3ic.systems.card.netfpga.image import (
    RATE_UNIT,
    CardGraph,
    CardRegion,
    CardTenant,
    CoreTask,
    HardwarePass,
    HardwareRule,
    InputTask,
    NetfpgaCardImage,
    UserTask,
)
from n3ic.systems.card.netfpga.traffic import ExpectedOutcome, TrafficPacket, outcome

INVERT = """
// Answers each packet with its input inverted.
module invert (
    input wire aclk, input wire aresetn,
    input wire [63:0] s_axis_tdata, input wire s_axis_tvalid, output wire s_axis_tready,
    input wire s_axis_tlast,
    output reg [63:0] m_axis_tdata, output reg m_axis_tvalid, input wire m_axis_tready,
    output reg m_axis_tlast
);
    assign s_axis_tready = !m_axis_tvalid || m_axis_tready;
    always @(posedge aclk) begin
        if (s_axis_tready) begin
            m_axis_tdata  <= ~s_axis_tdata;
            m_axis_tvalid <= s_axis_tvalid;
            m_axis_tlast  <= s_axis_tlast;
        end
        if (!aresetn) m_axis_tvalid <= 1'b0;
    end
endmodule
"""
SPEC = InputSpec(
    (
        Field.thermometer("bytes", (1, 7, 30, 33, 2**31, 2**32 - 1)),
        Field.binary("packets", 16),
        Field("rate", "binary", 8, 200),
        Field.thermometer("packets", (2, 5, 60)),
        Field.binary("gap", 7),
    )
)


def net(shape: tuple[int, ...], seed: int) -> BinaryModel:
    """A random network whose classes all occur."""
    return random_model(shape, np.random.default_rng(seed), extremes=False)


def core(*models: BinaryModel) -> CoreTask:
    """A sequential executor that networks of one shape share."""
    layouts = [
        sequential_layout.plan(m, packing="balanced", modules=1, tables=False) for m in models
    ]
    return CoreTask(models, layout=sequential_layout.shared(layouts))


def two_tenants(**options: object) -> NetfpgaCardImage:
    """A tenant with three networks in one executor, and one with a network of its own."""
    alpha = [net((24, 8, 2), seed) for seed in (1, 2, 3)]
    graphs = [
        CardGraph(f"alpha/{i}", 0, 1 + i, 3, ((HardwarePass((0,), model=i),),)) for i in range(3)
    ]
    graphs.append(CardGraph("beta/net", 1, 9, 5, ((HardwarePass((1,)),),)))
    regions = (CardRegion((core(*alpha),)), CardRegion((core(net((40, 8, 4, 3), 4)),)))
    tenants = (CardTenant("alpha"), CardTenant("beta"))
    return NetfpgaCardImage("two", tenants, tuple(graphs), regions, **options)  # type: ignore[arg-type]


def guarded(*, shared: bool = False) -> NetfpgaCardImage:
    """Two tenants; the second one's graph is open to port 4 alone.

    The first one's rate is low; or it is not, and both use one executor.
    """
    image = two_tenants()
    beta = replace(image.graphs[3], sources=4)
    if shared:
        beta = replace(beta, input_bytes=3, branches=((HardwarePass((0,), model=2),),))
    rate = RATE_UNIT if shared else RATE_UNIT // 20
    tenants = (CardTenant("alpha", rate, burst=48), CardTenant("beta"))
    return replace(image, graphs=(*image.graphs[:3], beta), tenants=tenants)


def everything(**options: object) -> NetfpgaCardImage:
    """Three tenants with all that a graph can have."""
    alpha = core(*(net((24, 8, 2), seed) for seed in (1, 2, 3)))
    base = net((40, 8, 4, 3), 4)
    featured = BinaryModel(SPEC, base.hidden, base.output, base.classes, name="features")
    chain = (InputTask(featured), core(featured))
    invert = UserTask("invert", (("invert.v", INVERT),), bits=64)
    unrolled = CoreTask((net((24, 6, 3), 5),), style="unrolled")
    one = partial(HardwarePass, model=0)
    graphs = (
        CardGraph(
            "alpha/vote", 0, 1, 3, tuple((HardwarePass((0,), model=i),) for i in range(3)), "vote",
            rules=(HardwareRule((1,), drop=True),),
        ),
        CardGraph(
            "alpha/certain", 0, 2, 3, ((HardwarePass((0,), model=1),), (one((3,)),)),
            "most-certain",
            rules=(HardwareRule(margin=3, to=4, copy=16),),
        ),
        CardGraph("beta/features", 1, 9, 16, ((one((1, 4), (0, 1)),),)),
        CardGraph("beta/bits", 1, 10, 5, ((one((1, 4), (1,)),),), sources=2),
        CardGraph("gamma/both", 2, 11, 3, ((one((0,)),), (one((3,)),))),
        CardGraph("gamma/user", 2, 12, 8, ((one((2,)),),)),
        CardGraph("gamma/user, net", 2, 13, 8, ((one((2,)), one((3,))),)),
    )  # fmt: skip
    regions = tuple(CardRegion(tasks) for tasks in ((alpha,), chain, (invert,), (unrolled,), chain))
    tenants = tuple(CardTenant(name) for name in ("alpha", "beta", "gamma"))
    return NetfpgaCardImage("all", tenants, graphs, regions, **options)  # type: ignore[arg-type]


def chains(**options: object) -> NetfpgaCardImage:
    """Regions of an input stage and two executors; branches, instances and several passes."""
    base, other = net((40, 8, 4, 3), 4), net((40, 6, 3), 9)
    first = BinaryModel(SPEC, base.hidden, base.output, base.classes, name="first")
    second = BinaryModel(SPEC, other.hidden, other.output, other.classes, name="second")
    region = CardRegion((InputTask(first), core(first), core(second)))
    one, two = HardwarePass((0,), (0, 1)), HardwarePass((0,), (0, 2))
    anywhere = (
        (HardwarePass((0, 1), (0, 1)),),
        (HardwarePass((0, 1), (0, 2)),),
        (HardwarePass((1,), (0, 2)),),
    )
    graphs = (
        CardGraph("alpha/both", 0, 1, 16, ((one,), (two,))),
        CardGraph("beta/vote", 1, 2, 16, anywhere, "vote"),
        CardGraph("beta/bits", 1, 3, 5, ((HardwarePass((1,), (2,)),),)),
        CardGraph(
            "gamma/passes", 2, 4, 16, ((HardwarePass((0,), (0,)), HardwarePass((1,), (1,))),)
        ),
    )
    tenants = tuple(CardTenant(name) for name in ("alpha", "beta", "gamma"))
    return NetfpgaCardImage("chains", tenants, graphs, (region, region), **options)  # type: ignore[arg-type]


def expected(image: NetfpgaCardImage, packet: TrafficPacket) -> ExpectedOutcome:
    """What must come of a packet, with the user's task of :func:`everything`."""
    index = traffic.named(image, packet)
    if index is None or not image.graphs[index].name.startswith("gamma/user"):
        return outcome(image, packet)
    field = packet.frame.data[image.offset :][: image.graphs[index].input_bytes]
    answer = int.from_bytes(field, "big") ^ (1 << 8 * len(field)) - 1
    if image.graphs[index].name == "gamma/user":
        margin = answer >> 16 & (1 << image.margin_w) - 1
        return outcome(image, packet, [FrameResult(0, answer & 0xFFFF, margin)])
    network = image.regions[3].tasks[0].models[0]  # type: ignore[union-attr]
    words = words_of(network, [answer.to_bytes(8, "big")[-3:]], features=False)
    return outcome(image, packet, [traffic.result_of(network, words)])


def ask(
    image: NetfpgaCardImage, graph: int, rng: np.random.Generator, *, tail: int = 0, **place: int
) -> TrafficPacket:
    """A packet that asks a graph about a random input."""
    chosen = image.graphs[graph]
    body = traffic.build(image, chosen, rng.bytes(chosen.input_bytes), rng)
    return TrafficPacket(Frame(body + rng.bytes(tail)), **place)


def mixed(image: NetfpgaCardImage, count: int, gap: int, seed: int = 0) -> list[TrafficPacket]:
    """Packets of all graphs in random order, some cut short, from two ports."""
    rng = np.random.default_rng(seed)
    packets = []
    for _ in range(count):
        graph = int(rng.integers(len(image.graphs)))
        place = {"source": int(rng.choice([1, 2])), "gap": int(rng.integers(gap))}
        packet = ask(image, graph, rng, tail=int(rng.integers(80)), **place)
        if rng.random() < 0.1:
            short = packet.frame.data[: int(rng.integers(1, image.need))]
            packet = TrafficPacket(Frame(short), **place)
        packets.append(packet)
    return packets


def check(
    image: NetfpgaCardImage,
    packets: Sequence[TrafficPacket],
    log: simulation.SimulationLog,
    of: Callable[[NetfpgaCardImage, TrafficPacket], ExpectedOutcome] = expected,
) -> list[ExpectedOutcome]:
    """Every packet that left is what it must be, in its tenant's order; none is lost uncounted."""
    outcomes = [of(image, packet) for packet in packets]
    for seen in log.departures:
        outcome_expected = outcomes[seen.number]
        assert seen.data == outcome_expected.data, (seen.number, outcome_expected.graph)
        assert not outcome_expected.dropped, seen.number
        assert outcome_expected.to is None or seen.user >> 24 & 0xFF == outcome_expected.to
    for tenant in [*range(len(image.tenants)), None]:
        mine = [i for i, o in enumerate(outcomes) if o.tenant == tenant]
        left = [p.number for p in log.departures if outcomes[p.number].tenant == tenant]
        assert left == sorted(set(left))
        counted = log.counters[len(image.tenants) if tenant is None else tenant]
        assert counted["admitted"] + counted["overflow"] == len(mine)
        assert counted["left"] == counted["admitted"]
        dropped = sum(outcomes[i].dropped for i in mine)
        assert len(left) <= counted["left"] <= len(left) + dropped
    return outcomes


def read_change(path: Path) -> list[simulation.Operation]:
    """The operations of a change's file, as the card's driver reads them."""
    _, lines = changes._CHANGE.read(path)
    numbers = [line.partition(" # ")[0].split() for line in lines]
    return [(int(k, 16), int(a, 16), int(b, 16), int(c, 16)) for k, a, b, c in numbers]
