# SPDX-License-Identifier: Apache-2.0
"""A cluster's card under Verilator, as a program that reads and writes frames."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path

from n3ic.errors import MissingDependencyError
from n3ic.exporters.netfpga.tools import simulate
from n3ic.systems.cluster.netfpga.image import NodeSize
from n3ic.systems.cluster.netfpga.sources import TOP, node_sources
from n3ic.util.cache import Cache

_HARNESS = Path(__file__).with_name("node.cpp")
_CACHE = "cluster-node"


def build(size: NodeSize) -> Path:
    """Return the program of a card with memories of that size, compiled unless it is cached.

    Raises:
        MissingDependencyError: Verilator or a C++ compiler is missing.
        VerifyError: The Verilog does not build.
        OSError: The cache cannot be used.
    """
    for tool in ("verilator", "g++"):
        if shutil.which(tool) is None:
            raise MissingDependencyError(
                f"simulating a cluster's card needs {tool}: apt install {tool}"
            )
    sources = (*node_sources(), _HARNESS)
    # The name covers everything that the program depends on, so a cached one is never outdated.
    what = hashlib.sha256(f"{simulate.version('verilator')} {size}".encode())
    for path in (*sources, simulate.HARNESS):
        what.update(path.read_bytes())
    name = what.hexdigest()[:32]
    cache = Cache.open(_CACHE)
    cached = cache.find(name)
    if cached is not None:
        return cached
    with tempfile.TemporaryDirectory(prefix="n3ic-node-") as folder, cache.new_file(name) as out:
        program = simulate.verilate(TOP, sources, Path(folder), parameters=size.parameters)
        shutil.copyfile(program, out)
    return cache.directory / name
