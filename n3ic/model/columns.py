# SPDX-License-Identifier: Apache-2.0
"""How columns of a user's table become integer features.

The rules are part of the model file. A network that was trained on the table of a flow exporter
reads the next table by the same columns, units and values for blanks.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args

from n3ic.errors import ModelError
from n3ic.model.inputs import check_scale
from n3ic.model.text import check_text
from n3ic.util.plain_data import shown

ColumnKind = Literal["number", "address", "category"]
Blank = Literal["refuse", "largest", "zero"]
Negative = Literal["zero", "split"]
INDICATOR = "_is_"  # between the name of a category and the number of the text that is 1
NEGATIVE_PART = "_negative"  # suffix of the feature that holds the magnitude of negative values
MOST_VALUES = 256
MOST_BUCKETS = 256
LONGEST = 1024
_MOST_COLUMNS = 4096
_BOOLEANS = {"true": "True", "false": "False", "True": "true", "False": "false"}  # libraries differ


@dataclass(frozen=True)
class ColumnRule:
    """How the cells of a column become integers.

    Attributes:
        kind: ``number``; ``address``, an IPv4 address as its integer, 0 for IPv6; ``category``,
            a text as its index in ``values``.
        unit: the integer unit.
        source_unit: the unit in the table.
        scale: integer units in one source unit.
        bits: width of the integer, 1 to 32; larger values saturate.
        blank: how a cell without a number (blank, NaN) is read: ``refuse`` it, as the ``largest``
            integer, or as ``zero``. Unless blanks are refused, infinity is the largest integer.
        negative: how a number below 0 is read: as ``zero``, or as zero with its magnitude in the
            feature ``NAME_negative`` (``split``).
        values: texts of a category; any other text is ``len(values)``, or more with ``buckets``.
        buckets: in how many numbers from ``len(values)`` on the other texts of a category lie, by
            their hash; 0 if all have one. See :meth:`codes`.
        indicators: how many of ``values``, the first ones, have a feature of their own as well:
            ``NAME_is_0`` is 1 in rows of the first text and 0 in others.
    """

    kind: ColumnKind = "number"
    unit: str = ""
    source_unit: str = ""
    scale: float = 1.0
    bits: int = 32
    blank: Blank = "refuse"
    negative: Negative = "zero"
    values: tuple[str, ...] = ()
    buckets: int = 0
    indicators: int = 0

    def __post_init__(self) -> None:
        def require(good: bool, name: str, rule: str) -> None:
            if not good:
                raise ModelError(f"{name}: expected {rule}, got {getattr(self, name)!r}"[:200])

        number = isinstance(self.scale, int | float) and not isinstance(self.scale, bool)
        require(number, "scale", "a positive number")
        object.__setattr__(self, "scale", float(self.scale))  # 1 and 1.0 give equal bytes
        object.__setattr__(self, "values", tuple(self.values))
        require(self.kind in get_args(ColumnKind), "kind", " or ".join(get_args(ColumnKind)))
        require(self.blank in get_args(Blank), "blank", " or ".join(get_args(Blank)))
        require(self.negative in get_args(Negative), "negative", " or ".join(get_args(Negative)))
        check_scale("scale", self.scale)
        require(
            isinstance(self.bits, int) and not isinstance(self.bits, bool) and 1 <= self.bits <= 32,
            "bits",
            "an integer from 1 to 32",
        )
        for name in ("unit", "source_unit"):
            text = getattr(self, name)
            require(isinstance(text, str) and len(text) < LONGEST, name, "a short text")
            check_text(name, text, least=0, most=LONGEST)
        texts = all(_is_text(v) for v in self.values)
        distinct = texts and len({*self.values}) == len(self.values) <= MOST_VALUES
        require(distinct, "values", f"at most {MOST_VALUES} different texts")
        require(bool(self.values) == (self.kind == "category"), "values", "texts, of a category")
        buckets = MOST_BUCKETS if self.kind == "category" else 0
        for name, most in (("buckets", buckets), ("indicators", len(self.values))):
            count = getattr(self, name)
            whole = isinstance(count, int) and not isinstance(count, bool)
            require(whole and 0 <= count <= most, name, f"an integer from 0 to {most}")

    def codes(self, texts: Iterable[str]) -> list[int]:
        """The integers of the texts of a category.

        A text that is not in ``values`` is ``len(values)``, plus the CRC-32 (as of zlib and PNG) of
        its UTF-8 bytes modulo ``buckets`` if there are any. ``True`` and ``true`` are one text, as
        are ``False`` and ``false``.
        """
        place = {text: i for i, text in enumerate(self.values)}
        return [place.get(t, place.get(_BOOLEANS.get(t, t), self._other(t))) for t in texts]

    def _other(self, text: str) -> int:
        if not self.buckets:
            return len(self.values)
        shortest = min(text, _BOOLEANS.get(text, text)).encode("utf-8", "surrogatepass")
        return len(self.values) + zlib.crc32(shortest) % self.buckets

    def features(self, name: str) -> tuple[str, ...]:
        """Names of the features that a column of that name gives."""
        below = (name + NEGATIVE_PART,) if self.negative == "split" else ()
        return (name, *below, *self.single(name))

    def single(self, name: str) -> tuple[str, ...]:
        """Names of the features that are 1 in rows of one text, of a column of that name."""
        return tuple(f"{name}{INDICATOR}{i}" for i in range(self.indicators))

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, without attributes that have their default values."""
        plain = {**vars(self), "values": list(self.values)}
        usual = {**vars(_USUAL), "values": []}
        return {"kind": self.kind} | {k: v for k, v in plain.items() if v != usual[k]}

    @classmethod
    def from_dict(cls, data: Any) -> ColumnRule:
        """Read what :meth:`to_dict` wrote.

        Raises:
            ModelError: the data is not the rule of a column.
        """
        if not isinstance(data, Mapping) or not data.keys() <= vars(_USUAL).keys():
            raise ModelError(f"not the rule of a column: {data!r}"[:200])
        try:
            return cls(**data)
        except (TypeError, ValueError, OverflowError) as error:
            raise ModelError(f"not the rule of a column: {error}"[:200]) from error


_USUAL = ColumnRule()


@dataclass(frozen=True)
class TableRules:
    """How a table of flows is read: its columns and its label.

    Attributes:
        columns: rules by column name, in lower case with ``_`` for all but letters and digits.
        label: the column of the class.
        positive: the class to be told from all others; empty to tell all classes apart.
        blank_label: the class of flows whose label is blank; empty to refuse them.
        decimal: the decimal mark of the table's numbers, ``,`` or ``.``, where a text fits both;
            empty if unknown.
    """

    columns: Mapping[str, ColumnRule]
    label: str = ""
    positive: str = ""
    blank_label: str = ""
    decimal: str = ""

    def __post_init__(self) -> None:
        for name in ("label", "positive", "blank_label"):
            text = getattr(self, name)
            if not _is_text(text):
                raise ModelError(f"{name}: expected a short text, got {shown(text)}")
        if self.decimal not in ("", ",", "."):
            raise ModelError(f"decimal: expected ',' or '.', got {shown(self.decimal)}")
        for name in self.columns:
            check_text("a column's name", name)
        if len(self.columns) > _MOST_COLUMNS:
            raise ModelError(f"{len(self.columns):,} columns, at most {_MOST_COLUMNS:,} expected")
        for name, rule in self.columns.items():
            if ambiguous := self.columns.keys() & {*rule.single(name)}:
                raise ModelError(
                    f"{shown(min(ambiguous))} is a column and an indicator of the column "
                    f"{shown(name)}; expected different names"
                )

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features that the columns give."""
        return tuple(f for name, rule in self.columns.items() for f in rule.features(name))

    def only(self, features: Collection[str]) -> TableRules:
        """The rules of the columns that some features need."""
        selected = {
            name: rule
            for name, rule in self.columns.items()
            if not {*rule.features(name)}.isdisjoint(features)
        }
        return replace(self, columns=selected)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        columns = {name: rule.to_dict() for name, rule in self.columns.items()}
        plain = {**vars(self), "columns": columns}
        return {key: value for key, value in plain.items() if key != "decimal" or value}

    @classmethod
    def from_dict(cls, data: Any) -> TableRules:
        """Read what :meth:`to_dict` wrote.

        Raises:
            ModelError: the data is not the rules of a table.
        """
        try:
            known = {field.name for field in fields(cls)}
            if unknown := {*data} - known:
                raise ModelError(f"{shown(min(unknown))}: unknown key, expected {sorted(known)}")
            columns = {name: ColumnRule.from_dict(rule) for name, rule in data["columns"].items()}
            return cls(
                columns,
                data["label"],
                data["positive"],
                data["blank_label"],
                data.get("decimal", ""),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ModelError(f"not the rules of a table: {error!r}"[:200]) from error


def _is_text(value: object) -> bool:
    """Whether it is a short text; cells may hold unprintable characters, but no surrogates."""
    # A lone surrogate has no UTF-8, so no file could hold it.
    surrogates = isinstance(value, str) and any("\ud800" <= c <= "\udfff" for c in value)
    return isinstance(value, str) and len(value) < LONGEST and not surrogates
