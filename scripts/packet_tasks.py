# SPDX-License-Identifier: Apache-2.0
"""Simulate chains of packet tasks on a card in Verilog, beside the figures of SuperNIC's text.

    python scripts/packet_tasks.py             # all tables
    python scripts/packet_tasks.py chains      # one: lengths, parallel, chains, sharing, store

All is simulated, in clocks, and needs Icarus Verilog. Encryption is not written: a dummy task of
ten clocks, which takes a packet in ten, stands in its place.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from n3ic.cli.console import print_note, print_result, table
from n3ic.errors import VerifyError
from n3ic.exporters.netfpga.packet.traffic import Frame
from n3ic.systems.card.frames import FrameResult
from n3ic.systems.card.netfpga import simulation, traffic
from n3ic.systems.card.netfpga.image import (
    CardGraph,
    CardRegion,
    CardTask,
    CardTenant,
    HardwarePass,
    NetfpgaCardImage,
    PacketStage,
    UserTask,
)
from n3ic.systems.card.netfpga.write import write_card
from n3ic.systems.card.simulation.report import Table
from n3ic.systems.card.tasks.cache.task import GET, SET
from n3ic.systems.card.tasks.kind import FRAME_HEAD, kind_of, started

_ALONE, _GAP = 4, 400  # packets alone, and the clocks before each
_TOGETHER = 150  # packets back to back
_SPIN = Path(__file__).with_name("spin.v")
_KEYS, _SKEW, _OPERATIONS = 100_000, 0.99, 100_000  # of YCSB, as in the text
_SHOWN = 1500  # operations in Verilog
_STORE = 0.1  # rate of the store's link over the card's, as in the text


def spin(clocks: int, every: int = 1) -> UserTask:
    """Make a dummy task."""
    name = f"spin_{clocks}_{every}"
    text = _SPIN.read_text().replace("spin_CLOCKS_EVERY", name)
    text = text.replace("CLOCKS", str(clocks)).replace("EVERY", str(every))
    return UserTask(name, ((f"{name}.v", text),), 64)


def stage(name: str) -> CardTask:
    """Make a packet task with a random table that denies nothing; ``aes`` is the dummy."""
    if name == "aes":
        return spin(10, 10)
    kind, rng = kind_of(name), np.random.default_rng(1)
    entries = {i: kind.random_entry(rng) for i in range(kind.entries)}
    if name == "firewall":
        entries = dict.fromkeys(entries, (0,) * kind.words)
    return PacketStage(f"t/{name}", name, entries)


@dataclass(frozen=True)
class Measured:
    """Clocks of a packet alone, from its last beat in to its last beat out; packets per clock."""

    latency: float
    rate: float


def measure(
    regions: Sequence[Sequence[CardTask]],
    branches: Sequence[Sequence[HardwarePass]],
) -> Measured:
    """Run packets of one graph through a card of its own."""
    graph = CardGraph("t/g", 0, 5001, 8, tuple(map(tuple, branches)), "most-certain")
    packets = _ALONE + _TOGETHER
    gaps = [_GAP] * _ALONE + [_GAP] + [0] * (_TOGETHER - 1)
    log = _run(regions, [graph], [0] * packets, gaps)
    clocks = [p.clock for p in log.departures][_ALONE:]
    half = len(clocks) // 4  # without the first ones, which fill the card
    rate = (len(clocks) - 1 - half) / (clocks[-1] - clocks[half])
    return Measured(float(np.mean(log.latencies(range(_ALONE)))), rate)


def _run(
    regions: Sequence[Sequence[CardTask]],
    graphs: Sequence[CardGraph],
    of: Sequence[int],
    gaps: Sequence[int],
    header: Callable[[int], bytes] | None = None,
) -> simulation.SimulationLog:
    """Send packets of graphs; ``header`` makes the tasks' own header of a packet, else 0."""
    image = NetfpgaCardImage(
        "t", (CardTenant("t", burst=4095),), tuple(graphs),
        tuple(CardRegion(tuple(tasks)) for tasks in regions), "udp-port",
    )  # fmt: skip
    rng = np.random.default_rng(0)
    packets = []
    for n, (g, gap) in enumerate(zip(of, gaps, strict=True)):
        body = bytearray(traffic.build(image, graphs[g], rng.bytes(8), rng))
        own = header(n) if header else bytes(image.header)
        body[image.offset - image.header : image.offset] = own
        packets.append(traffic.TrafficPacket(Frame(bytes(body)), gap=gap))
    with tempfile.TemporaryDirectory(prefix="n3ic-tasks-") as folder:
        write_card(image, Path(folder))
        log = simulation.run(Path(folder), image, packets, trace=False)
    tasks = traffic.tasks_of(image)
    outcomes = [traffic.outcome(image, p, [FrameResult(0, 0, 0)], tasks) for p in packets if header]
    if any(outcomes[p.number].data != p.data for p in log.departures if header):
        raise VerifyError("the card answers otherwise than the reference")
    return log


def _whole(count: int) -> tuple[tuple[HardwarePass, ...], ...]:
    return ((HardwarePass((0,), tuple(range(count))),),)


def _each(count: int) -> tuple[tuple[HardwarePass, ...], ...]:
    return (tuple(HardwarePass((r,)) for r in range(count)),)


def lengths() -> tuple[Table, Sequence[str]]:
    """Latency by length of a chain, whole, in two halves and task by task (figure 8)."""
    rows = []
    for clocks in (10, 50):
        for n in (2, 4, 7):
            tasks = [spin(clocks)] * n
            middle = (n + 1) // 2
            halves = (HardwarePass((0,), tuple(range(middle))),
                      HardwarePass((1,), tuple(range(n - middle))))  # fmt: skip
            one = measure([tasks], _whole(n))
            two = measure([tasks[:middle], tasks[middle:]], (halves,))
            apart = measure([[t] for t in tasks], _each(n))
            rows.append((str(clocks), str(n), *(f"{m.latency:.0f}" for m in (one, two, apart)),
                         f"{1 - one.latency / apart.latency:.0%}",
                         *(f"{m.rate:.3f}" for m in (one, apart))))  # fmt: skip
    head = ("clocks a task", "tasks", "whole", "two halves", "task by task", "saved",
            "packets a clock, whole", "task by task")  # fmt: skip
    return ("Clocks by length of a chain (figure 8)", head, tuple(rows)), ()


def parallel() -> tuple[Table, Sequence[str]]:
    """Latency by number of parallel tasks (figure 9), and rate by instances (figure 10)."""
    rows = []
    for clocks in (10, 50):
        for n in (2, 4):
            tasks = [spin(clocks)] * n
            series = measure([tasks], _whole(n))
            half = n // 2
            halves = [(HardwarePass((r,), tuple(range(half))),) for r in (0, 1)]
            two = measure([tasks[:half], tasks[half:]], halves)
            everything = measure([[t] for t in tasks], [(HardwarePass((r,)),) for r in range(n)])
            rows.append((str(clocks), str(n), *(f"{m.latency:.0f}" for m in
                         (series, two, everything)), *(f"{m.rate:.3f}" for m in
                         (series, everything))))  # fmt: skip
    for instances in (1, 2, 4):
        some = measure([[spin(50)]] * instances, ((HardwarePass(tuple(range(instances))),),))
        rows.append(("50", f"1 in {instances} regions", f"{some.latency:.0f}", "", "",
                     f"{some.rate:.3f}", ""))  # fmt: skip
    head = ("clocks a task", "tasks", "in series", "two parts", "all parallel",
            "packets a clock, series", "all parallel")  # fmt: skip
    return ("Clocks by parallel parts (figures 9 to 11)", head, tuple(rows)), (
        "A join is last on the card, so DAGa of figure 3, with a task after its join, is not here.",
    )


DAGS = {
    "A": ("firewall", "aes"),
    "B": ("firewall", "balancer", "aes"),
    "C": ("nat", "firewall", "balancer", "counters"),
    "D": ("nat", "firewall", "balancer", "counters", "transport", "aes"),
}


def chains() -> tuple[Table, Sequence[str]]:
    """The chains A to D (figures 12 and 13)."""
    rows = []
    for name, names in DAGS.items():
        tasks = [stage(n) for n in names]
        one, apart = (
            measure([tasks], _whole(len(tasks))),
            measure([[t] for t in tasks], _each(len(tasks))),
        )
        rows.append((name, " > ".join(names), f"{one.latency:.0f}", f"{apart.latency:.0f}",
                     f"{one.rate:.3f}", f"{apart.rate:.3f}"))  # fmt: skip
    most = [stage(n) for n in DAGS["D"][:-1]]
    two = measure([most, [spin(10, 10)], [spin(10, 10)]],
                  ((HardwarePass((0,), tuple(range(5))), HardwarePass((1, 2))),))  # fmt: skip
    rows.append(("D, two aes", "", f"{two.latency:.0f}", "", f"{two.rate:.3f}", ""))
    pair = measure([[stage(n) for n in DAGS["A"]]] * 2, ((HardwarePass((0, 1), (0, 1)),),))
    rows.append(("A in two regions", "", f"{pair.latency:.0f}", "", f"{pair.rate:.3f}", ""))
    head = ("chain", "tasks", "clocks, whole", "task by task", "packets a clock, whole",
            "task by task")  # fmt: skip
    return ("Clocks of the chains A to D (figures 12 and 13)", head, tuple(rows)), (
        "Our copy of the text lacks figure 5: what D has between its firewall and its encryption, "
        "and B and C, are ours.",
    )


def sharing() -> tuple[Table, Sequence[str]]:
    """A or C beside D, in D's region or in one of its own (figure 17)."""
    rows = []
    for name, places in (("A", (1, 5)), ("C", (0, 1, 2, 3))):
        for gap in (40, 20, 10):
            shares: list[str] = []
            for own in (False, True):
                whole = [stage(n) for n in DAGS["D"]]
                mine = [stage(n) for n in DAGS[name]]
                leg = (
                    HardwarePass((1,), tuple(range(len(mine))))
                    if own
                    else HardwarePass((0,), places)
                )
                graphs = [CardGraph("t/d", 0, 5001, 8, ((HardwarePass((0,), tuple(range(6))),),)),
                          CardGraph("t/new", 0, 5002, 8, ((leg,),))]  # fmt: skip
                of = [n % 2 for n in range(2 * _TOGETHER)]
                log = _run([whole, mine][: 1 + own], graphs, of, [gap // 2] * len(of))
                clocks = [p.clock for p in log.departures if of[p.number] == 1]
                added = np.mean(log.latencies(n for n in range(len(of)) if of[n]))
                shares += [f"{(len(clocks) - 1) / (clocks[-1] - clocks[0]):.4f}", f"{added:.0f}"]
            rows.append((name, str(gap), *shares))
    head = ("chain", "clocks between packets", "packets a clock, shared", "clocks",
            "own region", "clocks")  # fmt: skip
    return ("A and C beside D (figure 17)", head, tuple(rows)), (
        "Shared, the new chain takes no area. D and the new chain send equally many packets.",
    )


def store() -> tuple[Table, Sequence[str]]:
    """A load like YCSB's on the cache (figures 19 and 20)."""
    rows = []
    weights = np.arange(1, _KEYS + 1) ** -_SKEW
    for name, writes in (("A", 0.5), ("B", 0.05), ("C", 0.0)):
        rng = np.random.default_rng(0)
        keys = rng.permutation(_KEYS)[rng.choice(_KEYS, _OPERATIONS, p=weights / weights.sum())]
        sets = rng.random(_OPERATIONS) < writes
        state = started(kind_of("cache"), {})
        hits = 0
        sent: list[tuple[int, int]] = []
        for key, is_set in zip(keys.tolist(), sets.tolist(), strict=True):
            sent.append((SET if is_set else GET, key))
            hit = state.run(_request(*sent[-1]))
            hits += hit
            if not hit and not is_set:  # the store's answer passes the card, and is kept
                sent.append((2, key))
                state.run(_request(*sent[-1]))
        reached = 1 - hits / _OPERATIONS

        def header(n: int, sent: Sequence[tuple[int, int]] = sent) -> bytes:
            return bytes(_request(*sent[n])[FRAME_HEAD:])

        graph = CardGraph("t/g", 0, 5001, 0, _whole(1))
        log = _run([[stage("cache")]], [graph], [0] * _SHOWN, [20] * _SHOWN, header)
        clocks = float(np.mean(log.latencies(range(_SHOWN))))
        rows.append((name, f"{hits / max(1, int((~sets).sum())):.1%}", f"{clocks:.0f}",
                     f"{1 / max(reached, _STORE):.1f}"))  # fmt: skip
    head = ("load", "gets that hit", "clocks on the card", "requests over the store's own")
    return ("YCSB on the cache: 100,000 keys, Zipf 0.99 (figures 19 and 20)", head, tuple(rows)), (
        "Hits: 100,000 operations in the task's reference, which the Verilog equals on the first "
        f"{_SHOWN} packets. The last column is computed: the store's link has a tenth of "
        "the card's rate.",
    )


def _request(operation: int, key: int) -> bytearray:
    return bytearray(FRAME_HEAD) + bytes([operation]) + key.to_bytes(8, "big") + bytes(16)


EXPERIMENTS = {f.__name__: f for f in (lengths, parallel, chains, sharing, store)}


def main(words: Sequence[str] | None = None) -> None:
    """Run the experiments of the command line, and print their tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("experiment", choices=EXPERIMENTS, nargs="?", help="default: all")
    chosen = parser.parse_args(words).experiment
    for name in [chosen] if chosen else EXPERIMENTS:
        content, notes = EXPERIMENTS[name]()
        table(*content)
        for note in notes:
            print_note(note)
    print_result("All clocks are simulated, by Icarus Verilog.")


if __name__ == "__main__":
    main()
