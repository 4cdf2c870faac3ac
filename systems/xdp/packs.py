# SPDX-License-Identifier: Apache-2.0
"""Writes packs for ``n3icd``, or Debian packages of it."""

from __future__ import annotations

from pathlib import Path

from n3ic.exporters.xdp import packing
from n3ic.exporters.xdp.plan import Choices, plan
from n3ic.exporters.xdp.policy_parser import check_times
from n3ic.model.classifier import Classifier
from n3ic.systems.xdp.debian_package import package
from n3ic.systems.xdp.deployment import exported
from n3ic.util.files import free_path, write_atomic


def write_pack(export: Path, out: Path, choices: Choices) -> Classifier:
    """Write a pack for the daemon of an export.

    Args:
        export: a directory written by ``n3ic export --target xdp`` from a network with a meter.
        out: the file to write; an existing file is replaced. A name ending in ``.deb`` makes a
            Debian package of the daemon and the pack, for which the export must be built.
        choices: policies, rules, limits, sizes and networks.

    Returns:
        The network for flows without a matching rule.

    Raises:
        UsageError: A policy or rule is malformed, or can never act.
        ExportError: The directory is not an XDP export, or a network does not fit it.
    """
    model, _, table = exported(export)
    check_times(model)
    planned = plan(model, table, choices)
    data = packing.pack(export, planned)
    if out.suffix == ".deb":
        data = package(export, data)
    write_atomic(free_path(out, replace=True), data)
    return planned.models[choices.otherwise]
