# SPDX-License-Identifier: Apache-2.0
"""``n3ic card``: one card with many models and tenants."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from n3ic.cli.console import (
    print_json,
    print_note,
    print_result,
    progress_bar,
    show_table,
    spinner,
)
from n3ic.cli.outputs import check_picture, free_files, write_picture, write_plan
from n3ic.errors import UsageError

if TYPE_CHECKING:
    from n3ic.systems.card.changes import Verb
    from n3ic.systems.card.export import CardCheck
    from n3ic.systems.card.plan import CardPlan

CardFile = Annotated[Path, typer.Argument(help="The card's description.")]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print as JSON.")]


class UidEncoding(StrEnum):
    """How packets carry the UID of their graph."""

    HEADER = "header"
    VLAN = "vlan"
    UDP_PORT = "udp-port"


def init(
    sources: Annotated[
        list[str], typer.Argument(help="Runs or model files, a tenant each: PATH or NAME=PATH.")
    ],
    target: Annotated[str, typer.Option("--target", "-t", help="Target of the card.")] = "netfpga",
    out: Annotated[Path, typer.Option(help="File to write.")] = Path("card.toml"),
    wants: Annotated[
        str, typer.Option(help="Wanted rate of each tenant: inferences/s, packets/s or Gb/s.")
    ] = "100000 inferences/s",
    uid: Annotated[
        UidEncoding, typer.Option(help="How packets carry the UID of their graph.")
    ] = UidEncoding.HEADER,
    replace: Annotated[bool, typer.Option("--replace", help="Replace an existing file.")] = False,
) -> None:
    """Write a first card.toml: one tenant per run, its networks as parallel branches."""
    from n3ic.systems.card.parser import parse_card
    from n3ic.systems.card.scaffold import card_text, tenant_models
    from n3ic.systems.card.toml_values import parse_rate
    from n3ic.targets.base import exporter
    from n3ic.util.files import free_path, write_atomic

    exporter(target)
    path = free_path(out, replace)
    owners = tenant_models(sources)
    text = card_text(
        owners,
        target,
        folder=path.parent,
        wants=parse_rate(wants),
        uid=uid.value,
    )
    parse_card(text, str(path), path.parent)  # checks that the text can be read back
    write_atomic(path, text)
    count = sum(len(o.models) for o in owners)
    print_result(f"{path}: {len(owners)} tenants, {count} networks; next: n3ic card plan {path}")


def plan(
    card: CardFile = Path("card.toml"),
    json: JsonFlag = False,
    out: Annotated[Path | None, typer.Option(help="Also write the plan as JSON.")] = None,
    picture: Annotated[
        Path | None, typer.Option(help="Draw regions, chains and shares: .png or .svg.")
    ] = None,
    best_effort: Annotated[
        bool,
        typer.Option("--best-effort", help="Accept a plan that cannot guarantee all wanted rates."),
    ] = False,
    replace: Annotated[bool, typer.Option("--replace", help="Replace existing files.")] = False,
) -> None:
    """Divide a card: chains into regions, space by DRF, time by DRFQ."""
    from n3ic.systems.card.picture import plan_figure
    from n3ic.systems.card.planner import check_guaranteed

    free_files(out, picture, replace=replace)
    check_picture(picture, "--picture")
    planned = _plan(card)
    if json:
        print_json(planned.to_dict())
    else:
        show(planned)
    if not best_effort:
        check_guaranteed(planned, str(card))
    write_plan(planned, out, picture, partial(plan_figure, planned), quiet=json)


def simulate(
    card: CardFile = Path("card.toml"),
    seconds: Annotated[float, typer.Option(help="Simulated seconds.", min=1e-6, max=1000.0)] = 0.01,
    seed: Annotated[int, typer.Option(help="Seed of the random numbers.", min=0)] = 0,
    load: Annotated[
        list[str] | None,
        typer.Option(
            help="Load of tenants: [TENANT=]KIND[*FACTOR[,FACTOR@SECOND...]]; KIND is constant, "
            "poisson, bursts or heavy-tailed, FACTOR multiplies the wanted rate from a SECOND. "
            "Repeatable."
        ),
    ] = None,
    event: Annotated[
        list[str] | None,
        typer.Option(
            help="TENANT:arrives@SECOND, TENANT:leaves@SECOND, REGION:stuck@SECOND or "
            "REGION:lost@SECOND. Repeatable."
        ),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(help="chains, drf, static or per-task; repeatable. Default: all."),
    ] = None,
    json: JsonFlag = False,
    plot: Annotated[
        Path | None, typer.Option(help="Draw throughput, latency, fairness, utilisation: .png.")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace an existing file.")] = False,
) -> None:
    """Simulate a card under load, beside static partitions and per-task scheduling."""
    from n3ic.util.files import free_path

    if plot is not None:
        free_path(plot, replace)
        if plot.suffix != ".png":
            raise UsageError(f"--plot: expected a name that ends in .png, got {plot}")
    from n3ic.systems.card.planned_scenario import scenario_under
    from n3ic.systems.card.simulation.comparison import (
        compare_policies,
        packets_simulated,
        policies_of,
    )

    policies = policies_of(policy or [])
    planned = _plan(card)
    scenario = scenario_under(planned, seconds, load or [], event or [])
    for line in planned.problems:
        print_note(line)
    count = packets_simulated(scenario, policies)
    # The simulator handles some 200,000 packets per second of processor time.
    print_note(f"{count:,.0f} packets, about {count / 200_000:,.0f} s")
    with progress_bar("simulating") as reached:
        simulation = compare_policies(scenario, policies, seed, reached)
    if json:
        print_json(simulation.to_dict())
    else:
        for content in simulation.view().tables:
            show_table(content)
    if plot is not None:
        write_picture(plot, simulation.figure)
        if not json:
            print_result(f"{plot} written")


def export(
    card: CardFile = Path("card.toml"),
    out: Annotated[Path, typer.Option(help="Directory to write.")] = Path("card"),
    target: Annotated[
        str | None, typer.Option("--target", "-t", help="Target that the card must be for.")
    ] = None,
    packets: Annotated[int, typer.Option(min=1, help="Packets of each graph to verify with.")] = 6,
    no_verify: Annotated[bool, typer.Option("--no-verify", help="Skip the verification.")] = False,
    best_effort: Annotated[
        bool,
        typer.Option("--best-effort", help="Accept a plan that cannot guarantee all wanted rates."),
    ] = False,
    replace: Annotated[bool, typer.Option("--replace", help="Replace an export.")] = False,
) -> None:
    """Write a card as one image, and run every network through it."""
    from n3ic.systems.card.export import export_card

    planned = _plan(card, target, best_effort=best_effort)
    with spinner("writing and verifying"):
        written = export_card(planned, out, replace=replace, packets=packets, verify=not no_verify)
    if written.missing:
        print_note(f"not verified: {written.missing}")
    print_result(f"{out} written" + (f"; {_checked(written.check)}" if written.check else ""))


def verify(
    directory: Annotated[Path, typer.Argument(help="The exported card.")] = Path("card"),
    card: Annotated[Path, typer.Option(help="The card's description.")] = Path("card.toml"),
    packets: Annotated[int, typer.Option(min=1, help="Packets of each graph.")] = 24,
) -> None:
    """Compare an export with a fresh one for its card, and run every network through it."""
    from n3ic.systems.card.export import check_directory, verify_card

    check_directory(directory)
    planned = _plan(card)
    with spinner("verifying"):
        check = verify_card(planned, directory, packets)
    print_result(f"{directory}: {_checked(check)}")


def run(
    directory: Annotated[
        Path, typer.Argument(help="The exported card, of target host, xdp or netfpga.")
    ] = Path("card"),
    card: Annotated[Path, typer.Option(help="The card's description.")] = Path("card.toml"),
    seconds: Annotated[
        float | None,
        typer.Option(help="Seconds to run; default: 10, or 0.02 simulated ones (netfpga)."),
    ] = None,
    frames: Annotated[
        Path | None, typer.Option(help="Capture of the frames to send, instead of a load.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the load.", min=0)] = 0,
    load: Annotated[
        list[str] | None,
        typer.Option(help="Load of tenants, as for simulate. Default: the wanted rates."),
    ] = None,
    event: Annotated[
        list[str] | None,
        typer.Option(
            help="TENANT:arrives@SECOND, TENANT:leaves@SECOND or (not netfpga) REGION:lost@SECOND. "
            "Repeatable."
        ),
    ] = None,
    threads: Annotated[
        int | None, typer.Option(help="Threads that compute; default: one per region.", min=1)
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Run an exported card, on this machine or simulated, under the control loop.

    Ctrl-C ends it.
    """
    from n3ic.systems.card.export import check_directory
    from n3ic.systems.card.exported_run import run_exported

    check_directory(directory)
    planned = _plan(card)
    with progress_bar("running") as reached:
        done = run_exported(
            planned,
            directory,
            seconds,
            frames=frames,
            load=load or [],
            event=event or [],
            seed=seed,
            threads=threads,
            progress=reached,
        )
    if json:
        print_json(done.to_dict())
        return
    view = done.view()
    for content in view.tables:
        show_table(content)
    for note in view.notes:
        print_note(note)
    print_result(view.line)


Running = Annotated[
    str,
    typer.Option(
        "--to",
        help="The running card: the FIFO of card-exec -c (host), an interface (xdp), thrift:PORT "
        "of simple_switch (p4); or a new file for the control plane's operations (netfpga, p4).",
    ),
]
Exported = Annotated[Path, typer.Option(help="The running export.")]
CardOption = Annotated[Path, typer.Option(help="The card's description.")]


def load(
    who: Annotated[str, typer.Argument(help="A tenant, or TENANT/GRAPH.")],
    to: Running,
    model: Annotated[
        Path | None,
        typer.Argument(help="A model file or a run; default: the card's own networks."),
    ] = None,
    directory: Exported = Path("card"),
    card: CardOption = Path("card.toml"),
) -> None:
    """Load a tenant's graphs and networks onto a running card; other tenants keep running."""
    _change("load", who, model, to, directory, card)


def replace_networks(
    who: Annotated[str, typer.Argument(help="A tenant, or one network as TENANT/TASK.")],
    model: Annotated[
        Path,
        typer.Argument(help="A model file or a run; for a packet task, a TOML file of its keys."),
    ],
    to: Running,
    directory: Exported = Path("card"),
    card: CardOption = Path("card.toml"),
) -> None:
    """Replace a tenant's networks on a running card; other tenants keep running."""
    _change("replace", who, model, to, directory, card)


def remove(
    who: Annotated[str, typer.Argument(help="A tenant, or TENANT/GRAPH.")],
    to: Running,
    directory: Exported = Path("card"),
    card: CardOption = Path("card.toml"),
) -> None:
    """Remove a tenant's graphs from a running card; other tenants keep running."""
    _change("remove", who, None, to, directory, card)


def _change(verb: Verb, who: str, model: Path | None, to: str, directory: Path, card: Path) -> None:
    from n3ic.systems.card.changes import change_of
    from n3ic.systems.card.export import change_card, check_directory
    from n3ic.systems.card.parser import read_card

    check_directory(directory)
    change = change_of(read_card(card), verb, who, model)
    planned = _plan(card)
    with spinner("changing"):
        outcome = change_card(planned, directory, change, to)
    print_result(outcome)


def _plan(card: Path, target: str | None = None, *, best_effort: bool = True) -> CardPlan:
    from n3ic.systems.card.planner import plan_described

    with spinner("planning") as progress, _solver_to_standard_error():
        return plan_described(card, target, best_effort=best_effort, report_progress=progress)


def _checked(check: CardCheck) -> str:
    """Describe what a verification compared, in one sentence."""
    return (
        f"{len(check.graphs)} graphs interleaved in {check.packets:,} packets, "
        f"{check.inferences:,} inferences equal in {check.compared} ({check.executor})"
    )


def show(planned: CardPlan) -> None:
    """Print a plan as tables: tasks, regions, tenants, graphs."""
    for planned_table in planned.tables:
        show_table(planned_table)
    for line in (*planned.notes, *planned.problems):
        print_note(line)


@contextmanager
def _solver_to_standard_error() -> Iterator[None]:
    """Redirect HiGHS's own output, which C writes to standard output, to standard error."""
    sys.stdout.flush()
    # The descriptor is redirected, because C writes past Python's sys.stdout.
    standard_output = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        ctypes.CDLL(None).fflush(None)  # C buffers its output to pipes and files separately
        os.dup2(standard_output, 1)
        os.close(standard_output)


COMMANDS = typer.Typer(
    help="Share a card among several tenants and their models.", no_args_is_help=True
)
COMMANDS.command("init")(init)
COMMANDS.command("plan")(plan)
COMMANDS.command("simulate")(simulate)
COMMANDS.command("export")(export)
COMMANDS.command("verify")(verify)
COMMANDS.command("run")(run)
COMMANDS.command("load")(load)
COMMANDS.command("replace")(replace_networks)
COMMANDS.command("remove")(remove)
