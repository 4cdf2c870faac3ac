# SPDX-License-Identifier: Apache-2.0
"""Keys of flows from texts: both directions make one, and edges of ports and protocols."""

import pytest

from n3ic.meter.flow_keys import (
    ends_of,
    flow_key,
    packed_address,
    port_number,
    protocol_number,
    whole_number,
)


def test_both_directions_have_one_key():
    key = flow_key("10.0.0.2", "80", "10.0.0.1", "4000", "tcp")
    assert key == (((bytes([10, 0, 0, 1]), 4000), (bytes([10, 0, 0, 2]), 80)), 6)
    assert key == flow_key("10.0.0.1", "4000", "10.0.0.2", "80", "6")
    same = packed_address("::1")
    assert same == bytes(15) + b"\1"
    assert ends_of((same, 2), (same, 1)) == ((same, 1), (same, 2))
    assert ends_of((same, 1), (same, 2)) == ((same, 1), (same, 2))


@pytest.mark.parametrize(
    ("text", "number"), [("0", 0), ("1", 1), ("65535", 65535), ("", 0), ("-", 0), ("00080", 80)]
)
def test_ports(text, number):
    assert port_number(text) == number


@pytest.mark.parametrize("text", ["65536", "-1", "80.0", " 80", "²", "9" * 21, "http"])
def test_a_number_outside_0_to_65535_is_no_port(text):
    with pytest.raises(ValueError, match=r"whole number|0\.\.65535"):
        port_number(text)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        *(("0", 0), ("6", 6), ("17", 17), ("255", 255), ("256", 0), ("0006", 0), ("006", 6)),
        *((" TCP ", 6), ("udp", 17), ("icmp", 1), ("igmp", 2), ("gre", 47), ("esp", 50)),
        *(("icmp6", 58), ("icmpv6", 58), ("ipv6-icmp", 58), ("ospf", 89), ("pgm", 113)),
        *(("sctp", 132), ("unknown", 0), ("", 0), ("٦", 0)),
    ],
)
def test_protocols(text, number):
    assert protocol_number(text) == number


def test_whole_numbers_have_at_most_twenty_digits():
    assert whole_number("9" * 20) == 10**20 - 1
    for text in ("٣", "9" * 21, "", "-1", "+1", "1_0"):
        with pytest.raises(ValueError, match="expected a whole number"):
            whole_number(text)
