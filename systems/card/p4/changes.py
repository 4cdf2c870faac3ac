# SPDX-License-Identifier: Apache-2.0
"""Changes of a card as commands for ``simple_switch_CLI``, sent to a switch or to a file."""

from __future__ import annotations

import re
import shutil

from n3ic.errors import MissingDependencyError, UsageError
from n3ic.exporters.p4.run.cli import CLI, UnreachedError
from n3ic.exporters.p4.run.cli import change as change_switch
from n3ic.model.network import binary_network
from n3ic.systems.card.changes import CardChange
from n3ic.systems.card.compile import SoftwareCard
from n3ic.systems.card.p4.image import change_of, commands_of, image_of, networks_of, with_network
from n3ic.systems.card.p4.verify import switch_of
from n3ic.systems.card.p4.write import program_of
from n3ic.util.files import free_path, write_atomic

_ADDRESS = re.compile(r"thrift:(?:([A-Za-z0-9][A-Za-z0-9.-]*):)?([0-9]{1,5})")


def make_change(card: SoftwareCard, change: CardChange, to: str) -> str:
    """Change a running card, or write the commands that change it.

    Args:
        card: the running card.
        change: the change.
        to: ``thrift:PORT`` or ``thrift:HOST:PORT`` of ``simple_switch``, or a new file.

    Returns:
        A sentence that says what was done, and whether it is confirmed.

    Raises:
        CardError: The program's stages cannot compute a network.
        UsageError: No switch is reachable, or the file exists.
        MissingDependencyError: ``simple_switch_CLI`` is not on the PATH.
        VerifyError: The switch does not hold the entries that it was given.
    """
    cli = cli_of(to)
    image = image_of(card)
    switch = switch_of(card, program_of(image), commands_of(image))
    text = entries_text(card, change)
    if cli is None:
        path = free_path(to, replace=False)
        # The interpreter stands in for the switch, so a bad command is found before anything is
        # written.
        count = switch.load(text)  # no file has a command that simple_switch_CLI refuses
        write_atomic(path, text)
        return (
            f"{to}: {count} commands, not yet given to a switch; next: {CLI} < {to}. "
            "--to thrift:9090 gives them to the switch there and reads its entries back"
        )
    try:
        replies = change_switch(cli, switch, text)
    except UnreachedError as error:
        raise UsageError(f"{to}: nothing was changed: {error}") from error
    return f"{to}: {change.verb} confirmed: {replies} entries read back from the switch"


def cli_of(to: str) -> list[str] | None:
    """Return the command that reaches a switch; None if ``to`` is a file.

    Raises:
        UsageError: The text begins like an address, but is malformed.
        MissingDependencyError: ``simple_switch_CLI`` is not on the PATH.
    """
    if not to.startswith("thrift:"):
        return None
    address = _ADDRESS.fullmatch(to)
    if address is None or not 0 < int(address[2]) < 1 << 16:
        raise UsageError(f"--to: expected thrift:PORT or thrift:HOST:PORT, got {to!r}")
    if shutil.which(CLI) is None:
        raise MissingDependencyError(f"--to {to} needs {CLI}: install bmv2 (package p4lang-bmv2)")
    host = ["--thrift-ip", address[1]] if address[1] else []
    return [CLI, "--thrift-port", address[2], *host]


def entries_text(card: SoftwareCard, change: CardChange) -> str:
    """Make the commands of a change, for a switch that has loaded the card's ``commands.txt``.

    Args:
        card: the running card.
        change: the change.

    Raises:
        CardError: the program's stages cannot compute a network.
    """
    image = image_of(card)
    for task, model in change.networks.items():
        image = with_network(image, task, binary_network(model))
    if change.verb == "replace":
        return networks_of(image, list(change.networks))
    remove = change.verb == "remove"
    graphs = [graph for graph in card.graphs if graph.name in change.graphs]
    return "".join(change_of(image, graph, remove=remove) for graph in graphs)
