# SPDX-License-Identifier: Apache-2.0
"""Compiles the network's C for the host and calls it through ctypes, without a kernel."""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from n3ic.errors import MissingDependencyError, VerifyError
from n3ic.exporters.xdp.network.source import FOLDER, network_source
from n3ic.exporters.xdp.network.sums import Structure
from n3ic.kernel import build
from n3ic.model.inputs import UINT32_MAX

HARNESS = FOLDER / "network_host.c"


@dataclass(frozen=True, eq=False)
class HostVerdicts:
    """Results of a network's program.

    Attributes:
        scores: int32 array of shape ``(rows, classes)``.
        classes: uint32 array of shape ``(rows,)``.
        margins: uint32 array of shape ``(rows,)``.
        verdicts: int32 array of shape ``(rows,)``: the class, or -1 for a shunted flow.
        selected: row number of each selector, uint8 array of shape ``(rows, selectors)``.
    """

    scores: NDArray[np.int32]
    classes: NDArray[np.uint32]
    margins: NDArray[np.uint32]
    verdicts: NDArray[np.int32]
    selected: NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class HostNetwork:
    """The network of a structure, compiled for this host."""

    structure: Structure
    handle: ctypes.CDLL

    @classmethod
    def build(cls, structure: Structure, source: Mapping[str, str] | None = None) -> HostNetwork:
        """Compile the network.

        Args:
            structure: structure that the source was made for.
            source: files by name, as :func:`network_source` returns them; None to generate them.

        Raises:
            MissingDependencyError: no C compiler is installed.
            VerifyError: the C does not compile.
        """
        try:
            compiler = build.find_compiler()
        except build.NoCompilerError as error:
            raise MissingDependencyError(
                "running the network on this host needs a C compiler: install gcc or clang"
            ) from error
        with tempfile.TemporaryDirectory(prefix="n3ic-xdp-") as name:
            scratch = Path(name)
            for file, text in (source or network_source(structure)).items():
                (scratch / file).write_text(text, encoding="utf-8")
            try:
                out = scratch / "network.so"
                build.compile_shared(compiler, HARNESS, out, ("-Wno-psabi", f"-I{scratch}"))
                return cls(structure, ctypes.CDLL(str(out)))
            except (build.BuildError, OSError) as error:
                raise VerifyError(f"network.h does not compile: {str(error)[:2000]}") from error

    def run(self, value: bytes, features: Mapping[str, ArrayLike]) -> HostVerdicts:
        """Run the network on integer features.

        Args:
            value: map value from :func:`value_bytes`.
            features: integers of shape ``(rows,)`` for each feature of the structure.

        Raises:
            VerifyError: the value's size differs from the compiled structure's.
        """
        expected_bytes = ctypes.c_size_t.in_dll(self.handle, "network_value_bytes").value
        if len(value) != expected_bytes:
            raise VerifyError(
                f"the map value has {len(value):,} bytes, the program {expected_bytes:,}"
            )
        x = feature_rows(self.structure, features)
        rows = len(x)
        out = HostVerdicts(
            np.empty((rows, self.structure.classes), np.int32),
            np.empty(rows, np.uint32),
            np.empty(rows, np.uint32),
            np.empty(rows, np.int32),
            np.empty((rows, len(self.structure.selectors)), np.uint8),
        )
        numbers = np.frombuffer(value, dtype=np.uint64).copy()  # the C needs 8-byte alignment
        arrays = (out.scores, out.classes, out.margins, out.verdicts, out.selected)
        self.handle.network_run_batch(
            ctypes.c_void_p(numbers.ctypes.data),
            ctypes.c_void_p(x.ctypes.data),
            ctypes.c_size_t(rows),
            *(ctypes.c_void_p(a.ctypes.data) for a in arrays),
        )
        return out


def feature_rows(structure: Structure, features: Mapping[str, ArrayLike]) -> NDArray[np.uint32]:
    """Stack features in the program's order, uint32 array of shape ``(rows, features)``."""
    columns = [
        np.clip(np.asarray(features[name], dtype=np.int64), 0, UINT32_MAX)
        for name in structure.features
    ]
    return np.ascontiguousarray(np.stack(columns, axis=1), dtype=np.uint32)
