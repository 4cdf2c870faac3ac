# SPDX-License-Identifier: Apache-2.0
"""``n3ic xdp``: the XDP programs on a machine's interfaces.

This module must import quickly: a command imports what it needs when it runs.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from n3ic.exporters.xdp.plan import Choices
    from n3ic.exporters.xdp.verdict_lists import Action, Limits
    from n3ic.model.classifier import Classifier

COMMANDS = typer.Typer(
    help="Meter, network and verdict in the Linux kernel: load, watch, block, update, unload.",
    no_args_is_help=True,
    rich_help_panel="Deploy",
)
InterfaceName = Annotated[str, typer.Argument(metavar="INTERFACE", help="A network interface.")]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print as JSON.")]

Clock = Annotated[
    str, typer.Option(help="kernel, or coarse: timer ticks, which save some 20 ns per packet.")
]
Policies = Annotated[
    list[str] | None,
    typer.Option(
        help="Action by verdict (a class, shunt, undecided, aside, excess): VERDICT=pass, "
        "drop, interface:NAME, socket:QUEUE, cpu:N or mark:N; or, for later packets too, "
        "VERDICT=block:host,ttl=60 (flow, host, prefix:24; rate-limit:N,for=host), and "
        "times=N or from=PACKET for hosts that one decision does not block."
    ),
]
Rules = Annotated[
    list[str] | None,
    typer.Option(
        help="Slot of the deciding model: KEY=VALUE,...=slot:N with interface, vlan, udp-port, "
        "prefix."
    ),
]
OtherwiseSlot = Annotated[
    int, typer.Option(help="Slot of this model; flows without a rule use it.")
]
Models = Annotated[
    list[str] | None,
    typer.Option(
        help="Model file or run of the same structure, in place of the export's; PATH=slot:N for "
        "another slot."
    ),
]
Flows = Annotated[
    int | None, typer.Option(help="Flows that the table has room for.", min=1, max=1 << 26)
]
Memory = Annotated[
    str, typer.Option(help="Memory of the flow table, such as 64M, in place of --flows.")
]
NewFlows = Annotated[
    int,
    typer.Option(
        help="Flows that a source may begin per second; packets of further flows are put aside "
        "as excess. 0: no limit.",
        min=0,
        max=10**9,
    ),
]
MaxBlocked = Annotated[
    int, typer.Option(help="Most hosts that decisions may block at one time.", min=0)
]
Room = Annotated[
    int,
    typer.Option(help="Room for verdicts by decisions; drops the least used.", min=2, max=1 << 24),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Count verdicts and policies, and pass every packet.")
]


@COMMANDS.command()
def load(
    interface: InterfaceName,
    export: Annotated[
        Path, typer.Argument(metavar="EXPORT", help="Written by `n3ic export --target xdp`.")
    ],
    hook: Annotated[
        str, typer.Option(help="xdp (incoming packets, early) or tcx (incoming and outgoing).")
    ] = "xdp",
    mode: Annotated[
        str,
        typer.Option(help="XDP: auto, native (in the driver) or generic (in the stack)."),
    ] = "auto",
    model: Models = None,
    clock: Clock = "kernel",
    policy: Policies = None,
    rule: Rules = None,
    slot: OtherwiseSlot = 0,
    flows: Flows = None,
    memory: Memory = "",
    new_flows: NewFlows = 1000,
    max_blocked: MaxBlocked = 1024,
    verdicts: Room = 16_384,
    dry_run: DryRun = False,
    priority: Annotated[
        int | None,
        typer.Option(
            help="Run beside other XDP programs through libxdp; lower numbers run first.", min=0
        ),
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            help="A setting of n3icd.conf, KEY=VALUE, such as prometheus=127.0.0.1:9435, "
            "ipfix=HOST:PORT or json=FILE."
        ),
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Start n3icd on an interface with the program of an export."""
    from dataclasses import asdict

    from n3ic.cli.console import print_json, print_note, print_result
    from n3ic.errors import UsageError
    from n3ic.exporters.xdp.verdict_lists import Limits
    from n3ic.systems.xdp.deployment import load as attach
    from n3ic.systems.xdp.program_record import Interface

    modes = ("auto", "native", "generic")
    if hook == "tcx" and priority is not None:
        raise UsageError("--priority: tcx runs several programs by itself")
    if hook not in ("xdp", "tcx") or (hook == "tcx" and mode != "auto"):
        raise UsageError(
            f"--hook {hook!r} --mode {mode!r}: expected --hook xdp, or tcx, which has no modes"
        )
    if mode not in modes:
        raise UsageError(f"--mode {mode!r}: expected one of {', '.join(modes)}")
    chosen_plan = _choices(
        clock, policy, rule, slot, Limits(dry_run, max_blocked, new_flows=new_flows), verdicts,
        flows, memory, model,
    )  # fmt: skip
    loaded = attach(
        Interface.named(interface),
        export,
        chosen_plan,
        mode="tcx" if hook == "tcx" else mode,
        priority=priority,
        settings=_settings(setting),
    )
    if loaded.note:
        print_note(loaded.note)
    if dry_run:
        print_note(f"{interface}: dry run: verdicts are counted, and every packet passes")
    if json:
        print_json({k: v for k, v in asdict(loaded.record).items() if k != "pack"})
    else:
        record = loaded.record
        print_result(
            f"{interface}: program {record.program_id}, {record.place}, model in slot {slot}, "
            f"room for {loaded.flows:,} flows"
        )
        print_result(f"{interface}: n3icd runs in the background, and ends idle flows")


def _settings(texts: list[str] | None) -> dict[str, str]:
    """Split settings as typed; n3icd knows which there are."""
    from n3ic.errors import UsageError

    out = {}
    for text in texts or ():
        key, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not key or not key.isprintable() or not value.isprintable() or key in out:
            raise UsageError(f"--setting {text!r}: expected KEY=VALUE, each KEY once")
        out[key] = str(Path(value).absolute()) if key.endswith("-file") else value
    return out


def _choices(
    clock: str,
    policy: list[str] | None,
    rule: list[str] | None,
    slot: int,
    limits: Limits,
    verdicts: int,
    flows: int | None,
    memory: str,
    model: list[str] | None,
) -> Choices:
    """Read the options that ``load`` and ``pack`` share."""
    from n3ic.errors import UsageError
    from n3ic.exporters.xdp.plan import Choices

    if clock not in ("kernel", "coarse"):
        raise UsageError(f"--clock {clock!r}: expected kernel or coarse")
    if memory and flows is not None:
        raise UsageError("--flows and --memory both give the table's size: expected one of them")
    models: dict[int, Classifier] = {}
    for text in model or ():
        path, equals, number = text.rpartition("=slot:")
        at = int(number) if equals and number.isdecimal() else slot
        if at in models:
            raise UsageError(f"--model {text}: a second model of slot {at}")
        models[at] = _model(Path(path if equals and number.isdecimal() else text))
    return Choices(
        clock="coarse" if clock == "coarse" else "kernel",
        policies=tuple(policy or ()),
        rules=tuple(rule or ()),
        otherwise=slot,
        limits=limits,
        room=verdicts,
        flows=flows,
        memory=_bytes(memory) if memory else None,
        models=models,
    )


def _model(path: Path) -> Classifier:
    """The model of a file or a run, in the form that targets write."""
    from n3ic.errors import UsageError
    from n3ic.model.layered import in_layers
    from n3ic.model.load import load_model
    from n3ic.runs.folder import models_of

    models = models_of(path)
    if len(models) != 1:
        raise UsageError(f"{path} holds {len(models)} models; name the file of one")
    return in_layers(load_model(next(iter(models.values()))))


def _bytes(text: str) -> int:
    """A number of bytes as typed: 64M, 1G, 65536."""
    import re

    from n3ic.errors import UsageError

    match = re.fullmatch(r"(\d+)([KMG]?)", text.upper())
    if not match or not int(match[1]):
        raise UsageError(f"--memory {text!r}: expected a number of bytes such as 64M or 1G")
    return int(match[1]) << 10 * " KMG".index(match[2] or " ")


@COMMANDS.command()
def status(interface: InterfaceName, json: JsonFlag = False) -> None:
    """Show flows, verdicts, margins, drift, what was dropped or put aside, and alarms."""
    from n3ic.cli.console import print_json
    from n3ic.systems.xdp.program_record import Interface
    from n3ic.systems.xdp.status import status as read
    from n3ic.systems.xdp.terminal import show

    program_status = read(Interface.named(interface))
    if json:
        print_json(asdict(program_status))
    else:
        show(program_status)


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
    """Show decided flows live or as lines of JSON."""
    from n3ic.systems.xdp.program_record import Interface
    from n3ic.systems.xdp.terminal import follow

    follow(Interface.named(interface), seconds=seconds, most=flows, json=json)


@COMMANDS.command()
def pack(
    export: Annotated[
        Path, typer.Argument(metavar="EXPORT", help="Written by `n3ic export --target xdp`.")
    ],
    out: Annotated[
        Path,
        typer.Option(
            help="The pack to write, which n3icd reads; or FILE.deb, a Debian package of n3icd "
            "with it."
        ),
    ],
    model: Models = None,
    clock: Clock = "kernel",
    policy: Policies = None,
    rule: Rules = None,
    slot: OtherwiseSlot = 0,
    flows: Flows = None,
    memory: Memory = "",
    new_flows: NewFlows = 1000,
    max_blocked: MaxBlocked = 1024,
    verdicts: Room = 16_384,
    dry_run: DryRun = False,
) -> None:
    """Write a pack for n3icd, the daemon in C: model, rules and policies as bytes of maps."""
    from n3ic.cli.console import print_result
    from n3ic.exporters.xdp.verdict_lists import Limits
    from n3ic.systems.xdp.packs import write_pack

    chosen_plan = _choices(
        clock, policy, rule, slot, Limits(dry_run, max_blocked, new_flows=new_flows), verdicts,
        flows, memory, model,
    )  # fmt: skip
    network = write_pack(export, out, chosen_plan)
    print_result(f"{out}: {network.name} {network.digest[:12]} in slot {slot}")


@COMMANDS.command()
def update(
    interface: InterfaceName,
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="A model file, a run or an export directory.")
    ],
    slot: Annotated[
        int | None, typer.Option(help="Slot to update; default: that of flows without a rule.")
    ] = None,
) -> None:
    """Replace a model while traffic flows; every packet sees one whole model."""
    from n3ic.cli.console import print_note, print_result
    from n3ic.systems.xdp.deployment import exported
    from n3ic.systems.xdp.deployment import update as swap
    from n3ic.systems.xdp.program_record import Interface
    from n3ic.targets.manifest import MANIFEST, read_manifest

    is_export = (model / MANIFEST).is_file() and read_manifest(model)["target"] == "xdp"
    network = exported(model)[0] if is_export else _model(model)
    model_update = swap(
        Interface.named(interface), network, slot, export=model if is_export else None
    )
    if model_update.note:
        print_note(f"{interface}: {model_update.note}")
    print_result(
        f"{interface}: slot {model_update.slot} holds {network.name} {network.digest[:12]}"
    )


WHAT = (
    "An address (192.0.2.1), a prefix (192.0.2.0/24), or a flow "
    "(192.0.2.1:1234-198.51.100.2:80/tcp)."
)
What = Annotated[str, typer.Argument(metavar="WHAT", help=WHAT)]
WhatOrFile = Annotated[
    str | None, typer.Argument(metavar="WHAT", help=f"{WHAT} Or give --file.", show_default=False)
]
ListFile = Annotated[
    Path | None,
    typer.Option(
        "--file",
        help="A list of addresses and prefixes: one a line, what ipset save prints, "
        "or, to block, CrowdSec decisions (JSON or CSV).",
    ),
]
Ttl = Annotated[
    float | None, typer.Option(help="Seconds for which it holds; default: until removed.", min=0)
]


@COMMANDS.command()
def block(
    interface: InterfaceName,
    what: WhatOrFile = None,
    file: ListFile = None,
    ttl: Ttl = None,
    action: Annotated[
        str, typer.Option(help="drop, rate-limit:N (packets per second) or mark:N.")
    ] = "drop",
) -> None:
    """Drop packets of a source or of a flow before they are metered."""
    from n3ic.cli.console import print_result
    from n3ic.exporters.xdp.policy_parser import operators_action
    from n3ic.systems.xdp.deployment import put_verdict
    from n3ic.systems.xdp.program_record import Interface

    if file is not None:
        _put_file(interface, what, file, *operators_action(action), ttl, action)
        return
    what = _what(what)
    entry = put_verdict(Interface.named(interface), what, *operators_action(action), ttl)
    print_result(f"{interface}: {entry}: {action}{f' for {ttl:g} s' if ttl is not None else ''}")


@COMMANDS.command()
def allow(
    interface: InterfaceName,
    what: WhatOrFile = None,
    file: ListFile = None,
    ttl: Ttl = None,
    remove: Annotated[
        bool, typer.Option("--remove", help="Remove it from the list of what is allowed.")
    ] = False,
    shared: Annotated[
        bool,
        typer.Option(
            "--shared",
            help="Many users share the address (NAT): decisions block its flows, not all of it.",
        ),
    ] = False,
) -> None:
    """Let packets of a source or of a flow pass, whatever the verdict."""
    from n3ic.cli.console import print_result
    from n3ic.errors import UsageError
    from n3ic.systems.xdp.deployment import put_verdict, remove_verdicts
    from n3ic.systems.xdp.program_record import Interface

    if file is not None:
        if remove:
            raise UsageError("--remove takes one WHAT, no --file")
        kind: tuple[Action, str] = ("shared", "shared") if shared else ("allow", "allowed")
        _put_file(interface, what, file, kind[0], 0, ttl, kind[1])
        return
    what = _what(what)
    if remove:
        if not remove_verdicts(Interface.named(interface), what, allowed=True):
            raise UsageError(f"{interface}: {what} is not on the list: see n3ic xdp list")
        print_result(f"{interface}: {what}: no longer allowed")
        return
    if shared and "-" in what:
        raise UsageError(f"{what}: expected an address or a prefix with --shared, not a flow")
    action: Action = "shared" if shared else "allow"
    entry = put_verdict(Interface.named(interface), what, action, 0, ttl)
    done = "shared by many users" if shared else "allowed"
    print_result(f"{interface}: {entry}: {done}{f' for {ttl:g} s' if ttl is not None else ''}")


def _what(what: str | None) -> str:
    from n3ic.errors import UsageError

    if what is None:
        raise UsageError("expected WHAT (an address, a prefix or a flow) or --file FILE")
    return what


def _put_file(
    interface: str,
    what: str | None,
    file: Path,
    action: Action,
    argument: int,
    ttl: float | None,
    shown: str,
) -> None:
    """Put the entries of a file on a list, and say how many."""
    from n3ic.cli.console import print_note, print_result
    from n3ic.errors import UsageError
    from n3ic.systems.xdp.deployment import put_file
    from n3ic.systems.xdp.program_record import Interface

    if what is not None:
        raise UsageError(f"{what} and --file {file}: expected one of them")
    done = put_file(Interface.named(interface), file, action, argument, ttl)
    if done.left_out:
        print_note(
            f"{file}: {done.left_out:,} decisions are left out: expired, simulated, or no ban of "
            "an address or a range"
        )
    print_result(f"{interface}: {file}: {done.entries:,} entries: {shown}; {done.new:,} are new")


@COMMANDS.command()
def unblock(interface: InterfaceName, what: What) -> None:
    """Remove the verdicts on a source or flow, both the operator's and those by decisions."""
    from n3ic.cli.console import print_result
    from n3ic.errors import UsageError
    from n3ic.systems.xdp.deployment import remove_verdicts
    from n3ic.systems.xdp.program_record import Interface

    if not remove_verdicts(Interface.named(interface), what, allowed=False):
        raise UsageError(f"{interface}: no verdict on {what}: n3ic xdp list {interface} shows them")
    print_result(f"{interface}: {what}: unblocked")


@COMMANDS.command(name="list")
def list_(interface: InterfaceName, json: JsonFlag = False) -> None:
    """List what is allowed and blocked: by whom, why, since when, for how long, and packets."""
    from n3ic.cli.console import print_json
    from n3ic.systems.xdp.deployment import listed_verdicts
    from n3ic.systems.xdp.program_record import Interface
    from n3ic.systems.xdp.terminal import show_verdicts

    verdicts = listed_verdicts(Interface.named(interface))
    if json:
        print_json({name: [vars(one) for one in some] for name, some in verdicts.items()})
    else:
        show_verdicts(interface, verdicts)


@COMMANDS.command()
def unload(interface: InterfaceName) -> None:
    """Detach the program from an interface and remove everything that belongs to it."""
    from n3ic.cli.console import print_result
    from n3ic.systems.xdp.deployment import unload as detach
    from n3ic.systems.xdp.program_record import Interface

    was_loaded = detach(Interface.named(interface))
    print_result(f"{interface}: {'unloaded' if was_loaded else 'nothing of n3ic is loaded there'}")
