# SPDX-License-Identifier: Apache-2.0
"""Images in many packets over UDP and DPDK, which reach PyTorch in three functions, a way each."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from n3ic.errors import N3icError, UsageError
from n3ic.exporters.xdp.links import SET_TX_CHECKSUM, add_link, own_network, run_ip, switch_offload
from n3ic.systems.stream.functions.chain import ChainFunction, FunctionChain
from n3ic.systems.stream.functions.supervisor import ChainSupervisor, ask
from n3ic.systems.stream.messages.bench import machine_load
from n3ic.systems.stream.messages.devices import open_device
from n3ic.systems.stream.messages.models import MessageModel, message_model
from n3ic.systems.stream.messages.netml_paper import paper_table
from n3ic.systems.stream.messages.sender import MessageSender
from n3ic.systems.stream.messages.service import digest_of
from n3ic.systems.stream.messages.transfers import TRANSFERS
from n3ic.util.display import TextTable

PART = 1024  # bytes of an image in a packet
_DISTINCT = 4  # different images; they are sent in turn
_PORT = 9700  # UDP port of the first way; the others follow
_NIC, _PEER, _FROM, _TO = "n3icdemo2", "n3icdemo3", "192.0.2.1", "192.0.2.2"
_AHEAD = 512  # packets that may be on their way
_RING = 1024  # frames of the port's ring
_PATIENCE_S, _PAUSE_S = 120.0, 0.002


@dataclass(frozen=True)
class TransferTimes:
    """The times of an image by one way, in milliseconds.

    Attributes:
        way: the way.
        image: number of the image; image 0 warms the caches.
        packets: from its first packet to its last.
        transfer: from its first packet until the device has all bytes.
        inference: time that the model takes.
        equal: whether the model's output equals its output for the bytes that were sent.
    """

    way: str
    image: int
    packets: float
    transfer: float
    inference: float
    equal: bool


@dataclass
class ImageFigures:
    """What became of the images so far.

    Attributes:
        model: name of the model.
        device: the device that ran it, or what stood in for one.
        image_bytes: bytes of an image.
        images: how many images are sent by each way.
        times: the times of each image by each way.
        lost: images that did not arrive whole, by way.
        port: what the port received and lost.
        balance: where the packets went, see :func:`.functions.manager.with_balance`.
        load: load of the machine.
    """

    model: str
    device: str
    image_bytes: int
    images: int
    times: list[TransferTimes] = field(default_factory=list)
    lost: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TRANSFERS, 0))
    port: Mapping[str, Any] = field(default_factory=dict)
    balance: Mapping[str, int] = field(default_factory=dict)
    load: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The figures as plain data."""
        return asdict(self)


def run_images(
    folder: Path, model: str, images: int, seed: int, told: Callable[[ImageFigures], object]
) -> ImageFigures:
    """Send images to three functions in turn, in a network namespace of their own.

    Every function sees all packets, in the same buffers, and takes those to its own UDP port.

    Args:
        folder: where functions write.
        model: a model of :func:`~n3ic.systems.stream.messages.models.message_model`.
        images: images that are sent by each way; one more is sent first and not counted.
        seed: seed of the images and the weights.
        told: called with the figures after each image.

    Raises:
        N3icError: This machine lacks something, or a function ended.
    """
    chosen = message_model(model, seed)
    rng = np.random.default_rng(seed)
    shape = min(images + 1, _DISTINCT), chosen.message_bytes
    payloads = rng.standard_normal((shape[0], shape[1] // 4), dtype=np.float32).view(np.uint8)
    with closing(open_device()) as device:
        figures = ImageFigures(model, device.ran, shape[1], images)
    expected = _computed(chosen, payloads)
    chain = FunctionChain(
        ports=(f"net_af_packet0,iface={_NIC},framecnt={_RING}",),
        receive=tuple(TRANSFERS),
        function=tuple(
            ChainFunction(way, "messages", options=_options(folder, model, seed, i), hang_s=120)
            for i, way in enumerate(TRANSFERS)
        ),
    )
    chain_ends = _ChainEnds(folder / "control")
    supervisor = ChainSupervisor(chain, chain_ends.socket, chain_ends.notes.append)
    jobs = list[Future[None]]()
    with own_network(), ThreadPoolExecutor(1) as pool:
        add_link(_NIC, _PEER)
        run_ip("address", "add", f"{_FROM}/24", "dev", _PEER)
        switch_offload(_PEER, SET_TX_CHECKSUM, on=False)  # functions check UDP's checksums
        send = partial(_send, folder, chain_ends, payloads, expected, figures, told)
        try:
            status = supervisor.run(lambda: jobs.append(pool.submit(send)))
        finally:
            chain_ends.ended.set()
    for job in jobs:
        job.result()
    figures.port, figures.balance = status["ports"][0], status["balance"]
    figures.load = machine_load()
    return figures


def image_tables(figures: ImageFigures) -> list[TextTable]:
    """A table of the three ways side by side, and the paper's own figures."""
    rows = []
    for way, found in TRANSFERS.items():
        times = [t for t in figures.times if t.way == way and t.image]
        columns = (
            [t.packets for t in times],
            [t.transfer for t in times],
            [t.transfer - t.packets for t in times],
            [t.inference for t in times],
            [t.transfer + t.inference for t in times],
        )
        said = (f"{min(c):.1f} / {median(c):.1f}" if c else "-" for c in columns)
        same = sum(t.equal for t in times)
        rows.append(
            (f"{found.paper} {way}", *said, str(figures.lost[way]), f"{same} of {len(times)}")
        )
    packets = -(-figures.image_bytes // PART)
    title = (
        f"{figures.images} images of {figures.image_bytes:,} bytes in {packets:,} packets over "
        f"UDP, DPDK, {figures.model}; ms, least / median"
    )
    head = ("way", "packets come", "to device", "after last", "inference", "in all", "lost",
            "equal")  # fmt: skip
    return [TextTable(title, head, tuple(rows)), paper_table("models")]


class _ChainEnds:
    """Notices when a chain or one of its functions ends.

    Args:
        socket: the chain's socket.
    """

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self.notes: list[str] = []
        self.ended = threading.Event()

    def check(self) -> None:
        """Check that the chain and its functions are running.

        Raises:
            N3icError: One of them ended.
        """
        if self.notes or self.ended.is_set():
            raise N3icError(f"before all images came: {'; '.join(self.notes) or 'the chain ended'}")


def _options(folder: Path, model: str, seed: int, index: int) -> dict[str, Any]:
    way = [*TRANSFERS][index]
    said = {"model": model, "way": way, "port": _PORT + index, "seed": seed, "timeout": 5.0}
    return {**said, "out": str(folder / f"{way}.jsonl")}


def _computed(model: MessageModel, payloads: NDArray[np.uint8]) -> list[str]:
    """The digests of the model's outputs for the payloads themselves."""
    with closing(open_device()) as device:
        work = model.on(device)
        out = []
        for payload in payloads:
            rows = device.tensor(1, len(payload))[:, : len(payload)]
            rows.copy_(torch.from_numpy(payload))
            out.append(digest_of(work(rows, [])))
        return out


def _send(
    folder: Path,
    chain: _ChainEnds,
    payloads: NDArray[np.uint8],
    expected: list[str],
    figures: ImageFigures,
    told: Callable[[ImageFigures], object],
) -> None:
    """Send each image by each way in turn, then end the chain."""
    packets = seen = 0

    def room(count: int) -> None:
        """Wait until few enough packets are on their way to send ``count`` more."""
        nonlocal packets, seen
        end = time.monotonic() + _PATIENCE_S
        while packets - seen > _AHEAD:
            chain.check()
            port = ask(chain.socket, "status")["status"]["ports"][0]
            seen = port["received"] + sum(port["losses"].values())
            if time.monotonic() > end:
                raise N3icError(f"{_NIC} receives no packets")
        packets += count

    for way in TRANSFERS:
        (folder / f"{way}.jsonl").touch()
    try:
        for number in range(figures.images + 1):
            payload = payloads[number % len(payloads)]
            for i, way in enumerate(TRANSFERS):
                with closing(MessageSender(_TO, _PORT + i, PART)) as sender:
                    sender.send(number, payload, room)
                line = _line(chain, folder / f"{way}.jsonl", number)
                if line is None:
                    figures.lost[way] += 1
                else:
                    times = line["packets_ms"], line["transfer_ms"], line["inference_ms"]
                    equal = line["digest"] == expected[number % len(payloads)]
                    figures.times.append(TransferTimes(way, number, *times, equal))
                told(figures)
    finally:
        with suppress(UsageError):  # the chain has already ended
            ask(chain.socket, "end")


def _line(chain: _ChainEnds, path: Path, number: int) -> dict[str, Any] | None:
    """Wait for the line about a message; None if the message failed, or no line comes."""
    end = time.monotonic() + _PATIENCE_S
    while time.monotonic() < end:
        chain.check()
        lines = path.read_text("utf-8").splitlines(keepends=True)
        for text in lines:
            if text.endswith("\n") and (found := json.loads(text))["message"] == number:
                return found if "digest" in found else None
        time.sleep(_PAUSE_S)
    return None
