# SPDX-License-Identifier: Apache-2.0
"""Builds ``n3icd`` with the program of a network, and starts it in the background.

Its files lie in a folder of ``/run`` for root alone: binary, objects, pack, configuration, sockets
and what it says. The folder goes with the program.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from n3ic.errors import MissingDependencyError, UsageError, VerifyError
from n3ic.exporters.xdp.packing import PACK
from n3ic.model.classifier import Classifier
from n3ic.systems.xdp.daemon_requests import ask, is_ready
from n3ic.systems.xdp.program_record import Interface, ProgramRecord, network_namespace, run_folder
from n3ic.targets.directory import export
from n3ic.util.cache import Cache
from n3ic.util.files import read_regular, write_atomic
from n3ic.util.process import run_tool
from n3ic.util.signals import check

BINARY, OBJECT, IDLE = "n3icd", "meter.o", "idle.o"
_PLACES = {BINARY: "daemon", IDLE: "daemon", OBJECT: "meter"}  # in an export
_MAX_BYTES = 64 << 20
_BUILD_S = 600
_START_S = 120.0  # the verifier may take seconds, on a busy machine more
_WORSE = (  # n3icd's lines on the mode, from kernel.c
    "which is slower",
    "short ones only",
    "cannot run XDP programs from a dispatcher",
)
_LOOK_S = 0.02
_NEEDED = {
    "make": "make",
    "gcc": "gcc",
    "clang": "clang",
    "/usr/include/bpf/libbpf.h": "libbpf-dev",
}  # Debian's packages


@dataclass(frozen=True)
class DaemonProgram:
    """``n3icd`` with the program that it was built for.

    Attributes:
        export: the export that it was built from; its sources name the program.
        files: contents of the binary and the object files, by name.
    """

    export: Path
    files: Mapping[str, bytes]


@contextmanager
def daemon_program(
    model: Classifier, options: Mapping[str, str], built: Path | None = None
) -> Iterator[DaemonProgram]:
    """Build n3icd for a network, or take it from an export that is built.

    Args:
        model: the network for whose structure the program is compiled.
        options: options of the export.
        built: an export of the network; if ``make`` has built it, nothing is compiled.

    Raises:
        MissingDependencyError: A compiler or libbpf's headers are missing.
        VerifyError: The sources do not compile.
    """
    if built is not None and all((built / at / name).is_file() for name, at in _PLACES.items()):
        yield DaemonProgram(built, _read(built))
        return
    with tempfile.TemporaryDirectory(prefix="n3ic-n3icd-") as scratch:
        out = Path(scratch) / "export"
        export(model, "xdp", out, options=dict(options), verify=False, simplify=False)
        yield DaemonProgram(out, _built(out))


def _read(out: Path) -> dict[str, bytes]:
    return {name: read_regular(out / at / name, _MAX_BYTES) for name, at in _PLACES.items()}


def _built(out: Path) -> dict[str, bytes]:
    """Compile an export's daemon, or take what was compiled from the same sources before."""
    cache, digest = Cache.open("n3icd"), hashlib.sha256()
    for path in sorted(p for folder in (out / "daemon", out / "meter") for p in folder.iterdir()):
        if path.suffix in (".c", ".h"):
            digest.update(f"{path.name} {path.stat().st_size}\n".encode() + path.read_bytes())
    names = {name: f"{digest.hexdigest()}-{name}" for name in _PLACES}
    known = {name: cache.find(names[name]) for name in _PLACES}
    if not all(known.values()):
        _make(out)
        for name, at in _PLACES.items():
            with cache.new_file(names[name]) as new:
                shutil.copyfile(out / at / name, new)
        return _read(out)
    return {name: path.read_bytes() for name, path in known.items() if path is not None}


def _make(out: Path) -> None:
    clang = os.environ.get("N3IC_CLANG", "clang")
    missing = [
        package
        for tool, package in _NEEDED.items()
        if not (Path(tool).exists() if tool.startswith("/") else _tool(tool, clang))
    ]
    if missing:
        raise MissingDependencyError(
            f"n3icd is compiled here, which needs apt-get install {' '.join(missing)}; or build "
            "the export on another machine (make -C EXPORT)"
        )
    targets = [f"{at}/{name}" for name, at in _PLACES.items()]
    # Linked dynamically: static libraries of libelf and zlib are not needed on this machine.
    command = ["make", "-s", f"CLANG={clang}", "HOST_FLAGS=-O2", *targets]
    try:
        done = run_tool(command, seconds=_BUILD_S, cwd=out)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise VerifyError(f"make: {error}") from error
    if done.returncode:
        raise VerifyError(f"n3icd does not compile: {done.stderr.decode(errors='replace')[:2000]}")


def _tool(name: str, clang: str) -> str | None:
    return shutil.which(clang if name == "clang" else name)


def daemon_folder(interface: Interface) -> Path:
    """Folder of the n3icd that was started for an interface."""
    return run_folder() / "n3icd" / interface.folder.name


def start(
    interface: Interface,
    files: Mapping[str, bytes],
    pack: bytes,
    settings: Mapping[str, str] | None = None,
    *,
    succeeds: bool = False,
) -> str:
    """Start n3icd in the background, and wait until it answers.

    Args:
        interface: its interface.
        files: contents of the binary and the objects, by name.
        pack: models, rules and policies.
        settings: settings for its configuration, such as ``mode``; None for those of the n3icd
            before it.
        succeeds: whether it replaces the program there, whose flows it keeps.

    Returns:
        What n3icd said of the mode; may be empty.

    Raises:
        UsageError: n3icd ended; the error is what it said last.
    """
    folder = daemon_folder(interface)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    for name, data in {**files, PACK: pack}.items():
        write_atomic(folder / name, data)
    (folder / BINARY).chmod(0o700)
    if settings is not None:
        shutil.rmtree(folder / "updates", ignore_errors=True)  # of the n3icd before
        write_atomic(folder / "n3icd.conf", _configuration(interface, folder, settings))
    log = folder / "log"
    process = _spawn(folder, interface.name, log, succeeds=succeeds)
    try:
        _wait(process, folder / "control", log)
    except BaseException:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGTERM)  # it detaches what it has attached
            os.waitpid(process, 0)
        if not interface.folder.exists():  # there is nothing that it could go on with
            shutil.rmtree(folder, ignore_errors=True)
        raise
    return next((line for line in _lines(log) if any(why in line for why in _WORSE)), "")


def _spawn(folder: Path, interface: str, log: Path, *, succeeds: bool) -> int:
    """Start n3icd in a session of its own, so that the terminal's signals do not reach it."""
    binary = str(folder / BINARY)
    options = ["--succeed"] if succeeds else []
    new = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    files = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
        (os.POSIX_SPAWN_OPEN, 2, str(log), new, 0o600),
    ]
    command = [binary, *options, str(folder / "n3icd.conf"), interface]
    return os.posix_spawn(binary, command, os.environ, file_actions=files, setsid=True)


def _wait(process: int, control: Path, log: Path) -> None:
    end = time.monotonic() + _START_S
    while not is_ready(control):
        check()
        if os.waitpid(process, os.WNOHANG)[0] or time.monotonic() > end:
            lines = [*_lines(log), "it says nothing"]
            raise UsageError(f"n3icd did not start: {lines[0] if len(lines) == 1 else lines[-2]}")
        time.sleep(_LOOK_S)


def _lines(log: Path) -> list[str]:
    """What n3icd said, without what libraries said."""
    lines = log.read_text(errors="replace").splitlines()
    return [line.removeprefix("n3icd: ") for line in lines if line.startswith("n3icd: ")]


@contextmanager
def starting(interface: Interface) -> Iterator[None]:
    """Exclude other processes from starting n3icd during the block; remove what ended ones left.

    Raises:
        UsageError: The folder is not writable.
    """
    root = daemon_folder(interface).parent
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
        if not os.access(root, os.W_OK):
            os.close(lock)
            raise PermissionError(errno.EACCES, "not permitted")
    except OSError as error:
        raise UsageError(f"{root}: {error.strerror or error}: run as root") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for folder in root.iterdir():
            _forget_gone(folder)
        yield
    finally:
        os.close(lock)


def _forget_gone(folder: Path) -> None:
    """Remove the folder of an n3icd that ended, without a program that another one could take over.

    That is so, too, of one that was killed whose interface is gone.
    """
    if not has_ended(folder):
        return
    name, _, space = folder.name.rpartition("-")
    record = run_folder() / "xdp" / folder.name
    here = {there for _, there in socket.if_nameindex()}
    if record.exists() and int(space) == network_namespace() and name not in here:
        if _remove(folder, name).returncode:
            return
        shutil.rmtree(record, ignore_errors=True)
    if not record.exists():
        shutil.rmtree(folder, ignore_errors=True)


def _remove(folder: Path, name: str) -> subprocess.CompletedProcess[str]:
    """Remove the program of an n3icd that has ended."""
    command = [str(folder / BINARY), "--remove", str(folder / "n3icd.conf"), name]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def has_ended(folder: Path) -> bool:
    """Whether the n3icd of a folder has ended, whose lock nobody holds then."""
    try:
        lock = os.open(folder / "socket.lock", os.O_RDWR)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
    return True


def started(interface: Interface) -> bool:
    """Whether an n3icd was started for an interface, though it may have been killed since."""
    return (daemon_folder(interface) / BINARY).exists()


def is_own(interface: Interface, record: ProgramRecord) -> bool:
    """Whether a program's n3icd was started here."""
    return Path(record.control) == daemon_folder(interface) / "control"


def wait_for_end(interface: Interface) -> None:
    """Wait until an n3icd that was asked to end has ended.

    Raises:
        UsageError: It runs on.
    """
    folder, end = daemon_folder(interface), time.monotonic() + _START_S
    while not has_ended(folder):
        check()
        if time.monotonic() > end:
            raise UsageError(f"{folder}: n3icd does not end")
        time.sleep(_LOOK_S)


def end(interface: Interface) -> None:
    """End the n3icd that was started for an interface; remove its program and its folder.

    Raises:
        UsageError: It refuses, or this is not permitted.
    """
    folder = daemon_folder(interface)
    if ask(folder / "control", b"unload\n") is None:
        write_atomic(folder / "n3icd.conf", _configuration(interface, folder, {}))
        done = _remove(folder, interface.name)
        if done.returncode:
            raise UsageError(f"{interface.name}: {done.stderr.strip()}")
    wait_for_end(interface)
    shutil.rmtree(folder)


def files_of(interface: Interface) -> dict[str, bytes]:
    """The binary and the objects of the n3icd that was started for an interface."""
    folder = daemon_folder(interface)
    return {name: read_regular(folder / name, _MAX_BYTES) for name in _PLACES}


def _configuration(interface: Interface, folder: Path, settings: Mapping[str, str]) -> str:
    given = {
        "object": OBJECT,
        "idle-object": IDLE,
        "pack": PACK,
        "on-exit": "detach",
        "pins": _pins(interface),
        "socket": folder / "socket",
        "control": folder / "control",
        "updates": folder / "updates",
        "records": interface.folder.parent,
        **settings,
    }
    return "".join(f"{key} = {value}\n" for key, value in given.items())


def _pins(interface: Interface) -> Path:
    """The folder of pins, per network namespace, as others may use the same name."""
    place = Path(os.environ.get("N3IC_BPF", "/sys/fs/bpf"))
    if not place.is_mount():
        done = subprocess.run(
            ["mount", "-t", "bpf", "bpf", str(place)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise UsageError(f"{place}: no BPF file system can be mounted: {done.stderr.strip()}")
    return place / f"n3ic-{interface.folder.name.rpartition('-')[2]}"
