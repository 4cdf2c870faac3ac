"""UNSW-NB15: labelled flows, benign and attack, and a synthetic stand-in with the same columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from n3ic.dataset import UseCase
from n3ic.errors import UsageError

if TYPE_CHECKING:
    from n3ic.table import Feature, FlowTable

__all__ = ["DATASET", "SYNTHETIC", "USECASE"]


@dataclass(frozen=True)
class UnswNb15:
    """The UNSW-NB15 files, which the user brings: their licence lets nobody pass them on."""

    name: str = "unsw-nb15"
    summary: str = "labelled flows, benign and nine kinds of attack (UNSW Canberra, research only)"
    synthetic: bool = False

    @property
    def card(self) -> str:
        """The data card, as Markdown."""
        return files(__package__).joinpath("card.md").read_text("utf-8")

    @property
    def catalogue(self) -> tuple[Feature, ...]:
        """Every feature that a table may have."""
        from n3ic.datasets.unsw_nb15.catalogue import CATALOGUE

        return CATALOGUE

    def load(self, path: str | Path | Sequence[str | Path] | None = None) -> FlowTable:
        """Read a file, a folder, or several of them.

        Raises:
            UsageError: no path was given; this data set has no embedded sample.
            DataError: a file is not what it should be; names file, line and column.
        """
        from n3ic.datasets.unsw_nb15.loader import load_table

        if path is None:
            raise UsageError(
                f"{self.name} has no embedded sample (its licence forbids it): name the files "
                "or a folder, or take unsw-nb15-synthetic"
            )
        return load_table(self.name, path)


DATASET = UnswNb15()
USECASE = UseCase(
    name="anomaly",
    summary="tell attacks from benign flows (UNSW-NB15)",
    dataset="unsw-nb15",
    default="unsw-nb15-synthetic",
    recipes={},
    positive="attack",
)
