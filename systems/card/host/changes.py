# SPDX-License-Identifier: Apache-2.0
"""Changes of a running ``card-exec``, through its FIFO."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from n3ic.errors import N3icError, UsageError
from n3ic.model.classifier import family_text
from n3ic.systems.card.changes import CardChange
from n3ic.systems.card.compile import SoftwareCard
from n3ic.systems.card.host.embedded_model import is_compiled_in, weights_of
from n3ic.systems.card.tasks.kind import writes

_PATIENCE = 10.0  # seconds to wait for an answer
_STEP = 0.02
_END = "end\n"


def change_running(card: SoftwareCard, change: CardChange, fifo: Path) -> str:
    """Send changes of networks to a running ``card-exec``, and wait for its answer.

    Args:
        card: the exported card.
        change: the change.
        fifo: FIFO that ``card-exec -c`` reads.

    Returns:
        A sentence that says what was done.

    Raises:
        UsageError: the FIFO does not exist, a graph shares all its networks with other graphs, or a
            new network would have to be compiled in.
        N3icError: no process reads the FIFO, or a network is refused.
    """
    with tempfile.TemporaryDirectory(prefix="n3ic-change-") as name:
        folder = Path(name)
        commands = list(_commands(card, change, folder))
        if not commands:
            raise UsageError(f"{', '.join(change.graphs)}: no networks of its own to {change.verb}")
        answers = _ask(fifo, commands, folder / "answer")
    failed = [line for line in answers if not line.endswith(": done")]
    if failed or len(answers) != len(commands):
        raise N3icError(f"card-exec: {'; '.join(failed) or 'fewer answers than commands'}")
    what = "tables" if change.tables else "networks"
    return f"{fifo}: {len(commands)} {what} changed ({change.verb})"


def _commands(card: SoftwareCard, change: CardChange, folder: Path) -> Iterator[str]:
    if change.verb == "remove":
        yield from (f"remove {task}" for task in _leaving(card, change.graphs))
        return
    for number, (task, entries) in enumerate(change.tables.items()):
        path = folder / f"{number}.table"
        path.write_text("".join(f"{a:x} {word:x}\n" for a, word in writes(entries)))
        yield f"table {task} {path}"
    for number, (task, model) in enumerate(change.networks.items()):
        if is_compiled_in(model) and model.digest != card.networks[task].digest:
            raise UsageError(
                f"{task}: {family_text(model.family)} of another model are compiled into the card, "
                "and no weights are loaded: export the card again"
            )
        path = folder / f"{number}.bin"
        path.write_bytes(weights_of(model))
        yield f"load {task} {path}"


def _leaving(card: SoftwareCard, graphs: Sequence[str]) -> list[str]:
    """Return the networks that no other graph uses; without them, the graphs' frames are refused.

    Raises:
        UsageError: other graphs use all networks of a graph.
    """
    staying = {b.task for g in card.graphs if g.name not in graphs for b in g.branches}
    out: list[str] = []
    for graph in card.graphs:
        if graph.name not in graphs:
            continue
        own = [b.task for b in graph.branches if b.task not in staying]
        if not own:
            raise UsageError(
                f"{graph.name}: other graphs use all of its networks, so none can be removed; "
                "export the card without it"
            )
        out += [task for task in own if task not in out]
    return out


def _ask(fifo: Path, commands: Sequence[str], answer: Path) -> list[str]:
    """Write commands into the FIFO, and return the answers."""
    # The file must exist before the command names it: card-exec opens it without creating it.
    answer.touch()
    until = time.monotonic() + _PATIENCE
    lines = "".join(f"{line}\n" for line in (*commands, f"tell {answer}"))
    try:
        with os.fdopen(_opened(fifo, until), "w", encoding="utf-8") as stream:
            stream.write(lines)
    except BrokenPipeError as error:
        raise N3icError(f"{fifo}: card-exec ended before it had read all commands") from error
    # A reader may see half an answer, so only a file that ends in "end" is complete.
    while not (text := answer.read_text(encoding="utf-8")).endswith(_END):
        if time.monotonic() > until:
            raise N3icError(f"{fifo}: no answer within {_PATIENCE:g} s: has card-exec ended?")
        time.sleep(_STEP)
    return text.removesuffix(_END).splitlines()


def _opened(fifo: Path, until: float) -> int:
    """Open the FIFO for writing, once a process reads it."""
    while True:
        try:
            if not stat.S_ISFIFO(fifo.stat().st_mode):
                raise UsageError(f"{fifo} is not a FIFO, expected the one that card-exec -c reads")
            # Without a reader, a blocking open would wait for ever; O_NONBLOCK fails with ENXIO
            # instead.
            handle = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
            # Writes may block again: a pipe holds 64 KiB, and card-exec may be busy loading a
            # network.
            os.set_blocking(handle, True)
            return handle
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise UsageError(f"{fifo}: {error.strerror}") from error
        if time.monotonic() > until:
            raise N3icError(f"{fifo}: no process reads it, expected card-exec -c {fifo}")
        time.sleep(_STEP)
