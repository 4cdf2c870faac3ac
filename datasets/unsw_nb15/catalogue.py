"""What every column of UNSW-NB15 means, and what a NIC can make of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike, NDArray

from n3ic.data.table import Feature
from n3ic.datasets.unsw_nb15.columns import RAW_ONLY
from n3ic.model.inputs import to_integer

Column = NDArray[np.int64]

_COUNTER = "a counter in the flow table"
_CLOCK = "a difference of two packet times in the flow table"
_RATE = (
    "a counter over a duration; a cut on it needs no division: counter * scale >= cut * duration"
)
_COMPARED = "a quotient of counters; a cut on it needs no division: a * scale >= cut * b"
_HEADER = "read from a header"
_RING = "a ring of the last 100 finished flows with a counter a key"
_SERVICE_RING = (
    _RING + "; the NIC takes the service from the destination port, which differs from the column "
    "where ftp-data runs on a free port or a connection carried no payload (6.5 % of the raw rows "
    "at hand)"
)
_PAYLOAD = "needs the payload: it comes from a protocol analyser"
_HANDSHAKE = "a difference of the times of two packets of the TCP handshake"
_ADDRESS = "which hosts attack was fixed when the traffic was made"
_TTL = (
    "the attack and the benign hosts stood at different distances and ran different systems: "
    "in the official test partition one value of sttl, 31, holds 45 % of the benign flows and no "
    "attack"
)
_SEQUENCE = "a random number that tells single connections apart; a cut on it learns the capture"
_TIME = "attacks were run at set times"


def _feature(
    name: str,
    meaning: str,
    source_unit: str,
    unit: str,
    scale: float,
    bits: int,
    nic_reason: str,
    leak: str = "",
    *,
    nic: bool = True,
) -> Feature:
    return Feature(name, meaning, source_unit, unit, scale, bits, nic, nic_reason, bool(leak), leak)


COLUMNS: tuple[Feature, ...] = (
    _feature("dur", "time from the first packet to the last", "s", "us", 1e6, 32, _CLOCK),
    _feature(
        "proto",
        "protocol, as its IPv4 protocol number; 134 stands for 134 and above, 135 for not IP",
        "name",
        "code",
        1,
        8,
        _HEADER,
    ),
    _feature(
        "service",
        "application protocol: 0 none found, 1 ftp-data, 2 ftp, 3 ssh, 4 smtp, 5 dns, 6 dhcp, "
        "7 http, 8 pop3, 9 snmp, 10 ssl, 11 radius, 12 irc, 13 other",
        "name",
        "code",
        1,
        4,
        _PAYLOAD,
        nic=False,
    ),
    _feature(
        "state",
        "how far the conversation went: 0 one direction only, 1 opening without an answer, "
        "2 answered, 3 both directions, 4 closing, 5 closed by FIN, 6 reset, 7 ICMP echo, "
        "8 echo reply, 9 other ICMP, 10 none, 11 other",
        "name",
        "code",
        1,
        4,
        "direction and TCP flags seen so far, kept in the flow table",
    ),
    _feature("spkts", "packets from source to destination", "packet", "packet", 1, 14, _COUNTER),
    _feature("dpkts", "packets from destination to source", "packet", "packet", 1, 14, _COUNTER),
    _feature("sbytes", "bytes from source to destination", "byte", "byte", 1, 24, _COUNTER),
    _feature("dbytes", "bytes from destination to source", "byte", "byte", 1, 24, _COUNTER),
    _feature(
        "rate",
        "packets a second, both directions: (spkts + dpkts - 1) / dur",
        "packet/s",
        "packet/1000 s",
        1e3,
        31,
        _RATE,
    ),
    _feature("sttl", "time to live of the source's packets", "hop", "hop", 1, 8, _HEADER, _TTL),
    _feature("dttl", "time to live of the destination's", "hop", "hop", 1, 8, _HEADER, _TTL),
    _feature("sload", "bits a second from the source", "bit/s", "kbit/s", 1e-3, 23, _RATE),
    _feature("dload", "bits a second from the destination", "bit/s", "kbit/s", 1e-3, 20, _RATE),
    _feature(
        "sloss",
        "packets of the source sent again or dropped",
        "packet",
        "packet",
        1,
        13,
        "sequence numbers that go back, counted in the flow table",
    ),
    _feature(
        "dloss",
        "packets of the destination sent again or dropped",
        "packet",
        "packet",
        1,
        13,
        "sequence numbers that go back, counted in the flow table",
    ),
    _feature("sinpkt", "mean time between packets of the source", "ms", "us", 1e3, 27, _CLOCK),
    _feature("dinpkt", "mean time between packets of the destination", "ms", "us", 1e3, 27, _CLOCK),
    _feature(
        "sjit",
        "jitter of the source's packets",
        "ms",
        "us",
        1e3,
        31,
        "a running sum of differences of interarrival times in the flow table",
    ),
    _feature(
        "djit",
        "jitter of the destination's packets",
        "ms",
        "us",
        1e3,
        31,
        "a running sum of differences of interarrival times in the flow table",
    ),
    _feature(
        "swin", "TCP window that the source advertised, at most 255", "", "step", 1, 8, _HEADER
    ),
    _feature(
        "stcpb", "first TCP sequence number of the source", "", "number", 1, 32, _HEADER, _SEQUENCE
    ),
    _feature(
        "dtcpb",
        "first TCP sequence number of the destination",
        "",
        "number",
        1,
        32,
        _HEADER,
        _SEQUENCE,
    ),
    _feature(
        "dwin", "TCP window that the destination advertised, at most 255", "", "step", 1, 8, _HEADER
    ),
    _feature("tcprtt", "TCP handshake time: synack + ackdat", "s", "us", 1e6, 24, _HANDSHAKE),
    _feature("synack", "time from SYN to SYN-ACK", "s", "us", 1e6, 24, _HANDSHAKE),
    _feature("ackdat", "time from SYN-ACK to ACK", "s", "us", 1e6, 24, _HANDSHAKE),
    _feature("smean", "mean packet size of the source", "byte", "byte", 1, 11, _COMPARED),
    _feature("dmean", "mean packet size of the destination", "byte", "byte", 1, 11, _COMPARED),
    _feature(
        "trans_depth",
        "depth of the HTTP requests in the connection",
        "request",
        "request",
        1,
        8,
        _PAYLOAD,
        nic=False,
    ),
    _feature(
        "response_body_len",
        "bytes of the HTTP response's body, uncompressed",
        "byte",
        "byte",
        1,
        23,
        _PAYLOAD,
        nic=False,
    ),
    _feature(
        "ct_srv_src",
        "connections of the same service and source among the last 100",
        "flow",
        "flow",
        1,
        7,
        _SERVICE_RING,
    ),
    _feature(
        "ct_state_ttl",
        "class of the state and of the two TTL values, 0 to 6, by fixed rules",
        "code",
        "code",
        1,
        3,
        _HEADER,
        _TTL,
    ),
    _feature(
        "ct_dst_ltm",
        "connections of the same destination among the last 100",
        "flow",
        "flow",
        1,
        7,
        _RING,
    ),
    _feature(
        "ct_src_dport_ltm",
        "connections of the same source and destination port among the last 100",
        "flow",
        "flow",
        1,
        7,
        _RING,
    ),
    _feature(
        "ct_dst_sport_ltm",
        "connections of the same destination and source port among the last 100",
        "flow",
        "flow",
        1,
        7,
        _RING,
    ),
    _feature(
        "ct_dst_src_ltm",
        "connections of the same source and destination among the last 100",
        "flow",
        "flow",
        1,
        7,
        _RING,
    ),
    _feature(
        "is_ftp_login", "FTP sessions with a login", "flow", "flow", 1, 3, _PAYLOAD, nic=False
    ),
    _feature(
        "ct_ftp_cmd", "FTP commands in the session", "flow", "flow", 1, 4, _PAYLOAD, nic=False
    ),
    _feature(
        "ct_flw_http_mthd",
        "HTTP methods, such as GET and POST, in the connection",
        "request",
        "request",
        1,
        6,
        _PAYLOAD,
        nic=False,
    ),
    _feature(
        "ct_src_ltm",
        "connections of the same source among the last 100",
        "flow",
        "flow",
        1,
        7,
        _RING,
    ),
    _feature(
        "ct_srv_dst",
        "connections of the same service and destination among the last 100",
        "flow",
        "flow",
        1,
        7,
        _SERVICE_RING,
    ),
    _feature(
        "is_sm_ips_ports",
        "whether both addresses and both ports are equal",
        "",
        "flag",
        1,
        1,
        _HEADER,
        "set for ARP frames of the test bed's own hosts: 916 rows of the official test partition, "
        "all benign",
    ),
    _feature("srcip", "source address (IPv4; else 0)", "", "number", 1, 32, _HEADER, _ADDRESS),
    _feature("dstip", "destination address (IPv4; else 0)", "", "number", 1, 32, _HEADER, _ADDRESS),
    _feature(
        "sport",
        "source port; 0 where the protocol has none",
        "",
        "number",
        1,
        16,
        _HEADER,
        "source ports came from the traffic generator's own ranges",
    ),
    _feature(
        "dsport",
        "destination port; 0 where the protocol has none",
        "",
        "number",
        1,
        16,
        _HEADER,
        "which services were attacked was fixed when the traffic was made",
    ),
    _feature("stime", "time of the first packet, since 1970", "s", "s", 1, 32, _CLOCK, _TIME),
    _feature("ltime", "time of the last packet, since 1970", "s", "s", 1, 32, _CLOCK, _TIME),
)
"""Columns of the files. The last six are in the raw files only."""


@dataclass(frozen=True)
class Derived:
    """A feature that is computed from columns.

    Attributes:
        feature: its catalogue entry.
        needs: the columns it is computed from.
        of: integer arrays of the columns, in the order of ``needs``, to the feature's.
    """

    feature: Feature
    needs: tuple[str, ...]
    of: Callable[..., Column]


def _share(part: Column, rest: Column) -> Column:
    share: Column = (part << 10) // np.maximum(part + rest, 1)
    return share


def _ratio(numerator: Column, denominator: Column, limit: int) -> Column:
    return np.minimum(numerator // np.maximum(denominator, 1), limit)


def _difference(a: Column, b: Column, offset: int, limit: int) -> Column:
    """``a - b``, moved up so that it is not negative."""
    moved: Column = np.clip(a - b + offset, 0, limit)
    return moved


def _derived(
    name: str, meaning: str, unit: str, bits: int, why: str, needs: str, of: Callable[..., Column]
) -> Derived:
    return Derived(_feature(name, meaning, unit, unit, 1, bits, why), tuple(needs.split()), of)


_SUM = "a sum of counters in the flow table"
_COUNTED = "sums and differences of the connection counters, which a flow table keeps"

DERIVED: tuple[Derived, ...] = (
    _derived(
        "is_tcp",
        "whether the protocol is TCP",
        "flag",
        1,
        _HEADER,
        "proto",
        lambda proto: (proto == 6).astype(np.int64),
    ),
    _derived(
        "is_udp",
        "whether the protocol is UDP",
        "flag",
        1,
        _HEADER,
        "proto",
        lambda proto: (proto == 17).astype(np.int64),
    ),
    _derived(
        "bytes", "bytes in both directions", "byte", 25, _SUM, "sbytes dbytes", lambda s, d: s + d
    ),
    _derived(
        "pkts", "packets in both directions", "packet", 15, _SUM, "spkts dpkts", lambda s, d: s + d
    ),
    _derived(
        "mean",
        "mean packet size of both directions, rounded down",
        "byte",
        11,
        _COMPARED,
        "sbytes dbytes spkts dpkts",
        lambda sb, db, sp, dp: (sb + db) // np.maximum(sp + dp, 1),
    ),
    _derived(
        "sbytes_share",
        "the source's share of the bytes",
        "1/1024",
        11,
        _COMPARED,
        "sbytes dbytes",
        _share,
    ),
    _derived(
        "spkts_share",
        "the source's share of the packets",
        "1/1024",
        11,
        _COMPARED,
        "spkts dpkts",
        _share,
    ),
    _derived(
        "sloss_share",
        "lost packets of the source, of its packets",
        "1/1024",
        11,
        _COMPARED,
        "sloss spkts",
        lambda loss, n: _ratio(loss << 10, n, 1024),
    ),
    _derived(
        "dloss_share",
        "lost packets of the destination, of its packets",
        "1/1024",
        11,
        _COMPARED,
        "dloss dpkts",
        lambda loss, n: _ratio(loss << 10, n, 1024),
    ),
    _derived(
        "synack_share",
        "share of the handshake time before the SYN-ACK",
        "1/1024",
        11,
        _COMPARED,
        "synack ackdat",
        _share,
    ),
    _derived(
        "sjit_ratio",
        "the source's jitter over its mean time between packets",
        "1/16",
        16,
        _COMPARED,
        "sjit sinpkt",
        lambda j, i: _ratio(j << 4, i, 65535),
    ),
    _derived(
        "djit_ratio",
        "the destination's jitter over its mean time between packets",
        "1/16",
        16,
        _COMPARED,
        "djit dinpkt",
        lambda j, i: _ratio(j << 4, i, 65535),
    ),
    _derived(
        "srv_dst_less_pair",
        "flows to the same service and destination, less those of the same pair, plus 64",
        "flow",
        8,
        _COUNTED,
        "ct_srv_dst ct_dst_src_ltm",
        lambda a, b: _difference(a, b, 64, 255),
    ),
    _derived(
        "srv_src_less_pair",
        "flows from the same source to the same service, less those of the same pair, plus 64",
        "flow",
        8,
        _COUNTED,
        "ct_srv_src ct_dst_src_ltm",
        lambda a, b: _difference(a, b, 64, 255),
    ),
    _derived(
        "src_less_dst",
        "flows of the same source, less those of the same destination, plus 64",
        "flow",
        8,
        _COUNTED,
        "ct_src_ltm ct_dst_ltm",
        lambda a, b: _difference(a, b, 64, 255),
    ),
    _derived(
        "srv_and_pair",
        "flows of the same service and source, service and destination, and pair, together",
        "flow",
        8,
        _COUNTED,
        "ct_srv_src ct_srv_dst ct_dst_src_ltm",
        lambda a, b, c: np.minimum(a + b + c, 255),
    ),
    _derived(
        "src_and_dst",
        "flows of the same source and of the same destination, together",
        "flow",
        8,
        _COUNTED,
        "ct_src_ltm ct_dst_ltm",
        lambda a, b: np.minimum(a + b, 255),
    ),
    _derived(
        "mean_sum",
        "mean packet sizes of the two directions, added",
        "byte",
        12,
        _SUM,
        "smean dmean",
        lambda s, d: np.minimum(s + d, 4095),
    ),
    _derived(
        "mean_less",
        "mean packet size of the source less that of the destination, plus 2048",
        "byte",
        12,
        _COMPARED,
        "smean dmean",
        lambda s, d: _difference(s, d, 2048, 4095),
    ),
    _derived(
        "pkts_less",
        "packets of the source less those of the destination, plus 32768",
        "packet",
        16,
        _COMPARED,
        "spkts dpkts",
        lambda s, d: _difference(s, d, 32768, 65535),
    ),
    _derived(
        "sbytes_per_dpkt",
        "bytes of the source for each packet of the destination",
        "byte",
        24,
        _COMPARED,
        "sbytes dpkts",
        lambda b, n: _ratio(b, n, (1 << 24) - 1),
    ),
    _derived(
        "dbytes_per_spkt",
        "bytes of the destination for each packet of the source",
        "byte",
        24,
        _COMPARED,
        "dbytes spkts",
        lambda b, n: _ratio(b, n, (1 << 24) - 1),
    ),
)
"""Features that a NIC can afford and the files do not have."""

CATALOGUE: tuple[Feature, ...] = COLUMNS + tuple(d.feature for d in DERIVED)
"""Every feature that a table may have."""

BY_NAME: Mapping[str, Feature] = MappingProxyType({f.name: f for f in CATALOGUE})

NIC_COLUMNS: tuple[str, ...] = tuple(
    f.name
    for f in COLUMNS
    if f.name not in ("stcpb", "dtcpb", "is_sm_ips_ports", *RAW_ONLY) and f.nic
)
"""The 33 columns of the partition files that say something about a flow and that a NIC can
compute, the three TTL columns among them."""


def to_units(name: str, values: ArrayLike) -> Column:
    """Values of a column in its source unit as integers that fit the catalogue's bits."""
    feature = BY_NAME[name]
    units: Column = np.minimum(to_integer(values, feature.scale), (1 << feature.bits) - 1)
    return units


def with_derived(columns: Mapping[str, Column]) -> dict[str, Column]:
    """The columns, and the derived features whose columns are there."""
    out = dict(columns)
    for derived in DERIVED:
        if all(n in columns for n in derived.needs):
            values = derived.of(*(columns[n] for n in derived.needs))
            out[derived.feature.name] = np.minimum(values, (1 << derived.feature.bits) - 1)
    return out
