# SPDX-License-Identifier: Apache-2.0
"""Reads look-up tables back from the constants of ``bnn.c``.

The code shares nothing with the writer, constants included, so that a mistake there shows here. The
C holds some constants twice, in the forms that different kernels read: both must agree.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from n3ic.exporters.host.constants import (
    FILE,
    Constants,
    c_text,
    octets_of,
    scale_of,
    text_of,
    wrong,
)
from n3ic.model.classifier import Classifier
from n3ic.targets.decoded_graphs import DecodedGraph, compared, graph_of_tables
from n3ic.targets.decoding import Decoded, read_artefact


def decode_directory(directory: Path, model: Classifier) -> tuple[Decoded, ...]:
    """Decode the tables in ``bnn.c``, and compare them with the model's.

    Raises:
        VerifyError: the file cannot be read, or does not hold the model.
    """
    text = read_artefact(directory / FILE).decode("utf-8", "replace")
    return (compared(model, decode_source(text, model)),)


def decode_source(text: str, model: Classifier) -> DecodedGraph:
    """Decode the tables in the text of ``bnn.c``; see :func:`decode_directory`."""
    constants = Constants(text)
    sizes = constants.numbers("sizes", constants.size("TABLES"))
    if not sizes or min(sizes) < 1 or max(sizes) > 8:
        raise wrong("a table has an index of 1 to 8 bits")
    sums, classes = constants.size("SUMS"), constants.size("CLASSES")
    spec = model.input
    for name, value in (
        ("INPUTS", spec.n_bits),
        ("WORDS", -(-spec.n_bits // 32)),
        ("FIELDS", len(spec.features)),
        ("CODES", len(spec.fields)),
        ("CLASSES", len(model.classes)),
        ("MOST", max(sizes)),
        ("EVEN", sizes[0] if len(set(sizes)) == 1 else 0),
        ("RAW", int(any(field.kind == "binary" for field in spec.fields))),
        ("BLOCK", 32),
    ):
        if constants.size(name) != value:
            raise wrong(f"{name} is {constants.size(name)}, expected {value}")
    if (sums, classes) != (1, 2) and sums != classes:
        raise wrong(f"{sums} sums of {classes} classes")
    if constants.strings("class_names") != [c_text(name) for name in model.classes]:
        raise wrong("the names of classes differ from the model's")
    bits = _parted(constants.numbers("bits", sum(sizes)), sizes)
    spans = [sums << size for size in sizes]
    stored = constants.numbers("entries", sum(spans) + 16)
    if any(stored[-16:]):  # a kernel loads them, but no index addresses them
        raise wrong("entries beyond the last table are not 0")
    starts = constants.numbers("starts", len(sizes))
    if starts != [sum(spans[:t]) for t in range(len(sizes))]:
        raise wrong("a table does not start where the one before ends")
    entries = tuple(
        np.array(stored[at : at + span], dtype=np.int64).reshape(sums, -1).T
        for at, span in zip(starts, spans, strict=True)
    )
    _check_spans(constants.numbers("spans"), entries)
    _check_octets(constants, bits, max(sizes))
    _check_planes(constants, bits)
    bias = constants.numbers("bias", sums)
    return DecodedGraph(
        FILE,
        graph_of_tables(FILE, spec, [*zip(bits, entries, strict=True)], bias),
        _cuts(constants, model),
        constants.size("SHUNT"),
        constants.defined("DIGEST"),
    )


def _cuts(constants: Constants, model: Classifier) -> tuple[tuple[int, ...], ...]:
    """Return the cuts of each field, after a check of the fields' other constants."""
    features, fields = model.input.features, model.input.fields
    scales = {field.feature: field.scale for field in fields}
    expected = [(c_text(name), octets_of(scales[name])) for name in features]
    tokens = constants.tokens("fields")
    if len(tokens) != 2 * len(features):
        raise wrong(f"{len(tokens) // 2} features, the model has {len(features)}")
    names = [text_of(token) for token in tokens[::2]]
    if [*zip(names, map(scale_of, tokens[1::2]), strict=True)] != expected:
        raise wrong("the names or scales of features differ from the model's")
    codes = np.array(constants.numbers("codes", 5 * len(fields)), dtype=np.int64).reshape(-1, 5)
    room = 32 * constants.size("WORDS")
    of, limits = constants.numbers("compared", room), constants.numbers("cuts", room)
    out, at = [], 0
    for field, row in zip(fields, codes.tolist(), strict=True):
        feature, raw = features.index(field.feature), int(field.kind == "binary")
        if row != [feature, at, field.width, field.clamp, raw]:
            raise wrong(f"the code of {field.feature} is {row}")
        part = slice(at, at + field.width)
        if raw and (any(of[part]) or set(limits[part]) != {2**32 - 1}):
            raise wrong(f"raw bits of {field.feature} are compared")
        if not raw and set(of[part]) != {feature}:
            raise wrong(f"cuts of {field.feature} are compared with another feature")
        out.append(() if raw else tuple(limits[part]))
        at += field.width
    if any(of[at:]) or any(limit != 2**32 - 1 for limit in limits[at:]):
        raise wrong("words are not filled up")
    return tuple(out)


def _check_spans(spans: list[int], entries: tuple[NDArray[np.int64], ...]) -> None:
    """Check that every run of tables that is summed in bytes fits a signed byte."""
    if any(span < 1 for span in spans) or sum(spans) != len(entries):
        raise wrong(f"{sum(spans)} tables in spans, there are {len(entries)}")
    for t, span in zip(np.cumsum([0, *spans]).tolist(), spans, strict=False):
        own = entries[t : t + span]
        low = sum(each.min(axis=0) for each in own)
        high = sum(each.max(axis=0) for each in own)
        if np.min(low) < -128 or np.max(high) > 127:
            raise wrong(f"sums from table {t} on exceed a byte")


def _check_octets(constants: Constants, bits: tuple[tuple[int, ...], ...], most: int) -> None:
    """Check that bytes and masks of the index bits are those of ``bits``."""
    room = constants.size("ROOM")
    if room % 32 or not len(bits) <= room < len(bits) + 32:
        raise wrong(f"room for {room} of {len(bits)} tables")
    expected = np.zeros((2, most, room), dtype=np.int64)
    for t, own in enumerate(bits):
        for j, bit in enumerate(own if constants.size("INPUTS") <= 256 else ()):
            expected[:, j, t] = bit >> 3, 1 << (bit & 7)
    for name, part in zip(("octets", "octet_bits"), expected, strict=True):
        if constants.numbers(name, part.size) != part.ravel().tolist():
            raise wrong(f"{name} are not the places of the index bits")


def _check_planes(constants: Constants, bits: tuple[tuple[int, ...], ...]) -> None:
    """Check that each plane holds its index bit at the place where the code looks for it."""
    count = constants.size("PLANES")
    octets, shifts = (constants.numbers(f"plane_{name}", count) for name in ("octets", "shifts"))
    planes = constants.numbers("planes", sum(map(len, bits)))
    if {*planes} != {*range(count)}:
        raise wrong("a plane is missing, or is not read")
    places = [j if j < 4 else 7 for own in bits for j in range(len(own))]
    flat = [bit for own in bits for bit in own]
    for plane, bit, place in zip(planes, flat, places, strict=True):
        if (octets[plane], shifts[plane]) != (bit >> 3, (bit & 7) - place):
            raise wrong(f"plane {plane} does not have bit {bit} at place {place}")


def _parted(values: list[int], sizes: list[int]) -> tuple[tuple[int, ...], ...]:
    ends = np.cumsum([0, *sizes]).tolist()
    return tuple(tuple(values[a:b]) for a, b in pairwise(ends))
