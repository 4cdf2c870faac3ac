# SPDX-License-Identifier: Apache-2.0
"""How the applications of the synthetic captures behave; every figure is an engineer's guess."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SizeDistribution:
    """Payload bytes of a message, or seconds: log-normal, or fixed where ``spread`` is 0.

    Attributes:
        median: of the values.
        spread: standard deviation of their logarithm.
        least: no value is smaller.
        most: no value is larger.
    """

    median: float
    spread: float = 0.0
    least: float = 0.0
    most: float = 4e5


@dataclass(frozen=True)
class ApplicationTraffic:
    """Traffic of one application.

    Attributes:
        name: the class.
        ports: of the server; one of them at random, or any high one where empty.
        udp: share of the flows over UDP.
        inbound: share of the flows that the remote side opens.
        silent: share of the flows that nobody answers.
        exchanges: mean number of requests with their answers (geometric, at least 1).
        request: payload of a request.
        answer: payload of an answer.
        pause: seconds between an answer and the next request.
        round_trip: seconds.
        reset: share of the TCP flows that a RST ends; of the others, ``unended`` do not end.
        unended: share of the TCP flows that do not end within the capture.
        loss: share of the data segments that are sent again.
        servers: how many different remote hosts there are.
    """

    name: str
    ports: tuple[int, ...]
    request: SizeDistribution
    answer: SizeDistribution
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


BEHAVIOURS = (
    ApplicationTraffic(
        name="bittorrent-all-encrypted",
        ports=(),
        request=SizeDistribution(120, 1.1, 20),
        answer=SizeDistribution(260, 1.7, 0),
        exchanges=3.0,
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
        request=SizeDistribution(105, 0.7, 20),
        answer=SizeDistribution(300, 1.5, 0),
        exchanges=2.6,
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
        ports=(4662, 4672, 4665),
        request=SizeDistribution(70, 0.7, 6),
        answer=SizeDistribution(150, 1.2, 0),
        exchanges=2.0,
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
        request=SizeDistribution(90, 0.8, 19),
        answer=SizeDistribution(350, 1.3, 19),
        exchanges=9.0,
        pause=SizeDistribution(0.06, 1.2, most=10),
        inbound=0.6,
        round_trip=SizeDistribution(0.03, 0.5, 0.001, 1.0),
        reset=0.3,
        servers=200,
    ),
    ApplicationTraffic(
        name="web-browser",
        ports=(80, 80, 443),
        request=SizeDistribution(480, 0.5, 80),
        answer=SizeDistribution(4500, 1.5, 120),
        exchanges=2.2,
        pause=SizeDistribution(0.5, 1.6, most=30),
        round_trip=SizeDistribution(0.035, 0.5, 0.002, 1.0),
        reset=0.15,
        unended=0.08,
        servers=3000,
    ),
    ApplicationTraffic(
        name="dns",
        ports=(53,),
        request=SizeDistribution(33, 0.2, 17, 120),
        answer=SizeDistribution(130, 0.6, 33, 500),
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
        request=SizeDistribution(48),
        answer=SizeDistribution(48),
        exchanges=1.2,
        pause=SizeDistribution(2.0, 0.3),
        udp=1.0,
        silent=0.08,
        round_trip=SizeDistribution(0.025, 0.5, 0.001, 1.0),
        servers=6,
    ),
    ApplicationTraffic(
        name="ssh",
        ports=(22,),
        request=SizeDistribution(110, 0.8, 21),
        answer=SizeDistribution(220, 0.9, 21),
        exchanges=7.0,
        pause=SizeDistribution(0.05, 1.0, most=15),
        inbound=0.5,
        round_trip=SizeDistribution(0.03, 0.6, 0.001, 1.0),
        reset=0.1,
        servers=300,
    ),
)
