# SPDX-License-Identifier: Apache-2.0
"""The standard meter: the features of a flow that a NIC at one tap can compute.

Features that UNSW-NB15 and argus also have are named as there. Every packet is counted once, with
its length on the wire. Times are microseconds.
"""

from __future__ import annotations

from dataclasses import replace

from n3ic.meter.packet import ACK, FIN, RST, SYN, TCP
from n3ic.model.meter_spec import (
    Decision,
    Guard,
    MeteredFeature,
    MeterSpec,
    Register,
    Step,
    Tunnel,
    Window,
)

IDLE_TIMEOUT_US = 60_000_000


def standard_spec(
    *,
    packets: int = 0,
    after_us: int = 0,
    schedule: tuple[int, ...] = (),
    idle_timeout_us: int = IDLE_TIMEOUT_US,
    cache_flows: int = 1 << 16,
    tunnels: tuple[Tunnel, ...] = (),
) -> MeterSpec:
    """The standard specification.

    Args:
        packets: decide a flow at its N-th packet; 0 decides it at its end.
        after_us: decide a flow this long after its first packet; 0 decides it at its end.
        schedule: decide a flow at each of these packets and at its end, in place of ``packets``.
        idle_timeout_us: a flow ends after more than this time without a packet.
        cache_flows: flows that the flow cache holds.
        tunnels: tunnels to open.

    Returns:
        A biflow by 5-tuple with counters, sizes, times, TCP's set-up times and flags of both
        directions, and five windows over the last 100 flows.
    """
    sides = {"s": Guard("forward"), "d": Guard("reverse")}
    registers = [Register("dur", "last", "time", width=40)]
    features = [MeteredFeature("dur", "dur", unit="us")]
    for side, guard in sides.items():
        registers += _registers(side, guard)
        features += _features(side)
    registers += _tcp_registers()
    features += _tcp_features()
    features.append(
        # (spkts + dpkts - 1) / dur, in packets per 1000 s
        MeteredFeature(
            "rate",
            program=(
                Step("add", "spkts", "dpkts"),
                Step("sub", "$0", "one"),
                Step("quotient", "$1", "dur32", amount=10**9),
            ),
            unit="packet/1000 s",
        )
    )
    return MeterSpec(
        registers=tuple(registers),
        features=tuple(features),
        windows=_windows(),
        idle_timeout=idle_timeout_us,
        cache_flows=cache_flows,
        decision=Decision(packets, after_us, schedule=schedule),
        tunnels=tunnels,
    )


def _registers(side: str, guard: Guard) -> list[Register]:
    carries = replace(guard, payload="some")
    return [
        Register(f"{side}pkts", "count", guard=guard, width=24),
        Register(f"{side}bytes", "sum", "wire_length", guard, 32),
        Register(f"{side}payload", "sum", "payload_length", guard, 32),
        Register(f"{side}datapkts", "count", guard=carries, width=24),
        Register(f"{side}minlen", "min", "wire_length", guard, 16),
        Register(f"{side}maxlen", "max", "wire_length", guard, 16),
        Register(f"{side}gaps", "sum", "gap", guard, 40),
        Register(f"{side}mingap", "min", "gap", guard, 32),
        Register(f"{side}maxgap", "max", "gap", guard, 32),
        Register(f"{side}ttl", "last", "ttl", guard, 8),
        Register(f"{side}flags", "or", "tcp_flags", guard, 8),
        Register(f"{side}win", "last", "tcp_window", _no_end(guard), 16),
    ]


def _no_end(guard: Guard) -> Guard:
    return replace(guard, protocols=(TCP,), flags_clear=FIN | RST)


def _features(side: str) -> list[MeteredFeature]:
    counters = [
        (f"{side}pkts", "packet"),
        (f"{side}bytes", "byte"),
        (f"{side}payload", "byte"),
        (f"{side}datapkts", "packet"),
        (f"{side}minlen", "byte"),
        (f"{side}maxlen", "byte"),
        (f"{side}mingap", "us"),
        (f"{side}maxgap", "us"),
        (f"{side}ttl", "hop"),
        (f"{side}flags", ""),
        (f"{side}win", "byte"),
    ]
    return [
        *(MeteredFeature(name, name, unit=unit) for name, unit in counters),
        # bytes / packets, rounded half up: (2 bytes + packets) / (2 packets)
        MeteredFeature(
            f"{side}mean",
            program=(
                Step("add", f"{side}bytes", f"{side}bytes"),
                Step("add", "$0", f"{side}pkts"),
                Step("add", f"{side}pkts", f"{side}pkts"),
                Step("quotient", "$1", "$2", amount=1),
            ),
            unit="byte",
        ),
        # the mean time between packets: the gaps' sum over one less than the packets
        MeteredFeature(
            f"{side}inpkt",
            program=(
                Step("sub", f"{side}pkts", "one"),
                Step("quotient", f"{side}gaps", "$0", amount=1),
            ),
            unit="us",
        ),
        # bits per second over the whole flow's duration, in kbit/s
        MeteredFeature(
            f"{side}load",
            program=(Step("quotient", f"{side}bytes", "dur32", amount=8000),),
            unit="kbit/s",
        ),
    ]


def _tcp_registers() -> list[Register]:
    """Times of the handshake: the last SYN, the first SYN-ACK, the first ACK, and constants."""
    # The minima show whether there was a SYN or SYN-ACK: without one they keep the largest value,
    # and the clamped difference to it is 0.
    tcp = (TCP,)
    syn = Guard("forward", tcp, flags_set=SYN, flags_clear=ACK)
    syn_ack = Guard("reverse", tcp, flags_set=SYN | ACK)
    ack = Guard("forward", tcp, flags_set=ACK, flags_clear=SYN | FIN | RST)
    return [
        Register("t_syn", "last", "time", syn, 32),
        Register("t_syn_least", "min", "time", syn, 32),
        Register("t_synack", "first", "time", syn_ack, 32),
        Register("t_synack_least", "min", "time", syn_ack, 32),
        Register("t_ack", "first", "time", ack, 32),
        Register("one", "count", width=1),  # saturates at 1: a constant
        Register("dur32", "last", "time", width=32),  # as wide as a divisor may be
    ]


def _tcp_features() -> list[MeteredFeature]:
    """Times from SYN to SYN-ACK, from there to the ACK, and the sum; 0 for an unseen part."""
    synack = (
        Step("max", "t_syn", "t_syn_least"),
        Step("sub", "t_synack", "$0"),
    )
    ackdat = Step("sub", "t_ack", "t_synack_least")
    return [
        MeteredFeature("synack", program=synack, unit="us"),
        MeteredFeature("ackdat", program=(ackdat,), unit="us"),
        MeteredFeature("tcprtt", program=(*synack, ackdat, Step("add", "$1", "$2")), unit="us"),
    ]


def _windows() -> tuple[Window, ...]:
    last = 100
    return (
        Window("ct_src", last, ("source",)),
        Window("ct_dst", last, ("destination",)),
        Window("ct_src_dst", last, ("source", "destination")),
        Window("ct_src_service", last, ("source", "protocol", "destination_port")),
        Window("ct_dst_service", last, ("destination", "protocol", "destination_port")),
    )
