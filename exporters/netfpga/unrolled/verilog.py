# SPDX-License-Identifier: Apache-2.0
"""Renders the unrolled core as Verilog-2005."""

from __future__ import annotations

import textwrap
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from n3ic.exporters.netfpga.unrolled.cells import Kind
from n3ic.exporters.netfpga.unrolled.netlist import TRUE, Netlist, NetlistCell
from n3ic.exporters.netfpga.unrolled.network import LutNetwork
from n3ic.exporters.netfpga.unrolled.schedule import Schedule
from n3ic.model.classifier import Classifier
from n3ic.model.network import BinaryModel
from n3ic.targets.identifiers import comment
from n3ic.util.templates import render

FOLDER = Path(__file__).resolve().parent
LINE = 100


@dataclass(frozen=True)
class Delay:
    """A delayed signal: name of the register, clocks, and source."""

    name: str
    count: int
    source: str


@dataclass(frozen=True)
class CellInstance:
    """An instance of a cell.

    Attributes:
        kind: name of the module.
        name: name of the instance.
        inputs: connected signals, the highest bit first.
        ports: outputs and the wires that they drive; an empty wire is not connected.
    """

    kind: str
    name: str
    inputs: tuple[str, ...]
    ports: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Section:
    """The cells of one neuron or one sum.

    Attributes:
        comments: description of the section for readers.
        wires: the wires that its cells drive.
        instances: the cells.
        delays: registers of the wires.
    """

    comments: tuple[str, ...]
    wires: tuple[str, ...]
    instances: tuple[CellInstance, ...]
    delays: tuple[Delay, ...]

    @property
    def registers(self) -> list[tuple[int, list[str]]]:
        """Names of the registers by number of clocks."""
        counts = sorted({delay.count for delay in self.delays})
        return [(n, [d.name for d in self.delays if d.count == n]) for n in counts]


def core_text(
    network: LutNetwork,
    plan: Schedule,
    model: Classifier,
    words: Mapping[str, tuple[str, ...]],
    names: str,
) -> str:
    """Render the file ``n3ic_core.v``.

    Args:
        network: the model as look-up tables.
        plan: their schedule.
        model: the model.
        words: what sections compute, by their names.
        names: how signals are named, in words.
    """
    values = _values(network, plan, model, words) | {"names": names}
    return render(FOLDER, "n3ic_core.v.j2", values, {"wrapped": _wrapped})


def cells_text(network: LutNetwork, plan: Schedule) -> str:
    """Render the file ``n3ic_cells.v``: the modules that the core instantiates."""
    kinds = {network.net.table(node).cell.kind for node in plan.stage}
    return render(
        FOLDER, "n3ic_cells.v.j2", {"kinds": sorted(kinds, key=_by_name)}, {"wrapped": _wrapped}
    )


def _by_name(kind: Kind) -> tuple[int, str]:
    return len(kind.name), kind.name


def _wrapped(text: str, before: str, indent: str) -> str:
    """Wrap text: the first line follows ``before``, the others are indented."""
    room = LINE - 2  # leaves space for the end of the statement
    return textwrap.fill(
        text,
        room,
        initial_indent=" " * len(before),
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )[len(before) :]


def _values(
    network: LutNetwork, plan: Schedule, model: Classifier, words: Mapping[str, tuple[str, ...]]
) -> dict[str, Any]:
    net = network.net
    names = _Names(net, plan)
    extra = set(plan.stage) - plan.core

    def bus(literals: tuple[int, ...]) -> str:
        return ", ".join(names.output(literal) for literal in reversed(literals))

    scores = tuple(bit for score in network.scores for bit in score)
    return {
        "shape": model.shape_text,
        "threshold": model.shunt,
        "legend": [f"in_bits[{i}]: {of_bit(model, i)}" for i in range(net.n_inputs)],
        "with_scores": network.with_scores,
        "n_in": net.n_inputs,
        "n_classes": len(network.scores),
        "class_w": len(network.classes),
        "score_w": len(network.scores[0]),
        "trace_w": len(network.hidden),
        "depth": plan.depth,
        "sections": names.sections(plan.core, plan.delays, words),
        "trace_sections": names.sections(extra, plan.traced, words, late=True),
        "out_class": bus(network.classes),
        "out_shunt": bus(network.shunt),
        "out_scores": bus(scores),
        "out_margin": bus(network.margin),
        "out_trace": bus(network.hidden),
    }


def of_bit(model: Classifier, bit: int) -> str:
    """What an input bit means, as a comment."""
    return comment(model.input.explain(bit).partition(": ")[2])


def comments(model: BinaryModel) -> dict[str, tuple[str, ...]]:
    """Describe the sections, by name."""
    out: dict[str, tuple[str, ...]] = {}
    for i, layer in enumerate(model.hidden):
        for j in range(layer.n_outputs):
            lines = [
                f"layer {i}, neuron {j}: {layer.thresholds[j]} or more of "
                f"{layer.fan_in[j]} inputs agree"
            ]
            if i == 0:
                present = layer.weights[j] | True if layer.mask is None else layer.mask[j]
                for weight in (1, 0):
                    bits = [b for b in present.nonzero()[0] if layer.weights[j, b] == weight]
                    if bits:
                        lines.append(f"with {weight}: {_ranges(model, bits)}")
            out[f"l{i}_n{j}"] = tuple(lines)
    for c, bias in enumerate(model.output.bias):
        name = comment(model.classes[c])
        out[f"score{c}"] = (f"score of class {c} ({name}): popcount {bias:+d}",)
    return out


def _ranges(model: BinaryModel, bits: Iterable[int]) -> str:
    """Describe bits: features and their bit ranges."""
    bit_set = set(bits)
    out = []
    for start, field in zip(model.input.offsets, model.input.fields, strict=True):
        own = [k for k in range(field.width) if start + k in bit_set]
        runs = [
            [k for _, k in run]
            for _, run in groupby(enumerate(own), lambda pair: pair[1] - pair[0])
        ]
        listed = " ".join(str(r[0]) if len(r) == 1 else f"{r[0]}-{r[-1]}" for r in runs)
        if runs:
            out.append(f"{comment(field.feature)} {listed}")
    return "; ".join(out)


class _Names:
    """Names of signals: ``l0_n3_b2`` in its own stage, ``l0_n3_b2_d[2]`` two clocks later."""

    def __init__(self, net: Netlist, plan: Schedule) -> None:
        self.net = net
        self.plan = plan
        self.wires = {node + 1: f"in_bits[{node}]" for node in range(net.n_inputs)}
        self.stems = {node + 1: f"in{node}" for node in range(net.n_inputs)}
        uses: Counter[str] = Counter()
        for node in sorted(plan.stage):
            name = net.table(node).name
            uses[name] += 1
            unique = name if uses[name] == 1 else f"{name}_{uses[name]}"
            self.wires[node] = self.stems[node] = unique

    def at(self, literal: int, stage: int) -> str:
        """Name of a literal as read in a stage."""
        if literal <= TRUE:
            return f"1'b{literal}"
        node = literal >> 1
        turned = self.net.is_table(node) and self.net.table(node).inverted
        return "!" * (literal & 1 ^ int(turned)) + self._late(
            node, stage - self.plan.stage.get(node, 1)
        )

    def _late(self, node: int, late: int) -> str:
        """Name of a delayed output; beyond the core's delays, the trace has its own register."""
        core_delay = self.plan.delays.get(node, 0)
        if not late:
            return self.wires[node]
        if late <= core_delay:
            return f"{self.stems[node]}_d[{late}]"
        return f"{self.stems[node]}_t[{late - core_delay}]"

    def output(self, literal: int) -> str:
        """Name of a literal after the last stage."""
        return self.at(literal, self.plan.depth + 1)

    def sections(
        self,
        nodes: Collection[int],
        delays: dict[int, int],
        words: Mapping[str, tuple[str, ...]],
        *,
        late: bool = False,
    ) -> list[Section]:
        """Group nodes and registers by neuron or sum."""
        out = []
        # In order of creation, so that every wire is declared before it is read.
        for name, part in groupby(sorted({*nodes, *delays}), self._section):
            members = list(part)
            tables = [node for node in members if node in nodes]
            all_delays = [self._delay(n, delays[n], late=late) for n in members if n in delays]
            nonzero_delays = tuple(delay for delay in all_delays if delay.count)
            if tables or nonzero_delays:
                about = words.get(name, (name,)) if tables else (f"{name}, for later",)
                wires = tuple(self.wires[node] for node in tables)
                out.append(Section(about, wires, self._instances(tables), nonzero_delays))
        return out

    def _section(self, node: int) -> str:
        return self.net.table(node).name.partition("_b")[0] if self.net.is_table(node) else "inputs"

    def _delay(self, node: int, count: int, *, late: bool) -> Delay:
        core_delay = self.plan.delays.get(node, 0) if late else 0
        name = f"{self.stems[node]}_{'t' if late else 'd'}"
        return Delay(name, count - core_delay, self._late(node, core_delay))

    def _instances(self, nodes: list[int]) -> tuple[CellInstance, ...]:
        """Make one instance per cell and stage, with those outputs that are among the nodes."""
        outputs: dict[tuple[NetlistCell, int], dict[int, int]] = defaultdict(dict)
        for node in nodes:
            table = self.net.table(node)
            outputs[table.cell, self.plan.stage[node]][table.port] = node
        out = []
        for (cell, stage), driven in outputs.items():
            out.append(
                CellInstance(
                    cell.kind.name,
                    f"u_{self.wires[next(iter(driven.values()))]}",
                    tuple(self.at(literal, stage) for literal in reversed(cell.inputs)),
                    tuple(
                        (port, self.wires[driven[k]] if k in driven else "")
                        for k, port in enumerate(cell.kind.ports)
                    ),
                )
            )
        return tuple(out)
