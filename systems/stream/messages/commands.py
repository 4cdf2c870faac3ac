# SPDX-License-Identifier: Apache-2.0
"""``n3ic stream send``, ``receive``, ``bench`` and ``train``.

This module must import quickly: a command imports what it needs when it runs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import closing
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from n3ic.cli.console import (
    counting_bar,
    print_json,
    print_note,
    print_result,
    progress_bar,
    show_table,
)
from n3ic.errors import UsageError

if TYPE_CHECKING:
    from n3ic.systems.stream.messages.devices import TransferDevice
    from n3ic.util.display import TextTable

_UNITS = {"k": 10**3, "m": 10**6, "g": 10**9}


class MessageBench(StrEnum):
    """What is measured."""

    TRANSFER = "transfer"
    MODELS = "models"
    MEMORY = "memory"
    ALL = "all"


JsonFlag = Annotated[bool, typer.Option("--json", help="Print as JSON.")]
Device = Annotated[
    str, typer.Option(help="cpu, cuda or simulator; default: cuda if there is a GPU.")
]
Ways = Annotated[str, typer.Option(help="Ways to the device: copy, gather, pull.")]
DeviceMemory = Annotated[
    str, typer.Option(help="Most bytes of the device's memory to use, such as 2G; default: all.")
]
PageKind = Annotated[str, typer.Option(help="Memory of packet buffers: huge, ordinary or library.")]


def parse_bytes(text: str, option: str) -> int:
    """Parse a number of bytes such as ``500K`` (powers of ten).

    Raises:
        UsageError: ``text`` is not a number of bytes.
    """
    number, unit = text.strip(), 1
    if number[-1:].lower() in _UNITS:
        number, unit = number[:-1], _UNITS[number[-1].lower()]
    try:
        count = int(float(number) * unit)
    except (ValueError, OverflowError):
        count = 0
    if count < 1:
        raise UsageError(f"{option}: expected bytes such as 1024, 500K or 4M, got {text!r}")
    return count


def _device(name: str, memory: str) -> tuple[Callable[[], TransferDevice], str]:
    """Return what opens the device, and what ran in its place; opens it once as a test."""
    from n3ic.systems.stream.messages.devices import open_device

    limit = parse_bytes(memory, "--device-memory") if memory else None
    make = partial(open_device, name, limit)
    with closing(make()) as device:
        return make, device.ran


def _address(text: str, option: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not (host and port.isdecimal() and int(port) < 1 << 16):
        raise UsageError(f"{option}: expected HOST:PORT, got {text!r}")
    return host, int(port)


def _list(text: str, option: str) -> list[int]:
    return [parse_bytes(part, option) for part in text.split(",")]


def bench(
    what: Annotated[
        MessageBench, typer.Argument(help="transfer, models, memory or all.")
    ] = MessageBench.TRANSFER,
    device: Device = "",
    ways: Ways = "copy,gather,pull",
    sizes: Annotated[
        str, typer.Option(help="Message sizes, for transfer.")
    ] = "10K,100K,500K,1M,4M",
    parts: Annotated[str, typer.Option(help="Bytes of a message in a packet.")] = "256,512,1024",
    models: Annotated[
        str, typer.Option(help="Models: vgg11, tiny-yolo, flow-mlp, binary, or model files.")
    ] = "vgg11,tiny-yolo,flow-mlp,binary",
    repeats: Annotated[int, typer.Option(help="Messages of each kind and way.", min=1)] = 10,
    pages: PageKind = "huge",
    device_memory: DeviceMemory = "",
    seed: Annotated[int, typer.Option(help="Seed of messages and weights.", min=0)] = 0,
    json: JsonFlag = False,
) -> None:
    """Measure the three ways of messages to a model, side by side, over loopback."""
    from n3ic.systems.stream.messages import bench as run
    from n3ic.systems.stream.messages import tables
    from n3ic.systems.stream.messages.buffers import page_kind
    from n3ic.systems.stream.messages.transfers import transfer_named

    make, ran = _device(device, device_memory)
    methods = [transfer_named(name) for name in ways.split(",")]
    kind = page_kind(pages)
    size_list, part_list = _list(sizes, "--sizes"), _list(parts, "--parts")
    report: dict[str, Any] = {"ran": ran, "load_before": run.machine_load()}
    text_tables: list[TextTable] = []
    kinds = [m for m in MessageBench if m != "all"] if what == "all" else [what]
    for each in kinds:
        with progress_bar(f"measuring {each.value}") as report_progress:
            if each == MessageBench.TRANSFER:
                figures = run.bench_transfer(
                    *(make, methods, size_list, part_list, repeats),
                    pages=kind,
                    seed=seed,
                    report_progress=report_progress,
                )
                report["transfer"] = [figure.to_dict() for figure in figures]
                text_tables += tables.transfer_tables(figures)
            elif each == MessageBench.MODELS:
                figures, alone = run.bench_models(
                    *(make, methods, models.split(","), part_list, repeats),
                    pages=kind,
                    seed=seed,
                    report_progress=report_progress,
                )
                report["models"] = [figure.to_dict() for figure in figures]
                report["alone_ms"] = alone
                text_tables += tables.model_tables(figures, alone)
            else:
                rates = run.bench_memory(
                    make, repeats=min(repeats, 5), report_progress=report_progress
                )
                report["memory"] = [tables.plain(rate) for rate in rates]
                text_tables += tables.memory_tables(rates, ran.startswith("CUDA"))
    report["load_after"] = run.machine_load()
    if json:
        print_json(report)
        return
    for one in text_tables:
        show_table(one)
    print_result(f"{ran}; before: {report['load_before']}; after: {report['load_after']}")


def send(
    files: Annotated[list[Path], typer.Argument(help="Files; each is one message.")],
    to: Annotated[str, typer.Option(help="The receiver: HOST:PORT.")],
    part: Annotated[
        str, typer.Option(help="Bytes of a message in a packet, a multiple of 4.")
    ] = "1024",
    rate: Annotated[str, typer.Option(help="Most bits per second, as 100M; 0: no limit.")] = "0",
    json: JsonFlag = False,
) -> None:
    """Send files as messages of many packets over UDP.

    UDP loses packets for which the receiver has no room: limit the rate.
    """
    from n3ic.systems.stream.messages.protocol import HEADER_BYTES
    from n3ic.systems.stream.messages.sender import MessageSender, first_number, read_message

    payloads = [read_message(path) for path in files]
    size = parse_bytes(part, "--part")
    bits = 0 if rate == "0" else parse_bytes(rate, "--rate")
    number = first = first_number()
    packets = 0
    with (
        closing(
            MessageSender(*_address(to, "--to"), size, bits / (8 * (size + HEADER_BYTES)))
        ) as out,
        counting_bar(f"sending to {to}", "messages") as report_count,
    ):
        for payload in payloads:
            packets += out.send(number, payload)
            number += 1
            report_count(number - first)
    totals = {"messages": number - first, "packets": packets, "first": first}
    if json:
        print_json(totals)
    else:
        print_result(f"{number - first:,} messages in {packets:,} packets, numbered from {first}")


def receive(
    model: Annotated[
        str, typer.Option(help="vgg11, tiny-yolo, flow-mlp, binary, a model file or a run.")
    ],
    listen: Annotated[str, typer.Option(help="Own address: HOST:PORT.")] = "127.0.0.1:9700",
    way: Annotated[str, typer.Option(help="Way to the device: copy, gather or pull.")] = "pull",
    device: Device = "",
    timeout: Annotated[
        float, typer.Option(help="Seconds from a message's first packet to its last.", min=0.001)
    ] = 2.0,
    rows: Annotated[
        int, typer.Option(help="Messages that may be incomplete or computed at once.", min=1)
    ] = 8,
    packet: Annotated[str, typer.Option(help="Bytes of the largest packet.")] = "2048",
    pages: PageKind = "huge",
    device_memory: DeviceMemory = "",
    seed: Annotated[int, typer.Option(help="Seed of random weights.", min=0)] = 0,
) -> None:
    """Receive messages, run a model on each, and print one line of JSON per message.

    Losses are reported by reason at the end. Ctrl-C ends it.
    """
    from n3ic.systems.stream.messages.buffers import page_kind
    from n3ic.systems.stream.messages.service import (
        MessageReceiver,
        ReceiverOptions,
        serve_model,
    )

    make, _ = _device(device, device_memory)
    options = ReceiverOptions(
        address=_address(listen, "--listen"),
        way=way,
        timeout_s=timeout,
        rows=rows,
        packet_bytes=parse_bytes(packet, "--packet"),
        pages=page_kind(pages),
        seed=seed,
    )

    def line(text: str) -> None:
        print_result(text)
        sys.stdout.flush()  # a reader at the other end of a pipe waits for the line

    serve_model(MessageReceiver(model, make, options), line, print_note)


def train(
    task: Annotated[str, typer.Argument(help="digits or flows.")] = "digits",
    data: Annotated[
        str, typer.Option(help="Data set of the flows, one with embedded rows.")
    ] = "cic-ids2017",
    batches: Annotated[str, typer.Option(help="Messages of a step.")] = "50,80,100",
    ways: Ways = "gather,pull",
    part: Annotated[str, typer.Option(help="Bytes of a message in a packet.")] = "128",
    repeats: Annotated[int, typer.Option(help="Epochs of each kind; medians count.", min=1)] = 3,
    device: Device = "",
    pages: PageKind = "huge",
    device_memory: DeviceMemory = "",
    seed: Annotated[int, typer.Option(help="Seed of order, weights and dropout.", min=0)] = 0,
    json: JsonFlag = False,
) -> None:
    """Train for one epoch on messages as they arrive, by each way, and compare the weights."""
    from n3ic.systems.stream.messages.bench import machine_load
    from n3ic.systems.stream.messages.buffers import page_kind
    from n3ic.systems.stream.messages.tables import training_tables
    from n3ic.systems.stream.messages.tasks import task_named
    from n3ic.systems.stream.messages.training import bench_training
    from n3ic.systems.stream.messages.transfers import transfer_named

    make, ran = _device(device, device_memory)
    before = machine_load()
    with progress_bar(f"training on {task}") as report_progress:
        stream_task = task_named(task, data, seed)
        runs_of_ways = bench_training(
            *(stream_task, make, [transfer_named(name) for name in ways.split(",")]),
            *(_list(batches, "--batches"), parse_bytes(part, "--part"), repeats),
            pages=page_kind(pages),
            seed=seed,
            report_progress=report_progress,
        )
    after = machine_load()
    if json:
        runs = [run.to_dict() for repeated in runs_of_ways for run in repeated]
        about = {"ran": ran, "what": stream_task.what, "load_before": before, "load_after": after}
        print_json(about | {"runs": runs})
        return
    for one in training_tables(runs_of_ways, stream_task.what):
        show_table(one)
    print_result(f"{ran}; before: {before}; after: {after}")
