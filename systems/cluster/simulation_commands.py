# SPDX-License-Identifier: Apache-2.0
"""The work and the output of ``n3ic cluster simulate``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from n3ic.cli.console import print_json, print_note, print_result, progress_bar, spinner, table
from n3ic.errors import MissingDependencyError, UsageError
from n3ic.systems.cluster.mpi.baseline import Messages, MpiMeasurement, measure, on_cores
from n3ic.systems.cluster.simulation.experiments import (
    CLAIMS,
    NodeModel,
    Point,
    fcsn_card,
    shrunk,
    slower,
    sweep,
)
from n3ic.systems.cluster.simulation.workloads import GRAPHS, KERNELS, KernelProblem, workload
from n3ic.systems.outputs import write_picture

_CLAIM_NODES = (4, 16)
_CLAIM_RANKS = 16


def problems(names: Sequence[str], size: int, graph: str, seed: int) -> tuple[KernelProblem, ...]:
    """Return the requested problems.

    Raises:
        UsageError: A kernel or graph is unknown.
    """
    for name in names:
        if name not in KERNELS:
            raise UsageError(f"--kernel: expected one of {', '.join(KERNELS)}, got {name!r}")
    if graph not in GRAPHS:
        raise UsageError(f"--graph: expected one of {', '.join(GRAPHS)}, got {graph!r}")
    return tuple(
        KernelProblem(name, size=size, graph=GRAPHS[graph], seed=seed) for name in names or KERNELS
    )


def counts(text: str) -> tuple[int, ...]:
    """Parse numbers of nodes such as ``1,4,16``.

    Raises:
        UsageError: The text is not a list of numbers of nodes.
    """
    words = text.split(",")
    if not all(w.isascii() and w.isdigit() and 1 <= int(w[:5]) <= 254 for w in words):
        raise UsageError(f"--nodes: expected numbers in 1..254 such as 1,4,16, got {text!r}")
    return tuple(int(w) for w in words)


def card(target: str, link: str, figures: str | None) -> NodeModel:
    """Return the nodes of the simulation."""
    from n3ic.systems.cluster.figures import figures_of

    if figures == "fcsn":
        return replace(fcsn_card(), link=link)
    return NodeModel(target, link, None if figures is None else figures_of(Path(figures)))


def calibrate(path: Path) -> None:
    """Measure a process node and write its clocks."""
    import platform

    from n3ic.systems.cluster.simulation.calibration import measure_node
    from n3ic.util.files import write_atomic

    with spinner("measuring a process node"):
        found = measure_node()
    write_atomic(path, found.toml(f"{platform.machine()} with Linux {platform.release()}"))
    print_result(
        f"{path} written; from process to process a datagram takes {found.hop / 1e3:.0f} us "
        "(latency_us of nodes.toml)"
    )


def planned(path: Path, rows: int, json: bool) -> None:
    """Simulate a planned model: a single row, and many rows in flight."""
    from n3ic.systems.cluster.costs import estimate_cost
    from n3ic.systems.cluster.node import ROW_SLOTS
    from n3ic.systems.cluster.plan import read_plan
    from n3ic.systems.cluster.simulation.components import sim_nodes
    from n3ic.systems.cluster.simulation.engine import simulate_rows
    from n3ic.systems.cluster.simulation.placed_model import row_workload

    placement, cluster = read_plan(path)
    nodes = sim_nodes(cluster)
    with spinner("simulating"):
        # One slot: a row alone on the ring, for the latency; the second run fills all slots.
        alone = simulate_rows([row_workload(placement, 0, nodes)], nodes, slots=1)
        work = [row_workload(placement, row, nodes) for row in range(rows)]
        many = simulate_rows(work, nodes, slots=ROW_SLOTS)
    estimate = estimate_cost(placement, cluster)
    found = {
        "kind": "simulated",
        "rows": rows,
        "latency_s": alone.seconds,
        "rows_per_s": rows / many.seconds,
        "packets": alone.packets,
        "plan": {"kind": "estimated"} | asdict(estimate),
        "busy": {
            n.name: {"handler": h, "kernel": k, "link": li}
            for n, h, k, li in zip(nodes, many.handler, many.kernel, many.link, strict=True)
        },
    }
    if json:
        print_json(found)
        return
    table(
        f"{rows} rows, simulated, and the plan",
        ["", "a row alone", "rows/s", "packets a row"],
        [
            ["simulated", f"{alone.seconds * 1e6:,.1f} us", f"{rows / many.seconds:,.0f}",
             f"{alone.packets:,}"],
            ["plan, estimated", f"{estimate.latency_s * 1e6:,.1f} us",
             f"{estimate.rows_per_s:,.0f}", f"{estimate.packets:,.1f}"],
        ],
    )  # fmt: skip
    table(
        "busy, with many rows in flight",
        ["node", "packets", "kernel", "link"],
        [
            [n.name, f"{h:.0%}", f"{k:.0%}", f"{li:.0%}"]
            for n, h, k, li in zip(nodes, many.handler, many.kernel, many.link, strict=True)
        ],
    )


def kernels(
    wanted: Sequence[KernelProblem],
    nodes: Sequence[int],
    built: NodeModel,
    weak: bool,
    straggler: float,
    mpi: int,
    json: bool,
    plot: Path | None,
) -> None:
    """Simulate kernels on several numbers of nodes, and measure MPI on this machine's cores."""
    with progress_bar("simulating") as reached:
        points = sweep(wanted, nodes, built, weak=weak, straggler=straggler, progress=reached)
    ranks = _measured(wanted, mpi) if mpi else {}
    if json:
        print_json(
            {
                "kind": "simulated",
                "weak": weak,
                "straggler": straggler,
                "points": [asdict(p) for p in points],
                "slower_than_one_node": [
                    {"kernel": p.kernel, "nodes": p.nodes, "speedup": p.speedup}
                    for p in slower(points, weak)
                ],
                "mpi": {
                    "kind": "measured",
                    "runs": [asdict(m) for each in ranks.values() for m in each],
                },
            }
        )
    else:
        _show_points(points, weak)
        _show_slower(points, weak)
        _show_ranks(ranks)
    if plot is not None:
        from n3ic.systems.cluster.simulation.picture import scaling_figure

        write_picture(plot, partial(scaling_figure, points, weak))
        if not json:
            print_result(f"{plot} written")


def _measured(wanted: Sequence[KernelProblem], most: int) -> dict[int, tuple[MpiMeasurement, ...]]:
    found = {}
    for ranks in sorted({1, 2, most}):
        if ranks <= most:
            with spinner(f"measuring MPI, {ranks} ranks"):
                found[ranks] = measure(wanted, ranks).kernels
    return found


def _show_points(points: Sequence[Point], weak: bool) -> None:
    what = "efficiency" if weak else "speed-up"
    table(
        "simulated: " + ("problems grow with the nodes" if weak else "one problem on more nodes"),
        ["kernel", "nodes", "data-centric", "compute-centric", "one big node", what, "packets",
         "imbalance", "busiest link", "frozen"],
        [
            [
                p.kernel,
                str(p.nodes),
                _time(p.data_s),
                _time(p.compute_s),
                _time(p.one_s),
                f"{p.speedup:.2f}",
                f"{p.packets:,}",
                f"{p.imbalance:.2f}",
                f"{p.link:.0%}",
                str(p.frozen),
            ]
            for p in points
        ],
    )  # fmt: skip


def _show_slower(points: Sequence[Point], weak: bool) -> None:
    """Print, per kernel, the rings that are slower than one big node; nothing if none is."""
    found: dict[str, list[str]] = {}
    for p in slower(points, weak):
        found.setdefault(p.kernel, []).append(f"{p.nodes} nodes ({p.speedup:.2g})")
    if found:
        what = "efficiency" if weak else "speed-up"
        said = "; ".join(f"{kernel} on {', '.join(nodes)}" for kernel, nodes in found.items())
        print_result(f"slower on a ring than on one big node, {what} in brackets: {said}")


def _show_ranks(ranks: Mapping[int, Sequence[MpiMeasurement]]) -> None:
    if ranks:
        table(
            "measured: MPI on this machine, the fastest of the repetitions",
            ["kernel", "ranks", "elapsed", "median", "of a core"],
            [
                [m.kernel, str(m.ranks), _time(m.seconds), _time(m.median), _time(m.processor)]
                for each in ranks.values()
                for m in each
            ],
        )


def speedups(json: bool) -> None:
    """Compare FCsN's speed-ups over MPI on 16 cores with ours.

    One core and messages between two cores are measured here; 16 cores are estimated from them.
    """
    measured = [shrunk(c.problem) for c in CLAIMS]
    with spinner("measuring MPI on one core and on two"):
        alone = measure(measured, 1).kernels
        both = measure(measured[:1], 2)
    if both.messages is None:
        raise MissingDependencyError("two ranks of MPI did not start")
    with progress_bar("simulating") as reached:
        simulated = sweep([c.problem for c in CLAIMS], _CLAIM_NODES, fcsn_card(), progress=reached)
    rows, found = [], []
    for i, claim in enumerate(CLAIMS):
        # Work is proportional to edges, so a shrunk graph's time is scaled to the claim's graph.
        part = claim.problem.graph.edges / measured[i].graph.edges
        core = alone[i].processor * part
        base = _sixteen(claim.problem, core, both.messages)
        points = simulated[i * len(_CLAIM_NODES) : (i + 1) * len(_CLAIM_NODES)]
        ours = [(base / p.data_s, base / p.compute_s) for p in points]
        rows.append(
            [claim.name, _time(core) + ("" if part == 1 else " (scaled)"), _time(base)]
            + [f"{x:.2f}" if x else "" for x in (claim.speedup, claim.compute)]
            + [f"{x:.2f}" for pair in ours for x in pair]
        )
        found.append(
            {
                "name": claim.name,
                "core_s": core,
                "core_kind": "measured" if part == 1 else "estimated",
                "mpi16_s": base,
                "fcsn": {"data": claim.speedup, "compute": claim.compute or None},
                "ours": {p.nodes: {"data": d, "compute": c}
                         for p, (d, c) in zip(points, ours, strict=True)},
            }
        )  # fmt: skip
    if json:
        print_json({"claims": found, "messages": asdict(both.messages)})
        return
    table(
        "speed-ups over MPI on 16 cores: FCsN measured, ours simulated over estimated",
        ["", "one core", "16 cores, estimated", "FCsN: tasks", "barriers",
         *(f"ours, {n} nodes: {w}" for n in _CLAIM_NODES for w in ("tasks", "barriers"))],
        rows,
    )  # fmt: skip
    print_note(f"messages between two ranks: {both.messages.latency * 1e6:.2f} us, "
         f"{both.messages.bytes_per_s / 1e9:.1f} GB/s ({both.library})")  # fmt: skip


def _sixteen(problem: KernelProblem, alone: float, messages: Messages) -> float:
    return on_cores(workload(problem, _CLAIM_RANKS), alone, _CLAIM_RANKS, messages)


def _time(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{seconds * 1e6:,.1f} us"
    return f"{seconds * 1e3:,.2f} ms" if seconds < 1 else f"{seconds:,.2f} s"
