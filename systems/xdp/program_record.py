# SPDX-License-Identifier: Apache-2.0
"""Records of the programs on interfaces: object file, models and policies.

An attached program and its maps live in the kernel. What the kernel does not store is kept in a
folder of ``/run``: a reboot empties it, just as it detaches the program. The record is written
before the program is attached, under the program's number. A process that is killed in between
therefore leaves either the old program with its record or the new program with its own.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import socket
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from n3ic.errors import UsageError
from n3ic.exporters.xdp.layout import VERSION
from n3ic.exporters.xdp.libbpf import AttachMode, is_loaded
from n3ic.exporters.xdp.packing import PACK, unpack
from n3ic.exporters.xdp.source import Table
from n3ic.model.classifier import Classifier
from n3ic.model.load import load_model
from n3ic.util.files import write_atomic
from n3ic.util.plain_data import from_plain

_RECORD, _DAEMON, _OBJECT, _WATCH = "record.json", "n3icd.json", "program.o", "watch"
_COMPILED = re.compile(r"compiled-(\d{1,2})\.n3ic")


@dataclass(frozen=True)
class Interface:
    """A network interface in the network namespace of this process.

    Attributes:
        name: its name, such as ``eth0``.
        index: its index in the kernel.
    """

    name: str
    index: int

    @classmethod
    def named(cls, name: str) -> Interface:
        """Find an interface by name.

        Raises:
            UsageError: No interface has that name.
        """
        try:
            return cls(name, socket.if_nametoindex(name))
        except OSError as error:
            names = ", ".join(sorted(n for _, n in socket.if_nameindex()))
            raise UsageError(f"no interface {name!r}, expected one of {names}") from error

    @property
    def folder(self) -> Path:
        """Folder of its records, per network namespace, as others may use the same name."""
        return _root() / f"{self.name}-{Path('/proc/self/ns/net').stat().st_ino}"


@dataclass(frozen=True)
class ProgramRecord:
    """A program on an interface, as it was loaded.

    Attributes:
        program_id: its number in the kernel.
        mode: attach mode.
        export: export directory of the program.
        clock: clock of the program, ``kernel`` or ``coarse``.
        per_cpu: whether each window covers the flows of one CPU only.
        policies: policies as typed.
        rules: rules as typed.
        otherwise: slot of flows without a matching rule.
        table: flow table that the program was compiled with.
        frags: whether the program takes frames that lie in several pieces.
        priority: its priority in libxdp's dispatcher; None if it runs alone.
    """

    program_id: int
    mode: AttachMode
    export: str
    clock: str
    per_cpu: bool = False
    policies: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    otherwise: int = 0
    table: Table = "lru"
    frags: bool = True
    priority: int | None = None

    @property
    def place(self) -> str:
        """Where it is attached, as text for people."""
        if self.mode == "tcx":
            return "tcx, both directions"
        beside = "" if self.priority is None else f", in a dispatcher, priority {self.priority}"
        return f"{self.mode} XDP{'' if self.frags else ' without frames in several pieces'}{beside}"


@dataclass(frozen=True)
class DaemonRecord(ProgramRecord):
    """A program that ``n3icd`` loaded, or took over.

    Attributes:
        pins: folder of its pins.
        socket: path of the socket on which n3icd reports decided flows.
        control: path of the socket on which n3icd takes requests.
        pack: the pack that is now loaded.
    """

    pins: str = ""
    socket: str = ""
    control: str = ""
    pack: bytes = b""


def run_folder() -> Path:
    """The folder of what lasts until a reboot."""
    return Path(os.environ.get("N3IC_RUN", "/run/n3ic"))


def _root() -> Path:
    return run_folder() / "xdp"


def write_record(
    interface: Interface,
    record: ProgramRecord,
    image: bytes,
    compiled: Sequence[Classifier],
) -> None:
    """Write the record of a program before it is attached."""
    folder = _of_program(interface, record.program_id)
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(folder / _OBJECT, image)
    for i, model in enumerate(compiled):
        write_atomic(folder / f"compiled-{i}.n3ic", model.to_bytes())
    write_atomic(folder / _RECORD, json.dumps({"version": VERSION, **asdict(record)}))


def read_record(
    interface: Interface, program_id: int
) -> tuple[ProgramRecord, bytes, list[Classifier]]:
    """Read the record of a program, its object file and the networks it was compiled for.

    Raises:
        UsageError: No record of the program exists, or it is damaged.
    """
    folder = _of_program(interface, program_id)
    try:
        if (folder / _DAEMON).exists():
            return _of_daemon(folder, program_id)
        data = json.loads((folder / _RECORD).read_bytes())
        record, image = _record(data), (folder / _OBJECT).read_bytes()
        compiled = [load_model(p) for p in _numbered(folder, _COMPILED).values()]
        if not compiled:
            raise ValueError("the networks of its structure are missing")
        return record, image, compiled
    except FileNotFoundError as error:
        raise UsageError(
            f"{interface.name}: n3ic has loaded nothing there (n3ic xdp load {interface.name} "
            "EXPORT), or not in this network namespace"
        ) from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{folder / _RECORD}: damaged: {error}; unload and load again") from error


def daemon_record(interface: Interface, program_id: int) -> DaemonRecord | None:
    """The record of a program that ``n3icd`` loaded; None if it is another program.

    Raises:
        UsageError: The record is damaged.
    """
    if not (_of_program(interface, program_id) / _DAEMON).exists():
        return None
    record, _, _ = read_record(interface, program_id)
    return record if isinstance(record, DaemonRecord) else None


def _of_daemon(folder: Path, program_id: int) -> tuple[DaemonRecord, bytes, list[Classifier]]:
    """Read what ``n3icd`` wrote: see ``record_write`` in ``exporters/xdp/daemon/store.c``."""
    fields, pack = json.loads((folder / _DAEMON).read_bytes()), (folder / PACK).read_bytes()
    unpacked = _unpacked(pack)
    about = unpacked.about
    if fields["version"] != VERSION:
        raise ValueError(f"version {fields['version']!r}, this n3ic reads {VERSION}")
    record = DaemonRecord(
        program_id,
        fields["mode"],
        fields["pack"],
        about["clock"],
        about["per_cpu"],
        policies=tuple(about["policies"]),
        rules=tuple(about["rules"]),
        otherwise=about["otherwise"],
        table=about["table"],
        frags=fields["frags"],
        priority=fields.get("priority"),
        pins=fields["pins"],
        socket=fields["socket"],
        control=fields["control"],
        pack=pack,
    )
    return record, (folder / _OBJECT).read_bytes(), [unpacked.compiled]


_unpacked = lru_cache(maxsize=2)(unpack)  # the same pack is read again and again


def _record(data: Mapping[str, Any]) -> ProgramRecord:
    fields = dict(data)
    if fields.pop("version") != VERSION:
        raise ValueError(f"version {data['version']!r}, this n3ic reads {VERSION}")
    return from_plain(ProgramRecord, fields, strict=True)


def write_model(interface: Interface, model: Classifier) -> None:
    """Store a model that is about to become resident; the kernel records its slot."""
    interface.folder.mkdir(parents=True, exist_ok=True)
    write_atomic(interface.folder / f"{model.digest}.n3ic", model.to_bytes())


def read_model(interface: Interface, digest: str) -> Classifier:
    """Read a resident model.

    Raises:
        FileNotFoundError: The model is not stored, or has been removed.
    """
    for pack in interface.folder.glob(f"*/{PACK}"):
        if digest in (unpacked := _unpacked(pack.read_bytes()).networks):
            return unpacked[digest]
    path = interface.folder / f"{digest}.n3ic"
    path.stat()
    return load_model(path)


def recorded_programs(interface: Interface) -> list[int]:
    """The numbers of the programs that have records, in ascending order."""
    if not interface.folder.exists():
        return []
    return sorted(int(p.name) for p in interface.folder.iterdir() if p.name.isdecimal())


def forget_others(interface: Interface, program_id: int, digests: Collection[str]) -> None:
    """Remove the records of other programs, and the files of models that are not listed."""
    for path in interface.folder.iterdir():
        if path.name.isdecimal():
            if int(path.name) != program_id:
                shutil.rmtree(path, ignore_errors=True)
        elif path.stem not in digests and path.name != _WATCH:
            path.unlink(missing_ok=True)


def forget_gone() -> None:
    """Remove the records of interfaces none of whose recorded programs is still loaded."""
    for folder in _root().glob("*-*"):
        numbers = [int(p.name) for p in folder.iterdir() if p.name.isdecimal()]
        if not any(map(is_loaded, numbers)):
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def changing(interface: Interface) -> Iterator[None]:
    """Exclude other processes from loading, updating and unloading during the block.

    Raises:
        UsageError: The folder of the records is not writable.
    """
    root = interface.folder.parent
    try:
        root.mkdir(parents=True, exist_ok=True)
        if not os.access(root, os.W_OK):
            raise PermissionError
    except OSError as error:
        raise UsageError(
            f"{root}: not permitted: run as root (N3IC_RUN names another folder for records)"
        ) from error
    place = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(place, fcntl.LOCK_EX)
        forget_gone()
        yield
    finally:
        os.close(place)


@contextmanager
def watching(interface: Interface) -> Iterator[None]:
    """Exclude other processes from reading an interface's decided flows during the block.

    The kernel gives each event to one reader, so two readers would each miss some.

    Raises:
        UsageError: Another process already reads them, or the program was removed.
    """
    try:
        place = os.open(interface.folder / _WATCH, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError as error:
        raise UsageError(f"{interface.name}: n3ic's program is no longer loaded there") from error
    try:
        try:
            fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            who = os.read(place, 20).decode(errors="replace")
            raise UsageError(
                f"{interface.name}: process {who} runs n3ic xdp watch there, and each decided flow "
                "is reported once: end that process first; n3ic xdp status and serve may run "
                "beside it"
            ) from error
        os.truncate(place, 0)
        os.pwrite(place, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(place)


def _of_program(interface: Interface, program_id: int) -> Path:
    return interface.folder / str(program_id)


def _numbered(folder: Path, name: re.Pattern[str]) -> dict[int, Path]:
    """The files whose names match a pattern, by the number in the name, in ascending order."""
    matches = ((name.fullmatch(path.name), path) for path in folder.iterdir())
    return dict(sorted((int(match[1]), path) for match, path in matches if match))


def remove_record(interface: Interface) -> None:
    """Remove all records of an interface."""
    shutil.rmtree(interface.folder, ignore_errors=True)
