"""Dataclasses from plain data of a file that nobody vouches for."""

from __future__ import annotations

import math
from dataclasses import MISSING, fields, is_dataclass
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


def from_plain(kind: type[T], data: Any) -> T:
    """What ``dataclasses.asdict`` and JSON made of a dataclass.

    Args:
        kind: the dataclass; its fields are numbers, text, literals, tuples of one type, such
            dataclasses, or None.
        data: of a JSON file. What the class does not know is left out.

    Raises:
        ValueError: a field is missing or of another type; names it.
    """
    found: T = _read(kind, data, kind.__name__)
    return found


def _read(kind: Any, data: Any, where: str) -> Any:
    if is_dataclass(kind) and isinstance(kind, type):
        if not isinstance(data, dict):
            raise ValueError(f"{where}: expected an object")
        types = get_type_hints(kind)
        known = [f for f in fields(kind) if f.name in data or f.default is MISSING]
        return kind(**{f.name: _read(types[f.name], data.get(f.name), f.name) for f in known})
    if get_origin(kind) is tuple and isinstance(data, list):
        return tuple(_read(get_args(kind)[0], each, where) for each in data)
    if get_origin(kind) is Literal and data in get_args(kind):
        return data
    if get_origin(kind) in (Union, UnionType):
        if data is None and type(None) in get_args(kind):
            return None
        return _read(next(k for k in get_args(kind) if k is not type(None)), data, where)
    if kind is float and type(data) in (int, float) and math.isfinite(data):
        return data
    if kind in (int, str, bool) and type(data) is kind:
        return data
    raise ValueError(f"{where}: {str(data)[:60]!r} is no {getattr(kind, '__name__', kind)}")
