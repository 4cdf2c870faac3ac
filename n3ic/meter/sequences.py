# SPDX-License-Identifier: Apache-2.0
"""Sequences of a flow's first packets as features: directed lengths and rounded gaps.

Lengths, directions and gaps of the first packets are what classifiers of encrypted traffic read
(NFStream's SPLT, CESNET's PPI). A flow keeps 3 bytes a packet for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from n3ic.errors import UsageError
from n3ic.model.meter_spec import (
    MAX_PACKET,
    Decision,
    Guard,
    MeteredFeature,
    MeterSpec,
    PacketField,
    Register,
)

GAP_BITS = 8
Length = Literal["wire_length", "ip_length", "payload_length"]
Payload = Literal["any", "some", "none"]


def sequence_registers(
    packets: int, length: Length = "ip_length", payload: Payload = "any"
) -> tuple[Register, ...]:
    """Make registers for a flow's first packets, of both directions in their order of arrival.

    Args:
        packets: number of packets that are kept, 1 to 32.
        length: what counts as a packet's length.
        payload: whether packets without payload (``some``), or with it (``none``), are left out.

    Returns:
        ``len_k``, the k-th packet's directed length in 12 bits, and from the second on ``gap_k``,
        the rounded logarithm of the time since the previous packet in 8 bits. Registers of packets
        that did not come are 0, which is not a directed length.

    Raises:
        ModelError: ``packets`` is not in 1..32.
    """
    guard = Guard(payload=payload)
    field: PacketField = f"directed_{length}"  # type: ignore[assignment]
    lengths = [
        Register(f"len_{k}", "nth", field, guard, 12, packet=k) for k in range(1, packets + 1)
    ]
    gaps = [
        Register(f"gap_{k}", "nth", "gap", guard, GAP_BITS, packet=k, scale="log")
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


def sequence_spec(
    decided: Sequence[int],
    length: Length = "ip_length",
    payload: Payload = "any",
    tick_ns: int = 1000,
) -> MeterSpec:
    """Make a meter of sequences alone, which keeps the packets up to the last decision.

    Args:
        decided: packets at which flows are decided, increasing; if several, also at a flow's end.
        length: what counts as a packet's length.
        payload: whether packets without payload (``some``), or with it (``none``), are left out.
        tick_ns: unit of gaps in nanoseconds.

    Raises:
        UsageError: the packets do not increase, or one is not in 1..32.
    """
    increasing = list(decided) == sorted({*decided})
    if not (decided and increasing and all(1 <= p <= MAX_PACKET for p in decided)):
        raise UsageError(f"packets: expected increasing numbers in 1..{MAX_PACKET}, got {decided}")
    added = sequence_registers(decided[-1], length, payload)
    rule = Decision(schedule=tuple(decided)) if len(decided) > 1 else Decision(decided[0])
    return MeterSpec(
        added,
        tuple(MeteredFeature(r.name, r.name) for r in added),
        decision=rule,
        idle_timeout=60_000_000_000 // tick_ns,
        tick_ns=tick_ns,
    )
