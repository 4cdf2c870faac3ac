# SPDX-License-Identifier: Apache-2.0
"""Replays frames through the metering program, and compares it with reference meter and model.

In a replay, frames carry their times, so that the program's clock follows the capture.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from time import monotonic, sleep

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import N3icError
from n3ic.exporters.xdp.program import SHORTEST, MeterPrograms
from n3ic.meter.clock import Clock
from n3ic.meter.compiled import ASIDE, ENDS
from n3ic.meter.packet import LINK_ETHERNET, parse
from n3ic.meter.reference import FlowRecord, ReferenceMeter
from n3ic.model.classifier import Classifier
from n3ic.model.meter_spec import MeterSpec
from n3ic.targets.fuzz_traffic import fuzz_frame

Frame = tuple[bytes, int, int]  # captured bytes, bytes on the wire, time in the meter's units
_IN_FLIGHT = 64  # frames sent before waiting for their arrival
_PATIENCE_S = 60  # enough for a busy machine; the wait is this long only if frames are lost
NEVER = 1 << 62  # a time so late that every flow exceeds the idle timeout
HELD = 2048  # bytes kept of a frame, which include all headers


def replayable(frames: Iterable[Frame]) -> list[Frame]:
    """Drop frames shorter than an Ethernet header, and truncate the others to ``HELD`` bytes."""
    return [(f[:HELD], length, time) for f, length, time in frames if len(f) >= SHORTEST]


def replay(
    programs: MeterPrograms,
    frames: Iterable[Frame],
    send: Callable[[bytes], object] | None = None,
) -> NDArray[np.void]:
    """Count frames; before each one, end the flows that exceed the idle timeout.

    Args:
        programs: programs loaded with the clock ``trailer``.
        frames: frames from :func:`replayable`.
        send: sends a frame on a wire to which the program is attached; None for test runs.

    Returns:
        Flows in the order of their decisions, including those left at the end.

    Raises:
        N3icError: a sent frame did not arrive.
    """
    events = []
    last_idle = sent = (
        0  # `seen`: time of the longest idle flow's last packet, as of the last sweep
    )
    for frame, length, time, stepped_back in _timed(frames, programs.spec.tick_ns):
        # A sweep reads the whole table, so sweep only when some flow may have been idle too long.
        if stepped_back or time - last_idle > programs.spec.idle_timeout:
            _arrived(programs, sent)
            last_idle = programs.end_idle(NEVER if stepped_back else time)
            last_idle = time if stepped_back else last_idle
        with_trailer = programs.replayed(frame, length, time)
        if send is None:
            programs.program.test_run(with_trailer)
        else:
            send(with_trailer)
        sent += 1
        if send is None or sent % _IN_FLIGHT == 0:
            _arrived(programs, sent if send else 0)
            events.append(programs.events())
    _arrived(programs, sent)
    programs.end_all()
    return np.concatenate([*events, programs.events()])


def _timed(frames: Iterable[Frame], tick_ns: int) -> Iterator[tuple[bytes, int, int, bool]]:
    """Yield frames with the times of a capture's clock, and whether it was set back before each."""
    clock = Clock[tuple[bytes, int]](tick_ns)
    for frame, length, time in frames:
        if isinstance(parse(LINK_ETHERNET, frame, length, time), str):
            yield frame, length, clock.now, False  # put aside, so it does not move the clock
        else:
            for item, stepped_back in clock.follow((frame, length), time):
                yield *item, clock.now, stepped_back
    for item, stepped_back in clock.finish():
        yield *item, clock.now, stepped_back


def _arrived(programs: MeterPrograms, sent: int) -> None:
    """Wait until ``sent`` packets were counted."""
    limit = monotonic() + _PATIENCE_S
    while sent and (counted := programs.counters()["packets"]) < sent:
        if monotonic() > limit:
            raise N3icError(f"{sent:,} frames were sent, {counted:,} reached the program")
        sleep(0.001)


def difference(
    model: Classifier, spec: MeterSpec, frames: Sequence[Frame], events: NDArray[np.void]
) -> str:
    """Describe where flows or verdicts differ from reference meter and model; empty if nowhere."""
    meter = ReferenceMeter(spec)
    records = list(meter.run(parse(LINK_ETHERNET, *f, spec.tunnels) for f in frames))
    for i, (got, record) in enumerate(zip(events, records, strict=False)):
        event_values, record_values = _event_values(spec, got), _record(record)
        for name, value in record_values.items():
            if event_values[name] != value:
                return f"flow {i}: {name} is {event_values[name]}, the reference meter's is {value}"
    if len(events) != len(records):
        return f"{len(events)} flows were decided, the reference meter decides {len(records)}"
    if not records:
        return ""
    columns = {n: events["features"][:, i] for i, n in enumerate(spec.feature_names)}
    inference = model.infer(model.encode(columns))
    verdicts = model.verdicts(inference.scores)
    for name, values in (
        ("scores", inference.scores),
        ("class", inference.classes),
        ("margin", inference.margins),
        ("verdict", verdicts),
    ):
        wrong = np.flatnonzero((events[name] != values).reshape(len(events), -1).any(axis=1))
        if len(wrong):
            i = int(wrong[0])
            return f"flow {i}: {name} {events[name][i]}, the model's is {values[i]}"
    return ""


def counter_difference(spec: MeterSpec, frames: Sequence[Frame], counters: dict[str, int]) -> str:
    """Describe where counters differ from the reference meter's; empty if nowhere."""
    meter = ReferenceMeter(spec)
    for _ in meter.run(parse(LINK_ETHERNET, *f, spec.tunnels) for f in frames):
        pass
    expected = {reason: meter.aside[reason] for reason in ASIDE}
    expected |= {"packets": len(frames), "late": meter.late}
    expected["forgotten"] = meter.sources.forgotten
    wrong = (name for name, value in expected.items() if counters[name] != value)
    return next((f"{n}: {counters[n]:,}, expected {expected[n]:,}" for n in wrong), "")


def _event_values(spec: MeterSpec, event: np.void) -> dict[str, object]:
    size = int(event["address_bytes"])
    numbers = ("protocol", "source_port", "destination_port", "number", "first", "last", "packets")
    one_sided = spec.key == "source-host"
    return {
        "source": bytes(event["source"][:size]),
        "destination": b"" if one_sided else bytes(event["destination"][:size]),
        **{name: int(event[name]) for name in numbers},
        "decided": ENDS[int(event["why"])],
        "registers": tuple(event["registers"].tolist())[: len(spec.registers)],
        "features": tuple(event["features"].tolist()),
    }


def _record(record: FlowRecord) -> dict[str, object]:
    key = record.key
    return {
        "source": key.source,
        "destination": key.destination,
        "protocol": key.protocol,
        "source_port": key.source_port,
        "destination_port": key.destination_port,
        "number": record.number,
        "first": record.first,
        "last": record.last,
        "packets": record.packets,
        "decided": record.decided,
        "registers": record.registers,
        "features": tuple(record.features.values()),
    }


# --- traffic for verification ------------------------------------------------------------------


def traffic(spec: MeterSpec, packets: int, seed: int) -> list[Frame]:
    """Make frames of a few hosts that reach every branch of the parser: valid, cut and damaged."""
    r = random.Random(seed)  # noqa: S311 - not for cryptography
    step = max(1, spec.idle_timeout // 50)
    time, out = 0, []
    for _ in range(packets):
        time += r.choice([0, 1, step // 7, step, *([2 * spec.idle_timeout] * (r.random() < 0.01))])
        within = spec.tunnels and r.random() < 0.5
        frame = bytearray(fuzz_frame(r, spec.tunnels)[0].ljust(SHORTEST) if within else _frame(r))
        length = len(frame)
        if r.random() < 0.05:
            frame[r.randrange(SHORTEST, length)] = r.randrange(256)
        if r.random() < 0.05:
            del frame[r.randint(SHORTEST, length) :]
        out.append((bytes(frame), length, time))
    return out


def _frame(r: random.Random) -> bytes:
    protocol = r.choice([6, 6, 6, 17, 17, 1])
    ports = r.randint(1, 4), r.choice([53, 443])
    ports = ports if r.random() < 0.6 else ports[::-1]
    body = bytes(r.choice([0, 0, 5, 300]))
    if protocol == 6:
        flags = r.choice([2, 18, 16, 16, 16, 16, 24, 17, 20])
        body = struct.pack(">HHIIBBHI", *ports, 0, 0, 0x50, flags, r.randrange(65536), 0) + body
    elif protocol == 17:
        body = struct.pack(">HHI", *ports, 0) + body
    ends = [bytes([10, 0, 0, r.randint(1, 3)]) for _ in range(2)]
    if r.random() < 0.3:
        ends = [e.rjust(16, b"\0") for e in ends]
        options = b"".join(
            bytes([0 if i else protocol, 0]) + bytes(6) for i in range(r.choice([0, 0, 1]))
        )
        kind = b"\x86\xdd"
        following = 60 if options else protocol
        head = struct.pack(">IHBB", 6 << 28, len(options) + len(body), following, r.randrange(256))
        packet = head + ends[0] + ends[1] + options + body
    else:
        kind = b"\x08\x00"
        options = bytes(r.choice([0, 0, 0, 4, 40]))
        fragment = r.choice([0, 0, 0, 0, 0, 0x2000, 3])
        words, total = 5 + len(options) // 4, 20 + len(options) + len(body)
        numbers = (total, r.randrange(3), fragment, r.randrange(256), protocol, 0)
        head = struct.pack(">BBHHHBBH", 0x40 | words, 0, *numbers)
        packet = head + ends[0] + ends[1] + options + body
    tags = r.choice([b""] * 4 + [b"\x81\x00\x00\x05", b"\x88\xa8\x00\x07\x81\x00\x00\x05"])
    return bytes(12) + tags + kind + packet
