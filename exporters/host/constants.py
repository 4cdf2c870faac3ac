# SPDX-License-Identifier: Apache-2.0
"""Reads the constants of a ``bnn.c`` with a model compiled in; shares nothing with its writers."""

from __future__ import annotations

import re
import struct
from typing import TypeVar

from n3ic.errors import VerifyError

_T = TypeVar("_T")
FILE = "bnn.c"
_DEFINED = re.compile(r'^#define (\w+) (?:(\d+)u?|"([0-9a-f]{64})")(?: /\*.*\*/)?$', re.M)
_ARRAY = re.compile(
    r"^static const (\w+|struct \w+|char \*const) (\w+)((?:\[[\w +]*\])+) = \{(.*?)\};", re.M | re.S
)
_TYPE = re.compile(r"^typedef (\w+) (\w+);$", re.M)
_SKIPPED = re.compile(r"\s+|,|/\*.*?\*/", re.S)
_TOKEN = re.compile(r'-?\d[\w.+-]*|"(?:\\.|[^"\\])*"|[{}]|STEP_[A-Z_0-9]+')
_ESCAPE = re.compile(rb"\\(?:([0-7]{3})|(.))", re.S)
_RANGES = {
    "int8_t": (-128, 127),
    "uint8_t": (0, 255),
    "uint16_t": (0, 2**16 - 1),
    "int32_t": (-(2**31), 2**31 - 1),
    "uint32_t": (0, 2**32 - 1),
    "int64_t": (-(2**63), 2**63 - 1),
}


class Constants:
    """The macros and arrays of constants in ``bnn.c``."""

    def __init__(self, text: str) -> None:
        self._defined: list[tuple[str, str]] = [
            (name, number or digest) for name, number, digest in _DEFINED.findall(text)
        ]
        self._arrays: list[tuple[str, tuple[str, str]]] = [
            (name, (kind, body)) for kind, name, _, body in _ARRAY.findall(text)
        ]
        self._types: list[tuple[str, str]] = [(name, kind) for kind, name in _TYPE.findall(text)]

    def type(self, name: str) -> str:
        """Return the type that a name stands for."""
        return _only(name, self._types)

    def defined(self, name: str) -> str:
        """Return the text that a macro expands to."""
        return _only(name, self._defined)

    def size(self, name: str) -> int:
        """Return the number that a macro expands to."""
        value = self.defined(name)
        if len(value) > 10:
            raise wrong(f"{name} is not a 32-bit number")
        return int(value)

    def tokens(self, name: str) -> list[str]:
        """Return the numbers and strings of an array as text, without braces."""
        body, at, out = _only(name, self._arrays)[1], 0, []
        while at < len(body):
            if skipped := _SKIPPED.match(body, at):
                at = skipped.end()
            elif match := _TOKEN.match(body, at):
                out.append(match[0])
                at = match.end()
            else:
                raise wrong(f"{name} is not an array of numbers")
        return [each for each in out if each not in ("{", "}")]

    def numbers(self, name: str, count: int | None = None) -> list[int]:
        """Return the integers of an array; it must have ``count`` of them, unless that is None."""
        tokens = self.tokens(name)
        if count is not None and len(tokens) != count:
            raise wrong(f"{len(tokens)} numbers in {name}, expected {count}")
        kind = _only(name, self._arrays)[0]
        low, high = _RANGES.get(dict(self._types).get(kind, kind), _RANGES["uint32_t"])
        out = []
        for token in tokens:
            digits = token.rstrip("u")
            if not re.fullmatch(r"-?(?:0|[1-9]\d{0,18})", digits) or not low <= int(digits) <= high:
                raise wrong(f"{name} holds {token[:20]}")
            out.append(int(digits))
        return out

    def strings(self, name: str) -> list[bytes]:
        """Return the strings of an array."""
        return [text_of(token) for token in self.tokens(name)]


def _only(name: str, pairs: list[tuple[str, _T]]) -> _T:
    """Return the value of a name that must occur exactly once."""
    values = [value for key, value in pairs if key == name]
    if len(values) != 1:
        raise wrong(f"{name} is defined {len(values)} times")
    return values[0]


def text_of(token: str) -> bytes:
    """Return the bytes that a string literal of C denotes."""
    if not token.startswith('"'):
        raise wrong(f"a string is expected, not {token[:20]}")
    octets = token[1:-1].encode("utf-8")
    return _ESCAPE.sub(lambda m: bytes([int(m[1], 8) & 255]) if m[1] else m[2], octets)


def c_text(name: str) -> bytes:
    """The bytes of a name."""
    return name.encode("utf-8", "replace")


def octets_of(number: float) -> bytes:
    """The bytes of a number, which tell 0 from -0."""
    return struct.pack("<d", number)


def scale_of(token: str) -> bytes:
    """The bytes of the number that a literal of C denotes."""
    try:
        return octets_of(float(token))
    except ValueError as error:
        raise wrong(f"a scale is {token[:20]}") from error


def wrong(text: str) -> VerifyError:
    """The error for a file that does not hold the model."""
    return VerifyError(f"{FILE}: {text}")
