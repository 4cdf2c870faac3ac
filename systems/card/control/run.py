# SPDX-License-Identifier: Apache-2.0
"""Run a card under the control loop: frames at their times, and a step per window."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from n3ic.errors import DataError
from n3ic.meter.capture import Capture
from n3ic.meter.packet import LINK_ETHERNET
from n3ic.systems.card.control.loop import ControlLoop, Event
from n3ic.systems.card.control.scenario import Scenario
from n3ic.systems.card.driver import CardDriver
from n3ic.util.display import Displayed, TextTable, View

TimedFrame = tuple[float, bytes]  # second since the start, and the frame
Wait = Callable[[float], float]  # waits until a second, and returns the second that it is then

_LATE = 0.1  # seconds by which a load is late before it is told
_SHOWN = 0.1  # seconds between two reports of progress
_NANOSECONDS = 1e9


class RunningCard(CardDriver, Protocol):
    """A card that is given frames, and counts them for each tenant.

    Attributes:
        simulated: whether its time is simulated; otherwise it is the machine's.
    """

    simulated: bool

    def fitted(self, scenario: Scenario) -> Scenario:
        """Return a scenario with the regions and times of this card."""

    def requests(self, count: int) -> Mapping[str, Sequence[bytes]]:
        """Make frames of each graph, with inputs at their networks' edges."""

    def wait(self, until: float) -> float:
        """Wait until a second since the first call, and return the second that it is then."""

    def send(self, frame: bytes, now: float) -> None:
        """Give the card a frame.

        Args:
            frame: bytes of an Ethernet frame.
            now: time in seconds; it never goes back.
        """

    def finish(self) -> None:
        """Wait until every admitted frame is answered."""

    def close(self) -> None:
        """End the card."""

    def guaranteed(self) -> Mapping[str, int]:
        """Return each tenant's guarantee at present, in bytes per second."""

    def tenant_counters(self) -> Mapping[str, Mapping[str, int]]:
        """Return the counters of each tenant, and last those of frames that named no graph."""


@dataclass(frozen=True, repr=False)
class ControlledRun(Displayed):
    """What a card did.

    Attributes:
        seconds: how long it ran.
        sent: frames that it was given.
        late: seconds by which the last frame came too late; a generator that is slower than its
            load falls behind.
        guaranteed: each tenant's guarantee at the end, in bytes per second.
        counters: counters of each tenant, and of frames that named no graph.
        events: actions of the control loop.
        kind: ``measured``, or ``simulated`` for seconds of a simulated clock.
    """

    seconds: float
    sent: int
    late: float
    guaranteed: Mapping[str, int]
    counters: Mapping[str, Mapping[str, int]]
    events: tuple[Event, ...]
    kind: Literal["measured", "simulated"]

    def view(self) -> View:
        """The line and tables to display."""
        names = [*next(iter(self.counters.values()))]
        rows = []
        for name, counts in self.counters.items():
            guaranteed = f"{self.guaranteed[name]:,}" if name in self.guaranteed else ""
            rows.append((name, guaranteed, *(f"{counts[n]:,}" for n in names)))
        tables = [
            TextTable(f"Frames ({self.kind})", ("tenant", "guaranteed B/s", *names), (*rows,))
        ]
        if self.events:
            actions = tuple(
                (f"{e.time:.4g} s", e.what, str(e.region), " > ".join(e.chain)) for e in self.events
            )
            head = ("time", "action", "region", "chain")
            tables.append(TextTable("The control loop", head, actions, left=4))
        rate = self.sent / self.seconds if self.seconds else 0.0
        line = f"{self.sent:,} frames in {self.seconds:.4g} s, {rate:,.0f} frames/s ({self.kind})"
        notes = (f"the last frame came {self.late:.2f} s late",) if self.late > _LATE else ()
        return View(line, tuple(tables), notes)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


def generated(
    scenario: Scenario, requests: Mapping[str, Sequence[bytes]], seed: int
) -> Iterator[TimedFrame]:
    """Frames of a scenario's load, in the order of time.

    Args:
        scenario: the load.
        requests: frames of each graph, which are sent in turn, and padded.
        seed: seed of the load.
    """

    def frames(name: str, packets: Iterable[tuple[float, int]]) -> Iterator[TimedFrame]:
        own = requests[name]
        for i, (at, length) in enumerate(packets):
            yield at, own[i % len(own)].ljust(length, b"\0")

    return heapq.merge(
        *(
            frames(g.name, ((p.time, p.bytes) for p in scenario.packets(g, seed)))
            for g in scenario.graphs
        )
    )


def recorded(path: Path) -> Iterator[TimedFrame]:
    """Frames of a capture, at the times since its first frame.

    Raises:
        DataError: the file is no capture of Ethernet.
    """
    with Capture(path) as capture:
        if capture.link != LINK_ETHERNET:
            raise DataError(f"{path}: expected a capture of Ethernet, which a card answers")
        first, latest = None, 0
        for frame, _, at in capture.packets():
            first = at if first is None else first
            latest = max(latest, at - first)  # stamps may go back
            yield latest / _NANOSECONDS, frame


def run_card(
    scenario: Scenario,
    card: RunningCard,
    frames: Iterable[TimedFrame],
    wait: Wait | None = None,
    progress: Callable[[float, str], object] = lambda share, text: None,
) -> ControlledRun:
    """Give a card frames under the control loop.

    It ends after the scenario's seconds. An interrupt ends it earlier, and is no error.

    Args:
        scenario: the card, its tenants, failures and times.
        card: the card.
        frames: frames in the order of time.
        wait: another clock than the card's.
        progress: called with the share of time that is over, and a text.
    """
    wait = wait or card.wait
    placed = [p.chain for p in scenario.chains_used(at_start=True)]
    loop = ControlLoop(scenario, card, placed)
    now, sent, late = 0.0, 0, 0.0
    failures = [(f.at, f.region) for f in sorted(scenario.failures, key=lambda f: f.at)]
    step = shown = scenario.board.monitor

    def control(until: float) -> None:
        """Carry out what is due before a frame."""
        nonlocal now, step, shown
        while (due := min(step, failures[0][0] if failures else step)) <= until:
            now = wait(due)
            if failures and failures[0][0] <= now:
                loop.lose(failures.pop(0)[1], now)
            if step <= now:
                loop.step(now)
                step += scenario.board.monitor
                if step <= now:  # it was late: a window of no length would show no load
                    step = now + scenario.board.monitor
        if now >= shown:
            progress(min(1.0, now / scenario.seconds), f"{sent:,} frames")
            shown = now + _SHOWN

    try:
        for at, frame in frames:
            if at >= scenario.seconds:
                break
            control(max(at, now))
            now = wait(at)
            if now >= scenario.seconds:
                break
            card.send(frame, now)
            sent, late = sent + 1, now - at
        # Without more frames the loop goes on: tenants come and go.
        control(scenario.seconds)
        now = wait(scenario.seconds)
        card.finish()
    except KeyboardInterrupt:
        now = wait(0.0)
    return ControlledRun(
        now,
        sent,
        max(0.0, late),
        card.guaranteed(),
        card.tenant_counters(),
        tuple(loop.events),
        "simulated" if card.simulated else "measured",
    )
