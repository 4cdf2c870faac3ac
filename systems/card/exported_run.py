# SPDX-License-Identifier: Apache-2.0
"""Run an exported card on this machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from n3ic.errors import UsageError
from n3ic.systems.card.control.run import ControlledRun, generated, recorded, run_card
from n3ic.systems.card.export import card_target, open_card
from n3ic.systems.card.plan import CardPlan
from n3ic.systems.card.planned_scenario import scenario_under

_FRAMES = 16  # different frames of a graph


def run_exported(
    plan: CardPlan,
    directory: Path,
    seconds: float | None = None,
    *,
    frames: Path | None = None,
    load: Sequence[str] = (),
    event: Sequence[str] = (),
    seed: int = 0,
    threads: int | None = None,
    progress: Callable[[float, str], object] = lambda share, text: None,
) -> ControlledRun:
    """Run an export of a plan on this machine.

    Args:
        plan: the plan.
        directory: its export, of target ``host``, ``xdp`` or ``netfpga``.
        seconds: how long; None for what is usual for the target.
        frames: a capture of the frames; None for a load.
        load: loads of tenants, as they are typed.
        event: events, as they are typed.
        seed: seed of the load.
        threads: threads that compute; None for one per region.
        progress: called with the share of time that is over, and a text.

    Raises:
        UsageError: the time, a load or an event is wrong, or there are both frames and a load.
        CardError: no card of this target runs here.
        DataError: the capture cannot be read.
        VerifyError: the export does not compile.
    """
    if frames is not None and load:
        raise UsageError("--frames and --load: expected one of them, got both")
    target = card_target(plan.card.device.target)
    least, usual, most = target.run_seconds
    seconds = usual if seconds is None else seconds
    if not least <= seconds <= most:
        raise UsageError(
            f"seconds: expected {least:g} to {most:g} for target {target.name}, got {seconds:g}"
        )
    scenario = scenario_under(plan, seconds, load, event)
    if wrong := {failure.kind for failure in scenario.failures} - target.failures:
        known = "arrives, leaves or lost" if target.failures else "arrives or leaves"
        raise UsageError(f"--event: expected {known} for target {target.name}, got {wrong.pop()}")
    with closing(open_card(plan, directory, threads or scenario.regions)) as opened:
        scenario = opened.fitted(scenario)
        given = (
            generated(scenario, opened.requests(_FRAMES), seed)
            if frames is None
            else recorded(frames)
        )
        return run_card(scenario, opened, given, progress=progress)
