# SPDX-License-Identifier: Apache-2.0
"""Read dataclasses from the plain data of an untrusted file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")

_EXPECTED = {int: "an integer", float: "a finite number", str: "text", bool: "true or false"}
_LONGEST = 60


def from_plain(kind: type[T], data: Any, *, strict: bool = False) -> T:
    """Read a dataclass from what ``dataclasses.asdict`` and JSON made of one.

    Args:
        kind: the dataclass; its fields are numbers, text, literals, tuples of one type, mappings
            from text, such dataclasses, or None.
        data: content of a JSON file.
        strict: refuse unknown keys; otherwise they are ignored.

    Raises:
        ValueError: a field is missing, of another type or unknown; the message names it.
    """
    instance: T = _read(kind, data, "", strict)
    return instance


def shown(value: object) -> str:
    """A value of a file in a few words of one line."""
    if isinstance(value, Mapping | list | tuple):
        return "an object" if isinstance(value, Mapping) else "a list"
    if isinstance(value, int) and value.bit_length() > 128:
        return f"an integer of {value.bit_length():,} bits"
    if isinstance(value, str) and len(value) > _LONGEST:
        return f"{value[:_LONGEST]!a}... of {len(value):,} characters"
    return ascii(value)


def _read(kind: Any, data: Any, where: str, strict: bool) -> Any:
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return data
    if is_dataclass(kind) and isinstance(kind, type):
        if isinstance(data, Mapping):
            return _dataclass(kind, data, where, strict)
    elif origin is tuple:
        if isinstance(data, list | tuple):
            return tuple(_read(inner[0], v, f"{where}[{i}]", strict) for i, v in enumerate(data))
    elif origin is Mapping:
        if isinstance(data, Mapping):
            return {k: _read(inner[1], v, _at(where, k), strict) for k, v in data.items()}
    elif origin is Literal:
        if data in inner:
            return data
    elif origin in (Union, UnionType):
        if data is None and NoneType in inner:
            return None
        for each in inner[:-1] if inner[-1] is NoneType else inner:
            # A literal without this value is skipped, unless no other type is left to report it.
            if get_origin(each) is not Literal or data in get_args(each) or each is inner[-1]:
                return _read(each, data, where, strict)
    elif kind is float:
        if type(data) is float and math.isfinite(data):
            return data
        if type(data) is int and data.bit_length() <= 1023:  # a float holds no larger one
            return data
    elif type(data) is kind:
        return data
    raise ValueError(f"{where or kind.__name__}: expected {_expected(kind)}, got {shown(data)}")


def _dataclass(kind: Any, data: Mapping[Any, Any], where: str, strict: bool) -> Any:
    types = _types(kind)
    known = {f.name: f for f in fields(kind)}
    for name in data if strict else ():
        if name not in known:
            raise ValueError(f"{_at(where, name)}: unknown key, expected {', '.join(known)}")
    for name, field in known.items():
        if name not in data and field.default is MISSING and field.default_factory is MISSING:
            raise ValueError(f"{_at(where, name)}: expected {_expected(types[name])}, got nothing")
    values = {n: _read(types[n], data[n], _at(where, n), strict) for n in known if n in data}
    return kind(**values)


@cache  # evaluating annotations takes longer than reading the data
def _types(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _at(where: str, key: object) -> str:
    name = key if isinstance(key, str) and key.isidentifier() and len(key) < 64 else shown(key)
    return f"{where}.{name}" if where else str(name)


def _expected(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return ", ".join(map(str, get_args(kind)))
    if get_origin(kind) in (Union, UnionType):
        return " or ".join(_expected(k) for k in get_args(kind) if k is not NoneType)
    if get_origin(kind) is tuple:
        return "a list"
    return _EXPECTED.get(kind, "an object")
