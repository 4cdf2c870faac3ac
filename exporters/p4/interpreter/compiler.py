# SPDX-License-Identifier: Apache-2.0
"""Compiles a P4 program to closures over frames.

The compiler checks names, widths, and constructs known to break p4c or bmv2. Only p4c checks all
rules of the language.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from n3ic.exporters.p4.interpreter import syntax as s
from n3ic.exporters.p4.interpreter.architecture import ARCHITECTURES, BlockShape, Role
from n3ic.exporters.p4.interpreter.errors import P4Error
from n3ic.exporters.p4.interpreter.expression_growth import check_growth
from n3ic.exporters.p4.interpreter.expressions import (
    CompiledExpression,
    Scope,
    compile_expression,
    fit,
    header,
    leaf,
    resolve,
)
from n3ic.exporters.p4.interpreter.meters import RuntimeMeter
from n3ic.exporters.p4.interpreter.steps import (
    KEPT,
    PacketTooShort,
    Step,
    emit,
    extract,
    set_valid,
    store,
    validity,
)
from n3ic.exporters.p4.interpreter.tables import CompiledAction, RuntimeTable
from n3ic.exporters.p4.interpreter.types import (
    Bit,
    Extern,
    Frame,
    FrameLayout,
    RecordSlots,
    RecordType,
    Storage,
    Type,
    ValueSlot,
    bits_of,
)

_MAX_STATES = 1000
_DEFAULT_SIZE = 1024  # entries of a table without a size, as in p4c


class ProgramCompiler:
    """A compiled program.

    Attributes:
        architecture: architecture that the program is written for.
        layout: slots of all its variables.
        tables: tables by control-plane name.
        meters: meters by control-plane name.
        roles: types of headers, metadata, intrinsic metadata and digest.
        parse: closure that runs the parser.
        blocks: title and steps of each block between parser and deparser.
        deparse: steps of the deparser.
    """

    parse: Step
    deparse: list[Step]
    _types: dict[str, Type]

    def __init__(self, program: s.SourceProgram, field_bits: int) -> None:
        self._field_bits = field_bits
        self.layout = FrameLayout()
        self.tables: dict[str, RuntimeTable] = {}
        self.meters: dict[str, RuntimeMeter] = {}
        self._field_lists: dict[str, dict[str, int]] = {}
        self._block = ""
        self._storage: dict[Role, Storage] = {}
        self._applied: set[str] = set()
        package, blocks = program.blocks()
        if package.name not in ARCHITECTURES:
            raise P4Error(f"main must be one of {', '.join(ARCHITECTURES)}; it is {package.name}")
        self.architecture = ARCHITECTURES[package.name]
        self.roles: dict[Role, Type] = dict(self.architecture.intrinsics)
        included = "\n".join(i.directive for i in program.of(s.Include))
        for needed in ("core.p4", self.architecture.include):
            if f"<{needed}>" not in included:
                raise P4Error(f"#include <{needed}> is missing")
        self._declare_types(program.of(s.RecordDeclaration))
        self._constants = self._declare_constants(program.of(s.ConstantDeclaration))
        self._parsers = _unique(program.of(s.ParserDeclaration), "parser")
        self._controls = _unique(program.of(s.ControlDeclaration), "control")
        self.blocks: list[tuple[str, list[Step]]] = []
        self._compile_package(package, blocks)

    # --- declarations ----------------------------------------------------------------------

    def _declare_types(self, records: Iterable[s.RecordDeclaration]) -> None:
        self._types = {
            **{kind.name: kind for kind in self.architecture.intrinsics.values()},
            **{name: Extern(name) for name in ("packet_in", "packet_out")},
        }
        for item in records:
            if item.name in self._types:
                raise P4Error(f"type {item.name} is declared twice", item.line)
            named = _unique(item.fields, f"field of {item.name}")
            fields = tuple((name, self._type(f.type)) for name, f in named.items())
            record = RecordType(item.kind, item.name, fields)
            if item.kind == "header" and bits_of(record) % 8:
                bits = bits_of(record)
                raise P4Error(f"header {item.name} has {bits} bits, not bytes", item.line)
            self._types[item.name] = record
            self._field_lists[item.name] = {
                f.name: s.number(text)
                for f in item.fields
                for name, text in f.annotations
                if name == "field_list"
            }

    def _type(self, name: s.TypeName) -> Type:
        if name.width > self._field_bits:
            raise P4Error(f"bit<{name.width}>: p4c accepts at most {self._field_bits}", name.line)
        if name.width:
            return Bit(name.width)
        known: Type = _named(self._types, name.name, "type", name.line)
        return known

    def _declare_constants(
        self, items: Iterable[s.ConstantDeclaration]
    ) -> dict[str, CompiledExpression]:
        constants: dict[str, CompiledExpression] = {}
        for item in items:
            kind = self._type(item.type)
            value = compile_expression(
                item.value, Scope({}, constants, self.architecture.most_shift)
            )
            if value.constant is None or item.name in constants:
                raise P4Error(f"{item.name} is not a constant, or declared twice", item.line)
            constants[item.name] = fit(value, bits_of(kind), item.line)
        return constants

    # --- the package -----------------------------------------------------------------------

    def _compile_package(self, package: s.Package, blocks: tuple[str, ...]) -> None:
        shapes = self.architecture.blocks
        if len(blocks) != len(shapes):
            raise P4Error(f"{package.name} takes {len(shapes)} blocks", package.line)
        for name, shape in zip(blocks, shapes, strict=True):
            if shape.kind == "engine":
                if name != shape.title:
                    raise P4Error(f"{package.name} takes {shape.title}, not {name}", package.line)
                continue
            if shape.kind.startswith("idle"):
                self._check_idle(package, name, shape)
                continue
            if shape.kind == "parser":
                parser = _named(self._parsers, name, "parser", package.line)
                self.parse = self._compile_parser(parser, self._scope(parser, shape))
                continue
            control = _named(self._controls, name, "control", package.line)
            self._block = shape.title
            steps = self._compile_control(control, self._scope(control, shape), name)
            if "packet_out" in shape.parameters:
                self.deparse = steps
            else:
                self.blocks.append((shape.title, steps))

    def _check_idle(self, package: s.Package, name: str, shape: BlockShape) -> None:
        """Refuse a block that does something, which the interpreter would not run."""
        block: s.ParserDeclaration | s.ControlDeclaration
        if shape.kind == "idle parser":
            block = parser = _named(self._parsers, name, "parser", package.line)
            (state, *more) = parser.states
            done = [case.state for case in state.transition[1]]
            idle = not more and not state.statements and done == ["accept"]
        else:
            block = control = _named(self._controls, name, "control", package.line)
            idle = not control.members and not control.body
        self._scope(block, shape)
        if not idle:
            raise P4Error(f"{name}: the {shape.title} must do nothing here", block.line)

    def _scope(self, block: s.ParserDeclaration | s.ControlDeclaration, shape: BlockShape) -> Scope:
        if len(block.parameters) != len(shape.parameters):
            raise P4Error(
                f"{block.name}: the {shape.title} has the parameters {shape.parameters}", block.line
            )
        variables = {}
        for parameter, role in zip(block.parameters, shape.parameters, strict=True):
            kind = self._type(parameter.type)
            # All blocks share one instance of headers and metadata, so their types must agree.
            if self.roles.setdefault(role, kind) != kind or isinstance(kind, Bit):
                raise P4Error(f"{block.name}: {role} is {self.roles[role]}", parameter.line)
            if role not in self._storage:
                if role == "digest" and bits_of(kind) != self.architecture.digest_bits:
                    bits = self.architecture.digest_bits
                    raise P4Error(f"digest data has {bits_of(kind)} bits, not {bits}", block.line)
                known = role in self.architecture.intrinsics or self.architecture.zeroed
                start = 0 if known else None
                self._storage[role] = self.layout.allocate(kind, role, start)
            variables[parameter.name] = self._storage[role]
        return Scope(variables, self._constants, self.architecture.most_shift)

    # --- parsers ---------------------------------------------------------------------------

    def _compile_parser(self, parser: s.ParserDeclaration, scope: Scope) -> Step:
        states = _unique(parser.states, "state")
        _named(states, "start", "state", parser.line)
        compiled = {
            state.name: (
                self._statements(state.statements, scope, _Members()),
                self._transition(state, states, scope),
            )
            for state in parser.states
        }

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
                return  # v1model goes on with the ingress: the header stays invalid
            raise P4Error(f"parser {parser.name} does not terminate")

        return run

    def _transition(
        self, state: s.ParserState, states: Mapping[str, Any], scope: Scope
    ) -> Callable[[Frame], str]:
        selected, cases = state.transition
        for case in cases:
            if case.state not in states and case.state not in ("accept", "reject"):
                raise P4Error(f"the parser has no state {case.state}", case.line)
        keys = [compile_expression(k, scope) for k in selected]
        fallback = "reject"
        table: dict[tuple[int, ...], str] = {}
        for case in cases:
            if not case.keys:
                fallback = case.state
                break  # cases after default are never reached
            if len(case.keys) != len(keys):
                raise P4Error(f"select has {len(keys)} keys", case.line)
            values = [
                _constant(fit(compile_expression(case_key, scope), key.sized, case.line), case.line)
                for case_key, key in zip(case.keys, keys, strict=True)
            ]
            table.setdefault(tuple(values), case.state)  # the first of equal cases wins
        return lambda frame: table.get(tuple(k.run(frame) for k in keys), fallback)

    # --- controls --------------------------------------------------------------------------

    def _compile_control(
        self, control: s.ControlDeclaration, scope: Scope, plane: str
    ) -> list[Step]:
        _unique(control.members, f"member of control {control.name}")
        members = _Members(plane, {"NoAction": CompiledAction("NoAction", (), ())})
        # Actions use meters, and tables use actions, wherever the source declares them.
        for member in control.members:
            if isinstance(member, s.MeterInstance):
                members.meters[member.name] = self._meter(member, plane)
        for member in control.members:
            match member:
                case s.ActionDeclaration():
                    members.actions[member.name] = self._action(member, scope, members)
                case s.ControlInstance():
                    members.instances[member.name] = member
        for member in control.members:
            if isinstance(member, s.TableDeclaration):
                members.tables[member.name] = self._table(member, members.actions, scope, plane)
        check_growth(f"control {control.name}", control.body, control.line)
        return self._statements(control.body, scope, members)

    def _meter(self, meter: s.MeterInstance, plane: str) -> RuntimeMeter:
        name = _plane_name(meter.annotations, f"{plane}.{meter.name}")
        if self.architecture.include != "v1model.p4" or name in self.meters:
            raise P4Error(f"meter {name} is declared twice, or not of v1model", meter.line)
        self.meters[name] = RuntimeMeter(name, s.number(meter.size), meter.unit == "bytes")
        return self.meters[name]

    def _action(
        self, action: s.ActionDeclaration, outer: Scope, members: _Members
    ) -> CompiledAction:
        plane = members.plane
        check_growth(f"action {action.name}", action.body, action.line)
        parameters: dict[str, ValueSlot] = {}
        for parameter in action.parameters:
            slot = self.layout.allocate(  # from 0: an entry's data is stored before the body runs
                self._type(parameter.type), f"{plane}.{action.name}.{parameter.name}", 0
            )
            if not isinstance(slot, ValueSlot):
                raise P4Error(f"{parameter.name}: action data is bit<N>", parameter.line)
            parameters[parameter.name] = slot
        scope = replace(outer, variables={**outer.variables, **parameters})
        # P4-SDNet allows no branch there, and hardware targets of v1model may not either.
        if any(isinstance(statement, s.Conditional) for statement in action.body):
            raise P4Error(f"{action.name}: an action must not contain if", action.line)
        body = self._statements(action.body, scope, _Members(plane, meters=members.meters))
        name = _plane_name(action.annotations, f"{plane}.{action.name}")
        return CompiledAction(name, tuple(parameters.values()), tuple(body))

    def _table(
        self,
        table: s.TableDeclaration,
        actions: Mapping[str, CompiledAction],
        scope: Scope,
        plane: str,
    ) -> RuntimeTable:
        name = _plane_name(table.annotations, f"{plane}.{table.name}")
        if name in self.tables:
            raise P4Error(f"two tables have the control-plane name {name}", table.line)
        keys = tuple(compile_expression(key.value, scope) for key in table.keys or ())
        matches = tuple(key.match for key in table.keys or ())
        chosen = [_named(actions, each, "action", table.line) for each in table.actions]
        default = _named(actions, table.default, "action", table.line)
        if default not in chosen:
            raise P4Error(f"default action {table.default} is not in actions", table.line)
        size = _DEFAULT_SIZE if table.size is None else s.number(table.size)
        out = RuntimeTable(
            name, keys, matches, {action.name: action for action in chosen}, size, default.bind(())
        )
        self.tables[name] = out
        if table.entries is not None:
            if matches != ("exact",):
                raise P4Error(f"{name}: constant entries need one exact key", table.line)
            for entry in table.entries:
                action = _named(actions, entry.action, "action", entry.line)
                slots, data = action.parameters, entry.data or ()
                if len(slots) != len(data):
                    raise P4Error(f"{entry.action} takes {len(slots)} numbers", entry.line)
                values = [
                    self._constant(each, slot.type.width, scope)
                    for each, slot in zip(data, slots, strict=True)
                ]
                key = self._constant(entry.key, keys[0].sized, scope)
                out.add(action.name, (key,), values, None)
            out.constant = True
        return out

    def _constant(self, expression: s.Expression, width: int, scope: Scope) -> int:
        value = fit(compile_expression(expression, scope), width, expression.line).constant
        if value is None:
            raise P4Error("a constant entry has numbers alone", expression.line)
        return value

    # --- statements ------------------------------------------------------------------------

    def _statements(
        self, statements: Iterable[s.Statement], scope: Scope, members: _Members
    ) -> list[Step]:
        steps: list[Step] = []
        for statement in statements:
            match statement:
                case s.Assignment(target=target, value=value):
                    slot = leaf(target, scope)
                    width, line = slot.type.width, statement.line
                    run = fit(compile_expression(value, scope), width, line).run
                    steps.append(store(slot, run, line))
                case s.Conditional():
                    steps.append(self._if(statement, scope, members))
                case s.CallStatement():
                    steps.extend(self._call(statement, scope, members))
        return steps

    def _if(self, statement: s.Conditional, scope: Scope, members: _Members) -> Step:
        holds = self._test(statement.test, statement.line, scope)
        then = self._statements(statement.then, scope, members)

        def branch(frame: Frame) -> None:
            if holds(frame):
                for step in then:
                    step(frame)

        return branch

    def _test(
        self, test: s.PathName | s.Comparison, line: int, scope: Scope
    ) -> Callable[[Frame], bool]:
        if isinstance(test, s.Comparison):
            left = compile_expression(test.left, scope)
            if left.width is None:
                raise P4Error("a comparison begins with a value that has a width", line)
            right = fit(compile_expression(test.right, scope), left.sized, line)
            equal = test.operator == "=="
            return lambda frame: (left.run(frame) == right.run(frame)) is equal
        *where, method = test.parts
        if method != "isValid" or not where:
            raise P4Error(f"{test}() is not a condition of the subset", line)
        valid = validity(header(s.PathName(line, tuple(where)), scope))
        return lambda frame: bool(frame[valid])

    def _call(self, call: s.CallStatement, scope: Scope, members: _Members) -> list[Step]:
        *where, method = call.target.parts
        owner = s.PathName(call.line, tuple(where))
        match method, where, call.arguments:
            case "extract", [_], [s.PathName() as path]:
                _port(owner, scope, "packet_in")
                return [extract(header(path, scope))]
            case "emit", [_], [s.PathName() as path]:
                _port(owner, scope, "packet_out")
                return [emit(header(path, scope))]
            case "setValid", [_, *_], []:
                return [set_valid(header(owner, scope))]
            case "mark_to_drop", [], [s.PathName(parts=parts)] if not self.architecture.sends:
                egress = (*parts, self.architecture.egress[1])
                slot, drop = leaf(s.PathName(call.line, egress), scope), self.architecture.drop
                return [store(slot, lambda _: drop, call.line)]
            case "send_to_port", [], [*output, port] if self.architecture.sends:
                sent = fit(compile_expression(port, scope), s.PORT_BITS, call.line).run
                return [store(self._output(call, output, scope), sent, call.line)]
            case ("ingress_drop" | "drop_packet") as name, [], output if (
                self.architecture.sends and name not in members.actions
            ):
                if (name == "ingress_drop") != (self.architecture.include == "psa.p4"):
                    raise P4Error(f"{self.architecture.name} has no {name}", call.line)
                drop = self.architecture.drop
                return [store(self._output(call, output, scope), lambda _: drop, call.line)]
            case "execute_meter", [name], [index, s.PathName() as path] if name in members.meters:
                meter, size = members.meters[name], self._intrinsic("packet_length")
                time = self._intrinsic("ingress_global_timestamp")
                which = fit(compile_expression(index, scope), 32, call.line).run
                return [
                    store(
                        leaf(path, scope),
                        lambda frame: meter.execute(which(frame), frame[size], frame[time]),
                        call.line,
                    )
                ]
            case "resubmit_preserving_field_list", [], [s.NumberLiteral(value=number)]:
                return [self._resubmit(number, call.line)]
            case "apply", [name], _ if name in members.tables:
                self._apply_once(f"{members.plane}.{name}", call.line)
                return [members.tables[name].apply]
            case "apply", [name], _ if name in members.instances:
                return self._apply_control(members.instances[name], call, scope, members)
            case _, [], [] if method in members.actions:
                return list(members.actions[method].body)
        raise P4Error(f"{call.target}() is not supported here", call.line)

    def _output(
        self, call: s.CallStatement, given: Sequence[s.Expression], scope: Scope
    ) -> ValueSlot:
        """The port that a packet leaves through, which a function of PSA or PNA sets."""
        role, name = self.architecture.egress
        storage = self._storage[role]
        assert isinstance(storage, RecordSlots)  # noqa: S101 - the architecture's own struct
        # In PSA the output is an argument; in PNA it is implied.
        named = [resolve(each, scope) for each in given if isinstance(each, s.PathName)]
        wanted = [storage] if self.architecture.include == "psa.p4" else []
        if self._block != "ingress" or len(given) != len(wanted) or named != wanted:
            raise P4Error(
                f"{call.target}() is not called as {self.architecture.name} has it", call.line
            )
        slot = storage.children[name]
        assert isinstance(slot, ValueSlot)  # noqa: S101
        return slot

    def _intrinsic(self, name: str) -> int:
        """The slot of an intrinsic metadata field."""
        return self.layout.leaves[f"intrinsic.{name}"]

    def _resubmit(self, number: int, line: int) -> Step:
        """Mark the packet for another pass in its original form, after the ingress."""
        if self._block != "ingress":
            raise P4Error("only the ingress may resubmit packets", line)
        metadata = self.roles["metadata"]
        assert isinstance(metadata, RecordType)  # noqa: S101 - _scope takes no other
        preserved = tuple(
            self.layout.leaves[f"metadata.{name}"]
            for name, list_number in self._field_lists[metadata.name].items()
            if list_number == number
        )

        def again(frame: Frame) -> None:
            frame[KEPT] = preserved

        return again

    def _apply_once(self, name: str, line: int) -> None:
        if name in self._applied:
            raise P4Error(f"{name} is applied twice; bmv2 accepts one application", line)
        self._applied.add(name)

    def _apply_control(
        self, instance: s.ControlInstance, call: s.CallStatement, scope: Scope, members: _Members
    ) -> list[Step]:
        full = f"{members.plane}.{instance.name}"
        self._apply_once(full, call.line)
        control = _named(self._controls, instance.control, "control", instance.line)
        if len(call.arguments) != len(control.parameters):
            raise P4Error(f"{full} takes {len(control.parameters)} arguments", call.line)
        variables = {}
        for argument, parameter in zip(call.arguments, control.parameters, strict=True):
            if not isinstance(argument, s.PathName):
                raise P4Error("a control takes variables", call.line)
            storage = resolve(argument, scope)
            if storage.type != self._type(parameter.type):
                raise P4Error(f"{argument} is {storage.type}", call.line)
            variables[parameter.name] = storage
        # P4 copies arguments in and out. References are the same if no argument is passed twice.
        if len({id(storage) for storage in variables.values()}) != len(variables):
            raise P4Error(f"{full} takes a variable twice", call.line)
        return self._compile_control(
            control, Scope(variables, self._constants, self.architecture.most_shift), full
        )


@dataclass(frozen=True)
class _Members:
    """Names that a control's statements may call."""

    plane: str = ""
    actions: dict[str, CompiledAction] = field(default_factory=dict)
    tables: dict[str, RuntimeTable] = field(default_factory=dict)
    instances: dict[str, s.ControlInstance] = field(default_factory=dict)
    meters: dict[str, RuntimeMeter] = field(default_factory=dict)


def _plane_name(annotations: s.Annotations, full: str) -> str:
    for name, value in annotations:
        if name == "name":
            # A leading dot makes the name global; any other is within the enclosing control.
            return value[1:] if value.startswith(".") else f"{full.rpartition('.')[0]}.{value}"
    return full


def _constant(value: CompiledExpression, line: int) -> int:
    if value.constant is None:
        raise P4Error("a case must be known at compile time", line)
    return value.constant


def _port(path: s.PathName, scope: Scope, name: str) -> None:
    if resolve(path, scope).type != Extern(name):
        raise P4Error(f"{path} is not a {name}", path.line)


def _unique(items: Iterable[Any], what: str) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for item in items:
        if item.name in out:
            raise P4Error(f"{what} {item.name} is declared twice", item.line)
        out[item.name] = item
    return out


def _named(items: Mapping[str, Any], name: str, what: str, line: int) -> Any:
    if name not in items:
        raise P4Error(f"the program has no {what} {name}", line)
    return items[name]
