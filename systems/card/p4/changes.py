"""Changes of a card as commands for ``simple_switch_CLI``."""

from __future__ import annotations

from n3ic.systems.card.changes import CardChange
from n3ic.systems.card.lowering import SoftwareCard
from n3ic.systems.card.p4.image import change_of, image_of, networks_of, with_network


def entries_text(card: SoftwareCard, change: CardChange) -> str:
    """The commands of a change, for a switch that was given the card's ``commands.txt``.

    Args:
        card: the card that runs.
        change: what comes, is replaced or goes.

    Raises:
        CardError: the program's stages do not compute a network.
    """
    image = image_of(card)
    for task, model in change.networks.items():
        image = with_network(image, task, model)
    if change.verb == "replace":
        return networks_of(image, list(change.networks))
    remove = change.verb == "remove"
    graphs = [graph for graph in card.graphs if graph.name in change.graphs]
    return "".join(change_of(image, graph, remove=remove) for graph in graphs)
