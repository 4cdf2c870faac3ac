# SPDX-License-Identifier: Apache-2.0
"""Traffic of two kinds with labels: short questions over UDP, and bulk data over TCP."""

import random
import struct

START = 1_700_000_000
ACK, SYN, FIN = 16, 2, 1


def frame(source, destination, protocol, transport):
    header = struct.pack(
        ">BBHHHBBH", 0x45, 0, 20 + len(transport), 0, 0, 64, protocol, 0
    )  # fmt: skip
    return bytes(12) + b"\x08\0" + header + bytes(source) + bytes(destination) + transport


def udp(source, destination, ports, size):
    data = struct.pack(">HHHH", *ports, 8 + size, 0) + bytes(size)
    return frame(source, destination, 17, data)


def tcp(source, destination, ports, flags, size):
    data = struct.pack(">HHIIBBHHH", *ports, 0, 0, 0x50, flags, 4096, 0, 0) + bytes(size)
    return frame(source, destination, 6, data)


def connection(r, number):
    """Times and frames of a flow, its label, and its key as a table of labels has it."""
    client, server = (10, 0, number >> 8, number & 255), (10, 1, 0, r.randint(1, 9))
    there = r.randint(1024, 65535), r.choice([53, 443])
    back = there[::-1]
    time = r.uniform(0, 30)
    if r.random() < 0.5:
        label, protocol = "question", 17
        frames = [udp(client, server, there, r.randint(20, 60))]
        frames.append(udp(server, client, back, r.randint(40, 300)))
    else:
        label, protocol = "bulk", 6
        frames = [tcp(client, server, there, SYN, 0), tcp(server, client, back, SYN | ACK, 0)]
        frames += [tcp(server, client, back, ACK, r.randint(500, 1400)) for _ in range(12)]
        frames += [tcp(client, server, there, FIN | ACK, 0), tcp(server, client, back, FIN, 0)]
    timed = []
    for data in frames:
        timed.append((time, data))
        time += r.uniform(0.0001, 0.05)
    ends = (".".join(map(str, client)), there[0], ".".join(map(str, server)), there[1])
    return timed, label, (*ends, protocol)


def pcap(packets):
    out = [struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)]
    for time, data in packets:
        whole, part = divmod(round(time * 1e6), 10**6)
        out.append(struct.pack("<IIII", START + whole, part, len(data), len(data) + 4) + data)
    return b"".join(out)


def labelled_capture(flows, seed=0):
    """Bytes of a capture, and of the CSV table that labels its flows."""
    r = random.Random(seed)
    made = [connection(r, number) for number in range(flows)]
    packets = sorted(packet for timed, _, _ in made for packet in timed)
    lines = ["source,source_port,destination,destination_port,protocol,label"]
    lines += [",".join(map(str, (*key, label))) for _, label, key in made]
    return pcap(packets), "\n".join(lines).encode() + b"\n"
