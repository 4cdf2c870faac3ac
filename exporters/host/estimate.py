# SPDX-License-Identifier: Apache-2.0
"""Bytes and estimated time of a network on a host core."""

from __future__ import annotations

from dataclasses import dataclass

from n3ic.meter.source import state_members
from n3ic.meter.sources import table_bytes
from n3ic.model.meter_spec import MeterSpec
from n3ic.model.network import BinaryModel
from n3ic.targets.device import Device
from n3ic.targets.figures import Figure

LANES = 16  # neurons in a 512-bit register
# Clocks from an input in the cache to the layer's bits in a register: load and broadcast 7,
# XOR 1, popcount 3, the sum's last additions 2, compare 3, mask to register 3, merge 2.
_LAYER_CLOCKS = 21
_OUTPUT_CLOCKS = 8  # XOR, popcount, compare and select in general registers
_KEY_BYTES = 40  # bytes of a flow's key in meter.c
_LINK_BYTES = 15  # a flow's hash, its link in a chain, and its flags
_AGE_BYTES = 8  # a flow's links in order of age, which are in an array of their own
_TIME_WORDS = 6  # a flow's number, times and counts, 8 bytes each


@dataclass(frozen=True)
class KernelEstimate:
    """Estimated operations and time of one inference by the AVX-512 kernel.

    Attributes:
        operations: number of vector operations per inference.
        interval_ns: nanoseconds between inferences in a loop.
        interval_formula: the interval's formula with its numbers, as text.
        latency_ns: nanoseconds of one inference when the next one depends on it.
        latency_formula: the latency's formula with its numbers, as text.
    """

    operations: int
    interval_ns: float
    interval_formula: str
    latency_ns: float
    latency_formula: str


def memory_of(model: BinaryModel) -> dict[str, int]:
    """Bytes of the weights file, by content."""
    return {
        "weights": sum(4 * layer.weight_words.size for layer in model.layers),
        "masks": sum(4 * x.weight_words.size for x in model.layers if x.mask is not None),
        "thresholds": 4 * sum(layer.n_outputs for layer in model.layers),
        "cuts": 4 * sum(len(f.cuts) for f in model.input.fields),  # whole words, for speed
    }


def estimate(model: BinaryModel, device: Device) -> KernelEstimate:
    """Estimate the AVX-512 kernel from its operations; the constants are in ``device.toml``."""
    per_clock = device.limits["vector_operations_per_clock"]
    operations = 0
    latency = 0.0
    for i, layer in enumerate(model.layers):
        groups = -(-layer.n_outputs // LANES)
        # XOR, popcount and add for each word (and one AND with a mask), then compare and merge.
        each = (4 if layer.mask is not None else 3) * layer.n_words + 2
        operations += groups * each
        # Operations beyond the pipeline's depth wait for a free port.
        fixed = _LAYER_CLOCKS if i < len(model.hidden) else _OUTPUT_CLOCKS
        latency += fixed + groups * each / per_clock
    ghz = device.clock_mhz / 1e3
    return KernelEstimate(
        operations,
        operations / per_clock / ghz,
        f"{operations} vector operations, {per_clock:g} a clock, at {ghz:g} GHz",
        latency / ghz,
        f"{latency:.0f} clocks of dependent operations at {ghz:g} GHz",
    )


def flow_cache(spec: MeterSpec | None) -> tuple[Figure, ...]:
    """Count the bytes of the flow cache of ``meter.c``, and of the table of sources.

    The flow cache is its flows and the heads of its hash chains.

    Returns no figure for a model without a meter.
    """
    if spec is None:
        return ()
    state = 0
    for member in state_members(spec):  # C aligns each member to a multiple of its size
        state = -(-state // member.bytes) * member.bytes
        state += member.bytes * max(1, member.length)
    flow = _KEY_BYTES + -(-state // 8) * 8 + 8 * _TIME_WORDS + _LINK_BYTES
    flow = -(-flow // 8) * 8 + _AGE_BYTES
    # The number of heads in meter.c is a power of two, so that it masks a hash and need not divide.
    heads = max(16, 1 << (2 * spec.cache_flows - 1).bit_length())
    size = flow * spec.cache_flows + 4 * heads
    source = f"count of the bytes of {spec.cache_flows:,} flows in meter.c"
    cache = Figure("memory.flow_cache", size, "byte", "estimated", source)
    return (cache, *sources_figure(spec))


def sources_figure(spec: MeterSpec) -> tuple[Figure, ...]:
    """Count the bytes of the table of sources; no figure for a meter without features by source."""
    size = table_bytes(spec.sources)
    source = f"count of the bytes of {spec.sources.entries:,} sources in sources.h"
    return (Figure("memory.sources", size, "byte", "measured", source),) if size else ()
