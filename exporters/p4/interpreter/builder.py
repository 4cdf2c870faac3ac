"""Lark tree to syntax tree; one method a grammar rule."""
# ruff: noqa: D102 - the methods are named after the grammar's rules, which say what they are

from __future__ import annotations

from typing import Any

from lark import Token, Transformer, v_args
from lark.tree import Meta

from n3ic.exporters.p4.interpreter import syntax as s
from n3ic.exporters.p4.interpreter.errors import P4Error


def _number(text: str) -> int:
    # Python reads 0x, 0b and _, but takes 012 for an error where P4 takes it for 12.
    digits = text.replace("_", "")
    return int(digits, 0) if digits[:2].lower() in ("0x", "0b") else int(digits, 10)


def _wide(token: Token) -> s.Number:
    width, _, digits = token.partition("w")
    value = _number(digits)
    if not 1 <= int(width) <= 1 << 20 or value >> int(width):
        raise P4Error(f"{token[:40]} does not fit {width} bits", token.line or 0)
    return s.Number(token.line or 0, value, int(width))


def _line(meta: Meta, *fallback: Any) -> int:
    line = getattr(meta, "line", 0)
    return int(line or (getattr(fallback[0], "line", 0) if fallback else 0))


@v_args(meta=True)
class Builder(Transformer[Token, Any]):
    """Builds :mod:`~n3ic.exporters.p4.interpreter.syntax` nodes bottom up."""

    def start(self, meta: Meta, items: list[Any]) -> s.Program:
        """The whole file."""

        def of(kind: type) -> tuple[Any, ...]:
            return tuple(i for i in items if isinstance(i, kind))

        packages = [i for i in items if isinstance(i, tuple) and i[0] == "package"]
        if len(packages) != 1:
            raise P4Error(f"a program has one main package, this has {len(packages)}")
        return s.Program(
            includes=tuple(i[1] for i in items if isinstance(i, tuple) and i[0] == "include"),
            constants=of(s.Constant),
            typedefs=of(s.Typedef),
            records=of(s.Record),
            parsers=of(s.Parser),
            controls=of(s.Control),
            package=packages[0][1],
            blocks=packages[0][2],
        )

    def include(self, meta: Meta, items: list[Any]) -> tuple[str, str]:
        return ("include", str(items[0]).split("<")[1].rstrip(">"))

    def package(self, meta: Meta, items: list[Any]) -> tuple[str, str, tuple[str, ...]]:
        return ("package", str(items[0]), tuple(items[1]))

    def package_arguments(self, meta: Meta, items: list[Any]) -> list[str]:
        return [str(i) for i in items if i is not None]

    def constructor(self, meta: Meta, items: list[Any]) -> str:
        return str(items[0])

    def constant(self, meta: Meta, items: list[Any]) -> s.Constant:
        return s.Constant(_line(meta), items[0], str(items[1]), items[2])

    def typedef(self, meta: Meta, items: list[Any]) -> s.Typedef:
        return s.Typedef(_line(meta), items[0], str(items[1]))

    def header(self, meta: Meta, items: list[Any]) -> s.Record:
        return s.Record(_line(meta), "header", str(items[1]), tuple(items[2:]))

    def struct(self, meta: Meta, items: list[Any]) -> s.Record:
        return s.Record(_line(meta), "struct", str(items[1]), tuple(items[2:]))

    def field(self, meta: Meta, items: list[Any]) -> s.Field:
        return s.Field(_line(meta), items[1], str(items[2]))

    def annotations(self, meta: Meta, items: list[Any]) -> tuple[Any, ...]:
        return tuple(items)

    def annotation(self, meta: Meta, items: list[Any]) -> tuple[str, str | int | None]:
        name, value = str(items[0]), items[1]
        if value is None:
            return (name, None)
        text = str(value)
        return (name, text[1:-1] if text.startswith('"') else _number(text))

    def bit_type(self, meta: Meta, items: list[Any]) -> s.TypeName:
        width = _number(str(items[0]))
        if not 1 <= width <= 1 << 20:
            raise P4Error(f"bit<{width}> has no such width", _line(meta))
        return s.TypeName(_line(meta), "bit", width)

    def bool_type(self, meta: Meta, items: list[Any]) -> s.TypeName:
        return s.TypeName(_line(meta), "bool")

    def named_type(self, meta: Meta, items: list[Any]) -> s.TypeName:
        return s.TypeName(_line(meta), str(items[0]))

    def parameters(self, meta: Meta, items: list[Any]) -> tuple[s.Parameter, ...]:
        return tuple(i for i in items if i is not None)

    def parameter(self, meta: Meta, items: list[Any]) -> s.Parameter:
        direction = str(items[0]) if items[0] is not None else ""
        return s.Parameter(_line(meta), direction, items[1], str(items[2]))

    def parser(self, meta: Meta, items: list[Any]) -> s.Parser:
        return s.Parser(_line(meta), str(items[1]), items[2], tuple(items[3:]))

    def state(self, meta: Meta, items: list[Any]) -> s.State:
        name, statements, (keys, cases) = items
        return s.State(_line(meta), str(name), statements, keys, cases)

    def goto(self, meta: Meta, items: list[Any]) -> tuple[Any, Any]:
        return (), (s.SelectCase(_line(meta), (), str(items[0])),)

    def select(self, meta: Meta, items: list[Any]) -> tuple[Any, Any]:
        return items[0], tuple(items[1:])

    def select_case(self, meta: Meta, items: list[Any]) -> s.SelectCase:
        return s.SelectCase(_line(meta), items[0], str(items[1]))

    def default_keyset(self, meta: Meta, items: list[Any]) -> tuple[Any, ...]:
        return ()

    def keys(self, meta: Meta, items: list[Any]) -> tuple[Any, ...]:
        return tuple(items)

    def control(self, meta: Meta, items: list[Any]) -> s.Control:
        locals_ = items[3:-1]

        def of(kind: type) -> tuple[Any, ...]:
            return tuple(i for i in locals_ if isinstance(i, kind))

        return s.Control(
            line=_line(meta),
            name=str(items[1]),
            parameters=items[2],
            actions=of(s.Action),
            tables=of(s.Table),
            variables=of(s.Variable),
            instances=of(s.Instance),
            body=items[-1].statements,
        )

    def action(self, meta: Meta, items: list[Any]) -> s.Action:
        annotations, name, parameters, body = items
        return s.Action(_line(meta), str(name), annotations, parameters, body.statements)

    def table(self, meta: Meta, items: list[Any]) -> s.Table:
        properties: dict[str, Any] = {}
        for key, value in items[2:]:
            if key in properties:
                raise P4Error(f"table {items[1]} has two properties {key}", _line(meta))
            properties[key] = value
        default = properties.get("default")
        return s.Table(
            line=_line(meta),
            name=str(items[1]),
            annotations=items[0],
            keys=properties.get("keys", ()),
            actions=properties.get("actions", ()),
            default=default[:2] if default else None,
            constant_default=bool(default and default[2]),
        )

    def table_keys(self, meta: Meta, items: list[Any]) -> tuple[str, Any]:
        return ("keys", tuple(items))

    def key(self, meta: Meta, items: list[Any]) -> tuple[Any, str]:
        return (items[0], str(items[1]))

    def table_actions(self, meta: Meta, items: list[Any]) -> tuple[str, Any]:
        return ("actions", tuple(str(i) for i in items))

    def table_default(self, meta: Meta, items: list[Any]) -> tuple[str, Any]:
        return ("default", (str(items[1]), items[2], items[0] is not None))

    def table_size(self, meta: Meta, items: list[Any]) -> tuple[str, Any]:
        return ("size", _number(str(items[0])))

    def variable(self, meta: Meta, items: list[Any]) -> s.Variable:
        return s.Variable(_line(meta), items[1], str(items[2]), items[3])

    def instance(self, meta: Meta, items: list[Any]) -> s.Instance:
        return s.Instance(_line(meta), str(items[1]), str(items[2]))

    def block(self, meta: Meta, items: list[Any]) -> s.Block:
        return s.Block(_line(meta), items[0])

    def statements(self, meta: Meta, items: list[Any]) -> tuple[Any, ...]:
        return tuple(i for i in items if i is not None)

    def empty(self, meta: Meta, items: list[Any]) -> None:
        return None

    def assign(self, meta: Meta, items: list[Any]) -> s.Assign:
        return s.Assign(_line(meta), items[0], items[1])

    def assign_slice(self, meta: Meta, items: list[Any]) -> s.Assign:
        path, high, low, value = items
        return s.Assign(_line(meta), path, value, (_number(str(high)), _number(str(low))))

    def call_statement(self, meta: Meta, items: list[Any]) -> s.CallStatement:
        return s.CallStatement(_line(meta), items[0])

    def conditional(self, meta: Meta, items: list[Any]) -> s.If:
        condition, then, otherwise = items
        if otherwise is None:
            rest: tuple[Any, ...] = ()
        else:
            rest = otherwise.statements if isinstance(otherwise, s.Block) else (otherwise,)
        return s.If(_line(meta), condition, then.statements, rest)

    def local_variable(self, meta: Meta, items: list[Any]) -> s.Variable:
        return s.Variable(_line(meta), items[0], str(items[1]), items[2])

    def expressions(self, meta: Meta, items: list[Any]) -> tuple[Any, ...]:
        return tuple(i for i in items if i is not None)

    def ternary(self, meta: Meta, items: list[Any]) -> s.Ternary:
        return s.Ternary(_line(meta), *items)

    def binary(self, meta: Meta, items: list[Any]) -> s.Binary:
        left, operator, right = items
        return s.Binary(_line(meta), str(operator), left, right)

    def unary(self, meta: Meta, items: list[Any]) -> s.Unary:
        return s.Unary(_line(meta), str(items[0]), items[1])

    def cast(self, meta: Meta, items: list[Any]) -> s.Cast:
        return s.Cast(_line(meta), items[0], items[1])

    def slice(self, meta: Meta, items: list[Any]) -> s.Slice:
        return s.Slice(_line(meta), items[0], _number(str(items[1])), _number(str(items[2])))

    def number(self, meta: Meta, items: list[Any]) -> s.Number:
        return s.Number(_line(meta), _number(str(items[0])), None)

    def wide(self, meta: Meta, items: list[Any]) -> s.Number:
        return _wide(items[0])

    def true(self, meta: Meta, items: list[Any]) -> s.Boolean:
        return s.Boolean(_line(meta), True)

    def false(self, meta: Meta, items: list[Any]) -> s.Boolean:
        return s.Boolean(_line(meta), False)

    def path(self, meta: Meta, items: list[Any]) -> s.PathName:
        return s.PathName(_line(meta), tuple(str(i) for i in items))

    def call(self, meta: Meta, items: list[Any]) -> s.Call:
        return s.Call(_line(meta), items[0], items[1])
