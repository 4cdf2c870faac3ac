"""What a data set is to the core; data sets live in ``n3ic.datasets``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from n3ic.data.table import Feature, FlowTable
from n3ic.options import Option, OptionValue

if TYPE_CHECKING:
    pass


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
