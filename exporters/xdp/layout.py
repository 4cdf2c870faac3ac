# SPDX-License-Identifier: Apache-2.0
"""The structures of ``c/state.h``, which the programs keep in maps, as numpy types."""

from __future__ import annotations

import numpy as np

from n3ic.exporters.xdp.network.sums import Structure
from n3ic.meter import compiled
from n3ic.meter.compiled import ASIDE, ENDS, SECRET_BYTES, record_type
from n3ic.meter.source import state_members
from n3ic.model.meter_spec import MeterSpec

VERSION = 11  # version of programs' records; raise it when a structure below changes
MARGINS = 256
WAYS, SLOTS_PER_FLOW = 8, 2  # slots per bucket, and slots provided per flow
SHUNTED, NO_MODEL = -1, -2
_LINE = 64  # bytes of a cache line, with which each slot of a bucket begins

KEY = np.dtype(list(compiled.KEY), align=True)
POLICY = np.dtype(
    [
        *((name, np.uint32) for name in ("action", "argument", "scope", "from")),
        *((name, np.uint64) for name in ("ttl", "times", "longest")),
    ]
)
PREFIX_FAMILY = 32  # bits before the address in a trie key
PREFIX = np.dtype(
    [
        ("bits", np.uint32),
        ("family", np.uint8),
        ("pad", np.uint8, 3),
        ("address", np.uint8, 16),
    ]
)
SUBJECT = np.dtype([("address", np.uint8, 16), ("bits", np.uint32), ("address_bytes", np.uint32)])
VERDICT = np.dtype(
    [
        *((name, np.uint64) for name in ("until", "since", "packets", "full_ns")),
        ("action", np.uint32),
        ("argument", np.uint32),
        ("by", np.int32),
        ("bits", np.uint32),
        ("weight", np.uint64),
        ("flow_packets", np.uint64),
        ("margin", np.uint32),
        ("repeats", np.uint32),
    ]
)
BY_OPERATOR, BY_FILE, FOR_EVER = -3, -4, 2**64 - 1
USES = ("any", "tuples", "allowed", "listed", "hosts", "prefixes")
GUARD = np.dtype(
    [
        *((name, np.uint32) for name in ("busy", "pad")),
        *((name, np.uint64) for name in ("blocked", "tidied")),
    ]
)
CONFIG = np.dtype(
    [
        ("dry_run", np.uint32),
        ("prefix_bits", np.uint32, 2),
        ("sample_one_in", np.uint32),
        *((name, np.uint64) for name in ("max_blocked", "flow_interval_ns", "flow_burst_ns")),
    ]
)
TAGS = np.dtype(
    [
        *((name, np.uint32) for name in ("busy", "pad")),
        ("tag", np.uint32, WAYS),
        ("rest", np.uint64, 3),
    ]
)
OPTIONS = np.dtype(
    [
        *((name, np.uint32) for name in ("clock", "events", "locked", "buckets")),
        ("secret", np.uint64, SECRET_BYTES // 8),
    ]
)
TRAILER = np.dtype([("time", np.uint64), ("length", np.uint32), ("captured", np.uint32)])
COUNTERS = np.dtype(
    [
        ("packets", np.uint64),
        ("bytes", np.uint64),
        ("aside", np.uint64, len(ASIDE)),
        ("late", np.uint64),
        ("started", np.uint64),
        ("inserted", np.uint64),
        ("removed", np.uint64),
        ("replaced", np.uint64),
        ("decided", np.uint64, len(ENDS)),
        ("events_lost", np.uint64),
        ("no_model", np.uint64),
        ("contended", np.uint64),
        ("not_marked", np.uint64),
        ("flows_decided", np.uint64),
        ("allowed", np.uint64),
        ("blocked", np.uint64),
        ("limited", np.uint64),
        ("dropped", np.uint64),
        ("spared", np.uint64),
        ("verdicts", np.uint64),
        ("refused", np.uint64),
        ("excess", np.uint64),
        ("super", np.uint64),
        ("segments", np.uint64),
        ("mirrored", np.uint64),
        ("not_mirrored", np.uint64),
        ("no_socket", np.uint64),
        ("samples_lost", np.uint64),
        ("forgotten", np.uint64),
    ]
)


def flow_type(spec: MeterSpec) -> np.dtype[np.void]:
    """Type of a flow in the table: ``struct flow``."""
    state = [
        (m.name, np.dtype((f"u{m.bytes}", m.length) if m.length else f"u{m.bytes}"))
        for m in state_members(spec)
    ]
    u64, u8 = np.uint64, np.uint8
    return np.dtype(
        [
            ("busy", np.uint32),
            ("verdict", np.int32),
            *((n, u64) for n in ("first", "last", "packets", "decided_packets", "new_octets")),
            ("turned", u8),
            ("fins", u8),
            ("struck", u8, 2),
            ("slot", u8),
            ("class", u8),
            ("vlan", np.uint16),
            ("state", np.dtype(state, align=True)),
            *((("decided_time", u64),) if spec.decision.after else ()),
            *((name, u64) for name in ("number", "touched")),
            ("interface", np.uint32),
            ("margin", np.uint32),
        ],
        align=True,
    )


def slot_type(spec: MeterSpec) -> np.dtype[np.void]:
    """Type of an entry of the flow table: ``struct slot``."""
    return np.dtype([("key", KEY), ("flow", flow_type(spec))])


def bucket_type(spec: MeterSpec) -> np.dtype[np.void]:
    """Type of a bucket, which holds flows with the same hash index: ``struct bucket``."""
    slot = slot_type(spec)
    lines = np.dtype(
        {
            "names": ["key", "flow"],
            "formats": [slot["key"], slot["flow"]],
            "offsets": [0, slot["key"].itemsize],
            "itemsize": -(-slot.itemsize // _LINE) * _LINE,
        }
    )
    return np.dtype([("slot", lines, WAYS)])


def table_entries(table: str, flows: int) -> int:
    """Number of map entries of a flow table for ``flows`` flows."""
    return -(-SLOTS_PER_FLOW * flows // WAYS) if table == "buckets" else flows


def event_type(spec: MeterSpec, structure: Structure) -> np.dtype[np.void]:
    """Type of a decided flow: ``struct event``, which begins like a record of the host's meter.

    ``new_packets``, those since the flow's decision before, stands in the record's padding.
    """
    record = [("new_packets" if n == "pad2" else n, kind) for n, kind in _fields(record_type(spec))]
    return np.dtype(
        [
            *record,
            ("verdict", np.int32),
            ("class", np.uint32),
            ("margin", np.uint32),
            ("slot", np.uint32),
            ("scores", np.int32, structure.classes),
            ("model", np.uint8, 8),
            ("decided", np.uint64),
            ("new_octets", np.uint64),
            ("interface", np.uint32),
            ("vlan", np.uint16),
        ],
        align=True,
    )


def tally_type(structure: Structure) -> np.dtype[np.void]:
    """Type of a model's decision counters: ``struct tally``."""
    rows = sum(selector.rows for selector in structure.selectors)
    return np.dtype(
        [
            ("class", np.uint64, structure.classes),
            ("shunted", np.uint64),
            ("margin", np.uint64, MARGINS),
            ("row", np.uint64, rows),
        ]
    )


def _fields(kind: np.dtype[np.void]) -> list[tuple[str, np.dtype[np.generic]]]:
    return [(name, kind[name]) for name in kind.names or ()]
