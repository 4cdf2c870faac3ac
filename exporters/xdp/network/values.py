# SPDX-License-Identifier: Apache-2.0
"""The map value of a network: its layout, and its bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import cast

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import ExportError
from n3ic.exporters.xdp.network.groups import BitGroup, input_groups
from n3ic.exporters.xdp.network.sums import (
    HiddenSums,
    InputGroups,
    Selector,
    Structure,
    as_bits,
    check_room,
    hidden_sums,
    input_of,
    kernel_of,
    layer_groups,
    output_rows,
    score_offset,
)
from n3ic.model.classifier import Classifier
from n3ic.model.network import BinaryModel

_NEVER = (1 << 32) - 1  # stands for a cut, less 1, that no 32-bit value reaches
_SIZES = {"__u8": 1, "__u32": 4, "__u64": 8}


@dataclass(frozen=True)
class ArrayMember:
    """An array of the C structure.

    Attributes:
        name: name in the structure.
        type: ``__u8``, ``__u32`` or ``__u64``.
        count: number of elements.
    """

    name: str
    type: str
    count: int

    @property
    def bytes(self) -> int:
        """Size in bytes."""
        return _SIZES[self.type] * self.count


@dataclass(frozen=True)
class SelectorOffsets:
    """Offsets of a selector's numbers.

    Attributes:
        member: array with its cuts, table or clamp; empty if it has none.
        at: offset in that array, in bytes.
        row: offset of its first row from the start of the rows, in bytes.
    """

    member: str
    at: int
    row: int


@dataclass(frozen=True)
class Layout:
    """The C structure of a map value: cuts first, tables of bytes last.

    An offset in a BPF instruction reaches 32,767, so small and frequently read arrays come first.

    Attributes:
        members: arrays in order; each is aligned by the arrays before it.
        places: offsets of each selector's numbers.
    """

    members: tuple[ArrayMember, ...]
    places: tuple[SelectorOffsets, ...]

    @property
    def bytes(self) -> int:
        """Size of the value."""
        return sum(m.bytes for m in self.members)

    @property
    def cut_bytes(self) -> int:
        """Bytes of the arrays that hold cuts, or what stands for them: tables and lanes."""
        return sum(m.bytes for m in self.members if m.name in ("clamp", "cut", "lanes", "table"))

    def offset(self, name: str) -> int:
        """Offset of an array in bytes.

        Raises:
            KeyError: the structure has no array with that name.
        """
        starts = accumulate((m.bytes for m in self.members), initial=0)
        return dict(zip((m.name for m in self.members), starts, strict=False))[name]


def layout(structure: Structure) -> Layout:
    """Compute the layout of a structure's map value."""
    counts = {"clamp": 0, "cut": 0, "lanes": 0, "table": 0}
    rows, places = 0, []
    past = 0  # end of the last row as far as the verifier can tell
    for s, words in zip(structure.selectors, structure.row_words, strict=True):
        member, size, step = _numbers(s)
        stride = 8 * len(words)
        places.append(SelectorOffsets(member, step * counts[member] if member else 0, rows))
        if member:
            counts[member] += size
        loose = s.form in ("table", "lanes16", "lanes32") or (
            bool(s.cuts) and len(structure.layers[0].blocks) > 1
        )
        # Of a row number from memory or a multiplication, the verifier knows only that it is a
        # byte. It assumes 256 rows and, because it loses the low zeros of a product, any byte of
        # the last row. Spare bytes at the end keep such accesses inside the value.
        past = max(past, rows + stride * (257 if loose else s.rows))
        rows += stride * s.rows
    members = [
        ArrayMember("model", "__u8", 32),
        ArrayMember("shunt", "__u32", 1),
        ArrayMember("clamp", "__u32", counts["clamp"] + (counts["clamp"] + counts["cut"] + 1) % 2),
        ArrayMember("cut", "__u32", counts["cut"]),
        ArrayMember("lanes", "__u64", counts["lanes"]),
    ]
    sums = [ArrayMember("rows0", "__u64", rows // 8)]
    sums.append(ArrayMember("table", "__u8", 256 * counts["table"]))
    if structure.walks:
        start = ArrayMember("start", "__u64", structure.classes)
        members += [start, sums[-1], ArrayMember("entries", "__u32", structure.entries // 4)]
    elif structure.tables:
        start, entries = _table_members(structure)
        members += [start, *sums, entries]
        past -= entries.bytes
    else:
        members += [*_layer_members(structure), *sums]
    spare = past - sum(m.bytes for m in sums)
    members.append(ArrayMember("spare", "__u64", -(-max(0, spare) // 8)))
    return Layout(tuple(m for m in members if m.count), tuple(places))


def _table_members(structure: Structure) -> Iterator[ArrayMember]:
    """Yield the members for the scores' start values and the entries of all tables."""
    plan, entries = structure.layers[-1], sum(1 << sum(joint) for joint in structure.tables)
    yield ArrayMember("start1", "__u64", plan.words)
    if structure.classes == 2:
        yield ArrayMember("rows1", "__u8", -(-entries // 8) * 8)
    else:
        yield ArrayMember("rows1", "__u64", plan.words * entries)


def _layer_members(structure: Structure) -> Iterator[ArrayMember]:
    """Yield the members for the start values of all layers and the rows of all but the first."""
    for i, plan in enumerate(structure.layers):
        yield ArrayMember(f"start{i}", "__u64", plan.words * (2 if plan.segments else 1))
    for i, (before, plan) in enumerate(
        zip(structure.layers, structure.layers[1:], strict=False), start=1
    ):
        wide = sum(1 << len(nibble) for nibble in before.fired)
        yield ArrayMember(f"rows{i}", "__u64", plan.words * wide)


def _numbers(selector: Selector) -> tuple[str, int, int]:
    """Return the array of a selector's numbers, their count, and the bytes of each."""
    if selector.form == "table":
        return "table", 1, 256
    if selector.form == "cuts":
        return "cut", selector.cuts, 4
    if selector.form == "search":
        return "cut", (1 << selector.searches) - 1, 4
    if selector.form == "bits":
        return ("clamp", 1, 4) if selector.clamped else ("", 0, 0)
    return "lanes", selector.words, 8


def value_bytes(structure: Structure, model: Classifier) -> bytes:
    """Compute the map value that makes a structure's program compute a network.

    Returns:
        Bytes of ``struct network``, little-endian.

    Raises:
        ExportError: the network does not fit the structure; the error says where.
    """
    if kernel_of(model) != structure.kernel:
        raise ExportError(
            f"{model.name!r} is of family {model.family}, the program is for {structure.kernel}"
        )
    where = layout(structure)
    parts: dict[str, list[bytes]] = {m.name: [] for m in where.members}
    parts["model"] = [bytes.fromhex(model.digest)]
    parts["shunt"] = [np.array([model.shunt], "<u4").tobytes()]
    groups = {
        structure.keys.get(group.key): group for group in input_groups(input_of(structure, model))
    }
    for i, s in enumerate(structure.selectors):
        member, size, _ = _numbers(s)
        group = groups.get(i)
        if group is not None:
            check_room(s, group)
        if member:
            # A feature that the network does not read selects row 0, and all its rows are 0.
            parts[member].append(_selector_bytes(s, group, size))
    if structure.walks:
        from n3ic.exporters.xdp.graph.values import graph_parts

        own_parts = graph_parts(structure, model)
    elif structure.tables:
        from n3ic.exporters.xdp.graph.bit_tables.values import table_parts

        own_parts = table_parts(structure, model)
    else:
        source = as_bits(model) if structure.bits else model
        own_parts = _layer_parts(structure, cast("BinaryModel", source))
    out = []
    for array in where.members:
        out.append(b"".join([*parts[array.name], own_parts.get(array.name, b"")]))
        out[-1] = out[-1].ljust(array.bytes, b"\0")
        assert len(out[-1]) == array.bytes  # noqa: S101 - the layout is of the same structure
    return b"".join(out)


def _layer_parts(structure: Structure, source: BinaryModel) -> dict[str, bytes]:
    """Return start values and rows of all layers, by member."""
    if len(source.layers) != len(structure.layers):
        raise ExportError(
            f"the network has {len(source.layers)} layers, the program {len(structure.layers)}"
        )
    parts = {}
    before = None
    for i, (plan, layer) in enumerate(zip(structure.layers, source.layers, strict=True)):
        if layer.n_outputs > plan.outputs:
            raise ExportError(
                f"layer {i}: {layer.n_outputs} outputs, the program has room for {plan.outputs}"
            )
        inputs = layer_groups(structure, before, source.input)
        if i < len(source.hidden):
            start, rows = _hidden(structure, i, hidden_sums(source.hidden[i], inputs, plan))
        else:
            start, rows = _scores(structure, source, inputs)
        parts[f"start{i}"], parts[f"rows{i}"] = start, rows
        before = plan
    return parts


def _selector_bytes(s: Selector, group: BitGroup | None, size: int) -> bytes:
    cuts = np.array(group.cuts if group else (), dtype=np.int64)
    if s.form == "table":
        return np.searchsorted(cuts, np.arange(256), side="right").astype(np.uint8).tobytes()
    if s.form in ("cuts", "search"):
        padded = np.full(size, _NEVER, dtype=np.int64)
        padded[: len(cuts)] = cuts - 1
        return padded.astype("<u4").tobytes()
    if s.form == "bits":
        return np.array([group.clamp if group else 0], dtype="<u4").tobytes()
    lane = 16 if s.form == "lanes16" else 32
    numbers = np.zeros(s.cuts, dtype=np.int64)
    # value + (2**(lane-1) - cut) sets the lane's top bit iff value >= cut.
    numbers[: len(cuts)] = (1 << (lane - 1)) - cuts
    return numbers.astype(f"<u{lane // 8}").tobytes()


def _hidden(structure: Structure, index: int, sums: HiddenSums) -> tuple[bytes, bytes]:
    """Return start values and rows of a hidden layer."""
    plan = structure.layers[index]
    total = sums.ranges.sum(axis=0)
    always, never = sums.thresholds <= 0, sums.thresholds > total
    if plan.segments:
        ends = pairwise(np.cumsum([0, *plan.segments]))
        ranges = [sums.ranges[a:b].sum(axis=0) for a, b in ends]
        most = max(int(each.max(initial=0)) for each in ranges)
        if most > 255:
            raise ExportError(f"layer {index}: sums of {most} do not fit the program's bytes")
    if not (sums.fits_halves if plan.halves else plan.segments or sums.fits_bytes):
        raise ExportError(f"layer {index}: its sums do not fit the program's bytes")
    # A neuron fires by the carry out of two bytes, or by the top bit of 16 bits or of a byte.
    fires = 256 if plan.halves else 1 << 15 if plan.segments else 128
    start = np.where(always, fires, np.where(never, 0, fires - sums.thresholds))
    if plan.halves:
        # Give the first half as much of the start as its byte can hold, and the second the rest.
        first = np.minimum(start, 255 - ranges[0])
        start_bytes = np.concatenate([first, start - first]).astype(np.uint8).tobytes()
    elif plan.segments:
        # Widening puts a word's even bytes into one word and its odd bytes into the next.
        start = start.reshape(plan.words, 4, 2).transpose(0, 2, 1)
        start_bytes = np.ascontiguousarray(start).astype("<u2").tobytes()
    else:
        start_bytes = start.astype(np.uint8).tobytes()
    return start_bytes, b"".join(rows.astype(np.uint8).tobytes() for rows in sums.rows)


def _scores(structure: Structure, model: BinaryModel, groups: InputGroups) -> tuple[bytes, bytes]:
    """Return start values and rows of the scores; a class that the network lacks scores lowest."""
    plan, output = structure.layers[-1], model.output
    offset = score_offset(plan.lane)
    if output.n_inputs + int(np.abs(output.bias.astype(np.int64)).max()) >= offset:
        raise ExportError(f"the biases are too large: the program's scores have {plan.lane} bits")
    lanes = 64 * plan.words // plan.lane
    kind = f"<u{plan.lane // 8}"

    def packed(rows: NDArray[np.int64]) -> bytes:
        padded = np.zeros((*rows.shape[:-1], lanes), dtype=np.int64)
        padded[..., : output.n_outputs] = rows
        return padded.astype(kind).tobytes()

    rows = b"".join(packed(each) for each in output_rows(output, groups))
    return packed(output.bias.astype(np.int64) + offset), rows
