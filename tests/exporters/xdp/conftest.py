# SPDX-License-Identifier: Apache-2.0
"""What the tests of the XDP target need of the machine."""

import sys
from pathlib import Path

from xdp_machine import clang, compile_bpf, in_namespace, kernel, veth

__all__ = ["clang", "compile_bpf", "in_namespace", "kernel", "veth"]

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2] / "meter"))
