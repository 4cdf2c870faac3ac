# SPDX-License-Identifier: Apache-2.0
"""The manager's process: ports, packet buffers, and the statistics of functions."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, Self

from n3ic.errors import N3icError, UsageError
from n3ic.systems.stream.functions.chain import FunctionChain
from n3ic.systems.stream.functions.native import manager_program

ANSWER_BYTES = 1 << 20
_PORT_BUFFERS = 4096  # buffers for a port's queues, and for packets inside the manager
_OWN_MB = 64  # DPDK's memory in addition to the packets'
_OBJECT = 448  # bytes of a packet buffer in addition to its packet
_ANSWER_S = 60
_LONGEST = 60  # bytes of a folder's path: the path of a socket below it has at most 107


class FunctionManager:
    """A manager that runs within a ``with`` block, and leaves nothing behind.

    Args:
        chain: its ports, and the functions that may attach.

    Attributes:
        path: path of the socket to which functions attach.
        prefix: EAL's ``--file-prefix`` if functions are secondary processes; otherwise empty.
        environment: environment variables of the manager and of functions.
        output: the manager's output, which becomes readable when it has ended.

    Raises:
        UsageError: The chain has too few buffers, or a NIC without DPDK's memory.
        MissingDependencyError: DPDK or a C compiler is missing.
        N3icError: The manager does not start.
    """

    path: Path
    prefix: str
    environment: Mapping[str, str]
    output: IO[bytes]

    def __init__(self, chain: FunctionChain) -> None:
        self._chain = chain
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        program = manager_program()
        with ExitStack() as stack:
            place = tempfile.gettempdir()
            if len(os.fsencode(place)) > _LONGEST:
                place = "/tmp"  # noqa: S108 - only this user can open the folder made in it
            folder = stack.enter_context(
                tempfile.TemporaryDirectory(prefix="n3ic-functions-", dir=place)
            )
            self.path = Path(folder, "manager")
            self.prefix = Path(folder).name if self._chain.memory == "dpdk" else ""
            # DPDK puts its files into this folder, which is removed at the end.
            self.environment = {**os.environ, "RUNTIME_DIRECTORY": folder}
            command = [str(program), *self._eal_words(), "--", *self._words()]
            stack.callback(self._clean_huge)
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, env=self.environment, start_new_session=True
            )
            stack.callback(self._kill)
            assert self._process.stdout is not None  # noqa: S101 - it is a pipe
            self.output = self._process.stdout
            if self.output.readline() != b"ready\n":
                raise N3icError(f"the manager ended with {self._process.wait(_ANSWER_S)}")
            self._control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            stack.enter_context(self._control)
            self._control.settimeout(_ANSWER_S)
            self._control.connect(str(self.path))
            self.request("control")
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def request(self, word: str) -> str:
        """Tell the manager ``receive``, ``end``, ``status`` or ``stop NAME``; return its answer.

        Raises:
            UsageError: The manager refuses.
            N3icError: The manager has ended or does not answer.
        """
        try:
            self._control.send(word.encode())
            answer = self._control.recv(ANSWER_BYTES).decode()
        except OSError as error:
            raise N3icError(f"the manager does not answer: {error}") from error
        if not answer:
            raise N3icError("the manager has ended")
        if answer.startswith("error "):
            raise UsageError(f"{word}: {answer.removeprefix('error ')}")
        return answer

    def status(self) -> dict[str, Any]:
        """Statistics, see :func:`with_balance`."""
        return with_balance(json.loads(self.request("status")))

    def last_status(self) -> dict[str, Any]:
        """Wait for the manager's end; return its final statistics.

        Raises:
            N3icError: The manager failed.
        """
        statistics = self.output.read()
        code = self._process.wait(_ANSWER_S)
        if code:
            raise N3icError(f"the manager ended with {code}; the packets that it held are lost")
        return with_balance(json.loads(statistics))

    def _kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self.output.close()

    def _clean_huge(self) -> None:
        for mount in _huge_mounts() if self.prefix else ():
            for path in mount.glob(f"{self.prefix}map_*"):
                path.unlink()

    def _eal_words(self) -> list[str]:
        chain = self._chain
        cpu = min(os.sched_getaffinity(0))
        words = [f"--lcores=0@{cpu}", "--no-telemetry", "--log-level=4"]
        virtual = [port for port in chain.ports if port.startswith("net_")]
        cards = [port for port in chain.ports if port not in virtual]
        words += [f"--vdev={port}" for port in virtual]
        words += [word for port in cards for word in ("-a", port)] or ["--no-pci"]
        if self.prefix:
            megabytes = (self._buffers * (chain.buffer_bytes + _OBJECT) >> 20) + _OWN_MB
            return [*words, f"--file-prefix={self.prefix}", "-m", str(megabytes)]
        if cards:
            raise UsageError(f'{cards[0]}: a NIC reaches only DPDK\'s memory: memory = "dpdk"')
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
        words = ["--socket", str(self.path), "--memory", chain.memory]
        words += ["--buffers", str(self._buffers), "--buffer-bytes", str(chain.buffer_bytes)]
        words += ["--packets", str(chain.packets)] if chain.packets else []
        words += ["--until-end"] if chain.until_end else []
        words += [word for name in chain.port_names for word in ("--port", name)]
        for f in chain.function:
            routes = ",".join(chain.place(name) for name in f.routes)
            numbers = f"{f.tickets}:{round(f.hang_s * 1000)}:{int(f.absent == 'pass')}"
            words += ["--function", f"{f.name}:{numbers}:{chain.place(f.next)}:{routes}"]
        return [*words, "--entries", chain.entries, "--share-by", chain.share_by]


def with_balance(status: dict[str, Any]) -> dict[str, Any]:
    """Add the sums that show whether every packet is accounted for.

    ``copies`` counts references to packets that were handed to the places of ``receive``. Each is
    now in a function, has left by a port or at the end of the chain, was dropped for a reason, or
    was lost with a function. ``unaccounted`` is the remainder, which must be 0.
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


def _huge_mounts() -> list[Path]:
    lines = Path("/proc/mounts").read_text("utf-8").splitlines()
    return [Path(line.split()[1]) for line in lines if line.split()[2] == "hugetlbfs"]
