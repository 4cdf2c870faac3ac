# SPDX-License-Identifier: Apache-2.0
"""A thin binding of libbpf: objects, maps, test runs, and programs on interfaces.

Linux only. If the kernel refuses a request, a :class:`BpfError` says what was tried and why it was
refused. If the verifier refused a program, the error also has the end of its log.
"""

from __future__ import annotations

from n3ic.exporters.xdp.libbpf.interfaces import (
    AttachedProgram,
    AttachMode,
    attach,
    check_ethernet,
    detach,
    has_ethernet,
    query,
    tcx_programs,
)
from n3ic.exporters.xdp.libbpf.library import BpfError, Closing, VerifierError, cpus, libbpf
from n3ic.exporters.xdp.libbpf.maps import (
    ANY,
    ARRAY,
    EXISTING,
    NEW,
    BpfMap,
    RingBuffer,
    create_map,
    map_by_id,
)
from n3ic.exporters.xdp.libbpf.programs import (
    BpfObject,
    BpfProgram,
    TestRun,
    program_by_id,
)

__all__ = [
    "ANY",
    "ARRAY",
    "EXISTING",
    "NEW",
    "AttachMode",
    "AttachedProgram",
    "BpfError",
    "BpfMap",
    "BpfObject",
    "BpfProgram",
    "Closing",
    "RingBuffer",
    "TestRun",
    "VerifierError",
    "attach",
    "check_ethernet",
    "cpus",
    "create_map",
    "detach",
    "has_ethernet",
    "libbpf",
    "map_by_id",
    "program_by_id",
    "query",
    "tcx_programs",
]
