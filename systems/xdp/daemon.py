# SPDX-License-Identifier: Apache-2.0
"""What ``n3ic xdp`` does for ``n3icd``: it writes packs, and reads the flows that n3icd reports."""

from __future__ import annotations

import json as text
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from n3ic.cli.console import print_note, print_result
from n3ic.errors import UsageError
from n3ic.exporters.xdp import packing
from n3ic.exporters.xdp.plan import Choices, plan
from n3ic.exporters.xdp.policy_parser import check_times
from n3ic.model.classifier import Classifier
from n3ic.systems.xdp.debian_package import package
from n3ic.systems.xdp.deployment import attached_program, exported
from n3ic.systems.xdp.program_record import DaemonRecord, Interface
from n3ic.systems.xdp.terminal import line_of
from n3ic.util.files import free_path, write_atomic
from n3ic.util.signals import check

_LINE = 1 << 24  # maximum bytes of a line


def write_pack(export: Path, out: Path, choices: Choices) -> Classifier:
    """Write a pack for the daemon of an export.

    Args:
        export: a directory written by ``n3ic export --target xdp`` from a network with a meter.
        out: the file to write; an existing file is replaced. A name ending in ``.deb`` makes a
            Debian package of the daemon and the pack, for which the export must be built.
        choices: policies, rules, limits, sizes and networks.

    Returns:
        The network for flows without a matching rule.

    Raises:
        UsageError: A policy or rule is malformed, or can never act.
        ExportError: The directory is not an XDP export, or a network does not fit it.
    """
    model, _, table = exported(export)
    check_times(model)
    planned = plan(model, table, choices)
    data = packing.pack(export, planned)
    if out.suffix == ".deb":
        data = package(export, data)
    write_atomic(free_path(out, replace=True), data)
    return planned.models[choices.otherwise]


def follow_daemon(
    interface: Interface, *, seconds: float | None, most: int | None, json: bool
) -> bool:
    """Show the flows that ``n3icd`` reports.

    Args:
        interface: interface of the daemon.
        seconds: time limit in seconds; None for no limit.
        most: maximum number of flows; None for no limit.
        json: whether to print one line of JSON per flow.

    Returns:
        False if the interface's program does not belong to n3icd.

    Raises:
        UsageError: The daemon ended, or sent something that is not a flow.
    """
    end = None if seconds is None else time.monotonic() + seconds
    record, _ = attached_program(interface)
    if not isinstance(record, DaemonRecord):
        return False
    path = Path(record.socket)
    with socket.socket(socket.AF_UNIX) as reader:
        reader.settimeout(seconds)
        try:
            reader.connect(str(path))
        except OSError as error:
            raise UsageError(
                f"{path}: {error.strerror or error}: n3icd is not running; start it with "
                f"systemctl start n3icd@{interface.name}"
            ) from error
        messages = _lines(reader, path, end)
        hello = next(messages, {})
        space = Path("/proc/self/ns/net").stat().st_ino
        if (hello.get("index"), hello.get("namespace")) != (interface.index, space):
            raise UsageError(f"{path}: the n3icd of another interface")
        for flow in messages:
            if "lost" in flow:
                print_note(f"{interface.name}: {flow['lost']:,} flows came too fast to be shown")
                continue
            print_result(text.dumps(flow, sort_keys=True) if json else line_of(flow))
            most = None if most is None else most - 1
            if most == 0:
                break
    return True


def _lines(reader: socket.socket, path: Path, end: float | None) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects that a socket sends, one per line, until a time is reached."""
    partial = b""
    while True:
        check()
        if end is not None:
            if (remaining := end - time.monotonic()) <= 0:
                return
            reader.settimeout(remaining)
        try:
            received = reader.recv(1 << 16)
        except TimeoutError:
            return
        if not received or len(partial) > _LINE:
            raise UsageError(f"{path}: n3icd ended, or sent something that is not a flow")
        *whole, partial = (partial + received).split(b"\n")
        for line in whole:
            try:
                yield dict(text.loads(line))
            except ValueError as error:
                raise UsageError(f"{path}: not a line of JSON: {error}") from error
