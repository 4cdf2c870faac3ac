# SPDX-License-Identifier: Apache-2.0
"""Capture files by seed: of every form that the formats allow, and of many that they do not."""

import struct


def damaged_capture(r):
    """Bytes of a pcap or pcapng file, now and then cut or with other bytes in it."""
    data = bytearray(r.choice([pcap, pcapng, pcapng])(r))
    kind = r.random()
    if kind < 0.25:
        del data[r.randint(0, len(data)) :]
    elif kind < 0.5:
        for _ in range(r.randint(1, 3)):
            data[r.randrange(len(data))] = r.choice([0, 1, 255, r.randrange(256)])
    return bytes(data)


def pcap(r):
    order = r.choice("<>")
    version = r.choice([2] * 9 + [1, 3]), r.choice([4] * 6 + [0, 1, 2, 3, 5])
    snapshot = r.choice([65535, 65535, 0, 20, 300_000, 2**31, 2**32 - 1, 1 << 18])
    link = r.choice([0, 1, 1, 101, 113, 276, 12, 14, 228, 229, 108, 104, 9, 1 << 16 | 1, 1 << 28])
    link |= r.choice([0] * 9 + [0x24000000, 0x14000000, 0xF4000000, 0x04000000])  # a check sequence
    magic = r.choice([0xA1B2C3D4, 0xA1B23C4D])
    out = struct.pack(order + "IHHiIII", magic, *version, 0, 0, snapshot, link)
    for _ in range(r.randint(0, 8)):
        size = r.choice([0, 1, 30, 60, 60, 100, 1500])
        length = r.choice([size, size, size, size + 4, 10])
        claimed = r.choice([size] * 12 + [size + 1, 2**31, 300_000])
        seconds = r.choice([0, 1, 1_700_000_000, 2**31 - 1, 2**31, 2**32 - 1])
        part = r.choice([0, 5, 999_999, 999_999_999, 2**31, 2**32 - 1])
        out += struct.pack(order + "IIII", seconds, part, claimed, length) + r.randbytes(size)
    return out


def pcapng(r):
    order = r.choice("<>")
    links = r.choice([1, 1, 14, 0, 113]), r.choice([14, 1])
    snapshot = r.choice([65535, 65535, 0, 100, 400_000])

    def block(kind, body):
        body += bytes(-len(body) % 4)
        size = len(body) + 12
        end = size + 4 * (r.random() < 0.02)
        return struct.pack(order + "II", kind, size) + body + struct.pack(order + "I", end)

    def option():
        code = r.choice([9, 9, 13, 14, 2, 1, 0])
        value = r.randbytes(r.randint(0, 5))
        if code == 9:
            exact = [6, 9, 3, 0, 12, 15, 19, 0x80, 0x80 | 10, 0x80 | 20, 0x80 | 30, 0x80 | 35]
            value = bytes([r.choice([*exact, 20, 0x80 | 63, 0x80 | 64])])
        elif code == 13:
            value = bytes([r.choice([0, 4, 32, 16, 255])])
        elif code == 14:
            value = struct.pack(order + "Q", r.choice([0, 1, 100, 2**32, 2**63, 2**64 - 1]))
        elif code == 0:
            value = b""
        value += b"x" * (r.random() < 0.04)
        return struct.pack(order + "HH", code, len(value)) + value + bytes(-len(value) % 4)

    def options():
        return b"".join(option() for _ in range(r.randint(0, 3)))

    def section(order):
        version = r.choice([1] * 20 + [2]), r.choice([0] * 20 + [2, 1])
        body = struct.pack(order + "IHHq", 0x1A2B3C4D, *version, -1)
        return block(0x0A0D0D0A, body + (options() if r.random() < 0.2 else b""))

    def interface():
        link = links[r.random() > 0.8]
        size = snapshot if r.random() < 0.97 else 65535
        return block(1, struct.pack(order + "HHI", link, 0, size) + options())

    def packet(kind):
        size = r.choice([0, 1, 30, 60, 61, 100, 1500])
        data = r.randbytes(size)
        time = r.choice([0, 1, 1_700_000_000 * 10**6 + 5, 2**64 - 1, 2**63, 12345678901234567])
        number = r.choice([0] * 9 + [1, 2, 2**31])
        claimed = r.choice([size] * 15 + [size + 1, size + 4, size + 40, 2**31])
        length = r.choice([size, size + 4])
        rest = (time >> 32, time & 0xFFFFFFFF, claimed, length)
        if kind == 6:
            return block(6, struct.pack(order + "IIIII", number, *rest) + data)
        if kind == 2:
            return block(2, struct.pack(order + "HHIIII", number & 0xFFFF, 0, *rest) + data)
        if kind == 3:
            captured = r.choice([size] * 6 + [size + 1, size + 8, 2**32 - 1])
            return block(3, struct.pack(order + "I", captured) + data)
        return block(kind, data)

    out = section(order) + (interface() if r.random() < 0.95 else b"")
    for _ in range(r.randint(0, 10)):
        if r.random() < 0.05:
            order = r.choice("<>")
            out += section(order) + interface()
            continue
        kind = r.choice([6] * 8 + [2, 3, 3, 1, 1, 5, 0xBAD, 10])
        out += interface() if kind == 1 else packet(kind)
    return out
