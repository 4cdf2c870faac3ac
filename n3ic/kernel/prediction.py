# SPDX-License-Identifier: Apache-2.0
"""Fast prediction: the host target's C kernel, built once and cached for the user.

The kernel is used if a C compiler is installed; ``N3IC_NATIVE=0`` turns it off. The results equal
those of :meth:`n3ic.BinaryModel.scores`, which is plain numpy.
"""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from n3ic.errors import N3icWarning
from n3ic.kernel import blob, build
from n3ic.kernel.library import SIGNATURES, KernelLibrary, KernelNetwork
from n3ic.model.bits import Words, checked_words
from n3ic.model.classifier import Classifier, Inference
from n3ic.model.family import family
from n3ic.model.inputs import Field, InputSpec
from n3ic.model.network import BinaryModel
from n3ic.model.random_models import random_model
from n3ic.model.verification_vectors import verification_vectors

__all__ = [
    "available",
    "csv_lines",
    "encode",
    "load_anew",
    "load_into_kernel",
    "open_kernel",
    "predict",
    "scores",
]


def available() -> bool:
    """Whether the compiled kernel is available; builds it on the first call."""
    return os.environ.get("N3IC_NATIVE", "1") != "0" and _library() is not None


def scores(model: Classifier, words: ArrayLike) -> NDArray[np.int32]:
    """Integer scores of packed inputs, from the compiled kernel if available, else from numpy.

    Args:
        model: a model.
        words: packed inputs, uint32 array of shape ``(rows, n_words)``, pad bits 0.

    Returns:
        int32 array of shape ``(rows, classes)``; the same as ``model.scores(words)``.

    Raises:
        ModelError: the inputs are not packed inputs of this model.
    """
    if (network := load_into_kernel(model)) is None:
        return model.scores(words)
    return network.scores(checked_words(words, model.input.n_bits, "packed inputs"))


def predict(model: Classifier, words: ArrayLike) -> Inference:
    """Scores, classes, margins and verdicts of packed inputs; see :func:`scores`."""
    if (network := load_into_kernel(model)) is None:
        return model.infer(words)
    return network.classify(checked_words(words, model.input.n_bits, "packed inputs"))


def encode(spec: InputSpec, features: Mapping[str, NDArray[Any]]) -> Words:
    """Packed input bits of integer features; the same as :meth:`InputSpec.encode_words`.

    Args:
        spec: the input stage.
        features: integers in 0..2^32-1, arrays of shape ``(rows,)`` by feature.

    Returns:
        uint32 array of shape ``(rows, n_words)``.
    """
    if os.environ.get("N3IC_NATIVE", "1") == "0" or (library := _library()) is None:
        return spec.encode_words(features)
    return library.encode(spec, features)


def csv_lines(
    model: Classifier, features: Mapping[str, NDArray[Any]], first: int, names: Sequence[bytes]
) -> tuple[bytes | memoryview, NDArray[np.int64]]:
    """Lines of CSV with each row's number, verdict, margin and scores.

    Args:
        model: the network.
        features: integers in 0..2^32-1 by feature, arrays of shape ``(rows,)``.
        first: number of the first row.
        names: text for each of ``model.verdict_names``.

    Returns:
        The lines, each with a line feed, and the number of rows of each name.
    """
    if network := load_into_kernel(model):
        return network.csv_lines(model, features, first, names)
    inference = predict(model, model.encode(features))
    return _lines_of(inference, model.verdicts(inference.scores), first, names)


def load_into_kernel(model: Classifier) -> KernelNetwork | None:
    """A model loaded into its compiled kernel; None if no kernel computes it."""
    return _network(model) if os.environ.get("N3IC_NATIVE", "1") != "0" else None


def load_anew(model: Classifier) -> KernelNetwork | None:
    """As :func:`load_into_kernel`, in memory of its own, which no earlier fault has changed."""
    return _loaded(model) if os.environ.get("N3IC_NATIVE", "1") != "0" else None


def _lines_of(
    result: Inference, verdicts: NDArray[np.int64], first: int, names: Sequence[bytes]
) -> tuple[bytes, NDArray[np.int64]]:
    columns = (verdicts.tolist(), result.margins.tolist(), result.scores.tolist())
    lines = (
        b"%d,%s,%d,%s\n" % (row, names[index], margin, b",".join(b"%d" % s for s in scores))
        for row, (index, margin, scores) in enumerate(zip(*columns, strict=True), first)
    )
    # SHUNT is -1, which is the last name modulo their number.
    return b"".join(lines), np.bincount(verdicts % len(names), minlength=len(names))


@cache
def _library() -> KernelLibrary | None:
    return open_kernel(None, _check)


def open_kernel(
    source: Path | None,
    check: Callable[[KernelLibrary], None],
    functions: Iterable[str] = SIGNATURES,
) -> KernelLibrary | None:
    """Build and load a kernel; None if that fails, with a warning unless a compiler is missing.

    Args:
        source: its C file; None for ``bnn.c``.
        check: raises RuntimeError if it does not compute the reference's scores.
        functions: the functions of bnn.h that will be called.
    """
    try:
        try:
            library = KernelLibrary.open(build.cached_library(source), functions)
        except OSError:  # there is no cache that only this user can write
            with tempfile.TemporaryDirectory(prefix="n3ic-") as directory:
                # A log in that directory would vanish, so the compiler's output is the message.
                out = Path(directory) / "kernel.so"
                build.compile_kernel(build.find_compiler(), out, source)
                library = KernelLibrary.open(out, functions)
        check(library)
    except build.NoCompilerError:
        return None
    except (build.BuildError, OSError, AttributeError, RuntimeError) as error:
        warnings.warn(
            f"the compiled kernel is not used, prediction is slower: {error}",
            N3icWarning,
            stacklevel=4,
        )
        return None
    return library


def _check(library: KernelLibrary) -> None:
    """Check the compiled kernel against the reference, in case of a compiler bug.

    Raises:
        RuntimeError: its scores differ from the reference's.
    """
    # No size is a multiple of 32, so that every layer has padding to get wrong.
    cuts = Field.thermometer("cuts", range(3, 123, 3))
    spec = InputSpec((cuts, Field.binary("bits", 30)))
    model = random_model((70, 33, 9, 3), np.random.default_rng(0)).with_input(spec)
    network = library.load(blob.dump(model))
    words = verification_vectors(model, 100)
    columns = {"cuts": np.arange(130), "bits": np.arange(130) << 24}
    names = [b"a", b"b", b"c"]
    lines, _ = network.csv_lines(model, columns, 0, names)
    want = model.infer(model.encode(columns))
    expected, _ = _lines_of(want, want.classes, 0, names)
    if (
        not np.array_equal(network.scores(words), model.scores(words))
        or not np.array_equal(library.encode(spec, columns), model.encode(columns))
        or bytes(lines) != expected
    ):
        raise RuntimeError("it does not compute the reference's scores")


@lru_cache(maxsize=8)  # a small prediction takes less time than loading its weights
def _network(model: Classifier) -> KernelNetwork | None:
    return _loaded(model)


def _loaded(model: Classifier) -> KernelNetwork | None:
    if not isinstance(model, BinaryModel):
        return cast("KernelNetwork | None", family(model.family).compiled(model))
    library = _library() if len(model.layers) <= blob.MAX_LAYERS else None
    return library.load(blob.dump(model)) if library else None
