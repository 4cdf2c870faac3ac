# SPDX-License-Identifier: Apache-2.0
"""The columns of UNSW-NB15 as ``catalogue.toml`` describes them, and what is derived from them."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Collection, Mapping
from importlib.resources import files
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike

from n3ic.data import catalogue
from n3ic.data.catalogue import Column, Derived, feature_of
from n3ic.data.narrow_columns import NarrowArray, NarrowColumns, narrow
from n3ic.data.table import Feature
from n3ic.datasets.unsw_nb15.columns import RAW_ONLY
from n3ic.datasets.unsw_nb15.crosses import crosses
from n3ic.model.inputs import to_integer

_TOML = tomllib.loads(files(__package__).joinpath("catalogue.toml").read_text("utf-8"))


COLUMNS: tuple[Feature, ...] = tuple(
    feature_of(name, entry, _TOML["reasons"]) for name, entry in _TOML["columns"].items()
)
"""Columns of the files. The last six are in the raw files only."""


def _share(part: Column, other_part: Column) -> Column:
    share: Column = (part << 10) // np.maximum(part + other_part, 1)
    return share


def _ratio(numerator: Column, denominator: Column, limit: int) -> Column:
    return np.minimum(numerator // np.maximum(denominator, 1), limit)


def _difference(a: Column, b: Column, offset: int, limit: int) -> Column:
    """``a - b`` plus an offset, clipped to 0 and the limit."""
    moved: Column = np.clip(a - b + offset, 0, limit)
    return moved


def _half(doubled: Column) -> Column:
    """Halve a counter that counted on both sides of a router; rounded up, so that 1 stays 1."""
    return (doubled + 1) >> 1


def _duration(dur: Column, spkts: Column, dpkts: Column) -> Column:
    """The duration; 0 for a single packet, whose published one is its time through the router."""
    return np.where(_half(spkts) + _half(dpkts) > 1, dur, 0)


def _quotient(amount: int, left: Column, right: Column) -> Column:
    """``amount * left / right`` rounded down; 0 if ``right`` is 0, as in the meter."""
    quotient: Column = np.where(right > 0, amount * left // np.maximum(right, 1), 0)
    return quotient


def _packet_rate(dur: Column, spkts: Column, dpkts: Column) -> Column:
    gaps = np.maximum(_half(spkts) + _half(dpkts) - 1, 0)
    return _quotient(10**9, gaps, _duration(dur, spkts, dpkts))


def _load(size: Column, dur: Column, spkts: Column, dpkts: Column) -> Column:
    return _quotient(8000, _half(size), _duration(dur, spkts, dpkts))


def _mean_gap(mean: Column, packets: Column) -> Column:
    """Mean gap of one copy: both copies' gaps add up to the same time, but one has fewer gaps."""
    return _quotient(1, mean * np.maximum(packets - 1, 0), np.maximum(_half(packets) - 1, 0))


_FORMULAS: Mapping[str, Callable[..., Column]] = {
    "is_tcp": lambda proto: (proto == 6).astype(np.int64),
    "is_udp": lambda proto: (proto == 17).astype(np.int64),
    "bytes": lambda s, d: s + d,
    "pkts": lambda s, d: s + d,
    "mean": lambda sb, db, sp, dp: (sb + db) // np.maximum(sp + dp, 1),
    "sbytes_share": _share,
    "spkts_share": _share,
    "sloss_share": lambda loss, n: _ratio(loss << 10, n, 1024),
    "dloss_share": lambda loss, n: _ratio(loss << 10, n, 1024),
    "synack_share": _share,
    "sjit_ratio": lambda j, i: _ratio(j << 4, i, 65535),
    "djit_ratio": lambda j, i: _ratio(j << 4, i, 65535),
    "srv_dst_less_pair": lambda a, b: _difference(a, b, 64, 255),
    "srv_src_less_pair": lambda a, b: _difference(a, b, 64, 255),
    "src_less_dst": lambda a, b: _difference(a, b, 64, 255),
    "srv_and_pair": lambda a, b, c: np.minimum(a + b + c, 255),
    "src_and_dst": lambda a, b: np.minimum(a + b, 255),
    "mean_sum": lambda s, d: np.minimum(s + d, 4095),
    "mean_less": lambda s, d: _difference(s, d, 2048, 4095),
    "pkts_less": lambda s, d: _difference(s, d, 32768, 65535),
    "sbytes_per_dpkt": lambda b, n: _ratio(b, n, (1 << 24) - 1),
    "dbytes_per_spkt": lambda b, n: _ratio(b, n, (1 << 24) - 1),
    "tap_spkts": _half,
    "tap_dpkts": _half,
    "tap_sbytes": _half,
    "tap_dbytes": _half,
    "tap_dur": _duration,
    "tap_rate": _packet_rate,
    "tap_sload": _load,
    "tap_dload": _load,
    "tap_sinpkt": _mean_gap,
    "tap_dinpkt": _mean_gap,
    "tap_bytes": lambda s, d: _half(s) + _half(d),
    "tap_pkts": lambda s, d: _half(s) + _half(d),
    "tap_pkts_less": lambda s, d: _difference(_half(s), _half(d), 32768, 65535),
}

DERIVED: tuple[Derived, ...] = tuple(
    Derived(feature_of(name, entry, _TOML["reasons"]), tuple(entry["needs"]), _FORMULAS[name])
    for name, entry in (_TOML["derived"] | _TOML["tap"]).items()
) + crosses(_TOML["crosses"], {f.name: f for f in COLUMNS})
"""Features that the files do not have: sums, differences and quotients of the published columns,
what a meter at one tap counts, and crosses of two published columns."""

_DERIVED_BY_NAME: Mapping[str, Derived] = MappingProxyType({d.feature.name: d for d in DERIVED})

NEEDS: Mapping[str, tuple[str, ...]] = MappingProxyType({d.feature.name: d.needs for d in DERIVED})
"""The columns behind each derived feature."""

WINDOWS: tuple[Feature, ...] = tuple(
    feature_of(name, entry, _TOML["reasons"]) for name, entry in _TOML["windows"].items()
)
"""Counts over recent flows; a table of raw files has them."""

CATALOGUE: tuple[Feature, ...] = (*COLUMNS, *(d.feature for d in DERIVED), *WINDOWS)
"""Every feature that a table may have."""

BY_NAME: Mapping[str, Feature] = MappingProxyType({f.name: f for f in CATALOGUE})

HEADER_COLUMNS: tuple[str, ...] = tuple(
    f.name
    for f in COLUMNS
    if f.name not in ("stcpb", "dtcpb", "is_sm_ips_ports", *RAW_ONLY) and f.tap != "payload"
)
"""The 33 columns of the partition files that say something about a flow and need no payload,
including the three TTL columns."""

HANDSHAKE_TIMES: tuple[str, ...] = ("tcprtt", "synack", "ackdat", "synack_share")
"""Times of the TCP handshake. They leak the distance of the hosts, but the literature uses them."""


def _as_in_literature(feature: Feature) -> bool:
    return not feature.leaks or bool(
        {feature.name, *NEEDS.get(feature.name, ())} & {*HANDSHAKE_TIMES}
    )


PUBLISHED: tuple[str, ...] = tuple(
    f.name
    for f in CATALOGUE
    if f.tap != "payload"
    and _as_in_literature(f)
    and f.name not in {*_TOML["tap"], *_TOML["windows"]}
)
"""Published columns and features derived from them that need no payload and do not leak, plus the
times of the handshake, which do leak. A NIC at one tap cannot compute them all."""


def to_units(name: str, values: ArrayLike) -> Column:
    """Convert a column from its source unit to integers that fit the catalogue's bits.

    Args:
        name: name of the column.
        values: array of shape ``(rows,)``, in the source unit.

    Returns:
        int64 array of shape ``(rows,)``, in the catalogue's unit.
    """
    feature = BY_NAME[name]
    units: Column = np.minimum(to_integer(values, feature.scale), (1 << feature.bits) - 1)
    return units


def derived(name: str) -> Derived:
    """How a derived feature is computed."""
    return _DERIVED_BY_NAME[name]


def narrow_columns(
    columns: Mapping[str, NarrowArray], windows: Mapping[str, Column] | None = None
) -> NarrowColumns:
    """Columns of files, the derived features that they allow, and counts over recent flows."""
    more = {name: narrow(values) for name, values in (windows or {}).items()}
    allowed = (name for name, needs in NEEDS.items() if {*needs} <= {*columns})
    return NarrowColumns((*columns, *allowed, *more), {**columns, **more}, derived)


def with_derived(
    columns: Mapping[str, Column], names: Collection[str] | None = None
) -> dict[str, Column]:
    """Add the derived features whose columns are present; of those ``names``, if given."""
    entries = DERIVED if names is None else [d for d in DERIVED if d.feature.name in names]
    return catalogue.with_derived(columns, entries)
