# SPDX-License-Identifier: Apache-2.0
"""The form ``plain`` of the target ``host``: one header and one source of C99, for firmware."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from n3ic.exporters.host.firmware import decode, runner, writer
from n3ic.model.bits import Words
from n3ic.model.classifier import Classifier
from n3ic.model.network import BinaryModel
from n3ic.options import Option, Options
from n3ic.targets.base import Execution, Exporter
from n3ic.targets.capabilities import VerificationDefaults
from n3ic.targets.decoding import Decoded
from n3ic.targets.device import Device, Fit, Placement, Problem
from n3ic.targets.figures import Figure, Report

if TYPE_CHECKING:
    from n3ic.targets.colocation import CoLocatedNetwork, CoLocation


class FirmwareExporter(Exporter[Classifier]):
    """One header and one source of C99.

    Args:
        fast: the exporter of the same family in the form ``fast``, whose device and options it has.
    """

    name: ClassVar[str] = "host"
    summary: ClassVar[str] = "C99 for firmware: one header, one source"
    shunts: ClassVar[bool] = True

    def __init__(self, fast: Exporter[Any]) -> None:
        self._fast = fast

    @property
    def options(self) -> tuple[Option, ...]:  # type: ignore[override]
        """The options of the form ``fast``."""
        return self._fast.options

    @property
    def verification(self) -> VerificationDefaults:  # type: ignore[override]
        """How the host's artefacts are verified."""
        return self._fast.verification

    @cached_property
    def device(self) -> Device:
        """The host's processor."""
        return self._fast.device

    def check(self, model: Classifier, options: Options) -> Fit:
        """Check the operations, and where the constants lie."""
        if not isinstance(model, BinaryModel):
            fit = self._fast.check(model, options)  # the same operations
            if not fit.ok:
                return fit
        sizes = writer.memory_of(model)
        total = sum(sizes.values())
        memory = next((m for m in self.device.memories if total <= m.bytes), None)
        if memory is None:
            return Fit(problems=(Problem(f"{total:,} bytes of constants", memory="dram"),))
        return Fit(tuple(Placement(part, memory.name, size) for part, size in sizes.items()))

    def colocate(self, members: Sequence[CoLocatedNetwork]) -> CoLocation:
        """Co-locate models as the form ``fast`` does."""
        return self._fast.colocate(members)

    def write(self, model: Classifier, options: Options, out: Path) -> None:
        """Write the header, the source and the README."""
        writer.write_plain(model, out)

    def run(self, directory: Path, model: Classifier, options: Options, words: Words) -> Execution:
        """Compile the source and run it; measure its size for small processors."""
        execution = runner.FirmwareLibrary(directory, model).execution(words)
        return replace(execution, figures=(*execution.figures, *runner.sizes(directory)))

    def decode(self, directory: Path, model: Classifier, options: Options) -> tuple[Decoded, ...]:
        """Decode every constant; see the base class."""
        return decode.decode_directory(directory, model)

    def encode(
        self, directory: Path, model: Classifier, options: Options, features: Mapping[str, Any]
    ) -> Words:
        """Pack inputs by ``n3ic_encode``."""
        return runner.FirmwareLibrary(directory, model).encode(features)

    def report(self, model: Classifier, options: Options, directory: Path) -> Report:
        """Report counted bytes; verification measures time, and code for small processors."""
        figures = [
            Figure(f"memory.{part}", size, "byte", "measured", "count of the C's integers")
            for part, size in writer.memory_of(model).items()
        ]
        note = (
            "`n3ic verify` measures the time on one core and, with clang, the bytes of code and "
            "constants on a Cortex-M0+ and on RV32."
        )
        return Report(tuple(figures), (note,))
