# SPDX-License-Identifier: Apache-2.0
"""The base class of P4 targets whose programs look up entries and add them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Generic

from typing_extensions import TypeVar

from n3ic.exporters.p4.shared.options import packet_layout, packet_problems
from n3ic.exporters.p4.shared.target import P4Program
from n3ic.options import Options
from n3ic.targets.base import ModelT
from n3ic.targets.device import Device, Fit, Placement, Problem
from n3ic.targets.packets import PacketLayout

NetworkT = TypeVar("NetworkT", default=Any)


class P4SumsTarget(P4Program[ModelT], Generic[ModelT, NetworkT]):
    """A P4 target of models whose scores are sums of entries.

    Attributes:
        budget: error text for each device limit, with the fields ``need`` and ``limit``.
    """

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
        """Folders of the target's templates, its own first."""
        first, *rest = super().template_folders
        return (first, self.sibling / "templates", *rest)

    @abstractmethod
    def pipeline(self, model: ModelT, *, shunts: bool = False) -> NetworkT:
        """Convert a model to the steps that the templates write.

        Args:
            model: the model.
            shunts: whether to include a threshold even if the model's is 0.
        """

    @abstractmethod
    def needs(self, network: NetworkT) -> dict[str, float]:
        """Resources that a model needs, by the name of the device limit."""

    @abstractmethod
    def texts(self, model: ModelT, network: NetworkT, packets: PacketLayout) -> dict[str, str]:
        """Render the texts of the artefacts of a model by file name."""

    @abstractmethod
    def placement(self, network: NetworkT) -> Placement:
        """Place the entries and offsets."""

    def nearest(self, model: ModelT, network: NetworkT) -> str:
        """Describe the nearest model that fits; empty if there is nothing to say."""
        return ""

    def nearest_input(self, model: ModelT, bits: int) -> str:
        """Describe the nearest model that reads so many input bits; empty if there is none."""
        return ""

    def artefacts(self, model: ModelT, packets: PacketLayout) -> dict[str, str]:
        """Render the texts of the artefacts by file name."""
        return self.texts(model, self.pipeline(model, shunts=packets.shunts), packets)

    def check(self, model: ModelT, options: Options) -> Fit:
        """Check that packets and fields hold the input, and the device holds the entries."""
        limits = self.device.limits
        problems = packet_problems(model, packet_layout(model, options))
        if model.input.n_bits > limits["field_bits"]:
            text = f"{model.input.n_bits} input bits, a field has {limits['field_bits']:.0f}"
            near = self.nearest_input(model, int(limits["field_bits"]))
            problems.append(Problem(f"{text} at most", nearest=near))
        network = self.pipeline(model)
        problems += [
            Problem(
                self.budget[what].format(need=need, limit=limits[what]),
                nearest=self.nearest(model, network),
            )
            for what, need in self.needs(network).items()
            if need > limits[what]
        ]
        return Fit((self.placement(network),), tuple(problems))

    def fits(self, network: NetworkT) -> bool:
        """Whether a network needs no more than the device has."""
        limits = self.device.limits
        return all(need <= limits[what] for what, need in self.needs(network).items())
