# SPDX-License-Identifier: Apache-2.0
"""ISCXTor2016: flows of eight kinds of application inside Tor, embedded, and their use case."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from n3ic.data.catalogue_dataset import CatalogueDataSet
from n3ic.data.dataset import DataSet, data_set
from n3ic.data.user_table import OWN
from n3ic.datasets.iscx_tor2016.recipes import RECIPES
from n3ic.errors import UsageError
from n3ic.options import Option
from n3ic.usecases.base import UseCase, use_case

if TYPE_CHECKING:
    from n3ic.data.catalogue import Column
    from n3ic.data.delimited import Sheet
    from n3ic.data.table import FlowTable

__all__ = ["DATASET", "USECASE"]

_LONGEST = 2**31 - 1  # microseconds; its product with a 32-bit rate fits 63 bits


def _counted(per_second: int) -> Callable[[Column, Column], Column]:
    """Make a counter from a rate, in units of ``1 / per_second``, and a duration in us."""

    def counter(rate: Column, duration: Column) -> Column:
        unit = per_second * 1_000_000
        total: Column = (rate * np.minimum(duration, _LONGEST) + unit // 2) // unit
        return total

    return counter


_packets, _bytes = _counted(1000), _counted(8)


def _packet_mean(byte_rate: Column, packet_rate: Column, duration: Column) -> Column:
    mean: Column = _bytes(byte_rate, duration) // np.maximum(_packets(packet_rate, duration), 1)
    return mean


def _share(part: Column, other_part: Column) -> Column:
    share: Column = (part << 10) // np.maximum(part + other_part, 1)
    return share


def _over(shift: int) -> Callable[[Column, Column], Column]:
    """Make a quotient in units of ``2^-shift``; a divisor of 0 counts as 1."""

    def quotient(a: Column, b: Column) -> Column:
        value: Column = (a << shift) // np.maximum(b, 1)
        return value

    return quotient


_TIMES = ("mean", "max", "min")
_DIRECTIONS = ("fwd", "bwd")
_FORMULAS: Mapping[str, Callable[..., Column]] = {
    "packets": _packets,
    "bytes": _bytes,
    "packet_mean": _packet_mean,
    **{f"fwd_share_iat_{time}": _share for time in _TIMES},
    **{f"flow_per_{way}_iat_{time}": _over(6) for way in _DIRECTIONS for time in _TIMES},
    **{f"{way}_iat_peak": _over(4) for way in ("flow", *_DIRECTIONS)},
}


class IscxTor2016(CatalogueDataSet):
    """Flows of applications inside Tor, the 5-second file of scenario B; embedded."""

    name = "iscx-tor2016"
    summary = "real flows of eight kinds of application inside Tor (UNB, CIC; embedded)"
    formulas = _FORMULAS


class Classification(UseCase):
    """Kinds of application, or one of them against the rest."""

    name = "classification"
    summary = "tell applications apart from the times of their packets (ISCXTor2016)"
    dataset = IscxTor2016.name
    default = IscxTor2016.name
    recipes = RECIPES
    options = (
        Option(
            "positive", "class, or start of several names, to tell from the rest; empty: all", ""
        ),
        Option("label", "column of the class, for a table of your own", ""),
        Option("packets", "packets at which a sequence is decided, such as 8 or 4,8,16", ""),
    )

    def load(
        self,
        data: str | Path | Sheet | None,
        dataset: str | None,
        options: Mapping[str, Any],
        tell: Callable[[str], object],
    ) -> FlowTable:
        """Load the flows of a data set or, with ``--label``, of any table.

        Raises:
            DataError: a file is damaged or malformed.
            UsageError: no data set has that name, or it has no embedded sample.
        """
        if options["label"] and dataset in (None, OWN):
            return use_case(OWN).load(data, dataset, {"description": "", **options}, tell)
        if options.get("packets"):
            return _decided_at(data_set(dataset or self.default), data, str(options["packets"]))
        return super().load(data, dataset, options, tell)

    def tasks(self, table: FlowTable, options: Mapping[str, Any]) -> Mapping[str, FlowTable]:
        """The table with all of its classes, or with two if one is named.

        Raises:
            DataError: the table lacks the class, or has no other class.
        """
        name = str(options["positive"])
        return {"": table.against_rest(name) if name else table}


def _decided_at(dataset: DataSet, data: str | Path | Sheet | None, packets: str) -> FlowTable:
    """Load a data set of packet sequences, with its flows decided at the given packets."""
    load_at = getattr(dataset, "load_at", None)
    parts = packets.split(",")
    if load_at is None or not isinstance(data, str | Path | None):
        raise UsageError(f"--packets: {dataset.name} has no packet sequences; doh-tunnels has")
    if not all(part.strip().isascii() and part.strip().isdecimal() for part in parts):
        raise UsageError(f"--packets: expected numbers such as 4,8,16, got {packets!r}")
    table: FlowTable = load_at(data, [int(part) for part in parts])
    return table


DATASET = IscxTor2016()
USECASE = Classification()
