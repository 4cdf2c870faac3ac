# SPDX-License-Identifier: Apache-2.0
"""UNSW-NB15: labelled flows, benign and attack, and a synthetic stand-in with the same columns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from n3ic.data.dataset import DataSet, FileFeatures
from n3ic.data.files import find_tables
from n3ic.datasets.unsw_nb15.recipes import RECIPES
from n3ic.errors import DataError, UsageError
from n3ic.options import Option, OptionValue, parse_options
from n3ic.usecases.base import UseCase
from n3ic.util.files import free_path

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from n3ic.data.delimited import Sheet
    from n3ic.data.table import Feature, FlowTable
    from n3ic.model.meter_spec import MeterSpec

__all__ = ["DATASET", "SYNTHETIC", "USECASE"]


def _card(name: str) -> str:
    from n3ic.datasets.unsw_nb15.data_card import fill

    return fill(files(__package__).joinpath(name).read_text("utf-8"))


class UnswNb15(DataSet):
    """The UNSW-NB15 files; the user brings them, because their licence forbids passing them on."""

    name = "unsw-nb15"
    summary = "labelled flows, benign and nine kinds of attack (UNSW Canberra, research only)"

    @property
    def card(self) -> str:
        """The data card, as Markdown."""
        return _card("card.md")

    @property
    def catalogue(self) -> tuple[Feature, ...]:
        """Every feature that a table may have."""
        from n3ic.datasets.unsw_nb15.catalogue import CATALOGUE

        return CATALOGUE

    def load(self, path: str | Path | Sequence[str | Path] | None = None) -> FlowTable:
        """Read a file, a folder, or several of them.

        Raises:
            UsageError: no path was given; this data set has no embedded sample.
            DataError: a file is malformed; the error names file, line and column.
        """
        from n3ic.datasets.unsw_nb15.loader import load_table

        if path is None:
            raise UsageError(
                f"{self.name} has no embedded sample (its licence forbids it): name the files "
                "or a folder, or take unsw-nb15-synthetic"
            )
        return load_table(path)

    def load_sheet(self, sheet: Sheet) -> FlowTable:
        """Read a table in memory like its file.

        Raises:
            DataError: it breaks the layout; the error names row and column.
        """
        from n3ic.datasets.unsw_nb15.loader import load_sheet

        return load_sheet(sheet)

    def recognises(self, path: Path) -> bool:
        """Whether a file, or one in a folder, has most of the columns."""
        from n3ic.datasets.unsw_nb15.reader import recognises

        try:
            return any(recognises(table) for table in find_tables(path))
        except DataError:
            return False

    def has_layout(self, sheet: Sheet) -> bool:
        """Whether a table shows the partition or the raw layout."""
        from n3ic.datasets.unsw_nb15.reader import has_layout

        return has_layout(sheet)

    def read_features(
        self, sheet: Sheet, names: Collection[str]
    ) -> Mapping[str, NDArray[np.int64]]:
        """Read integer features of flows that may lack labels and columns, derived ones included.

        Raises:
            DataError: the table is malformed; the error names file, line and column.
        """
        from n3ic.datasets.unsw_nb15.reader import read_features

        return read_features(sheet, names)

    def file_features(
        self, path: Path, names: Collection[str], meter: MeterSpec | None
    ) -> FileFeatures | None:
        """Features of a raw file, if they count over its recent flows."""
        from n3ic.datasets.unsw_nb15.reader import read_whole

        return read_whole(path, names)

    def check(self, path: str | Path | Sequence[str | Path]) -> Mapping[str, Any]:
        """Report what files are and their problems; see :class:`.report.DataReport`.

        Raises:
            DataError: a file is malformed; the error names file, line and column.
        """
        from n3ic.datasets.unsw_nb15.report import check

        return asdict(check(path))


def _made(table: FlowTable, source: object) -> FlowTable:
    """Return a table that a generator made; refuse any other."""
    if not table.synthetic:
        raise DataError(f"{source}: these flows are not synthetic; read them as {DATASET.name}")
    return table


class UnswNb15Synthetic(DataSet):
    """Flows from a seeded generator with the columns of UNSW-NB15; anyone may pass them on."""

    name = "unsw-nb15-synthetic"
    summary = "synthetic flows with the columns of UNSW-NB15, from a seeded generator"
    synthetic = True

    @property
    def card(self) -> str:
        """The data card, as Markdown."""
        return _card("card_synthetic.md")

    @property
    def catalogue(self) -> tuple[Feature, ...]:
        """Every feature that a table may have."""
        return DATASET.catalogue

    def load(self, path: str | Path | Sequence[str | Path] | None = None) -> FlowTable:
        """Generate the default table, or read files of generated flows.

        Raises:
            DataError: a file is malformed, or its flows are not synthetic.
        """
        if path is None:
            return self.generate()
        return _made(DATASET.load(path), path)

    def load_sheet(self, sheet: Sheet) -> FlowTable:
        """Read a table in memory that :meth:`generate` made, like its file; see :meth:`load`."""
        return _made(DATASET.load_sheet(sheet), sheet)

    def has_layout(self, sheet: Sheet) -> bool:
        """Whether a table shows the layout of the real data."""
        return DATASET.has_layout(sheet)

    def read_features(
        self, sheet: Sheet, names: Collection[str]
    ) -> Mapping[str, NDArray[np.int64]]:
        """Read integer features of flows that may lack labels, as for the real data."""
        return DATASET.read_features(sheet, names)

    def file_features(
        self, path: Path, names: Collection[str], meter: MeterSpec | None
    ) -> FileFeatures | None:
        """Features of a raw file, if they count over its recent flows."""
        return DATASET.file_features(path, names, meter)

    def generate(self, rows: int | None = None, seed: int | None = None) -> FlowTable:
        """Generate flows: the same seed and rows give the same table."""
        from n3ic.datasets.unsw_nb15 import synthetic

        return synthetic.generate(
            synthetic.ROWS if rows is None else rows, synthetic.SEED if seed is None else seed
        )

    def check(self, path: str | Path | Sequence[str | Path] | None = None) -> Mapping[str, Any]:
        """Report on the default table or on files, as for the real data.

        Raises:
            DataError: a file is malformed, or its flows are not synthetic.
        """
        from n3ic.datasets.unsw_nb15.report import report

        return asdict(report(self.load(path)))

    @property
    def generator_options(self) -> tuple[Option, ...]:
        """Options for the number of flows and the seed."""
        from n3ic.datasets.unsw_nb15 import synthetic

        return (
            Option("rows", "flows to make", synthetic.ROWS, minimum=1),
            Option("seed", "seed of the generator", synthetic.SEED, minimum=0),
        )

    def generate_file(
        self,
        out: str | Path | None,
        options: Mapping[str, OptionValue],
        note: Callable[[str], object] | None = None,
        *,
        replace: bool = False,
    ) -> Path:
        """Write synthetic flows in the layout of the partition files.

        Args:
            out: file to write; None for ``unsw-nb15-synthetic.csv``.
            options: ``rows`` and ``seed``.
            note: called with progress messages.
            replace: whether an existing file may be replaced.

        Raises:
            UsageError: an option is unknown or out of range.
            N3icError: the file cannot be written.
        """
        from n3ic.datasets.unsw_nb15 import synthetic

        values = parse_options(self.generator_options, options, self.name)
        rows, seed = int(values["rows"]), int(values["seed"])
        target = free_path(out or f"{self.name}.csv", replace)
        if note is not None:
            note(f"generating {rows:,} synthetic flows from seed {seed}")
        return synthetic.write_csv(target, rows, seed)


class Anomaly(UseCase):
    """Attacks among benign flows: two classes."""

    name = "anomaly"
    summary = "tell attacks from benign flows (UNSW-NB15)"
    dataset = UnswNb15.name
    default = UnswNb15Synthetic.name
    recipes = RECIPES
    positive = "attack"


DATASET = UnswNb15()
SYNTHETIC = UnswNb15Synthetic()
USECASE = Anomaly()
