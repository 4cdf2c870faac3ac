"""The model file: safetensors with one metadata entry; see docs/reference/formats.md.

No pickle, versioned, every shape checked on load. The same model gives the same bytes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from n3ic.errors import ModelError
from n3ic.model.bits import pack, unpack
from n3ic.model.inputs import InputSpec
from n3ic.model.layers import Connections, HiddenLayer, OutputLayer
from n3ic.model.network import BinaryModel
from n3ic.util.files import write_atomic

FORMAT = "n3ic-binary-model"
VERSION = 1
MAX_FILE_BYTES = 256 << 20
_KEY = "n3ic"  # one entry: safetensors does not keep an order between several


def dump(model: BinaryModel) -> bytes:
    """Bytes of the model file."""
    tensors: dict[str, NDArray[Any]] = {}
    for i, layer in enumerate(model.layers):
        tensors[f"layer.{i}.weights"] = layer.weight_words
        if layer.mask is not None:
            tensors[f"layer.{i}.mask"] = layer.mask_words
    for i, hidden in enumerate(model.hidden):
        tensors[f"layer.{i}.thresholds"] = hidden.thresholds
    tensors[f"layer.{len(model.hidden)}.bias"] = model.output.bias
    header = {
        "format": FORMAT,
        "version": VERSION,
        "name": model.name,
        "shape": list(model.shape),
        "classes": list(model.classes),
        "input": model.input.to_dict(),
        "provenance": {str(k): str(v) for k, v in model.provenance.items()},
    }
    text = json.dumps(header, sort_keys=True, separators=(",", ":"))
    writable = {k: np.ascontiguousarray(v) for k, v in sorted(tensors.items())}
    return bytes(save_tensors(writable, metadata={_KEY: text}))


def parse(data: bytes, source: str = "model file") -> BinaryModel:
    """Read the bytes of a model file.

    Raises:
        ModelError: the bytes are damaged, foreign, or of a newer version.
    """
    try:
        tensors = load_tensors(data)
        header_size = int.from_bytes(data[:8], "little")
        metadata = json.loads(data[8 : 8 + header_size]).get("__metadata__", {})
        header = json.loads(metadata[_KEY])
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
        raise ModelError(f"{source}: not an n3ic model, or damaged ({_short(e)})") from e
    try:
        if header["format"] != FORMAT:
            raise ModelError(f"{source}: not an n3ic model (format {header['format']!r})")
        if header["version"] != VERSION:
            raise ModelError(
                f"{source}: version {header['version']!r}, this n3ic reads version {VERSION}; "
                "a newer n3ic may read it"
            )
        return _build(header, tensors)
    except ModelError as error:
        raise ModelError(f"{source}: {str(error).removeprefix(f'{source}: ')}") from error
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise ModelError(f"{source}: damaged model ({_short(error)})") from error


def save(model: BinaryModel, path: str | Path) -> None:
    """Write the model file, whole or not at all."""
    write_atomic(path, dump(model))


def load(path: str | Path) -> BinaryModel:
    """Read a model file; see :meth:`BinaryModel.load`."""
    file = Path(path)
    try:
        if file.stat().st_size > MAX_FILE_BYTES:
            raise ModelError(f"{file}: larger than {MAX_FILE_BYTES >> 20} MiB, not a model")
        data = file.read_bytes()
    except OSError as error:
        raise ModelError(f"cannot read the model {file}: {error.strerror or error}") from error
    return parse(data, str(file))


def _build(header: dict[str, Any], tensors: dict[str, NDArray[Any]]) -> BinaryModel:
    shape = header["shape"]
    if (
        not isinstance(shape, list)
        or len(shape) < 2
        or any(not isinstance(n, int) or isinstance(n, bool) or n < 1 for n in shape)
    ):
        raise ModelError(f"bad shape {shape!r}")
    used: set[str] = set()

    def take(name: str, dtype: type[np.generic], expected: tuple[int, ...]) -> NDArray[Any]:
        if name not in tensors:
            raise ModelError(f"tensor {name} is missing")
        array = tensors[name]
        if array.dtype != dtype or array.shape != expected:
            raise ModelError(
                f"tensor {name}: expected {np.dtype(dtype)} {expected}, "
                f"got {array.dtype} {array.shape}"
            )
        used.add(name)
        return array

    def connections(i: int) -> Connections:
        inputs, outputs = shape[i], shape[i + 1]
        packed = (outputs, -(-inputs // 32))
        words = take(f"layer.{i}.weights", np.uint32, packed)
        weights = unpack(words, inputs)
        if not np.array_equal(pack(weights, pad=1), words):
            raise ModelError(f"layer {i}: pad bits of the weights are not 1")
        mask = None
        if f"layer.{i}.mask" in tensors:
            mask_words = take(f"layer.{i}.mask", np.uint32, packed)
            mask = unpack(mask_words, inputs)
            if not np.array_equal(pack(mask), mask_words):
                raise ModelError(f"layer {i}: pad bits of the mask are not 0")
        return Connections(weights, mask=mask)

    last = len(shape) - 2
    hidden = []
    for i in range(last):
        c = connections(i)
        thresholds = take(f"layer.{i}.thresholds", np.int32, (shape[i + 1],))
        hidden.append(HiddenLayer(c.weights, mask=c.mask, thresholds=thresholds))
    c = connections(last)
    bias = take(f"layer.{last}.bias", np.int32, (shape[-1],))
    unknown = sorted(set(tensors) - used)
    if unknown:
        raise ModelError(f"unknown tensor {unknown[0]}")
    classes, provenance, name = header["classes"], header["provenance"], header["name"]
    if not isinstance(classes, list) or not isinstance(provenance, dict):
        raise ModelError("bad classes or provenance")
    if not isinstance(name, str) or any(
        not isinstance(v, str) for pair in provenance.items() for v in pair
    ):
        raise ModelError("names and provenance must be text")
    return BinaryModel(
        input=InputSpec.from_dict(header["input"]),
        hidden=tuple(hidden),
        output=OutputLayer(c.weights, mask=c.mask, bias=bias),
        classes=tuple(classes),
        name=name,
        provenance=provenance,
    )


def _short(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:120]}"
