# SPDX-License-Identifier: Apache-2.0
"""ICMP echo requests to a card."""

import struct

from n3ic.exporters.netfpga.frontend.packets import ICMP, checksum, ipv4


def echo(source, target, payload, *, number=1):
    body = struct.pack(">BBHHH", 8, 0, 0, 0x4E33, number) + payload
    return ipv4(source, target, ICMP, body[:2] + struct.pack(">H", checksum(body)) + body[4:])
