# SPDX-License-Identifier: Apache-2.0
"""JSON as n3ic writes it."""

from __future__ import annotations

import json
from typing import Any


def json_text(data: Any) -> str:
    """Data as JSON with sorted keys, two spaces per level and a line end; equal for equal data."""
    return json.dumps(data, indent=2, sort_keys=True) + "\n"
