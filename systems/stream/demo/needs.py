# SPDX-License-Identifier: Apache-2.0
"""Checks whether a machine has what the halves of the demonstration need."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

from n3ic.errors import MissingDependencyError, needed
from n3ic.exporters.dpdk.application import require_dpdk
from n3ic.exporters.xdp.clang import compile_bpf
from n3ic.exporters.xdp.libbpf import ARRAY, BpfError, create_map
from n3ic.exporters.xdp.links import own_network
from n3ic.kernel import build

_PROBE = "#include <linux/bpf.h>\n#include <bpf/bpf_helpers.h>\n"


def missing_for_loop() -> list[str]:
    """What is missing to send packets through the kernel, one sentence for each."""
    return _missing((_root, _network, _compiling, _loading, _training))


def missing_for_images() -> list[str]:
    """What is missing to send images through DPDK, one sentence for each."""
    return _missing((_root, _network, _dpdk, _torch))


def _missing(checks: Sequence[Callable[[], object]]) -> list[str]:
    if sys.platform != "linux":
        return ["it needs Linux"]
    out = []
    for check in checks:
        try:
            check()
        except (MissingDependencyError, BpfError) as error:
            out.append(str(error))
            if check is _root:
                break  # without root, the other checks would fail too
    return out


def _root() -> None:
    if os.geteuid():
        raise MissingDependencyError(
            "it needs root, for a network namespace: sudo n3ic stream demo"
        )


def _network() -> None:
    with own_network():
        pass


def _compiling() -> None:
    compile_bpf({"probe.c": _PROBE}, "probe.c")


def _loading() -> None:
    create_map(ARRAY, "probe", 4, 4, 1).close()


def _training() -> None:
    with needed("the second stage"):
        import sklearn  # noqa: F401


def _dpdk() -> None:
    require_dpdk(("pkg-config",))
    try:
        build.find_compiler()
    except build.NoCompilerError as error:
        raise MissingDependencyError(str(error)) from error


def _torch() -> None:
    with needed("images"):
        import torch  # noqa: F401
