# SPDX-License-Identifier: Apache-2.0
"""The demo's flows before and after the change, models trained before it, and a paced sender."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from n3ic.families.tables.settings import TablesTraining
from n3ic.families.tables.train import fit_tables
from n3ic.meter.compiled import CompiledMeter
from n3ic.meter.standard import standard_spec
from n3ic.model.classifier import Classifier
from n3ic.model.inputs import Field, InputSpec
from n3ic.training.input_bits import boosted_trees

METER = standard_spec(packets=4)
FEATURES = ("smaxlen", "sminlen", "dmaxlen", "dminlen")
SPEC = InputSpec(
    tuple(Field.thermometer(n, range(100, 1300, 100), unit=METER.units[n]) for n in FEATURES)
)
CLASSES = ("benign", "attack")
_TRAINING = 900  # flows
_SHUNT = 12  # margin below which the card shunts a flow
_LARGE = 800  # an attack's largest payload exceeds this many bytes
_SERVER, _PORTS = bytes([10, 255, 0, 1]), (1024, 53)
_AHEAD = 64  # packets that may be on their way; the ring of a veth end holds 256
_PATIENCE_S = 5.0


SecondStage = Callable[[NDArray[np.uint32]], NDArray[np.int64]]
"""From the meter's features, shape ``(flows, features)``, to classes, shape ``(flows,)``."""


class DemoFlow(NamedTuple):
    """A flow of four packets: two questions, two answers.

    Attributes:
        frames: its packets, as Ethernet carries them.
        label: index of its class.
    """

    frames: Sequence[bytes]
    label: int

    @property
    def client(self) -> bytes:
        """Address of the client."""
        return self.frames[0][26:30]


def flows(rng: np.random.Generator, start: int, count: int, *, changed: bool) -> list[DemoFlow]:
    """Make ``count`` flows, of clients numbered from ``start``.

    Before the change, an attack has a large question; after it, a large answer.
    """
    demo_flows = []
    for number in range(start, start + count):
        client = struct.pack(">I", (10 << 24) + number)
        sizes = rng.integers(30, 1250, 4)
        mark = sizes[2:] if changed else sizes[:2]
        frames = [_frame(client, _SERVER, _PORTS, int(size)) for size in sizes[:2]]
        frames += [_frame(_SERVER, client, _PORTS[::-1], int(size)) for size in sizes[2:]]
        demo_flows.append(DemoFlow(frames, int(mark.max() > _LARGE)))
    return demo_flows


def _frame(source: bytes, destination: bytes, ports: tuple[int, int], size: int) -> bytes:
    body = struct.pack(">HHHH", *ports, 8 + size, 0) + bytes(size)
    head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(body), 0, 0, 64, 17, 0)
    return bytes(12) + b"\x08\0" + head + source + destination + body


def trained(rng: np.random.Generator) -> tuple[Classifier, SecondStage]:
    """Train look-up tables for the card and boosted trees for the host, before the change."""
    features, label = metered(flows(rng, 0, _TRAINING, changed=False))
    settings = TablesTraining(tables=8, table_bits=3)
    bits = SPEC.encode(_columns(features))
    card = fit_tables(bits, np.eye(2)[label], SPEC, CLASSES, settings, name="flows")
    return card.changed(meter=METER, shunt=_SHUNT), second_stage(features, label)


def second_stage(features: NDArray[np.uint32], label: NDArray[np.int64]) -> SecondStage:
    """Train boosted trees, and return a function from the meter's features to classes.

    Args:
        features: the meter's features, shape ``(flows, features)``.
        label: class of each flow, shape ``(flows,)``.
    """
    trees = boosted_trees(_columns(features), label, rounds=40)

    def classes(flows: NDArray[np.uint32]) -> NDArray[np.int64]:
        rows = np.stack([*_columns(flows).values()], axis=1)
        return np.asarray(trees.predict(rows) if len(rows) else [], dtype=np.int64)

    return classes


def _columns(features: NDArray[np.uint32]) -> dict[str, NDArray[np.int64]]:
    every = dict(zip(METER.feature_names, features.astype(np.int64).T, strict=True))
    return {name: every[name] for name in FEATURES}


def metered(demo_flows: Sequence[DemoFlow]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """Meter flows.

    Returns:
        The features that the compiled meter computes, shape ``(flows, features)``, and the
        labels, shape ``(flows,)``.
    """
    frames = [data for flow in demo_flows for data in flow.frames]
    with CompiledMeter(METER, 1) as meter:
        records = meter.count([(data, len(data), i * 10) for i, data in enumerate(frames)])
    return records["features"], np.array([flow.label for flow in demo_flows])


def received(interface: str) -> int:
    """Number of packets that an interface of this thread's network namespace has received."""
    lines = Path("/proc/thread-self/net/dev").read_text("ascii").splitlines()
    return next(int(line.split()[2]) for line in lines if line.strip().startswith(f"{interface}:"))


class PacedSocket:
    """Sends frames out of one end of a link, never more than the other end has room for.

    Args:
        out: name of the interface that sends.
        to: name of the interface that receives.
    """

    def __init__(self, out: str, to: str) -> None:
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
        self._socket.bind((out, 0))
        self._to = to
        self._before, self._sent = received(to), 0

    def send(self, frames: Sequence[bytes]) -> None:
        """Send frames once few are on their way; after five seconds, the missing count as lost."""
        end = time.monotonic() + _PATIENCE_S
        while self._sent - (received(self._to) - self._before) > _AHEAD:
            if time.monotonic() > end:
                self._sent = received(self._to) - self._before
            time.sleep(0.0005)
        for data in frames:
            self._socket.send(data)
        self._sent += len(frames)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
