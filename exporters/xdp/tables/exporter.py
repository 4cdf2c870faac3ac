# SPDX-License-Identifier: Apache-2.0
"""The target ``xdp`` for look-up tables: the programs of binary networks with other sums."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import ClassVar, cast

from n3ic.exporters.xdp import exporter
from n3ic.exporters.xdp.tables.decode import decode_directory
from n3ic.families.tables.network import TablesModel
from n3ic.model.classifier import Classifier
from n3ic.options import Options
from n3ic.targets.decoding import Decoded


class XdpTablesExporter(exporter.XdpExporter):
    """C for the kernel that sums the entries of look-up tables."""

    family: ClassVar[str] = TablesModel.family
    other_families: ClassVar[Mapping[str, str]] = {}

    @cached_property
    def folder(self) -> Path:
        """The folder of the target ``xdp``, whose device and templates apply here too."""
        return Path(exporter.__file__).resolve().parent

    def decode(self, directory: Path, model: Classifier, options: Options) -> tuple[Decoded, ...]:
        """Decode the map values; see the base class."""
        return decode_directory(directory, cast("TablesModel", model))


EXPORTER = XdpTablesExporter()
