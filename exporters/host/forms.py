# SPDX-License-Identifier: Apache-2.0
"""The forms of the target ``host``: fast, with kernels and programs, and plain, for firmware."""

from __future__ import annotations

from typing import Any

from n3ic.options import Option, Options
from n3ic.targets.base import Exporter

STYLE = Option(
    "style",
    "fast: C11 with kernels for AVX-512, AVX2 and NEON, and programs; plain: C99 for firmware, one "
    "header and one source without heap, floating point or libraries",
    "fast",
    choices=("fast", "plain"),
    newer=True,
)


def form_of(fast: Exporter[Any], options: Options) -> Exporter[Any]:
    """The exporter of the form that options of the target ``host`` choose.

    Args:
        fast: the exporter of the form ``fast``.
        options: options of the export, by name.
    """
    if options.get(STYLE.name) != "plain":
        return fast
    from n3ic.exporters.host.firmware.exporter import FirmwareExporter  # reads several families

    return FirmwareExporter(fast)
