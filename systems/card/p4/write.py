# SPDX-License-Identifier: Apache-2.0
"""Write the program of a card, its entries, and the changes of single graphs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from n3ic.exporters import p4
from n3ic.exporters.p4.lanes import lane_layers
from n3ic.exporters.p4.shared.pipeline import literal
from n3ic.systems.card.compile import SoftwareCard, SoftwareGraph
from n3ic.systems.card.p4.image import (
    P4CardImage,
    change_of,
    commands_of,
    graph_entries_of,
    image_of,
)
from n3ic.targets.identifiers import comment
from n3ic.util.templates import render

PROGRAM, COMMANDS, CHANGES = "n3ic_card.p4", "commands.txt", "graphs"
_P4 = Path(p4.__file__).resolve().parent
_FOLDERS = (
    Path(__file__).resolve().parent / "templates",
    _P4 / "templates",
    _P4 / "shared" / "templates",
)
_SPARE = 2  # table size over present entries, as room for future tenants
_CARRIED = {
    "header": "bytes 18-19 behind EtherType 0x2323",
    "vlan": "the VLAN identifier of a tag before EtherType 0x2323",
    "udp-port": "its UDP destination port",
}


def write_card(card: SoftwareCard, out: Path) -> None:
    """Write program, entries and README of a card.

    Raises:
        CardError: The target does not support a graph.
    """
    image = image_of(card)
    for name, text in (
        (PROGRAM, program_of(image)),
        (COMMANDS, commands_of(image)),
        ("README.md", _rendered("README.md", image)),
    ):
        (out / name).write_text(text, encoding="ascii", newline="\n")
    (out / CHANGES).mkdir()
    for graph in card.graphs:
        for name, remove in zip(change_files(graph), (False, True), strict=True):
            text = change_of(image, graph, remove=remove)
            (out / CHANGES / name).write_text(text, encoding="ascii", newline="\n")


def change_files(graph: SoftwareGraph) -> tuple[str, str]:
    """Return the files that add and remove a graph, in the folder of changes."""
    return f"{graph.uid}.txt", f"{graph.uid}-remove.txt"


def program_of(image: P4CardImage) -> str:
    """Render the program of a card."""
    return _rendered(PROGRAM, image)


def _rendered(name: str, image: P4CardImage) -> str:
    return render(_FOLDERS, f"{name}.j2", _values(image), {"literal": literal})


def _values(image: P4CardImage) -> dict[str, Any]:
    card = image.card
    joins = {g.join for g in card.graphs if len(g.branches) > 1}
    rules = [sum(e.table == "policy" for e in graph_entries_of(image, g)) for g in card.graphs]
    return {
        "title": comment(card.name),
        "carrier": card.carrier,
        "carried": _CARRIED[card.carrier],
        "result_at": card.result_at,
        "offset": card.offset,
        "graphs": len(card.graphs),
        "tenants": len(card.tenants),
        "classes": image.classes,
        "voting": "vote" in joins,
        "both": "both" in joins,
        "rooms": max(g.results for g in card.graphs),
        "lengths": sorted({g.input_bytes for g in card.graphs}),
        "uids": [(g.uid, g.input_bytes) for g in card.graphs],
        # bmv2 fixes the size of a table when it loads the program.
        "size": _SPARE * len(card.graphs),
        "turns": _SPARE * sum(len(g.branches) for g in card.graphs),
        # A rule for all classes takes an entry for each class and one for the host's verdict.
        "rules": _SPARE * (sum(rules) + image.classes + 1),
        "id": lambda kind, name: "",
        "groups": [
            {
                "index": g.index,
                "layers": lane_layers(g.network.layers),
                "input_bits": g.network.input_bits,
                "classes": g.network.classes,
                "signature": g.network.signature,
                "shunts": g.network.shunts,
                "size": _SPARE * len(g.tasks),
            }
            for g in image.groups
        ],
        "rows": [
            {
                "name": comment(graph.name),
                "uid": graph.uid,
                "shapes": ", ".join(b.model.shape_text for b in graph.branches),
                "join": graph.join if len(graph.branches) > 1 else "",
                "passes": len(graph.branches),
                "bytes": graph.input_bytes,
            }
            for graph in card.graphs
        ],
        "shares": card.tenants,
    }
