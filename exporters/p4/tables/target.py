# SPDX-License-Identifier: Apache-2.0
"""The base class of both P4 targets of look-up tables."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from n3ic.exporters.p4.interpreter import Switch
from n3ic.exporters.p4.shared.options import packet_layout, packet_problems
from n3ic.exporters.p4.shared.target import P4Program
from n3ic.exporters.p4.tables.pipeline import TablesPipeline, tables_pipeline
from n3ic.families.tables.network import TablesModel
from n3ic.options import Options
from n3ic.targets.device import Device, Fit, Placement, Problem
from n3ic.targets.figures import Figure
from n3ic.targets.packets import PacketLayout


class P4TablesTarget(P4Program[TablesModel]):
    """A P4 target of look-up tables.

    Attributes:
        budget: error text for each device limit, with the fields ``need`` and ``limit``.
    """

    family: ClassVar[str] = TablesModel.family
    budget: ClassVar[Mapping[str, str]]

    @property
    @abstractmethod
    def sibling(self) -> Path:
        """Folder of the target's exporter for binary networks, with its device and templates."""

    @cached_property
    def device(self) -> Device:
        """The device of binary networks."""
        return Device.from_toml(self.sibling / "device.toml")

    @property
    def template_folders(self) -> tuple[Path, ...]:
        """Folders of the target's templates, those of look-up tables first."""
        first, *rest = super().template_folders
        return (first, self.sibling / "templates", *rest)

    @abstractmethod
    def needs(self, network: TablesPipeline) -> dict[str, float]:
        """Resources that a model needs, by the name of the device limit."""

    @abstractmethod
    def texts(
        self, model: TablesModel, network: TablesPipeline, packets: PacketLayout
    ) -> dict[str, str]:
        """Render the texts of the artefacts of a model by file name."""

    @abstractmethod
    def placement(self, network: TablesPipeline) -> Placement:
        """Place the entries and offsets."""

    def artefacts(self, model: TablesModel, packets: PacketLayout) -> dict[str, str]:
        """Render the texts of the artefacts by file name."""
        return self.texts(model, tables_pipeline(model, shunts=packets.shunts), packets)

    def check(self, model: TablesModel, options: Options) -> Fit:
        """Check that packets and fields hold the input, and the device holds the tables."""
        limits = self.device.limits
        problems = packet_problems(model, packet_layout(model, options))
        if model.input.n_bits > limits["field_bits"]:
            text = f"{model.input.n_bits} input bits, a field has {limits['field_bits']:.0f}"
            problems.append(Problem(f"{text} at most"))
        network = tables_pipeline(model)
        problems += [
            Problem(self.budget[what].format(need=need, limit=limits[what]))
            for what, need in self.needs(network).items()
            if need > limits[what]
        ]
        return Fit((self.placement(network),), tuple(problems))


def tables_figures(network: TablesPipeline, source: str, switch: Switch) -> tuple[Figure, ...]:
    """Report size, operations, PHV bits, stages and tables of a program."""
    counted = "counted in n3ic's reading of the program; no P4 compiler ran"
    return (
        Figure("code", len(source), "byte", "measured", "size of n3ic.p4"),
        Figure(
            "operations",
            network.statements,
            "statement",
            "measured",
            "bits of indices, and additions of entries and offsets",
        ),
        Figure("phv", switch.metadata_bits + switch.header_bits, "bit", "estimated", counted),
        Figure(
            "stages.sum",
            len(network.levels) + 1,
            "stage",
            "estimated",
            "levels of the tree of sums, and the offsets; all look-ups are independent",
        ),
        Figure("tables", len(switch.tables), "table", "estimated", counted),
    )
