# SPDX-License-Identifier: Apache-2.0
"""Traffic that a simulated tenant offers: when frames arrive, and how long they are."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from n3ic.errors import UsageError

LoadKind = Literal["constant", "poisson", "bursts", "heavy-tailed"]
LOAD_KINDS: tuple[LoadKind, ...] = ("constant", "poisson", "bursts", "heavy-tailed")

SizeKind = Literal["fixed", "data-centre"]
SIZE_KINDS: tuple[SizeKind, ...] = ("fixed", "data-centre")

# Lengths of frames without preamble and gap, and their relative frequencies. Roy et al., "Inside
# the Social Network's (Datacenter) Network" (SIGCOMM 2015, section 6.1) find most frames below 200
# bytes and Hadoop's at either end. They give no table; these frequencies are ours after that
# description.
_MIXES: dict[SizeKind, tuple[tuple[int, ...], tuple[float, ...]]] = {
    "data-centre": ((64, 128, 192, 576, 1518), (30, 20, 15, 5, 30)),
}
_PARETO_SHAPE = 1.5  # finite mean, infinite variance: self-similar when many are added up
OVERHEAD_BYTES = 20  # preamble, start of frame and minimum gap, which occupy the wire as well


@dataclass(frozen=True)
class SimPacket:
    """An arriving frame.

    Attributes:
        time: seconds since the start.
        bytes: length without preamble and gap.
    """

    time: float
    bytes: int


@dataclass(frozen=True)
class Load:
    """Offered traffic: its mean rate and its shape over time.

    Attributes:
        rate: mean packets per second.
        kind: distribution of the gaps. ``constant``: equal gaps. ``poisson``: exponential gaps.
            ``bursts``: a geometric number of packets at ``peak`` times the rate, then an
            exponential gap. ``heavy-tailed``: the same with Pareto-distributed numbers (shape 1.5).
        bytes: frame length for ``fixed`` sizes.
        sizes: distribution of frame lengths.
        peak: rate within bursts over the mean rate.
        burst: mean packets of a burst.
        changes: pairs (second, factor); from that second on, the rate is ``rate`` times the factor.
        phase: second of the first packet.
        until: second after which no packet comes.

    Raises:
        UsageError: the kind or the sizes are unknown.
    """

    rate: float
    kind: LoadKind = "constant"
    bytes: int = 64
    sizes: SizeKind = "fixed"
    peak: float = 4.0
    burst: float = 64.0
    changes: tuple[tuple[float, float], ...] = ()
    phase: float = 0.0
    until: float = float("inf")

    def __post_init__(self) -> None:
        for what, value, known in (
            ("kind", self.kind, LOAD_KINDS),
            ("sizes", self.sizes, SIZE_KINDS),
        ):
            if value not in known:
                raise UsageError(f"load: expected {what} {', '.join(known)}, got {value!r}")

    @property
    def mean_bytes(self) -> float:
        """Mean frame length in bytes."""
        if self.sizes == "fixed":
            return float(self.bytes)
        lengths, counts = _MIXES[self.sizes]
        return float(np.average(lengths, weights=counts))

    def packets(self, rng: np.random.Generator) -> Iterator[SimPacket]:
        """Generate packets in the order of time, without end if ``until`` is infinite.

        Args:
            rng: source of randomness; the same state gives the same packets.
        """
        if self.rate <= 0:
            return
        time = self.phase
        for gap, size in zip(self._gaps(rng), self._lengths(rng), strict=False):
            if time > self.until:
                return
            yield SimPacket(time, size)
            time = self._after(time, gap)
            if time == float("inf"):
                return

    def factor(self, time: float) -> float:
        """Return the factor of the rate at a second."""
        return next((f for at, f in reversed(self.changes) if time >= at), 1.0)

    def _gaps(self, rng: np.random.Generator) -> Iterator[float]:
        """Generate the seconds between packets as if the rate never changed."""
        mean = 1 / self.rate
        if self.kind == "constant":
            while True:
                yield mean
        if self.kind == "poisson":
            while True:
                yield float(rng.exponential(mean))
        # Bursts and pauses: the same mean rate as the others, at a higher variance.
        within = mean / self.peak
        while True:
            if self.kind == "bursts":
                count = int(rng.geometric(1 / self.burst))
            else:  # numpy's Pareto begins at 0 and has the mean 1 / (shape - 1)
                scale = self.burst * (_PARETO_SHAPE - 1) / _PARETO_SHAPE
                count = max(1, round(scale * (1 + float(rng.pareto(_PARETO_SHAPE)))))
            for _ in range(count - 1):
                yield within
            # A burst is faster than the mean rate, so the gap after it restores the mean.
            yield within + float(rng.exponential(count * (mean - within)))

    def _lengths(self, rng: np.random.Generator) -> Iterator[int]:
        if self.sizes == "fixed":
            while True:
                yield self.bytes
        lengths, counts = _MIXES[self.sizes]
        share = np.asarray(counts) / sum(counts)
        while True:
            yield from rng.choice(lengths, size=1024, p=share).tolist()

    def _after(self, time: float, gap: float) -> float:
        """Return the second at which ``gap`` seconds at the unchanged rate have passed."""
        # A factor stretches time: walk from change to change, and use up the gap at the factor of
        # each part. A factor of 0 uses up nothing.
        for at in (*(t for t, _ in self.changes if t > time), float("inf")):
            factor = self.factor(time)
            if factor * (at - time) >= gap if factor else False:
                return time + gap / factor
            gap -= factor * (at - time) if factor else 0.0
            time = at
        return time


def parse_load(text: str, tenants: Collection[str]) -> tuple[str, LoadKind, float]:
    """Parse a load as given on the command line: ``[TENANT=]KIND[*FACTOR]``.

    Args:
        text: such as ``bursts``, ``mallory=constant*10``.
        tenants: names of the tenants.

    Returns:
        Tenant (empty for all), kind, and factor of the rate.

    Raises:
        UsageError: the tenant or kind is unknown, or the factor is not a number above 0.
    """
    tenant, separator, rest = text.rpartition("=")
    kind, times, factor = rest.partition("*")
    if separator and tenant not in tenants:
        raise UsageError(
            f"--load {text!r}: no tenant {tenant!r}, expected one of {', '.join(tenants)}"
        )
    load_kind = next((k for k in LOAD_KINDS if k == kind), None)
    if load_kind is None:
        raise UsageError(f"--load {text!r}: expected one of {', '.join(LOAD_KINDS)}, got {kind!r}")
    try:
        value = float(factor) if times else 1.0
    except ValueError:
        # 0 is refused below, together with factors that are numbers but out of range.
        value = 0.0
    if not 0 < value < 1e6:
        raise UsageError(f"--load {text!r}: expected a factor above 0, got {factor!r}")
    return tenant, load_kind, value
