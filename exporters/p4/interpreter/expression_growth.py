# SPDX-License-Identifier: Apache-2.0
"""Predicts how large an action becomes when a compiler propagates assigned values.

The local copy propagation of p4c replaces a variable by the expression last assigned to it. ``v =
(v & m) + ((v >> s) & m)`` reads ``v`` twice, so a chain of ``n`` such statements in one action
becomes an expression of ``2^n`` terms: p4c 1.2.4 wrote 110 MB to 1.2 GB of JSON for popcounts of
256 bits. Calls and table applications end a chain.
"""

from __future__ import annotations

from collections.abc import Iterable

from n3ic.exporters.p4.interpreter import syntax as s
from n3ic.exporters.p4.interpreter.errors import P4Error

FREE_NODES = 200
FACTOR = 8


def check_growth(name: str, statements: tuple[s.Statement, ...], line: int) -> None:
    """Refuse statements that copy propagation would inflate.

    Raises:
        P4Error: after substitution the statements have many times their original number of nodes.
    """
    before, after = growth(statements)
    if after > FREE_NODES + FACTOR * before:
        raise P4Error(
            f"{name} has {before} nodes and {after} after copy propagation: chained "
            "assignments must be split over several tables",
            line,
        )


def growth(statements: Iterable[s.Statement]) -> tuple[int, int]:
    """Number of expression nodes of statements, as written and after substitution."""
    return _walk(statements, {})


def _walk(statements: Iterable[s.Statement], known: dict[str, int]) -> tuple[int, int]:
    before = after = 0
    for statement in statements:
        match statement:
            case s.Assignment(target=target, value=value):
                size = _size(value, known)
                before, after = before + _size(value, {}), after + size
                known[str(target)] = size  # a later read stands for this whole expression
            case s.Conditional(then=inner):
                more = _walk(inner, known)  # pessimistic: its assignments are also known after it
                before, after = before + more[0], after + more[1]
            case s.CallStatement():
                known.clear()
    return before, after


def _size(expression: s.Expression, known: dict[str, int]) -> int:
    match expression:
        case s.PathName():
            return known.get(str(expression), 1)
        case s.Complement(operand=operand) | s.Cast(operand=operand) | s.Slice(operand=operand):
            return 1 + _size(operand, known)
        case s.BinaryExpression(left=left, right=right):
            return 1 + _size(left, known) + _size(right, known)
    return 1
