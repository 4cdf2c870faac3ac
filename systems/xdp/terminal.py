# SPDX-License-Identifier: Apache-2.0
"""Prints status and decided flows for people, and flows as JSON for programs."""

from __future__ import annotations

import ipaddress
import json as text
import socket
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from typing import Any

import numpy as np

from n3ic.cli.console import console, print_note, print_result, table
from n3ic.exporters.xdp.layout import NO_MODEL
from n3ic.exporters.xdp.program import MeterPrograms
from n3ic.exporters.xdp.resident import NO_VLAN
from n3ic.exporters.xdp.verdict_lists import ListedVerdict
from n3ic.meter.compiled import ENDS
from n3ic.model.classifier import SHUNT, SHUNT_NAME, Classifier
from n3ic.systems.xdp.deployment import is_attached, open_program, residents
from n3ic.systems.xdp.program_record import Interface, watching
from n3ic.systems.xdp.status import ProgramStatus, status_of, sweep
from n3ic.util.names import visible
from n3ic.util.signals import check

SWEEP_S = 1.0
_POLL_MS = 200
_SHOWN = 12  # rows of the live table
_BARS = " ▁▂▃▄▅▆▇█"
_LOSSES = {
    "damaged": "events that n3icd could not read",
    "reader_lost": "flows that slow readers of n3icd lost",
    "file_lost": "flows that the file did not take",
    "syslog_lost": "flows that syslog did not take",
    "ipfix_lost": "flows that were not sent as IPFIX",
    "sflow_lost": "samples of packets that were not sent as sFlow",
}
_WORST = 5  # features whose drift is shown, the largest first


def show(status: ProgramStatus) -> None:
    """Print the status of a program."""
    for line in lines(status):
        print_result(line)
    for number, slot in status.slots.items():
        if not slot.drift:
            continue
        table(
            f"drift of slot {number} against the training rows (PSI; 0.25 is a change)",
            ("feature", "PSI", "99 % of samples", "drift", "bit", "trained", "live"),
            [
                (
                    d.feature,
                    f"{d.psi:.3f}",
                    f"< {d.bound:.3f}",
                    d.level,
                    str(d.bit),
                    f"{d.trained:.1%}",
                    f"{d.live:.1%}",
                )
                for d in slot.drift[:_WORST]
            ],
        )


def lines(status: ProgramStatus) -> list[str]:
    """The figures without the drift, as lines of text."""
    out = [
        f"{status.interface}: program {status.program_id}, {status.place or status.mode}, "
        f"{status.export}",
        f"packets {status.packets:,} ({status.bytes:,} bytes), aside "
        f"{_listed({name: n for name, n in status.aside.items() if n})}",
        f"flows {status.flows:,} of {status.room:,}, started {status.started:,}, "
        f"evicted {status.evicted:,}, decided {_listed(status.ends)}",
    ]
    lost = {
        "packets behind the end of their flow": status.late,
        "decisions that nobody read": status.events_lost,
        "decisions without a model": status.no_model,
        "packets not counted, since another CPU held their flow": status.contended,
        "sources that made room for others in their table": status.forgotten,
        "packets not marked, for want of room before them": status.not_marked,
        "packets whose copy could not be sent": status.not_mirrored,
        "packets for a socket that nobody opened": status.no_socket,
    }
    lost |= {_LOSSES.get(name, name): count for name, count in status.losses.items()}
    out += [f"{name} {count:,}" for name, count in lost.items() if count]
    if status.verdicts or status.allowed or status.blocked or status.limited or status.dropped:
        out.append(
            f"verdicts by decisions {status.verdicts:,}, hosts blocked {status.blocked_hosts:,} of "
            f"{status.max_blocked:,}; packets allowed {status.allowed:,}, blocked "
            f"{status.blocked:,}, over a rate {status.limited:,}, dropped by policy "
            f"{status.dropped:,}"
        )
    if status.beside:
        out.append(f"beside {', '.join(status.beside)}")
    if status.mirrored:
        out.append(f"copies sent {status.mirrored:,}")
    if status.super:
        out.append(
            f"large packets {status.super:,}, {status.segments:,} on the wire; each counts as one"
        )
    if status.dry_run:
        out.append(f"dry run: every packet passes, {status.spared:,} would not have")
    out += [f"ALARM {line}" for line in status.alarms.values()]
    for number, slot in status.slots.items():
        verdicts = {**slot.classes, SHUNT_NAME: slot.shunted}
        out.append(f"slot {number}: {slot.model} {slot.digest[:12]}, {_listed(verdicts)}")
        out += slot.domain.lines() if slot.domain else []
        if slot.margins:
            out.append(f"  margins 0 to {len(slot.margins) - 1}: {_bars(slot.margins)}")
    return out


def _decision(verdict: ListedVerdict) -> str:
    """The decision that made a verdict; empty for one of the operator's."""
    if verdict.margin is None:
        return ""
    again = f", {verdict.repeats + 1} times" if verdict.repeats else ""
    return f"margin {verdict.margin:,} at packet {verdict.flow_packets:,}{again}"


def show_verdicts(interface: str, verdicts: Mapping[str, list[ListedVerdict]]) -> None:
    """Print the verdicts in force, by list."""
    rows = [
        (
            one.target,
            one.action + (f":{one.argument}" if one.argument else ""),
            one.by,
            _decision(one),
            time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(one.since)),
            "ever" if one.left_s is None else f"{one.left_s:,.0f} s",
            f"{one.packets:,}",
        )
        for entries in verdicts.values()
        for one in entries
    ]
    if not rows:
        print_result(f"{interface}: nothing is allowed or blocked")
        return
    # Lines and no table of Rich's, which takes a minute for a list of 65,000 hosts.
    rows.insert(0, ("what", "action", "by", "why", "since", "holds for", "packets"))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    line = "  ".join(f"{{:{side}{n}}}" for side, n in zip("<<<<<>>", widths, strict=True))
    print_result("\n".join([f"verdicts on {interface}", *(line.format(*row) for row in rows)]))


def follow(interface: Interface, *, seconds: float | None, most: int | None, json: bool) -> None:
    """Show decided flows as they arrive; also end idle flows.

    Args:
        interface: interface of the program.
        seconds: time limit in seconds; None for no limit.
        most: maximum number of flows; None for no limit.
        json: whether to print one line of JSON per flow instead of a live table.

    Raises:
        UsageError: No program is loaded there (any more), or another process already watches it.
    """
    end = None if seconds is None else time.monotonic() + seconds
    remaining, swept = most, 0.0
    latest: deque[dict[str, Any]] = deque(maxlen=_SHOWN)
    printed: set[str] = set()  # alarms that were already printed
    screen = console()
    live: Any = nullcontext()
    if not json and screen.is_terminal:
        from rich.live import Live

        live = Live(console=screen, auto_refresh=False)

    def going() -> bool:
        return (end is None or time.monotonic() < end) and remaining != 0

    with live as view:
        while going():
            with (
                open_program(interface, ending=True) as (record, programs, models),
                watching(interface),
            ):
                while going() and is_attached(interface, record):
                    check()
                    if time.monotonic() - swept > SWEEP_S:
                        sweep(record, programs)
                        swept = time.monotonic()
                        if view is None:
                            _print_new_alarms(status_of(interface, record, programs), printed)
                    for flow in list(_decided(interface, programs, models))[:remaining]:
                        remaining = None if remaining is None else remaining - 1
                        latest.append(flow)
                        if json:
                            print_result(text.dumps(flow, sort_keys=True))
                        elif view is None:
                            print_result(line_of(flow))
                    if view is not None:
                        status = status_of(interface, record, programs)
                        view.update(_page(status, latest), refresh=True)


def _print_new_alarms(status: ProgramStatus, printed: set[str]) -> None:
    """Print each alarm once."""
    for name, line in status.alarms.items():
        if name not in printed:
            print_note(f"{status.interface}: ALARM {line}")
    printed.update(status.alarms)


def _decided(
    interface: Interface, programs: MeterPrograms, models: dict[int, Classifier]
) -> Iterator[dict[str, Any]]:
    names = [r.name for r in programs.spec.registers]
    tick_ns, fresh = programs.spec.tick_ns, False
    booted_ns = time.time_ns() - time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    for event in programs.events(_POLL_MS):
        slot, digest = int(event["slot"]), event["model"].tobytes().hex()
        if not fresh and (slot not in models or not models[slot].digest.startswith(digest)):
            models.update(residents(interface, programs))  # an update has swapped the model
            fresh = True
        model = models.get(slot)
        size = int(event["address_bytes"])
        source, destination = (
            str(ipaddress.ip_address(event[end][:size].tobytes()))
            for end in ("source", "destination")
        )
        yield {
            "source": source,
            "source_port": int(event["source_port"]),
            "destination": destination,
            "destination_port": int(event["destination_port"]),
            "protocol": int(event["protocol"]),
            "vlan": None if event["vlan"] == NO_VLAN else int(event["vlan"]),
            "interface": _name(int(event["interface"])),
            **{
                name: round((int(event[name]) * tick_ns + booted_ns) / 1e9, 6)
                for name in ("first", "last", "decided")
            },
            "packets": int(event["packets"]),
            "why": ENDS[int(event["why"])],
            "verdict": _verdict(int(event["verdict"]), model),
            "margin": int(event["margin"]),
            "scores": np.asarray(event["scores"]).tolist(),
            "slot": slot,
            "model": digest,
            "registers": dict(zip(names, event["registers"].tolist(), strict=False)),
            "features": dict(
                zip(programs.spec.feature_names, event["features"].tolist(), strict=False)
            ),
        }


def _name(index: int) -> str:
    """An interface's name, or its index if the interface no longer exists."""
    try:
        return socket.if_indextoname(index)
    except OSError:
        return str(index)


def _verdict(verdict: int, model: Classifier | None) -> str:
    if verdict == SHUNT:
        return SHUNT_NAME
    if verdict == NO_MODEL:
        return "none"
    return model.classes[verdict] if model and verdict < len(model.classes) else str(verdict)


def line_of(flow: Mapping[str, Any]) -> str:
    """Format a decided flow as one line for people."""
    ends = (
        f"{flow['source']}:{flow['source_port']} > {flow['destination']}:{flow['destination_port']}"
    )
    return (
        f"{ends} protocol {flow['protocol']}, {flow['packets']:,} packets, {flow['why']}: "
        f"{flow['verdict']}, margin {flow['margin']}"
    )


def _page(status: ProgramStatus, flows: deque[dict[str, Any]]) -> Any:
    from rich.text import Text

    return Text("\n".join(visible(t) for t in (*lines(status), "", *map(line_of, flows))))


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items()) or "none"


def _bars(counts: tuple[int, ...]) -> str:
    """A histogram of up to 64 columns."""
    columns = np.add.reduceat(counts, np.arange(0, len(counts), -(-len(counts) // 64)))
    top = max(1, int(columns.max()))
    return "".join(_BARS[-(-int(c) * (len(_BARS) - 1) // top)] for c in columns)
