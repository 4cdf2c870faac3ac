# SPDX-License-Identifier: Apache-2.0
"""A Jupyter kernel that is forked from a process which has imported the libraries once.

Importing PyTorch, scikit-learn and matplotlib takes a kernel longer than most notebooks. The module
runs by itself in two roles, and so imports nothing of the tests: ``serve SOCKET`` is the process
that forks, ``start SOCKET CONNECTION_FILE`` what Jupyter starts as the kernel.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

NAME = "forked"
_MODULES = (
    "matplotlib.pyplot",
    "pandas",
    "sklearn.ensemble",
    "n3ic.families.binary.fit",
    "n3ic.usecases.training",
    "ipykernel.kernelapp",
)


@contextmanager
def kernels(folder: Path) -> Iterator[None]:
    """Such kernels, which Jupyter knows as ``forked`` if its path contains a folder.

    Args:
        folder: an empty folder for its specification and the socket.
    """
    address, spec = folder / "socket", folder / "kernels" / NAME
    spec.mkdir(parents=True)
    start = [sys.executable, "-S", __file__, "start", str(address), "{connection_file}"]
    text = json.dumps({"argv": start, "display_name": NAME, "language": "python"})
    (spec / "kernel.json").write_text(text)
    serve = [sys.executable, __file__, "serve", str(address)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with subprocess.Popen(serve, stdout=subprocess.PIPE, env=environment) as server:
        try:
            assert server.stdout
            assert server.stdout.readline() == b"ready\n"
            yield
        finally:
            server.terminate()


def _serve(address: str) -> None:
    """Fork a kernel for each connection, which is closed when the kernel has ended."""
    import importlib
    import signal

    for module in _MODULES:
        with suppress(ImportError):  # the notebook says what is missing
            importlib.import_module(module)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no kernel is waited for
    os.write(1, b"ready\n")
    os.dup2(2, 1)  # nobody reads on
    while True:
        connection, _ = listener.accept()
        if os.fork():
            connection.close()
            continue
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        listener.close()
        try:
            _run(json.loads(connection.makefile().readline()))
        finally:
            os._exit(0)


def _run(wanted: dict[str, Any]) -> None:
    import pandas as pd
    from ipykernel.kernelapp import launch_new_instance

    os.setsid()
    os.chdir(wanted["folder"])
    os.environ.clear()
    os.environ.update(wanted["environment"])
    pd.set_option("display.max_columns", 20)  # what pandas sets if a kernel imports it
    sys.path[0] = ""  # the folder of the notebook, as a kernel has it
    launch_new_instance(argv=["-f", wanted["connection"], "--log-level=ERROR"])


def _start(address: str, connection_file: str) -> None:
    """Ask for a kernel, and be there as long as it is."""
    wanted = {
        "connection": connection_file,
        "folder": os.getcwd(),  # noqa: PTH109 - pathlib takes long to import
        "environment": dict(os.environ),
    }
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        connection.sendall(json.dumps(wanted).encode() + b"\n")
        connection.recv(1)


if __name__ == "__main__":
    role, *arguments = sys.argv[1:]
    {"serve": _serve, "start": _start}[role](*arguments[:2])
