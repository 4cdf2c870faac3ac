# SPDX-License-Identifier: Apache-2.0
"""The compiled kernel, called through ctypes."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from n3ic.model.bits import Words, unpack, word_count
from n3ic.model.classifier import Classifier
from n3ic.model.inputs import UINT32_MAX, InputSpec
from n3ic.model.network import SHUNT, BinaryModel, Inference, classes_of

_U32 = np.ctypeslib.ndpointer(dtype=np.uint32, flags="C_CONTIGUOUS")
_SHUNT = 0xFFFFFFFF  # BNN_SHUNT
_I32 = np.ctypeslib.ndpointer(dtype=np.int32, flags="C_CONTIGUOUS")
SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "bnn_strerror": (ctypes.c_char_p, [ctypes.c_int]),
    "bnn_load_blob": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]),
    "bnn_free": (None, [ctypes.c_void_p]),
    "bnn_inputs": (ctypes.c_uint32, [ctypes.c_void_p]),
    "bnn_words": (ctypes.c_uint32, [ctypes.c_void_p]),
    "bnn_features": (ctypes.c_uint32, [ctypes.c_void_p]),
    "bnn_classes": (ctypes.c_uint32, [ctypes.c_void_p]),
    "bnn_shunt": (ctypes.c_uint32, [ctypes.c_void_p]),
    "bnn_hidden_words": (ctypes.c_uint32, [ctypes.c_void_p]),
    "bnn_class_name": (ctypes.c_char_p, [ctypes.c_void_p, ctypes.c_uint32]),
    "bnn_feature_name": (ctypes.c_char_p, [ctypes.c_void_p, ctypes.c_uint32]),
    "bnn_kernel_name": (ctypes.c_char_p, [ctypes.c_uint32]),
    "bnn_kernel_supported": (ctypes.c_int, [ctypes.c_uint32]),
    "bnn_use_kernel": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_char_p]),
    "bnn_kernel": (ctypes.c_char_p, [ctypes.c_void_p]),
    "bnn_encode_batch": (None, [ctypes.c_void_p, _U32, ctypes.c_size_t, _U32]),
    "bnn_infer_batch": (
        None,
        [ctypes.c_void_p, _U32, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p, _I32],
    ),
    "bnn_run_batch": (
        None,
        [ctypes.c_void_p, _U32, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p, _I32],
    ),
    "bnn_trace": (None, [ctypes.c_void_p, _U32, ctypes.c_size_t, _U32, _I32]),
}


class _StreamInput(ctypes.Structure):
    """``struct stream_input`` of stream.h."""

    _fields_ = (
        ("columns", ctypes.POINTER(ctypes.c_void_p)),
        ("fields", ctypes.c_void_p),
        ("cuts", ctypes.c_void_p),
        ("n_fields", ctypes.c_uint64),
    )


@dataclass(frozen=True, eq=False)
class _InputTable:
    """A table for ``struct stream_input``; its arrays live as long as this object.

    Raises:
        ValueError: the columns differ in length.
    """

    pointer: Any
    rows: int
    arrays: tuple[NDArray[Any], ...]

    @classmethod
    def of(cls, spec: InputSpec, features: Mapping[str, NDArray[Any]]) -> _InputTable:
        """Integers in 0..2^32-1 by feature, arrays of shape ``(rows,)``."""
        used = spec.features
        columns = [np.ascontiguousarray(features[n], dtype=np.uint32) for n in used]
        rows = len(columns[0])
        if any(c.shape != (rows,) for c in columns):  # C does not check
            raise ValueError("columns of one length expected")
        fields = np.array(
            [
                (used.index(f.feature), f.kind == "thermometer", f.width, f.clamp)
                for f in spec.fields
            ],
            dtype=np.uint32,
        )
        cuts = np.array([cut for f in spec.fields for cut in f.cuts], dtype=np.uint32)
        table = _StreamInput(
            (ctypes.c_void_p * len(columns))(*(c.ctypes.data for c in columns)),
            fields.ctypes.data,
            cuts.ctypes.data,
            len(fields),
        )
        return cls(ctypes.pointer(table), rows, (*columns, fields, cuts))


class KernelError(Exception):
    """The kernel refused weights or the name of a kernel; the text is its message."""


@dataclass(frozen=True, eq=False)
class KernelLibrary:
    """A shared library of the kernel, with or without weights of its own."""

    handle: ctypes.CDLL

    @classmethod
    def open(cls, path: Path, functions: Iterable[str] = SIGNATURES) -> KernelLibrary:
        """Load a library; whoever can write the file can run code in this process.

        ``functions`` names the functions of bnn.h that will be called.

        Raises:
            OSError: the file is not a shared library of this platform.
            AttributeError: the library lacks a function of the kernel.
        """
        handle = ctypes.CDLL(str(path))
        for name in functions:
            function = getattr(handle, name)
            function.restype, function.argtypes = SIGNATURES[name]
        return cls(handle)

    @property
    def kernels(self) -> tuple[str, ...]:
        """Names of the kernels that this CPU can run, the fastest last."""
        names = []
        index = 0
        while name := self.handle.bnn_kernel_name(index):
            if self.handle.bnn_kernel_supported(index):
                names.append(name.decode("ascii"))
            index += 1
        return tuple(names)

    def encode(self, spec: InputSpec, features: Mapping[str, NDArray[Any]]) -> Words:
        """Packed input bits of integers in 0..2^32-1, arrays of shape ``(rows,)`` by feature.

        Raises:
            MemoryError: memory is insufficient.
        """
        table = _InputTable.of(spec, features)
        words = np.empty((table.rows, spec.n_words), dtype=np.uint32)
        if self.handle.stream_encode(
            table.pointer,
            ctypes.c_size_t(table.rows),
            ctypes.c_uint32(spec.n_words),
            ctypes.c_void_p(words.ctypes.data),
        ):
            raise MemoryError
        return words

    def load(self, blob: bytes) -> KernelNetwork:
        """Load a network from a blob.

        Raises:
            KernelError: the blob is not valid.
        """
        net = ctypes.c_void_p()
        status = self.handle.bnn_load_blob(ctypes.byref(net), blob, len(blob))
        return self._network(status, net)

    def baked(self) -> KernelNetwork:
        """The network whose weights are compiled in.

        Raises:
            KernelError: the compiled-in weights are missing or invalid.
        """
        function = getattr(self.handle, "bnn_init", None)
        if function is None:
            raise KernelError("no weights are compiled into the library")
        function.restype, function.argtypes = ctypes.c_int, [ctypes.c_void_p]
        net = ctypes.c_void_p()
        return self._network(function(ctypes.byref(net)), net)

    def _network(self, status: int, net: ctypes.c_void_p) -> KernelNetwork:
        if status:
            raise KernelError(self.handle.bnn_strerror(status).decode("ascii"))
        return KernelNetwork(self, net)


class KernelNetwork:
    """A network loaded into the kernel."""

    def __init__(self, library: KernelLibrary, net: ctypes.c_void_p) -> None:
        self._c = library.handle
        self._net = net
        weakref.finalize(self, library.handle.bnn_free, net)  # also at exit, unlike __del__
        self.n_words = int(self._c.bnn_words(net))
        self.n_features = int(self._c.bnn_features(net))
        self.n_classes = int(self._c.bnn_classes(net))
        self.shunt = int(self._c.bnn_shunt(net))
        self.hidden_words = int(self._c.bnn_hidden_words(net))

    @property
    def pointer(self) -> ctypes.c_void_p:
        """The ``struct bnn *``, for other functions of the library; valid while this object is."""
        return self._net

    @property
    def kernel(self) -> str:
        """Name of the kernel in use."""
        name: bytes = self._c.bnn_kernel(self._net)
        return name.decode("ascii")

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names."""
        names = (self._c.bnn_class_name(self._net, i) for i in range(self.n_classes))
        return tuple(name.decode("utf-8") for name in names)

    @property
    def features(self) -> tuple[str, ...]:
        """Feature names, in the order that :meth:`encode` takes them."""
        names = (self._c.bnn_feature_name(self._net, i) for i in range(self.n_features))
        return tuple(name.decode("utf-8") for name in names)

    def digest(self) -> int:
        """Digest of the network's memory in this process; any changed bit changes it."""
        function = self._c.bnn_digest
        function.restype, function.argtypes = ctypes.c_uint64, [ctypes.c_void_p]
        return int(function(self._net))

    def use_kernel(self, name: str) -> None:
        """Choose a kernel by name.

        Raises:
            KernelError: no kernel has that name, or it cannot run this network on this CPU.
        """
        status = self._c.bnn_use_kernel(self._net, name.encode())
        if status:
            raise KernelError(self._c.bnn_strerror(status).decode("ascii"))

    def scores(self, words: Words) -> NDArray[np.int32]:
        """Scores of packed inputs: int32 array of shape ``(rows, classes)``."""
        x = self._rows(words, self.n_words)
        out = np.empty((len(x), self.n_classes), dtype=np.int32)
        self._c.bnn_infer_batch(self._net, x, len(x), None, None, out)
        return out

    def hidden(self, words: Words) -> Words:
        """Packed outputs of the hidden layers, each from a new word on, of packed inputs.

        Returns:
            uint32 array of shape ``(rows, hidden_words)``.
        """
        x = self._rows(words, self.n_words)
        out = np.empty((len(x), self.hidden_words), dtype=np.uint32)
        scores = np.empty((len(x), self.n_classes), dtype=np.int32)
        self._c.bnn_trace(self._net, x, len(x), out, scores)
        return out

    def classify(self, words: Words) -> Inference:
        """Scores, margins and verdicts of packed inputs, as the kernel computes them.

        For a shunted input the kernel gives no class, so it is computed from the scores.
        """
        return self._decided(self._c.bnn_infer_batch, self._rows(words, self.n_words))

    def run(self, features: Mapping[str, ArrayLike]) -> Inference:
        """Classify integer features, ``(rows,)`` each, without packing bits if that is faster."""
        return self._decided(self._c.bnn_run_batch, self._feature_rows(features))

    def _decided(self, function: Callable[..., None], x: NDArray[np.uint32]) -> Inference:
        codes = np.empty(len(x), dtype=np.uint32)
        margins = np.empty(len(x), dtype=np.int32)
        scores = np.empty((len(x), self.n_classes), dtype=np.int32)
        function(self._net, x, len(x), codes.ctypes.data, margins.ctypes.data, scores)
        shunted = codes == _SHUNT
        verdicts = np.where(shunted, SHUNT, codes.astype(np.int64))
        classes = np.where(shunted, classes_of(scores), verdicts)
        return Inference(scores, classes, margins, verdicts=verdicts)

    def trace(self, words: Words, model: BinaryModel) -> Inference:
        """The kernel's results with hidden bits; only the layers' sizes of ``model`` are used.

        Raises:
            KernelError: the scores of the trace differ from those of a plain call.
        """
        x = self._rows(words, self.n_words)
        plain = self.classify(x)
        scores = np.empty_like(plain.scores)
        hidden = np.empty((len(x), max(1, self.hidden_words)), dtype=np.uint32)
        self._c.bnn_trace(self._net, x, len(x), hidden, scores)
        # The trace is separate code: it is evidence about the kernel only if the scores agree.
        if not np.array_equal(scores, plain.scores):
            raise KernelError("bnn_trace and bnn_infer_batch give different scores")
        flat, start, bits = hidden.ravel(), 0, []
        rows = flat[: len(x) * self.hidden_words].reshape(len(x), self.hidden_words)
        for layer in model.hidden:
            n = word_count(layer.n_outputs)
            bits.append(unpack(rows[:, start : start + n], layer.n_outputs))
            start += n
        return replace(plain, hidden=tuple(bits))

    def encode(self, features: Mapping[str, ArrayLike]) -> Words:
        """Packed inputs of integer features; values outside 0..2^32-1 are clamped."""
        rows = self._feature_rows(features)
        words = np.empty((len(rows), self.n_words), dtype=np.uint32)
        self._c.bnn_encode_batch(self._net, rows, len(rows), words)
        return words

    def _feature_rows(self, features: Mapping[str, ArrayLike]) -> NDArray[np.uint32]:
        columns = [
            np.clip(np.asarray(features[name], dtype=np.int64), 0, UINT32_MAX)
            for name in self.features
        ]
        return np.ascontiguousarray(np.stack(columns, axis=1).astype(np.uint32))

    def csv_lines(
        self,
        model: Classifier,
        features: Mapping[str, NDArray[Any]],
        first: int,
        names: Sequence[bytes],
    ) -> tuple[memoryview, NDArray[np.int64]]:
        """Lines of CSV with each row's number, verdict, margin and scores.

        Args:
            model: the model, whose input stage is used.
            features: integers in 0..2^32-1 by feature, arrays of shape ``(rows,)``.
            first: number of the first row.
            names: text for each of the network's ``verdict_names``.

        Returns:
            The lines, and the number of rows of each name.

        Raises:
            MemoryError: memory is insufficient.
        """
        n_names = self.n_classes + (self.shunt > 0)
        if len(names) != n_names:  # C does not check
            raise ValueError("a name for each verdict expected")
        table = _InputTable.of(model.input, features)
        # A row number has at most 20 digits; a margin and a score have at most 11 characters.
        text = np.empty(
            table.rows * (64 + max(map(len, names)) + 12 * self.n_classes), dtype=np.uint8
        )
        counts = np.zeros(n_names, dtype=np.int64)
        function = self._c.stream_lines
        function.restype = ctypes.c_size_t
        size = function(
            self._net,
            table.pointer,
            ctypes.c_size_t(table.rows),
            ctypes.c_uint64(first),
            (ctypes.c_char_p * len(names))(*names),
            ctypes.c_void_p(text.ctypes.data),
            ctypes.c_void_p(counts.ctypes.data),
        )
        if size > text.size:  # stream_lines returns such a size if it cannot allocate memory
            raise MemoryError
        return text[:size].data, counts

    @staticmethod
    def _rows(words: Words, width: int) -> Words:
        if words.ndim != 2 or words.shape[1] != width or words.dtype != np.uint32:
            raise ValueError(f"uint32 (rows, {width}) expected, got {words.dtype} {words.shape}")
        return np.ascontiguousarray(words)
