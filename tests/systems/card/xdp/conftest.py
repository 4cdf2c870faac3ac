# SPDX-License-Identifier: Apache-2.0
"""What cards on the XDP target need of the machine."""

from pathlib import Path

from tests.support.xdp_machine import clang, compile_bpf, in_namespace, kernel, tun, veth

__all__ = ["clang", "compile_bpf", "in_namespace", "kernel", "tun", "veth"]

TESTS = Path(__file__).parents[3]
