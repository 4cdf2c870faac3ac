# SPDX-License-Identifier: Apache-2.0
"""A few conversations in which meters differ, as frames."""

import struct

ACK, PUSH, SYN, FIN, ECN = 16, 8, 2, 1, 0xC0
CLIENT, SERVER = bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2])


def ip(source, destination, protocol, transport, identification):
    head = struct.pack(
        ">BBHHHBBH", 0x45, 0, 20 + len(transport), identification, 0, 64, protocol, 0
    )
    head += source + destination
    total = sum(struct.unpack(">10H", head))
    total = (total & 0xFFFF) + (total >> 16)
    return head[:10] + struct.pack(">H", ~total & 0xFFFF) + head[12:] + transport


def ethernet(packet, kind=0x0800):
    return bytes([2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]) + struct.pack(">H", kind) + packet


class Frames:
    """Frames with their times in seconds."""

    def __init__(self):
        self.all = []

    def add(self, time, source, destination, protocol, transport):
        packet = ip(source, destination, protocol, transport, (len(self.all) + 1) & 0xFFFF)
        self.all.append((time, ethernet(packet)))
        return packet

    def tcp(self, time, out, ports, flags, sequence, acknowledged, size=0):
        ports = ports if out else ports[::-1]
        ends = (CLIENT, SERVER) if out else (SERVER, CLIENT)
        head = struct.pack(
            ">HHIIBBHHH", *ports, sequence, acknowledged, 0x50, flags, 4096 + out, 0, 0
        )
        self.add(time, *ends, 6, head + bytes(size))

    def udp(self, time, out, ports, data):
        ports = ports if out else ports[::-1]
        ends = (CLIENT, SERVER) if out else (SERVER, CLIENT)
        return self.add(time, *ends, 17, struct.pack(">HHHH", *ports, 8 + len(data), 0) + data)

    def connection(self, time, ports, more=0):
        """A handshake, a request, an answer of two segments and an end."""
        self.tcp(time, True, ports, SYN | more, 100, 0)
        self.tcp(time + 0.030, False, ports, SYN | ACK | more & 0x40, 500, 101)
        self.tcp(time + 0.030007, True, ports, ACK, 101, 501)
        self.tcp(time + 0.1, True, ports, ACK | PUSH, 101, 501, 200)
        self.tcp(time + 0.15, False, ports, ACK, 501, 301, 1000)
        self.tcp(time + 0.15, False, ports, ACK | PUSH, 1501, 301, 77)
        self.tcp(time + 0.2, True, ports, ACK | FIN, 301, 1578)
        self.tcp(time + 0.21, False, ports, ACK | FIN, 1578, 302)
        self.tcp(time + 0.22, True, ports, ACK, 302, 1579)


SIXTEEN_POINTS = (1, 3, *(2**n for n in range(3, 14)), 10_000, 10_001, 10_002)  # as many as may be


def flows_of(packets):
    """UDP flows of so many packets that take turns: frames, lengths and times, for meters."""
    talk = Frames()
    for i in range(max(packets)):
        for port, most in enumerate(packets, 1):
            if i < most:
                talk.udp(len(talk.all), i % 3 != 1, (port, 53), bytes(i % 7))
    return [(frame, len(frame), time) for time, frame in talk.all]


def conversations():
    """Frames in order of time."""
    f = Frames()
    f.connection(0.0, (40001, 80))
    f.connection(1.0, (40002, 80), ECN)
    f.tcp(2.0, False, (40003, 80), SYN | ACK, 500, 101)  # the SYN was missed
    f.tcp(2.01, True, (40003, 80), ACK, 101, 501)
    f.tcp(2.02, True, (40003, 80), ACK | PUSH, 101, 501, 50)
    for i, number in enumerate((7, 8)):  # two questions of one socket
        question = struct.pack(">HHHHHH", number, 0x100, 1, 0, 0, 0) + b"\1a\0\0\1\0\1"
        f.udp(3.0 + i, True, (40004, 53), question)
        f.udp(3.005 + i, False, (40004, 53), question)
    asked = f.udp(5.0, True, (40005, 999), bytes(10))
    f.add(5.02, SERVER, CLIENT, 1, struct.pack(">BBHI", 3, 3, 0, 0) + asked[:28])
    arp = struct.pack(">HHBBH", 1, 0x0800, 6, 4, 1) + bytes(6) + CLIENT + bytes(6) + SERVER
    f.all.append((6.0, ethernet(arp, 0x0806)))
    return f.all
