# SPDX-License-Identifier: Apache-2.0
"""The three forms of a packet task: reference, C and Verilog."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from n3ic.systems.card.netfpga.write import task_memory
from n3ic.systems.card.tasks.kind import FOLDER, FRAME_HEAD, Entries, TaskState, kind_of

BENCH = Path(__file__).with_name("task_tb.v")
Step = tuple[int, int, int | bytes]
"""0, address, word; 1, gap, head; or 2, address, 0 for a read."""


@dataclass(frozen=True)
class Seen:
    """What a form answers: words read, and heads with their classes; clocks in Verilog."""

    answers: tuple[tuple[str, int], ...]
    clocks: tuple[int, ...] = ()


def head_of(name: str) -> int:
    """Bytes of a head that the task gets."""
    return FRAME_HEAD + kind_of(name).header


def referenced(state: TaskState, steps: Sequence[Step]) -> Seen:
    """What the reference answers."""
    out: list[tuple[str, int]] = []
    for kind, a, b in steps:
        if isinstance(b, bytes):
            head = bytearray(b)
            verdict = state.run(head)
            out.append((head.hex(), verdict))
        elif kind == 0:
            state.write(a, b)
        else:
            out.append(("", state.read(a)))
    return Seen(tuple(out))


class _Kind(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_size_t),
        ("has_class", ctypes.c_int),
        ("write", ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32)),
        ("read", ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_void_p, ctypes.c_uint32)),
        ("run", ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_void_p, ctypes.c_char_p)),
    )


def in_c(name: str, entries: Entries, steps: Sequence[Step], work: Path) -> Seen:
    """What the C answers, with sanitizers off and warnings as errors."""
    out = work / f"{name}.so"
    command = ["cc", "-std=c11", "-O1", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-shared"]
    command += ["-fPIC", f"-I{FOLDER}", str(FOLDER / name / f"{name}.c"), "-o", str(out)]
    subprocess.run(command, check=True, timeout=60)
    kind = _Kind.in_dll(ctypes.CDLL(str(out)), f"card_task_{name}")
    assert bool(kind.has_class) == bool(kind_of(name).classes)
    state = ctypes.create_string_buffer(kind.size)
    for index, words in entries.items():
        for at, word in enumerate(words):
            kind.write(state, index << 4 | at, word)
    answers: list[tuple[str, int]] = []
    for what, a, b in steps:
        if isinstance(b, bytes):
            head = ctypes.create_string_buffer(b, len(b))
            verdict = kind.run(state, ctypes.cast(head, ctypes.c_char_p))
            answers.append((head.raw.hex(), int(verdict)))
        elif what == 0:
            kind.write(state, a, b)
        else:
            answers.append(("", int(kind.read(state, a))))
    return Seen(tuple(answers))


def in_verilog(
    name: str, entries: Entries, steps: Sequence[Step], work: Path, *, pauses: bool = False
) -> Seen:
    """What the Verilog answers in Icarus Verilog, and its clocks."""
    kind = kind_of(name)
    lines = [
        f"{what:x} {a:x} {(b[::-1].hex() if isinstance(b, bytes) else f'{b:x}')}\n"
        for what, a, b in steps
    ]
    (work / "in.txt").write_text("".join(lines))
    sources = [str(p) for p in (BENCH, FOLDER / name / f"n3ic_task_{name}.v", *FOLDER.glob("*.v"))]
    fifo = next(FOLDER.parents[2].glob("exporters/netfpga/rtl/n3ic_fifo.v"))
    options = [f"-DTASK=n3ic_task_{name}", f"-Ptask_tb.HEAD_W={8 * head_of(name)}"]
    if kind.entries:
        (work / f"{name}.mem").write_text(task_memory(kind, entries))
        options.append(f'-DMEM="{name}.mem"')
    if kind.counts:
        options.append("-DCOUNTS")
    if kind.memory:
        options += ["-DMEMORY", f"-Ptask_tb.SLOT_W={entries[0][0].bit_length() - 1}"]
    build = ["iverilog", "-g2005", "-o", "task.vvp", "-s", "task_tb", *options, *sources, str(fifo)]
    subprocess.run(build, cwd=work, check=True, timeout=60)
    run = ["vvp", "-n", "task.vvp", "+in=in.txt", "+out=out.txt", f"+pauses={int(pauses)}"]
    subprocess.run(run, cwd=work, check=True, timeout=60, capture_output=True)
    answers: list[tuple[str, int]] = []
    clocks = []
    for line in (work / "out.txt").read_text().splitlines():
        what, *fields = line.split()
        if what == "r":
            answers.append(("", int(fields[0], 16)))
        else:
            clocks.append(int(fields[0]))
            answers.append((bytes.fromhex(fields[1])[::-1].hex(), int(fields[2], 16)))
    return Seen(tuple(answers), tuple(clocks))


def trial(name: str, seed: int, count: int) -> tuple[Entries, list[Step]]:
    """Entries, and packets that meet them, with changes of entries and reads between them."""
    kind, rng = kind_of(name), np.random.default_rng(seed)
    entries = {i: kind.random_entry(rng) for i in range(kind.entries)}
    now = dict(entries)
    if kind.memory:
        entries[0] = (8,)  # keys meet each other in so few words
    steps: list[Step] = []
    for _ in range(count):
        if now and rng.random() < 0.05:
            index = int(rng.integers(kind.entries + 1))  # one that the table lacks, too
            words = kind.random_entry(rng)
            written = (
                words if rng.random() < 0.9 else words[:-1]
            )  # not whole: it changes nothing yet
            steps += [(0, index << 4 | at, word) for at, word in enumerate(written)]
            if written == words and index < kind.entries:
                now[index] = words
        if kind.counts and rng.random() < 0.1:
            steps.append((2, int(rng.integers(1 << 10)), 0))
        head = bytearray(rng.bytes(head_of(name)))
        head[12:14], head[14], head[23] = b"\x08\x00", 0x45, 17
        if rng.random() < 0.9:
            kind.aim(now, head, rng)
        steps.append((1, int(rng.choice([0, 0, 0, 1, 9])), bytes(head)))
    return entries, steps
