# SPDX-License-Identifier: Apache-2.0
"""Evaluations by plug-ins beside accuracy: of each run, on request, or while a model predicts."""

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
"""Prefix of a watch's lines that should be heeded before any verdict; others are notes."""


class TrafficMonitor(Protocol):
    """Observes the flows that a model classifies, and reports on them in lines of text."""

    def add(self, columns: Columns) -> object: ...  # noqa: D102 - some flows
    def lines(self) -> Sequence[str]: ...  # noqa: D102 - what to know before acting on verdicts
    def to_dict(self) -> Figures: ...  # noqa: D102 - plain data for JSON


class EvaluationPlugin(plugins.Plugin):
    """An evaluation; an entry point in the group ``n3ic.evaluations`` names an instance."""

    options: ClassVar[tuple[Option, ...]] = ()  # options of ``n3ic evaluate`` that request it
    study_option: ClassVar[str] = ""  # the one that requests a study; empty without one

    def figures(self, sample: HeldOut, seed: int) -> Figures:
        """Figures of every run, stored in ``metrics.json`` by the plug-in's name; must be quick."""
        return {}

    def requested_figures(
        self, sample: HeldOut, options: Mapping[str, Any], source: Any, data: Any
    ) -> Figures:
        """Figures on request; ``source`` is the run or model file, ``data`` the flows' file."""
        return {}

    def study(self, options: Mapping[str, Any], source: Any) -> Figures:
        """Figures on request that need no flows for a model, such as of models that it trains.

        ``source`` is the run or model file, or None.
        """
        return {}

    def tables(self, figures: Figures) -> Sequence[TextTable]:
        """Tables of figures read from a file; raises ValueError if they are malformed."""
        return ()

    def watch(self, model: Classifier) -> TrafficMonitor | None:
        """An observer of a model's predictions; None if this evaluation has none."""
        return None


def evaluations() -> dict[str, EvaluationPlugin]:
    """All installed evaluations, by name."""
    group = "n3ic.evaluations"
    return {n: plugins.find(group, n, EvaluationPlugin) for n in plugins.names(group)}


def tables_of(metrics: Figures) -> list[TextTable]:
    """Tables of plug-ins' figures in a run's metrics, without figures that a plug-in rejects."""
    out: list[TextTable] = []
    for name, evaluation in evaluations().items():
        with suppress(ValueError):
            out += evaluation.tables(metrics[name]) if name in metrics else ()
    return out
