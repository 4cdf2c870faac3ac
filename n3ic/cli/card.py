"""``n3ic card``: one card, many models, many tenants."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from n3ic.cli.console import note, print_json, say, table, working
from n3ic.errors import CardError, UsageError

if TYPE_CHECKING:
    from n3ic.card.plan import Plan
    from n3ic.card.resources import TaskCost

CardFile = Annotated[Path, typer.Argument(help="The card's description.")]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print as JSON.")]


class Carrier(StrEnum):
    """How packets carry the UID of their graph."""

    HEADER = "header"
    VLAN = "vlan"
    UDP_PORT = "udp-port"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(
        help="Share a card among several tenants and their models.", no_args_is_help=True
    )
    group.command("init")(init)
    group.command("plan")(plan)
    app.add_typer(group, name="card")


def init(
    sources: Annotated[
        list[str], typer.Argument(help="Runs or model files, a tenant each: PATH or NAME=PATH.")
    ],
    target: Annotated[str, typer.Option("--target", "-t", help="A target.")] = "netfpga",
    out: Annotated[Path, typer.Option(help="File to write.")] = Path("card.toml"),
    wants: Annotated[
        str, typer.Option(help="What each tenant wants: inferences/s, packets/s or Gb/s.")
    ] = "100000 inferences/s",
    uid: Annotated[
        Carrier, typer.Option(help="How packets carry the UID of their graph.")
    ] = Carrier.HEADER,
    replace: Annotated[bool, typer.Option("--replace", help="Replace an existing file.")] = False,
) -> None:
    """Write a card.toml to begin with: a tenant a run, its networks as parallel branches."""
    from n3ic.card.entries import parse_rate
    from n3ic.card.reading import parse_card
    from n3ic.card.starting import card_text, owners_of
    from n3ic.targets.base import exporter
    from n3ic.util.files import free_path, write_atomic

    exporter(target)
    path = free_path(out, replace)
    owners = owners_of(sources)
    text = card_text(
        owners,
        target,
        folder=path.parent,
        wants=parse_rate(wants),
        uid=uid.value,
    )
    parse_card(text, str(path), path.parent)  # what is written can be read
    write_atomic(path, text)
    count = sum(len(o.models) for o in owners)
    say(f"{path}: {len(owners)} tenants, {count} networks; next: n3ic card plan {path}")


def plan(
    card: CardFile = Path("card.toml"),
    json: JsonFlag = False,
    out: Annotated[Path | None, typer.Option(help="Write the plan as JSON, too.")] = None,
    picture: Annotated[
        Path | None, typer.Option(help="Draw regions, chains and shares: .png or .svg.")
    ] = None,
    best_effort: Annotated[
        bool,
        typer.Option("--best-effort", help="Accept that not all wanted rates can be guaranteed."),
    ] = False,
    replace: Annotated[bool, typer.Option("--replace", help="Replace existing files.")] = False,
) -> None:
    """Divide a card: chains into regions, space by DRF, time by DRFQ."""
    from n3ic.card.planner import plan_card
    from n3ic.card.reading import read_card
    from n3ic.util.files import free_path, new_file, write_atomic
    from n3ic.util.json_text import json_text

    for path in (out, picture):
        if path is not None:
            free_path(path, replace)
    if picture is not None and picture.suffix not in (".png", ".svg"):
        raise UsageError(f"--picture: expected a name that ends in .png or .svg, got {picture}")
    described = read_card(card)
    with working("planning") as progress, _solver_to_standard_error():
        planned = plan_card(described, progress)
    if json:
        print_json(planned.to_dict())
    else:
        show(planned)
    if planned.problems and not best_effort:
        raise CardError(
            f"{card}: {len(planned.problems)} graphs cannot be guaranteed what they want: "
            f"{planned.problems[0]}; ask for less, or plan with --best-effort"
        )
    if out is not None:
        write_atomic(out, json_text(planned.to_dict()))
    if picture is not None:
        from n3ic.card.picture import write_picture

        with new_file(picture) as stream:
            write_picture(planned, stream, "svg" if picture.suffix == ".svg" else "png")
    if not json:
        for path in (out, picture):
            if path is not None:
                say(f"{path} written")


def show(planned: Plan) -> None:
    """Print a plan as tables: tasks, regions, tenants, graphs."""
    costs = planned.costs
    table(
        "what an instance of each task takes",
        ["task", "kind", *(r.name for r in planned.resources), "sustains", "known by", "regions"],
        [
            [
                name,
                planned.card.tasks[name].kind,
                *(
                    f"{cost.needs[r.name].value:,.4g}" if r.name in cost.needs else ""
                    for r in planned.resources
                ),
                str(cost.rate) if cost.rate else "",
                ", ".join(known_by(cost)),
                ", ".join(map(str, planned.instances[name])),
            ]
            for name, cost in costs.items()
        ],
        left=2,
    )
    bounded = [r for r in planned.resources if r.within == "region" and r.per == "instance"]
    table(
        "regions",
        ["region", "chain", *(f"{r.name} of {r.capacity:,.6g}" for r in bounded if r.capacity)],
        [
            [
                str(r.index),
                " > ".join(r.chain) or "(free)",
                *(f"{r.used[b.name]:,.6g}" for b in bounded if b.capacity),
            ]
            for r in planned.regions
        ],
        left=2,
    )
    table(
        "space: dominant-resource fairness",
        ["tenant", "dominant", "weight", "wanted", "granted"],
        [
            [
                s.tenant,
                s.dominant,
                f"{s.weight:g}",
                f"{s.demand[s.dominant]:.4%}",
                f"{s.dominant_share:.4%}",
            ]
            for s in planned.shares
        ],
        left=2,
    )
    table(
        "time: what the ingress lets pass",
        ["graph", "uid", "wanted/s", "guaranteed/s", "Gb/s", "ways", "passes", "latency"],
        [
            [
                f"{g.tenant}/{g.graph}",
                str(g.uid),
                f"{g.wanted:,.6g}",
                f"{g.guaranteed:,.6g}",
                f"{g.gbps:.4g}",
                str(len(g.paths)),
                str(max((len(p.stages) for p in g.paths), default=0)),
                "" if g.latency_ns is None else f"{g.latency_ns:,.0f} ns",
            ]
            for g in planned.graphs
        ],
    )
    for line in (*planned.notes, *planned.problems):
        note(line)


def known_by(cost: TaskCost) -> list[str]:
    """How what a task takes and sustains is known: measured, simulated, estimated."""
    return sorted(
        {a.kind for a in cost.needs.values()} | ({cost.rate_kind} if cost.rate else set())
    )


@contextmanager
def _solver_to_standard_error() -> Iterator[None]:
    """Keep what HiGHS prints by itself out of the result."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
