# SPDX-License-Identifier: Apache-2.0
"""TablesModel: the frozen, integer-only description of boosted look-up tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import index
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from n3ic.errors import ModelError
from n3ic.model.bits import Bits, bytes_for, checked_words, unpack
from n3ic.model.columns import TableRules
from n3ic.model.file import Tensors
from n3ic.model.inputs import InputSpec
from n3ic.model.meter_spec import MeterSpec
from n3ic.model.summed import SummedModel, n_sums
from n3ic.util.plain_data import from_plain

MAX_INDEX_BITS = 8
"""The most input bits that address a table."""
MAX_ENTRY_BITS = 8
"""The most bits of an entry."""
MAX_TABLES = 4096
MAX_BIAS = 1 << 29  # margins fit 32 bits with any entries
_ROWS = 2048  # rows whose indices numpy holds at once


@dataclass(frozen=True, eq=False)
class Table:
    """A look-up table.

    Attributes:
        bits: the input bits that address it, 1 to ``MAX_INDEX_BITS`` different ones: ``bits[j]``
            is bit ``j`` of the index, the least significant first.
        entries: int8 array of shape ``(2 ** len(bits), sums)``.
        width: bits of an entry, 1 to ``MAX_ENTRY_BITS``: entries are in
            ``-2 ** (width - 1)..2 ** (width - 1) - 1``.
    """

    bits: tuple[int, ...]
    entries: NDArray[np.int8]
    width: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "bits", tuple(index(b) for b in self.bits))
        object.__setattr__(self, "width", index(self.width))
        if not 1 <= len(self.bits) <= MAX_INDEX_BITS or len(set(self.bits)) != len(self.bits):
            raise ModelError(
                f"a table is addressed by 1 to {MAX_INDEX_BITS} different input bits, "
                f"got {list(self.bits[:9])}"
            )
        if not 1 <= self.width <= MAX_ENTRY_BITS:
            raise ModelError(f"entries have 1 to {MAX_ENTRY_BITS} bits, got {self.width}")
        values = np.asarray(self.entries)
        if values.ndim != 2 or len(values) != 1 << len(self.bits) or values.dtype.kind not in "iu":
            raise ModelError(
                f"a table of {len(self.bits)} bits has integer entries of shape "
                f"({1 << len(self.bits)}, sums), got {values.dtype} {values.shape}"
            )
        half = 1 << (self.width - 1)
        if ((values < -half) | (values >= half)).any():
            raise ModelError(f"entries of {self.width} bits are in {-half}..{half - 1}")
        entries = np.array(values, dtype=np.int8)
        entries.setflags(write=False)
        object.__setattr__(self, "entries", entries)

    @property
    def held(self) -> NDArray[np.bool_]:
        """The sums for which some entry is not 0, bool array; the others take no memory."""
        return np.asarray(self.entries.any(axis=0))


@dataclass(frozen=True, eq=False, repr=False)
class TablesModel(SummedModel):
    """Look-up tables from packed input bits to integer scores.

    Sum ``s`` is ``bias[s]`` plus the entry ``entries[i, s]`` of each table, where bit ``j`` of the
    table's index ``i`` is input bit ``bits[j]``.

    Three classes or more have a sum each, which is the class's score. Two classes have one sum
    ``s`` together: their scores are ``0, s``, so that class 1 wins where ``s > 0`` and the margin
    is ``|s|``. Only the difference of two scores decides, so a second sum would double the entries
    for nothing.

    Attributes:
        input: how integer features become input bits, which may be of any kind.
        tables: the tables, one or more.
        bias: int32 array of shape ``(sums,)``.
        classes: name of each class.
        name: what the model is for.
        provenance: facts about its origin, text to text.
        meter: how the features are computed from packets; None without a meter.
        shunt: the smallest margin that is not shunted.
        table: how the features are read from a table of data; None if a data set reads it.
    """

    family: ClassVar[str] = "look-up-tables"
    header_keys: ClassVar[tuple[str, ...]] = ("tables", "index_bits", "entry_bytes")
    input: InputSpec
    tables: tuple[Table, ...]
    bias: NDArray[np.int32]
    classes: tuple[str, ...]
    name: str = "model"
    provenance: Mapping[str, str] = field(default_factory=dict)
    meter: MeterSpec | None = None
    shunt: int = 0
    table: TableRules | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "tables", tuple(self.tables))
        values = np.asarray(self.bias)
        if values.ndim != 1 or values.dtype.kind not in "iu":
            raise ModelError(f"biases are integers, one a sum; got {values.dtype} {values.shape}")
        if ((values < -MAX_BIAS) | (values > MAX_BIAS)).any():
            raise ModelError("scores exceed 32 bits: a bias is in -2^29..2^29")
        bias = values.astype(np.int32)
        bias.setflags(write=False)
        object.__setattr__(self, "bias", bias)
        if not 1 <= len(self.tables) <= MAX_TABLES:
            raise ModelError(f"{len(self.tables)} tables, 1 to {MAX_TABLES:,} expected")
        for i, each in enumerate(self.tables):
            if each.entries.shape[1] != len(bias):
                raise ModelError(
                    f"table {i}: entries of {each.entries.shape[1]} sums, biases of {len(bias)}"
                )
            if not (min(each.bits) >= 0 and max(each.bits) < self.input.n_bits):
                raise ModelError(f"table {i}: its bits are in 0..{self.input.n_bits - 1}")
        if len(bias) != n_sums(len(self.classes)):
            raise ModelError(
                f"{len(bias)} sums for {len(self.classes)} classes; "
                "expected one for two classes, one a class for more"
            )
        self._check_shared(len(self.classes))

    # --- sizes -----------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """Input bits, tables, bits of all indices and classes."""
        return (self.input.n_bits, len(self.tables), self._index_bits, len(self.classes))

    @property
    def shape_text(self) -> str:
        """The shape as text, such as ``52 tables of 5 bits``."""
        sizes = sorted({len(t.bits) for t in self.tables})
        span = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
        plural = "" if len(self.tables) == 1 else "s"
        return f"{len(self.tables):,} table{plural} of {span} bit{'' if sizes == [1] else 's'}"

    @property
    def entry_widths(self) -> tuple[int, ...]:
        """Bits of an entry of each table."""
        return tuple(t.width for t in self.tables)

    @property
    def _index_bits(self) -> int:
        return sum(len(t.bits) for t in self.tables)

    @property
    def uniform(self) -> bool:
        """Whether all tables have indices and entries of the same numbers of bits."""
        return len({(len(t.bits), t.width) for t in self.tables}) == 1

    @property
    def entry_bytes(self) -> int:
        """Bytes of the entries, packed; columns of a sum that are 0 throughout take none."""
        return -(-sum(t.width * len(t.entries) * int(t.held.sum()) for t in self.tables) // 8)

    @property
    def index_bytes(self) -> int:
        """Bytes that say which input bits address the tables.

        One byte per index bit, or two above 256 input bits; one byte per table for its sizes if
        they differ; with three classes or more, a bit per table and sum for the held columns.
        """
        each = bytes_for(self.input.n_bits - 1)
        sizes = 0 if self.uniform else len(self.tables)
        mask_bytes = 0 if len(self.bias) == 1 else len(self.tables) * -(-len(self.bias) // 8)
        return each * self._index_bits + sizes + mask_bytes

    @property
    def weight_bytes(self) -> int:
        """Bytes of the entries; see :attr:`memory` for the others."""
        return self.entry_bytes

    @property
    def memory(self) -> dict[str, int]:
        """Bytes by part: entries, indices, biases and cuts."""
        return {
            "weight_bytes": self.weight_bytes,
            "index_bytes": self.index_bytes,
            "bias_bytes": self.bias_bytes,
            "input_bytes": self.input_bytes,
        }

    # --- bounds ----------------------------------------------------------------------------

    @cached_property
    def _ranges(self) -> NDArray[np.int64]:
        """Upper bound of ``score i - score j`` over all inputs: int64, ``(classes, classes)``."""
        count = len(self.classes)
        out = np.zeros((count, count), dtype=np.int64)
        for each in self.tables:
            scores = self._as_scores(each.entries.astype(np.int64))
            out += (scores[:, :, None] - scores[:, None, :]).max(axis=0)
        biases = self._as_scores(self.bias[None].astype(np.int64))[0]
        return np.asarray(out + biases[:, None] - biases[None, :])

    @cached_property
    def sum_bounds(self) -> NDArray[np.int64]:
        """Least and largest value of each sum: int64 array of shape ``(2, sums)``."""
        out = np.tile(self.bias.astype(np.int64), (2, 1))
        for each in self.tables:
            out += [each.entries.min(axis=0), each.entries.max(axis=0)]
        return out

    @property
    def largest_margin(self) -> int:
        """Upper bound of the margins: the largest lead that a class can have over every rival."""
        ranges = self._ranges.copy()
        np.fill_diagonal(ranges, np.iinfo(np.int64).max)
        return max(0, int(ranges.min(axis=1).max()))

    # --- inference -------------------------------------------------------------------------

    @cached_property
    def _gathers(self) -> tuple[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int8]], ...]:
        """Positions, bits and entries of the tables, grouped by their number of index bits."""
        out = []
        for size in sorted({len(t.bits) for t in self.tables}):
            at = [i for i, t in enumerate(self.tables) if len(t.bits) == size]
            bits = np.array([self.tables[i].bits for i in at], dtype=np.int64)
            entries = np.stack([self.tables[i].entries for i in at])
            out.append((np.array(at, dtype=np.int64), bits, entries))
        return tuple(out)

    def indices(self, words: ArrayLike) -> NDArray[np.uint8]:
        """Compute which entry of each table some inputs address.

        Args:
            words: packed inputs, uint32 array of shape ``(rows, n_words)``, pad bits 0.

        Returns:
            uint8 array of shape ``(rows, tables)``.

        Raises:
            ModelError: the inputs are not packed inputs of this model.
        """
        checked = checked_words(words, self.input.n_bits, "packed inputs")
        out = np.empty((len(checked), len(self.tables)), dtype=np.uint8)
        for start in range(0, len(checked), _ROWS):
            part = slice(start, start + _ROWS)
            bits = unpack(checked[part], self.input.n_bits)
            for at, of, _ in self._gathers:
                out[part, at] = indices_of(bits, of)
        return out

    def scores(self, words: ArrayLike) -> NDArray[np.int32]:
        """Compute the scores of packed inputs: int32 array of shape ``(rows, classes)``.

        This is the reference that every target must reproduce, in plain numpy.

        Args:
            words: packed inputs, uint32 array of shape ``(rows, n_words)``, pad bits 0.
        """
        indices = self.indices(words)
        sums = np.empty((len(indices), len(self.bias)), dtype=np.int32)
        for start in range(0, len(indices), _ROWS):
            part = slice(start, start + _ROWS)
            total = np.zeros((len(indices[part]), len(self.bias)), dtype=np.int32)
            for at, _, entries in self._gathers:
                total += entries[np.arange(len(at)), indices[part, at]].sum(axis=1, dtype=np.int32)
            sums[part] = total + self.bias
        return self._as_scores(sums)

    # --- file ------------------------------------------------------------------------------

    def _header(self) -> dict[str, Any]:
        return {
            "tables": len(self.tables),
            "index_bits": self._index_bits,
            "entry_bytes": len(self._tensors()["entries"]),
        }

    def _tensors(self) -> dict[str, NDArray[Any]]:
        return {
            "table.inputs": np.array([len(t.bits) for t in self.tables], dtype=np.uint8),
            "table.width": np.array([t.width for t in self.tables], dtype=np.uint8),
            "table.held": np.array([t.held for t in self.tables], dtype=np.uint8),
            "bits": np.array([b for t in self.tables for b in t.bits], dtype=np.uint16),
            "entries": _packed(self.tables),
            "bias": self.bias,
        }

    @classmethod
    def _read(cls, header: Mapping[str, Any], tensors: Tensors, shared: Mapping[str, Any]) -> Self:
        try:
            fields = from_plain(_HeaderFields, {k: header[k] for k in cls.header_keys}, strict=True)
        except ValueError as error:
            raise ModelError(str(error)) from error
        count, sums = fields.tables, n_sums(len(shared["classes"]))
        inputs = tensors.take("table.inputs", np.uint8, (count,)).astype(np.int64)
        widths = tensors.take("table.width", np.uint8, (count,)).astype(np.int64)
        masks = tensors.take("table.held", np.uint8, (count, sums))
        bits = tensors.take("bits", np.uint16, (fields.index_bits,))
        packed = tensors.take("entries", np.uint8, (fields.entry_bytes,))
        bias = tensors.take("bias", np.int32, (sums,))
        for name, sizes in (("inputs", inputs), ("width", widths)):
            if ((sizes < 1) | (sizes > 8)).any():
                raise ModelError(f"table.{name}: values in 1..8 expected")
        if inputs.sum() != len(bits):
            raise ModelError(f"{len(bits)} index bits, the tables say {inputs.sum()}")
        needed = int((widths * (1 << inputs) * masks.astype(np.bool_).sum(axis=1)).sum())
        if len(packed) != -(-needed // 8):
            raise ModelError(f"{len(packed)} bytes of entries, the tables say {-(-needed // 8)}")
        tables = tuple(_unpacked(inputs, widths, masks.astype(np.bool_), bits, packed))
        model = cls(tables=tables, bias=bias, **shared)
        # A model has exactly one file: no stray bits, and no column of zeros marked as held.
        again = model._tensors()
        if not (
            np.array_equal(again["table.held"], masks) and np.array_equal(again["entries"], packed)
        ):
            raise ModelError("entries are not packed as n3ic packs them")
        return model


@dataclass(frozen=True)
class _HeaderFields:
    """The keys of a file's header that only this family has."""

    tables: int
    index_bits: int
    entry_bytes: int


def indices_of(bits: Bits, of: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Compute the indices of tables of equally many index bits.

    Args:
        bits: bool array of shape ``(rows, n_bits)``.
        of: int64 array of shape ``(tables, d)``: the input bits of each table.

    Returns:
        uint8 array of shape ``(rows, tables)``.
    """
    out = np.zeros((len(bits), len(of)), dtype=np.uint8)
    for j in range(of.shape[1]):
        out |= bits[:, of[:, j]].view(np.uint8) << np.uint8(j)
    return out


def _packed(tables: Sequence[Table]) -> NDArray[np.uint8]:
    """Pack the held columns of all tables, ``width`` bits an entry, least significant first."""
    parts = []
    for each in tables:
        column = each.entries[:, each.held].T.reshape(-1).view(np.uint8)
        octets = np.unpackbits(column[:, None], axis=1, bitorder="little")
        parts.append(octets[:, : each.width].reshape(-1))
    return np.packbits(np.concatenate(parts), bitorder="little")


def _unpacked(
    inputs: NDArray[np.int64],
    widths: NDArray[np.int64],
    masks: NDArray[np.bool_],
    bits: NDArray[np.uint16],
    packed: NDArray[np.uint8],
) -> Iterator[Table]:
    """Build the tables from the arrays of a file, whose sizes agree."""
    stream = np.unpackbits(packed, bitorder="little")
    at = bit_at = 0
    for d, width, columns in zip(inputs.tolist(), widths.tolist(), masks, strict=True):
        size = width * int(columns.sum()) << d
        raw = stream[at : at + size].reshape(-1, width).astype(np.int16)
        values = raw @ (1 << np.arange(width, dtype=np.int16))
        values -= (raw[:, -1] << width).astype(np.int16)  # two's complement
        entries = np.zeros((1 << d, len(columns)), dtype=np.int8)
        entries[:, columns] = values.reshape(-1, 1 << d).T
        yield Table(tuple(bits[bit_at : bit_at + d].tolist()), entries, width)
        at, bit_at = at + size, bit_at + d
