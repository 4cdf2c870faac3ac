# SPDX-License-Identifier: Apache-2.0
"""Columns that are stored in as few bytes as their values need, and derived when they are read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

NarrowArray = NDArray[np.unsignedinteger[Any]]


def narrow(values: NDArray[np.integer[Any]]) -> NarrowArray:
    """Integers of 0 and more in the narrowest unsigned type that holds them all."""
    narrowed: NarrowArray = values.astype(
        np.min_scalar_type(int(values.max(initial=0))), copy=False
    )
    return narrowed


class Derivation(Protocol):
    """How a column is computed, such as :class:`n3ic.data.catalogue.Derived`."""

    @property
    def needs(self) -> tuple[str, ...]:
        """Names of the columns that it reads."""

    def column(self, columns: Mapping[str, NDArray[np.int64]]) -> NDArray[np.int64]:
        """The column, by the columns that it reads."""


@dataclass(frozen=True, eq=False)
class NarrowColumns(Mapping[str, NDArray[np.int64]]):
    """Integer columns by name; each becomes an int64 array of shape ``(rows,)`` when it is read.

    Attributes:
        names: names of the columns.
        arrays: unsigned integers by name, shape ``(rows,)`` each: columns, and what others need.
        derived: finds how a column without an array is computed; a function of a module, so that
            the columns can be sent to other processes.
    """

    names: tuple[str, ...]
    arrays: Mapping[str, NarrowArray]
    derived: Callable[[str], Derivation]

    def __post_init__(self) -> None:
        shapes = {values.shape for values in self.arrays.values()}
        if len(shapes) > 1 or any(len(shape) != 1 for shape in shapes):
            raise ValueError(f"columns: expected one shape (rows,), got {shapes}")

    def __getitem__(self, name: str) -> NDArray[np.int64]:
        if name not in self.names:
            raise KeyError(name)
        if name in self.arrays:
            return self.arrays[name].astype(np.int64)
        return self.derived(name).column(
            {n: self.arrays[n].astype(np.int64) for n in self._of(name)}
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def _of(self, name: str) -> tuple[str, ...]:
        """The stored columns that a column is read from."""
        return (name,) if name in self.arrays else self.derived(name).needs

    def rows(self, index: NDArray[np.intp] | NDArray[np.bool_]) -> NarrowColumns:
        """Some rows, by index or by mask."""
        return replace(self, arrays={name: values[index] for name, values in self.arrays.items()})

    def only(self, names: Collection[str]) -> NarrowColumns:
        """Some columns, in their own order."""
        names = tuple(name for name in self.names if name in names)
        needed = {of for name in names for of in self._of(name)}
        return replace(
            self, names=names, arrays={n: v for n, v in self.arrays.items() if n in needed}
        )
