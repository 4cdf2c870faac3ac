"""The unrolled core as Verilog-2005."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from n3ic.exporters.netfpga.unrolled.netlist import TRUE, Netlist, Table
from n3ic.exporters.netfpga.unrolled.network import Network
from n3ic.exporters.netfpga.unrolled.schedule import Schedule
from n3ic.util.templates import render

FOLDER = Path(__file__).resolve().parent


def core_text(network: Network, plan: Schedule, *, shape: str) -> str:
    """The file ``n3ic_core.v``."""
    return render(FOLDER, "n3ic_core.v.j2", _values(network, plan, shape))


def _values(network: Network, plan: Schedule, shape: str) -> dict[str, Any]:
    net = network.net
    names = _Names(net, plan)
    core = sorted(plan.core)
    extra = sorted(set(plan.stage) - plan.core)

    def bus(literals: tuple[int, ...]) -> str:
        return ", ".join(names.output(literal) for literal in reversed(literals))

    scores = tuple(bit for score in network.scores for bit in score)
    width = len(network.scores[0])
    return {
        "shape": shape,
        "with_scores": network.with_scores,
        "n_in": net.n_inputs,
        "n_classes": len(network.scores),
        "class_w": len(network.classes),
        "score_w": width,
        "trace_w": len(network.hidden),
        "depth": plan.depth,
        "tables": _tables(net, core),
        "trace_tables": sorted(set(_tables(net, extra)) - set(_tables(net, core))),
        "stages": [
            {
                "number": number,
                "wires": names.wires(core, number),
                "moves": names.moves(plan.delays, {}, number),
            }
            for number in range(1, plan.depth + 1)
        ],
        "trace_wires": [wire for s in range(1, plan.depth + 1) for wire in names.wires(extra, s)],
        "trace_moves": [
            move
            for s in range(1, plan.depth + 1)
            for move in names.moves(plan.traced, plan.delays, s)
        ],
        "out_class": bus(network.classes),
        "out_scores": bus(scores),
        "out_margin": bus(network.margin),
        "out_trace": bus(network.hidden),
    }


def _tables(net: Netlist, nodes: list[int]) -> list[tuple[str, int, str]]:
    """Name, number of rows and hexadecimal text of the different tables."""
    found = {}
    for node in nodes:
        table = net.table(node)
        rows = 1 << len(table.inputs)
        found[_table_name(table)] = (rows, f"{table.table:0{-(-rows // 4)}x}")
    return [(name, *found[name]) for name in sorted(found)]


def _table_name(table: Table) -> str:
    rows = 1 << len(table.inputs)
    return f"F{len(table.inputs)}_{table.table:0{-(-rows // 4)}X}"


class _Names:
    """Names of signals: ``n7`` is a table's output in its own stage, ``n7_2`` two clocks later."""

    def __init__(self, net: Netlist, plan: Schedule) -> None:
        self.net = net
        self.plan = plan

    def at(self, node: int, stage: int) -> str:
        """A signal as a stage sees it."""
        late = stage - self.plan.stage.get(node, 1)
        if self.net.is_table(node):
            return f"n{node}_{late}" if late else f"n{node}"
        return f"x{node - 1}_{late}" if late else f"in_bits[{node - 1}]"

    def output(self, literal: int) -> str:
        """A literal after the last stage."""
        if literal <= TRUE:
            return f"1'b{literal}"
        return "!" * (literal & 1) + self.at(literal >> 1, self.plan.depth + 1)

    def wires(self, nodes: list[int], stage: int) -> list[tuple[str, str, str]]:
        """Name, table and inputs of the tables of a stage."""
        out = []
        for node in nodes:
            if self.plan.stage[node] == stage:
                table = self.net.table(node)
                inputs = ", ".join(self.at(x, stage) for x in reversed(table.inputs))
                out.append((f"n{node}", _table_name(table), inputs))
        return out

    def moves(
        self, delays: dict[int, int], done: dict[int, int], stage: int
    ) -> list[tuple[str, str]]:
        """Registers at the end of a stage: name and what goes in."""
        out = []
        for node, count in delays.items():
            late = stage - self.plan.stage.get(node, 1)
            if done.get(node, 0) <= late < count:
                out.append((self.at(node, stage + 1), self.at(node, stage)))
        return out
