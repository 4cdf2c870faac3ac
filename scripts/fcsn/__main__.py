# SPDX-License-Identifier: Apache-2.0
"""Simulate FCsN's kernels on a ring of nodes, and compare its speed-ups over MPI with ours.

    python -m scripts.fcsn scaling --figures fcsn --link 100G --nodes 1,4,8,16,64 --plot scaling.png
    python -m scripts.fcsn scaling --kernel gemm --mpi 2   # also measure MPI on this machine
    python -m scripts.fcsn speedups
    python -m scripts.fcsn profile --claim SPMV            # where the simulated time goes
    python -m scripts.fcsn calibrate node.toml             # measure a process node here
    python -m scripts.fcsn networks --nodes 2,4            # VGG-11, ResNet-20, GCN ... on processes
    python -m scripts.fcsn binary wide.n3ic --nodes 2,4    # a binary model on processes

Run it in the root folder of the repository. MPI needs mpi4py and mpiexec (Debian: openmpi-bin).
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from n3ic.cli.console import print_json, print_note, print_result, progress_bar, spinner, table
from n3ic.cli.outputs import check_picture, free_files, write_picture
from n3ic.errors import MissingDependencyError, N3icError, UsageError
from n3ic.systems.cluster.figures import figures_of
from n3ic.util.files import write_atomic
from scripts.fcsn.calibration import measure_node
from scripts.fcsn.experiments import (
    CLAIMS,
    NodeModel,
    Point,
    fcsn_card,
    profiles,
    shrunk,
    slower,
    sweep,
)
from scripts.fcsn.mpi_baseline import MpiMeasurement, measure, on_cores
from scripts.fcsn.picture import scaling_figure
from scripts.fcsn.workloads import GRAPHS, KERNELS, KernelProblem, workload

if TYPE_CHECKING:
    from scripts.fcsn.network_runs import NetworkMeasurement

_CLAIM_NODES = (4, 16)
_CLAIM_RANKS = 16
_EDGES = (2_000_000, 8_000_000)

JsonFlag = Annotated[bool, typer.Option("--json", help="Print as JSON.")]
Replace = Annotated[bool, typer.Option("--replace", help="Replace existing files.")]


def scaling(
    kernel: Annotated[
        list[str] | None,
        typer.Option(
            help="binary, gemm, spmv, spgemm, aggregation, conv2d, mlp or gnn. Repeatable; "
            "default: all."
        ),
    ] = None,
    nodes: Annotated[str, typer.Option("--nodes", "-n", help="Numbers of nodes.")] = "1,4,16,64",
    target: Annotated[str, typer.Option("--target", "-t", help="Target of the nodes.")] = "netfpga",
    link: Annotated[str, typer.Option(help="Speed of the nodes' links, such as 10G.")] = "10G",
    figures: Annotated[
        str | None,
        typer.Option(help="A node.toml instead of the target's, or fcsn: that publication's card."),
    ] = None,
    size: Annotated[
        int, typer.Option(help="Rows of matrices, edge of an image.", min=64, max=1 << 16)
    ] = 2048,
    graph: Annotated[
        str, typer.Option(help="Graph with the size of cora, corafull, pubmed, physics or reddit.")
    ] = "cora",
    weak: Annotated[
        bool, typer.Option("--weak", help="Scale the problems with the number of nodes.")
    ] = False,
    straggler: Annotated[
        float, typer.Option(help="Slow-down factor of the last node.", min=1, max=1000)
    ] = 1.0,
    mpi: Annotated[
        int, typer.Option(help="Also measure MPI here, with up to this many ranks.", min=0, max=256)
    ] = 0,
    seed: Annotated[int, typer.Option(help="Seed of the sparse matrices.", min=0)] = 0,
    json: JsonFlag = False,
    plot: Annotated[Path | None, typer.Option(help="Draw scaling curves: .png or .svg.")] = None,
    replace: Replace = False,
) -> None:
    """Simulate kernels on several numbers of nodes, and measure MPI on this machine's cores."""
    free_files(plot, replace=replace)
    check_picture(plot, "--plot")
    chosen_problems = problems(kernel or [], size, graph, seed)
    node_card, numbers = card(target, link, figures), counts(nodes)
    with progress_bar("simulating") as reached:
        points = sweep(
            chosen_problems, numbers, node_card, weak=weak, straggler=straggler, progress=reached
        )
    ranks = _measured(chosen_problems, mpi) if mpi else {}
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
        write_picture(plot, partial(scaling_figure, points, weak))
        if not json:
            print_result(f"{plot} written")


def _measured(
    chosen_problems: Sequence[KernelProblem], most: int
) -> dict[int, tuple[MpiMeasurement, ...]]:
    kernels_of = {}
    for ranks in sorted({1, 2, most}):
        if ranks <= most:
            with spinner(f"measuring MPI, {ranks} ranks"):
                kernels_of[ranks] = measure(chosen_problems, ranks).kernels
    return kernels_of


def _show_points(points: Sequence[Point], weak: bool) -> None:
    what = "efficiency" if weak else "speed-up"
    table(
        "simulated: " + ("problems grow with the nodes" if weak else "one problem on more nodes"),
        ["kernel", "nodes", "data-centric", "compute-centric", "one big node", what, "packets",
         "imbalance", "busiest link"],
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
            ]
            for p in points
        ],
    )  # fmt: skip


def _show_slower(points: Sequence[Point], weak: bool) -> None:
    """Print, per kernel, the rings that are slower than one big node; nothing if none is."""
    rings: dict[str, list[str]] = {}
    for p in slower(points, weak):
        rings.setdefault(p.kernel, []).append(f"{p.nodes} nodes ({p.speedup:.2g})")
    if rings:
        what = "efficiency" if weak else "speed-up"
        text = "; ".join(f"{kernel} on {', '.join(nodes)}" for kernel, nodes in rings.items())
        print_result(f"slower on a ring than on one big node, {what} in brackets: {text}")


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


def calibrate(
    path: Annotated[Path, typer.Argument(help="The node.toml to write.")], replace: Replace = False
) -> None:
    """Measure a process node and write its clocks."""
    free_files(path, replace=replace)
    with spinner("measuring a process node"):
        node_costs = measure_node()
    write_atomic(path, node_costs.toml(f"{platform.machine()} with Linux {platform.release()}"))
    print_result(
        f"{path} written; from process to process a datagram takes {node_costs.hop / 1e3:.0f} us "
        "(latency_us of nodes.toml)"
    )


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
    if figures == "fcsn":
        return replace(fcsn_card(), link=link)
    return NodeModel(target, link, None if figures is None else figures_of(Path(figures)))


def speedups(json: JsonFlag = False) -> None:
    """Compare FCsN's speed-ups over MPI on 16 cores with ours.

    One core and messages between two cores are measured here; 16 cores are estimated from them.
    """
    small = tuple(dict.fromkeys(shrunk(c.problem, most) for most in _EDGES for c in CLAIMS))
    with spinner("measuring MPI on one core and on two"):
        runs = measure(small, 1).kernels
        both = measure(small[:1], 2)
    alone = {problem: run.processor for problem, run in zip(small, runs, strict=True)}
    if both.messages is None:
        raise MissingDependencyError("two ranks of MPI did not start")
    with progress_bar("simulating") as reached:
        simulated = sweep([c.problem for c in CLAIMS], _CLAIM_NODES, fcsn_card(), progress=reached)
    rows, claims = [], []
    for i, claim in enumerate(CLAIMS):
        few, more = (shrunk(claim.problem, most) for most in _EDGES)
        core, part = alone[few], more.graph.edges - few.graph.edges
        if part:  # what another edge takes, times the edges that were left out
            left_out = claim.problem.graph.edges - few.graph.edges
            core += (alone[more] - core) / part * left_out
        work = workload(claim.problem, _CLAIM_RANKS)
        computing, messages = on_cores(work, core, _CLAIM_RANKS, both.messages)
        base = computing + messages
        points = simulated[i * len(_CLAIM_NODES) : (i + 1) * len(_CLAIM_NODES)]
        ours = [(base / p.data_s, base / p.compute_s) for p in points]
        rows.append(
            [
                claim.name,
                _time(core) + (" (scaled)" if part else ""),
                _time(base),
                f"{messages / base:.0%}",
            ]
            + [f"{x:.2f}" if x else "" for x in (claim.speedup, claim.compute)]
            + [f"{x:.2f}" for pair in ours for x in pair]
        )
        claims.append(
            {
                "name": claim.name,
                "core_s": core,
                "core_kind": "estimated" if part else "measured",
                "mpi16_s": base,
                "mpi16_messages_s": messages,
                "fcsn": {"data": claim.speedup, "compute": claim.compute or None},
                "ours": {p.nodes: {"data": d, "compute": c}
                         for p, (d, c) in zip(points, ours, strict=True)},
            }
        )  # fmt: skip
    if json:
        print_json({"claims": claims, "messages": asdict(both.messages)})
        return
    table(
        "speed-ups over MPI on 16 cores: FCsN measured, ours simulated over estimated",
        ["", "one core", "16 cores, estimated", "messages", "FCsN: tasks", "barriers",
         *(f"ours, {n} nodes: {w}" for n in _CLAIM_NODES for w in ("tasks", "barriers"))],
        rows,
    )  # fmt: skip
    print_note(f"messages between two ranks: {both.messages.latency * 1e6:.2f} us, "
         f"{both.messages.bytes_per_s / 1e9:.1f} GB/s ({both.library})")  # fmt: skip


def profile(
    claim: Annotated[
        list[str] | None, typer.Option(help="Row of the speed-ups. Repeatable; default: all.")
    ] = None,
    nodes: Annotated[str, typer.Option("--nodes", "-n", help="Numbers of nodes.")] = "4,16",
    json: JsonFlag = False,
) -> None:
    """Say where the time of FCsN's card goes, for each way to distribute a sparse product."""
    known = [c.name for c in CLAIMS]
    for name in claim or ():
        if name not in known:
            raise UsageError(f"--claim: expected one of {', '.join(known)}, got {name!r}")
    numbers, chosen = counts(nodes), [c for c in CLAIMS if not claim or c.name in claim]
    with spinner("simulating"):
        simulated = [p for c in chosen for n in numbers for p in profiles(c, n)]
    if json:
        print_json({"kind": "simulated", "profiles": [asdict(p) for p in simulated]})
        return
    table(
        "simulated: how long the busiest part was busy, and the least time of each resource",
        ["", "nodes", "travels", "time", "link", "packets", "kernel", "least: link", "elements",
         "multiplications", "hops", "MPI that FCsN's speed-up asks for"],
        [
            [p.name, str(p.nodes), p.way, _time(p.seconds)]
            + [f"{x:.0%}" for x in (p.link, p.handler, p.kernel)]
            + [_time(x) for x in (p.link_s, p.elements_s, p.macs_s, p.hops_s, p.asked_s)]
            for p in simulated
        ],
    )  # fmt: skip


def networks(
    network: Annotated[
        list[str] | None,
        typer.Option(
            help="mlp, vgg11, resnet20, mobilenet, gcn or sage. Repeatable; default: all."
        ),
    ] = None,
    nodes: Annotated[str, typer.Option("--nodes", "-n", help="Numbers of nodes.")] = "2",
    loss: Annotated[float, typer.Option(help="Share of datagrams to drop.", min=0, max=0.9)] = 0.0,
    share: Annotated[float, typer.Option(help="Share of the items.", min=0.01, max=1)] = 1.0,
    mpi: Annotated[bool, typer.Option("--mpi", help="Also on as many MPI ranks.")] = False,
    json: JsonFlag = False,
) -> None:
    """Measure whole networks of integers on rings of processes, beside one process."""
    from scripts.fcsn.network_runs import CASES, compiled, measure_network

    numbers, runs = counts(nodes), []
    for name in network or CASES:
        if name not in CASES:
            raise UsageError(f"--network: expected one of {', '.join(CASES)}, got {name!r}")
        with spinner(f"compiling {name}"):
            integers = compiled(name)
        for count in numbers:
            with spinner(f"{name} on {count} nodes"):
                runs.append(measure_network(name, integers, count, loss=loss, share=share, mpi=mpi))
    _show(runs, json=json, loss=loss)


def binary(
    model: Annotated[Path, typer.Argument(help="A model, or a folder with several models.")],
    nodes: Annotated[str, typer.Option("--nodes", "-n", help="Numbers of nodes.")] = "2",
    split: Annotated[str, typer.Option(help="Split of the layers, as of cluster run.")] = "output",
    rows: Annotated[int, typer.Option(help="Rows of a run.", min=2)] = 8192,
    loss: Annotated[float, typer.Option(help="Share of datagrams to drop.", min=0, max=0.9)] = 0.0,
    json: JsonFlag = False,
) -> None:
    """Measure a binary model on rings of processes, beside one process."""
    from n3ic.systems.cluster.run import networks_of
    from scripts.fcsn.network_runs import measure_model

    network, runs = networks_of(model), []
    for count in counts(nodes):
        with spinner(f"{model} on {count} nodes"):
            runs.append(measure_model(network, split, count, rows, loss=loss))
    _show(runs, json=json, loss=loss)


def _show(runs: Sequence[NetworkMeasurement], *, json: bool, loss: float = 0.0) -> None:
    if json:
        each = [asdict(run) | {"processor_speedup": run.processor_speedup} for run in runs]
        print_json({"kind": "measured", "loss": loss, "runs": each})
        return
    table(
        "measured: equal scores on a ring and in one process; times one process",
        [
            *("network", "nodes", "one process", "ring", "MPI ranks"),
            *(
                "ring",
                "as many processes without a ring",
                "a core each",
                "coordinator, us an item",
                "FCsN's cards",
            ),
        ],
        [
            [
                run.network,
                str(run.nodes),
                f"{run.items / run.one_s:,.0f}/s",
                f"{run.items / run.ring_s:,.0f}/s",
                f"{run.items / run.ranks_s:,.0f}/s" if run.ranks_s else "",
                f"{run.speedup:.2f}",
                f"{run.ceiling:.2f}",
                f"{run.processor_speedup:.2f}",
                f"{1e6 * run.coordinator_s / run.items:,.1f}",
                run.claim,
            ]
            for run in runs
        ],
    )


def _time(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{seconds * 1e6:,.1f} us"
    return f"{seconds * 1e3:,.2f} ms" if seconds < 1 else f"{seconds:,.2f} s"


def main() -> None:
    """Run the command line; a mistake ends it with one line."""
    app = typer.Typer(help="FCsN's kernels on a simulated ring.", no_args_is_help=True)
    for command in (scaling, speedups, profile, calibrate, networks, binary):
        app.command()(command)
    try:
        app()
    except N3icError as error:
        sys.exit(f"fcsn: {error}")


if __name__ == "__main__":
    main()
