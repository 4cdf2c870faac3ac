# SPDX-License-Identifier: Apache-2.0
"""Export directories: written whole, self-describing, and checked against the model."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from n3ic.errors import (
    ExportError,
    UsageError,
    VerifyError,
)
from n3ic.model.classifier import Classifier
from n3ic.model.layered import in_layers, written
from n3ic.model.passes import Simplified
from n3ic.options import OptionValue
from n3ic.targets.artefacts import describe, files_of, write_artefacts
from n3ic.targets.base import Exporter, exporter
from n3ic.targets.device import Fit
from n3ic.targets.figures import Report
from n3ic.targets.manifest import MANIFEST, VERIFICATION, read_manifest
from n3ic.targets.report import accuracy_of
from n3ic.targets.verification import Verification, verify_artefacts
from n3ic.targets.verification_record import state_of, write_record
from n3ic.util.display import Displayed, TextTable, View
from n3ic.util.files import new_directory


@dataclass(frozen=True, repr=False)
class Exported(Displayed):
    """An export directory that was written.

    Attributes:
        path: the directory.
        target: the target's name.
        network: the network that was written, and what the passes removed.
        fit: the placement, and what does not fit (only with ``force``).
        report: the target's figures.
        verification: the check at export time; None if it was not requested.
    """

    path: Path
    target: str
    network: Simplified[Any]
    fit: Fit
    report: Report
    verification: Verification | None

    def view(self) -> View:
        """The title and the tables that are displayed."""
        fits = "fits" if self.fit.ok else "does not fit"
        checked = "not verified" if self.verification is None else str(self.verification)
        parts = tuple((p.part, p.memory, f"{p.bytes:,}") for p in self.fit.placements)
        return View(
            f"{self.path}: {self.network.model.shape_text} for {self.target}, {fits}; {checked}",
            (
                TextTable("what lies where", ("part", "memory", "bytes"), parts, left=2),
                self.report.table,
            ),
            (*map(str, self.fit.problems), *self.network.lines, *self.report.notes),
        )


def export(
    model: Classifier,
    target: str,
    out: str | Path,
    *,
    options: Mapping[str, OptionValue] | None = None,
    force: bool = False,
    replace: bool = False,
    verify: bool = True,
    metrics: Mapping[str, Any] | None = None,
    simplify: bool | None = None,
) -> Exported:
    """Write a model for a target into the directory ``out``, whole or not at all.

    Args:
        model: the model.
        target: the target's name.
        out: the directory; its parents are made.
        options: the target's options, by name.
        force: write a model that does not fit, and record that in the manifest.
        replace: replace ``out`` if it is an export directory already, and holds nothing else.
        verify: run a few hundred vectors before the directory appears; the outcome goes into its
            ``verification.json``. A target whose tool is missing is written all the same, and the
            result says what is missing.
        metrics: the run's metrics, for the report.
        simplify: leave out neurons and input bits that make no difference to the scores; see
            :mod:`n3ic.model.passes`. False keeps the trained shape, so that weights of another
            training of that shape can be loaded into the device later. None for the target's
            default.

    Raises:
        UsageError: the target or an option is unknown, or ``out`` exists.
        ExportError: the model does not fit.
        VerifyError: the artefacts do not compute the model's scores.
        N3icError: the directory cannot be written.
    """
    tool = exporter(target).for_family(in_layers(model).family)
    parsed = tool.parse_options(options or {})
    tool = tool.for_options(parsed)
    tool.refuse_shunting(model)
    smaller = tool.simplifies if simplify is None else simplify
    network = written(model, smaller=smaller)
    fit = tool.check(network.model, parsed)
    if not fit.ok and not force:
        listed = "; ".join(str(p) for p in fit.problems)
        raise ExportError(
            f"{network.model.shape_text} does not fit {tool.device.name}: {listed} "
            "(--force writes it anyway)"
        )
    own = _written(tool, Path(out)) if replace and Path(out).is_dir() else ()
    with new_directory(out, replace=replace, written=own) as directory:
        write_artefacts(directory, tool, network, parsed)
        report = tool.report(network.model, parsed, directory)
        accuracy = accuracy_of(metrics, model)
        describe(directory, tool, network, parsed, fit, report, accuracy, simplify=smaller)
        result = None
        if verify:
            state = state_of(directory, tool)
            result = verify_artefacts(
                directory, tool, network, parsed, tool.verification.quick_vectors
            )
            if result.failures:
                raise VerifyError(str(result))
            # Measured figures differ between runs, but the same model must give the same bytes.
            lasting = tuple(f for f in result.figures if f.kind != "measured")
            write_record(directory, dataclasses.replace(result, figures=lasting).to_dict(), state)
    return Exported(Path(out), target, network, fit, report, result)


def _written(tool: Exporter[Any], path: Path) -> tuple[str, ...]:
    """Files of an export directory that n3ic wrote, and those that its build made.

    Raises:
        UsageError: the directory is not an export directory.
    """
    try:
        manifest = read_manifest(path)
    except ExportError as error:
        raise UsageError(
            f"{path} exists and is not an export directory; it is left as it is ({error})"
        ) from error
    built = (name for name in files_of(path) if tool.is_product(name))
    return (*manifest["files"], MANIFEST, VERIFICATION, *built)
