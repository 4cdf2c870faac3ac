# SPDX-License-Identifier: Apache-2.0
"""``n3ic stream send``, ``receive``, ``bench`` and ``train``.

This module must import quickly: a command imports what it needs when it runs.
"""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from n3ic.cli.console import print_json, print_result, progress_bar, show_table
from n3ic.errors import UsageError

if TYPE_CHECKING:
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
    str, typer.Option(help="cpu, cuda or simulator; default: cuda where there is a GPU.")
]
Ways = Annotated[str, typer.Option(help="Ways to the device: copy, gather, pull.")]
DeviceMemory = Annotated[
    str, typer.Option(help="Bytes that may be taken of the device, such as 2G; default: all.")
]


def parse_bytes(text: str, option: str) -> int:
    """A number of bytes such as ``500K`` (powers of ten).

    Raises:
        UsageError: it is none.
    """
    number, unit = text.strip(), 1
    if number[-1:].lower() in _UNITS:
        number, unit = number[:-1], _UNITS[number[-1].lower()]
    try:
        found = int(float(number) * unit)
    except (ValueError, OverflowError):
        found = 0
    if found < 1:
        raise UsageError(f"{option}: expected bytes such as 1024, 500K or 4M, got {text!r}")
    return found


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
    pages: Annotated[
        str, typer.Option(help="Memory of packet buffers: huge, ordinary or library.")
    ] = "huge",
    device_memory: DeviceMemory = "",
    seed: Annotated[int, typer.Option(help="Seed of messages and weights.", min=0)] = 0,
    json: JsonFlag = False,
) -> None:
    """Measure the three ways of messages to a model, side by side, over loopback."""
    from n3ic.systems.stream.messages import bench as run
    from n3ic.systems.stream.messages import tables
    from n3ic.systems.stream.messages.buffers import PAGE_KINDS
    from n3ic.systems.stream.messages.devices import open_device
    from n3ic.systems.stream.messages.ways import way_named

    memory = parse_bytes(device_memory, "--device-memory") if device_memory else None
    make = partial(open_device, device, memory)
    opened = make()
    ran = opened.ran
    opened.close()
    taken = [way_named(name) for name in ways.split(",")]
    kind = next((kind for kind in PAGE_KINDS if kind == pages), None)
    if kind is None:
        raise UsageError(f"--pages: expected {', '.join(PAGE_KINDS)}, got {pages!r}")
    size_list, part_list = _list(sizes, "--sizes"), _list(parts, "--parts")
    found: dict[str, Any] = {"device": opened.name, "ran": ran, "load_before": run.machine_load()}
    shown: list[TextTable] = []
    chosen = [m for m in MessageBench if m != "all"] if what == "all" else [what]
    for each in chosen:
        with progress_bar(f"measuring {each.value}") as told:
            if each == MessageBench.TRANSFER:
                figures = run.bench_transfer(
                    *(make, taken, size_list, part_list, repeats),
                    pages=kind,
                    seed=seed,
                    told=told,
                )
                found["transfer"] = [figure.to_dict() for figure in figures]
                shown += tables.transfer_tables(figures)
            elif each == MessageBench.MODELS:
                figures, alone = run.bench_models(
                    *(make, taken, models.split(","), part_list, repeats),
                    pages=kind,
                    seed=seed,
                    told=told,
                )
                found["models"] = [figure.to_dict() for figure in figures]
                found["alone_ms"] = alone
                shown += tables.model_tables(figures, alone)
            else:
                rates = run.bench_memory(repeats=min(repeats, 5), told=told)
                found["memory"] = [tables.plain(rate) for rate in rates]
                shown += tables.memory_tables(rates)
    found["load_after"] = run.machine_load()
    if json:
        print_json(found)
        return
    for one in shown:
        show_table(one)
    print_result(f"{ran}; before: {found['load_before']}; after: {found['load_after']}")
