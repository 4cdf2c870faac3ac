# SPDX-License-Identifier: Apache-2.0
"""Graphs of operations as an artefact of an export holds them, compared with the model's.

Readers of artefacts share no code with their writers; this comparison is the same for all targets
and families.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from n3ic.errors import ModelError, VerifyError
from n3ic.model.classifier import Classifier
from n3ic.model.family import graph_of
from n3ic.model.graph.bit_tables import added_tables
from n3ic.model.graph.comparison import graph_difference
from n3ic.model.graph.operations import Graph
from n3ic.model.inputs import InputSpec
from n3ic.targets.decoding import Decoded


@dataclass(frozen=True, eq=False)
class DecodedGraph:
    """What one artefact of an export holds.

    Attributes:
        artefact: its path in the export directory.
        graph: its operations.
        cuts: cuts of every field of the input in order, empty for raw bits; None if the artefact
            holds no input stage.
        shunt: the smallest margin that it decides.
        digest: SHA-256 of the model that the artefact names; None if it names none.
    """

    artefact: str
    graph: Graph
    cuts: tuple[tuple[int, ...], ...] | None
    shunt: int
    digest: str | None = None


def graph_of_tables(
    artefact: str,
    spec: InputSpec,
    tables: Sequence[tuple[Sequence[int], ArrayLike]],
    bias: ArrayLike,
) -> Graph:
    """The graph of look-up tables that an artefact holds.

    Args:
        artefact: its path, for errors.
        spec: the model's input.
        tables: the input bits of each table, the least significant first, and its entries of shape
            ``(2 ** bits, sums)``.
        bias: what is added to each sum, of shape ``(sums,)``.

    Raises:
        VerifyError: a table reads bits that the input lacks, or a score exceeds 32 bits.
    """
    try:
        return added_tables(spec, [(bits, np.asarray(each)) for bits, each in tables], bias)
    except ModelError as error:
        raise VerifyError(f"{artefact}: {error}") from error


def compared(model: Classifier, decoded: DecodedGraph, own: Graph | None = None) -> Decoded:
    """Compare what an artefact holds with the model.

    Args:
        model: a model of a family that gives graphs.
        decoded: what the artefact holds.
        own: the model's graph in the form that the target writes; None for the model's.

    Returns:
        The artefact as :meth:`~n3ic.targets.base.Exporter.decode` reports it.

    Raises:
        VerifyError: the artefact differs from the model.
    """
    difference = graph_difference(graph_of(model) if own is None else own, decoded.graph)
    fields = model.input.fields
    if not difference and decoded.cuts is not None:
        if len(decoded.cuts) != len(fields):
            difference = f"{len(decoded.cuts)} input fields, the model has {len(fields)}"
        for field, cuts in zip(fields, decoded.cuts, strict=False):
            if tuple(cuts) != tuple(field.cuts):
                difference = f"input field {field.feature}: other cuts than the model's"
    if not difference and decoded.shunt != model.shunt:
        difference = f"shunts margins below {decoded.shunt}, the model below {model.shunt}"
    if not difference and decoded.digest not in (None, model.digest):
        difference = f"of model {decoded.digest}, the model is {model.digest}"
    if difference:
        raise VerifyError(f"{decoded.artefact}: {difference}")
    return Decoded(decoded.artefact, (), decoded.cuts, digest=decoded.digest, shunt=decoded.shunt)
