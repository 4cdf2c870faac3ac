# SPDX-License-Identifier: Apache-2.0
"""Prints status and decided flows for people, and flows as JSON for programs."""

from __future__ import annotations

import json as text
import time
from collections import deque
from collections.abc import Mapping
from contextlib import closing, nullcontext, suppress
from typing import Any

import numpy as np

from n3ic.cli.console import console, print_note, print_result, table
from n3ic.errors import UsageError
from n3ic.exporters.xdp.verdict_lists import ListedVerdict
from n3ic.model.classifier import SHUNT_NAME
from n3ic.systems.xdp.flow_reader import FlowReader
from n3ic.systems.xdp.program_record import Interface
from n3ic.systems.xdp.status import ProgramStatus, status
from n3ic.util.names import visible
from n3ic.util.signals import check

_LOOK_S = 1.0  # between two looks at figures and alarms
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
    """Show decided flows as they arrive.

    Args:
        interface: interface of the program.
        seconds: time limit in seconds; None for no limit.
        most: maximum number of flows; None for no limit.
        json: whether to print one line of JSON per flow instead of a live table.

    Raises:
        UsageError: No program is loaded there (any more), or n3icd is not running.
    """
    latest: deque[dict[str, Any]] = deque(maxlen=_SHOWN)
    printed: set[str] = set()  # alarms that were already printed
    looked, screen = 0.0, console()
    live: Any = nullcontext()
    if not json and screen.is_terminal:
        from rich.live import Live

        live = Live(console=screen, auto_refresh=False)
    with closing(FlowReader(interface)) as reader, live as view:
        end = None if seconds is None else time.monotonic() + seconds
        while most != 0 and (end is None or time.monotonic() < end):
            check()
            if time.monotonic() - looked > _LOOK_S:
                looked = time.monotonic()
                with suppress(UsageError):  # of an n3icd that ends, the reader tells
                    program_status = status(interface)
                    if view is None:
                        _print_new_alarms(program_status, printed)
                    else:
                        view.update(_page(program_status, latest), refresh=True)
            rest = _LOOK_S if end is None else max(0.0, min(_LOOK_S, end - time.monotonic()))
            flows = reader.read(rest)[:most]
            most = None if most is None else most - len(flows)
            latest.extend(flows)
            for flow in flows if view is None else ():
                print_result(text.dumps(flow, sort_keys=True) if json else line_of(flow))
            if reader.lost:
                print_note(f"{interface.name}: {reader.lost:,} flows came too fast to be shown")
                reader.lost = 0


def _print_new_alarms(status: ProgramStatus, printed: set[str]) -> None:
    """Print each alarm once."""
    for name, line in status.alarms.items():
        if name not in printed:
            print_note(f"{status.interface}: ALARM {line}")
    printed.update(status.alarms)


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
