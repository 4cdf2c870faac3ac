# SPDX-License-Identifier: Apache-2.0
"""Network tomography: finds congested queues of a data centre from the delays of probes.

The traces come from ns-3. One is bundled; ``n3ic data generate`` makes others if ns-3 is installed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from n3ic.data.dataset import DataSet
from n3ic.datasets.ns3_tomography.recipes import RECIPES
from n3ic.options import Option, OptionValue, parse_options
from n3ic.usecases.base import UseCase
from n3ic.util.files import free_path

if TYPE_CHECKING:
    from n3ic.data.table import Feature, FlowTable
    from n3ic.datasets.ns3_tomography.table import TomographyTable
    from n3ic.model.classifier import Classifier
    from n3ic.runs.experiment import TrainingResult

__all__ = ["BUNDLED", "DATASET", "USECASE", "Tomography"]

BUNDLED = "tomography_100mbps.tomo.xz"


class Ns3Tomography(DataSet):
    """Traces of a small fat tree under TCP incast, simulated by ns-3; one is bundled."""

    name = "ns3-tomography"
    summary = "probe delays and queue occupancies of a data centre simulated in ns-3"
    synthetic = True

    @property
    def catalogue(self) -> tuple[Feature, ...]:
        """The features of the bundled trace."""
        return self.load().catalogue

    def load(self, path: str | Path | Sequence[str | Path] | None = None) -> TomographyTable:
        """Read trace files, those in a folder, or the bundled trace.

        Raises:
            DataError: a file is not a trace, or the traces are of different simulations.
        """
        from dataclasses import replace

        from n3ic.datasets.ns3_tomography.table import load

        if path is not None:
            return load(path)
        with as_file(files(__package__).joinpath(BUNDLED)) as bundled:
            table = load(bundled)
        return replace(table, sources=tuple(replace(s, path=BUNDLED) for s in table.sources))

    def recognises(self, path: Path) -> bool:
        """Whether a file begins or is named like a trace, or a folder holds a file so named."""
        from n3ic.data.files import first_bytes
        from n3ic.datasets.ns3_tomography.trace import MAGIC, SUFFIX

        if path.is_dir():
            return any(path.glob(f"*{SUFFIX}"))
        return path.name.endswith(SUFFIX) or first_bytes(path).startswith(MAGIC)

    @property
    def generator_options(self) -> tuple[Option, ...]:
        """Options of the simulation."""
        from n3ic.datasets.ns3_tomography.simulate import OPTIONS

        return OPTIONS

    def generate_file(
        self,
        out: str | Path | None,
        options: Mapping[str, OptionValue],
        note: Callable[[str], object] | None = None,
        *,
        replace: bool = False,
    ) -> Path:
        """Simulate in ns-3 and write a trace.

        Args:
            out: file to write; None for ``tomography.tomo.xz``.
            options: options of :class:`~n3ic.datasets.ns3_tomography.simulate.Simulation`, with
                dashes in their names, and ``runs`` and ``jobs``.
            note: called with progress messages.
            replace: whether an existing file may be replaced.

        Raises:
            MissingDependencyError: ns-3, the compiler or pkg-config is missing; the error names
                them.
            UsageError: an option is unknown or out of range.
            N3icError: the simulation failed, or the file cannot be written.
        """
        from n3ic.datasets.ns3_tomography.simulate import Simulation, generate
        from n3ic.datasets.ns3_tomography.trace import SUFFIX

        values: dict[str, Any] = parse_options(self.generator_options, options, "the simulation")
        runs, jobs = values.pop("runs"), values.pop("jobs")
        simulation = Simulation(**{name.replace("-", "_"): v for name, v in values.items()})
        target = free_path(out or f"tomography{SUFFIX}", replace)
        return generate(simulation, target, runs=runs, jobs=jobs or None, note=note)


class Tomography(UseCase):
    """One network per queue, which detects congestion from the one-way delays of probes."""

    name = "tomography"
    summary = "find the congested queues of a data centre from probes' one-way delays (ns-3)"
    dataset = Ns3Tomography.name
    default = Ns3Tomography.name
    recipes = RECIPES
    protocol = "time"
    group = "queues"
    positive = "congested"
    options = (
        Option("queue", "all, or numbers or names of queues, separated by commas", "all"),
        Option("threshold", "full packets above which a queue is congested", 10.0, minimum=0.0),
        Option(
            "shapes", "shapes to compare: paper, own (no others), or a list: 32-16,64-32", "paper"
        ),
    )

    def tasks(self, table: FlowTable, options: Mapping[str, Any]) -> Mapping[str, FlowTable]:
        """One table per queue; see :func:`n3ic.datasets.ns3_tomography.table.queue_tables`."""
        from n3ic.datasets.ns3_tomography.table import queue_tables

        return queue_tables(table, str(options["queue"]), float(options["threshold"]))

    def shapes(self, options: Mapping[str, Any]) -> Sequence[tuple[int, ...]]:
        """The paper's three shapes, or the requested ones."""
        from n3ic.datasets.ns3_tomography.recipes import shapes_from_text

        return shapes_from_text(str(options["shapes"]))

    def finish(
        self,
        directory: Path,
        table: FlowTable,
        results: Mapping[str, TrainingResult],
        options: Mapping[str, Any],
        compared: Mapping[tuple[int, ...], Mapping[str, TrainingResult]],
    ) -> Mapping[str, Any]:
        """Write a box plot over the queues, a table of shapes, a heat map of the last intervals."""
        from n3ic.datasets.ns3_tomography.report import finish

        return finish(directory, table, results, options, compared)

    def set_report(
        self, summary: Mapping[str, Mapping[str, Any]]
    ) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        """Report whether each target answers before the next probes, at 40, 100 and 400 Gb/s."""
        from n3ic.datasets.ns3_tomography.report import PROBE_BUDGETS_US, probe_budget

        budgets = ", ".join(f"{us:g} us at {link} Gb/s" for link, us in PROBE_BUDGETS_US.items())
        return {f"Probe budgets: {budgets}": probe_budget(summary)}

    def replay(
        self,
        models: Mapping[str, Classifier],
        metrics: Mapping[str, Any],
        data: str | Path | None,
        out: Path,
        last: int | None = None,
    ) -> Sequence[str]:
        """Write which queues the networks find congested in each interval, beside the truth."""
        from n3ic.datasets.ns3_tomography.replay import write_replay
        from n3ic.datasets.ns3_tomography.table import THRESHOLD

        threshold = float(metrics.get("threshold_packets", THRESHOLD))
        return write_replay(models, DATASET.load(data), out, threshold, last)


DATASET = Ns3Tomography()
USECASE = Tomography()
