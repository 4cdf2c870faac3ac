# SPDX-License-Identifier: Apache-2.0
"""Names from models and files, made safe for paths."""

from __future__ import annotations

import re


def path_component(name: str) -> str:
    """A name as one component of a path: never empty or hidden, and without separators."""
    text = re.sub(r"[^0-9A-Za-z._-]+", "_", name).lstrip(".-")[:100]
    return text or "unnamed"
