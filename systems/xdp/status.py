# SPDX-License-Identifier: Apache-2.0
"""A frozen snapshot of the figures of a program on an interface."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from n3ic.evaluation.drift import Drift, drift
from n3ic.evaluation.out_of_distribution import OodReport, ood_report
from n3ic.exporters.xdp.network.rows import bit_counts
from n3ic.exporters.xdp.network.structure import structure_of
from n3ic.exporters.xdp.network.sums import Structure
from n3ic.meter.compiled import ASIDE, ENDS
from n3ic.model.classifier import Classifier
from n3ic.systems.xdp import daemon_requests
from n3ic.systems.xdp.program_record import Interface, ProgramRecord, read_record


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
        export: path of the pack that n3icd was configured with.
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
        frags: whether the program takes frames that lie in several pieces.
        super: packets that the kernel or the card splits on the way out, or joined on the way in;
            tcx only.
        segments: number of packets on the wire that these stand for.
        mirrored: copies that were sent out of another interface.
        not_mirrored: packets whose copy could not be sent.
        no_socket: packets for an AF_XDP socket that nobody opened; they pass.
        samples_lost: samples of dropped packets that n3icd did not read in time.
        losses: decided flows and samples that n3icd did not pass on, by cause.
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
_FIGURES = (
    "flows", "room", "evicted", "undecided", "blocked_hosts", "max_blocked", "losses",
)  # fmt: skip
_TRIES = 3


def status(interface: Interface) -> ProgramStatus:
    """Read the status of an interface's program.

    Raises:
        UsageError: n3ic has loaded no program there, or n3icd is not running.
    """
    for _ in range(_TRIES):
        record = read_record(interface)
        figures = daemon_requests.figures(interface, record)
        if all(slot["digest"] in record.networks for slot in figures["slots"].values()):
            break  # no update came between record and figures
    return _status(interface, record, figures)


def _status(
    interface: Interface, record: ProgramRecord, figures: Mapping[str, Any]
) -> ProgramStatus:
    """Name the figures of n3icd, as ``metrics_write_json`` of ``metrics.c`` writes them."""
    structure, counters = structure_of([record.compiled]), figures["counters"]
    program_status = ProgramStatus(
        interface=interface.name,
        mode=record.mode,
        place=record.place,
        frags=record.frags,
        program_id=record.program_id,
        export=record.configured,
        ends={end: n for end, n in zip(ENDS, figures["decided"], strict=True) if n},
        aside=dict(zip(ASIDE, figures["aside"], strict=True)),
        dry_run=bool(figures["dry_run"]),
        slots={
            int(number): _slot(structure, record.networks[tally["digest"]], tally)
            for number, tally in figures["slots"].items()
            if tally["digest"] in record.networks
        },
        **dict[str, Any]((name, figures[name]) for name in _FIGURES),
        **dict[str, Any]((name, counters[name]) for name in _COUNTERS),
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


def _slot(structure: Structure, model: Classifier, tally: Mapping[str, Any]) -> SlotStatus:
    flows_seen = sum(tally["class"]) + tally["shunted"]
    counts = bit_counts(structure, model, np.array(tally["row"], np.int64))
    margins = list(tally["margin"])
    while margins and not margins[-1]:
        margins.pop()
    return SlotStatus(
        model=model.name,
        digest=model.digest,
        classes=dict(zip(model.classes, tally["class"], strict=False)),
        shunted=tally["shunted"],
        margins=tuple(margins),
        drift=tuple(drift(model.input, counts, flows_seen)),
        domain=ood_report(model.input, counts, flows_seen),
    )
