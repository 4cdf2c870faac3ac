# SPDX-License-Identifier: Apache-2.0
"""Operations of the control plane that change a card while packets flow.

Each function returns operations in order; see :mod:`~n3ic.systems.card.netfpga.simulation`. They
never touch another graph's row, another network's bank or another region. A region takes no packet
while it is held, and is reset only when it is empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from n3ic.errors import ExportError
from n3ic.exporters.netfpga.sequential import memory_contents as sequential_memory
from n3ic.model.network import BinaryModel
from n3ic.systems.card.netfpga.image import HardwarePass, NetfpgaCardImage
from n3ic.systems.card.netfpga.simulation import (
    GRAPH,
    REGION,
    Operation,
    load,
    move_pages,
    register,
    set_register,
    wait_clocks,
    wait_left,
    wait_register,
)
from n3ic.systems.card.netfpga.write import table_entry

RECONFIGURATION_SECONDS = 5e-3  # SuperNIC's figure for a default region
_HOLD, _RESET = 1, 2
_JUDGED = 64  # clocks of the longest frame and its way from the parser to its queue
_IDLE, _IN_RESET = 1 << 4, 1 << 5


def load_network(image: NetfpgaCardImage, leg: HardwarePass, model: BinaryModel) -> list[Operation]:
    """Give a leg another network: write it beside the one in use, then swap the banks.

    The old network answers packets in flight. The change takes one clock per word, and then waits
    until the executor is empty. The executor's other networks do not wait.

    Raises:
        ExportError: The leg has no network that can be written, or the new one does not fit.
    """
    core = image.core_of(leg)
    if core is None or core[0].layout is None:
        raise ExportError("the leg has no sequential network that could be replaced")
    writes = sequential_memory.writes(model, core[0].layout)
    return [operation for r in leg.regions for operation in load(r, leg.model, writes)]


def open_graph(image: NetfpgaCardImage, graph: int) -> list[Operation]:
    """Let packets name a graph from now on."""
    return [set_register(register(GRAPH, graph), table_entry(image.graphs[graph], on=True))]


def close_graph(image: NetfpgaCardImage, graph: int) -> list[Operation]:
    """Let packets that name a graph pass untouched from now on; those in flight are answered."""
    return [set_register(register(GRAPH, graph), table_entry(image.graphs[graph], on=False))]


def clear_region(region: int) -> list[Operation]:
    """Hold a region and, once it is empty, keep it in reset."""
    address = register(REGION, region)
    return [
        set_register(address, _HOLD | _RESET),
        wait_register(address, _IN_RESET, _IN_RESET),
    ]


def reconfigure_region(region: int, clocks: int) -> list[Operation]:
    """Clear a region, keep it in reset for as long as its bitstream takes, and hold it.

    Args:
        region: number of the region.
        clocks: clocks of the partial reconfiguration: a million at 200 MHz for SuperNIC's 5 ms.
    """
    return [*clear_region(region), wait_clocks(clocks), *hold_region(region)]


def hold_region(region: int) -> list[Operation]:
    """Let no packet into a region, which is not in reset; packets inside are served."""
    address = register(REGION, region)
    return [set_register(address, _HOLD), wait_register(address, _IN_RESET, 0)]


def start_region(region: int) -> list[Operation]:
    """Let packets into a held region."""
    return [set_register(register(REGION, region), 0)]


def bring_graphs(
    image: NetfpgaCardImage,
    graphs: Sequence[int],
    models: Sequence[tuple[HardwarePass, BinaryModel]],
    clocks: int,
) -> list[Operation]:
    """Add graphs: configure their regions, load their networks, then open the graphs.

    Their tasks get pages of on-board memory full of zeros. Regions and pages that other graphs use
    are left as they are.

    Args:
        image: the card.
        graphs: graphs of a tenant.
        models: network of each leg to write.
        clocks: clocks of a partial reconfiguration.
    """
    regions = _own_regions(image, graphs)
    out = [op for region in regions for op in reconfigure_region(region, clocks)]
    out += move_pages(_own_pages(image, graphs), give=True)
    out += [op for leg, model in models for op in load_network(image, leg, model)]
    out += [op for region in regions for op in start_region(region)]
    return out + [op for graph in graphs for op in open_graph(image, graph)]


def remove_graphs(image: NetfpgaCardImage, graphs: Sequence[int]) -> list[Operation]:
    """Remove graphs: close them, and clear their regions once their packets have left.

    Their tasks' pages of on-board memory are taken. Regions and pages that other graphs use are
    left as they are.
    """
    closed = [op for graph in graphs for op in close_graph(image, graph)]
    # A reset would lose packets in flight, so the tenant's packets leave first.
    drain = drained(sorted({image.graphs[g].tenant for g in graphs}))
    cleared = [op for region in _own_regions(image, graphs) for op in clear_region(region)]
    taken = move_pages(_own_pages(image, graphs), give=False)
    return [*closed, *drain, *cleared, *taken]


def drained(queues: Iterable[int]) -> list[Operation]:
    """Wait until the packets that have arrived have left, by the numbers of their queues."""
    # A packet that was judged is admitted within this many clocks.
    return [wait_clocks(_JUDGED), *(wait_left(q) for q in queues)]


def listing(operations: Sequence[Operation]) -> str:
    """Describe operations in words, one per line, for the driver of ``cfg_*`` and ``wr_*``."""
    return "".join(_line(*operation) + "\n" for operation in operations)


def _line(kind: int, a: int, b: int, c: int) -> str:
    what = f"table of task {c & 0x7F}" if c & 0x80 else f"network {c & 0xFF}"
    bank = f"{what} of region {c >> 8}"
    return {
        0: f"register {a:#06x} = {b:#010x}",
        1: f"read register {a:#06x}",
        2: f"wait for {a} packets sent",
        3: f"wait until register {a:#06x} & {b:#010x} == {c:#010x}",
        4: f"{bank}: word {a:#06x} = {b:#010x}",
        5: f"{bank}: swap",
        6: f"wait {a} clocks",
        7: f"wait until wr_busy of region {a} is 0",
        8: f"wait until register {b:#06x} is what register {a:#06x} is now, or beyond",
    }[kind]


def _own_pages(image: NetfpgaCardImage, graphs: Sequence[int]) -> list[int]:
    """Return the entries of the page table of tasks that no other graph uses."""
    used = [
        {stage.name for branch in graph.branches for stage in image.stages_of(branch)}
        for graph in image.graphs
    ]
    others = set[str]().union(*(u for g, u in enumerate(used) if g not in graphs))
    mine = set[str]().union(*(used[g] for g in graphs)) - others
    return [n for stage in image.memory_stages if stage.name in mine for n in image.pages_of(stage)]


def _own_regions(image: NetfpgaCardImage, graphs: Sequence[int]) -> list[int]:
    """Return the regions that no other graph uses."""
    used = [
        {r for branch in g.branches for leg in branch for r in leg.regions} for g in image.graphs
    ]
    mine = set[int]().union(*(used[g] for g in graphs))
    return sorted(mine.difference(*(u for g, u in enumerate(used) if g not in graphs)))
