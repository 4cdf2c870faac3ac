# SPDX-License-Identifier: Apache-2.0
"""Flows that n3ic metered from labelled captures, which the user brings."""

from __future__ import annotations

from pathlib import Path

from n3ic.data.dataset import DataSet
from n3ic.data.table import Feature, FlowTable
from n3ic.data.table_meter import meter_of
from n3ic.errors import N3icError, UsageError
from n3ic.meter.standard import standard_spec
from n3ic.meter.table import DATA_SET, catalogue_of, load_flows

__all__ = ["DATASET"]


class MeteredFlows(DataSet):
    """Tables of ``n3ic data extract``; a network that is trained on one carries its meter."""

    name = DATA_SET
    summary = "flows that n3ic data extract metered from captures (bring your own)"

    @property
    def catalogue(self) -> tuple[Feature, ...]:
        """Features of the standard meter; a table may have features of another meter."""
        return catalogue_of(standard_spec())

    def load(self, path: str | Path | None = None) -> FlowTable:
        """Read a table that carries its meter, and labels.

        Raises:
            DataError: the table names no meter, or has no labels.
            UsageError: ``path`` is None, as no sample is embedded.
        """
        if path is None:
            raise UsageError("metered has no sample: name a table that n3ic data extract wrote")
        return load_flows(path)

    def recognises(self, path: Path) -> bool:
        """Whether a table names its meter."""
        try:
            return path.is_file() and meter_of(path) is not None
        except N3icError:
            return False


DATASET = MeteredFlows()
