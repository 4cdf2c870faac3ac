# SPDX-License-Identifier: Apache-2.0
"""The fence around compilers, simulators and the programs that they make."""

import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from n3ic.util.process import no_network, run_tool

needs_prlimit = pytest.mark.skipif(shutil.which("prlimit") is None, reason="no prlimit here")


def python(text, **options):
    return run_tool([sys.executable, "-c", text], **({"seconds": 30} | options))


def test_output_input_and_exit_code_come_back():
    done = python("import sys; print(sys.stdin.read()); sys.exit(7)", stdin=b"given")
    assert (done.returncode, done.stdout, done.stderr) == (7, b"given\n", b"")


def test_nothing_of_the_user_is_passed_on(monkeypatch, tmp_path):
    monkeypatch.setenv("A_SECRET", "x")
    monkeypatch.chdir(tmp_path)
    done = python("import os; print(os.getcwd(), os.environ['HOME'], 'A_SECRET' in os.environ)")
    cwd, home, secret = done.stdout.decode().split()
    assert cwd == home != os.environ.get("HOME")
    assert secret == "False" and cwd != str(tmp_path)
    assert not Path(home).exists()


@pytest.mark.skipif(not no_network(), reason="no network namespaces here")
def test_a_child_process_has_no_network():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        text = f"import socket; socket.create_connection(('127.0.0.1', {port}), 5)"
        assert subprocess.run([sys.executable, "-c", text], check=False).returncode == 0
        assert b"unreachable" in python(text).stderr


@needs_prlimit
@pytest.mark.parametrize(
    "text",
    [
        "import resource; assert resource.getrlimit(resource.RLIMIT_AS)[0] < 0",
        "import os; os.truncate(os.open('f', os.O_CREAT | os.O_RDWR), 1 << 40)",
        "import resource; assert resource.getrlimit(resource.RLIMIT_NPROC)[0] > 4096",
        "import resource; assert resource.getrlimit(resource.RLIMIT_CPU)[0] < 0",
    ],
)
def test_resources_are_limited(text):
    assert python(text).returncode != 0


@needs_prlimit
def test_a_lower_limit_of_the_user_is_kept():
    """Nobody but root may raise one, and trying to would end every run."""
    text = (
        "import os, resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_NPROC, (500, 1000))\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))\n"
        "from n3ic.util.process import run_tool\n"
        "own = 'from resource import *; print(*map(getrlimit, (RLIMIT_NPROC, RLIMIT_FSIZE)))'\n"
        "print(run_tool([sys.executable, '-c', own], seconds=30).stdout.decode())\n"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[0] == "(1000, 1000) (1048576, 1048576)"


def test_a_machine_without_handles_of_processes_bounds_the_time_too(monkeypatch):
    def refused(_pid):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", refused, raising=False)
    assert python("print('done')", seconds=60).stdout == b"done\n"
    with pytest.raises(subprocess.TimeoutExpired):
        python("import time; time.sleep(60)", seconds=1)


def test_what_takes_too_long_is_ended_with_what_it_started(tmp_path):
    # The child holds a pipe open, which ends once all that hold it have ended.
    fifo = tmp_path / "held"
    os.mkfifo(fifo)
    child = f"import time; pipe = open({str(fifo)!r}, 'w'); time.sleep(600)"
    text = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    pipe = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with pytest.raises(subprocess.TimeoutExpired):
            python(text, seconds=2)
        assert any(ended(pipe) for _ in range(6000))
    finally:
        os.close(pipe)


def ended(pipe):
    """Whether nobody holds the other end of a pipe; waits for a moment where somebody does."""
    try:
        return os.read(pipe, 1) == b""
    except BlockingIOError:
        time.sleep(0.01)
        return False


def test_a_missing_program_is_an_os_error():
    with pytest.raises(FileNotFoundError, match="no such program"):
        run_tool(["n3ic-no-such-program"], seconds=5)
