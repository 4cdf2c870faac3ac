# SPDX-License-Identifier: Apache-2.0
"""Folds a network with real parameters into integers, no wider than a proven error bound needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from n3ic.errors import UsageError
from n3ic.families.spn.arithmetic import (
    Arithmetic,
    LinearArithmetic,
    LogArithmetic,
)
from n3ic.families.spn.learn import RealSpn
from n3ic.families.spn.network import CONSTANT, SpnModel
from n3ic.families.spn.nodes import Leaf, Node, Product, Sum, error_bounds
from n3ic.families.spn.settings import SpnTraining
from n3ic.model.columns import TableRules
from n3ic.model.graph.arithmetic import MAX_FRACTION, MAX_LOG_FRACTION
from n3ic.model.inputs import InputSpec
from n3ic.model.meter_spec import MeterSpec


def fold_spn(
    networks: Sequence[RealSpn],
    priors: Sequence[float],
    spec: InputSpec,
    classes: Sequence[str],
    settings: SpnTraining,
    *,
    name: str,
    provenance: Mapping[str, str],
    meter: MeterSpec | None = None,
    table: TableRules | None = None,
) -> SpnModel:
    """Fold one network per class, or a single network and a threshold that is still 0.

    Args:
        networks: a network for each class; or a single one for the first of two classes, if the
            second is whatever does not fit the first.
        priors: share of each class; ignored for a single network.
        spec: input bits, one thermometer field per feature.
        classes: names of the classes.
        settings: arithmetic, and the error that it must not exceed.
        name: the model's name.
        provenance: facts about its origin.
        meter: how features come from packets.
        table: how features come from a table.

    Raises:
        UsageError: no width of the arithmetic keeps the error.
    """
    arithmetic = _arithmetic(networks, settings)
    nodes: list[Node] = []
    roots: list[int] = []
    bias: list[int] = []
    alone = len(networks) == 1
    for network, prior in zip(networks, priors, strict=True):
        nodes += _nodes(network, arithmetic, len(nodes))
        roots.append(len(nodes) - 1)
        weight = int(arithmetic.leaf(np.array([prior]))[0])
        if alone:
            bias.append(0)
        elif isinstance(arithmetic, LogArithmetic):
            bias.append(weight)
        else:  # a factor in fixed point, which only a sum of one term can apply
            nodes.append(Sum((roots[-1],), np.array([weight])))
            roots[-1] = len(nodes) - 1
            bias.append(0)
    if alone:
        roots.append(CONSTANT)
        bias.append(0)
    return SpnModel(
        input=spec,
        nodes=tuple(nodes),
        arithmetic=arithmetic,
        roots=tuple(roots),
        bias=np.array(bias),
        classes=tuple(classes),
        name=name,
        provenance=provenance,
        meter=meter,
        table=table,
    )


def _nodes(network: RealSpn, arithmetic: Arithmetic, first: int) -> list[Node]:
    out: list[Node] = []
    for node in network.nodes:
        children = tuple(first + c for c in node.children)
        if node.field >= 0:
            out.append(Leaf(node.field, arithmetic.leaf(node.parameters)))
        elif len(node.parameters):
            out.append(Sum(children, arithmetic.weights(node.parameters)))
        else:
            out.append(Product(children))
    return out


def _arithmetic(networks: Sequence[RealSpn], settings: SpnTraining) -> Arithmetic:
    """Choose the narrowest arithmetic whose proven error is small enough.

    Raises:
        UsageError: no width keeps the error.
    """
    kind, most = (
        (LogArithmetic.of, MAX_LOG_FRACTION)
        if settings.arithmetic == "log"
        else (LinearArithmetic, MAX_FRACTION)
    )
    least = 0 if settings.arithmetic == "log" else 1
    error = 0.0
    for fraction in range(least, most + 1):
        arithmetic = kind(fraction)
        error = max(_error(network, arithmetic) for network in networks) * 2.0**-fraction
        if error <= settings.largest_error:
            return arithmetic
    raise UsageError(
        f"{most} fraction bits leave an error of up to {error:.3g}, more than "
        f"{settings.largest_error:g}: allow more with --error, or learn a smaller network"
    )


def _error(network: RealSpn, arithmetic: Arithmetic) -> float:
    return max(error_bounds(_nodes(network, arithmetic, 0), arithmetic)) + 0.5  # for the bias
