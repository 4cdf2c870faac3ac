# SPDX-License-Identifier: Apache-2.0
"""How many tables of a program wait for each other: its stages in hardware, at least."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from n3ic.exporters.p4.interpreter import syntax as s
from n3ic.exporters.p4.interpreter.architecture import ARCHITECTURES


def waiting_tables(source: str) -> int:
    """Count the tables of the longest chain, each of which needs what the one before it wrote.

    A table waits for those that write a field which it reads or writes. A switch may need more
    stages: an action with several operations on a field is counted as one.

    Args:
        source: a program whose ingress has the tables.

    Raises:
        P4Error: the program is malformed.
    """
    program = s.parse(source)
    controls = {d.name: d for d in program.of(s.ControlDeclaration)}
    package, blocks = program.blocks()
    shapes = ARCHITECTURES[package.name].blocks
    (ingress,) = (b for b, shape in zip(blocks, shapes, strict=True) if shape.title == "ingress")
    ready: dict[str, int] = {}  # length of the chain that ends with the last write of a field
    longest = 0
    for reads, writes in _tables(controls[ingress], controls):
        length = 1 + max((ready.get(field, 0) for field in reads | writes), default=0)
        ready.update(dict.fromkeys(writes, length))
        longest = max(longest, length)
    return longest


def _tables(
    control: s.ControlDeclaration, controls: dict[str, s.ControlDeclaration]
) -> Iterator[tuple[set[str], set[str]]]:
    """The fields that each table reads and writes, in the order in which they are applied."""
    members = {member.name: member for member in control.members}
    for statement in _flat(control.body):
        if not isinstance(statement, s.CallStatement) or statement.target.parts[1:] != ("apply",):
            continue
        member = members[statement.target.parts[0]]
        if isinstance(member, s.ControlInstance):
            yield from _tables(controls[member.control], controls)
        elif isinstance(member, s.TableDeclaration):
            yield _accesses(member, members)


def _accesses(table: s.TableDeclaration, members: dict[str, Any]) -> tuple[set[str], set[str]]:
    reads = {field for key in table.keys or () for field in _fields(key.value)}
    writes: set[str] = set()
    for action in (members[name] for name in table.actions if name in members):
        for statement in _flat(action.body):
            if isinstance(statement, s.Assignment):
                writes.update(_fields(statement.target))
                reads.update(_fields(statement.value))
    return reads, writes


def _flat(statements: Sequence[Any]) -> Iterator[Any]:
    for statement in statements:
        yield statement
        if isinstance(statement, s.Conditional):
            yield from _flat(statement.then)


def _fields(expression: Any) -> Iterator[str]:
    """The fields of headers and metadata in an expression; names alone are parameters."""
    if isinstance(expression, s.PathName):
        if len(expression.parts) > 1:
            yield ".".join(expression.parts)
    elif isinstance(expression, s.BinaryExpression):
        yield from _fields(expression.left)
        yield from _fields(expression.right)
    elif isinstance(expression, s.Complement | s.Cast | s.Slice):
        yield from _fields(expression.operand)
