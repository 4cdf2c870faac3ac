"""Random specifications and random traffic for them, the hostile kind included."""

import struct

from n3ic.model.metering import Decision, Guard, MeteredFeature, MeterSpec, Register, Step, Window

FIELDS = (
    "wire_length", "ip_length", "payload_length", "time", "gap", "protocol", "ttl", "tcp_flags",
    "tcp_window",
)  # fmt: skip
PARTS = {
    "five-tuple": ["source", "destination", "protocol", "source_port", "destination_port"],
    "host-pair": ["source", "destination"],
    "source-host": ["source"],
}


def random_guard(r):
    flags_set = r.choice([0, 0, 0, 2, 16, 18])
    return Guard(
        direction=r.choice(["both", "forward", "reverse"]),
        protocols=r.choice([(), (), (6,), (17,), (6, 17)]),
        flags_set=flags_set,
        flags_clear=r.choice([0, 0, 4, 1]) & ~flags_set,
        payload=r.choice(["any", "any", "some", "none"]),
    )


def random_register(r, i):
    update = r.choice(["count", "sum", "min", "max", "first", "last", "or"])
    field = "" if update == "count" else r.choice(FIELDS)
    width = r.choice([1, 3, 8, 16, 24, 32, 48, 64])
    return Register(f"r{i}", update, field, random_guard(r), width)


def random_program(r, registers):
    names = [x.name for x in registers if x.largest < 2**50]
    narrow = [x.name for x in registers if x.largest < 2**32]
    steps = []
    for j in range(r.randint(1, 5) if names else 0):
        operation = r.choice(["add", "sub", "min", "max", "shift"])
        operands = [*names, *(f"${k}" for k in range(j))]
        left = r.choice(operands)
        if operation == "shift":
            steps.append(Step("shift", left, amount=r.randint(0, 20)))
        elif r.random() < 0.2:
            steps.append(Step(operation, left, amount=r.choice([0, 1, 134, 2**32 - 1])))
        else:
            steps.append(Step(operation, left, r.choice(operands)))
    if narrow and r.random() < 0.5:
        steps.append(Step("quotient", r.choice(narrow), r.choice(narrow), r.choice([1, 8, 1000])))
    return tuple(steps)


def random_spec(r):
    key = r.choice(["five-tuple"] * 4 + ["host-pair", "source-host"])
    registers = tuple(random_register(r, i) for i in range(r.randint(1, 24)))
    features = []
    for i in range(r.randint(1, 10)):
        program = random_program(r, registers) if r.random() < 0.6 else ()
        register = "" if program else r.choice(registers).name
        features.append(MeteredFeature(f"f{i}", register, program))
    parts = PARTS[key]
    windows = tuple(
        Window(f"w{i}", r.choice([1, 2, 5, 100]), tuple(r.sample(parts, r.randint(1, len(parts)))))
        for i in range(r.randint(0, 3))
    )
    return MeterSpec(
        registers,
        tuple(features),
        key=key,
        windows=windows,
        idle_timeout=r.choice([5, 50, 10**6]),
        active_timeout=r.choice([0, 0, 30]),
        cache_flows=r.choice([1, 3, 20, 1000]),
        when_full=r.choice(["evict-oldest", "drop-new"]),
        ends=() if key != "five-tuple" else r.choice([(), ("fin",), ("rst",), ("fin", "rst")]),
        decision=Decision(r.choice([0, 1, 3, 8]), r.choice([0, 0, 20]), r.random() < 0.5),
        fragments=r.choice(["by-identification", "aside"]),
        tick_ns=1,
    )


def random_frame(r):
    """Captured bytes and length on the wire of an Ethernet frame: cut, damaged, or sound."""
    version_6 = r.random() < 0.3

    def address():
        return (bytes(15) if version_6 else bytes([10, 0, 0])) + bytes([r.randint(1, 4)])

    protocol = r.choice([6, 6, 6, 17, 17, 1, 50])
    data = bytes(r.choice([0, 0, 1, 20, 300]))
    ports = r.randint(1, 3), r.randint(1, 3)
    if protocol == 6:
        offset, flags = (
            r.choice([0x50, 0x50, 0x80, 0x10]),
            r.choice([2, 18, 16, 16, 16, 24, 17, 20]),
        )
        rest = (0, 0, offset, flags, r.randint(0, 65535), 0, 0)
        transport = struct.pack(">HHIIBBHHH", *ports, *rest) + data
    elif protocol == 17:
        transport = struct.pack(">HHHH", *ports, 8 + len(data), 0) + data
    else:
        transport = data
    if version_6:
        following, extension = protocol, b""
        if r.random() < 0.2:
            offset = r.choice([1, 8, 9, 0])
            extension = struct.pack(">BBHI", protocol, 0, offset, r.randint(0, 2))
            following = 44
        length = r.choice([len(extension) + len(transport)] * 8 + [0, 65535])
        following = r.choice([following] * 9 + [0])
        header = struct.pack(">IHBB", 6 << 28, length, following, r.randint(1, 255))
        packet = header + address() + address() + extension + transport
    else:
        total = r.choice([20 + len(transport)] * 8 + [0, 10, 65535])
        fragment = r.choice([0] * 8 + [0x2000, 2, 0x4000])
        ttl = r.randint(1, 255)
        header = struct.pack(
            ">BBHHHBBH", 0x45, 0, total, r.randint(0, 2), fragment, ttl, protocol, 0
        )
        packet = header + address() + address() + transport
    tags = r.choice([b""] * 6 + [b"\x81\0\0\1", b"\x88\xa8\0\1\x81\0\0\1", b"\x81\0\0\1" * 3])
    frame = bytes(12) + tags + (b"\x86\xdd" if version_6 else b"\x08\x00") + packet
    length = r.choice([len(frame)] * 20 + [1, 2**32 - 1])
    if r.random() < 0.1:
        frame = frame[: r.randint(0, len(frame))]
    if frame and r.random() < 0.05:
        damaged = bytearray(frame)
        for _ in range(3):
            damaged[r.randrange(len(damaged))] = r.randrange(256)
        frame = bytes(damaged)
    return frame, length


def random_frames(r, count):
    """Frames with their lengths and times, which go back now and then."""
    time, out = 0, []
    for _ in range(count):
        time = max(0, time + r.choice([0, 0, 1, 1, 2, 7, 60, -3]))
        out.append((*random_frame(r), time))
    return out
