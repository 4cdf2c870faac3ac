# SPDX-License-Identifier: Apache-2.0
"""Write a first ``card.toml`` from runs and models, one tenant for each."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from n3ic import plugins
from n3ic.errors import UsageError
from n3ic.model.classifier import Classifier
from n3ic.model.inputs import InputSpec
from n3ic.model.layered import in_layers
from n3ic.model.load import load_model
from n3ic.runs.folder import models_of
from n3ic.systems.card.description import UID_BITS, Rate, UidCarrier
from n3ic.systems.card.export import GROUP, card_target
from n3ic.targets.base import exporter
from n3ic.util.names import path_component


@dataclass(frozen=True, eq=False)
class TenantModels:
    """A future tenant and its networks.

    Attributes:
        name: name of the tenant and of its graph.
        source: the run or the model file.
        models: networks by name; the network of a model file has the empty name.
    """

    name: str
    source: Path
    models: Mapping[str, Classifier]


def tenant_models(sources: Sequence[str]) -> tuple[TenantModels, ...]:
    """Load the tenants of command-line arguments ``PATH`` or ``NAME=PATH``.

    Raises:
        UsageError: A name is missing or occurs twice, or a path holds no model.
        ModelError: A model is damaged.
    """
    out: list[TenantModels] = []
    for text in sources:
        name, equals, path = text.rpartition("=")
        if equals and not name:
            raise UsageError(f"expected PATH or NAME=PATH, got {text!r}")
        source = Path(path)
        label = source.stem if source.suffix == ".n3ic" else source.resolve().name
        # 63 is the longest name that card.toml accepts.
        tenant = path_component(name if equals else label)[:63]
        if any(o.name == tenant for o in out):
            raise UsageError(f"two tenants named {tenant}: name one of them, NAME={path}")
        models = {task: in_layers(load_model(p)) for task, p in models_of(source).items()}
        out.append(TenantModels(tenant, source, models))
    return tuple(out)


def card_text(
    owners: Sequence[TenantModels],
    target: str,
    *,
    folder: Path,
    wants: Rate,
    uid: UidCarrier = "header",
) -> str:
    """Compose a ``card.toml`` in which every owner is a tenant of equal weight.

    Several networks of an owner become branches of one graph, with all results kept. A meter or an
    input stage of features becomes a task of its own. If the target's cards have no input stage,
    packets hold the input bits, and networks with different bits become separate graphs.

    Args:
        owners: the tenants.
        target: name of the target.
        folder: future folder of the file; paths in it are relative to it.
        wants: wanted rate of each graph.
        uid: how packets carry their UID; UIDs count from 1.
    """
    exporter(target)  # a mistyped name gets its error, which suggests similar names
    inputs = target not in plugins.names(GROUP) or card_target(target).inputs
    lines = [
        "# A card and its tenants; n3ic card init wrote it, n3ic card plan reads it.",
        'name = "card"',
        "",
        "[device]",
        f"target = {_quoted(target)}",
        f"uid = {_quoted(uid)} # or " + ", ".join(_quoted(u) for u in UID_BITS if u != uid),
    ]
    number = 0
    for owner in owners:
        lines += ["", "[[tenants]]", f"name = {_quoted(owner.name)}", "weight = 1"]
        lines += [line for entry in _tasks(owner, folder, inputs) for line in entry]
        for name, flow in _flows(owner, inputs):
            number += 1
            lines += [
                "",
                "[[tenants.graphs]]",
                f"name = {_quoted(name)}",
                f"uid = {number}",
                f"wants = {_quoted(str(wants))}",
                *flow,
            ]
    return "\n".join(lines) + "\n"


def _tasks(owner: TenantModels, folder: Path, inputs: bool) -> Iterator[list[str]]:
    path = Path(os.path.relpath(owner.source, folder)).as_posix()
    first = next(iter(owner.models))
    if inputs and _metered(owner):
        yield _task("meter", "meter", path, first)
    if inputs and _input_shared(owner):
        yield _task("input", "input", path, first)
    for key, name in _names(owner).items():
        if inputs and _has_input(owner.models[key]) and not _input_shared(owner):
            yield _task(f"input-{name}", "input", path, key)
        yield _task(name, "network", path, key)


def _task(name: str, kind: str, path: str, network: str) -> list[str]:
    lines = ["", "[[tenants.tasks]]", f"name = {_quoted(name)}", f"kind = {_quoted(kind)}"]
    lines.append(f"model = {_quoted(path)}")
    return lines + ([f"network = {_quoted(network)}"] if network else [])


def _flows(owner: TenantModels, inputs: bool) -> Iterator[tuple[str, list[str]]]:
    """Yield the name of each graph and the lines of its flow."""
    shared = inputs and _input_shared(owner)
    steps = (["meter"] if inputs and _metered(owner) else []) + (["input"] if shared else [])
    ways = {
        name: ([f"input-{name}"] if inputs and _has_input(owner.models[key]) and not shared else [])
        + [name]
        for key, name in _names(owner).items()
    }
    # Without an input stage, branches share the packet's bits, so other bits need a graph of their
    # own.
    if len(ways) == 1 or not (inputs or _same_input(owner)):
        for name, way in ways.items():
            graph = owner.name if len(ways) == 1 else name
            yield graph, [f"flow = [{', '.join(map(_quoted, steps + way))}]"]
        return
    lines = [f"        [{', '.join(map(_quoted, way))}]," for way in ways.values()]
    yield (
        owner.name,
        [
            "flow = [",
            *(f"    {_quoted(step)}," for step in steps),
            '    { join = "both", branches = [',
            *lines,
            "    ] },",
            "]",
        ],
    )


def _names(owner: TenantModels) -> dict[str, str]:
    """Return unique names for the networks' tasks."""
    out: dict[str, str] = {}
    for key in owner.models:
        name = path_component(key)[:48] if key else "network"
        # "meter" and "input" are names of the tasks that _tasks() adds.
        while name in out.values() or name in ("meter", "input"):
            name += "-2"
        out[key] = name
    return out


def _has_input(model: Classifier) -> bool:
    return model.input != InputSpec.raw(model.input.n_bits)


def _input_shared(owner: TenantModels) -> bool:
    """Whether all networks read the same bits of features."""
    return _same_input(owner) and _has_input(next(iter(owner.models.values())))


def _same_input(owner: TenantModels) -> bool:
    """Whether all networks read the same bits, of features or not."""
    models = list(owner.models.values())
    return all(m.input == models[0].input for m in models)


def _metered(owner: TenantModels) -> bool:
    """Whether all networks read the features of the same meter."""
    meters = [m.meter for m in owner.models.values()]
    return meters[0] is not None and all(m == meters[0] for m in meters)


def _quoted(text: str) -> str:
    # A JSON string is a TOML basic string, but for DEL, which TOML wants escaped.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
