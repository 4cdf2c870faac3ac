# SPDX-License-Identifier: Apache-2.0
"""Sequences of a flow's first packets as features: directed lengths and rounded gaps.

Lengths, directions and gaps of the first packets are what classifiers of encrypted traffic read
(NFStream's SPLT, CESNET's PPI). A flow keeps 3 bytes a packet for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from n3ic.model.metering import Decision, MeteredFeature, MeterSpec, Register

GAP_BITS = 8


def sequence_registers(packets: int) -> tuple[Register, ...]:
    """Registers of the first packets of a flow, of both directions in their order of arrival.

    Args:
        packets: packets that are kept, 1 to 32.

    Returns:
        ``len_k``, the k-th packet's directed length in 12 bits, and from the second on ``gap_k``,
        the rounded logarithm of the time since the packet before in 8 bits. Packets that did not
        come are 0, which no directed length is.

    Raises:
        ModelError: ``packets`` is not in 1..32.
    """
    lengths = [
        Register(f"len_{k}", "nth", "directed_length", width=12, packet=k)
        for k in range(1, packets + 1)
    ]
    gaps = [
        Register(f"gap_{k}", "nth", "gap", width=GAP_BITS, packet=k, scale="log")
        for k in range(2, packets + 1)
    ]
    return *lengths, *gaps


def with_sequence(spec: MeterSpec, packets: int) -> MeterSpec:
    """The same meter with the lengths and gaps of a flow's first packets among its features."""
    added = sequence_registers(packets)
    return replace(
        spec,
        registers=(*spec.registers, *added),
        features=(*spec.features, *(MeteredFeature(r.name, r.name) for r in added)),
    )


def sequence_spec(packets: int, schedule: Sequence[int] = ()) -> MeterSpec:
    """A meter of sequences alone, in microseconds.

    Args:
        packets: packets that are kept, 1 to 32; a flow is decided at the last of them.
        schedule: decide at these packets and at the end in its place.
    """
    added = sequence_registers(packets)
    decision = Decision(schedule=tuple(schedule)) if schedule else Decision(packets)
    return MeterSpec(added, tuple(MeteredFeature(r.name, r.name) for r in added), decision=decision)
