# SPDX-License-Identifier: Apache-2.0
"""Random specifications and random traffic for them, the hostile kind included."""

from n3ic.meter.clock import FAR_NS
from n3ic.model.meter_spec import Decision, Guard, MeteredFeature, MeterSpec, Register, Step, Window
from n3ic.targets.fuzz_traffic import fuzz_frames

FIELDS = (
    "wire_length", "ip_length", "payload_length", "time", "gap", "protocol", "ttl", "tcp_flags",
    "tcp_window", "directed_wire_length", "directed_ip_length", "directed_payload_length",
    "tcp_repeated", "tcp_skipped",
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


def random_register(r, i, fields=FIELDS):
    update = r.choice(["count", "sum", "min", "max", "first", "last", "or", "nth", "within"])
    field = "" if update == "count" else r.choice(fields)
    width = r.choice([1, 3, 8, 16, 24, 32, 48, 64])
    more = {"nth": {"packet": r.choice([1, 2, 3, 8, 32])}, "within": random_range(r)}.get(
        update, {}
    )
    if more.get("packet", 0) > 8:
        width = min(width, 16)  # a flow keeps 4,096 bits
    if update not in ("count", "within") and r.random() < 0.3:
        more["scale"] = "log"
    return Register(f"r{i}", update, field, random_guard(r), width, **more)


def random_range(r):
    low = r.choice([0, 0, 1, 7, 41, 2048, 2**17 - 1, 2**17])
    return {"low": low, "high": low + r.choice([0, 1, 60, 1500])}


def random_sequence(r, length, fields):
    """Registers of the first packets of one guard: lengths and gaps."""
    guard = random_guard(r)
    fields = {"directed_ip_length": 12, r.choice(fields): r.choice([8, 9, 16])}
    return [
        Register(f"{field}{k}", "nth", field, guard, width, packet=k,
                 scale="log" if field == "gap" else "linear")
        for field, width in fields.items()
        for k in range(1, length + 1)
    ]  # fmt: skip


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


def random_decision(r):
    """A decision once, again and again, or at some points; each with and without a time."""
    if r.random() < 0.4:
        points = sorted(r.sample(range(1, 13), r.randint(1, 5)))
        return Decision(after=r.choice([0, 1, 7, 20]), schedule=tuple(points))
    return Decision(r.choice([0, 1, 3, 8]), r.choice([0, 0, 20]), r.random() < 0.5)


def random_spec(r):
    key = r.choice(["five-tuple"] * 4 + ["host-pair", "source-host"])
    fields = FIELDS if key == "five-tuple" else FIELDS[:-2]
    registers = tuple(random_register(r, i, fields) for i in range(r.randint(1, 24)))
    if r.random() < 0.4:
        registers += tuple(random_sequence(r, r.choice([1, 4, 8, 30]), fields))
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
        decision=random_decision(r),
        fragments=r.choice(["by-identification", "aside"]),
        tick_ns=1,
    )


def large_spec(r, key, *, registers, features, windows, flows):
    """A specification of so many registers, features, and windows over that many flows."""
    fields = FIELDS if key == "five-tuple" else FIELDS[:-2]
    state = tuple(random_register(r, i, fields) for i in range(registers))
    programs = [random_program(r, state) for _ in range(features)]
    parts = PARTS[key]
    return MeterSpec(
        state,
        tuple(
            MeteredFeature(f"f{i}", "" if program else r.choice(state).name, program)
            for i, program in enumerate(programs)
        ),
        key=key,
        windows=tuple(
            Window(f"w{i}", flows - i % 7, tuple(r.sample(parts, r.randint(1, len(parts)))))
            for i in range(windows)
        ),
        idle_timeout=50,
        active_timeout=30,
        ends=("fin", "rst") if key == "five-tuple" else (),
        decision=Decision(3, 20, True),
        tick_ns=1,
    )


def random_frames(r, count, tick_ns=1, tunnels=()):
    """Frames with their lengths and times, which go back now and then, also very far."""
    hour, years = FAR_NS // tick_ns, 10**18 // tick_ns
    far = [way * (hour + d) for d in (-1, 0, 1, 60) for way in (1, -1)]
    # steps far back are rare, because they end all flows
    steps = [0, 0, 1, 1, 2, 7, 60, -3] * 64 + [*far, 20 * hour]
    return list(fuzz_frames(r, count, steps, [*far, years, -years], tunnels))


def edge_frames():
    """TCP and UDP packets at every limit of what the parser reads at once, with their lengths."""
    v4 = bytes.fromhex("45000000 00000000 4006 0000 0a000001 0a000002")
    v6 = bytes.fromhex("60000000 0000 06 40") + bytes(15) + b"\1" + bytes(15) + b"\2"
    tcp = bytes.fromhex("04000050 00000001 00000001 50180400 00000000")
    frames = []

    def add(header, body, captured=None, length=None):
        frame = bytes(12) + (b"\x08\0" if header[0] >> 4 == 4 else b"\x86\xdd") + header + body
        data = frame[:captured]
        frames.append((data, len(data) if length is None else length, len(frames)))

    for plain, protocol, total in ((v4, 9, 2), (v6, 6, 4)):
        for kind in (6, 17, 1):
            header = bytearray(plain)
            header[protocol] = kind
            for captured in range(30, 100):
                add(bytes(header), tcp + bytes(26), captured)
            for length in (0, 13, 14, 33, 34, 49, 50, 53, 54, 69, 70, 71, 1 << 31, (1 << 32) - 1):
                add(bytes(header), tcp + bytes(26), length=length)
            for stated in (
                0,
                1,
                7,
                8,
                19,
                20,
                21,
                27,
                28,
                39,
                40,
                41,
                46,
                47,
                66,
                67,
                32767,
                65535,
            ):
                header[total : total + 2] = stated.to_bytes(2, "big")
                for words in range(16):
                    body = tcp[:12] + bytes([words << 4]) + tcp[13:] + bytes(26)
                    add(bytes(header), body)
    for protocol in range(256):
        add(v4[:9] + bytes([protocol]) + v4[10:], tcp)
        add(v6[:6] + bytes([protocol]) + v6[7:], tcp)
    for first in range(256):  # versions and sizes of headers
        add(bytes([first]) + v4[1:], tcp + bytes(50))
        add(bytes([first]) + v6[1:], tcp + bytes(50))
    for fragment in (0x4000, 0x8000, 0x2000, 0x1, 0x1FFF, 0xE000):
        add(v4[:6] + fragment.to_bytes(2, "big") + v4[8:], tcp)
    for hops in (0, 6, 17, 0x40):  # and checksums, in whose place a parser must not read
        for protocol in (1, 6, 17):
            for checksum in (b"\6\6", b"\x11\x11", b"\0\0"):
                add(v4[:8] + bytes([hops, protocol]) + checksum + v4[12:], tcp)
            add(v6[:6] + bytes([protocol, hops]) + b"\6\x11" + v6[10:], tcp)
    for kind in (0, 43, 44, 58, 60):
        add(v6[:6] + bytes([kind]) + v6[7:], bytes([6]) + bytes(7) + tcp)
    return frames
