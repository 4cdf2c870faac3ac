"""Figures of a program on an interface, in one frozen description."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from n3ic.evaluation.drift import Drift, drift
from n3ic.exporters.xdp.network.rows import bit_counts
from n3ic.exporters.xdp.program import MeterPrograms
from n3ic.exporters.xdp.tools.deployment import now_of, opened, residents
from n3ic.exporters.xdp.tools.record import Interface, Record
from n3ic.meter.compiled import ASIDE
from n3ic.model.network import BinaryModel


@dataclass(frozen=True)
class SlotStatus:
    """Decisions of the model of a slot.

    Attributes:
        model: its name.
        digest: of the model.
        classes: flows decided, by class name.
        shunted: flows left to the host.
        margins: flows by margin; the last counts all above.
        drift: of each feature, the largest first.
    """

    model: str
    digest: str
    classes: Mapping[str, int]
    shunted: int
    margins: tuple[int, ...]
    drift: tuple[Drift, ...]

    @property
    def decided(self) -> int:
        """Flows that it saw."""
        return sum(self.classes.values()) + self.shunted


@dataclass(frozen=True)
class Status:
    """What a program did since it was loaded.

    Attributes:
        interface: where.
        mode: how it is attached.
        program_id: its number in the kernel.
        export: the export directory that it came from.
        packets: packets that it saw.
        bytes: their bytes.
        flows: flows in the table now.
        room: flows that the table holds.
        started: flows that began.
        ends: decisions by reason.
        aside: packets of no flow, by reason.
        evicted: flows that made room for others in a full table, or that somebody deleted; about,
            under traffic.
        late: packets behind the end of their flow.
        events_lost: decisions that nobody read in time; they are counted all the same.
        no_model: decisions for which there was no model.
        slots: by number.
        contended: packets that were not counted, because another CPU held their flow.
        not_marked: packets that a policy marks, whose driver gives no room for the mark.
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
    not_marked: int = 0


def status(interface: Interface) -> Status:
    """The figures of an interface's program.

    Raises:
        UsageError: n3ic has loaded none there.
    """
    with opened(interface) as (record, programs, _):
        return status_of(interface, record, programs)


def status_of(interface: Interface, record: Record, programs: MeterPrograms) -> Status:
    """The figures of an opened program.

    Args:
        interface: where it is attached.
        record: how.
        programs: its maps.
    """
    counters, models = programs.counters(), residents(interface, programs)
    flows = programs.held()
    ends = {
        name.removeprefix("decided: "): count
        for name, count in counters.items()
        if name.startswith("decided: ") and count
    }
    return Status(
        interface=interface.name,
        mode=record.mode,
        program_id=record.program_id,
        export=record.export,
        packets=counters["packets"],
        bytes=counters["bytes"],
        flows=flows,
        room=programs.room,
        started=counters["started"],
        ends=ends,
        aside={name: counters[name] for name in ASIDE if counters[name]},
        evicted=max(0, counters["inserted"] - counters["removed"] - flows),
        late=counters["late"],
        events_lost=counters["events_lost"],
        no_model=counters["no_model"],
        contended=counters["contended"],
        not_marked=counters["not_marked"],
        slots={slot: _slot(programs, slot, model) for slot, model in models.items()},
    )


def sweep(record: Record, programs: MeterPrograms) -> None:
    """End the flows that have been idle for too long: no packet of theirs comes to do it."""
    programs.end_idle(now_of(record, programs.spec.tick_ns))


def _slot(programs: MeterPrograms, slot: int, model: BinaryModel) -> SlotStatus:
    tally = programs.tally(slot)
    seen = int(tally["class"].sum() + tally["shunted"])
    counts = bit_counts(programs.structure, model, tally["row"].astype("int64"))
    margins = [int(n) for n in tally["margin"]]
    while margins and not margins[-1]:
        margins.pop()
    return SlotStatus(
        model=model.name,
        digest=model.digest,
        classes=dict(zip(model.classes, (int(n) for n in tally["class"]), strict=False)),
        shunted=int(tally["shunted"]),
        margins=tuple(margins),
        drift=tuple(drift(model.input, counts, seen)),
    )
