# SPDX-License-Identifier: Apache-2.0
"""The device's resources that a design uses."""

from __future__ import annotations

from dataclasses import dataclass

from n3ic.targets.figures import Figure, FigureKind


@dataclass(frozen=True)
class Resources:
    """The resources of a Xilinx 7-series FPGA that a design uses.

    Attributes:
        luts: cells that compute (LUT1 to LUT6, inverters) or hold bits (SRL, LUT RAM).
        lut_sites: six-input look-up tables that those cells occupy. Two cells with at most five
            different inputs share one (LUT6_2). Cells that feed carry chains do not share with each
            other, and a carry chain's input without a driving cell needs a site of its own.
        ffs: number of flip-flops.
        bram36: number of 36 Kb block memories; one of 18 Kb counts half.
        carry: number of CARRY4 cells; None if unknown.
        srls: shift registers in look-up tables; also counted in ``luts`` and ``lut_sites``.
        source: origin of the numbers, as text for reports.
        kind: ``measured`` or ``estimated``.
        dsps: number of DSP48E1 multipliers.
    """

    luts: int
    lut_sites: int
    ffs: int
    bram36: float
    carry: int | None
    srls: int
    source: str
    kind: FigureKind = "measured"
    dsps: int = 0


def estimated_latency(clocks: int, clock_mhz: float) -> list[Figure]:
    """Make the figures for the latency of a core from the stages that its generator counts."""
    source = "stages of the generator"
    at = f"{source}, at {clock_mhz:g} MHz"
    return [
        Figure("latency.clocks", clocks, "clock", "estimated", source),
        Figure("latency", clocks * 1000 / clock_mhz, "ns", "estimated", at),
    ]
