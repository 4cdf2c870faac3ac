# SPDX-License-Identifier: Apache-2.0
"""Reads the packet path back: the width of its beats, and the cuts of its input stage."""

from __future__ import annotations

import re
from pathlib import Path

from n3ic.errors import VerifyError
from n3ic.exporters.netfpga.packet.wrapper import data_width, feature_widths
from n3ic.model.classifier import Classifier
from n3ic.options import Options

FILE = "rtl/n3ic_features.v"
TOPS = ("rtl/n3ic_top.v", "rtl/n3ic_axil_top.v")  # without registers and with them
_STREAM = re.compile(r"wire +\[(\d+):0\] +([sm]_axis_t(?:data|keep))\b")
_WIDTH = re.compile(r"\.DATA_W\((\d+)\)")
_WIRE = re.compile(r"wire \[31:0\] feature(\d+) = (?:\{(\d+)'d0, )?in_values\[(\d+):(\d+)\](\}?);")
_BIT = re.compile(r"assign bits\[(\d+)\] = ([^;]*);")
_RUN = re.compile(r"([|&])feature(\d+)\[(\d+):(\d+)\](?: ([|&]) \(|(\)*)$)")
_CLAMP = re.compile(
    r"wire \[31:0\] clamped(\d+) = feature(\d+) > 32'd(\d+) \? 32'd(\d+) : feature(\d+);"
)
_BINARY = re.compile(r"assign bits\[(\d+):(\d+)\] = (feature|clamped)(\d+)(?:\[(\d+):0\])?;")


def check_width(directory: Path, options: Options) -> None:
    """Compare the width of beats with that of the options; a front end has no packet path.

    Args:
        directory: the export directory.
        options: options of the export.

    Raises:
        VerifyError: a file is missing, or a port or the parameter has another width.
    """
    if options["front-end"] != "none":
        return
    width = data_width(options)
    ports = {f"{side}_axis_t{name}" for side in "sm" for name in ("data", "keep")}
    for file in TOPS:
        text = _read(directory, file)
        seen = [(name, int(high) + 1) for high, name in _STREAM.findall(text)]
        due = {(name, width if name.endswith("data") else width // 8) for name in ports}
        inner = [int(w) for w in _WIDTH.findall(text)]
        if len(seen) != len(due) or set(seen) != due or inner != [width] * (file == TOPS[0]):
            raise VerifyError(f"{file}: the streams are not of {width} bits, as the export's are")


def decode_cuts(
    directory: Path, model: Classifier, options: Options
) -> tuple[tuple[int, ...], ...]:
    """Decode the cuts of each input field; those of a binary field are an empty tuple.

    The function also compares features, clamps and bit positions with the model's.

    Args:
        directory: the export directory.
        model: the model.
        options: options of the export, which decide the width of each feature.

    Raises:
        VerifyError: the file is missing, or a feature, clamp or bit differs from the model's.
    """
    text = _read(directory, FILE)
    names = model.input.features
    wires = {int(i): parts for i, *parts in _WIRE.findall(text)}
    expected, at = {}, 0
    # Features are concatenated in order, so the first one is the highest word.
    for i, width in reversed(list(enumerate(feature_widths(model.input, options)))):
        zeros, end = (str(32 - width), "}") if width < 32 else ("", "")
        expected[i] = [zeros, str(at + width - 1), str(at), end]
        at += width
    if wires != expected:
        raise VerifyError(f"{FILE}: the positions of features are not those of the packet")
    cuts = {int(bit): _compared(formula) for bit, formula in _BIT.findall(text)}
    clamps = {tuple(map(int, numbers)) for numbers in _CLAMP.findall(text)}
    binary = set(_BINARY.findall(text))
    out = []
    for k, (first, field) in enumerate(zip(model.input.offsets, model.input.fields, strict=True)):
        feature = names.index(field.feature)
        last = first + field.width - 1
        if field.kind == "thermometer":
            bits = range(first, last + 1)
            if any(bit not in cuts or cuts[bit][0] != feature for bit in bits):
                raise VerifyError(
                    f"{FILE}: bits {first} to {last} do not compare {field.feature} with cuts"
                )
            out.append(tuple(cuts[bit][1] for bit in bits))
            continue
        whole = (str(last), str(first), "feature", str(feature), "")
        clamped = (str(last), str(first), "clamped", str(k), str(field.width - 1))
        clamp = (k, feature, field.clamp, field.clamp, feature)
        full = field.width == 32 and field.clamp == (1 << 32) - 1
        if not (whole in binary if full else clamped in binary and clamp in clamps):
            raise VerifyError(f"{FILE}: bits {first} to {last} are not the clamped {field.feature}")
        out.append(())
    return tuple(out)


def _read(directory: Path, file: str) -> str:
    """The text of a file of an export.

    Raises:
        VerifyError: the file is missing, or not a text.
    """
    try:
        return (directory / file).read_bytes().decode("ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise VerifyError(f"{file}: cannot be read ({error})") from error


def _compared(formula: str) -> tuple[int, int]:
    """The feature and the cut that a formula compares; (-1, -1) if it is not a comparison.

    From the highest bit down, an OR of bits stands for zeros of the cut and an AND for ones. The
    same operator joins each run to the next one.
    """
    features, cut, at, depth, end = set(), 0, 31, 0, 0
    while run := _RUN.match(formula, end):
        kind, feature, high, low, joined, closing = run.groups()
        if int(high) != at or int(low) > at or (joined or kind) != kind:
            return -1, -1
        features.add(int(feature))
        if kind == "&":
            cut |= (2 << at) - (1 << int(low))
        at, end = int(low) - 1, run.end()
        if joined is None:
            whole = len(closing) == depth and kind == "&" and len(features) == 1
            return (features.pop(), cut) if whole else (-1, -1)
        depth += 1
    return -1, -1
