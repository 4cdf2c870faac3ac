# SPDX-License-Identifier: Apache-2.0
"""What the synthetic flows do: a table of benign and attack behaviours.

Every number here is an engineer's round guess at how such traffic looks: protocol overheads,
usual sizes, link speeds, human and machine pauses. None was measured on, fitted to or taken from
a capture, UNSW-NB15 included.
"""

from __future__ import annotations

from dataclasses import dataclass

Spread = tuple[float, float]
"""Median and sigma of a log-normal."""


@dataclass(frozen=True)
class Behaviour:
    """One kind of conversation.

    Attributes:
        name: what it is.
        category: ``Normal`` or the attack category.
        share: per thousand of all flows.
        proto: protocol name as in the files.
        service: service name as in the files.
        port: destination port; 0 for any.
        request: bytes of payload that the source sends.
        response: bytes of payload that the destination sends if it answers.
        turns: mean number of exchanges of request and response.
        think: seconds of pause between exchanges.
        rtt: round-trip time in seconds.
        speed: rate of the slower side in bits per second.
        loss: share of packets that are lost.
        answered: share of flows that the destination answers.
        session: mean number of flows in a row between the same hosts.
        gap: mean seconds between such flows.
        canned: number of distinct requests that the sender knows; 0 for any size.
        scan: whether the flows of a session go to different hosts or ports.
    """

    name: str
    category: str
    share: float
    proto: str
    service: str = "-"
    port: int = 0
    request: Spread = (200, 0.5)
    response: Spread = (200, 0.5)
    turns: float = 1
    think: Spread = (0.01, 0.7)
    rtt: Spread = (0.008, 0.8)
    speed: Spread = (2e7, 0.7)
    loss: float = 0.005
    answered: float = 1.0
    session: float = 4
    gap: float = 1.0
    canned: int = 0
    scan: bool = False


BEHAVIOURS = (
    # benign
    Behaviour("look-up", "Normal", 120, "udp", "dns", 53, (34, 0.25), (110, 0.5), think=(2e-4, 1),
              rtt=(0.004, 1.3), answered=0.96, session=3, canned=60),
    Behaviour("page", "Normal", 70, "tcp", "http", 80, (500, 0.4), (1.2e4, 1.0), 3, (0.2, 1.0),
              session=6, gap=0.3),
    Behaviour("download", "Normal", 18, "tcp", "http", 80, (350, 0.3), (4e5, 1.0), 1,
              loss=0.01, session=2),
    Behaviour("web over TLS", "Normal", 45, "tcp", "ssl", 443, (1500, 0.4), (9e3, 1.0), 4,
              (0.3, 1.0), session=5, gap=0.3),
    Behaviour("mail", "Normal", 35, "tcp", "smtp", 25, (1.5e4, 0.8), (600, 0.2), 7, (0.02, 0.7)),
    Behaviour("mailbox", "Normal", 10, "tcp", "pop3", 110, (120, 0.4), (3e3, 1.5), 5, (0.05, 1)),
    Behaviour("file control", "Normal", 15, "tcp", "ftp", 21, (260, 0.4), (900, 0.4), 10,
              (0.15, 1.2)),
    Behaviour("file", "Normal", 20, "tcp", "ftp-data", 0, (60, 0.6), (6e4, 1.3), 1, loss=0.01),
    Behaviour("shell", "Normal", 15, "tcp", "ssh", 22, (3e3, 1), (6e3, 1.2), 25, (0.3, 1.5),
              session=2),
    Behaviour("application", "Normal", 30, "tcp", "-", 0, (500, 0.8), (2.5e3, 1.0), 5, (0.1, 1.2)),
    Behaviour("refused", "Normal", 8, "tcp", "-", 0, (0, 0), answered=0.0, think=(1.5, 0.8)),
    Behaviour("clock", "Normal", 12, "udp", "-", 123, (48, 0), (48, 0), answered=0.97, session=2,
              canned=1),
    Behaviour("poll", "Normal", 8, "udp", "snmp", 161, (70, 0.2), (140, 0.4), 3, (0.01, 1),
              canned=8),
    Behaviour("log line", "Normal", 10, "udp", "-", 514, (140, 0.5), answered=0.0, turns=2,
              think=(4e-5, 1.5), session=3, canned=30),
    Behaviour("peers", "Normal", 12, "udp", "-", 0, (300, 1.2), (400, 1.5), 6, (0.1, 1.5)),
    Behaviour("stream", "Normal", 6, "udp", "-", 0, (1e5, 1.2), (600, 1), 30, (0.02, 0.5),
              session=2),
    Behaviour("address look-up", "Normal", 10, "arp", request=(28, 0), response=(28, 0),
              think=(1e-4, 0.5), rtt=(3e-4, 0.7), answered=0.7, canned=1),
    Behaviour("routing hello", "Normal", 6, "ospf", request=(44, 0), answered=0.0, turns=4,
              think=(10, 0.02), canned=2),
    # attacks
    Behaviour("query flood", "Generic", 150, "udp", "dns", 53, (38, 0.3), (120, 0.5), 2,
              (8e-6, 0.35), rtt=(0.003, 1), answered=0.08, session=200, gap=0.003, canned=4),
    Behaviour("cipher attempt", "Generic", 30, "tcp", "ssl", 443, (900, 0.4), (1.6e3, 0.4), 3,
              (0.04, 0.7), rtt=(0.05, 0.6), session=15, gap=0.1),
    Behaviour("reflected answers", "Generic", 20, "udp", "-", 0, (1.1e3, 0.5), answered=0.02,
              turns=3, think=(2e-5, 0.6), session=150, gap=0.003, canned=5),
    Behaviour("poisoned page", "Exploits", 55, "tcp", "http", 80, (1.8e3, 0.6), (2.5e3, 0.9), 2,
              (0.1, 0.9), rtt=(0.05, 0.6), loss=0.012, gap=0.3),
    Behaviour("poisoned mail", "Exploits", 20, "tcp", "smtp", 25, (6e4, 0.6), (420, 0.2), 4,
              (0.04, 0.7), rtt=(0.05, 0.6), loss=0.012),
    Behaviour("poisoned file", "Exploits", 12, "tcp", "ftp", 21, (520, 0.4), (650, 0.3), 5,
              (0.07, 0.8), rtt=(0.05, 0.6)),
    Behaviour("service overflow", "Exploits", 25, "tcp", "-", 0, (2.2e3, 0.7), (300, 0.7), 3,
              (0.05, 0.8), rtt=(0.05, 0.6), answered=0.9),
    Behaviour("odd protocol", "Exploits", 12, "unas", "-", 0, (120, 0.5), answered=0.0, turns=2,
              think=(9e-6, 0.4), session=100, gap=0.005, canned=6),
    Behaviour("malformed page", "Fuzzers", 35, "tcp", "http", 80, (1.4e3, 0.9), (700, 0.6), 2,
              (0.08, 0.8), rtt=(0.05, 0.6), session=15, gap=0.1),
    Behaviour("malformed session", "Fuzzers", 25, "tcp", "-", 0, (1.1e3, 0.9), (250, 0.7), 4,
              (0.05, 0.8), rtt=(0.05, 0.6), answered=0.85, session=15, gap=0.1),
    Behaviour("malformed datagram", "Fuzzers", 25, "udp", "-", 0, (260, 1.1), (150, 0.8), 3,
              (0.01, 2), answered=0.25, session=15, gap=0.1),
    Behaviour("opening flood", "DoS", 20, "tcp", "-", 80, (0, 0), answered=0.1,
              think=(0.8, 1), session=100, gap=0.005),
    Behaviour("slow request", "DoS", 15, "tcp", "http", 80, (700, 0.5), (300, 0.7), 15,
              (1.0, 0.8), rtt=(0.05, 0.6), session=12, gap=0.1),
    Behaviour("datagram flood", "DoS", 20, "udp", "-", 0, (900, 0.6), answered=0.01, turns=12,
              think=(1e-5, 0.8), session=150, gap=0.003, canned=5),
    Behaviour("link flood", "DoS", 8, "ospf", request=(80, 0.6), answered=0.0, turns=2,
              think=(9e-6, 0.4), session=100, gap=0.003, canned=5),
    Behaviour("port scan", "Reconnaissance", 30, "tcp", "-", 0, (0, 0), answered=0.45,
              think=(0.3, 1), rtt=(0.05, 0.6), session=30, gap=0.02, scan=True),
    Behaviour("datagram scan", "Reconnaissance", 15, "udp", "-", 0, (20, 0.5), (90, 0.4),
              answered=0.15, session=30, gap=0.02, canned=3, scan=True),
    Behaviour("page probe", "Reconnaissance", 12, "tcp", "http", 80, (220, 0.3), (900, 1), 1,
              (0.03, 1), rtt=(0.05, 0.6), session=15, gap=0.1, scan=True),
    Behaviour("management walk", "Reconnaissance", 5, "udp", "snmp", 161, (60, 0.3), (200, 0.6), 2,
              (0.01, 1), answered=0.5, session=20, gap=0.1, canned=5, scan=True),
    Behaviour("crawl", "Analysis", 8, "tcp", "http", 80, (320, 0.3), (5e3, 0.8), 4, (0.06, 0.7),
              rtt=(0.05, 0.6), session=15, gap=0.1),
    Behaviour("beacon", "Backdoor", 8, "tcp", "-", 0, (180, 0.4), (120, 0.5), 2, (0.4, 1.2),
              rtt=(0.06, 0.6), session=6, gap=5),
    Behaviour("planted code", "Shellcode", 5, "udp", "-", 0, (420, 0.4), (90, 0.5),
              answered=0.3, rtt=(0.05, 0.6)),
    Behaviour("self-copy", "Worms", 4, "tcp", "http", 80, (3.5e3, 0.6), (500, 0.6), 2,
              (0.05, 1), rtt=(0.05, 0.6), session=3, scan=True),
)  # fmt: skip
"""The kinds of conversation and their shares."""
