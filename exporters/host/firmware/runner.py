# SPDX-License-Identifier: Apache-2.0
"""Compiles the plain C and calls its functions; measures its size for small processors."""

from __future__ import annotations

import ctypes
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import VerifyError
from n3ic.exporters.host.compilation import find_compiler
from n3ic.exporters.host.firmware.writer import STEM
from n3ic.exporters.host.machine import cpu_name
from n3ic.kernel import build
from n3ic.model.bits import Words
from n3ic.model.classifier import Classifier
from n3ic.targets.base import Execution
from n3ic.targets.figures import Figure
from n3ic.util.process import run_tool

PROCESSORS = {
    "cortex_m0plus": ("--target=armv6m-none-eabi", "-mcpu=cortex-m0plus"),
    "rv32imc": ("--target=riscv32-unknown-elf", "-march=rv32imc"),
}
"""What clang builds for, by name; both are of 32 bits, without an operating system."""
SMALL = ("-std=c99", "-Os", "-ffreestanding", "-c")
_TIMEOUT_S = 120
_REPEATS = 3


class FirmwareLibrary:
    """The plain C of an export, compiled.

    Args:
        directory: the export.
        model: the model, which gives the sizes of all arrays.

    Raises:
        MissingDependencyError: no C compiler is installed.
        VerifyError: the C does not compile, or its sizes are not the model's.
    """

    def __init__(self, directory: Path, model: Classifier) -> None:
        self.model, self.compiler = model, find_compiler()
        with tempfile.TemporaryDirectory(prefix="n3ic-plain-") as name:
            for suffix in ("h", "c"):
                shutil.copyfile(directory / f"{STEM}.{suffix}", Path(name) / f"{STEM}.{suffix}")
            # A wrapper tells the sizes before any array is filled.
            shutil.copyfile(Path(__file__).with_name("rows.c"), Path(name) / "rows.c")
            try:
                build.compile_shared(self.compiler, Path(name) / "rows.c", Path(name) / "c.so")
                self._c = ctypes.CDLL(str(Path(name) / "c.so"))
            except (build.BuildError, OSError) as error:
                raise VerifyError(f"{STEM}.c does not compile: {str(error)[:2000]}") from error
        sizes = [int(self._c[f"size_{name}"]()) for name in ("features", "words", "classes")]
        expected = [len(model.input.features), model.input.n_words, len(model.classes)]
        if sizes != expected:
            raise VerifyError(
                f"{STEM}.h: features, words and classes are {sizes}, the model's {expected}"
            )

    def execution(self, words: Words) -> Execution:
        """Scores, verdicts and nanoseconds a row of packed inputs.

        Args:
            words: packed inputs, uint32 array of shape ``(rows, n_words)``.
        """
        rows = np.ascontiguousarray(words, dtype=np.uint32)
        scores = np.zeros((len(rows), len(self.model.classes)), dtype=np.int32)
        verdicts = np.zeros(len(rows), dtype=np.int32)
        seconds = []
        for _ in range(_REPEATS):
            start = time.perf_counter()
            self._c.run_rows(_pointer(rows), len(rows), _pointer(scores), _pointer(verdicts))
            seconds.append(time.perf_counter() - start)
        inference = self.model.inference(scores)
        if inference.verdicts is None or (inference.verdicts != verdicts).any():
            row = int(np.argmax(np.asarray(inference.verdicts) != verdicts))
            raise VerifyError(
                f"n3ic_decide: row {row} is {verdicts[row]}, its scores say otherwise"
            )
        source = f"{cpu_name()}, {self.compiler.version}, best of {_REPEATS} passes"
        figure = Figure(
            "time.plain", 1e9 * min(seconds) / max(1, len(rows)), "ns", "measured", source
        )
        return Execution(inference, f"{self.compiler.version}; plain C", (figure,))

    def encode(self, features: Mapping[str, Any]) -> Words:
        """Packed inputs of integer features: uint32 array of shape ``(rows, n_words)``."""
        columns = [np.asarray(features[name]) for name in self.model.input.features]
        rows = np.ascontiguousarray(np.stack(columns, axis=1).astype(np.uint32))
        words = np.zeros((len(rows), self.model.input.n_words), dtype=np.uint32)
        verdicts = np.zeros(len(rows), dtype=np.int32)
        self._c.encode_rows(_pointer(rows), len(rows), _pointer(words), _pointer(verdicts))
        own = self.model.infer(words).verdicts
        if own is None or (own != verdicts).any():
            raise VerifyError("n3ic_infer: its verdict is not that of n3ic_encode and n3ic_scores")
        return words


def sizes(directory: Path) -> tuple[Figure, ...]:
    """Bytes of code and constants for small processors; of those that clang here can build for."""
    clang = shutil.which("clang")
    if clang is None:
        return ()
    version = run_tool([clang, "--version"], seconds=_TIMEOUT_S).stdout.decode().splitlines()[0]
    source = str((directory / f"{STEM}.c").resolve())
    out = []
    for name, flags in PROCESSORS.items():
        with tempfile.TemporaryDirectory(prefix="n3ic-plain-") as folder:
            target = Path(folder) / "n.o"
            words = [clang, *flags, *SMALL, source, "-o", str(target)]
            if run_tool(words, seconds=_TIMEOUT_S).returncode == 0:
                size = loaded_bytes(target.read_bytes())
                out.append(Figure(f"code.{name}", size, "byte", "measured", f"{version}, -Os"))
    return tuple(out)


def loaded_bytes(elf: bytes) -> int:
    """Bytes that an object file of 32 bits occupies in memory: its allocated sections."""
    header = np.frombuffer(elf, "<u4", 1, 0x20)[0]
    width, count = (int(n) for n in np.frombuffer(elf, "<u2", 2, 0x2E))
    total = 0
    for i in range(count):
        _, kind, flags, _, _, size = np.frombuffer(elf, "<u4", 6, int(header) + width * i).tolist()
        unwinding = kind in (0x70000001, 0x70000003)  # tables of exceptions, attributes
        total += size if flags & 2 and not unwinding else 0
    return total


def _pointer(array: NDArray[Any]) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)
