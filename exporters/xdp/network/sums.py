# SPDX-License-Identifier: Apache-2.0
"""A network as sums of rows: each selector adds one of its rows to the sums of a layer.

The :class:`Structure` is compiled into the program; the rows are in a map.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Literal, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import ExportError
from n3ic.exporters.xdp.network.groups import (
    MAX_CUTS,
    NIBBLE,
    BitGroup,
    fired_groups,
    input_groups,
    row_sums,
)
from n3ic.model.bits import Bits
from n3ic.model.classifier import Classifier
from n3ic.model.family import graph_of
from n3ic.model.inputs import InputSpec
from n3ic.model.layers import Connections, HiddenLayer, OutputLayer
from n3ic.model.network import BinaryModel

Form = Literal["table", "lanes16", "lanes32", "cuts", "bits", "search"]
ModelT = TypeVar("ModelT", bound=Classifier)
TABLES = "sums of look-up tables"  # of every family whose graphs add up look-ups by bits
GRAPHS = "graphs of integer operations"  # of every other family but binary networks
BLOCK = 4  # 64-bit words of a row that are summed at once, as BPF has only ten registers
MAX_INPUTS = (1 << 15) - 1  # inputs of a hidden layer, because its sums have 15 bits
MAX_INSTRUCTIONS = 30_000  # below the reach of a BPF jump, 32,767
_TABLE_TOP = 1 << 8  # exclusive upper bound of cuts in a table of bytes
_LANE_TOP = {"lanes16": 1 << 15, "lanes32": 1 << 31}
_LANES = {"lanes16": 4, "lanes32": 2}
_LANES_PAY = {"lanes16": 4, "lanes32": 6}  # number of cuts from which lanes are faster


@dataclass(frozen=True)
class Selector:
    """The way in which the value of a feature selects a row.

    Attributes:
        feature: index of the feature.
        form: ``table`` (a byte for each value below 256), ``lanes16`` and ``lanes32`` (cuts side by
            side in 64-bit words), ``cuts`` (a subtraction per cut), ``search`` (a binary search
            among the cuts) or ``bits`` (up to four raw bits).
        part: as in :class:`BitGroup`.
        cuts: maximum number of cuts; 0 for ``bits``.
        shift: position of the lowest raw bit.
        width: number of raw bits.
        clamped: whether the value is clamped to a number in the map.
    """

    feature: int
    form: Form
    part: int = 0
    cuts: int = 0
    shift: int = 0
    width: int = 0
    clamped: bool = False

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.cuts + 1 if self.cuts else 1 << self.width

    @property
    def words(self) -> int:
        """Number of 64-bit words of the cuts, for lanes."""
        return self.cuts // _LANES[self.form]

    @property
    def searches(self) -> int:
        """Number of steps of a binary search among the cuts."""
        return self.cuts.bit_length()


@dataclass(frozen=True)
class LayerPlan:
    """The way in which a layer is summed.

    Attributes:
        outputs: maximum number of neurons or classes.
        lane: width of a sum in bits: 8 in hidden layers, 16 or 32 for scores.
        segments: for hidden layers, the number of groups in each run that is summed in bytes; empty
            if a byte holds the sum of all groups and the threshold.
        halves: whether a neuron fires if its sums of two segments together reach 256; otherwise
            the sums of all segments are widened to 16 bits.
        block: maximum number of words that are summed at once.
    """

    outputs: int
    lane: int
    segments: tuple[int, ...] = ()
    halves: bool = False
    block: int = BLOCK

    @property
    def words(self) -> int:
        """Number of 64-bit words of a row."""
        return -(-self.outputs * self.lane // 64)

    @property
    def blocks(self) -> tuple[int, ...]:
        """Number of words of each block of neurons."""
        full, rest = divmod(self.words, self.block)
        return (self.block,) * full + ((rest,) if rest else ())

    @property
    def fired(self) -> tuple[tuple[int, ...], ...]:
        """Neurons of each nibble that the layer passes to the next one."""
        return tuple(
            tuple(8 * BLOCK * block + neuron for neuron in nibble)
            for block, words in enumerate(self.blocks)
            for nibble in fired_groups(words)
        )


@dataclass(frozen=True)
class Structure:
    """A compiled network without its numbers.

    Attributes:
        features: names of the features, in the program's order.
        selectors: selectors of the first layer, in the order of their additions.
        layers: the hidden layers and the scores.
        bits: whether the features are the packed input bits.
        tables: for look-up tables, the bits of each index, the largest first, grouped by the
            look-up that reads them. The first layer's rows then hold parts of the indices, and
            the scores are sums of entries. Empty for a binary network.
        touched: for look-up tables, the index words that each selector's rows hold, ascending: a
            feature sets bits only in the indices of the tables that read it.
        walks: for a graph of integer operations, the steps of each tree's walk, by class, the
            deepest first; empty for the other families.
        entries: bytes of a graph's entries, a power of two.
        counted: for a graph over packed bits, the first bit and the width of each field whose set
            bits are counted, because look-ups read their number.
    """

    features: tuple[str, ...]
    selectors: tuple[Selector, ...]
    layers: tuple[LayerPlan, ...]
    bits: bool = False
    tables: tuple[tuple[int, ...], ...] = ()
    touched: tuple[tuple[int, ...], ...] = ()
    walks: tuple[tuple[int, ...], ...] = ()
    entries: int = 0
    counted: tuple[tuple[int, int], ...] = ()

    @property
    def kernel(self) -> str:
        """What it computes: binary networks, :data:`TABLES` or :data:`GRAPHS`."""
        return GRAPHS if self.walks else TABLES if self.tables else BinaryModel.family

    @cached_property
    def value_places(self) -> tuple[int, ...]:
        """For each selector the first of the values that tests of a graph read, and their end.

        Raw bits are four aligned values a selector, and come first; a row number is one.
        """
        raw = list(accumulate((NIBBLE * (not s.cuts) for s in self.selectors), initial=0))
        rows = accumulate((bool(s.cuts) for s in self.selectors), initial=raw[-1])
        ways = zip(self.selectors, raw, rows, strict=False)
        places = [row if s.cuts else bit for s, bit, row in ways]
        return (*places, raw[-1] + sum(bool(s.cuts) for s in self.selectors))

    @property
    def values(self) -> int:
        """Number of values that tests of a graph read."""
        return self.value_places[-1] + len(self.counted)

    @cached_property
    def keys(self) -> dict[tuple[str, bool, int, int], int]:
        """Index of the selector for each group's key."""
        return {
            (self.features[s.feature], bool(s.cuts), s.part, s.shift): i
            for i, s in enumerate(self.selectors)
        }

    @property
    def row_words(self) -> tuple[tuple[int, ...], ...]:
        """For each selector, the words of the first sum that its rows hold."""
        return self.touched or (tuple(range(self.layers[0].words)),) * len(self.selectors)

    @property
    def instructions(self) -> int:
        """Upper bound on the number of BPF instructions."""
        if self.walks:
            return self._graph_instructions
        blocks = len(self.layers[0].blocks)
        total = 4 * self.layers[0].words  # reads of the sums
        for s, words in zip(self.selectors, self.row_words, strict=True):
            total += {"table": 6, "lanes16": 8, "lanes32": 8, "cuts": 2, "bits": 5}[s.form]
            total += 5 * s.words if s.form in _LANES else 4 * s.cuts if s.form == "cuts" else 0
            total += 5 * blocks + 2 * len(words)
        if self.tables:
            added = 1 if self.classes == 2 else 2 * self.layers[-1].words
            total += (6 + added) * len(self.tables)
            return total + 16 * self.classes + 32
        for before, layer in zip(self.layers, self.layers[1:], strict=False):
            total += len(before.fired) * (6 * len(layer.blocks) + 2 * layer.words)
            total += 20 * len(before.blocks) + 2 * len(before.blocks) * len(layer.blocks)
        widened = sum(len(plan.segments) * plan.words for plan in self.layers)
        return total + 16 * widened + 16 * self.classes + 32

    @property
    def followed(self) -> int:
        """Upper bound on the instructions of a graph's walks that the verifier follows."""
        return sum(14 + 10 * steps for walks in self.walks for steps in walks)

    @property
    def _graph_instructions(self) -> int:
        total = 32 + 20 * self.classes
        for s in self.selectors:
            total += {"table": 10, "search": 6 + 9 * s.searches}.get(s.form, 10)
        total += 6 * sum(width for _, width in self.counted)
        steps = [min(depth, 8 + depth % 8) for walks in self.walks for depth in {*walks}]
        return total + sum(24 + 9 * unrolled for unrolled in steps)

    @property
    def classes(self) -> int:
        """Number of classes."""
        return self.layers[-1].outputs


def kernel_of(model: Classifier) -> str:
    """Return what programs compute a model: those of binary networks, of look-up tables or others.

    The result is the binary networks' family, :data:`TABLES` or :data:`GRAPHS`.
    """
    if model.family == BinaryModel.family:
        return model.family
    from n3ic.model.graph.bit_tables import bit_tables

    return GRAPHS if bit_tables(graph_of(model)) is None else TABLES


def outline_of(inputs: Sequence[InputSpec], bits: bool, *, searched: bool = False) -> Structure:
    """Compute features and selectors for several input stages, without layers.

    Args:
        inputs: the input stages.
        bits: whether the features are the packed input bits.
        searched: whether a binary search finds a value among its cuts, if no table does.
    """
    features = tuple(dict.fromkeys(name for spec in inputs for name in spec.features))
    groups = [group for spec in inputs for group in input_groups(spec)]
    return Structure(features, _selectors(features, groups, searched), (), bits)


def within_reach(structure: Structure) -> Structure:
    """Check that BPF jumps can reach over a structure's program, and return the structure.

    Raises:
        ExportError: the program has too many instructions.
    """
    if structure.instructions > MAX_INSTRUCTIONS:
        raise ExportError(
            f"the network needs about {structure.instructions:,} instructions, "
            f"an XDP program has room for {MAX_INSTRUCTIONS:,}"
        )
    return structure


def as_bits(model: ModelT) -> ModelT:
    """Return the model over its packed input bits, as 32-bit features ``x0``, ``x1`` and so on."""
    return model.with_input(InputSpec.raw(model.input.n_bits))


def input_of(structure: Structure, model: Classifier) -> InputSpec:
    """Return the input stage that a structure's program computes for a model."""
    return InputSpec.raw(model.input.n_bits) if structure.bits else model.input


def _selectors(
    features: tuple[str, ...], groups: Iterable[BitGroup], searched: bool
) -> tuple[Selector, ...]:
    """Make one selector per key; those whose row number the verifier only knows as a byte lead."""
    of_key: dict[tuple[str, bool, int, int], list[BitGroup]] = {}
    for group in groups:
        of_key.setdefault(group.key, []).append(group)
    selectors = []
    for (feature, is_cuts, part, shift), members in of_key.items():
        index = features.index(feature)
        if is_cuts:
            count = max(len(group.cuts) for group in members)
            form = _form(count, max(group.cuts[-1] for group in members))
            form = "search" if searched and form != "table" else form
            selectors.append(Selector(index, form, part, _room(form, count)))
        else:
            width = max(len(group.bits) for group in members)
            clamped = any(group.clamp < (1 << 32) - 1 for group in members)
            selectors.append(Selector(index, "bits", part, 0, shift, width, clamped))
    order = {form: i for i, form in enumerate(get_args(Form))}
    return tuple(
        sorted(selectors, key=lambda s: (min(order[s.form], 3), s.feature, s.form, s.part, s.shift))
    )


def _form(count: int, top: int) -> Form:
    """Return the fastest form of selecting among ``count`` cuts up to ``top``."""
    if count > 2 and top < _TABLE_TOP:
        return "table"
    lanes: tuple[Form, ...] = ("lanes16", "lanes32")
    for form in lanes:
        if count >= _LANES_PAY[form] and top < _LANE_TOP[form]:
            return form
    return "cuts"


def _room(form: Form, count: int) -> int:
    """Round a number of cuts up to one that costs the same or hardly more."""
    if form == "search":  # as many more as cost no further step
        return min(-(-count // 8) * 8, (1 << count.bit_length()) - 1, MAX_CUTS)
    step = {"table": 8, "lanes16": 4, "lanes32": 2}.get(form, 1 if count < 3 else 2)
    room = -(-count // step) * step
    return min(room, MAX_CUTS)


def score_offset(lane: int) -> int:
    """Return the offset of a score by which its lane is never negative and never overflows."""
    return 1 << (lane - 2)


@dataclass(frozen=True, eq=False)
class HiddenSums:
    """A hidden layer as sums of rows.

    A neuron fires iff the sum of its row entries reaches its threshold; entries are not negative.

    Attributes:
        rows: for each group, the contribution of each row: int64 array of shape ``(rows,
            neurons)``, 0 for a neuron that is constant or does not exist.
        thresholds: int64 array of shape ``(neurons,)``; at most 0 if a neuron always fires, and
            above the sum of the largest entries if it never fires.
    """

    rows: tuple[NDArray[np.int64], ...]
    thresholds: NDArray[np.int64]

    @property
    def ranges(self) -> NDArray[np.int64]:
        """Largest entries, int64 array of shape ``(groups, neurons)``."""
        return np.array([rows.max(axis=0) for rows in self.rows])

    @property
    def fits_bytes(self) -> bool:
        """Whether ``128 - threshold + sum`` fits a byte, so that its top bit is the answer."""
        return self._start_fits(128, 255)

    @property
    def fits_halves(self) -> bool:
        """Whether ``256 - threshold + sum`` fits two bytes, each with a part of the sum."""
        return self._start_fits(256, 255 + 255)

    def _start_fits(self, fires: int, most: int) -> bool:
        """Return whether sums that fire at ``fires`` stay between 0 and ``most``."""
        total = self.ranges.sum(axis=0)
        real = (self.thresholds > 0) & (self.thresholds <= total)
        start = fires - self.thresholds[real]
        return bool((start >= 0).all() and (start + total[real] <= most).all())


def hidden_sums(layer: HiddenLayer, groups: InputGroups, plan: LayerPlan) -> HiddenSums:
    """Convert a layer to sums of rows, with the minimum of each group and neuron subtracted."""
    neurons = 8 * plan.words
    thresholds = np.full(neurons, 1, dtype=np.int64)  # neurons that do not exist never fire
    thresholds[: layer.n_outputs] = layer.thresholds
    group_rows = []
    for bits, patterns in groups:
        rows = np.zeros((len(patterns), neurons), dtype=np.int64)
        rows[:, : layer.n_outputs] = row_sums(layer, bits, patterns)
        least = rows.min(axis=0)
        thresholds -= least
        group_rows.append(rows - least)
    total = np.array([rows.max(axis=0) for rows in group_rows]).sum(axis=0)
    # Zero the rows of constant neurons, so that their sums cannot overflow into a neighbour's byte.
    constant = (thresholds <= 0) | (thresholds > total)
    for rows in group_rows:
        rows[:, constant] = 0
    return HiddenSums(tuple(group_rows), thresholds)


InputGroups = list[tuple[tuple[int, ...], Bits]]


def layer_groups(structure: Structure, before: LayerPlan | None, spec: InputSpec) -> InputGroups:
    """Return the bits and patterns of a layer's groups, in the structure's order.

    Raises:
        ExportError: the network needs more than the structure has room for.
    """
    if before is not None:
        return [(n, BitGroup("", n).patterns) for n in before.fired]
    patterns_of: InputGroups = [((), np.zeros((s.rows, 0), np.bool_)) for s in structure.selectors]
    for group in input_groups(spec):
        index = structure.keys.get(group.key)
        if index is None:
            raise ExportError(f"the program does not read {group.feature!r} as the network does")
        check_room(structure.selectors[index], group)
        patterns = group.patterns
        rows = structure.selectors[index].rows
        if group.cuts:  # rows beyond the network's last cut are never selected
            patterns = patterns[np.minimum(np.arange(rows), len(group.cuts))]
        else:
            patterns = patterns[np.arange(rows) % len(patterns)]
        patterns_of[index] = group.bits, patterns
    return patterns_of


def check_room(selector: Selector, group: BitGroup) -> None:
    """Check that a selector can serve a group.

    Raises:
        ExportError: the group has too many cuts, or a cut is too large.
    """
    where = f"feature {group.feature!r}"
    if group.cuts:
        if len(group.cuts) > selector.cuts:
            raise ExportError(
                f"{where}: {len(group.cuts)} cuts, the program has room for {selector.cuts}"
            )
        top = _TABLE_TOP if selector.form == "table" else _LANE_TOP.get(selector.form, 1 << 32)
        if group.cuts[-1] >= top:
            raise ExportError(
                f"{where}: a cut of {group.cuts[-1]:,}, the program compares below {top:,}"
            )
    elif len(group.bits) > selector.width or (group.clamp < (1 << 32) - 1 and not selector.clamped):
        raise ExportError(f"{where}: raw bits of another width than the program reads")


def output_rows(layer: OutputLayer | Connections, groups: InputGroups) -> list[NDArray[np.int64]]:
    """Return the contributions of rows to scores: by group, int64 of shape ``(rows, classes)``."""
    return [row_sums(layer, bits, patterns) for bits, patterns in groups]
