# SPDX-License-Identifier: Apache-2.0
"""What ``n3ic xdp`` does for ``n3icd``: it writes packs, and reads the flows that n3icd reports."""

from __future__ import annotations

import json as text
import socket
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from n3ic.cli.console import print_note, print_result
from n3ic.errors import UsageError
from n3ic.exporters.xdp import packing
from n3ic.exporters.xdp.plan import Choices, plan
from n3ic.exporters.xdp.policy_parser import check_times
from n3ic.model.classifier import Classifier
from n3ic.systems.xdp.daemon_requests import not_running
from n3ic.systems.xdp.debian_package import package
from n3ic.systems.xdp.deployment import attached_program, exported
from n3ic.systems.xdp.program_record import DaemonRecord, Interface
from n3ic.systems.xdp.terminal import line_of
from n3ic.util.files import free_path, write_atomic
from n3ic.util.signals import check

_LINE = 1 << 24  # maximum bytes of a line
_PATIENCE_S = 60.0  # with a greeting


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


class FlowReader:
    """A reader of the flows that a running ``n3icd`` decides.

    Args:
        interface: interface of the daemon.
        record: its record.

    Raises:
        UsageError: n3icd is not running.
    """

    def __init__(self, interface: Interface, record: DaemonRecord) -> None:
        self.lost = 0
        """Flows that came too fast for this reader."""
        self._path, self._partial = record.socket, b""
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.connect(self._path)
            self._greet(interface)
        except BaseException as error:
            self._socket.close()
            if isinstance(error, OSError):
                raise UsageError(not_running(interface)) from error
            raise

    def _greet(self, interface: Interface) -> None:
        hello: list[dict[str, Any]] = []
        end = time.monotonic() + _PATIENCE_S
        while not hello and time.monotonic() < end:
            hello = self._receive(_PATIENCE_S)
        if not hello:
            raise UsageError(f"{self._path}: n3icd does not answer")
        space = Path("/proc/self/ns/net").stat().st_ino
        if (hello[0].get("index"), hello[0].get("namespace")) != (interface.index, space):
            raise UsageError(f"{self._path}: the n3icd of another interface")
        self._waiting = hello[1:]

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

    def read(self, seconds: float | None) -> list[dict[str, Any]]:
        """Read the flows that have come.

        Args:
            seconds: how long to wait for some; None for no limit.

        Returns:
            The flows, each as n3icd's line of JSON; empty if none came in time.

        Raises:
            UsageError: n3icd ended, or sent something that is not a flow.
        """
        messages, self._waiting = self._waiting or self._receive(seconds), []
        self.lost += sum(int(message["lost"]) for message in messages if "lost" in message)
        return [message for message in messages if "lost" not in message]

    def _receive(self, seconds: float | None) -> list[dict[str, Any]]:
        """Read the JSON objects of whole lines."""
        self._socket.settimeout(seconds)
        try:
            received = self._socket.recv(1 << 16)
        except TimeoutError:
            return []
        if not received or len(self._partial) > _LINE:
            raise UsageError(f"{self._path}: n3icd ended, or sent something that is not a flow")
        *whole, self._partial = (self._partial + received).split(b"\n")
        try:
            return [dict(text.loads(line)) for line in whole]
        except ValueError as error:
            raise UsageError(f"{self._path}: not a line of JSON: {error}") from error


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
    with closing(FlowReader(interface, record)) as reader:
        told = 0
        while most != 0:
            check()
            remaining = None if end is None else end - time.monotonic()
            if remaining is not None and remaining <= 0:
                break
            flows = reader.read(remaining)
            for flow in flows[:most]:
                print_result(text.dumps(flow, sort_keys=True) if json else line_of(flow))
            most = None if most is None else max(0, most - len(flows))
            if reader.lost > told:
                lost, told = reader.lost - told, reader.lost
                print_note(f"{interface.name}: {lost:,} flows came too fast to be shown")
    return True
