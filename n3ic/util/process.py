# SPDX-License-Identifier: Apache-2.0
"""Run a tool on untrusted artefacts: limited, isolated, and without the user's environment.

Compilers, simulators and the programs that they build run through :func:`run_tool`. It guards
against accidents and careless code, but is not a sandbox: the tool can still reach the user's
files. See docs/how-to/trust.md.
"""

from __future__ import annotations

import os
import resource
import select
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import IO

MAX_FILE_BYTES = 4 << 30
MAX_PROCESSES = 4096
# Variables that compilers and simulators need; no other variable is passed on.
_KEPT = ("PATH", "CC", "CXX", "LD_LIBRARY_PATH", "VERILATOR_ROOT")


def run_tool(
    command: Sequence[str],
    *,
    seconds: int,
    stdin: bytes = b"",
    cwd: Path | None = None,
    keep: Sequence[str] = (),
) -> subprocess.CompletedProcess[bytes]:
    """Run a tool to its end, limited and isolated.

    It has no network if the platform has namespaces (``unshare``), and limits of CPU time, memory,
    file size, processes and core files if it has ``prlimit``. It has a home and a temporary folder
    that are removed at the end, and a minimal environment. The tool and its children are killed
    when the time is over or the caller is interrupted.

    Args:
        command: the program and its arguments; paths are absolute.
        seconds: how long it may take.
        stdin: its standard input.
        cwd: its working folder; None for the scratch folder.
        keep: further variables of the environment to pass on, such as ``HOME`` for a cache.

    Returns:
        Exit code and outputs, as :func:`subprocess.run` gives them.

    Raises:
        subprocess.TimeoutExpired: the tool exceeded its time.
        OSError: the tool did not start.
    """
    with (  # files, because the limit of file size ignores pipes
        tempfile.TemporaryFile() as input_file,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
    ):
        input_file.write(stdin)
        input_file.seek(0)
        with running_tool(
            command, seconds=seconds, stdin=input_file, out=out, err=err, cwd=cwd, keep=keep
        ) as process:
            _wait(process, seconds)
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(
            list(command), process.returncode, out.read(), err.read()
        )


@contextmanager
def running_tool(
    command: Sequence[str],
    *,
    seconds: int,
    out: IO[bytes],
    err: IO[bytes],
    stdin: IO[bytes] | int = subprocess.DEVNULL,
    cwd: Path | None = None,
    keep: Sequence[str] = (),
    pipes: Sequence[int] = (),
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a tool as :func:`run_tool` does, beside the block; what runs after the block is killed.

    Args:
        command: the program and its arguments; paths are absolute.
        seconds: processor time, for each processor, that it may take.
        out: its standard output.
        err: its standard error.
        stdin: its standard input; nothing by default.
        cwd: its working folder; None for the scratch folder.
        keep: further variables of the environment to pass on.
        pipes: descriptors that it inherits.

    Raises:
        OSError: the tool did not start.
    """
    if shutil.which(command[0]) is None:
        raise FileNotFoundError(2, "no such program", command[0])
    environment = {name: os.environ[name] for name in (*_KEPT, *keep) if name in os.environ}
    with tempfile.TemporaryDirectory(prefix="n3ic-run-") as scratch:
        process = subprocess.Popen(
            [*no_network(), *_limits(seconds), *command],
            stdin=stdin,
            stdout=out,
            stderr=err,
            cwd=scratch if cwd is None else cwd,
            env={"HOME": scratch, "TMPDIR": scratch, "LC_ALL": "C.UTF-8"} | environment,
            pass_fds=pipes,
            start_new_session=True,  # a process group, so that its children can be killed, too
        )
        ended = False
        try:
            yield process
            ended = process.poll() is not None
        finally:
            if not ended:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _wait(process: subprocess.Popen[bytes], seconds: int) -> None:
    try:
        handle = os.pidfd_open(process.pid)
    except (AttributeError, OSError):  # another platform, an old kernel, or a seccomp filter
        process.wait(seconds)  # polls, with pauses of up to 50 ms
        return
    try:
        ended = select.poll()
        ended.register(handle, select.POLLIN)
        if not ended.poll(seconds * 1000):
            raise subprocess.TimeoutExpired(process.args, seconds)
    finally:
        os.close(handle)
    process.wait()


@cache
def no_network() -> tuple[str, ...]:
    """The command prefix that disables the network; empty if unsupported."""
    program = shutil.which("unshare")
    for options in (("--net",), ("--user", "--map-current-user", "--net")):
        if program is None:
            break
        command = (program, *options, "--")
        done = subprocess.run([*command, "true"], capture_output=True, timeout=30, check=False)
        if done.returncode == 0:
            return command
    return ()


def _limits(seconds: int) -> tuple[str, ...]:
    program = shutil.which("prlimit")
    if program is None:
        return ()
    limit_of = {
        "cpu": seconds * (os.cpu_count() or 1),  # counts the time of all threads
        "as": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),  # the machine's memory
        "fsize": MAX_FILE_BYTES,
        "nproc": MAX_PROCESSES,
        "core": 0,
    }
    limits = []
    for name, value in limit_of.items():
        hard = resource.getrlimit(getattr(resource, f"RLIMIT_{name.upper()}"))[1]
        # Keep a lower limit of this process: only root may raise one.
        limits.append(f"--{name}={value if hard == resource.RLIM_INFINITY else min(value, hard)}")
    return (program, *limits, "--")
