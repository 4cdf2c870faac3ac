# SPDX-License-Identifier: Apache-2.0
"""Several networks that share an NFP: islands, threads and memories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from n3ic.exporters.nfp import placement
from n3ic.exporters.nfp.placement import ThreadPlan
from n3ic.model.classifier import Classifier
from n3ic.targets.colocation import over_budget
from n3ic.targets.device import Device

ISLAND_MEMORIES = ("cls", "ctm")  # each island has its own


@dataclass(frozen=True)
class Sharing:
    """Several networks on one NFP.

    Attributes:
        way: how the networks run, as a phrase for reports.
        memory: bytes of each memory that networks and threads' state use on all islands together.
        problems: resources that are exceeded; empty if all networks fit.
    """

    way: str
    memory: dict[str, int]
    problems: tuple[str, ...]


def share(
    models: Sequence[Classifier],
    sizes: Sequence[int],
    plans: Sequence[ThreadPlan],
    device: Device,
) -> Sharing:
    """Lay out several networks, whose blobs have ``sizes`` bytes, on one NFP.

    A data-parallel network runs on threads of the island whose memory holds its weights.
    Networks that need a chain of threads take turns on one chain. All networks share the threads,
    their state and the mailbox.
    """
    islands = int(device.limits["islands"])
    shared = _shared_bytes(models, plans, device)
    memory: dict[str, int] = {}
    for name, size in shared.items():
        memory[name] = size * (islands if name in ISLAND_MEMORIES else 1)
    words: list[str] = []
    problems: list[str] = []
    for mode, way in (
        ("data", "side by side, a thread each"),
        ("model", "one after the other in one chain of threads"),
    ):
        if any(p.mode == mode for p in plans):
            words.append(way)
    for name in dict.fromkeys(p.memory for p in plans):
        own = [i for i, p in enumerate(plans) if p.memory == name]
        bytes_here = [sizes[i] for i in own]
        memory[name] = memory.get(name, 0) + sum(bytes_here)
        room = _room(name, max(p.reserve for p in plans), shared.get(name, 0), device)
        if name not in ISLAND_MEMORIES:
            what = f"bytes of {name.upper()} for weights"
            problems += over_budget({what: sum(bytes_here)}, {what: room})
            continue
        data = [plans[i] for i in own if plans[i].mode == "data"]
        # Chained networks need no thread of their own, so only memory bounds their number.
        threads = min((placement.threads_per_island(p, device) for p in data), default=len(own))
        places = placement.spread(bytes_here, room, islands, threads)
        if places is None:
            problems.append(
                f"{len(own)} networks of {sum(bytes_here):,} bytes in all do not fit {islands} "
                f"islands of {room:,} bytes of {name.upper()} and {threads} threads each"
            )
        else:
            plural = "" if len(places) == 1 else "s"
            words.append(f"{' + '.join(map(str, places))} networks in {len(places)} island{plural}")
    return Sharing(", ".join(words), memory, tuple(problems))


def _shared_bytes(
    models: Sequence[Classifier], plans: Sequence[ThreadPlan], device: Device
) -> dict[str, int]:
    """Return the bytes of state and mailbox by memory, per island for island memories.

    Data-parallel threads and chain threads are different threads, so both keep their state.
    """
    out: dict[str, int] = {}
    for mode in ("data", "model"):
        of_mode = [p for p in plans if p.mode == mode]
        for name in {p.state for p in of_mode}:
            # The same threads serve all networks of a mode, so count the largest state.
            most = max(placement.state_bytes(p, device) for p in of_mode if p.state == name)
            out[name] = out.get(name, 0) + most
    boxes = (placement.mailbox_bytes(m, p) for m, p in zip(models, plans, strict=True))
    out["imem"] = out.get("imem", 0) + max(boxes)
    return out


def _room(name: str, cls_reserve: int, used: int, device: Device) -> int:
    """Return the bytes of a memory that weights may use, per island for an island memory."""
    dram = int(device.limits["emem_dram_bytes"])  # DRAM behind EMEM's cache, which the device lists
    size = dram if name == "emem" else device.memory(name).bytes
    reserve = cls_reserve if name == "cls" else int(device.limits[f"reserve_{name}"])
    return size - reserve - used
