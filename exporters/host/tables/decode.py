# SPDX-License-Identifier: Apache-2.0
"""Reads look-up tables back from the constants of ``bnn.c``.

The code shares nothing with the writer, constants included, so that a mistake there shows here. The
C holds some constants twice, in the forms that different kernels read: both must agree.
"""

from __future__ import annotations

import re
import struct
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import VerifyError
from n3ic.families.tables.network import TablesModel
from n3ic.families.tables.readback import DecodedTables, compared
from n3ic.targets.decoding import Decoded, read_artefact

_T = TypeVar("_T")
_FILE = "bnn.c"
_DEFINED = re.compile(r'^#define (\w+) (?:(\d+)u?|"([0-9a-f]{64})")(?: /\*.*\*/)?$', re.M)
_ARRAY = re.compile(
    r"^static const (\w+|struct \w+|char \*const) (\w+)((?:\[\w*\])+) = \{(.*?)\};", re.M | re.S
)
_SKIPPED = re.compile(r"\s+|,|/\*.*?\*/", re.S)
_TOKEN = re.compile(r'-?\d[\w.+-]*|"(?:\\.|[^"\\])*"|[{}]')
_ESCAPE = re.compile(rb"\\(?:([0-7]{3})|(.))", re.S)
_RANGES = {
    "int8_t": (-128, 127),
    "uint8_t": (0, 255),
    "uint16_t": (0, 2**16 - 1),
    "int32_t": (-(2**31), 2**31 - 1),
    "uint32_t": (0, 2**32 - 1),
}


def decode_directory(directory: Path, model: TablesModel) -> tuple[Decoded, ...]:
    """Decode the tables in ``bnn.c``, and compare them with the model's.

    Raises:
        VerifyError: the file cannot be read, or does not hold the model.
    """
    text = read_artefact(directory / _FILE).decode("utf-8", "replace")
    return (compared(model, decode_source(text, model)),)


def decode_source(text: str, model: TablesModel) -> DecodedTables:
    """Decode the tables in the text of ``bnn.c``; see :func:`decode_directory`."""
    constants = _Constants(text)
    sizes = constants.numbers("sizes", constants.size("TABLES"))
    if not sizes or min(sizes) < 1 or max(sizes) > 8:
        raise _wrong("a table has an index of 1 to 8 bits")
    sums, classes = constants.size("SUMS"), constants.size("CLASSES")
    spec = model.input
    for name, value in (
        ("INPUTS", spec.n_bits),
        ("WORDS", -(-spec.n_bits // 32)),
        ("FIELDS", len(spec.features)),
        ("CODES", len(spec.fields)),
        ("CLASSES", len(model.classes)),
        ("SUMS", 1 if classes == 2 else classes),
        ("MOST", max(sizes)),
        ("EVEN", sizes[0] if len(set(sizes)) == 1 else 0),
        ("RAW", int(any(field.kind == "binary" for field in spec.fields))),
        ("BLOCK", 32),
    ):
        if constants.size(name) != value:
            raise _wrong(f"{name} is {constants.size(name)}, expected {value}")
    if constants.strings("class_names") != [_c_text(name) for name in model.classes]:
        raise _wrong("the names of classes differ from the model's")
    bits = _parted(constants.numbers("bits", sum(sizes)), sizes)
    spans = [sums << size for size in sizes]
    stored = constants.numbers("entries", sum(spans) + 16)
    if any(stored[-16:]):  # a kernel loads them, but no index addresses them
        raise _wrong("entries beyond the last table are not 0")
    starts = constants.numbers("starts", len(sizes))
    if starts != [sum(spans[:t]) for t in range(len(sizes))]:
        raise _wrong("a table does not start where the one before ends")
    entries = tuple(
        np.array(stored[at : at + span], dtype=np.int64).reshape(sums, -1).T
        for at, span in zip(starts, spans, strict=True)
    )
    _check_spans(constants.numbers("spans"), entries)
    _check_octets(constants, bits, max(sizes))
    _check_planes(constants, bits)
    model_bits = [table.bits for table in model.tables]
    if len(model_bits) == len(bits):
        entries = tuple(map(_in_order, entries, bits, model_bits))
        bits = tuple(b if {*a} == {*b} else a for a, b in zip(bits, model_bits, strict=True))
    return DecodedTables(
        _FILE,
        bits,
        entries,
        np.array(constants.numbers("bias", sums), dtype=np.int64),
        _cuts(constants, model),
        constants.size("SHUNT"),
        constants.defined("DIGEST"),
    )


def _cuts(constants: _Constants, model: TablesModel) -> tuple[tuple[int, ...], ...]:
    """Return the cuts of each field, after a check of the fields' other constants."""
    features, fields = model.input.features, model.input.fields
    scales = {field.feature: field.scale for field in fields}
    expected = [(_c_text(name), _octets_of(scales[name])) for name in features]
    tokens = constants.tokens("fields")
    if len(tokens) != 2 * len(features):
        raise _wrong(f"{len(tokens) // 2} features, the model has {len(features)}")
    names = [_text(token) for token in tokens[::2]]
    if [*zip(names, map(_scale, tokens[1::2]), strict=True)] != expected:
        raise _wrong("the names or scales of features differ from the model's")
    codes = np.array(constants.numbers("codes", 5 * len(fields)), dtype=np.int64).reshape(-1, 5)
    room = 32 * constants.size("WORDS")
    of, limits = constants.numbers("compared", room), constants.numbers("cuts", room)
    out, at = [], 0
    for field, row in zip(fields, codes.tolist(), strict=True):
        feature, raw = features.index(field.feature), int(field.kind == "binary")
        if row != [feature, at, field.width, field.clamp, raw]:
            raise _wrong(f"the code of {field.feature} is {row}")
        part = slice(at, at + field.width)
        if raw and (any(of[part]) or set(limits[part]) != {2**32 - 1}):
            raise _wrong(f"raw bits of {field.feature} are compared")
        if not raw and set(of[part]) != {feature}:
            raise _wrong(f"cuts of {field.feature} are compared with another feature")
        out.append(() if raw else tuple(limits[part]))
        at += field.width
    if any(of[at:]) or any(limit != 2**32 - 1 for limit in limits[at:]):
        raise _wrong("words are not filled up")
    return tuple(out)


def _check_spans(spans: list[int], entries: tuple[NDArray[np.int64], ...]) -> None:
    """Check that every run of tables that is summed in bytes fits a signed byte."""
    if any(span < 1 for span in spans) or sum(spans) != len(entries):
        raise _wrong(f"{sum(spans)} tables in spans, there are {len(entries)}")
    for t, span in zip(np.cumsum([0, *spans]).tolist(), spans, strict=False):
        own = entries[t : t + span]
        low = sum(each.min(axis=0) for each in own)
        high = sum(each.max(axis=0) for each in own)
        if np.min(low) < -128 or np.max(high) > 127:
            raise _wrong(f"sums from table {t} on exceed a byte")


def _check_octets(constants: _Constants, bits: tuple[tuple[int, ...], ...], most: int) -> None:
    """Check that bytes and masks of the index bits are those of ``bits``."""
    room = constants.size("ROOM")
    if room % 32 or not len(bits) <= room < len(bits) + 32:
        raise _wrong(f"room for {room} of {len(bits)} tables")
    expected = np.zeros((2, most, room), dtype=np.int64)
    for t, own in enumerate(bits):
        for j, bit in enumerate(own if constants.size("INPUTS") <= 256 else ()):
            expected[:, j, t] = bit >> 3, 1 << (bit & 7)
    for name, part in zip(("octets", "octet_bits"), expected, strict=True):
        if constants.numbers(name, part.size) != part.ravel().tolist():
            raise _wrong(f"{name} are not the places of the index bits")


def _check_planes(constants: _Constants, bits: tuple[tuple[int, ...], ...]) -> None:
    """Check that each plane holds its index bit at the place where the code looks for it."""
    count = constants.size("PLANES")
    octets, shifts = (constants.numbers(f"plane_{name}", count) for name in ("octets", "shifts"))
    planes = constants.numbers("planes", sum(map(len, bits)))
    if {*planes} != {*range(count)}:
        raise _wrong("a plane is missing, or is not read")
    places = [j if j < 4 else 7 for own in bits for j in range(len(own))]
    flat = [bit for own in bits for bit in own]
    for plane, bit, place in zip(planes, flat, places, strict=True):
        if (octets[plane], shifts[plane]) != (bit >> 3, (bit & 7) - place):
            raise _wrong(f"plane {plane} does not have bit {bit} at place {place}")


def _in_order(
    entries: NDArray[np.int64], bits: tuple[int, ...], order: tuple[int, ...]
) -> NDArray[np.int64]:
    """Permute a table's entries to another order of its index bits."""
    if sorted(bits) != sorted(order):
        return entries
    at = np.arange(len(entries))
    index = np.zeros_like(at)
    for place, bit in enumerate(bits):
        index |= (at >> order.index(bit) & 1) << place
    return np.asarray(entries[index])


class _Constants:
    """The macros and arrays of constants in ``bnn.c``."""

    def __init__(self, text: str) -> None:
        self._defined: list[tuple[str, str]] = [
            (name, number or digest) for name, number, digest in _DEFINED.findall(text)
        ]
        self._arrays: list[tuple[str, tuple[str, str]]] = [
            (name, (kind, body)) for kind, name, _, body in _ARRAY.findall(text)
        ]

    def defined(self, name: str) -> str:
        """Return the text that a macro expands to."""
        return _only(name, self._defined)

    def size(self, name: str) -> int:
        """Return the number that a macro expands to."""
        value = self.defined(name)
        if len(value) > 10:
            raise _wrong(f"{name} is not a 32-bit number")
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
                raise _wrong(f"{name} is not an array of numbers")
        return [each for each in out if each not in ("{", "}")]

    def numbers(self, name: str, count: int | None = None) -> list[int]:
        """Return the integers of an array; it must have ``count`` of them, unless that is None."""
        tokens = self.tokens(name)
        if count is not None and len(tokens) != count:
            raise _wrong(f"{len(tokens)} numbers in {name}, expected {count}")
        low, high = _RANGES.get(_only(name, self._arrays)[0], _RANGES["uint32_t"])
        out = []
        for token in tokens:
            digits = token.rstrip("u")
            if not re.fullmatch(r"-?\d{1,10}", digits) or not low <= int(digits) <= high:
                raise _wrong(f"{name} holds {token[:20]}")
            out.append(int(digits))
        return out

    def strings(self, name: str) -> list[bytes]:
        """Return the strings of an array."""
        return [_text(token) for token in self.tokens(name)]


def _only(name: str, pairs: list[tuple[str, _T]]) -> _T:
    """Return the value of a name that must occur exactly once."""
    values = [value for key, value in pairs if key == name]
    if len(values) != 1:
        raise _wrong(f"{name} is defined {len(values)} times")
    return values[0]


def _text(token: str) -> bytes:
    """Return the bytes that a string literal of C denotes."""
    if not token.startswith('"'):
        raise _wrong(f"a string is expected, not {token[:20]}")
    octets = token[1:-1].encode("utf-8")
    return _ESCAPE.sub(lambda m: bytes([int(m[1], 8) & 255]) if m[1] else m[2], octets)


def _c_text(name: str) -> bytes:
    return name.encode("utf-8", "replace")


def _octets_of(number: float) -> bytes:
    return struct.pack("<d", number)


def _scale(token: str) -> bytes:
    try:
        return _octets_of(float(token))
    except ValueError as error:
        raise _wrong(f"a scale is {token[:20]}") from error


def _parted(values: list[int], sizes: list[int]) -> tuple[tuple[int, ...], ...]:
    ends = np.cumsum([0, *sizes]).tolist()
    return tuple(tuple(values[a:b]) for a, b in pairwise(ends))


def _wrong(text: str) -> VerifyError:
    return VerifyError(f"{_FILE}: {text}")
