# SPDX-License-Identifier: Apache-2.0
"""What a use case is to the core; each is declared beside its data set."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from n3ic import plugins
from n3ic.data.dataset import data_set
from n3ic.data.split import SplitProtocol
from n3ic.data.table import FlowTable
from n3ic.errors import UsageError
from n3ic.options import Option
from n3ic.plugins import Plugin

if TYPE_CHECKING:
    from n3ic.model.network import BinaryModel
    from n3ic.runs.experiment import TrainingResult
    from n3ic.training.recipe import Recipe


class UseCase(Plugin):
    """A use case: what is trained on which data by default.

    An entry point in the group ``n3ic.usecases`` names an instance.

    Attributes:
        name: as in ``n3ic train NAME``.
        summary: one line.
        dataset: name of the data set that real data is read with (``--data PATH``).
        default: name of the data set whose embedded sample is the default.
        recipes: recipes by name; ``default`` is taken where none is named.
        protocol: how rows are split where the user does not say.
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
        data: str | Path | None,
        dataset: str | None,
        options: Mapping[str, Any],
        tell: Callable[[str], object],
    ) -> FlowTable:
        """The flows to train on: the user's files, or the embedded default.

        Args:
            data: files; an embedded sample where None.
            dataset: name of another data set than the use case's own.
            options: the use case's own options, checked.
            tell: called with lines about what was read.

        Raises:
            DataError: the files are not what they should be.
            UsageError: there is no such data set, or nothing is embedded in it.
        """
        return load_table(self, data, dataset)

    def tasks(self, table: FlowTable, options: Mapping[str, Any]) -> Mapping[str, FlowTable]:
        """The tables to train a network on, by name; one unnamed by default.

        Args:
            table: what the data set's ``load`` returned.
            options: the use case's own options, checked.
        """
        return {"": table}

    def shapes(self, options: Mapping[str, Any]) -> Sequence[tuple[int, ...]]:
        """Hidden layers of the networks that a run compares with its own; none by default.

        Args:
            options: the use case's own options, checked.

        Raises:
            UsageError: the options name no shapes.
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
        """Add what the use case alone knows to a run: pictures, tables, figures.

        Args:
            directory: the run's folder, still to be renamed; files may be added.
            table: what was trained on.
            results: result of each task.
            options: the use case's own options.
            compared: results of each task for the other shapes, see :meth:`shapes`.

        Returns:
            Entries to add to ``metrics.json``.
        """
        return {}

    def set_report(
        self, summary: Mapping[str, Mapping[str, Any]]
    ) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        """What the use case says of its networks once they are exported together.

        Args:
            summary: figures of the set by target, as
                :func:`~n3ic.targets.colocation_report.set_summary` gives them.

        Returns:
            Tables to add to ``set.json`` and ``set.md``: rows of equal keys, by title.
        """
        return {}

    def replay(
        self,
        models: Mapping[str, BinaryModel],
        metrics: Mapping[str, Any],
        data: str | Path | None,
        out: Path,
        last: int | None = None,
    ) -> Sequence[str]:
        """Run a run's networks over recorded data, in its order, and draw what they say.

        Args:
            models: networks by task.
            metrics: what the run's ``metrics.json`` holds.
            data: files of the use case's data set; the embedded default where None.
            out: picture or table to write, by its suffix.
            last: how many rows from the end to run; all where None.

        Returns:
            Lines that say what came out.

        Raises:
            UsageError: the use case has no replay, or ``out`` has a suffix that it cannot write.
        """
        raise UsageError(f"{self.name} has no replay; n3ic predict classifies rows one by one")


def use_case(name: str) -> UseCase:
    """The use case of that name.

    Raises:
        UsageError: there is none; the text lists them.
    """
    found: UseCase = plugins.find("n3ic.usecases", name, UseCase)
    return found


def load_table(case: UseCase, data: str | Path | None, dataset: str | None = None) -> FlowTable:
    """The table of a use case: the user's files, or the embedded default.

    Args:
        case: the use case.
        data: files; an embedded sample where None.
        dataset: name of another data set than the use case's own.

    Raises:
        DataError: the files are not what they should be.
        UsageError: there is no such data set, or nothing is embedded in it.
    """
    return data_set(dataset or (case.default if data is None else case.dataset)).load(data)


def set_tables(
    metrics: Mapping[str, Any] | None,
) -> Callable[[Mapping[str, Mapping[str, Any]]], Mapping[str, Sequence[Mapping[str, Any]]]] | None:
    """What the use case of a run says of its networks once they are exported together.

    Args:
        metrics: of the run.

    Returns:
        Its :meth:`UseCase.set_report`; None where no installed use case made the run.
    """
    name = str((metrics or {}).get("use_case", ""))
    return use_case(name).set_report if name in plugins.names("n3ic.usecases") else None
