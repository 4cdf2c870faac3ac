# SPDX-License-Identifier: Apache-2.0
"""The container of a model file: tensors and one JSON header, checked as a whole.

It is a safetensors file with one metadata entry, never a pickle; see docs/reference/formats.md. The
model's family interprets the header and the tensors; the container checks sizes, version and
checksum. The same content gives the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from n3ic.errors import ModelError, N3icWarning
from n3ic.util.files import read_regular
from n3ic.util.plain_data import shown

FORMAT = "n3ic-model"
VERSION = 2
SHUNT_VERSION = 3  # for models that shunt: a reader of version 2 would ignore the threshold
MAX_FILE_BYTES = 256 << 20
MAX_HEADER_BYTES = 16 << 20
_FORMAT_1 = "n3ic-binary-model"  # the format's name in version 1, which had no checksum
_KEY = "n3ic"  # one entry: safetensors does not keep an order between several
_NO_CHECKSUM = b"0" * 64


class Tensors:
    """The tensors of a file; each is taken once, with the type and shape that it must have."""

    def __init__(self, tensors: Mapping[str, NDArray[Any]]) -> None:
        self._left = dict(tensors)

    def __contains__(self, name: str) -> bool:
        return name in self._left

    def take(self, name: str, dtype: type[np.generic], shape: tuple[int, ...]) -> NDArray[Any]:
        """The tensor of that name.

        Raises:
            ModelError: the tensor is missing, or has another type or shape.
        """
        if name not in self._left:
            raise ModelError(f"tensor {name} is missing")
        array = self._left.pop(name)
        if array.dtype != dtype or array.shape != shape:
            raise ModelError(
                f"tensor {name}: expected {np.dtype(dtype)} {shape}, "
                f"got {array.dtype} {array.shape}"
            )
        return array

    def close(self) -> None:
        """Check that every tensor was taken.

        Raises:
            ModelError: the file holds a tensor that was not taken.
        """
        if self._left:
            raise ModelError(f"unknown tensor {shown(min(self._left))}")


def pack_file(
    family: str,
    header: Mapping[str, Any],
    tensors: Mapping[str, NDArray[Any]],
    version: int = VERSION,
) -> bytes:
    """Bytes of a model file.

    Args:
        family: the model's family, such as ``binary-network``.
        header: everything but the tensors, as plain data for JSON.
        tensors: arrays by name.
        version: version of the file; a reader that does not know it refuses the file.
    """
    full = {
        **header,
        "format": FORMAT,
        "version": version,
        "family": family,
        "checksum": _NO_CHECKSUM.decode(),
    }
    text = json.dumps(full, sort_keys=True, separators=(",", ":"))
    writable = {k: np.ascontiguousarray(v) for k, v in sorted(tensors.items())}
    data = bytes(save(writable, metadata={_KEY: text}))
    # Keys are sorted, so the zeros of the checksum come before any that the content may have.
    return data.replace(_NO_CHECKSUM, hashlib.sha256(data).hexdigest().encode(), 1)


def unpack_file(data: bytes, source: str) -> tuple[dict[str, Any], Tensors]:
    """Header and tensors of a model file's bytes.

    Args:
        data: the bytes.
        source: what to call them in errors.

    Raises:
        ModelError: the bytes are damaged, foreign, or of a newer version.

    Warns:
        N3icWarning: the file is of version 1, which has no checksum.
    """
    header_size = int.from_bytes(data[:8], "little")
    if header_size > MAX_HEADER_BYTES:  # before anything is parsed: a damaged size may be vast
        raise ModelError(f"{source}: not an n3ic model, or damaged (its header is too large)")
    try:
        tensors = load(data)
        metadata = json.loads(data[8 : 8 + header_size]).get("__metadata__", {})
        header = json.loads(metadata[_KEY])
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
        raise ModelError(f"{source}: not an n3ic model, or damaged ({short(e)})") from e
    if not isinstance(header, dict):
        raise ModelError(f"{source}: not an n3ic model, or damaged (its header is no object)")
    kind, version = header.get("format"), header.get("version")
    if kind not in (FORMAT, _FORMAT_1):
        raise ModelError(f"{source}: not an n3ic model (format {shown(kind)})")
    if (kind, version) == (_FORMAT_1, 1):
        warnings.warn(
            f"{source}: a model of n3ic 0.1, whose files have no checksum: damage may go "
            "unnoticed (see docs/reference/formats.md)",
            N3icWarning,
            stacklevel=2,
        )
        return header | {"family": "binary-network"}, Tensors(tensors)
    # The type counts, too: 2.0 == 2, but no n3ic writes it.
    if kind != FORMAT or type(version) is not int or version not in (VERSION, SHUNT_VERSION):
        raise ModelError(
            f"{source}: version {shown(version)}, this n3ic reads versions 1 to {SHUNT_VERSION}; "
            "a newer n3ic may read it"
        )
    checksum = str(header.get("checksum")).encode()
    blank = data.replace(checksum, _NO_CHECKSUM, 1)
    if hashlib.sha256(blank).hexdigest().encode() != checksum:
        raise ModelError(f"{source}: damaged: its checksum does not match its content")
    return header, Tensors(tensors)


def read_file(path: str | Path, *, follow: bool = True) -> bytes:
    """Bytes of a model file.

    Args:
        path: the file.
        follow: whether it may be a symbolic link.

    Raises:
        ModelError: the file cannot be read, is not a regular file, or is too large.
    """
    try:
        return read_regular(path, MAX_FILE_BYTES, follow=follow)
    except OSError as error:
        raise ModelError(f"cannot read the model {path}: {error.strerror or error}") from error


def short(error: BaseException) -> str:
    """An error of a library in a few words."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:120]}"
