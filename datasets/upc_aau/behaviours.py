# SPDX-License-Identifier: Apache-2.0
"""How the applications of the synthetic captures behave.

Sizes of a protocol's own messages are those of its specification, named beside each. Mean bytes of
a flow are published for a sibling of UPC-AAU; the numbers of exchanges and the sizes of answers are
fitted to them. Everything else is an engineer's guess.

Those means are from Carela-Español, Bujlow, Barlet-Ros: "Is Our Ground-Truth for Traffic
Classification Reliable?", PAM 2014, table of flows and megabytes by application, of 1,262,022 flows
that the same system captured in 2013.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SizeDistribution:
    """Payload bytes of a message, or seconds: log-normal, or fixed where ``spread`` is 0.

    Attributes:
        median: median of the values.
        spread: standard deviation of their logarithm.
        least: smallest value.
        most: largest value before padding.
        padding: upper bound of the padding, which is uniform from 0.
    """

    median: float
    spread: float = 0.0
    least: float = 0.0
    most: float = 4e5
    padding: float = 0.0


@dataclass(frozen=True)
class Exchange:
    """A request and its answer.

    Attributes:
        request: payload of the request.
        answer: payload of the answer.
    """

    request: SizeDistribution
    answer: SizeDistribution


@dataclass(frozen=True)
class Datagrams(Exchange):
    """The exchanges of an application's flows over UDP, where they differ from those over TCP.

    Attributes:
        exchanges: mean number of requests with their answers (geometric, at least 1).
    """

    exchanges: float = 1.0


@dataclass(frozen=True)
class ApplicationTraffic:
    """Traffic of one application.

    Attributes:
        name: the class.
        ports: ports of the server, one of which is chosen at random; empty for any high port.
        udp: share of the flows over UDP.
        inbound: share of the flows that the remote side opens.
        silent: share of the flows that nobody answers.
        exchanges: mean number of requests with their answers (geometric, at least 1).
        request: payload of a request.
        answer: payload of an answer.
        opening: the first exchanges over TCP, such as a protocol's handshake.
        datagrams: the exchanges over UDP; None for the same as over TCP.
        pause: seconds between an answer and the next request.
        round_trip: round-trip time in seconds.
        reset: share of the TCP flows that end with a RST.
        unended: share of the other TCP flows that do not end within the capture.
        loss: share of the data segments that are sent again.
        servers: number of different remote hosts.
    """

    name: str
    ports: tuple[int, ...]
    request: SizeDistribution
    answer: SizeDistribution
    opening: tuple[Exchange, ...] = ()
    datagrams: Datagrams | None = None
    pause: SizeDistribution = SizeDistribution(0.05, 1.0)
    exchanges: float = 1.0
    udp: float = 0.0
    inbound: float = 0.0
    silent: float = 0.0
    round_trip: SizeDistribution = SizeDistribution(0.04, 0.6, 0.002, 2.0)
    reset: float = 0.05
    unended: float = 0.05
    loss: float = 0.005
    servers: int = 2000


_BLOCK = Exchange(SizeDistribution(17), SizeDistribution(16_397))
"""BitTorrent: a request of 4 + 1 + 12 bytes, and a block of 2^14 bytes behind 13 (BEP 3)."""
_DHT = Datagrams(SizeDistribution(95), SizeDistribution(285, 0.1, 47, 400), 1.6)
"""BitTorrent's DHT: a get_peers of 95 bytes, as BEP 5 shows it; its answer names eight nodes of 26
bytes, and its other fields take about 77. The number of exchanges per flow is a guess."""

BEHAVIOURS = (
    ApplicationTraffic(
        name="bittorrent-all-encrypted",
        ports=(),
        # Message Stream Encryption: a key of 96 bytes each way with 0 to 512 of padding; then two
        # digests, 16 bytes of fields, padding and the handshake of 68, answered by 14 and padding.
        opening=(
            Exchange(SizeDistribution(96, padding=512), SizeDistribution(96, padding=512)),
            Exchange(SizeDistribution(124, padding=512), SizeDistribution(82, padding=512)),
        ),
        request=_BLOCK.request,
        answer=_BLOCK.answer,
        datagrams=_DHT,
        exchanges=11.0,
        pause=SizeDistribution(0.4, 1.5, most=20),
        udp=0.55,
        inbound=0.35,
        silent=0.35,
        round_trip=SizeDistribution(0.12, 0.7, 0.005, 3.0),
        reset=0.25,
        loss=0.02,
        servers=40_000,
    ),
    ApplicationTraffic(
        name="bittorrent-outgoing-non-encrypted",
        ports=(),
        # BEP 3: a handshake of 1 + 19 + 8 + 20 + 20 bytes each way.
        opening=(Exchange(SizeDistribution(68), SizeDistribution(68)),),
        request=_BLOCK.request,
        answer=_BLOCK.answer,
        datagrams=_DHT,
        exchanges=11.0,
        pause=SizeDistribution(0.4, 1.5, most=20),
        udp=0.6,
        inbound=0.05,
        silent=0.4,
        round_trip=SizeDistribution(0.12, 0.7, 0.005, 3.0),
        reset=0.25,
        loss=0.02,
        servers=40_000,
    ),
    ApplicationTraffic(
        name="emule-outgoing-non-obfuscated",
        ports=(4662, 4672),  # eMule's own, of TCP and UDP
        request=SizeDistribution(70, 0.7, 6),  # 6: the protocol's header
        # Kademlia's request: 2 bytes of head, a type and two identifiers of 16.
        datagrams=Datagrams(SizeDistribution(35), SizeDistribution(150, 1.0, 19, 1200), 2.0),
        answer=SizeDistribution(1500, 2.0, 6),
        exchanges=4.5,
        pause=SizeDistribution(0.8, 1.3, most=20),
        udp=0.5,
        silent=0.3,
        round_trip=SizeDistribution(0.13, 0.6, 0.005, 3.0),
        reset=0.2,
        loss=0.02,
        servers=20_000,
    ),
    ApplicationTraffic(
        name="pandmediabooster",
        ports=(443, 563, 8100),
        request=SizeDistribution(170, 0.5, 30),
        answer=SizeDistribution(500, 1.6, 0, 2e5),
        exchanges=2.5,
        pause=SizeDistribution(1.5, 1.0, most=25),
        udp=0.3,
        silent=0.2,
        round_trip=SizeDistribution(0.09, 0.5, 0.01, 2.0),
        loss=0.01,
        servers=8_000,
    ),
    ApplicationTraffic(
        name="rdp",
        ports=(3389,),
        # The annotated example of MS-RDPBCGR, section 4.1: a connection request of 44 bytes with a
        # cookie, confirmed by 19; then MCS Connect of 416 and 337 bytes.
        opening=(
            Exchange(SizeDistribution(44, 0.1, 19, 80), SizeDistribution(19)),
            Exchange(SizeDistribution(416), SizeDistribution(337)),
        ),
        request=SizeDistribution(90, 0.8, 19),
        answer=SizeDistribution(1200, 1.3, 19),
        exchanges=35.0,
        pause=SizeDistribution(0.06, 1.2, most=10),
        inbound=0.6,
        round_trip=SizeDistribution(0.03, 0.5, 0.001, 1.0),
        reset=0.3,
        servers=200,
    ),
    ApplicationTraffic(
        name="web-browser",
        ports=(80, 80, 443),
        # IEEE 802.16m Evaluation Methodology, web browsing: main objects of log-normal size (mu
        # 8.37, sigma 1.37), then embedded ones (6.17, 2.36), both up to 2 MB.
        opening=(Exchange(SizeDistribution(480, 0.5, 80), SizeDistribution(4316, 1.37, 100, 2e6)),),
        request=SizeDistribution(480, 0.5, 80),
        answer=SizeDistribution(478, 2.36, 50, 2e6),
        exchanges=16.0,
        pause=SizeDistribution(0.5, 1.6, most=30),
        round_trip=SizeDistribution(0.035, 0.5, 0.002, 1.0),
        reset=0.15,
        unended=0.08,
        servers=3000,
    ),
    ApplicationTraffic(
        name="dns",
        ports=(53,),
        request=SizeDistribution(33, 0.2, 17, 120),  # RFC 1035: 17 bytes and the name
        answer=SizeDistribution(140, 0.6, 33, 512),  # RFC 1035: at most 512 over UDP
        exchanges=1.1,
        pause=SizeDistribution(0.002, 0.5),
        udp=1.0,
        silent=0.03,
        round_trip=SizeDistribution(0.015, 0.8, 0.0005, 2.0),
        servers=3,
    ),
    ApplicationTraffic(
        name="new-samba-session-service",
        ports=(445, 139),
        request=SizeDistribution(140, 0.4, 51),
        answer=SizeDistribution(180, 0.5, 39),
        exchanges=4.0,
        pause=SizeDistribution(0.01, 1.0, most=5),
        silent=0.25,
        round_trip=SizeDistribution(0.0006, 0.5, 0.0001, 0.1),
        reset=0.45,
        loss=0.001,
        servers=30,
    ),
    ApplicationTraffic(
        name="ntp",
        ports=(123,),
        request=SizeDistribution(48),  # RFC 5905, section 7.3
        answer=SizeDistribution(48),
        exchanges=1.04,
        pause=SizeDistribution(2.0, 0.3),
        udp=1.0,
        silent=0.08,
        round_trip=SizeDistribution(0.025, 0.5, 0.001, 1.0),
        servers=6,
    ),
    ApplicationTraffic(
        name="ssh",
        ports=(22,),
        # RFC 4253: identification lines of at most 255 bytes.
        opening=(Exchange(SizeDistribution(23, 0.2, 9, 255), SizeDistribution(32, 0.2, 9, 255)),),
        request=SizeDistribution(110, 0.8, 21),
        answer=SizeDistribution(220, 0.9, 21),
        exchanges=6.0,
        pause=SizeDistribution(0.05, 1.0, most=15),
        inbound=0.5,
        round_trip=SizeDistribution(0.03, 0.6, 0.001, 1.0),
        reset=0.1,
        servers=300,
    ),
)
