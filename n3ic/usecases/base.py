# SPDX-License-Identifier: Apache-2.0
"""The interface of a use case; each is declared beside its data set.

::

    case = use_case("anomaly")
    table = load_table(case, None)  # the embedded sample, or the path of your files
    recipe = case.recipes["default"].with_options({"bits": 64})
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from n3ic import plugins
from n3ic.data.dataset import data_set
from n3ic.data.delimited import Sheet
from n3ic.data.split import SplitProtocol
from n3ic.data.table import FlowTable
from n3ic.errors import UsageError
from n3ic.options import Option
from n3ic.plugins import Plugin

if TYPE_CHECKING:
    from n3ic.model.classifier import Classifier
    from n3ic.runs.experiment import TrainingResult
    from n3ic.training.recipe import Recipe


class UseCase(Plugin):
    """A use case: what is trained on which data by default.

    An entry point in the group ``n3ic.usecases`` names an instance.

    Attributes:
        name: name, as in ``n3ic train NAME``.
        summary: one line.
        dataset: name of the data set that reads the user's files (``--data PATH``).
        default: name of the data set whose embedded sample is the default.
        recipes: recipes by name, ``default`` among them.
        protocol: how rows are split by default.
        group: for a use case of several networks, the word for one of them in ``metrics.json``
            (``queues``); empty for one network.
        positive: name of the class whose detection is counted (false positive rate, ROC AUC).
        options: options of its own, ``--name VALUE`` on the command line.
    """

    dataset: ClassVar[str]
    default: ClassVar[str]
    recipes: ClassVar[Mapping[str, Recipe]]
    protocol: ClassVar[SplitProtocol] = "random"
    group: ClassVar[str] = ""
    positive: ClassVar[str] = ""
    options: ClassVar[tuple[Option, ...]] = ()

    def load(
        self,
        data: str | Path | Sheet | None,
        dataset: str | None,
        options: Mapping[str, Any],
        notify: Callable[[str], object],
    ) -> FlowTable:
        """The flows to train on: the user's files, or the embedded default.

        Args:
            data: files, or a table in memory; None for the embedded sample.
            dataset: name of another data set than the use case's own.
            options: the use case's own options, checked.
            notify: called with lines about the files.

        Raises:
            DataError: a file is malformed.
            UsageError: no data set has that name, or it has no embedded sample.
        """
        return load_table(self, data, dataset)

    def tasks(self, table: FlowTable, options: Mapping[str, Any]) -> Mapping[str, FlowTable]:
        """The table of each network, by name; a single unnamed one by default.

        Args:
            table: the table that the data set's ``load`` returned.
            options: the use case's own options, checked.
        """
        return {"": table}

    def shapes(self, options: Mapping[str, Any]) -> Sequence[tuple[int, ...]]:
        """Hidden layers of further networks that a run trains for comparison; none by default.

        Args:
            options: the use case's own options, checked.

        Raises:
            UsageError: the options hold no valid shapes.
        """
        return ()

    def finish(
        self,
        directory: Path,
        table: FlowTable,
        results: Mapping[str, TrainingResult],
        options: Mapping[str, Any],
        compared: Mapping[tuple[int, ...], Mapping[str, TrainingResult]],
    ) -> Mapping[str, Any]:
        """Add pictures, tables and figures of the use case to a run.

        Args:
            directory: the run's folder, which is renamed later; files may be added.
            table: the training data.
            results: result of each task.
            options: the use case's own options.
            compared: results of each task for the shapes of :meth:`shapes`.

        Returns:
            Entries to add to ``metrics.json``.
        """
        return {}

    def set_report(
        self, summary: Mapping[str, Mapping[str, Any]]
    ) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        """Tables of the use case about its networks on one device.

        Args:
            summary: figures of the set by target, from
                :func:`~n3ic.targets.colocation_report.set_summary`.

        Returns:
            Tables to add to ``set.json`` and ``set.md``: rows of equal keys, by title.
        """
        return {}

    def replay(
        self,
        models: Mapping[str, Classifier],
        metrics: Mapping[str, Any],
        data: str | Path | None,
        out: Path,
        last: int | None = None,
    ) -> Sequence[str]:
        """Run a run's networks over recorded data, in its order, and write their answers.

        Args:
            models: networks by task.
            metrics: content of the run's ``metrics.json``.
            data: files of the use case's data set; None for the embedded default.
            out: picture or table to write, by its suffix.
            last: number of rows from the end; None for all.

        Returns:
            Lines about the results.

        Raises:
            UsageError: the use case has no replay, or cannot write files of that suffix.
        """
        raise UsageError(f"{self.name} has no replay; n3ic predict classifies rows one by one")


def use_case(name: str) -> UseCase:
    """Find a use case by name.

    Raises:
        UsageError: no use case has that name; the message lists the names.
    """
    plug_in: UseCase = plugins.find("n3ic.usecases", name, UseCase)
    return plug_in


def load_table(
    case: UseCase, data: str | Path | Sheet | None, dataset: str | None = None
) -> FlowTable:
    """The table of a use case: the user's files, or the embedded default.

    Args:
        case: the use case.
        data: files, or a table in memory; None for the embedded sample.
        dataset: name of another data set than the use case's own.

    Raises:
        DataError: a file is malformed.
        UsageError: no data set has that name, or it has no embedded sample.
    """
    known = data_set(dataset or (case.default if data is None else case.dataset))
    return known.load_sheet(data) if isinstance(data, Sheet) else known.load(data)


def set_tables(
    metrics: Mapping[str, Any] | None,
) -> Callable[[Mapping[str, Mapping[str, Any]]], Mapping[str, Sequence[Mapping[str, Any]]]] | None:
    """The method of a run's use case that describes its networks on one device.

    Args:
        metrics: metrics of the run.

    Returns:
        :meth:`UseCase.set_report`; None if the run's use case is not installed.
    """
    name = str((metrics or {}).get("use_case", ""))
    return use_case(name).set_report if name in plugins.names("n3ic.usecases") else None
