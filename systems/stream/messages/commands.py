# SPDX-License-Identifier: Apache-2.0
"""``n3ic stream send`` and ``receive``.

This module must import quickly: a command imports what it needs when it runs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from n3ic.cli.console import counting_bar, print_json, print_note, print_result
from n3ic.errors import UsageError

if TYPE_CHECKING:
    from n3ic.systems.stream.messages.devices import TransferDevice

_UNITS = {"k": 10**3, "m": 10**6, "g": 10**9}

JsonFlag = Annotated[bool, typer.Option("--json", help="Print as JSON.")]
Device = Annotated[
    str, typer.Option(help="cpu, cuda or simulator; default: cuda if there is a GPU.")
]
DeviceMemory = Annotated[
    str, typer.Option(help="Most bytes of the device's memory to use, such as 2G; default: all.")
]


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


def _device(name: str, memory: str) -> Callable[[], TransferDevice]:
    """Return what opens the device; opens it once as a test."""
    from n3ic.systems.stream.messages.devices import open_device

    limit = parse_bytes(memory, "--device-memory") if memory else None
    make = partial(open_device, name, limit)
    make().close()
    return make


def _address(text: str, option: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not (host and port.isdecimal() and int(port) < 1 << 16):
        raise UsageError(f"{option}: expected HOST:PORT, got {text!r}")
    return host, int(port)


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
    device_memory: DeviceMemory = "",
    seed: Annotated[int, typer.Option(help="Seed of random weights.", min=0)] = 0,
) -> None:
    """Receive messages, run a model on each, and print one line of JSON per message.

    Losses are reported by reason at the end. Ctrl-C ends it.
    """
    from n3ic.systems.stream.messages.service import (
        MessageReceiver,
        ReceiverOptions,
        serve_model,
    )

    make = _device(device, device_memory)
    options = ReceiverOptions(
        address=_address(listen, "--listen"),
        way=way,
        timeout_s=timeout,
        rows=rows,
        packet_bytes=parse_bytes(packet, "--packet"),
        seed=seed,
    )

    def line(text: str) -> None:
        print_result(text)
        sys.stdout.flush()  # a reader at the other end of a pipe waits for the line

    serve_model(MessageReceiver(model, make, options), line, print_note)
