# SPDX-License-Identifier: Apache-2.0
"""``n3ic bench xdp``: nanoseconds that network and meter add to a packet in this kernel.

Every program must give the model's scores on all its inputs before it is timed. The timed call is
``BPF_PROG_TEST_RUN``: no driver, no DMA, and the packet is in the cache. 1,024 inputs at and next
to the cuts take turns. Each figure is the difference from a program that only parses the packet and
reads the features; the two programs alternate. Packets per second over a link come from
:mod:`~n3ic.exporters.xdp.veth_bench`.
"""

from __future__ import annotations

import platform
import statistics
import struct
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import MissingDependencyError, VerifyError
from n3ic.exporters.host.machine import cpu_name
from n3ic.exporters.xdp import veth_bench
from n3ic.exporters.xdp.layout import FOR_EVER, SUBJECT, USES, VERDICT
from n3ic.exporters.xdp.libbpf import BpfError, BpfObject, BpfProgram
from n3ic.exporters.xdp.network.kernel_run import INPUTS, BpfNetwork
from n3ic.exporters.xdp.network.structure import structure_of
from n3ic.exporters.xdp.network.sums import GRAPHS, Structure, input_of, kernel_of
from n3ic.exporters.xdp.network.values import layout, value_bytes
from n3ic.exporters.xdp.program import Clock, MeterPrograms
from n3ic.exporters.xdp.source import (
    METER,
    TABLES,
    Table,
    compile_program,
    meter_program,
    test_program,
)
from n3ic.exporters.xdp.verdict_lists import ACTIONS, verdict_subject
from n3ic.families.tables.random_models import random_tables
from n3ic.meter.standard import standard_spec
from n3ic.model.classifier import Classifier
from n3ic.model.family import family
from n3ic.model.inputs import UINT32_MAX, Field, InputSpec
from n3ic.model.meter_spec import Decision, MeterSpec
from n3ic.model.network import BinaryModel
from n3ic.model.passes import unchanged
from n3ic.model.random_models import random_model
from n3ic.model.verification_vectors import boundary_features
from n3ic.targets.figures import Bench

ROUNDS = 31
REPEAT = 50_000
CUTS, FEATURES = 256, 50
HIDDEN = (32, 16, 2)
TABLE_COUNT, TABLE_BITS = 52, 5
METER_AIM = 20  # nanoseconds per packet that is only counted
RATE_AIM = 12  # million packets per second, with a decision every 16 packets
FEW, MANY = 1000, 60_000  # flows that take turns
MANY_AIM = 5  # million packets per second of many flows, counted
FLOWS = "flows_bench.c"
_VERDICTS = 16_384
_TABLE_FLOWS = {FEW: 2_000, MANY: 65_536}  # table size, by the flows that take turns
_WAYS: tuple[tuple[Clock, bool, int], ...] = (
    ("kernel", True, FEW), ("coarse", True, FEW), ("coarse", False, FEW), ("coarse", True, MANY),
)  # fmt: skip
"""Clock, whether flows are locked, and number of flows that take turns."""
_DROP, _PASS = 1, 2  # XDP_DROP, XDP_PASS
_SOURCES = 1000  # number of different source addresses in the packets
_IN_USE: tuple[tuple[str, tuple[str, ...], bool], ...] = (
    ("no verdicts", (), False),
    ("other hosts are blocked", ("hosts",), False),
    ("1,000 prefixes are allowed", ("allowed",), False),
    ("flows, hosts, prefixes of any kind", USES[1:], False),
    ("each packet's host is blocked", ("hosts",), True),
)
"""Description, maps that are marked as used, and whether the packets are dropped."""
_ETHERNET = bytes(12)
_IPV4 = bytes.fromhex("45000028000000004006 0000 0a000001 0a000002")
_TCP = bytes.fromhex("c0000050 00000001 00000001 50100400 00000000")  # ACK
_OF_A_FLOW = _ETHERNET + b"\x08\0" + _IPV4 + _TCP + bytes(6)


@dataclass(frozen=True)
class NetworkTiming:
    """Cost of a network per packet.

    Attributes:
        name: description of the input.
        shape: the network's shape.
        aim: target in nanoseconds; None without a target.
        least: smallest difference over the rounds, in nanoseconds.
        median: median difference, in nanoseconds.
        instructions: number of the program's instructions, including the few for parsing.
        verified: number of instructions that the verifier processed.
        value_bytes: size of the map value in bytes.
    """

    name: str
    shape: str
    aim: float | None
    least: int
    median: float
    instructions: int
    verified: int
    value_bytes: int


@dataclass(frozen=True)
class Timing:
    """Cost of a program per packet: the difference from another program in the same rounds.

    Attributes:
        least: smallest difference over the rounds, in nanoseconds.
        median: median difference, in nanoseconds.
        total: median nanoseconds per packet, including the kernel's loop.
        ratio: ``total`` divided by that of the other program.
    """

    least: int
    median: float
    total: float
    ratio: float

    @staticmethod
    def figures(times: Sequence[int], other: Sequence[int]) -> tuple[int, float, float, float]:
        """Compute the attributes from the two programs' nanoseconds in each round."""
        differences = [a - b for a, b in zip(times, other, strict=True)]
        total = statistics.median(times)
        ratio = total / max(1, statistics.median(other))
        return min(differences), statistics.median(differences), total, ratio


@dataclass(frozen=True)
class MeterTiming(Timing):
    """Cost of the metering program on top of a program with only the same parser.

    Attributes:
        decides: whether each flow is decided at every 16th of its packets.
        table: the flow table.
        clock: source of packet times.
        locked: whether a CPU locks the flow while it counts a packet.
        flows: number of flows whose packets take turns.
    """

    decides: bool
    table: str
    clock: str
    locked: bool
    flows: int


@dataclass(frozen=True)
class VerdictTiming(Timing):
    """Cost of the verdict maps, for 1,000 flows, on top of the same program without verdicts.

    Attributes:
        name: description of what the maps hold.
    """

    name: str


@dataclass(frozen=True)
class XdpBench:
    """Results of :func:`bench_xdp`, all measured in one run on one CPU.

    Attributes:
        cpu: the CPU's name.
        kernel: the kernel's release.
        base: median nanoseconds of the program that only parses and reads, including the kernel's
            loop.
        timings: one entry per network.
        meters: one entry per flow table and clock, with and without the lock, with decisions, and
            for many flows.
        parser: median nanoseconds of parsing a packet, on top of passing it.
        generator: median nanoseconds per generated packet without a receiver; 0 if not measured.
        wire: timings at the end of a link, native and generic.
        skipped: why ``wire`` is empty; empty if it is not.
        verdicts: one entry per content of the verdict maps, starting with no verdicts.
    """

    cpu: str
    kernel: str
    base: float
    timings: tuple[NetworkTiming, ...]
    meters: tuple[MeterTiming, ...]
    parser: float
    generator: float
    wire: tuple[veth_bench.WireTiming, ...]
    skipped: str
    verdicts: tuple[VerdictTiming, ...] = ()


@dataclass(frozen=True)
class _Metering:
    """A metering program of the standard meter, with a network over all its features."""

    decides: bool
    table: Table
    spec: MeterSpec
    structure: Structure
    value: bytes
    image: bytes

    @classmethod
    def build(cls, decides: bool, table: Table) -> Self:
        decision = Decision(packets=16, repeat=True) if decides else Decision()
        spec = replace(standard_spec(), decision=decision)
        units = [(feature.name, feature.unit) for feature in spec.features]
        model = spread_model(units, (1 << 8, 1 << 15, 1 << 31), np.random.default_rng(0))
        structure = structure_of([model])
        image = compile_program(meter_program(spec, structure, per_cpu=False, table=table), METER)
        return cls(decides, table, spec, structure, value_bytes(structure, model), image)

    def load(self, clock: Clock, locked: bool, turns: int = FEW) -> MeterPrograms:
        """Load the program, with its model in slot 0 and room for ``turns`` flows."""
        loaded = MeterPrograms(
            self.image,
            METER,
            self.spec,
            self.structure,
            clock=clock,
            locked=locked,
            events=False,
            flows=_TABLE_FLOWS[turns],
            verdicts=_VERDICTS,
            table=self.table,
        )
        loaded.set_model(0, self.value)
        return loaded


def bench_xdp(
    model: Classifier,
    *,
    rounds: int = ROUNDS,
    repeat: int = REPEAT,
    packets: int = veth_bench.PACKETS,
) -> XdpBench:
    """Measure a network from its bits and from its features, beside reference networks.

    Args:
        model: the network.
        rounds: number of timings of each program.
        repeat: packets per round.
        packets: packets per turn at the end of a link.

    Raises:
        MissingDependencyError: clang or libbpf is missing.
        VerifyError: a program's scores differ from the model's.
        BpfError: the kernel refuses a program, or the process lacks a right.
    """
    rng = np.random.default_rng(0)
    cases: list[tuple[str, Classifier, bool, float | None]] = []
    networks = [("", model)]
    if kernel_of(model) == GRAPHS and model.input.n_bits >= TABLE_BITS:
        size = (TABLE_BITS, TABLE_BITS)
        tables = random_tables(rng, spec=model.input, tables=TABLE_COUNT, inputs=size)
        networks.append((", look-up tables", tables))
    if model.family != BinaryModel.family:
        shape = (model.input.n_bits, *HIDDEN[:-1], len(model.classes))
        networks.append(
            (", binary", random_model(shape, rng, extremes=False).with_input(model.input))
        )
    for of, network in networks:
        aim = 45.0 if network.shape == (CUTS, *HIDDEN) else None
        cases.append((f"bits{of}", network, True, aim))
        if any(field.cuts for field in network.input.fields):
            cases.append((f"its features{of}", network, False, None))
    tops, many = (1 << 8, 1 << 15, 1 << 31), _named(FEATURES)
    cases += [
        (f"{CUTS} cuts of {FEATURES} features", spread_model(many, tops, rng), False, 75.0),
        ("the same, all below 2^8", spread_model(many, tops[:1], rng), False, 65.0),
        (f"{CUTS} cuts of 16 features", spread_model(_named(16), tops, rng), False, None),
    ]
    timings, bases = [], []
    for name, network, bits, aim in cases:
        timing, bare = _measure(name, network, bits, aim, rounds, repeat)
        timings.append(timing)
        bases += bare
    base = statistics.median(bases)
    meterings = [_Metering.build(decides, table) for decides in (False, True) for table in TABLES]
    meters, parser = _meters(meterings, rounds, repeat)
    counting = next(m for m in meterings if m.table == "buckets" and not m.decides)
    generator, over_link, skipped = _wire([m for m in meterings if m.table == "lru"], packets)
    return XdpBench(
        cpu_name(),
        platform.release(),
        base,
        tuple(timings),
        meters,
        parser,
        generator,
        over_link,
        skipped,
        _verdicts(counting, rounds, repeat),
    )


def _verdicts(metering: _Metering, rounds: int, repeat: int) -> tuple[VerdictTiming, ...]:
    """Time one metering program with different verdicts in its maps, in turn."""
    image = compile_program(test_program(FLOWS), FLOWS)
    verdict = np.zeros(1, VERDICT)
    verdict["until"], verdict["bits"], verdict["weight"] = FOR_EVER, 24, 1
    verdict["action"] = ACTIONS.index("drop")
    wide = verdict.tobytes()
    times_of: dict[str, list[int]] = {name: [] for name, *_ in _IN_USE}
    with BpfObject(image, FLOWS) as flows, metering.load("coarse", True) as loaded:
        sources = np.zeros(_SOURCES, SUBJECT)
        sources["bits"], sources["address_bytes"] = 32, 4
        words = sources["address"].view("<u4")
        for i in range(2 * _SOURCES):  # the packets' sources are 0 to 999; these follow
            words[i % _SOURCES, 0] = i + _SOURCES
            loaded.maps["hosts"].update(sources[i % _SOURCES].tobytes(), wide)
            text = f"10.{i >> 8}.{i & 255}.0/24"
            put_prefix = "allowed" if i % 2 else "listed"
            loaded.maps[put_prefix].update(verdict_subject(text, metering.spec).key, wide)
        for _ in range(rounds):
            for name, kinds, first in _IN_USE:
                for i in range(_SOURCES if first else 0):
                    words[i, 0] = i
                    loaded.maps["hosts"].update(sources[i].tobytes(), wide)
                for i, kind in enumerate(USES):
                    used = FOR_EVER if kind in kinds or (kinds and not i) else 0
                    loaded.maps["uses"].update(i, used.to_bytes(8, "little"))
                result = _DROP if first else _PASS
                times_of[name].append(_spread(flows, loaded.program, repeat, result))
                for i in range(_SOURCES if first else 0):
                    loaded.maps["hosts"].delete(sources[i].tobytes())
    none = times_of[_IN_USE[0][0]]
    return tuple(
        VerdictTiming(*Timing.figures(some, none), name) for name, some in times_of.items()
    )


def _wire(
    meterings: Sequence[_Metering], packets: int
) -> tuple[float, tuple[veth_bench.WireTiming, ...], str]:
    """Measure the generator and the programs over a link, or say why that is impossible."""
    with ExitStack() as stack:
        metered = [
            (
                "meters, decides at each 16th packet" if metering.decides else "meters",
                stack.enter_context(metering.load("kernel", locked=True)),
            )
            for metering in meterings
        ]
        try:
            return *veth_bench.measure(_OF_A_FLOW, metered, packets=packets), ""
        except (MissingDependencyError, BpfError) as error:
            return 0.0, (), str(error)


def _meters(
    meterings: Sequence[_Metering], rounds: int, repeat: int
) -> tuple[tuple[MeterTiming, ...], float]:
    """Time the metering programs, and the cost of parsing in nanoseconds."""
    image = compile_program(test_program(FLOWS), FLOWS)
    timings, parsers = [], []
    for metering in meterings:
        for clock, locked, count in _WAYS:
            with BpfObject(image, FLOWS) as flows, metering.load(clock, locked, count) as loaded:
                flows.maps[".data.turn"].update(0, struct.pack("=II", 0, count))
                for _ in range(-(-2 * count // repeat)):
                    _spread(flows, loaded.program, repeat)  # creates the flows
                turns = (flows.programs["pass"], flows.programs["parse"], loaded.program)
                samples = [
                    [_spread(flows, program, repeat) for program in turns] for _ in range(rounds)
                ]
            passed, parsed, metered = zip(*samples, strict=True)
            parsers += [parse - nothing for nothing, parse in zip(passed, parsed, strict=True)]
            figures = Timing.figures(metered, parsed)
            way = (metering.table, clock, locked, count)
            timings.append(MeterTiming(*figures, metering.decides, *way))
    return tuple(timings), statistics.median(parsers)


def _spread(flows: BpfObject, program: BpfProgram, repeat: int, result: int = 2) -> int:
    """Return a program's nanoseconds per packet, averaged over many flows."""
    flows.maps["measured"].update(0, program.fd)
    done = flows.programs["spread"].test_run(_OF_A_FLOW, repeat=repeat)
    if done.result != result:
        raise VerifyError(f"{program.name} gave {done.result} for a packet of a flow")
    return done.nanoseconds


def spread_model(
    features: Sequence[tuple[str, str]], tops: tuple[int, ...], rng: np.random.Generator
) -> BinaryModel:
    """Make a random 256-32-16-2 network over thermometers of different sizes.

    Args:
        features: names and units; the features have 256 cuts in all.
        tops: upper bounds of the cuts, used in turn.
        rng: source of randomness.
    """
    spare = CUTS - len(features)
    counts = 1 + rng.multinomial(spare, np.full(len(features), 1 / len(features)))
    fields = []
    for i, ((name, unit), count) in enumerate(zip(features, counts, strict=True)):
        top = tops[i % len(tops)]
        grid = rng.choice(np.arange(1, 256), int(count), replace=False) * (top // 256)
        fields.append(Field.thermometer(name, sorted(int(cut) for cut in grid), unit=unit))
    model = random_model((CUTS, *HIDDEN), rng, extremes=False)
    return model.with_input(InputSpec(tuple(fields)))


def _named(count: int) -> list[tuple[str, str]]:
    return [(f"f{i}", "") for i in range(count)]


def _measure(
    name: str, model: Classifier, bits: bool, aim: float | None, rounds: int, repeat: int
) -> tuple[NetworkTiming, list[int]]:
    structure = structure_of([model], bits=bits)
    features = _bit_inputs(model) if bits else _inputs(model.input)
    value = value_bytes(structure, model)
    with BpfNetwork.load(structure, keep_rows=False) as loaded:
        got = loaded.run(value, features)
        want = model.infer(input_of(structure, model).encode_words(features))
        if not np.array_equal(got.scores, want.scores):
            raise VerifyError(f"{name}: the program does not give the model's scores")
        loaded.differences(1, repeat)  # warms up
        differences, base = loaded.differences(rounds, repeat)
        timing = NetworkTiming(
            name,
            model.shape_text,
            aim,
            min(differences),
            statistics.median(differences),
            loaded.program.instructions,
            loaded.program.verified,
            layout(structure).bytes,
        )
    return timing, base


def _inputs(spec: InputSpec) -> dict[str, NDArray[np.int64]]:
    """Return inputs at the cuts and one below and above, without the ends of the range."""
    rng = np.random.default_rng(1)
    return {
        name: rng.choice(values[(values > 0) & (values < UINT32_MAX)], INPUTS)
        for name, values in boundary_features(spec).items()
    }


def _bit_inputs(model: Classifier) -> dict[str, NDArray[np.uint32]]:
    words = family(model.family).vectors(unchanged(model), INPUTS, seed=0)
    words = words[np.random.default_rng(1).permutation(len(words))[:INPUTS]]
    return {f"x{i}": column for i, column in enumerate(words.T)}


def render(result: XdpBench) -> Bench:
    """Render the measurements as tables and as plain data."""
    columns = ("input", "network", "least", "median", "aim", "instructions", "verified", "bytes")
    rows = tuple(
        (
            t.name,
            t.shape,
            f"{t.least:,}",
            f"{t.median:,.0f}",
            "" if t.aim is None else f"{t.aim:,.0f}",
            f"{t.instructions:,}",
            f"{t.verified:,}",
            f"{t.value_bytes:,}",
        )
        for t in result.timings
    )
    title = f"from input to verdict on {result.cpu}: ns more than a program that parses, measured"
    over_link = (
        f"Nothing is measured over a link: {result.skipped}"
        if result.skipped
        else "Over the link the generator (live frames of BPF_PROG_TEST_RUN) alone took "
        f"{result.generator:,.0f} ns of a packet; programs took turns, kernel clock and locks."
    )
    notes = (
        f"Kernel {result.kernel}, BPF_PROG_TEST_RUN, {INPUTS:,} inputs in turn, on the cuts and "
        "beside them; each program gave the model's scores on them before it was timed.",
        f"The program that only parses and reads the input took {result.base:,.0f} ns, the "
        "kernel's loop around it included. No driver and no DMA is in the test runs' figures.",
        "Metering is by the standard meter, with its five windows over the last 100 flows and a "
        "256-32-16-2 network over all its features. Parsing by the same parser, which the figures "
        f"of metering leave out, took {result.parser:,.0f} ns more than passing the packet.",
        "Other work on the machine makes the median larger; the least is of the quietest round.",
        over_link,
    )
    metering = (
        "metering packets: ns more than a program that parses them, measured",
        (
            *("decided", "flows", "table", "clock", "lock", "least", "median", "aim", "in all"),
            *("times parsing", "million packets/s", "aim"),
        ),
        tuple(
            (
                "at each 16th packet" if m.decides else "at its end",
                f"{m.flows:,}",
                m.table,
                m.clock,
                "a flow" if m.locked else "none",
                f"{m.least:,}",
                f"{m.median:,.0f}",
                "" if m.decides or m.flows > FEW else f"{METER_AIM}",
                f"{m.total:,.0f}",
                f"{m.ratio:.1f}",
                f"{1e3 / m.total:,.1f}",
                f"{MANY_AIM}" if m.flows > FEW else f"{RATE_AIM}" if m.decides else "",
            )
            for m in result.meters
        ),
    )
    link = (
        "packets of 1,000 flows over a veth pair to a program that drops them, on one core, "
        "generator and link included, measured",
        ("mode", "program", "million packets/s", "of only drops", "ns", "more", "lost"),
        tuple(
            (
                w.mode,
                w.name,
                f"{w.mpps:,.2f}",
                f"{w.ratio:.0%}",
                f"{w.median:,.0f}",
                f"{w.difference:,.0f}",
                f"{w.lost:.1%}",
            )
            for w in result.wire
        ),
    )
    verdicts = (
        "verdicts that outlive flows, looked up before the meter (buckets, coarse clock): ns more "
        "than without, measured",
        ("in the maps", "least", "median", "in all"),
        tuple((v.name, f"{v.least:,}", f"{v.median:,.0f}", f"{v.total:,.0f}")
              for v in result.verdicts),
    )  # fmt: skip
    data = asdict(result) | {"kind": "measured", "unit": "ns"}
    tables = (
        (title, columns, rows),
        metering,
        *((verdicts,) if result.verdicts else ()),
        *((link,) if result.wire else ()),
    )
    return Bench(tables, notes, data)
