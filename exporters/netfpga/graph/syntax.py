# SPDX-License-Identifier: Apache-2.0
"""Parses the Verilog of a pipeline: its statements in order, and what they read.

The grammar is the subset of Verilog that such a core uses. Text that is not of it is an error, so
nothing is passed over. The code shares nothing with the writer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from n3ic.errors import VerifyError

_CLOCKED = r"always @\(posedge clk\)"
_STATEMENTS = {
    # The ports and the way of validity and tags; numbers are checked by who reads them.
    "ports": r"module n3ic_core #\( parameter TAG_W = 1 \) \( input wire clk, input wire rst, "
    r"input wire in_valid, output wire in_ready, input wire \[(?P<inputs>\d+):0\] in_bits, "
    r"input wire \[TAG_W-1:0\] in_tag, output wire out_valid, output wire \[TAG_W-1:0\] out_tag, "
    r"output wire \[(?P<class>\d+):0\] out_class, (?P<shunts>output wire out_shunt, )?"
    r"output wire \[(?P<scores>\d+):0\] out_scores, output wire \[(?P<margin>\d+):0\] out_margin "
    r"\); assign in_ready = 1'b1;",
    "unread": r"wire unread = \^\{in_bits\[\d+:\d+\](?:, in_bits\[\d+:\d+\])*\};",
    "valid": r"reg \[(?P<depth>\d+):1\] valid; reg \[TAG_W\*(?P=depth)-1:0\] tags; "
    rf"{_CLOCKED} begin valid <= rst \? (?P=depth)'d0 : "
    r"\{valid\[(?P<before>\d+):1\], in_valid\}; "
    r"tags <= \{tags\[TAG_W\*(?P=before)-1:0\], in_tag\}; end "
    r"assign out_valid = valid\[(?P=depth)\]; "
    r"assign out_tag = tags\[TAG_W\*(?P=depth)-1:TAG_W\*(?P=before)\];",
    # The cells.
    "bits": r"wire \[(?P<top>\d+):0\] (?P<name>bits\d+) = in_bits\[(?P<high>\d+):(?P<low>\d+)\];",
    "count": r"wire \[(?P<top>\d+):0\] (?P<name>count\d+); "
    r"n3ic_ones #\(\.N\((?P<n>\d+)\), \.W\((?P<w>\d+)\)\) u_(?P=name) "
    r"\(\.clk\(clk\), \.bits\((?P<a>[^()]+)\), \.ones\((?P=name)\)\);",
    "lookup": rf"reg \[(?P<top>\d+):0\] (?P<name>leaf\d+); {_CLOCKED} begin "
    r"case \((?P<a>[^()]+)\) (?P<entries>(?:\d+'d\d+: leaf\d+ <= \d+'d\d+; )*)"
    r"default: (?P=name) <= (?P<other>\d+'d\d+); endcase end",
    "add": rf"reg \[(?P<top>\d+):0\] (?P<name>sum\d+); {_CLOCKED} (?P=name) <= "
    r"(?P<a>[^;+]+) \+ (?P<b>[^;+]+);",
    "gate": r"wire (?P<name>gate\d+); "
    r"n3ic_gate #\(\.N\((?P<n>\d+)\), \.TABLE\((?P<size>\d+)'h(?P<table>[0-9a-f]+)\)\) "
    r"u_(?P=name) \(\.clk\(clk\), \.at\((?P<a>[^()]+)\), \.value\((?P=name)\)\);",
    "join": r"wire \[(?P<top>\d+):0\] (?P<name>value\d+) = (?P<a>[^;]+);",
    "mux": rf"reg \[(?P<top>\d+):0\] (?P<name>chosen\d+); {_CLOCKED} (?P=name) <= "
    r"(?P<bit>\S+) \? (?P<one>[^;?]+) : (?P<zero>[^;?]+);",
    "larger": r"wire \[(?P<top>\d+):0\] (?P<name>max(?P<at>\d+)); "
    r"wire \[(?P<more_top>\d+):0\] more(?P=at); "
    r"n3ic_log_max #\(\.W\((?P<w>\d+)\), \.SIGNED\((?P<signed>[01])\), \.AT_W\((?P<at_w>\d+)\), "
    r"\.MORE_W\((?P<more_w>\d+)\)\) u_(?P=name) \( \.clk\(clk\), \.a\((?P<a>[^()]+)\), "
    r"\.b\((?P<b>[^()]+)\), \.larger\((?P=name)\), \.more\(more(?P=at)\) \);",
    "times": r"wire \[(?P<top>\d+):0\] (?P<name>product\d+); "
    r"n3ic_times #\(\.A_W\((?P<a_w>\d+)\), \.B_W\((?P<b_w>\d+)\), \.W\((?P<w>\d+)\), "
    r"\.FRACTION\((?P<fraction>\d+)\)\) u_(?P=name) \( \.clk\(clk\), \.a\((?P<a>[^()]+)\), "
    r"\.b\((?P<b>[^()]+)\), \.product\((?P=name)\) \);",
    "scale": r"wire \[(?P<top>\d+):0\] (?P<name>scaled\d+); "
    r"n3ic_scale #\(\.A_W\((?P<a_w>\d+)\), \.W\((?P<w>\d+)\), \.BY\((?P<by_w>\d+)'d(?P<by>\d+)\)\) "
    r"u_(?P=name) \( \.clk\(clk\), \.a\((?P<a>[^()]+)\), \.product\((?P=name)\) \);",
    "round": r"wire \[(?P<top>\d+):0\] (?P<name>rounded\d+); "
    r"n3ic_round #\(\.A_W\((?P<a_w>\d+)\), \.W\((?P<w>\d+)\), \.FRACTION\((?P<fraction>\d+)\)\) "
    r"u_(?P=name) \( \.clk\(clk\), \.a\((?P<a>[^()]+)\), \.rounded\((?P=name)\) \);",
    "delay": rf"reg \[(?P<top>\d+):0\] (?P<name>[a-z]+\d*)_d; {_CLOCKED} (?P=name)_d <= "
    r"(?:\{(?P=name)_d\[(?P<kept>\d+):0\], (?P=name)\}|(?P=name));",
    # Scores, the best one, and its lead.
    "score": r"wire \[(?P<top>\d+):0\] score(?P<at>\d+) = (?P<a>[^;]+); "
    r"wire \[(?P=top):0\] key(?P=at) = "
    r"\{~score(?P=at)\[(?P=top)\], score(?P=at)\[(?P<below>\d+):0\]\};",
    "scores": r"wire \[(?P<top>\d+):0\] (?P<name>scores) = \{(?P<a>score\d+(?:, score\d+)*)\};",
    "out_scores": r"assign out_scores = scores_d\[(?P<high>\d+):(?P<low>\d+)\];",
    "match": r"wire \[(?P<top>\d+):0\] (?P<name>match\d+)_best, (?P=name)_second; "
    r"wire \[(?P<class>\d+):0\] (?P=name)_class; "
    r"n3ic_best #\(\.W\((?P<w>\d+)\), \.CLASS_W\((?P<class_w>\d+)\)\) u_(?P=name) \( "
    r"\.clk\(clk\), \.a_best\((?P<a_best>[^()]+)\), \.a_second\((?P<a_second>[^()]+)\), "
    r"\.a_class\((?P<a_class>[^()]+)\), \.b_best\((?P<b_best>[^()]+)\), "
    r"\.b_second\((?P<b_second>[^()]+)\), \.b_class\((?P<b_class>[^()]+)\), "
    r"\.best\((?P=name)_best\), \.second\((?P=name)_second\), \.best_class\((?P=name)_class\) \);",
    "lead": r"reg \[(?P<top>\d+):0\] margin; reg \[(?P<class>\d+):0\] winner; "
    rf"{_CLOCKED} begin margin <= (?P<name>match\d+)_best - (?P=name)_second; "
    r"winner <= (?P=name)_class; end",
    "shunt": r"reg \[(?P<top>\d+):0\] margin_d; reg \[(?P<class>\d+):0\] winner_d; reg shunt_d; "
    rf"{_CLOCKED} begin margin_d <= margin; winner_d <= winner; "
    r"shunt_d <= (?:margin < (?P<least>\d+'d\d+)|1'b1); end assign out_shunt = shunt_d;",
    "end": r"assign out_margin = (?:margin; assign out_class = winner|"
    r"(?P<late>margin_d); assign out_class = winner_d); endmodule",
}
_COMPILED = {kind: re.compile(pattern) for kind, pattern in _STATEMENTS.items()}
_REFERENCE = re.compile(r"([a-z]+\d*)(?:(_d)\[(\d+):(\d+)\])?")
_LITERAL = re.compile(r"(\d+)'d(\d+)")
_EXTENDED = re.compile(r"\{\{(\d+) \{([^{}]+)\}\}, ([^{}]+)\}")


@dataclass(frozen=True)
class Statement:
    """A statement: its kind, and the texts of its parts by name."""

    kind: str
    parts: Mapping[str, str]

    def number(self, name: str) -> int:
        """A part that is a number."""
        return int(self.parts[name])

    def has(self, name: str) -> bool:
        """Whether it has an optional part."""
        return self.parts[name] is not None


@dataclass(frozen=True)
class SizedNumber:
    """A constant of some bits."""

    width: int
    value: int


@dataclass(frozen=True)
class Reference:
    """A signal, or one of its delays.

    Attributes:
        name: the signal.
        high, low: bits of the signal's delays; -1 for the signal itself.
    """

    name: str
    high: int = -1
    low: int = -1


@dataclass(frozen=True)
class Extended:
    """A signal with more bits above: all 0, all 1, or copies of a bit.

    Attributes:
        more: number of bits.
        by: their value, or the bit that they copy, as text.
        of: the signal.
    """

    more: int
    by: str
    of: Reference


Expression = SizedNumber | Reference | Extended


def plain_text(text: str) -> str:
    """Verilog without comments, with single spaces."""
    return " ".join(re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.S).split())


def statements(text: str, where: str) -> Iterator[Statement]:
    """The statements of a core in order.

    Args:
        text: the Verilog.
        where: the file's name, for errors.

    Raises:
        VerifyError: text is not of the grammar.
    """
    plain, at = plain_text(text), 0
    while at < len(plain):
        for kind, pattern in _COMPILED.items():
            if match := pattern.match(plain, at):
                yield Statement(kind, match.groupdict())
                at = match.end() + 1
                break
        else:
            raise VerifyError(
                f"{where}: a statement of a pipeline is expected, not {plain[at : at + 60]!r}"
            )


def expression(text: str, where: str) -> Expression:
    """What a cell reads.

    Raises:
        VerifyError: the text is not of the grammar.
    """
    if match := _LITERAL.fullmatch(text):
        width, value = map(int, match.groups())
        if value >> width:
            raise VerifyError(f"{where}: {value} has more than {width} bits")
        return SizedNumber(width, value)
    if match := _EXTENDED.fullmatch(text):
        of = expression(match[3], where)
        if isinstance(of, Reference):
            return Extended(int(match[1]), match[2], of)
    if match := _REFERENCE.fullmatch(text):
        return Reference(match[1], *(map(int, match.groups()[2:]) if match[2] else ()))
    raise VerifyError(f"{where}: a signal is expected, not {text!r}")


def joined(text: str, where: str) -> list[Expression]:
    """The parts that are written side by side, the lowest bits first."""
    inner = text[1:-1] if text.startswith("{") and not text.startswith("{{") else text
    return [expression(part, where) for part in reversed(inner.split(", "))]


def entries(text: str, name: str, where: str) -> dict[int, tuple[int, int, int]]:
    """The entries of a table: for each index its width, the entry's width and the entry."""
    table: dict[int, tuple[int, int, int]] = {}
    for width, at, to, size, value in re.findall(r"(\d+)'d(\d+): (\w+) <= (\d+)'d(\d+);", text):
        if to != name or int(at) in table:
            raise VerifyError(f"{where}: entry {at} is there twice, or of {to}")
        table[int(at)] = int(width), int(size), int(value)
    return table
