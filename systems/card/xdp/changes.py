# SPDX-License-Identifier: Apache-2.0
"""Change a card's program on an interface, through the maps that it reads."""

from __future__ import annotations

import socket
from contextlib import ExitStack

from n3ic.errors import ExportError, UsageError
from n3ic.exporters.xdp import libbpf
from n3ic.exporters.xdp.network.values import value_bytes
from n3ic.systems.card.changes import CardChange
from n3ic.systems.card.xdp.image import XdpCardImage
from n3ic.systems.card.xdp.program import PROGRAM_NAME, CardTables


def change_attached(image: XdpCardImage, change: CardChange, interface: str) -> str:
    """Change networks and UIDs of the program on an interface, each atomically.

    Args:
        image: the running card.
        change: the change.
        interface: name of the interface.

    Raises:
        UsageError: The interface does not exist or has no card's program, or a network does not fit
            the program.
        BpfError: The kernel refuses the change.
    """
    values = {}
    for name, model in change.networks.items():
        try:
            values[image.slots[name]] = value_bytes(image.structure, model)
        except ExportError as error:
            raise UsageError(
                f"{name}: {error}: train with n3ic train --input-of the card's network, or export "
                "the card again"
            ) from error
    # All values exist before the first write, so a network that does not fit changes nothing.
    with ExitStack() as stack:
        tables = _tables(interface, stack)
        for graph in image.card.graphs:
            if tables.maps["graphs"].lookup(graph.uid) not in (None, image.graph_value(graph)):
                raise UsageError(
                    f"{interface}: UID {graph.uid} of its program is not that of {graph.name}, "
                    "expected the program of this export"
                )
        # Networks before graphs: an added graph must find its networks in their slots.
        for slot, value in values.items():
            tables.set_network(slot, value)
        for graph in image.card.graphs:
            if graph.name in change.graphs:
                is_removed = change.verb == "remove"
                tables.set_graph(graph.uid, None if is_removed else image.graph_value(graph))
    return f"{interface}: {len(values)} networks and {len(change.graphs)} graphs changed"


def _tables(interface: str, stack: ExitStack) -> CardTables:
    """Open the tables of the card's program on an interface."""
    try:
        attached = libbpf.query(socket.if_nametoindex(interface))
    except OSError as error:
        raise UsageError(f"no interface {interface!r}: {error.strerror or error}") from error
    if attached is None:
        raise UsageError(f"{interface} has no XDP program, expected that of a card")
    program = stack.enter_context(libbpf.program_by_id(attached.program_id))
    maps = {m.name: stack.enter_context(m) for m in program.maps()}
    if program.name != PROGRAM_NAME or not {"models", "graphs", "tenants"} <= maps.keys():
        raise UsageError(f"{interface}: its XDP program {program.name!r} is not that of a card")
    return CardTables(maps)
