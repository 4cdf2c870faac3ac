"""What a design takes of the device."""

from __future__ import annotations

from dataclasses import dataclass

from n3ic.targets.figures import Figure, FigureKind


@dataclass(frozen=True)
class Resources:
    """What a design takes of a Xilinx 7-series FPGA.

    Attributes:
        luts: cells that compute (LUT1 to LUT6, inverters) or hold bits (SRL, LUT RAM).
        lut_sites: six-input look-up tables of the device that they fill: two cells with at most
            five different inputs share one (LUT6_2). Of two that feed carry chains each needs
            its own, as does a carry chain's input that no cell drives.
        ffs: flip-flops.
        bram36: block memories of 36 Kb; one of 18 Kb is half.
        carry: CARRY4 cells; None where nothing tells.
        srls: shift registers in look-up tables, counted in luts and lut_sites as well.
        source: what says so.
        kind: ``measured`` or ``estimated``.
        dsps: multipliers, DSP48E1.
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
    """The latency of a core whose generator counts its own stages."""
    source = "stages of the generator"
    at = f"{source}, at {clock_mhz:g} MHz"
    return [
        Figure("latency.clocks", clocks, "clock", "estimated", source),
        Figure("latency", clocks * 1000 / clock_mhz, "ns", "estimated", at),
    ]
