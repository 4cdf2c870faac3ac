# SPDX-License-Identifier: Apache-2.0
"""Any table of flows: its columns are inferred, or described in a ``columns.toml``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from n3ic.data.dataset import DataSet
from n3ic.data.delimited import Sheet
from n3ic.data.description import COLUMNS_FILE, description_text
from n3ic.data.file_tables import DataSource
from n3ic.data.table import Feature, FlowTable
from n3ic.data.table_meter import meter_of
from n3ic.data.user_table import (
    OWN,
    UserTable,
    describe,
    described_as,
    description_beside,
    load_own,
    need_label,
    with_positive,
)
from n3ic.datasets.flows.layouts import by_layout, known_layout
from n3ic.errors import N3icError, UsageError
from n3ic.meter.table import LABEL, load_flows
from n3ic.options import Option
from n3ic.training.recipes import ANY_TABLE
from n3ic.usecases.base import UseCase
from n3ic.util.files import write_atomic

if TYPE_CHECKING:
    from n3ic.runs.experiment import TrainingResult

__all__ = ["DATASET", "USECASE"]


class UserFlows(DataSet):
    """Tables of the user's own."""

    name = OWN
    summary = "any table of flows: columns inferred, or described in columns.toml (bring your own)"

    @property
    def catalogue(self) -> tuple[Feature, ...]:
        """Empty: each table has its own features, see ``n3ic data describe``."""
        return ()

    def load(self, path: DataSource | None = None) -> FlowTable:
        """Read tables whose label a ``columns.toml`` beside them names.

        Raises:
            DataError: the tables cannot be read.
            UsageError: ``path`` is None, or no column is named as the class.
        """
        return _described(path).load(_checked_path(path))

    def check(self, path: DataSource) -> Mapping[str, Any]:
        """Report what tables hold, and which cells have to be changed; see :meth:`load`."""
        return _described(path).check(path)


def _checked_path(path: DataSource | None) -> DataSource:
    if path is None:
        raise UsageError(f"{OWN} has no sample: name a table with --data")
    return path


def _described(path: DataSource | None) -> UserTable:
    own, facts = describe(_checked_path(path))
    need_label(own, facts, path)
    return own


class UserFlowsUseCase(UseCase):
    """A network for any table of flows: all of its classes, or one against the rest."""

    name = OWN
    summary = "any table of flows of your own: --data FILE --label COLUMN"
    dataset = OWN
    default = OWN
    recipes = ANY_TABLE
    options = (
        Option("label", "column of the class", ""),
        Option("positive", "class to tell from all others; empty: tell all classes apart", ""),
        Option("description", f"a {COLUMNS_FILE}; empty: the one beside the data", ""),
    )

    def load(
        self,
        data: str | Path | Sheet | None,
        dataset: str | None,
        options: Mapping[str, Any],
        tell: Callable[[str], object],
    ) -> FlowTable:
        """Read the user's table as inferred or described, or as metered if it carries a meter.

        If a table has the layout of a data set and would lose nothing, that data set reads it and
        adds its derived columns; see :mod:`n3ic.datasets.flows.layouts`.

        Raises:
            DataError: the table cannot be read.
            UsageError: no table or no label was named.
        """
        if dataset not in (None, OWN):
            return super().load(data, dataset, options, tell)
        path = _checked_path(data)
        label, positive = str(options["label"]), str(options["positive"])
        if _is_metered(path):
            tell("n3ic data extract wrote this table: the network will carry its meter")
            return with_positive(load_flows(str(path), label=label or LABEL), positive)
        description = str(options["description"]) or description_beside(path)
        lines = [f"{description} overrides what is inferred"] if description else []
        table = load_own(path, label, description, positive=positive, notify=lines.append)
        if (
            dataset is None
            and isinstance(path, str | Path | Sheet)
            and (known := known_layout(path, table))
        ):
            recognised = by_layout(known, path, table, str(description or ""), positive)
            if recognised.message:
                tell(recognised.message)
            if recognised.table is not None:
                for line in recognised.table.notes:
                    tell(line)
                return recognised.table
        for line in (*table.notes, *lines):
            tell(line)
        return table

    def tasks(self, table: FlowTable, options: Mapping[str, Any]) -> Mapping[str, FlowTable]:
        """The table itself; or, if a data set read it, its positive class against the rest."""
        positive = str(options["positive"])
        is_one_against_others = f"not {positive}" in table.classes
        if (
            table.rules is not None
            or not positive
            or is_one_against_others
            or len(table.classes) < 2
        ):
            return {"": table}
        return {"": with_positive(table, positive)}

    def finish(
        self,
        directory: Path,
        table: FlowTable,
        results: Mapping[str, TrainingResult],
        options: Mapping[str, Any],
        compared: Mapping[tuple[int, ...], Mapping[str, TrainingResult]],
    ) -> Mapping[str, Any]:
        """Write ``columns.toml``, which describes how the columns were read."""
        if table.rules is not None:
            write_atomic(directory / COLUMNS_FILE, description_text(described_as(table).toml))
        return {}


def _is_metered(path: Any) -> bool:
    try:
        return Path(path).is_file() and meter_of(path) is not None
    except (N3icError, TypeError):
        return False


DATASET = UserFlows()
USECASE = UserFlowsUseCase()
