"""What is known of a program on an interface: its object file, its models and its policy.

An attached program keeps itself and its maps in the kernel. What the kernel does not know stands
in a folder of ``/run``, which a restart of the machine empties as it detaches the program. It is
written before the program is attached, by the program's number: whoever is stopped in between
leaves either the old program with its record, or the new one with its own.
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
from pathlib import Path
from typing import Any

from n3ic.errors import UsageError
from n3ic.exporters.xdp.libbpf import AttachMode, is_loaded
from n3ic.exporters.xdp.source import Table
from n3ic.model.network import BinaryModel
from n3ic.util.files import write_atomic

VERSION = 2  # of records; a program of another one hashes flows otherwise
_RECORD, _OBJECT, _WATCH = "record.json", "program.o", "watch"
_COMPILED = re.compile(r"compiled-(\d{1,2})\.n3ic")


@dataclass(frozen=True)
class Interface:
    """A network interface of this process' network namespace.

    Attributes:
        name: its name.
        index: its number.
    """

    name: str
    index: int

    @classmethod
    def named(cls, name: str) -> Interface:
        """The interface of that name.

        Raises:
            UsageError: there is none.
        """
        try:
            return cls(name, socket.if_nametoindex(name))
        except OSError as error:
            known = ", ".join(sorted(n for _, n in socket.if_nameindex()))
            raise UsageError(f"there is no interface {name!r}: there are {known}") from error

    @property
    def folder(self) -> Path:
        """Where its record stands: namespaces may have interfaces of the same name."""
        return _root() / f"{self.name}-{Path('/proc/self/ns/net').stat().st_ino}"


@dataclass(frozen=True)
class Record:
    """A program on an interface, as it was loaded.

    Attributes:
        program_id: its number in the kernel.
        mode: how it is attached.
        export: the export directory that it came from.
        clock: the clock that it reads.
        per_cpu: whether windows are over the flows of one CPU.
        policies: what is done by verdict, as it was typed.
        rules: how a model is chosen, as it was typed.
        otherwise: the slot of flows that no rule names.
        table: the flow table that it was compiled with.
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


def _root() -> Path:
    return Path(os.environ.get("N3IC_RUN", "/run/n3ic")) / "xdp"


def write_record(
    interface: Interface,
    record: Record,
    image: bytes,
    compiled: Sequence[BinaryModel],
) -> None:
    """Write the record of a program that is being attached.

    Args:
        interface: where.
        record: what.
        image: the object file.
        compiled: the networks whose structure was compiled in.
    """
    folder = _of_program(interface, record.program_id)
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(folder / _OBJECT, image)
    for i, model in enumerate(compiled):
        write_atomic(folder / f"compiled-{i}.n3ic", model.to_bytes())
    write_atomic(folder / _RECORD, json.dumps({"version": VERSION, **asdict(record)}))


def read_record(interface: Interface, program_id: int) -> tuple[Record, bytes, list[BinaryModel]]:
    """The record of an interface's program, its object file, and the networks of its structure.

    Raises:
        UsageError: there is none, or it is damaged.
    """
    folder = _of_program(interface, program_id)
    try:
        data = json.loads((folder / _RECORD).read_bytes())
        record, image = _record(data), (folder / _OBJECT).read_bytes()
        compiled = [BinaryModel.load(p) for p in _numbered(folder, _COMPILED).values()]
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


def _record(data: Mapping[str, Any]) -> Record:
    given = dict(data)
    if given.pop("version") != VERSION:
        raise ValueError(f"version {data['version']!r}, this n3ic reads {VERSION}")
    for name in ("policies", "rules"):
        given[name] = tuple(given[name])
    return Record(**given)


def write_model(interface: Interface, model: BinaryModel) -> None:
    """Keep a model that is about to be resident; which slot holds it, the kernel knows."""
    interface.folder.mkdir(parents=True, exist_ok=True)
    write_atomic(interface.folder / f"{model.digest}.n3ic", model.to_bytes())


def read_model(interface: Interface, digest: str) -> BinaryModel:
    """A resident model.

    Raises:
        FileNotFoundError: it is not kept (any more).
    """
    path = interface.folder / f"{digest}.n3ic"
    path.stat()
    return BinaryModel.load(path)


def recorded_programs(interface: Interface) -> list[int]:
    """Numbers of the programs of which there are records."""
    if not interface.folder.exists():
        return []
    return sorted(int(p.name) for p in interface.folder.iterdir() if p.name.isdecimal())


def forget_others(interface: Interface, program_id: int, digests: Collection[str]) -> None:
    """Forget what is neither of this program nor one of these models."""
    for path in interface.folder.iterdir():
        if path.name.isdecimal():
            if int(path.name) != program_id:
                shutil.rmtree(path, ignore_errors=True)
        elif path.stem not in digests and path.name != _WATCH:
            path.unlink(missing_ok=True)


def forget_gone() -> None:
    """Forget the programs of interfaces that are gone, and that were loaded before a restart."""
    for folder in _root().glob("*-*"):
        numbers = [int(p.name) for p in folder.iterdir() if p.name.isdecimal()]
        if not any(map(is_loaded, numbers)):
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def changing(interface: Interface) -> Iterator[None]:
    """While this lasts, nobody else loads, updates or unloads; what is gone is forgotten.

    Raises:
        UsageError: the folder of the records cannot be written.
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
    """While this lasts, nobody else takes decided flows from an interface's program.

    The kernel gives each of them once: two who take them would each get some.

    Raises:
        UsageError: somebody takes them already, or the program was taken away.
    """
    try:
        place = os.open(interface.folder / _WATCH, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError as error:
        raise UsageError(f"{interface.name}: n3ic has loaded nothing there any more") from error
    try:
        try:
            fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            who = os.read(place, 20).decode(errors="replace")
            raise UsageError(
                f"{interface.name}: process {who} runs n3ic xdp watch there, and a decided flow is "
                "told once: end that one first; n3ic xdp status and serve may run beside it"
            ) from error
        os.truncate(place, 0)
        os.pwrite(place, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(place)


def _of_program(interface: Interface, program_id: int) -> Path:
    return interface.folder / str(program_id)


def _numbered(folder: Path, name: re.Pattern[str]) -> dict[int, Path]:
    """Files of a name with a number, by number, in its order."""
    matches = ((name.fullmatch(path.name), path) for path in folder.iterdir())
    return dict(sorted((int(match[1]), path) for match, path in matches if match))


def remove_record(interface: Interface) -> None:
    """Forget an interface's program."""
    shutil.rmtree(interface.folder, ignore_errors=True)
