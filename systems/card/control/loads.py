# SPDX-License-Identifier: Apache-2.0
"""Traffic that a simulated tenant offers: when frames arrive, and how long they are."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
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
_MOST_FACTOR = 1e6
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

    def offered(self, seconds: float) -> float:
        """Return the mean number of packets in the first seconds."""
        times = [0.0, *(at for at, _ in self.changes if 0 < at < seconds), max(0.0, seconds)]
        return self.rate * sum((end - at) * self.factor(at) for at, end in pairwise(times))

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


def parse_load(text: str, load: Load, tenants: Collection[str]) -> tuple[str, Load]:
    """Change a load as the command line says: ``[TENANT=]KIND[*FACTOR[,FACTOR@SECOND...]]``.

    Args:
        text: such as ``bursts``, ``mallory=constant*10``, ``soc=poisson*0.5,4@0.01,0@0.02``. Each
            factor multiplies the rate, from a second after the tenant's arrival on.
        load: the load that is changed.
        tenants: names of the tenants.

    Returns:
        Tenant (empty for all), and the load.

    Raises:
        UsageError: the tenant or kind is unknown, a factor is not a number (above 0 for the first
            one), or the seconds do not rise.
    """
    tenant, separator, rest = text.rpartition("=")
    first, *later = rest.split(",")
    kind, times, factor = first.partition("*")
    if separator and tenant not in tenants:
        raise UsageError(
            f"--load {text!r}: no tenant {tenant!r}, expected one of {', '.join(tenants)}"
        )
    load_kind = next((k for k in LOAD_KINDS if k == kind), None)
    if load_kind is None:
        raise UsageError(f"--load {text!r}: expected one of {', '.join(LOAD_KINDS)}, got {kind!r}")
    value = number(factor) if times else 1.0
    if not 0 < value < _MOST_FACTOR:
        raise UsageError(f"--load {text!r}: expected a factor above 0, got {factor!r}")
    changes: list[tuple[float, float]] = []
    for change in later:
        to, at = map(number, (change.partition("@")[0], change.partition("@")[2]))
        if not (0 <= to < _MOST_FACTOR and (changes[-1][0] if changes else 0) < at < math.inf):
            raise UsageError(
                f"--load {text!r}: expected FACTOR@SECOND, later than the one before, got "
                f"{change!r}"
            )
        changes.append((at, to / value))
    changed = replace(load, kind=load_kind, rate=load.rate * value, changes=tuple(changes))
    return tenant, changed


def number(text: str) -> float:
    """Parse a number; NaN, which no range holds, for other texts."""
    try:
        return float(text)
    except ValueError:
        return math.nan
