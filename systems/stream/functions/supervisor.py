# SPDX-License-Identifier: Apache-2.0
"""Runs a manager and its functions, and meanwhile serves requests on a socket."""

from __future__ import annotations

import json
import os
import selectors
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from n3ic.errors import N3icError, UsageError
from n3ic.systems.stream.functions.capture_ports import check_whole_frames
from n3ic.systems.stream.functions.chain import FunctionChain
from n3ic.systems.stream.functions.manager import ANSWER_BYTES, FunctionManager
from n3ic.systems.stream.functions.native import function_library
from n3ic.systems.stream.functions.process import (
    METERS,
    READY,
    FunctionTask,
    function_class,
)

_REQUEST_BYTES = 256
_ANSWER_S = 60
_STARTING_S = 0.02  # between two checks whether all functions are attached
_ENDING_S = 60.0  # for the exit of a function that has left the manager; a busy machine is slow


class ChainSupervisor:
    """Runs the manager and the functions of a chain, each as a process.

    Args:
        chain: the chain to run.
        path: the socket on which :func:`ask` finds it; an unused socket is replaced.
        note: called with a line of text when a function ends unexpectedly.
    """

    def __init__(self, chain: FunctionChain, path: Path, note: Callable[[str], object]) -> None:
        self._chain = chain
        self._path = path
        self._note = note
        self._functions = {f.name: f for f in chain.function}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._starts: Counter[str] = Counter()
        self._stop_requested: set[str] = set()
        self._to_start: set[str] = set()  # to be started once their processes have ended
        self._ended: set[subprocess.Popen[bytes]] = set()  # processes whose end was handled
        self._exit_codes: dict[str, int] = {}  # of functions that fell, whoever started them again

    def run(self, started: Callable[[], object] = lambda: None) -> dict[str, Any]:
        """Run until the manager ends; return its last statistics.

        Args:
            started: called when reception of packets begins.

        Raises:
            UsageError: The socket cannot be made, a function's class does not exist, or a capture
                of cut frames is to be metered.
            MissingDependencyError: DPDK or a C compiler is missing.
            N3icError: The manager or a function does not start, or the manager fails.
        """
        uses = {function.use for function in self._chain.function}
        # Ready ones surely exist, and may import a lot.
        others = [function_class(use) for use in uses if use not in READY]
        if {*METERS} & uses or any(other.meters for other in others):
            for port in self._chain.ports:
                check_whole_frames(port)
        function_library(secondary=self._chain.memory == "dpdk")  # built once, for all of them
        with ExitStack() as stack:
            listener = stack.enter_context(_listening(self._path))
            self._selector = stack.enter_context(selectors.DefaultSelector())
            stack.callback(self._kill)
            self._manager = stack.enter_context(FunctionManager(self._chain))
            for name in self._functions:
                self._start(name)
            self._wait_for_functions()
            self._selector.register(listener, selectors.EVENT_READ, self._accept)
            self._selector.register(self._manager.output, selectors.EVENT_READ, None)
            self._manager.request("receive")
            started()
            status = self._serve()
            self._wait_for_exits()
            return status

    def failures(self, status: Mapping[str, Any]) -> list[str]:
        """A line for each function that fell by itself, and so lost packets or did not finish.

        A function that was started again and lost nothing is no failure, nor is one that the user
        stopped or killed.

        Args:
            status: the last statistics, as :meth:`run` returns them.
        """
        lines = []
        for function in status["functions"]:
            name, lost = function["name"], sum(function["lost"].values())
            if name not in self._exit_codes:
                continue
            again = self._starts[name] > 1 and not self._processes[name].returncode
            if not again or lost or function["absent"]:
                lines.append(
                    f"function {name} ended {self._exit_codes[name]}: {lost:,} packets were lost "
                    f"with it, and {function['absent']:,} came while it did not run"
                )
        return lines

    # --- processes ------------------------------------------------------------------------

    def _start(self, name: str) -> None:
        task = FunctionTask(str(self._manager.path), self._manager.prefix, self._functions[name])
        # -P: no file of the working folder takes the place of a module that n3ic imports.
        command = [sys.executable, "-P", "-m", "n3ic.systems.stream.functions.process"]
        process = subprocess.Popen(
            [*command, json.dumps(asdict(task))],
            env=self._manager.environment,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._processes[name] = process
        self._starts[name] += 1
        handle = os.pidfd_open(process.pid)

        def note_end(_: object) -> None:
            self._selector.unregister(handle)
            os.close(handle)
            self._gone(name, process)

        self._selector.register(handle, selectors.EVENT_READ, note_end)

    def _wait_for_functions(self) -> None:
        while any(f["state"] != "running" for f in self._manager.status()["functions"]):
            for name, process in self._processes.items():
                with suppress(subprocess.TimeoutExpired):
                    code = process.wait(_STARTING_S)
                    raise N3icError(f"function {name} ended with {code} before the first packet")

    def _note_fall(self, name: str, code: int) -> None:
        self._exit_codes[name] = code
        self._note(f"function {name} ended {code}")

    def _gone(self, name: str, process: subprocess.Popen[bytes]) -> None:
        code = process.wait()
        self._ended.add(process)
        if name in self._to_start:
            self._to_start.discard(name)
            self._stop_requested.discard(name)
            self._start(name)
        elif code and name not in self._stop_requested:
            self._note_fall(name, code)
            if self._starts[name] <= self._functions[name].restarts:
                self._start(name)

    def _wait_for_exits(self) -> None:
        """Note functions that fell with the manager's end, or so shortly before it."""
        for name, process in self._processes.items():
            with suppress(subprocess.TimeoutExpired):
                code = process.wait(_ENDING_S)
                if code and process not in self._ended and name not in self._stop_requested:
                    self._note_fall(name, code)

    def _kill(self) -> None:
        """Kill functions that still run after the manager has ended, and close all handles."""
        for process in self._processes.values():
            process.kill()
            process.wait()
        for key in [*self._selector.get_map().values()]:
            if isinstance(key.fileobj, int):
                os.close(key.fileobj)
            elif isinstance(key.fileobj, socket.socket) and key.data == self._answer:
                key.fileobj.close()

    def _serve(self) -> dict[str, Any]:
        interrupts = 0
        while True:
            try:
                for key, _ in self._selector.select():
                    if key.data is None:
                        return self._manager.last_status()
                    key.data(key.fileobj)
            except KeyboardInterrupt:
                interrupts += 1
                if interrupts > 1:
                    raise
                self._note("no more packets are received, functions finish; again: kill them")
                self._manager.request("end")

    # --- what is asked -----------------------------------------------------------------------

    def _accept(self, listener: Any) -> None:
        client, _ = listener.accept()
        client.setblocking(False)
        self._selector.register(client, selectors.EVENT_READ, self._answer)

    def _answer(self, client: Any) -> None:
        self._selector.unregister(client)
        with client, suppress(OSError):
            words = client.recv(_REQUEST_BYTES).decode(errors="replace").split()
            try:
                answer = {"ok": True, **self._do(words)}
            except N3icError as error:
                answer = {"ok": False, "error": str(error)}
            client.send(json.dumps(answer).encode())

    def _do(self, words: list[str]) -> dict[str, Any]:
        match words:
            case ["status"]:
                return {"status": self._manager.status()}
            case ["end"]:
                self._manager.request("end")
            case ["start" | "stop" | "kill" as what, name] if name in self._functions:
                self._change(what, name)
            case ["start" | "stop" | "kill", name]:
                names = ", ".join(self._functions)
                raise UsageError(f"no function {name!r}, expected one of {names}")
            case _:
                raise UsageError("expected status, end, start NAME, stop NAME or kill NAME")
        return {}

    def _change(self, what: str, name: str) -> None:
        process = self._processes[name]
        runs = process.poll() is None
        if what == "start" and runs and name in self._stop_requested:
            self._to_start.add(name)  # start it again once it has ended
            return
        if runs == (what == "start"):
            raise UsageError(f"function {name} {'runs already' if runs else 'does not run'}")
        if what == "start":
            self._stop_requested.discard(name)
            self._start(name)
            return
        if what == "stop":
            self._manager.request(f"stop {name}")
        self._stop_requested.add(name)
        if what == "kill":
            process.kill()


def ask(path: Path, request: str) -> dict[str, Any]:
    """Send a running supervisor a request, and return its answer.

    Args:
        path: path of its socket.
        request: ``status``, ``end``, or one of ``start``, ``stop`` and ``kill`` with a name.

    Raises:
        UsageError: No supervisor runs there, or it refuses.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        client.settimeout(_ANSWER_S)
        try:
            client.connect(str(path))
            client.send(request.encode())
            answer = client.recv(ANSWER_BYTES)
        except OSError as error:
            raise UsageError(
                f"{path}: no functions answer: {error.strerror or error}; start some with "
                "n3ic stream functions run, or name their --socket"
            ) from error
    reply: dict[str, Any] = json.loads(answer or b'{"ok": false, "error": "no answer"}')
    if not reply.pop("ok"):
        raise UsageError(reply["error"])
    return reply


@contextmanager
def _listening(path: Path) -> Iterator[socket.socket]:
    """Listen for :func:`ask`; a socket that a dead supervisor left is replaced."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        try:
            if path.is_socket():
                with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
                    if probe.connect_ex(str(path)) == 0:
                        raise UsageError(f"{path}: functions run there; name another --socket")
                path.unlink()
            listener.bind(str(path))
            path.chmod(0o600)
            listener.listen()
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror or error}") from error
        try:
            yield listener
        finally:
            path.unlink(missing_ok=True)
