# SPDX-License-Identifier: Apache-2.0
"""Reads a graph back from the words of an NFP export.

The code shares nothing with the writer, constants included, so that a mistake there shows here. It
follows the words as the micro-C does, and refuses a word that nothing reads.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

from n3ic.errors import ModelError, VerifyError
from n3ic.model.bits import Words
from n3ic.model.classifier import Classifier
from n3ic.model.graph.arithmetic import Arithmetic, FixedPoint, Logarithms
from n3ic.model.graph.operations import (
    Add,
    Choose,
    Constant,
    Graph,
    LogAdd,
    Lookup,
    Offset,
    Operation,
    Round,
    Scale,
    Select,
    Times,
)
from n3ic.model.inputs import InputSpec
from n3ic.targets.decoded_graphs import DecodedGraph


def decode_words(artefact: str, words: Words, model: Classifier) -> DecodedGraph:
    """Decode the graph in the words of a weights file; see the README of an export.

    Raises:
        VerifyError: the words are not a weights file of this version and size, or hold what nothing
            reads.
    """
    return _Reader(artefact, words, model.input).decoded(len(model.classes))


class _Reader:
    """Follows the words of a file.

    Attributes:
        steps: the operations that were read.
        slots: of each slot, the operation whose value it holds.
    """

    def __init__(self, artefact: str, words: Words, spec: InputSpec) -> None:
        self.artefact = artefact
        self.words = words
        self.spec = spec
        self.steps: list[Operation] = []
        self.slots: dict[int, int] = {}
        self._known: dict[Operation, int] = {}
        self._read = np.zeros(len(words), dtype=np.bool_)
        self._width = 1

    def decoded(self, classes: int) -> DecodedGraph:
        header = self._numbers(0, 23, "header")
        if header[0] != 0x474E334E or header[1] not in (1, 2) or header[2] != len(self.words):
            raise self._wrong("not a graph for the NFP of this version and size")
        count, n_bits, fields, field, features = header[3:8]
        own, slots, self._width, scores, log_size, log_add, fraction = header[16:23]
        spec = self.spec
        if (n_bits, fields, features, own) != (
            spec.n_bits, len(spec.fields), len(spec.features), classes
        ) or self._width not in (1, 2):  # fmt: skip
            raise self._wrong("the header does not match the sizes of the model")
        arithmetic = self._arithmetic(log_size, log_add, fraction)
        for i in range(count):
            self._step(23 + (2 + self._width) * i, f"step {i}")
        if len(self.slots) != slots or any(slot >= slots for slot in self.slots):
            raise self._wrong(f"the steps set {len(self.slots)} values, not {slots}")
        read = [self._slot(slot, "scores") for slot in self._numbers(scores, classes, "scores")]
        cuts = self._fields(field)
        shunt = 0
        if header[1] == 2:
            (shunt,) = self._numbers(len(self.words) - 1, 1, "shunt")
        if not self._read.all():
            raise self._wrong(f"nothing reads word {int(np.argmin(self._read))}")
        try:
            graph = Graph(spec, tuple(self.steps), tuple(read), arithmetic)
        except ModelError as error:
            raise self._wrong(str(error)) from error
        if not graph.fits(32 * self._width):
            raise self._wrong(f"a value exceeds {32 * self._width} bits")
        digest = struct.pack("<8I", *header[8:16]).hex()
        return DecodedGraph(self.artefact, graph, cuts, shunt, digest)

    def _wrong(self, text: str) -> VerifyError:
        return VerifyError(f"{self.artefact}: {text}")

    def _numbers(self, start: int, count: int, where: str) -> list[int]:
        """Read words as integers."""
        if start + count > len(self.words):
            raise self._wrong(f"{where}: ends before word {start + count - 1}")
        self._read[start : start + count] = True
        return [int(word) for word in self.words[start : start + count]]

    def _values(self, start: int, count: int, where: str) -> list[int]:
        """Read values, in two's complement, the lower half first."""
        numbers = self._numbers(start, self._width * count, where)
        values: list[int] = np.array(numbers, "<u4").view(f"<i{4 * self._width}").tolist()
        return values

    def _arithmetic(self, size: int, start: int, fraction: int) -> Arithmetic | None:
        try:
            if size:
                return Logarithms(fraction, tuple(self._numbers(start, size, "log-add")))
            if start:
                raise self._wrong(f"a log-add table at word {start} that has no entries")
            return FixedPoint(fraction) if fraction else None
        except ModelError as error:
            raise self._wrong(str(error)) from error

    def _made(self, step: Operation) -> int:
        if step not in self._known:
            self._known[step] = len(self.steps)
            self.steps.append(step)
        return self._known[step]

    def _slot(self, slot: int, where: str) -> int:
        if slot not in self.slots:
            raise self._wrong(f"{where}: value {slot} is not set before")
        return self.slots[slot]

    def _step(self, start: int, where: str) -> None:
        first, slots = self._numbers(start, 2, where)
        (by,) = self._values(start + 2, 1, where)
        kind, adds, to = first & 0x7F, first >> 7 & 1, first >> 8
        a, b = slots & 0xFFFF, slots >> 16
        if kind == 11:
            if adds or to:
                raise self._wrong(f"{where}: votes go to the classes' values, not to value {to}")
            self._votes(by, a, b, where)
            return
        result = self._result(kind, a, b, by, where)
        if adds:
            result = self._made(Add(self._slot(to, where), result))
        self.slots[to] = result

    def _result(self, kind: int, a: int, b: int, by: int, where: str) -> int:
        """The operation of a step; what its kind does not read must be 0."""
        for reads, name, number in (
            ((3, 4, 5, 6, 7, 8, 9), "first operand", a),
            ((2, 3, 4, 6, 7), "second operand", b),
            ((0, 1, 2, 3, 5, 8, 10), "number", by),
        ):
            if number and kind not in reads:
                raise self._wrong(f"{where}: has no {name}, but {number}")
        if kind == 0:
            return self._made(Constant(by))
        if kind == 1:
            return self._lookup(by, where)
        if kind == 2:
            return self._trees(by, b, where)
        if kind in (7, 8, 9) and self._width != 2:
            raise self._wrong(f"{where}: a product of 32 bits")
        if kind == 10:
            return self._select(by, where)
        one = self._slot(a, where)
        if kind == 5:
            return self._made(Offset(one, by))
        if kind == 8:
            return self._made(Scale(one, by))
        if kind == 9:
            return self._made(Round(one))
        other = self._slot(b, where)
        if kind == 3:
            return self._made(Choose(self._bit(by, where), one, other))
        if kind == 4:
            return self._made(Add(one, other))
        if kind in (6, 7):
            return self._made(LogAdd(one, other) if kind == 6 else Times(one, other))
        raise self._wrong(f"{where}: an unknown kind {kind}")

    def _bit(self, bit: int, where: str) -> int:
        if not 0 <= bit < self.spec.n_bits:
            raise self._wrong(f"{where}: reads input bit {bit} of {self.spec.n_bits}")
        return bit

    def _lookup(self, start: int, where: str) -> int:
        (word,) = self._numbers(self._place(start, where), 1, where)
        first, width = word & 0xFFFF, (word >> 16) + 1
        spec = self.spec
        for i, (at, field) in enumerate(zip(spec.offsets, spec.fields, strict=True)):
            if (at, field.width, field.kind) == (first, width, "thermometer"):
                return self._made(Lookup(i, tuple(self._values(start + 1, width + 1, where))))
        raise self._wrong(f"{where}: counts {width} bits from bit {first} on, which are no field")

    def _select(self, start: int, where: str) -> int:
        (count,) = self._numbers(self._place(start, where), 1, where)
        if not 1 <= count <= 8:
            raise self._wrong(f"{where}: a look-up by {count} bits")
        words = self._numbers(start + 1, (count + 1) // 2, where)
        halves = [half for word in words for half in (word & 0xFFFF, word >> 16)]
        if any(halves[count:]):
            raise self._wrong(f"{where}: bits beside the input bits are not 0")
        bits = tuple(self._bit(bit, where) for bit in halves[:count])
        return self._made(
            Select(bits, tuple(self._values(start + 1 + len(words), 1 << count, where)))
        )

    def _place(self, start: int, where: str) -> int:
        if start < 0:
            raise self._wrong(f"{where}: reads word {start}")
        return start

    def _trees(self, start: int, count: int, where: str) -> int:
        """The sum of the trees of a block."""
        if not count:
            raise self._wrong(f"{where}: adds no tree")
        self._place(start, where)
        made: dict[int, int] = {}
        roots = [self._tree(start, root, made, f"{where}, tree {root}") for root in range(count)]
        total = roots[0]
        for root in roots[1:]:
            total = self._made(Add(total, root))
        return total

    def _votes(self, start: int, classes: int, count: int, where: str) -> None:
        """Add trees that vote for several classes to the value of each."""
        if not classes or not count:
            raise self._wrong(f"{where}: adds no votes")
        slots = self._numbers(self._place(start, where), classes, where)
        for k, slot in enumerate(slots):
            made: dict[int, int] = {}
            for root in range(count):
                tree = self._tree(start + classes, root, made, f"{where}, tree {root}", of=k)
                self.slots[slot] = self._made(Add(self._slot(slot, where), tree))

    def _tree(
        self, start: int, root: int, made: dict[int, int], where: str, of: int | None = None
    ) -> int:
        """The operation of a node.

        Args:
            start: the word of the block's first node.
            root: the node's place in the block.
            made: keeps the operations of the block that are known.
            where: where this is, for errors.
            of: the class whose value in a leaf's vector is taken; None if leaves are values.
        """
        above: set[int] = set()
        waiting = [root]  # no recursion, as trees may be deep
        while waiting:
            at = waiting[-1]
            (word,) = self._numbers(start + at, 1, where)
            below: Sequence[int] = () if word >> 31 else (word & 0xFFFF, (word & 0xFFFF) + 1)
            if at not in made and (more := [k for k in below if k not in made]):
                above.add(at)
                if above & {*more}:
                    raise self._wrong(f"{where}: its nodes lead to each other in a circle")
                waiting += more
                continue
            waiting.pop()
            above.discard(at)
            if at in made:
                continue
            if below:
                zero, one = (made[k] for k in below)
                bit = self._bit(word >> 16, where)
                # What another class asks makes no difference to this one.
                same = of is not None and zero == one
                made[at] = zero if same else self._made(Choose(bit, zero, one))
            else:
                value = word & 0x7FFFFFFF
                if of is not None:
                    (value,) = self._numbers(start + value + of, 1, where)
                made[at] = self._made(Constant(value - (1 << 30)))
        return made[root]

    def _fields(self, start: int) -> tuple[tuple[int, ...], ...]:
        """The cuts of each field, after a check of the fields' other words."""
        cuts = []
        spec = self.spec
        for i, field in enumerate(spec.fields):
            where = f"input field {i}"
            feature, kind, width, clamp, first = self._numbers(start + 5 * i, 5, where)
            ordered = field.kind == "thermometer"
            if (feature, kind, width, clamp, bool(first)) != (
                spec.features.index(field.feature), int(ordered), field.width, field.clamp, ordered
            ):  # fmt: skip
                raise self._wrong(f"{where}: not {field.feature} as the model reads it")
            cuts.append(tuple(self._numbers(first, width, where)) if ordered else ())
        return tuple(cuts)
