# SPDX-License-Identifier: Apache-2.0
"""Reads and writes meter specifications as JSON files."""

from __future__ import annotations

from pathlib import Path

from n3ic.errors import ModelError
from n3ic.model.meter_spec import MeterSpec
from n3ic.util.files import write_atomic
from n3ic.util.json_text import json_text
from n3ic.util.structured import read_bounded

MAX_BYTES = 1 << 20


def read_spec(path: str | Path) -> MeterSpec:
    """Read a specification that :func:`write_spec` wrote.

    Raises:
        ModelError: the file is missing, damaged, or of a newer version.
    """
    data = read_bounded(path, MAX_BYTES, ModelError, "a meter's specification")
    return MeterSpec.from_json(data, str(path))


def write_spec(spec: MeterSpec, path: str | Path) -> None:
    """Write a specification as JSON, whole or not at all; equal ones give equal bytes.

    Raises:
        N3icError: the file cannot be written.
    """
    write_atomic(path, json_text(spec.to_dict()))
