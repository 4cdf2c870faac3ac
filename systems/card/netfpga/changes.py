# SPDX-License-Identifier: Apache-2.0
"""A change of a card as a file of operations, for a driver of the card's ``cfg_*`` and ``wr_*``.

The head consists of lines ``# key value``. Each line after it is an operation of four hexadecimal
numbers, as read by ``n3ic_card_tb.v`` and :mod:`~n3ic.systems.card.netfpga.simulation`. Its meaning
in words follows a ``#``::

    # n3ic-card-change 1
    # card edge
    # change remove soc/soc
    # operations 5
    # sha256 DIGEST OF ALL OTHER LINES
    0 18 1ff0009 0 # register 0x0018 = 0x01ff0009
"""

from __future__ import annotations

from collections.abc import Sequence

from n3ic.errors import ExportError, UsageError
from n3ic.exporters.netfpga.operation_file import OperationFile
from n3ic.model.network import BinaryModel, binary_network
from n3ic.systems.card.changes import CardChange
from n3ic.systems.card.netfpga import control
from n3ic.systems.card.netfpga.image import HardwarePass, NetfpgaCardImage
from n3ic.systems.card.netfpga.simulation import Operation, load_table
from n3ic.targets.identifiers import comment

_CHANGE = OperationFile(
    name="a change of a card",
    expected="a change of a card, format 1",
    format="1",
    keys=("n3ic-card-change", "card", "change", "operations"),
    most_bytes=1 << 26,
)


def operations_of(image: NetfpgaCardImage, change: CardChange, clocks: int) -> list[Operation]:
    """Return the control plane's operations for a change; see :mod:`~.control`.

    Args:
        image: the running card.
        change: the change.
        clocks: clocks that a partial reconfiguration takes.

    Raises:
        UsageError: a network cannot be written, or does not fit its executor.
    """
    names = [graph.name for graph in image.graphs]
    graphs = [names.index(name) for name in change.graphs]
    if change.verb == "remove":
        return control.remove_graphs(image, graphs)
    models: list[tuple[HardwarePass, BinaryModel]] = []
    for name, changed in change.networks.items():
        model = binary_network(changed)
        for leg in image.passes_of(name):
            if change.verb == "replace" or _is_written(image, leg, model):
                _check(image, name, leg, model)
                # A task in several regions is written in each of them.
                models.append((leg, model))
    if change.verb == "load":
        return control.bring_graphs(image, graphs, models, clocks)
    tables = [
        op
        for name, entries in change.tables.items()
        for region, place in image.places_of(name)
        for op in load_table(region, place, entries)
    ]
    loads = (op for leg, model in models for op in control.load_network(image, leg, model))
    return [*tables, *loads]


def change_text(
    image: NetfpgaCardImage, change: CardChange, operations: Sequence[Operation]
) -> str:
    """Compose the file of a change."""
    descriptions = control.listing(operations).splitlines()
    lines = [
        f"{k} {a:x} {b:x} {c:x} # {what}"
        for (k, a, b, c), what in zip(operations, descriptions, strict=True)
    ]
    who = ", ".join(change.graphs or change.networks or change.tables)
    head = (image.name, f"{change.verb} {who}", str(len(lines)))
    return _CHANGE.text([comment(value) for value in head], lines)


def _is_written(image: NetfpgaCardImage, leg: HardwarePass, model: BinaryModel) -> bool:
    """Whether a new network must be written; its region's bitstream may already hold it."""
    core = image.core_of(leg)
    return core is None or core[0].layout is not None or core[1].digest != model.digest


def _check(image: NetfpgaCardImage, name: str, leg: HardwarePass, model: BinaryModel) -> None:
    """Check that a leg's executor can hold a network.

    Raises:
        UsageError: the executor cannot hold it; the error says why.
    """
    core = image.core_of(leg)
    if core is None or core[0].layout is None:
        raise UsageError(
            f"{name}: its weights are logic (style unrolled), which only a new bitstream changes"
        )
    if model.input != core[1].input:
        raise UsageError(
            f"{name}: the card keeps its input stage, expected a network that was trained on "
            "the same cuts and clamps: train with n3ic train --input-of the card's network, or "
            "export the card again"
        )
    try:
        control.load_network(image, leg, model)
    except ExportError as error:
        raise UsageError(f"{name}: {error}") from error
