"""P4 source text to a syntax tree: frozen dataclasses, every node with its source line."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from n3ic.exporters.p4.interpreter.errors import P4Error

MAX_SOURCE_BYTES = 64 << 20


@dataclass(frozen=True)
class TypeName:
    """``bit<width>``, ``bool`` or the name of a declared type."""

    line: int
    name: str
    width: int = 0


@dataclass(frozen=True)
class Number:
    """An integer literal; ``width`` is None where the source gives none."""

    line: int
    value: int
    width: int | None


@dataclass(frozen=True)
class Boolean:
    """``true`` or ``false``."""

    line: int
    value: bool


@dataclass(frozen=True)
class PathName:
    """``a`` or ``a.b.c``."""

    line: int
    parts: tuple[str, ...]

    def __str__(self) -> str:
        return ".".join(self.parts)


@dataclass(frozen=True)
class Unary:
    """``~e``, ``!e`` or ``-e``."""

    line: int
    operator: str
    operand: Expression


@dataclass(frozen=True)
class Binary:
    """``left operator right``."""

    line: int
    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True)
class Ternary:
    """``condition ? then : otherwise``."""

    line: int
    condition: Expression
    then: Expression
    otherwise: Expression


@dataclass(frozen=True)
class Cast:
    """``(type) e``."""

    line: int
    type: TypeName
    operand: Expression


@dataclass(frozen=True)
class Slice:
    """``e[high:low]``."""

    line: int
    operand: Expression
    high: int
    low: int


@dataclass(frozen=True)
class Call:
    """``a.b(arguments)``."""

    line: int
    target: PathName
    arguments: tuple[Expression, ...]


Expression = Number | Boolean | PathName | Unary | Binary | Ternary | Cast | Slice | Call


@dataclass(frozen=True)
class Assign:
    """``target = value;`` or ``target[high:low] = value;``."""

    line: int
    target: PathName
    value: Expression
    slice: tuple[int, int] | None = None


@dataclass(frozen=True)
class If:
    """``if (condition) { then } else { otherwise }``."""

    line: int
    condition: Expression
    then: tuple[Statement, ...]
    otherwise: tuple[Statement, ...]


@dataclass(frozen=True)
class Block:
    """``{ statements }``."""

    line: int
    statements: tuple[Statement, ...]


@dataclass(frozen=True)
class Variable:
    """``type name = value;``."""

    line: int
    type: TypeName
    name: str
    value: Expression | None


@dataclass(frozen=True)
class CallStatement:
    """A call that stands alone."""

    line: int
    call: Call


Statement = Assign | If | Block | Variable | CallStatement


@dataclass(frozen=True)
class Field:
    """A field of a header or a struct."""

    line: int
    type: TypeName
    name: str


@dataclass(frozen=True)
class Record:
    """A ``header`` or ``struct`` declaration."""

    line: int
    kind: str
    name: str
    fields: tuple[Field, ...]


@dataclass(frozen=True)
class Constant:
    """``const type name = value;``."""

    line: int
    type: TypeName
    name: str
    value: Expression


@dataclass(frozen=True)
class Typedef:
    """``typedef type name;``."""

    line: int
    type: TypeName
    name: str


@dataclass(frozen=True)
class Parameter:
    """A parameter; ``direction`` is empty where the source gives none."""

    line: int
    direction: str
    type: TypeName
    name: str


@dataclass(frozen=True)
class SelectCase:
    """``keys : state;``; no keys stand for ``default``."""

    line: int
    keys: tuple[Expression, ...]
    state: str


@dataclass(frozen=True)
class State:
    """A parser state; without keys, the one case is taken."""

    line: int
    name: str
    statements: tuple[Statement, ...]
    keys: tuple[Expression, ...]
    cases: tuple[SelectCase, ...]


@dataclass(frozen=True)
class Parser:
    """A ``parser`` declaration."""

    line: int
    name: str
    parameters: tuple[Parameter, ...]
    states: tuple[State, ...]


@dataclass(frozen=True)
class Action:
    """An ``action`` declaration; ``plane`` is its name in the control plane."""

    line: int
    name: str
    annotations: tuple[tuple[str, str | int | None], ...]
    parameters: tuple[Parameter, ...]
    body: tuple[Statement, ...]


@dataclass(frozen=True)
class Table:
    """A ``table`` declaration."""

    line: int
    name: str
    annotations: tuple[tuple[str, str | int | None], ...]
    keys: tuple[tuple[Expression, str], ...]
    actions: tuple[str, ...]
    default: tuple[str, tuple[Expression, ...]] | None
    constant_default: bool


@dataclass(frozen=True)
class Instance:
    """``Control() name;``."""

    line: int
    control: str
    name: str


@dataclass(frozen=True)
class Control:
    """A ``control`` declaration."""

    line: int
    name: str
    parameters: tuple[Parameter, ...]
    actions: tuple[Action, ...]
    tables: tuple[Table, ...]
    variables: tuple[Variable, ...]
    instances: tuple[Instance, ...]
    body: tuple[Statement, ...]


@dataclass(frozen=True)
class Program:
    """A whole source file."""

    includes: tuple[str, ...]
    constants: tuple[Constant, ...]
    typedefs: tuple[Typedef, ...]
    records: tuple[Record, ...]
    parsers: tuple[Parser, ...]
    controls: tuple[Control, ...]
    package: str
    blocks: tuple[str, ...]


@lru_cache(maxsize=2)  # reporting and running read one program each
def parse(source: str) -> Program:
    """Parse P4 source.

    Raises:
        P4Error: the source is no program of the subset; names the line.
    """
    from lark.exceptions import UnexpectedInput, VisitError

    if len(source) > MAX_SOURCE_BYTES:
        raise P4Error(f"the source has {len(source)} characters, at most {MAX_SOURCE_BYTES}")
    lark, builder = _machinery()
    try:
        tree = lark.parse(source)
    except UnexpectedInput as error:
        line = source.splitlines()[error.line - 1].strip() if error.line > 0 else ""
        raise P4Error(f"syntax error near {line[:80]!r}", max(error.line, 0)) from error
    try:
        program: Program = builder.transform(tree)
    except VisitError as error:
        if isinstance(error.orig_exc, P4Error):
            raise error.orig_exc from error
        raise
    return program


@cache
def _machinery() -> tuple[Any, Any]:
    from lark import Lark

    from n3ic.exporters.p4.interpreter.builder import Builder

    grammar = (Path(__file__).parent / "grammar.lark").read_text(encoding="utf-8")
    lark = Lark(grammar, parser="lalr", propagate_positions=True, maybe_placeholders=True)
    return lark, Builder()
