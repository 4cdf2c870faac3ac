# SPDX-License-Identifier: Apache-2.0
"""Changes of a running card: a tenant's networks are loaded, replaced or removed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from n3ic.errors import UsageError
from n3ic.model.classifier import Classifier, family_text
from n3ic.runs.folder import models_of
from n3ic.systems.card.description import (
    Card,
    InputStage,
    NetworkTask,
    PacketTask,
    TaskGraph,
    Tenant,
)
from n3ic.systems.card.models import network_of, open_network
from n3ic.systems.card.parser import read_table
from n3ic.systems.card.tasks.kind import Entries

Verb = Literal["load", "replace", "remove"]


@dataclass(frozen=True, eq=False)
class CardChange:
    """A change of a running card.

    Attributes:
        verb: ``load`` adds graphs with their networks, ``replace`` changes networks, ``remove``
            takes graphs away.
        graphs: names of the added or removed graphs, as ``tenant/graph``.
        networks: new networks by the full names of their tasks.
        tables: new tables of packet tasks, by the full names of the tasks.
    """

    verb: Verb
    graphs: tuple[str, ...]
    networks: Mapping[str, Classifier]
    tables: Mapping[str, Entries] = field(default_factory=dict)


def change_of(card: Card, verb: Verb, who: str, model: Path | None = None) -> CardChange:
    """Make the target-independent part of a change.

    Args:
        card: the running card, as it was exported.
        verb: kind of change.
        who: a tenant or ``tenant/graph``; for ``replace``, a tenant or the task of a network.
        model: a model file or a run with the new networks; None for the card's own. In a run with
            several networks, each task takes the one of its name. For a packet task, a TOML file
            with its keys.

    Raises:
        UsageError: the card has no such tenant, graph or network, or a new network does not fit the
            inputs and classes around its task.
    """
    if verb == "replace" and model and isinstance(task := card.tasks.get(who), PacketTask):
        return CardChange(verb, (), {}, {who: read_table(model, task)})
    if verb == "replace":
        return CardChange(verb, (), _opened(card, _replaced(card, who), model))
    members = list(_named(card, who))
    if not members:
        on_card = ", ".join(f"{t.name}/{g.name}" for t in card.tenants for g in t.graphs)
        raise UsageError(f"no tenant or graph {who!r} on the card; its graphs: {on_card}")
    networks: dict[str, NetworkTask] = {}
    for tenant, graph in members if verb == "load" else ():
        for name in graph.flow.tasks():
            task = card.tasks[name]
            # A network without a tenant's prefix is shared, so it already runs for the others.
            if isinstance(task, NetworkTask) and name.startswith(f"{tenant.name}/"):
                networks[name] = task
    graphs = tuple(f"{tenant.name}/{graph.name}" for tenant, graph in members)
    return CardChange(verb, graphs, _opened(card, networks, model))


def _named(card: Card, who: str) -> Iterator[tuple[Tenant, TaskGraph]]:
    for tenant in card.tenants:
        for graph in tenant.graphs:
            if who in (tenant.name, f"{tenant.name}/{graph.name}"):
                yield tenant, graph


def _replaced(card: Card, who: str) -> dict[str, NetworkTask]:
    """Return the networks of a tenant, or the network with a name."""
    networks = {name: t for name, t in card.tasks.items() if isinstance(t, NetworkTask)}
    owners = {tenant.name for tenant in card.tenants}
    replaced = {
        name: task
        for name, task in networks.items()
        if name == who or (who in owners and name.startswith(f"{who}/"))
    }
    if not replaced:
        raise UsageError(
            f"no tenant or network {who!r} on the card; its networks: {', '.join(networks)}"
        )
    return replaced


def _opened(
    card: Card, tasks: Mapping[str, NetworkTask], model: Path | None
) -> dict[str, Classifier]:
    """Load the new networks, each checked against the network in the plan."""
    planned = {name: network_of(card, name) for name in tasks}
    if model is None:
        return planned
    models = models_of(model)
    if len(models) == 1 and len(tasks) > 1:
        raise UsageError(
            f"{model} holds one network, expected a run of {len(tasks)}: {', '.join(tasks)}"
        )
    out = {}
    for name, task in tasks.items():
        # A file with a single network may have any name; a run must name the task's network.
        new = open_network(model, task.network if len(models) > 1 else next(iter(models)))
        _check_fits(name, planned[name], new, own_input=_reads_features(card, name))
        out[name] = new
    return out


def _reads_features(card: Card, name: str) -> bool:
    """Whether a network's graph has an input stage before it."""
    flows = [g.flow for t in card.tenants for g in t.graphs if name in g.flow.tasks()]
    return any(isinstance(card.tasks[n], InputStage) for flow in flows for n in flow.tasks())


def _check_fits(name: str, old: Classifier, new: Classifier, *, own_input: bool) -> None:
    """Check that a network has the inputs and classes of the one that it replaces.

    Rules and answers identify classes by number, and packets hold the old network's input.
    """
    if new.family != old.family:
        raise UsageError(
            f"{name}: expected {family_text(old.family)}, which the card computes, got "
            f"{family_text(new.family)}: export the card again"
        )
    if new.classes != old.classes:
        raise UsageError(
            f"{name}: expected the classes {', '.join(old.classes)}, because rules and answers "
            f"identify classes by number; got {', '.join(new.classes)}"
        )
    if (new.input.features, new.input.n_bits) != (old.input.features, old.input.n_bits):
        raise UsageError(
            f"{name}: expected {old.input.n_bits} input bits of the features that packets hold, "
            f"got {new.input.n_bits} of {', '.join(new.input.features)[:200]}: train with n3ic "
            "train --input-of the card's network"
        )
    # With an input stage, the card itself turns features into bits, so cuts may change with the
    # network.
    if new.input != old.input and not own_input:
        raise UsageError(
            f"{name}: packets hold the input bits, so the network must be trained on the same cuts "
            "and clamps: train with n3ic train --input-of the card's network, or export the "
            "card again"
        )
