# SPDX-License-Identifier: Apache-2.0
"""Facts about this machine."""

from __future__ import annotations

import platform
from pathlib import Path


def cpu_name() -> str:
    """Return the CPU's name, which is cited as the source of measured figures."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
