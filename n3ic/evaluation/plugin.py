# SPDX-License-Identifier: Apache-2.0
"""What plug-ins say of a model beside its accuracy: of a run, on request, or while it predicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Protocol

from n3ic import plugins
from n3ic.data.flows import Columns
from n3ic.evaluation.held_out import HeldOut
from n3ic.model.classifier import Classifier
from n3ic.options import Option
from n3ic.util.display import TextTable

Figures = Mapping[str, Any]
WARNING = "warning: "
"""How a monitor's line begins that should be heeded before a verdict is; others are notes."""


class TrafficMonitor(Protocol):
    """Looks at the flows that a model classifies, and has lines about them for a person."""

    def add(self, columns: Columns) -> object: ...  # noqa: D102 - some flows
    def lines(self) -> Sequence[str]: ...  # noqa: D102 - what to know before acting on verdicts
    def to_dict(self) -> Figures: ...  # noqa: D102 - plain data for JSON


class EvaluationPlugin(plugins.Plugin):
    """An evaluation: an entry point of ``n3ic.evaluations`` names an instance."""

    options: ClassVar[tuple[Option, ...]] = ()  # of ``n3ic evaluate``, by which it is asked

    def figures(self, held: HeldOut, seed: int) -> Figures:
        """Figures that every run has in ``metrics.json`` under the name; computed quickly."""
        return {}

    def asked(self, held: HeldOut, options: Mapping[str, Any], source: Any, data: Any) -> Figures:
        """Figures on request, from a run or model file and the flows' file."""
        return {}

    def tables(self, figures: Figures) -> Sequence[TextTable]:
        """Tables of the figures of a file; raises ValueError if they are none."""
        return ()

    def watch(self, model: Classifier) -> TrafficMonitor | None:
        """What looks on while a model predicts; None if this evaluation does not."""
        return None


def evaluations() -> dict[str, EvaluationPlugin]:
    """All that are installed, by name."""
    group = "n3ic.evaluations"
    return {n: plugins.find(group, n, EvaluationPlugin) for n in plugins.names(group)}


def tables_of(metrics: Figures) -> list[TextTable]:
    """Tables of what a run's metrics have of them; none of figures that a plug-in does not know."""
    out: list[TextTable] = []
    for name, one in evaluations().items():
        with suppress(ValueError):
            out += one.tables(metrics[name]) if name in metrics else ()
    return out
