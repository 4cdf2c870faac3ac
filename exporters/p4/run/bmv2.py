# SPDX-License-Identifier: Apache-2.0
"""Runs an exported program on real tools: p4c-bm2-ss compiles it, simple_switch runs it.

The switch runs in its own network namespace with two veth pairs. The outer ends are in the same
namespace, so nothing is visible outside, and nothing is left behind.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from n3ic.errors import MissingDependencyError, UsageError, VerifyError
from n3ic.exporters.p4.run import packet_io
from n3ic.exporters.p4.run.cli import CLI, UnreachedError, confirm, end_of, run, run_commands
from n3ic.exporters.p4.run.execute import LoadedProgram, read_result
from n3ic.model.bits import Words
from n3ic.model.network import SHUNT, Inference
from n3ic.targets.base import Execution
from n3ic.targets.packets import INGRESS

TOOLS = {
    "p4c-bm2-ss": "p4c (packages p4lang-p4c, or the image p4lang/p4c)",
    "simple_switch": "bmv2 (packages p4lang-bmv2, or the image p4lang/behavioral-model)",
    "simple_switch_CLI": "bmv2 (packages p4lang-bmv2, or the image p4lang/behavioral-model)",
    "ip": "iproute2",
}
COMPILE_SECONDS = 900
START_SECONDS = 60
PACKET_SECONDS = 10
COMMAND_SECONDS = 30
THRIFT_PORT = 9090  # free, because the namespace holds no other switch
NOTIFICATIONS = "--notifications-addr"


@dataclass(frozen=True)
class Namespace:
    """A network namespace with a switch's ports and their outer ends."""

    name: str
    ports: tuple[int, ...] = (0, 1)

    def command(self, *words: str) -> list[str]:
        """Prefix a command line so that it runs within the namespace."""
        return ["ip", "netns", "exec", self.name, *words]


def require() -> None:
    """Check that the tools are installed and the process has the rights.

    Raises:
        MissingDependencyError: a tool is not on the PATH; the error names its package.
        UsageError: the process may not create network namespaces.
    """
    for tool, package in TOOLS.items():
        if shutil.which(tool) is None:
            raise MissingDependencyError(f"--with-bmv2 needs {tool}: install {package}")
    if os.geteuid() != 0:
        raise UsageError("--with-bmv2 makes a network namespace and raw sockets: run it as root")


def run_bmv2(
    program: LoadedProgram, words: Words, interpreted: Execution, expected: list[bytes]
) -> Execution:
    """Send one packet per input through simple_switch, and compare all bytes that come back.

    Returns:
        Results of simple_switch. The interpreter's take the place of scores and classes that the
        result header does not hold. Hidden bits are not available.

    Raises:
        MissingDependencyError: a tool is missing.
        UsageError: the process is not root.
        VerifyError: the program does not compile, the switch does not start or refuses an entry, or
            a packet is lost, differs, or leaves through another port.
    """
    require()
    requests = program.requests(words)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="n3ic-bmv2-")))
        compiled = compile_program(program.source, folder)
        namespace = stack.enter_context(network_namespace(program.packets.shunt_port))
        log = folder / "switch.log"
        process = stack.enter_context(running_switch(namespace, compiled, log))
        load_entries(namespace, program, process, log)
        answers = send(namespace, requests)
        if process.poll() is not None:
            raise VerifyError(f"simple_switch ended with {process.returncode}: {_tail(log)}")
    return _compare(program, requests, answers, interpreted, expected)


def compile_program(source: str, folder: Path) -> Path:
    """Compile a P4 program with p4c-bm2-ss, and return the path of the bmv2 JSON."""
    program, compiled = folder / "n3ic.p4", folder / "n3ic.json"
    program.write_text(source, encoding="ascii")
    done = run(
        ["p4c-bm2-ss", "--arch", "v1model", "-o", str(compiled), str(program)], COMPILE_SECONDS
    )
    if done.returncode or not compiled.is_file():
        raise VerifyError(f"p4c-bm2-ss refuses the program: {end_of(done.stderr or done.stdout)}")
    return compiled


@contextlib.contextmanager
def network_namespace(more: int | None = None) -> Iterator[Namespace]:
    """Create a namespace with a veth pair per port, and remove it afterwards.

    Args:
        more: a port in addition to 0 and 1.
    """
    ports = (0, 1) if more in (None, 0, 1) else (0, 1, more)
    namespace = Namespace(f"n3ic-{os.getpid()}-{secrets.token_hex(4)}", ports)
    name = namespace.name
    _checked(["ip", "netns", "add", name])
    try:
        # The kernel sends IPv6 packets by itself; they must not reach the switch.
        _checked(namespace.command("sysctl", "-q", "-w", "net.ipv6.conf.all.disable_ipv6=1"), True)
        _checked(["ip", "-n", name, "link", "set", "lo", "up"])
        for port in namespace.ports:
            pair = ["add", f"sw{port}", "type", "veth", "peer", "name", f"host{port}"]
            _checked(["ip", "-n", name, "link", *pair])
            # A wide input needs more than the 1,500 bytes of a default MTU.
            for end in (f"sw{port}", f"host{port}"):
                _checked(["ip", "-n", name, "link", "set", end, "mtu", "9000", "up"])
        yield namespace
    finally:
        # An error from the block matters more than a namespace that could not be removed.
        with contextlib.suppress(VerifyError):
            run(["ip", "netns", "del", name], COMMAND_SECONDS)


@contextlib.contextmanager
def running_switch(
    namespace: Namespace, compiled: Path, log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """Run simple_switch on the namespace's ports, and terminate it by its process id."""
    options = ["--thrift-port", str(THRIFT_PORT)]
    known = run(["simple_switch", "--help"], COMMAND_SECONDS)
    if NOTIFICATIONS in known.stdout + known.stderr:
        # All switches of a machine share the default path of the socket. A switch built without
        # nanomsg sends no notifications and does not know the option.
        options += [NOTIFICATIONS, f"ipc://{log.parent}/notifications.ipc"]
    ports = [word for port in namespace.ports for word in ("-i", f"{port}@sw{port}")]
    command = namespace.command("simple_switch", *ports, *options, str(compiled))
    with log.open("wb") as stream:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)


def load_entries(
    namespace: Namespace, program: LoadedProgram, process: subprocess.Popen[bytes], log: Path
) -> int:
    """Load a program's entries into the switch once it answers, and read them back.

    Returns:
        Number of entries that were read back.

    Raises:
        VerifyError: the switch ends, does not answer, refuses an entry, or does not hold it.
    """
    switch = program.switch()
    deadline = time.monotonic() + START_SECONDS
    cli = namespace.command(CLI, "--thrift-port", str(THRIFT_PORT))
    while True:
        if process.poll() is not None:
            raise VerifyError(f"simple_switch ended with {process.returncode}: {_tail(log)}")
        try:
            run_commands(cli, program.commands.splitlines())
        except UnreachedError as error:
            if time.monotonic() > deadline:
                raise VerifyError(f"simple_switch does not answer: {_tail(log)}") from error
            time.sleep(0.2)
        else:
            return confirm(cli, switch, switch.read(program.commands))


def send(namespace: Namespace, requests: Sequence[bytes]) -> list[tuple[int, bytes]]:
    """Send packets into the ingress port, and collect packets from all ports.

    Returns:
        For each packet, the port that it left through and its bytes; empty if it was lost.
    """
    command = namespace.command(
        *(sys.executable, "-I", str(Path(packet_io.__file__).resolve()), str(PACKET_SECONDS)),
        *(f"host{INGRESS}", *(f"host{port}" for port in namespace.ports)),
    )
    # `packet_io` ends at the first lost packet, so only one of them waits PACKET_SECONDS.
    seconds = PACKET_SECONDS + COMMAND_SECONDS + len(requests)
    try:
        done = subprocess.run(
            command, input=packet_io.join(list(requests)), capture_output=True, timeout=seconds
        )
    except subprocess.TimeoutExpired as error:
        raise VerifyError(f"packets took more than {seconds} s") from error
    if done.returncode:
        raise VerifyError(f"packets cannot be sent: {end_of(done.stderr.decode(errors='replace'))}")
    answers = packet_io.split(done.stdout)
    return [(namespace.ports[data[0]], data[1:]) if data else (0, b"") for data in answers]


def _compare(
    program: LoadedProgram,
    requests: list[bytes],
    answers: list[tuple[int, bytes]],
    interpreted: Execution,
    expected: list[bytes],
) -> Execution:
    trace = interpreted.inference
    scores = np.array(trace.scores)
    classes, margins = np.array(trace.classes), np.array(trace.margins)
    verdicts = np.array(trace.verdicts)
    for row, request in enumerate(requests):
        port, answer = answers[row] if row < len(answers) else (0, b"")
        if not answer:
            raise VerifyError(f"vector {row}: no packet came back within {PACKET_SECONDS} s")
        result = read_result(program.packets, request, answer, row)
        if result.scores is not None:
            scores[row] = result.scores
        if result.verdict is not None:
            verdicts[row] = result.verdict
            if result.verdict != SHUNT:
                classes[row] = result.verdict
        if result.margin is not None:
            margins[row] = result.margin
        if port != program.port(int(verdicts[row])):
            raise VerifyError(
                f"vector {row}: the packet leaves through port {port}, "
                f"{program.port(int(verdicts[row]))} expected"
            )
        same_result = np.array_equal(scores[row], trace.scores[row]) and (
            (classes[row], margins[row]) == (trace.classes[row], trace.margins[row])
        )
        # A wrong result is reported by the comparison with the model, which names the neuron. This
        # check catches all other changes.
        if same_result and answer != expected[row]:
            raise VerifyError(f"vector {row}: bytes of the packet differ from the interpreter's")
    executor = f"{tool_version('simple_switch')}, compiled by {tool_version('p4c-bm2-ss')}"
    return Execution(Inference(scores, classes, margins, verdicts=verdicts), executor)


def tool_version(tool: str) -> str:
    """Return a tool's name and version, for the executor of a verification."""
    done = run([tool, "--version"], COMMAND_SECONDS)
    match = re.search(r"\d+\.\d[\w.+-]*", done.stdout or done.stderr)
    return f"{tool} {match[0][:60] if match else 'of unknown version'}"


def _checked(command: list[str], optional: bool = False) -> None:
    done = run(command, COMMAND_SECONDS)
    if done.returncode and not optional:
        raise VerifyError(f"{' '.join(command)}: {end_of(done.stderr or done.stdout)}")


def _tail(log: Path) -> str:
    return end_of(log.read_bytes().decode(errors="replace"))
