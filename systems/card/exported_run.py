# SPDX-License-Identifier: Apache-2.0
"""Run an exported card on this machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from n3ic.errors import UsageError
from n3ic.systems.card.compile import software_card
from n3ic.systems.card.control.run import (
    ControlledRun,
    RealTime,
    generated,
    in_software,
    recorded,
    run_card,
)
from n3ic.systems.card.export import open_card
from n3ic.systems.card.plan import CardPlan
from n3ic.systems.card.planned_scenario import scenario_under

MOST_SECONDS = 86400.0


def run_exported(
    plan: CardPlan,
    directory: Path,
    seconds: float,
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
        directory: its export, of target ``host`` or ``xdp``.
        seconds: how long.
        frames: a capture of the frames; None for a load.
        load: loads of tenants, as they are typed.
        event: events, as they are typed.
        seed: seed of the load.
        threads: threads that compute; None for one per region.
        progress: called with the share of time that is over, and a text.

    Raises:
        UsageError: a load or an event is wrong, or there are both frames and a load.
        CardError: no card of this target runs here.
        DataError: the capture cannot be read.
        VerifyError: the export does not compile.
    """
    if frames is not None and load:
        raise UsageError("--frames and --load: expected one of them, got both")
    scenario = in_software(scenario_under(plan, seconds, load, event))
    if any(failure.kind == "stuck" for failure in scenario.failures):
        raise UsageError("--event: expected arrives, leaves or lost, for no host's region is stuck")
    with closing(open_card(plan, directory, threads or scenario.regions)) as opened:
        card = software_card(plan, plan.card.device.target)
        given = generated(scenario, card, seed) if frames is None else recorded(frames)
        return run_card(scenario, opened, given, RealTime(), progress)
