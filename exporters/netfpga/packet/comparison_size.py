# SPDX-License-Identifier: Apache-2.0
"""Estimates the look-up tables of the comparisons of features with cuts, without synthesis."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from n3ic.exporters.netfpga.lut_packing import lut_pairs
from n3ic.exporters.netfpga.resources import Resources
from n3ic.model.inputs import InputSpec

LUT_INPUTS = 6
_WIDEST = 64  # signals of a feature, so that two features have none in common
SOURCE = "count of each cut's bits, shared from its highest one up"


def comparisons(spec: InputSpec, widths: Sequence[int]) -> Resources:
    """Estimate the comparisons of thermometer fields.

    A comparison needs no bit below the lowest one that is set in its cut. The bits above the
    highest one are ORed once for all cuts of a feature. Yosys measured within 15 % of it.

    Args:
        spec: the input.
        widths: width of each feature in bits, in the order of ``spec.features``.
    """
    cuts: dict[str, set[int]] = defaultdict(set)
    for field in spec.fields:
        cuts[field.feature] |= {cut for cut in field.cuts if cut > 0}
    tables: list[tuple[int, ...]] = []

    def chain(inputs: list[int]) -> int:
        """Add the tables of a function of many inputs; return its signal."""
        while True:
            tables.append(tuple(inputs[:LUT_INPUTS]))
            own = -len(tables)  # no number of a feature's bit
            inputs = [own, *inputs[LUT_INPUTS:]]
            if len(inputs) == 1:
                return own

    for i, (name, width) in enumerate(zip(spec.features, widths, strict=True)):
        above: list[int] = []
        top = width
        for high in sorted({cut.bit_length() for cut in cuts[name]}, reverse=True):
            above += [_WIDEST * i + k for k in range(high, top)]
            above = [chain(above)] if len(above) > 1 else above
            top = high
            for cut in sorted(cuts[name]):
                if cut.bit_length() == high:
                    low = (cut & -cut).bit_length() - 1
                    read = [_WIDEST * i + k for k in range(low, high)] + above
                    if len(read) > 1:
                        chain(read)
    sites = len(tables) - lut_pairs(tables)
    ffs = spec.n_bits + 1  # the input bits and their validity
    return Resources(len(tables), sites, ffs, 0.0, 0, 0, SOURCE, "estimated")
