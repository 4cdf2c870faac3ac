# SPDX-License-Identifier: Apache-2.0
"""Run a model on a ring, from its start to its measurement."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from n3ic.data.delimited import Sheet
from n3ic.data.flows import read_features
from n3ic.errors import UsageError
from n3ic.model.bits import Words
from n3ic.model.load import load_model
from n3ic.model.network import BinaryModel
from n3ic.runs.folder import models_of
from n3ic.systems.cluster.launch import ModelWork, RingOptions
from n3ic.systems.cluster.layered import layered
from n3ic.systems.cluster.measurement import RingMeasurement, compare, rows_to_compare
from n3ic.systems.cluster.merged_model import merge_models
from n3ic.systems.cluster.placement import ModelPlacement, even_placement, splits_of
from n3ic.systems.cluster.plan import read_placement
from n3ic.systems.cluster.replacement import lasting_ring
from n3ic.systems.cluster.simulated_cards import simulated_cards


@dataclass(frozen=True)
class ClusterRun:
    """A model that ran on a ring, with the scores of the single model in every row.

    Attributes:
        model: the model; several networks of a run are one.
        placement: where its layers lay.
        measurement: throughput and latency.
        loss: share of datagrams that nodes dropped on purpose.
        lost: number of these datagrams.
        resent: number of datagrams that were sent again.
        lost_nodes: why nodes were replaced, in order.
    """

    model: BinaryModel
    placement: ModelPlacement
    measurement: RingMeasurement
    loss: float
    lost: int
    resent: int
    lost_nodes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        traffic = {
            "loss": self.loss,
            "lost": self.lost,
            "resent": self.resent,
            "lost_nodes": list(self.lost_nodes),
        }
        return self.measurement.to_dict() | traffic | {"placement": self.placement.to_dict()}


def run_model(
    model: BinaryModel,
    flows: str | Path | Sheet | None,
    *,
    nodes: int | None,
    plan: str | Path | ModelPlacement | None,
    split: str | Sequence[str],
    rows: int | None,
    options: RingOptions,
    simulated: Mapping[int, str],
    report_progress: Callable[[str], object] = lambda _: None,
) -> ClusterRun:
    """Run a model on a ring, and compare every row with the single model.

    Args:
        model: the model.
        flows: table with the rows to compute; None for vectors that test the model.
        nodes: nodes of the ring; None for 4, or the plan's.
        plan: where the layers lie, or the file of a plan; None for even parts.
        split: without a plan, the split of all layers, or of each.
        rows: number of rows; None for 200, or the table's.
        options: how to start the ring.
        simulated: targets of the nodes that are simulated cards, by node.
        report_progress: called with progress messages.

    Raises:
        UsageError: a split is unknown, or the plan has other nodes.
        DataError: the flows cannot be read.
        ClusterError: a node does not start, does not answer, or fails.
        VerifyError: a score differs.
        MissingDependencyError: distributed or a card's tool is missing.
    """
    placement = _placement(model, plan, nodes, split, {*simulated, *options.cards})
    if flows is None:
        words = rows_to_compare(model, rows or 200, options.faults.seed)
    else:
        words = model.encode(read_features(flows, model))[:rows]
    return _run(model, placement, words, options, simulated, report_progress)


def networks_of(path: str | Path) -> BinaryModel:
    """The model of a file or of a run, of which several networks become one.

    Raises:
        ModelError: a file is missing or damaged.
        ClusterError: a model has no layers.
    """
    networks = {task: layered(load_model(file)) for task, file in models_of(path).items()}
    return next(iter(networks.values())) if len(networks) == 1 else merge_models(networks)


def _placement(
    model: BinaryModel,
    plan: str | Path | ModelPlacement | None,
    nodes: int | None,
    split: str | Sequence[str],
    cards: set[int],
) -> ModelPlacement:
    if plan is None:
        splits = splits_of(split, len(model.layers))
        return even_placement(model, nodes or 4, splits, single=cards)
    placed = plan if isinstance(plan, ModelPlacement) else read_placement(plan)
    if nodes not in (None, placed.nodes):
        raise UsageError(f"--nodes {nodes}: the plan {plan} has {placed.nodes}")
    placed.check_model(model)
    return placed


def _run(
    model: BinaryModel,
    placement: ModelPlacement,
    words: Words,
    options: RingOptions,
    simulated: Mapping[int, str],
    report_progress: Callable[[str], object],
) -> ClusterRun:
    faults = options.faults
    work = ModelWork(model, placement)
    with simulated_cards(work, simulated, loss=faults.loss, seed=faults.seed) as simulators:
        started = replace(
            options,
            cards=dict(options.cards) | simulators.addresses,
            addresses=dict(options.addresses) | simulators.neighbours,
        )
        with lasting_ring(model, placement, started) as ring:
            # Counters are read within the block, because stopped processes no longer answer.
            report_progress("computing")
            measurement = compare(ring, model, words)
            counters = ring.running.counters()
            resent = ring.running.session.station.resent
    counters |= simulators.counters
    lost = sum(c["lost"] for c in counters.values())
    again = resent + sum(c["resent"] for c in counters.values())
    return ClusterRun(model, placement, measurement, faults.loss, lost, again, tuple(ring.lost))
