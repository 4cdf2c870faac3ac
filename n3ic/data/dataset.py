# SPDX-License-Identifier: Apache-2.0
"""The interface of a data set; data sets live in ``n3ic.datasets``.

:func:`data_set` finds one by name, and :func:`data_set_of` the one that reads a file::

    table = data_set("iscx-tor2016").load(None)  # the embedded sample, or the path of your files
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from n3ic import plugins
from n3ic.data.delimited import Sheet
from n3ic.data.split import duplicate_share, protocols_of
from n3ic.data.table import Feature, FlowTable
from n3ic.errors import DataError, UsageError
from n3ic.model.meter_spec import MeterSpec
from n3ic.options import Option, OptionValue
from n3ic.plugins import Plugin


@dataclass(frozen=True, eq=False)
class FileFeatures:
    """Features of the flows of a file.

    Attributes:
        features: int64 array of shape ``(rows,)`` per feature.
        meter: the meter that computes them from packets; None if unknown.
    """

    features: Mapping[str, NDArray[np.int64]]
    meter: MeterSpec | None


class DataSet(Plugin, ABC):
    """A data set: its card, its features, and how its files are read.

    An entry point in the group ``n3ic.datasets`` names an instance. A subclass keeps a ``card.md``
    beside its module.

    Attributes:
        name: name, as in ``n3ic data show NAME``.
        summary: one line for ``n3ic data list``.
        synthetic: whether a generator or a simulator makes its flows.
    """

    synthetic: ClassVar[bool] = False

    @property
    def card(self) -> str:
        """The data card, as Markdown."""
        return (self.folder / "card.md").read_text(encoding="utf-8")

    @property
    @abstractmethod
    def catalogue(self) -> tuple[Feature, ...]:
        """Every feature that a table of this data set may have."""

    @abstractmethod
    def load(self, path: str | Path | None = None) -> FlowTable:
        """Read a file or a folder; None reads the embedded sample.

        Raises:
            DataError: a file is malformed; the error names file, line and column.
            UsageError: ``path`` is None and no sample is embedded.
        """

    def load_sheet(self, sheet: Sheet) -> FlowTable:
        """Read a table in memory like its file; raise UsageError if the data set cannot."""
        raise UsageError(f"the data set {self.name} reads files of its own, not {sheet.name}")

    def recognises(self, path: Path) -> bool:
        """Whether a file looks like one of this data set; a quick guess, not a check."""
        return False

    def has_layout(self, sheet: Sheet) -> bool:
        """Whether a table certainly has the data set's own layout and units.

        It does if it cannot hold a NIC's integers, for example because it has names where the
        features are codes.
        """
        return False

    def read_features(
        self, sheet: Sheet, names: Collection[str]
    ) -> Mapping[str, NDArray[np.int64]]:
        """Integer features of flows in the data set's own layout, which may lack labels.

        Args:
            sheet: the table, or a part of it.
            names: names of the features; other columns are ignored.

        Returns:
            int64 array of shape ``(rows,)`` per wanted feature.

        Raises:
            DataError: the data set reads labelled flows only, or the table is malformed.
        """
        raise DataError(f"{sheet.name}: the data set {self.name} does not read unlabelled flows")

    def file_features(
        self, path: Path, names: Collection[str], meter: MeterSpec | None
    ) -> FileFeatures | None:
        """Integer features of flows that may lack labels, in a file that must be read whole.

        Args:
            path: a file, or a folder of them.
            names: names of the features.
            meter: the meter of the model that reads the features; None if it has none.

        Returns:
            The features; None for a table whose lines stand alone, see :meth:`read_features`.

        Raises:
            DataError: the file is malformed.
        """
        return None

    def check(self, path: str | Path) -> Mapping[str, Any]:
        """Report what files hold and their problems, as plain data.

        Returns:
            Facts by name; ``sources`` lists the files, ``problems`` what a user should know.

        Raises:
            DataError: a file is malformed; the error names file, line and column.
        """
        return table_facts(self.load(path))

    @property
    def generator_options(self) -> tuple[Option, ...] | None:
        """Options of ``n3ic data generate``; None if the data set generates no files."""
        return None

    def generate_file(
        self,
        out: str | Path | None,
        options: Mapping[str, OptionValue],
        note: Callable[[str], object] | None = None,
        *,
        replace: bool = False,
    ) -> Path:
        """Make a file that the data set reads.

        Args:
            out: file to write; None for the data set's default name.
            options: values of :attr:`generator_options` or what was typed, by name.
            note: called with progress messages.
            replace: whether an existing file may be replaced.

        Raises:
            UsageError: the data set has no generator, or an option is unknown or invalid.
            N3icError: the file cannot be made; the error says why.
        """
        raise UsageError(f"the data set {self.name} has no generator")


def table_facts(table: FlowTable) -> dict[str, Any]:
    """Facts about a table as plain data: rows, classes, protocols, duplicates, files."""
    return {
        "name": table.name,
        "rows": len(table),
        "classes": {c: int((table.label == i).sum()) for i, c in enumerate(table.classes)},
        "protocols": protocols_of(table),
        "duplicate_share": duplicate_share(table),
        "sources": [asdict(s) for s in table.sources],
    }


def data_set(name: str) -> DataSet:
    """Find a data set by name.

    Raises:
        UsageError: no data set has that name; the error lists the names.
    """
    dataset: DataSet = plugins.find("n3ic.datasets", name, DataSet)
    return dataset


def data_set_of(path: str | Path) -> DataSet:
    """Find the data set that a file belongs to.

    Raises:
        UsageError: no data set recognises the file, or several do.
    """
    names = plugins.names("n3ic.datasets")
    candidates = [name for name in names if data_set(name).recognises(Path(path))]
    if len(candidates) != 1:
        reason = (
            f"{' and '.join(candidates)} may be its data set"
            if candidates
            else "no data set knows it"
        )
        raise UsageError(
            f"{path}: {reason}; name one with --dataset: {', '.join(names)}; or say with --label "
            "which column of a table is the class"
        )
    return data_set(candidates[0])
