"""Random specifications and random traffic for them, the hostile kind included."""

from n3ic.meter.hostile import hostile_frames
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


def large_spec(r, key, *, registers, features, windows, flows):
    """A specification of so many registers, features, and windows over that many flows."""
    state = tuple(random_register(r, i) for i in range(registers))
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


def random_frames(r, count):
    """Frames with their lengths and times, which go back now and then."""
    return list(hostile_frames(r, count, [0, 0, 1, 1, 2, 7, 60, -3]))
