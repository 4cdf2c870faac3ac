# SPDX-License-Identifier: Apache-2.0
"""The process of one function: ``python -m n3ic.systems.stream.functions.process JSON``."""

from __future__ import annotations

import importlib
import importlib.util
import json
import signal
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from n3ic.errors import N3icError, N3icWarning, UsageError
from n3ic.systems.stream.functions.chain import ChainFunction
from n3ic.systems.stream.functions.packets import PacketFunction, SharedPackets, actions_of
from n3ic.util.plain_data import from_plain

_PACKAGE, _LEARNING = "n3ic.systems.stream.functions", "n3ic.systems.stream.learning"
READY = {
    "count": f"{_PACKAGE}.builtin:CountFunction",
    "learner": f"{_LEARNING}.learner_function:LearnerFunction",
    "messages": f"{_PACKAGE}.messages:MessagesFunction",
    "meter": f"{_PACKAGE}.metering:MeterFunction",
    "recorder": f"{_PACKAGE}.builtin:RecorderFunction",
    "second-stage": f"{_LEARNING}.second_stage_function:SecondStageFunction",
}
"""The classes of the ready functions, by name."""
METERS = ("learner", "meter", "second-stage")
"""Those of them that meter flows."""


@dataclass(frozen=True)
class FunctionTask:
    """What the process of a function needs to know.

    Attributes:
        socket: path of the manager's socket.
        prefix: EAL's ``--file-prefix`` of a manager that uses DPDK's own memory; otherwise empty.
        function: the function.
    """

    socket: str
    prefix: str
    function: ChainFunction


def function_class(use: str) -> type[PacketFunction]:
    """The class that a chain names, from this package or from a file.

    Raises:
        UsageError: There is no such file or class.
    """
    file, _, name = use.rpartition(":")
    if not file:
        if use not in READY:
            raise UsageError(f"use: expected {', '.join(READY)} or FILE.py:CLASS, got {use!r}")
        place, _, name = READY[use].partition(":")
        return cast("type[PacketFunction]", getattr(importlib.import_module(place), name))
    path = Path(file)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if path.suffix != ".py" or not path.is_file() or spec is None or spec.loader is None:
        raise UsageError(f"use: {file}: expected a Python file")
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.append(folder)  # last, so that its files hide no module of the libraries
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function = getattr(module, name, None)
    if not (isinstance(function, type) and issubclass(function, PacketFunction)):
        raise UsageError(f"use: {file}: expected a subclass of PacketFunction named {name}")
    return function


def serve(task: FunctionTask) -> None:
    """Attach to the manager, and hand packets to the function until it must end.

    Raises:
        N3icError: The manager refuses or has ended, or the function returned something wrong.
    """
    settings = task.function
    kind = function_class(settings.use)
    with SharedPackets(task.socket, settings.name, settings.batch, task.prefix) as shared:
        function = kind(settings.options, settings.routes, shared)
        while True:
            stopping = shared.stopping  # read first: once set, the ring holds all packets
            view = shared.receive(function.wait_us)
            if len(view):
                actions = actions_of(function.on_batch(view), len(view))
                shared.give_back(view.descriptors, actions)
            elif stopping:
                break
            else:
                function.on_idle()
                shared.check_manager()
        function.on_end()


def write_warnings(name: str) -> None:
    """Write each warning of this process as a line on standard error, with the function's name."""

    def write(message: Warning | str, *_: object, **__: object) -> None:
        sys.stderr.write(f"function {name}: {message}\n")

    warnings.showwarning = write
    warnings.simplefilter("always", N3icWarning)


def main(words: list[str]) -> int:
    """Serve, and return the exit code; the text of an error goes to standard error."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # at Ctrl-C, the manager ends the functions
    task = from_plain(FunctionTask, json.loads(words[0]), strict=True)
    write_warnings(task.function.name)
    try:
        serve(task)
    except (N3icError, OSError) as error:
        sys.stderr.write(f"function {task.function.name}: {error}\n")
        return getattr(error, "exit_code", 1)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
