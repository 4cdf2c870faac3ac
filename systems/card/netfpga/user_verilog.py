# SPDX-License-Identifier: Apache-2.0
"""Check a user's Verilog before it is simulated or synthesised beside other tenants' tasks.

A simulator runs what a design asks for: system tasks open files and start programs, a DPI import
calls any C function, ``bind`` and hierarchical names reach other modules, and some directives put
C++ into what Verilator compiles. pyslang reads the sources; whatever is not known to be harmless
is refused.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from n3ic.errors import N3icError, needed

_SYSTEM_FUNCTIONS = frozenset({"bits", "clog2", "signed", "unsigned"})
# Without conditionals: tools predefine macros, and other files define some, of which pyslang does
# not know, so that it would not see what they let in.
_DIRECTIVES = frozenset({"default_nettype", "define", "resetall", "timescale"})
# Kinds of syntax that reach outside the module in which they stand, or that no task needs.
_REFUSED = re.compile(
    r"DPIImport|DPIExport|BindDirective|DefParam|Class\w*Declaration|Extern\w+"
    r"|(Module|Program|Interface|Checker|Config|Udp|Library)Declaration"
)
_DECLARED = ("Declarator", "FunctionPrototype", "InstanceName", "NamedBlockClause")
_TOKENS = re.compile(r"(?P<system>\$\w*)|(?P<directive>`\w*)")


class UserVerilogError(N3icError):
    """A user's Verilog is malformed or reaches outside its own modules."""


@lru_cache(maxsize=16)  # the check of names across tasks asks again for each file
def modules_of(name: str, text: str) -> tuple[str, ...]:
    """Names of the modules of a source that is safe to simulate.

    Args:
        name: the file's name, for errors.
        text: Verilog or SystemVerilog.

    Raises:
        UserVerilogError: The source has a syntax error or a refused construct.
        MissingDependencyError: pyslang is not installed.
    """
    _check_tokens(text)
    with needed("reading a user's Verilog"):
        import pyslang
        from pyslang.syntax import SyntaxTree
    tree = SyntaxTree.fromText(text, pyslang.SourceManager(), name, name)
    if errors := [diagnostic for diagnostic in tree.diagnostics if diagnostic.isError()]:
        report = pyslang.DiagnosticEngine.reportAll(tree.sourceManager, errors)
        raise UserVerilogError(f"expected Verilog, got {report.strip()[:400]}")
    # pyslang gives a lone member without the unit around it
    root: Any = tree.root
    members = root.members if _kind(root) == "CompilationUnit" else (root,)
    for member in members:
        if _kind(member) != "ModuleDeclaration":
            raise UserVerilogError(f"expected modules, got {_short(member)}")
        _check_module(member)
    return tuple(member.header.name.valueText for member in members)


def _check_module(module: Any) -> None:
    nodes = [(_kind(node), node) for node in _nodes(module)]
    declared = {_first(node.name) for kind, node in nodes if kind in _DECLARED}
    for kind, node in nodes[1:]:
        if _REFUSED.fullmatch(kind):
            raise UserVerilogError(f"expected a design that runs by itself, got {_short(node)}")
        if kind == "SystemName":
            _check_system(_first(node))
        if kind == "ScopedName" and _first(node) not in declared:
            raise UserVerilogError(
                f"expected names that the module declares, got the hierarchical {_short(node)}"
            )


def _check_tokens(text: str) -> None:
    """Refuse what a simulator's preprocessor may read otherwise than pyslang's."""
    directives = _DIRECTIVES.union(re.findall(r"`define\s+(\w+)", text))
    for token in _TOKENS.finditer(text):
        if token["system"]:
            _check_system(token["system"])
        elif token["directive"] and token["directive"][1:] not in directives:
            raise UserVerilogError(
                f"expected no directive but {', '.join(sorted(_DIRECTIVES))} and macros defined in "
                f"the file, got {token['directive']}"
            )


def _check_system(name: str) -> None:
    if name[1:] not in _SYSTEM_FUNCTIONS:
        raise UserVerilogError(f"expected a design that runs by itself, got {name}")


def _nodes(root: Any) -> list[Any]:
    from pyslang.syntax import SyntaxNode

    nodes: list[Any] = []
    root.visit(lambda part: nodes.append(part) if isinstance(part, SyntaxNode) else None)
    return nodes


def _kind(node: Any) -> str:
    return str(node.kind).rpartition(".")[2]


def _first(part: Any) -> str:
    """The first token of a name, which may be a token itself; without comments before it."""
    token = part.getFirstToken() if hasattr(part, "getFirstToken") else part
    return str(token.valueText)


def _short(node: Any) -> str:
    return repr(" ".join(str(node).split())[:60])
