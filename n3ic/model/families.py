"""Reading a model file of whichever family."""

from __future__ import annotations

from pathlib import Path

from n3ic.errors import ModelError
from n3ic.model.classifier import Classifier
from n3ic.model.file import read_file, unpack_file
from n3ic.model.network import BinaryModel
from n3ic.model.spn import SpnModel

FAMILIES: tuple[type[BinaryModel | SpnModel], ...] = (BinaryModel, SpnModel)


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
    for family in FAMILIES:
        if header.get("family") == family.family:
            return family.from_parts(header, tensors, data, source)
    known = ", ".join(family.family for family in FAMILIES)
    said = repr(header.get("family"))[:100]
    raise ModelError(f"{source}: a model of family {said}, this n3ic reads {known}")
