# SPDX-License-Identifier: Apache-2.0
"""Loads the models that a card's tasks name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

from n3ic.errors import CardError, N3icError, UsageError
from n3ic.meter.spec_file import read_spec
from n3ic.model.classifier import Classifier
from n3ic.model.layered import in_layers
from n3ic.model.load import load_model
from n3ic.runs.folder import models_of
from n3ic.systems.card.description import (
    Card,
    InputStage,
    Meter,
    NetworkTask,
    PacketTask,
    Parallel,
    Policy,
    Series,
    Task,
    TaskGraph,
)
from n3ic.systems.card.tasks.kind import kind_of


def open_network(model: Path, network: str) -> Classifier:
    """Load a network of a model file or a run, in the form that targets write.

    Args:
        model: model file, or folder of a run.
        network: name of the network in a run of several; empty for a single one.

    Raises:
        UsageError: no network has that name, or a run of several needs a name.
        ModelError: the model file is damaged.
    """
    models = models_of(model)
    if not network and len(models) == 1:
        return in_layers(load_model(next(iter(models.values()))))
    if network not in models:
        names = ", ".join(n for n in models if n) or "a single one"
        raise UsageError(f"{model}: no network {network!r}; it holds {names}")
    return in_layers(load_model(models[network]))


def network_of(card: Card, name: str) -> Classifier:
    """Load the network of a card's task, or the one whose input stage the task is.

    Raises:
        CardError: the model cannot be read; the error names the line.
    """
    task = cast(NetworkTask | InputStage, card.tasks[name])
    try:
        return open_network(task.model, task.network)
    except N3icError as error:
        raise _error(card, task, str(error)) from error


def check_models(card: Card) -> None:
    """Check that the models of tasks exist and have what the tasks need.

    Models of meters must have a meter, classes in a policy's rules must be classes of a network
    before it, and branches that are joined or ruled by class must have the same classes.

    Raises:
        CardError: a check fails, or a model cannot be read; the error names the line.
    """
    for task in card.tasks.values():
        try:
            if isinstance(task, Meter) and task.spec is not None:
                read_spec(task.spec)
            elif isinstance(task, Meter) and task.model is not None:
                if open_network(task.model, task.network).meter is None:
                    raise CardError(f"expected a model with a meter, {task.model} has none")
            elif isinstance(task, InputStage):
                open_network(task.model, task.network)
        except N3icError as error:
            raise _error(card, task, str(error)) from error
    for tenant in card.tenants:
        for graph in tenant.graphs:
            _check_classes(card, [card.tasks[name] for name in graph.flow.tasks()])
            _check_joins(card, graph)


def _check_classes(card: Card, flow: list[Task]) -> None:
    """Check that a rule's classes are classes of a network before it."""
    for i, policy in enumerate(flow):
        if not isinstance(policy, Policy):
            continue
        in_rules = {name for rule in policy.rules for name in rule.classes}
        # Only networks before the policy count: a verdict must exist when the rule is applied.
        classes: set[str] = set()
        for task in flow[:i] if in_rules else ():
            if isinstance(task, NetworkTask):
                classes |= set(network_of(card, task.name).classes)
            elif isinstance(task, PacketTask):
                classes |= set(kind_of(task.task).classes)
        if in_rules - classes:
            raise _error(
                card,
                policy,
                f"no network before it has a class {min(in_rules - classes)!r}, expected one of "
                f"{', '.join(sorted(classes)) or '(no network precedes it)'}",
            )


def _check_joins(card: Card, graph: TaskGraph) -> None:
    """Check that networks whose results are joined to one number their classes alike."""
    policies = (card.tasks[name] for name in graph.flow.tasks())
    named = any(r.classes for p in policies if isinstance(p, Policy) for r in p.rules)
    for step in _parallels(graph.flow):
        # Without rules about classes, `most-certain` passes one result on with its own model's
        # numbering.
        if step.join == "both" or (step.join == "most-certain" and not named):
            continue
        lists = {}
        for branch in step.branches:
            # The last network of a branch gives the branch's result.
            networks = [n for n in branch.tasks() if isinstance(card.tasks[n], NetworkTask)]
            lists[networks[-1]] = network_of(card, networks[-1]).classes
        first, *others = lists
        for other in others:
            if lists[other] != lists[first]:
                why = "compares" if step.join == "vote" else "has rules about"
                raise CardError(
                    f"{card.source}:{graph.line}: graph {graph.name!r}: join {step.join!r} {why} "
                    f"classes, expected the same ones in all branches: {first!r} has "
                    f"{', '.join(lists[first])}, {other!r} has {', '.join(lists[other])}"
                )


def _parallels(flow: Series) -> Iterator[Parallel]:
    for step in flow.parallels:
        yield step
        for branch in step.branches:
            yield from _parallels(branch)


def _error(card: Card, task: Task, message: str) -> CardError:
    return CardError(f"{card.source}:{task.line}: task {task.name!r}: {message}")
