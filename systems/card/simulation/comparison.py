# SPDX-License-Identifier: Apache-2.0
"""A planned card under load, beside static partitions and per-task scheduling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from n3ic.errors import UsageError
from n3ic.systems.card.planned_scenario import (
    packets_offered,
)
from n3ic.systems.card.simulation.baselines import POLICIES, SharingPolicy
from n3ic.systems.card.simulation.engine import simulate
from n3ic.systems.card.simulation.report import PolicyFigures, figures_of, tables
from n3ic.util.display import Displayed, TextTable, View

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from n3ic.systems.card.control.scenario import Scenario


MOST_SECONDS = 1000.0
"""The longest simulated time."""


@dataclass(frozen=True, repr=False)
class PolicyComparison(Displayed):
    """Simulated figures of a card under several policies.

    Attributes:
        seconds: simulated time.
        seed: seed of the random numbers.
        policies: figures of each policy.
    """

    seconds: float
    seed: int
    policies: tuple[PolicyFigures, ...]

    def view(self) -> View:
        """The line and tables to display."""
        names = ", ".join(p.policy for p in self.policies)
        of_policies = (TextTable(*content, left=2) for content in tables(self.policies))
        return View(f"{self.seconds:g} s of a card (simulated): {names}", tuple(of_policies))

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "kind": "simulated",
            "seconds": self.seconds,
            "seed": self.seed,
            "policies": [asdict(f) for f in self.policies],
        }

    def figure(self) -> Figure:
        """A picture: throughput, latency, fairness and utilisation, a column for each policy."""
        from n3ic.systems.card.simulation.picture import comparison

        return comparison(self.policies, self.seconds)


def policies_of(names: Sequence[str]) -> list[SharingPolicy]:
    """Policies by name; all policies for no name.

    Raises:
        UsageError: no policy has a name.
    """
    for name in names:
        if name not in POLICIES:
            raise UsageError(f"--policy: expected one of {', '.join(POLICIES)}, got {name!r}")
    return [p for n, p in POLICIES.items() if n in names or not names]


def packets_simulated(scenario: Scenario, policies: Sequence[SharingPolicy]) -> float:
    """Packets of a scenario under some policies."""
    return sum(packets_offered(scenario).values()) * len(policies)


def compare_policies(
    scenario: Scenario,
    policies: Sequence[SharingPolicy],
    seed: int,
    progress: Callable[[float, str], object] = lambda share, name: None,
) -> PolicyComparison:
    """Simulate a scenario under each policy.

    Args:
        scenario: a card with its load.
        policies: how its tenants share it.
        seed: seed of the random numbers.
        progress: called with the share that is done and the name of the policy.
    """
    figures = []
    for i, policy in enumerate(policies):

        def report_progress(share: float, i: int = i, name: str = policy.name) -> None:
            progress((i + share) / len(policies), name)

        figures.append(figures_of(simulate(scenario, policy, seed, report_progress)))
    return PolicyComparison(scenario.seconds, seed, tuple(figures))
