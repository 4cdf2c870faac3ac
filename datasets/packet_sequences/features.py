# SPDX-License-Identifier: Apache-2.0
"""Features of a meter of sequences, computed from a table of packet lengths and times."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from n3ic.meter.sequences import GAP_BITS

_MIDDLE, _LONGEST = 1 << 11, (1 << 11) - 1
_LONGEST_GAP = (1 << 48) - 1


def sequence_features(
    lengths: NDArray[np.int64], times: NDArray[np.int64], packets: int
) -> dict[str, NDArray[np.int64]]:
    """Compute the features of :func:`sequence_spec` from a table of packet lengths and times.

    Args:
        lengths: bytes of the IP packets, negative in reverse, int64 of shape ``(flows, n)``; 0
            where a flow has no more packets.
        times: ticks since the flow's first packet, int64 of the same shape, never decreasing.
        packets: number of packets that are kept, 1 to 32.

    Returns:
        int64 arrays of shape ``(flows,)`` by the names of :func:`sequence_registers`.
    """
    missing = max(0, packets - lengths.shape[1])
    lengths, times = (np.pad(x[:, :packets], ((0, 0), (0, missing))) for x in (lengths, times))
    # Forward is the direction of the first packet, whichever sign the table gives it.
    signed = np.clip(lengths * np.sign(lengths[:, :1]), -_LONGEST, _LONGEST)
    present = lengths != 0
    codes = np.where(present, _MIDDLE + signed, 0)
    gaps = log_codes(np.clip(np.diff(times, axis=1), 0, _LONGEST_GAP))
    gaps = np.minimum(gaps, (1 << GAP_BITS) - 1)
    gaps = np.where(present[:, 1:], gaps, 0)
    out = {f"len_{k + 1}": codes[:, k] for k in range(packets)}
    return out | {f"gap_{k + 2}": gaps[:, k] for k in range(packets - 1)}


def log_codes(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """:func:`~n3ic.model.meter_spec.log_code` of each value; int64 from 0 to 2^48 - 1."""
    # Powers of two below 2^48 are exact in float64, and frexp gives their exponents exactly.
    exponent = np.maximum(np.frexp(values.astype(np.float64))[1] - 1, 3).astype(np.int64)
    return np.where(values < 8, values, 8 * (exponent - 2) + (values >> (exponent - 3) & 7))
