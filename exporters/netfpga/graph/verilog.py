# SPDX-License-Identifier: Apache-2.0
"""Renders the pipeline of operations as Verilog-2005."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from n3ic.exporters.netfpga.graph.pipeline import Pipeline, PipelineCell
from n3ic.exporters.netfpga.graph.tournament import pair_scores
from n3ic.model.graph.arithmetic import Logarithms
from n3ic.targets.identifiers import comment
from n3ic.util.templates import render

FOLDER = Path(__file__).resolve().parent
BLOCK_BITS = 6  # inputs of a look-up table
LARGE_TABLE = 1024  # entries
_NAMES = {
    "bits": "bits",
    "count": "count",
    "lookup": "leaf",
    "add": "sum",
    "larger": "max",
    "more": "more",
    "times": "product",
    "scale": "scaled",
    "round": "rounded",
    "gate": "gate",
    "join": "value",
    "mux": "chosen",
    "constant": "constant",
}


def class_width(n_classes: int) -> int:
    """Width of a class index, in bits."""
    return max(1, (n_classes - 1).bit_length())


def latency(plan: Pipeline) -> int:
    """Clocks from an input to its result."""
    return plan.depth + _late(plan)


def _late(plan: Pipeline) -> int:
    """Clocks from the scores to the result: two per round, one for the margin, one for shunting."""
    rounds = (len(plan.scores) - 1).bit_length()
    return 2 * rounds + 1 + (plan.model.shunt > 0)


def table_text(plan: Pipeline) -> str:
    """Render the file ``n3ic_log_table.v``."""
    arithmetic = plan.graph.arithmetic
    assert isinstance(arithmetic, Logarithms)  # noqa: S101 - no other has a table
    widths = _table_widths(plan)
    table = arithmetic.table
    # Synthesis maps small tables to one look-up table per bit, and large ones to block memory.
    low_w = min(widths["at_w"], BLOCK_BITS if len(table) <= LARGE_TABLE else widths["at_w"])
    size = 1 << low_w
    blocks = [
        {
            "index": i // size,
            "first": i,
            "width": max(1, table[i].bit_length()),
            "entries": list(enumerate(table[i : i + size])),
        }
        for i in range(0, len(table), size)
    ]
    values = {
        "fraction": arithmetic.fraction,
        **widths,
        "low_w": low_w,
        "high_w": widths["at_w"] - low_w,
        "blocks": blocks,
    }
    return render(FOLDER, "n3ic_log_table.v.j2", values)


def _table_widths(plan: Pipeline) -> dict[str, int]:
    arithmetic = plan.graph.arithmetic
    if not isinstance(arithmetic, Logarithms):
        return {"at_w": 0, "more_w": 0}
    return {
        "at_w": max(1, (len(arithmetic.table) - 1).bit_length()),
        "more_w": max(1, arithmetic.table[0].bit_length()),
    }


def core_text(plan: Pipeline) -> str:
    """Render the file ``n3ic_core.v``."""
    model, arithmetic = plan.model, plan.graph.arithmetic
    score_w, class_w = plan.score_width, class_width(len(model.classes))
    matches, last = pair_scores(len(plan.scores), score_w, class_w)
    values = {
        "shape": model.shape_text,
        "numbers": arithmetic.text if arithmetic else "integers",
        "fraction": arithmetic.fraction if arithmetic else 0,
        **_table_widths(plan),
        "n_in": model.input.n_bits,
        "n_classes": len(model.classes),
        "class_w": class_w,
        "score_w": score_w,
        "threshold": model.shunt,
        "shunts_all": model.shunt >= 1 << score_w,
        "depth": latency(plan),
        "late": _late(plan),
        "unread": [f"in_bits[{high}:{low}]" for low, high in _unread(plan)],
        "cells": [_values(plan, i) for i, cell in enumerate(plan.cells) if cell.kind != "constant"],
        "scores": [
            {"value": _operand(plan, i, plan.depth, score_w), "comment": comment(name)}
            for i, name in zip(plan.scores, model.classes, strict=True)
        ],
        "matches": matches,
        "last": last,
    }
    return render(FOLDER, "n3ic_core.v.j2", values)


def _unread(plan: Pipeline) -> list[tuple[int, int]]:
    """The lowest and the highest bit of each run of bits of a field that no cell reads."""
    read = {cell.first for cell in plan.cells if cell.kind == "bits"}
    runs: list[tuple[int, int]] = []
    spec = plan.model.input
    for low, field, counted in zip(spec.offsets, spec.fields, plan.bins, strict=True):
        unread = [] if counted is not None else sorted({*range(low, low + field.width)} - read)
        starts = [bit for bit in unread if bit - 1 not in unread]
        ends = [bit for bit in unread if bit + 1 not in unread]
        runs += zip(starts, ends, strict=True)
    return runs


def _name(plan: Pipeline, index: int) -> str:
    cell = plan.cells[index]
    return f"{_NAMES[cell.kind]}{cell.reads[0] if cell.kind == 'more' else index}"


def _at(plan: Pipeline, index: int, clock: int) -> str:
    """Name a value that is delayed to a clock."""
    name, width = _name(plan, index), plan.cells[index].width
    late = clock - plan.ready(index)
    return f"{name}_d[{width * late - 1}:{width * (late - 1)}]" if late else name


def _literal(value: int, width: int) -> str:
    return f"{width}'d{value % (1 << width)}"


def _operand(plan: Pipeline, index: int, clock: int, width: int) -> str:
    """Write a value as it is read in a clock, extended to the reader's width."""
    cell = plan.cells[index]
    if cell.kind == "constant":
        return _literal(cell.low, width)
    name = _at(plan, index, clock)
    more = width - cell.width
    if not more:
        return name
    sign = {"+": "1'b0", "-": "1'b1"}.get(cell.sign)
    if sign is None:
        top = plan.cells[index].width - 1
        late = clock - plan.ready(index)
        sign = f"{_name(plan, index)}{f'_d[{cell.width * late - 1}]' if late else f'[{top}]'}"
    return f"{{{{{more} {{{sign}}}}}, {name}}}"


def _values(plan: Pipeline, index: int) -> dict[str, Any]:
    """Make the template values of a cell."""
    cell, clock = plan.cells[index], plan.start[index]
    read = [plan.cells[i] for i in cell.reads]
    values: dict[str, Any] = {
        "kind": cell.kind,
        "name": _name(plan, index),
        "width": cell.width,
        "delay": plan.delays[index],
        "first": cell.first,
    }
    if cell.kind in ("add", "larger"):
        sides = [_operand(plan, i, clock, cell.width) for i in cell.reads]
        values |= {"a": sides[0], "b": sides[1], "signed": int(cell.sign == "+-")}
    elif cell.kind in ("times", "scale", "round"):
        sides = [_operand(plan, i, clock, plan.cells[i].width) for i in cell.reads]
        values |= {f"{side}": text for side, text in zip("ab", sides, strict=False)}
        values |= {f"{side}_width": c.width for side, c in zip("ab", read, strict=False)}
        values |= {"by": cell.table[0] if cell.table else 0}
    elif cell.kind == "count":
        values |= {"a": _at(plan, cell.reads[0], clock), "bits": read[0].width}
    if cell.kind == "lookup":
        values |= _lookup(cell, sum(part.width for part in read))
        values |= {"a": _joined(plan, cell.reads, clock)}
        values |= {"comment": comment(_features(plan, cell))}
    if cell.kind in ("gate", "join"):
        reads = cell.reads[::-1] if cell.kind == "gate" else cell.reads
        values |= {"a": _joined(plan, reads, clock), "bits": len(read)}
        values |= {"table": f"{1 << len(read)}'h{cell.table[0]:x}" if cell.table else ""}
    if cell.kind == "mux":
        sides = [_operand(plan, i, clock, cell.width) for i in cell.reads[1:]]
        values |= {"bit": _at(plan, cell.reads[0], clock), "zero": sides[0], "one": sides[1]}
    if cell.kind == "bits":
        values |= {"comment": comment(plan.model.input.feature_of(cell.first))}
    if cell.kind == "larger":
        values |= {"more": f"more{index}"}
    return values


def _joined(plan: Pipeline, reads: Sequence[int], clock: int) -> str:
    """Write values as one, the first in the highest bits."""
    parts = [_operand(plan, i, clock, plan.cells[i].width) for i in reads]
    return parts[0] if len(parts) == 1 else f"{{{', '.join(parts)}}}"


def _features(plan: Pipeline, cell: PipelineCell) -> str:
    """Name the features whose bins or bits a table reads."""
    spec = plan.model.input
    if cell.fields:
        return " and ".join(spec.fields[field].feature for field in cell.fields)
    read = [plan.cells[i] for i in cell.reads]
    names = [spec.feature_of(each.first) for each in read if each.kind == "bits"]
    return " and ".join(dict.fromkeys(names)) if len(names) == len(read) else "a tree's end"


def _lookup(cell: PipelineCell, bin_width: int) -> dict[str, Any]:
    """List the cases of a table; bins beyond the last entry read the last entry."""
    entries = [_literal(value, cell.width) for value in cell.table]
    return {
        "entries": [(_literal(at, bin_width), value) for at, value in enumerate(entries[:-1])],
        "other": entries[-1],
    }
