# SPDX-License-Identifier: Apache-2.0
"""Reads a graph back from the statements of ``n3ic.p4``; shares no code with the writer."""

# Numbers have a bounded count of digits, so that a hostile program cannot make int() slow.

from __future__ import annotations

import re
from dataclasses import dataclass, field

from n3ic.errors import ModelError, VerifyError
from n3ic.exporters.p4.shared.decoding import digest_of_numbers
from n3ic.exporters.p4_netfpga.decoding import model_numbers, shunting_of
from n3ic.model.classifier import Classifier
from n3ic.model.graph.operations import Add, Choose, Constant, Graph, Lookup, Offset, Operation
from n3ic.model.inputs import InputSpec
from n3ic.targets.decoded_graphs import DecodedGraph, compared
from n3ic.targets.decoding import Decoded

_NAME = "n3ic.p4"
_META = r"user_metadata\."
_LITERAL = r"\d{1,2}w0x[0-9a-f]{1,8}"
_VALUE = rf"{_META}n\d{{1,7}}|{_LITERAL}"
_MASK = re.compile(
    rf"^ +{_META}m(\d{{1,5}}) = (\d{{1,2}})w0 - \(\(bit<(\d{{1,2}})>\) "
    rf"\(\({_META}x >> (\d{{1,5}})\) & (\d{{1,5}})w1\)\);$"
)
_STATEMENT = re.compile(rf"^ +{_META}(n|m|score)(\d{{1,7}}) = (.*);$")
_ASSIGNMENT = re.compile(rf"{_META}(?:n|m|score)\d+\s*=")
_CHOICE = re.compile(
    rf"\(({_VALUE}) & \(~{_META}m(\d{{1,5}})\)\) \| \(({_VALUE}) & {_META}m(\d{{1,5}})\)"
)
_SUM = re.compile(rf"({_VALUE}) \+ ({_VALUE})")
_LOOKUP = re.compile(rf"({_LITERAL}) \+ (\(.*\))")
_ENTRY = re.compile(rf"\(({_LITERAL}) & {_META}m(\d{{1,5}})\)")
_JOINED = "(P + P)"
_SCORE = re.compile(
    rf"\(\(\(bit<32>\) ({_VALUE})\) \^ 32w0x([0-9a-f]{{8}})\) - 32w0x([0-9a-f]{{8}})"
)
_ACTION = re.compile(r"^    action (make_masks|compute\d{1,5}|take_scores)\(\) \{$")
_APPLIED = re.compile(r"^            (make_masks|compute\d{1,5}|take_scores)\(\);$")


def decode_program(
    source: str, model: Classifier, own: Graph, shunt_port: int | None = None
) -> Decoded:
    """Decode the graph in a program's statements, and compare it with the model's.

    Args:
        source: P4 source.
        model: the model.
        own: its graph in the form that is written.
        shunt_port: port for shunted packets; None if they leave like all others.

    Raises:
        VerifyError: a statement is of another form, duplicated, or before what it reads; or the
            graph, the threshold or the model's number is another one.
    """
    try:
        graph = _Reader(model.input).graph(source)
    except ModelError as error:
        raise VerifyError(f"{_NAME}: {error}") from error
    shunt = shunting_of(source, shunt_port)
    digest = digest_of_numbers(model_numbers(source), model)
    return compared(model, DecodedGraph(_NAME, graph, None, shunt or 0, digest), own)


@dataclass(eq=False)
class _Reader:
    """Reads statements in order.

    Attributes:
        input: the model's input.
        width: bits of a value; 0 before the first.
        steps: the operations so far.
        known: the place of each operation.
        fields: the operation of each field ``n``.
        masks: the input bits that have masks.
        scores: the operation of each class's score.
    """

    input: InputSpec
    width: int = 0
    steps: list[Operation] = field(default_factory=list)
    known: dict[Operation, int] = field(default_factory=dict)
    fields: dict[str, int] = field(default_factory=dict)
    masks: set[str] = field(default_factory=set)
    scores: dict[str, int] = field(default_factory=dict)

    def graph(self, source: str) -> Graph:
        """The graph of a program."""
        lines = source.splitlines()
        actions = [match[1] for line in lines if (match := _ACTION.match(line))]
        applied = [match[1] for line in lines if (match := _APPLIED.match(line))]
        if actions != applied or len({*actions}) != len(actions):
            raise self._wrong("the actions are not applied once each, in their order")
        action = ""
        for line in lines:
            if line.startswith("    action "):
                match = _ACTION.match(line)
                action = match[1] if match else ""
            elif (match := _STATEMENT.match(line)) is not None:
                self._statement(action, line, *match.groups())
            elif _ASSIGNMENT.search(line):
                raise self._wrong(f"a statement of another form: {line[:80]!r}")
        if [*self.scores] != [str(c) for c in range(len(self.scores))]:
            raise self._wrong("the scores are not set in order")
        return Graph(self.input, tuple(self.steps), tuple(self.scores.values()))

    def _wrong(self, text: str) -> VerifyError:
        return VerifyError(f"{_NAME}: {text}")

    def _statement(self, action: str, line: str, kind: str, number: str, text: str) -> None:
        name = f"{kind}{number}"
        own: dict[str, dict[str, int] | set[str]] = {
            "n": self.fields, "m": self.masks, "score": self.scores
        }  # fmt: skip
        expected = {"n": "compute", "m": "make_masks", "score": "take_scores"}[kind]
        if number in own[kind] or action.rstrip("0123456789") != expected:
            raise self._wrong(f"{name} is set twice, or in action {action or 'of another name'}")
        if kind == "m":
            self._mask(line, number)
        elif kind == "n":
            self.fields[number] = self._value(name, text)
        else:
            match = _SCORE.fullmatch(text)
            at = self._operand(name, match[1]) if match else 0
            if match is None or {int(match[2], 16), int(match[3], 16)} != {1 << self.width - 1}:
                raise self._wrong(f"{name} is no value with its sign")
            self.scores[number] = at

    def _mask(self, line: str, number: str) -> None:
        match = _MASK.match(line)
        widths = {int(match[2]), int(match[3])} if match else set()
        self.width = self.width or min(widths, default=0)
        if match is None or match[4] != number or widths != {self.width} or (
            int(match[5]) != self.input.n_bits
        ):  # fmt: skip
            raise self._wrong(f"m{number} is no mask of input bit {number}")
        self.masks.add(number)

    def _made(self, step: Operation) -> int:
        if step not in self.known:
            self.known[step] = len(self.steps)
            self.steps.append(step)
        return self.known[step]

    def _number(self, name: str, literal: str) -> int:
        width, digits = literal.split("w")
        self.width = self.width or int(width)
        value = int(digits, 16)
        if int(width) != self.width or value >> self.width:
            raise self._wrong(f"{name} reads {literal}, values have {self.width} bits")
        return value - (value >> self.width - 1 << self.width)

    def _operand(self, name: str, text: str) -> int:
        if "w" in text:
            return self._made(Constant(self._number(name, text)))
        at = text.rpartition(".n")[2]
        if at not in self.fields:
            raise self._wrong(f"{name} reads n{at}, which is not set before")
        return self.fields[at]

    def _bit(self, name: str, mask: str) -> int:
        if mask not in self.masks:
            raise self._wrong(f"{name} reads m{mask}, which is not set before")
        return int(mask)

    def _value(self, name: str, text: str) -> int:
        """The operation of a statement."""
        if match := _CHOICE.fullmatch(text):
            if match[2] != match[4]:
                raise self._wrong(f"{name} chooses by two bits")
            zero, one = (self._operand(name, match[k]) for k in (1, 3))
            return self._made(Choose(self._bit(name, match[2]), zero, one))
        if match := _SUM.fullmatch(text):
            if "w" in match[2]:
                by = self._number(name, match[2])
                return self._made(Offset(self._operand(name, match[1]), by))
            return self._made(Add(*(self._operand(name, match[k]) for k in (1, 2))))
        if match := _LOOKUP.fullmatch(text):
            return self._made(self._lookup(name, match[1], match[2]))
        raise self._wrong(f"{name} is of another form")

    def _lookup(self, name: str, first: str, text: str) -> Lookup:
        shape = _ENTRY.sub("P", text)
        while _JOINED in shape:
            shape = shape.replace(_JOINED, "P")
        added: dict[int, int] = {}
        for number, mask in _ENTRY.findall(text):
            bit = self._bit(name, mask)
            if bit in added:
                raise self._wrong(f"{name} adds twice by bit {bit}")
            added[bit] = self._number(name, number)
        if shape != "P":
            raise self._wrong(f"{name} is no look-up")
        spec = self.input
        at = max(i for i, start in enumerate(spec.offsets) if start <= next(iter(added)))
        bits = range(spec.offsets[at], spec.offsets[at] + spec.fields[at].width)
        if spec.fields[at].kind != "thermometer" or not added.keys() <= {*bits}:
            raise self._wrong(f"{name} looks up by several fields")
        table = [self._number(name, first)]
        for bit in bits:
            table.append(table[-1] + added.get(bit, 0))
        return Lookup(at, tuple(table))
