# SPDX-License-Identifier: Apache-2.0
"""Compiles an export's C and runs it through ``bnn.h``, the interface of every model family."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from n3ic.errors import VerifyError
from n3ic.exporters.host.compilation import find_compiler, network_library
from n3ic.exporters.host.flows import NETWORK
from n3ic.exporters.host.machine import cpu_name
from n3ic.kernel import build
from n3ic.kernel.library import KernelError, KernelLibrary, KernelNetwork
from n3ic.model.bits import Words
from n3ic.model.classifier import Classifier, Inference
from n3ic.targets.base import Execution
from n3ic.targets.figures import Figure

REPEATS = 5  # timed passes over the vectors; the fastest counts


def compile_library(directory: Path) -> tuple[KernelLibrary, str]:
    """Compile and load an export's ``bnn.c``; return the library and the compiler's version.

    Raises:
        MissingDependencyError: no C compiler is installed.
        VerifyError: the C does not compile.
    """
    compiler = find_compiler()
    try:
        network = tuple((name, (directory / name).read_bytes()) for name in NETWORK)
        return network_library(network, compiler, build.FLAGS), compiler.version
    except build.BuildError as error:
        raise VerifyError(f"bnn.c does not compile: {str(error)[:2000]}") from error
    except (OSError, AttributeError) as error:
        raise VerifyError(f"bnn.c does not give a working library: {error}") from error


def load(library: KernelLibrary, path: Path | None, directory: Path) -> KernelNetwork:
    """Load the compiled-in network, or the network of a weights file.

    Raises:
        VerifyError: the library refuses the network.
    """
    name = directory / "bnn.c" if path is None else path
    try:
        return library.baked() if path is None else library.load(path.read_bytes())
    except OSError as error:
        raise VerifyError(f"cannot read {name}: {error.strerror or error}") from error
    except KernelError as error:
        raise VerifyError(f"{name.name}: {error}") from error


def encode(directory: Path, model: Classifier, features: Mapping[str, Any]) -> Words:
    """Pack inputs by ``bnn_encode``; every kernel must give the same words.

    Args:
        directory: the export.
        model: the model, which names the features.
        features: integer values by feature, arrays of shape ``(rows,)``.

    Returns:
        Packed inputs, uint32 array of shape ``(rows, n_words)``.

    Raises:
        MissingDependencyError: no C compiler is installed.
        VerifyError: the C does not compile, or two kernels differ.
    """
    library, _ = compile_library(directory)
    net = load(library, None, directory)
    if sorted(net.features) != sorted(model.input.features):
        raise VerifyError("bnn.c reads other features than the model")
    words = net.encode(features)
    for kernel in library.kernels:
        try:
            net.use_kernel(kernel)
        except KernelError:
            continue  # a kernel for other shapes
        # A kernel that starts from features may skip the packed bits: check that path too.
        same(
            net.run(features), net.classify(words), f"bnn_run_batch: kernel {kernel}", "bnn_encode"
        )
        other = net.encode(features)
        if not np.array_equal(words, other):
            row, word = (int(i) for i in np.argwhere(words != other)[0])
            raise VerifyError(f"bnn_encode: kernel {kernel} differs, row {row} word {word}")
    return words


def run_kernels(
    library: KernelLibrary,
    compiler: str,
    net: KernelNetwork,
    choice: str,
    words: Words,
    compute: Callable[[str], Inference],
) -> Execution:
    """Run and time every kernel of this CPU, or one.

    Args:
        library: the compiled C.
        compiler: version text of the compiler.
        net: the network, whose kernel this function selects.
        choice: name of a kernel, or ``all`` for those that this CPU supports.
        words: packed inputs to time, uint32 array of shape ``(rows, n_words)``.
        compute: returns the results of the selected kernel, given the kernel's name.

    Returns:
        The results, which all kernels share, and the time of each kernel in nanoseconds per row.

    Raises:
        VerifyError: the kernel does not run here, or two kernels differ.
    """
    if choice != "all" and choice not in library.kernels:
        known = ", ".join(library.kernels)
        raise VerifyError(f"kernel {choice!r} does not run here; these do: {known}")
    first: Inference | None = None
    ran: list[str] = []
    figures = []
    source = f"{cpu_name()}, {compiler}, best of {REPEATS} passes over {len(words):,} vectors"
    for kernel in library.kernels if choice == "all" else (choice,):
        try:
            net.use_kernel(kernel)
        except KernelError:
            continue  # a kernel for other shapes
        inference = compute(kernel)
        if first is None:
            first = inference
        else:
            same(first, inference, ran[0], kernel)
        ran.append(kernel)
        value = nanoseconds(net, words)
        figures.append(Figure(f"time.{kernel}", value, "ns", "measured", source))
    if first is None:
        raise VerifyError(f"kernel {choice} cannot run this network")
    return Execution(first, f"{compiler}; kernels {', '.join(ran)}", tuple(figures))


def same(a: Inference, b: Inference, a_name: str, b_name: str) -> None:
    """Check that two results are equal; the error names the first layer, neuron and vector.

    Raises:
        VerifyError: the results differ.
    """
    hidden = enumerate(zip(a.hidden, b.hidden, strict=True))
    parts = [
        *((f"layer {i}, neuron", x, y) for i, (x, y) in hidden),
        (f"layer {len(a.hidden)}, class", a.scores, b.scores),
        ("arg max, column", a.classes[:, None], b.classes[:, None]),
        ("margin, column", a.margins[:, None], b.margins[:, None]),
    ]
    if a.verdicts is not None and b.verdicts is not None:
        parts.append(("verdict, column", a.verdicts[:, None], b.verdicts[:, None]))
    for what, x, y in parts:
        if not np.array_equal(x, y):
            row, column = (int(i) for i in np.argwhere(x != y)[0])
            raise VerifyError(
                f"{a_name} and {b_name} differ at vector {row}, {what} {column}: "
                f"{int(x[row, column])} and {int(y[row, column])}"
            )


def nanoseconds(net: KernelNetwork, words: Words) -> float:
    """Nanoseconds per inference, the fastest of several passes."""
    best = float("inf")
    for _ in range(REPEATS):
        start = time.perf_counter_ns()
        net.classify(words)
        best = min(best, time.perf_counter_ns() - start)
    return best / max(1, len(words))
