# SPDX-License-Identifier: Apache-2.0
"""Parses P4 source to a syntax tree: one class per grammar rule, every node with its line."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from lark import Lark, Token, Transformer
from lark.ast_utils import AsList, Ast, WithMeta, create_transformer
from lark.exceptions import UnexpectedInput, VisitError
from lark.tree import Meta

from n3ic.exporters.p4.interpreter.errors import P4Error

MAX_SOURCE_BYTES = 64 << 20
MAX_WIDTH = 1 << 20
PORT_BITS = 32  # of PortId_t


@dataclass(frozen=True, eq=False)
class _Node(Ast, WithMeta):
    meta: Meta | None

    @property
    def line(self) -> int:
        """The source line of the node's start; 0 for an empty node."""
        return int(getattr(self.meta, "line", 0))


@dataclass(frozen=True, eq=False)
class NumberLiteral:
    """An integer literal; ``width`` is None if the source gives no width."""

    line: int
    value: int
    width: int | None


@dataclass(frozen=True, eq=False)
class TypeName:
    """``bit<width>``, or the name of a declared type if ``width`` is 0."""

    line: int
    name: str
    width: int


@dataclass(frozen=True, eq=False)
class PathName:
    """``a`` or ``a.b.c``."""

    line: int
    parts: tuple[str, ...]

    def __str__(self) -> str:
        return ".".join(self.parts)


@dataclass(frozen=True, eq=False)
class Complement(_Node):
    """``~e``."""

    operand: Expression


@dataclass(frozen=True, eq=False)
class BinaryExpression(_Node):
    """``left operator right``."""

    left: Expression
    operator: str
    right: Expression


@dataclass(frozen=True, eq=False)
class Slice(_Node):
    """``e[high:low]``: some bits of a variable."""

    operand: PathName
    high: Token
    low: Token


@dataclass(frozen=True, eq=False)
class Cast(_Node):
    """``(bit<width>) e``."""

    width: Token
    operand: Expression


Expression = NumberLiteral | PathName | Complement | BinaryExpression | Slice | Cast


@dataclass(frozen=True, eq=False)
class Assignment(_Node):
    """``target = value;``."""

    target: PathName
    value: Expression


@dataclass(frozen=True, eq=False)
class CallStatement(_Node):
    """``target(arguments);``."""

    target: PathName
    argument_list: tuple[Expression, ...] | None

    @property
    def arguments(self) -> tuple[Expression, ...]:
        """The arguments; may be empty."""
        return self.argument_list or ()


@dataclass(frozen=True, eq=False)
class Comparison(_Node):
    """``left == right`` or ``left != right``."""

    left: Expression
    operator: str
    right: Expression


@dataclass(frozen=True, eq=False)
class Conditional(_Node):
    """``if (test()) { then }``, or with a comparison as the test."""

    test: PathName | Comparison
    then: tuple[Statement, ...]


Statement = Assignment | CallStatement | Conditional


@dataclass(frozen=True, eq=False)
class FieldDeclaration(_Node):
    """A field of a header or a struct."""

    annotations: Annotations
    type: TypeName
    name: str


@dataclass(frozen=True, eq=False)
class RecordDeclaration(_Node):
    """A ``header`` or a ``struct``."""

    kind: str
    name: str
    fields: tuple[FieldDeclaration, ...]


@dataclass(frozen=True, eq=False)
class ConstantDeclaration(_Node):
    """``const type name = value;``."""

    type: TypeName
    name: str
    value: Expression


@dataclass(frozen=True, eq=False)
class ParameterDeclaration(_Node):
    """A parameter; ``direction`` is None if the source gives no direction."""

    direction: str | None
    type: TypeName
    name: str


@dataclass(frozen=True, eq=False)
class SelectCase(_Node, AsList):
    """``keys : state;``; no keys mean ``default``."""

    items: list[Any]

    @property
    def keys(self) -> tuple[Expression, ...]:
        """The values that select the state."""
        return self.items[0] if len(self.items) == 2 else ()

    @property
    def state(self) -> str:
        """The next state."""
        return str(self.items[-1])


@dataclass(frozen=True, eq=False)
class ParserState(_Node):
    """A parser state; without keys, it always takes its only case."""

    name: str
    statements: tuple[Statement, ...]
    transition: tuple[tuple[Expression, ...], tuple[SelectCase, ...]]


@dataclass(frozen=True, eq=False)
class ParserDeclaration(_Node):
    """A ``parser``."""

    annotations: Annotations
    name: str
    parameters: tuple[ParameterDeclaration, ...]
    states: tuple[ParserState, ...]


@dataclass(frozen=True, eq=False)
class ActionDeclaration(_Node):
    """An ``action``."""

    annotations: Annotations
    name: str
    parameters: tuple[ParameterDeclaration, ...]
    body: tuple[Statement, ...]


@dataclass(frozen=True, eq=False)
class TableKey(_Node):
    """``value: match;`` with an exact or a range match."""

    value: Expression
    match: str


@dataclass(frozen=True, eq=False)
class ConstantEntry(_Node):
    """``key: action(data);`` among the ``const entries`` of a table with one exact key."""

    key: Expression
    action: str
    data: tuple[Expression, ...] | None


@dataclass(frozen=True, eq=False)
class TableDeclaration(_Node):
    """A ``table``, with or without keys, with a default action without arguments."""

    annotations: Annotations
    name: str
    keys: tuple[TableKey, ...] | None
    actions: tuple[str, ...]
    size: Any
    entries: tuple[ConstantEntry, ...] | None
    default: str


@dataclass(frozen=True, eq=False)
class MeterInstance(_Node):
    """``meter(size, MeterType.unit) name;``, the extern of v1model."""

    annotations: Annotations
    size: Any
    unit: str
    name: str


@dataclass(frozen=True, eq=False)
class ControlInstance(_Node):
    """``Control() name;``."""

    control: str
    name: str


@dataclass(frozen=True, eq=False)
class ControlDeclaration(_Node):
    """A ``control``."""

    annotations: Annotations
    name: str
    parameters: tuple[ParameterDeclaration, ...]
    members: tuple[ActionDeclaration | TableDeclaration | MeterInstance | ControlInstance, ...]
    body: tuple[Statement, ...]


@dataclass(frozen=True, eq=False)
class Package(_Node):
    """``Name(Block(), ...) instance;``."""

    name: str
    blocks: tuple[str, ...]
    instance: str


@dataclass(frozen=True, eq=False)
class Include(_Node):
    """``#include <name>``."""

    directive: str


@dataclass(frozen=True, eq=False)
class SourceProgram(_Node, AsList):
    """A whole source file."""

    declarations: list[Any]

    def of(self, kind: type) -> tuple[Any, ...]:
        """Select the declarations of a kind, in order."""
        return tuple(d for d in self.declarations if isinstance(d, kind))

    def blocks(self) -> tuple[Package, tuple[str, ...]]:
        """The package ``main``, and its blocks with those of the packages that it holds.

        Raises:
            P4Error: not exactly one package is ``main``.
        """
        packages = {each.instance: each for each in self.of(Package)}
        if "main" not in packages or len(packages) != len(self.of(Package)):
            raise P4Error("the program needs one package named main")
        main = packages["main"]
        blocks: list[str] = []
        for name in main.blocks:
            blocks += packages[name].blocks if name in packages else [name]
        return main, tuple(blocks)


Annotations = tuple[tuple[str, str], ...]


class _Rules(Transformer[Token, Any]):
    """Converts grammar rules that stand for lists or values rather than nodes."""

    def _listed(self, items: list[Any]) -> tuple[Any, ...]:
        return tuple(item for item in items if item is not None)

    fields = block_names = annotations = parameters = states = members = statements = _listed
    keys = names = table_keys = entries = _listed

    def annotation(self, items: list[Any]) -> tuple[str, str]:
        return str(items[0]), str(items[1]).strip('"')

    def type_name(self, items: list[Token]) -> TypeName:
        (token,) = items
        if token.type == "PORT_TYPE":
            return TypeName(token.line or 0, str(token), PORT_BITS)
        named = token.type == "NAME"
        return TypeName(token.line or 0, str(token), 0 if named else width_of(token))

    def port_cast(self, items: list[Any]) -> Cast:
        return Cast(None, Token("NUMBER", str(PORT_BITS)), items[1])

    def path_name(self, items: list[Token]) -> PathName:
        return PathName(items[0].line or 0, tuple(str(item) for item in items))

    def goto(self, items: list[Token]) -> tuple[tuple[Expression, ...], tuple[SelectCase, ...]]:
        return (), (SelectCase(None, list(items)),)

    def select(self, items: list[Any]) -> tuple[tuple[Expression, ...], tuple[SelectCase, ...]]:
        return items[0], tuple(items[1:])

    def number_literal(self, items: list[Token]) -> NumberLiteral:
        (token,) = items
        line = token.line or 0
        width, wide, digits = token.rpartition("w")
        value = number(digits)
        # P4 would truncate with a warning; n3ic never writes such a literal.
        if wide and value >> width_of(width, line):
            raise P4Error(f"{token[:40]} does not fit {width} bits", line)
        return NumberLiteral(line, value, width_of(width, line) if wide else None)


def width_of(text: str, line: int = 0) -> int:
    """Parse the width of a type.

    Raises:
        P4Error: the width is invalid.
    """
    width = number(text) if len(text) < 20 else 0  # int() of many digits is slow
    if not 1 <= width <= MAX_WIDTH:
        raise P4Error(f"bit<{text[:20]}> has no such width", line or getattr(text, "line", 0))
    return width


def number(text: str) -> int:
    """Parse a number of the source.

    Raises:
        P4Error: the text is not a number.
    """
    # int(text, 0) would refuse 012, which P4 reads as 12.
    digits = text.replace("_", "")
    try:
        return int(digits, 16) if digits[:2].lower() == "0x" else int(digits, 10)
    except ValueError as error:
        raise P4Error(f"{text[:40]!r} is not a number", getattr(text, "line", 0)) from error


@lru_cache(maxsize=16)  # reports and runs parse the same programs, and a card has several
def parse(source: str) -> SourceProgram:
    """Parse P4 source.

    Raises:
        P4Error: the source is not a program of the subset; the error names the line.
    """
    if len(source) > MAX_SOURCE_BYTES:
        raise P4Error(f"the source has {len(source)} characters, at most {MAX_SOURCE_BYTES}")
    lark, builder = _machinery()
    try:
        program: SourceProgram = builder.transform(lark.parse(source))
    except UnexpectedInput as error:
        line = source.splitlines()[error.line - 1].strip() if error.line > 0 else ""
        raise P4Error(f"syntax error near {line[:80]!r}", max(error.line, 0)) from error
    except VisitError as error:
        if isinstance(error.orig_exc, P4Error):
            raise error.orig_exc from error
        raise
    return program


@cache
def _machinery() -> tuple[Lark, Transformer[Token, Any]]:
    grammar = (Path(__file__).parent / "grammar.lark").read_text(encoding="utf-8")
    lark = Lark(
        grammar,
        start="source_program",
        parser="lalr",
        propagate_positions=True,
        maybe_placeholders=True,  # an optional part is None, so that fields keep their places
    )
    return lark, create_transformer(sys.modules[__name__], _Rules())
