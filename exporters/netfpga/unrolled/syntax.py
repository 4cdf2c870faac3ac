# SPDX-License-Identifier: Apache-2.0
"""Parses the Verilog of an unrolled core: cells, registers and outputs, and their clocks.

The parser knows the subset of Verilog that such a core uses. It shares no code with the writer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from n3ic.errors import VerifyError
from n3ic.exporters.netfpga.core import unframed

DEBUG = "N3IC_TRACE"  # defined in the debug build, which shows hidden bits and scores
_MAX_INPUTS = 7

Literal = tuple[str, int]  # (signal, inverted); the signal "" is the constant 0


@dataclass(frozen=True)
class Module:
    """A cell's module: one truth table per output, whose bit ``i`` is for the input value ``i``."""

    name: str
    n_inputs: int
    outputs: dict[str, int]


@dataclass(frozen=True)
class ParsedInstance:
    """A cell: its module, its inputs from bit 0 on, and the signal of each output."""

    module: Module
    inputs: tuple[Literal, ...]
    outputs: dict[str, str]


@dataclass(frozen=True)
class ParsedCore:
    """A core as parsed from its text.

    Attributes:
        n_inputs: number of input bits; bit ``i`` is the signal ``in_bits[i]``.
        instances: cells of the core, each after the cells that it reads.
        outputs: literals of each output port, lowest bit first.
    """

    n_inputs: int
    instances: tuple[ParsedInstance, ...]
    outputs: dict[str, tuple[Literal, ...]]


def read_modules(text: str) -> dict[str, Module]:
    """Parse the modules of cells, by name.

    Raises:
        VerifyError: the text is outside the subset of cells.
    """
    modules = {}
    for match in re.finditer(r"\bmodule\s+(\w+)\s*\((.*?)\);(.*?)\bendmodule\b", _bare(text), re.S):
        module = _module(*match.groups())
        modules[module.name] = module
    return modules


def _module(name: str, ports: str, body: str) -> Module:
    width = re.search(r"input\s+wire\s+\[(\d+):0\]\s+in\b", ports)
    if width is None or int(width[1]) >= _MAX_INPUTS:
        raise VerifyError(f"module {name}: an input 'in' of at most {_MAX_INPUTS} bits expected")
    n = int(width[1]) + 1
    rows = 1 << n
    values = {f"in[{k}]": sum(1 << row for row in range(rows) if row >> k & 1) for k in range(n)}
    for statement in filter(None, map(str.strip, body.split(";"))):
        table = re.fullmatch(r"localparam\s+\[\d+:0\]\s+(\w+)\s*=\s*(\d+)'h([0-9a-f]+)", statement)
        if table and int(table[2]) == rows:
            values[f"{table[1]}[in]"] = int(table[3], 16)
            continue
        assignment = re.fullmatch(r"(?:assign|wire)\s+(\w+)\s*=\s*(.+)", statement, re.S)
        if not assignment:
            raise VerifyError(f"module {name}: not understood: {statement}")
        values[assignment[1]] = _evaluate(assignment[2], values, (1 << rows) - 1, name)
    outputs = re.findall(r"output\s+wire\s+(\w+)", ports)
    if missing := [port for port in outputs if port not in values]:
        raise VerifyError(f"module {name}: nothing drives {', '.join(missing)}")
    return Module(name, n, {port: values[port] for port in outputs})


def _evaluate(text: str, values: dict[str, int], full: int, where: str) -> int:
    """Compute the truth table of an expression of ``!``, ``&``, ``^`` and ``|`` from its terms'."""
    tokens = re.findall(r"\w+\[\w+\]|\w+|\S", text)

    def term() -> int:
        word = tokens.pop(0) if tokens else ""
        if word == "!":
            return full ^ term()
        if word not in values:
            raise VerifyError(f"module {where}: not understood: {text}")
        return values[word]

    def chain(operators: str) -> int:
        value = chain(operators[1:]) if len(operators) > 1 else term()
        while tokens and tokens[0] == operators[0]:
            tokens.pop(0)
            other = chain(operators[1:]) if len(operators) > 1 else term()
            operator = operators[0]
            value = (
                value | other
                if operator == "|"
                else value ^ other
                if operator == "^"
                else value & other
            )
        return value

    value = chain("|^&")
    if tokens:
        raise VerifyError(f"module {where}: not understood: {text}")
    return value


def read_core(text: str, modules: dict[str, Module], *, debug: bool = True) -> ParsedCore:
    """Parse the cells and outputs of a core.

    Raises:
        VerifyError: the text is outside the subset of cores, or a cell reads signals of different
            clocks.
    """
    header = re.search(
        r"\bmodule\s+n3ic_core\b.*?\)\s*\(.*?\);", text := _bare(text, debug=debug), re.S
    )
    width = header and re.search(r"\[(\d+):0\]\s+in_bits\b", header[0])
    if not header or not width:
        raise VerifyError("no module n3ic_core with input bits")
    reader = _Reader(int(width[1]) + 1, modules)
    body = text[header.end() :].partition("endmodule")[0].rstrip()
    position = 0
    while position < len(body):
        for pattern, take in reader.statements:
            match = pattern.match(body, position)
            if match:
                take(match)
                position = match.end()
                break
        else:
            raise VerifyError(f"not understood: {' '.join(body[position:].split())[:80]}")
    return reader.core()


@dataclass(frozen=True)
class _Made:
    """An instance in the text: module, inputs and outputs by port."""

    name: str
    module: Module
    inputs: str
    outputs: dict[str, str]


class _Reader:
    """Parses the statements one by one, then follows the outputs back to the inputs.

    For each signal it finds the clock in which the signal is valid.
    """

    def __init__(self, n_inputs: int, modules: dict[str, Module]) -> None:
        self.n_inputs = n_inputs
        self.modules = modules
        self.drivers: dict[str, _Made | str] = {}  # a wire's cell, a register's source
        self.clocks = {f"in_bits[{i}]": 1 for i in range(n_inputs)}
        self.aliases: dict[str, Literal] = {name: (name, 0) for name in self.clocks}
        self.instances: list[ParsedInstance] = []
        self.assigned: dict[str, str] = {}
        self.depth = 0
        name = r"\s*(\w+)\s*"
        self.statements = tuple(
            (re.compile(pattern, re.S), take)
            for pattern, take in (
                (r"\s*wire\s+[\w\s,]+;", self._nothing),
                (r"\s*reg\s+\[[^\]]+\][\w\s,]+;", self._nothing),
                (r"\s*assign\s+in_ready\s*=\s*1'b1;", self._nothing),
                (r"\s*assign\s+out_valid\s*=\s*valid\[(\d+)\];", self._valid),
                (r"\s*assign\s+out_tag\s*=[^;]+;", self._nothing),
                (r"\s*assign\s+(out_\w+)\s*=\s*\{([^}]*)\};", self._output),
                (r"\s*assign\s+out_(?:scores|margin)\s*=\s*\d+'d0;", self._nothing),
                (r"\s*always\s*@\(posedge clk\)\s*begin(.*?)\bend\b", self._registers),
                (
                    rf"{name}{name}\(\s*\.in\(\{{([^}}]*)\}}\)((?:\s*,\s*\.\w+\(\w*\))+)\s*\)\s*;",
                    self._instance,
                ),
            )
        )

    def _nothing(self, match: re.Match[str]) -> None:
        """Skip a statement that does not affect the network."""

    def _valid(self, match: re.Match[str]) -> None:
        self.depth = int(match[1])

    def _drive(self, name: str, driver: _Made | str) -> None:
        if name in self.drivers:
            raise VerifyError(f"{name} is driven twice")
        self.drivers[name] = driver

    def _registers(self, match: re.Match[str]) -> None:
        for name, source in re.findall(r"(\w+)\s*<=\s*(.+?);", match[1], re.S):
            if name in ("valid", "tags"):
                continue
            count = 1
            shifted = re.fullmatch(r"\{(\w+)\[(\d+):1\],\s*(.+?)\}", source.strip(), re.S)
            if shifted and shifted[1] == name:
                count, source = int(shifted[2]) + 1, shifted[3]
            for late in range(1, count + 1):
                self._drive(f"{name}[{late}]", source if late == 1 else f"{name}[{late - 1}]")

    def _instance(self, match: re.Match[str]) -> None:
        kind, name, inputs, ports = match.groups()
        if kind not in self.modules:
            raise VerifyError(f"no module is named {kind}")
        module = self.modules[kind]
        connected = dict(re.findall(r"\.(\w+)\((\w*)\)", ports))
        if inputs.count(",") + 1 != module.n_inputs or set(connected) != set(module.outputs):
            raise VerifyError(f"{name} has other ports than its module {kind}")
        instance = _Made(name, module, inputs, {p: wire for p, wire in connected.items() if wire})
        for wire in instance.outputs.values():
            self._drive(wire, instance)

    def _output(self, match: re.Match[str]) -> None:
        self.assigned[match[1]] = match[2]

    # --- following ---------------------------------------------------------------------------

    def _literals(self, text: str, where: str) -> tuple[tuple[Literal, ...], int]:
        """Resolve literals, lowest bit first, and their common clock; 0 for constants."""
        out: list[Literal] = []
        clock = 0
        for item in reversed([part.strip() for part in text.split(",")]):
            if item in ("1'b0", "1'b1"):
                out.append(("", int(item[-1])))
                continue
            inverted, name = int(item.startswith("!")), item.removeprefix("!")
            self._follow(name)
            when = self.clocks[name]
            if clock not in (0, when):
                raise VerifyError(
                    f"{where}: {name} is valid in clock {when}, other inputs in clock {clock}"
                )
            clock = when
            signal, flip = self.aliases[name]
            out.append((signal, flip ^ inverted))
        return tuple(out), clock

    def _follow(self, name: str) -> None:
        """Find the driver of a signal, and the clock in which it is valid."""
        if name in self.clocks:
            if not self.clocks[name]:
                raise VerifyError(f"{name} depends on itself")
            return
        driver = self.drivers.get(name)
        if driver is None:
            raise VerifyError(f"nothing drives {name}")
        self.clocks[name] = 0  # marks a signal that is being resolved, to find cycles
        if isinstance(driver, str):
            (self.aliases[name],), clock = self._literals(driver, name)
            self.clocks[name] = clock + 1
            return
        inputs, clock = self._literals(driver.inputs, driver.name)
        for wire in driver.outputs.values():
            self.clocks[wire], self.aliases[wire] = clock, (wire, 0)
        self.instances.append(ParsedInstance(driver.module, inputs, driver.outputs))

    def core(self) -> ParsedCore:
        """Return the parsed core; all outputs must be valid in the announced clock."""
        outputs = {}
        for name, text in self.assigned.items():
            outputs[name], clock = self._literals(text, name)
            if clock not in (0, self.depth + 1):
                raise VerifyError(f"{name} comes after {clock - 1} clocks, not {self.depth}")
        return ParsedCore(self.n_inputs, tuple(self.instances), outputs)


def _bare(text: str, *, debug: bool = True) -> str:
    """Select the text of a build, and remove comments and the directives around the file."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*", " ", unframed(text), flags=re.S)
    return "\n".join(_chosen(text.splitlines(), debug=debug))


def _chosen(lines: list[str], *, debug: bool) -> Iterator[str]:
    branches = [True]
    for line in lines:
        word, _, rest = line.strip().partition(" ")
        if word in ("`ifdef", "`ifndef"):
            branches.append((rest.strip() == DEBUG and debug) == (word == "`ifdef"))
        elif word == "`else":
            branches[-1] = not branches[-1]
        elif word == "`endif":
            branches.pop()
        elif word.startswith("`"):
            raise VerifyError(f"not understood: {line.strip()[:80]}")
        elif all(branches):
            yield line
