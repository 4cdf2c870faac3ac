# SPDX-License-Identifier: Apache-2.0
"""What the meters say, in one form, so that two of them can be compared."""

import pytest

from n3ic.meter.compiled import ASIDE, ENDS, STAMPS, CompiledMeter
from n3ic.meter.packet import parse
from n3ic.meter.reference import ReferenceMeter


def reference_rows(spec, link, frames):
    meter = ReferenceMeter(spec)
    rows = [
        (
            r.key.source, r.key.destination, r.key.protocol, r.key.source_port,
            r.key.destination_port, r.number, r.first, r.last, r.packets, r.decided, r.registers,
            tuple(r.features.values()),
        )
        for r in meter.run(parse(link, data, n, time, spec.tunnels) for data, n, time in frames)
    ]  # fmt: skip
    counters = {"late": meter.late, "evicted": meter.evicted, "tunnelled": meter.tunnelled}
    counters["forgotten"] = meter.sources.forgotten
    counters |= {name: getattr(meter.clock, name) for name in STAMPS}
    return rows, counters | {reason: meter.aside[reason] for reason in ASIDE}


def record_rows(spec, records):
    out = []
    for r in records:
        n = int(r["address_bytes"])
        destination = b"" if spec.key == "source-host" else bytes(r["destination"][:n])
        numbers = ("protocol", "source_port", "destination_port", "number", "first", "last")
        out.append(
            (
                bytes(r["source"][:n]),
                destination,
                *(int(r[name]) for name in (*numbers, "packets")),
                ENDS[int(r["why"])],
                tuple(r["registers"].tolist())[: len(spec.registers)],
                tuple(r["features"].tolist()),
            )
        )
    return out


def compiled_rows(spec, link, frames):
    with CompiledMeter(spec, link) as meter:
        half = len(frames) // 2
        rows = [
            row
            for records in (meter.count(frames[:half]), meter.count(frames[half:]), meter.finish())
            for row in record_rows(spec, records)
        ]
        counters = meter.counters()
    assert counters.pop("packets") == len(frames)
    assert counters.pop("memory") == 0
    return rows, counters


@pytest.fixture
def equal():
    """A function that runs both meters on frames and compares everything that they say."""

    def check(spec, link, frames):
        want, counted = reference_rows(spec, link, frames)
        got, counters = compiled_rows(spec, link, frames)
        first = next((i for i, (a, b) in enumerate(zip(got, want, strict=False)) if a != b), None)
        assert first is None, f"record {first}: {got[first]} against {want[first]}"
        assert len(got) == len(want)
        assert counters == counted
        return want

    return check


@pytest.fixture
def reference():
    """A function that runs the reference meter on frames: its records, and its counters."""
    return reference_rows


@pytest.fixture
def rows_of():
    """A function that gives the compiled meter's records in that form."""
    return record_rows
