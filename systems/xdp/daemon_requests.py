# SPDX-License-Identifier: Apache-2.0
"""Requests to a running ``n3icd``; ``exporters/xdp/daemon/control.h`` describes their format."""

from __future__ import annotations

import json
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

from n3ic.errors import UsageError
from n3ic.exporters.xdp.packing import repack
from n3ic.model.classifier import Classifier
from n3ic.systems.xdp.program_record import DaemonRecord, Interface

_PATIENCE_S = 30.0
_SUM = 9  # bytes of the checksum and the line end at the end of a pack


def update(interface: Interface, record: DaemonRecord, slot: int, model: Classifier) -> None:
    """Make n3icd swap a model; its pack keeps the model over restarts.

    Raises:
        ExportError: The network does not fit n3icd's program.
        UsageError: n3icd is not running, or refuses.
    """
    pack = repack(record.pack, slot, model)
    made_of = record.pack[-_SUM:-1].decode()
    _ask_running(interface, record, f"update {made_of} {len(pack)}\n".encode() + pack)


def figures(interface: Interface, record: DaemonRecord) -> dict[str, Any]:
    """The figures of n3icd's program, as ``metrics_write_json`` of ``metrics.c`` writes them.

    Raises:
        UsageError: n3icd is not running, or refuses.
    """
    answer = _ask_running(interface, record, b"status\n")
    try:
        return dict(json.loads(answer))
    except ValueError as error:
        raise UsageError(
            f"{record.control}: expected n3icd's figures as a line of JSON: {error}"
        ) from error


def leave(record: DaemonRecord) -> None:
    """End n3icd, whose program stays in place for the next one.

    Raises:
        UsageError: n3icd refuses.
    """
    _ask(record, b"leave\n")


def is_ready(control: Path) -> bool:
    """Whether an n3icd answers at a path."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_PATIENCE_S)
        try:
            connection.connect(str(control))
            connection.sendall(b"status\n")
            return bool(connection.recv(1))
        except OSError:
            return False


def _ask_running(interface: Interface, record: DaemonRecord, request: bytes) -> str:
    """Send a request to n3icd; return the lines of its answer, without the last."""
    answer = _ask(record, request)
    if answer is None:
        raise UsageError(
            f"{interface.name}: n3icd is not running: systemctl start n3icd@{interface.name}"
        )
    return answer


def unload(record: DaemonRecord) -> None:
    """Detach n3icd's program and remove its pins; a running n3icd exits.

    Raises:
        UsageError: n3icd refuses.
    """
    if _ask(record, b"unload\n") is None:
        pins = Path(record.pins)
        for pin in pins.iterdir():
            pin.unlink()
        pins.rmdir()


def runs(record: DaemonRecord) -> bool:
    """Whether the daemon of a program is running."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_PATIENCE_S)
        return connection.connect_ex(record.control) == 0


def _ask(record: DaemonRecord, request: bytes) -> str | None:
    """Send a request and wait for its answer.

    Returns:
        The lines of the answer, without the last, which is ``ok``; None if no n3icd is running.

    Raises:
        UsageError: n3icd refuses the request or does not answer, or using its socket is not
            permitted.
    """
    path = record.control
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_PATIENCE_S)
        try:
            connection.connect(path)
        except (FileNotFoundError, ConnectionRefusedError):
            return None
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror or error}: run as root") from error
        answer = b""
        with suppress(OSError):  # n3icd may answer, and close, before it has read everything
            connection.sendall(request)
        with suppress(OSError):
            while part := connection.recv(1 << 16):
                answer += part
    lines, _, last = ("\n" + answer.decode(errors="replace").rstrip("\n")).rpartition("\n")
    if last == "ok":
        return lines
    why = last.removeprefix("error ") if last.startswith("error ") else "ended before it answered"
    raise UsageError(f"n3icd: {why}")
