# SPDX-License-Identifier: Apache-2.0
"""Requests to a running ``n3icd``; ``exporters/xdp/daemon/control.h`` describes their format."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from n3ic.errors import UsageError
from n3ic.exporters.xdp import layout
from n3ic.exporters.xdp.packing import repack
from n3ic.exporters.xdp.verdict_lists import ACTIONS, Action, DumpedMap
from n3ic.model.classifier import Classifier
from n3ic.systems.xdp.program_record import Interface, ProgramRecord, run_folder

_PATIENCE_S = 30.0
_AGES_S = 1e9  # seconds that count as for ever
_SUM = 9  # bytes of the checksum and the line end at the end of a pack


def update(interface: Interface, record: ProgramRecord, slot: int, model: Classifier) -> None:
    """Make n3icd swap a model; its pack keeps the model over restarts.

    Raises:
        ExportError: The network does not fit n3icd's program.
        UsageError: n3icd is not running, or refuses.
    """
    pack = repack(record.pack, slot, model)
    made_of = record.pack[-_SUM:-1].decode()
    _ask_running(interface, record, f"update {made_of} {len(pack)}\n".encode() + pack)


def figures(interface: Interface, record: ProgramRecord) -> dict[str, Any]:
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


def put(
    interface: Interface,
    record: ProgramRecord,
    action: Action,
    argument: int,
    targets: Iterable[tuple[str, float]],
) -> int:
    """Have n3icd put verdicts into its maps: all of them, or none.

    Args:
        interface: interface of the daemon.
        record: its record.
        action: what happens to packets; ``allow`` and ``shared`` allow sources.
        argument: nanoseconds between two packets for a rate limit, or the mark.
        targets: prefixes, each once, or flows; and the seconds for which a verdict holds, infinity
            for ever.

    Returns:
        The number of targets that had no such verdict.

    Raises:
        UsageError: n3icd is not running, or refuses.
    """
    lines = "".join(
        f"{target} {'-' if seconds > _AGES_S else f'{seconds:.9f}'}\n"
        for target, seconds in targets
    )
    head = f"put {ACTIONS.index(action)} {argument} {len(lines)}\n"
    return int(_ask_running(interface, record, (head + lines).encode()))


def remove(interface: Interface, record: ProgramRecord, target: str, *, allowed: bool) -> bool:
    """Have n3icd remove verdicts; return False if there were none.

    Raises:
        UsageError: n3icd is not running, or refuses.
    """
    request = f"remove {'allowed' if allowed else 'blocked'} {target}\n"
    return int(_ask_running(interface, record, request.encode())) > 0


@dataclass(frozen=True)
class _DumpedMap:
    name: str
    kind: np.dtype[np.void]
    entries: bytes

    def contents(self) -> tuple[bytes, bytes]:
        rows = np.frombuffer(self.entries, [("key", self.kind), ("value", layout.VERDICT)])
        return rows["key"].tobytes(), rows["value"].tobytes()


def dumped_verdicts(interface: Interface, record: ProgramRecord) -> dict[str, DumpedMap]:
    """The maps of verdicts of n3icd's program, by name.

    Raises:
        UsageError: n3icd is not running, or refuses.
    """
    answer = _ask_running(interface, record, b"list\n")
    entries, _, counts = answer.removesuffix(b"\n").rpartition(b"\n")
    words, at = counts.decode().split(), 0
    out: dict[str, DumpedMap] = {}
    for name, count in zip(words[::2], map(int, words[1::2]), strict=True):
        kind = {"tuples": layout.KEY, "hosts": layout.SUBJECT}.get(name, layout.PREFIX)
        size = count * (kind.itemsize + layout.VERDICT.itemsize)
        out[name] = _DumpedMap(name, kind, entries[at : at + size])
        at += size
    return out


def leave(record: ProgramRecord) -> None:
    """End n3icd, whose program stays in place for the next one.

    Raises:
        UsageError: n3icd refuses.
    """
    ask(Path(record.control), b"leave\n")


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


def _ask_running(interface: Interface, record: ProgramRecord, request: bytes) -> bytes:
    """Send a request to n3icd; return its answer without the last line."""
    answer = ask(Path(record.control), request)
    if answer is None:
        raise UsageError(not_running(interface))
    return answer


def not_running(interface: Interface) -> str:
    """What to do where n3icd is not running."""
    name, here = interface.name, (run_folder() / "n3icd" / interface.folder.name).exists()
    way = f"n3ic xdp load {name} EXPORT" if here else f"systemctl start n3icd@{name}"
    return f"{name}: n3icd is not running; {way} starts it, with the flows of the program there"


def unload(record: ProgramRecord) -> None:
    """Detach n3icd's program and remove its pins; a running n3icd exits.

    Raises:
        UsageError: n3icd refuses, or is not running where a dispatcher runs its program.
    """
    if ask(Path(record.control), b"unload\n") is None:
        if record.priority is not None:
            raise UsageError(
                f"program {record.program_id} is in libxdp's dispatcher, and its n3icd is not "
                "running: n3icd unload, or start it"
            )
        pins = Path(record.pins)
        for pin in pins.iterdir():
            pin.unlink()
        pins.rmdir()


def runs(record: ProgramRecord) -> bool:
    """Whether the daemon of a program is running."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_PATIENCE_S)
        return connection.connect_ex(record.control) == 0


def ask(control: Path, request: bytes) -> bytes | None:
    """Send a request to an n3icd and wait for its answer.

    Args:
        control: path of the socket on which it takes requests.
        request: the request.

    Returns:
        The answer without its last line, which is ``ok``; None if no n3icd is running.

    Raises:
        UsageError: n3icd refuses the request or does not answer, or using its socket is not
            permitted.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_PATIENCE_S)
        try:
            connection.connect(str(control))
        except (FileNotFoundError, ConnectionRefusedError):
            return None
        except OSError as error:
            raise UsageError(f"{control}: {error.strerror or error}: run as root") from error
        parts = []
        with suppress(OSError):  # n3icd may answer, and close, before it has read everything
            connection.sendall(request)
        with suppress(OSError):
            while part := connection.recv(1 << 20):
                parts.append(part)
    answer = b"".join(parts)
    if answer.endswith(b"ok\n") and not answer.startswith(b"error "):
        return answer.removesuffix(b"ok\n")
    why = answer.decode(errors="replace").strip().removeprefix("error ")
    raise UsageError(f"n3icd: {why or 'ended before it answered'}")
