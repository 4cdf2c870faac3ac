"""The program of a card, its entries, and the changes of single graphs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from n3ic.card.lowering import SoftwareCard
from n3ic.exporters.p4.card.image import Group, change_of, commands_of, groups_of
from n3ic.exporters.p4.run.packets import PacketLayout
from n3ic.exporters.p4.shared.pipeline import literal
from n3ic.targets.identifiers import comment
from n3ic.util.templates import render

PROGRAM, COMMANDS = "n3ic_card.p4", "commands.txt"
_HERE = Path(__file__).resolve().parent
_FOLDERS = (_HERE / "templates", _HERE.parent / "templates", _HERE.parent / "shared" / "templates")
_SPARE = 2  # times the entries that there are: room for tenants to come
_CARRIED = {
    "header": "bytes 18-19 behind EtherType 0x2323",
    "vlan": "the VLAN identifier of a tag before EtherType 0x2323",
    "udp-port": "its UDP destination port",
}


def write_card(card: SoftwareCard, out: Path) -> None:
    """Write program, entries and README of a card.

    Raises:
        CardError: a graph that a pipeline does not have.
    """
    groups = groups_of(card)
    values = _values(card, groups)
    for name in (PROGRAM, "README.md"):
        text = render(_FOLDERS, f"{name}.j2", values, {"literal": literal})
        (out / name).write_text(text, encoding="ascii", newline="\n")
    (out / COMMANDS).write_text(commands_of(groups), encoding="ascii", newline="\n")
    (out / "graphs").mkdir()
    for group in groups:
        for place, graph in enumerate(group.graphs):
            for name, remove in ((f"{graph.uid}.txt", False), (f"{graph.uid}-remove.txt", True)):
                text = change_of(group, place, remove=remove)
                (out / "graphs" / name).write_text(text, encoding="ascii", newline="\n")


def _values(card: SoftwareCard, groups: tuple[Group, ...]) -> dict[str, Any]:
    classes = max(g.network.classes for g in groups)
    return {
        "title": comment(card.name),
        "carrier": card.carrier,
        "carried": _CARRIED[card.carrier],
        "result_at": card.result_at,
        "offset": card.offset,
        "graphs": len(card.graphs),
        "classes": classes,
        "size": _SPARE * len(card.graphs),
        "rules": _SPARE * len(card.graphs) * (classes + 1),
        "packets": PacketLayout(1, classes, "class", "", 0x2323, 0),
        "id": lambda kind, name: "",
        "groups": [
            {
                "index": g.index,
                "layers": g.network.layers,
                "input_bits": g.network.input_bits,
                "pad_bits": g.network.pad_bits,
                "classes": g.network.classes,
                "signature": g.network.signature,
                "shunts": g.network.shunts,
                "uids": [graph.uid for graph in g.graphs],
                "shape": g.graphs[0].branches[0].model.shape_text,
            }
            for g in groups
        ],
        "rows": [
            {
                "name": comment(graph.name),
                "uid": graph.uid,
                "shape": graph.branches[0].model.shape_text,
                "bytes": graph.input_bytes,
            }
            for graph in card.graphs
        ],
    }
