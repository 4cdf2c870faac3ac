# SPDX-License-Identifier: Apache-2.0
"""``n3ic stream functions``: run a chain of functions, and query or change a running one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from n3ic.cli.console import print_json, print_note, print_result, table

FUNCTIONS = typer.Typer(
    help="Functions on shared packet buffers: processes that see DPDK's packets without a copy.",
    no_args_is_help=True,
)
JsonFlag = Annotated[bool, typer.Option("--json", help="Print as JSON.")]
SocketPath = Annotated[
    Path | None, typer.Option("--socket", help="Socket of the chain; default: the user's own.")
]
FunctionName = Annotated[str, typer.Argument(help="Name of a function of the chain.")]


@FUNCTIONS.command()
def run(
    chain: Annotated[Path, typer.Argument(help="The chain, a TOML file.")],
    socket: SocketPath = None,
    json: JsonFlag = False,
) -> None:
    """Run a chain until its captures end, `end` or Ctrl-C; print where each packet went.

    The exit code is 1 if a function fell and lost packets or did not finish.
    """
    from n3ic.errors import N3icError
    from n3ic.systems.stream.functions.chain import read_chain
    from n3ic.systems.stream.functions.supervisor import ChainSupervisor

    supervisor = ChainSupervisor(read_chain(chain), _path(socket), print_note)
    status = supervisor.run(lambda: print_note("all functions are attached; receiving"))
    _show(status, json)
    if failures := supervisor.failures(status):
        raise N3icError("; ".join(failures))


@FUNCTIONS.command()
def status(socket: SocketPath = None, json: JsonFlag = False) -> None:
    """Show functions, ports and where packets went."""
    _show(_ask(socket, "status")["status"], json)


@FUNCTIONS.command()
def stop(name: FunctionName, socket: SocketPath = None, json: JsonFlag = False) -> None:
    """Stop a function once it has finished its packets; nothing is lost."""
    _send_request(socket, f"stop {name}", json)


@FUNCTIONS.command()
def start(name: FunctionName, socket: SocketPath = None, json: JsonFlag = False) -> None:
    """Start a function that was stopped or killed, or that died."""
    _send_request(socket, f"start {name}", json)


@FUNCTIONS.command()
def kill(name: FunctionName, socket: SocketPath = None, json: JsonFlag = False) -> None:
    """Kill the process of a function; the packets that it had are counted as lost."""
    _send_request(socket, f"kill {name}", json)


@FUNCTIONS.command()
def end(socket: SocketPath = None, json: JsonFlag = False) -> None:
    """Stop receiving, let the functions finish, and end the chain."""
    _send_request(socket, "end", json)


def _path(socket: Path | None) -> Path:
    from n3ic.util.cache import Cache

    return socket or Cache.open("functions").directory / "control"


def _ask(socket: Path | None, request: str) -> dict[str, Any]:
    from n3ic.systems.stream.functions.supervisor import ask

    return ask(_path(socket), request)


def _send_request(socket: Path | None, request: str, json: bool) -> None:
    answer = _ask(socket, request)
    if json:
        print_json(answer)
    else:
        print_result(f"{request}: done")


def _show(status: dict[str, Any], json: bool) -> None:
    if json:
        print_json(status)
        return
    columns = ("state", "given", "passed", "dropped", "full", "absent")
    rows = [
        (
            f["name"],
            *(f"{f[c]:,}" if c != "state" else f[c] for c in columns),
            f"{sum(f['lost'].values()):,}",
            f"{f['held']:,}",
        )
        for f in status["functions"]
    ]
    table("functions", ("name", *columns, "lost", "held"), rows)
    for port in status["ports"]:
        losses = {n: v for n, v in port["losses"].items() if v}
        lost = "".join(f", {v:,} lost ({n})" for n, v in losses.items())
        print_result(
            f"{port['name']}: {port['received']:,} received, {port['sent']:,} sent, "
            f"{port['full']:,} not taken{lost}"
        )
    balance = ", ".join(f"{v:,} {n.replace('_', ' ')}" for n, v in status["balance"].items() if v)
    print_result(f"{status['phase']}; memory: {status['memory']}; {status['copies']:,}: {balance}")
