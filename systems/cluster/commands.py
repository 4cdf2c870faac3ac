# SPDX-License-Identifier: Apache-2.0
"""``n3ic cluster``: one model over many cards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from n3ic.cli.console import print_json, print_result, show_table, spinner, table
from n3ic.cli.outputs import free_files, write_plan
from n3ic.cli.rows import takes_rows
from n3ic.errors import UsageError

if TYPE_CHECKING:
    from n3ic.systems.cluster.nodes import ClusterDescription
    from n3ic.systems.cluster.plan import ClusterPlan
    from n3ic.systems.cluster.udp import Address

JsonFlag = Annotated[bool, typer.Option("--json", help="Print as JSON.")]
Replace = Annotated[bool, typer.Option("--replace", help="Replace existing files.")]
Nodes = Annotated[int, typer.Option("--nodes", "-n", help="Equal nodes.", min=1, max=254)]
Target = Annotated[str, typer.Option("--target", "-t", help="Target of the nodes.")]
Link = Annotated[str, typer.Option(help="Speed of the nodes' links, such as 10G.")]
Cores = Annotated[
    int, typer.Option(help="Cores shared by the plan's process nodes.", min=0, max=1024)
]
Described = Annotated[
    Path | None, typer.Option("--cluster", help="A nodes.toml, instead of equal nodes.")
]


class PlanObjective(StrEnum):
    """The figure that a plan optimises."""

    THROUGHPUT = "throughput"
    LATENCY = "latency"


def plan(
    model: Annotated[
        Path | None, typer.Argument(help="A model file or a run of one network.")
    ] = None,
    shape: Annotated[
        str | None, typer.Option(help="A shape instead of a model, such as 4096-2048-10.")
    ] = None,
    nodes: Nodes = 4,
    target: Target = "netfpga",
    link: Link = "10G",
    cluster: Described = None,
    split: Annotated[
        str | None,
        typer.Option(help="output, input or replicated: one for all layers, or a,b,c for each."),
    ] = None,
    goal: Annotated[
        PlanObjective,
        typer.Option("--for", help="Optimise for many rows in flight, or for one row alone."),
    ] = PlanObjective.THROUGHPUT,
    cores: Cores = 0,
    json: JsonFlag = False,
    out: Annotated[Path | None, typer.Option(help="Write the plan as JSON.")] = None,
    replace: Replace = False,
) -> None:
    """Place the layers of a model on nodes: whole, by neurons or by inputs."""
    from n3ic.systems.cluster.placement import splits_of
    from n3ic.systems.cluster.planner import plan_cluster

    free_files(out, replace=replace)
    sizes, digest = _shape(model, shape)
    with spinner("planning"):
        cluster_plan = plan_cluster(
            sizes,
            _cluster(cluster, nodes, target, link),
            digest,
            goal.value,
            None if split is None else splits_of(split, len(sizes) - 1),
            cores,
        )
    if json:
        print_json(cluster_plan.to_dict())
    else:
        show(cluster_plan)
    write_plan(cluster_plan, out, quiet=json)


@takes_rows("flows")
def run(
    model: Annotated[
        Path,
        typer.Argument(help="Model file or run; several networks of a run run side by side."),
    ],
    nodes: Annotated[
        int | None, typer.Option(help="Nodes of the ring [4, or the plan's].", min=1, max=254)
    ] = None,
    plan: Annotated[
        Path | None,
        typer.Option(help="A plan from n3ic cluster plan; default: even parts."),
    ] = None,
    split: Annotated[
        str,
        typer.Option(help="Without a plan: output, input or replicated, or a,b,c for each layer."),
    ] = "output",
    flows: Annotated[
        str | None, typer.Option(help="Table with the rows to compute; see n3ic predict.")
    ] = None,
    rows: Annotated[
        int | None, typer.Option(help="Rows to compute and compare [200, or the table's].", min=1)
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of random rows and of losses.", min=0)] = 0,
    loss: Annotated[
        float, typer.Option(help="Share of datagrams to drop on purpose.", min=0, max=0.9)
    ] = 0.0,
    limit: Annotated[
        float, typer.Option(help="Seconds of silence after which a node counts as dead.", min=0.1)
    ] = 5.0,
    replacements: Annotated[
        int, typer.Option(help="Nodes that may be lost and are replaced.", min=0, max=254)
    ] = 0,
    dask: Annotated[
        str | None,
        typer.Option(help="Scheduler of a Dask cluster to run on, such as tcp://host:8786."),
    ] = None,
    card: Annotated[
        list[str] | None,
        typer.Option(help="A node that is a running card: NODE=HOST:PORT. Repeatable."),
    ] = None,
    address: Annotated[
        list[str] | None,
        typer.Option(help="Address of a node, or of the home 0: NODE=HOST:PORT. Repeatable."),
    ] = None,
    simulate: Annotated[
        list[str] | None,
        typer.Option(
            help="A node to run as a simulated card: NODE=TARGET, such as 2=netfpga. Repeatable."
        ),
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Run a model on a ring of nodes, and compare every row with the single model."""
    from n3ic.systems.cluster.launch import RingOptions
    from n3ic.systems.cluster.link import LinkTiming
    from n3ic.systems.cluster.run import networks_of, run_model
    from n3ic.systems.cluster.udp import FaultInjection

    loaded = networks_of(model)
    options = RingOptions(
        dask=dask,
        cards=_addresses(card or [], "--card"),
        addresses=_addresses(address or [], "--address"),
        timing=LinkTiming(limit=limit),
        faults=FaultInjection(loss, seed),
        replacements=replacements,
    )
    targets = _targets(simulate or [])
    with spinner("starting the nodes") as progress:
        ring_run = run_model(
            loaded,
            flows,
            nodes=nodes,
            plan=plan,
            split=split,
            rows=rows,
            options=options,
            simulated=targets,
            report_progress=progress,
        )
    if json:
        print_json(ring_run.to_dict())
        return
    placement, measurement = ring_run.placement, ring_run.measurement
    table(
        f"{loaded.name}: {loaded.shape_text} over {placement.nodes} nodes",
        ["layer", "split", "shares"],
        [
            [str(i), layer.split.value, layer.shares_text]
            for i, layer in enumerate(placement.layers)
        ],
        left=3,
    )
    print_result(
        f"{measurement.rows:,} of {measurement.rows:,} rows: the single model's scores, bit for bit"
    )
    print_result(
        f"measured: {measurement.rows_per_s:,.0f} rows/s; a row alone {measurement.p50_ms:.1f} ms, "
        f"p99 {measurement.p99_ms:.1f} ms"
    )
    one, ring_rate = measurement.one_process_rows_per_s, measurement.rows_per_s
    compared = (
        f"{one / ring_rate:,.1f} times as fast" if one > ring_rate else "slower than the ring"
    )
    print_result(f"one process without a ring, same rows, measured: {one:,.0f} rows/s, {compared}")
    for loss_text in ring_run.lost_nodes:
        print_result(f"replaced: {loss_text}")
    print_result(
        f"nodes discarded {ring_run.lost:,} datagrams on purpose; {ring_run.resent:,} were resent"
    )


def simulate(
    plan: Annotated[Path, typer.Argument(help="A plan from n3ic cluster plan.")],
    rows: Annotated[int, typer.Option(help="Rows of the model.", min=1, max=10_000)] = 64,
    cores: Cores = 0,
    json: JsonFlag = False,
) -> None:
    """Simulate a planned model: a single row, and many rows in flight."""
    from n3ic.systems.cluster.costs import estimate_cost
    from n3ic.systems.cluster.plan import read_plan
    from n3ic.systems.cluster.simulation.placed_model import simulate_placed

    placement, cluster = read_plan(plan)
    with spinner("simulating"):
        alone, many, nodes, simulated = simulate_placed(placement, cluster, rows, cores)
    estimate = estimate_cost(placement, cluster, cores)
    figures = {
        "kind": "simulated",
        "rows": simulated,
        "latency_s": alone.seconds,
        "rows_per_s": simulated / many.seconds,
        "packets": alone.packets,
        "plan": {"kind": "estimated"} | asdict(estimate),
        "busy": {
            n.name: {"handler": h, "kernel": k, "link": li}
            for n, h, k, li in zip(nodes, many.handler, many.kernel, many.link, strict=True)
        },
    }
    if json:
        print_json(figures)
        return
    table(
        f"{simulated} rows, simulated, and the plan",
        ["", "a row alone", "rows/s", "packets a row"],
        [
            ["simulated", f"{alone.seconds * 1e6:,.1f} us", f"{simulated / many.seconds:,.0f}",
             f"{alone.packets:,}"],
            ["plan, estimated", f"{estimate.latency_s * 1e6:,.1f} us",
             f"{estimate.rows_per_s:,.0f}", estimate.packets_text],
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


def _targets(words: Sequence[str]) -> dict[int, str]:
    targets = {}
    for word in words:
        number, _, target = word.partition("=")
        if not (number.isascii() and number.isdecimal() and target):
            raise UsageError(f"--simulate: expected NODE=TARGET, such as 2=netfpga; got {word!r}")
        targets[int(number)] = target
    return targets


def _addresses(words: Sequence[str], option: str) -> dict[int, Address]:
    addresses = {}
    for word in words:
        number, _, place = word.partition("=")
        host, _, port = place.rpartition(":")
        if not (number.isdecimal() and host and port.isdecimal() and int(port) < 1 << 16):
            raise UsageError(f"{option}: expected NODE=HOST:PORT, such as 2=10.0.0.2:9000")
        addresses[int(number)] = (host, int(port))
    return addresses


def _shape(model: Path | None, shape: str | None) -> tuple[tuple[int, ...], str]:
    """Return the shape to plan and the model's digest, which is empty for a shape alone."""
    if (model is None) == (shape is None):
        raise UsageError("expected a model or --shape, such as --shape 4096-2048-10")
    if model is not None:
        from n3ic.api import load
        from n3ic.systems.cluster.layered import layered

        network = layered(load(model))
        return network.shape, network.digest
    sizes = (shape or "").split("-")
    if not all(s.isascii() and s.isdigit() and len(s) < 7 for s in sizes):
        raise UsageError(f"--shape: expected numbers such as 4096-2048-10, got {shape!r}")
    return tuple(int(s) for s in sizes), ""


def _cluster(path: Path | None, nodes: int, target: str, link: str) -> ClusterDescription:
    from n3ic.systems.cluster.nodes import equal_nodes, read_nodes

    return equal_nodes(nodes, target, link) if path is None else read_nodes(path)


def show(cluster_plan: ClusterPlan) -> None:
    """Print a plan as tables: layers, nodes, and costs of other placements."""
    for each in cluster_plan.tables:
        show_table(each)
    if cluster_plan.advice:
        print_result(cluster_plan.advice)


COMMANDS = typer.Typer(help="One model over many cards.", no_args_is_help=True)
COMMANDS.command("plan")(plan)
COMMANDS.command("run")(run)
COMMANDS.command("simulate")(simulate)
