# SPDX-License-Identifier: Apache-2.0
"""The columns that fitted trees read, in the units of a NIC: integers from 0 to 2^32 - 1."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from n3ic.data.column_profile import column_names
from n3ic.data.table import FlowTable
from n3ic.data.table_meter import METER_KEY
from n3ic.errors import ModelError
from n3ic.families.trees.readers.ensemble import Floats, Ints
from n3ic.model.columns import NEGATIVE_PART, ColumnRule, TableRules
from n3ic.model.inputs import UINT32_MAX, check_scale, to_integer
from n3ic.model.meter_spec import MeterSpec

MOST_PLACES = 9
Inputs = Sequence[str] | Mapping[str, float]


@dataclass(frozen=True)
class TreeColumn:
    """A column of the rows that the trees were fitted to.

    Attributes:
        name: the feature's name.
        scale: integer units in one unit of the rows.
        signed: whether it holds numbers below 0, whose magnitude is a feature of its own.
        unit: the integer unit.
        field_scale: integer units in one unit of the data set's files.
    """

    name: str
    scale: float = 1.0
    signed: bool = False
    unit: str = ""
    field_scale: float = 1.0

    @property
    def negative(self) -> str:
        """Name of the feature that holds the magnitude of numbers below 0."""
        return self.name + NEGATIVE_PART

    @property
    def rule(self) -> ColumnRule:
        """How a table's column becomes the feature."""
        return ColumnRule(
            unit=self.unit, scale=self.scale, negative="split" if self.signed else "zero"
        )


@dataclass(frozen=True, eq=False)
class TreeColumns:
    """The columns, and the rows that were given.

    Attributes:
        columns: the columns in order.
        rows: the rows, float64 of shape ``(rows, columns)``, which may have none.
        integers: the same in integer units, below 0 too, int64.
        meter: computes the features; None if none does.
        rules: how the features are read from the rows' own table.
    """

    columns: tuple[TreeColumn, ...]
    rows: Floats
    integers: Ints
    meter: MeterSpec | None
    rules: TableRules | None

    @property
    def scales(self) -> Floats:
        """The scale of each column."""
        return np.array([c.scale for c in self.columns])

    def features(self, integers: Ints) -> dict[str, Ints]:
        """Features by name of rows in integer units, int64 of shape ``(rows, columns)``."""
        out = {}
        for column, values in zip(self.columns, integers.T, strict=True):
            out[column.name] = np.maximum(values, 0)
            if column.signed:
                out[column.negative] = np.maximum(-values, 0)
        return out


def read_columns(
    rows: Any, inputs: Inputs | None, own_names: Sequence[str], count: int
) -> TreeColumns:
    """Read the columns of the rows that trees were fitted to.

    Args:
        rows: a FlowTable, a table with named columns, or an array of shape ``(rows, columns)``;
            None for no rows.
        inputs: names of the columns in order, or names with the integer units in one unit of the
            rows.
        own_names: the names that the fitted model knows; may be empty.
        count: number of columns that it reads.

    Raises:
        ModelError: the rows are not of that shape, or hold what a NIC has not: blanks, infinities.
    """
    if isinstance(rows, FlowTable):
        return _of_flows(rows, inputs, own_names, count)
    given = _names(inputs)
    if given and len(given) != count:
        raise ModelError(f"inputs: expected {count} columns, got {len(given)}")
    matrix, names = _matrix(rows, own_names, count)
    headers = given or names or [f"x{i}" for i in range(count)]
    scales = dict(inputs) if isinstance(inputs, Mapping) else {}
    for name, scale in scales.items():
        check_scale(f"inputs: scale of {name!r}", scale)
    meter = _meter(rows)
    named = column_names(headers)
    if meter is not None and not {*headers} <= {*meter.units}:
        meter = None
    if meter is not None:
        named = headers
    columns = []
    for i, (header, name) in enumerate(zip(headers, named, strict=True)):
        values = matrix[:, i]
        scale = scales.get(header) or _scale(values, np.asarray(values).dtype)
        unit = meter.units[header] if meter is not None else _unit(scale)
        columns.append(TreeColumn(name, float(scale), bool((values < 0).any()), unit))
    float_rows = matrix.astype(np.float64)
    rules = None
    if meter is None:
        rules = TableRules({c.name: c.rule for c in columns})
    return TreeColumns(tuple(columns), float_rows, _integers(float_rows, columns), meter, rules)


def _of_flows(
    table: FlowTable, inputs: Inputs | None, own_names: Sequence[str], count: int
) -> TreeColumns:
    """The columns of a FlowTable, which are integers already."""
    names = _names(inputs) or [n for n in own_names if n in table.features] or [*table.features]
    lacking = [name for name in names if name not in table.features]
    if lacking or len(names) != count:
        wrong = f"{lacking[0]!r} is no feature of it" if lacking else f"it has {len(names)}"
        raise ModelError(f"rows: expected a table of the {count} columns of the fit: {wrong}")
    known = {f.name: f for f in table.catalogue}
    columns = [TreeColumn(n, 1.0, False, known[n].unit, known[n].scale) for n in names]
    integers = np.stack([np.asarray(table.features[n], dtype=np.int64) for n in names], axis=1)
    metered = table.meter is not None and {*names} <= {*table.meter.units}
    rules = table.rules
    return TreeColumns(
        tuple(columns),
        integers.astype(np.float64),
        integers,
        table.meter if metered else None,
        rules if rules is not None and {*names} <= {*rules.features} else None,
    )


def _names(inputs: Inputs | None) -> list[str]:
    if inputs is None:
        return []
    if isinstance(inputs, str) or not all(isinstance(name, str) for name in inputs):
        raise ModelError(
            "inputs: expected the names of the columns, or names with the integer units in one "
            f"unit of the rows, such as {{'duration': 1e6}}; got {inputs!r:.60}"
        )
    names = [*inputs]
    if len({*names}) < len(names):
        raise ModelError("inputs: expected different names")
    return names


def _matrix(rows: Any, own_names: Sequence[str], count: int) -> tuple[NDArray[Any], list[str]]:
    """The rows as numbers of shape ``(rows, columns)``, and the columns' names, if they have some.

    Raises:
        ModelError: they are no numbers, or another number of columns.
    """
    if rows is None:
        return np.empty((0, count)), [*own_names]
    names = [str(n) for n in getattr(rows, "columns", ()) if isinstance(n, str)]
    if len(names) > count and own_names and {*own_names} <= {*names}:
        rows, names = rows[[*own_names]], [*own_names]
    array = np.asarray(rows)
    if array.ndim != 2 or array.shape[1] != count:
        raise ModelError(
            f"rows: expected the {count} columns of the fit, got the shape {array.shape}"
        )
    if array.dtype.kind not in "biuf":
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError):
            raise ModelError(
                "rows: expected numbers; a column of texts needs numbers, as the fit had them"
            ) from None
    array = array if array.dtype.kind == "f" else array.astype(np.float64)
    if not np.isfinite(array).all():
        row, column = (int(v) for v in np.argwhere(~np.isfinite(array))[0])
        what = "blank (NaN)" if np.isnan(array[row, column]) else "infinite"
        name = names[column] if len(names) == count else f"column {column}"
        raise ModelError(
            f"rows: {name} of row {row} is {what}: a NIC has no missing values; leave such rows "
            "out, or fill them before the fit as the NIC will"
        )
    return array, names if len(names) == count else [*own_names]


def _scale(values: NDArray[Any], kind: np.dtype[Any]) -> float:
    """The fewest decimal places in which all values are whole, as a power of ten.

    If nine are too few or 32 bits too narrow, as many places as 32 bits hold.
    """
    largest = float(np.abs(values).max(initial=0))
    room = MOST_PLACES
    if largest:
        room = min(MOST_PLACES, math.floor(math.log10(UINT32_MAX / largest)))
    for places in range(max(0, room) + 1):
        whole = np.rint(np.asarray(values, dtype=np.float64) * 10.0**places)
        if ((whole / 10.0**places).astype(kind) == values).all():
            return 10.0**places
    return 10.0**room


def _unit(scale: float) -> str:
    if scale == 1:
        return ""
    return f"1/{scale:,.10g}" if scale > 1 else f"{1 / scale:,.10g}"


def _integers(rows: Floats, columns: Sequence[TreeColumn]) -> Ints:
    """Rows in integer units; magnitudes are rounded as a table's reader rounds them."""
    out = [
        np.sign(values).astype(np.int64) * to_integer(np.abs(values), column.scale)
        for values, column in zip(rows.T, columns, strict=True)
    ]
    return np.stack(out, axis=1)


def _meter(rows: Any) -> MeterSpec | None:
    """The meter of a table of :func:`n3ic.extract`."""
    metadata = getattr(getattr(rows, "schema", None), "metadata", None) or {}
    text = metadata.get(METER_KEY) or getattr(rows, "attrs", {}).get(METER_KEY.decode())
    return None if text is None else MeterSpec.from_json(text, "the table's meter")
