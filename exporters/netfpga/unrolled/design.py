# SPDX-License-Identifier: Apache-2.0
"""An unrolled core before it is written: its look-up tables and its pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from n3ic.errors import UsageError
from n3ic.exporters.netfpga.unrolled.network import LutNetwork, build
from n3ic.exporters.netfpga.unrolled.schedule import Schedule, schedule
from n3ic.model.network import BinaryModel

OUTPUTS = ("class", "scores")
MAX_LEVELS = 8


@dataclass(frozen=True)
class Design:
    """An unrolled core before it is written as Verilog.

    Attributes:
        network: its look-up tables.
        plan: its pipeline schedule.
    """

    network: LutNetwork
    plan: Schedule


def latency(model: BinaryModel, *, pipeline: str | int = 1, outputs: str = "class") -> int:
    """Clocks from an input to its result, counted in pipeline stages."""
    return design(model, pipeline=pipeline, outputs=outputs).plan.depth


def design(model: BinaryModel, *, pipeline: str | int = 1, outputs: str = "class") -> Design:
    """Build the look-up tables and the pipeline of a model.

    Raises:
        UsageError: an option has an invalid value.
    """
    if outputs not in OUTPUTS:
        raise UsageError(f"outputs must be one of {', '.join(OUTPUTS)}, not {outputs!r}")
    try:
        levels = int(pipeline)
    except ValueError:
        levels = 0
    if not 1 <= levels <= MAX_LEVELS:
        raise UsageError(f"pipeline must be 1 to {MAX_LEVELS} tables in series, not {pipeline!r}")
    return _design(model, levels, outputs)


@lru_cache(maxsize=4)
def _design(model: BinaryModel, levels: int, outputs: str) -> Design:
    network = build(model, scores=outputs == "scores")
    return Design(network, schedule(network.net, network.outputs, network.traced, levels))
