# SPDX-License-Identifier: Apache-2.0
"""Read a model file of any family."""

from __future__ import annotations

from pathlib import Path

from n3ic import plugins
from n3ic.errors import ModelError
from n3ic.model.classifier import Classifier
from n3ic.model.family import family
from n3ic.model.file import read_file, unpack_file


def load_model(path: str | Path) -> Classifier:
    """Read a model file of any family.

    Raises:
        ModelError: the file is missing, damaged, foreign, of a newer version, or of a family that
            this n3ic does not know.
    """
    return parse_model(read_file(path), str(path))


def parse_model(data: bytes, source: str) -> Classifier:
    """Read the bytes of a model file of any family.

    Args:
        data: the bytes.
        source: what to call them in errors.

    Raises:
        ModelError: as :func:`load_model`.
    """
    header, tensors = unpack_file(data, source)
    name, known = header.get("family"), plugins.names(plugins.FAMILIES)
    if name not in known:
        raise ModelError(
            f"{source}: a model of family {name!r:.100}, this n3ic reads {', '.join(known)}"
        )
    return family(name).model.from_parts(header, tensors, data, source)
