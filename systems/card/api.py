# SPDX-License-Identifier: Apache-2.0
"""``n3ic.plan_card``, ``simulate_card``, ``export_card``, ``verify_card`` and ``run_card``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from n3ic.errors import UsageError, in_python, needed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from n3ic.systems.card.control.run import ControlledRun
    from n3ic.systems.card.description import Card
    from n3ic.systems.card.export import CardCheck, ExportedCard
    from n3ic.systems.card.plan import CardPlan
    from n3ic.systems.card.simulation.comparison import PolicyComparison


@in_python()
@needed("n3ic.plan_card")
def plan_card(
    card: str | Path | Card = "card.toml", *, target: str | None = None, best_effort: bool = False
) -> CardPlan:
    """Divide a card among its tenants: chains into regions, space by DRF, time by DRFQ.

    Args:
        card: the card's description, a ``card.toml``; or one that was read.
        target: target that the card must be for; None for the description's.
        best_effort: accept a plan that cannot guarantee all wanted rates.

    Returns:
        The plan: regions, shares of the tenants, guaranteed rates in inferences/s, latencies in ns.

    Raises:
        CardError: the description is malformed, the device does not support a task, or a wanted
            rate cannot be guaranteed.
        UsageError: the card is for another target.
        MissingDependencyError: scipy, whose solver plans, is missing.
    """
    from n3ic.systems.card.planner import plan_described

    return plan_described(card, target, best_effort=best_effort)


@in_python()
@needed("n3ic.simulate_card")
def simulate_card(
    card: str | Path | Card = "card.toml",
    *,
    seconds: float = 0.01,
    load: Sequence[str] = (),
    event: Sequence[str] = (),
    policy: Sequence[str] = (),
    seed: int = 0,
    progress: Callable[[float, str], object] = lambda share, policy: None,
) -> PolicyComparison:
    """Simulate a card under load, beside static partitions and per-task scheduling.

    Args:
        card: the card's description, a ``card.toml``; or one that was read.
        seconds: simulated seconds, above 0.
        load: loads of tenants, ``[TENANT=]KIND[*FACTOR[,FACTOR@SECOND...]]``; a kind is
            ``constant``, ``poisson``, ``bursts`` or ``heavy-tailed``, and a factor multiplies the
            wanted rate, from a second on.
        event: ``TENANT:arrives@SECOND``, ``TENANT:leaves@SECOND``, ``REGION:stuck@SECOND`` or
            ``REGION:lost@SECOND``.
        policy: ``chains``, ``drf``, ``static`` or ``per-task``; none for all.
        seed: seed of the random numbers.
        progress: called with the share that is done and the policy that runs.

    Returns:
        Figures of each policy: Gb/s, latencies in ns, fairness, utilisation.

    Raises:
        CardError: as :func:`plan_card`, but for guarantees.
        UsageError: a load, an event, a policy or the time is wrong.
        MissingDependencyError: a library of the extra ``card`` is missing.
    """
    from n3ic.systems.card.planned_scenario import scenario_under
    from n3ic.systems.card.planner import plan_described
    from n3ic.systems.card.simulation import comparison

    if not 0 < seconds <= comparison.MOST_SECONDS:
        raise UsageError(
            f"seconds: expected more than 0 and at most {comparison.MOST_SECONDS:g}, got {seconds}"
        )
    policies = comparison.policies_of(policy)
    plan = plan_described(card, best_effort=True)
    scenario = scenario_under(plan, seconds, load, event)
    return comparison.compare_policies(scenario, policies, seed, progress)


@in_python()
@needed("n3ic.export_card")
def export_card(
    card: str | Path | Card,
    out: str | Path,
    *,
    target: str | None = None,
    packets: int = 6,
    verify: bool = True,
    best_effort: bool = False,
    replace: bool = False,
) -> ExportedCard:
    """Write a card as one image, and run every network through it; write all or nothing.

    Args:
        card: the card's description, a ``card.toml``; or one that was read.
        out: the directory.
        target: target that the card must be for; None for the description's.
        packets: packets of each graph in the verification.
        verify: run every network before the directory appears.
        best_effort: accept a plan that cannot guarantee all wanted rates.
        replace: replace an existing export of a card.

    Returns:
        The directory and its verification; without one, the tool that is missing.

    Raises:
        CardError: as :func:`plan_card`.
        UsageError: the target writes no cards, or ``out`` exists.
        VerifyError: the image's results differ from the networks'.
    """
    from n3ic.systems.card import export
    from n3ic.systems.card.planner import plan_described

    plan = plan_described(card, target, best_effort=best_effort)
    return export.export_card(plan, Path(out), replace=replace, packets=packets, verify=verify)


@in_python()
@needed("n3ic.verify_card")
def verify_card(
    directory: str | Path, card: str | Path | Card = "card.toml", *, packets: int = 24
) -> CardCheck:
    """Compare an exported card with a fresh export, and run every network through it.

    Args:
        directory: the exported card.
        card: the card's description, a ``card.toml``; or one that was read.
        packets: packets of each graph.

    Raises:
        UsageError: the directory is not an exported card.
        VerifyError: a file is missing, changed or unknown, or a result differs.
    """
    from n3ic.systems.card import export
    from n3ic.systems.card.planner import plan_described

    export.check_directory(Path(directory))
    return export.verify_card(plan_described(card, best_effort=True), Path(directory), packets)


@in_python()
@needed("n3ic.run_card")
def run_card(
    directory: str | Path,
    card: str | Path | Card = "card.toml",
    *,
    seconds: float | None = None,
    frames: str | Path | None = None,
    load: Sequence[str] = (),
    event: Sequence[str] = (),
    seed: int = 0,
    threads: int | None = None,
    progress: Callable[[float, str], object] = lambda share, text: None,
) -> ControlledRun:
    """Run an exported card, on this machine or simulated, under the control loop.

    An interrupt ends it.

    Args:
        directory: the exported card, of target ``host``, ``xdp`` or ``netfpga``.
        card: the card's description, a ``card.toml``; or one that was read.
        seconds: how long it runs; None for 10, or 0.02 simulated ones for ``netfpga``.
        frames: a capture of the frames to send, instead of a load.
        load: loads of tenants, as for :func:`simulate_card`; none for the wanted rates.
        event: ``TENANT:arrives@SECOND``, ``TENANT:leaves@SECOND`` or (not ``netfpga``)
            ``REGION:lost@SECOND``.
        seed: seed of the load.
        threads: threads that compute, from 1; None for one per region.
        progress: called with the share of time that is over, and a text.

    Returns:
        Frames sent, counters of each tenant, guarantees in bytes/s, actions of the loop.

    Raises:
        CardError: as :func:`plan_card`, but for guarantees; or no card of this target runs here.
        UsageError: the directory is not an exported card, or an argument is wrong.
        DataError: the capture cannot be read.
        VerifyError: the export does not compile.
        MissingDependencyError: scipy, or a tool such as a C compiler, is missing.
    """
    from n3ic.systems.card.export import check_directory
    from n3ic.systems.card.exported_run import run_exported
    from n3ic.systems.card.planner import plan_described

    if threads is not None and threads < 1:
        raise UsageError(f"threads: expected 1 or more, got {threads}")
    check_directory(Path(directory))
    return run_exported(
        plan_described(card, best_effort=True),
        Path(directory),
        seconds,
        frames=None if frames is None else Path(frames),
        load=load,
        event=event,
        seed=seed,
        threads=threads,
        progress=progress,
    )
