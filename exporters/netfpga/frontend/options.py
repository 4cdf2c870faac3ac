# SPDX-License-Identifier: Apache-2.0
"""Options of a front end, which exports without one have, too."""

from __future__ import annotations

from n3ic.options import Option

ADDRESS = "10.23.23.2"  # IPv4 address of a simulated card
_FRONT = (("front-end", ("udp", "tcp")),)

OPTIONS = (
    Option(
        "front-end",
        "a network stack around the executor that answers inference messages, over UDP or over "
        "both UDP and TCP; none: the packet path of the reference NIC",
        "none",
        choices=("none", "udp", "tcp"),
        newer=True,
    ),
    Option(
        "executors",
        "copies of an unrolled executor behind the front end; each takes an input per clock",
        1,
        minimum=1,
        maximum=4,
        only_with=(*_FRONT, ("style", ("unrolled",))),
        newer=True,
    ),
    Option(
        "answers",
        "content of a row's answer: full: verdict, class, margin and scores; verdict: only that",
        "full",
        choices=("full", "verdict"),
        only_with=_FRONT,
        newer=True,
    ),
    Option(
        "mtu",
        "maximum size of the front end's IPv4 packets, in bytes",
        1500,
        minimum=576,
        maximum=9000,
        only_with=_FRONT,
        newer=True,
    ),
    Option(
        "bypass",
        "true: rows enter the executor while their frame arrives; false: after its checksum",
        True,
        only_with=_FRONT,
        newer=True,
    ),
    Option(
        "sessions",
        "maximum number of TCP connections",
        64,
        minimum=2,
        maximum=1024,
        only_with=(("front-end", ("tcp",)),),
        newer=True,
    ),
    Option(
        "idle",
        "ticks without a segment after which a TCP connection may have to leave for a new one",
        8,
        minimum=1,
        maximum=599,
        only_with=(("front-end", ("tcp",)),),
        newer=True,
    ),
)
