# SPDX-License-Identifier: Apache-2.0
"""A frozen snapshot of the figures of a program on an interface."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from n3ic.evaluation.drift import Drift, drift
from n3ic.evaluation.out_of_distribution import OodReport, ood_report
from n3ic.exporters.xdp.network.rows import bit_counts
from n3ic.exporters.xdp.network.structure import structure_of
from n3ic.exporters.xdp.network.sums import Structure
from n3ic.exporters.xdp.program import MeterPrograms
from n3ic.meter.compiled import ASIDE, ENDS
from n3ic.model.classifier import Classifier
from n3ic.systems.xdp import daemon_requests
from n3ic.systems.xdp.deployment import attached_program, now_of, open_program, residents
from n3ic.systems.xdp.dispatcher import dispatched
from n3ic.systems.xdp.program_record import DaemonRecord, Interface, ProgramRecord, read_model


@dataclass(frozen=True)
class SlotStatus:
    """What the model in a slot has decided.

    Attributes:
        model: name of the model.
        digest: digest of the model.
        classes: number of decided flows, by class name.
        shunted: number of flows left to the host.
        margins: number of flows by margin; the last entry counts all larger margins.
        drift: drift of each feature, the largest first.
        domain: whether the traffic resembles the training rows; None if the model carries no
            rates of them.
    """

    model: str
    digest: str
    classes: Mapping[str, int]
    shunted: int
    margins: tuple[int, ...]
    drift: tuple[Drift, ...]
    domain: OodReport | None = None


@dataclass(frozen=True)
class ProgramStatus:
    """Figures of a program since it was loaded.

    Attributes:
        interface: name of the interface.
        mode: attach mode.
        program_id: its number in the kernel.
        export: export directory of the program.
        packets: number of packets seen.
        bytes: total size of these packets in bytes.
        flows: number of flows in the table now.
        room: maximum number of flows in the table.
        started: number of flows that began.
        ends: number of decisions, by reason.
        aside: number of packets without a flow, by reason.
        evicted: flows evicted from a full table, or deleted by other means; approximate under
            traffic.
        late: packets after the end of their flow.
        events_lost: decisions that no reader fetched in time; other counters include them.
        no_model: decisions without a resident model.
        slots: status of each slot, by number.
        contended: packets not counted because another CPU held their flow.
        forgotten: sources of flows that made room for others in their table.
        not_marked: packets to mark for which the driver gives no metadata room.
        undecided: flows that left the table without a decision; a lower bound.
        allowed: packets of allowed sources and flows.
        blocked: packets that a verdict in the maps dropped before they were metered.
        limited: packets dropped before they were metered, because they exceeded the rate of a
            verdict.
        dropped: packets that the policy of their flow dropped.
        spared: packets that would have been dropped, but for the dry run.
        verdicts: verdicts that decisions put into the maps.
        refused: verdicts not put there, because ``max_blocked`` hosts were blocked.
        excess: packets put aside because their source began flows too fast.
        blocked_hosts: hosts that decisions block, including expired ones until room is needed.
        max_blocked: maximum number of these.
        dry_run: whether every packet passes.
        place: hook and mode, as text for people.
        beside: names of the other XDP programs that run on the interface.
        frags: whether the program takes frames that lie in several pieces.
        super: packets that the kernel or the card splits on the way out, or joined on the way in;
            tcx only.
        segments: number of packets on the wire that these stand for.
        mirrored: copies that were sent out of another interface.
        not_mirrored: packets whose copy could not be sent.
        no_socket: packets for an AF_XDP socket that nobody opened; they pass.
        samples_lost: samples of dropped packets that n3icd did not read in time.
        losses: decided flows and samples that n3icd did not pass on, by cause; empty for a program
            that n3icd did not load.
        alarms: what needs somebody's attention, one line each by name.
    """

    interface: str
    mode: str
    program_id: int
    export: str
    packets: int
    bytes: int
    flows: int
    room: int
    started: int
    ends: Mapping[str, int]
    aside: Mapping[str, int]
    evicted: int
    late: int
    events_lost: int
    no_model: int
    slots: Mapping[int, SlotStatus]
    contended: int = 0
    forgotten: int = 0
    not_marked: int = 0
    undecided: int = 0
    allowed: int = 0
    blocked: int = 0
    limited: int = 0
    dropped: int = 0
    spared: int = 0
    verdicts: int = 0
    refused: int = 0
    excess: int = 0
    blocked_hosts: int = 0
    max_blocked: int = 0
    dry_run: bool = False
    place: str = ""
    beside: tuple[str, ...] = ()
    frags: bool = True
    super: int = 0
    segments: int = 0
    mirrored: int = 0
    not_mirrored: int = 0
    no_socket: int = 0
    samples_lost: int = 0
    losses: Mapping[str, int] = field(default_factory=dict)
    alarms: Mapping[str, str] = field(default_factory=dict)


ALARMS = ("undecided", "full", "excess", "refused", "lost")
_COUNTERS = (
    "packets", "bytes", "started", "late", "events_lost", "no_model", "contended", "forgotten",
    "not_marked", "allowed", "blocked", "limited", "dropped", "spared", "verdicts", "refused",
    "excess", "super", "segments", "mirrored", "not_mirrored", "no_socket", "samples_lost",
)  # fmt: skip


@dataclass(frozen=True)
class _Figures:
    """Figures of a program, from its maps or from n3icd.

    Attributes:
        counters: counters by their name in ``struct counters``.
        aside: packets without a flow, by reason.
        ends: decisions by reason, those that occurred.
        flows: flows in the table.
        room: most flows of the table.
        evicted: flows that the table forgot.
        undecided: those of them that were not decided, at least.
        blocked_hosts: hosts that decisions block.
        max_blocked: most of them.
        dry_run: whether every packet passes.
        slots: decision counters of the model of each slot, as :meth:`MeterPrograms.tally` returns.
        losses: what n3icd did not pass on, by cause.
    """

    counters: Mapping[str, int]
    aside: Mapping[str, int]
    ends: Mapping[str, int]
    flows: int
    room: int
    evicted: int
    undecided: int
    blocked_hosts: int
    max_blocked: int
    dry_run: bool
    slots: Mapping[int, tuple[Classifier, Mapping[str, Any]]]
    losses: Mapping[str, int] = field(default_factory=dict)


def status(interface: Interface) -> ProgramStatus:
    """Read the status of an interface's program.

    Raises:
        UsageError: n3ic has loaded no program there.
    """
    record, compiled = attached_program(interface)
    if isinstance(record, DaemonRecord):
        structure = structure_of(compiled)
        return _status(interface, record, structure, _of_daemon(interface, record))
    with open_program(interface) as (record, programs, _):
        return status_of(interface, record, programs)


def status_of(
    interface: Interface, record: ProgramRecord, programs: MeterPrograms
) -> ProgramStatus:
    """Read the status of an opened program."""
    counters, config, flows = programs.counters(), programs.config(), programs.held()
    models = residents(interface, programs)
    figures = _Figures(
        counters=counters,
        aside={name: counters[name] for name in ASIDE},
        ends={end: n for end in ENDS if (n := counters[f"decided: {end}"])},
        flows=flows,
        room=programs.room,
        evicted=max(0, counters["inserted"] - counters["removed"] - flows),
        # A lower bound: flows still in the table may be decided, so more may have left undecided.
        undecided=max(0, counters["started"] - counters["flows_decided"] - flows),
        blocked_hosts=programs.blocked_hosts(),
        max_blocked=int(config["max_blocked"]),
        dry_run=bool(config["dry_run"]),
        slots={slot: (model, programs.tally(slot)) for slot, model in models.items()},
    )
    return _status(interface, record, programs.structure, figures)


def _of_daemon(interface: Interface, record: DaemonRecord) -> _Figures:
    """What n3icd tells; a model that an update removes meanwhile is left out."""
    told = daemon_requests.figures(interface, record)
    slots = {}
    for slot, tally in told["slots"].items():
        with suppress(FileNotFoundError):
            counts: dict[str, Any] = {
                name: np.array(tally[name], np.uint64) for name in ("class", "margin", "row")
            }
            model = read_model(interface, tally["digest"])
            slots[int(slot)] = (model, {**counts, "shunted": tally["shunted"]})
    return _Figures(
        aside=dict(zip(ASIDE, told["aside"], strict=True)),
        ends={end: n for end, n in zip(ENDS, told["decided"], strict=True) if n},
        slots=slots,
        dry_run=bool(told["dry_run"]),
        **{
            name: told[name]
            for name in (
                "counters", "losses", "flows", "room", "evicted", "undecided", "blocked_hosts",
                "max_blocked",
            )
        },
    )  # fmt: skip


def _status(
    interface: Interface, record: ProgramRecord, structure: Structure, figures: _Figures
) -> ProgramStatus:
    program_status = ProgramStatus(
        interface=interface.name,
        mode=record.mode,
        place=record.place,
        beside=_beside(interface, record),
        frags=record.frags,
        program_id=record.program_id,
        export=record.export,
        ends=figures.ends,
        aside=figures.aside,
        flows=figures.flows,
        room=figures.room,
        evicted=figures.evicted,
        undecided=figures.undecided,
        blocked_hosts=figures.blocked_hosts,
        max_blocked=figures.max_blocked,
        dry_run=figures.dry_run,
        losses=figures.losses,
        slots={slot: _slot(structure, *of_slot) for slot, of_slot in figures.slots.items()},
        **dict[str, Any]((name, figures.counters[name]) for name in _COUNTERS),
    )
    return replace(program_status, alarms=dict(alarms(program_status)))


def alarms(status: ProgramStatus) -> Iterator[tuple[str, str]]:
    """Yield a name and a line of text for everything that needs attention."""
    if status.undecided:
        yield (
            "undecided",
            f"at least {status.undecided:,} flows left the full table undecided: load an export "
            "with --table buckets, or more --flows",
        )
    if status.aside.get("flow cache full"):
        full = status.aside["flow cache full"]
        yield "full", f"no room in the flow table for {full:,} packets: load with more --flows"
    if status.excess:
        yield (
            "excess",
            f"{status.excess:,} packets of flows that their source began too fast were put aside "
            "(--new-flows)",
        )
    if status.refused:
        yield (
            "refused",
            f"{status.refused:,} verdicts were refused: at most {status.max_blocked:,} hosts are "
            "blocked at one time (--max-blocked); look at n3ic xdp list, is the model right?",
        )
    if status.losses and (lost := status.events_lost + sum(status.losses.values())):
        yield "lost", f"{lost:,} decided flows or samples of packets came too fast for n3icd"


def sweep(record: ProgramRecord, programs: MeterPrograms) -> None:
    """End the flows that exceed the idle timeout, as no packet of theirs comes to end them."""
    programs.end_idle(now_of(record, programs.spec.tick_ns))


def _beside(interface: Interface, record: ProgramRecord) -> tuple[str, ...]:
    dispatcher_state = dispatched(interface.index) if record.priority is not None else None
    others = dispatcher_state.programs.items() if dispatcher_state else ()
    return tuple(name for number, name in others if number != record.program_id)


def _slot(structure: Structure, model: Classifier, tally: Mapping[str, Any]) -> SlotStatus:
    flows_seen = int(tally["class"].sum() + tally["shunted"])
    counts = bit_counts(structure, model, tally["row"].astype("int64"))
    margins = [int(n) for n in tally["margin"]]
    while margins and not margins[-1]:
        margins.pop()
    return SlotStatus(
        model=model.name,
        digest=model.digest,
        classes=dict(zip(model.classes, (int(n) for n in tally["class"]), strict=False)),
        shunted=int(tally["shunted"]),
        margins=tuple(margins),
        drift=tuple(drift(model.input, counts, flows_seen)),
        domain=ood_report(model.input, counts, flows_seen),
    )
