"""What a data set and a use case are to the core; they live in ``n3ic.datasets``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from n3ic.errors import UsageError
from n3ic.export import Option, OptionValue
from n3ic.split import Protocol as SplitProtocol
from n3ic.table import Feature, FlowTable

if TYPE_CHECKING:
    from n3ic.model import BinaryModel
    from n3ic.pipeline import Result
    from n3ic.recipe import Recipe


@runtime_checkable
class DataSet(Protocol):
    """A data set: its card, its features and how to read it.

    An entry point in the group ``n3ic.datasets`` names an object of this form.
    """

    name: str
    summary: str
    synthetic: bool

    @property
    def card(self) -> str:
        """The data card, as Markdown."""

    @property
    def catalogue(self) -> tuple[Feature, ...]:
        """Every feature that a table of this data set may have."""

    def load(self, path: str | Path | None = None) -> FlowTable:
        """Read a file, several (a folder), or the embedded sample where ``path`` is None.

        Raises:
            DataError: the files are not what they should be; names file, line and column.
        """


@runtime_checkable
class Generator(Protocol):
    """What a data set offers beside, if it can make files of its own."""

    summary: str

    @property
    def generator_options(self) -> tuple[Option, ...]:
        """Options of ``n3ic data generate``."""

    def generate_file(
        self,
        out: str | Path | None,
        options: Mapping[str, OptionValue],
        note: Callable[[str], object] | None = None,
    ) -> Path:
        """Make a file that the data set reads.

        Args:
            out: the file to write; a name of the data set's own where None.
            options: values of :attr:`generator_options` or what was typed, by name.
            note: called with lines about the progress.

        Raises:
            UsageError: an option is unknown or has a value it cannot have.
            N3icError: it cannot be made; says why.
        """


@dataclass(frozen=True)
class UseCase:
    """A use case: what is trained on which data by default.

    An entry point in the group ``n3ic.usecases`` names an object of this class.

    Attributes:
        name: as in ``n3ic train NAME``.
        summary: one line.
        dataset: name of the data set that real data is read with (``--data PATH``).
        default: name of the data set whose embedded sample is the default.
        recipes: recipes by name; ``default`` is taken where none is named.
        protocol: how rows are split where the user does not say.
        group: for a use case of several networks, the word for one of them in ``metrics.json``
            (``queues``); empty for one network.
        options: options of its own, ``--name VALUE`` on the command line.
        positive: name of the class whose detection is counted (false positive rate, ROC AUC).
    """

    name: str
    summary: str
    dataset: str
    default: str
    recipes: Mapping[str, Recipe]
    protocol: SplitProtocol = "random"
    group: str = ""
    positive: str = ""
    options: tuple[Option, ...] = ()

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
        results: Mapping[str, Result],
        options: Mapping[str, Any],
        compared: Mapping[tuple[int, ...], Mapping[str, Result]],
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
            summary: figures of the set by target, as :func:`n3ic.sets.set_summary` gives them.

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
