# SPDX-License-Identifier: Apache-2.0
"""``n3ic xdp``: the XDP programs on a machine's interfaces.

This module must import quickly: a command imports what it needs when it runs.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

COMMANDS = typer.Typer(
    help="Meter, network and verdict in the Linux kernel: load, watch, update, unload.",
    no_args_is_help=True,
    rich_help_panel="Deploy",
)
InterfaceName = Annotated[str, typer.Argument(metavar="INTERFACE", help="A network interface.")]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print as JSON.")]


@COMMANDS.command()
def load(
    interface: InterfaceName,
    export: Annotated[Path, typer.Argument(help="Written by `n3ic export --target xdp`.")],
    mode: Annotated[
        str, typer.Option(help="auto, native (in the driver), generic (in the stack) or offload.")
    ] = "auto",
    clock: Annotated[
        str, typer.Option(help="kernel, or coarse: timer ticks, which save some 20 ns per packet.")
    ] = "kernel",
    policy: Annotated[
        list[str] | None,
        typer.Option(
            help="Action by verdict (a class, shunt, undecided, aside): VERDICT=pass, drop, "
            "interface:NAME, socket:QUEUE, cpu:N or mark:N."
        ),
    ] = None,
    rule: Annotated[
        list[str] | None,
        typer.Option(
            help="Slot of the deciding model: KEY=VALUE,...=slot:N with interface, vlan, udp-port, "
            "prefix."
        ),
    ] = None,
    slot: Annotated[int, typer.Option(help="Slot of this model; flows without a rule use it.")] = 0,
    json: JsonFlag = False,
) -> None:
    """Attach the program of an export to an interface."""
    from dataclasses import asdict
    from typing import get_args

    from n3ic.cli.console import print_json, print_note, print_result
    from n3ic.errors import UsageError
    from n3ic.exporters.xdp.libbpf import AttachMode
    from n3ic.exporters.xdp.tools.deployment import load as attach
    from n3ic.exporters.xdp.tools.program_record import Interface

    modes: dict[str, AttachMode | None] = {"auto": None, **{m: m for m in get_args(AttachMode)}}
    if mode not in modes:
        raise UsageError(f"--mode {mode!r}: expected one of {', '.join(modes)}")
    if clock not in ("kernel", "coarse"):
        raise UsageError(f"--clock {clock!r}: expected kernel or coarse")
    loaded = attach(
        Interface.named(interface),
        export,
        mode=modes[mode],
        clock="coarse" if clock == "coarse" else "kernel",
        policies=policy or (),
        rules=rule or (),
        otherwise=slot,
    )
    if loaded.note:
        print_note(loaded.note)
    for line in loaded.idle:
        print_note(line)
    if json:
        print_json(asdict(loaded.record))
    else:
        record = loaded.record
        print_result(
            f"{interface}: program {record.program_id}, {record.mode} XDP, model in slot {slot}"
        )
        print_result(
            f"{interface}: idle flows end while n3ic xdp watch or serve {interface} runs; "
            "without, at their next packet"
        )


@COMMANDS.command()
def status(interface: InterfaceName, json: JsonFlag = False) -> None:
    """Show flows, verdicts, margins, drift against the training rows, and ignored packets."""
    from n3ic.cli.console import print_json
    from n3ic.exporters.xdp.tools.program_record import Interface
    from n3ic.exporters.xdp.tools.status import status as read
    from n3ic.exporters.xdp.tools.terminal import show

    found = read(Interface.named(interface))
    if json:
        print_json(asdict(found))
    else:
        show(found)


@COMMANDS.command()
def watch(
    interface: InterfaceName,
    seconds: Annotated[
        float | None, typer.Option(help="Stop after this many seconds; default: Ctrl-C.", min=0)
    ] = None,
    flows: Annotated[
        int | None, typer.Option(help="Stop after this many decided flows.", min=1)
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Show decided flows live or as lines of JSON; also ends idle flows."""
    from n3ic.exporters.xdp.tools.program_record import Interface
    from n3ic.exporters.xdp.tools.terminal import follow

    follow(Interface.named(interface), seconds=seconds, most=flows, json=json)


@COMMANDS.command()
def update(
    interface: InterfaceName,
    model: Annotated[Path, typer.Argument(help="A model file, a run or an export directory.")],
    slot: Annotated[
        int | None, typer.Option(help="Slot to update; default: that of flows without a rule.")
    ] = None,
) -> None:
    """Replace a model while traffic flows; every packet sees one whole model."""
    from n3ic.cli.console import print_note, print_result
    from n3ic.errors import UsageError
    from n3ic.exporters.xdp.tools.deployment import exported
    from n3ic.exporters.xdp.tools.deployment import update as swap
    from n3ic.exporters.xdp.tools.program_record import Interface
    from n3ic.model.network import BinaryModel
    from n3ic.runs.folder import models_of
    from n3ic.targets.manifest import MANIFEST, read_manifest

    found = models_of(model)
    if len(found) != 1:
        raise UsageError(f"{model} holds {len(found)} models; name one's file")
    is_export = (model / MANIFEST).is_file() and read_manifest(model)["target"] == "xdp"
    network = exported(model)[0] if is_export else BinaryModel.load(next(iter(found.values())))
    done = swap(Interface.named(interface), network, slot, export=model if is_export else None)
    if done.note:
        print_note(f"{interface}: {done.note}")
    print_result(f"{interface}: slot {done.slot} holds {network.name} {network.digest[:12]}")


@COMMANDS.command()
def unload(interface: InterfaceName) -> None:
    """Detach the program from an interface and remove everything that belongs to it."""
    from n3ic.cli.console import print_result
    from n3ic.exporters.xdp.tools.deployment import unload as detach
    from n3ic.exporters.xdp.tools.program_record import Interface

    there = detach(Interface.named(interface))
    print_result(f"{interface}: {'unloaded' if there else 'nothing of n3ic is loaded there'}")


@COMMANDS.command()
def serve(
    interface: InterfaceName,
    address: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.", min=0, max=65535)] = 9435,
    seconds: Annotated[
        float | None, typer.Option(help="Stop after this many seconds; default: Ctrl-C.", min=0)
    ] = None,
) -> None:
    """Serve figures for Prometheus at /metrics; also ends idle flows."""
    from n3ic.exporters.xdp.tools.metrics_server import serve as listen
    from n3ic.exporters.xdp.tools.program_record import Interface

    listen(Interface.named(interface), address, port, seconds=seconds)
