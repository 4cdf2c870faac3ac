# SPDX-License-Identifier: Apache-2.0
"""InputSpec: how integer features become the input bits of a binary network.

The same spec drives training, prediction, the feature extractor and every target's input
stage. It compares integers only, as a NIC does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import index
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from n3ic.errors import ModelError
from n3ic.model.bits import Bits, Words, bytes_for, pack, word_count
from n3ic.model.text import check_text
from n3ic.util.display import Displayed, TextTable, View, listed
from n3ic.util.plain_data import from_plain

UINT32_MAX = 2**32 - 1
MAX_INPUT_BITS = 1 << 16
RATE_UNIT = 1 << 16
"""Denominator of the rates of bits: the rate of a bit that is always set."""
SPAN_LEFT = 0.0005
"""Share of the training rows below the span of a feature; the same share is above it."""
MAX_SCALE = 1e18
"""Scales are in ``1 / MAX_SCALE..MAX_SCALE``, so that no scaled value overflows a float."""

Kind = Literal["binary", "thermometer"]


@dataclass(frozen=True)
class Field:
    """One feature and the bits that it becomes.

    Attributes:
        feature: the feature's name in the data set's catalogue.
        kind: ``binary`` (the bits of the clamped integer, least significant first) or
            ``thermometer`` (bit ``k`` is ``value >= cuts[k]``).
        width: number of bits.
        clamp: largest integer value; larger ones become ``clamp``, negative ones 0.
        cuts: strictly increasing integer cuts of a thermometer field, each in ``1..clamp``.
        unit: the integer unit, such as ``us`` or ``byte``.
        scale: integer units in one source unit (1e6 for seconds kept as microseconds).
        rates: share of the training rows in which each bit was set, over ``RATE_UNIT``; the drift
            of live traffic is measured against it. Empty if unknown; comparisons ignore it.
        class_rates: the same among the training rows of each class that has some.
        span: range of the feature's values in training, without ``SPAN_LEFT`` of them at each end.
    """

    feature: str
    kind: Kind
    width: int
    clamp: int
    cuts: tuple[int, ...] = ()
    unit: str = ""
    scale: float = 1.0
    rates: tuple[int, ...] = field(default=(), compare=False, repr=False)
    class_rates: tuple[tuple[int, ...], ...] = field(default=(), compare=False, repr=False)
    span: tuple[int, ...] = field(default=(), compare=False, repr=False)

    def __post_init__(self) -> None:
        check_text("a feature's name", self.feature)
        where = f"field {self.feature!r}"
        check_text(f"{where}: unit", self.unit, least=0)
        if self.kind not in ("binary", "thermometer"):
            raise ModelError(f"{where}: kind is 'binary' or 'thermometer', got {self.kind!r}")
        if not 0 < self.clamp <= UINT32_MAX:
            raise ModelError(f"{where}: clamp {self.clamp} is not in 1..2^32-1")
        check_scale(f"{where}: scale", self.scale)
        # One type for each value, so that equal fields have equal bytes in a file.
        object.__setattr__(self, "scale", float(self.scale))
        try:
            object.__setattr__(self, "width", index(self.width))
            object.__setattr__(self, "clamp", index(self.clamp))
            object.__setattr__(self, "cuts", tuple(index(c) for c in self.cuts))
            object.__setattr__(self, "rates", tuple(index(r) for r in self.rates))
        except TypeError as error:
            raise ModelError(f"{where}: width, clamp, cuts and rates are integers") from error
        if len(self.rates) not in (0, self.width):
            raise ModelError(f"{where}: {len(self.rates)} rates for {self.width} bits")
        if any(not 0 <= r <= RATE_UNIT for rates in (self.rates, *self.class_rates) for r in rates):
            raise ModelError(f"{where}: rates are in 0..{RATE_UNIT}")
        if len(self.span) not in (0, 2) or not all(0 <= end <= UINT32_MAX for end in self.span):
            raise ModelError(f"{where}: expected two ends of a span in 0..2^32-1")
        if any(len(r) != self.width for r in self.class_rates):
            raise ModelError(f"{where}: expected {self.width} rates a class")
        if self.kind == "binary":
            if not 1 <= self.width <= 32:
                raise ModelError(f"{where}: a binary field has 1 to 32 bits, got {self.width}")
            if self.clamp >= 1 << self.width:
                raise ModelError(f"{where}: clamp {self.clamp} does not fit {self.width} bits")
            if self.cuts:
                raise ModelError(f"{where}: a binary field has no cuts")
        else:
            if self.width != len(self.cuts) or not self.cuts:
                raise ModelError(f"{where}: {len(self.cuts)} cuts for {self.width} bits")
            # A cut of 0 would give a bit that is always set.
            if any(b <= a for a, b in zip((0, *self.cuts), self.cuts, strict=False)):
                raise ModelError(f"{where}: cuts must be positive and strictly increasing")
            if self.cuts[-1] > self.clamp:
                raise ModelError(f"{where}: cut {self.cuts[-1]} is above the clamp {self.clamp}")

    @classmethod
    def binary(cls, feature: str, width: int, *, unit: str = "", scale: float = 1.0) -> Field:
        """A field of ``width`` raw bits, clamped to what they hold."""
        return cls(feature, "binary", width, (1 << width) - 1, (), unit, scale)

    @classmethod
    def thermometer(
        cls, feature: str, cuts: Sequence[int], *, unit: str = "", scale: float = 1.0
    ) -> Field:
        """A field of one bit per cut: bit ``k`` is ``value >= cuts[k]``."""
        ordered = tuple(int(c) for c in cuts)
        clamp = ordered[-1] if ordered else 1
        return cls(feature, "thermometer", len(ordered), clamp, ordered, unit, scale)

    @property
    def cut_bytes(self) -> int:
        """Bytes of a cut: 1, 2 or 4, as the largest one needs; 0 for raw bits."""
        return bytes_for(self.cuts[-1]) if self.cuts else 0

    @property
    def form(self) -> int:
        """What is stored of a field beside its cuts: four times its bits, and a code.

        The code is 0 for raw bits, and 1, 2 or 3 for cuts of 1, 2 or 4 bytes.
        """
        return 4 * self.width + self.cut_bytes.bit_length()

    def encode(self, values: ArrayLike) -> Bits:
        """Bits of integer values: int array of shape ``(rows,)`` to bool ``(rows, width)``."""
        clamped = np.clip(np.asarray(values, dtype=np.int64), 0, self.clamp)
        if self.kind == "thermometer":
            return clamped[:, None] >= np.asarray(self.cuts, dtype=np.int64)
        shifts = np.arange(self.width, dtype=np.int64)
        return ((clamped[:, None] >> shifts) & 1).astype(np.bool_)

    def explain(self, bit: int) -> str:
        """What bit ``bit`` of this field means, in words."""
        unit = f" {self.unit}" if self.unit else ""
        if self.kind == "thermometer":
            return f"{self.feature} >= {self.cuts[bit]:,}{unit}"
        return f"bit {bit} of {self.feature} (in steps of {1 << bit:,}{unit})"

    def integer(self, source: ArrayLike) -> NDArray[np.int64]:
        """Integer units of values in source units; see :func:`to_integer`."""
        return to_integer(source, self.scale)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        out: dict[str, Any] = {
            "feature": self.feature,
            "kind": self.kind,
            "width": self.width,
            "clamp": self.clamp,
            "unit": self.unit,
            "scale": self.scale,
        }
        if self.kind == "thermometer":
            out["cuts"] = list(self.cuts)
        known = {name: getattr(self, name) for name in ("rates", "class_rates", "span")}
        return out | {name: list(values) for name, values in known.items() if values}


def check_scale(where: str, scale: float) -> None:
    """Refuse a scale outside of ``1 / MAX_SCALE..MAX_SCALE``.

    Raises:
        ModelError: the scale is outside, or not a number.
    """
    if not 1 / MAX_SCALE <= scale <= MAX_SCALE:  # NaN fails, too
        raise ModelError(f"{where}: expected {1 / MAX_SCALE:g} to {MAX_SCALE:g}, got {scale!r}")


def to_integer(source: ArrayLike, scale: float) -> NDArray[np.int64]:
    """Values in source units as integers, rounded to nearest; a positive value is at least 1.

    Args:
        source: float or int array of finite values.
        scale: integer units in one source unit.

    Returns:
        int64 array; values are clipped to ``0..2^32 - 1``.

    Raises:
        ValueError: a value is not finite.
    """
    values = np.asarray(source, dtype=np.float64)
    if not np.isfinite(values).all():
        raise ValueError("values must be finite")
    scaled = np.clip(np.rint(values * scale), 0, UINT32_MAX)  # float64 holds 32 bits exactly
    return np.where((values > 0) & (scaled == 0), 1.0, scaled).astype(np.int64)


@dataclass(frozen=True, repr=False)
class InputSpec(Displayed):
    """An ordered list of fields; their bits, in that order, are the input bits."""

    fields: tuple[Field, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", tuple(self.fields))
        if not self.fields:
            raise ModelError("an input needs at least one field")
        if self.n_bits > MAX_INPUT_BITS:
            raise ModelError(f"{self.n_bits} input bits, at most {MAX_INPUT_BITS} are supported")

    def view(self) -> View:
        """The title and the tables that are displayed."""
        rows = []
        for start, f in zip(self.offsets, self.fields, strict=True):
            span = f"{f.cuts[0]:,} to {f.cuts[-1]:,}" if f.cuts else f"0 to {f.clamp:,}"
            bits = f"{start} to {start + f.width - 1}"
            rows.append((f.feature, f.kind, f.unit, bits, str(f.width), span))
        head = ("feature", "kind", "unit", "bits", "count", "cuts or values")
        return View(
            f"{self.n_bits:,} bits of {len(self.features)} features "
            f"({listed(self.features, 4)}), {self.memory_bytes:,} bytes of cuts",
            (TextTable("input bits", head, tuple(rows), left=3),),
        )

    @classmethod
    def raw(cls, n_bits: int) -> InputSpec:
        """A spec for bare bit vectors: fields ``x0``, ``x1``, ... of up to 32 binary bits."""
        widths = [32] * (n_bits // 32) + ([n_bits % 32] if n_bits % 32 else [])
        return cls(tuple(Field.binary(f"x{i}", w) for i, w in enumerate(widths)))

    @cached_property
    def n_bits(self) -> int:
        """Number of input bits."""
        return sum(f.width for f in self.fields)

    @property
    def n_words(self) -> int:
        """Number of 32-bit words of a packed input."""
        return word_count(self.n_bits)

    @cached_property
    def features(self) -> tuple[str, ...]:
        """Names of the features that are read, each once, in order of first use."""
        return tuple(dict.fromkeys(f.feature for f in self.fields))

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """Index of the first bit of each field."""
        return tuple(int(o) for o in np.cumsum([0, *(f.width for f in self.fields)])[:-1])

    @cached_property
    def _repeats(self) -> tuple[int, tuple[int, ...]]:
        """How many fields stand before those that only repeat, and which bits these repeat."""
        first: dict[tuple[str, int], int] = {}
        repeats: list[int] = []
        own = 0
        for n, (start, f) in enumerate(zip(self.offsets, self.fields, strict=True), 1):
            places = [(f.feature, cut) for cut in f.cuts]
            if places and all(place in first for place in places):
                repeats += [first[place] for place in places]
                continue
            own, repeats = n, []
            for bit, place in enumerate(places, start):
                first.setdefault(place, bit)
        return own, tuple(repeats)

    @property
    def own_fields(self) -> tuple[Field, ...]:
        """The fields without the last ones whose cuts all stand in an earlier field."""
        return self.fields[: self._repeats[0]]

    @property
    def repeated_bits(self) -> tuple[int, ...]:
        """The earlier bit that each bit behind :attr:`own_fields` repeats."""
        return self._repeats[1]

    @property
    def memory_bytes(self) -> int:
        """Bytes that the cuts take, stored as narrow as they may be.

        A cut takes the bytes of its field's largest one: 1, 2 or 4. A field with cuts takes a byte
        more, which says how many and of which width; two if a field has more than 63. The last
        bits, if they only repeat earlier cuts, take the place of what they repeat: a byte each, or
        two if one lies behind bit 255. Raw bits take none; which feature a field reads is not
        counted.
        """
        own = self.own_fields
        form = bytes_for(max(f.form for f in own))
        cuts = sum(form + f.cut_bytes * len(f.cuts) for f in own if f.cuts)
        return cuts + bytes_for(max(self.repeated_bits, default=0)) * len(self.repeated_bits)

    @property
    def n_cuts(self) -> int:
        """Number of different comparisons: repeated cuts count once."""
        return len({(f.feature, cut) for f in self.fields for cut in f.cuts})

    def encode(self, values: Mapping[str, ArrayLike]) -> Bits:
        """Bits of integer features.

        Args:
            values: integer array of shape ``(rows,)`` per feature, in the field's integer unit.

        Returns:
            bool array of shape ``(rows, n_bits)``.

        Raises:
            ModelError: a feature is missing.
        """
        missing = [f for f in self.features if f not in values]
        if missing:
            raise ModelError(f"the input needs the features {', '.join(missing)}")
        rows = len(np.asarray(values[self.fields[0].feature]))
        out = np.empty((rows, self.n_bits), dtype=np.bool_)
        for start, f in zip(self.offsets, self.fields, strict=True):
            out[:, start : start + f.width] = f.encode(values[f.feature])
        return out

    def encode_words(self, values: Mapping[str, ArrayLike]) -> Words:
        """Packed bits of integer features: uint32 array of shape ``(rows, n_words)``."""
        return pack(self.encode(values))

    def with_rates(
        self,
        bits: Bits,
        label: NDArray[np.int64] | None = None,
        columns: Mapping[str, NDArray[np.int64]] | None = None,
    ) -> InputSpec:
        """The same spec, with the rate of each bit in some rows.

        Args:
            bits: bool array of shape ``(rows, n_bits)``, one row or more.
            label: class index of each row, for the rates of each class.
            columns: integers by feature, for their spans.
        """
        parts = [bits, *(bits[label == c] for c in ([] if label is None else np.unique(label)))]
        rates, *of = [np.rint(np.mean(b, axis=0) * RATE_UNIT).astype(int).tolist() for b in parts]
        k = int(SPAN_LEFT * len(bits))  # 0: the extremes of few rows predict too little for a span
        spans = {n: np.sort(v)[[k, -1 - k]].tolist() for n, v in (columns or {}).items() if k}
        fields = []
        for start, f in zip(self.offsets, self.fields, strict=True):
            end, span = start + f.width, tuple(spans.get(f.feature, ()))
            known = tuple(tuple(r[start:end]) for r in of)
            fields.append(replace(f, rates=tuple(rates[start:end]), class_rates=known, span=span))
        return InputSpec(tuple(fields))

    def explain(self, bit: int) -> str:
        """What input bit ``bit`` means, in words.

        Raises:
            IndexError: ``bit`` is not an input bit.
        """
        index = self._field_of(bit)
        return f"bit {bit}: {self.fields[index].explain(bit - self.offsets[index])}"

    def ordered(self, bits: Bits) -> Bits:
        """Bits that features can have: of a thermometer field, those below a set bit are set.

        Args:
            bits: bool array of shape ``(rows, n_bits)``.

        Returns:
            The same number of set bits of each thermometer field, the lowest ones; bool array of
            the same shape.
        """
        out = bits.copy()
        for start, f in zip(self.offsets, self.fields, strict=True):
            if f.kind == "thermometer":
                part = bits[:, start : start + f.width]
                out[:, start : start + f.width] = np.arange(f.width) < part.sum(axis=1)[:, None]
        return out

    def feature_of(self, bit: int) -> str:
        """The feature from which input bit ``bit`` is computed.

        Raises:
            IndexError: ``bit`` is not an input bit.
        """
        return self.fields[self._field_of(bit)].feature

    def _field_of(self, bit: int) -> int:
        if not 0 <= bit < self.n_bits:
            raise IndexError(f"bit {bit} is not in 0..{self.n_bits - 1}")
        return int(np.searchsorted(self.offsets, bit, side="right")) - 1

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"fields": [f.to_dict() for f in self.fields]}

    @classmethod
    def from_dict(cls, data: Any) -> InputSpec:
        """Read what :meth:`to_dict` wrote.

        Raises:
            ModelError: the data is not a spec.
        """
        try:
            return from_plain(cls, data, strict=True)
        except ValueError as error:
            raise ModelError(f"not an input spec: {error}") from error
