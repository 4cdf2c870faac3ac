# SPDX-License-Identifier: Apache-2.0
"""The programs of an export: their folders, and runs of their networks on the host."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from n3ic.errors import ExportError, VerifyError
from n3ic.exporters.xdp.libbpf import BpfProgram
from n3ic.exporters.xdp.network.host import HostNetwork, HostVerdicts
from n3ic.exporters.xdp.network.structure import structure_of
from n3ic.model.bits import Words
from n3ic.model.classifier import Classifier
from n3ic.targets.artefacts import files_of
from n3ic.targets.figures import Figure
from n3ic.util.files import read_regular

MAX_BYTES = 16 << 20  # maximum bytes of a program's file, several times the kernel's limit
VALUE = "network.bin"


def read_program(place: Path) -> dict[str, str]:
    """Read a program's sources by file name, from its folder in an export.

    Raises:
        VerifyError: a source cannot be read.
    """
    try:
        return {
            name: read_regular(place / name, MAX_BYTES).decode()
            for name in files_of(place)
            if name.endswith((".c", ".h"))
        }
    except (ExportError, OSError, UnicodeDecodeError) as error:
        raise VerifyError(f"{place}: cannot be read: {error}") from error


def read_value(place: Path) -> bytes:
    """Read the value of the network's map, from a program's folder in an export.

    Raises:
        VerifyError: the file cannot be read.
    """
    try:
        return read_regular(place / VALUE, MAX_BYTES)
    except OSError as error:
        raise VerifyError(f"{place / VALUE}: {error.strerror or error}") from error


def write_program(place: Path, files: Mapping[str, str], value: bytes) -> None:
    """Write a program's sources and the value of its network's map into a new folder."""
    place.mkdir()
    for name, text in files.items():
        (place / name).write_text(text, encoding="utf-8", newline="\n")
    (place / VALUE).write_bytes(value)


def bit_columns(model: Classifier, words: Words) -> dict[str, Words]:
    """Convert packed inputs to the features of a structure over bits."""
    names = structure_of([model], bits=True).features
    return {name: words[:, i] for i, name in enumerate(names)}


def program_figures(name: str, program: BpfProgram) -> list[Figure]:
    """Return the instructions of a loaded program, and those that the verifier followed."""
    source = f"verifier of Linux {platform.release()}"
    numbers = (("instructions", program.instructions), ("verified", program.verified))
    return [
        Figure(f"{figure}.{name}", value, "instruction", "measured", source)
        for figure, value in numbers
    ]


def on_host(place: Path, model: Classifier, features: Mapping[str, Any]) -> HostVerdicts:
    """Run the network of a program's folder, compiled for this host.

    Its features are the packed input bits in the folder ``answer``.
    """
    structure = structure_of([model], bits=place.name == "answer")
    return HostNetwork.build(structure, read_program(place)).run(read_value(place), features)
