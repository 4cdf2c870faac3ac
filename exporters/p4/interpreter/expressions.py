"""Typed expressions as Python closures over a frame, by the rules of P4_16, section 8.

Widths are never mixed without a cast, literals must fit, ``+``, ``-``, ``*``, ``~`` and ``<<``
wrap at the width, and a field of an invalid header is never read.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from n3ic.exporters.p4.interpreter import syntax as s
from n3ic.exporters.p4.interpreter.errors import P4Error
from n3ic.exporters.p4.interpreter.types import (
    Bit,
    Bool,
    Frame,
    Integer,
    Leaf,
    Node,
    Port,
    Storage,
    Type,
)

Closure = Callable[[Frame], Any]
BOOL = Bool()
INTEGER = Integer()

_COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_ARITHMETIC: Mapping[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
}


@dataclass(frozen=True)
class Typed:
    """A compiled expression; ``constant`` is its value where the compiler knows it."""

    type: Type
    run: Closure
    constant: Any = None


@dataclass(frozen=True)
class Variable:
    """What a name stands for, and whether it may be written."""

    storage: Storage
    writable: bool


@dataclass(frozen=True)
class Constant:
    """A named constant."""

    type: Type
    value: Any


Entry = Variable | Constant


class Scope:
    """Names and what they stand for, inner ones hiding outer ones."""

    def __init__(self, parent: Scope | None = None) -> None:
        self._parent = parent
        self._entries: dict[str, Entry] = {}

    def declare(self, name: str, entry: Entry, line: int) -> None:
        """Add a name; a second of the same name in one scope is an error."""
        if name in self._entries:
            raise P4Error(f"{name} is declared twice", line)
        self._entries[name] = entry

    def find(self, name: str) -> Entry | None:
        """What the name stands for, or None."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope._entries:
                return scope._entries[name]
            scope = scope._parent
        return None


def constant(kind: Type, value: Any) -> Typed:
    """A value known at compile time."""
    return Typed(kind, lambda _: value, value)


def resolve(path: s.PathName, scope: Scope, *, write: bool = False) -> Storage:
    """The storage that a path names.

    Raises:
        P4Error: there is none, or it may not be written.
    """
    entry = scope.find(path.parts[0])
    if entry is None:
        raise P4Error(f"{path.parts[0]} is not declared", path.line)
    if isinstance(entry, Constant):
        raise P4Error(f"{path} is a constant", path.line)
    if write and not entry.writable:
        raise P4Error(f"{path} may not be written here", path.line)
    here = entry.storage
    for part in path.parts[1:]:
        if not isinstance(here, Node) or part not in here.children:
            raise P4Error(f"{path}: no field {part}", path.line)
        here = here.children[part]
    return here


def header(path: s.PathName, scope: Scope, *, write: bool = False) -> Node:
    """The header that a path names."""
    storage = resolve(path, scope, write=write)
    if not isinstance(storage, Node) or storage.valid is None:
        raise P4Error(f"{path} is no header", path.line)
    return storage


def compile_expression(expression: s.Expression, scope: Scope) -> Typed:
    """Check and compile an expression.

    Raises:
        P4Error: it breaks a rule of the language; names the line.
    """
    match expression:
        case s.Number(line, value, width):
            return constant(INTEGER if width is None else Bit(width), value)
        case s.Boolean(_, value):
            return constant(BOOL, value)
        case s.PathName():
            return _read(expression, scope)
        case s.Unary(line, op, operand):
            return _unary(op, compile_expression(operand, scope), line)
        case s.Binary(line, op, left, right):
            return _binary(
                op, compile_expression(left, scope), compile_expression(right, scope), line
            )
        case s.Ternary():
            return _ternary(expression, scope)
        case s.Cast(line, kind, operand):
            target: Type = BOOL if kind.name == "bool" else Bit(kind.width)
            return _cast(target, compile_expression(operand, scope), line)
        case s.Slice(line, operand, high, low):
            return _slice(compile_expression(operand, scope), high, low, line)
        case s.Call():
            return _call(expression, scope)


def coerce(value: Typed, wanted: Type, line: int) -> Typed:
    """A value as another type, as an assignment takes it: only literals change.

    Raises:
        P4Error: the types differ, or the literal does not fit.
    """
    if value.type == wanted:
        return value
    if isinstance(value.type, Integer) and isinstance(wanted, Bit):
        if not 0 <= value.constant < 1 << wanted.width:
            raise P4Error(f"{value.constant} does not fit {wanted}", line)
        return constant(wanted, value.constant)
    raise P4Error(f"{wanted} expected, got {value.type}", line)


def boolean(value: Typed, line: int) -> Typed:
    """A value that must be a bool."""
    return coerce(value, BOOL, line)


def reader(leaf: Leaf, line: int) -> Closure:
    """How a slot is read, with the checks that it needs."""
    slot, valid, name = leaf.slot, leaf.valid, leaf.name
    if valid is not None:

        def read_field(frame: Frame) -> Any:
            if not frame[valid]:
                raise P4Error(f"{name} is read, but its header is not valid", line)
            value = frame[slot]
            if value is None:
                raise P4Error(f"{name} is read before it is written", line)
            return value

        return read_field
    if leaf.plain:
        return operator.itemgetter(slot)

    def read_checked(frame: Frame) -> Any:
        value = frame[slot]
        if value is None:
            raise P4Error(f"{name} is read before it is written", line)
        return value

    return read_checked


def _read(path: s.PathName, scope: Scope) -> Typed:
    entry = scope.find(path.parts[0])
    if isinstance(entry, Constant) and len(path.parts) == 1:
        return constant(entry.type, entry.value)
    storage = resolve(path, scope)
    if not isinstance(storage, Leaf):
        raise P4Error(f"{path} is no single value", path.line)
    return Typed(storage.type, reader(storage, path.line))


def _unary(op: str, value: Typed, line: int) -> Typed:
    run = value.run
    if op == "!":
        boolean(value, line)
        if value.constant is not None:
            return constant(BOOL, not value.constant)
        return Typed(BOOL, lambda frame: not run(frame))
    if isinstance(value.type, Integer):
        if op == "~":
            raise P4Error("~ needs a value with a width", line)
        return constant(INTEGER, -value.constant)
    if not isinstance(value.type, Bit):
        raise P4Error(f"{op} needs bit<N>, got {value.type}", line)
    mask = (1 << value.type.width) - 1
    if op == "~":
        return Typed(value.type, lambda frame: run(frame) ^ mask)
    return Typed(value.type, lambda frame: -run(frame) & mask)


def _binary(op: str, left: Typed, right: Typed, line: int) -> Typed:
    if op in ("&&", "||"):
        a, b = boolean(left, line).run, boolean(right, line).run
        if left.constant is not None and right.constant is not None:
            given = (left.constant, right.constant)
            return constant(BOOL, all(given) if op == "&&" else any(given))
        if op == "&&":
            return Typed(BOOL, lambda frame: a(frame) and b(frame))
        return Typed(BOOL, lambda frame: a(frame) or b(frame))
    if op in ("<<", ">>"):
        return _shift(op, left, right, line)
    if op == "++":
        return _concatenate(left, right, line)
    if isinstance(left.type, Integer) and isinstance(right.type, Bit):
        left = coerce(left, right.type, line)
    elif isinstance(right.type, Integer) and isinstance(left.type, Bit):
        right = coerce(right, left.type, line)
    if left.type != right.type:
        raise P4Error(f"{op} needs two values of one type, got {left.type} and {right.type}", line)
    if op in _COMPARE:
        if isinstance(left.type, Bool) and op not in ("==", "!="):
            raise P4Error(f"{op} does not compare bool", line)
        return _folded(BOOL, _COMPARE[op], left, right)
    apply = _ARITHMETIC[op]
    if isinstance(left.type, Integer):
        return constant(INTEGER, apply(left.constant, right.constant))
    if not isinstance(left.type, Bit):
        raise P4Error(f"{op} needs bit<N>, got {left.type}", line)
    if op not in ("+", "-"):
        return _folded(left.type, apply, left, right)
    mask = (1 << left.type.width) - 1
    a, b = left.run, right.run
    if op == "+":
        return Typed(left.type, lambda frame: (a(frame) + b(frame)) & mask)
    return Typed(left.type, lambda frame: (a(frame) - b(frame)) & mask)


def _folded(kind: Type, apply: Callable[[Any, Any], Any], left: Typed, right: Typed) -> Typed:
    a, b = left.run, right.run
    if left.constant is not None and right.constant is not None:
        return constant(kind, apply(left.constant, right.constant))
    if right.constant is not None:
        fixed = right.constant
        return Typed(kind, lambda frame: apply(a(frame), fixed))
    return Typed(kind, lambda frame: apply(a(frame), b(frame)))


def _shift(op: str, left: Typed, right: Typed, line: int) -> Typed:
    if isinstance(right.type, Integer) and right.constant < 0:
        raise P4Error("a shift amount is not negative", line)
    if not isinstance(right.type, (Integer, Bit)):
        raise P4Error(f"a shift amount is a number, got {right.type}", line)
    if isinstance(left.type, Integer):
        if right.constant is None or right.constant > 1 << 16:
            raise P4Error("a literal is shifted by a small literal", line)
        shifted = operator.lshift if op == "<<" else operator.rshift
        return constant(INTEGER, shifted(left.constant, right.constant))
    if not isinstance(left.type, Bit):
        raise P4Error(f"{op} needs bit<N>, got {left.type}", line)
    width, run = left.type.width, left.run
    mask = (1 << width) - 1
    if right.constant is not None:
        amount = min(right.constant, width)
        if op == "<<":
            return Typed(left.type, lambda frame: (run(frame) << amount) & mask)
        return Typed(left.type, lambda frame: run(frame) >> amount)
    by = right.run
    if op == "<<":
        return Typed(left.type, lambda frame: (run(frame) << min(by(frame), width)) & mask)
    return Typed(left.type, lambda frame: run(frame) >> min(by(frame), width))


def _concatenate(left: Typed, right: Typed, line: int) -> Typed:
    if not isinstance(left.type, Bit) or not isinstance(right.type, Bit):
        raise P4Error(f"++ needs two bit<N>, got {left.type} and {right.type}", line)
    a, b, width = left.run, right.run, right.type.width
    return Typed(Bit(left.type.width + width), lambda frame: (a(frame) << width) | b(frame))


def _ternary(expression: s.Ternary, scope: Scope) -> Typed:
    line = expression.line
    condition = boolean(compile_expression(expression.condition, scope), line)
    test = condition.run
    then = compile_expression(expression.then, scope)
    otherwise = compile_expression(expression.otherwise, scope)
    if isinstance(then.type, Integer) and isinstance(otherwise.type, Bit):
        then = coerce(then, otherwise.type, line)
    otherwise = coerce(otherwise, then.type, line)
    if condition.constant is not None:
        return then if condition.constant else otherwise
    if isinstance(then.type, Integer):
        raise P4Error("a choice between literals needs a width", line)
    yes, no = then.run, otherwise.run
    return Typed(then.type, lambda frame: yes(frame) if test(frame) else no(frame))


def _cast(target: Type, value: Typed, line: int) -> Typed:
    if value.type == target:
        return value
    run = value.run
    if isinstance(target, Bit):
        if isinstance(value.type, Integer):
            return coerce(value, target, line)
        if isinstance(value.type, Bit):
            if target.width >= value.type.width:
                return Typed(target, run)
            mask = (1 << target.width) - 1
            return Typed(target, lambda frame: run(frame) & mask)
        if isinstance(value.type, Bool) and target.width == 1:
            return Typed(target, lambda frame: int(run(frame)))
    elif value.type == Bit(1):
        return Typed(BOOL, lambda frame: bool(run(frame)))
    raise P4Error(f"no cast from {value.type} to {target}", line)


def _slice(value: Typed, high: int, low: int, line: int) -> Typed:
    check_slice(value.type, high, low, line)
    run, mask = value.run, (1 << (high - low + 1)) - 1
    return Typed(Bit(high - low + 1), lambda frame: (run(frame) >> low) & mask)


def check_slice(kind: Type, high: int, low: int, line: int) -> None:
    """Refuse a slice that is empty or outside of its value."""
    if not isinstance(kind, Bit):
        raise P4Error(f"a slice needs bit<N>, got {kind}", line)
    if not 0 <= low <= high < kind.width:
        raise P4Error(f"[{high}:{low}] is not within {kind}", line)


def _call(call: s.Call, scope: Scope) -> Typed:
    *where, method = call.target.parts
    if method != "isValid" or not where or call.arguments:
        raise P4Error(f"{call.target}() gives no value here", call.line)
    valid = header(s.PathName(call.line, tuple(where)), scope).valid
    assert valid is not None  # noqa: S101 - header() gives headers
    return Typed(BOOL, operator.itemgetter(valid))


def port(path: s.PathName, scope: Scope, name: str) -> None:
    """Check that a path names a packet of the wanted kind."""
    storage = resolve(path, scope)
    if not isinstance(storage, Port) or storage.type.name != name:
        raise P4Error(f"{path} is no {name}", path.line)
