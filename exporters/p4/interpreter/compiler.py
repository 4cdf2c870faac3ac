"""Checks a P4 program as a compiler does and turns it into closures over frames."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from n3ic.exporters.p4.interpreter import syntax as s
from n3ic.exporters.p4.interpreter.architecture import (
    ARCHITECTURES,
    BlockShape,
    Role,
)
from n3ic.exporters.p4.interpreter.errors import P4Error
from n3ic.exporters.p4.interpreter.expressions import (
    Closure,
    Constant,
    Scope,
    Variable,
    boolean,
    check_slice,
    coerce,
    compile_expression,
    header,
    port,
    reader,
    resolve,
)
from n3ic.exporters.p4.interpreter.growth import check_growth
from n3ic.exporters.p4.interpreter.steps import (
    PacketTooShort,
    emit,
    extract,
    set_validity,
    store,
    store_checked,
)
from n3ic.exporters.p4.interpreter.tables import CompiledAction, RuntimeTable
from n3ic.exporters.p4.interpreter.types import (
    Bit,
    Bool,
    Extern,
    Frame,
    Layout,
    Leaf,
    Node,
    RecordType,
    Storage,
    Type,
    bits_of,
)

_MAX_STATES = 1000


class Compiler:
    """A checked program.

    Attributes:
        architecture: what it was written for.
        layout: the slots of all its variables.
        tables: its tables by control-plane name.
        roles: types of headers, metadata, intrinsic metadata and digest.
        parse: runs the parser.
        blocks: title and steps of each block between parser and deparser.
        deparse: steps of the deparser.
    """

    parse: Closure
    deparse: list[Closure]

    def __init__(self, program: s.Program, field_bits: int) -> None:
        self.program = program
        self._field_bits = field_bits
        self.layout = Layout()
        self.tables: dict[str, RuntimeTable] = {}
        self.roles: dict[Role, RecordType] = {}
        self._storage: dict[Role, Storage] = {}
        self._applied: set[str] = set()
        if program.package not in ARCHITECTURES:
            known = ", ".join(ARCHITECTURES)
            raise P4Error(f"main is a {program.package}; known packages: {known}")
        self.architecture = ARCHITECTURES[program.package]
        for needed in ("core.p4", self.architecture.include):
            if needed not in program.includes:
                raise P4Error(f"#include <{needed}> is missing")
        self._types = self._declare_types()
        self._globals = self._declare_constants()
        self._parsers = _unique(program.parsers, "parser")
        self._controls = _unique(program.controls, "control")
        self._compile_package()

    # --- declarations ----------------------------------------------------------------------

    def _declare_types(self) -> dict[str, Type]:
        types: dict[str, Type] = {name: Bit(w) for name, w in self.architecture.typedefs}
        types[self.architecture.intrinsic.name] = self.architecture.intrinsic
        types["packet_in"], types["packet_out"] = Extern("packet_in"), Extern("packet_out")
        declared: list[s.Typedef | s.Record] = [*self.program.typedefs, *self.program.records]
        for item in sorted(declared, key=lambda d: d.line):
            if item.name in types:
                raise P4Error(f"type {item.name} is declared twice", item.line)
            if isinstance(item, s.Typedef):
                types[item.name] = self._type(item.type, types)
                continue
            _unique(item.fields, f"field of {item.name}")
            fields = tuple((f.name, self._type(f.type, types)) for f in item.fields)
            record = RecordType(item.kind, item.name, fields)
            if item.kind == "header":
                if any(not isinstance(t, Bit) for _, t in fields):
                    raise P4Error(f"header {item.name} has fields of bit<N> only", item.line)
                if bits_of(record) % 8:
                    bits = bits_of(record)
                    raise P4Error(f"header {item.name} has {bits} bits, not bytes", item.line)
            types[item.name] = record
        return types

    def _type(self, name: s.TypeName, types: dict[str, Type] | None = None) -> Type:
        if name.name == "bool":
            return Bool()
        if name.name == "bit":
            if name.width > self._field_bits:
                raise P4Error(f"bit<{name.width}>: p4c takes {self._field_bits} at most", name.line)
            return Bit(name.width)
        known = self._types if types is None else types
        if name.name not in known:
            raise P4Error(f"type {name.name} is not declared", name.line)
        return known[name.name]

    def _declare_constants(self) -> Scope:
        scope = Scope()
        for item in self.program.constants:
            kind = self._type(item.type)
            value = coerce(compile_expression(item.value, scope), kind, item.line)
            if value.constant is None:
                raise P4Error(f"{item.name} is not known at compile time", item.line)
            scope.declare(item.name, Constant(kind, value.constant), item.line)
        return scope

    # --- the package -----------------------------------------------------------------------

    def _compile_package(self) -> None:
        names, shapes = self.program.blocks, self.architecture.blocks
        if len(names) != len(shapes):
            raise P4Error(f"{self.architecture.package} takes {len(shapes)} blocks")
        self.blocks: list[tuple[str, list[Closure]]] = []
        for name, shape in zip(names, shapes, strict=True):
            if shape.kind == "parser":
                parser = _named(self._parsers, name, "parser")
                self._bind_roles(parser.parameters, shape, name, parser.line)
                self.parse = self._compile_parser(parser, self._scope(parser.parameters, shape))
                continue
            control = _named(self._controls, name, "control")
            self._bind_roles(control.parameters, shape, name, control.line)
            steps = self._compile_control(control, self._scope(control.parameters, shape), name)
            if "packet_out" in [role for _, role in shape.parameters]:
                self.deparse = steps
            else:
                self.blocks.append((shape.title, steps))

    def _bind_roles(
        self, parameters: tuple[s.Parameter, ...], shape: BlockShape, name: str, line: int
    ) -> None:
        wanted = [d for d, _ in shape.parameters]
        if [p.direction for p in parameters] != wanted:
            raise P4Error(f"{name}: the {shape.title} has the parameters {wanted}", line)
        for parameter, (_, role) in zip(parameters, shape.parameters, strict=True):
            kind = self._type(parameter.type)
            if role in ("packet_in", "packet_out"):
                if kind != Extern(role):
                    raise P4Error(f"{name}: {parameter.name} is a {role}", parameter.line)
                self._storage[role] = self.layout.allocate(kind, role, None)
                continue
            if not isinstance(kind, RecordType):
                raise P4Error(f"{name}: {parameter.name} is a struct", parameter.line)
            if self.roles.setdefault(role, kind) != kind:
                raise P4Error(f"{name}: {role} is {self.roles[role]} elsewhere", parameter.line)
            if role not in self._storage:
                if role == "intrinsic" and kind != self.architecture.intrinsic:
                    raise P4Error(f"{name}: {kind} is not intrinsic", parameter.line)
                if role == "digest" and bits_of(kind) != self.architecture.digest_bits:
                    bits = self.architecture.digest_bits
                    raise P4Error(f"digest data has {bits_of(kind)} bits, not {bits}", line)
                start = 0 if role == "intrinsic" or self.architecture.zeroed else None
                self._storage[role] = self.layout.allocate(kind, role, start)

    def _scope(self, parameters: tuple[s.Parameter, ...], shape: BlockShape) -> Scope:
        scope = Scope(self._globals)
        for parameter, (direction, role) in zip(parameters, shape.parameters, strict=True):
            variable = Variable(self._storage[role], direction in ("out", "inout"))
            scope.declare(parameter.name, variable, parameter.line)
        return scope

    # --- parsers ---------------------------------------------------------------------------

    def _compile_parser(self, parser: s.Parser, scope: Scope) -> Closure:
        states = _unique(parser.states, "state")
        if "start" not in states:
            raise P4Error(f"parser {parser.name} has no state start", parser.line)
        compiled: dict[str, tuple[list[Closure], Any]] = {}
        for state in parser.states:
            steps = self._statements(state.statements, Scope(scope), _Context(parser=True))
            compiled[state.name] = (steps, self._transition(state, states, scope))

        def run(frame: Frame) -> None:
            state = "start"
            try:
                for _ in range(_MAX_STATES):
                    steps, choose = compiled[state]
                    for step in steps:
                        step(frame)
                    state = choose(frame)
                    if state in ("accept", "reject"):
                        return
            except PacketTooShort:
                return
            raise P4Error(f"parser {parser.name} does not end")

        return run

    def _transition(
        self, state: s.State, states: dict[str, s.State], scope: Scope
    ) -> Callable[[Frame], str]:
        for case in state.cases:
            if case.state not in states and case.state not in ("accept", "reject"):
                raise P4Error(f"there is no state {case.state}", case.line)
        if not state.keys:
            target = state.cases[0].state
            return lambda _: target
        keys = [compile_expression(k, scope) for k in state.keys]
        fallback = "reject"
        table: dict[tuple[int, ...], str] = {}
        for position, case in enumerate(state.cases):
            if not case.keys:
                if position != len(state.cases) - 1:
                    raise P4Error("nothing comes after default", case.line)
                fallback = case.state
                continue
            if len(case.keys) != len(keys):
                raise P4Error(f"select has {len(keys)} keys", case.line)
            values = []
            for given, key in zip(case.keys, keys, strict=True):
                value = coerce(compile_expression(given, scope), key.type, case.line)
                if value.constant is None:
                    raise P4Error("a case is known at compile time", case.line)
                values.append(value.constant)
            table.setdefault(tuple(values), case.state)
        return lambda frame: table.get(tuple(k.run(frame) for k in keys), fallback)

    # --- controls --------------------------------------------------------------------------

    def _compile_control(self, control: s.Control, outer: Scope, plane: str) -> list[Closure]:
        scope = Scope(outer)
        for variable in control.variables:
            kind = self._type(variable.type)
            storage = self.layout.allocate(kind, f"{plane}.{variable.name}", None)
            scope.declare(variable.name, Variable(storage, True), variable.line)
        members: list[s.Action | s.Table | s.Instance] = [
            *control.actions,
            *control.tables,
            *control.instances,
        ]
        _unique(members, f"member of control {control.name}")
        for member in members:
            if scope.find(member.name) is not None:
                raise P4Error(f"{member.name} hides another name", member.line)
        actions = {a.name: self._action(a, scope, plane) for a in control.actions}
        actions.setdefault("NoAction", CompiledAction("NoAction", (), ()))
        tables = {t.name: self._table(t, actions, scope, plane) for t in control.tables}
        instances = {i.name: i for i in control.instances}
        context = _Context(plane=plane, actions=actions, tables=tables, instances=instances)
        check_growth(f"control {control.name}", control.body, control.line)
        start = self._initialisers(control.variables, scope)
        return [*start, *self._statements(control.body, Scope(scope), context)]

    def _initialisers(self, variables: Iterable[s.Variable], scope: Scope) -> list[Closure]:
        steps = []
        for variable in variables:
            if variable.value is not None:
                target = s.PathName(variable.line, (variable.name,))
                steps.append(self._assign(s.Assign(variable.line, target, variable.value), scope))
        return steps

    def _action(self, action: s.Action, outer: Scope, plane: str) -> CompiledAction:
        check_growth(f"action {action.name}", action.body, action.line)
        scope = Scope(outer)
        parameters = []
        for parameter in action.parameters:
            kind = self._type(parameter.type)
            if not isinstance(kind, (Bit, Bool)) or parameter.direction not in ("", "in"):
                raise P4Error(f"{parameter.name}: action data is bit<N> or bool", parameter.line)
            leaf = self.layout.allocate(kind, f"{plane}.{action.name}.{parameter.name}", 0)
            assert isinstance(leaf, Leaf)  # noqa: S101 - bit<N> and bool are leaves
            scope.declare(parameter.name, Variable(leaf, False), parameter.line)
            parameters.append(leaf)
        body = self._statements(action.body, Scope(scope), _Context(action=True))
        name = _plane_name(action.annotations, f"{plane}.{action.name}")
        return CompiledAction(name, tuple(parameters), tuple(body))

    def _table(
        self, table: s.Table, actions: dict[str, CompiledAction], scope: Scope, plane: str
    ) -> RuntimeTable:
        name = _plane_name(table.annotations, f"{plane}.{table.name}")
        if name in self.tables:
            raise P4Error(f"two tables have the control-plane name {name}", table.line)
        if not table.keys and not self.architecture.keyless_tables:
            raise P4Error(f"table {table.name}: {self.architecture.name} needs a key", table.line)
        keys = []
        for expression, kind in table.keys:
            if kind != "exact":
                raise P4Error(f"match kind {kind} is not in the subset", table.line)
            keys.append(compile_expression(expression, scope))
        chosen: dict[str, CompiledAction] = {}
        limit = self.architecture.action_data_bytes
        for action_name in table.actions:
            if action_name not in actions:
                raise P4Error(f"action {action_name} is not declared", table.line)
            action = actions[action_name]
            data = -(-sum(bits_of(p.type) for p in action.parameters) // 8)
            if limit is not None and data > limit:
                raise P4Error(
                    f"table {table.name} gives {action_name} {data} bytes; "
                    f"{self.architecture.name} takes {limit} at most",
                    table.line,
                )
            chosen[action.name] = action
        default = table.default or ("NoAction", ())
        if default[0] not in table.actions and table.default is not None:
            raise P4Error(f"default action {default[0]} is not in actions", table.line)
        action = actions[default[0]]
        values = []
        if len(default[1]) != len(action.parameters):
            raise P4Error(f"{default[0]} needs {len(action.parameters)} arguments", table.line)
        for given, leaf in zip(default[1], action.parameters, strict=True):
            value = coerce(compile_expression(given, scope), leaf.type, table.line)
            if value.constant is None:
                raise P4Error("arguments of a default action are constants", table.line)
            values.append(value.constant)
        runtime = RuntimeTable(
            name, tuple(keys), chosen, table.constant_default, action.bind(values), action.name
        )
        self.tables[name] = runtime
        return runtime

    # --- statements ------------------------------------------------------------------------

    def _statements(
        self, statements: Iterable[s.Statement], scope: Scope, context: _Context
    ) -> list[Closure]:
        steps: list[Closure] = []
        for statement in statements:
            match statement:
                case s.Assign():
                    steps.append(self._assign(statement, scope))
                case s.Block(_, inner):
                    steps.extend(self._statements(inner, Scope(scope), context))
                case s.Variable():
                    steps.extend(self._local(statement, scope))
                case s.If():
                    steps.append(self._if(statement, scope, context))
                case s.CallStatement(_, call):
                    steps.extend(self._call(call, scope, context))
        return steps

    def _local(self, variable: s.Variable, scope: Scope) -> list[Closure]:
        kind = self._type(variable.type)
        storage = self.layout.allocate(kind, f"local.{variable.name}", None)
        assert isinstance(storage, Leaf)  # noqa: S101 - the grammar gives base types only
        slot = storage.slot

        def forget(frame: Frame) -> None:
            frame[slot] = None

        steps: list[Closure] = [forget]
        if variable.value is not None:
            value = coerce(compile_expression(variable.value, scope), kind, variable.line)
            steps = [store(slot, value.run)]
        scope.declare(variable.name, Variable(storage, True), variable.line)
        return steps

    def _assign(self, statement: s.Assign, scope: Scope) -> Closure:
        line = statement.line
        leaf = resolve(statement.target, scope, write=True)
        if not isinstance(leaf, Leaf):
            raise P4Error(f"{statement.target} is no single value", line)
        value = compile_expression(statement.value, scope)
        if statement.slice is None:
            return store_checked(leaf, coerce(value, leaf.type, line).run, line)
        high, low = statement.slice
        check_slice(leaf.type, high, low, line)
        run = coerce(value, Bit(high - low + 1), line).run
        keep = ((1 << bits_of(leaf.type)) - 1) ^ (((1 << (high - low + 1)) - 1) << low)
        old = reader(leaf, line)
        return store_checked(leaf, lambda frame: (old(frame) & keep) | (run(frame) << low), line)

    def _if(self, statement: s.If, scope: Scope, context: _Context) -> Closure:
        if context.action and not self.architecture.branch_in_action:
            raise P4Error(f"{self.architecture.name}: no if within an action", statement.line)
        if context.parser:
            raise P4Error("no if within a parser", statement.line)
        condition = compile_expression(statement.condition, scope)
        test = boolean(condition, statement.line).run
        then = self._statements(statement.then, Scope(scope), context)
        otherwise = self._statements(statement.otherwise, Scope(scope), context)

        def branch(frame: Frame) -> None:
            for step in then if test(frame) else otherwise:
                step(frame)

        return branch

    def _call(self, call: s.Call, scope: Scope, context: _Context) -> list[Closure]:
        *where, method = call.target.parts
        owner = s.PathName(call.line, tuple(where))
        if not where:
            return self._call_plain(method, call, scope, context)
        if method == "extract":
            port(owner, scope, "packet_in")
            node = header(_only_path(call), scope, write=True)
            return [extract(node)]
        if method == "emit":
            port(owner, scope, "packet_out")
            return [emit(header(_only_path(call), scope))]
        if method in ("setValid", "setInvalid") and not call.arguments:
            return [set_validity(header(owner, scope, write=True), method == "setValid")]
        if method == "apply" and len(where) == 1 and not context.action:
            return self._apply(where[0], call, scope, context)
        raise P4Error(f"{call.target}() is not in the subset here", call.line)

    def _call_plain(
        self, name: str, call: s.Call, scope: Scope, context: _Context
    ) -> list[Closure]:
        if name == "mark_to_drop" and self.architecture.name == "v1model":
            storage = resolve(_only_path(call), scope, write=True)
            if not isinstance(storage, Node) or storage.type != self.architecture.intrinsic:
                raise P4Error("mark_to_drop takes the standard metadata", call.line)
            leaf = storage.children[self.architecture.egress]
            assert isinstance(leaf, Leaf)  # noqa: S101 - a field of intrinsic metadata
            drop = self.architecture.drop
            return [store(leaf.slot, lambda _: drop)]
        action = context.actions.get(name)
        if action is None:
            raise P4Error(f"action {name} is not declared here", call.line)
        if len(call.arguments) != len(action.parameters):
            raise P4Error(f"{name} needs {len(action.parameters)} arguments", call.line)
        steps = [
            store(leaf.slot, coerce(compile_expression(a, scope), leaf.type, call.line).run)
            for a, leaf in zip(call.arguments, action.parameters, strict=True)
        ]
        return [*steps, *action.body]

    def _apply(self, name: str, call: s.Call, scope: Scope, context: _Context) -> list[Closure]:
        if name not in context.tables and name not in context.instances:
            raise P4Error(f"{name} is no table and no control", call.line)
        full = f"{context.plane}.{name}"
        if full in self._applied:
            raise P4Error(f"{name} is applied twice; bmv2 takes one application", call.line)
        self._applied.add(full)
        if name in context.tables:
            if call.arguments:
                raise P4Error(f"table {name} takes no arguments", call.line)
            return [context.tables[name].apply]
        instance = context.instances[name]
        control = _named(self._controls, instance.control, "control", instance.line)
        if len(call.arguments) != len(control.parameters):
            raise P4Error(f"{name} needs {len(control.parameters)} arguments", call.line)
        inner = Scope(self._globals)
        seen: set[tuple[str, ...]] = set()
        for argument, parameter in zip(call.arguments, control.parameters, strict=True):
            if not isinstance(argument, s.PathName):
                raise P4Error("a control takes variables", call.line)
            writes = parameter.direction in ("out", "inout")
            storage = resolve(argument, scope, write=writes)
            if storage.type != self._type(parameter.type):
                raise P4Error(f"{argument} is {storage.type}", call.line)
            # The arguments are bound by reference, which copy-in and copy-out equal only so.
            if any(_overlap(argument.parts, other) for other in seen):
                raise P4Error(f"{argument} is passed twice", call.line)
            seen.add(argument.parts)
            inner.declare(parameter.name, Variable(storage, writes), parameter.line)
        return self._compile_control(control, inner, full)


@dataclass(frozen=True)
class _Context:
    plane: str = ""
    parser: bool = False
    action: bool = False
    actions: dict[str, CompiledAction] = field(default_factory=dict)
    tables: dict[str, RuntimeTable] = field(default_factory=dict)
    instances: dict[str, s.Instance] = field(default_factory=dict)


def _overlap(a: tuple[str, ...], b: tuple[str, ...]) -> bool:
    shorter = min(len(a), len(b))
    return a[:shorter] == b[:shorter]


def _plane_name(annotations: tuple[tuple[str, Any], ...], full: str) -> str:
    for name, value in annotations:
        if name == "name" and isinstance(value, str):
            prefix = full.rpartition(".")[0]
            return value[1:] if value.startswith(".") else f"{prefix}.{value}"
    return full


def _unique(items: Iterable[Any], what: str) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for item in items:
        if item.name in out:
            raise P4Error(f"{what} {item.name} is declared twice", item.line)
        out[item.name] = item
    return out


def _named(items: dict[str, Any], name: str, what: str, line: int = 0) -> Any:
    if name not in items:
        raise P4Error(f"there is no {what} {name}", line)
    return items[name]


def _only_path(call: s.Call) -> s.PathName:
    if len(call.arguments) != 1 or not isinstance(call.arguments[0], s.PathName):
        raise P4Error(f"{call.target} takes one variable", call.line)
    return call.arguments[0]
