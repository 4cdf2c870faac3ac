# SPDX-License-Identifier: Apache-2.0
"""Fast prediction: look-up tables in compiled C, which loads their entries at run time."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

from n3ic.families.tables.network import TablesModel
from n3ic.families.tables.random_models import random_tables
from n3ic.kernel.library import KernelLibrary, KernelNetwork
from n3ic.kernel.prediction import open_kernel

SOURCE = Path(__file__).resolve().parent / "tables.c"
MOST_INPUTS = 2048  # the planes of 64 rows lie on the stack, 64 bytes a bit
MOST_CLASSES = 64
_BEYOND = 64  # bytes that the C reads past the last entry
_FUNCTIONS = (
    *("bnn_strerror", "bnn_load_blob", "bnn_free", "bnn_infer_batch"),
    *("bnn_words", "bnn_features", "bnn_classes", "bnn_shunt", "bnn_hidden_words"),
    *("bnn_kernel_name", "bnn_kernel_supported", "bnn_use_kernel", "bnn_kernel"),
)


def loaded(model: TablesModel) -> KernelNetwork | None:
    """Load a model into the kernel; return None if it is too large, or no kernel was built."""
    if model.input.n_bits > MOST_INPUTS or len(model.classes) > MOST_CLASSES:
        return None
    library = compile_kernel()
    return library.load(dump(model)) if library else None


@cache
def compile_kernel() -> KernelLibrary | None:
    """Compile the kernel, or find it in the cache; return None if that fails."""
    return open_kernel(SOURCE, _check, _FUNCTIONS)


def dump(model: TablesModel) -> bytes:
    """Return the bytes from which the kernel loads a model; a header gives the parts' sizes."""
    bits = np.array([b for t in model.tables for b in t.bits], dtype=np.uint16)
    entries = b"".join(t.entries.T.tobytes() for t in model.tables)
    largest = max(int(np.abs(t.entries.astype(np.int64)).max()) for t in model.tables)
    header = np.array(
        [
            model.input.n_bits,
            len(model.input.features),
            len(model.classes),
            model.shunt,
            len(model.tables),
            len(bits),
            len(entries),
            max(1, 127 // max(1, largest)),
        ],
        dtype=np.uint32,
    )
    sizes = bytes(len(t.bits) for t in model.tables)
    parts = (header.tobytes(), model.bias.tobytes(), bits.tobytes(), sizes, entries)
    return b"".join(parts) + bytes(_BEYOND)


def _check(library: KernelLibrary) -> None:
    """Check each kernel against the reference, in case of a compiler bug.

    Raises:
        RuntimeError: its scores differ from the reference's.
    """
    rng = np.random.default_rng(0)
    for classes, inputs in ((2, (5, 5)), (3, (1, 8))):
        model = random_tables(rng, tables=40, classes=classes, inputs=inputs, widths=(4, 8))
        words = model.encode({f.feature: rng.integers(0, 1000, 100) for f in model.input.fields})
        network = library.load(dump(model))
        for kernel in library.kernels:
            network.use_kernel(kernel)
            if not np.array_equal(network.scores(words), model.scores(words)):
                raise RuntimeError("it does not compute the reference's scores")
