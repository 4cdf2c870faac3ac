# SPDX-License-Identifier: Apache-2.0
"""Runs a manager and its functions, and does what is asked by a socket meanwhile."""

from __future__ import annotations

import json
import os
import selectors
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from n3ic.errors import N3icError, UsageError
from n3ic.systems.stream.functions.chain import FunctionChain
from n3ic.systems.stream.functions.native import function_library, manager_program
from n3ic.systems.stream.functions.process import FunctionTask, function_class

REQUEST_BYTES, ANSWER_BYTES = 256, 1 << 20
_PORT_BUFFERS = 4096  # of a port's queues, and what passes through the manager
_OWN_MB = 64  # of DPDK's memory besides the packets'
_OBJECT = 448  # bytes of a packet buffer besides its packet
_START_S, _ANSWER_S = 120, 60
_ENDS = ("died", "hung", "damaged")  # after which a function may be started again


@dataclass
class _Running:
    """Processes of a chain.

    Attributes:
        process: by function, the one started last.
        starts: by function.
        told_to_stop: functions that were asked to end, or killed on request.
    """

    process: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    starts: Counter[str] = field(default_factory=Counter)
    told_to_stop: set[str] = field(default_factory=set)


class ChainSupervisor:
    """Manager and functions of a chain, each a process.

    Args:
        chain: what is run.
        path: the socket on which :func:`ask` finds it; it must not exist.
        quiet: receives a line when something ends.

    Raises:
        UsageError: the socket cannot be made, or a function's class is not there.
        MissingDependencyError: DPDK or a C compiler is missing.
        N3icError: the manager or a function does not start.
    """

    def __init__(
        self, chain: FunctionChain, path: Path, note: Callable[[str], object] = print
    ) -> None:
        self._chain = chain
        self._path = path
        self._note = note
        self._running = _Running()
        self._functions = {f.name: f for f in chain.function}
        self._selector = selectors.DefaultSelector()
        self._ending = False

    def run(self, started: Callable[[], object] = lambda: None) -> dict[str, Any]:
        """Run until the manager ends; return its last statistics.

        Args:
            started: called when packets begin to be received.
        """
        for function in self._chain.function:
            function_class(function.use)
        program = manager_program()
        function_library(secondary=self._chain.memory == "dpdk")  # built once, for all of them
        with (
            tempfile.TemporaryDirectory(prefix="n3ic-functions-") as folder,
            _listening(self._path) as listener,
        ):
            self._folder = Path(folder)
            # Names of sockets are short, and DPDK names its files by the prefix.
            self._prefix = Path(folder).name if self._chain.memory == "dpdk" else ""
            try:
                return self._run(program, listener, started)
            finally:
                self._clean()

    # --- processes ------------------------------------------------------------------------

    def _run(
        self, program: Path, listener: socket.socket, started: Callable[[], object]
    ) -> dict[str, Any]:
        command = [str(program), *self._eal_words(), "--", *self._words()]
        self._manager = subprocess.Popen(
            command, stdout=subprocess.PIPE, env=self._environment(), start_new_session=True
        )
        assert self._manager.stdout is not None  # noqa: S101 - it is a pipe
        if self._manager.stdout.readline() != b"ready\n":
            raise N3icError(f"the manager ended {self._manager.wait(_START_S)}")
        self._control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.settimeout(_ANSWER_S)
        self._control.connect(str(self._folder / "manager"))
        self._say("control")
        for name in self._functions:
            self._start(name)
        self._wait_for_functions()
        self._say("receive")
        started()
        return self._serve(listener)

    def _wait_for_functions(self) -> None:
        while True:
            states = {f["name"]: f["state"] for f in self._status()["functions"]}
            if all(state == "running" for state in states.values()):
                return
            for name, process in self._running.process.items():
                with suppress(subprocess.TimeoutExpired):
                    code = process.wait(0.02)
                    raise N3icError(f"function {name} ended {code} before the first packet")

    def _serve(self, listener: socket.socket) -> dict[str, Any]:
        assert self._manager.stdout is not None  # noqa: S101 - it is a pipe
        self._selector.register(listener, selectors.EVENT_READ, self._accept)
        self._selector.register(self._manager.stdout, selectors.EVENT_READ, None)
        interrupts = 0
        while True:
            try:
                for key, _ in self._selector.select():
                    if key.data is None:
                        return self._ended()
                    key.data(key.fileobj)
            except KeyboardInterrupt:
                interrupts += 1
                if interrupts > 1:
                    raise
                self._note("ending: no more packets are received; again to kill")
                self._end()

    def _ended(self) -> dict[str, Any]:
        assert self._manager.stdout is not None  # noqa: S101 - it is a pipe
        said = self._manager.stdout.read()
        code = self._manager.wait(_ANSWER_S)
        if code:
            raise N3icError(f"the manager ended {code}; packets that it had are lost")
        return with_balance(json.loads(said))

    def _start(self, name: str) -> None:
        task = FunctionTask(str(self._folder / "manager"), self._prefix, self._functions[name])
        command = [sys.executable, "-m", "n3ic.systems.stream.functions.process"]
        process = subprocess.Popen(
            [*command, json.dumps(asdict(task))],
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._running.process[name] = process
        self._running.starts[name] += 1
        handle = os.pidfd_open(process.pid)

        def gone(_: object) -> None:
            self._selector.unregister(handle)
            os.close(handle)
            self._gone(name, process)

        self._selector.register(handle, selectors.EVENT_READ, gone)

    def _gone(self, name: str, process: subprocess.Popen[bytes]) -> None:
        code = process.wait()
        expected = name in self._running.told_to_stop or self._ending
        if expected or code == 0:
            return
        self._note(f"function {name} ended {code}")
        if self._running.starts[name] <= self._functions[name].restarts:
            self._start(name)

    def _clean(self) -> None:
        """End what still runs, and remove what DPDK leaves of its own."""
        processes = [*self._running.process.values()]
        processes += [self._manager] if hasattr(self, "_manager") else []
        for process in processes:
            if process.poll() is None:
                process.kill()
            process.wait()
            if process.stdout:
                process.stdout.close()
        if hasattr(self, "_control"):
            self._control.close()
        for key in [*self._selector.get_map().values()]:
            if isinstance(key.fileobj, int):
                os.close(key.fileobj)
            elif isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
        self._selector.close()
        if self._prefix:
            for mount in _huge_mounts():
                for path in mount.glob(f"{self._prefix}map_*"):
                    path.unlink()

    # --- what the manager is told ------------------------------------------------------------

    def _eal_words(self) -> list[str]:
        chain = self._chain
        cpu = min(os.sched_getaffinity(0))
        words = [f"--lcores=0@{cpu}", "--no-telemetry", "--log-level=4"]
        virtual = [port for port in chain.ports if port.startswith("net_")]
        cards = [port for port in chain.ports if port not in virtual]
        words += [f"--vdev={port}" for port in virtual]
        words += [word for port in cards for word in ("-a", port)] or ["--no-pci"]
        if self._prefix:
            megabytes = (self._buffers * (chain.buffer_bytes + _OBJECT) >> 20) + _OWN_MB
            return [*words, f"--file-prefix={self._prefix}", "-m", str(megabytes)]
        if cards:
            raise UsageError(f'{cards[0]}: a NIC reaches DPDK\'s memory alone: memory = "dpdk"')
        return [*words, "--no-huge", "-m", str(_OWN_MB), "--no-shconf", "--iova-mode=va"]

    @property
    def _buffers(self) -> int:
        chain = self._chain
        least = sum(f.tickets for f in chain.function) + _PORT_BUFFERS * len(chain.ports)
        if chain.buffers and chain.buffers < least:
            raise UsageError(f"buffers: expected 0 or {least:,} and more, got {chain.buffers:,}")
        return chain.buffers or least

    def _words(self) -> list[str]:
        chain = self._chain
        words = ["--socket", str(self._folder / "manager"), "--memory", chain.memory]
        words += ["--buffers", str(self._buffers), "--buffer-bytes", str(chain.buffer_bytes)]
        words += ["--packets", str(chain.packets)] if chain.packets else []
        words += ["--until-end"] if chain.until_end else []
        words += [word for name in chain.port_names for word in ("--port", name)]
        for f in chain.function:
            routes = ",".join(chain.place(name) for name in f.routes)
            numbers = f"{f.tickets}:{round(f.hang_s * 1000)}:{int(f.absent == 'pass')}"
            words += ["--function", f"{f.name}:{numbers}:{chain.place(f.next)}:{routes}"]
        return [*words, "--entries", ",".join(chain.place(name) for name in chain.receive)]

    def _environment(self) -> Mapping[str, str]:
        """DPDK makes its files below this run's folder, which is removed."""
        return {**os.environ, "RUNTIME_DIRECTORY": str(self._folder)}

    def _say(self, word: str) -> str:
        self._control.send(word.encode())
        answer = self._control.recv(ANSWER_BYTES).decode()
        if not answer:
            raise N3icError("the manager is gone")
        return answer

    def _status(self) -> dict[str, Any]:
        return with_balance(json.loads(self._say("status")))

    # --- what is asked -----------------------------------------------------------------------

    def _accept(self, listener: Any) -> None:
        client, _ = listener.accept()
        client.setblocking(False)
        self._selector.register(client, selectors.EVENT_READ, self._answer)

    def _answer(self, client: Any) -> None:
        self._selector.unregister(client)
        with client, suppress(OSError):
            words = client.recv(REQUEST_BYTES).decode(errors="replace").split()
            try:
                said = {"ok": True, **self._do(words)}
            except N3icError as error:
                said = {"ok": False, "error": str(error)}
            client.send(json.dumps(said).encode())

    def _do(self, words: list[str]) -> dict[str, Any]:
        match words:
            case ["status"]:
                return {"status": self._status()}
            case ["end"]:
                self._end()
            case ["start", name]:
                self._check_known(name)
                if self._running.process[name].poll() is None:
                    raise UsageError(f"function {name} runs already")
                self._running.told_to_stop.discard(name)
                self._start(name)
            case ["stop", name]:
                self._check_known(name)
                self._running.told_to_stop.add(name)
                answer = self._say(f"stop {name}")
                if answer != "ok":
                    raise UsageError(f"function {name}: {answer.removeprefix('error ')}")
            case ["kill", name]:
                self._check_known(name)
                process = self._running.process[name]
                if process.poll() is not None:
                    raise UsageError(f"function {name} does not run")
                self._running.told_to_stop.add(name)
                process.kill()
            case _:
                raise UsageError("expected status, end, start NAME, stop NAME or kill NAME")
        return {}

    def _check_known(self, name: str) -> None:
        if name not in self._functions:
            known = ", ".join(self._functions)
            raise UsageError(f"there is no function {name!r}, expected one of {known}")

    def _end(self) -> None:
        self._ending = True
        self._say("end")


def with_balance(status: dict[str, Any]) -> dict[str, Any]:
    """Statistics with the sums that tell whether every packet is accounted for.

    ``copies`` are references to packets that were handed to the places of ``receive``; each is in
    a function now, left by a port or at a chain's end, was dropped for a reason, or was lost with
    a function. ``unaccounted`` is what is left over, and 0.
    """
    functions = status["functions"]
    reasons = ("dropped", "full", "absent", "no_such_action")
    out = {
        "in_functions": sum(f["held"] for f in functions),
        "ended": status["ended"],
        "sent": sum(p["sent"] for p in status["ports"]),
        "port_full": sum(p["full"] for p in status["ports"]),
        **{reason: sum(f[reason] for f in functions) for reason in reasons},
        "lost_with_functions": sum(sum(f["lost"].values()) for f in functions),
    }
    return {**status, "balance": {**out, "unaccounted": status["copies"] - sum(out.values())}}


def ask(path: Path, request: str) -> dict[str, Any]:
    """Ask a running supervisor: ``status``, ``end``, or ``start``, ``stop`` or ``kill`` and a name.

    Raises:
        UsageError: none runs there, or it refuses.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        client.settimeout(_ANSWER_S)
        try:
            client.connect(str(path))
            client.send(request.encode())
            answer = client.recv(ANSWER_BYTES)
        except OSError as error:
            raise UsageError(
                f"{path}: no functions answer: {error.strerror or error}: start some with "
                "n3ic stream functions run, or name their --socket"
            ) from error
    found: dict[str, Any] = json.loads(answer or b'{"ok": false, "error": "no answer"}')
    if not found.pop("ok"):
        raise UsageError(found["error"])
    return found


@contextmanager
def _listening(path: Path) -> Iterator[socket.socket]:
    """A socket for :func:`ask`; one that a dead supervisor left is replaced."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        if path.is_socket():
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
                if probe.connect_ex(str(path)) == 0:
                    raise UsageError(f"{path}: functions run there already; name another --socket")
            path.unlink()
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            listener.bind(str(path))
            path.chmod(0o600)
            listener.listen()
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror or error}") from error
        try:
            yield listener
        finally:
            path.unlink(missing_ok=True)


def _huge_mounts() -> list[Path]:
    lines = Path("/proc/mounts").read_text("utf-8").splitlines()
    return [Path(line.split()[1]) for line in lines if line.split()[2] == "hugetlbfs"]
