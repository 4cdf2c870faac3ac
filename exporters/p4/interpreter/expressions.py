# SPDX-License-Identifier: Apache-2.0
"""Compiles expressions to Python closures over a frame, by the rules of P4_16, section 8.

``+``, ``-``, ``~`` and ``<<`` wrap at the width. So both sides of an operator must have the same
width, and a literal must fit it. Reading a field of an invalid header or an unwritten value is an
error.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from n3ic.exporters.p4.interpreter import syntax as s
from n3ic.exporters.p4.interpreter.errors import P4Error
from n3ic.exporters.p4.interpreter.types import Frame, RecordSlots, Storage, ValueSlot

Closure = Callable[[Frame], int]

_BITWISE: Mapping[str, Callable[[int, int], int]] = {
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
}


@dataclass(frozen=True)
class CompiledExpression:
    """A compiled expression.

    Attributes:
        width: width in bits; None for a literal without one.
        run: closure that evaluates it in a frame.
        constant: value, if known at compile time.
    """

    width: int | None
    run: Closure
    constant: int | None = None

    @property
    def sized(self) -> int:
        """The width, which the caller has ensured."""
        assert self.width is not None  # noqa: S101 - callers check it
        return self.width


@dataclass(frozen=True)
class Scope:
    """Meaning of names: storage, or constants with their widths; and the widest shift."""

    variables: Mapping[str, Storage]
    constants: Mapping[str, CompiledExpression]
    most_shift: int


def constant(width: int | None, value: int) -> CompiledExpression:
    """Make an expression whose value is known at compile time."""
    return CompiledExpression(width, lambda _: value, value)


def resolve(path: s.PathName, scope: Scope) -> Storage:
    """Resolve a path to its storage.

    Raises:
        P4Error: the path names no variable or field.
    """
    if path.parts[0] not in scope.variables:
        raise P4Error(f"{path.parts[0]} is not declared", path.line)
    here = scope.variables[path.parts[0]]
    for part in path.parts[1:]:
        if not isinstance(here, RecordSlots) or part not in here.children:
            raise P4Error(f"{path}: no field {part}", path.line)
        here = here.children[part]
    return here


def leaf(path: s.PathName, scope: Scope) -> ValueSlot:
    """Resolve a path to a single value."""
    storage = resolve(path, scope)
    if not isinstance(storage, ValueSlot):
        raise P4Error(f"{path} is not a single value", path.line)
    return storage


def header(path: s.PathName, scope: Scope) -> RecordSlots:
    """Resolve a path to a header."""
    storage = resolve(path, scope)
    if not isinstance(storage, RecordSlots) or storage.valid is None:
        raise P4Error(f"{path} is not a header", path.line)
    return storage


def compile_expression(expression: s.Expression, scope: Scope) -> CompiledExpression:
    """Compile an expression.

    Raises:
        P4Error: a name, width or literal is invalid; the error names the line.
    """
    match expression:
        case s.NumberLiteral(value=value, width=width):
            return constant(width, value)
        case s.PathName(parts=(name,)) if name in scope.constants:
            return scope.constants[name]
        case s.PathName():
            slot = leaf(expression, scope)
            return CompiledExpression(slot.type.width, reader(slot, expression.line))
        case s.Complement(operand=operand):
            inner = compile_expression(operand, scope)
            if inner.width is None:
                raise P4Error("~ needs a value with a width", expression.line)
            run, mask = inner.run, (1 << inner.width) - 1  # Python's ~ would be negative
            return CompiledExpression(inner.width, lambda frame: run(frame) ^ mask)
        case s.Slice(operand=operand, high=high, low=low):
            whole = compile_expression(operand, scope)
            return _slice(whole, s.number(high), s.number(low), expression.line)
        case s.Cast(width=width, operand=operand):
            return _cast(s.width_of(width), compile_expression(operand, scope), expression.line)
        case s.BinaryExpression(left=left, operator=op, right=right):
            a, b = compile_expression(left, scope), compile_expression(right, scope)
            if op in ("<<", ">>") and (b.constant or 0) > scope.most_shift:
                raise P4Error(
                    f"{op} {b.constant}: p4c shifts by at most {scope.most_shift}; take a slice",
                    expression.line,
                )
            return _binary(op, a, b, expression.line)


def fit(value: CompiledExpression, width: int, line: int) -> CompiledExpression:
    """Fit a value to ``bit<width>``, as an assignment does: only literals are converted.

    Raises:
        P4Error: the value has another width, or the literal does not fit.
    """
    if value.width is None and value.constant is not None:
        if value.constant >> width:
            raise P4Error(f"{value.constant} does not fit bit<{width}>", line)
        return constant(width, value.constant)
    if value.width != width:
        raise P4Error(f"expected bit<{width}>, got bit<{value.width}>", line)
    return value


def reader(value_slot: ValueSlot, line: int) -> Closure:
    """Make a closure that reads a slot, with the checks that the slot needs."""
    slot, valid, name = value_slot.slot, value_slot.valid, value_slot.name
    if valid is None and value_slot.plain:
        return operator.itemgetter(slot)  # written in C: most reads of a packet take this path

    def read(frame: Frame) -> int:
        if valid is not None and not frame[valid]:
            raise P4Error(f"{name} is read, but its header is not valid", line)
        value = frame[slot]
        if value is None:
            raise P4Error(f"{name} is read before it is written", line)
        return int(value)

    return read


def _cast(width: int, value: CompiledExpression, line: int) -> CompiledExpression:
    if value.width is None:
        return fit(value, width, line)
    run, mask = value.run, (1 << width) - 1
    return CompiledExpression(
        width, run if width >= value.width else lambda frame: run(frame) & mask
    )


def _slice(value: CompiledExpression, high: int, low: int, line: int) -> CompiledExpression:
    if value.width is None or not low <= high < value.width:
        raise P4Error(f"[{high}:{low}] takes no bits of bit<{value.width}>", line)
    run, mask = value.run, (2 << high - low) - 1
    return CompiledExpression(high - low + 1, lambda frame: run(frame) >> low & mask)


def _binary(
    op: str, left: CompiledExpression, right: CompiledExpression, line: int
) -> CompiledExpression:
    if op in ("<<", ">>"):
        return _shift(op, left, right, line)
    if op == "++":
        if left.width is None or right.width is None:
            raise P4Error("++ needs two values with a width", line)
        high, low, shift = left.run, right.run, right.width
        return CompiledExpression(
            left.width + shift, lambda frame: (high(frame) << shift) | low(frame)
        )
    width = left.width if left.width is not None else right.width
    if width is None:
        raise P4Error(f"{op} needs a value with a width", line)
    left, right = fit(left, width, line), fit(right, width, line)
    a, b, mask = left.run, right.run, (1 << width) - 1
    if op == "+":
        return CompiledExpression(width, lambda frame: (a(frame) + b(frame)) & mask)
    if op == "-":
        return CompiledExpression(width, lambda frame: (a(frame) - b(frame)) & mask)
    # Weights and masks are constants: one call less for each of these operations.
    apply, fixed = _BITWISE[op], right.constant
    if fixed is not None:
        return CompiledExpression(width, lambda frame: apply(a(frame), fixed))
    return CompiledExpression(width, lambda frame: apply(a(frame), b(frame)))


def _shift(
    op: str, left: CompiledExpression, right: CompiledExpression, line: int
) -> CompiledExpression:
    if left.width is None or right.constant is None:
        raise P4Error(f"{op} shifts a value with a width by a constant", line)
    # P4 allows any amount; beyond the width, Python would build a huge integer before masking it.
    run, mask, amount = left.run, (1 << left.width) - 1, min(right.constant, left.width)
    if op == "<<":
        return CompiledExpression(left.width, lambda frame: (run(frame) << amount) & mask)
    return CompiledExpression(left.width, lambda frame: run(frame) >> amount)
