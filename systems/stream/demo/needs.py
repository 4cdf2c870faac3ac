# SPDX-License-Identifier: Apache-2.0
"""Checks whether a machine has what the demonstration needs."""

from __future__ import annotations

import os
import sys

from n3ic.errors import MissingDependencyError, needed
from n3ic.exporters.xdp.clang import compile_bpf
from n3ic.exporters.xdp.libbpf import ARRAY, BpfError, create_map
from n3ic.exporters.xdp.links import own_network

_PROBE = "#include <linux/bpf.h>\n#include <bpf/bpf_helpers.h>\n"


def check_machine() -> None:
    """Check that packets can be sent through the kernel, and a second stage trained.

    Raises:
        MissingDependencyError: something is missing; the error names all of it.
    """
    if sys.platform != "linux":
        raise MissingDependencyError("the demonstration needs Linux")
    _root()  # without root, the other checks would fail too
    missing = []
    for check in (_network, _compiling, _loading, _training):
        try:
            check()
        except (MissingDependencyError, BpfError) as error:
            missing.append(str(error))
    if missing:
        raise MissingDependencyError("; ".join(missing))


def _root() -> None:
    if os.geteuid():
        raise MissingDependencyError(
            "the demonstration needs root, for a network namespace: sudo n3ic stream demo"
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
