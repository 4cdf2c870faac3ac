# SPDX-License-Identifier: Apache-2.0
"""The meter at one tap whose features are the deployable columns, with their names and units.

A record ends 60 s after its first packet, not at FIN or RST, and bytes are IP bytes, as argus
recorded UNSW-NB15. The catalogue lists the differences column by column.
"""

from __future__ import annotations

from collections.abc import Mapping

from n3ic.datasets.unsw_nb15.columns import PROTOCOL_UNASSIGNED
from n3ic.meter.packet import ACK, FIN, RST, SYN, TCP, UDP
from n3ic.model.meter_spec import (
    Direction,
    Guard,
    KeyPart,
    MeteredFeature,
    MeterSpec,
    Register,
    Step,
    Window,
)

RECORD_US = 60_000_000
_TIME_BITS = 26  # 2^26 us exceed the 60 s of a record
_BYTE_BITS = 31  # so that the sum of both directions fits 32 bits
WINDOWS: Mapping[str, tuple[KeyPart, ...]] = {
    "tap_ct_src": ("source",),
    "tap_ct_dst": ("destination",),
    "tap_ct_src_dst": ("source", "destination"),
    "tap_ct_src_service": ("source", "protocol", "destination_port"),
    "tap_ct_dst_service": ("destination", "protocol", "destination_port"),
}
WINDOW_FLOWS = 100


def one_tap(*, windows: bool = False) -> MeterSpec:
    """Make the specification of the meter.

    Args:
        windows: whether to also count over the last 100 flows.
    """
    return MeterSpec(
        registers=(*_counters(), *_tcp()),
        features=(*_protocol(), *_sizes(), *_times()),
        windows=tuple(
            Window(name, WINDOW_FLOWS, same) for name, same in WINDOWS.items() if windows
        ),
        idle_timeout=RECORD_US,
        active_timeout=RECORD_US,
        ends=(),
    )


def _counters() -> list[Register]:
    out = [
        Register("dur", "last", "time", width=_TIME_BITS),
        Register("protocol", "last", "protocol", width=8),
        Register("is_tcp", "count", guard=Guard(protocols=(TCP,)), width=1),
        Register("is_udp", "count", guard=Guard(protocols=(UDP,)), width=1),
    ]
    for side, guard in (("s", Guard("forward")), ("d", Guard("reverse"))):
        out += [
            Register(f"{side}pkts", "count", guard=guard, width=24),
            Register(f"{side}bytes", "sum", "ip_length", guard, _BYTE_BITS),
            Register(f"{side}gaps", "sum", "gap", guard, _TIME_BITS),
        ]
    return out


def _tcp() -> list[Register]:
    def seen(name: str, flags_set: int, flags_clear: int = 0) -> Register:
        return Register(name, "count", guard=_guard("both", flags_set, flags_clear), width=1)

    return [
        seen("rst", RST),
        seen("fin", FIN),
        seen("established", ACK, SYN),
        seen("answered", SYN | ACK),
        seen("opening", SYN, ACK),
    ]


def _guard(direction: Direction, flags_set: int, flags_clear: int = 0) -> Guard:
    return Guard(direction, (TCP,), flags_set, flags_clear)


def _protocol() -> list[MeteredFeature]:
    state = (  # the highest of the codes that apply
        Step("min", "dpkts", amount=1),
        Step("sub", "$0", "is_tcp"),
        Step("max", "$1", "established"),
        Step("add", "$2", "$2"),
        Step("add", "$3", "$2"),  # $4, 3: both directions
        Step("add", "fin", "fin"),
        Step("add", "$5", "$5"),
        Step("add", "$6", "fin"),  # $7, 5: closed by FIN
        Step("add", "rst", "rst"),
        Step("add", "$8", "rst"),
        Step("add", "$9", "$9"),  # $10, 6: reset
        Step("add", "answered", "answered"),  # $11, 2: answered
        Step("max", "$4", "$7"),
        Step("max", "$12", "$10"),
        Step("max", "$13", "$11"),
        Step("max", "$14", "opening"),  # 1: opening without an answer
    )
    proto = (Step("min", "protocol", amount=PROTOCOL_UNASSIGNED),)
    return [
        MeteredFeature("proto", program=proto, unit="code"),
        MeteredFeature("is_tcp", "is_tcp", unit="flag"),
        MeteredFeature("is_udp", "is_udp", unit="flag"),
        MeteredFeature("state", program=state, unit="code"),
    ]


def _sizes() -> list[MeteredFeature]:
    packets, size = Step("add", "spkts", "dpkts"), Step("add", "sbytes", "dbytes")
    less = (
        Step("add", "spkts", amount=1 << 15),
        Step("sub", "$0", "dpkts"),
        Step("min", "$1", amount=(1 << 16) - 1),
    )
    out = [
        MeteredFeature("tap_pkts", program=(packets,), unit="packet"),
        MeteredFeature("tap_bytes", program=(size,), unit="byte"),
        MeteredFeature("tap_pkts_less", program=less, unit="packet"),
        _quotient("mean", "byte", 1, "$0", "$1", size, packets),
        _quotient("spkts_share", "1/1024", 1024, "spkts", "$0", packets),
        _quotient("sbytes_share", "1/1024", 1024, "sbytes", "$0", size),
    ]
    for side, other in ("sd", "ds"):
        count, total = f"{side}pkts", f"{side}bytes"
        half_up = (  # bytes / packets, rounded half up: (2 bytes + packets) / (2 packets)
            Step("add", total, total),
            Step("add", "$0", count),
            Step("add", count, count),
        )
        of_other = (  # doubled like the published counters; it matters if there are no others
            Step("add", total, total),
            Step("add", f"{other}pkts", f"{other}pkts"),
            Step("max", "$1", amount=1),
        )
        out += [
            MeteredFeature(f"tap_{count}", count, unit="packet"),
            MeteredFeature(f"tap_{total}", total, unit="byte"),
            _quotient(f"{side}mean", "byte", 1, "$1", "$2", *half_up),
            _quotient(f"{total}_per_{other}pkt", "byte", 1, "$0", "$2", *of_other),
        ]
    return out


def _times() -> list[MeteredFeature]:
    gaps = Step("add", "spkts", "dpkts"), Step("sub", "$0", amount=1)
    out = [
        MeteredFeature("tap_dur", "dur", unit="us"),
        _quotient("tap_rate", "packet/1000 s", 10**9, "$1", "dur", *gaps),
    ]
    for side in "sd":
        less = Step("sub", f"{side}pkts", amount=1)
        out += [
            _quotient(f"tap_{side}load", "kbit/s", 8000, f"{side}bytes", "dur"),
            _quotient(f"tap_{side}inpkt", "us", 1, f"{side}gaps", "$0", less),
        ]
    return out


def _quotient(
    name: str, unit: str, amount: int, left: str, right: str, *steps: Step
) -> MeteredFeature:
    return MeteredFeature(name, program=(*steps, Step("quotient", left, right, amount)), unit=unit)
